"""AWS Step Functions, saga-pattern sample (2019): reserve a flight and a car, pay, confirm both.

Its authors mean: each task is tried again a few times; what fails for good is undone, with what was done before it,
in the opposite order; and the customer is told either way.  Their chain of compensations is written by hand, so it is
here.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

from harness import Day, Port, log

from fsm_agent import Context, Retries
from fsm_agent.flows import Failure, Flow, end, execute, failure


@dataclass(frozen=True)
class Trip:
    to: str
    done: tuple[str, ...] = ()
    error: str = ""


def task(name: str, attempts: int = 3):
    """A task with its retries, the same for each, as their definition repeats it for each."""

    @execute(name=name, retries=Retries(attempts=attempts, delay_s=1))
    def do(t: Trip, context: Context[str]) -> str:
        log(context, name)
        if name == "confirm_car":
            raise RuntimeError("no car is left")
        return name

    return do


reserve_flight, reserve_car, pay = task("reserve_flight"), task("reserve_car"), task("pay")
confirm_flight, confirm_car = task("confirm_flight"), task("confirm_car", attempts=2)
tell_success, tell_failure = task("tell_success"), task("tell_failure")
refund, cancel_car, cancel_flight = task("refund"), task("cancel_car"), task("cancel_flight")
stuck = failure("stuck", "what was booked could not be undone")


def keep(t: Trip, name: str) -> Trip:
    return replace(t, done=(*t.done, name))


def note(t: Trip, why: Failure) -> Trip:
    return replace(t, error=why.detail)


UNDONE_BY = {
    reserve_flight: cancel_flight,
    reserve_car: cancel_car,
    pay: refund,
    confirm_flight: refund,
    confirm_car: refund,
}
AHEAD = [*UNDONE_BY, tell_success]
FLOW = Flow(
    "saga",
    Trip,
    start=reserve_flight,
    rows=[
        *[this.done(after, do=keep) for this, after in pairwise(AHEAD)],
        *[this.failed(undo, do=note) for this, undo in UNDONE_BY.items()],
        tell_success.done(end("booked")),
        refund.done(cancel_car),
        cancel_car.done(cancel_flight),
        cancel_flight.done(tell_failure),
        tell_failure.done(failure("not_booked", "the trip could not be booked")),
        *[this.failed(stuck) for this in (refund, cancel_car, cancel_flight)],
    ],
)


def check(t, log):
    ahead = ["reserve_flight", "reserve_car", "pay", "confirm_flight", "confirm_car", "confirm_car"]
    assert log == [*ahead, "refund", "cancel_car", "cancel_flight", "tell_failure"]
    assert t.done == ("reserve_flight", "reserve_car", "pay", "confirm_flight")
    assert t.error.startswith("RuntimeError: no car is left")


PORT = Port(FLOW, Trip("Rome"), [Day("not_booked")], check, gives={state: [state.name] for state in FLOW.live})

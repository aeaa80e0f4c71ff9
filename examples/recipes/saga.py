"""A saga: bookings one after the other, and when one fails or the trip is cancelled, all of them are undone.

Run it with ``python examples/recipes/saga.py``: its bookings are lines that it prints.
"""

from dataclasses import dataclass, replace

from fsm_agent import Context, Retries
from fsm_agent.flows import Failure, Flow, any_state, cancelled, each, end, execute, failure

STEPS = ("flight", "hotel", "payment")


@dataclass(frozen=True)
class Trip:
    to: str
    booked: tuple[str, ...] = ()
    problem: str = ""


def book(what: str, context: Context[str]) -> str:
    """Stands for a request to another company, which knows ``context.idempotency_key`` again."""
    if what == context.deps:
        raise LookupError(f"no {what}")
    print(f"book {what}")
    return what


@execute
def flight(t: Trip, context: Context[str]) -> str:
    return book("flight", context)


@execute
def hotel(t: Trip, context: Context[str]) -> str:
    return book("hotel", context)


@execute
def payment(t: Trip, context: Context[str]) -> str:
    return book("payment", context)


@execute(retries=Retries(attempts=5))
def undo(what: str) -> None:
    """Undo a booking, if there is one."""
    print(f"undo {what}")


def begun(t: Trip) -> tuple[str, ...]:
    """Return what may have been booked, the last one first: what has failed may have happened all the same."""
    return STEPS[len(t.booked) :: -1]


undoing = each("undoing", undo, begun, parallel=1)


def keep(t: Trip, what: str) -> Trip:
    return replace(t, booked=(*t.booked, what))


def note(t: Trip, why: Failure) -> Trip:
    return replace(t, problem=why.detail)


saga = Flow(
    "saga",
    Trip,
    start=flight,
    rows=[
        flight.done(hotel, do=keep),
        hotel.done(payment, do=keep),
        payment.done(end("booked"), do=keep),
        *any_state(flight, hotel, payment).failed(undoing, do=note),
        cancelled(undoing, do=note),
        undoing.done(end("undone")),
        undoing.failed(failure("stuck", "a booking could not be undone")),
    ],
)


def main() -> None:
    for missing in ("nothing", "payment"):
        result = saga.call(Trip("Rome"), deps=missing)
        print(f"{result.state}: {result.output.problem or 'have a good trip'}")


if __name__ == "__main__":
    main()

"""A saga, and as a program: drive it on, and be killed at a step or around an effect."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kill_points import KillPoints

from fsm_agent.call import Returned, RunAgain
from fsm_agent.flows import Flow, FlowFailed, FlowLimits, FlowSuspended, cancelled, end, execute, expired, wait
from fsm_agent.messages import Stepped
from fsm_agent.store import Runs, SqliteStore
from fsm_agent.testing import FakeClock

RUN = "order-1"


@dataclass(frozen=True)
class Order:
    done: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    why: str = ""


def act(what: str) -> str:
    """Do something that must not be done twice; it is in a file, for the test."""
    with Path("effects.txt").open("a") as file:
        file.write(f"{what}\n")
    return what


@execute(once=True)
def booking(o: Order) -> str:
    return act("booked")


@execute(once=True)
def paying(o: Order) -> str:
    return act("paid")


@wait(bool)
def shipping(o: Order) -> str:
    return "Is it shipped?"


def is_paid(o: Order) -> bool:
    return "paid" in o.done and "refunded" not in o.undone


def is_booked(o: Order) -> bool:
    return "booked" in o.done and "unbooked" not in o.undone


@execute
def undoing(o: Order) -> None:
    return None


@execute(once=True)
def refunding(o: Order) -> str:
    return act("refunded")


@execute(once=True)
def unbooking(o: Order) -> str:
    return act("unbooked")


def did(o: Order, what: str) -> Order:
    return replace(o, done=(*o.done, what))


def undid(o: Order, what: str) -> Order:
    return replace(o, undone=(*o.undone, what))


def note(o: Order, why: Any) -> Order:
    return replace(o, why=": ".join(filter(None, [why.reason, why.detail])))


saga = Flow(
    "saga",
    Order,
    start=booking,
    limits=FlowLimits(deadline_s=3600),
    rows=[
        booking.done(paying, do=did),
        booking.failed(undoing, do=note),
        paying.done(shipping, do=did),
        paying.failed(undoing, do=note),
        shipping.done(end("shipped"), of=True),
        shipping.done(undoing, of=False),
        cancelled(undoing, do=note),
        expired(undoing, do=note),
        undoing.done(refunding, when=is_paid),
        undoing.done(unbooking, when=is_booked),
        undoing.done(end("undone", failed=True)),
        refunding.done(undoing, do=undid),
        unbooking.done(undoing, do=undid),
    ],
)
START_S = 1_000_000_000.0


def stored(now_s: float = START_S) -> Flow[Order]:
    clock = FakeClock(now_s)
    made = replace(saga, store=Runs(SqliteStore("runs.db", clock.now)), environment={"clock": clock})
    made.runs.all.claims.lease_s = 0.5
    return made


def main(folder: str, now_s: float, kill_at: int, point: str) -> None:
    """Drive until the step of this number, or the point of this number if it is named, or to the end for 0."""
    os.chdir(folder)
    flow, steps = stored(now_s), 0
    if point:
        points = KillPoints(point, kill_at)
        points.watch(flow.runs.all.store)
        for state in (booking, paying, refunding, unbooking):
            state.function = replace(state.function, call=points.around(state.function.call))

    def sink(event: Any) -> None:
        nonlocal steps
        steps += isinstance(event, Stepped)
        if not point and kill_at and steps == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    answers: Any = None
    while True:
        try:
            print(flow.runs.resume(RUN, answers, sink=sink).state)
        except FlowFailed as failed:
            print(failed.run.state)
        except FlowSuspended as waiting:
            doubts = [effect.key for effect in waiting.run.effects if effect.key.startswith("reconcile:")]
            if doubts:
                what = {"booking": "booked", "paying": "paid", "refunding": "refunded", "unbooking": "unbooked"}
                happened = what[doubts[0].partition(":")[2].partition("#")[0]]
                is_known = happened in Path("effects.txt").read_text().split()
                answers = {doubts[0]: Returned(text=f'"{happened}"') if is_known else RunAgain()}
                continue
            print(waiting.run.state)
        return


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])

"""Flows whose data decide how long they wait; and, as a program, one more day of one of them in another OS process."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from fsm_agent.flows import Failure, Flow, FlowSuspended, end, execute, failure, pause, wait
from fsm_agent.testing import FakeClock

DAY_S = 86_400.0
START_S = datetime(2026, 3, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class Task:
    """Something that is due."""

    due: datetime
    reminders: int = 0


@dataclass(frozen=True)
class Finished:
    kind: Literal["finished"] = "finished"


@dataclass(frozen=True)
class Moved:
    """The due date has changed."""

    due: datetime


def due_of(t: Task) -> datetime:
    return t.due


@wait(Finished, Moved, until=due_of)
def working(t: Task) -> str:
    return f"done by {t.due}?"


@execute
def reminding(t: Task) -> int:
    return t.reminders + 1


# Temporal's updatable timer, and a reminder at the due date: a signal moves it while it is waited for
reminder = Flow(
    "reminder",
    Task,
    start=working,
    rows=[
        working.done(end("finished"), of=Finished),
        working.done(working, of=Moved, do=lambda t, m: replace(t, due=m.due)),
        working.elapsed(reminding),
        reminding.done(end("reminded"), do=lambda t, n: replace(t, reminders=n)),
    ],
)


@dataclass(frozen=True)
class Bid:
    bidder: str
    amount: int


@dataclass(frozen=True)
class Auction:
    lasts_s: float
    bids: tuple[Bid, ...] = ()


def lasts(a: Auction) -> float:
    return a.lasts_s


@wait(Bid, within_s=lasts, restart=False)
def bidding(a: Auction) -> str:
    return f"above {max([b.amount for b in a.bids], default=0)}"


# XState's car auction: bids are taken for so long in all, since events do not enter the state anew
auction = Flow(
    "auction",
    Auction,
    start=bidding,
    rows=[
        bidding.done(bidding, do=lambda a, b: replace(a, bids=(*a.bids, b))),
        bidding.elapsed(end("sold")),
    ],
)


@dataclass(frozen=True)
class Download:
    retry_after_s: tuple[float, ...]  # what the server says, one after another
    tries: int = 0
    text: str = ""


class Busy(Exception):
    """429, with the seconds of `Retry-After`."""


@execute
def fetching(d: Download) -> str:
    if d.tries < len(d.retry_after_s):
        raise Busy(d.retry_after_s[d.tries])
    return "page"


def may_retry(d: Download, why: Failure) -> bool:
    return why.detail.startswith("Busy") and d.tries < 3


def retry_after(d: Download) -> float:
    return d.retry_after_s[d.tries - 1]


backing_off = pause("backing_off", retry_after)
downloads = Flow(
    "downloads",
    Download,
    start=fetching,
    rows=[
        fetching.done(end("loaded"), do=lambda d, a: replace(d, text=a)),
        fetching.failed(backing_off, when=may_retry, do=lambda d, _: replace(d, tries=d.tries + 1)),
        fetching.failed(failure("given_up")),
        backing_off.elapsed(fetching),
    ],
)

FLOWS: dict[str, Flow[Any]] = {flow.name: flow for flow in (reminder, auction, downloads)}


def at(flow: Flow[Any], now_s: float, store: Any = None) -> Flow[Any]:
    """Return a flow at a moment."""
    return replace(flow, store=store, world={"clock": FakeClock(now_s)})


def main(name: str, store: str, now_s: float, answer: str) -> None:
    """Drive the run at a moment, with an answer or without; print where it is, and when it continues."""
    flow = at(FLOWS[name], now_s, store)
    answers = eval(answer)
    try:
        result = flow.resume("run", answers)
        print(result.state, None)
    except FlowSuspended as waiting:
        print(waiting.run.state, waiting.wake_at_s)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4])

"""Temporal, samples-python/updatable_timer (2025): a sleep until a moment, which a signal may change at any time.

Its authors mean: it wakes at the moment that is known last, earlier or later than the first one; a moment that has
passed wakes it at once; and a query tells the moment: `flow.at` here, which drives nothing.
"""

from dataclasses import dataclass, replace

from harness import DAY_S, START_S, Day, Port

from fsm_agent.flows import Flow, end, wait


@dataclass(frozen=True)
class WakeAt:
    moment: float  # Unix seconds


@dataclass(frozen=True)
class Timer:
    wake_at: float


def wake_at(t: Timer) -> float:
    return t.wake_at


@wait(WakeAt, until=wake_at)
def sleeping(t: Timer) -> float:
    return t.wake_at


FLOW = Flow(
    "updatable_timer",
    Timer,
    start=sleeping,
    rows=[
        sleeping.done(sleeping, do=lambda t, a: replace(t, wake_at=a.moment)),
        sleeping.elapsed(end("awake")),
    ],
)


def check(t, log):
    assert t.wake_at == START_S + 2 * DAY_S


PORT = Port(
    FLOW,
    Timer(START_S + DAY_S),
    [
        Day("sleeping", shows=START_S + DAY_S),
        Day("sleeping", {sleeping: WakeAt(START_S + 5 * DAY_S)}, shows=START_S + 5 * DAY_S),
        Day("sleeping", after_s=2 * DAY_S),
        Day("awake", {sleeping: WakeAt(START_S + 2 * DAY_S)}, after_s=3 * DAY_S),
    ],
    check,
    gives={sleeping: [WakeAt(START_S)]},
)

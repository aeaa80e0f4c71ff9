"""Temporal, samples-python/sleep_for_days (2025): a mail every 30 days, until the signal `complete` comes.

Its authors mean: a sleep of days survives everything, and the signal ends it at once.  A signal is here the answer of
a `wait`.
"""

from dataclasses import dataclass, replace
from typing import Literal

from harness import DAY_S, Day, Port, log

from fsm_agent import Context
from fsm_agent.flows import Flow, end, execute, wait


@dataclass(frozen=True)
class Complete:
    kind: Literal["complete"] = "complete"


@dataclass(frozen=True)
class Mails:
    sent: int = 0


@execute
def mailing(m: Mails, context: Context[str]) -> None:
    log(context, f"mail {m.sent + 1}")


@wait(Complete, within_s=30 * DAY_S)
def sleeping(m: Mails) -> str:
    return f"{m.sent} sent"


FLOW = Flow(
    "sleep_for_days",
    Mails,
    start=mailing,
    rows=[
        mailing.done(sleeping, do=lambda m, _: replace(m, sent=m.sent + 1)),
        sleeping.elapsed(mailing),
        sleeping.done(end("complete")),
    ],
)


def check(m, log):
    assert m.sent == 3
    assert log == ["mail 1", "mail 2", "mail 3"]


PORT = Port(
    FLOW,
    Mails(),
    [
        Day("sleeping"),
        Day("sleeping", after_s=29 * DAY_S),
        Day("sleeping", after_s=30 * DAY_S),
        Day("sleeping", after_s=61 * DAY_S),
        Day("complete", {sleeping: Complete()}, after_s=62 * DAY_S),
    ],
    check,
    gives={mailing: [None], sleeping: [Complete()]},
    limit=40,
)

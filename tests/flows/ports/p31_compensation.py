"""Temporal, samples-python/message_passing/waiting_for_handlers_and_compensation (2025): compensate on cancellation.

Its authors mean: when a workflow is cancelled while an update has done something, what it has done is compensated
before the workflow ends, and the run counts as cancelled.  Theirs races a future of the exit against each handler and
catches `CancelledError` by hand; here a cancellation is a row.
"""

from dataclasses import dataclass, replace
from typing import Literal

from harness import Day, Port, log

from fsm_agent import Context
from fsm_agent.flows import Failure, Flow, cancelled, end, execute, failure, wait


@dataclass(frozen=True)
class Finish:
    kind: Literal["finish"] = "finish"


@dataclass(frozen=True)
class Work:
    update: str = ""
    reason: str = ""


@execute
def updating(w: Work, context: Context[str]) -> str:
    return log(context, "update")


@wait(Finish)
def waiting(w: Work) -> str:
    return "Finish?"


@execute
def compensating(w: Work, context: Context[str]) -> None:
    log(context, f"compensate {w.update}")


def note(w: Work, why: Failure) -> Work:
    return replace(w, reason=why.detail)


FLOW = Flow(
    "compensation",
    Work,
    start=updating,
    rows=[
        updating.done(waiting, do=lambda w, done: replace(w, update=done)),
        waiting.done(end("finished")),
        cancelled(compensating, do=note),
        compensating.done(failure("compensated", "the run was cancelled, and its update is undone")),
    ],
)


def check(w, log):
    assert log == ["update", "compensate update"]
    assert w.reason == "no longer wanted"


PORT = Port(
    FLOW,
    Work(),
    [Day("waiting"), Day("compensated", is_cancelled=True)],
    check,
    gives={updating: ["update"], waiting: [Finish()], compensating: [None]},
)

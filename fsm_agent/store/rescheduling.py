"""Reschedules runs that could not be driven, with increasing delays.  In the end, they ask a person what to do."""

from __future__ import annotations

import time
from contextlib import suppress

from fsm_agent._internal.masking import mask_keys
from fsm_agent._internal.structs import Value, from_json, to_json
from fsm_agent.errors import ReplayError
from fsm_agent.messages.events import Question
from fsm_agent.store.checks import UNTIL_DUE
from fsm_agent.store.listing import STUCK
from fsm_agent.store.store import Lease, Run, Suspension

MAX_TRIES = 5  # after this many claims in a row without a new entry, the run is stuck
RETRY_S = 4.0  # time until a run that could not be driven is tried again; it doubles with each attempt in a row
MAX_PROBLEM_CHARS = 2000  # longest exception text in the question about a stuck run
STUCK_STATE = "Stuck"  # the state of a stuck run


class Stuck(Value, frozen=True):
    """The content of the question that a stuck run asks."""

    problem: str
    fingerprint: str = ""  # of the code that could not drive the run; empty if unknown


def after_attempt(
    rest: Suspension,
    lease: Lease,
    n: int,
    error: Exception,
    fingerprint: str | None,
    has_signals: bool,
    now_s: float,
) -> Suspension:
    """Return the suspension of a run after an attempt to drive it has failed.  The run's questions stay open.

    Pending signals do not make the run due.  Otherwise, it would be retried without any delay and soon be stuck.

    Args:
        rest: The suspension that the run would have without the failure.
        lease: The lease.
        n: The current number of entries.
        error: The exception that the attempt raised.
        fingerprint: The fingerprint of the code, empty if unknown, or None if the attempt does not count because the
            code is not at fault.
        has_signals: Whether signals are pending.
        now_s: The Unix time by the store's clock.
    """
    tries = lease.tries if n == lease.n else 1
    if fingerprint is not None and tries >= MAX_TRIES:
        problem = f"{tries} drivers in a row have claimed it without adding an entry; the last raised {typed(error)}"
        return as_stuck(Stuck(problem, fingerprint), rest.questions)
    # A clock that is ahead must not keep the run from others.
    due_s = min(time.time(), now_s) + RETRY_S * 2 ** (min(tries, MAX_TRIES) - 1)
    wakes_on = UNTIL_DUE if has_signals else None
    return rest.changed(due_s=due_s, wakes_on=wakes_on, is_in_vain=fingerprint is not None)


def as_stuck(stuck: Stuck, waits: tuple[Question, ...]) -> Suspension:
    """Return the suspension of a run that asks a person what to do, in addition to its other questions."""
    question = Question(STUCK, STUCK, to_json(stuck), ("run_again", "cancelled"))
    asked = (question, *[own for own in waits if own.key != STUCK])
    return Suspension(state=STUCK_STATE, questions=asked, wakes_on=STUCK)


def stuck_in(run: Run) -> Stuck | None:
    """Return why a run is stuck, or None if it is not."""
    for question in run.waits:
        if question.key == STUCK:
            with suppress(ValueError):
                stuck: Stuck = from_json(question.about, Stuck)
                return stuck
    return None


def check_not_stuck(run: Run) -> None:
    """Refuse to wait for a run that is stuck.

    Raises:
        ReplayError: If the run is stuck.
    """
    if (stuck := stuck_in(run)) is not None:
        raise ReplayError(f"the run {run.id!r} is stuck until its question 'stuck' is answered: {stuck.problem}")


def typed(error: BaseException) -> str:
    """Return an exception's type, message and notes, without API keys, as text that every store can hold."""
    notes = "".join([f"; {note}" for note in getattr(error, "__notes__", ())])  # they name the state and the row
    text = mask_keys(f"{type(error).__name__}: {error}{notes}")[:MAX_PROBLEM_CHARS]
    return text.encode("ascii", "backslashreplace").decode().replace("\0", "\\x00")

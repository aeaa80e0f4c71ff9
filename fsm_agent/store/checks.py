"""Checks for store arguments and answers, and the errors that all stores share.

Each check raises `UsageError` if the value cannot be stored.  Answers are checked before they are posted, because the
person who posts an answer cannot see whether the driver later refuses it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_args

import msgspec

from fsm_agent._internal.structs import decoder_of, is_finite, is_whole
from fsm_agent.call.outcomes import Modified, Outcome, Returned
from fsm_agent.call.process import INBOX, prefix_of
from fsm_agent.call.question_forms import misfit
from fsm_agent.errors import OutcomeError, UsageError
from fsm_agent.messages.events import Question
from fsm_agent.store.errors import LeaseLost, NotAsked, RunUnknown, SignalExists, StoreError
from fsm_agent.store.store import (
    MAX_KEY_BYTES,
    MAX_NAME_BYTES,
    MAX_PRIORITY,
    MAX_TIME_S,
    Head,
    Lease,
    Run,
    Start,
    Store,
    Suspension,
)
from fsm_agent.validation import require, safe_repr

UNTIL_DUE = "start"  # `wakes_on` of a run that is due later; no question has this key, so no signal wakes the run
_AT_ONCE = Start()
_NAMES = {kind.__struct_config__.tag: kind.__name__ for kind in get_args(Outcome)}


def keeps_real_time(store: Store) -> bool:
    """Return whether runs outlive the OS process and use real time."""
    return not store.is_volatile and not getattr(store, "has_own_clock", False)


def check_text(what: str, text: str) -> None:
    """Check that a value is a string without lone surrogates."""
    if isinstance(text, str) and text.isascii():
        return
    require(what, text, isinstance(text, str), "a string")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{what}: expected text that can be stored, got half a surrogate pair, {text[error.start]!r}, at"
            f" {error.start}; replace it first, for instance with U+FFFD"
        ) from None


def check_name(what: str, name: str, limit: int = MAX_NAME_BYTES) -> None:
    """Check that text can be stored in an index: it has at most ``limit`` bytes and no lone surrogates."""
    check_text(what, name)
    if len(name) * 4 > limit and (size := len(name.encode())) > limit:
        raise UsageError(f"{what}: expected at most {limit} bytes, got {size}: {safe_repr(name)}; name it by its hash")


def check_path(path: str | os.PathLike[str]) -> None:
    """Refuse a path with characters that no system accepts."""
    try:
        is_right = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_right = False
    require("the path of a store", os.fspath(path), is_right, "a path without zero characters and lone surrogates")


def check_line(what: str, line: str) -> None:
    """Check that a line of a journal is one line of text."""
    check_text(what, line)
    if "\n" in line:
        raise UsageError(f"{what}: expected one line, got a line break at {line.index(chr(10))}; write it as \\n")


class _Begun(msgspec.Struct):
    fingerprint: str = ""


def fingerprint_in(header: str) -> str:
    """Return the fingerprint of the code that began a run, or an empty string if the run's header has none."""
    try:
        begun: _Begun = decoder_of(_Begun).decode(header)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return begun.fingerprint


def check_create(
    run: str,
    header: str,
    agent: str,
    title: str,
    follows: Head | None,
    holder: str | None,
    for_s: float,
    lines: Sequence[str],
    start: Start | None,
) -> Start:
    """Check the arguments to `Store.create`, and return the start, with a negative due time raised to ``0.0``."""
    check_new_run(run)
    check_name("the name of an agent", agent)
    check_line("the header", header)
    check_text("the title", title)
    if follows is not None:
        check_conversation(follows.conversation)
    if holder is not None:
        check_text("the name of a holder", holder)
        check_for_s(for_s)
        check_lines(lines)
        require("start", start, start is None, "None, since a holder is given")
    else:
        require("lines", lines, not lines, "none, since no holder is given")
    return _AT_ONCE if start is None else _checked_start(start)


def _checked_start(start: Start) -> Start:
    is_time = is_finite(start.due_s) and start.due_s <= MAX_TIME_S  # so that every store and engine can hold it
    require("due_s", start.due_s, is_time, "a Unix time up to the end of the year 9999, or 0.0 for now")
    is_right = is_whole(start.priority, -MAX_PRIORITY) and start.priority <= MAX_PRIORITY
    require("priority", start.priority, is_right, f"a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}")
    check_name("the name of a service", start.service)
    require("after", start.after, isinstance(start.after, tuple | list), "a tuple of run names")
    for run in start.after:
        check_run(run)
    return start.changed(due_s=0.0) if start.due_s < 0.0 else start


def check_claim(holder: str, for_s: float, run: str | None, agents: Sequence[str]) -> None:
    """Check the arguments to `Store.claim`."""
    check_for_s(for_s)
    check_text("the name of a holder", holder)
    if run is not None:
        check_run(run)
    for agent in agents:
        check_name("the name of an agent", agent)


def check_run(run: str) -> None:
    """Check the name of a run."""
    if not isinstance(run, str) and (name := next((name for name in ("run_id", "id") if hasattr(run, name)), "")):
        raise UsageError(f"the name of a run: expected a string, got a {type(run).__name__}; pass its {name}")
    check_name("the name of a run", run)


def check_new_run(run: str) -> None:
    """Check the name of a run that is about to be created."""
    check_run(run)
    if not run:
        raise UsageError("the name of a run: expected text, got ''; pass a name such as 'order-17'")


def check_conversation(name: str) -> None:
    """Check the name of a conversation."""
    check_name("the name of a conversation", name)


def check_for_s(for_s: float) -> None:
    """Check that a lease's duration is a finite number."""
    require("for_s", for_s, is_finite(for_s), "a finite number of seconds")


def check_lines(lines: Sequence[str]) -> None:
    """Check the lines of new entries."""
    for line in lines:
        if type(line) is not str or "\n" in line or not line.isascii():
            check_line("a line", line)


def check_append(lines: Sequence[str], suspension: Suspension | None) -> Suspension | None:
    """Check entries and a suspension, and return the suspension.

    The suspension's due time, if any, is clamped to between 0.0 and `MAX_TIME_S`.
    """
    check_lines(lines)
    if suspension is None:
        return None
    check_name("the state", suspension.state)
    check_text("the key of the question that wakes the run", suspension.wakes_on or "")
    check_questions(suspension.questions)
    if suspension.due_s is None or 0.0 <= suspension.due_s <= MAX_TIME_S:
        return suspension
    # A due time beyond the maximum is lowered: so far in the future, looking at the run too early does no harm.
    return suspension.changed(due_s=max(0.0, min(suspension.due_s, MAX_TIME_S)))


def check_questions(questions: Sequence[Question]) -> None:
    """Check that questions' texts can be stored, and that their keys and kinds fit in an index."""
    for question in questions:
        check_name("the key of a question", question.key, MAX_KEY_BYTES)
        check_name(f"the kind of the question {question.key!r}", question.kind)
        for text in (question.about, question.schema, *question.answers):
            check_text(f"the question {question.key!r}", text)


def check_signal(run: str, key: str, body: str, by: str, signal_id: str) -> None:
    """Check the arguments to `Store.signal`."""
    check_run(run)
    check_text("the key", key)
    check_text("the body", body)
    check_by(by)
    check_signal_id(signal_id)


def check_by(by: str) -> None:
    """Check the name of the person who answers, changes or forks a run."""
    require("by", by, isinstance(by, str), "the name of a person, such as 'ada', or '' if unknown")
    check_text("by", by)


def check_signal_id(signal_id: str) -> None:
    """Check the id of a signal."""
    check_name("signal_id", signal_id)


def is_repeated_signal(run: str, signal_id: str, there: str | None, content: str) -> bool:
    """Return whether the signal is stored already.  ``there`` is the content that is stored under its id, or None.

    Raises:
        SignalExists: If the contents differ.
    """
    if there is not None and there != content:
        raise SignalExists(run, signal_id)
    return there is not None


def unknown_run(run: str) -> RunUnknown:
    """Return the error for a run that does not exist."""
    return RunUnknown(
        f"the run {run!r} does not exist in this store; list its runs with runs.all.store.list(), or open the store in"
        " which the run began"
    )


def not_own(run: str, agent: str, other: str) -> UsageError:
    """Return the error for a run that is read or driven by an agent other than its own."""
    return UsageError(
        f"the run {run!r}: expected one of {agent!r}, got one of {other!r}; use the runs of {other!r}, or, if the agent"
        f" has a new name, give it the name {other!r} again"
    )


def lost_lease(lease: Lease) -> LeaseLost:
    """Return the error for a lease that was superseded or released."""
    return LeaseLost(
        f"{lease.holder!r} has lost the run {lease.run!r} (fence {lease.fence}), which was claimed again, given back or"
        " deleted; claim it again to continue"
    )


def misplaced_entries(lease: Lease, n: int, there: int) -> LeaseLost:
    """Return the error for entries that do not follow the last stored entry."""
    return LeaseLost(
        f"{lease.holder!r} has appended after entry {n} of the run {lease.run!r}, which has {there}, so nothing was"
        " written; load the run again"
    )


def ended_run(run: str) -> NotAsked:
    """Return the error for a signal to a run that has ended."""
    return NotAsked(
        f"the run {run!r} has ended and takes no answer or cancellation; call runs.resume({run!r}) for its result"
    )


def no_store(place: str) -> StoreError:
    """Return the error for a path or address without a store."""
    return StoreError(f"expected a store at {place}, got none")


def check_answers(answers: Mapping[str, Outcome], run: Run, typed: Collection[str] = ()) -> None:
    """Refuse answers that a run's open questions do not accept.

    This does not need the run's code, since each question includes the schema of its answer.  Whether a question is
    open is checked later, in the transaction that posts the answer.

    Args:
        answers: Outcomes by the keys of questions.
        run: The run.
        typed: The keys of answers that were encoded by the types of their flow states and are not checked against
            schemas.

    Raises:
        UsageError: If an answer is of the wrong kind, or is not the JSON that a state of a flow expects.
        OutcomeError: If an answer does not fit the schema of its question.
    """
    for key, early in answers.items():
        if prefix_of(key) == INBOX and not _is_value(early):
            right, given = "Returned(text=…) with JSON, with strings in double quotes", safe_repr(early)
            raise UsageError(f"the early answer to {key!r} of the run {run.id!r}: expected {right}, got {given}")
    for question in run.waits:
        outcome = answers.get(question.key)
        if outcome is None:
            continue
        _check_kind(question, outcome, run)
        if question.key not in typed and (found := misfit(question, outcome)):
            what = "arguments that do not fit" if isinstance(outcome, Modified) else "an answer that does not fit"
            problem = "; ".join([f"{path}: {wrong}" for path, wrong in found])
            asked = f"{question.key!r} of the run {run.id!r}"
            refused = OutcomeError(f"{asked} got {what}, and stays open: {problem}")
            refused.problem = problem
            raise refused


def check_one_answer(answers: Any) -> None:
    """Refuse a ``signal_id`` unless there is exactly one answer and it has a key."""
    if not isinstance(answers, Mapping) or len(answers) != 1:
        given = f"{len(answers)} answers" if isinstance(answers, Mapping) else "an answer without its key"
        raise UsageError(f"signal_id=: expected one answer by its key, got {given}; post one answer at a time")


def accepted_at(run: Run, key: str) -> str:
    """Describe, for an error message, which outcomes a run's open question accepts."""
    question = next((question for question in run.waits if question.key == key and question.answers), None)
    if question is None:
        return "an outcome such as Approved()"
    return f"Returned(text=…) with JSON of {' | '.join(question.types)}" if question.types else _accepted(question)


def _accepted(question: Question) -> str:
    if question.types:  # a state of a flow, which is answered with a value of its type
        return f"an answer of the type {' | '.join(question.types)}"
    return " or ".join([_NAMES.get(kind, kind) for kind in question.answers])


def _check_kind(question: Question, outcome: Outcome, run: Run) -> None:
    asked = f"{question.key!r} of the run {run.id!r}"
    if question.answers and outcome.kind not in question.answers:
        raise UsageError(
            f"{asked}: expected {_accepted(question)}, got {type(outcome).__name__}; the question stays open"
        )
    if question.types and isinstance(outcome, Returned) and not _is_value(outcome):
        given = f"{'the error ' if outcome.is_error else ''}{outcome.text!r:.80}"
        right = f"JSON of {' | '.join(question.types)}, with strings in double quotes"
        raise UsageError(f"{asked}: expected {right}, got {given}; the question stays open")


def _is_value(outcome: Outcome) -> bool:
    """Return whether an outcome may be the value of a state, which is JSON."""
    if not isinstance(outcome, Returned) or outcome.is_error:
        return False
    try:
        json.loads(outcome.text)
    except (ValueError, RecursionError):
        return False
    return True

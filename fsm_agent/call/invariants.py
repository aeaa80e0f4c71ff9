"""Invariants that hold for every record.

They follow from what all rows have in common, not from single rows: counters count steps, the trace is a path to the
state, and the requested functions are those of the dialog.
"""

from __future__ import annotations

from collections.abc import Iterator

from fsm_agent.call.approval_policy import approved_keys
from fsm_agent.call.effects import RunFunction
from fsm_agent.call.record import FAILURES, FINAL, CallRecord, Reason, State, successor_name
from fsm_agent.call.table import ROWS
from fsm_agent.messages.message import FunctionCall
from fsm_agent.validation import shown

_STATES = frozenset(State)
_TRIGGERS = frozenset([row[0] for row in ROWS])
_COUNTERS = ("turn", "rounds", "parse_errors", "recalls", "identical_rounds")  # each grows by at most 1 per step


def inconsistency(record: CallRecord) -> str | None:
    """Return a contradiction within a record, or None; takes linear time."""
    checks = (_of_trace, _of_state, _of_counters, _of_failures, _of_function_calls, _of_round, _of_children)
    return next((problem for check in checks for problem in check(record)), None)


def _of_trace(record: CallRecord) -> Iterator[str]:
    at, keys = str(State.SEEDED), set[str]()
    for number, step in enumerate(record.trace, 1):
        if step.trigger not in _TRIGGERS:
            yield f"step {number} of the trace has the unknown trigger {shown(step.trigger)}"
        if step.to not in _STATES:
            yield f"step {number} of the trace leads to the unknown state {shown(step.to)}"
        if step.source != at:
            yield f"step {number} of the trace begins in {shown(step.source)}, and the one before ends in {at!r}"
        if step.key in keys:
            yield f"step {number} of the trace answers {shown(step.key)}, which was answered before"
        if step.key:
            keys.add(step.key)
        at = step.to
    if at != record.state:
        yield f"the state is {str(record.state)!r}, and the trace ends in {at!r}"


def _of_state(record: CallRecord) -> Iterator[str]:
    state = str(record.state)
    if (record.ending is not None) != (record.state in FINAL):
        yield f"the state is {state!r}, and there is {'an' if record.ending else 'no'} ending"
    was_stopped = record.ending is not None and record.ending.reason is Reason.STOPPED  # from outside, before any reply
    if record.state is State.COMPLETED and record.reply is None and not was_stopped:
        yield f"the state is {state!r}, and the reply is missing"
    if bool(record.pending) != (record.state is State.TOOL_INTERRUPT):
        yield f"the state is {state!r}, and {len(record.pending)} function call(s) are pending"
    if record.round and not record.pending:
        yield f"the state is {state!r}, and the round is not closed"
    if record.injected and record.state is not State.TOOL_INTERRUPT:
        yield f"the state is {state!r}, and {len(record.injected)} injected message(s) are not in the dialog"
    may_have_branch = record.state in (State.BACKOFF, State.CHECKING)
    if bool(record.branch) != (record.state is State.PARSE_EXCEPTION) and not (record.branch and may_have_branch):
        yield f"the state is {state!r}, and the exception branch has {len(record.branch)} message(s)"
    messages = len(record.pruned if record.state in FINAL else record.branch)  # older records hold no problems
    if 2 * len(record.problems) > messages:
        yield f"{len(record.problems)} problem(s) of answers are kept, and {messages} message(s) of exception branches"
    if record.state is State.CHECKING and (record.reply is None or not record.is_checked):
        yield f"the state is {state!r}, and the {'check' if record.reply else 'reply'} is missing"
    has_answer = record.state is State.CHECKING or (
        record.ending is not None and record.ending.reason is Reason.ANSWERED
    )
    if record.repairs and not has_answer:
        yield f"the state is {state!r}, and an answer was repaired: {shown(record.repairs[0])}"


def _of_counters(record: CallRecord) -> Iterator[str]:
    steps = len(record.trace)
    bounds = [(name, getattr(record, name), 0, steps) for name in _COUNTERS]
    bounds += [("attempt", record.attempt, 1, steps + 1), ("seeded_with", record.seeded_with, 0, len(record.dialog))]
    for name, tally in record.tallies.items():
        bounds += [
            (f"tallies[{name!r:.60}]", n, 0, len(record.function_calls)) for n in (tally.successes, tally.failures)
        ]
    if record.summary is not None:
        ends = [("covers", 0), ("made_at", -1), ("failed_at", -1)]
        bounds += [
            (f"summary.{name}", getattr(record.summary, name), least, len(record.dialog)) for name, least in ends
        ]
    for name, value, least, most in bounds:
        if not least <= value <= most:
            yield f"{name}: expected {least} to {most}, got {shown(value)}"
    if record.depth < 0:
        yield f"depth: expected 0 or more, got {shown(record.depth)}"
    if (least_released := min(record.released, default=1)) < 1:
        yield f"round {shown(least_released)} is released, and the first is 1"


def _of_failures(record: CallRecord) -> Iterator[str]:
    steps = [step for step in record.trace if step.trigger in FAILURES]
    if len(record.failures) > len(steps):
        yield f"{len(record.failures)} failures are reported, and {len(steps)} requests have failed"
        return
    # Records of earlier releases did not keep their first failures.
    for failure, step in zip(record.failures, steps[len(steps) - len(record.failures) :], strict=True):
        what = f"the failure of {shown(failure.key)}"
        if failure.key != step.key:
            yield f"{what} is reported, and the request that failed is {shown(step.key)}"
        if (failure.delay_s is None) != (step.to != State.BACKOFF):
            yield f"{what} is followed by {'no' if failure.delay_s is None else 'a'} delay, and by {shown(step.to)}"
        if not (1 <= failure.attempt <= len(record.trace) and 1 <= failure.round <= record.rounds + 1):
            yield f"{what} is of attempt {shown(failure.attempt)} in round {shown(failure.round)}, which never came"


def _of_function_calls(record: CallRecord) -> Iterator[str]:
    requested = {f"{index}.{i}" for index, m in enumerate(record.dialog) for i in range(len(m.function_calls))}
    for f in record.function_calls:
        if f.id not in requested:
            yield f"function call {shown(f.id)} is settled, and no message asks for it a first time"
        if not f.is_settled:
            yield f"function call {shown(f.id)} is among the settled ones, and has no result"
        requested.discard(f.id)


def _of_round(record: CallRecord) -> Iterator[str]:
    if strange := sorted(record.once.keys() - {f.id for f in record.round}):
        yield f"function call {shown(strange[0])} was started, and is not part of the round"
    if not record.round:
        return
    index, approved = len(record.dialog) - 1, approved_keys(record)
    requested = record.dialog[index].function_calls if index >= 0 else ()
    ids, expected = [f.id for f in record.round], [f"{index}.{i}" for i in range(len(requested))]
    if ids != expected:
        yield f"the round has the function calls {shown(ids)}, and the last message asks for {shown(expected)}"
    for f, of_message in zip(record.round, requested, strict=False):
        has_verdict = f"ask:{f.id}" in approved
        if f.name != of_message.name:
            yield f"function call {f.id!r} is of {shown(f.name)}, and the model asked for {shown(of_message.name)}"
        if not f.is_settled and has_verdict and f.needs_approval:
            yield f"function call {f.id!r} waits for approval, and was approved"
        if not f.is_settled and not has_verdict and _as_requested(f) != _as_requested(of_message):
            yield f"function call {f.id!r} is not what the model asked for, and was not approved"


def _of_children(record: CallRecord) -> Iterator[str]:
    pending = {f"{RunFunction.prefix}:{f.id}" for f in record.pending}
    successor = successor_name(record.governed_by) if record.governed_by else None
    if record.state is State.HANDED_OVER and successor not in record.children:
        yield f"the state is {str(record.state)!r}, and the agent call inside under {shown(successor)} is missing"
    for name, child in record.children.items():
        has_taken_over = name == successor and record.state is State.HANDED_OVER
        if record.ending is None and name not in pending and not has_taken_over:
            yield f"the agent call inside under {shown(name)} belongs to no pending function call"
        if child.depth != record.depth + (name != successor):
            yield f"the agent call inside under {shown(name)} is {shown(child.depth)} deep, and this one {record.depth}"
        if isinstance(child, CallRecord) and (problem := inconsistency(child)):
            yield f"the agent call inside under {shown(name)} contradicts itself: {problem}"


def _as_requested(f: FunctionCall) -> FunctionCall:
    """Return the call as the model requested it, whether or not it waits for approval."""
    return f.changed(needs_approval=False, round=0)

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


def inconsistency(r: CallRecord) -> str | None:
    """Return a contradiction within a record, or None; takes linear time."""
    checks = (_of_trace, _of_state, _of_counters, _of_failures, _of_function_calls, _of_round, _of_children)
    return next((problem for check in checks for problem in check(r)), None)


def _of_trace(r: CallRecord) -> Iterator[str]:
    at, keys = str(State.SEEDED), set[str]()
    for number, step in enumerate(r.trace, 1):
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
    if at != r.state:
        yield f"the state is {str(r.state)!r}, and the trace ends in {at!r}"


def _of_state(r: CallRecord) -> Iterator[str]:
    state = str(r.state)
    if (r.ending is not None) != (r.state in FINAL):
        yield f"the state is {state!r}, and there is {'an' if r.ending else 'no'} ending"
    was_stopped = r.ending is not None and r.ending.reason is Reason.STOPPED  # from outside, before any reply
    if r.state is State.COMPLETED and r.reply is None and not was_stopped:
        yield f"the state is {state!r}, and the reply is missing"
    if bool(r.pending) != (r.state is State.TOOL_INTERRUPT):
        yield f"the state is {state!r}, and {len(r.pending)} function call(s) are pending"
    if r.round and not r.pending:
        yield f"the state is {state!r}, and the round is not closed"
    if r.injected and r.state is not State.TOOL_INTERRUPT:
        yield f"the state is {state!r}, and {len(r.injected)} injected message(s) are not in the dialog"
    may_have_branch = r.state in (State.BACKOFF, State.CHECKING)
    if bool(r.branch) != (r.state is State.PARSE_EXCEPTION) and not (r.branch and may_have_branch):
        yield f"the state is {state!r}, and the exception branch has {len(r.branch)} message(s)"
    messages = len(r.pruned if r.state in FINAL else r.branch)  # older records hold no problems
    if 2 * len(r.problems) > messages:
        yield f"{len(r.problems)} problem(s) of answers are kept, and {messages} message(s) of exception branches"
    if r.state is State.CHECKING and (r.reply is None or not r.is_checked):
        yield f"the state is {state!r}, and the {'check' if r.reply else 'reply'} is missing"
    has_answer = r.state is State.CHECKING or (r.ending is not None and r.ending.reason is Reason.ANSWERED)
    if r.repairs and not has_answer:
        yield f"the state is {state!r}, and an answer was repaired: {shown(r.repairs[0])}"


def _of_counters(r: CallRecord) -> Iterator[str]:
    steps = len(r.trace)
    bounds = [(name, getattr(r, name), 0, steps) for name in _COUNTERS]
    bounds += [("attempt", r.attempt, 1, steps + 1), ("seeded_with", r.seeded_with, 0, len(r.dialog))]
    for name, tally in r.tallies.items():
        bounds += [(f"tallies[{name!r:.60}]", n, 0, len(r.function_calls)) for n in (tally.successes, tally.failures)]
    if r.summary is not None:
        ends = [("covers", 0), ("made_at", -1), ("failed_at", -1)]
        bounds += [(f"summary.{name}", getattr(r.summary, name), least, len(r.dialog)) for name, least in ends]
    for name, value, least, most in bounds:
        if not least <= value <= most:
            yield f"{name}: expected {least} to {most}, got {shown(value)}"
    if r.depth < 0:
        yield f"depth: expected 0 or more, got {shown(r.depth)}"
    if (least_released := min(r.released, default=1)) < 1:
        yield f"round {shown(least_released)} is released, and the first is 1"


def _of_failures(r: CallRecord) -> Iterator[str]:
    steps = [step for step in r.trace if step.trigger in FAILURES]
    if len(r.failures) > len(steps):
        yield f"{len(r.failures)} failures are reported, and {len(steps)} requests have failed"
        return
    for failure, step in zip(r.failures, steps[len(steps) - len(r.failures) :], strict=True):  # old ones kept none
        what = f"the failure of {shown(failure.key)}"
        if failure.key != step.key:
            yield f"{what} is reported, and the request that failed is {shown(step.key)}"
        if (failure.delay_s is None) != (step.to != State.BACKOFF):
            yield f"{what} is followed by {'no' if failure.delay_s is None else 'a'} delay, and by {shown(step.to)}"
        if not (1 <= failure.attempt <= len(r.trace) and 1 <= failure.round <= r.rounds + 1):
            yield f"{what} is of attempt {shown(failure.attempt)} in round {shown(failure.round)}, which never came"


def _of_function_calls(r: CallRecord) -> Iterator[str]:
    requested = {f"{index}.{i}" for index, m in enumerate(r.dialog) for i in range(len(m.function_calls))}
    for f in r.function_calls:
        if f.id not in requested:
            yield f"function call {shown(f.id)} is settled, and no message asks for it a first time"
        if not f.is_settled:
            yield f"function call {shown(f.id)} is among the settled ones, and has no result"
        requested.discard(f.id)


def _of_round(r: CallRecord) -> Iterator[str]:
    if strange := sorted(r.once.keys() - {f.id for f in r.round}):
        yield f"function call {shown(strange[0])} was started, and is not part of the round"
    if not r.round:
        return
    index, approved = len(r.dialog) - 1, approved_keys(r)
    requested = r.dialog[index].function_calls if index >= 0 else ()
    ids, expected = [f.id for f in r.round], [f"{index}.{i}" for i in range(len(requested))]
    if ids != expected:
        yield f"the round has the function calls {shown(ids)}, and the last message asks for {shown(expected)}"
    for f, of_message in zip(r.round, requested, strict=False):
        has_verdict = f"ask:{f.id}" in approved
        if f.name != of_message.name:
            yield f"function call {f.id!r} is of {shown(f.name)}, and the model asked for {shown(of_message.name)}"
        if not f.is_settled and has_verdict and f.needs_approval:
            yield f"function call {f.id!r} waits for approval, and was approved"
        if not f.is_settled and not has_verdict and _as_requested(f) != _as_requested(of_message):
            yield f"function call {f.id!r} is not what the model asked for, and was not approved"


def _of_children(r: CallRecord) -> Iterator[str]:
    pending = {f"{RunFunction.prefix}:{f.id}" for f in r.pending}
    successor = successor_name(r.governed_by) if r.governed_by else None
    if r.state is State.HANDED_OVER and successor not in r.children:
        yield f"the state is {str(r.state)!r}, and the agent call inside under {shown(successor)} is missing"
    for name, child in r.children.items():
        has_taken_over = name == successor and r.state is State.HANDED_OVER
        if r.ending is None and name not in pending and not has_taken_over:
            yield f"the agent call inside under {shown(name)} belongs to no pending function call"
        if child.depth != r.depth + (name != successor):
            yield f"the agent call inside under {shown(name)} is {shown(child.depth)} deep, and this one {r.depth}"
        if isinstance(child, CallRecord) and (problem := inconsistency(child)):
            yield f"the agent call inside under {shown(name)} contradicts itself: {problem}"


def _as_requested(f: FunctionCall) -> FunctionCall:
    """Return the call as the model requested it, whether or not it waits for approval."""
    return f.changed(needs_approval=False, round=0)

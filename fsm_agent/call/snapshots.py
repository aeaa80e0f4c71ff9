"""Save an agent call as JSON, restore it, and copy it under another id.

A document is refused if its record contradicts itself, or if the current code cannot act on it because pending
functions have been removed or now take other arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, Unpack

from fsm_agent._internal.structs import New, Value, Vector, from_json, quick_json, to_json
from fsm_agent.call.call import AgentCall, CallParts
from fsm_agent.call.effects import AskApproval, Reconcile, RunFunction
from fsm_agent.call.journal import header_of, signed, verified
from fsm_agent.call.outcomes import Approved, Modified
from fsm_agent.call.process import SEPARATOR, Process, join_path, prefix_of, subject_of
from fsm_agent.call.record import FAILURES, FINAL, CallRecord, Reason, State, successor_name
from fsm_agent.call.rounds import approved_keys, unrunnable
from fsm_agent.call.transition_table import ROWS
from fsm_agent.errors import OutcomeError, PromptChanged, SnapshotError, UsageError
from fsm_agent.messages.message import FunctionCall, Message, renumbered
from fsm_agent.prompts.prompt import Prompt, change_of
from fsm_agent.validation import require, safe_repr

_STATES = frozenset(State)

_TRIGGERS = frozenset([row[0] for row in ROWS])

_COUNTERS = ("turn", "rounds", "parse_errors", "recalls", "identical_rounds")  # each grows by at most 1 per step


def inconsistency(record: CallRecord) -> str | None:
    """Return a contradiction within a record, or None if there is none.  This takes linear time."""
    checks = (_of_trace, _of_state, _of_counters, _of_failures, _of_function_calls, _of_round, _of_children)
    return next((problem for check in checks for problem in check(record)), None)


def _of_trace(record: CallRecord) -> Iterator[str]:
    at, keys = str(State.SEEDED), set[str]()
    for number, step in enumerate(record.trace, 1):
        if step.trigger not in _TRIGGERS:
            yield f"step {number} of the trace has the unknown trigger {safe_repr(step.trigger)}"
        if step.to not in _STATES:
            yield f"step {number} of the trace leads to the unknown state {safe_repr(step.to)}"
        if step.source != at:
            yield f"step {number} of the trace begins in {safe_repr(step.source)}, and the one before ends in {at!r}"
        if step.key in keys:
            yield f"step {number} of the trace answers {safe_repr(step.key)}, which was answered before"
        if step.key:
            keys.add(step.key)
        at = step.to
    if at != record.state:
        yield f"the state is {str(record.state)!r}, and the trace ends in {at!r}"


def _of_state(record: CallRecord) -> Iterator[str]:
    state = str(record.state)
    if (record.ending is not None) != (record.state in FINAL):
        yield f"the state is {state!r}, and there is {'an' if record.ending else 'no'} ending"
    was_stopped = record.ending is not None and record.ending.reason is Reason.STOPPED  # maybe before any reply
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
    messages = len(record.pruned if record.state in FINAL else record.branch)
    if 2 * len(record.problems) > messages:
        yield f"{len(record.problems)} problem(s) of answers are kept, and {messages} message(s) of exception branches"
    if record.state is State.CHECKING and (record.reply is None or not record.is_checked):
        yield f"the state is {state!r}, and the {'check' if record.reply else 'reply'} is missing"
    has_answer = record.state is State.CHECKING or (
        record.ending is not None and record.ending.reason is Reason.ANSWERED
    )
    if record.repairs and not has_answer:
        yield f"the state is {state!r}, and an answer was repaired: {safe_repr(record.repairs[0])}"


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
            yield f"{name}: expected {least} to {most}, got {safe_repr(value)}"
    if record.depth < 0:
        yield f"depth: expected 0 or more, got {safe_repr(record.depth)}"
    if (least_released := min(record.released, default=1)) < 1:
        yield f"round {safe_repr(least_released)} is released, and the first is 1"


def _of_failures(record: CallRecord) -> Iterator[str]:
    steps = [step for step in record.trace if step.trigger in FAILURES]
    if len(record.failures) != len(steps):
        yield f"{len(record.failures)} failures are reported, and {len(steps)} requests have failed"
        return
    for failure, step in zip(record.failures, steps, strict=True):
        what = f"the failure of {safe_repr(failure.key)}"
        if failure.key != step.key:
            yield f"{what} is reported, and the request that failed is {safe_repr(step.key)}"
        if (failure.delay_s is None) != (step.to != State.BACKOFF):
            yield f"{what} is followed by {'no' if failure.delay_s is None else 'a'} delay, and by {safe_repr(step.to)}"
        if not (1 <= failure.attempt <= len(record.trace) and 1 <= failure.round <= record.rounds + 1):
            where = f"attempt {safe_repr(failure.attempt)} in round {safe_repr(failure.round)}"
            yield f"{what} is of {where}, which never came"


def _of_function_calls(record: CallRecord) -> Iterator[str]:
    requested = {f"{index}.{i}" for index, m in enumerate(record.dialog) for i in range(len(m.function_calls))}
    for f in record.function_calls:
        if f.id not in requested:
            yield f"function call {safe_repr(f.id)} is settled, and no message asks for it a first time"
        if not f.is_settled:
            yield f"function call {safe_repr(f.id)} is among the settled ones, and has no result"
        requested.discard(f.id)


def _of_round(record: CallRecord) -> Iterator[str]:
    if strange := sorted(record.once.keys() - {f.id for f in record.round}):
        yield f"function call {safe_repr(strange[0])} was started, and is not part of the round"
    if not record.round:
        return
    index, approved = len(record.dialog) - 1, approved_keys(record)
    requested = record.dialog[index].function_calls if index >= 0 else ()
    ids, expected = [f.id for f in record.round], [f"{index}.{i}" for i in range(len(requested))]
    if ids != expected:
        yield f"the round has the function calls {safe_repr(ids)}, and the last message asks for {safe_repr(expected)}"
    for f, of_message in zip(record.round, requested, strict=False):
        has_verdict = f"ask:{f.id}" in approved
        if f.name != of_message.name:
            asked = safe_repr(of_message.name)
            yield f"function call {f.id!r} is of {safe_repr(f.name)}, and the model asked for {asked}"
        if not f.is_settled and has_verdict and f.needs_approval:
            yield f"function call {f.id!r} waits for approval, and was approved"
        if not f.is_settled and not has_verdict and _as_requested(f) != _as_requested(of_message):
            yield f"function call {f.id!r} is not what the model asked for, and was not approved"


def _of_children(record: CallRecord) -> Iterator[str]:
    pending = {f"{RunFunction.prefix}:{f.id}" for f in record.pending}
    successor = successor_name(record.governed_by) if record.governed_by else None
    if record.state is State.HANDED_OVER and successor not in record.children:
        yield f"the state is {str(record.state)!r}, and the agent call inside under {safe_repr(successor)} is missing"
    for name, child in record.children.items():
        has_taken_over = name == successor and record.state is State.HANDED_OVER
        if record.ending is None and name not in pending and not has_taken_over:
            yield f"the agent call inside under {safe_repr(name)} belongs to no pending function call"
        if child.depth != record.depth + (name != successor):
            depth = safe_repr(child.depth)
            yield f"the agent call inside under {safe_repr(name)} is {depth} deep, and this one {record.depth}"
        if isinstance(child, CallRecord) and (problem := inconsistency(child)):
            yield f"the agent call inside under {safe_repr(name)} contradicts itself: {problem}"


def _as_requested(f: FunctionCall) -> FunctionCall:
    return f.changed(needs_approval=False, round=0)


def calls_in(process: Process) -> Iterator[tuple[str, AgentCall[Any]]]:
    """Yield the waiting agent calls in a process, including the process itself, each with its path."""
    paths = {""}
    for effect in process.effects:
        path = effect.key.rpartition(SEPARATOR)[0]
        while path not in paths:
            paths.add(path)
            path = path.rpartition(SEPARATOR)[0]
    for path in sorted(paths):
        owner = process.owner(f"{path}{SEPARATOR}").process if path else process
        if isinstance(owner, AgentCall):
            yield path, owner


def _pending(process: Process) -> Iterator[tuple[str, AgentCall[Any], FunctionCall, bool]]:
    """Yield each pending function call that has not begun: its path, its agent call, itself, and if it was approved.

    A call that has begun may have run, and a question about it is open.
    """
    for path, call in calls_in(process):
        approved, begun = approved_keys(call.record), call.record.in_doubt
        for f in call.record.pending:
            if f not in begun:
                yield join_path(path, f.id), call, f, f"{AskApproval.prefix}:{f.id}" in approved


def lost_approval(process: Process) -> str | None:
    """Return why the code cannot run one of the approved function calls, or None if it can run them all."""
    for key, call, f, is_approved in _pending(process):
        if is_approved and (problem := unrunnable(f, call.prompt)) is not None:
            return _lost(key, f, problem)
    return None


def missing_function(process: Process) -> str | None:
    """Return which pending function is missing and where, or None."""
    for key, call, f, _ in _pending(process):
        if f.name not in call.prompt.by_name:
            problem = unrunnable(f, call.prompt)
            return f"the call {key!r} of {f.name!r} was about to run, and {problem}; answer RunAgain() to skip it"
    return None


def loses(process: Process, key: str, outcome: object) -> str | None:
    """Return why the code cannot act on an approval, or None if it can or if the outcome is not an approval."""
    if not isinstance(outcome, Approved | Modified):
        return None
    try:
        owner = process.owner(key)
    except OutcomeError:  # nothing waits for it
        return None
    call = owner.process
    if not isinstance(call, AgentCall) or prefix_of(key) != AskApproval.prefix:
        return None
    id = subject_of(key)
    for f in call.record.pending:
        if f.id == id:
            if isinstance(outcome, Modified):
                if f.name in call.prompt.by_name and not _has_changed(process):
                    return None  # the modified arguments are wrong, not the code; the model gets an error
                f = f.changed(arguments_json=outcome.arguments_json)
            problem = unrunnable(f, call.prompt)
            return problem if problem is None else _lost(join_path(owner.path, f.id), f, problem)
    return None


def _lost(key: str, f: FunctionCall, problem: str) -> str:
    return f"the call {key!r} of {f.name!r} was approved, and {problem}; restore the code that can run it"


def _has_changed(process: Process) -> bool:
    header = "" if process.journal is None else process.journal.header
    return bool(header) and header_of(header).fingerprint != process.fingerprint


VERSION: Literal[1] = 1

OnChange: TypeAlias = Literal["report", "error"]


class _Document(Value, frozen=True):
    version: Literal[1]
    prompt: str  # its path
    record: CallRecord
    fingerprint: str = ""  # the prompt's


def snapshot(call: AgentCall, *, signing_key: str | bytes | None = None) -> str:
    """Return the call as JSON, with its whole record and its prompt's path and fingerprint.

    The JSON contains no callables, clients or keys.

    Args:
        call: The call.
        signing_key: A key of 32 bytes or more that signs the document, so that `restore` with the same key detects
            changes.

    Raises:
        SnapshotError: If the record holds a value that cannot be read back, or contradicts itself.
        UsageError: If the key is too short, or ``call`` is not an `AgentCall`.

    Examples:
        >>> asked = Agent(Script()).prepare("Hello")
        >>> document = snapshot(asked, signing_key=b"k" * 32)
        >>> restore(document, asked.prompt, signing_key=b"k" * 32).state
        <State.SEEDED: 'Seeded'>
    """
    right = "an AgentCall, such as the call of CallSuspended"
    if hasattr(call, "snapshot"):  # a run of a flow
        right = "an AgentCall (a run has its own method, run.snapshot())"
    require("call", call, isinstance(call, AgentCall), right)
    text = _written(call, call.record)
    return text if signing_key is None else signed(text, signing_key)


def with_earlier(dialog: Vector[Message], earlier: Sequence[Message], start: int) -> Vector[Message]:
    """Return a turn's dialog with the messages from earlier turns inserted after the first ``start`` messages."""
    if not earlier:
        return dialog
    return Vector(renumbered([*dialog[:start], *earlier, *dialog[start:]]))


def without_earlier(dialog: Vector[Message], earlier: range) -> Vector[Message]:
    """Return a turn's dialog without the messages from earlier turns."""
    return Vector([*dialog[: earlier.start], *dialog[earlier.stop :]])


def snapshot_in_run(call: AgentCall, left_out: range) -> str:
    """Return a snapshot of a call for its run, leaving out this range of messages near the start of the dialog.

    If the run is lasting, each outcome in the record was already read back when it was written to the journal.  The
    snapshot is then read back only if the record may hold infinite log probabilities, which JSON cannot express.
    """
    record = call.record
    if left_out:
        kept = without_earlier(record.dialog, left_out)
        record = record.changed(dialog=kept, seeded_with=record.seeded_with - len(left_out))
    may_hold_infinity = record.children or record.successor or (record.reply and record.reply.logprobs)
    if call.journal is not None and call.journal.is_lasting and not may_hold_infinity:
        return quick_json(_document(call, record))
    return _written(call, record)


def _document(call: AgentCall, record: CallRecord) -> _Document:
    return _Document(VERSION, call.prompt.path, record, call.prompt.fingerprint)


def _written(call: AgentCall, record: CallRecord) -> str:
    try:
        text = to_json(_document(call, record))
        problem = inconsistency(call.record)
    except ValueError as error:
        problem = str(error)[:500]
    if problem:
        raise SnapshotError(f"the call cannot be written, because it could not be read back: {problem}")
    return text


def restore(
    document: str | bytes,
    prompt: Prompt[New],
    *,
    signing_key: str | bytes | None = None,
    on_change: OnChange = "report",
    **options: Unpack[CallParts],
) -> AgentCall[New]:
    """Return the call that `snapshot` wrote.

    Treat a document as code: its author controls what the model sees and which functions run with which arguments.  A
    document that contradicts itself is rejected, and the functions' policies are applied again to pending calls without
    approval, but approvals can be forged like everything else.  A ``signing_key`` prevents forgery, but does not detect
    an old document.

    Args:
        document: The JSON.
        prompt: The prompt that the call was made with, because the JSON does not contain its functions or parsers.
        signing_key: The key passed to `snapshot`.  With a key, unsigned documents are refused.  Without one, signed
            documents are refused, so that the key cannot be forgotten.
        on_change: What to do if the prompt's fingerprint has changed: ``"report"`` sets the call's ``prompt_change``,
            and ``"error"`` raises an error.
        options: The original ``settings``, ``args``, ``stop_when``, ``check``, ``view``, ``deps`` and ``has_approver``.
            A new check applies to all later answers.

    Raises:
        SnapshotError: If the document is damaged or inconsistent, was changed, or belongs to another version or prompt.
        PromptChanged: If the prompt has changed and ``on_change`` is ``"error"``.
        UsageError: If the key is too short.

    Examples:
        >>> prompt = Prompt("Hello, {{ name }}.")
        >>> asked = Agent(Script()).prepare(prompt(name="Ada"))
        >>> restore(snapshot(asked), prompt).state
        <State.SEEDED: 'Seeded'>
    """
    check_on_change(on_change)
    call = restored(verified(document, signing_key), prompt.for_call(), **options)
    check_change(call, on_change)
    if missing := sorted({f.name for f in call.record.pending} - call.prompt.by_name.keys()):
        raise SnapshotError(
            f"the prompt: expected the functions that the snapshot waits for, got none named {' or '.join(missing)}"
        )
    _check_the_check(call)
    if (problem := lost_approval(call)) is not None:
        raise SnapshotError(f"the snapshot cannot continue: {problem}")
    return call


def asked_in(document: str | bytes, signing_key: str | bytes | None) -> tuple[Mapping[str, Any], str]:
    """Return ``(extra, by)`` from a snapshot: the caller's data, and who made the call."""
    record = _read(verified(document, signing_key)).record
    return record.extra, record.by


def _check_the_check(call: AgentCall) -> None:
    """Reject a call whose check is missing.  If a check was added, it judges the answers from now on."""
    record = call.record
    if record.ending is None and record.is_checked != (call.check is not None):
        if record.is_checked:
            raise SnapshotError(
                "check=: expected one, since the answers of this call are checked, got none; pass check=…"
            )
        call.record = record.changed(is_checked=True)


def restored(
    document: str | bytes,
    prompt: Prompt[New],
    left_out: Sequence[Message] = (),
    start: int = 0,
    **options: Unpack[CallParts],
) -> AgentCall[New]:
    """Return the call from a trusted document.  The call may wait for functions that the prompt does not have.

    ``left_out`` holds the messages that `snapshot_in_run` left out after the first ``start`` messages.
    """
    data = _read(document)
    record = data.record
    if left_out:
        dialog = with_earlier(record.dialog, left_out, start)
        record = record.changed(dialog=dialog, seeded_with=record.seeded_with + len(left_out))
    if problem := inconsistency(record):
        raise SnapshotError(f"the snapshot contradicts itself: {problem}")
    if data.prompt != prompt.path:
        raise SnapshotError(f"the prompt: expected {data.prompt!r}, which the snapshot is of, got {prompt.path!r}")
    call = AgentCall(record, prompt, **options)
    call.record = call.closed_again()
    call.prompt_change = change_of(prompt, data.fingerprint)
    return call


def check_on_change(on_change: object) -> None:
    """Reject an invalid value for ``on_change``."""
    require("on_change", on_change, on_change in ("report", "error"), "'report' or 'error'")


def check_change(call: AgentCall[Any], on_change: OnChange) -> None:
    """Reject a call whose prompt has changed if ``on_change`` is "error"."""
    if on_change == "error" and call.prompt_change is not None:
        raise PromptChanged(f"{call.prompt_change}; pass on_change='report' to continue with it as it is now")


def record_of(document: str | bytes) -> CallRecord:
    """Read the record in a document, which may lack the messages from earlier turns."""
    return _read(document).record


def _read(text: str | bytes) -> _Document:
    try:
        document: _Document = from_json(text, _Document)
    except ValueError as error:
        raise SnapshotError(
            f"the snapshot: expected one of version {VERSION}, got another document ({error})"
        ) from error
    return document


# A copy of a process needs another id.  The ids of inner processes and the idempotency keys of functions begin with the
# id of the process, so a copy with the same id would repeat the keys of the original.


def check_forkable(process: Process, problem: str) -> None:
    """Refuse to fork a process while a function that must not run twice is running.

    The fork could not find out what became of the function, because the function began under a key that contains the
    original's id.
    """
    for effect in process.effects:
        if effect.prefix == Reconcile.prefix or getattr(effect, "is_once", False):
            raise UsageError(
                f"{problem}: {effect.key!r} must not run twice, it has begun, and its result is unknown; choose a step"
                " before its start or after its end"
            )


def with_id(document: str, id: str) -> str:
    """Return the snapshot of a process under another id, including the ids of its inner processes."""
    data = json.loads(document)
    record = data["record"]
    return json.dumps({**data, "record": _renamed(record, record["id"], id)}, ensure_ascii=False)


def _renamed(record: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    made = dict(record)
    own = made.get("id", "")
    if own == old or own.startswith(f"{old}{SEPARATOR}"):
        made["id"] = f"{new}{own[len(old) :]}"
    if made.get("successor") is not None:
        made["successor"] = _renamed(made["successor"], old, new)
    if "children" in made:
        made["children"] = {name: _renamed_child(child, old, new) for name, child in made["children"].items()}
    return made


def _renamed_child(child: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    if "dialog" not in child and isinstance(inner := child.get("record"), dict):  # as `ProcessRecord` is written
        return {**child, "record": _renamed(inner, old, new)}
    return _renamed(child, old, new)

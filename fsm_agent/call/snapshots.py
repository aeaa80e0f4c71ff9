"""Save an agent call as JSON, restore it, also in another OS process, and copy it under another id."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, Unpack, get_args

from fsm_agent._internal.generics import New
from fsm_agent._internal.values import Value, from_json, to_json
from fsm_agent._internal.vector import Vector
from fsm_agent.call.call import AgentCall, CallParts
from fsm_agent.call.effects import FindOut
from fsm_agent.call.invariants import inconsistency
from fsm_agent.call.lost_approvals import lost_approval
from fsm_agent.call.process import SEPARATOR, Process
from fsm_agent.call.record import CallRecord
from fsm_agent.call.signing import signed, verified
from fsm_agent.errors import PromptChanged, SnapshotError, UsageError
from fsm_agent.messages.message import Message, renumbered
from fsm_agent.prompts.fingerprint import change_of
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.validation import check

VERSION: Literal[1] = 1
OnChange: TypeAlias = Literal["report", "error"]


class _Document(Value, frozen=True):
    """A call in JSON."""

    version: Literal[1]
    prompt: str  # its path
    record: CallRecord
    fingerprint: str = ""  # the prompt's
    definition: str = ""  # the name of the fingerprint in documents of earlier releases


def snapshot(call: AgentCall, *, signing_key: str | bytes | None = None) -> str:
    """Return the call as JSON: its whole record, its prompt's path and fingerprint.

    It holds no callables, clients or keys.

    Args:
        call: The call.
        signing_key: Signs the document, so that `restore` with the same key detects changes; 32 bytes or more.

    Raises:
        SnapshotError: The record holds a value that could not be read again, or contradicts itself.
        UsageError: The key is too short, or ``call`` is not an `AgentCall`.

    Examples:
        >>> asked = Agent(Script()).prepare("Hello")
        >>> document = snapshot(asked, signing_key=b"k" * 32)
        >>> restore(document, asked.prompt, signing_key=b"k" * 32).state
        <State.SEEDED: 'Seeded'>
    """
    right = "an AgentCall, such as the call of CallSuspended"
    if hasattr(call, "snapshot"):  # a run of a flow
        right = "an AgentCall (a run has its own method, run.snapshot())"
    check("what is kept", call, isinstance(call, AgentCall), right)
    text = _written(call, call.record)
    return text if signing_key is None else signed(text, signing_key)


def snapshot_without(call: AgentCall, left_out: range) -> str:
    """Return a snapshot of a call without this range of its first messages.

    Raises:
        SnapshotError: As `snapshot` does.
    """
    record = call.record
    kept = Vector([*record.dialog[: left_out.start], *record.dialog[left_out.stop :]])
    return _written(call, record.changed(dialog=kept, seeded_with=record.seeded_with - len(left_out)))


def _written(call: AgentCall, record: CallRecord) -> str:
    try:
        text = to_json(_Document(VERSION, call.prompt.path, record, call.prompt.fingerprint))  # read again at once
        problem = inconsistency(call.record)
    except ValueError as error:
        problem = str(error)[:500]
    if problem:
        raise SnapshotError(f"the call cannot be written, since it could not be read again: {problem}")
    return text


def restore(
    document: str | bytes,
    prompt: Prompt[New],
    *,
    signing_key: str | bytes | None = None,
    on_change: OnChange = "report",
    **options: Unpack[CallParts],
) -> AgentCall[New]:
    """Return the call that `snapshot` wrote, ready to be driven.

    Trust a document as you trust code: its author decides what the model sees, and which functions run with which
    arguments.  Contradictions are refused, and the functions' policies are applied again to pending calls without
    approval, but approvals can be forged like the rest.  A ``signing_key`` prevents forgery.  It does not tell an old
    document from the newest.

    Args:
        document: The JSON.
        prompt: The prompt that the call was made with; functions and parsers are code, and not in the JSON.
        signing_key: The key of `snapshot`.  A document that was not signed with it is refused.  A signed document
            without a key is refused, too, so that the key cannot be forgotten.
        on_change: What happens if the fingerprint of the prompt has changed: ``"report"`` sets the call's
            ``prompt_change``, and ``"error"`` raises.
        options: ``settings``, ``args``, ``stop_when``, ``check``, ``view``, ``deps`` and ``has_approver``, as they
            were.  A check that the call did not begin with judges its answers from now on.

    Raises:
        SnapshotError: The document is damaged, changed, inconsistent, of another version, or of another prompt.
        PromptChanged: The prompt has changed, and ``on_change`` is ``"error"``.
        UsageError: The key is too short.

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
            f"the prompt: expected the functions that the snapshot waits for, lacks {', '.join(missing)}"
        )
    _check_the_check(call)
    if (problem := lost_approval(call)) is not None:
        raise SnapshotError(f"the snapshot cannot continue: {problem}")
    return call


def asked_in(document: str | bytes, signing_key: str | bytes | None) -> tuple[Mapping[str, Any], str]:
    """Return the ``extra`` of the call in a snapshot, and who asked.

    Raises:
        SnapshotError: The document is damaged, or was not signed with the key.
    """
    record = _read(verified(document, signing_key)).record
    return record.extra, record.by


def _check_the_check(call: AgentCall) -> None:
    """Refuse a call whose check is missing; let a check that it did not begin with judge its answers.

    Raises:
        SnapshotError: Its answers are to be checked, and there is no check.
    """
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
    """Return the call of a trusted document; it may wait for functions that the prompt does not have.

    Args:
        document: The JSON.
        prompt: The prompt that the call was made with.
        left_out: The messages that `snapshot_without` left out.
        start: The number of messages before them.
        options: See `AgentCall`.

    Raises:
        SnapshotError: The document is damaged, inconsistent, of another version, or of another prompt.
    """
    data = _read(document)
    record = data.record
    if left_out:
        dialog = Vector(renumbered([*record.dialog[:start], *left_out, *record.dialog[start:]]))
        record = record.changed(dialog=dialog, seeded_with=record.seeded_with + len(left_out))
    if problem := inconsistency(record):
        raise SnapshotError(f"the snapshot contradicts itself: {problem}")
    if data.prompt != prompt.path:
        raise SnapshotError(f"the prompt: expected {data.prompt!r}, which the snapshot is of, got {prompt.path!r}")
    call = AgentCall(record, prompt, **options)
    call.record = call.closed_again()
    call.prompt_change = change_of(prompt, data.fingerprint or data.definition)
    return call


def check_on_change(on_change: object) -> None:
    """Refuse a wrong value of ``on_change``.

    Raises:
        UsageError: It is neither "report" nor "error".
    """
    check("on_change", on_change, on_change in get_args(OnChange), "'report' or 'error'")


def check_change(call: AgentCall[Any], on_change: OnChange) -> None:
    """Refuse a call whose prompt has changed if ``on_change`` is "error".

    Raises:
        PromptChanged: The prompt has changed.
    """
    if on_change == "error" and call.prompt_change is not None:
        raise PromptChanged(f"{call.prompt_change}; pass on_change='report' to continue with it as it is now")


def record_of(document: str | bytes) -> CallRecord:
    """Read the record in a document, which may lack the messages of earlier turns.

    Raises:
        SnapshotError: The document is damaged, or of another version.
    """
    return _read(document).record


def _read(text: str | bytes) -> _Document:
    """Read a document.

    Raises:
        SnapshotError: The document is damaged, or of another version.
    """
    try:
        document: _Document = from_json(text, _Document)
    except ValueError as error:
        raise SnapshotError(
            f"the snapshot: expected one of version {VERSION}, got another document ({error})"
        ) from error
    return document


# Copies of processes go their own way, under another id.  A process inside of another has the id of the outer one and
# its path, and the idempotency keys of functions begin with the id: a copy that kept the id would repeat the keys of
# its original.


def check_forkable(process: Process, problem: str) -> None:
    """Refuse to fork a process in the midst of a function that must not run twice.

    The driver of the process knows, or will ask, what became of the function.  The fork would know nothing, and
    ``reconcile`` could not find out for it: the function has begun under a key with the id of the process.

    Args:
        process: The process.
        problem: The first words of the error.

    Raises:
        UsageError: There is such a function.
    """
    for effect in process.effects:
        if effect.prefix == FindOut.prefix or getattr(effect, "is_once", False):
            raise UsageError(
                f"{problem}: {effect.key!r} must not run twice, it has begun, and its result is unknown; choose a step"
                " before its start or after its end"
            )


def with_id(document: str, id: str) -> str:
    """Return the snapshot of a process with another id, here and in all processes inside.

    Args:
        document: The snapshot, of a process that has begun.
        id: The new id.
    """
    data = json.loads(document)
    record = data["record"]
    return json.dumps({**data, "record": _renamed(record, record["id"], id)}, ensure_ascii=False)


def _renamed(record: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return a record, whose data may hold the same text, with the new id."""
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

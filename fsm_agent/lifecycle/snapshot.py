"""Save an agent call as JSON, and restore it in another process."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from fsm_agent._internal.lazy_import import pydantic, typing_extensions
from fsm_agent.errors import SnapshotError
from fsm_agent.functions.function import described_errors
from fsm_agent.lifecycle.approval import Gate, closed_again
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.invariants import inconsistency
from fsm_agent.lifecycle.record import CallRecord
from fsm_agent.lifecycle.signing import signed, verified
from fsm_agent.prompts.dialog import json_text
from fsm_agent.prompts.prompt import Prompt

VERSION: Literal[1] = 1


@cache
def _document() -> pydantic.TypeAdapter[Any]:
    class Document(typing_extensions.TypedDict):
        version: Literal[1]
        prompt: str  # its path
        record: CallRecord

    config = pydantic.ConfigDict(
        ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants", extra="forbid"
    )
    return pydantic.TypeAdapter(pydantic.with_config(config)(Document))


def snapshot(call: AgentCall, *, signing_key: str | bytes | None = None) -> str:
    """Return the call as JSON: its whole record, and its prompt's path.  Callables, clients and keys are not in it.

    Args:
        call: The call.
        signing_key: Signs the document, so that `restore` with the same key takes it only as it is; 32 bytes or more.

    Raises:
        SnapshotError: The record holds a value that could not be read again, or contradicts itself.
        UsageError: The key is too short.
    """
    text = json_text(_document(), {"version": VERSION, "prompt": call.prompt.path, "record": call.record})
    try:
        _read(text)  # fails now, and not days later; doubles the cost
    except SnapshotError as error:
        raise SnapshotError(f"nothing is written that could not be read again: {error}") from error
    return text if signing_key is None else signed(text, signing_key)


def restore(
    document: str | bytes, prompt: Prompt, *, signing_key: str | bytes | None = None, **options: Any
) -> AgentCall:
    """Return the call that `snapshot` wrote, ready to be driven on.

    Trust a document as far as code: its author decides what the model is shown and which functions are run, with
    which arguments.  Contradictions are refused, and the functions' policies are applied again to each call that
    waits and that nobody has approved; but an approval can be forged like all the rest.  Against that there is
    ``signing_key``.  It does not tell an old document from the newest.

    Args:
        document: The JSON.
        prompt: The prompt that the call was made with: functions and parsers are code, and not in the JSON.
        signing_key: Of `snapshot`.  A document that was not signed with it is refused; and so is a signed one when
            no key is given, lest it be forgotten.
        options: ``settings``, ``stop_when``, ``view``, ``deps`` and ``has_approver``, as they were.

    Raises:
        SnapshotError: The document is damaged, changed, inconsistent, of another version, or of another prompt.
        UsageError: The key is too short.
    """
    data = _read(verified(document, signing_key))
    if data["prompt"] != prompt.path:
        raise SnapshotError(f"the snapshot is of prompt {data['prompt']!r}, and {prompt.path!r} was given")
    record = data["record"]
    if missing := sorted({f.name for f in record.pending} - prompt.by_name.keys()):
        raise SnapshotError(f"the snapshot waits for function(s) {', '.join(missing)} that the prompt does not have")
    call = AgentCall(record, prompt, **options)
    call.record = closed_again(record, prompt, Gate(call.has_approver, call.deps))
    return call


def _read(text: str | bytes) -> Any:
    """Return the document that JSON holds.

    Raises:
        SnapshotError: It is damaged, of another version, or inconsistent.
    """
    try:
        data = _document().validate_json(text)
    except pydantic.ValidationError as error:
        raise SnapshotError(f"this is no snapshot of version {VERSION}: {described_errors(error)}") from error
    if problem := inconsistency(data["record"]):
        raise SnapshotError(f"the snapshot contradicts itself: {problem}")
    return data

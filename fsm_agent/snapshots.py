"""How does an agent call survive its process?"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from fsm_agent.approval import Gate, closed_again
from fsm_agent.call import AgentCall
from fsm_agent.deferred import pydantic, typing_extensions
from fsm_agent.dialogs import json_text
from fsm_agent.errors import SnapshotError
from fsm_agent.functions import described_errors
from fsm_agent.prompts import Prompt
from fsm_agent.record import CallRecord

VERSION: Literal[1] = 1


@cache
def _document() -> pydantic.TypeAdapter[Any]:
    class Document(typing_extensions.TypedDict):
        version: Literal[1]
        prompt: str  # its path
        record: CallRecord

    config = pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")
    return pydantic.TypeAdapter(pydantic.with_config(config)(Document))


def snapshot(call: AgentCall) -> str:
    """The call as JSON: its whole record, and its prompt's path.  Callables, clients and keys are not in it."""
    return json_text(_document(), {"version": VERSION, "prompt": call.prompt.path, "record": call.record})


def restore(document: str | bytes, prompt: Prompt, **options: Any) -> AgentCall:
    """The call that `snapshot` wrote, ready to be driven on.

    Args:
        document: The JSON.
        prompt: The prompt that the call was made with: functions and parsers are code, and not in the JSON.
        options: ``settings`` and ``stop_when``, as they were.

    Raises:
        SnapshotError: The document is damaged, of another version, or of another prompt.
    """
    try:
        data = _document().validate_json(document)
    except pydantic.ValidationError as error:
        raise SnapshotError(f"this is no snapshot of version {VERSION}: {described_errors(error)}") from error
    if data["prompt"] != prompt.path:
        raise SnapshotError(f"the snapshot is of prompt {data['prompt']!r}, and {prompt.path!r} was given")
    record = data["record"]
    if missing := sorted({f.name for f in record.pending} - prompt.by_name.keys()):
        raise SnapshotError(f"the snapshot waits for function(s) {', '.join(missing)} that the prompt does not have")
    call = AgentCall(record, prompt, **options)
    call.record = closed_again(record, prompt, Gate(call.has_approver, call.deps))
    return call

"""Events as lines of JSON, for programs: what ``--json`` prints of a command that drives a call or a flow.

Each line is an object with a ``type``: that of the event, as ``text_delta`` or ``function_ended``, and at the end
``result``, ``suspended`` or ``failure``.  Keys, and arguments with secret names, are masked; long texts are cut.  Only
the output of the last line, or the data of a flow, and its text are whole and as they are.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from msgspec import to_builtins
from pydantic_core import to_jsonable_python

from fsm_agent._internal.redaction import masked_arguments
from fsm_agent._internal.values import field_names
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.messages.event import ArgumentsDelta, Done, Event, Inside, ReplyCompleted, Suspended, Where

MAX_TEXT = 10_000  # characters of a text in an event
MAX_LINE = 200_000  # characters of an event; of a longer one only the type is written
_EXACT = ("output", "text", "data")  # fields of the last line


class LineWriter:
    """The lines of one command, on stdout.

    Args:
        is_on: False: every method does nothing.
    """

    def __init__(self, is_on: bool = True) -> None:
        self._out = sys.stdout if is_on else None  # functions that print do so elsewhere
        self.has_ended = False

    def __bool__(self) -> bool:
        return self._out is not None

    def take(self, event: Event, where: Where | None = None) -> None:
        """Write an event; the last line tells what the last events would.

        Args:
            event: The event.
            where: Its call, if a command drives several.
        """
        if self._out is not None and not isinstance(event, Done | Suspended):
            self._write(event_line(event, where))
            self.has_ended = False

    def end(self, kind: str, **fields: Any) -> None:
        """Write the last line: a ``result``, ``suspended`` or a ``failure``."""
        if self._out is not None:
            exact = {name: _to_json_data(value) for name, value in fields.items() if name in _EXACT}
            self._write(json.dumps({**_mask_fields({"type": kind, **fields}), **exact}))
            self.has_ended = True

    def _write(self, line: str) -> None:
        assert self._out is not None
        self._out.write(f"{line}\n")
        self._out.flush()


def event_line(event: Event, where: Where | None = None) -> str:
    """Return an event as one line of JSON in ASCII, with its call and its agent if they are known."""
    about = {} if where is None else {"call": where.call, "agent": where.agent}
    line = json.dumps(_mask_fields({**_fields(event), **about}))
    if len(line) <= MAX_LINE:
        return line
    return json.dumps({"type": _kind(event), "cut": f"{len(line)} characters", **about})


def call_fields(model: str, call: AgentCall) -> dict[str, Any]:
    """Return what the last line tells of a call."""
    r = call.record
    return {
        "model": model,
        "state": str(r.state),
        "reason": str(r.ending.reason) if r.ending else None,
        "detail": r.ending.detail or None if r.ending else None,
        "output": call.output,
        "text": r.reply.message.text if r.reply else None,
        "finish": r.reply.finish if r.reply else None,
        "usage": to_builtins(r.usage),
        "rounds": r.rounds,
        "states": [str(step.to) for step in r.trace],
        "waits_for": [effect.key for effect in call.effects],
        "function_calls": [
            {"name": f.name, "arguments": f.arguments, "result": f.result, "error": f.error} for f in r.function_calls
        ],
    }


def _kind(event: Any) -> str:
    """Return ``text_delta`` of a `TextDelta`; of an event inside, its own."""
    event = event.event if isinstance(event, Inside) else event
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()


def _fields(event: Any) -> dict[str, Any]:
    if isinstance(event, Inside):
        inner = _fields(event.event)
        return {**inner, "path": "/".join([event.path, *([inner["path"]] if "path" in inner else [])])}
    if isinstance(event, ReplyCompleted):
        calls = [{"name": call.name, "arguments_json": call.arguments_json} for call in event.function_calls]
        fields: dict[str, Any] = {"text": event.text, "function_calls": calls, "finish": event.reply.finish}
        fields["usage"] = to_builtins(event.usage)
    else:
        hidden = getattr(type(event), "hidden", ())
        fields = {name: getattr(event, name) for name in field_names(type(event)) if name not in hidden}
    if isinstance(event, ArgumentsDelta):
        fields["arguments_json"] = fields.pop("text")
    return {"type": _kind(event), **fields}


def _to_json_data(value: Any) -> Any:
    return to_jsonable_python(to_builtins(value, enc_hook=_any), serialize_unknown=True, inf_nan_mode="null")


def _any(value: Any) -> Any:
    return to_jsonable_python(value, serialize_unknown=True, inf_nan_mode="null")


def _mask_fields(fields: dict[str, Any]) -> Any:
    """Return fields as JSON data, cut and without what is secret."""
    return json.loads(masked_arguments(json.dumps(_cut(_to_json_data(fields)))))


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut(item) for item in value]
    if isinstance(value, str):
        shown = masked_arguments(value)  # mask before cutting: a part of a key would not be recognized
        return shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 1]}…"
    return value

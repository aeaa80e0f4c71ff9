"""Events as JSON data, for programs in any language: on the command line, in a service's streams, and in logs.

Each event is an object with a ``type`` that names its class, such as ``text_delta`` or ``function_ended``.  A `Done`
becomes a ``result`` or a ``failure``.  Values under secret names are masked and long strings are cut, except that a
result's text and output and a flow's data are complete and unmasked.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, get_args

from msgspec import to_builtins

from fsm_agent._internal.redaction import masked_arguments
from fsm_agent._internal.structs import field_names
from fsm_agent.messages import events as events
from fsm_agent.messages.events import (
    ArgumentsDelta,
    Done,
    Event,
    FunctionCallCompleted,
    ReplyCompleted,
    Suspended,
    unwrapped,
)

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

MAX_TEXT = 10_000  # characters of a string in an event
MAX_EVENT = 200_000  # characters of an event as JSON; a longer event is cut down to its type
EXACT = ("output", "text", "data")  # fields of a result


def event_data(event: Event) -> dict[str, Any]:
    """Return an event as JSON data with its ``type``.  An event from an inner process also has a ``path``.

    New types and fields will be added, so ignore unknown ones.

    Examples:
        >>> event_data(TextDelta("Hel"))
        {'type': 'text_delta', 'text': 'Hel'}
        >>> log_in = FunctionStarted("1.0", "log_in", '{"password": "swordfish"}')
        >>> event_data(Inside("run:1.0", log_in))["arguments_json"]
        '{"password": "***"}'
    """
    path, event = unwrapped(event)
    where = {"path": path} if path else {}
    if isinstance(event, Done):
        fields = event.result.to_dict()
        return {"type": "failure" if fields["failed"] else "result", **fields, **where}
    data: dict[str, Any] = masked_data({"type": type_of(type(event)), **_fields(event), **where})
    size = len(json.dumps(data))
    return data if size <= MAX_EVENT else {"type": data["type"], "cut": f"{size} characters", **where}


def event_envelope(event: Event, *, run: str, steps: int) -> dict[str, Any]:
    """Return an event with its position in a run, in the form sent to clients that follow the run.

    Args:
        event: The event.
        run: The run's name.
        steps: How many steps the run has taken so far, including this one.  A client that reconnects continues after
            this number.

    Examples:
        >>> event_envelope(Inside("run:1.0", TextDelta("Hel")), run="r1", steps=3)
        {'run': 'r1', 'path': 'run:1.0', 'steps': 3, 'event': {'type': 'text_delta', 'text': 'Hel'}}
    """
    path, event = unwrapped(event)
    return {"run": run, "path": path, "steps": steps, "event": event_data(event)}


def type_of(kind: type[Any]) -> str:
    """Return the ``type`` for an event class, such as ``text_delta`` for `TextDelta`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def masked_data(fields: Mapping[str, Any], exact: tuple[str, ...] = ()) -> Any:
    """Return fields as JSON data, with long strings cut and secrets masked.  Fields in ``exact`` stay unchanged."""
    shown = {name: _cut(json_data(value)) for name, value in fields.items() if name not in exact}
    masked = json.loads(masked_arguments(json.dumps(shown)))
    return {name: json_data(value) if name in exact else masked[name] for name, value in fields.items()}


def json_data(value: Any) -> Any:
    """Return a value as JSON data.  Values that JSON cannot express become strings."""
    return _any(to_builtins(value, enc_hook=_any))


def _any(value: Any) -> Any:
    import pydantic_core

    return pydantic_core.to_jsonable_python(value, serialize_unknown=True, inf_nan_mode="null")


def _fields(event: Any) -> dict[str, Any]:
    if isinstance(event, ReplyCompleted):
        calls = [{"name": call.name, "arguments_json": call.arguments_json} for call in event.function_calls]
        usage = to_builtins(event.usage)
        return {"text": event.text, "function_calls": calls, "finish": event.reply.finish, "usage": usage}
    if isinstance(event, Suspended):
        asked = [_question(question) for question in event.questions]
        return {"waits_for": event.keys, "wake_at_s": event.wake_at_s, "questions": asked}
    hidden = getattr(type(event), "hidden", ())
    fields = {name: getattr(event, name) for name in field_names(type(event)) if name not in hidden}
    if isinstance(event, ArgumentsDelta):
        fields["arguments_json"] = fields.pop("text")
    if isinstance(event, FunctionCallCompleted):
        call = fields.pop("call")
        fields |= {name: "" if call is None else getattr(call, name) for name in ("id", "name", "arguments_json")}
    return fields


def _question(question: Any) -> dict[str, Any]:
    schema = parsed(question.schema)
    return {"key": question.key, "kind": question.kind, "about": about_question(question), "schema": schema}


def about_question(question: Any) -> Any:
    """Return a question's subject as data, with any arguments parsed, so that masking finds the secrets in them."""
    about = parsed(question.about)
    if isinstance(about, dict) and isinstance(about.get("arguments"), str):
        about["arguments"] = parsed(about["arguments"])
    return about


def parsed(text: str) -> Any:
    """Return the data in a JSON document, or the string itself if it is not JSON."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut(item) for item in value]
    if isinstance(value, str):
        shown = masked_arguments(value)  # before the cut, since a part of a key would not be recognized
        return shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 1]}…"
    return value


SCHEMA_VERSION = 1  # rises when a type or field is renamed or removed, not when one is added
_TEXT, _WHOLE, _NUMBER, _SURE = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}
_TEXTS = {"type": "array", "items": _TEXT}
_PAIR = {"type": "array", "items": _WHOLE, "minItems": 2, "maxItems": 2}
_USAGE = {"$ref": "#/$defs/usage"}
_OF_ANNOTATION: dict[str, dict[str, Any]] = {
    "str": _TEXT,
    "int": _WHOLE,
    "float": _NUMBER,
    "bool": _SURE,
    "Any": {},
    "str | None": {"type": ["string", "null"]},
    "float | None": {"type": ["number", "null"]},
    "tuple[str, ...]": _TEXTS,
    "tuple[int, int]": _PAIR,
    "Usage": _USAGE,
    "Usage | None": {"anyOf": [_USAGE, {"type": "null"}]},
}


def _object(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


_CALL = _object({"name": _TEXT, "arguments_json": _TEXT})
_ASKED = _object({"key": _TEXT, "kind": _TEXT, "about": {}, "schema": {}})
_ENDED = {
    "state": _TEXT,
    "failed": _SURE,
    "reason": {"type": ["string", "null"]},
    "detail": {"type": ["string", "null"]},
    "usage": _USAGE,
    "states": _TEXTS,
    "waits_for": _TEXTS,
}
_DONE = _object(
    {
        **_ENDED,
        "output": {},
        "text": {"type": ["string", "null"]},
        "finish": {"type": ["string", "null"]},
        "rounds": _WHOLE,
        "function_calls": {"type": "array", "items": _object({"name": _TEXT, "result": {}, "error": {}})},
        "data": {},
    },
    optional=("output", "text", "finish", "rounds", "function_calls", "data"),  # for calls only, or for flows only
)
_OWN: dict[str, dict[str, Any]] = {  # of events whose data are not their fields
    "arguments_delta": _object({"index": _WHOLE, "id": _TEXT, "arguments_json": _TEXT}),
    "function_call_completed": _object({"index": _WHOLE, "id": _TEXT, "name": _TEXT, "arguments_json": _TEXT}),
    "reply_completed": _object(
        {
            "text": _TEXT,
            "function_calls": {"type": "array", "items": _CALL},
            "finish": {"type": ["string", "null"]},
            "usage": _USAGE,
        }
    ),
    "suspended": _object(
        {
            "waits_for": _TEXTS,
            "wake_at_s": {"type": ["number", "null"]},
            "questions": {"type": "array", "items": _ASKED},
        }
    ),
}


def event_schema() -> dict[str, Any]:
    """Return the JSON Schema for what `event_data` returns.

    ``$defs.envelope`` describes what `event_envelope` returns.

    Examples:
        >>> "text_delta" in event_schema()["$defs"]
        True
    """
    kinds = [kind for kind in _kinds() if kind not in (events.Done, events.Inside)]
    defs = {type_of(kind): _of_kind(kind) for kind in kinds}
    defs |= {"result": _typed("result", _DONE), "failure": _typed("failure", _DONE)}
    any_event = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in defs]}
    any_event["anyOf"].append({"$ref": "#/$defs/cut"})
    defs["cut"] = _object({"type": _TEXT, "cut": _TEXT, "path": _TEXT}, optional=("path",))
    defs["usage"] = {"type": "object", "additionalProperties": {"type": ["number", "null"]}}
    defs["event"] = any_event
    defs["envelope"] = _object({"run": _TEXT, "path": _TEXT, "steps": _WHOLE, "event": {"$ref": "#/$defs/event"}})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Events of fsm_agent, version {SCHEMA_VERSION}",
        "$ref": "#/$defs/event",
        "$defs": defs,
    }


def result_schema() -> dict[str, Any]:
    """Return the JSON Schema for a result's ``to_dict()``, without references."""
    usage = {"type": "object", "additionalProperties": {"type": ["number", "null"]}}
    return {**_DONE, "properties": {**_DONE["properties"], "usage": usage}}


def _kinds() -> list[Any]:
    found = [kind for each in get_args(events.Event) for kind in (get_args(each) or [each])]
    return [getattr(kind, "__origin__", kind) for kind in found]


def _of_kind(kind: Any) -> dict[str, Any]:
    name = type_of(kind)
    if name in _OWN:
        return _typed(name, _OWN[name])
    hidden = getattr(kind, "hidden", ())
    annotations = {field: _OF_ANNOTATION[text] for field, text in get_annotations(kind).items() if field not in hidden}
    return _typed(name, _object(annotations))


def _typed(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    properties = {"type": {"const": name}, **schema["properties"], "path": _TEXT}
    return {**schema, "properties": properties, "required": ["type", *schema["required"]]}


class JsonResult:
    """A base class for results.  pydantic serializes them with `to_dict`, so FastAPI can return them."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON data."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        written = core_schema.plain_serializer_function_ser_schema(lambda result: result.to_dict())
        return core_schema.is_instance_schema(cls, serialization=written)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return result_schema()

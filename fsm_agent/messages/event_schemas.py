"""The JSON Schema of events as JSON data."""

from __future__ import annotations

from inspect import get_annotations
from typing import Any, get_args

from fsm_agent.messages import event as events
from fsm_agent.messages.event_json import type_of

SCHEMA_VERSION = 1  # rises when a type or a field is renamed or removed; new ones come without
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
    optional=("output", "text", "finish", "rounds", "function_calls", "data"),  # those of a call, or of a flow
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
    """Return the JSON Schema of what `event_data` returns; ``$defs.envelope`` is that of `event_envelope`.

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
    """Return the JSON Schema of ``to_dict()`` of a result, without references."""
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

"""Events as JSON data, for programs in any language: on the command line, in a service's streams, and in logs.

Each event is an object with a ``type`` that names its class, such as ``text_delta`` or ``function_ended``.  A `Done`
becomes a ``result`` or a ``failure``.  Values under secret names are masked and long strings are cut, except that a
result's text and output and a flow's data are all complete and unmasked.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_type_hints

from msgspec import UNSET, Struct, UnsetType, defstruct, to_builtins
from msgspec.json import schema_components
from pydantic_core import CoreSchema, core_schema, to_jsonable_python

from fsm_agent._internal.masking import masked_arguments
from fsm_agent._internal.structs import field_names
from fsm_agent.messages.events import (
    ArgumentsDelta,
    Done,
    Event,
    FunctionCallCompleted,
    Inside,
    ReplyCompleted,
    Suspended,
    unwrapped,
)
from fsm_agent.messages.reply import Usage

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

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
        steps: The number of steps that the run has taken so far, including this one.  A client that reconnects resumes
            from the step after this one.

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
    return to_jsonable_python(value, serialize_unknown=True, inf_nan_mode="null")


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
Fields: TypeAlias = dict[str, Any]  # the types of an object's fields, by name
_Counts: TypeAlias = dict[str, float | None]  # tokens and their cost, by name
_PATH: Fields = {"path": str}  # of an event from an inner process


def _object(name: str, fields: Fields, optional: Fields, **config: Any) -> type[Struct]:
    """Return a type for objects with these fields, and possibly others.  It serves only to make their schema."""
    left_out = [(field, kind | UnsetType, UNSET) for field, kind in optional.items()]
    return defstruct(name, [*fields.items(), *left_out], **config)


class RequestedCall(Struct):
    """A function call in the data of a `ReplyCompleted`."""

    name: str
    arguments_json: str


class AskedQuestion(Struct):
    """A question in the data of a `Suspended`."""

    key: str
    kind: str
    about: Any
    schema: Any


class EndedCall(Struct):
    """A function call in the data of a result."""

    name: str
    result: Any
    error: Any


_OWN: dict[type, Fields] = {  # of events whose data is not their fields
    ArgumentsDelta: {"index": int, "id": str, "arguments_json": str},
    FunctionCallCompleted: {"index": int, "id": str, "name": str, "arguments_json": str},
    ReplyCompleted: {"text": str, "function_calls": list[RequestedCall], "finish": str | None, "usage": _Counts},
    Suspended: {"waits_for": list[str], "wake_at_s": float | None, "questions": list[AskedQuestion]},
}
_ENDED: Fields = {
    **{"state": str, "failed": bool, "reason": str | None, "detail": str | None},
    **{"usage": _Counts, "states": list[str], "waits_for": list[str]},
}
_OF_ONE: Fields = {  # of calls only, or of flows only
    **{"output": Any, "text": str | None, "finish": str | None, "rounds": int, "function_calls": list[EndedCall]},
    "data": Any,
}


def event_schema() -> dict[str, Any]:
    """Return the JSON Schema for what `event_data` returns.

    ``$defs.envelope`` describes what `event_envelope` returns.

    Examples:
        >>> "text_delta" in event_schema()["$defs"]
        True
    """
    kinds = [kind for kind in _kinds() if kind not in (Done, Inside)]
    told = [_object(type_of(kind), _types(kind), _PATH, tag=type_of(kind), tag_field="type") for kind in kinds]
    told += [_object(name, _ENDED, _OF_ONE | _PATH, tag=name, tag_field="type") for name in ("result", "failure")]
    told.append(_object("cut", {"type": str, "cut": str}, _PATH))
    envelope = _object("envelope", {"run": str, "path": str, "steps": int, "event": Any}, {})
    (*refs, _), defs = schema_components([*told, envelope], ref_template="#/$defs/{name}")
    defs["event"] = {"anyOf": [*refs]}
    defs["envelope"]["properties"]["event"] = {"$ref": "#/$defs/event"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Events of fsm_agent, version {SCHEMA_VERSION}",
        "$ref": "#/$defs/event",
        "$defs": defs,
    }


def result_schema() -> dict[str, Any]:
    """Return the JSON Schema for a result's ``to_dict()``, without references."""
    _, defs = schema_components([_object("Result", _ENDED, _OF_ONE)], ref_template="{name}")
    found: dict[str, Any] = defs["Result"]
    found["properties"]["function_calls"]["items"] = defs["EndedCall"]
    return found


def _kinds() -> list[Any]:
    found = [kind for each in get_args(Event) for kind in (get_args(each) or [each])]
    return [getattr(kind, "__origin__", kind) for kind in found]


def _types(kind: type) -> Fields:
    if kind in _OWN:
        return _OWN[kind]
    hidden, as_written = getattr(kind, "hidden", ()), {Usage: _Counts, Usage | None: _Counts | None}
    return {name: as_written.get(hint, hint) for name, hint in get_type_hints(kind).items() if name not in hidden}


class JsonResult:
    """A base class for results.  pydantic serializes them with `to_dict`, so FastAPI can return them."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON data."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(lambda result: result.to_dict())
        return core_schema.is_instance_schema(cls, serialization=written)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return result_schema()

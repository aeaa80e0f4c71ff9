"""Writes data and answers as JSON that can be read back, and says why a value cannot be written.

Pydantic's own JSON loses the bound of a `deque`, the name of a time zone, and the fold of a time that has no zone.
This module writes them as ``{"maxlen": 3, "items": […]}``, ``"2026-03-28T12:00:00+01:00[Europe/Oslo]"`` and
``"2026-10-25T02:30:00[fold=1]"``.  Bytes that are not UTF-8 text, such as an image, are written as
``{"base64": "iVBO…"}``.
"""

from __future__ import annotations

import re
import sys
from base64 import b64decode, b64encode
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Set
from contextvars import ContextVar
from copy import copy
from dataclasses import fields, is_dataclass
from datetime import datetime, time
from functools import lru_cache
from operator import is_
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pydantic
import pydantic_core

from fsm_agent._internal.structs import type_adapter
from fsm_agent.errors import OutcomeError
from fsm_agent.functions.arguments import described_errors
from fsm_agent.validation import safe_repr

_Handler = Callable[[Any], Any]
_PLAIN = frozenset({"default", "metadata", "config", "expected", "serialization"})  # keys without schemas
_LEAVES = frozenset({str, int, float, bool, bytes, type(None)})  # types without parts that equality ignores
# The values of type `Any`, while data is checked.  Pydantic's context belongs to users' validators.
_HELD: ContextVar[list[Any] | None] = ContextVar("held", default=None)
_FOLD = "fold=1"  # in place of the name of a zone
_WHOLE = "the value"
_HEAD = "Pydantic serializer warnings:"  # above what is found
_MOST_SHOWN = 500  # characters of a problem
_ILL_TYPED = re.compile(  # pydantic's words
    r"Expected `(.*?)` .*?\[(?:field_name='(.*?)', )?input_value=(.*), input_type="
)
_NO_JSON = re.compile(r"^input: Invalid JSON: (.*) \(given: .*\)$")


# JSON that keeps what pydantic's own loses


def kept_adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    """Return the adapter of a type."""
    plain = type_adapter(kind)
    return _kept(plain) if plain.pydantic_complete else plain  # the type's names may be known later


@lru_cache(512)
def _kept(plain: pydantic.TypeAdapter[Any]) -> pydantic.TypeAdapter[Any]:
    schema = _keeping(plain.core_schema)
    if schema is plain.core_schema:
        return plain
    adapter = copy(plain)
    adapter.core_schema = schema
    # Without the flag, inner models use their own validators, which are not wrapped.
    adapter.validator = pydantic_core.SchemaValidator(schema, _use_prebuilt=False)
    adapter.serializer = pydantic_core.SchemaSerializer(schema, _use_prebuilt=False)
    return adapter


def _keeping(schema: Any) -> Any:
    """Return a core schema in which deques, times and bytes are wrapped, or the same object if there are none."""
    if isinstance(schema, list | tuple):
        items = [_keeping(item) for item in schema]
        return schema if all(map(is_, items, schema)) else type(schema)(items)
    if not isinstance(schema, dict):
        return schema
    made = {key: value if key in _PLAIN else _keeping(value) for key, value in schema.items()}
    own = schema.get("serialization")
    if (
        schema.get("type") == "json-or-python"
        and own
        and schema["json_schema"].get("items_schema") == own.get("schema")
    ):
        made["serialization"] = {**own, "schema": _keeping(own["schema"])}  # the schema of a Sequence's items
    if all(made[key] is value for key, value in schema.items()):
        made = schema
    found = _WRAPPED.get(schema.get("type", "")) if "serialization" not in schema else None
    if found is None:
        return made
    write, read = found
    core = pydantic_core.core_schema
    writing = core.wrap_serializer_function_ser_schema(write, schema=made)
    return core.no_info_wrap_validator_function(read, made, serialization=writing)


def _write_deque(value: Any, handler: _Handler) -> Any:
    items = handler(value)
    return {"maxlen": value.maxlen, "items": items} if isinstance(value, deque) and value.maxlen is not None else items


def _read_deque(value: Any, handler: _Handler) -> Any:
    if not (isinstance(value, dict) and value.keys() == {"maxlen", "items"}):
        return handler(value)
    if type(value["maxlen"]) is not int or not 0 <= value["maxlen"] <= sys.maxsize:
        raise ValueError(f"maxlen: expected a whole number from 0 to {sys.maxsize}, got {safe_repr(value['maxlen'])}")
    return deque(handler(value["items"]), value["maxlen"])


def _write_time(value: Any, handler: _Handler) -> Any:
    zone = value.tzinfo if isinstance(value, datetime) else None
    if isinstance(zone, ZoneInfo) and zone.key:
        return f"{handler(value)}[{zone.key}]"
    return f"{handler(value)}[{_FOLD}]" if isinstance(value, datetime | time) and value.fold else handler(value)


def _read_time(value: Any, handler: _Handler) -> Any:
    if not (isinstance(value, str) and value.endswith("]")):
        return handler(value)
    text, _, key = value[:-1].partition("[")
    found = handler(text)
    if key == _FOLD:
        return found.replace(fold=1)
    try:
        zone = ZoneInfo(key)
    except (ZoneInfoNotFoundError, OSError):  # OSError: a folder of zones, or an impossible file name
        raise ValueError(f"time zone: expected one that this machine knows, got {safe_repr(key)}") from None
    if not isinstance(found, datetime) or found.tzinfo is None:
        raise ValueError(f"expected a time with an offset before its zone, got {safe_repr(value)}")
    return found.astimezone(zone)


def _write_bytes(value: Any, handler: _Handler) -> Any:
    if isinstance(value, bytes):
        try:
            value.decode()
        except UnicodeDecodeError:  # which pydantic cannot write by default
            return {"base64": b64encode(value).decode()}
    return handler(value)


def _read_bytes(value: Any, handler: _Handler) -> Any:
    if not (isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str)):
        return handler(value)
    return handler(b64decode(value["base64"], validate=True))


def _write_any(value: Any, handler: _Handler) -> Any:
    if (held := _HELD.get()) is None:
        return handler(value)
    held.append(value)
    return len(held) - 1


def _read_any(value: Any, handler: _Handler) -> Any:
    return handler(value) if (held := _HELD.get()) is None else held[int(value)]


_WRAPPED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "any": (_write_any, _read_any),
    "bytes": (_write_bytes, _read_bytes),
    "deque": (_write_deque, _read_deque),
    "datetime": (_write_time, _read_time),
    "time": (_write_time, _read_time),
}


# Values as JSON that can be read back


class DataError(OutcomeError):
    """JSON cannot hold a value unchanged.  The message says where it is, what was expected, and what was found."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}" if where else problem)


def dumped(adapter: pydantic.TypeAdapter[Any], value: Any, where: str, right: str, *, is_any_free: bool = False) -> str:
    """Return a value as JSON that can be read back.

    Error messages give ``where`` as the value's location and ``right`` as what was expected.  With ``is_any_free``,
    each value of type `Any` is replaced by a number in the JSON.

    Raises:
        DataError: If JSON cannot hold the value unchanged.
    """
    held = _HELD.set([] if is_any_free else None)
    try:
        text = adapter.serializer.to_json(value, warnings="error", by_alias=True).decode()
        again = adapter.validator.validate_json(text)
        is_equal = again is value or bool(again == value)
        looks_equal = is_equal or repr(again) == repr(value)
        lost = lost_in_json(value, again) if looks_equal else ""
    except (ValueError, TypeError, RecursionError) as error:
        why = describe_json_error(error)
        problem = f"expected {right}, got {safe_repr(value)}"
        if not why.startswith(f"{_WHOLE}: "):
            problem = f"{problem}: {why.removeprefix('input: ')}"
        raise DataError(where, problem) from None
    finally:
        _HELD.reset(held)
    if lost or not is_equal:
        what = f"without {lost}" if lost else "unequal" if looks_equal else f"as {safe_repr(again)}"
        unchanged = f"expected {right} that JSON keeps unchanged, got {safe_repr(value)}"
        raise DataError(where, f"{unchanged}, which comes back {what}")
    return text


def lost_in_json(value: Any, again: Any) -> str:
    """Describe what a value loses in JSON, even if the value that is read back is equal.  Return "" if nothing is lost.

    Equality ignores the bound of a deque, the default factory of a defaultdict, the fold and the zone of a time, and
    all fields that a user's own class leaves out.
    """
    if value is again or type(value) in _LEAVES:
        return ""
    parts = ((one, other) for one, other in _parts(value, again) if type(one) not in _LEAVES)
    return _own_loss(value, again) or next((lost for one, other in parts if (lost := lost_in_json(one, other))), "")


def _own_loss(value: Any, again: Any) -> str:
    """See `lost_in_json`.  The parts of the value are not compared."""
    if isinstance(value, deque) and value.maxlen != again.maxlen:
        return f"maxlen={value.maxlen}; use a tuple of the last {value.maxlen} items"
    if isinstance(value, datetime | time):
        return _lost_of_time(value, again)
    factory = getattr(again, "default_factory", None)
    if isinstance(value, defaultdict) and value.default_factory is not factory:
        return "its default_factory; use a plain dict"
    if isinstance(value, pydantic.BaseModel):
        private, kept = (one.__pydantic_private__ or {} for one in (value, again))
        unkept = [name for name in private if name not in kept or kept[name] != private[name]]
        if unkept and value != again:  # a type whose equality ignores them needs none of them
            return f"its private attribute {unkept[0]!r}; make it a field"
        more = [name for name in vars(value) if name not in vars(again) and not hasattr(type(value), name)]
        return f"{more[0]!r}, which is not one of its fields" if more else ""  # added by model_copy(update=…)
    return f"its type {type(value).__qualname__}" if is_dataclass(value) and type(again) is not type(value) else ""


def _lost_of_time(value: Any, again: Any) -> str:
    is_named = isinstance(value.tzinfo, ZoneInfo) and not isinstance(again.tzinfo, ZoneInfo)
    if is_named or (value.tzinfo is not None and again.tzinfo is None):
        return f"tzinfo={value.tzinfo!r}; keep the name of the zone in a field of its own"
    return "fold=1; keep it in a field of its own" if value.fold != again.fold else ""


def _parts(value: Any, again: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each part of a value, paired with the part that was read back."""
    if isinstance(value, list | tuple | deque):
        yield from zip(value, again, strict=True)
    elif isinstance(value, pydantic.BaseModel):
        yield from ((item, vars(again)[name]) for name, item in vars(value).items() if name in vars(again))
    elif is_dataclass(value):
        yield from ((getattr(value, field.name), getattr(again, field.name)) for field in fields(value))
    elif isinstance(value, dict | Set):
        kept = {key: key for key in again}
        yield from ((key, kept[key]) for key in value if key in kept)
        if isinstance(value, dict):
            yield from ((item, again[key]) for key, item in value.items() if key in kept)


def describe_json_error(error: Exception) -> str:
    """Explain in one line why JSON is wrong, or why a value cannot be written as JSON."""
    text = described_errors(error) if isinstance(error, pydantic.ValidationError) else str(error)
    lines = [line.strip() for line in text.splitlines()]
    if isinstance(error, pydantic_core.PydanticSerializationError) and (found := _ILL_TYPED.findall(text)):
        lines = [f"{field or _WHOLE}: expected {right}, got {actual}" for right, field, actual in found]
    lines = [_NO_JSON.sub(r"invalid JSON, \1", line) for line in lines]
    return "; ".join([line for line in lines if line != _HEAD])[:_MOST_SHOWN]

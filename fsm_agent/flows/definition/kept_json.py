"""The adapter of the data of a flow: JSON that keeps what JSON of pydantic alone loses.

Pydantic writes a bounded `deque` as a list, and a time in a zone with its offset alone, so that what comes back is
equal, and is not the same.  Here they are ``{"maxlen": 3, "items": […]}`` and
``"2026-03-28T12:00:00+01:00[Europe/Oslo]"``.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from copy import copy
from datetime import datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fsm_agent._internal.lazy_import import pydantic, pydantic_core
from fsm_agent._internal.type_adapters import type_adapter
from fsm_agent.validation import shown

_Handler = Callable[[Any], Any]
_PLAIN = frozenset({"default", "metadata", "config", "expected", "serialization"})  # keys that hold no schemas


def kept_adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    """Return the adapter of a type.

    Raises:
        Exception: Raised by pydantic: it has no JSON.
    """
    plain = type_adapter(kind)
    return _kept(plain) if plain.pydantic_complete else plain  # its names may be known by the next time


@lru_cache(512)
def _kept(plain: pydantic.TypeAdapter[Any]) -> pydantic.TypeAdapter[Any]:
    schema = _keeping(plain.core_schema)
    if schema is plain.core_schema:
        return plain
    adapter = copy(plain)
    adapter.core_schema = schema
    adapter.validator = _compiled(pydantic_core.SchemaValidator, schema)
    adapter.serializer = _compiled(pydantic_core.SchemaSerializer, schema)
    return adapter


def _compiled(make: Any, schema: Any) -> Any:
    try:
        return make(schema, _use_prebuilt=False)  # else models inside bring their own, without what is wrapped here
    except TypeError:  # no such argument in another version: then deques in models are refused by name
        return make(schema)


def _keeping(schema: Any) -> Any:
    """Return a core schema in which deques and times are wrapped; the same object if it has none."""
    if isinstance(schema, list | tuple):
        items = [_keeping(item) for item in schema]
        return schema if all(map(_is, items, schema)) else type(schema)(items)
    if not isinstance(schema, dict):
        return schema
    made = {key: value if key in _PLAIN else _keeping(value) for key, value in schema.items()}
    if all(made[key] is value for key, value in schema.items()):
        made = schema
    found = _WRAPPED.get(schema.get("type", "")) if "serialization" not in schema else None
    if found is None:
        return made
    write, read = found
    core = pydantic_core.core_schema
    writing = core.wrap_serializer_function_ser_schema(write, schema=made)
    return core.no_info_wrap_validator_function(read, made, serialization=writing)


def _is(one: Any, other: Any) -> bool:
    return one is other


def _write_deque(value: Any, handler: _Handler) -> Any:
    items = handler(value)
    return {"maxlen": value.maxlen, "items": items} if isinstance(value, deque) and value.maxlen is not None else items


def _read_deque(value: Any, handler: _Handler) -> Any:
    if not (isinstance(value, dict) and value.keys() == {"maxlen", "items"}):
        return handler(value)
    if type(value["maxlen"]) is not int or not 0 <= value["maxlen"] <= sys.maxsize:
        raise ValueError(f"maxlen: expected a whole number from 0 to {sys.maxsize}, got {shown(value['maxlen'])}")
    return deque(handler(value["items"]), value["maxlen"])


def _write_time(value: Any, handler: _Handler) -> Any:
    zone = value.tzinfo if isinstance(value, datetime) else None
    return f"{handler(value)}[{zone.key}]" if isinstance(zone, ZoneInfo) and zone.key else handler(value)


def _read_time(value: Any, handler: _Handler) -> Any:
    if not (isinstance(value, str) and value.endswith("]")):
        return handler(value)
    text, _, key = value[:-1].partition("[")
    time = handler(text)
    try:
        zone = ZoneInfo(key)
    except (ZoneInfoNotFoundError, OSError):  # OSError: a folder of zones, or no name that a file can have
        raise ValueError(f"time zone: expected one that this machine knows, got {shown(key)}") from None
    if time.tzinfo is None:
        raise ValueError(f"expected a time with an offset before its zone, got {shown(value)}")
    return time.astimezone(zone)


_WRAPPED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "deque": (_write_deque, _read_deque),
    "datetime": (_write_time, _read_time),
}

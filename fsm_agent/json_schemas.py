"""How are arguments checked against a JSON Schema that no Python type stands behind?

What is read: types, ``enum``, ``const``, ``anyOf``, ``oneOf`` (as ``anyOf``), ``allOf``, local ``$ref``, ``nullable``,
``properties``, ``required``, ``additionalProperties``, ``items``, and the bounds of numbers, texts and lists.
What says more is left to who answers the call.

A schema may come from a stranger, so it is read as a tree of bounded size: checking takes a time that is linear
in the arguments, whatever refers to whatever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from fsm_agent.deferred import core_schema, pydantic_core

if TYPE_CHECKING:
    from pydantic_core import CoreSchema, SchemaValidator

_MAX_DEPTH = 20  # to which a schema is read
_MAX_NODES = 5_000  # of a schema are read
_MAX_OPEN = 2  # times a reference is followed inside of itself
_ANY: CoreSchema = {"type": "any"}
_NUMBER = {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt"}
_WHOLE = {"ge": math.ceil, "gt": math.floor, "le": math.floor, "lt": math.ceil}
_TEXT = {"minLength": "min_length", "maxLength": "max_length", "pattern": "pattern"}
_LIST = {"minItems": "min_length", "maxItems": "max_length"}


def _bad() -> tuple[type[Exception], ...]:
    """What pydantic_core says of constraints."""
    return pydantic_core.SchemaError, ValueError, TypeError, OverflowError


def schema_validator(schema: Mapping[str, Any]) -> SchemaValidator:
    """What checks arguments against a JSON Schema, as far as it is read; they are an object in any case."""
    reader = _Reader(schema)
    try:
        return pydantic_core.SchemaValidator(reader.object(schema, 0))
    except _bad():
        return pydantic_core.SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))


class _Reader:
    """One reading of a schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.left = _MAX_NODES
        self.open: list[str] = []  # the references that are being followed

    def object(self, schema: Mapping[str, Any], depth: int) -> CoreSchema:
        properties, required = schema.get("properties"), schema.get("required")
        names = [key for key in required if isinstance(key, str)] if isinstance(required, list) else []
        given: dict[str, Any] = dict.fromkeys(names, True)
        if isinstance(properties, Mapping):
            given |= {key: inner for key, inner in properties.items() if isinstance(key, str)}
        fields = {}
        for key, inner in given.items():
            read = self.read(inner, depth + 1)
            if key not in names:  # models say null of what they leave out
                read = core_schema.nullable_schema(read)
            fields[key] = core_schema.typed_dict_field(read, required=key in names)
        others = schema.get("additionalProperties")
        if others is False:
            return core_schema.typed_dict_schema(fields, extra_behavior="forbid")
        extras = self.read(others, depth + 1) if isinstance(others, Mapping) else None
        return core_schema.typed_dict_schema(fields, extra_behavior="allow", extras_schema=extras)

    def read(self, schema: Any, depth: int) -> CoreSchema:
        """What a schema says; anything where it says nothing that is read."""
        self.left -= 1
        if depth > _MAX_DEPTH or self.left < 0 or not isinstance(schema, Mapping):
            return _ANY
        read = self._said(schema, depth)
        return core_schema.nullable_schema(read) if schema.get("nullable") is True else read

    def _said(self, schema: Mapping[str, Any], depth: int) -> CoreSchema:
        match schema:
            case {"$ref": str(ref)}:
                return self._referred(ref, depth)
            case {"const": value}:
                return core_schema.literal_schema([value])
            case {"enum": [_, *_] as choices}:
                return core_schema.literal_schema([*choices])
            case {"anyOf": [_, *_] as kinds} | {"oneOf": [_, *_] as kinds}:
                return self._union(kinds, depth)
            case {"allOf": [_, *_] as kinds}:
                return core_schema.chain_schema([self.read(kind, depth + 1) for kind in kinds])
            case {"type": [_, *_] as kinds}:
                return self._union([{**schema, "type": kind} for kind in kinds], depth)
            case {"type": str(kind)}:
                return self._typed(schema, kind, depth)
        return _ANY

    def _typed(self, schema: Mapping[str, Any], kind: str, depth: int) -> CoreSchema:
        if kind == "object":
            return self.object(schema, depth)
        if kind == "array":
            return self._list(schema, depth)
        read, default = _scalar(schema, kind), schema.get("default")
        if isinstance(default, str) and kind in ("integer", "number", "boolean"):  # then it is taken
            return core_schema.union_schema([read, core_schema.literal_schema([default])])
        return read

    def _union(self, kinds: list[Any], depth: int) -> CoreSchema:
        is_null = [isinstance(kind, Mapping) and kind.get("type") == "null" for kind in kinds]
        read = [self.read(kind, depth + 1) for kind, null in zip(kinds, is_null, strict=True) if not null]
        if not read:
            return core_schema.none_schema()
        union = core_schema.union_schema([*read]) if len(read) > 1 else read[0]
        return core_schema.nullable_schema(union) if any(is_null) else union

    def _list(self, schema: Mapping[str, Any], depth: int) -> CoreSchema:
        bounds = {name: schema[key] for key, name in _LIST.items() if _is_length(schema.get(key))}
        return core_schema.list_schema(self.read(schema.get("items"), depth + 1), **bounds)

    def _referred(self, ref: str, depth: int) -> CoreSchema:
        if self.open.count(ref) >= _MAX_OPEN:
            return _ANY
        self.open.append(ref)
        try:
            return self.read(_found(self.root, ref), depth + 1)
        finally:
            self.open.pop()


def _found(root: Mapping[str, Any], ref: str) -> Any:
    """What a reference within the schema points at (RFC 6901); None when that is nothing."""
    found: Any = root
    for step in ref.removeprefix("#").split("/")[1:] if ref.startswith("#") else ("",):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def _scalar(schema: Mapping[str, Any], kind: str) -> CoreSchema:
    match kind:
        case "string":
            return _bounded({"type": "str"}, schema, _TEXT)
        case "integer":
            return _bounded({"type": "int"}, schema, _NUMBER)
        case "number":
            whole = _bounded({"type": "int"}, schema, _NUMBER)
            return core_schema.union_schema(
                [whole, _bounded({"type": "float", "allow_inf_nan": False}, schema, _NUMBER)]
            )
        case "boolean":
            return core_schema.bool_schema()
        case "null":
            return core_schema.none_schema()
    return _ANY


def _bounded(plain: dict[str, Any], schema: Mapping[str, Any], names: Mapping[str, str]) -> CoreSchema:
    """With its bounds where pydantic takes them: not with a pattern that looks around, say."""
    bounds = {name: schema[key] for key, name in names.items() if key in schema}
    try:
        if plain["type"] == "int":  # pydantic takes whole bounds only
            bounds = {name: _WHOLE[name](value) for name, value in bounds.items()}
        if bounds:
            pydantic_core.SchemaValidator(cast("CoreSchema", plain | bounds))
    except _bad():
        bounds = {}
    return cast("CoreSchema", plain | bounds)


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31

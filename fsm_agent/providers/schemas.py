"""Schemas for models: JSON Schema in strict mode, and outputs in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fsm_agent._internal.lazy_import import pydantic_core
from fsm_agent.errors import PromptError
from fsm_agent.prompts.output import Output
from fsm_agent.prompts.rendering.schema import prompt_schema

# What OpenAI's strict mode knows (https://platform.openai.com/docs/guides/structured-outputs, "Supported
# schemas", 2026-11; other services took the mode over with the same rules or more lenient ones).
_KEPT = frozenset(
    {
        *("type", "enum", "const", "title", "description", "required", "additionalProperties", "pattern", "format"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"),
        *("properties", "$defs", "definitions", "items", "anyOf", "oneOf", "$ref"),
    }
)
_DESCRIBED = frozenset({"minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties", "format", "pattern"})
_DROPPED = frozenset(
    {
        *("default", "examples", "example", "discriminator", "deprecated", "readOnly", "writeOnly"),
        *("$schema", "$id", "$comment", "$anchor", "contentEncoding", "contentMediaType"),
    }
)
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_OF_SCHEMAS = frozenset({"items", "prefixItems", "anyOf", "oneOf", "additionalProperties"})  # keys that hold schemas
_OF_NAMES = frozenset({"properties", "$defs", "definitions"})  # keys that hold schemas by name
_COMBINE = frozenset({"anyOf", "oneOf", "$ref", "if", "not", "dependentSchemas", "unevaluatedProperties"})
_LOOKAROUND = re.compile(r"\(\?<?[=!]")


class _NotStrict(Exception):
    """Strict mode cannot express the schema; never leaves this module."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema in strict mode; None if strict mode cannot express it.

    It can if every object lists its properties, requires them all and allows no others.  Constraints that
    it does not support are described in the description instead; annotations that it refuses are dropped.
    """
    if schema.get("type") != "object" or "anyOf" in schema or "oneOf" in schema:
        return None
    try:
        return _strict(schema)
    except _NotStrict:
        return None


def sendable_schema(schema: Mapping[str, Any], *, takes_strict: bool) -> tuple[dict[str, Any], bool]:
    """Return the schema to send, in strict mode where that can express it, and True if it is in that mode."""
    strict = strict_schema(schema) if takes_strict else None
    return (dict(schema), False) if strict is None else (strict, True)


def sendable_output(output: Output, *, takes_strict: bool) -> tuple[dict[str, Any], bool]:
    """Do the same for the schema of an output, whose objects are closed in either mode."""
    schema, is_strict = sendable_schema(output.schema or {}, takes_strict=takes_strict)
    return (schema if is_strict else closed_objects(schema)), is_strict


def closed_objects(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema whose objects take no other properties, unless it says which they take.

    Schemas of which several describe one object are left open, as each would refuse the properties of the others.
    """
    is_combined = b'"allOf"' in pydantic_core.to_json(schema)
    closed: dict[str, Any] = dict(schema) if is_combined else _closed(schema)
    return closed


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    has_properties = isinstance(schema.get("properties"), Mapping)
    if has_properties and schema.keys() & _COMBINE:
        return dict(schema)
    closed: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _OF_NAMES and isinstance(value, Mapping):
            closed[key] = {name: _closed(inner) for name, inner in value.items()}
        else:
            closed[key] = _closed(value) if key in _OF_SCHEMAS else value
    if has_properties and "patternProperties" not in schema:
        closed.setdefault("additionalProperties", False)
    return closed


def output_in_words(output: Output, with_functions: bool = False) -> str:
    """Return the instructions with which a system prompt asks for the output."""
    if output.schema is None:
        words = f"IMPORTANT: You must respond with valid JSON matching the {output.name} type structure."
        words = f"{words} Do not include any text outside the JSON object."
    else:
        words = f"IMPORTANT: Respond with valid JSON matching this schema:\n\n{_print_schema(output, output.schema)}"
    return f"{words}\n\nCall functions first, as long as you need them." if with_functions else words


def _print_schema(output: Output, schema: Mapping[str, Any]) -> str:
    try:
        return prompt_schema(output.type)
    except PromptError:  # too long: `prompt_schema` repeats shared parts in full
        return pydantic_core.to_json(schema).decode()


def _strict(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise _NotStrict  # True: anything at all
    strict: dict[str, Any] = {}
    notes: list[str] = []
    for key, value in schema.items():
        if key in _DESCRIBED and not _is_known(key, value):
            notes.append(f"{key}: {value}")
        elif key == "allOf" and len(value) == 1:
            strict |= _strict(value[0])
        elif key in _KEPT:
            strict["anyOf" if key == "oneOf" else key] = _strict_value(key, value)
        elif key not in _DROPPED:
            raise _NotStrict
    if notes:
        strict["description"] = f"{strict.get('description', '')} ({', '.join(notes)})".strip()
    _check(strict)
    if "$ref" in strict and len(strict) > 1:  # refused next to other keys, but not in an `anyOf` next to them
        strict["anyOf"] = [{"$ref": strict.pop("$ref")}]
    return strict


def _strict_value(key: str, value: Any) -> Any:
    if key in ("properties", "$defs", "definitions"):
        return {name: _strict(inner) for name, inner in value.items()}
    if key in ("anyOf", "oneOf"):
        return [_strict(inner) for inner in value]
    return _strict(value) if key == "items" else value


def _is_known(key: str, value: Any) -> bool:
    if key == "format":
        return value in _FORMATS
    return key == "pattern" and not _LOOKAROUND.search(value)


def _check(strict: dict[str, Any]) -> None:
    """Refuse underspecified schemas; close objects."""
    if not strict.keys() & {"type", "enum", "const", "anyOf", "$ref"}:
        raise _NotStrict
    kinds = strict.get("type", ())
    if "array" in kinds and "items" not in strict:
        raise _NotStrict
    if "object" not in kinds and "properties" not in strict:
        return
    properties = strict.get("properties")
    if properties is None or set(strict.get("required", ())) != set(properties):
        raise _NotStrict
    if strict.get("additionalProperties", False) is not False:
        raise _NotStrict
    strict["required"] = list(properties)
    strict["additionalProperties"] = False

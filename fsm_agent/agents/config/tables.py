"""Tables of a configuration that are values of ours: `Limits`, `Settings`.

Each of their fields is a key, so a new field needs no change here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from inspect import get_annotations
from typing import Any

import msgspec
from pydantic import GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema, from_json

from fsm_agent._internal.hints import hint, nearest
from fsm_agent._internal.references import expanded, has_reference
from fsm_agent._internal.values import Value, differing, field_names, from_data
from fsm_agent.agents.config.source import Keys
from fsm_agent.foreign_names import remedy
from fsm_agent.providers.content import RUN_BY
from fsm_agent.validation import shown

REFERENCE_SCHEMA = {"type": "string", "pattern": r"^\$\{[^{}]+\}$"}


def filled(value: Any) -> Any:
    """Return a value with the references in its texts replaced; ``$${`` stands for ``${``.

    Raises:
        ValueError: A variable is missing.
    """
    match value:
        case str() if "${" in value:
            return "${".join([expanded(part, os.environ) for part in value.split("$${")])
        case list() | tuple():
            return [filled(item) for item in value]
        case dict():
            return {key: filled(item) for key, item in value.items()}
    return value


def unfilled(value: Any, keys: Keys = ()) -> Iterator[tuple[Keys, str]]:
    """Yield the keys and the problem of each text whose references cannot be replaced."""
    if isinstance(value, str):
        try:
            filled(value)
        except ValueError as error:
            yield keys, f": {error}"
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from unfilled(item, (*keys, index))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from unfilled(item, (*keys, str(key)))


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from texts_in(item)


class Table:
    """The type of a table for pydantic: a mapping of the fields of a value, each checked alone.

    Args:
        kind: The class of the value.
    """

    def __init__(self, kind: type[Value]) -> None:
        self.kind = kind

    def read(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields with the references in them replaced."""
        return {key: self._field(key, value) for key, value in table.items()}

    def _field(self, key: str, value: Any) -> Any:
        text = filled(value)
        try:
            from_data({key: text}, self.kind)
        except ValueError:
            if not has_reference(value):
                raise
            number = from_json(text)
            from_data({key: number}, self.kind)
            return number
        return text

    def _problem(self, key: str, value: Any) -> tuple[Keys, str] | None:
        """Return the place of a mistake under a key, and the end of a message about it."""
        known = field_names(self.kind)
        if key not in known:
            return (key,), f" is unknown{remedy(key[:100], known)}"
        if any(unfilled(value)):
            return None  # which is reported elsewhere
        try:
            self._field(key, value)
        except (ValueError, RecursionError) as error:
            if has_reference(value):  # its value is not for a message
                right = get_annotations(self.kind)[key]
                return (key,), f": expected {right} in the variable of {shown(value)}"
            return self._split_place(key, value, str(error).removeprefix("the document: "))
        return None

    def _split_place(self, key: str, value: Any, text: str) -> tuple[Keys, str]:
        """Return the place that the text of an error begins with, and the rest of it."""
        if (own := re.match(rf"(?:\w+\.)?{key}(?=:? )", text)) is not None:  # "limits.rounds: expected …"
            return (key,), text[own.end() :]
        path, colon, rest = text.partition(": ")
        if not (colon and re.match(rf"{key}\b", path)):
            return (key,), f": {text}"
        keys: Keys = tuple(int(step) if step.isdigit() else step for step in re.findall(r"\w+", path))
        if (unknown := re.fullmatch(r"object contains unknown field (.*)", rest, re.DOTALL)) is not None:
            words = {word for found in self._components[1].values() for word in found.get("properties", ())}
            return (*keys, unknown[1]), f" is unknown{hint(unknown[1][:100], sorted(words))}"
        if (missing := re.fullmatch(r"object missing required field (\w+)", rest)) is not None:
            meant = nearest(missing[1], _names_at(value, keys[1:]))
            if meant is not None:
                return (*keys, meant), f" is unknown: did you mean {missing[1]!r}?"
            return (*keys, missing[1]), " is missing; add it"
        kinds = f"; kinds of hosted tools: {', '.join(sorted(RUN_BY))}" if keys[-1] == "kind" else ""
        return keys, f": {rest}{kinds}"

    @cached_property
    def _components(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The JSON schema of the value, and those that it refers to."""
        (found,), definitions = msgspec.json.schema_components([self.kind])
        return found, definitions

    def validate(self, table: Any) -> dict[str, Any]:
        """Return the table as it was given, checked.

        Raises:
            ValidationError: Keys are unknown, or their values wrong.
            PydanticCustomError: It is not a table.
        """
        if isinstance(table, self.kind):
            table = differing(table)
        if not isinstance(table, Mapping):
            example = ", ".join(field_names(self.kind)[:3])
            text = f": expected a table of {example}, …, got {shown(table)}"
            raise PydanticCustomError("end", "{text}", {"text": text})
        problems = [self._problem(str(key), value) for key, value in table.items()]
        details = [
            InitErrorDetails(type=PydanticCustomError("end", "{text}", {"text": text}), loc=keys, input=None)
            for keys, text in filter(None, problems)
        ]
        if details:
            raise ValidationError.from_exception_data(self.kind.__name__, details)
        return dict(table)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.validate)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        inlined: dict[str, Any] = _inlined(*self._components)
        del inlined["title"]
        inlined["properties"] = {key: _or_reference(item) for key, item in inlined["properties"].items()}
        return inlined


def _names_at(value: Any, keys: Keys) -> list[str]:
    """Return the keys of the table to which some keys lead."""
    for key in keys:
        value = value[key]
    return [name[:100] for name in value if isinstance(name, str)]


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema with definitions in place of references."""
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {key: _inlined(item, definitions) for key, item in schema.items() if key != "discriminator"}


def _or_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that takes a reference to a variable, too."""
    choices = schema.get("anyOf", [schema])
    types = [choice.get("type") for choice in choices]
    if "string" in types and not any("enum" in choice for choice in choices):
        return schema
    default = {"default": schema["default"]} if "default" in schema else {}
    plain = [{key: item for key, item in choice.items() if key != "default"} for choice in choices]
    return {"anyOf": [*plain, REFERENCE_SCHEMA], **default}


def checked_profile(name: str) -> str:
    """Return the name of a preset, checked.

    Raises:
        PydanticCustomError: There is no preset of this name.
    """
    value = name if any(unfilled(name)) else filled(name)
    if not has_reference(value) and value not in PRESETS:
        unknown = shown(name)
        raise PydanticCustomError("end", "{text}", {"text": f": unknown preset {unknown}{hint(value, PRESETS)}"})
    return name


# Anthropic's newer models refuse `temperature` and `top_p` in one request, so a preset has only the former.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "creative": {"temperature": 1.0},
    "balanced": {"temperature": 0.7},
    "deterministic": {"temperature": 0.0, "seed": 1},
}

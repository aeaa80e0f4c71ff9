"""Reads a function's arguments from its JSON Schema, and resolves references and unions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fsm_agent.clients.local.functions.question import spaced
from fsm_agent.functions.arguments import target_of
from fsm_agent.functions.function import Function

_MAX_DEPTH = 6
_MAX_CHOICES = 12  # how many the model sees
_SENTENCE = re.compile(r"(?<=[.])\s")


class Field(NamedTuple):
    """One argument: its name, and its resolved schema."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool

    @property
    def kind(self) -> str:
        return str(self.schema.get("type", "string"))

    @property
    def items(self) -> Mapping[str, Any]:
        items = self.schema.get("items")
        return items if isinstance(items, Mapping) else {}

    @property
    def description(self) -> str:
        return str(self.schema.get("description", ""))

    @property
    def words(self) -> str:
        return spaced(self.name)

    @property
    def enum(self) -> list[Any]:
        """The values that the argument, or each item in it, may have; [] if there is no enum."""
        return list(self.schema.get("enum") or self.items.get("enum") or ())

    @property
    def hint(self) -> str:
        """A line that tells the model what to fill in."""
        kind = self.kind
        if self.schema.get("enum"):
            kind = f"one of {', '.join(map(str, self.enum[:_MAX_CHOICES]))}"
        elif kind == "array":
            kind = f"list of {self.items.get('type', 'string')}s"
        return f"- {self.name} ({kind}): {first_sentence(self.description)[:160]}"


def fields_of(function: Function) -> list[Field]:
    """Return a function's arguments, in the order of its schema."""
    schema = resolved(function.parameters, function.parameters)
    required = schema.get("required") or ()
    return [Field(name, of, name in required) for name, of in (schema.get("properties") or {}).items()]


def resolved(schema: Any, root: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return a schema without references and with one type.

    A union is replaced by its first alternative that is not null.
    """
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return {}
    merged = dict(schema)
    for part in _parts(schema, root):
        merged |= {key: value for key, value in resolved(part, root, depth + 1).items() if key not in schema}
    if "const" in merged:
        merged["enum"] = [merged["const"]]
    if isinstance(merged.get("enum"), list):
        merged["enum"] = [value for value in merged["enum"] if value is not None]
    kind = merged.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "string")
    merged["type"] = kind or ("object" if "properties" in merged else "string")
    if "items" in merged:
        merged["items"] = resolved(merged["items"], root, depth + 1)
    if isinstance(merged.get("properties"), Mapping):
        properties = merged["properties"].items()
        merged["properties"] = {str(name): resolved(of, root, depth + 1) for name, of in properties}
    return merged


def _parts(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Any]:
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#/"):
        yield target_of(root, reference)
    for union in ("anyOf", "oneOf"):
        for choice in schema.get(union) or ():
            if isinstance(choice, Mapping) and choice.get("type") != "null":
                yield choice
                break
    yield from schema.get("allOf") or ()


def first_sentence(text: str) -> str:
    """Return the first sentence of the first line."""
    return _SENTENCE.split(text.strip().split("\n")[0])[0]

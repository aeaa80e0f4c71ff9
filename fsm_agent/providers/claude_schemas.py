"""JSON Schemas for Claude, which supports a part of the language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

# https://platform.claude.com/docs/en/build-with-claude/structured-outputs, "JSON Schema limitations" (2026-11);
# unsupported constraints go into the description, as in Anthropic's own SDK.
_KEPT = frozenset({"type", "title", "description", "default", "required", "format", "minItems"})
_DESCRIBED = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("pattern", "format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)
_DROPPED = frozenset(
    {
        *("examples", "example", "discriminator", "deprecated", "readOnly", "writeOnly", "additionalProperties"),
        *("$schema", "$id", "$comment", "$anchor", "contentEncoding", "contentMediaType"),
    }
)
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_MAX_STRICT_FUNCTIONS = 20
_MAX_OPTIONAL = 24
_MAX_UNIONS = 16


class ClosedSchema(NamedTuple):
    """A schema that can be enforced, and its counts towards the limits of a request."""

    schema: dict[str, Any]
    optional: int  # properties that are not required
    unions: int  # values of several types


class SchemaLimits:
    """The remaining limits of all schemas of one request together."""

    def __init__(self) -> None:
        self._functions = _MAX_STRICT_FUNCTIONS
        self._optional = _MAX_OPTIONAL
        self._unions = _MAX_UNIONS

    def take(self, closed: ClosedSchema, *, of_function: bool) -> bool:
        """Count the schema and return True if it fits into the limits; otherwise return False."""
        left = self._functions - of_function, self._optional - closed.optional, self._unions - closed.unions
        if min(left) < 0:
            return False
        self._functions, self._optional, self._unions = left
        return True


class _NotClosed(Exception):
    """A closed schema cannot express this one; never leaves this module."""


def closed_schema(schema: Mapping[str, Any]) -> ClosedSchema | None:
    """Return the schema with closed objects, so that it can be enforced; None if that would change its meaning.

    Constraints that the service does not support are described in the description instead; annotations that
    it refuses are dropped.
    """
    try:
        return _Closing(schema).closed()
    except _NotClosed:
        return None


class _Closing:
    """Closes one schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._definitions: dict[str, Any] = {
            f"#/{key}/{name}": inner
            for key in ("$defs", "definitions")
            if isinstance(schema.get(key), Mapping)
            for name, inner in schema[key].items()
        }
        self._optional = 0
        self._unions = 0

    def closed(self) -> ClosedSchema:
        self._refuse_recursion()
        closed = self._close(self._schema)
        return ClosedSchema(closed, self._optional, self._unions)

    def _refuse_recursion(self) -> None:
        done: set[str] = set()
        for start in self._definitions:
            path = [(start, iter(_references(self._definitions[start])))]
            open_now = {start}
            while path and start not in done:
                name, references = path[-1]
                reference = next((r for r in references if r not in done), None)
                if reference is None:
                    done.add(name)
                    open_now.discard(name)
                    path.pop()
                elif reference in open_now or reference not in self._definitions:
                    raise _NotClosed
                else:
                    open_now.add(reference)
                    path.append((reference, iter(_references(self._definitions[reference]))))

    def _close(self, schema: Any) -> dict[str, Any]:
        if not isinstance(schema, Mapping):
            raise _NotClosed  # True: anything at all
        if len(schema.get("allOf", ())) == 1:
            (only,) = schema["allOf"]
            schema = {**only, **{key: value for key, value in schema.items() if key != "allOf"}}
        if "$ref" in schema:
            return self._close_reference(schema)
        closed: dict[str, Any] = {}
        notes: list[str] = []
        for key, value in schema.items():
            if key in _DESCRIBED and not _is_known(key, value):
                notes.append(f"{key}: {value}")
            elif key not in _DROPPED:
                closed["anyOf" if key == "oneOf" else key] = self._close_value(key, value)
        if notes:
            closed["description"] = f"{closed.get('description', '')} ({', '.join(notes)})".strip()
        self._check(closed, schema)
        return closed

    def _close_value(self, key: str, value: Any) -> Any:
        if key in ("properties", "$defs", "definitions"):
            return {name: self._close(inner) for name, inner in value.items()}
        if key in ("anyOf", "oneOf"):
            return [self._close(inner) for inner in value]
        if key == "items":
            return self._close(value)
        if key in _KEPT or (key in ("enum", "const") and _is_plain(value)):
            return value
        raise _NotClosed

    def _close_reference(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return a reference that stands alone; one with siblings is replaced by its target."""
        name = schema["$ref"]
        if name not in self._definitions:
            raise _NotClosed
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        if not rest:
            return {"$ref": name}
        if rest.keys() <= {"$defs", "definitions"}:
            return {"$ref": name, **{key: self._close_value(key, value) for key, value in rest.items()}}
        return self._close({**self._definitions[name], **rest})

    def _check(self, closed: dict[str, Any], schema: Mapping[str, Any]) -> None:
        """Refuse underspecified schemas, close objects, and count."""
        kinds = closed.get("type", ())
        if not closed.keys() & {"type", "enum", "const", "anyOf", "$ref"}:
            raise _NotClosed
        if "anyOf" in closed or (isinstance(kinds, list) and len(kinds) > 1):
            self._unions += 1
        if "array" in kinds and "items" not in closed:
            raise _NotClosed
        if "object" not in kinds and "properties" not in closed:
            return
        if "properties" not in closed or schema.get("additionalProperties", False) is not False:
            raise _NotClosed
        self._optional += len(closed["properties"].keys() - set(closed.get("required", ())))
        closed["additionalProperties"] = False


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if isinstance(name := schema.get("$ref"), str):
            yield name
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from _references(item)


def _is_known(key: str, value: Any) -> bool:
    return (key == "format" and value in _FORMATS) or (key == "minItems" and value in (0, 1))


def _is_plain(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(item is None or isinstance(item, str | int | float) for item in values)

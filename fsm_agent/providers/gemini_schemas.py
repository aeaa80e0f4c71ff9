"""JSON Schemas for Gemini, which supports a part of the language."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from fsm_agent._internal.lazy_import import pydantic_core
from fsm_agent.errors import UsageError

# What `responseJsonSchema` and `parametersJsonSchema` know: https://ai.google.dev/api/generate-content (2026-11).
_KEPT = frozenset({"type", "description", "required", "minItems", "maxItems", "minimum", "maximum"})
_NESTED = frozenset({"properties", "items", "prefixItems", "anyOf", "additionalProperties"})
_FORMATS = frozenset({"date-time", "date", "time"})
_LISTED = frozenset({"string", "integer", "number"})  # of which values can be enumerated
# `title` too: models take it for a function's name (https://github.com/googleapis/python-genai/issues/1732).
_DROPPED = frozenset(
    {
        *("title", "examples", "example", "discriminator", "deprecated", "readOnly", "writeOnly"),
        *("$schema", "$id", "$comment", "$anchor", "$defs", "definitions", "contentEncoding", "contentMediaType"),
    }
)
_ANNOTATIONS = _DROPPED | {"description", "default"}
_MAX_INLINED = 1_000  # nodes; beyond, and deeper, targets of references become definitions
_MAX_INLINED_DEPTH = 32
_MAX_NODES = 50_000
_MAX_DEPTH = 64

Schema = dict[str, Any]


def gemini_schema(schema: Mapping[str, Any]) -> Schema:
    """Return the schema of an object in the part of the language that Gemini supports.

    Unsupported constraints are described in the descriptions.  References are replaced by their targets, except
    for recursive ones, which are allowed only in properties that are not required.

    Raises:
        UsageError: The schema is too large or nested too deeply.
    """
    return _Translation(schema).schema()


class _Translation:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0
        self._names: dict[str, str] = {}  # of the definitions, by reference
        self._waiting: list[str] = []
        self._direct: dict[str, set[str]] = {}
        self._reached: dict[str, set[str]] = {}

    def schema(self) -> Schema:
        """Return the whole translation."""
        translated = self._node(self._resolve(self._root, frozenset()), 0)
        definitions: Schema = {}
        while self._waiting:
            pointer = self._waiting.pop()
            definitions[self._names[pointer]] = self._node(self._target(pointer), 0)
        for pointer, name in self._names.items():
            leads_back = [other for other in self._names if pointer in self._reach(other)]
            _relax(definitions[name], {_reference(self._names[other]) for other in leads_back})
        return {"type": "object", **translated, **({"$defs": definitions} if definitions else {})}

    def _node(self, node: Any, depth: int) -> Schema:
        if not isinstance(node, Mapping):
            return {}  # True: anything
        self._count(depth)
        node = _simplify_node(self._merge_all_of(node, frozenset()))
        if isinstance(pointer := node.get("$ref"), str):
            return self._follow_reference(pointer, node, depth)
        translated: Schema = {}
        notes: list[str] = []
        for key, value in node.items():
            if key in _NESTED:
                translated[key] = self._convert_nested(value, depth + 1, is_named=key == "properties")
            elif key in _KEPT or _is_known(key, value, node):
                translated[key] = value
            elif value is not None and not key.startswith("x-"):
                notes.append(f"{key}: {_print_value(value)}")
        if isinstance(required := translated.pop("required", None), list):
            properties = [name for name in translated.get("properties", ()) if name in required]
            translated |= {"required": properties} if properties else {}
        return _with_notes(translated, notes)

    def _convert_nested(self, value: Any, depth: int, *, is_named: bool) -> Any:
        if is_named:
            named = value if isinstance(value, Mapping) else {}
            return {name: self._node(inner, depth) for name, inner in named.items()}
        if isinstance(value, list):
            return [self._node(inner, depth) for inner in value]
        return value if isinstance(value, bool) else self._node(value, depth)

    def _follow_reference(self, pointer: str, node: Mapping[str, Any], depth: int) -> Schema:
        """Return the target of a reference, or a reference that Gemini accepts, which has no siblings."""
        beside = {key: value for key, value in node.items() if key != "$ref"}
        is_small = self._nodes < _MAX_INLINED and depth < _MAX_INLINED_DEPTH
        if is_small and pointer not in self._reach(pointer):
            return self._node({**self._target(pointer), **beside}, depth + 1)
        if pointer not in self._names:
            name = re.sub(r"\W", "_", pointer.rpartition("/")[2]).strip("_") or "root"
            while name in self._names.values():
                name += "_"
            self._names[pointer] = name
            self._waiting.append(pointer)
        reference = {"$ref": _reference(self._names[pointer])}
        if not beside:
            return reference
        others = beside.pop("anyOf", None)  # a node has one choice
        notes = [] if others is None else [f"anyOf: {_print_value(others)}"]
        return _with_notes({"anyOf": [reference], **self._node(beside, depth + 1)}, notes)

    def _merge_all_of(self, node: Mapping[str, Any], seen: frozenset[str]) -> Mapping[str, Any]:
        """Return the node with its `allOf` merged into it; entries that cannot be merged stay there."""
        entries = node.get("allOf")
        if not isinstance(entries, list):
            return node
        merged = {key: value for key, value in node.items() if key != "allOf"}
        for entry in entries:
            if isinstance(entry, Mapping):
                self._count(len(seen))
                within = seen | {str(entry.get("$ref"))}
                _merge(merged, self._merge_all_of(self._resolve(entry, seen), within))
        return merged

    def _resolve(self, node: Mapping[str, Any], seen: frozenset[str]) -> Mapping[str, Any]:
        """Return the node, or the target of its reference merged with the siblings of the reference."""
        while isinstance(pointer := node.get("$ref"), str):
            target = {} if pointer in seen else self._target(pointer)
            seen |= {pointer}
            node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
        return node

    def _target(self, pointer: str) -> Mapping[str, Any]:
        """Return the target of a reference into this schema; {} (anything) for any other."""
        if not pointer.startswith("#"):
            return {}
        target: Any = self._root
        for step in pointer[1:].split("/")[1:]:
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and step.isascii() and step.isdigit() and int(step[:6]) < len(target):
                target = target[int(step[:6])]
            else:
                target = target.get(step) if isinstance(target, Mapping) else None
        return target if isinstance(target, Mapping) else {}

    def _reach(self, pointer: str) -> set[str]:
        """Return all references that are reachable from the target of ``pointer``."""
        if pointer not in self._reached:
            reached, waiting = set[str](), [pointer]
            while waiting:
                reference = waiting.pop()
                if reference not in self._direct:
                    self._direct[reference] = set(_references(self._target(reference)))
                waiting += self._direct[reference] - reached
                reached |= self._direct[reference]
            self._reached[pointer] = reached
        return self._reached[pointer]

    def _count(self, depth: int) -> None:
        self._nodes += 1
        if depth > _MAX_DEPTH:
            raise UsageError(f"a JSON schema for Gemini: expected at most {_MAX_DEPTH} levels, got more; flatten it")
        if self._nodes > _MAX_NODES:
            raise UsageError(
                f"a JSON schema for Gemini: expected at most {_MAX_NODES} parts, got more; make it smaller"
            )


def _merge(merged: Schema, entry: Mapping[str, Any]) -> None:
    """Merge the constraints of another schema into a schema."""
    for key, value in entry.items():
        present = merged.get(key)
        if present is None:
            merged[key] = value
        elif key == "properties" and isinstance(present, Mapping) and isinstance(value, Mapping):
            merged[key] = {**value, **present}
        elif key in ("required", "allOf") and isinstance(present, list) and isinstance(value, list):
            merged[key] = [*present, *[item for item in value if item not in present]]
        elif key == "allOf":  # one of them is no list, and means nothing
            merged[key] = value if isinstance(value, list) else present
        elif present != value and key not in _ANNOTATIONS:
            _merge(merged, {"allOf": [{key: value}]})


def _simplify_node(node: Mapping[str, Any]) -> Schema:
    """Return the node without `const`, `oneOf`, lists of types, and keywords that differ in OpenAPI."""
    plain = {key: value for key, value in node.items() if key not in _DROPPED}
    if "anyOf" not in plain and "oneOf" in plain:
        plain["anyOf"] = plain.pop("oneOf")
    if isinstance(plain.get("items"), list):
        plain["prefixItems"] = plain.pop("items")
    if "const" in plain:
        plain["enum"] = [plain.pop("const")]
    kinds = plain.pop("type", None) or _infer_type(plain)
    kinds = [str(kind).lower() for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind]
    if kinds == ["integer"]:
        for key, bound, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
            if type(plain.get(key)) is int and bound not in plain:
                plain[bound] = plain.pop(key) + step
    values = plain.pop("enum", None)
    variants: list[Schema] = [{"type": kind} for kind in kinds]
    if isinstance(values, list) and values:
        variants = list(_variants(values, kinds))
    if plain.pop("nullable", False) is True and {"type": "null"} not in variants:
        variants = [*(variants or [{}]), {"type": "null"}]
    if len(variants) < 2:
        return {**plain, **(variants[0] if variants else {})}
    described = {"description": plain.pop("description")} if "description" in plain else {}
    return {
        "anyOf": [variant if variant == {"type": "null"} else {**plain, **variant} for variant in variants],
        **described,
    }


def _is_known(key: str, value: Any, node: Mapping[str, Any]) -> bool:
    return (key == "enum" and node.get("type") in _LISTED) or (key == "format" and str(value) in _FORMATS)


def _infer_type(plain: Mapping[str, Any]) -> str | None:
    """Return the type that the node implies without stating it; None if it implies none."""
    if "properties" in plain:
        return "object"
    return "array" if plain.keys() & {"items", "prefixItems"} else None


def _variants(values: list[Any], kinds: list[str]) -> Iterator[Schema]:
    """Yield schemas of the values by type: Gemini takes an `enum` only of strings or of numbers."""
    groups: dict[str, list[Any]] = {}
    for value in values:
        groups.setdefault(_kind(value, kinds), []).append(value)
    for kind, group in groups.items():
        is_complete = kind == "null" or (kind == "boolean" and {*group} == {True, False})
        yield {"type": kind} if is_complete else {"type": kind, "enum": group}


def _kind(value: Any, kinds: list[str]) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "number" if "number" in kinds else "integer"
        case float():
            return "number"
        case str():
            return "string"
    return "array" if isinstance(value, list) else "object"


def _relax(node: Any, leading_back: Container[str]) -> bool:
    """Make properties with a recursive reference optional; return True if there is one outside of properties."""
    if isinstance(node, list):
        return True in [_relax(item, leading_back) for item in node]  # each of them
    if not isinstance(node, dict):
        return False
    loose = [name for name, inner in node.get("properties", {}).items() if _relax(inner, leading_back)]
    required = node.pop("required", [])
    if left := [name for name in required if name not in loose]:
        node["required"] = left
    if notes := [name for name in required if name in loose]:
        node["description"] = _with_notes(node, [f"required: {', '.join(notes)}"])["description"]
    nested = [node[key] for key in node.keys() & (_NESTED - {"properties"})]
    return node.get("$ref") in leading_back or _relax(nested, leading_back)


def _references(node: Any) -> Iterator[str]:
    """Yield all references in a schema."""
    waiting = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            if isinstance(item.get("$ref"), str):
                yield item["$ref"]
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _reference(name: str) -> str:
    return f"#/$defs/{name}"


def _with_notes(schema: Schema, notes: list[str]) -> Schema:
    """Return the schema with these constraints in its description."""
    return (
        {**schema, "description": f"{schema.get('description', '')} ({', '.join(notes)})".strip()} if notes else schema
    )


def _print_value(value: Any) -> str:
    return value if isinstance(value, str) else pydantic_core.to_json(value).decode()

"""How is a JSON Schema told to Gemini, which knows only a part of the language?"""

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
_MAX_INLINED = 1_000  # nodes; beyond, and deeper, what is referred to is told once and not in each place
_MAX_INLINED_DEPTH = 32
_MAX_NODES = 50_000
_MAX_DEPTH = 64

Schema = dict[str, Any]


def gemini_schema(schema: Mapping[str, Any]) -> Schema:
    """The schema of an object in the part of the language that Gemini knows.

    Constraints that it does not know are told in the descriptions.  References are replaced by what they
    refer to, but for recursive ones, which may only stand in properties that are not required.

    Raises:
        UsageError: The schema is too large or nested too deeply.
    """
    return _Translation(schema).schema()


class _Translation:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0
        self._names: dict[str, str] = {}  # of the definitions, by what refers to them
        self._waiting: list[str] = []
        self._direct: dict[str, set[str]] = {}
        self._reached: dict[str, set[str]] = {}

    def schema(self) -> Schema:
        """The whole translation."""
        said = self._node(self._resolved(self._root, frozenset()), 0)
        definitions: Schema = {}
        while self._waiting:
            pointer = self._waiting.pop()
            definitions[self._names[pointer]] = self._node(self._target(pointer), 0)
        for pointer, name in self._names.items():
            leads_back = [other for other in self._names if pointer in self._reach(other)]
            _relax(definitions[name], {_reference(self._names[other]) for other in leads_back})
        return {"type": "object", **said, **({"$defs": definitions} if definitions else {})}

    def _node(self, node: Any, depth: int) -> Schema:
        if not isinstance(node, Mapping):
            return {}  # True: anything
        self._count(depth)
        node = _plain(self._merged(node, frozenset()))
        if isinstance(pointer := node.get("$ref"), str):
            return self._referred(pointer, node, depth)
        said: Schema = {}
        told: list[str] = []
        for key, value in node.items():
            if key in _NESTED:
                said[key] = self._nested(value, depth + 1, is_named=key == "properties")
            elif key in _KEPT or _is_known(key, value, node):
                said[key] = value
            elif value is not None and not key.startswith("x-"):
                told.append(f"{key}: {_shown(value)}")
        if isinstance(required := said.pop("required", None), list):
            known = [name for name in said.get("properties", ()) if name in required]
            said |= {"required": known} if known else {}
        return _telling(said, told)

    def _nested(self, value: Any, depth: int, *, is_named: bool) -> Any:
        if is_named:
            named = value if isinstance(value, Mapping) else {}
            return {name: self._node(inner, depth) for name, inner in named.items()}
        if isinstance(value, list):
            return [self._node(inner, depth) for inner in value]
        return value if isinstance(value, bool) else self._node(value, depth)

    def _referred(self, pointer: str, node: Mapping[str, Any], depth: int) -> Schema:
        """What a reference refers to, or a reference that Gemini takes: nothing may stand beside it."""
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
        return {"anyOf": [reference], **self._node(beside, depth + 1)} if beside else reference

    def _merged(self, node: Mapping[str, Any], seen: frozenset[str]) -> Mapping[str, Any]:
        """The node and, in it, what its `allOf` says; what cannot be in one node with it stays there."""
        entries = node.get("allOf")
        if not isinstance(entries, list):
            return node
        merged = {key: value for key, value in node.items() if key != "allOf"}
        for entry in entries:
            if isinstance(entry, Mapping):
                self._count(len(seen))
                within = seen | {str(entry.get("$ref"))}
                _merge(merged, self._merged(self._resolved(entry, seen), within))
        return merged

    def _resolved(self, node: Mapping[str, Any], seen: frozenset[str]) -> Mapping[str, Any]:
        """The node, or what it refers to, together with what stands beside the reference."""
        while isinstance(pointer := node.get("$ref"), str):
            target = {} if pointer in seen else self._target(pointer)
            seen |= {pointer}
            node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
        return node

    def _target(self, pointer: str) -> Mapping[str, Any]:
        """What a reference into this schema refers to; any other refers to anything at all."""
        if not pointer.startswith("#"):
            return {}
        found: Any = self._root
        for step in pointer[1:].split("/")[1:]:
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and step.isascii() and step.isdigit() and int(step[:6]) < len(found):
                found = found[int(step[:6])]
            else:
                found = found.get(step) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    def _reach(self, pointer: str) -> set[str]:
        """All that is referred to from there, at once or through others."""
        if pointer not in self._reached:
            reached, waiting = set[str](), [pointer]
            while waiting:
                place = waiting.pop()
                if place not in self._direct:
                    self._direct[place] = set(_references(self._target(place)))
                waiting += self._direct[place] - reached
                reached |= self._direct[place]
            self._reached[pointer] = reached
        return self._reached[pointer]

    def _count(self, depth: int) -> None:
        self._nodes += 1
        if depth > _MAX_DEPTH:
            raise UsageError(f"a JSON schema is nested more than {_MAX_DEPTH} levels deep: Gemini needs a flatter one")
        if self._nodes > _MAX_NODES:
            raise UsageError(f"a JSON schema has more than {_MAX_NODES} parts: Gemini needs a smaller one")


def _merge(merged: Schema, entry: Mapping[str, Any]) -> None:
    """Add to a schema what another one demands as well."""
    for key, value in entry.items():
        known = merged.get(key)
        if known is None:
            merged[key] = value
        elif key == "properties" and isinstance(known, Mapping) and isinstance(value, Mapping):
            merged[key] = {**value, **known}
        elif key in ("required", "allOf") and isinstance(known, list) and isinstance(value, list):
            merged[key] = [*known, *[item for item in value if item not in known]]
        elif known != value and key not in _ANNOTATIONS:
            _merge(merged, {"allOf": [{key: value}]})


def _plain(node: Mapping[str, Any]) -> Schema:
    """The same without `const`, `oneOf`, lists of types, and what OpenAPI says differently."""
    plain = {key: value for key, value in node.items() if key not in _DROPPED}
    if "anyOf" not in plain and "oneOf" in plain:
        plain["anyOf"] = plain.pop("oneOf")
    if isinstance(plain.get("items"), list):
        plain["prefixItems"] = plain.pop("items")
    if "const" in plain:
        plain["enum"] = [plain.pop("const")]
    kinds = plain.pop("type", None) or _implied(plain)
    kinds = [str(kind).lower() for kind in (kinds if isinstance(kinds, list) else [kinds] if kinds else [])]
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


def _implied(plain: Mapping[str, Any]) -> str | None:
    """The type that is not said but meant."""
    if "properties" in plain:
        return "object"
    return "array" if plain.keys() & {"items", "prefixItems"} else None


def _variants(values: list[Any], kinds: list[str]) -> Iterator[Schema]:
    """The values by their types: Gemini takes an `enum` only of strings or of numbers."""
    groups: dict[str, list[Any]] = {}
    for value in values:
        groups.setdefault(_kind(value, kinds), []).append(value)
    for kind, group in groups.items():
        says_all = kind == "null" or (kind == "boolean" and {*group} == {True, False})
        yield {"type": kind} if says_all else {"type": kind, "enum": group}


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
    """Require no property in which a reference leads back; True when one stands here outside of properties."""
    if isinstance(node, list):
        return True in [_relax(item, leading_back) for item in node]  # each of them
    if not isinstance(node, dict):
        return False
    loose = [name for name, inner in node.get("properties", {}).items() if _relax(inner, leading_back)]
    required = node.pop("required", [])
    if left := [name for name in required if name not in loose]:
        node["required"] = left
    if told := [name for name in required if name in loose]:
        node["description"] = _telling(node, [f"required: {', '.join(told)}"])["description"]
    nested = [node[key] for key in node.keys() & (_NESTED - {"properties"})]
    return node.get("$ref") in leading_back or _relax(nested, leading_back)


def _references(node: Any) -> Iterator[str]:
    """All references in a schema."""
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


def _telling(said: Schema, told: list[str]) -> Schema:
    """The schema with these constraints in its description."""
    return {**said, "description": f"{said.get('description', '')} ({', '.join(told)})".strip()} if told else said


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else pydantic_core.to_json(value).decode()

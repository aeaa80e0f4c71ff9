"""JSON Schemas for models: what each provider accepts, how schemas are made to fit, and how prompts describe them.

A constraint that a provider does not accept is moved into the description, as the providers' SDKs do, whereas an
annotation that the provider refuses is dropped.  OpenAI and Anthropic enforce a schema only if they can express all of
it, whereas Google takes any schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import pydantic_core

from fsm_agent.errors import PromptError, UsageError
from fsm_agent.functions.arguments import target_of
from fsm_agent.prompts.output import Output
from fsm_agent.prompts.type_text import prompt_schema

Schema = dict[str, Any]
Test = Callable[[Any, Mapping[str, Any]], bool]  # arguments: the value of a key, and the schema that contains it

_ANNOTATIONS = frozenset(
    {
        *("examples", "example", "discriminator", "deprecated", "readOnly", "writeOnly"),
        *("$schema", "$id", "$comment", "$anchor", "contentEncoding", "contentMediaType"),
    }
)
_CONSTRAINTS = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("pattern", "format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
_OF_SCHEMAS = frozenset({"items", "prefixItems", "anyOf", "oneOf", "additionalProperties"})  # keys that hold schemas
_OF_NAMES = frozenset({"properties", "$defs", "definitions"})  # keys that hold schemas by name
_COMBINE = frozenset({"anyOf", "oneOf", "$ref", "if", "not", "dependentSchemas", "unevaluatedProperties"})
_LOOKAROUND = re.compile(r"\(\?<?[=!]")
_LISTED = ("string", "integer", "number")  # types for which Gemini takes an enum


def _one_of(*values: Any) -> Test:
    return lambda value, schema: value in values


def _any(*keys: str) -> dict[str, Test]:
    return dict.fromkeys(keys, lambda value, schema: True)


def _is_plain(value: Any, schema: Mapping[str, Any]) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(item is None or isinstance(item, str | int | float) for item in values)


class Rules(NamedTuple):
    """Says which part of JSON Schema a provider accepts."""

    kept: Mapping[str, Test]  # keys that it takes unchanged, if the value passes the test
    nested: Mapping[str, str]  # keys that hold schemas, and the provider's names for them
    dropped: frozenset[str]


_NESTED = {key: key for key in ("properties", "$defs", "definitions", "items", "anyOf")} | {"oneOf": "anyOf"}

# Strict mode: https://platform.openai.com/docs/guides/structured-outputs, "Supported schemas" (2026-11).  Other
# services adopted strict mode with the same or more lenient rules.
STRICT = Rules(
    kept={
        **_any("type", "enum", "const", "title", "description", "required", "additionalProperties", "$ref"),
        **_any("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"),
        "format": _one_of(*_FORMATS),
        "pattern": lambda value, schema: not _LOOKAROUND.search(value),
    },
    nested=_NESTED,
    dropped=_ANNOTATIONS | {"default"},
)
# https://platform.claude.com/docs/en/build-with-claude/structured-outputs, "JSON Schema limitations" (2026-11)
CLAUDE = Rules(
    kept={
        **_any("type", "title", "description", "default", "required"),
        "enum": _is_plain,
        "const": _is_plain,
        "format": _one_of(*_FORMATS, "uri"),
        "minItems": _one_of(0, 1),
    },
    nested=_NESTED,
    dropped=_ANNOTATIONS | {"additionalProperties"},
)
# `responseJsonSchema` and `parametersJsonSchema`: https://ai.google.dev/api/generate-content (2026-11).  `title` is
# left out, because models mistake it for a function's name (https://github.com/googleapis/python-genai/issues/1732).
GEMINI = Rules(
    kept={
        **_any("type", "description", "required", "minItems", "maxItems", "minimum", "maximum"),
        "enum": lambda value, schema: schema.get("type") in _LISTED,
        "format": _one_of("date-time", "date", "time"),
    },
    nested={key: key for key in ("properties", "items", "prefixItems", "anyOf", "additionalProperties")},
    dropped=_ANNOTATIONS | {"title", "$defs", "definitions"},
)
# For Gemini: beyond these sizes, the targets of references become definitions.
_MAX_INLINED = 1_000  # nodes
_MAX_INLINED_DEPTH = 32
_MAX_NODES = 50_000
_MAX_DEPTH = 64
# For Claude: limits on all the schemas in one request together.
_MAX_STRICT_FUNCTIONS = 20
_MAX_OPTIONAL = 24
_MAX_UNIONS = 16


class ClosedSchema(NamedTuple):
    """A schema that Claude can enforce, and how much of a request's limits it uses up."""

    schema: Schema
    optional: int  # properties that are not required
    unions: int  # values of several types


class SchemaLimits:
    """The remaining limits on schemas in one request to Claude."""

    def __init__(self) -> None:
        self._functions = _MAX_STRICT_FUNCTIONS
        self._optional = _MAX_OPTIONAL
        self._unions = _MAX_UNIONS

    def take(self, closed: ClosedSchema, *, of_function: bool) -> bool:
        """If the schema fits within the limits, count it and return True; otherwise return False."""
        left = self._functions - of_function, self._optional - closed.optional, self._unions - closed.unions
        if min(left) < 0:
            return False
        self._functions, self._optional, self._unions = left
        return True


def strict_schema(schema: Mapping[str, Any]) -> Schema | None:
    """Return the schema in strict mode, or None if strict mode cannot express it.

    Strict mode needs objects that list their properties, require all of them and allow no others.
    """
    if schema.get("type") != "object" or "anyOf" in schema or "oneOf" in schema:
        return None
    try:
        return _Strict(schema).reduce(schema)
    except _NotTaken:
        return None


def closed_schema(schema: Mapping[str, Any]) -> ClosedSchema | None:
    """Return the schema in the form that Claude enforces, or None if this form would change its meaning."""
    try:
        return _Claude(schema).closed()
    except _NotTaken:
        return None


def gemini_schema(schema: Mapping[str, Any]) -> Schema:
    """Return an object's schema, using only the part of JSON Schema that Gemini accepts.

    References are replaced by their targets, except recursive ones.  Properties with a recursive reference become
    optional.

    Raises:
        UsageError: If the schema is too large or nested too deeply.
    """
    return _Gemini(schema).translated()


def sendable_schema(schema: Mapping[str, Any], *, takes_strict: bool) -> tuple[Schema, bool]:
    """Return `(schema, strict)`: the schema to send, and whether it is in strict mode."""
    strict = strict_schema(schema) if takes_strict else None
    return (dict(schema), False) if strict is None else (strict, True)


def sendable_output(output: Output, *, takes_strict: bool) -> tuple[Schema, bool]:
    """Return `(schema, strict)`: the schema for an output, and whether it is in strict mode.

    The schema's objects are closed in either case.
    """
    schema, is_strict = sendable_schema(output.schema or {}, takes_strict=takes_strict)
    return (schema if is_strict else closed_objects(schema)), is_strict


def closed_objects(schema: Mapping[str, Any]) -> Schema:
    """Return the schema with ``additionalProperties: false`` in each object that does not say otherwise.

    A schema with `allOf` is unchanged, because each part would refuse the others' properties.
    """
    is_combined = b'"allOf"' in pydantic_core.to_json(schema)
    closed: Schema = dict(schema) if is_combined else _closed(schema)
    return closed


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    has_properties = isinstance(schema.get("properties"), Mapping)
    if has_properties and schema.keys() & _COMBINE:
        return dict(schema)
    closed: Schema = {}
    for key, value in schema.items():
        if key in _OF_NAMES and isinstance(value, Mapping):
            closed[key] = {name: _closed(inner) for name, inner in value.items()}
        else:
            closed[key] = _closed(value) if key in _OF_SCHEMAS else value
    if has_properties and "patternProperties" not in schema:
        closed.setdefault("additionalProperties", False)
    return closed


def output_in_words(output: Output, with_functions: bool = False) -> str:
    """Return instructions for the system prompt that ask for the output."""
    if output.schema is None:
        words = f"IMPORTANT: You must respond with valid JSON matching the {output.name} type structure."
        words = f"{words} Do not include any text outside the JSON object."
    else:
        words = f"IMPORTANT: Respond with valid JSON matching this schema:\n\n{_print_schema(output)}"
    return f"{words}\n\nCall functions first, as long as you need them." if with_functions else words


def _print_schema(output: Output) -> str:
    try:
        return prompt_schema(output.type)
    except PromptError:  # too long: `prompt_schema` repeats shared parts in full
        return pydantic_core.to_json(output.schema).decode()


class _NotTaken(Exception):
    """Raised when the provider cannot enforce the schema.  This exception never leaves this module."""


class _Reducer:
    """Reduces a schema to what a provider accepts.  Subclasses handle references and objects."""

    rules: ClassVar[Rules]

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._direct: dict[str, set[str]] = {}
        self._reached: dict[str, set[str]] = {}

    def reduce(self, schema: Any, depth: int = 0) -> Schema:
        node, rules = self._prepared(schema, depth), self.rules
        if (followed := self._followed(node, depth)) is not None:
            return followed
        reduced: Schema = {}
        notes: list[str] = []
        for key, value in node.items():
            if key in rules.nested:
                reduced[rules.nested[key]] = self._nested(key, value, depth + 1)
            elif key in rules.kept and rules.kept[key](value, node):
                reduced[key] = value
            elif (note := self._left_out(key, value)) is not None:
                notes.append(note)
        return self._finished(reduced, notes, node)

    def _prepared(self, schema: Any, depth: int) -> Mapping[str, Any]:
        """Return the schema with a single `allOf` merged into it."""
        if not isinstance(schema, Mapping):
            raise _NotTaken  # True: any value
        if len(schema.get("allOf", ())) != 1:
            return schema
        (only,) = schema["allOf"]
        return {**only, **{key: value for key, value in schema.items() if key != "allOf"}}

    def _followed(self, node: Mapping[str, Any], depth: int) -> Schema | None:
        """Return what replaces a schema with a reference, or None to process it like any other schema."""
        return None

    def _nested(self, key: str, value: Any, depth: int) -> Any:
        if key in _OF_NAMES:
            return {name: self.reduce(inner, depth) for name, inner in value.items()}
        return [self.reduce(inner, depth) for inner in value] if "Of" in key else self.reduce(value, depth)

    def _left_out(self, key: str, value: Any) -> str | None:
        """Return a note about the key to add to the description, or None to drop the key silently."""
        if key in _CONSTRAINTS:
            return f"{key}: {value}"
        if key not in self.rules.dropped:
            raise _NotTaken
        return None

    def _finished(self, reduced: Schema, notes: list[str], node: Mapping[str, Any]) -> Schema:
        """Return the schema with notes in its description and with closed objects."""
        reduced, kinds = _with_notes(reduced, notes), reduced.get("type", ())
        if not reduced.keys() & {"type", "enum", "const", "anyOf", "$ref"}:
            raise _NotTaken
        if "array" in kinds and "items" not in reduced:
            raise _NotTaken
        if "object" in kinds or "properties" in reduced:
            if "properties" not in reduced or node.get("additionalProperties", False) is not False:
                raise _NotTaken
            self._check_required(reduced, reduced["properties"].keys() - set(reduced.get("required", ())))
            reduced["additionalProperties"] = False
        return reduced

    def _check_required(self, reduced: Schema, optional: Collection[str]) -> None:
        """Check the properties that an object does not require.  By default, any may be left out."""

    def _target(self, pointer: str) -> Mapping[str, Any]:
        """Return the target of a reference into this schema, or {} for any other reference."""
        target = target_of(self._root, pointer)
        return target if isinstance(target, Mapping) else {}

    def _reach(self, pointer: str) -> set[str]:
        """Return all references that can be reached from ``pointer``."""
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


class _Strict(_Reducer):
    rules = STRICT

    def _check_required(self, reduced: Schema, optional: Collection[str]) -> None:
        if optional or len(set(reduced.get("required", ()))) > len(reduced["properties"]):
            raise _NotTaken
        reduced["required"] = list(reduced["properties"])

    def _finished(self, reduced: Schema, notes: list[str], node: Mapping[str, Any]) -> Schema:
        reduced = super()._finished(reduced, notes, node)
        if "$ref" in reduced and len(reduced) > 1:  # refused next to other keys, but accepted inside an `anyOf`
            reduced["anyOf"] = [{"$ref": reduced.pop("$ref")}]
        return reduced


class _Claude(_Reducer):
    rules = CLAUDE

    def __init__(self, root: Mapping[str, Any]) -> None:
        super().__init__(root)
        named = [(key, root[key]) for key in ("$defs", "definitions") if isinstance(root.get(key), Mapping)]
        self._definitions = {f"#/{key}/{name}": inner for key, names in named for name, inner in names.items()}
        self._optional = 0
        self._unions = 0

    def closed(self) -> ClosedSchema:
        for pointer in self._definitions:  # Claude refuses recursion
            reach = self._reach(pointer)
            if pointer in reach or not reach <= self._definitions.keys():
                raise _NotTaken
        return ClosedSchema(self.reduce(self._root), self._optional, self._unions)

    def _followed(self, node: Mapping[str, Any], depth: int) -> Schema | None:
        """Return a reference that stands alone unchanged.  A reference with siblings is replaced by its target."""
        if "$ref" not in node:
            return None
        if (name := node["$ref"]) not in self._definitions:
            raise _NotTaken
        rest = {key: value for key, value in node.items() if key != "$ref"}
        if rest.keys() <= {"$defs", "definitions"}:
            return {"$ref": name, **{key: self._nested(key, value, depth) for key, value in rest.items()}}
        return self.reduce({**self._definitions[name], **rest})

    def _check_required(self, reduced: Schema, optional: Collection[str]) -> None:
        self._optional += len(optional)

    def _finished(self, reduced: Schema, notes: list[str], node: Mapping[str, Any]) -> Schema:
        kinds = reduced.get("type", ())
        self._unions += "anyOf" in reduced or (isinstance(kinds, list) and len(kinds) > 1)
        return super()._finished(reduced, notes, node)


class _Gemini(_Reducer):
    rules = GEMINI

    def __init__(self, root: Mapping[str, Any]) -> None:
        super().__init__(root)
        self._nodes = 0
        self._names: dict[str, str] = {}  # names of the definitions, by reference
        self._waiting: list[str] = []

    def translated(self) -> Schema:
        translated = self.reduce(self._resolve(self._root, frozenset()))
        definitions: Schema = {}
        while self._waiting:
            pointer = self._waiting.pop()
            definitions[self._names[pointer]] = self.reduce(self._target(pointer))
        for pointer, name in self._names.items():
            leads_back = [other for other in self._names if pointer in self._reach(other)]
            _relax(definitions[name], {_reference(self._names[other]) for other in leads_back})
        return {"type": "object", **translated, **({"$defs": definitions} if definitions else {})}

    def _prepared(self, schema: Any, depth: int) -> Mapping[str, Any]:
        if not isinstance(schema, Mapping):
            return {}  # True: any value
        self._count(depth)
        return _simplify_node(self._merge_all_of(schema, frozenset()))

    def _nested(self, key: str, value: Any, depth: int) -> Any:
        if key == "properties":
            return super()._nested(key, value if isinstance(value, Mapping) else {}, depth)
        if isinstance(value, list):
            return [self.reduce(inner, depth) for inner in value]
        return value if isinstance(value, bool) else self.reduce(value, depth)

    def _left_out(self, key: str, value: Any) -> str | None:
        return None if value is None or key.startswith("x-") else f"{key}: {_print_value(value)}"

    def _finished(self, reduced: Schema, notes: list[str], node: Mapping[str, Any]) -> Schema:
        if isinstance(required := reduced.pop("required", None), list):
            properties = [name for name in reduced.get("properties", ()) if name in required]
            reduced |= {"required": properties} if properties else {}
        return _with_notes(reduced, notes)

    def _followed(self, node: Mapping[str, Any], depth: int) -> Schema | None:
        """Return a reference's target, or the reference in the form that Gemini accepts, without siblings."""
        if not isinstance(pointer := node.get("$ref"), str):
            return None
        beside = {key: value for key, value in node.items() if key != "$ref"}
        is_small = self._nodes < _MAX_INLINED and depth < _MAX_INLINED_DEPTH
        if is_small and pointer not in self._reach(pointer):
            return self.reduce({**self._target(pointer), **beside}, depth + 1)
        if pointer not in self._names:
            name = re.sub(r"\W", "_", pointer.rpartition("/")[2]).strip("_") or "root"
            while name in self._names.values():
                name += "_"
            self._names[pointer] = name
            self._waiting.append(pointer)
        reference = {"$ref": _reference(self._names[pointer])}
        if not beside:
            return reference
        others = beside.pop("anyOf", None)  # a node can have only one `anyOf`
        notes = [] if others is None else [f"anyOf: {_print_value(others)}"]
        return _with_notes({"anyOf": [reference], **self.reduce(beside, depth + 1)}, notes)

    def _merge_all_of(self, node: Mapping[str, Any], seen: frozenset[str]) -> Mapping[str, Any]:
        """Return the node with its `allOf` merged into it, except for entries that cannot be merged."""
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
        while isinstance(pointer := node.get("$ref"), str):
            target = {} if pointer in seen else self._target(pointer)
            seen |= {pointer}
            node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
        return node

    def _count(self, depth: int) -> None:
        self._nodes += 1
        if depth > _MAX_DEPTH:
            raise UsageError(f"a JSON schema for Gemini: expected at most {_MAX_DEPTH} levels, got more; flatten it")
        if self._nodes > _MAX_NODES:
            raise UsageError(
                f"a JSON schema for Gemini: expected at most {_MAX_NODES} parts, got more; make it smaller"
            )


def _merge(merged: Schema, entry: Mapping[str, Any]) -> None:
    for key, value in entry.items():
        present = merged.get(key)
        if present is None:
            merged[key] = value
        elif key == "properties" and isinstance(present, Mapping) and isinstance(value, Mapping):
            merged[key] = {**value, **present}
        elif key in ("required", "allOf") and isinstance(present, list) and isinstance(value, list):
            merged[key] = [*present, *[item for item in value if item not in present]]
        elif key == "allOf":  # a value that is not a list means nothing
            merged[key] = value if isinstance(value, list) else present
        elif present != value and key not in GEMINI.dropped | {"description", "default"}:
            _merge(merged, {"allOf": [{key: value}]})


def _simplify_node(node: Mapping[str, Any]) -> Schema:
    """Return the node without `const`, `oneOf`, lists of types, and keywords that differ in OpenAPI."""
    plain = {key: value for key, value in node.items() if key not in GEMINI.dropped}
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


def _infer_type(plain: Mapping[str, Any]) -> str | None:
    """Return the type that the node implies without stating it, or None if it implies none."""
    if "properties" in plain:
        return "object"
    return "array" if plain.keys() & {"items", "prefixItems"} else None


def _variants(values: list[Any], kinds: list[str]) -> Iterator[Schema]:
    """Yield one schema for each type among the values, because Gemini accepts an `enum` only for strings or numbers."""
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
    """Make properties with a recursive reference optional.  Return whether one also occurs elsewhere."""
    if isinstance(node, list):
        return True in [_relax(item, leading_back) for item in node]  # a list, because each item must be relaxed
    if not isinstance(node, dict):
        return False
    loose = [name for name, inner in node.get("properties", {}).items() if _relax(inner, leading_back)]
    required = node.pop("required", [])
    if left := [name for name in required if name not in loose]:
        node["required"] = left
    if notes := [name for name in required if name in loose]:
        node["description"] = _with_notes(node, [f"required: {', '.join(notes)}"])["description"]
    nested = [node[key] for key in node.keys() & (GEMINI.nested.keys() - {"properties"})]
    return node.get("$ref") in leading_back or _relax(nested, leading_back)


def _references(node: Any) -> Iterator[str]:
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
    return (
        {**schema, "description": f"{schema.get('description', '')} ({', '.join(notes)})".strip()} if notes else schema
    )


def _print_value(value: Any) -> str:
    return value if isinstance(value, str) else pydantic_core.to_json(value).decode()

"""Parses and validates the arguments to a function, and explains to the model what is wrong with them.

`fsm_agent.call.rounds` decides what happens to a call whose arguments are wrong.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import cache, partial
from itertools import islice
from reprlib import Repr
from typing import Any, Protocol, TypeAlias
from urllib.parse import unquote

from pydantic_core import SchemaError, SchemaValidator, ValidationError, from_json, to_json

from fsm_agent.errors import ParseError

Core: TypeAlias = dict[str, Any]  # a core schema of pydantic

# What validators raise, including user-defined ones for odd arguments.  A ValidationError is a ValueError.
REFUSALS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# pydantic's errors where only a list or an object is valid
_LISTS = ("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type")
_OBJECTS = ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type", "named_tuple_type")
CONTAINERS = _LISTS + _OBJECTS
_OF_TYPE = ("_type", "enum", "literal_error")  # the ends of pydantic's errors for a value of another type
_MAX_ERRORS = 20  # of one value
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60
_MAX_DEPTH = 20  # levels of a schema that are read
_MAX_NODES = 5_000  # nodes of a schema that are read, including names and values in its lists
_MAX_OPEN = 2  # how often a reference is followed inside itself
_MAX_REF_CHARS = 1_000
_MAX_DIGITS = 6  # of an index in a reference
_MAX_PATTERN_COST = 200  # see `_cost`
_MAX_PATTERNS_COST = 600  # of a schema
_ANY: Core = {"type": "any"}
_TEXT_CORE: Core = {"type": "str"}
_INTEGER: Core = {"type": "int"}
_REAL: Core = {"type": "float", "allow_inf_nan": False}
_NUMBER = {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt"}
_WHOLE = {"ge": math.ceil, "gt": math.floor, "le": math.floor, "lt": math.ceil}
_LENGTHS = {"minLength": "min_length", "maxLength": "max_length"}
_TEXT = {**_LENGTHS, "pattern": "pattern"}
_LIST = {"minItems": "min_length", "maxItems": "max_length"}
_MAX_CURRENT_DEPTH = 128  # levels, of lists too, in which other drafts are looked for
_VALUES = ("const", "default", "example")  # keys for which null is a value
_DATA = (*_VALUES, "enum", "examples")  # keys that hold no schema
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_MAX_TYPES = 7  # JSON Schema has no more
_UNICODE = re.compile(r"\\[wWdDsSpPbB]")
_REPEAT = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
_FLOAT_DIGITS = 15  # that a float always keeps
_MAX_INT_CHARS = 640  # the lowest limit on reading whole numbers that Python can be set to


def refused(error: Exception) -> ParseError:
    """Return a validator's error in words that the model understands."""
    if isinstance(error, ValidationError):
        return ParseError(described_errors(error))
    kind = "" if isinstance(error, ParseError) else f"{type(error).__name__}: "
    return ParseError(f"input: {kind}{error}"[:1000])


def described_errors(error: ValidationError) -> str:
    """Describe a validation error with one line per field: where it is, what is wrong, and what was given."""
    items = error.errors(include_url=False, include_context=False)
    lines = []
    for item in items[:_MAX_ERRORS]:
        path = ".".join(str(step)[:100] for step in item["loc"][:20] if step != "") or "input"
        lines.append(f"{path}: {item['msg'][:1000]} (given: {_shorten_value(item['input'])})")
    if len(items) > _MAX_ERRORS:
        lines.append(f"… and {len(items) - _MAX_ERRORS} more")
    return "\n".join(lines)


def _shorten_value(value: Any) -> str:
    try:
        return _SHORT.repr(value)[:200]
    except ValueError:  # a number with more digits than Python converts
        return f"a huge {type(value).__name__}"


class Validator(Protocol):
    """Parses the JSON arguments to a function.  If the function has a signature, this is pydantic's validator."""

    def validate_json(self, arguments: str | bytes, /) -> Any:
        """Return the arguments in a JSON document."""


def validate_arguments(validator: Validator, arguments: str, schema: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return `(json, values)`: the arguments as JSON in the form that the validator takes, and as validated values.

    Some models write a list or an object inside the arguments as a string of JSON, and null for what they leave out.
    Both are accepted, but only where they would otherwise be invalid.
    """
    try:
        return arguments, validator.validate_json(arguments)
    except ValueError as error:
        if (meant := _meant(arguments, error, schema)) is None:
            raise
    return validate_arguments(validator, meant, schema)  # there may be texts inside texts


def _meant(arguments: str, error: ValueError, schema: Mapping[str, Any]) -> str | None:
    """Return the arguments after removing the nulls and parsing the JSON strings that a validation error names.

    Null is left out only for a property in the schema: a null among the values of a ``dict[str, int]`` stays, and is
    invalid.  Return None if nothing changes.
    """
    if not isinstance(error, ValidationError):
        return None
    is_changed = False
    is_property = cache(partial(_is_property, schema))  # each member of a union may refuse the same null
    try:
        document = from_json(arguments)
        for item in error.errors(include_url=False, include_context=False):
            kind, given = item["type"], item["input"]
            holder, path = place_of(document, item["loc"])
            if holder is None or holder[path[-1]] != given:
                continue
            if kind in CONTAINERS and is_json_text(given):
                holder[path[-1]] = from_json(given)
                is_changed = True
            elif given is None and kind.endswith(_OF_TYPE) and is_property(path):
                del holder[path[-1]]
                is_changed = True
    except ValueError:  # not JSON
        return None
    return to_json(document).decode() if is_changed else None


def is_json_text(value: Any) -> bool:
    """Return whether a value is a string that looks like a list or an object in JSON."""
    return isinstance(value, str) and value.lstrip()[:1] in ("[", "{")


def place_of(document: Any, path: Iterable[str | int]) -> tuple[Any, tuple[str | int, ...]]:
    """Return the object or list that holds a value, and the value's path, without the steps that name union members.

    If the path leads nowhere, the first is None.
    """
    holder: Any = None
    steps: tuple[str | int, ...] = ()
    for step in path:
        if has(document, step):
            holder, document, steps = document, document[step], (*steps, step)
    return holder, steps


def has(data: Any, step: Any) -> bool:
    """Return whether JSON data has this field or item."""
    if isinstance(data, dict):
        return step in data
    return isinstance(data, list) and isinstance(step, int) and 0 <= step < len(data)


def _is_property(root: Mapping[str, Any], path: Sequence[str | int]) -> bool:
    """Return whether the value at a path is a property.  A pydantic model may also accept it under other names."""
    schemas = schemas_at(root, path[:-1])
    names = {name for schema in schemas for name in _named(schema, "properties")}
    takes_others = any(
        _named(schema, key) for schema in schemas for key in ("additionalProperties", "patternProperties")
    )
    return path[-1] in names or bool(names and not takes_others and isinstance(path[-1], str))


def schemas_at(root: Mapping[str, Any], path: Iterable[str | int]) -> list[Mapping[str, Any]]:
    """Return the schemas for the value at a path in a document."""
    schemas = expanded([root], root)
    for step in path:
        schemas = expanded([inner for schema in schemas for inner in _schemas_of(schema, step)], root)
    return schemas


def expanded(schemas: Iterable[Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return schemas together with their references and union members."""
    left, found = [*schemas], dict[int, Mapping[str, Any]]()  # by id, because schemas may refer to each other
    while left:
        schema = left.pop()
        if not isinstance(schema, Mapping) or id(schema) in found:
            continue
        found[id(schema)] = schema
        if isinstance(reference := schema.get("$ref"), str):
            left.append(target_of(root, reference))
        for union in ("anyOf", "oneOf", "allOf"):
            left += members if isinstance(members := schema.get(union), list) else ()
    return [*found.values()]


def _schemas_of(schema: Mapping[str, Any], step: str | int) -> Iterable[Any]:
    """Return the schemas for a property or an item."""
    if isinstance(step, int):
        first, others = schema.get("prefixItems"), [schema.get("items")]
        return first[step : step + 1] or others if isinstance(first, list) else others
    properties = _named(schema, "properties")
    if step in properties:
        return [properties[step]]
    return [schema.get("additionalProperties"), *_named(schema, "patternProperties").values()]


def _named(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = schema.get(key)
    return value if isinstance(value, Mapping) else {}


class ExactValidator:
    """Validates JSON for a type with a `Decimal`, and refuses a number that would lose digits.

    pydantic reads each number with a point as a float, and makes the `Decimal` of that float.  It reads a `Decimal` in
    quotes as it is, so the model is told to write the number in quotes.
    """

    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def validate_json(self, document: str | bytes, /, **options: Any) -> Any:
        """Return the value in a JSON document."""
        long: list[str] = []

        def read(text: str) -> float | str:
            if not _loses_digits(text):
                return float(text)
            long.append(text)
            return text

        quoted = None
        # pydantic says what is wrong with a document that cannot be read here.
        with suppress(json.JSONDecodeError, UnicodeDecodeError, RecursionError, InvalidOperation):
            quoted = json.loads(document, parse_float=read, parse_int=_whole)
        if not long:
            return self._validator.validate_json(document, **options)
        with suppress(ValueError, RecursionError):
            value = self._validator.validate_json(document, **options)
            if value == self._validator.validate_json(json.dumps(quoted), **options):
                return value  # the long numbers are floats
        numbers = ", ".join(long)[:100]
        raise ParseError(f"{numbers}: expected at most {_FLOAT_DIGITS} digits; write a longer number in quotes")


def _whole(text: str) -> int | str:
    return int(text) if len(text) <= _MAX_INT_CHARS else text


def _loses_digits(text: str) -> bool:
    number = float(text)
    return math.isfinite(number) and Decimal(repr(number)) != Decimal(text)


class ArgumentsValidator:
    """Validates arguments against a JSON Schema.  The arguments must always be an object.

    It supports types, ``enum``, ``const``, ``anyOf``, ``oneOf`` (as ``anyOf``), ``allOf``, local ``$ref``,
    ``nullable``, ``properties``, ``required``, ``additionalProperties``, ``items``, and bounds on numbers, strings and
    lists.  The called function or server must check anything else.

    A schema may be untrusted, so only a tree of limited size is read.  Reading any schema takes a fraction of a second,
    and each check takes time linear in the size of the arguments.
    """

    __slots__ = ("_schema", "_validator")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._validator: Validator | None = None

    def validate_json(self, arguments: str | bytes, /) -> Any:
        """Return the arguments in a JSON document."""
        if self._validator is None:
            read = _Reader(self._schema).object(self._schema, 0)
            self._validator = _compiled(read) or _compiled({"type": "dict", "keys_schema": _TEXT_CORE})
        return self._validator.validate_json(arguments)


def in_current_draft(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return another program's JSON Schema in the current draft, which is the only one that models accept.

    Some servers write null for a key that they leave out, or use draft 4, whose exclusive bounds are booleans.
    """
    current: Mapping[str, Any] = _current(schema, 0)
    return schema if current == schema else current


def _current(schema: Any, depth: int, *, is_by_name: bool = False) -> Any:
    if depth > _MAX_CURRENT_DEPTH or not isinstance(schema, Mapping | list):
        return schema
    if isinstance(schema, list):
        return [_current(item, depth + 1) for item in schema]
    if is_by_name:
        return {name: _current(inner, depth + 1) for name, inner in schema.items()}
    current = {
        key: value if key in _DATA or _is_extension(key) else _current(value, depth + 1, is_by_name=key in _BY_NAME)
        for key, value in schema.items()
        if value is not None or key in _VALUES or _is_extension(key)
    }
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(current.get(exclusive), bool) and current.pop(exclusive) and bound in current:
            current[exclusive] = current.pop(bound)
    return current


def _is_extension(key: Any) -> bool:
    """Return whether a key is a vendor's own, whose value may be any JSON."""
    return isinstance(key, str) and key.startswith("x-")


def cores_of(kinds: Sequence[Any], root: Mapping[str, Any]) -> list[Core]:
    """Return the core schemas for JSON Schemas within a root, to check values written by people and programs.

    Unlike in a model's arguments, null and unknown fields are accepted only where the schema allows them.  Schemas
    that are too large to be read whole allow anything.
    """
    reader = _Reader(root, is_exact=True)
    cores = [reader.read(kind, 0) for kind in kinds]
    return cores if reader.left > 0 else [_ANY for _ in kinds]


def check_json(core: Core, document: str) -> None:
    """Reject JSON that does not fit a core schema.  If pydantic refuses the core schema, any JSON fits."""
    if (validator := _compiled(core)) is not None:
        validator.validate_json(document)


def _compiled(core: Core) -> Any:
    try:
        return SchemaValidator(core)
    except (SchemaError, ValueError, TypeError, OverflowError):
        return None


class _Reader:
    """One reading of a schema."""

    def __init__(self, root: Mapping[str, Any], *, is_exact: bool = False) -> None:
        self.root = root
        self.is_exact = is_exact
        self.left = _MAX_NODES
        self.pattern_cost_left: float = _MAX_PATTERNS_COST
        self.open: list[str] = []  # the references that are being followed

    def object(self, schema: Mapping[str, Any], depth: int) -> Core:
        properties, required, others = map(schema.get, ("properties", "required", "additionalProperties"))
        names = self._bounded(required) if isinstance(required, list) else []
        schemas: dict[str, Any] = {key: True for key in names if isinstance(key, str)}
        needed = {*schemas}
        if isinstance(properties, Mapping):
            first = islice(properties.items(), max(0, self.left))
            schemas |= {key: inner for key, inner in first if isinstance(key, str)}
        fields = {
            key: {"type": "typed-dict-field", "schema": self.read(inner, depth + 1), "required": key in needed}
            for key, inner in schemas.items()
        }
        is_open = others is True or not self.is_exact
        read = {"type": "typed-dict", "fields": fields, "extra_behavior": "allow" if is_open else "ignore"}
        if self.left <= 0:  # an unread schema allows anything
            return read
        if isinstance(others, Mapping):
            return {**read, "extra_behavior": "allow", "extras_schema": self.read(others, depth + 1)}
        return {**read, "extra_behavior": "forbid"} if others is False else read

    def _bounded(self, items: list[Any]) -> list[Any]:
        taken = items[: max(0, self.left)]
        self.left -= len(taken)
        return taken

    def read(self, schema: Any, depth: int) -> Core:
        """Return the core schema for a JSON Schema.  It allows any value that no supported keyword restricts."""
        self.left -= 1
        if depth > _MAX_DEPTH or self.left < 0 or not isinstance(schema, Mapping):
            return _ANY
        read = self._restricted(schema, depth)
        return _nullable(read) if schema.get("nullable") is True else read

    def _restricted(self, schema: Mapping[str, Any], depth: int) -> Core:
        match schema:
            case {"$ref": str(ref)}:
                return self._referred(ref, depth)
            case {"const": value}:
                return {"type": "literal", "expected": [value]}
            case {"enum": [_, *_] as choices}:
                taken = self._bounded(choices)
                return {"type": "literal", "expected": taken} if len(taken) == len(choices) else _ANY
            case {"discriminator": {"propertyName": str(name), "mapping": dict(by_tag)}} if self.is_exact and by_tag:
                return self._discriminated(name, by_tag, depth)
            case {"anyOf": [_, *_] as kinds} | {"oneOf": [_, *_] as kinds}:
                return self._union(kinds, depth)
            case {"allOf": [_, *_] as kinds}:
                return {"type": "chain", "steps": [self.read(kind, depth + 1) for kind in kinds[: max(1, self.left)]]}
            case {"type": [_, *_] as kinds} if len(kinds) <= _MAX_TYPES:
                return _either([self._typed(schema, kind, depth + 1) for kind in kinds if kind != "null"], kinds)
            case {"type": str(kind)}:
                return self._typed(schema, kind, depth)
        return _ANY

    def _typed(self, schema: Mapping[str, Any], kind: Any, depth: int) -> Core:
        match kind:
            case "object":
                return self.object(schema, depth)
            case "array":
                bounds = {name: schema[key] for key, name in _LIST.items() if _is_length(schema.get(key))}
                return {"type": "list", "items_schema": self.read(schema.get("items"), depth + 1), **bounds}
            case "string":
                return _bounded(_TEXT_CORE, schema, _TEXT if self._takes(schema.get("pattern")) else _LENGTHS)
            case "integer":
                read = _bounded(_INTEGER, schema, _NUMBER)
            case "number":
                real = _bounded(_REAL, schema, _NUMBER)
                read = _union([_bounded(_INTEGER, schema, _NUMBER), real])  # an int stays exact
                if real == _REAL:  # there is one thing to say, and not one for each of the two
                    read["custom_error_type"] = "float_type"
            case "boolean":
                read = {"type": "bool"}
            case _:
                return {"type": "none"} if kind == "null" else _ANY
        default = schema.get("default")  # text is converted later
        return _union([read, {"type": "literal", "expected": [default]}]) if isinstance(default, str) else read

    def _takes(self, pattern: Any) -> bool:
        """Return whether a pattern can still be compiled, and count what it costs."""
        cost = _cost(pattern) if isinstance(pattern, str) else math.inf
        if cost > min(_MAX_PATTERN_COST, self.pattern_cost_left):
            return False
        self.pattern_cost_left -= cost
        return True

    def _union(self, kinds: list[Any], depth: int) -> Core:
        if len(kinds) > self.left:  # an unread schema allows anything
            return _ANY
        types = [kind.get("type") if isinstance(kind, Mapping) else None for kind in kinds]
        read = [self.read(kind, depth + 1) for kind, name in zip(kinds, types, strict=True) if name != "null"]
        return _either(read, types)

    def _discriminated(self, name: str, by_tag: Mapping[str, Any], depth: int) -> Core:
        if len(by_tag) > self.left:
            return _ANY
        choices: dict[str | int, Core] = {}
        for tag, target in by_tag.items():
            choices[tag] = self.read(target if isinstance(target, Mapping) else {"$ref": target}, depth + 1)
            if tag.removeprefix("-").isdecimal():  # the tag may be a number, but names in JSON are texts
                choices[int(tag)] = choices[tag]
        return {"type": "tagged-union", "discriminator": name, "choices": choices}

    def _referred(self, ref: str, depth: int) -> Core:
        if len(ref) > _MAX_REF_CHARS or self.open.count(ref) >= _MAX_OPEN:
            return _ANY
        self.open.append(ref)
        try:
            return self.read(target_of(self.root, ref), depth + 1)
        finally:
            self.open.pop()


def target_of(root: Mapping[str, Any], ref: str) -> Any:
    """Return the target of a reference within the schema (RFC 6901), or None if it leads nowhere."""
    target: Any = root if ref.startswith("#") else None
    for step in ref.split("/")[1:]:
        step = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(target, list):
            is_there = step.isdecimal() and len(step) <= _MAX_DIGITS and int(step) < len(target)
            target = target[int(step)] if is_there else None
        else:
            target = target.get(step) if isinstance(target, Mapping) else None
    return target


def _nullable(core: Core) -> Core:
    return {"type": "nullable", "schema": core}


def _union(cores: list[Core]) -> Core:
    return {"type": "union", "choices": cores}


def _either(kinds: list[Core], types: list[Any]) -> Core:
    if not kinds:
        return {"type": "none"}
    union = _union(kinds) if len(kinds) > 1 else kinds[0]
    return _nullable(union) if "null" in types else union


def _cost(regex: str) -> float:
    """Return an upper estimate of what it costs to compile a pattern.

    A Unicode character class costs 1, which stands for up to half a millisecond.
    """
    size, times = len(regex), 1
    for match in _REPEAT.finditer(regex):
        count = int(match[2] or match[1])
        if regex[max(0, match.start() - 1)] in ")}*+?":
            times *= max(1, count)
        else:
            size += count
    return size * times * (1 if _UNICODE.search(regex) else 0.01)


def _bounded(plain: dict[str, Any], schema: Mapping[str, Any], names: Mapping[str, str]) -> Core:
    """Return the schema with its bounds, or without them if pydantic refuses one (such as a look-around pattern)."""
    bounds = {name: schema[key] for key, name in names.items() if key in schema}
    if plain["type"] == "int":  # pydantic accepts whole bounds only
        try:
            bounds = {name: _WHOLE[name](value) for name, value in bounds.items()}
        except (ValueError, TypeError, OverflowError):
            return plain
    return plain | bounds if bounds and _compiled(plain | bounds) else plain


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31

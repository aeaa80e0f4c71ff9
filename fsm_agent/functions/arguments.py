"""The arguments of a function call: parsed, checked, and refused in words for the model.

`Function.bind` parses them, by the validator that pydantic makes of a signature or by an `ArgumentsValidator`, for a
JSON Schema that has no Python type behind it.  What it raises, `refused` words.

Of such a schema these are supported: types, ``enum``, ``const``, ``anyOf``, ``oneOf`` (as ``anyOf``), ``allOf``, local
``$ref``, ``nullable``, ``properties``, ``required``, ``additionalProperties``, ``items``, and the bounds of numbers,
texts and lists.  All else is left to the function or server behind the call.

A schema may be untrusted, so it is read as a tree of bounded size: that takes a fraction of a second, whatever its
contents, and each check takes linear time in the arguments, whatever the references.  It is read when arguments are
first checked: of many functions that are offered, few are called.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import islice
from reprlib import Repr
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from fsm_agent.errors import ParseError

if TYPE_CHECKING:
    from pydantic import ValidationError

Core: TypeAlias = dict[str, Any]  # a core schema of pydantic

# What validators raise, those that are the user's own at odd arguments included; a ValidationError is a ValueError.
REFUSALS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_MAX_ERRORS = 20  # of one value; what is wrong with it is clear by then
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60
_MAX_DEPTH = 20  # to which a schema is read
_MAX_NODES = 5_000  # of a schema are read; names and values in its lists count too
_MAX_OPEN = 2  # times a reference is followed inside of itself
_MAX_REF_CHARS = 1_000
_MAX_PATTERN_COST = 200  # see `_cost`
_MAX_PATTERNS_COST = 600  # of a schema
_ANY: Core = {"type": "any"}
_TEXT_CORE: Core = {"type": "str"}
_NUMBER = {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt"}
_WHOLE = {"ge": math.ceil, "gt": math.floor, "le": math.floor, "lt": math.ceil}
_LENGTHS = {"minLength": "min_length", "maxLength": "max_length"}
_TEXT = {**_LENGTHS, "pattern": "pattern"}
_LIST = {"minItems": "min_length", "maxItems": "max_length"}
_MAX_TYPES = 7  # JSON Schema has no more
_UNICODE = re.compile(r"\\[wWdDsSpPbB]")
_REPEAT = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")


def refused(error: Exception) -> ParseError:
    """Return the error for what a validator raised, in words for the model."""
    from pydantic_core import ValidationError

    if isinstance(error, ValidationError):
        return ParseError(described_errors(error))
    return ParseError(f"input: {type(error).__name__}: {error}"[:1000])


def described_errors(error: ValidationError) -> str:
    """A validation error as one line a field: where, what is wrong, what was given.  Bounded, whatever was given."""
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
    except ValueError:  # a number of more digits than Python writes out
        return f"a huge {type(value).__name__}"


class Validator(Protocol):
    """What makes the arguments of a call of their JSON: that of a signature is pydantic's own."""

    def validate_json(self, arguments: str | bytes, /) -> Any:
        """Return the arguments in a JSON document.

        Raises:
            ValidationError: They do not fit.
        """


class ArgumentsValidator:
    """A validator of arguments against a JSON Schema, as far as it is supported; they are an object in any case."""

    __slots__ = ("_schema", "_validator")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._validator: Validator | None = None

    def validate_json(self, arguments: str | bytes, /) -> Any:
        """Return the arguments in a JSON document.

        Raises:
            ValidationError: They do not fit the schema.
        """
        if self._validator is None:
            self._validator = _build_validator(self._schema)
        return self._validator.validate_json(arguments)


def _build_validator(schema: Mapping[str, Any]) -> Validator:
    read: Validator = _compiled(_Reader(schema).object(schema, 0)) or _compiled(
        {"type": "dict", "keys_schema": _TEXT_CORE}
    )
    return read


def _compiled(core: Core) -> Any:
    """Return the validator of a core schema; None: pydantic refuses it."""
    from pydantic_core import SchemaError, SchemaValidator

    try:
        return SchemaValidator(core)
    except (SchemaError, ValueError, TypeError, OverflowError):
        return None


class _Reader:
    """One reading of a schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.left = _MAX_NODES
        self.pattern_cost_left: float = _MAX_PATTERNS_COST
        self.open: list[str] = []  # the references that are being followed

    def object(self, schema: Mapping[str, Any], depth: int) -> Core:
        properties, required = schema.get("properties"), schema.get("required")
        names = self._bounded(required) if isinstance(required, list) else []
        needed = dict.fromkeys([key for key in names if isinstance(key, str)], True)
        schemas: dict[str, Any] = {**needed}
        if isinstance(properties, Mapping):
            first = islice(properties.items(), max(0, self.left))
            schemas |= {key: inner for key, inner in first if isinstance(key, str)}
        fields = {}
        for key, inner in schemas.items():
            if self.left <= 0:
                break
            read = self.read(inner, depth + 1)
            if key not in needed:  # models write null for what they leave out
                read = _nullable(read)
            fields[key] = {"type": "typed-dict-field", "schema": read, "required": key in needed}
        read = {"type": "typed-dict", "fields": fields, "extra_behavior": "allow"}
        others = schema.get("additionalProperties")
        if self.left <= 0:  # an unread schema allows anything
            return read
        if others is False:
            return {**read, "extra_behavior": "forbid"}
        return {**read, "extras_schema": self.read(others, depth + 1)} if isinstance(others, Mapping) else read

    def _bounded(self, items: list[Any]) -> list[Any]:
        """Return the items, or as many as may still be read."""
        taken = items[: max(0, self.left)]
        self.left -= len(taken)
        return taken

    def read(self, schema: Any, depth: int) -> Core:
        """Return the core schema of a JSON Schema; any value where nothing supported restricts it."""
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
        if kind == "object":
            return self.object(schema, depth)
        if kind == "array":
            return self._list(schema, depth)
        if kind == "string":
            return self._text(schema)
        read, default = _scalar(schema, kind), schema.get("default")
        if isinstance(default, str) and kind in ("integer", "number", "boolean"):  # then it is converted
            return _union([read, {"type": "literal", "expected": [default]}])
        return read

    def _text(self, schema: Mapping[str, Any]) -> Core:
        regex, names = schema.get("pattern"), _LENGTHS
        if isinstance(regex, str) and (cost := _cost(regex)) <= min(_MAX_PATTERN_COST, self.pattern_cost_left):
            self.pattern_cost_left -= cost
            names = _TEXT
        return _bounded(_TEXT_CORE, schema, names)

    def _union(self, kinds: list[Any], depth: int) -> Core:
        if len(kinds) > self.left:  # and an unread schema allows anything
            return _ANY
        types = [kind.get("type") if isinstance(kind, Mapping) else None for kind in kinds]
        read = [self.read(kind, depth + 1) for kind, name in zip(kinds, types, strict=True) if name != "null"]
        return _either(read, types)

    def _list(self, schema: Mapping[str, Any], depth: int) -> Core:
        bounds = {name: schema[key] for key, name in _LIST.items() if _is_length(schema.get(key))}
        return {"type": "list", "items_schema": self.read(schema.get("items"), depth + 1), **bounds}

    def _referred(self, ref: str, depth: int) -> Core:
        if len(ref) > _MAX_REF_CHARS or self.open.count(ref) >= _MAX_OPEN:
            return _ANY
        self.open.append(ref)
        try:
            return self.read(target_of(self.root, ref), depth + 1)
        finally:
            self.open.pop()


def target_of(root: Mapping[str, Any], ref: str) -> Any:
    """Return the target of a reference within the schema (RFC 6901); None when there is none."""
    target: Any = root
    for step in ref.removeprefix("#").split("/")[1:] if ref.startswith("#") else ("",):
        target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
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
    """Return the cost of compiling a pattern: 1 for each class of Unicode, up to half a millisecond.

    An upper estimate: what is repeated is added to its length, and multiplied if it was repeated or grouped.
    """
    size, times = len(regex), 1
    for match in _REPEAT.finditer(regex):
        count = int(match[2] or match[1])
        if regex[max(0, match.start() - 1)] in ")}*+?":
            times *= max(1, count)
        else:
            size += count
    return size * times * (1 if _UNICODE.search(regex) else 0.01)


def _scalar(schema: Mapping[str, Any], kind: Any) -> Core:
    match kind:
        case "integer":
            return _bounded({"type": "int"}, schema, _NUMBER)
        case "number":
            whole = _bounded({"type": "int"}, schema, _NUMBER)
            return _union([whole, _bounded({"type": "float", "allow_inf_nan": False}, schema, _NUMBER)])
        case "boolean":
            return {"type": "bool"}
        case "null":
            return {"type": "none"}
    return _ANY


def _bounded(plain: dict[str, Any], schema: Mapping[str, Any], names: Mapping[str, str]) -> Core:
    """Return the schema with its bounds if pydantic accepts them: a pattern that looks around is refused, say."""
    bounds = {name: schema[key] for key, name in names.items() if key in schema}
    if plain["type"] == "int":  # pydantic accepts whole bounds only
        try:
            bounds = {name: _WHOLE[name](value) for name, value in bounds.items()}
        except (ValueError, TypeError, OverflowError):
            return plain
    return plain | bounds if bounds and _compiled(plain | bounds) else plain


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31

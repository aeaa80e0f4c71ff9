"""Describes a function's parameters as a JSON Schema, and validates a call's arguments."""

from __future__ import annotations

import inspect
import math
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from operator import is_
from reprlib import Repr
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NotRequired,
    Protocol,
    Required,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import typing_extensions

from fsm_agent.errors import ParseError, UsageError
from fsm_agent.functions.context import Context

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

Core: TypeAlias = dict[str, Any]  # a core schema of pydantic

# What validators raise, including user-defined ones for odd arguments.  A ValidationError is a ValueError.
REFUSALS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_CONTAINERS = (  # pydantic's errors where only a list or an object is valid
    *("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type", "dict_type", "mapping_type"),
    *("model_type", "model_attributes_type", "dataclass_type", "named_tuple_type"),
)
_OF_TYPE = ("_type", "enum", "literal_error")  # the ends of pydantic's errors for a value of another type
_MAX_ERRORS = 20  # of one value
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60
_MAX_DEPTH = 20  # levels of a schema that are read
_MAX_NODES = 5_000  # nodes of a schema that are read, including names and values in its lists
_MAX_OPEN = 2  # how often a reference is followed inside itself
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
_MAX_CURRENT_DEPTH = 64  # levels in which other drafts are looked for
_VALUES = ("const", "default", "example")  # keys for which null is a value
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_NESTED = (  # keys that hold a schema, or several
    *("items", "prefixItems", "contains", "additionalProperties", "propertyNames", "anyOf", "oneOf", "allOf"),
    *("not", "if", "then", "else"),
)
_MAX_TYPES = 7  # JSON Schema has no more
_UNICODE = re.compile(r"\\[wWdDsSpPbB]")
_REPEAT = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")


def refused(error: Exception) -> ParseError:
    """Return a validator's error in words that the model understands."""
    from pydantic_core import ValidationError

    if isinstance(error, ValidationError):
        return ParseError(described_errors(error))
    return ParseError(f"input: {type(error).__name__}: {error}"[:1000])


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
    """Parses the JSON arguments of a call.  For a signature, it is pydantic's validator."""

    def validate_json(self, arguments: str | bytes, /) -> Any:
        """Return the arguments in a JSON document."""


def validate_arguments(validator: Validator, arguments: str) -> tuple[str, dict[str, Any]]:
    """Return `(json, values)`: the arguments as JSON in the form that the validator takes, and as validated values.

    Some models write a list or an object inside the arguments as a string of JSON, and null for what they leave out.
    Both are accepted, but only where they would otherwise be invalid.
    """
    try:
        return arguments, validator.validate_json(arguments)
    except ValueError as error:
        if (meant := _meant(validator, arguments, error)) is None:
            raise
    return validate_arguments(validator, meant)  # there may be texts inside of texts


def _meant(validator: Validator, arguments: str, error: ValueError) -> str | None:
    """Return the arguments without the nulls that a validation error names, and with its strings of JSON parsed.

    Null is left out only for a field: a null among the values of a ``dict[str, int]`` stays, and is invalid.  Return
    None if nothing changes.
    """
    from pydantic_core import ValidationError, from_json, to_json

    if not isinstance(error, ValidationError):
        return None
    is_changed = False
    nulls: dict[str, tuple[dict[str, Any], str]] = {}  # by a key that names no field
    try:
        document = from_json(arguments)
        for item in error.errors(include_url=False, include_context=False):
            kind, given = item["type"], item["input"]
            if (place := _place(document, item["loc"], given)) is None:
                continue
            holder, key = place
            if isinstance(given, str) and kind in _CONTAINERS and given.lstrip()[:1] in ("[", "{"):
                holder[key] = from_json(given)
                is_changed = True
            elif _is_null(item) and isinstance(holder, dict):
                nulls[unnamed := f"\0{len(nulls)}"] = holder, key
                holder[unnamed] = holder.pop(key)
        refused = _refused_nulls(validator, to_json(document)) if nulls else frozenset()
        for unnamed, (holder, key) in nulls.items():
            del holder[unnamed]
            if unnamed in refused:  # any key is taken here, so the null is a value
                holder[key] = None
        is_changed |= not refused.issuperset(nulls)
    except ValueError:  # not JSON
        return None
    return to_json(document).decode() if is_changed else None


def _refused_nulls(validator: Validator, document: bytes) -> frozenset[str | int]:
    """Return the keys on the paths to values that may not be null."""
    from pydantic_core import ValidationError

    try:
        validator.validate_json(document)
    except ValidationError as error:
        items = error.errors(include_url=False, include_context=False)
        return frozenset([step for item in items if _is_null(item) for step in item["loc"]])
    return frozenset()


def _is_null(item: ErrorDetails) -> bool:
    return item["input"] is None and item["type"].endswith(_OF_TYPE)


def _place(document: Any, path: Sequence[str | int], given: Any) -> tuple[Any, Any] | None:
    """Return the object or list at a path that holds a value, and its key there.  Some steps name members of unions."""
    for step in path:
        is_there = step in document if isinstance(document, dict) else isinstance(document, list) and step != str(step)
        if is_there and document[step] == given:
            return document, step
        document = document[step] if is_there else document
    return None


class ArgumentsValidator:
    """Validates arguments against a JSON Schema.  The arguments must always be an object.

    It supports types, ``enum``, ``const``, ``anyOf``, ``oneOf`` (as ``anyOf``), ``allOf``, local ``$ref``,
    ``nullable``, ``properties``, ``required``, ``additionalProperties``, ``items``, and bounds on numbers, strings and
    lists.  The function or server that is called must check anything else.

    A schema may be untrusted, so only a tree of limited size is read.  Whatever the schema, this takes a fraction of a
    second, and each check takes time linear in the size of the arguments.
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
    """Return another program's JSON Schema as the current draft writes it, because models accept no other draft.

    Some servers write null for a key that they leave out, and the exclusive bounds of draft 4, which are booleans.
    """
    return cast("Mapping[str, Any]", _current(schema, {}, 0))


def _current(schema: Any, known: dict[int, Any], depth: int) -> Any:
    if depth > _MAX_CURRENT_DEPTH or not isinstance(schema, Mapping):
        return schema
    if id(schema) not in known:
        known[id(schema)] = schema  # if it contains itself
        found = {
            key: _current_value(key, value, known, depth + 1)
            for key, value in schema.items()
            if value is not None or key in _VALUES
        }
        for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            is_exclusive = found.get(exclusive)
            if isinstance(is_exclusive, bool):
                del found[exclusive]
                if is_exclusive and bound in found:
                    found[exclusive] = found.pop(bound)
        is_same = len(found) == len(schema) and all(found.get(key) is schema[key] for key in schema)
        known[id(schema)] = schema if is_same else found
    return known[id(schema)]


def _current_value(key: str, value: Any, known: dict[int, Any], depth: int) -> Any:
    items: Any
    if key in _BY_NAME and isinstance(value, Mapping):
        items = {name: _current(inner, known, depth) for name, inner in value.items()}
        return value if all(items[name] is value[name] for name in items) else items
    if key in _NESTED and isinstance(value, list):
        items = [_current(inner, known, depth) for inner in value]
        return value if all(map(is_, items, value)) else items
    return _current(value, known, depth) if key in _NESTED else value


def cores_of(kinds: Sequence[Any], root: Mapping[str, Any]) -> list[Core]:
    """Return the core schemas for JSON Schemas within a root, to check values written by people and programs.

    Unlike in a model's arguments, null and unknown fields are accepted only where the schema allows them.  Schemas
    that are too large to be read whole allow anything.
    """
    reader = _Reader(root, is_exact=True)
    cores = [reader.read(kind, 0) for kind in kinds]
    return cores if reader.left > 0 else [_ANY for _ in kinds]


def check_json(core: Core, document: str) -> None:
    """Refuse JSON that does not fit a core schema.  A core schema that pydantic refuses allows anything."""
    if (validator := _compiled(core)) is not None:
        validator.validate_json(document)


def _compiled(core: Core) -> Any:
    from pydantic_core import SchemaError, SchemaValidator

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
            fields[key] = {
                "type": "typed-dict-field",
                "schema": self.read(inner, depth + 1),
                "required": key in needed,
            }
        others = schema.get("additionalProperties")
        is_open = not self.is_exact or others is True
        read = {"type": "typed-dict", "fields": fields, "extra_behavior": "allow" if is_open else "ignore"}
        if self.left <= 0:  # an unread schema allows anything
            return read
        if others is False:
            return {**read, "extra_behavior": "forbid"}
        if not isinstance(others, Mapping):
            return read
        return {**read, "extra_behavior": "allow", "extras_schema": self.read(others, depth + 1)}

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
        if kind == "object":
            return self.object(schema, depth)
        if kind == "array":
            return self._list(schema, depth)
        if kind == "string":
            return self._text(schema)
        read, default = _scalar(schema, kind), schema.get("default")
        if isinstance(default, str) and kind in ("integer", "number", "boolean"):  # it is converted later
            return _union([read, {"type": "literal", "expected": [default]}])
        return read

    def _text(self, schema: Mapping[str, Any]) -> Core:
        regex, names = schema.get("pattern"), _LENGTHS
        if isinstance(regex, str) and (cost := _cost(regex)) <= min(_MAX_PATTERN_COST, self.pattern_cost_left):
            self.pattern_cost_left -= cost
            names = _TEXT
        return _bounded(_TEXT_CORE, schema, names)

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
    """Return the target of a reference within the schema (RFC 6901), or None if it leads nowhere."""
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


def _scalar(schema: Mapping[str, Any], kind: Any) -> Core:
    match kind:
        case "integer":
            return _bounded({"type": "int"}, schema, _NUMBER)
        case "number":
            finite = {"type": "float", "allow_inf_nan": False}
            real = _bounded(finite, schema, _NUMBER)
            number = _union([_bounded({"type": "int"}, schema, _NUMBER), real])  # an int stays exact
            # Without bounds, there is one thing to say, and not one for each of the two
            return number | {"custom_error_type": "float_type"} if real == finite else number
        case "boolean":
            return {"type": "bool"}
        case "null":
            return {"type": "none"}
    return _ANY


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


_MAY_BE_NONE = re.compile(r"\b(None|Optional|Any|object)\b")
_CONTEXT_NAMES = ("ctx", "context", "run_context", "run_ctx")  # names of parameters that are never meant for a model
_PARAMETERS_FIRST = re.compile(r"\A((?:Args|Arguments|Parameters|Params):\n)(.*)", re.DOTALL)
_NO_DESCRIPTION = "-"
_UNRESOLVABLE = (AttributeError, NameError, SyntaxError, TypeError)  # raised for an annotation


def undescribable() -> tuple[type[Exception], ...]:
    """Return the exceptions that pydantic raises for a type without a JSON schema."""
    from pydantic import PydanticUserError
    from pydantic_core import SchemaError

    return (PydanticUserError, SchemaError, AssertionError, NameError, TypeError, ValueError)


def described(call: Callable[..., Any], name: str | None, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Read a callable's signature, annotations and docstring, and return them as fields of a `Function`.

    Raises:
        UsageError: If a parameter cannot be described to a model.
    """
    import docstring_parser
    from pydantic import TypeAdapter

    named = call.func if isinstance(call, partial) else call
    name = str(name or getattr(call, "__name__", "") or getattr(named, "__name__", type(named).__name__))
    signature = _Signature(call, name, namespace)
    docs = docstring_parser.parse(_PARAMETERS_FIRST.sub(_described, signature.docstring))
    texts = (docs.short_description, docs.long_description)
    documented = {key.strip(): p.description for p in docs.params for key in p.arg_name.split(",")}
    arguments = signature.arguments_type(documented)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(arguments)
        schema = adapter.json_schema()
    except undescribable() as error:
        raise UsageError(f"the parameters of function {name!r} have no JSON schema: {error}") from error
    schema.pop("title", None)
    for key in signature.bound:
        schema["properties"].pop(key, None)
    for parameter in signature.offered:
        if parameter.name in schema["properties"] and (default := _default(parameter)) is not None:
            schema["properties"][parameter.name].setdefault("default", default)
    return {
        "name": name,
        "description": "\n\n".join([part for part in texts if part and part != _NO_DESCRIPTION]),
        "parameters": schema,
        "validator": adapter.validator,
        **signature.passing(),
    }


def passing(call: Callable[..., Any], name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `Function` fields that say how to pass a callable the arguments in an existing schema.

    Raises:
        UsageError: If the callable does not accept one of the schema's arguments, or needs one that the schema does not
            require.
    """
    signature = _Signature(call, name, {})
    kept = [p for p in signature.offered if p.name not in signature.bound]
    properties, required = schema.get("properties") or {}, schema.get("required") or ()
    names = {p.name for p in kept if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    is_open = any(p.kind is p.VAR_KEYWORD for p in kept)
    if untaken := [key for key in (*properties, *required) if key not in names and not is_open]:
        raise UsageError(
            f"the callable for function {name!r}: expected a parameter {untaken[0]!r}, which its schema has, got none"
        )
    needed = [p.name for p in kept if p.name in names and p.default is p.empty]
    if missing := [key for key in needed if key not in required]:
        raise UsageError(
            f"the callable for function {name!r}: expected a default for {missing[0]!r}, which its schema does not"
            " require"
        )
    return signature.passing()


def deps_of_second(call: Callable[..., Any]) -> dict[str, Any]:
    """Return the `Function` fields that describe the deps type of a state's function, or {} if it declares none."""
    signature = _Signature(call, str(getattr(call, "__name__", call)), {})
    parameter = [*signature.parameters.values()][1]
    hint = signature.evaluated(signature.without_deps(parameter))
    return signature.deps_fields(parameter, hint) if _is_context(hint) else {}


class _Signature:
    """A callable's signature, whose annotations are resolved where the callable was defined."""

    def __init__(self, call: Any, name: str, namespace: Mapping[str, Any]) -> None:
        self._call, self._name, self._namespace = call, name, namespace
        self._target, self.docstring = _find_docstring(call)
        self.bound = call.keywords if isinstance(call, partial) else {}  # not offered to a model
        try:
            self.parameters = inspect.signature(call).parameters
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"the signature of function {name!r} cannot be read; wrap it in a function with named parameters"
            ) from error
        module = sys.modules.get(getattr(call, "__module__", None) or "")
        self._scope = getattr(inspect.unwrap(self._target), "__globals__", None) or vars(module or SimpleNamespace())

    def evaluated(self, annotation: Any) -> Any:
        """Return a resolved annotation, or None if it names something that does not exist at run time."""
        try:
            return self._resolved({"it": annotation})["it"]
        except _UNRESOLVABLE:
            return None

    def _resolved(self, annotations: dict[str, Any]) -> dict[str, Any]:
        holder = SimpleNamespace(__annotations__=annotations)
        return get_type_hints(holder, self._scope, dict(self._namespace), include_extras=True)

    def without_deps(self, parameter: inspect.Parameter) -> Any:
        """Return `Context` for an annotation such as "Context[Shop]", because often only type checkers know `Shop`."""
        head, bracket, _ = parameter.annotation.partition("[") if isinstance(parameter.annotation, str) else ("",) * 3
        return Context if bracket and _is_context(self.evaluated(head)) else parameter.annotation

    @cached_property
    def _hints(self) -> dict[str, Any]:
        annotated = [p for p in self.parameters.values() if p.annotation is not p.empty]
        annotations = {p.name: p.annotation for p in annotated}
        annotations |= {p.name: self.without_deps(p) for p in annotated[:1]}
        try:
            return self._resolved(annotations)
        except _UNRESOLVABLE as error:
            raise UsageError(f"an annotation of function {self._name!r} cannot be resolved: {error}") from error

    @cached_property
    def _context(self) -> inspect.Parameter | None:
        """The parameter that takes the context and that no model sees."""
        context = None
        for index, (key, parameter) in enumerate(self.parameters.items()):
            is_bare = index == 0 and parameter.annotation is parameter.empty
            owner = getattr(self._call, "__qualname__", "").rpartition(".")[0]
            if is_bare and key == "self" and owner and not owner.endswith("<locals>"):
                remedy = f"pass Function.of(an_object.{self._name})"
                raise UsageError(f"function {self._name!r} is a method without its object; {remedy}")
            if is_bare and key in _CONTEXT_NAMES and key not in self.bound:
                raise UsageError(
                    f"parameter {key!r} of function {self._name!r}: expected an annotation, got none; annotate it with"
                    " Context, or with the type of an argument that the model gives"
                )
            if key in self.bound or not _mentions_context(self._hints.get(key)):
                continue
            by_position = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            if index > 0 or not by_position or not _is_context(self._hints[key]):
                raise UsageError(
                    f"parameter {key!r} of function {self._name!r}: expected the Context as the first parameter, by"
                    " position; move it there, annotated Context or Context[…]"
                )
            context = parameter
        return context

    @property
    def offered(self) -> list[inspect.Parameter]:
        """The parameters without the context."""
        return [p for p in self.parameters.values() if p is not self._context]

    def passing(self) -> dict[str, Any]:
        """Return the `Function` fields that say how to pass arguments."""
        context = self._context
        return {
            "is_async": any(map(inspect.iscoroutinefunction, (self._target, self._call))),
            "takes_context": context is not None,
            "positional": tuple([(p.name, p.default) for p in self.offered if p.kind is p.POSITIONAL_ONLY]),
            "deps_type": "",
            "deps_class": None,
            **({} if context is None else self.deps_fields(context, self._hints[context.name])),
        }

    def deps_fields(self, context: inspect.Parameter, hint: Any) -> dict[str, Any]:
        """Return the `Function` fields for the deps type in the context's annotation, or {} if deps may be None."""
        hint = _plain(hint)
        if not get_args(hint) and isinstance(context.annotation, str):  # see `without_deps`
            name = context.annotation.partition("[")[2].rpartition("]")[0]
            if not name or (found := self.evaluated(name)) is None:  # defined for type checkers only
                return {} if not name or _MAY_BE_NONE.search(name) else {"deps_type": name}
        else:
            found = next((inner for inner in get_args(hint) if not _may_be_none(inner)), None)
            name = getattr(found, "__name__", str(found))
        if _may_be_none(found):
            return {}
        is_class = isinstance(found, type) and get_origin(found) is None
        return {"deps_type": name, "deps_class": found if is_class else None}

    def arguments_type(self, documented: Mapping[str, str | None]) -> Any:
        """Return a TypedDict for the arguments that a model gives, with these descriptions."""
        from pydantic import BeforeValidator, ConfigDict, with_config

        fields: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for parameter in self.offered:
            key = parameter.name
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise UsageError(
                    f"function {self._name!r}: expected parameters that have names, since a model gives arguments by"
                    f" name, got '*{key}'"
                )
            if parameter.kind is parameter.VAR_KEYWORD:
                hint = self._hints.get(key, Any)
                if get_origin(hint) is typing_extensions.Unpack:
                    fields |= {k: v for k, v in _items_of(get_args(hint)[0]).items() if k not in self.bound}
                    continue
                others["extra_items"] = hint
                fields |= dict.fromkeys(self.bound, NotRequired[Annotated[Any, BeforeValidator(_refuse)]])
            elif key not in self.bound:
                fields[key] = _field(parameter, self._hints.get(key, Any), documented.get(key))
        configured = with_config(ConfigDict(extra="allow" if others else "forbid", allow_inf_nan=False))
        return configured(cast("Any", typing_extensions.TypedDict)(self._name, fields, **others))


def _described(match: re.Match[str]) -> str:
    """Put a description before a docstring that begins with its parameters, so that these stay indented.

    Cleaning a docstring dedents all lines after the first one.
    """
    heading, parameters = match.groups()
    is_dedented = not parameters.lstrip("\n")[:1].isspace()
    return f"{_NO_DESCRIPTION}\n\n{heading}{textwrap.indent(parameters, '    ' * is_dedented)}"


def _find_docstring(call: Callable[..., Any]) -> tuple[Any, str]:
    target: Any = call.func if isinstance(call, partial) else call
    if inspect.isroutine(target):
        return target, inspect.getdoc(target) or ""
    if inspect.isclass(target):
        return target.__init__, inspect.cleandoc(target.__doc__ or "")
    method = type(target).__call__
    return method, inspect.cleandoc(method.__doc__ or type(target).__doc__ or "")


def _plain(hint: Any) -> Any:
    """Return the type behind an alias or an `Annotated`."""
    hint = getattr(hint, "__value__", hint)
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _is_context(hint: Any) -> bool:
    return Context in (_plain(hint), get_origin(_plain(hint)))


def _mentions_context(hint: Any) -> bool:
    return _is_context(hint) or any(_mentions_context(inner) for inner in get_args(hint))


def _may_be_none(hint: Any) -> bool:
    hint = getattr(hint, "__value__", hint)
    return hint in (None, type(None), Any, object) or isinstance(hint, TypeVar) or type(None) in get_args(hint)


def _refuse(value: Any) -> Any:
    raise ValueError("it is already given")


def _field(parameter: inspect.Parameter, hint: Any, description: str | None) -> Any:
    from pydantic import Field
    from pydantic.fields import FieldInfo

    hint, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    descriptions = [
        note if isinstance(note, str) else note.documentation
        for note in notes
        if isinstance(note, str | typing_extensions.Doc)
    ]
    if description := descriptions[0] if descriptions else description:
        notes = [Field(description=description), *notes]
    if isinstance(parameter.default, FieldInfo):
        notes.append(parameter.default)
    if notes:
        hint = Annotated[(hint, *notes)]
    is_required = parameter.default is parameter.empty or isinstance(parameter.default, FieldInfo)
    return hint if is_required else NotRequired[hint]


def _items_of(typed_dict: Any) -> dict[str, Any]:
    hints = get_type_hints(typed_dict, include_extras=True)
    optional = {
        k for k, v in hints.items() if get_origin(v) not in (NotRequired, Required)
    } - typed_dict.__required_keys__
    return {key: NotRequired[hint] if key in optional else hint for key, hint in hints.items()}


def _default(parameter: inspect.Parameter) -> Any:
    from pydantic.fields import FieldInfo
    from pydantic_core import from_json, to_json

    default = parameter.default
    if default is parameter.empty or default is None or isinstance(default, FieldInfo):
        return None
    try:
        return from_json(to_json(default), allow_inf_nan=False)
    except ValueError:
        return None

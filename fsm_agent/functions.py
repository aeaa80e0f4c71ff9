"""What may a model ask for, and how is it described and run?"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import or_
from reprlib import Repr
from types import NoneType, SimpleNamespace
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, cast, get_args, get_origin, get_type_hints, overload

from docstring_parser import parse as parse_docstring
from pydantic import BeforeValidator, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, with_config
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, SchemaError, SchemaValidator, from_json, to_json
from typing_extensions import TypedDict

from fsm_agent.errors import UsageError
from fsm_agent.messages import FunctionCall

NAME_CHARACTERS = "letters, digits, '_' and '-', 64 at most"  # what every provider takes
UNDESCRIBABLE = (PydanticUserError, SchemaError, AssertionError, NameError, TypeError, ValueError)  # at a type
_JSON_TYPES = {"string": str, "integer": int, "number": int | float, "boolean": bool, "null": NoneType}
_MAX_DEPTH = 10  # to which a JSON Schema is read
_MAX_ERRORS = 20  # of one value; what is wrong with it is clear by then
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60

# What an exception of a function means: the model is told, the function is run again first (`Retries`), or the
# agent call fails.
OnError: TypeAlias = Literal["tell", "retry", "fail"]
Middleware: TypeAlias = Callable[[FunctionCall, Callable[[FunctionCall], Any]], Any]  # (call, next) -> result


@dataclass(frozen=True, slots=True)
class Default:
    """What a function returns when it raised."""

    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often and how late a function that raised is run again; the wait doubles each time."""

    attempts: int = 3  # the first one included
    delay_s: float = 0.1  # before the second attempt
    max_delay_s: float = 5.0
    jitter: float = 0.5  # the wait is multiplied by a random number between 1 - jitter and 1
    retry_if: Callable[[Exception], bool] | None = None  # None: whatever was raised


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Function:
    """What a model may ask for: a name, a description, a schema, and usually a callable.

    `Function.of` makes one from a Python callable.  One without a callable is answered from outside: the
    call is suspended until somebody gives the outcome.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})  # JSON Schema
    call: Callable[..., Any] | None = field(default=None, repr=False)
    is_async: bool = False
    blocking: bool = True  # under asyncio a plain function runs in a thread, unless it says that it returns at once
    needs_approval: bool | Callable[[FunctionCall], bool] = False  # always, or when a pure predicate says so
    repeatable: bool = False  # run again when asked again with the same arguments (a clock, a dice, a poll)
    version: str = ""
    max_calls: int | None = None  # in one agent call; then it is no longer offered
    max_failures: int | None = None  # in one agent call; then it is no longer offered
    depends_on: tuple[str, ...] = ()  # functions that must have succeeded before, in this agent call
    timeout_s: float | None = None  # for one run, its retries included; the model is told
    retries: Retries | None = None
    on_error: OnError | Default = "tell"
    middleware: tuple[Middleware, ...] = field(default=(), repr=False)  # the first is the outermost
    format: Callable[[Any, FunctionCall], str] | None = field(default=None, repr=False)  # what the model is told
    validator: TypeAdapter[Any] | None = field(default=None, repr=False)
    positional: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= 64 or not all(c.isascii() and (c.isalnum() or c in "_-") for c in self.name):
            raise UsageError(f"the function name {self.name!r} will be refused by providers: use {NAME_CHARACTERS}")
        if self.validator is None:
            object.__setattr__(self, "validator", _schema_validator(self.parameters))

    @classmethod
    def of(
        cls,
        call: Callable[..., Any] | Function,
        *,
        name: str | None = None,
        description: str | None = None,
        namespace: Mapping[str, Any] | None = None,
        **policy: Any,
    ) -> Function:
        """A function from a Python callable: schema from its signature, descriptions from its docstring.

        Args:
            call: A function, method, coroutine function, partial, or object with ``__call__``.
            name: What the model calls it; the callable's own name by default.
            description: What it does; the docstring's first paragraphs by default.
            namespace: Where names in its annotations are looked up, beside its module.
            policy: ``blocking``, ``needs_approval``, ``repeatable``.

        Raises:
            UsageError: A parameter cannot be described to a model, or the name is not usable.
        """
        if isinstance(call, Function):
            options = {"name": name, "description": description, **policy}
            changes = {key: value for key, value in options.items() if value is not None}
            return replace(call, **changes) if changes else call
        if not callable(call):
            raise UsageError(f"{call!r} cannot be called: a function, method, partial or object with __call__ can")
        target, docstring = _explained(call)
        named = call.func if isinstance(call, partial) else call
        name = str(name or getattr(call, "__name__", "") or getattr(named, "__name__", type(named).__name__))
        docs = parse_docstring(docstring)
        described = {key.strip(): p.description for p in docs.params for key in p.arg_name.split(",")}
        given = call.keywords if isinstance(call, partial) else {}  # and therefore not by a model
        signature = _signature(call, name)
        hints = _hints(target, name, namespace or {})
        arguments = _arguments_type(name, signature, hints, described, given)
        try:
            validator: TypeAdapter[Any] = TypeAdapter(arguments)
            schema = validator.json_schema()
        except UNDESCRIBABLE as error:
            raise UsageError(f"the parameters of function {name!r} have no JSON schema: {error}") from error
        schema.pop("title", None)
        for key in given:
            schema["properties"].pop(key, None)
        for key, default in _defaults(signature).items():
            if key in schema["properties"]:
                schema["properties"][key].setdefault("default", default)
        summary = "\n\n".join(part for part in (docs.short_description, docs.long_description) if part)
        return cls(
            name=name,
            description=summary if description is None else description,
            parameters=schema,
            call=call,
            is_async=inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call),
            validator=validator,
            positional=tuple([key for key, p in signature.parameters.items() if p.kind is p.POSITIONAL_ONLY]),
            **policy,
        )

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the Python callable, as if it had not been decorated."""
        if self.call is None:
            raise UsageError(f"function {self.name!r} has no callable: its calls are answered from outside")
        return self.call(*args, **kwargs)

    def refusal(self, arguments_json: str) -> str | None:
        """Why these arguments cannot be taken, in words for the model; None when they can."""
        try:
            self._validator.validate_json(arguments_json or "{}")
        except ValidationError as error:
            return described_errors(error)
        return None

    def run(self, arguments_json: str) -> Any:
        """Call it with validated arguments; a coroutine function gives its coroutine."""
        arguments = self._validator.validate_json(arguments_json or "{}")
        if not self.positional:
            return self(**arguments)
        parameters = inspect.signature(cast("Any", self.call)).parameters
        return self(*[arguments.pop(key, parameters[key].default) for key in self.positional], **arguments)

    @property
    def _validator(self) -> SchemaValidator:
        return cast("SchemaValidator", cast("TypeAdapter[Any]", self.validator).validator)


def described_errors(error: ValidationError) -> str:
    """A validation error as one line a field: where, what is wrong, what was given.  Bounded, whatever was given."""
    items = error.errors(include_url=False, include_context=False)
    lines = []
    for item in items[:_MAX_ERRORS]:
        place = ".".join(str(step)[:100] for step in item["loc"][:20]) or "input"
        lines.append(f"{place}: {item['msg'][:1000]} (given: {_SHORT.repr(item['input'])[:200]})")
    if len(items) > _MAX_ERRORS:
        lines.append(f"… and {len(items) - _MAX_ERRORS} more")
    return "\n".join(lines)


def result_text(value: Any) -> str:
    """What a function returned, as the model is told it: a string as it is, anything else as JSON.

    What JSON cannot say (bytes that are no text) is told as Python writes it.
    """
    if isinstance(value, str):  # half a surrogate pair, as in names of files, would get lost on the way
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    try:
        return to_json(value, serialize_unknown=True, inf_nan_mode="strings").decode()
    except PydanticSerializationError:
        return repr(value)


def _explained(call: Callable[..., Any]) -> tuple[Any, str]:
    """What carries the annotations of a callable, and its docstring."""
    target: Any = call.func if isinstance(call, partial) else call
    if inspect.isroutine(target):
        return target, inspect.getdoc(target) or ""
    if inspect.isclass(target):
        return target.__init__, inspect.cleandoc(target.__doc__ or "")
    method = type(target).__call__
    return method, inspect.cleandoc(method.__doc__ or type(target).__doc__ or "")


def _signature(call: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(call)
    except (TypeError, ValueError) as error:
        raise UsageError(f"function {name!r} does not tell its parameters: wrap it in one that does") from error


def _hints(target: Any, name: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of the parameters, resolved; not that of what is returned, which no model sees."""
    annotations = {key: hint for key, hint in getattr(target, "__annotations__", {}).items() if key != "return"}
    scope = getattr(inspect.unwrap(target), "__globals__", {})
    try:
        return get_type_hints(SimpleNamespace(__annotations__=annotations), scope, dict(namespace), include_extras=True)
    except (AttributeError, NameError, SyntaxError, TypeError) as error:
        raise UsageError(f"an annotation of function {name!r} cannot be resolved: {error}") from error


def _refuse(value: Any) -> Any:
    raise ValueError("it is given already")


def _arguments_type(
    name: str,
    signature: inspect.Signature,
    hints: Mapping[str, Any],
    described: Mapping[str, str | None],
    given: Mapping[str, Any],
) -> Any:
    """A TypedDict of the parameters, without those that are given."""
    fields: dict[str, Any] = {}
    is_open = False
    for key, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise UsageError(f"function {name!r} takes '*{key}': a model can only give arguments by name")
        if parameter.kind is parameter.VAR_KEYWORD:
            is_open = True
            fields |= dict.fromkeys(given, NotRequired[Annotated[Any, BeforeValidator(_refuse)]])
        elif key not in given:
            fields[key] = _field(parameter, hints.get(key, parameter.annotation), described.get(key))
    configured = with_config(ConfigDict(extra="allow" if is_open else "forbid"))
    return configured(cast("Any", TypedDict)(name, fields))


def _field(parameter: inspect.Parameter, hint: Any, description: str | None) -> Any:
    """The type of one argument; what its annotation says of itself goes over the docstring."""
    if hint is parameter.empty:
        hint = Any
    if description:
        hint, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        hint = Annotated[(hint, Field(description=description), *notes)]
    if isinstance(parameter.default, FieldInfo):
        return Annotated[hint, parameter.default]
    return hint if parameter.default is parameter.empty else NotRequired[hint]


def _defaults(signature: inspect.Signature) -> dict[str, Any]:
    """The defaults that JSON can say, for the schema."""
    found = {}
    for key, parameter in signature.parameters.items():
        default = parameter.default
        if default is not parameter.empty and default is not None and not isinstance(default, FieldInfo):
            try:
                found[key] = from_json(to_json(default), allow_inf_nan=False)
            except ValueError:
                continue
    return found


def _schema_validator(parameters: Mapping[str, Any]) -> TypeAdapter[Any]:
    """What checks arguments against a JSON Schema, as far as it is read."""
    try:
        return TypeAdapter(_object_said(parameters, 0))
    except UNDESCRIBABLE:
        return TypeAdapter(dict[str, Any])


def _object_said(schema: Mapping[str, Any], depth: int) -> Any:
    properties, required = schema.get("properties"), schema.get("required")
    fields: dict[str, Any] = dict.fromkeys(required, Any) if isinstance(required, list) else {}
    for key, given in properties.items() if isinstance(properties, Mapping) else ():
        said = _type_said(given, depth + 1)
        fields[key] = said if key in fields else NotRequired[said | None]  # models say null of what they leave out
    configured = with_config(ConfigDict(extra="forbid" if schema.get("additionalProperties") is False else "allow"))
    return configured(cast("Any", TypedDict)("arguments", fields))


def _type_said(schema: Any, depth: int) -> Any:
    """The type that a JSON Schema says; `Any` where it says more than types, choices, fields and items."""
    if depth > _MAX_DEPTH:
        return Any
    match schema:
        case {"enum": list(choices)}:
            return Literal[tuple(choices)]
        case {"anyOf": list(kinds)} | {"oneOf": list(kinds)}:
            return reduce(or_, [_type_said(kind, depth + 1) for kind in kinds])
        case {"type": list(kinds)}:
            return reduce(or_, [_type_said({**schema, "type": kind}, depth + 1) for kind in kinds])
        case {"type": "object"}:
            return _object_said(schema, depth)
        case {"type": "array"}:
            return cast("Any", list)[_type_said(schema.get("items"), depth + 1)]
        case {"type": "integer" | "number" | "boolean" as kind, "default": str(default)}:
            return _JSON_TYPES[kind] | Literal[default]
        case {"type": str(kind)}:
            return _JSON_TYPES.get(kind, Any)
    return Any


@overload
def function(call: Callable[..., Any], /) -> Function: ...
@overload
def function(
    *, name: str | None = None, description: str | None = None, **policy: Any
) -> Callable[[Callable[..., Any]], Function]: ...
def function(call: Callable[..., Any] | None = None, /, **options: Any) -> Function | Callable[..., Function]:
    """Make a `Function` of a Python function: ``@function`` or ``@function(needs_approval=True)``."""
    frame = sys._getframe(1)  # annotations may name what stands beside the function
    if call is None:
        return cast("Callable[..., Function]", partial(Function.of, namespace=frame.f_locals, **options))
    is_beside = getattr(inspect.unwrap(call), "__globals__", None) is frame.f_globals
    return Function.of(call, namespace=frame.f_locals if is_beside else None, **options)

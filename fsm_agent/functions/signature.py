"""Describe a Python callable: its name, its parameters as a JSON Schema, its need for a context."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, NotRequired, TypeVar, cast, get_args, get_origin, get_type_hints

import typing_extensions

from fsm_agent._internal.values import Value
from fsm_agent.errors import UsageError
from fsm_agent.functions.arguments import Validator
from fsm_agent.functions.context import Context

_MAY_BE_NONE = re.compile(r"\b(None|Optional|Any|object)\b")
_CONTEXT_NAMES = ("ctx", "context", "run_context", "run_ctx")  # of a parameter that is never meant for a model
_UNRESOLVABLE = (AttributeError, NameError, SyntaxError, TypeError)  # raised for an annotation


def undescribable() -> tuple[type[Exception], ...]:
    """Return the exceptions that pydantic raises at a type without a JSON schema."""
    from pydantic import PydanticUserError
    from pydantic_core import SchemaError

    return (PydanticUserError, SchemaError, AssertionError, NameError, TypeError, ValueError)


class Passing(Value, frozen=True, kw_only=True):
    """The way in which a callable takes its arguments."""

    is_async: bool = False
    takes_context: bool = False  # its first parameter is one
    deps_type: str = ""  # its type of dependencies, unless it may be None
    deps_class: type | None = None  # the same as a class, if it is one
    positional: tuple[tuple[str, Any], ...] = ()  # positional-only parameters, with their defaults


class Description(Value, frozen=True, kw_only=True):
    """A callable as it is described to a model."""

    name: str
    text: str
    parameters: dict[str, Any]  # JSON Schema
    validator: Validator
    passing: Passing


def described(call: Callable[..., Any], name: str | None, namespace: Mapping[str, Any]) -> Description:
    """Read a callable's signature, annotations and docstring.

    Raises:
        UsageError: A parameter cannot be described to a model.
    """
    import docstring_parser
    from pydantic import TypeAdapter

    target, docstring = _find_docstring(call)
    named = call.func if isinstance(call, partial) else call
    name = str(name or getattr(call, "__name__", "") or getattr(named, "__name__", type(named).__name__))
    docs = docstring_parser.parse(docstring)
    documented = {key.strip(): p.description for p in docs.params for key in p.arg_name.split(",")}
    bound = call.keywords if isinstance(call, partial) else {}  # bound, and therefore not for a model
    signature = _signature(call, name)
    hints = _hints(call, target, signature, name, namespace)
    context = _context(name, signature, hints, bound)
    offered = [p for p in signature.parameters.values() if p.name != context]
    arguments = _arguments_type(name, offered, hints, documented, bound)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(arguments)
        schema = adapter.json_schema()
    except undescribable() as error:
        raise UsageError(f"the parameters of function {name!r} have no JSON schema: {error}") from error
    schema.pop("title", None)
    for key in bound:
        schema["properties"].pop(key, None)
    for parameter in offered:
        if parameter.name in schema["properties"] and (default := _default(parameter)) is not None:
            schema["properties"][parameter.name].setdefault("default", default)
    return Description(
        name=name,
        text="\n\n".join(part for part in (docs.short_description, docs.long_description) if part),
        parameters=schema,
        validator=adapter.validator,
        passing=Passing(
            is_async=inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call),
            takes_context=context is not None,
            **(_deps_type(call, target, signature, hints, namespace) if context else {}),
            positional=_positional(offered),
        ),
    )


def passing(call: Callable[..., Any], name: str, schema: Mapping[str, Any]) -> Passing:
    """Return how a callable takes arguments that are described already.

    Raises:
        UsageError: It does not accept an argument of the schema, or needs one that the schema does not require.
    """
    target, _ = _find_docstring(call)
    signature = _signature(call, name)
    bound = call.keywords if isinstance(call, partial) else {}
    hints = _hints(call, target, signature, name, {})
    context = _context(name, signature, hints, bound)
    kept = [p for p in signature.parameters.values() if p.name != context and p.name not in bound]
    properties, required = schema.get("properties") or {}, schema.get("required") or ()
    names = {p.name for p in kept if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    is_open = any(p.kind is p.VAR_KEYWORD for p in kept)
    if untaken := [key for key in (*properties, *required) if key not in names and not is_open]:
        raise UsageError(
            f"what is linked to function {name!r}: expected a parameter {untaken[0]!r}, as its schema offers"
        )
    needed = [p.name for p in kept if p.name in names and p.default is p.empty]
    if missing := [key for key in needed if key not in required]:
        raise UsageError(
            f"what is linked to function {name!r}: expected a default for {missing[0]!r}, which its schema does not"
            " require"
        )
    is_async = inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call)
    deps = _deps_type(call, target, signature, hints, {}) if context else {}
    return Passing(is_async=is_async, takes_context=context is not None, positional=_positional(kept), **deps)


def _positional(parameters: list[inspect.Parameter]) -> tuple[tuple[str, Any], ...]:
    return tuple([(p.name, p.default) for p in parameters if p.kind is p.POSITIONAL_ONLY])


def _find_docstring(call: Callable[..., Any]) -> tuple[Any, str]:
    """Return the object with the code of a callable, and its docstring."""
    target: Any = call.func if isinstance(call, partial) else call
    if inspect.isroutine(target):
        return target, inspect.getdoc(target) or ""
    if inspect.isclass(target):
        return target.__init__, inspect.cleandoc(target.__doc__ or "")
    method = type(target).__call__
    return method, inspect.cleandoc(method.__doc__ or type(target).__doc__ or "")


def _signature(call: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the parameters of function {name!r} are unknown; wrap it in a function that has them"
        ) from error
    first = next(iter(signature.parameters.values()), None)
    owner = getattr(call, "__qualname__", "").rpartition(".")[0]
    if first and first.name == "self" and first.annotation is first.empty and owner and not owner.endswith("<locals>"):
        raise UsageError(f"function {name!r} is a method without its object; pass Function.of(an_object.{name})")
    return signature


def _hints(
    call: Any, target: Any, signature: inspect.Signature, name: str, namespace: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the resolved annotations of the parameters; not that of the result, which no model sees."""
    annotations = {key: p.annotation for key, p in signature.parameters.items() if p.annotation is not p.empty}
    scope = _scope(call, target)
    for key in [key for key in signature.parameters if key in annotations][:1]:
        head, bracket, _ = annotations[key].partition("[") if isinstance(annotations[key], str) else ("", "", "")
        if bracket and _is_context(_evaluated({key: head}, scope, namespace).get(key)):
            annotations[key] = Context  # its type of dependencies is often known to type checkers only
    try:
        return _resolved(annotations, scope, namespace)
    except _UNRESOLVABLE as error:
        raise UsageError(f"an annotation of function {name!r} cannot be resolved: {error}") from error


def _scope(call: Any, target: Any) -> dict[str, Any]:
    """Return the names that annotations may use."""
    module = sys.modules.get(getattr(call, "__module__", None) or "")
    return getattr(inspect.unwrap(target), "__globals__", None) or vars(module or SimpleNamespace())


def _deps_type(
    call: Any, target: Any, signature: inspect.Signature, hints: Mapping[str, Any], namespace: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the type of dependencies in the annotation of the context, as fields of `Passing`; {}: it may be None."""
    key, parameter = next((key, p) for key, p in signature.parameters.items() if _is_context(hints.get(key)))
    hint = getattr(hints[key], "__value__", hints[key])
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if not get_args(hint) and isinstance(parameter.annotation, str):  # `_hints` omitted it
        inner = parameter.annotation.partition("[")[2].rpartition("]")[0]
        resolved = _evaluated({key: inner}, _scope(call, target), namespace) if inner else {key: None}
        if key not in resolved:  # defined for type checkers only
            return {} if _MAY_BE_NONE.search(inner) else {"deps_type": inner}
        return {} if _may_be_none(resolved[key]) else _type_fields(inner, resolved[key])
    found = [arg for arg in get_args(hint) if not _may_be_none(arg)]
    return _type_fields(getattr(found[0], "__name__", str(found[0])), found[0]) if found else {}


def deps_of_second(call: Callable[..., Any]) -> dict[str, Any]:
    """Return the type of dependencies of a function of data and a context, as fields of `Passing`; {}: none."""
    target, signature = _find_docstring(call)[0], inspect.signature(call)
    parameter = [*signature.parameters.values()][1]
    annotation, scope = parameter.annotation, _scope(call, target)
    hints = _evaluated({parameter.name: annotation}, scope, {})
    if not hints and isinstance(annotation, str):  # its type of dependencies is known to type checkers only
        hints = _evaluated({parameter.name: annotation.partition("[")[0]}, scope, {})
    return _deps_type(call, target, signature, hints, {}) if _is_context(hints.get(parameter.name)) else {}


def _type_fields(name: str, hint: Any) -> dict[str, Any]:
    return {"deps_type": name, "deps_class": hint if isinstance(hint, type) and get_origin(hint) is None else None}


def _may_be_none(hint: Any) -> bool:
    hint = getattr(hint, "__value__", hint)
    return hint in (None, type(None), Any, object) or isinstance(hint, TypeVar) or type(None) in get_args(hint)


def _resolved(annotations: dict[str, Any], scope: dict[str, Any], namespace: Mapping[str, Any]) -> dict[str, Any]:
    return get_type_hints(SimpleNamespace(__annotations__=annotations), scope, dict(namespace), include_extras=True)


def _evaluated(annotations: dict[str, Any], scope: dict[str, Any], namespace: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return _resolved(annotations, scope, namespace)
    except _UNRESOLVABLE:
        return {}


def _is_context(hint: Any) -> bool:
    hint = getattr(hint, "__value__", hint)  # of a named alias
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint is Context or get_origin(hint) is Context


def _mentions_context(hint: Any) -> bool:
    return _is_context(hint) or any(_mentions_context(inner) for inner in get_args(hint))


def _context(name: str, signature: inspect.Signature, hints: Mapping[str, Any], bound: Mapping[str, Any]) -> str | None:
    """Return the name of the parameter that is the context, which no model fills."""
    context = None
    for index, (key, parameter) in enumerate(signature.parameters.items()):
        if index == 0 and key in _CONTEXT_NAMES and parameter.annotation is parameter.empty and key not in bound:
            raise UsageError(
                f"parameter {key!r} of function {name!r}: expected an annotation, got none; annotate it with"
                " Context for"
                " what the agent gives, or with another type for what the model gives"
            )
        if key in bound or not _mentions_context(hints.get(key)):
            continue
        by_position = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if index > 0 or not by_position or not _is_context(hints[key]):
            raise UsageError(
                f"parameter {key!r} of function {name!r}: expected the Context as the first parameter, by position;"
                " move"
                " it there, annotated Context or Context[…]"
            )
        context = key
    return context


def _refuse(value: Any) -> Any:
    raise ValueError("it is already given")


def _arguments_type(
    name: str,
    parameters: list[inspect.Parameter],
    hints: Mapping[str, Any],
    documented: Mapping[str, str | None],
    bound: Mapping[str, Any],
) -> Any:
    """Return a TypedDict of the parameters, without the bound ones."""
    from pydantic import BeforeValidator, ConfigDict, with_config

    fields: dict[str, Any] = {}
    is_open = False
    for parameter in parameters:
        key = parameter.name
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise UsageError(
                f"function {name!r}: expected parameters that have names, since a model gives arguments by name, got"
                f" '*{key}'"
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            is_open = True
            fields |= dict.fromkeys(bound, NotRequired[Annotated[Any, BeforeValidator(_refuse)]])
        elif key not in bound:
            fields[key] = _field(parameter, hints.get(key, Any), documented.get(key))
    configured = with_config(ConfigDict(extra="allow" if is_open else "forbid"))
    return configured(cast("Any", typing_extensions.TypedDict)(name, fields))


def _field(parameter: inspect.Parameter, hint: Any, description: str | None) -> Any:
    """Return the type of one argument; a description in its annotation takes precedence over the docstring."""
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


def _default(parameter: inspect.Parameter) -> Any:
    """Return the default for the schema, if it can be written as JSON."""
    from pydantic.fields import FieldInfo
    from pydantic_core import from_json, to_json

    default = parameter.default
    if default is parameter.empty or default is None or isinstance(default, FieldInfo):
        return None
    try:
        return from_json(to_json(default), allow_inf_nan=False)
    except ValueError:
        return None

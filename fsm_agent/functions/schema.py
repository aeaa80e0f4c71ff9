"""Describes a function's parameters as a JSON Schema, without the one that takes the `Context`."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, cached_property, partial
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NotRequired,
    Required,
    TypeVar,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import typing_extensions
from pydantic_core import (
    PydanticSerializationError,
    SchemaError,
    SchemaValidator,
    ValidationError,
    from_json,
    to_json,
)

from fsm_agent._internal.structs import holds_decimal
from fsm_agent.errors import FlowError, UsageError
from fsm_agent.functions.arguments import ExactValidator
from fsm_agent.functions.context import Context

if TYPE_CHECKING:
    from pydantic.json_schema import GenerateJsonSchema

_MAY_BE_NONE = re.compile(r"\b(None|Optional|Any|object)\b")
_UNPACK = (Unpack, typing_extensions.Unpack)  # two objects until Python 3.12
_CONTEXT_NAMES = ("ctx", "context", "run_context", "run_ctx")  # names of parameters that are never meant for a model
_PARAMETERS_FIRST = re.compile(r"\A((?:Args|Arguments|Parameters|Params):\n)(.*)", re.DOTALL)
_SECTION = re.compile(  # the first line of a section as Google and Sphinx write it
    r"(Args|Arguments|Param(eter)?s|Raises|Except(ion)?s?|Attributes|Examples?|Returns|Yields):$"
    r"|(?P<field>:)(param(eter)?|arg(ument)?|key(word)?|type|raises?|except(ion)?|returns?|rtype|yields?)\b[^:]*:"
)
_NOTES = ("warnings", "notes")  # sections as numpy writes them; in other styles, they are text
_NO_DESCRIPTION = "-"
_UNCHANGED = (str, int, bool, type(None))  # JSON keeps a value of these types as it is
_UNRESOLVABLE = (AttributeError, NameError, SyntaxError, TypeError)  # raised for an annotation


def undescribable() -> tuple[type[Exception], ...]:
    """Return the exceptions that pydantic raises for a type without a JSON schema."""
    from pydantic import PydanticUserError

    return (PydanticUserError, SchemaError, AssertionError, NameError, TypeError, ValueError)


@cache
def input_schema() -> type[GenerateJsonSchema]:
    """Return a generator of JSON Schema that refuses an enumeration if JSON cannot express one of its values.

    pydantic describes the value ``(1, 2)`` as ``[1, 2]``, but does not accept this list from a model.
    """
    from pydantic import PydanticUserError
    from pydantic.json_schema import GenerateJsonSchema

    def check(schema: Any, members: list[Any]) -> None:
        values = [member.value if isinstance(member, Enum) else member for member in members]
        unsure = [member for member, value in zip(members, values, strict=True) if type(value) not in _UNCHANGED]
        validator = SchemaValidator(schema) if unsure else None
        for member in unsure:
            try:
                is_read = validator and validator.validate_json(to_json(member, inf_nan_mode="null")) == member
            except (ValidationError, PydanticSerializationError):
                is_read = False
            if not is_read:
                why = f"{member!r}: expected a value that JSON can express, such as a string or a number"
                raise PydanticUserError(why, code=None)

    class InputSchema(GenerateJsonSchema):
        def enum_schema(self, schema: Any) -> dict[str, Any]:
            check(schema, schema["members"])
            return super().enum_schema(schema)

        def literal_schema(self, schema: Any) -> dict[str, Any]:
            check(schema, schema["expected"])
            return super().literal_schema(schema)

    return InputSchema


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
    docs = docstring_parser.parse(_text_first(_PARAMETERS_FIRST.sub(_described, signature.docstring)))
    notes = [meta.description for meta in docs.meta if meta.args[0] in _NOTES]
    texts = (docs.short_description, docs.long_description, *notes)
    documented = {key.strip(): p.description for p in docs.params for key in p.arg_name.split(",")}
    arguments = signature.arguments_type(documented)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(arguments)
        schema = adapter.json_schema(schema_generator=input_schema())
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
        "validator": ExactValidator(adapter.validator) if holds_decimal(adapter.core_schema) else adapter.validator,
        **signature.passing(),
    }


def passing(call: Callable[..., Any], name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `Function` fields that say how to pass an existing schema's arguments to a callable.

    Raises:
        UsageError: If the callable does not accept one of the schema's arguments, or needs one that the schema does not
            require.
    """
    signature = _Signature(call, name, {})
    kept = [p for p in signature.offered if p.name not in signature.bound]
    properties, required = schema.get("properties") or {}, schema.get("required") or ()
    names = {p.name for p in kept if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    is_open = any(p.kind is p.VAR_KEYWORD for p in kept)
    what = f"the callable for function {name!r}"
    if untaken := [key for key in (*properties, *required) if key not in names and not is_open]:
        raise UsageError(f"{what}: expected a parameter {untaken[0]!r}, which its schema has, got none")
    needed = [p.name for p in kept if p.name in names and p.default is p.empty]
    if missing := [key for key in needed if key not in required]:
        raise UsageError(f"{what}: expected a default for {missing[0]!r}, which its schema does not require, got none")
    return signature.passing()


def deps_of_second(call: Callable[..., Any]) -> dict[str, Any]:
    """Return the `Function` fields that describe the deps type of a state's function, or {} if it declares none.

    Raises:
        FlowError: If the second parameter is annotated with another class than `Context`.
    """
    name = str(getattr(call, "__name__", call))
    signature = _Signature(call, name, {})
    parameter = [*signature.parameters.values()][1]
    hint = signature.evaluated(signature.without_deps(parameter))
    if _is_context(hint):
        return signature.deps_fields(parameter, hint)
    is_open = hint in (Any, object, parameter.empty) or not isinstance(hint, type)
    if not is_open and not typing_extensions.is_protocol(hint):
        right = "expected Context or Context[…] after the data, or after the item of each(…)"
        raise FlowError(f"function {name!r}: parameter {parameter.name!r}: {right}, got {hint.__name__}")
    return {}


def _with_dispatched(call: Any, parameters: Mapping[str, inspect.Parameter]) -> Mapping[str, inspect.Parameter]:
    """Return a callable's parameters.  A `functools.singledispatch` function takes its first argument by position."""
    target = call.func if isinstance(call, partial) else call
    first = next(iter(parameters.values()), None)
    if first is None or first.kind is not first.POSITIONAL_OR_KEYWORD or not hasattr(target, "dispatch"):
        return parameters
    return {**parameters, first.name: first.replace(kind=first.POSITIONAL_ONLY)}


class _Signature:
    """A callable's signature, whose annotations are resolved where the callable was defined."""

    def __init__(self, call: Any, name: str, namespace: Mapping[str, Any]) -> None:
        self._call, self._name, self._namespace = call, name, namespace
        self._target, self.docstring = _find_docstring(call)
        self.bound = call.keywords if isinstance(call, partial) else {}  # not offered to a model
        try:
            self.parameters = _with_dispatched(call, inspect.signature(call).parameters)
        except (TypeError, ValueError) as error:
            remedy = "wrap it in a function with named parameters"
            raise UsageError(f"the signature of function {name!r} cannot be read; {remedy}") from error
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
                if hasattr(self._call, "register"):
                    remedy = "functools.singledispatchmethod hides it, so wrap it in a function with named parameters"
                raise UsageError(f"function {self._name!r} is a method without its object; {remedy}")
            if is_bare and key in _CONTEXT_NAMES and key not in self.bound:
                right = "an annotation: Context, or the type of an argument that the model gives"
                raise UsageError(f"parameter {key!r} of function {self._name!r}: expected {right}, got none")
            if key in self.bound or not _mentions_context(self._hints.get(key)):
                continue
            by_position = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            if index > 0 or not by_position or not _is_context(self._hints[key]):
                right = "Context or Context[…] only as the first parameter, by position"
                raise UsageError(f"parameter {key!r} of function {self._name!r}: expected {right}; move it there")
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
                right = "parameters with names, by which a model gives arguments"
                raise UsageError(f"function {self._name!r}: expected {right}, got '*{key}'")
            if parameter.kind is parameter.VAR_KEYWORD:
                hint = self._hints.get(key, Any)
                if get_origin(hint) in _UNPACK:
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


def _text_first(docstring: str) -> str:
    """Move text beneath the sections to a place above them, because the parser of docstrings drops it."""
    texts, sections = list[str](), list[str]()
    kept, is_field = texts, False
    lines = docstring.split("\n")
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        heading = _SECTION.match(line)
        if heading and (heading["field"] or after[:1].isspace()):
            kept, is_field = sections, bool(heading["field"])
        elif line and not line[0].isspace() and not (is_field and before):  # a field may go on without an indent
            kept = texts
        kept.append(line)
    return "\n".join([*texts, "", *sections]) if sections else docstring


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
    is_required = parameter.default is parameter.empty or isinstance(parameter.default, FieldInfo)
    if isinstance(parameter.default, FieldInfo):
        notes.append(parameter.default)
    elif not is_required and (others := [n for n in notes if isinstance(n, FieldInfo) and not n.is_required()]):
        default = parameter.default  # as in Python, it wins over the annotation's
        is_made = any(other.default_factory for other in others)  # pydantic refuses a default beside a factory
        notes.append(Field(default_factory=lambda: default) if is_made else Field(default=default))
    if notes:
        hint = Annotated[(hint, *notes)]
    return hint if is_required else NotRequired[hint]


def _items_of(typed_dict: Any) -> dict[str, Any]:
    hints = get_type_hints(typed_dict, include_extras=True)
    optional = {
        k for k, v in hints.items() if get_origin(v) not in (NotRequired, Required)
    } - typed_dict.__required_keys__
    return {key: NotRequired[hint] if key in optional else hint for key, hint in hints.items()}


def _default(parameter: inspect.Parameter) -> Any:
    from pydantic.fields import FieldInfo

    default = parameter.default
    if default is parameter.empty or default is None or isinstance(default, FieldInfo):
        return None
    try:
        return from_json(to_json(default), allow_inf_nan=False)
    except ValueError:
        return None

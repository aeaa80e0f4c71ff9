"""What may a model ask for, and how is it described and run?"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, NotRequired, cast, get_type_hints, overload

from docstring_parser import parse as parse_docstring
from pydantic import ConfigDict, Field, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticUndefined, from_json, to_json, to_jsonable_python
from typing_extensions import TypedDict

from fsm_agent.errors import UsageError

NAME_CHARACTERS = "letters, digits, '_' and '-', 64 at most"  # what every provider takes


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
    needs_approval: bool = False
    repeatable: bool = False  # run again when asked again with the same arguments (a clock, a dice, a poll)
    validator: TypeAdapter[Any] | None = field(default=None, repr=False)
    positional: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= 64 or not all(c.isascii() and (c.isalnum() or c in "_-") for c in self.name):
            raise UsageError(f"the function name {self.name!r} will be refused by providers: use {NAME_CHARACTERS}")

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
            return call
        target = call.func if isinstance(call, partial) else call
        if not inspect.isroutine(target):
            target = type(target).__call__
        name = name or getattr(call, "__name__", None) or getattr(target, "__name__", type(call).__name__)
        if name == "__call__":
            name = type(call).__name__
        docs = parse_docstring(inspect.getdoc(target) or "")
        described = {p.arg_name: p.description for p in docs.params if p.description}
        arguments, positional = _arguments_type(call, target, name, described, namespace or {})
        try:
            validator: TypeAdapter[Any] = TypeAdapter(arguments)
            parameters = validator.json_schema()
        except (PydanticUserError, PydanticSchemaGenerationError) as error:
            raise UsageError(f"the parameters of function {name!r} have no JSON schema: {error}") from error
        parameters.pop("title", None)
        for key, default in _defaults(call).items():
            parameters["properties"][key].setdefault("default", default)
        summary = "\n\n".join(part for part in (docs.short_description, docs.long_description) if part)
        return cls(
            name=name,
            description=summary if description is None else description,
            parameters=parameters,
            call=call,
            is_async=inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call),
            validator=validator,
            positional=positional,
            **policy,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the Python callable, as if it had not been decorated."""
        if self.call is None:
            raise UsageError(f"function {self.name!r} has no callable: its calls are answered from outside")
        return self.call(*args, **kwargs)

    def refusal(self, arguments_json: str) -> str | None:
        """Why these arguments cannot be taken, in words for the model; None when they can."""
        if self.validator is None:
            return None
        try:
            self.validator.validator.validate_json(arguments_json or "{}")
        except ValidationError as error:
            return described_errors(error)
        return None

    def run(self, arguments_json: str) -> Any:
        """Call it with validated arguments; a coroutine function gives its coroutine."""
        if self.validator is None:
            return self(**from_json(arguments_json or "{}"))
        arguments = self.validator.validator.validate_json(arguments_json or "{}")
        return self(*[arguments.pop(key) for key in self.positional if key in arguments], **arguments)


def described_errors(error: ValidationError) -> str:
    """A validation error as one line a field: where, what is wrong, what was given."""
    lines = []
    for item in error.errors(include_url=False, include_context=False):
        place = ".".join(str(step) for step in item["loc"]) or "input"
        given = repr(item.get("input"))
        lines.append(f"{place}: {item['msg']} (given: {given if len(given) <= 80 else given[:77] + '...'})")
    return "\n".join(lines)


def result_text(value: Any) -> str:
    """What a function returned, as the model is told it: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else to_json(value, serialize_unknown=True, inf_nan_mode="strings").decode()


def _arguments_type(
    call: Callable[..., Any],
    target: Callable[..., Any],
    name: str,
    described: Mapping[str, str],
    namespace: Mapping[str, Any],
) -> tuple[Any, tuple[str, ...]]:
    """A TypedDict of the parameters, and the names of those that are given by position."""
    try:
        hints = get_type_hints(target, localns=dict(namespace), include_extras=True)
    except NameError as error:
        raise UsageError(f"an annotation of function {name!r} cannot be resolved: {error}") from error
    fields: dict[str, Any] = {}
    positional: list[str] = []
    extra: bool = False
    for key, parameter in inspect.signature(call).parameters.items():
        hint = hints.get(key, Any)
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise UsageError(f"function {name!r} takes '*{key}': a model can only give arguments by name")
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = True
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(key)
        if key in described:
            hint = Annotated[hint, Field(description=described[key])]
        fields[key] = hint if parameter.default is parameter.empty else NotRequired[hint]
    arguments: Any = TypedDict(name, fields)  # type: ignore[misc]  # its fields are known only now
    arguments.__pydantic_config__ = ConfigDict(extra="allow" if extra else "forbid")
    return arguments, tuple(positional)


def _defaults(call: Callable[..., Any]) -> dict[str, Any]:
    """The defaults that JSON can say, for the schema."""
    found = {}
    for key, parameter in inspect.signature(call).parameters.items():
        if parameter.default not in (parameter.empty, None, PydanticUndefined):
            try:
                found[key] = to_jsonable_python(parameter.default)
            except ValueError:
                continue
    return found


@overload
def function(call: Callable[..., Any], /) -> Function: ...
@overload
def function(
    *, name: str | None = None, description: str | None = None, **policy: Any
) -> Callable[[Callable[..., Any]], Function]: ...
def function(call: Callable[..., Any] | None = None, /, **options: Any) -> Function | Callable[..., Function]:
    """Make a `Function` of a Python function: ``@function`` or ``@function(needs_approval=True)``."""
    namespace = sys._getframe(1).f_locals  # so that annotations may name what stands beside the function
    if call is not None:
        return Function.of(call, namespace=namespace)
    return cast("Callable[..., Function]", partial(Function.of, namespace=namespace, **options))

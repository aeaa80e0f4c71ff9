"""Functions that a model may request: how they are described and called."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pkgutil import resolve_name
from typing import Any, Concatenate, Generic, Protocol, Unpack, cast, overload

import msgspec
from pydantic_core import PydanticSerializationError, to_json
from typing_extensions import ParamSpec, TypeVar

from fsm_agent._internal.registry import Registry, source_of
from fsm_agent._internal.structs import changed_repr
from fsm_agent.errors import ParseError, UsageError
from fsm_agent.functions.arguments import (
    REFUSALS,
    ArgumentsValidator,
    Validator,
    in_current_draft,
    refused,
    validate_arguments,
)
from fsm_agent.functions.context import Context, Delegate, accepts_context

# The redundant aliases are for the type hints of `Function.__init__`, which has the fields of `Policy`.
from fsm_agent.functions.policy import Default as Default
from fsm_agent.functions.policy import Middleware as Middleware
from fsm_agent.functions.policy import OnError as OnError
from fsm_agent.functions.policy import Policy, PolicyOptions, check_names, check_policy
from fsm_agent.functions.policy import Retries as Retries
from fsm_agent.functions.schema import described, passing
from fsm_agent.messages.message import ATTACH, Attachment, FunctionCall, object_text
from fsm_agent.validation import require

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any, covariant=True)
Deps = TypeVar("Deps", default=Any, contravariant=True)
Args = ParamSpec("Args")
Result = TypeVar("Result")
FnDeps = TypeVar("FnDeps")  # the deps of a function's context

NAME_CHARACTERS = "letters, digits, '_' and '-', 64 at most"  # what every provider accepts
ATTACHED = "[attachment {}]"  # stands for a file in the text of a result
_LONG = 1 << 64
_NO_DOCSTRINGS = (
    "python -OO removes docstrings, so models see no descriptions of functions and arguments;"
    " use -O, or pass description=… to each function"
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Function(Policy, Generic[P, R, Deps]):
    """A function that a model may request, with a name, a description, a schema, a policy, and usually a callable.

    `Function.of` makes a function from a Python callable.  A function without a callable is answered from outside: it
    suspends the agent call until a person or a program provides the outcome, unless `link` adds a callable.

    The model gets a string unchanged, an empty string as ``{}``, and any other result as JSON.  A function that calls
    ``sys.exit()`` fails in the same way as one that raises an exception.

    A recursive union among the parameters needs a ``Field(discriminator=…)``.  Without one, pydantic tries every member
    at every level, and deeply nested arguments take exponential time.

    For type checkers, a function has its callable's signature and the type of the deps that it needs, as in
    ``Function[[Context[Shop], str], float, Shop]``.

    Examples:
        >>> def add(a: int, b: int = 1) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> adding = Function.of(add, needs_approval=True)
        >>> adding.name, adding.description, adding.parameters["required"]
        ('add', 'Add two numbers.', ['a'])
        >>> adding(2)
        3
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})  # JSON Schema
    call: Callable[..., Any] | None = field(default=None, repr=False)
    is_async: bool = False
    takes_context: bool = False  # its first argument is a `Context`, which no model sees
    deps_type: str = field(default="", repr=False)  # the type of the context's deps, unless they may be None
    deps_class: type | None = field(default=None, repr=False)  # the same type, if it is a class
    positional: tuple[tuple[str, Any], ...] = field(default=(), repr=False)  # positional-only parameters, with defaults
    validator: Validator | None = field(default=None, repr=False)  # made from the schema if None
    delegate: Delegate | None = field(default=None, repr=False)  # the agent or flow behind the function
    source: Callable[..., Any] | None = field(default=None, repr=False)  # what the schema and validator were made from

    __repr__ = changed_repr

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= 64 or not all(c.isascii() and (c.isalnum() or c in "_-") for c in self.name):
            remedy = "; pass Function.of(lambda …, name='double')" if self.name == "<lambda>" else ""
            raise UsageError(f"the name of a function: expected {NAME_CHARACTERS}, got {self.name!r:.80}{remedy}")
        check_policy(self, f"function {self.name!r}")
        is_schema = isinstance(self.parameters, Mapping)
        require(f"parameters of function {self.name!r}", self.parameters, is_schema, "a JSON Schema")
        is_right = self.call is not None or self.acall is None
        require(f"call of function {self.name!r}", self.call, is_right, "a plain function besides acall")
        if self.validator is None:
            object.__setattr__(self, "parameters", in_current_draft(self.parameters))
        object.__setattr__(self, "description", self.description or "")
        note = f"Deprecated: {self.deprecated}" if self.deprecated else ""
        if note not in self.description:
            object.__setattr__(self, "description", f"{self.description}\n\n{note}".strip())
        if self.call and any(map(inspect.iscoroutinefunction, (self.call, type(self.call).__call__))):
            object.__setattr__(self, "is_async", True)  # however it was made, since a driver must be able to cancel it
        if callable(self.needs_approval):
            accepts_context(self.needs_approval, f"needs_approval of function {self.name!r}")

    @cached_property
    def is_plain(self) -> bool:
        """True if the policy does not affect how the function runs."""
        return not (self.takes_context or self.retries or self.middleware or self.on_error == "retry")

    @cached_property
    def is_awaited(self) -> bool:
        """True if the function or one of its middlewares is a coroutine function."""
        return self.is_async or any(inspect.iscoroutinefunction(use) for use in self.middleware)

    @cached_property
    def takes_thread(self) -> bool:
        """True if the function could block an event loop and therefore needs a thread."""
        return self.blocking and self.acall is None and not self.is_awaited

    @cached_property
    def asks_with_context(self) -> bool:
        """True if `needs_approval` is a predicate that takes a `Context`."""
        owner = f"needs_approval of function {self.name!r}"
        return callable(self.needs_approval) and accepts_context(self.needs_approval, owner)

    @cached_property
    def _validator(self) -> Validator:
        return self.validator or ArgumentsValidator(self.parameters)

    @classmethod
    def of(
        cls,
        call: Callable[Args, Result],
        *,
        name: str | None = None,
        description: str | None = None,
        namespace: Mapping[str, Any] | None = None,
        **policy: Unpack[PolicyOptions],
    ) -> Function[Args, Result]:
        """Make a function from a Python callable, its signature and its docstring.

        Args:
            call: A function, method, coroutine function, partial, object with ``__call__``, or `Function`.  A
                `Function` is copied with the changes given here.
            name: The name that the model sees; by default, the callable's name.
            description: What the function does; by default, the first paragraphs of the docstring.
            namespace: Names that the annotations may use, in addition to the names in the callable's module.
            policy: The fields of `Policy`.

        Raises:
            UsageError: If a parameter cannot be described to a model, or the name or policy is invalid.
        """
        check_names(policy)
        if isinstance(call, Function):
            return call._changed(name, description, policy)
        if not callable(call):
            raise UsageError(f"expected a function, method, partial or object with __call__, got {call!r:.80}")
        read = described(call, name, namespace or {})
        if description is None and not read["description"] and sys.flags.optimize > 1:
            warnings.warn(_NO_DOCSTRINGS, stacklevel=2)
        if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
            remedy = "return a list of the items, or report them with Context.emit(…)"
            raise UsageError(f"function {read['name']!r}: expected a function that returns, got a generator; {remedy}")
        if description is not None:
            read["description"] = description
        make: Any = cls  # `call` determines P and R
        made: Function[Args, Result] = make(**read, call=call, source=call, **policy)
        return made

    def _changed(self, name: str | None, description: str | None, policy: PolicyOptions) -> Function[P, R, Deps]:
        changed = {"name": name, "description": description}
        changes: dict[str, Any] = {key: value for key, value in changed.items() if value is not None}
        changes.update(policy)
        if "deprecated" in policy and self.deprecated and description is None:
            changes["description"] = self.description.replace(f"Deprecated: {self.deprecated}", "").strip()
        return replace(self, **changes) if changes else self

    def link(self, call: Callable[Args, Result], acall: Callable[..., Any] | None = None) -> Function[Args, Result]:
        """Return a copy of this function that runs ``call``.

        Args:
            call: A callable that takes the schema's arguments by name.  If its first parameter is annotated `Context`,
                it gets the context first.
            acall: The ``async`` version of ``call``.

        Raises:
            UsageError: If ``call`` does not accept one of the schema's arguments, or needs one that the schema does not
                require.
        """
        if isinstance(call, Function):
            call = cast("Callable[..., Any]", call.call)
        if not callable(call):
            raise UsageError(f"the callable for function {self.name!r}: expected a callable, got {call!r:.80}")
        this: Any = self  # P and R change
        linked: Function[Args, Result] = replace(
            this, call=call, acall=acall, **passing(call, self.name, self.parameters)
        )
        return linked

    def __copy__(self) -> Function[P, R, Deps]:
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Function[P, R, Deps]:
        memo[id(self.validator)] = self.validator  # never changes, and is large
        return replace(self, **{name: deepcopy(value, memo) for name, value in self._init_fields().items()})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a function by reference if a module contains it, otherwise by its fields.

        Raises:
            UsageError: If no module contains the callable, so that another process could not find it.
        """
        if _held(self.call) is self:
            return resolve_name, (_home(self.call),)
        state = self._init_fields()
        del state["validator"]
        for name in ("call", "acall", "source"):
            held = _held(state[name])
            if isinstance(held, Function):  # it has replaced its callable in the module
                state[name] = held
            elif inspect.isfunction(state[name]) and held is not state[name]:
                why = f"no other process can find {name}={state[name]!r:.200}; define it at the top of a module"
                raise UsageError(f"function {self.name!r} cannot be pickled: {why}")
        return _unpickled, (state,)

    def _init_fields(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self) if item.init}

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the Python callable, as if it had not been decorated."""
        return self._callable()(*args, **kwargs)

    def bind(self, arguments_json: str) -> dict[str, Any]:
        """Return the arguments for one run, validated and converted.  The run may modify them.

        Raises:
            ParseError: If the arguments are invalid.  The message of the error tells the model why.
        """
        return self._checked(object_text(arguments_json))[1]

    def normalize(self, arguments_json: str) -> str:
        """Return the arguments as JSON in the form that the function accepts.

        Some models write a list as text, or null for an argument that they leave out.  Code that decides whether to
        allow a call must see the arguments that the function will get.

        Raises:
            ParseError: If the arguments are invalid.  The message of the error tells the model why.
        """
        text = object_text(arguments_json)
        taken, _ = self._checked(text)
        return arguments_json if taken is text else taken

    def refusal(self, arguments_json: str) -> str | None:
        """Return an error message for the model if these arguments are invalid, otherwise None."""
        try:
            self.bind(arguments_json)
        except ParseError as error:
            return str(error)
        return None

    def _checked(self, text: str) -> tuple[str, dict[str, Any]]:
        """Return `(json, values)`: the arguments in the form that the function accepts, and as validated values."""
        try:
            return validate_arguments(self._validator, text, self.parameters)
        except REFUSALS as error:
            raise refused(error) from error

    def run(self, arguments: str | Mapping[str, Any], context: Context[Any] | None = None) -> Any:
        """Call the function.  A coroutine function returns its coroutine.

        Args:
            arguments: The arguments as the model wrote them, or as `bind` returned them.
            context: The context to pass to a function that accepts one.

        Raises:
            ParseError: If the arguments are invalid.
        """
        return self._invoke(self._callable(), arguments, context)

    def arun(self, arguments: str | Mapping[str, Any], context: Context[Any] | None = None) -> Any:
        """Call the function as `run` does, but use its `acall` if it has one.  Return a value or an awaitable."""
        return self._invoke(self.acall or self.call or self._callable(), arguments, context)

    def _callable(self) -> Callable[..., R]:
        if self.call is None:
            raise UsageError(f"function {self.name!r} has no callable, since its calls are answered from outside")
        return self.call

    def _invoke(
        self, call: Callable[..., Any], arguments: str | Mapping[str, Any], context: Context[Any] | None
    ) -> Any:
        bound = self.bind(arguments) if isinstance(arguments, str) else arguments
        if not self.takes_context and not self.positional:
            return call(**bound)
        if self.takes_context and context is None:
            raise UsageError(f"function {self.name!r} takes a Context; pass run(arguments, Context(deps=…))")
        first = (context,) if self.takes_context else ()
        by_name = dict(bound)
        return call(*first, *[by_name.pop(key, default) for key, default in self.positional], **by_name)

    def format_result(self, value: Any, call: FunctionCall) -> str:
        """Return a result as text for the model, using the function's ``format`` if it is set, otherwise `result_text`.

        Raises:
            UsageError: If ``format`` did not return text.
        """
        if self.format is None:
            return result_text(value)
        text: Any = self.format(value, call)
        require(f"the return value of format of function {self.name!r}", text, isinstance(text, str), "a string")
        return result_text(text)


def _home(call: Any) -> str:
    return f"{getattr(call, '__module__', '')}:{getattr(call, '__qualname__', '')}"


def _held(call: Any) -> Any:
    """Return the object with a callable's module and name, if it is that callable or a `Function` made from it."""
    try:
        found = resolve_name(_home(call))
    except (ImportError, AttributeError, ValueError):  # ValueError for a name such as "<lambda>"
        return None
    return found if found is call or (isinstance(found, Function) and found.call is call) else None


def _unpickled(state: dict[str, Any]) -> Function:
    source, validator = state["source"], None
    if isinstance(source, Function):
        validator = source.validator
    elif source is not None:
        validator = described(source, state["name"], {})["validator"]
    plain: dict[str, Any] = {
        name: value.call if isinstance(value, Function) else value for name, value in state.items()
    }
    return Function(**plain, validator=validator)


def result_text(value: Any, unknown: set[str] | None = None, files: list[Attachment] | None = None) -> str:
    """Return a function's result as text for the model: a string unchanged, and any other value as JSON.

    A value that JSON cannot express, such as bytes that are not text, is shown as its ``str`` or ``repr``, and the name
    of its type is added to ``unknown``.  An image or document inside the value is moved to ``files``, if given, and
    shown as its number there.
    """
    if isinstance(value, str):  # half a surrogate pair, as in file names, cannot be encoded
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if type(value) is int and -_LONG < value < _LONG:
        return str(value)
    seen: set[str] = set() if unknown is None else unknown

    def shown(inner: Any) -> str:
        seen.add(type(inner).__name__)
        return str(inner)

    attached: list[Attachment] = [] if files is None else files

    def attach(file: Attachment) -> str:
        attached.append(file)
        return ATTACHED.format(len(attached))

    def plain(inner: Any) -> Any:
        if files is not None and isinstance(inner, Attachment):
            return attach(inner)
        if isinstance(inner, msgspec.Struct):
            return msgspec.to_builtins(inner, enc_hook=shown)
        return dict(inner) if isinstance(inner, Mapping) else shown(inner)

    try:
        context = {} if files is None else {ATTACH: attach}
        return to_json(value, inf_nan_mode="strings", fallback=plain, context=context).decode()
    except PydanticSerializationError:
        seen.add(type(value).__name__)
    try:
        return to_json(value, inf_nan_mode="strings", serialize_unknown=True).decode()  # takes circular references
    except PydanticSerializationError:
        return repr(value)


class AnyArgument:
    """The type of a first argument that fits only a parameter of type ``object`` or ``Any``."""


class Decorator(Protocol):
    """A decorator that makes a `Function` from a Python function and keeps its signature.

    A function with a ``Context[Shop]`` needs the deps ``Shop``, and a function without a context needs none.  The
    signature stays unchecked if the first parameter takes anything, because it would take a `Context` too.  Under mypy,
    the same holds for a function with a `Context` whose signature contains ``Any``.
    """

    @overload
    def __call__(self, call: Callable[Concatenate[AnyArgument, ...], Result], /) -> Function[..., Result, object]: ...
    @overload
    def __call__(
        self, call: Callable[Concatenate[Context[FnDeps], Args], Result], /
    ) -> Function[Concatenate[Context[FnDeps], Args], Result, FnDeps]: ...
    @overload
    def __call__(self, call: Callable[Args, Result], /) -> Function[Args, Result, object]: ...


@overload
def function(call: Callable[Concatenate[AnyArgument, ...], Result], /) -> Function[..., Result, object]: ...
@overload
def function(
    call: Callable[Concatenate[Context[FnDeps], Args], Result], /
) -> Function[Concatenate[Context[FnDeps], Args], Result, FnDeps]: ...
@overload
def function(call: Callable[Args, Result], /) -> Function[Args, Result, object]: ...
@overload
def function(
    *, name: str | None = None, description: str | None = None, **policy: Unpack[PolicyOptions]
) -> Decorator: ...
def function(
    call: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **policy: Any,
) -> Function | Callable[..., Function]:
    """Make a `Function` from a Python function: ``@function`` or ``@function(needs_approval=True)``.

    Args:
        call: The function.  Without it, return a decorator.
        name: See `Function.of`.
        description: See `Function.of`.
        policy: The fields of `Policy`.

    Raises:
        UsageError: See `Function.of`.

    Examples:
        >>> @function
        ... def add(a: int, b: int) -> int:
        ...     '''Add two numbers.'''
        ...     return a + b
        >>> add.name, add.description
        ('add', 'Add two numbers.')
        >>> add(17, 25)
        42
    """
    frame = sys._getframe(1)  # annotations may name local objects next to the function
    check_names(policy)
    options = {"name": name, "description": description, **policy}
    if call is None:
        return cast("Callable[..., Function]", partial(Function.of, namespace=frame.f_locals, **options))
    is_beside = getattr(inspect.unwrap(call), "__globals__", None) is frame.f_globals
    return Function.of(call, namespace=frame.f_locals if is_beside else None, **options)


FUNCTIONS: Registry[Function] = Registry("function", UsageError, source=lambda function: source_of(function.call))


def register_function(function: Function | Callable[..., Any], *, overwrite: bool = False) -> Function:
    """Register a function under its name in this OS process.

    Returns:
        The function, so that it can be registered where it is defined.

    Raises:
        UsageError: If a model cannot call the function, or another function has its name and ``overwrite`` is False.

    Examples:
        >>> def shout(text: str) -> str:
        ...     "Shout."
        ...     return text.upper()
        >>> register_function(shout, overwrite=True).name
        'shout'
    """
    made = Function.of(function)
    return FUNCTIONS.register(made.name, made, overwrite=overwrite)

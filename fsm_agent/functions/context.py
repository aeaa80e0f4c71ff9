"""The context of a running function: its deps and its access to the agent call.

`fsm_agent.functions.schema` decides which parameter of a function takes its context, and
`fsm_agent.runtime.run_function` makes the context for each run.

Deps are a value, or a function of (agent, extra, user) that makes the value for one run.  Its arguments are the name of
the run's agent or flow, the run's ``extra``, and the user who made the call (the run's ``by``).  A class is refused.
Any other object is a value, even if it is callable.  To use a function as the value, pass a function that returns it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, overload

from typing_extensions import TypeVar

from fsm_agent._internal.structs import Value
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import FunctionCall
from fsm_agent.validation import safe_repr

if TYPE_CHECKING:
    from typing import Unpack

    from fsm_agent._internal.structs import New
    from fsm_agent.agents.agent import Agent
    from fsm_agent.agents.options import Asked, CallOptions, Messages, Out, Typed
    from fsm_agent.call.result import CallResult


class Delegate(Protocol):
    """An agent or a flow used as a function; see `fsm_agent.call.delegation`."""

    @property
    def is_handoff(self) -> bool:
        """True if the agent takes over the dialog, so that its answer becomes the call's answer."""

    @property
    def environment(self) -> Any:
        """The environment that performs the effects in the agent's calls."""

    @property
    def hooks(self) -> Sequence[Any]:
        """The objects that receive the events from the agent's calls."""

    @property
    def hears_inside(self) -> bool:
        """True if the hooks also receive the events from inner processes."""

    @property
    def has_listener(self) -> bool:
        """True if the agent, or another agent among its functions, has hooks."""

    @property
    def agents(self) -> Sequence[Any]:
        """The agents whose models may be called, not counting the agents among their functions."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the code that decides a call's steps changes."""

    @property
    def tables_json(self) -> bytes:
        """The tables of the flow and its inner flows as JSON; empty for an agent, or if they are too large."""

    def seeded(self, f: FunctionCall, depth: int, deps: Any) -> Any:
        """Return the record for a call or run that has not begun.  This must be pure."""

    def take_over(self, record: Any, path: str, deps: Any, is_system_own: bool) -> Any:
        """Return the record for a call that takes over the dialog and has not yet begun.  This must be pure.

        Args:
            record: The record of the call that hands over its dialog.
            path: The path of further handoffs to the agent that holds the dialog, or ``""``.
            deps: The deps of that call.
            is_system_own: True if no agent put the system message into the dialog.
        """

    @property
    def agent_name(self) -> str:
        """The agent's name."""

    def call_of(self, record: Any, deps: Any, has_approver: bool) -> Any:
        """Return the agent call for a record, or the process for a `ProcessRecord`."""


Given = TypeVar("Given")
# The type of options named ``deps``.  In a generic alias, type checkers infer the type of deps from either form.
GivenDeps: TypeAlias = Given | Callable[[str, Mapping[str, Any], str], Given]

EXPECTED = "a value, or a function of (agent, extra, user) that returns it"
_BUILT_IN = "builtins"


class Made:
    """Wraps deps that are used unchanged, even if they are a function."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Later:
    """A placeholder for deps that only the driver has, used by code that submits work or reads a run."""

    def __repr__(self) -> str:
        return "the deps of the driver"


LATER = Later()


def is_maker(deps: object) -> bool:
    """Return whether deps are a function that makes the deps' value."""
    return callable(deps) and (isinstance(deps, partial) or inspect.isroutine(deps))


def check_deps(deps: object) -> None:
    """Reject deps that are a class, or a function with the wrong parameters."""
    if isinstance(deps, type):
        remedy = f"pass an instance, deps={deps.__name__}(…)"
        raise UsageError(f"deps=: expected {EXPECTED}, got the class {deps.__name__}; {remedy}")
    if not is_maker(deps):
        return
    name = getattr(deps, "__name__", "") or safe_repr(deps)
    if inspect.iscoroutinefunction(deps) or inspect.isasyncgenfunction(deps):
        raise UsageError(f"deps=: expected {EXPECTED}, got the coroutine function {name}; pass a plain function")
    try:
        signature = inspect.signature(deps)  # type: ignore[arg-type]
        signature.bind("agent", {}, "user")
    except TypeError:
        raise UsageError(f"deps=: expected {EXPECTED}, got the function {name}{signature}") from None
    except ValueError:  # written in C, without a signature
        return


def deps_for(deps: Any, agent: str, extra: Mapping[str, Any], user: str) -> Any:
    """Return the value of ``deps`` for one run.

    A function is given the agent's or flow's name, ``extra`` and the user.

    Raises:
        UsageError: If the deps are a class, or a function with the wrong parameters.
    """
    if isinstance(deps, Made):
        return deps.value
    if not callable(deps):  # neither a function nor a class
        return deps
    check_deps(deps)
    return deps(agent, extra, user) if is_maker(deps) else deps


def misfit(deps: object, kind: type | None) -> bool:
    """Return whether a value certainly cannot be used as an instance of a class.

    Objects of other user-defined classes, such as test doubles, may be usable.
    """
    if (
        kind is None
        or type(deps).__module__ != _BUILT_IN
        or (kind in (float, complex) and isinstance(deps, int | float))
    ):
        return False
    try:
        return not isinstance(deps, kind)
    except TypeError:  # a protocol or a TypedDict, which isinstance does not accept
        return False


Deps = TypeVar("Deps", default=object, covariant=True)
_BY_HAND = FunctionCall(name="", arguments_json="{}")


def _unheard(_: Any) -> None:
    """Discard an event from a function that was not called by an agent."""


def _never() -> bool:
    return False


class CallScope(Protocol):
    """The agent call that runs a function.  The function makes its own calls inside this call."""

    @property
    def key(self) -> str: ...


class Context(Value, Generic[Deps], frozen=True, kw_only=True, eq=False):
    """The first argument to a function whose first parameter is annotated ``Context`` or ``Context[MyDeps]``.

    The schema leaves this parameter out, so the model neither sees it nor fills it in.  For a test, create a context
    from ``deps`` alone.

    Args:
        deps: Objects that the agent's caller shares with the functions, such as a database, a user or a cache.
        function_call: The model's function call.
        agent_call_id: The id of the agent call, which is also the name of its run.  Inside a flow, it is the name of
            the flow's run.
        depth: The number of agent calls that this call is nested in; 0 if no function started it.
        attempt: The number of this attempt at the function call, counted from 1; more than 1 after a retry.
        emit: A function that reports progress to observers.  The model does not see the reports.
        is_cancelled: A function that returns True if the agent call is being stopped.  Long-running functions should
            call it now and then.
        release: A function that removes the results in the given rounds, counted from 1, from all later requests to the
            model.
        around: The call inside which `call` makes its calls, or None if the context was made by hand.

    Examples:
        >>> @function
        ... def stock(context: Context[dict], item: str) -> int:
        ...     "How many there are."
        ...     return context.deps[item]
        >>> agent = Agent(Script(function_call("stock", item="lamp"), "Three."), functions=[stock])
        >>> agent.call("How many lamps?", deps={"lamp": 3}).function_calls[0].result
        '3'
    """

    hidden = ("deps", "emit", "is_cancelled", "release", "around")

    deps: Deps
    function_call: FunctionCall = _BY_HAND
    agent_call_id: str = ""
    depth: int = 0
    attempt: int = 1
    emit: Callable[[Any], None] = _unheard
    is_cancelled: Callable[[], bool] = _never
    release: Callable[[Iterable[int]], None] = _unheard
    around: CallScope | None = None

    @property
    def idempotency_key(self) -> str:
        """An id that is the same in every attempt at this call, even after a resume; use it to avoid paying twice."""
        return f"{self.agent_call_id}/{self.function_call.id}"

    @overload
    def call(self, agent: Agent[Any, Out], task: Asked, /, **options: Unpack[CallOptions[Any]]) -> CallResult[Out]: ...
    @overload
    def call(
        self, agent: Agent[Any, Any], task: Typed[New], /, **options: Unpack[CallOptions[Any]]
    ) -> CallResult[New]: ...
    @overload
    def call(
        self, agent: Agent[Any, Any], task: Messages, /, **options: Unpack[CallOptions[Any]]
    ) -> CallResult[Any]: ...
    @overload
    def call(self, agent: Any, task: Any, /, **options: Any) -> Any: ...
    def call(self, agent: Any, task: Any, /, **options: Any) -> Any:
        """Call an agent, a flow or an orchestrator as an inner call inside the current agent call.

        The inner call counts towards the outer call's usage, and may use what remains of that call's budgets and time.
        It has the same deps unless you pass others, and the outer call's approver if its own agent has none.  It ends
        with the function, and its events go to its own agent's hooks.

        If the outer call is in a store, the inner call is stored too, under the function call's name and a number.
        When the function runs again after a crash, the inner call continues or returns its result.  If the function
        makes a different call this time, a new run begins.  If it is unclear after a crash whether an inner ``once``
        function ran, the outer run asks a person.

        The outer call's ``usage_by_agent`` lists the inner call's tokens under the function's key, such as ``run:1.0``,
        even if the inner call fails, but not if the outer call is cancelled before the inner call ends.

        In a coroutine function, use `acall` instead.  In a context that was made by hand, this simply calls
        ``agent.call``.

        Args:
            agent: The agent.
            task: The task, as for the agent's own ``call``.
            options: The options of the agent's own ``call``.

        Raises:
            CallFailed: If the inner call failed, or is nested deeper than `Limits.depth`.
            UsageError: If ``agent`` is not an agent, or if it would wait for a person, because functions cannot wait
                for people.
        """
        make: Any = _verb(agent, "call", is_inside=self.around is not None)
        options = {"deps": Made(self.deps), **options}
        return make(task, **options) if self.around is None else make(task, options, self.around)

    @overload
    async def acall(
        self, agent: Agent[Any, Out], task: Asked, /, **options: Unpack[CallOptions[Any]]
    ) -> CallResult[Out]: ...
    @overload
    async def acall(
        self, agent: Agent[Any, Any], task: Typed[New], /, **options: Unpack[CallOptions[Any]]
    ) -> CallResult[New]: ...
    @overload
    async def acall(
        self, agent: Agent[Any, Any], task: Messages, /, **options: Unpack[CallOptions[Any]]
    ) -> CallResult[Any]: ...
    @overload
    async def acall(self, agent: Any, task: Any, /, **options: Any) -> Any: ...
    async def acall(self, agent: Any, task: Any, /, **options: Any) -> Any:
        """The async version of `call`."""
        make: Any = _verb(agent, "acall", is_inside=self.around is not None)
        options = {"deps": Made(self.deps), **options}
        return await (make(task, **options) if self.around is None else make(task, options, self.around))


def _verb(agent: Any, verb: str, *, is_inside: bool) -> Callable[..., Any]:
    found: Any = None if isinstance(agent, type) else getattr(agent, f"_{verb}_inside", None)
    if found is None:
        raise UsageError(f"context.{verb}: expected an agent, and then its task, got {safe_repr(agent)}")
    return found if is_inside else getattr(agent, verb)  # type: ignore[no-any-return]


def accepts_context(decide: Callable[..., Any], owner: str, first: str = "call") -> bool:
    """Return whether to call ``decide`` with the `Context` as a second argument.

    A second parameter without a default is the context, whereas one with a default is the context only if its name or
    annotation says so.  ``first`` is the first argument's name in the error.

    Raises:
        UsageError: If ``decide`` cannot be called with one or two arguments.
    """
    if isinstance(decide, type):  # it would return an object, not a decision
        raise _unfit(decide, owner, first)
    try:
        found = one_or_two_parameters(decide)
    except (TypeError, ValueError):  # not callable, or written in C without a signature
        raise _unfit(decide, owner, first) from None
    if found is None:
        raise _unfit(decide, owner, first)
    placed, needed = found
    if placed and _is_context(placed[0].annotation):
        raise _unfit(decide, owner, first)
    second = placed[1] if len(placed) > 1 else None
    return second is not None and (second in needed or second.name == "context" or "Context" in str(second.annotation))


def one_or_two_parameters(
    function: Callable[..., Any],
) -> tuple[list[inspect.Parameter], list[inspect.Parameter]] | None:
    """Return ``(placed, needed)``: a function's positional parameters, and its parameters without a default.

    Return None if the function cannot be called with one or two positional arguments.

    Raises:
        TypeError: If ``function`` is not callable.
        ValueError: If ``function`` is written in C and has no signature.
    """
    parameters = inspect.signature(function).parameters.values()
    placed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    is_open = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not (placed or is_open) or len(needed) > 2 or any(p.kind is p.KEYWORD_ONLY for p in needed):
        return None
    return placed, needed


def _is_context(annotation: object) -> bool:
    return getattr(annotation, "__origin__", annotation) is Context or str(annotation).partition("[")[0] == "Context"


def _unfit(decide: object, owner: str, first: str) -> UsageError:
    return UsageError(f"{owner}: expected a callable of ({first}) or ({first}, context), got {safe_repr(decide)}")

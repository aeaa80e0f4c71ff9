"""Declares states, with decorators and with plain functions."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Protocol, TypeAlias, Unpack, overload

from typing_extensions import TypeVar

from fsm_agent._internal.structs import types_of
from fsm_agent.agents.agent import Agent
from fsm_agent.agents.options import AnyTask
from fsm_agent.call.result import CallResult
from fsm_agent.errors import FlowError, hint
from fsm_agent.flows.flow import Flow
from fsm_agent.flows.states import (
    A,
    CallState,
    D,
    EachState,
    End,
    FunctionState,
    GatherState,
    LiveState,
    PauseState,
    SubflowState,
    TimeOptions,
    WaitState,
    WholeCallState,
)
from fsm_agent.flows.transition_table import pure
from fsm_agent.flows.values import AnswerTypes, Failure, returned_types
from fsm_agent.functions.context import Context
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import Default, Retries
from fsm_agent.functions.schema import deps_of_second
from fsm_agent.validation import require, safe_repr

A1 = TypeVar("A1", default=Any)
A2 = TypeVar("A2", default=Never)  # of an argument that may be left out
A3 = TypeVar("A3", default=Never)
I = TypeVar("I")  # noqa: E741  # an item
E = TypeVar("E", default=Any)  # the data of a flow, whose type a lambda does not show
S = TypeVar("S")  # the data of another flow
PARALLEL = 32  # members of `each` that run at once


class StateOptions(TimeOptions[D], Generic[D], total=False):
    """The options of a state that is declared by a decorator.

    Attributes:
        name: The name of the state, or None for the name of the function.
    """

    name: str | None


class WaitOptions(StateOptions[D], Generic[D], total=False):
    """The options of a state that waits for an answer.

    Attributes:
        early: Whether answers that arrive before the state is entered are kept.  On entry, the state uses the oldest of
            them.  A run keeps at most `FlowLimits.inbox` of these answers.
    """

    early: bool


class ExecuteOptions(StateOptions[D], Generic[D], total=False):
    """The options of a function state, including its `Policy`."""

    once: bool
    reconcile: Callable[[Context[Any]], Any] | None
    timeout_s: float | None
    retries: Retries | None
    on_error: Default | None
    blocking: bool


_Options: TypeAlias = StateOptions[Any]  # decorators do not know the data yet
TIME_OPTIONS, STATE_OPTIONS, WAIT_OPTIONS, EXECUTE_OPTIONS = (
    tuple(sorted(kind.__optional_keys__)) for kind in (TimeOptions, StateOptions, WaitOptions, ExecuteOptions)
)


def _known(word: str, options: dict[str, Any], known: Sequence[str] = TIME_OPTIONS) -> dict[str, Any]:
    if unknown := [name for name in options if name not in known]:
        raise TypeError(f"{word} has no argument {unknown[0]!r}{hint(unknown[0], known)}")
    return options


class _AnyData:
    """Stands for the type of the data if no argument of `ask` reveals it."""


X = TypeVar("X", default=_AnyData, contravariant=True)  # the data that chooses an agent


class _Chooses(Protocol[X]):
    """A function that takes the data and chooses an agent or a role.  Unlike an agent, it has a ``__name__``."""

    __name__: str

    def __call__(self, data: X, /) -> Agent[Any, Any] | str: ...


_Asked: TypeAlias = Agent[Any, Any] | str | _Chooses[X]


class _Calls(Generic[A, X]):
    """The decorator that `ask` returns.  It is an object, so that type checkers infer its types where it is used."""

    make: type[CallState[Any, Any]] = CallState

    def __init__(self, asked: Any, types: Sequence[Any], options: dict[str, Any]) -> None:
        self._asked, self._types, self._options = asked, types, options

    @overload
    def __call__(self: _Calls[A, _AnyData], task: Callable[[D], AnyTask], /) -> CallState[D, A]: ...
    @overload
    def __call__(self, task: Callable[[X], AnyTask], /) -> CallState[X, A]: ...
    def __call__(self, task: Any, /) -> Any:
        return self.make(pure("task of ask", task), self._asked, self._types, **self._options)


class _WholeCalls(_Calls[CallResult[A], X]):
    make = WholeCallState

    if TYPE_CHECKING:

        @overload
        def __call__(self: _WholeCalls[A, _AnyData], task: Callable[[D], AnyTask], /) -> WholeCallState[D, A]: ...
        @overload
        def __call__(self, task: Callable[[X], AnyTask], /) -> WholeCallState[X, A]: ...
        def __call__(self, task: Any, /) -> Any: ...


@overload
def ask(agent: Agent[Any, A], /, *, whole: Literal[False] = False, **options: Unpack[_Options]) -> _Calls[A]: ...
@overload
def ask(
    asked: _Asked[X],
    a1: type[A1],
    a2: type[A2] = ...,
    a3: type[A3] = ...,
    /,
    *,
    whole: Literal[False] = False,
    **options: Unpack[_Options],
) -> _Calls[A1 | A2 | A3, X]: ...
@overload
def ask(
    asked: _Asked[X], a1: type[Any], /, *more: type[Any], whole: Literal[False] = False, **options: Unpack[_Options]
) -> _Calls[Any, X]: ...
@overload
def ask(agent: Agent[Any, A], /, *, whole: Literal[True], **options: Unpack[_Options]) -> _WholeCalls[A]: ...
@overload
def ask(
    asked: _Asked[X], a1: type[A1], a2: type[A2] = ..., /, *, whole: Literal[True], **options: Unpack[_Options]
) -> _WholeCalls[A1 | A2, X]: ...
@overload
def ask(
    asked: _Asked[X], a1: type[Any], /, *more: type[Any], whole: Literal[True], **options: Unpack[_Options]
) -> _WholeCalls[Any, X]: ...
def ask(asked: Any, /, *types: Any, whole: bool = False, **options: Any) -> Any:
    """Declare a state that waits for an agent call.  The decorated function takes the data and returns the task.

        @ask(editor, Approve, Change)
        def review(d: Letter) -> str:
            return d.text

    Args:
        asked: An agent, a role that `Flow.bound` binds to an agent, or a pure function that takes the data and returns
            either.
        types: The types of the answer.  By default, the output type of ``asked``, if it is an agent.
        whole: Whether the state returns the whole `CallResult`, so that the next state can continue the dialog.  In the
            state's rows, ``of`` is then an output type.
        options: ``name``, ``within_s``, ``until`` and ``restart``; see `StateOptions` and `TimeOptions`.

    Raises:
        FlowError: If the agent or the type of the answer is missing.
        TypeError: If an option is unknown.

    Examples:
        >>> writer = Agent(Script("Dear Ada"), name="writer")
        >>> @ask(writer)
        ... def drafting(about: str) -> str:
        ...     return f"Write about {about}."
        >>> letters = Flow("letters", str, start=drafting, rows=[drafting.done(end("over"), do=lambda d, text: text)])
        >>> letters.call("the delay").output
        'Dear Ada'
    """
    if isinstance(asked, Agent):
        types = types or types_of(asked.output)
    elif not (isinstance(asked, str) or callable(asked)):
        raise FlowError(f"ask: expected an Agent, as in @ask(agent, str), got {safe_repr(asked)}")
    elif not types:
        name = repr(asked) if isinstance(asked, str) else getattr(asked, "__name__", "choose")
        right = f"add the types of the answer, as in @ask({name}, str)"
        raise FlowError(f"ask: expected an Agent, got {safe_repr(asked)} alone; {right}")
    elif callable(asked):
        pure("choice of ask", asked)
    return (_WholeCalls if whole else _Calls)(asked, types, _known("ask", options, (*STATE_OPTIONS, "whole")))


_Works: TypeAlias = Callable[[D], A] | Callable[[D, Context[Any]], A]


class _Executes:
    def __init__(self, **options: Any) -> None:
        self._options = options

    @overload
    def __call__(self, function: _Works[D, Awaitable[A]], /) -> FunctionState[D, A]: ...
    @overload
    def __call__(self, function: _Works[D, A], /) -> FunctionState[D, A]: ...
    def __call__(self, function: Any, /) -> Any:
        return _function_state(function, **self._options)


@overload
def execute(function: _Works[D, Awaitable[A]], /) -> FunctionState[D, A]: ...
@overload
def execute(function: _Works[D, A], /) -> FunctionState[D, A]: ...
@overload
def execute(**options: Unpack[ExecuteOptions[Any]]) -> _Executes: ...
def execute(function: Any = None, /, **options: Any) -> Any:
    """Declare a state that waits for a plain or coroutine function: ``@execute`` or ``@execute(once=True)``.

    The function takes the data, and a `Context` if it has a second parameter.  ``context.idempotency_key`` is the same
    in every attempt.  If the function raises an exception, ``failed`` rows receive a `Failure`.  In a test, you can
    still call it: ``send("it", Context(deps=None))``.

    Args:
        function: The function.
        options: ``once``, ``reconcile``, ``timeout_s``, ``retries``, ``on_error`` and ``blocking``, as for `function`;
            and ``name``, ``within_s``, ``until`` and ``restart``, as for the other states.

    Raises:
        FlowError: If the object is not a suitable function.
        TypeError: If an option is unknown.
        UsageError: If an option has the wrong type.

    Examples:
        >>> @execute(once=True)
        ... def send(text: str, context: Context) -> str:
        ...     return f"sent {text}"
        >>> Flow("post", str, start=send, rows=[send.done(end("over"), do=lambda d, said: said)]).call("it").output
        'sent it'
    """
    _known("execute", options, EXECUTE_OPTIONS)
    return _Executes(**options) if function is None else _function_state(function, **options)


def _function_state(
    function: Any, name: str | None = None, on_error: Any = None, **options: Any
) -> FunctionState[Any, Any]:
    is_function = callable(function) and not isinstance(function, LiveState)
    require("execute", function, is_function, "a function of the data", FlowError)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise FlowError(f"execute: expected a function that returns, got the generator {safe_repr(function)}")
    name = name or str(getattr(function, "__name__", ""))
    answer_types = AnswerTypes(name, returned_types(function))
    parameters = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    if len(parameters) not in (1, 2):
        right = "one parameter for the data, and one for a Context if it needs one"
        raise FlowError(f"function {name!r}: expected {right}, got {len(parameters)}")
    time = {word: options.pop(word) for word in TIME_OPTIONS if word in options}
    made = Function(
        name=name if name.isascii() and 0 < len(name) <= 64 else "function",
        call=function,
        is_async=inspect.iscoroutinefunction(function),
        takes_context=len(parameters) == 2,
        **(deps_of_second(function) if len(parameters) == 2 else {}),
        format=partial(_written, answer_types),
        on_error=on_error or "fail",
        **options,
    )
    return FunctionState(made, answer_types, **time)


def _written(answer_types: AnswerTypes, value: Any, _: Any) -> str:
    return answer_types.dump(value)


class _Waits(Generic[A]):
    def __init__(self, types: Sequence[Any], options: dict[str, Any]) -> None:
        self._types, self._options = types, options

    def __call__(self, question: Callable[[D], Any], /) -> WaitState[D, A]:
        return WaitState(pure("question of a wait", question), self._types, **self._options)


@overload
def wait(
    a1: type[A1], a2: type[A2] = ..., a3: type[A3] = ..., /, **options: Unpack[WaitOptions[Any]]
) -> _Waits[A1 | A2 | A3]: ...
@overload
def wait(a1: type[Any], /, *more: type[Any], **options: Unpack[WaitOptions[Any]]) -> _Waits[Any]: ...
def wait(*types: Any, **options: Any) -> _Waits[Any]:
    """Declare a state that waits for a person's answer.  The decorated function returns the question to show.

    Args:
        types: The types of the answer.
        options: ``early``, ``name``, ``within_s``, ``until`` and ``restart``; see `WaitOptions` and `TimeOptions`.

    Examples:
        >>> @wait(bool)
        ... def review(text: str) -> str:
        ...     return text
        >>> rows = [review.done(end("sent"), of=True), review.done(end("kept"), of=False)]
        >>> letters = Flow("letters", str, start=review, rows=rows)
        >>> try:
        ...     letters.call("Dear Ada")
        ... except FlowSuspended as waiting:
        ...     waiting.run.give(review, False)
        ...     print(letters.run(waiting.run).state)
        kept
    """
    if len(types) == 1 and inspect.isfunction(types[0]):
        right = "the types of the answer, as in @wait(Approve, Change)"
        raise FlowError(f"wait: expected {right}, got the function {safe_repr(types[0])}")
    if not types:
        raise FlowError("wait: expected the types of the answer, as in @wait(Approve, Change), got none")
    return _Waits(types, _known("wait", options, WAIT_OPTIONS))


@overload
def pause(
    name: str, delay_s: float | timedelta | Callable[[E], float | timedelta], *, restart: bool = True
) -> PauseState[E]: ...
@overload
def pause(
    name: str, *, until: datetime | float | Callable[[E], datetime | float], restart: bool = True
) -> PauseState[E]: ...
def pause(name: str, delay_s: Any = None, *, until: Any = None, restart: bool = True) -> PauseState[Any]:
    """Return a state that waits for time to pass.

    Args:
        name: The name of the state.
        delay_s: How long the state waits: seconds, a timedelta, or a pure function that takes the data and returns
            either.
        until: The time until which the state waits, in place of ``delay_s``; see `TimeOptions`.
        restart: See `TimeOptions`.

    Raises:
        FlowError: If the name is not a string.

    Examples:
        >>> nap = pause("nap", 0.01)
        >>> Flow("sleep", int, start=nap, rows=[nap.elapsed(end("awake"))]).call(1).state
        'awake'
    """
    return PauseState(_name("pause", name), within_s=delay_s, until=until, restart=restart)


@overload
def gather(
    name: str, m1: LiveState[D, A1], m2: LiveState[D, A2], /, **options: Unpack[TimeOptions[D]]
) -> GatherState[D, tuple[A1, A2]]: ...
@overload
def gather(
    name: str, m1: LiveState[D, A1], m2: LiveState[D, A2], m3: LiveState[D, A3], /, **options: Unpack[TimeOptions[D]]
) -> GatherState[D, tuple[A1, A2, A3]]: ...
@overload
def gather(
    name: str, m1: LiveState[D, A1], m2: LiveState[D, A2], /, *, enough: float, **options: Unpack[TimeOptions[D]]
) -> GatherState[D, tuple[A1 | A2, ...]]: ...
@overload
def gather(
    name: str,
    m1: LiveState[D, Any],
    /,
    *more: LiveState[D, Any],
    enough: float | None = None,
    **options: Unpack[TimeOptions[D]],
) -> GatherState[D, tuple[Any, ...]]: ...
def gather(name: str, /, *members: Any, enough: float | None = None, **options: Any) -> Any:
    """Return a state that runs all members at once and returns their values in the order in which they are listed.

    If a member fails, the others are abandoned.  With ``enough=2``, the state returns two values as soon as it has them
    and abandons the other members.  ``enough=0.5`` means half of the members, rounded up.  If too many members fail,
    the state fails as well, with the `Failure` of the first one in the list.

    Args:
        name: The name of the state.
        members: Two or more states with different names.
        enough: How many members (int) or what share of them (float) must return a value, or None for all.
        options: ``within_s``, ``until`` and ``restart``; see `TimeOptions`.

    Raises:
        FlowError: If the name is not a string, or a member is not a state that waits.

    Examples:
        >>> @execute
        ... def ann(q: str) -> str:
        ...     return "yes"
        >>> @execute
        ... def bob(q: str) -> str:
        ...     return "no"
        >>> both = gather("both", ann, bob)
        >>> poll = Flow("poll", str, start=both, rows=[both.done(end("over"), do=lambda d, got: " ".join(got))])
        >>> poll.call("Now?").output
        'yes no'
    """
    return _gathered("gather", name, members, options, enough=enough)


@overload
def race(
    name: str,
    m1: LiveState[D, A1],
    m2: LiveState[D, A2],
    m3: LiveState[D, A3] = ...,
    /,
    **options: Unpack[TimeOptions[D]],
) -> GatherState[D, A1 | A2 | A3]: ...
@overload
def race(
    name: str, m1: LiveState[D, Any], /, *more: LiveState[D, Any], **options: Unpack[TimeOptions[D]]
) -> GatherState[D, Any]: ...
def race(name: str, /, *members: Any, **options: Any) -> Any:
    """Return a state that runs all members at once and returns the first value that it gets; see `gather`.

    Raises:
        FlowError: If the name is not a string, or a member is not a state that waits.

    Examples:
        >>> @execute
        ... def quick(q: str) -> str:
        ...     return "quick"
        >>> @wait(str)
        ... def slow(q: str) -> str:
        ...     return "Well?"
        >>> first = race("first", quick, slow)
        >>> Flow("poll", str, start=first, rows=[first.done(end("over"), do=lambda d, won: won)]).call("Now?").output
        'quick'
    """
    return _gathered("race", name, members, options, enough=1, is_race=True)


def _gathered(
    word: str, name: str, members: Sequence[Any], options: dict[str, Any], **ends: Any
) -> GatherState[Any, Any]:
    _name(word, name)
    for member in members:
        _check_member(name, member)
    if len(members) < 2:
        raise FlowError(f"members of {name!r}: expected two states or more, got {len(members)}")
    return GatherState(name, members, **ends, **_known(word, options))


@overload
def each(
    name: str,
    member: LiveState[I, A],
    over: Callable[[E], Sequence[I]],
    *,
    parallel: int | None = PARALLEL,
    settled: Literal[False] = False,
    enough: float | None = None,
    **options: Unpack[TimeOptions[E]],
) -> EachState[E, tuple[A, ...]]: ...
@overload
def each(
    name: str,
    member: LiveState[I, A],
    over: Callable[[E], Sequence[I]],
    *,
    parallel: int | None = PARALLEL,
    settled: Literal[True],
    **options: Unpack[TimeOptions[E]],
) -> EachState[E, tuple[A | Failure, ...]]: ...
def each(
    name: str,
    member: Any,
    over: Any,
    *,
    parallel: int | None = PARALLEL,
    settled: bool = False,
    enough: float | None = None,
    **options: Any,
) -> Any:
    """Return a state that runs a member for each item and returns the members' values in the order of the items.

    If a member fails, the others are abandoned, unless ``settled`` is True or ``enough`` can still be reached.

    Args:
        name: The name of the state.
        member: A state that receives an item as its data.
        over: A pure function that takes the data and returns the items.
        parallel: The maximum number of members that run at once, or None for no limit.
        settled: Whether the state waits for all members and returns a `Failure` for each member that failed.
        enough: How many values are enough; see `gather`.  If there are fewer items, the state fails at once with the
            reason "too few".  If ``enough`` is a share and there are no items, the state returns no values.
        options: ``within_s``, ``until`` and ``restart``; see `TimeOptions`.

    Raises:
        FlowError: If the name is not a string, the member is not a state that waits, or ``over`` is not a plain
            function.
        TypeError: If an option is unknown.

    Examples:
        >>> @execute
        ... def length(word: str) -> int:
        ...     return len(word)
        >>> def words(text: str) -> list[str]:
        ...     return text.split()
        >>> counting = each("counting", length, words)
        >>> rows = [counting.done(end("over"), do=lambda d, found: str(found))]
        >>> Flow("lengths", str, start=counting, rows=rows).call("one three").output
        '(3, 5)'
    """
    _name("each", name)
    _check_member(name, member)
    pure(f"over of {name!r}", over)
    _known("each", options, (*TIME_OPTIONS, "parallel", "settled", "enough"))
    return EachState(name, member, over, parallel, settled, enough, **options)


def subflow(name: str, flow: Flow[S], given: Callable[[E], S], **options: Unpack[TimeOptions[E]]) -> SubflowState[E, S]:
    """Return a state that waits for another flow and returns that flow's final data.

    Args:
        name: The name of the state.
        flow: The flow.
        given: A pure function that takes the data and returns the other flow's initial data.
        options: ``within_s``, ``until`` and ``restart``; see `TimeOptions`.

    Raises:
        FlowError: If the name is not a string, ``flow`` is not a `Flow`, or ``given`` is not a plain function.

    Examples:
        >>> @execute
        ... def double(n: int) -> int:
        ...     return 2 * n
        >>> inner = Flow("doubling", int, start=double, rows=[double.done(end("over"), do=lambda n, more: more)])
        >>> def same(n: int) -> int:
        ...     return n
        >>> twice = subflow("twice", inner, same)
        >>> Flow("outer", int, start=twice, rows=[twice.done(end("over"), do=lambda n, got: got + 1)]).call(4).output
        9
    """
    _name("subflow", name)
    require(f"flow of the subflow {name!r}", flow, isinstance(flow, Flow), "a Flow", FlowError)
    return SubflowState(name, flow, pure(f"given of the subflow {name!r}", given), **_known("subflow", {**options}))


def end(name: str, *, failed: bool | str = False) -> End:
    """Return a state in which the flow ends.

    Args:
        name: The name of the end, which is the ``state`` of the result.
        failed: Whether this end is a failure: True, or a reason for people to read.  `call` then raises `FlowFailed`.

    Raises:
        FlowError: If the name is not a string, or ``failed`` is neither a string nor a bool.

    Examples:
        >>> def is_empty(text: str) -> bool:
        ...     return not text
        >>> @execute
        ... def greet(name: str) -> str:
        ...     return name
        >>> rows = [greet.done(end("silent", failed="nothing to say"), when=is_empty), greet.done(end("said"))]
        >>> hello = Flow("hello", str, start=greet, rows=rows)
        >>> hello.call("Ada").state
        'said'
        >>> try:
        ...     hello.call("")
        ... except FlowFailed as error:
        ...     print(error.run.state, "-", error.run.record.ending.detail)
        silent - nothing to say
    """
    require("failed of end", failed, isinstance(failed, bool | str), "True, or a string that says why", FlowError)
    return End(_name("end", name), failed if isinstance(failed, str) else "", is_failure=failed is not False)


def _check_member(name: str, member: Any) -> None:
    require(f"member of {name!r}", member, isinstance(member, LiveState), "a state with rows", FlowError)


def _name(word: str, name: Any) -> str:
    require(f"first argument of {word}", name, isinstance(name, str), "the name of the state", FlowError)
    return str(name)

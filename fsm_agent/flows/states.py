"""States, and the rows that they make.

A state either waits for something or is an end.  The methods of a state make rows: ``review.done(sending, of=Approve)``
is the row from ``review`` to ``sending`` that is taken if the answer is an `Approve`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property
from pkgutil import resolve_name
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeAlias, TypedDict, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

from fsm_agent._internal.structs import is_amount, uncached
from fsm_agent._internal.text import in_seconds
from fsm_agent.agents.agent import Agent
from fsm_agent.agents.options import AnyTask
from fsm_agent.call.result import CallResult
from fsm_agent.errors import FlowError
from fsm_agent.flows.values import ANY, AnswerTypes, Failure, ResultTypes, case_name, union_of
from fsm_agent.functions.context import Context
from fsm_agent.functions.function import Function
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.prompt import Prompt, Task
from fsm_agent.validation import safe_repr

if TYPE_CHECKING:  # what imports this module
    from fsm_agent.flows.flow import Flow

D = TypeVar("D")  # the data of a flow
A = TypeVar("A")  # the value of a state
B = TypeVar("B")  # one type of a state's values
Seconds: TypeAlias = float | timedelta | Callable[[D], float | timedelta | None] | None
Moment: TypeAlias = datetime | float | Callable[[D], datetime | float | None] | None
ENDS = ("expired", "cancelled")  # triggers of the whole run; it continues if a row takes one, which happens once
FIRST_TIME = "first_time"  # the rule of such rows; see `fsm_agent.flows.transition_table`
Guard: TypeAlias = Callable[[D, A], bool] | Callable[[D], bool] | None
Action: TypeAlias = Callable[[D, A], D] | None


class TimeOptions(TypedDict, Generic[D], total=False):
    """The options of every state that waits.

    Attributes:
        within_s: The time that the state may take, or None for no limit: seconds, a timedelta, or a pure function that
            takes the data and returns either.  The time is fixed when the state is entered.
        until: The moment at which the state's time is up, in place of ``within_s``, or None for no limit: a datetime
            with a time zone, Unix seconds, or a pure function that takes the data and returns either.  If it is in the
            past, the state's time is up at once.
        restart: Whether the time is reset whenever the state is entered.  If False, the time that was fixed at the
            first entry applies to the whole run.
    """

    within_s: Seconds[D]
    until: Moment[D]
    restart: bool


class State(Generic[D]):
    """A state of a flow, which waits for something or is an end.

    Attributes:
        name: The state's name in keys, traces and diagrams.
        doc: The docstring of the function that declares the state.
        words: A few words about what the state waits for, or about the kind of end.
    """

    name: str
    doc: str = ""
    words: str = ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class End(State[Any]):
    """An end of a flow."""

    def __init__(self, name: str, detail: str = "", is_failure: bool = False) -> None:
        self.name = name
        self.detail = detail
        self.is_failure = is_failure
        self.words = "failure" if is_failure else "end"


@dataclass(eq=False, repr=False, slots=True)
class Row(Generic[D]):
    """A row of a flow's table.  For a trigger and a type of answer, it leads to a state if the guard returns True.

    Attributes:
        source: The state in which the row is taken.
        trigger: "done", "failed" or "elapsed" or, for the whole run, "cancelled", "expired" or "exhausted".
        case: The type of the answer, or the enum member that it must equal; `ANY` for every answer.
        to: The state that follows.
        guard: A function that takes the data, or the data and the answer.
        action: A function that takes the data and the answer and returns the new data, or None to keep the data.
        is_default: Whether the flow added the row because the user's table has no row for the trigger.
        rule: A guard that the flow adds to rows for a cancellation or the deadline; see
            `fsm_agent.flows.transition_table`.
    """

    source: State[D]
    trigger: str
    to: State[D]
    guard: Guard[D, Any] = None
    action: Action[D, Any] = None
    case: Any = ANY
    is_default: bool = False
    rule: str = ""

    def __repr__(self) -> str:
        guard = f" [{getattr(self.guard, '__name__', repr(self.guard))}]" if self.guard else ""
        target = getattr(self.to, "name", repr(self.to))
        return f"{self.source.name} --{event_name(self.trigger, self.case)}{guard}--> {target}"


def event_name(trigger: str, case: Any) -> str:
    """Return the name of a trigger followed by the type of the answer."""
    return trigger if case is ANY else f"{trigger} {case_name(case)}"


class LiveState(State[D], Generic[D, A]):
    """A state that waits.

    Attributes:
        answer_types: The types of the values that the state returns.
        within_s: See `TimeOptions`.
        until: See `TimeOptions`.
        restart: See `TimeOptions`.
        is_timed: Whether the state has a time limit, even if it is set by a function that may return None.
        triggers: The triggers that the state can cause, apart from "elapsed" and the triggers for the whole run.
    """

    triggers: tuple[str, ...] = ("done", "failed")
    declared_by: Callable[..., Any] | None = None  # the function that the state replaces in its module
    seconds_option = "within_s"  # the argument that takes the seconds of its time

    def __init__(self, name: str, answer_types: AnswerTypes, doc: str = "", **options: Unpack[TimeOptions[D]]) -> None:
        self.name = name
        self.answer_types = answer_types
        self.doc = doc
        self.within_s: Any = in_seconds(options.get("within_s"))
        self.until: Any = options.get("until")
        self.restart = options.get("restart", True)
        self.is_timed = self.within_s is not None or self.until is not None

    __getstate__ = uncached

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickle and copy a state by reference if a module contains it."""
        home = f"{getattr(self.declared_by, '__module__', '')}:{getattr(self.declared_by, '__qualname__', '')}"
        try:
            is_found = resolve_name(home) is self
        except (ImportError, AttributeError, ValueError):  # ValueError for a name such as "<lambda>"
            is_found = False
        return (resolve_name, (home,)) if is_found else super().__reduce_ex__(protocol)

    def elapsed(self, to: State[D], *, when: Guard[D, None] = None, do: Action[D, None] = None) -> Row[D]:
        """Return a row for the end of the state's time."""
        return Row(self, "elapsed", to, when, do)

    def expired(self, to: State[D], *, do: Action[D, Failure] = None) -> Row[D]:
        """Return a row for the deadline of the flow, ``FlowLimits(deadline_s=…)``.

        The run then continues without a deadline.  The action receives a `Failure` with the reason "expired".
        """
        return Row(self, "expired", to, None, do, rule=FIRST_TIME)

    def cancelled(self, to: State[D], *, do: Action[D, Failure] = None) -> Row[D]:
        """Return a row for a cancellation of the run.

        The run continues.  A second cancellation ends it in `Cancelled`.

        The action receives a `Failure` with the reason "cancelled" and the text of the cancellation as its detail.
        """
        return Row(self, "cancelled", to, None, do, rule=FIRST_TIME)

    @property
    def members(self) -> tuple[LiveState[Any, Any], ...]:
        """The states inside this state."""
        return ()

    @property
    def functions_of_data(self) -> tuple[Callable[..., Any], ...]:
        """The functions that belong to the state and take the data."""
        return tuple([time for time in (self.within_s, self.until) if callable(time)])

    def type_for(self, trigger: str, case: Any) -> Any:
        """Return the type of the answer that a row's guard and action receive."""
        if trigger == "elapsed":
            return NoneType
        if trigger != "done":
            return Failure
        if case is ANY:
            return union_of(self.answer_types.types)
        return type(case) if isinstance(case, Enum | bool) else case


class _Giving(LiveState[D, A]):
    """A state that returns a value."""

    @overload
    def done(self, to: State[D], *, when: Guard[D, A] = None, do: Action[D, A] = None) -> Row[D]: ...
    @overload
    def done(self, to: State[D], *, of: type[B], when: Guard[D, B] = None, do: Action[D, B] = None) -> Row[D]: ...
    @overload
    def done(self, to: State[D], *, of: A, when: Guard[D, A] = None, do: Action[D, A] = None) -> Row[D]: ...
    def done(self, to: State[D], *, of: Any = ANY, when: Any = None, do: Any = None) -> Row[D]:
        """Return a row for the value that the state returns.

        Args:
            to: The state that follows.
            of: One of the state's types, or one member of its enum; by default, the row takes every value.
            when: The guard: a named, pure function that takes the data, or the data and the answer.
            do: The action: a pure function that takes the data and the answer, and returns the new data.
        """
        return Row(self, "done", to, when, do, NoneType if of is None else of)


class _Failing(_Giving[D, A]):
    """A state that returns a value or fails."""

    def failed(self, to: State[D], *, when: Guard[D, Failure] = None, do: Action[D, Failure] = None) -> Row[D]:
        """Return a row for the failure of the state.  The guard and the action receive a `Failure`."""
        return Row(self, "failed", to, when, do)


class CallState(_Failing[D, A]):
    """A state that waits for an agent call."""

    def __init__(
        self,
        task: Callable[[D], AnyTask],
        agent: Agent[Any, Any] | str | Callable[[D], Agent[Any, Any] | str],
        types: Sequence[Any],
        name: str | None = None,
        **options: Unpack[TimeOptions[D]],
    ) -> None:
        name = name or task.__name__
        super().__init__(name, self._types_of_answers(name, types), inspect.getdoc(task) or "", **options)
        self.task = self.declared_by = task
        self.agent = agent
        self.words = (
            f"role {agent}" if isinstance(agent, str) else f"agent {getattr(agent, 'name', '') or 'by the data'}"
        )

    def _types_of_answers(self, name: str, types: Sequence[Any]) -> AnswerTypes:
        return AnswerTypes(name, types)

    @cached_property
    def _typed(self) -> WeakKeyDictionary[Prompt[Any], Prompt[Any]]:
        """The prompts of tasks, each with a variant that has the state's output."""
        return WeakKeyDictionary()

    @cached_property
    def prompt(self) -> Prompt[Any]:
        """The prompt for calls if neither the agent nor the task has a suitable prompt."""
        return Prompt("{{ task }}", path=self.name, output=union_of(self.answer_types.types))

    def prompt_for(self, agent: Agent[Any, Any], task: AnyTask) -> Prompt[Any]:
        """Return the prompt for a call to this agent.

        The task's own prompt takes precedence; if it asks for plain text and has no parser, it gets the state's output
        type.  If the task has no prompt, the agent's prompt is used, provided that its output type is the state's;
        otherwise, the state's own prompt is used.

        Raises:
            FlowError: If the task's prompt has no parser, and its output type is neither text nor the state's.
        """
        given = given_prompt(task)
        if given is None:
            return agent.prompt if self.answer_types.types == (agent.output,) else self.prompt
        wanted = union_of(self.answer_types.types)
        if given.parser is not None or given.output == wanted:
            return given
        if given.output is not str:
            what = f"expected a task whose prompt asks for {case_name(wanted)}, got {case_name(given.output)}"
            raise FlowError(f"{self.name}: {what}; write ask(agent, {case_name(given.output)})")
        if given not in self._typed:
            self._typed[given] = given.extend(output=wanted)
        return self._typed[given]

    @property
    def functions_of_data(self) -> tuple[Callable[..., Any], ...]:
        chooses = () if isinstance(self.agent, Agent) or not callable(self.agent) else (self.agent,)
        return (self.task, *chooses, *super().functions_of_data)

    @property
    def client_keys(self) -> Sequence[object]:
        """The keys in ``clients`` that provide a model for the state's agents: the state, or the agents themselves."""
        return (self,)

    def agent_in(self, agents: Mapping[str, Agent[Any, Any]]) -> Agent[Any, Any] | None:
        """Return the agent to ask, or None if the role is not bound yet or the agent depends on the data."""
        if isinstance(self.agent, str):
            return agents.get(self.agent)
        return self.agent if isinstance(self.agent, Agent) else None

    def agent_for(self, data: D, agents: Mapping[str, Agent[Any, Any]]) -> Agent[Any, Any]:
        """Return the agent to ask for these data."""
        if isinstance(self.agent, Agent):
            return self.agent
        found = self.agent if isinstance(self.agent, str) else self.agent(data)
        if isinstance(found, str):
            if found not in agents:
                bound = ", ".join(agents) or "none"
                raise FlowError(
                    f"role {found!r} of the state {self.name}: expected an agent, got none (bound: {bound})"
                )
            found = agents[found]
        if not isinstance(found, Agent):
            raise FlowError(f"{self.name}: expected its function to return an Agent, got {safe_repr(found)}")
        self.check_agent(self.name, found)
        return found

    def check_agent(self, here: str, agent: Agent[Any, Any]) -> None:
        """Refuse an agent with a typed output if the state returns text."""
        if self.answer_types.types == (str,) and agent.output is not str:
            output = case_name(agent.output)
            right = f"write ask(agent, {output})"
            raise FlowError(f"{here}: expected an agent that gives str, got one that gives {output}; {right}")


def given_prompt(task: AnyTask) -> Prompt[Any] | None:
    """Return the prompt of a task, or None for plain text."""
    match task:
        case Task():
            return task.prompt
        case Prompt():
            return task
        case Dialog():
            return task.top_prompt
        case _:
            return None


class WholeCallState(CallState[D, CallResult[A]]):
    """A state that waits for an agent call and returns its whole result.

    A stored result is read with the prompt of its call.  An agent that is not known when the flow is defined therefore
    gets the state's prompt.
    """

    def _types_of_answers(self, name: str, types: Sequence[Any]) -> AnswerTypes:
        return ResultTypes(name, types, self._prompt_of_results)

    def _prompt_of_results(self) -> Prompt[Any]:
        return self._asked_with

    @cached_property
    def _asked_with(self) -> Prompt[Any]:
        return super().prompt_for(self.agent, "") if isinstance(self.agent, Agent) else self.prompt

    def prompt_for(self, agent: Agent[Any, Any], task: AnyTask) -> Prompt[Any]:
        given = given_prompt(task)
        if given is None:
            return self._asked_with
        if given.parser is not None:
            raise FlowError(
                f"{self.name}: expected a prompt without a parser, since whole=True reads the result again without it,"
                " got one with a parser; pass output=… instead, or leave whole=True out"
            )
        return super().prompt_for(agent, task)

    def type_for(self, trigger: str, case: Any) -> Any:
        kind = super().type_for(trigger, case)
        return CallResult.__class_getitem__(kind) if trigger == "done" else kind

    if TYPE_CHECKING:  # ``of`` is the type of the output, but guards and actions receive the whole result

        @overload  # type: ignore[override]
        def done(
            self,
            to: State[D],
            *,
            when: Guard[D, CallResult[A]] = None,
            do: Action[D, CallResult[A]] = None,
        ) -> Row[D]: ...
        @overload
        def done(
            self,
            to: State[D],
            *,
            of: type[B],
            when: Guard[D, CallResult[B]] = None,
            do: Action[D, CallResult[B]] = None,
        ) -> Row[D]: ...
        @overload
        def done(
            self,
            to: State[D],
            *,
            of: A,
            when: Guard[D, CallResult[A]] = None,
            do: Action[D, CallResult[A]] = None,
        ) -> Row[D]: ...
        def done(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, to: State[D], *, of: Any = ANY, when: Any = None, do: Any = None
        ) -> Row[D]: ...


class FunctionState(_Failing[D, A]):
    """A state that waits for a function.

    Examples:
        >>> @execute
        ... def greet(name: str) -> str:
        ...     return f"Hello, {name}."
        >>> greet("Ada")  # still a function
        'Hello, Ada.'
    """

    def __init__(self, function: Function, answer_types: AnswerTypes, **options: Unpack[TimeOptions[D]]) -> None:
        super().__init__(answer_types.state, answer_types, inspect.getdoc(function.call) or "", **options)
        self.function, self.declared_by = function, function.call
        self.words = "function, once" if function.once else "function"

    def __call__(self, data: D, context: Context[Any] | None = None, /) -> Any:
        """Call the function, as if it had not been decorated."""
        return self.function(data) if context is None else self.function(data, context)


class WaitState(_Giving[D, A]):
    """A state that waits for a person, or for an event outside the program."""

    triggers = ("done",)

    def __init__(
        self,
        question: Callable[[D], Any],
        types: Sequence[Any],
        name: str | None = None,
        early: bool = False,
        **options: Unpack[TimeOptions[D]],
    ) -> None:
        name = name or question.__name__
        answer_types = AnswerTypes(name, types, are_posted=True)
        super().__init__(name, answer_types, inspect.getdoc(question) or "", **options)
        self.question = self.declared_by = question
        self.is_early = early
        self.words = "a person, also early" if early else "a person"

    @property
    def functions_of_data(self) -> tuple[Callable[..., Any], ...]:
        return (self.question, *super().functions_of_data)


class PauseState(LiveState[D, None]):
    """A state that waits for time to pass."""

    triggers = ()
    seconds_option = "delay_s"
    words = "time"

    def __init__(self, name: str, **options: Unpack[TimeOptions[D]]) -> None:
        super().__init__(name, AnswerTypes(name, ()), **options)


class SubflowState(_Failing[D, A]):
    """A state that waits for another flow and returns that flow's final data."""

    def __init__(self, name: str, flow: Flow[Any], given: Callable[[D], A], **options: Unpack[TimeOptions[D]]) -> None:
        super().__init__(name, AnswerTypes(name, (flow.data,)), **options)
        self.flow = flow
        self.given = given
        self.words = f"flow {flow.name}"

    @property
    def functions_of_data(self) -> tuple[Callable[..., Any], ...]:
        return (self.given, *super().functions_of_data)

    def type_for(self, trigger: str, case: Any) -> Any:
        return self.flow.data if trigger == "elapsed" else super().type_for(trigger, case)

    if TYPE_CHECKING:

        def elapsed(  # type: ignore[override]
            self, to: State[D], *, when: Guard[D, A] = None, do: Action[D, A] = None
        ) -> Row[D]:  # pyright: ignore[reportIncompatibleMethodOverride]
            """Return a row for the end of the state's time.  Guard and action receive the inner flow's current data."""


class ParallelState(_Failing[D, A]):
    """A state that waits for several members at once.

    Attributes:
        enough: How many members (int) or what share of them (float) must return a value, or None for all.  Once that
            many have done so, the others are abandoned.
        is_race: Whether the state returns a single value instead of a tuple of values.
        is_lenient: Whether failures count as results.
        parallel: The maximum number of members that run at once, or None for no limit.
    """

    enough: float | None = None
    is_race = False
    is_lenient = False
    parallel: int | None = None

    def members_of(self, data: Any) -> Sequence[tuple[str, LiveState[Any, Any], Any]]:
        """Return the name, the state and the data of each member."""
        raise NotImplementedError

    def needed(self, count: int) -> int:
        """Return how many of ``count`` members must return a value."""
        enough = self.enough
        if enough is None or isinstance(enough, int):
            return count if enough is None else enough
        # 0.07 * 100 is 7.000000000000001, which would need 8 members
        return max(min(1, count), math.ceil(round(enough * count, 9)))


class GatherState(ParallelState[D, A]):
    """A state that runs several states at once, until all or enough of them have returned a value."""

    def __init__(
        self,
        name: str,
        members: Sequence[LiveState[D, Any]],
        enough: float | None = None,
        is_race: bool = False,
        **options: Unpack[TimeOptions[D]],
    ) -> None:
        types: list[Any] = list(dict.fromkeys(kind for member in members for kind in member.answer_types.provided))
        if enough is not None and not is_race:
            types = [tuple[union_of(types or (None,)), ...]]  # type: ignore[misc]
        elif not is_race:
            given = tuple([union_of(member.answer_types.provided or (None,)) for member in members])
            types = [tuple[given]]  # type: ignore[valid-type]
        super().__init__(name, AnswerTypes(name, types), **options)
        self.enough = enough
        self.is_race = is_race
        self.words = "the first of" if is_race else f"at once{_enough(enough)}"
        self._members = tuple(members)

    @property
    def members(self) -> tuple[LiveState[Any, Any], ...]:
        return self._members

    def members_of(self, data: Any) -> Sequence[tuple[str, LiveState[Any, Any], Any]]:
        return [(member.name, member, data) for member in self._members]


class EachState(ParallelState[D, A]):
    """A state that runs one member per item.  The items are taken from the data when the state is entered."""

    def __init__(
        self,
        name: str,
        member: LiveState[Any, Any],
        over: Callable[[D], Sequence[Any]],
        parallel: int | None,
        is_lenient: bool,
        enough: float | None = None,
        **options: Unpack[TimeOptions[D]],
    ) -> None:
        types = (*member.answer_types.provided, failure_of(member)) if is_lenient else member.answer_types.provided
        answer_types = AnswerTypes(name, (tuple[union_of(types or (None,)), ...],))  # type: ignore[misc]
        super().__init__(name, answer_types, **options)
        self.member = member
        self.over = over
        self.parallel = parallel
        self.is_lenient = is_lenient
        self.enough = enough
        self.words = f"for each item{'' if parallel is None else f', {parallel} at once'}{_enough(enough)}"

    @property
    def members(self) -> tuple[LiveState[Any, Any], ...]:
        return (self.member,)

    @property
    def functions_of_data(self) -> tuple[Callable[..., Any], ...]:
        return (self.over, *super().functions_of_data)

    def members_of(self, data: Any) -> Sequence[tuple[str, LiveState[Any, Any], Any]]:
        found: Any = self.over(data)
        if isinstance(found, str | bytes | Set | Mapping) or not isinstance(found, Iterable):
            right = "a sequence, which has the same order in every process"
            raise FlowError(f"items of {self.name}: expected {right}, got {safe_repr(found)}")
        return [(str(number), self.member, item) for number, item in enumerate(found)]


def _enough(enough: float | None) -> str:
    if enough is None:
        return ""
    if isinstance(enough, float):
        return f", {enough:.3g} of them are enough"
    return f", {enough} {'is' if enough == 1 else 'are'} enough"


def states_inside(states: Iterable[LiveState[Any, Any]], agents: Any = None) -> Iterator[tuple[Any, Any]]:
    """Yield states, their members and the states of inner flows, each with the agents bound there."""
    for state in states:
        yield state, agents
        yield from states_inside(state.members, agents)
        if isinstance(state, SubflowState):
            yield from states_inside(state.flow.live, state.flow.agents or agents)


def failure_of(state: LiveState[Any, Any]) -> Any:
    """Return the type of a state's failures."""
    failure: Any = Failure
    return failure[state.flow.data | None] if isinstance(state, SubflowState) else failure


def may_be_abandoned(state: LiveState[Any, Any]) -> bool:
    """Return whether a state or one of its members may be abandoned while running."""
    return state.is_timed or (isinstance(state, ParallelState) and state.enough is not None)


# The times of states.  When a run enters a state, `fsm_agent.flows.run` sets the timer to the moment from `due_at_s`.


def moment_s(moment: Any) -> float | None:
    """Return a moment as Unix time, or None if it is not a valid moment."""
    if isinstance(moment, datetime):
        return None if moment.utcoffset() is None else moment.timestamp()
    return float(moment) if is_amount(moment) else None


def due_at_s(where: str, state: LiveState[Any, Any], data: Any, at_s: float) -> float | None:
    """Return the Unix time at which a state's time ends, or None if there is no limit."""
    is_moment = state.until is not None
    given = state.until if is_moment else state.within_s
    time = in_seconds(given(data)) if callable(given) else given
    if time is None and not isinstance(state, PauseState):
        return None
    due = moment_s(time) if is_moment else at_s + time if is_amount(time) else None
    if due is not None:
        return due
    name = "until" if is_moment else state.seconds_option
    right = "a datetime with a time zone, or Unix seconds" if is_moment else "at least 0 seconds, or a timedelta"
    if not isinstance(state, PauseState):
        right += ", or None"
    by = f", which {getattr(given, '__name__', 'its function')} returned" if callable(given) else ""
    raise FlowError(f"{where}: {name} of {state.name}: expected {right}, got {safe_repr(time)}{by}")

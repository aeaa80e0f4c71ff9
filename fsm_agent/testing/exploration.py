"""Follows every path through a flow, with every answer, failure and timeout of its states and every cancellation.

It also checks that functions are pure: two calls return equal values, and change no variable outside the function.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from graphlib import CycleError, TopologicalSorter
from inspect import iscoroutinefunction
from itertools import chain, islice, product
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from fsm_agent._internal.structs import differing
from fsm_agent.call.machine import row_name
from fsm_agent.call.outcomes import Begun, Cancelled, Expired, Slept, Started
from fsm_agent.call.process import SEPARATOR, ChildHandle
from fsm_agent.call.record import Reason
from fsm_agent.errors import UsageError
from fsm_agent.flows.flow import Flow
from fsm_agent.flows.parallel import Members
from fsm_agent.flows.process import RunContext, StateResult, outcome_of
from fsm_agent.flows.record import FlowRecord, MembersRecord, Stage, Timer
from fsm_agent.flows.run import FlowRun
from fsm_agent.flows.states import (
    CallState,
    EachState,
    FunctionState,
    LiveState,
    ParallelState,
    PauseState,
    Row,
    SubflowState,
    WaitState,
)
from fsm_agent.flows.values import Failure
from fsm_agent.messages.events import Inside, Stepped
from fsm_agent.validation import require, safe_repr

D = TypeVar("D")

LIMIT = 20_000  # configurations
COMBINATIONS = 1000  # combinations of members' results, each time their state is entered
MOST_LOOPS = 10  # loops that are reported
FAILURE = Failure("explored", "as if it had failed")
_RAISED = ("raised", "wrong type")  # why functions fail
_Answers: TypeAlias = Mapping[Any, Sequence[Any]]  # by state; mappings are invariant in their keys
# Fields of a record that decide nothing, or that the key of a configuration holds in another form.
_NOT_IN_KEYS = {
    *("id", "state", "depth", "once", "children", "usage", "budget_left", "ending", "trace", "flow", "version", "data"),
    *("limits", "extra", "steps", "former_names", "entered_at_s", "started_at_s", "due_at_s", "first_due_at_s"),
}


@dataclass(frozen=True)
class Explored:
    """The results of `explore`.

    Attributes:
        configurations: The number of distinct pairs of a state and data, including those in subflows.
        rows: How often each row was taken, by the row's name.  The name of a row in a subflow begins with the name of
            the subflow.
        missed: The rows that were never taken, including rows in subflows but not default rows.
        ends: How many configurations reached each end.
        longest: The number of steps on the longest path.
        is_whole: Whether everything was tried without reaching a limit on configurations or combinations.
        loops: Examples of loops, in words.  A loop is a path on which only agents and functions answer or fail, and
            which leads back to the same state and data.  Only the limit on steps is certain to end it.  Paths on which
            a person answers or time passes do not count.

    Examples:
        >>> from fsm_agent.flows import Flow, end, wait
        >>> @wait(bool)
        ... def review(n: int) -> str:
        ...     return "Well?"
        >>> letters = Flow("letters", int, start=review, rows=[review.done(end("over"))])
        >>> found = explore(letters, 0, {review: [True, False]})
        >>> found.is_whole, found.missed
        (True, ())
    """

    configurations: int
    rows: Counter[str]
    missed: tuple[str, ...]
    ends: Counter[str]
    longest: int
    is_whole: bool
    loops: tuple[str, ...] = ()


def explore(
    flow: Flow[D],
    data: D,
    answers: _Answers,
    *,
    holds: Callable[[str, D], bool] | None = None,
    limit: int = LIMIT,
) -> Explored:
    """Follow every path through a flow, shortest first, without calling any model or function.

    Subflows are explored as well.  For states with members, `explore` tries combinations of the members' results: first
    enough to include each result once, then up to 1,000 others each time the state is entered.  `gather` and `each`
    receive their results in the order in which the members are listed.  If not all members are needed, each of them
    finishes first in one of the combinations.

    All guards, actions, tasks and questions are called twice to check that they are pure.

    Args:
        flow: The flow.
        data: The initial data.
        answers: The possible answers for each state, including states inside others, with at least one of each type.
            Each state may also time out or fail.  If a guard examines failures, an agent call fails once for each
            `Reason`.  If a state with members or a subflow has answers, nothing inside it is explored.  Use
            ``example_result(output)`` for the whole result of an agent call.
        holds: A function that returns whether a state and data are valid.  It is called for every configuration of the
            flow, but not of its subflows.
        limit: The maximum number of configurations.

    Raises:
        AssertionError: If ``holds`` returns False, if a guard, an action or a task raises an exception or is not pure,
            or if the data does not survive conversion to JSON and back.  The message shows the path that led there.
        UsageError: If a state that returns a value has no answers, or ``holds`` is not a plain function.

    Examples:
        >>> from fsm_agent.flows import Flow, end, wait
        >>> @wait(bool)
        ... def again(n: int) -> str:
        ...     return "Once more?"
        >>> def is_small(n: int) -> bool:
        ...     return n < 3
        >>> rows = [again.done(again, of=True, when=is_small, do=lambda n, yes: n + 1), again.done(end("over"))]
        >>> found = explore(Flow("again", int, start=again, rows=rows), 0, {again: [True, False]})
        >>> found.is_whole, found.configurations
        (True, 12)
    """
    is_plain = holds is None or (callable(holds) and not iscoroutinefunction(holds))
    require("holds", holds, is_plain, "a plain function of state and data that returns True or False")
    known = set(_states_in(flow, {}))
    for state, examples in answers.items():
        require(
            "a state in answers", state, state in known, f"a state of the flow {flow.name!r}, or of a flow inside it"
        )
        is_list = isinstance(examples, Sequence) and not isinstance(examples, str)
        require(f"answers[{state.name}]", examples, is_list, f"a list such as [{examples!r:.40}]")
    needed = [state for state in _states_in(flow, answers) if "done" in state.triggers and not _is_inner(state)]
    if missing := list(dict.fromkeys([state.name for state in needed if not answers.get(state)])):
        raise UsageError(
            f"answers: expected examples for {', '.join(missing)}, got none; pass {{{missing[0]}: […]}}, one of"
            " each type"
        )
    explorer = _Explorer(answers, limit)
    walk = explorer.walk(flow, data, flow._run_context(), holds)
    rows = Counter[str]()
    missed = list[str]()
    for one in (flow, *_flows_in(flow, answers)):
        prefix = "" if one is flow else f"{one.name}: "
        rows.update({f"{prefix}{name}": count for name, count in explorer.rows[one].items()})
        missed += [f"{prefix}{name}" for name, own in one.row_names.items() if own and not explorer.rows[one][name]]
    loops = tuple(explorer.loops)
    return Explored(explorer.count, rows, tuple(missed), walk.ends, walk.longest, explorer.is_whole, loops)


# What is in a flow


def _is_inner(state: LiveState[Any, Any]) -> bool:
    return isinstance(state, SubflowState | ParallelState)


def _states_in(flow: Flow[Any], whole: _Answers) -> Iterator[LiveState[Any, Any]]:
    """Yield the states of a flow, and the states inside each state that has no answers."""

    def inside(state: LiveState[Any, Any]) -> Iterator[LiveState[Any, Any]]:
        yield state
        if not whole.get(state):
            for inner in (*state.members, *(state.flow.live if isinstance(state, SubflowState) else ())):
                yield from inside(inner)

    for state in flow.live:
        yield from inside(state)


def _flows_in(flow: Flow[Any], whole: _Answers) -> list[Flow[Any]]:
    """Return the subflows that are explored, without duplicates."""
    inner = [state for state in _states_in(flow, whole) if isinstance(state, SubflowState) and not whole.get(state)]
    return list(dict.fromkeys([state.flow for state in inner]))


def _is_open(state: LiveState[Any, Any]) -> bool:
    """Return whether a state, or one inside it, waits for a person or for time to pass."""
    inner = (*state.members, *(state.flow.live if isinstance(state, SubflowState) else ()))
    return isinstance(state, WaitState | PauseState) or any(map(_is_open, inner))


# Walks


class _Move(NamedTuple):
    words: str
    make: Callable[[FlowRun[Any]], None]
    is_of_code: bool = False  # decided by an agent or a function, not a person or a clock
    is_cancellation: bool = False


class _Place(NamedTuple):
    """A configuration that has not been visited yet."""

    key: Hashable
    record: FlowRecord
    way: tuple[str, ...]
    was_cancelled: bool


@dataclass
class _Walk:
    ends: Counter[str] = field(default_factory=Counter)
    longest: int = 0
    results: dict[Hashable, StateResult] = field(default_factory=dict)


class _TestedRun(FlowRun[Any]):
    """A run whose guards and actions are called twice, including those in subflows."""

    def __init__(
        self, flow: Flow[Any], record: FlowRecord, run_context: RunContext, machines: dict[Flow[Any], Any]
    ) -> None:
        super().__init__(flow, record, run_context)
        if flow not in machines:
            machines[flow] = machine_of_tested(flow)
        self.machine = machines[flow]
        self._machines = machines

    def child(self, name: str, record: Any) -> ChildHandle:
        inner = super().child(name, record)
        run = inner.process
        if not isinstance(run, FlowRun):
            return inner
        return inner.changed(process=_TestedRun(run.flow, record, run.run_context, self._machines))


class _Explorer:
    """Explores a flow and, separately, each flow that is a member of a state."""

    def __init__(self, answers: _Answers, limit: int) -> None:
        self.rows = defaultdict[Flow[Any], Counter[str]](Counter)
        self.loops: list[str] = []
        self.count = 0
        self.is_whole = True
        self._answers = answers
        self._limit = limit
        self._machines: dict[Flow[Any], Any] = {}
        self._walks: dict[Hashable, _Walk] = {}  # walks through members' flows

    def walk(
        self, flow: Flow[Any], data: Any, run_context: RunContext, holds: Callable[[str, Any], bool] | None = None
    ) -> _Walk:
        walk = _Walk()
        record = flow.record_of(data)
        waiting = deque[_Place]()
        ways: dict[Hashable, tuple[str, ...]] = {}
        steps: dict[Hashable, dict[Hashable, str]] = {}

        def make(move: _Move, before: FlowRecord, way: tuple[str, ...], was_cancelled: bool) -> Hashable:
            run = _TestedRun(flow, before, run_context, self._machines)
            was_cancelled = was_cancelled or move.is_cancellation
            try:
                move.make(run)
                _ = run.effects
                key = (was_cancelled, self._key(run))
                if key not in ways:
                    _check(run, holds)
            except Exception as error:
                path = " → ".join([*way, move.words])
                raise AssertionError(f"{path}: {type(error).__name__}: {error}") from error
            self._count_rows(run)
            if key not in ways:
                ways[key] = (*way, move.words)
                self.count += 1
                waiting.append(_Place(key, run.record, ways[key], was_cancelled))
            return key

        make(_Move("start", _begin), record, (), False)
        while waiting and self.count <= self._limit:
            here = waiting.popleft()
            walk.longest = max(walk.longest, len(here.way))
            run = _TestedRun(flow, here.record, run_context, self._machines)
            if here.record.ending is not None:
                walk.ends[run.state] += 1
                if not here.was_cancelled:
                    walk.results[here.key] = run.state_result()
                continue
            for move in self._moves(run, here.way):
                key = make(move, here.record, here.way, here.was_cancelled)
                if move.is_of_code:
                    steps.setdefault(here.key, {}).setdefault(key, move.words)
        self.is_whole = self.is_whole and not waiting
        self.loops += _loops_in(steps, ways)
        return walk

    def _count_rows(self, run: FlowRun[Any]) -> None:
        for step in run.steps:
            flow: Any = run.flow
            if isinstance(step, Inside):
                for name in step.path.split(SEPARATOR):
                    flow = getattr(flow.states.get(name.partition("#")[0]), "flow", None) if flow else None
                step = step.event
            if isinstance(step, Stepped) and isinstance(flow, Flow):
                self.rows[flow][row_name(step.source, step.trigger, step.to, step.guard)] += 1

    def _key(self, run: FlowRun[Any]) -> Hashable:
        """Return a key that is the same for equal configurations."""
        r = run.record
        rest = [(name, repr(value)) for name, value in differing(r).items() if name not in _NOT_IN_KEYS]
        inner = self._run_inside(run)
        return run.state, run.flow.data_json(run.data), *rest, None if inner is None else self._key(inner)

    def _run_inside(self, run: FlowRun[Any]) -> FlowRun[Any] | None:
        """Return the run inside a run, unless the outer run's state has answers."""
        state, r = run.flow.states[run.state], run.record
        if not isinstance(state, SubflowState) or self._answers.get(state) or r.here not in r.children:
            return None
        inner: FlowRun[Any] = run.inners[r.here].process
        return inner

    # Moves

    def _moves(self, run: FlowRun[Any], way: tuple[str, ...]) -> Iterator[_Move]:
        """Yield everything that can happen to a run."""
        _ = run.effects  # makes the runs inside
        level: FlowRun[Any] | None = run
        path = ""
        while level is not None:
            yield from self._moves_at(level, path, way)
            path += f"{level.record.here}{SEPARATOR}"
            level = self._run_inside(level)
        yield _Move("a cancellation", lambda run: run.advance("", Cancelled()), is_cancellation=True)

    def _moves_at(self, level: FlowRun[Any], path: str, way: tuple[str, ...]) -> Iterator[_Move]:
        """Yield everything that can happen at one level of nested runs."""
        r = level.record
        state: Any = level.flow.states[level.state]
        for effect in level.own_effects():
            if isinstance(effect, Timer):
                ended, key = Slept(at_s=max(effect.until_s, r.entered_at_s)), f"{path}{effect.key}"
                yield _Move(f"the time of {state.name} ends", partial(_advance, key, ended))
        if r.deadline_s is not None:
            of = f" of {level.flow.name}" if path else ""
            yield _Move(f"the deadline{of}", partial(_advance, path, Expired()))
        if self._answers.get(state):
            is_of_code = not _is_open(state)
            for value in self._results(state, None, level.run_context, level.flow.rows):
                words = f"{state.name} fails" if isinstance(value, Failure) else f"{state.name} gives {value!r:.60}"
                words += f" ({value.reason})" if isinstance(value, Failure) and value is not FAILURE else ""
                yield _Move(words, partial(_give, state, value, r.entered_at_s), is_of_code)
        elif isinstance(state, ParallelState):
            try:
                results = self._joined(state, r.data, level.run_context)
            except Exception as error:
                raise AssertionError(f"{' → '.join(way)} → in {state.name}: {error}") from error
            for trigger, answer, *_ in results:
                words = f"{state.name} fails" if trigger == "failed" else f"{state.name} gives {answer!r:.60}"
                result = StateResult(trigger, answer, r.entered_at_s)
                yield _Move(words, partial(_advance, f"{path}{r.here}", result), not _is_open(state))

    # Results of states by themselves

    def _results(
        self, state: LiveState[Any, Any], data: Any, run_context: RunContext, table: Sequence[Row[Any]] = ()
    ) -> list[Any]:
        """Return the values that a state may return, and a `Failure` for each way it may fail.

        Args:
            state: The state.
            data: The data that the state gets.
            run_context: The context of the run that contains the state.
            table: The rows that distinguish the state's failures.  For a member, there are none.
        """
        if given := self._answers.get(state):
            return [*given, *_failures(state, table)]
        if isinstance(state, SubflowState):
            flow, start = state.flow, state.given(data)
            key = flow, flow.data_json(start)
            if key not in self._walks:
                self._walks[key] = self.walk(flow, start, run_context.inside(flow))
            return [result.answer for result in self._walks[key].results.values()]
        assert isinstance(state, ParallelState)
        return [result.answer for result in self._joined(state, data, run_context)]

    def _joined(self, state: ParallelState[Any, Any], data: Any, run_context: RunContext) -> list[StateResult]:
        """Return each distinct result of a state with members."""
        members = state.members_of(data)
        tried = [self._results(member, item, run_context) for _, member, item in members]
        found: dict[Hashable, StateResult] = {}
        combinations = _combinations(state, tried)
        for first, results in islice(combinations, COMBINATIONS):
            result = _join(Members(state, data, MembersRecord(state=Stage.SEEDED), run_context), first, results)
            is_failure = isinstance(result.answer, Failure)
            found.setdefault(repr(result.answer) if is_failure else state.answer_types.dump(result.answer), result)
        self.is_whole = self.is_whole and next(combinations, None) is None
        return [*found.values()]


def _failures(state: LiveState[Any, Any], table: Sequence[Row[Any]]) -> list[Failure]:
    """Return the failures of a state: a single one or, if a guard looks at failures, one for each reason."""
    if "failed" not in state.triggers:
        return []
    is_looked_at = any(row.source is state and row.trigger == "failed" and row.guard is not None for row in table)
    reasons = (
        [reason for reason in Reason if reason is not Reason.ANSWERED] if isinstance(state, CallState) else _RAISED
    )
    return [FAILURE, *([Failure(str(reason), FAILURE.detail) for reason in reasons] if is_looked_at else [])]


def _begin(run: FlowRun[Any]) -> None:
    run.advance("begin", Begun(at_s=0.0, id="explored"))


def _advance(key: str, outcome: Any, run: FlowRun[Any]) -> None:
    run.advance(key, outcome)


def _give(state: LiveState[Any, Any], value: Any, at_s: float, run: FlowRun[Any]) -> None:
    run.give(state, value, at_s=at_s)


def _check(run: FlowRun[Any], holds: Callable[[str, Any], bool] | None) -> None:
    if holds is not None and not holds(run.state, run.data):
        raise AssertionError(f"{getattr(holds, '__name__', 'holds')} is false in {run.state} of {run.data!r}")
    level: Any = run
    while isinstance(level, FlowRun):
        state, r = level.flow.states[level.state], level.record
        if isinstance(state, LiveState):
            check_bodies(state, r.data)
        level = level.inners[r.here].process if r.here in r.children else None


# Members


def _combinations(state: ParallelState[Any, Any], tried: list[list[Any]]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the results of all members, and the index of the member that finishes first.

    First, each result occurs once; then all combinations follow.
    """
    if not all(tried):  # the walk through a member's flow was cut short
        return
    given = [[result for result in results if not isinstance(result, Failure)] for results in tried]
    failing = [[result for result in results if isinstance(result, Failure)] for results in tried]
    if state.is_lenient:
        yield from [(0, chosen) for chosen in _chosen(tried)]
        return
    if state.enough is not None and not state.is_race:  # the order and the failures decide which results there are
        yield from ((index, chosen) for chosen in _chosen(tried) for index in range(len(tried)))
        return
    alone = given if state.is_race else failing  # one of these is enough
    others = [results[0] for results in tried]
    for index, results in enumerate(alone):
        for result in results:
            yield index, (*others[:index], result, *others[index + 1 :])
    together = failing if state.is_race else given
    if all(together):
        for chosen in _chosen(together):
            yield 0, chosen


def _chosen(results: list[list[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield one result for each member.  First, each result occurs once; then all combinations follow."""
    indices = [range(len(one)) for one in results]
    most = max(map(len, indices), default=1)
    first = dict.fromkeys([tuple([number % len(one) for one in indices]) for number in range(most)])
    for chosen in chain(first, (one for one in product(*indices) if one not in first)):
        yield tuple([one[index] for one, index in zip(results, chosen, strict=True)])


def _join(members: Members, first: int, results: Sequence[Any]) -> StateResult:
    """Return the result of a state whose members return these results, with the member at ``first`` finishing first."""
    members.advance("begin", Begun(at_s=0.0, id="explored"))
    waiting = deque(range(len(results)))
    waiting.rotate(-first)
    while members.record.ending is None:
        name, state, _ = members.members[waiting[0]]
        if name not in members.record.children and name not in members.record.once:
            waiting.rotate(-1)  # it has not begun
            continue
        result = results[waiting.popleft()]
        if name in members.record.children:
            trigger = "failed" if isinstance(result, Failure) else "done"
            members.advance(name, StateResult(trigger, result, 0.0))
            continue
        if isinstance(state, FunctionState) and state.function.once:
            members.advance(members.effect_of(name, members.record.once[name]).key, Started(at_s=0.0))  # type: ignore[union-attr]
        effect: Any = members.effect_of(name, members.record.once[name])
        members.advance(effect.key, outcome_of(state, result))
    return members.state_result()


def _loops_in(steps: Mapping[Hashable, Mapping[Hashable, str]], ways: Mapping[Hashable, Sequence[str]]) -> list[str]:
    """Describe at most `MOST_LOOPS` loops in words, one from each part of the graph.

    Args:
        steps: The configurations that follow each configuration, with the step to each in words.
        ways: The steps that lead to each configuration, in words.
    """
    before: dict[Hashable, set[Hashable]] = {}
    for one, following in steps.items():
        for other in following:
            before.setdefault(other, set()).add(one)
    found = list[str]()
    while len(found) < MOST_LOOPS:
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            cycle = error.args[1][:-1]  # each leads to the next, and the last to the first
        else:
            break
        first = min(range(len(cycle)), key=lambda index: len(ways[cycle[index]]))
        cycle = [*cycle[first:], *cycle[:first]]
        words = [steps[one][other] for one, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
        found.append(f"{' → '.join(ways[cycle[0]])}; again and again: {' → '.join(words)}")
        for one in cycle:
            before.pop(one, None)
            for others in before.values():
                others.discard(one)
    return found


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NOT_LOOKED_INTO = (ModuleType, type)
_MOST_COPIED = 10_000  # items of a variable that is compared


def tested(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that calls a function twice and returns the first result.

    Args:
        what: A name for error messages, such as "the guard of the row a --done--> b".
        function: The function.

    Raises:
        AssertionError: If the two results differ, the second call raises, or the first call changes a variable outside
            the function.
    """
    name = f"{what}: {getattr(function, '__name__', repr(function))}"

    @wraps(function)
    def twice(*arguments: Any) -> Any:
        before = {variable: _copy(value) for variable, value in _outside(function)}
        first = function(*arguments)
        for variable, value in _outside(function):
            if variable in before and not _is_same(_copy(value), before[variable]):
                raise AssertionError(
                    f"{name} is not pure: it changes {variable}, which was {safe_repr(before[variable])}"
                )
        try:
            second = function(*arguments)
        except Exception as error:
            raise AssertionError(
                f"{name} is not pure: it returns {safe_repr(first)}, and then raises {error!r}"
            ) from error
        if not _is_same(first, second):
            returns = f"it returns {safe_repr(first)}, and then {safe_repr(second)}"
            raise AssertionError(f"{name} is not pure: {returns} for the same arguments")
        return first

    return twice


def machine_of_tested(flow: Flow[Any]) -> Any:
    """Return a flow's machine with guards and actions that are called twice."""
    twin = copy.copy(flow)
    object.__setattr__(twin, "table", tuple(map(_tested_row, flow.table)))
    object.__setattr__(twin, "state_enum", flow.state_enum)  # the same states
    return twin.machine


def _tested_row(row: Row[Any]) -> Row[Any]:
    made = copy.copy(row)
    for what in ("guard", "action"):
        if (function := getattr(row, what)) is not None:
            setattr(made, what, tested(f"the {what} of the row {row!r}", function))
    return made


def check_bodies(state: LiveState[Any, Any], data: Any) -> None:
    """Call the pure functions of a state and its members twice.

    Raises:
        AssertionError: If a function is not pure.
    """
    for what, function in _bodies(state):
        tested(f"{what} of {state.name}", function)(data)
    if isinstance(state, EachState):
        for _, member, item in state.members_of(data):
            check_bodies(member, item)
        return
    for member in state.members:
        check_bodies(member, data)


def _bodies(state: LiveState[Any, Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    for option in ("within_s", "until"):
        if callable(function := getattr(state, option, None)):
            yield option, function
    match state:
        case CallState():
            yield "the task", state.task
            if not isinstance(state.agent, str) and callable(choose := state.agent) and inspect.isroutine(choose):
                yield "the choice", choose
        case WaitState():
            yield "the question", state.question
        case SubflowState():
            yield "the start", state.given
        case EachState():
            yield "the items", _as_list(state.over)


def _as_list(over: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that returns its items as a list, because two iterators are never equal."""

    @wraps(over)
    def items(data: Any) -> list[Any]:
        return list(over(data))

    return items


def _outside(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each outside variable that the function's code uses."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    namespace = function.__globals__
    yield from [(name, namespace[name]) for name in code.co_names if name in namespace]


class _Attributes(dict[str, Any]):
    """An object's attributes.  New attributes do not count as changes, because they may be cached values."""

    def __eq__(self, before: object) -> bool:
        return isinstance(before, dict) and all(_is_same(self.get(name), value) for name, value in before.items())

    __hash__ = None


def _copy(value: Any) -> Any:
    """Return a copy that can be compared with the value later, to detect changes in place."""
    kind = type(value)
    if isinstance(value, list | set | dict | bytearray | deque):
        return copy.copy(value) if len(value) <= _MOST_COPIED else value
    is_plain = inspect.isroutine(value) or isinstance(value, _NOT_LOOKED_INTO) or not hasattr(value, "__dict__")
    return value if is_plain or kind.__module__.partition(".")[0] == "fsm_agent" else _Attributes(vars(value))


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal or, if their type compares only identity, have the same representation."""
    try:
        if one is other or bool(one == other):
            return True
    except Exception:  # raised by the user's comparison
        pass
    return type(one) is type(other) and _ADDRESS.sub("", repr(one)) == _ADDRESS.sub("", repr(other))

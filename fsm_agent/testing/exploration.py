"""Walk every path through a flow: every answer, failure and timeout of its states, and every cancellation."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from fsm_agent.errors import UsageError
from fsm_agent.flows.definition.answer_types import Failure
from fsm_agent.flows.definition.states import LiveState
from fsm_agent.flows.definition.table import row_name
from fsm_agent.flows.flow import Flow
from fsm_agent.flows.process.flow_run import FlowRun
from fsm_agent.flows.process.record import FlowRecord
from fsm_agent.lifecycle.outcomes import Begun, Cancelled, Expired, Slept
from fsm_agent.messages.event import Stepped
from fsm_agent.mistakes import check

D = TypeVar("D")

LIMIT = 20_000  # configurations


@dataclass(frozen=True)
class Explored:
    """The extent of an exploration.

    Attributes:
        configurations: The number of distinct pairs of state and data.
        rows: How often each row was taken, by name.
        missed: The rows that users wrote and that were never taken.
        ends: How many configurations each end has.
        longest: The number of steps of the longest path.
        is_whole: The limit did not cut the exploration short.
    """

    configurations: int
    rows: Counter[str]
    missed: tuple[str, ...]
    ends: Counter[str]
    longest: int
    is_whole: bool


class _Move(NamedTuple):
    words: str
    make: Callable[[FlowRun[Any]], None]


def explore(
    flow: Flow[D],
    data: D,
    answers: Mapping[LiveState[Any, Any], Sequence[Any]],
    *,
    holds: Callable[[str, D], bool] | None = None,
    limit: int = LIMIT,
) -> Explored:
    """Walk every path, shortest first, without calling any model or function.

    Args:
        flow: The flow.
        data: What it begins with.
        answers: The possible answers of each state, at least one of each type; each may also fail or time out.  A state
            with members, or another flow, gives one answer as a whole.
        holds: What is to be true of state and data wherever the flow can be.
        limit: How many configurations are looked at.

    Raises:
        AssertionError: ``holds`` is not true; or a guard, an action or a task raised, or JSON changes the data.  The
            message has the way there.
        UsageError: A state that gives something has no answers, or an argument is of another type.
    """
    check("the flow", flow, isinstance(flow, Flow), "a Flow")
    check("answers", answers, isinstance(answers, Mapping), "lists by state, such as {review: [True, False]},")
    for state, examples in answers.items():
        check("a state in answers", state, isinstance(state, LiveState), f"a state of the flow {flow.name!r} itself")
        is_list = isinstance(examples, Sequence) and not isinstance(examples, str)
        check(f"answers[{state.name}]", examples, is_list, f"a list such as [{examples!r:.40}]")
    if missing := [state.name for state in flow.live if "done" in state.triggers and not answers.get(state)]:
        raise UsageError(f"answers has none of {', '.join(missing)}: {{{missing[0]}: […]}}, one of each type, is right")
    first: FlowRun[D] = FlowRun(flow, flow.record_of(data))
    rows, ends, longest = Counter[str](), Counter[str](), 0
    _walk(first, _Move("start", _begin), (), rows, holds)
    seen = {_configuration(flow, first.record)}
    waiting: deque[tuple[FlowRecord, tuple[str, ...]]] = deque([(first.record, ("start",))])
    while waiting and len(seen) <= limit:
        record, way = waiting.popleft()
        longest = max(longest, len(way))
        if record.ending is not None:
            ends[str(record.state)] += 1
            continue
        for move in _moves(flow, record, answers):
            run: FlowRun[D] = FlowRun(flow, record)
            _walk(run, move, way, rows, holds)
            if (found := _configuration(flow, run.record)) not in seen:
                seen.add(found)
                waiting.append((run.record, (*way, move.words)))
    missed = tuple([name for name, is_own in flow.row_names.items() if is_own and not rows[name]])
    return Explored(len(seen), rows, missed, ends, longest, not waiting)


def _begin(run: FlowRun[Any]) -> None:
    run.advance("begin", Begun(at_s=0.0, id="explored"))


def _walk(
    run: FlowRun[Any], move: _Move, way: tuple[str, ...], rows: Counter[str], holds: Callable[[str, Any], bool] | None
) -> None:
    """Make a move, and check the resulting run."""
    try:
        move.make(run)
        _ = run.effects
        run.flow.data_json(run.data)  # refuses data that JSON changes
        if holds is not None and not holds(run.state, run.data):
            raise AssertionError(f"{getattr(holds, '__name__', 'holds')} is not true in {run.state} of {run.data!r}")
    except Exception as error:
        path = " → ".join([*way, move.words])
        raise AssertionError(f"{path}: {type(error).__name__}: {error}") from error
    for step in run.steps:
        if isinstance(step, Stepped):
            rows[row_name(step.source, step.trigger, step.to, step.guard)] += 1


def _give(state: LiveState[Any, Any], value: Any, run: FlowRun[Any]) -> None:
    run.give(state, value, at_s=run.record.entered_at_s)


def _configuration(flow: Flow[Any], r: FlowRecord) -> tuple[str, str, frozenset[str]]:
    return str(r.state), flow.data_json(r.data), frozenset(r.reacted_to)


def _moves(flow: Flow[Any], r: FlowRecord, answers: Mapping[LiveState[Any, Any], Sequence[Any]]) -> Iterator[_Move]:
    state: Any = flow.states[str(r.state)]
    for value in answers.get(state, ()):
        yield _Move(f"{state.name} gives {value!r:.60}", partial(_give, state, value))
    if "failed" in state.triggers:
        failure = Failure("explored", "as if it had failed")
        yield _Move(f"{state.name} fails", partial(_give, state, failure))
    if state.is_timed and (due_at_s := r.due_at_s) is not None:
        at_s = max(due_at_s, r.entered_at_s)
        yield _Move(f"the time of {state.name} ends", lambda run: run.advance(f"sleep:{r.here}", Slept(at_s=at_s)))
    if r.deadline_s is not None:
        yield _Move("the deadline", lambda run: run.advance("", Expired()))
    yield _Move("a cancellation", lambda run: run.advance("", Cancelled()))

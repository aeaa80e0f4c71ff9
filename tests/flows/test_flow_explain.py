"""Does a run say which row what comes would take, and why, without taking it?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from deep_flow import outcome_for, walk

from fsm_agent import Agent, Context
from fsm_agent.call import Begun, Cancelled, Returned, Slept
from fsm_agent.errors import OutcomeError, UsageError
from fsm_agent.flows import Failure, Flow, FlowError, FlowSuspended, ask, each, end, execute, gather, subflow, wait
from fsm_agent.messages import Inside
from fsm_agent.testing import Script


@dataclass(frozen=True)
class Text:
    text: str = ""
    n: int = 0


def is_long(d: Text) -> bool:
    return len(d.text) > 3


def is_good(d: Text, n: int) -> bool:
    return n > 5


def is_broken(d: Text, n: int) -> bool:
    raise LookupError("no such key")


good, bad, long, lost, late = end("good"), end("bad"), end("long"), end("lost"), end("late")


@execute
def rate(d: Text) -> int:
    return 1


@execute(once=True)
def send(d: Text) -> int:
    return 1


@wait(int, within_s=600, early=True)
def asking(d: Text) -> str:
    return "?"


@ask(Agent(Script(), name="judge"), int)  # a model that would fail if it were asked
def judge(d: Text) -> str:
    return "How good?"


def rows_of(state: Any) -> list[Any]:
    more = [state.failed(lost)] if state is not asking else [state.elapsed(late)]
    rows = [state.done(long, when=is_long), state.done(good, when=is_good), state.done(bad), state.cancelled(late)]
    return [*rows, *more]


def begun(state: Any, data: Any = Text()) -> Any:
    run = Flow("rating", Text, start=state, rows=rows_of(state)).prepare(data)
    run.advance("begin", Begun(at_s=0.0, id="r"))
    return run


def told(explanation: Any) -> list[tuple[str, bool | None, bool]]:
    return [(row.guard, row.said, row.is_taken) for row in explanation.rows]


@pytest.mark.parametrize("state", [rate, send, asking, judge], ids=lambda state: state.name)
def test_a_state_tells_by_a_value_which_guard_says_what(state: Any) -> None:
    run = begun(state)
    before, effects = run.record, run.effects
    expected = [("is_long", False, False), ("is_good", True, True), ("", None, False)]
    assert told(run.explain(7, key=state)) == expected
    assert run.explain(3, key=state).taken.to == "bad"
    assert told(begun(state, Text("a text")).explain(3, key=state))[0] == ("is_long", True, True)
    if state is not asking:
        assert run.explain(Failure("raised"), key=state).taken.to == "lost"
    assert (run.record is before, run.effects) == (True, effects)


def test_what_no_state_gives_is_explained_by_its_key() -> None:
    run = begun(asking)
    assert run.explain(Cancelled(reason="ill")).taken.to == "late"
    assert run.explain(Slept(at_s=600.0), key="sleep:asking#1").taken.to == "late"
    assert run.explain(Returned(text="7"), key="inbox:asking").taken.to == "good"
    with pytest.raises(OutcomeError, match="'x'"):
        run.explain("x", key=asking)
    with pytest.raises(OutcomeError, match="rate"):
        run.explain(1, key=rate)


@pytest.mark.parametrize(("key", "value"), [("", 7), ("", None), ("", Text()), ("", Cancelled), (7, Cancelled())])
@pytest.mark.parametrize("process", [begun(rate), Agent(Script("Hi.")).prepare("Hello")], ids=["a flow", "a call"])
@pytest.mark.parametrize("verb", ["explain", "advance"])
def test_what_is_no_outcome_and_no_key_is_refused(verb: str, process: Any, key: Any, value: Any) -> None:
    before = process.record
    with pytest.raises((OutcomeError, UsageError)):
        process.explain(value, key=key) if verb == "explain" else process.advance(key, value)
    assert process.record is before


def test_a_step_inside_that_is_not_kept_is_refused_by_its_path() -> None:
    call = Agent(Script("Hi.")).call("Hello").call
    step = Inside("gone#1/run:1.0", call.record.trace[0])
    for process in (begun(rate), call):
        with pytest.raises(UsageError, match="gone#1"):
            process.explain(step)


def test_a_guard_that_raises_is_told() -> None:
    flow = Flow("f", Text, start=rate, rows=[rate.done(good, when=is_broken), rate.done(bad)])
    run = flow.prepare(Text())
    run.advance("begin", Begun(at_s=0.0))
    explanation = run.explain(1, key=rate)
    assert (explanation.taken, explanation.rows[0].error) == (None, "LookupError: no such key")
    with pytest.raises(LookupError):
        run.give(rate, 1)
    assert run.state == "rate"


plain = wait(int, name="plain")(lambda d: "?")
inner = Flow("inner", Text, start=asking, rows=rows_of(asking))
nested = subflow("nested", inner, lambda d: d)


@pytest.mark.parametrize(
    ("around", "to"),
    [
        (nested, "good"),
        (gather("both", plain, rate), "Working"),
        (each("all_of", plain, lambda d: (d,)), "Completed"),
        (each("flows", nested, lambda d: (d,)), "good"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_state_inside_is_explained_by_the_table_there(around: Any, to: str) -> None:
    run = Flow("f", Text, start=around, rows=[around.done(good)]).prepare(Text())
    run.advance("begin", Begun(at_s=0.0, id="r"))
    before = run.record
    (key,) = [effect.key for effect in run.effects if effect.prefix == "answer"]
    assert run.explain(Returned(text="7"), key=key).taken.to == to
    assert run.record is before


@pytest.mark.parametrize("seed", range(6))
def test_each_step_of_a_walk_is_the_one_that_was_explained(seed: int) -> None:
    """And what the trace deduces of a step is what its guards had said."""
    expected: Any = None
    for run, effect in walk(seed):
        if expected is not None:
            first = run.steps[0]
            step = first.event if isinstance(first, Inside) else first
            row = expected.taken
            assert (row.source, row.trigger, row.to, row.guard) == (step.source, step.trigger, step.to, step.guard)
        before = run.record
        expected = None if effect is None else run.explain(outcome_for(effect), key=effect.key)
        assert run.record is before
    for step in run.record.trace:
        assert run.explain(step).taken.to == step.to


# A run that has not begun


def test_a_result_begins_a_run() -> None:
    @execute(once=True)
    def rating(d: Text) -> int:
        return 1

    rows = [rating.done(good, when=is_good), rating.done(judge), judge.done(bad)]
    run = Flow("rated", Text, start=rating, rows=rows).prepare(Text("abc"))
    assert "rating --done [is_good]--> good" in str(run.explain(9, key=rating))
    with pytest.raises(OutcomeError, match="judge"):
        run.give(judge, 1)
    assert run.state == "Seeded"
    run.give(rating, 1)
    assert (run.state, bool(run.record.id)) == ("judge", True)


# Functions of states


def test_the_function_of_a_state_is_still_a_function() -> None:
    @execute
    async def greet(name: str, context: Context[str]) -> str:
        return f"{context.deps} {name}"

    assert rate(Text()) == 1
    assert asyncio.run(greet("Ada", Context(deps="Dear"))) == "Dear Ada"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Flow("rated", Text, start=rate, rows=[rate.done(asking, do=send), asking.done(bad)]),
        lambda: execute(rate),
        lambda: ask(rate, int),
        lambda: each("all", asking, rate),
    ],
)
def test_a_state_in_place_of_a_pure_function_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(FlowError, match=r"send|rate"):
        make()


def test_a_state_is_no_function_for_a_model() -> None:
    for state in (asking, judge, rate):
        with pytest.raises(UsageError):
            Agent(Script(), functions=[state])


def test_a_suspended_flow_has_questions() -> None:
    with pytest.raises(FlowSuspended) as waiting:
        Flow("asked", Text, start=asking, rows=[asking.done(good)]).call(Text())
    assert [(question.kind, question.text) for question in waiting.value.questions] == [("answer", "?")]


def test_a_second_parameter_that_is_no_context_is_refused() -> None:
    """For example, a member of `each` that expects the data as well as the item."""

    def rating(d: Text, item: int) -> int:
        return item

    with pytest.raises(FlowError, match=r"rating.*item"):
        execute(rating)

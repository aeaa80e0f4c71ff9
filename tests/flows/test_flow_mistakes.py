"""Do wrong arguments and data of a flow get an error that names them and what would be right, in words of ours?"""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from fsm_agent import Agent, MemoryStore, Retries, UsageError
from fsm_agent.call import Begun, Returned, snapshot
from fsm_agent.errors import FsmAgentError, OutcomeError, SnapshotError
from fsm_agent.flows import (
    Flow,
    FlowError,
    FlowFailed,
    FlowLimits,
    FlowSuspended,
    ask,
    each,
    end,
    execute,
    subflow,
    wait,
)
from fsm_agent.functions import Default
from fsm_agent.store import RunExists, RunUnknown
from fsm_agent.testing import Script


@dataclass(frozen=True)
class Letter:
    about: str
    n: int = 0


review = wait(Letter, int, name="review")(lambda d: "?")
letters = Flow("letters", Letter, start=review, rows=[review.done(end("over"))])


def made(**options: Any) -> Flow[Letter]:
    return replace(letters, **options)


def begun() -> Any:
    run = letters.prepare(Letter("x"))
    run.advance("begin", Begun(at_s=1.0, id="r"))
    return run


async def later(*given: Any) -> Any:
    return given


ARGUMENTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: made(name=5), "name"),
    (lambda: made(rows=5), "rows"),
    (lambda: made(rows=iter(letters.rows)), "rows"),
    (lambda: made(limits=5), "limits"),
    (lambda: FlowLimits(steps=0), "steps"),
    (lambda: FlowLimits(deadline_s=float("nan")), "deadline_s"),
    (lambda: made(version="1"), "version"),
    (lambda: made(upgrades={"1": str}), "upgrades"),
    (lambda: made(approve=True), "approve"),
    (lambda: made(answer="yes"), "answer"),
    (lambda: made(answer=int), "answer"),
    (lambda: made(answer=lambda: 1), "answer"),
    (lambda: made(answer=lambda question: "one").call(Letter("x")), "answer.*review"),
    (lambda: made(upgrades={1: later}, version=2), "upgrades"),
    (lambda: made(agents=[5]), "agents"),
    (lambda: made(agents={"clerk": "Ann"}), "agents"),
    (lambda: made(environment={"clok": 5}), "'clok'"),
    (lambda: letters.prepare(Letter("x"), clients={review: Script()}), "review"),
    (lambda: letters.prepare(Letter("x"), extra={"ticket": object()}), "extra"),
    (lambda: letters.prepare(Letter("x"), extra=[]), "extra"),
    (lambda: asked.prepare(Letter("x"), clients={ask(bot)(lambda d: "?"): Script()}), "asking"),
    (lambda: asked.prepare(Letter("x"), clients={asked.start: "hello"}), "'hello'"),
    (lambda: snapshot(begun()), "FlowRun"),
]


@pytest.mark.parametrize(("make", "name"), ARGUMENTS, ids=[name for _, name in ARGUMENTS])
def test_arguments_of_a_flow(make: Callable[[], Any], name: str) -> None:
    with pytest.raises(UsageError, match=name):
        make()


OPTIONS = [one.name for one in fields(Flow)]
WRONG = [None, "", 0, -1, [], {}, {1: 1}, {"a": None}, int, later, object(), float("nan")]


@pytest.mark.parametrize("name", [one.name for one in fields(Flow) if one.init])
def test_an_option_is_taken_or_refused_by_its_name(name: str) -> None:
    def refusal(value: Any) -> str:
        try:
            made(**{name: value})
        except UsageError as error:
            return str(error)
        return ""

    assert all(not said or name.removesuffix("s") in said for said in map(refusal, WRONG))


def test_a_dataclass_gives_the_options_of_its_flows_other_defaults() -> None:
    @dataclass(frozen=True, eq=False)
    class Stored(Flow[Letter]):
        version: int = 3

    one = Stored("letters", Letter, start=review, rows=letters.rows)
    assert replace(one, hooks=()).version == 3
    hints = typing.get_type_hints(Stored.__init__)  # names of another module
    assert hints["rows"] == typing.get_type_hints(Flow.__init__)["rows"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("rows", [*letters.rows]), ("hooks", []), ("upgrades", {}), ("agents", {}), ("environment", {})],
)
def test_what_happens_to_an_argument_later_does_not_change_the_flow(name: str, value: Any) -> None:
    one, before = made(**{name: value}), len(value)
    value.clear() if name == "rows" else value.append(1) if isinstance(value, list) else value.update({1: 1})
    assert len(getattr(one, name)) == before


DATA: list[tuple[Callable[[], Any], type[FsmAgentError], str]] = [
    (lambda: letters.data_of('{"abut": 1, "n": "x"}'), FlowError, "about"),
    (lambda: letters.data_of("{"), FlowError, "letters"),
    (lambda: letters.data_of('"\ud800"'), FlowError, "letters"),
    (lambda: made(store=MemoryStore()).prepare(Letter(5)), FlowError, r"Letter\.about"),  # type: ignore[arg-type]
    (lambda: begun().advance("answer:review#1", Returned(text='{"about": 5}')), OutcomeError, r"Letter\.about"),
    (lambda: letters.restore(begun().snapshot().replace('"about"', '"abut"')), SnapshotError, "about"),
    (lambda: made(store=MemoryStore()).runs.resume("r", [5]), RunUnknown, "'r'"),
]


@pytest.mark.parametrize(("do", "kind", "name"), DATA)
def test_data_of_a_flow(do: Callable[[], Any], kind: type[FsmAgentError], name: str) -> None:
    with pytest.raises(kind, match=name) as error:
        do()
    assert "pydantic" not in str(error.value).lower()


def answered(state: Any) -> Any:
    return Flow("f", Letter, start=state, rows=[state.done(end("over"))])


bot = Agent("openai:gpt-5-mini", name="bot")
asked = answered(ask(bot, name="asking")(lambda d: "?"))


async def later(d: Letter) -> str:
    return ""


async def laters(d: Letter) -> Any:
    yield ""


def forgets(d: Letter, a: Any) -> bool:
    a == 5  # noqa: B015
    return None  # type: ignore[return-value]


@execute
def counting(d: Letter) -> int:
    return 5


def generating(d: Letter) -> str:
    yield ""


def each_of(over: Any = lambda d: (), member: Any = counting, parallel: Any = 1) -> Any:
    every = each("every", member, over, parallel=parallel)
    return Flow("f", Letter, start=every, rows=[every.done(end("over"))])


def nothing() -> str:
    return "?"


def is_meant(d: Letter, a: int) -> bool:
    return a > 3


def counted(*rows: Any, **functions: Any) -> Any:
    over = end("over")
    return Flow("f", Letter, start=counting, rows=[*rows, counting.done(over, **functions), counting.done(end("x"))])


DECLARED: list[tuple[Callable[[], Any], str]] = [
    (lambda: ask(bot)("Hi"), "'Hi'"),
    (lambda: ask(bot)(later), "later"),
    (lambda: ask(later, str), "later"),
    (lambda: wait(str)(5), "5"),
    (lambda: wait(str)(later), "later"),
    (lambda: wait(generating), "types"),
    (lambda: each_of(5), "every"),
    (lambda: each_of(laters), "laters"),
    (lambda: each_of(member=forgets), "forgets"),
    (lambda: each_of(parallel=1.5), "parallel"),
    (lambda: subflow("sub", None, later), "'sub'"),
    (lambda: subflow("sub", letters, 5), "'sub'"),
    (lambda: subflow("sub", letters, later), "later"),
    (lambda: end("over", failed=5), "failed.*5"),  # type: ignore[arg-type]
    (lambda: end(5), "end.*5"),  # type: ignore[arg-type]
    (lambda: execute(generating), "generating"),
    (lambda: execute(laters), "laters"),
    (lambda: counted(when=is_meant, do=lambda d: d), "is_meant.*<lambda>"),
    (lambda: answered(ask(bot)(nothing)), "nothing"),
    (lambda: answered(wait(int)(forgets)), "forgets"),
    (lambda: each_of(lambda: ()), "every"),
]


@pytest.mark.parametrize(("do", "name"), DECLARED)
def test_what_is_declared(do: Callable[[], Any], name: str) -> None:
    with pytest.raises(FlowError, match=name):
        do()


def test_a_guard_that_returns_nothing_takes_no_other_way_in_silence() -> None:
    over, other = end("over"), end("other")
    flow = Flow("f", Letter, start=counting, rows=[counting.done(over, when=forgets), counting.done(other)])
    run = flow.prepare(Letter("x"))
    with pytest.raises(FlowError, match="forgets"):
        flow.run(run)
    assert run.state == "counting"
    assert flow_of_guard(lambda d, a: a).call(Letter("x")).state == "over", "what is true or false is, as ever"


def flow_of_guard(held: Callable[[Letter, int], Any]) -> Flow[Letter]:
    def holds(d: Letter, a: int) -> Any:
        return held(d, a)

    rows = [counting.done(end("over"), when=holds), counting.done(end("other"))]
    return Flow("f", Letter, start=counting, rows=rows)


async def in_a_coroutine(d: Letter) -> int:
    return "many"  # type: ignore[return-value]


def in_a_thread(d: Letter) -> int:
    return "many"  # type: ignore[return-value]


@pytest.mark.parametrize("function", [in_a_coroutine, in_a_thread])
@pytest.mark.parametrize("options", [{"on_error": Default(7)}, {"retries": Retries(attempts=2, delay_s=0)}])
def test_a_result_of_another_type_fails_with_both_drivers_whatever_the_policy(function: Any, options: Any) -> None:
    flow = answered(execute(name="counting", **options)(function))
    for driven in (flow.call, lambda data: asyncio.run(flow.acall(data))):
        with pytest.raises(FlowFailed, match="counting"):
            driven(Letter("x"))


def test_a_question_of_nothing_is_refused_before_the_step_is_taken() -> None:
    run = answered(wait(int, name="person")(lambda d: None)).prepare(Letter("x"))
    with pytest.raises(FlowError, match="'person'"):
        run.flow.run(run)
    assert run.state == "Seeded"


def test_an_empty_task_is_an_error_that_names_its_state() -> None:
    @ask(Agent(Script("ok"), name="echo"))
    def echoing(d: Letter) -> str:
        return ""

    run = Flow("f", Letter, start=echoing, rows=[echoing.done(end("over"))]).prepare(Letter("x"))
    with pytest.raises(FlowError, match="'echoing'"):
        run.flow.run(run)
    assert run.state == "Seeded"


ABOUT: list[tuple[Callable[[Any], object], str]] = [
    (lambda run: run.give("answer:person#1", 5), "state of give.*'answer:person#1'"),
    (lambda run: run.give(None, 5), "state of give.*None"),
    (lambda run: run.advance(run.flow.states["person"], Returned(text="5")), "key of advance.*person"),
    (lambda run: run.explain(5), "event of explain.*5"),
]


@pytest.mark.parametrize(("do", "name"), ABOUT)
def test_what_an_answer_is_about(do: Callable[[Any], object], name: str) -> None:
    with pytest.raises(FlowSuspended) as waiting:
        answered(wait(int, name="person")(lambda d: "?")).call(Letter("x"))
    with pytest.raises(UsageError, match=name):
        do(waiting.value.run)
    waiting.value.run.give(waiting.value.run.flow.states["person"], 5)


def test_one_name_of_a_run_is_not_for_two_calls_that_differ() -> None:
    kept = replace(answered(wait(int, name="person")(lambda d: "?")), store=MemoryStore())
    for extra in ({"a": 1}, {"a": 1}):
        with pytest.raises(FlowSuspended):
            kept.call(Letter("x"), run_id="r", extra=extra)
    for other in ({"a": 2}, None):
        with pytest.raises(RunExists, match="extra"):
            kept.call(Letter("x"), run_id="r", extra=other)
    with pytest.raises(RunExists, match="data"):
        kept.call(Letter("y"), run_id="r", extra={"a": 1})

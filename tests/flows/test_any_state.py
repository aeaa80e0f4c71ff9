"""Are rows that many states share, written once, the same as rows that are written for each?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fsm_agent import Agent
from fsm_agent.diagrams import render
from fsm_agent.flows import Failure, Flow, FlowError, any_state, call, end, execute, flow_diagram, pause, wait
from fsm_agent.lifecycle import Begun
from fsm_agent.testing import FakeClock, Script


@dataclass(frozen=True)
class Job:
    broken: str = ""
    why: str = ""
    done: tuple[str, ...] = ()


def step(name: str, within_s: float | None = None) -> Any:
    def work(d: Job) -> str:
        if d.broken == name:
            raise ValueError(f"{name} is broken")
        return name

    return execute(work, name=name) if within_s is None else execute(name=name, within_s=within_s)(work)


first, second, third = step("first", 60), step("second", 60), step("third")
sent, late = end("sent"), end("late")


@execute
def apologising(d: Job) -> str:
    return f"sorry: {d.why}"


def keep_reason(d: Job, why: Failure) -> Job:
    return replace(d, why=why.detail)


def add(d: Job, name: str) -> Job:
    return replace(d, done=(*d.done, name))


def is_known(d: Job) -> bool:
    return d.broken == "second"


FOLLOWING = [
    first.done(second, do=add),
    second.done(third, do=add),
    third.done(sent, do=add),
    apologising.done(sent, do=add),
]
ALONE = [
    *(state.failed(apologising, when=is_known, do=keep_reason) for state in (first, second, third)),
    *(state.failed(sent) for state in (first, second, third)),
    *(state.elapsed(late) for state in (first, second)),
]
SHARED = [
    *any_state(first, second, third).failed(apologising, when=is_known, do=keep_reason),
    *any_state(first, second, third).failed(sent),
    *any_state(first, second).elapsed(late),
]


def is_third(d: Job) -> bool:
    return d.broken == "third"


def job(rows: list[Any], **options: Any) -> Flow[Job]:
    return Flow("job", Job, start=first, rows=[*FOLLOWING, *rows], **options)


def test_the_table_is_that_of_rows_written_for_each() -> None:
    assert list(map(repr, SHARED)) == list(map(repr, ALONE))
    assert job(SHARED).fingerprint == job(ALONE).fingerprint
    pictures = [render(flow_diagram(job(rows)), "mermaid") for rows in (SHARED, ALONE)]
    assert pictures[0] == pictures[1]


DRIVERS: dict[str, Callable[[Flow[Job], Job], Any]] = {
    "sync": lambda flow, data: flow.call(data),
    "asyncio": lambda flow, data: asyncio.run(flow.acall(data)),
    "stream": lambda flow, data: [*flow.stream(data)][-1].result,  # type: ignore[union-attr]
}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("", Job(done=("first", "second", "third"))),
        ("second", Job("second", "ValueError: second is broken", ("first", "sorry: ValueError: second is broken"))),
        ("third", Job("third", "", ("first", "second"))),
    ],
)
def test_each_state_takes_its_row(driver: str, broken: str, expected: Job) -> None:
    result = DRIVERS[driver](job(SHARED), Job(broken))
    assert (result.state, result.output) == ("sent", expected)


def test_times_that_end_are_shared_too() -> None:
    @wait(str, name="one", within_s=5)
    def one(d: Job) -> str:
        return "?"

    @wait(str, name="two", within_s=7)
    def two(d: Job) -> str:
        return "?"

    rows = [one.done(two), two.done(sent), *any_state(one, two).elapsed(late, do=lambda d, a: replace(d, why="late"))]
    clock = FakeClock()
    result = Flow("asked", Job, start=one, rows=rows, world={"clock": clock}).call(Job())
    assert (result.state, result.output.why, clock.sleeps) == ("late", "late", [5.0])


def test_answers_of_one_type_are_shared() -> None:
    one, two = (wait(bool, name=name)(lambda d: "?") for name in ("one", "two"))
    rows: list[Any] = [one.done(two, of=True), two.done(sent, of=True), *any_state(one, two).done(late, of=False)]
    flow = Flow("asked", Job, start=one, rows=rows)
    run = flow.seed(Job())
    run.advance("begin", Begun(at_s=1.0))
    run.give(one, True)
    run.give(two, False)
    assert run.state == "late"


def test_a_row_of_its_own_stands_before_the_shared_one() -> None:
    own = third.failed(late, when=is_third)
    assert job([own, *SHARED]).call(Job("third")).state == "late"
    with pytest.raises(
        FlowError, match=r"third --failed \[is_third\]--> late is never taken, since rows before it take all"
    ):
        job([*SHARED, own])


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no state": (any_state, FlowError, "any_state was given no state: the states whose rows these are would be right"),
    "an end": (
        lambda: any_state(first, sent),  # type: ignore[arg-type]
        FlowError,
        "any_state was given the end 'sent', and no row leads out of an end: leave it out",
    ),
    "a text": (
        lambda: any_state(first, "second"),  # type: ignore[arg-type]
        FlowError,
        "any_state was given 'second': states that wait would be right",
    ),
    "a state twice": (
        lambda: any_state(first, second, first),
        FlowError,
        "any_state was given 'first' twice: once would be right",
    ),
    "a state without the row": (
        lambda: any_state(first, wait(str, name="asking")(lambda d: "?")).failed(sent),
        AttributeError,
        "the state <WaitState asking> makes no rows of 'failed': it makes those of done and elapsed",
    ),
    "a pause": (
        lambda: any_state(first, pause("nap", 5)).done(sent),
        AttributeError,
        "the state <PauseState nap> makes no rows of 'done': it makes those of elapsed",
    ),
    "no star": (
        lambda: job([any_state(first, second).failed(sent)]),
        FlowError,
        "flow 'job': rows has (first --failed--> sent, second --failed--> sent): *any_state(…), with the star, would",
    ),
    "no time": (
        lambda: job([*any_state(first, third).elapsed(late)]),
        FlowError,
        "flow 'job': the row third --elapsed--> late never happens: third has no within_s=…",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_what_cannot_be_right_is_refused_and_named(what: str) -> None:
    make, kind, problem = MISTAKES[what]
    with pytest.raises(kind) as error:
        make()
    assert str(error.value).startswith(problem)


def test_it_is_shown_by_its_states() -> None:
    assert repr(any_state(first, second)) == "any_state(first, second)"


def test_one_state_is_enough() -> None:
    assert [repr(row) for row in any_state(first).failed(sent)] == ["first --failed--> sent"]


def test_whole_results_are_given_as_they_are() -> None:
    bot = Agent(Script("text"), name="bot")
    asking = call(bot, name="asking", whole=True)(lambda d: "?")
    rows = any_state(asking).done(sent, do=lambda d, a: replace(d, why=a.output))
    assert Flow("f", Job, start=asking, rows=rows).call(Job()).output.why == "text"

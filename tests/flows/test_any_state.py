"""Are rows that many states share, written once, equal to rows that are written for each?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fsm_agent.diagrams import render
from fsm_agent.flows import Failure, Flow, FlowError, any_state, end, execute, flow_diagram, pause, wait
from fsm_agent.testing import FakeClock


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


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("", Job(done=("first", "second", "third"))),
        ("second", Job("second", "ValueError: second is broken", ("first", "sorry: ValueError: second is broken"))),
        ("third", Job("third", "", ("first", "second"))),
    ],
)
def test_each_state_takes_its_row(broken: str, expected: Job) -> None:
    result = job(SHARED).call(Job(broken))
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
    result = Flow("asked", Job, start=one, rows=rows, environment={"clock": clock}).call(Job())
    assert (result.state, result.output.why, clock.sleeps) == ("late", "late", [5.0])


def test_a_row_of_its_own_stands_before_the_shared_one() -> None:
    own = third.failed(late, when=is_third)
    assert job([own, *SHARED]).call(Job("third")).state == "late"
    with pytest.raises(FlowError, match="is_third"):
        job([*SHARED, own])


MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (any_state, FlowError, "any_state"),
    (lambda: any_state(first, sent), FlowError, "sent"),  # type: ignore[arg-type]
    (lambda: any_state(first, "second"), FlowError, "second"),  # type: ignore[arg-type]
    (lambda: job([*any_state(first, first).failed(sent)]), FlowError, "first --failed--> sent"),
    (lambda: any_state(first, pause("nap", 5)).done(sent), AttributeError, "PauseState.*'done'"),
    (lambda: job([any_state(first, second).failed(sent)]), FlowError, "first --failed--> sent"),
    (lambda: job([*any_state(first, third).elapsed(late)]), FlowError, "third --elapsed--> late"),
]


@pytest.mark.parametrize(("make", "kind", "name"), MISTAKES)
def test_what_cannot_be_right_is_refused_and_named(make: Callable[[], Any], kind: type[Exception], name: str) -> None:
    with pytest.raises(kind, match=name):
        make()

"""Does a guard receive its parameters, the data and the answer or the data alone, in every form and under every
driver?
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

import pytest

from fsm_agent import MemoryStore
from fsm_agent.flows import Flow, FlowError, FlowSuspended, end, execute, subflow, wait

big, small, lost = end("big"), end("small"), end("lost")


@execute
def halved(n: int) -> int:
    if n < 0:
        raise ValueError("below zero")
    return n // 2


def by_data(n: int) -> bool:
    return n > 9


def by_both(n: int, a: int) -> bool:
    return n > 9 and a == n // 2


def by_limit(n: int, *, limit: int = 9) -> bool:
    return n > limit


def by_all(*values: int) -> bool:
    n, a = values
    return by_both(n, a)


def above(limit: int, n: int) -> bool:
    return n > limit


class Limit:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.__name__ = "within_limit"

    def __call__(self, n: int) -> bool:
        return n > self.limit

    def of_both(self, n: int, a: int) -> bool:
        return n > self.limit and a == n // 2


GUARDS: dict[str, Callable[..., Any]] = {
    "of the data": by_data,
    "of both": by_both,
    "with a keyword": by_limit,
    "of any number": by_all,
    "a partial function": update_wrapper(partial(above, 9), above),
    "an object": Limit(9),
    "a method": Limit(9).of_both,
}


def flow_of(guard: Any, **options: Any) -> Flow[int]:
    rows = [halved.done(big, when=guard), halved.done(small), halved.failed(lost)]
    return Flow("sizes", int, start=halved, rows=rows, **options)


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_decides_by_what_it_takes(guard: str) -> None:
    flow = flow_of(GUARDS[guard])
    assert [flow.call(n).state for n in (10, 4)] == ["big", "small"]
    assert asyncio.run(flow.acall(10)).state == "big"
    stored = flow_of(GUARDS[guard], store=MemoryStore())
    stored.call(10, run_id="one")
    assert stored.runs.replay("one").state == "big"


def test_a_guard_of_c_decides_too() -> None:
    rows = [halved.done(big, when=operator.truth), halved.done(small)]
    assert [Flow("f", int, start=halved, rows=rows).call(n).state for n in (1, 0)] == ["big", "small"]


def test_failures_and_answers_of_one_type_have_guards_of_the_data_as_well() -> None:
    @wait(bool)
    def asked(n: int) -> str:
        return "?"

    assert Flow(
        "f", int, start=halved, rows=[halved.done(small), halved.failed(big, when=by_data), halved.failed(lost)]
    )
    rows = [asked.done(big, of=True, when=by_data), asked.done(small)]
    flow = Flow("f", int, start=asked, rows=rows)
    for n, state in ((10, "big"), (4, "small")):
        run = flow.prepare(n)
        with pytest.raises(FlowSuspended):
            flow.run(run)
        run.give(asked, True)
        assert run.state == state


def test_a_guard_inside_another_flow_is_given_the_data_there() -> None:
    def half(n: int) -> int:
        return n // 2

    nested = subflow("nested", flow_of(by_data), half)
    outer = Flow("outer", int, start=nested, rows=[nested.done(small, do=lambda n, a: a)])
    assert [outer.call(n).output for n in (30, 4)] == [15, 2]


def with_default(n: int, limit: int = 9) -> bool:
    return n > limit


def of_nothing() -> bool:
    return True


def of_three(n: int, a: int, b: int) -> bool:
    return True


@pytest.mark.parametrize("guard", [with_default, of_nothing, of_three, max])
def test_a_guard_that_takes_something_else_is_refused(guard: Any) -> None:
    with pytest.raises(FlowError, match=guard.__name__):
        flow_of(guard)


@pytest.mark.parametrize("guard", [with_default, of_three])
def test_a_guard_of_a_failure_is_refused_for_what_it_takes(guard: Any) -> None:
    rows = [halved.done(small), halved.failed(lost, when=guard), halved.failed(big)]
    with pytest.raises(FlowError, match=guard.__name__):
        Flow("f", int, start=halved, rows=rows)


@pytest.mark.parametrize("said", ["no", None])
def test_a_guard_that_says_neither_yes_nor_no_is_named(said: Any) -> None:
    def is_fit(data: int) -> Any:
        return said

    with pytest.raises(FlowError, match="is_fit"):
        flow_of(is_fit).call(4)

"""Does an answer go into a field, for all kinds of data, and is an unsuitable field refused?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pydantic.dataclasses
import pytest
from pydantic import BaseModel, ConfigDict

from fsm_agent import Agent, MemoryStore
from fsm_agent.flows import (
    Failure,
    Flow,
    FlowError,
    any_state,
    ask,
    each,
    end,
    execute,
    gather,
    into,
    pause,
    subflow,
    wait,
)
from fsm_agent.testing import Script


@dataclass(frozen=True)
class Data:
    text: str = ""
    count: int = 0
    share: float = 0.0
    both: tuple[str, int] = ("", 0)
    many: tuple[int, ...] = ()
    some: tuple[int | Failure, ...] = ()
    why: Failure | None = None
    inner: Inner | None = None
    word: Literal["yes", "no"] = "no"


@dataclass(frozen=True)
class Made:
    text: str = ""
    made: str = field(default="", init=False)


@dataclass(frozen=True)
class Inner:
    n: int = 0


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)
    text: str = ""
    count: int = 0


class Pair(NamedTuple):
    text: str = ""
    count: int = 0


@pydantic.dataclasses.dataclass(frozen=True)
class Checked:
    text: str = ""
    count: int = 0


over, lost = end("over"), end("lost")


@execute
def length(d: Any) -> int:
    return 3


@execute
def name(d: Any) -> str:
    return "rain"


@execute
def breaks(d: Any) -> str:
    raise LookupError("nothing there")


def flow_of(data: Any, **options: Any) -> Flow[Any]:
    rows = [name.done(length, do=into("text")), length.done(over, do=into("count"))]
    return Flow("f", data, start=name, rows=rows, **options)


@pytest.mark.parametrize("data", [Data, Model, Pair, Checked])
def test_an_answer_goes_into_a_field_of_any_data(data: Any) -> None:
    flow = flow_of(data, store=MemoryStore())
    before = data()
    result = flow.call(before, run_id="one")
    assert (result.output, before) == (data(text="rain", count=3), data())
    assert flow.runs.replay("one").data == data(text="rain", count=3)
    asked = wait(str, name="asked")(lambda d: "?")
    waiting = Flow("g", data, start=asked, rows=[asked.done(over, do=into("text"))])
    run = waiting.prepare(data())
    list(waiting.stream(run))
    again = waiting.restore(run.snapshot())
    again.give(asked, "snow")
    assert (again.state, again.data) == ("over", data(text="snow"))


def answered(state: Any, field: str, **options: Any) -> Flow[Any]:
    return Flow("f", Data, start=state, rows=[state.done(over, do=into(field))], **options)


def numbers(d: Data) -> tuple[int, ...]:
    return (1, 2)


@execute
def double(n: int) -> int:
    if n == 2:
        raise ValueError("two")
    return 2 * n


@execute
def one_more(d: Inner) -> int:
    return d.n + 1


nested = subflow(
    "nested", Flow("inner", Inner, start=one_more, rows=[one_more.done(over, do=into("n"))]), lambda d: Inner(4)
)


def test_what_comes_of_each_kind_of_state_fits_its_field() -> None:
    asking = ask(Agent(Script("text"), name="bot"), name="asking")(lambda d: "?")
    assert answered(asking, "text").call(Data()).output == Data(text="text")
    assert answered(length, "share").call(Data()).output.share == 3
    assert answered(gather("both_of", name, length), "both").call(Data()).output.both == ("rain", 3)
    assert answered(nested, "inner").call(Data()).output.inner == Inner(5)
    assert answered(each("all_of", double, lambda d: (1,)), "many").call(Data()).output.many == (2,)
    some = answered(each("some_of", double, numbers, settled=True), "some").call(Data()).output.some
    assert (some[0], type(some[1])) == (2, Failure)


def test_a_failure_goes_into_a_field_too() -> None:
    rows = [breaks.done(over), *any_state(breaks).failed(lost, do=into("why"))]
    result = Flow("f", Data, start=breaks, rows=rows).call(Data())
    assert (result.state, result.output.why.detail) == ("lost", "LookupError: nothing there")


def row(state: Any, field: str, *more: Any, data: Any = Data) -> Callable[[], object]:
    return lambda: Flow("f", data, start=state, rows=[state.done(over, do=into(field)), *more])


timed: Any = wait(str, name="timed", within_s=5)(lambda d: "?")
nap: Any = pause("nap", 5)
either: Any = wait(str, int, name="either")(lambda d: "?")
whole: Any = ask(Agent("openai:gpt-5-mini", name="bot"), name="whole", whole=True)(lambda d: "?")
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a field that is misspelt": (row(name, "txet"), "'text'"),
    "a field that is not there": (row(name, "zzz", data=Pair), "'zzz'"),
    "a field that cannot be set": (row(name, "made", data=Made), "'made'"),
    "a method": (row(name, "model_copy", data=Model), "'model_copy'"),
    "data without fields": (row(name, "text", data=str), "'text'"),
    "another type": (row(name, "count"), "count"),
    "one of two types": (row(either, "text"), "text"),
    "a whole result": (row(whole, "text"), "text"),
    "a failure": (row(name, "text", name.failed(lost, do=into("text"))), "text"),
    "a list of other items": (row(gather("of_both", length, name), "both"), "both"),
    "the end of a time": (row(timed, "text", timed.elapsed(lost, do=into("text"))), "timed --elapsed--> lost"),
    "no name": (lambda: into(5), "5"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_field_that_cannot_take_it_is_refused(what: str) -> None:
    make, at_fault = REFUSED[what]
    with pytest.raises(FlowError, match=at_fault):
        make()


@pytest.mark.parametrize(
    ("given", "field", "is_right"), [(bool, "count", True), (int, "share", True), (float, "count", False)]
)
def test_numbers_go_into_fields_that_hold_them(given: Any, field: str, is_right: bool) -> None:
    def number(d: Any) -> Any:
        return given(1)

    number.__annotations__["return"] = given
    if is_right:
        assert getattr(answered(execute(number), field).call(Data()).output, field) == 1
        return
    with pytest.raises(FlowError, match="count"):
        answered(execute(number), field)


def test_a_value_that_its_field_forbids_is_refused_at_the_step() -> None:
    with pytest.raises(FlowError, match=r"Data\.word"):
        answered(name, "word").call(Data())

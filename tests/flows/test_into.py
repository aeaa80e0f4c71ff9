"""Does what came go into a field, whatever the data are, and is a field refused that cannot take it?"""

from __future__ import annotations

import asyncio
import copy
import pickle
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
    call,
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


DRIVERS: dict[str, Callable[[Flow[Any], Any], Any]] = {
    "sync": lambda flow, data: flow.call(data),
    "asyncio": lambda flow, data: asyncio.run(flow.acall(data)),
    "stream": lambda flow, data: [*flow.stream(data)][-1].result,  # type: ignore[union-attr]
}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("data", [Data, Model, Pair, Checked])
def test_an_answer_goes_into_a_field_of_any_data(data: Any, stored: bool, driver: str) -> None:
    before = data()
    result = DRIVERS[driver](flow_of(data, store=MemoryStore() if stored else None), before)
    assert (result.output, before) == (data(text="rain", count=3), data())


@pytest.mark.parametrize("data", [Data, Model, Pair, Checked])
def test_a_stored_run_replays_and_a_restored_one_continues(data: Any) -> None:
    flow = flow_of(data, store=MemoryStore())
    flow.call(data(), run_id="one")
    assert flow.replay("one").data == data(text="rain", count=3)
    asked = wait(str, name="asked")(lambda d: "?")
    waiting = Flow("g", data, start=asked, rows=[asked.done(over, do=into("text"))])
    run = waiting.seed(data())
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
    asking = call(Agent(Script("text"), name="bot"), name="asking")(lambda d: "?")
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


def test_an_answer_of_one_type_goes_into_its_field() -> None:
    asked = wait(str, int, name="asked")(lambda d: "?")
    rows = [asked.done(over, of=str, do=into("text")), asked.done(over, of=int, do=into("count"))]
    flow = Flow("f", Data, start=asked, rows=rows)
    for answer, expected in (("x", Data(text="x")), (5, Data(count=5))):
        run = flow.seed(Data())
        list(flow.stream(run))
        run.give(asked, answer)
        assert run.data == expected


def row(state: Any, field: str, *more: Any, data: Any = Data) -> Callable[[], object]:
    return lambda: Flow("f", data, start=state, rows=[state.done(over, do=into(field)), *more])


timed: Any = wait(str, name="timed", within_s=5)(lambda d: "?")
nap: Any = pause("nap", 5)
either: Any = wait(str, int, name="either")(lambda d: "?")
whole: Any = call(Agent("openai:gpt-5-mini", name="bot"), name="whole", whole=True)(lambda d: "?")
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a field that is misspelt": (
        row(name, "txet"),
        "the action of the row name --done--> over is into('txet'), and Data has no field 'txet' to set: did you mean"
        " 'text'?",
    ),
    "a field that is not there": (
        row(name, "zzz", data=Pair),
        "over is into('zzz'), and Pair has no field 'zzz' to set; there are: text",
    ),
    "a field that cannot be set": (row(name, "made", data=Made), "Made has no field 'made' to set; there are: text"),
    "a method": (row(name, "model_copy", data=Model), "Model has no field 'model_copy' to set; there are: text, count"),
    "data without fields": (
        row(name, "text", data=str),
        "is into('text'), and str has no fields: a frozen dataclass, or an action that returns the data, would be",
    ),
    "another type": (
        row(name, "count"),
        "the action of the row name --done--> over puts str into count, which is int: count: str, or an action that"
        " returns the data, would be right",
    ),
    "another type of a model": (row(name, "count", data=Model), "puts str into count, which is int"),
    "one of two types": (row(either, "text"), "puts str | int into text, which is str"),
    "a whole result": (
        row(whole, "text"),
        "puts CallResult[str] into text, which is str: an action that keeps a part of it, as replace(d, text=a.output)",
    ),
    "a failure": (row(name, "text", name.failed(lost, do=into("text"))), "puts Failure into text, which is str"),
    "a list of other items": (
        row(gather("of_both", length, name), "both"),
        "puts tuple[int, str] into both, which is tuple[str, int]",
    ),
    "the end of a time": (
        row(timed, "text", timed.elapsed(lost, do=into("text"))),
        "the action of the row timed --elapsed--> lost is into('text'), and nothing comes of 'elapsed': an action of",
    ),
    "the end of a pause": (
        lambda: Flow("f", Data, start=nap, rows=[nap.elapsed(over, do=into("why"))]),
        "nothing comes of 'elapsed'",
    ),
    "no name": (lambda: into(5), "the field of into is 5: the name of a field of the data would be right"),  # type: ignore[arg-type]
    "into alone": (
        lambda: Flow("f", Data, start=name, rows=[name.done(over, do=into)]),  # type: ignore[arg-type]
        "into takes (field): (data, answer) would be right",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_field_that_cannot_take_it_is_refused(what: str) -> None:
    make, problem = REFUSED[what]
    with pytest.raises(FlowError) as error:
        make()
    assert problem in str(error.value)


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
    with pytest.raises(FlowError, match="puts float into count, which is int"):
        answered(execute(number), field)


def test_a_value_that_its_field_forbids_is_refused_at_the_step() -> None:
    with pytest.raises(
        FlowError, match=r"the action into word of the row name --done--> over returned 'rain' in Data.word"
    ):
        answered(name, "word").call(Data())


def test_it_is_a_value_with_a_name() -> None:
    action = into("text")
    assert (repr(action), action.__name__) == ("into('text')", "into text")
    assert action == into("text") == copy.deepcopy(action) == pickle.loads(pickle.dumps(action))
    assert action != into("count")
    assert copy.deepcopy(flow_of(Data)).call(Data()).output == Data("rain", 3)

"""Are values that JSON would change, and types that look the same in JSON, refused before they do harm?"""

from __future__ import annotations

import datetime
import decimal
import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, NewType, Protocol, Union

import pydantic
import pytest
from flow_runs import begun
from typing_extensions import TypedDict

from fsm_agent import MemoryStore
from fsm_agent.call import Begun, Returned
from fsm_agent.errors import OutcomeError, SnapshotError
from fsm_agent.flows import Flow, FlowError, FlowSuspended, each, end, execute, race, wait

over, late = end("over"), end("late")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    S = 1
    L = 2


class Pair(NamedTuple):
    left: int
    right: str


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    name: str


@dataclass(frozen=True)
class Data:
    text: str = ""
    number: float | None = None
    raw: bytes = b""
    color: Color = Color.RED
    sizes: tuple[Size, ...] = ()
    pair: Pair | None = None
    by: Mapping[str, int] | None = None
    when: datetime.datetime | None = None
    much: decimal.Decimal = decimal.Decimal(0)
    tags: frozenset[str] = frozenset()
    model: Model | None = None
    item: Any = None


asking = wait(str, name="asking")(lambda d: "?")
flow = Flow("f", Data, start=asking, rows=[asking.done(over)])
NOW = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=5, minutes=45)))


def test_data_that_json_can_hold_come_back_as_they_were() -> None:
    for data in [
        Data(text="\x00 \u2028 \U0001f600 \"'\\ naïve", number=-0.0, raw="é".encode()),
        Data(number=1e308, color=Color.BLUE, sizes=(Size.L, Size.S), pair=Pair(2**70, "x")),
        Data(number=5e-324, by={"": 1, "a/b#1:c": 2}, when=NOW, much=decimal.Decimal("1.10")),
        Data(tags=frozenset(["a", "b"]), model=Model(name="x"), item={"x": [1, None, "y"]}),
    ]:
        run = begun(flow, data)
        again = flow.restore(run.snapshot())
        assert again.data == data
        assert repr((again.data.color, again.data.sizes, again.data.number)) == repr(
            (data.color, data.sizes, data.number)
        )
        again.give(asking, "x")
        assert again.state == "over"


@pytest.mark.parametrize(
    "item", [float("nan"), (1, 2), object(), {1: 2}, Color.RED], ids=lambda item: type(item).__name__
)
def test_data_that_json_would_change_are_not_written(item: Any) -> None:
    with pytest.raises(SnapshotError, match="flow 'f'"):
        flow.prepare(Data(item=item)).snapshot()


def test_odd_texts_of_errors_and_questions_are_kept() -> None:
    """Half a surrogate pair, which JSON cannot hold, does not keep a run from being stored."""

    @execute
    def breaks(d: Data) -> str:
        raise ValueError("\ud800 \x00")

    question = wait(str, name="question")(lambda d: f"{d.text}\udfff")
    rows = [breaks.done(over), breaks.failed(question, do=lambda d, why: replace(d, text="asked")), question.done(over)]
    one = Flow("f", Data, start=breaks, rows=rows, store=MemoryStore())
    with pytest.raises(FlowSuspended) as waiting:
        one.call(Data(), run_id="r")
    assert one.restore(waiting.value.run.snapshot()).state == "question"
    assert one.runs.resume("r", {question: "x"}).state == "over"


class Left(TypedDict):
    left: int


class Right(TypedDict):
    right: int


class Named(Protocol):
    name: str


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"


class Fish(pydantic.BaseModel):
    kind: Literal["fish"] = "fish"


Pet = Annotated[Cat | Fish, pydantic.Field(discriminator="kind")]
Id, Count = NewType("Id", str), NewType("Count", int)
Short = Annotated[str, pydantic.Field(max_length=3)]


def deciding(one: Any, other: Any) -> Flow[Data]:
    state: Any = wait(one, other, name="state")(lambda d: "?")
    return Flow("f", Data, start=state, rows=[state.done(over, of=one), state.done(late, of=other)])


@pytest.mark.parametrize(
    ("one", "other", "values"),
    [
        (int, float, (1, 1.0)),
        (bool, int, (True, 1)),
        (str, type(None), ("a", None)),
        (list[int], int, ([1], 1)),
        (Color, Size, (Color.RED, Size.S)),
        (Color, str, (Color.RED, "red")),
        (Short, int, ("abc", 1)),
        (Literal["a"], Literal["b"], ("a", "b")),
        (Literal[1], Literal[True], (1, True)),
        (Model, Pair, (Model(name="x"), Pair(1, "x"))),
        (Pet, str, (Cat(), "fish")),
        (str, Pet, ("cat", Fish())),
        (Pet, Model, (Fish(), Model(name="x"))),
        (Pet | None, int, (None, 1)),
        (Union[int, Color], str, (Color.RED, "red")),  # noqa: UP007  # another origin
        (float, str, (1, "1")),
    ],
)
def test_each_value_takes_the_row_of_its_type_also_through_json(one: Any, other: Any, values: tuple[Any, Any]) -> None:
    for value, state in zip(values, ("over", "late"), strict=True):
        run = begun(deciding(one, other), Data())
        run.give(run.flow.start, value)
        assert run.state == state


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (list[int], list[str]),
        (list[int], tuple[int, ...]),
        (dict[str, int], dict[str, str]),
        (frozenset[int], list[int]),
        (Any, int),
        (object, int),
        (Left, Right),
        (Named, int),
        (list[int], list[str] | None),
        (Pet | Left, int),
    ],
)
def test_types_that_nobody_can_tell_apart_are_refused(one: Any, other: Any) -> None:
    with pytest.raises(FlowError, match="state"):
        deciding(one, other)
    racing: Any = race("racing", *[wait(kind, name=name)(lambda d: "?") for name, kind in (("a", one), ("b", other))])
    if (one, other) not in APART_BY_CLASS:
        with pytest.raises(FlowError, match="racing"):
            Flow("f", Data, start=racing, rows=[racing.done(over, of=one), racing.done(late, of=other)])


APART_BY_CLASS = [(list[int], tuple[int, ...]), (frozenset[int], list[int])]  # only their JSON is alike


def test_a_row_names_a_type_without_its_notes() -> None:
    state: Any = wait(Pet, Short, int, name="state")(lambda d: "?")
    rows = [state.done(over, of=Cat | Fish), state.done(late, of=str), state.done(late, of=int)]
    run = begun(Flow("f", Data, start=state, rows=rows), Data())
    run.give(state, Fish())
    assert run.state == "over"


def test_a_name_of_a_union_is_the_same_in_each_module() -> None:
    events = [row.event for row in deciding(Pet, str).entries]
    assert "done Cat | Fish" in events


@dataclass(frozen=True)
class Approve:
    by: str


@dataclass(frozen=True)
class Reject:
    by: str
    reason: str = ""


@dataclass(frozen=True)
class Decision:
    verdict: Approve | Reject


@pytest.mark.parametrize(("one", "other"), [(Approve, Reject), (Reject, Approve)])
def test_a_refusal_that_is_posted_is_no_approval(one: Any, other: Any) -> None:
    def states(text: str) -> str:
        run = begun(deciding(one, other), Data())
        run.advance("answer:state#1", Returned(text=text))
        return str(run.state)

    of = {one: "over", other: "late"}
    for text in (
        '{"by": "ann"}',
        '{"by": "ann", "raeson": "no"}',
        '{"by": "ann", "x": 1}',
        '{"Reject": {"by": "a", "x": 1}}',
    ):
        with pytest.raises(OutcomeError):
            states(text)
    with pytest.raises(OutcomeError, match="Reject"):
        states('{"by": "ann"}')
    for text in ('["Reject", {"by": "ann"}]', '{"Reject": {"by": "ann"}}', '{"by": "ann", "reason": "no"}'):
        assert states(text) == of[Reject]
    for text in ('["Approve", {"by": "ann"}]', '{"Approve": {"by": "ann"}}'):
        assert states(text) == of[Approve]


@pytest.mark.parametrize("kind", [Decision, list[Approve | Reject]])
def test_a_union_inside_what_is_posted_has_to_be_told_apart(kind: Any) -> None:
    with pytest.raises(FlowError, match="state"):
        deciding(kind, int)


@pytest.mark.parametrize("items", [{"b", "a"}, {"a": 1}, "text", b"bytes", 17], ids=lambda item: type(item).__name__)
def test_items_without_an_order_are_refused(items: Any) -> None:
    many = each("many", wait(str, name="one")(lambda item: "?"), lambda d: items)
    run = Flow("f", Data, start=many, rows=[many.done(over)]).prepare(Data())
    with pytest.raises(FlowError, match="many"):
        run.advance("begin", Begun(at_s=0.0, id="r"))
    assert run.state == "Seeded"


def test_items_may_come_from_a_generator() -> None:
    @execute
    def same(item: str) -> str:
        return item

    every: Any = each("every", same, lambda d: (n for n in "abc"))  # type: ignore[arg-type, return-value]
    rows = [every.done(over, do=lambda d, a: replace(d, text="".join(a)))]
    assert Flow("f", Data, start=every, rows=rows).call(Data()).output.text == "abc"


@dataclass(frozen=True)
class Animal:
    name: str


@dataclass(frozen=True)
class Dog(Animal):
    tricks: int


@pytest.mark.parametrize(("one", "other"), [(Animal, Dog), (Dog, Animal)])
def test_a_row_of_a_class_takes_its_own_values_and_not_the_row_of_the_class_above_it(one: Any, other: Any) -> None:
    for value in (Animal("Ada"), Dog("Rex", 2)):
        run = begun(deciding(one, other), Data())
        run.give(run.flow.start, value)
        assert run.state == ("over" if type(value) is one else "late")


@pytest.mark.parametrize(("value", "state"), [("", "found"), (None, "nothing")])
def test_a_row_of_none_is_that_of_its_type(value: str | None, state: str) -> None:
    @execute
    def looking(n: int) -> str | None:
        return value

    rows = [looking.done(end("found"), of=str), looking.done(end("nothing"), of=None)]
    assert Flow("looks", int, start=looking, rows=rows).call(0).state == state

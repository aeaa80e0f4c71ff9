"""Are values that JSON would change, and types that nobody can tell apart, refused before they do harm?"""

from __future__ import annotations

import datetime
import decimal
import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, NewType, Protocol

import pydantic
import pytest
from flow_runs import Driver, everywhere
from typing_extensions import TypedDict

from fsm_agent import MemoryStore, SnapshotError
from fsm_agent.errors import OutcomeError
from fsm_agent.flows import (
    Flow,
    FlowError,
    FlowSuspended,
    each,
    end,
    execute,
    race,
    wait,
)
from fsm_agent.lifecycle import Begun, Returned

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
    hidden: str = pydantic.Field(default="", exclude=True)
    key: pydantic.SecretStr = pydantic.SecretStr("")


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


HELD = [
    Data(text="\x00 \u2028 \U0001f600 \"'\\ naïve"),
    Data(number=1e308),
    Data(number=-0.0),
    Data(number=5e-324),
    Data(raw="é".encode()),
    Data(color=Color.BLUE, sizes=(Size.L, Size.S)),
    Data(pair=Pair(2**70, "x")),
    Data(by={"": 1, "a/b#1:c": 2}),
    Data(when=NOW, much=decimal.Decimal("1.10")),
    Data(tags=frozenset(["a", "b"])),
    Data(model=Model(name="x")),
    Data(item={"x": [1, None, "y"]}),
]


def test_data_that_json_can_hold_come_back_as_they_were() -> None:
    for data in HELD:
        come_back(data)


def come_back(data: Data) -> None:
    run = flow.seed(data)
    run.advance("begin", Begun(at_s=0.0, id="r"))
    again = flow.restore(run.snapshot())
    assert again.data == data
    assert repr(again.data.color) == repr(data.color)
    again.give(asking, "x")
    assert again.state == "over"


@pytest.mark.parametrize(
    "data",
    [
        Data(item=float("nan")),
        Data(item=(1, 2)),
        Data(item=Pair(1, "x")),
        Data(item=object()),
        Data(item={1: 2}),
        Data(item=Color.RED),
    ],
    ids=lambda data: type(data.item).__name__,
)
def test_data_that_json_would_change_are_not_written(data: Data) -> None:
    run = flow.seed(data)
    with pytest.raises(SnapshotError) as refused:
        run.snapshot()
    assert "flow 'f'" in str(refused.value)


@everywhere
def test_odd_texts_of_errors_and_questions_are_kept(driven: Driver) -> None:
    """Half a surrogate pair, which JSON cannot hold, does not keep a run from being stored."""

    @execute
    def breaks(d: Data) -> str:
        raise ValueError("\ud800 \x00")

    question = wait(str, name="question")(lambda d: f"{d.text}\udfff")
    rows = [breaks.done(over), breaks.failed(question, do=lambda d, why: replace(d, text="asked")), question.done(over)]
    one = Flow("f", Data, start=breaks, rows=rows, store=MemoryStore())
    run = one.seed(Data())
    driven(one, run)
    assert run.state == "question"
    assert one.restore(run.snapshot()).state == "question"
    with pytest.raises(FlowSuspended):
        one.call(Data(), run_id="r")
    assert one.resume("r", {question: "x"}).state == "over"


class Left(TypedDict):
    left: int


class Right(TypedDict):
    right: int


class Named(Protocol):
    name: str


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
        (Color, Size, (Color.RED, Size.S)),
        (Color, str, (Color.RED, "red")),
        (Short, int, ("abc", 1)),
        (Literal["a"], Literal["b"], ("a", "b")),
        (Literal[1], Literal[True], (1, True)),
        (Model, Pair, (Model(name="x"), Pair(1, "x"))),
    ],
)
def test_each_value_takes_the_row_of_its_type_also_through_json(one: Any, other: Any, values: tuple[Any, Any]) -> None:
    for value, state in zip(values, ("over", "late"), strict=True):
        run = deciding(one, other).seed(Data())
        run.advance("begin", Begun(at_s=0.0, id="r"))
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
    ],
)
def test_types_that_nobody_can_tell_apart_are_refused(one: Any, other: Any) -> None:
    with pytest.raises(FlowError, match="state"):
        deciding(one, other)


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
        run = deciding(one, other).seed(Data())
        run.advance("begin", Begun(at_s=0.0, id="r"))
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


def test_two_types_of_one_name_are_refused_in_a_race() -> None:
    def done() -> Any:
        @dataclass(frozen=True)
        class Done:
            x: int

        return Done

    members = [wait(done(), name=name)(lambda d: "?") for name in "ab"]
    first: Any = race("first", *members)  # type: ignore[call-overload]
    with pytest.raises(FlowError, match="'Done'"):
        Flow("f", Data, start=first, rows=[first.done(over)])


class TestItems:
    """What `each` is over: anything that has the same order in every process."""

    @pytest.mark.parametrize("items", [(), range(3), (n for n in "abc")], ids=["none", "range", "generator"])
    def test_sequences_and_what_is_made_into_one(self, items: Any) -> None:
        given = list(items)

        @execute
        def same(item: Any) -> str:
            return str(item)

        all_of_them = each("all_of_them", same, lambda d: iter(given))  # type: ignore[arg-type, return-value]
        rows = [all_of_them.done(over, do=lambda d, a: replace(d, item="".join(a)))]
        found = Flow("f", Data, start=all_of_them, rows=rows).call(Data())
        assert found.output.item == "".join(map(str, given))

    @pytest.mark.parametrize(
        "items",
        [{"b", "a"}, {"a": 1}, "text", b"bytes", 17],
        ids=lambda items: type(items).__name__,
    )
    def test_what_has_no_order_or_no_items_is_refused(self, items: Any) -> None:
        one = wait(str, name="one")(lambda item: "?")
        many = each("many", one, lambda d: items)
        bad = Flow("f", Data, start=many, rows=[many.done(over)])
        run = bad.seed(Data())
        with pytest.raises(FlowError, match="many"):
            run.advance("begin", Begun(at_s=0.0, id="r"))
        assert run.state == "Seeded"


@dataclass(frozen=True)
class Animal:
    name: str


@dataclass(frozen=True)
class Dog(Animal):
    tricks: int


@pytest.mark.parametrize("kinds", [(Animal, Dog), (Dog, Animal)])
@pytest.mark.parametrize(("value", "state"), [(Animal("Ada"), "animal"), (Dog("Rex", 2), "dog")])
def test_a_row_of_a_class_takes_its_own_values_and_not_the_row_of_the_class_above_it(
    kinds: tuple[type, type], value: Animal, state: str
) -> None:
    @wait(*kinds)
    def asking(n: int) -> str:
        return "Which?"

    flow = Flow(
        "animals",
        int,
        start=asking,
        rows=[asking.done(end("animal"), of=Animal), asking.done(end("dog"), of=Dog)],
    )
    run = flow.seed(0)
    run.advance("begin", Begun(at_s=0.0))
    run = flow.restore(run.snapshot())
    run.give(asking, value, at_s=1.0)
    assert run.state == state


@pytest.mark.parametrize(("value", "state"), [("", "found"), (None, "nothing")])
def test_a_row_of_none_is_that_of_its_type(value: str | None, state: str) -> None:
    @execute
    def looking(n: int) -> str | None:
        return value

    rows = [looking.done(end("found"), of=str), looking.done(end("nothing"), of=None)]
    assert Flow("looks", int, start=looking, rows=rows).call(0).state == state

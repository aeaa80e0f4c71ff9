"""Do the data from actions have the types of their fields, and does a step check only its changes?"""

from __future__ import annotations

import datetime
import decimal
import enum
import tracemalloc
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType
from zoneinfo import ZoneInfo

import pydantic
import pytest
from flow_runs import Driver, begun, everywhere

from fsm_agent import CallResult, Dialog
from fsm_agent.errors import SnapshotError
from fsm_agent.flows import Flow, FlowError, FlowSuspended, each, end, execute, gather, into, subflow, wait
from fsm_agent.messages import Document, Image, Payload


class Color(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: str


@dataclass(frozen=True)
class Item:
    name: str = ""
    size: float = 0.0


@dataclass(frozen=True)
class Twin:
    name: str = ""


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    n: Annotated[int, pydantic.Field(ge=0)] = 0
    text: str = ""


class Judged(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    n: int = 0

    @pydantic.field_validator("n")
    @classmethod
    def _is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value


Hours = NewType("Hours", int)
PAIR, MODEL = Pair(0, ""), Model()


@dataclass(frozen=True)
class Data:
    n: int = 0
    text: str = ""
    score: float | None = None
    color: Color = Color.RED
    items: tuple[Item, ...] = ()
    pair: Pair = PAIR
    both: tuple[int, str] = (0, "")
    by_name: Mapping[str, Item] = field(default_factory=dict)
    model: Model = MODEL
    dialog: Dialog = field(default_factory=Dialog)
    inner: Data | None = None


@execute
def step(d: Data) -> int:
    return d.n + 1


def written(**changes: Any) -> Flow[Data]:
    def write(d: Data, a: int) -> Data:
        return replace(d, **changes)

    return Flow("f", Data, start=step, rows=[step.done(end("over"), do=write)])


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"n": "x"}, "Data.n"),
    ({"n": float("nan")}, "Data.n"),
    ({"text": "\ud800"}, "Data.text"),
    ({"score": float("inf")}, "Data.score"),
    ({"color": "red"}, "Data.color"),
    ({"items": (Item(), Item(5))}, "Data.items"),  # type: ignore[arg-type]
    ({"pair": Pair("x", "")}, "Data.pair"),  # type: ignore[arg-type]
    ({"both": (1, "a", 2)}, "Data.both"),
    ({"by_name": {"a": Item(size="x")}}, "Data.by_name"),  # type: ignore[arg-type]
    ({"by_name": {5: Item()}}, "Data.by_name"),
    ({"model": Model().model_copy(update={"n": -1})}, "Data.model"),
    ({"model": Model().model_copy(update={"txet": ""})}, "Data.model"),
    ({"inner": Data(inner=Data(n="x"))}, "Data.inner"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("changes", "path"), WRONG)
def test_a_value_of_another_type_is_refused_where_it_is_written(changes: dict[str, Any], path: str) -> None:
    flow = written(**changes)
    run = flow.prepare(Data(items=(Item(),)))
    with pytest.raises(FlowError) as error:
        flow.run(run)
    assert f" {path}: " in str(error.value)
    assert "write" in str(error.value)
    assert run.state == "step"


@everywhere
def test_every_driver_says_so_and_the_run_stays_where_it_was(driven: Driver) -> None:
    run = written(n="x").prepare(Data())
    with pytest.raises(FlowError, match=r"Data\.n"):
        driven(run.flow, run)
    assert (run.state, run.data) == ("step", Data())


def test_in_flows_inside_and_among_members_too() -> None:
    inner = written(n="x")
    nested = subflow("nested", inner, lambda d: Data(d.n))
    other = subflow("other", inner, lambda d: Data(d.n))

    def items(d: Data) -> tuple[Data, ...]:
        return (d,)

    for state in (nested, gather("both", nested, other), each("every", nested, items)):
        around = Flow("around", Data, start=state, rows=[state.done(end("over"))])  # type: ignore[attr-defined]
        with pytest.raises(FlowError, match=r"Data\.n"):
            around.call(Data())


def test_a_flow_inside_does_not_begin_with_them() -> None:
    nested = subflow("nested", written(n=1), lambda d: Data("x"))  # type: ignore[arg-type]
    around = Flow("around", Data, start=nested, rows=[nested.done(end("over"))])
    with pytest.raises(FlowError, match=r"nested.*Data\.n"):
        around.call(Data())


def test_what_an_action_leaves_as_it_was_is_its_own_affair() -> None:
    """Data that a run was restored with are right already, and nothing that is shared with them is read again."""
    run = begun(written(text="new"), Data(items=(Item(),)))
    odd = Item(size="x")  # type: ignore[arg-type]
    run.record = run.record.changed(data=Data(items=(odd,)))
    run.give(step, 1)
    assert run.data.items == (odd,)


VALUES: list[Any] = [
    *[None, True, 0, 2**70, 1.5, -0.0, float("nan"), "", "a", "aaaa", "é", "\ud800", b"x", b"\xff"],
    *[Color.RED, (), (1,), (1, "a"), ("a", 1), (1, (2,)), ["a"], {"a": 1}, {1: "a"}, frozenset(["a"])],
    *[Item(), Twin(), Item(5), Item("a", "x"), (Item(), Item("a")), (Item(), "a"), {"a": Item()}, {"a": Item(1)}],  # type: ignore[arg-type]
    *[PAIR, Pair("a", 1), Model(n=3), Model.model_construct(n=-3), Judged(n=2), Judged.model_construct(n=3)],  # type: ignore[arg-type]
    *[datetime.date(2026, 1, 1), decimal.Decimal("1.10"), decimal.Decimal("nan")],
]
KINDS: list[Any] = [
    *[int, str, bool, float, bytes, Color, Hours, Item, Pair, Model, Judged, datetime.date, decimal.Decimal],
    *[Item | None, int | None, int | str, float | Item, Item | Pair, Item | Twin, Literal["a"], Literal["a"] | None],
    *[tuple[Item, ...], tuple[Item | None, ...], tuple[int, ...], tuple[int, str], tuple[int, tuple[int, ...]]],
    *[Mapping[str, int], Mapping[str, Item], Mapping[int, str], frozenset[str]],
    *[Annotated[int, pydantic.Field(gt=0)], Annotated[str, pydantic.Field(max_length=3)]],
]


def test_what_is_refused_is_what_could_not_be_written() -> None:
    """With all that is written and read again as the judge, for each type and value."""
    refused = 0
    flows = [(kind, _flow_on(make_dataclass("Made", [("value", kind, None)], frozen=True))) for kind in KINDS]
    for (kind, flow), value in product(flows, VALUES):
        data = flow.data(value)
        is_right = _passes(flow.data_json, data)
        refused += not is_right
        for before in (None, flow.data(VALUES[2]), flow.data((Item(),))):
            if before is None or before.value is not value:
                assert _passes(flow.data_check.check, data, before) is is_right, (kind, value, before)
    assert 1000 < refused < len(KINDS) * len(VALUES) - 60


def _flow_on(data: Any) -> Flow[Any]:
    asking = wait(int, name="asking")(lambda d: "?")
    return Flow("f", data, start=asking, rows=[asking.done(end("over"))])


def _passes(check: Callable[..., Any], *given: Any) -> bool:
    try:
        check(*given)
    except Exception:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "value"),
    [(Any, object()), (tuple[Any, ...], ("a", object())), (Mapping[str, tuple[Any, int]], {"a": (object(), 1)})],
)
def test_a_value_that_every_type_takes_is_looked_at_when_it_is_written(kind: Any, value: Any) -> None:
    made = make_dataclass("Made", [("value", kind | None, None)], frozen=True)
    asking = wait(int, name="asking")(lambda d: "?")
    flow = Flow("f", made, start=asking, rows=[asking.done(end("over"), do=lambda d, a: made(value=value))])
    run = begun(flow, made())
    run.give(asking, 1)
    assert run.state == "over"
    with pytest.raises(SnapshotError, match="flow 'f'"):
        run.snapshot()


class Placed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    anything: Any = None
    n: int = 0

    @pydantic.field_validator("n")
    @classmethod
    def _is_alone(cls, value: int, info: pydantic.ValidationInfo) -> int:
        if info.context is not None:
            raise ValueError("a context of somebody else")
        return value


def test_validators_of_the_data_are_given_no_context() -> None:
    """The context is the user's, and does not depend on whether a value of `Any` is checked."""
    asking = wait(int, name="asking")(lambda d: "?")
    flow = Flow("f", Placed, start=asking, rows=[asking.done(end("over"), do=into("n"))])
    flow.data_check.check(Placed(anything=object(), n=1))


# What it costs


@dataclass(frozen=True)
class Large:
    n: int
    text: str
    items: tuple[str, ...]
    parts: tuple[Item, ...]
    limit: int = 50


LARGE = Large(
    0, "é" * 2_000_000, tuple(f"item {n}" * 10 for n in range(20_000)), tuple(Item(str(n)) for n in range(20_000))
)


@execute
def counting(d: Large) -> int:
    return d.n + 1


def is_over(d: Large, n: int) -> bool:
    return n >= d.limit


def keep(d: Large, n: int) -> Large:
    return replace(d, n=n)


def loop_of(action: Any) -> Flow[Large]:
    rows = [counting.done(end("over"), when=is_over, do=action), counting.done(counting, do=action)]
    return Flow("large", Large, start=counting, rows=rows)


@pytest.mark.nightly
def test_a_step_copies_and_writes_nothing_that_it_leaves_as_it_was() -> None:
    run = begun(loop_of(keep), LARGE)
    run.give(counting, 1)
    tracemalloc.start()
    for n in range(2, 10):
        run.give(counting, n)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 300_000  # of 9 MB
    assert run.data.text is LARGE.text


class Named(pydantic.BaseModel):
    name: str = pydantic.Field(alias="fullName")


class Recent(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    calls: deque[int] | None = None
    at: datetime.datetime | None = None
    raw: bytes = b""


@dataclass(frozen=True)
class Held:
    named: Named | None = None
    last: deque[int] | None = None
    lists: tuple[deque[deque[int]], ...] = ()
    at: datetime.datetime | None = None
    times: frozenset[datetime.datetime | datetime.time] = frozenset()
    by_time: Mapping[datetime.datetime, int] = field(default_factory=dict)
    listed: Sequence[datetime.datetime | deque[int] | bytes] | None = None
    anything: Sequence[Any] | None = None
    recent: Recent | None = None
    counts: defaultdict[str, int] | None = None
    inner: Held | None = None
    raw: bytes = b""
    files: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    seen: Image | Document | Payload | None = None


@execute
def fill(d: Held) -> int:
    return 1


@wait(bool)
def confirm(d: Held) -> str:
    return "?"


def holding(folder: Path, **values: Any) -> Flow[Held]:
    rows = [fill.done(confirm, do=lambda d, n: replace(d, **values)), confirm.done(end("over"))]
    return Flow("holding", Held, start=fill, rows=rows, store=str(folder / "runs.db"))


@execute
def looking(d: Any) -> int:
    return 1


OSLO = ZoneInfo("Europe/Oslo")
PICTURE = b"\x89PNG\r\n\x1a\n"
TWICE = datetime.datetime(2026, 10, 25, 2, 30, tzinfo=OSLO, fold=1)  # the second of two half past two
NAIVE = TWICE.replace(tzinfo=None)


@pytest.mark.parametrize(
    "values",
    [
        {"named": Named(fullName="Ann")},
        {"last": deque([1])},
        {"last": deque([1], maxlen=3)},
        {"last": deque(maxlen=0)},
        {"lists": (deque([deque([1], maxlen=2)]), deque([deque([2])], maxlen=1))},
        {"at": TWICE},
        {"at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)},
        {"at": NAIVE},
        {"times": frozenset([NAIVE])},
        {"times": frozenset([NAIVE.time()])},
        {"listed": [TWICE, NAIVE, PICTURE, deque([1], maxlen=2)]},
        {"anything": ["text", 1, None, {"a": [True]}]},
        {"by_time": {NAIVE: 1}},
        {"recent": Recent(calls=deque([1], maxlen=2), at=TWICE)},
        {"counts": defaultdict(int, a=1)},
        {"inner": Held(last=deque([1], maxlen=3), at=TWICE)},
        {"raw": b"text"},
        {"raw": PICTURE},
        {"files": {"a.png": (PICTURE, b"", b"\xff\x00", b'{"base64": "/wA="}')}},
        {"recent": Recent(raw=PICTURE), "inner": Held(raw=PICTURE)},
        {"seen": Image.of(PICTURE)},
        {"seen": Document.of(b"%PDF-1.7 \xff", name="bill.pdf")},
        {"seen": Payload.text("What?").with_image_data(PICTURE)},
    ],
)
def test_data_come_back_from_a_store_as_they_were(values: dict[str, Any], tmp_path: Path) -> None:
    """Not only equal: a deque has its length, a time its zone, a defaultdict its factory."""
    flow = holding(tmp_path, **values)
    with pytest.raises(FlowSuspended):
        flow.call(Held(), run_id="r")
    again = flow.runs.resume("r", {confirm: True}).output
    assert (again, repr(again).replace("TzInfo(0)", "datetime.timezone.utc")) == (
        replace(Held(), **values),
        repr(replace(Held(), **values)),
    )


@pytest.mark.parametrize("content", [b"", b"text", PICTURE])
def test_a_file_is_an_answer(content: bytes, tmp_path: Path) -> None:
    upload = wait(bytes, str, name="upload")(lambda d: "the file, or why not")
    rows = [upload.done(end("over"), of=bytes, do=into("raw")), upload.done(end("none"), of=str)]
    flow = Flow("upload", Held, start=upload, rows=rows, store=str(tmp_path / "runs.db"))
    with pytest.raises(FlowSuspended):
        flow.call(Held(), run_id="r")
    assert flow.runs.resume("r", {upload: content}).output.raw == content


def test_an_answer_keeps_its_zone(tmp_path: Path) -> None:
    @execute
    def clock(d: Held) -> datetime.datetime:
        return TWICE

    rows = [clock.done(confirm, do=into("at")), confirm.done(end("over"))]
    flow = Flow("clock", Held, start=clock, rows=rows, store=str(tmp_path / "runs.db"))
    with pytest.raises(FlowSuspended):
        flow.call(Held(), run_id="r")
    assert repr(flow.runs.resume("r", {confirm: True}).output.at) == repr(TWICE)


@pytest.mark.parametrize(
    "document",
    [
        '{"at": "2026-03-01T00:00:00+01:00[Nowhere/Land]"}',
        '{"at": "2026-03-01T00:00:00+01:00[../../etc/passwd]"}',
        '{"at": "2026-03-01T00:00:00[Europe/Oslo]"}',
        '{"at": "2026-03-01T00:00:00+01:00[Europe]"}',  # a folder of zones
        '{"at": "2026-03-01T00:00:00[fold=2]"}',
        '{"at": "[fold=1]"}',
        '{"times": ["02:30+01:00[Europe/Oslo]"]}',
        f'{{"at": "2026-03-01T00:00:00+01:00[{"x" * 5000}]"}}',  # no file has such a name
        f'{{"last": {{"maxlen": {10**30}, "items": []}}}}',
        '{"last": {"maxlen": -1, "items": []}}',
        '{"last": {"maxlen": 1, "items": ["x"]}}',
        '{"raw": {"base64": "/wA"}}',
        '{"raw": {"base64": 5}}',
        '{"raw": {"base64": "", "maxlen": 1}}',
    ],
)
def test_damaged_data_are_refused(document: str, tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="Held"):
        holding(tmp_path).data_of(document)


class Opening(NamedTuple):
    at: datetime.time


@dataclass(frozen=True, eq=False)
class Animal:
    legs: int = 4

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Animal) and self.legs == other.legs


@dataclass(frozen=True, eq=False)
class Cat(Animal):
    lives: int = 9


@dataclass(frozen=True)
class Kept:
    time: datetime.time | None = None
    openings: frozenset[Opening] = frozenset()
    by_time: Mapping[datetime.time, int] = field(default_factory=dict)
    animal: Animal | None = None


HALF_PAST_TWO = datetime.time(2, 30, tzinfo=OSLO)


@pytest.mark.parametrize(
    ("values", "lost"),
    [
        ({"time": HALF_PAST_TWO}, "Europe/Oslo"),
        ({"openings": frozenset([Opening(HALF_PAST_TWO)])}, "Europe/Oslo"),
        ({"by_time": {HALF_PAST_TWO: 1}}, "Europe/Oslo"),
        ({"animal": Cat()}, "Cat"),
    ],
)
def test_what_equality_ignores_is_not_lost(values: dict[str, Any], lost: str) -> None:
    flow = Flow("kept", Kept, start=looking, rows=[looking.done(end("over"))])
    kept = Kept(**values)
    with pytest.raises(FlowError, match=rf"{next(iter(values))}.* without .*{lost}"):
        flow.prepare(kept)


@pytest.mark.parametrize("field", ["counts", "inner"])
def test_what_json_does_not_keep_of_an_equal_value_is_refused_by_name(field: str, tmp_path: Path) -> None:
    counts = defaultdict(lambda: 7, a=1)
    value = counts if field == "counts" else Held(counts=counts)
    with pytest.raises(FlowError, match=rf"Held\.{field}.* without its default_factory"):
        holding(tmp_path, **{field: value}).call(Held(), run_id="r")


class Hidden(pydantic.BaseModel):
    hidden: str = pydantic.Field(default="", exclude=True)


class Keyed(pydantic.BaseModel):
    key: pydantic.SecretStr = pydantic.SecretStr("")


class TwoNames(pydantic.BaseModel):
    name: str = pydantic.Field(default="", validation_alias="read", serialization_alias="written")


class Reckoned(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    @pydantic.computed_field
    def twice(self) -> int:
        return 2


@pytest.mark.parametrize(
    ("kind", "field"),
    [(Hidden, "hidden"), (Keyed, "key"), (TwoNames, "read"), (Reckoned, "twice")],
)
@pytest.mark.parametrize("is_deep", [False, True])
def test_a_type_that_never_comes_back_is_refused_when_the_flow_is_defined(kind: Any, field: str, is_deep: bool) -> None:
    made = make_dataclass("Made", [("value", tuple[kind, ...] if is_deep else kind, None)], frozen=True)
    with pytest.raises(FlowError, match=rf"{kind.__name__}\.{field}"):
        _flow_on(made)


@dataclass(frozen=True)
class OfCall:
    call: CallResult[str] | None = None


def test_a_whole_result_in_the_data_is_refused_when_the_flow_is_defined() -> None:
    """It holds code, so it could not be read again."""
    with pytest.raises(FlowError, match=r"OfCall.call"):
        _flow_on(OfCall)


class Secretive(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    n: int = 0
    _seen: int = pydantic.PrivateAttr(default=0)


@dataclass(frozen=True)
class Around:
    items: tuple[Secretive, ...] = ()


def test_a_private_attribute_that_equality_ignores_may_be_lost() -> None:
    """It is computed again when it is asked for."""

    class Text(pydantic.BaseModel, frozen=True):
        words: str = ""
        _count: Any = pydantic.PrivateAttr(default=None)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Text) and self.words == other.words

        __hash__ = pydantic.BaseModel.__hash__

    @execute
    def counted(d: Text) -> Text:
        made = Text(words="two words")
        made._count = 2
        return made

    flow = Flow("f", Text, start=counted, rows=[counted.done(end("over"), do=lambda d, made: made)])
    assert flow.call(Text()).output.words == "two words"


@pytest.mark.parametrize("is_deep", [False, True])
def test_a_private_attribute_that_json_would_lose_is_named(is_deep: bool) -> None:
    secretive = Secretive(n=1)
    _flow_on(Secretive).prepare(secretive)
    secretive._seen = 2
    flow, data = (_flow_on(Around), Around((secretive,))) if is_deep else (_flow_on(Secretive), secretive)
    with pytest.raises(FlowError, match="_seen"):
        flow.prepare(data)

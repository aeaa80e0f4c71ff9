"""Does the definition of a flow refuse what cannot be right, with an error that says where and what would be?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, Literal, get_args

import pytest

from fsm_agent import Agent, Context, MemoryStore
from fsm_agent.flows import Flow, FlowError, FlowSuspended, ask, each, end, execute, gather, pause, race, wait
from fsm_agent.store import NotAsked
from fsm_agent.testing import Script


@dataclass(frozen=True)
class N:
    n: int = 0


@dataclass(frozen=True)
class Yes:
    by: str


@dataclass(frozen=True)
class No:
    why: str


@dataclass(frozen=True)
class AlsoYes:
    by: str


@dataclass(frozen=True)
class TaggedYes:
    by: str
    kind: Literal["yes"] = "yes"


@dataclass(frozen=True)
class TaggedNo:
    by: str
    kind: Literal["no"] = "no"


@dataclass
class Open:
    n: int = 0


@dataclass(frozen=True)
class WithList:
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class WithInner:
    inner: tuple[Open, ...] = ()


@dataclass(frozen=True)
class Nested:
    items: tuple[WithList, ...] | None = None


class Empty(Enum):
    pass


class Color(Enum):
    RED = "red"
    BLUE = "blue"


bot = Agent(Script(), name="bot")
counter = Agent(Script(), name="counter", output=int)


@ask(bot)
def asked(d: N) -> str:
    return "?"


@ask(counter, Color)
def classify(d: N) -> str:
    return "?"


@wait(Yes, No)
def review(d: N) -> str:
    return "?"


@wait(Yes, No, within_s=60)
def timed(d: N) -> str:
    return "?"


@execute
def act(d: N) -> int:
    return d.n


over, other, failed = end("over"), end("other"), end("broken", failed="it broke")


def is_odd(d: N, a: Any) -> bool:
    return bool(d.n % 2)


def above(least: int) -> Callable[[N], bool]:
    def is_above(d: N) -> bool:
        return d.n > least

    return is_above


def more(d: N, a: Any) -> N:
    return replace(d, n=d.n + 1)


def flow(*rows: Any, start: Any = asked, data: Any = N, **options: Any) -> Flow[Any]:
    return Flow("f", data, start=start, rows=list(rows), **options)


def test_one_name_is_enough_where_the_target_or_the_type_differs() -> None:
    made = flow(
        asked.done(over, when=above(3)),
        asked.done(other, when=above(2)),
        asked.done(review),
        review.done(over, of=Yes, when=is_odd),
        review.done(over, when=is_odd),
        review.done(other),
    )
    assert len(made.own_rows) == 6


ANYTHING: Any = ...
MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: flow(review.done(over, of=Yes), start=review), "review .*No"),
    (lambda: flow(classify.done(over, of=Color.RED), start=classify), "classify .*BLUE"),
    (lambda: flow(asked.done(over, when=is_odd)), "asked .*is_odd"),
    (lambda: flow(asked.done(over), asked.done(other, when=is_odd)), "is_odd.*other"),
    (lambda: flow(asked.done(over, when=is_odd), asked.done(other, when=is_odd), asked.done(over)), "is_odd.*other"),
    (
        lambda: flow(asked.done(over, when=above(3)), asked.done(over, when=above(2), do=more), asked.done(other)),
        "is_above.*over",
    ),
    (lambda: flow(review.done(over), review.done(other, of=No), start=review), "review --done No--> other"),
    (lambda: flow(review.done(over), review.done(over, of=int), start=review), "review --done int--> over"),
    (lambda: flow(asked.done(over, of=int)), "asked"),
    (lambda: flow(asked.done(over), review.done(over)), "review"),
    (lambda: flow(asked.done(act), act.done(asked)), "asked"),
    (lambda: flow(asked.done(act), act.done(asked), act.failed(over)), "asked"),
    (lambda: flow(asked.done(over), asked.elapsed(other)), "asked"),
    (lambda: flow(start=pause("nap", 5)), "nap"),
    (lambda: flow(asked.done(over, when=5), asked.done(over)), "5"),
    (lambda: flow(asked.done(over, do=5)), "5"),
    (lambda: flow(asked.done(over, when=lambda d, a: True), asked.done(over)), "<lambda>"),
    (lambda: flow(asked.done(over, when=_later), asked.done(over)), "_later"),
    (lambda: flow(asked.done(over), data=Open), "'Open'"),
    (lambda: flow(asked.done(over), data=dict), "'dict'"),
    (lambda: flow(asked.done(over), data=int | str), "int"),
    (lambda: flow(asked.done(over), data=WithList), r"WithList\.items"),
    (lambda: flow(asked.done(over), data=WithInner), "Open"),
    (lambda: flow(asked.done(over), data=Nested), r"Nested\.items\.items"),
    (lambda: flow(asked.done(end("e")), asked.failed(end("e", failed=True))), "'e'"),
    (lambda: flow(asked.done(end("the end"))), "'the end'"),
    (lambda: flow(asked.done(end("a/b"))), "'a/b'"),
    (lambda: flow(asked.done(end("Failed"))), "'Failed'"),
    (lambda: flow(asked.done(end("mro"))), "mro"),
    (lambda: flow(asked.done(end("__init__"))), "__init__"),
    (lambda: flow(asked.done(end("_order_"))), "_order_"),
    (lambda: _both(gather("both", asked, asked)), "'asked'"),
    (lambda: _both(gather("both", asked, timed)), "timed"),
    (lambda: _both(wait(Empty)(_question)), "Empty"),
    (lambda: _both(wait(str, Empty)(_question)), "Empty"),
    (lambda: gather("both", asked, over), "over"),
    (lambda: race("first", asked), "'first'"),
    (lambda: _done(wait(Yes, AlsoYes)(lambda d: "?"), name="w"), "Yes.*AlsoYes"),
    (lambda: flow(asked.done(ANYTHING)), "Ellipsis"),
    (lambda: flow(ANYTHING), "Ellipsis"),
    (lambda: flow(asked.done(over), start=over), "start"),
    (lambda: _done(wait(str, within_s=-1)(lambda d: "?"), name="w"), "w.*within_s"),
    (lambda: _done(execute(once=True, within_s=5)(_acting), name="acting"), "within_s"),
    (lambda: execute(_silent), "_silent"),
    (lambda: execute(_three), "_three"),
    (lambda: _done(ask(counter, str)(lambda d: "?"), name="c"), "int"),
    (lambda: ask("bot"), "'bot'"),
    (lambda: wait(), "wait"),
    (lambda: _done(each("all", act, lambda d: (), parallel=0), name="all"), "all.*parallel"),
]


async def _later(d: N, a: str) -> bool:
    return True


def _acting(d: N) -> str:
    return ""


def _silent(d: N):  # type: ignore[no-untyped-def]
    return 1


def _three(d: N, context: Context[Any], more: int) -> int:
    return more


def _both(state: Any) -> Flow[Any]:
    return flow(state.done(over), start=state)


def _done(state: Any, name: str) -> Flow[Any]:
    state.name = name
    return flow(state.done(over), start=state)


@pytest.mark.parametrize(("make", "name"), MISTAKES, ids=[name for _, name in MISTAKES])
def test_mistakes_are_refused_and_named(make: Callable[[], Any], name: str) -> None:
    with pytest.raises(FlowError, match=name):
        make()


@pytest.mark.parametrize(("kind", "of"), [(Color, "of=Color.BLUE"), (bool, "of=False"), (int | None, "of=None")])
def test_the_error_of_a_missing_row_says_how_it_is_written(kind: Any, of: str) -> None:
    deciding = wait(*(get_args(kind) or [kind]), name="deciding")(lambda d: "?")
    first = {Color: Color.RED, bool: True}.get(kind, int)
    with pytest.raises(FlowError, match=of):
        Flow("f", N, start=deciding, rows=[deciding.done(over, of=first)])


def test_types_that_cannot_be_found_are_refused() -> None:
    @dataclass(frozen=True)
    class Local:
        hidden: Hidden  # noqa: F821  # which is nowhere

    with pytest.raises(FlowError, match="Local"):
        flow(asked.done(over), data=Local)


def test_types_that_are_local_to_a_function_may_be_those_of_a_function_there() -> None:
    @dataclass(frozen=True)
    class Local:
        n: int = 0

    def found(d: Local) -> Local:
        return Local(d.n + 1)

    def listed(d: Local) -> list[str]:
        return [str(d.n)]

    first, second = execute(found), execute(name="second")(partial(listed))
    rows = [first.done(second, do=lambda d, got: got), second.done(end("over"))]
    assert Flow("local", Local, start=first, rows=rows).call(Local()).output == Local(1)


def test_what_is_left_open_has_rows_too() -> None:
    made = flow(timed.done(over), start=timed)
    rows = {(entry.source, entry.event, entry.to) for entry in made.entries if entry.is_default}
    assert ("timed", "elapsed", "Failed") in rows
    assert ("timed", "cancelled", "Cancelled") in rows
    assert ("Seeded", "begun", "timed") in rows
    assert ("timed", "expired", "Expired") not in rows


def test_an_enum_and_tagged_types_give_edges() -> None:
    made = flow(classify.done(over, of=Color.RED), classify.done(other, of=Color.BLUE), start=classify)
    assert [e.event for e in made.entries if not e.is_default] == ["done RED", "done BLUE"]
    tagged = wait(TaggedYes, TaggedNo)(_question)
    assert tagged.answer_types.load(tagged.answer_types.dump(TaggedNo("ann"))) == TaggedNo("ann")
    assert tagged.answer_types.load('{"by": "ann", "kind": "no"}') == TaggedNo("ann")
    _both(tagged)


def _question(d: N) -> str:
    return "?"


@pytest.mark.parametrize("name", ["name", "value", "count", "names"])
def test_names_that_strings_and_enums_have_are_names_like_others(name: str) -> None:
    made = flow(asked.done(end(name)))
    run = made.prepare(N(), clients={asked: Script("hello")})
    assert made.run(run).state == name


@dataclass(frozen=True)
class Longer:
    by: str
    note: str = ""


def test_an_answer_keeps_its_type_though_it_reads_as_another() -> None:
    """A no must not become a yes on its way through a store."""
    state = wait(Longer, Yes)(_question)
    _both(state)
    assert state.answer_types.load(state.answer_types.dump(Yes("ann"))) == Yes("ann")
    assert state.answer_types.load(state.answer_types.dump(Longer("ann"))) == Longer("ann")


# Ends


def asking(n: N) -> str:
    return "?"


def test_ends_that_are_made_alike_are_one() -> None:
    first, second = [wait(bool, name=name)(asking) for name in ("first", "second")]
    rows = [first.done(second, of=True), first.done(end("done"), of=False), second.done(end("done"))]
    flow = Flow("f", N, start=first, rows=rows)
    assert [name for name in flow.states if name == "done"] == ["done"]
    assert replace(flow, answer=lambda question: False).call(N()).state == "done"


@pytest.mark.parametrize("other", [end("done", failed=True), end("done", failed="why")])
def test_ends_of_one_name_that_differ_are_two(other: Any) -> None:
    first = wait(bool, name="first")(asking)
    with pytest.raises(FlowError, match="'done'"):
        Flow("f", N, start=first, rows=[first.done(end("done"), of=True), first.done(other, of=False)])


def test_a_flow_may_live_until_it_is_cancelled() -> None:
    alive = wait(int, name="alive")(asking)
    rows = [alive.done(alive, do=lambda n, a: N(n.n + a)), alive.cancelled(end("closed"))]
    run = Flow("f", N, start=alive, rows=rows).prepare(N())
    with pytest.raises(FlowSuspended):
        run.flow.run(run)
    run.give(alive, 3)
    run.cancel()
    run.flow.run(run)
    assert (run.state, run.data) == ("closed", N(3))


def test_a_flow_that_ends_by_failing_alone_is_refused() -> None:
    @execute
    def work(n: N) -> int:
        return 1

    with pytest.raises(FlowError, match="work"):
        Flow("f", N, start=work, rows=[work.done(work), work.failed(end("tired"))])


def test_a_question_is_answered_by_the_name_of_its_state_too() -> None:
    first, second = wait(int, name="first")(asking), wait(int, name="second")(asking)
    rows = [first.done(second), second.done(end("over"), do=lambda n, a: N(a))]
    flow = Flow("f", N, start=first, rows=rows, store=MemoryStore())
    for answers in ({}, {"first": 1}):
        with pytest.raises(FlowSuspended):
            flow.runs.resume("r", answers) if answers else flow.call(N(), run_id="r")
    with pytest.raises(NotAsked, match="first"):
        flow.runs.resume("r", {"first": 1})
    assert flow.runs.resume("r", {"second": 5}).output == N(5)


def test_a_flow_is_changed_as_an_agent_is() -> None:
    @execute
    def double(n: int) -> int:
        return 2 * n

    flow = Flow("doubling", int, start=double, rows=[double.done(end("over"), do=lambda n, more: more)])
    other = flow.changed(name="twice", store=MemoryStore())
    assert (other.name, other.call(4, run_id="r").output, other.runs.at("r").state) == ("twice", 8, "over")
    assert (flow.name, flow.store) == ("doubling", None)
    with pytest.raises(TypeError, match="'stroe'"):
        flow.changed(stroe=MemoryStore())  # type: ignore[call-arg]
    with pytest.raises(FlowError, match="version"):
        flow.changed(version=0)

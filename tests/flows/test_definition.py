"""Does the definition of a flow refuse what cannot be right, with an error that says where and what would be?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal

import pytest

from fsm_agent import Agent, Context
from fsm_agent.flows import (
    Flow,
    FlowError,
    call,
    each,
    end,
    execute,
    failure,
    gather,
    pause,
    race,
    subflow,
    wait,
)
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


@call(bot)
def ask(d: N) -> str:
    return "?"


@call(counter, Color)
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


over, other, failed = end("over"), end("other"), failure("broken", "it broke")


def is_odd(d: N, a: Any) -> bool:
    return bool(d.n % 2)


def above(least: int) -> Callable[[N], bool]:
    def is_above(d: N) -> bool:
        return d.n > least

    return is_above


def more(d: N, a: Any) -> N:
    return replace(d, n=d.n + 1)


def flow(*rows: Any, start: Any = ask, data: Any = N, **options: Any) -> Flow[Any]:
    return Flow("f", data, start=start, rows=list(rows), **options)


def test_one_name_is_enough_where_the_target_or_the_type_differs() -> None:
    made = flow(
        ask.done(over, when=above(3)),
        ask.done(other, when=above(2)),
        ask.done(review),
        review.done(over, of=Yes, when=is_odd),
        review.done(over, when=is_odd),
        review.done(other),
    )
    assert len(made.own_rows) == 6


ANYTHING: Any = ...
MISTAKES: list[tuple[str, Callable[[], Any], str]] = [
    ("a type without a row", lambda: flow(review.done(over, of=Yes), start=review), "review has no row for 'done No'"),
    (
        "a member of an enum without a row",
        lambda: flow(classify.done(over, of=Color.RED), start=classify),
        "classify has no row for 'done BLUE'",
    ),
    ("guards only", lambda: flow(ask.done(over, when=is_odd)), r"if ask --done \[is_odd\]--> over is not taken"),
    (
        "a row behind one that takes all",
        lambda: flow(ask.done(over), ask.done(other, when=is_odd)),
        r"the row ask --done \[is_odd\]--> other is never taken",
    ),
    (
        "a row behind one with the same guard",
        lambda: flow(ask.done(over, when=is_odd), ask.done(other, when=is_odd), ask.done(over)),
        r"the row ask --done \[is_odd\]--> other is never taken",
    ),
    (
        "two rows that nothing tells apart",
        lambda: flow(ask.done(over, when=above(3)), ask.done(over, when=above(2), do=more), ask.done(other)),
        r"two rows are ask --done \[is_above\]--> over: guards with names of their own",
    ),
    (
        "a row twice",
        lambda: flow(review.done(over), review.done(other, of=No), start=review),
        "review --done No--> other is never taken",
    ),
    (
        "a type that is not given",
        lambda: flow(review.done(over), review.done(over, of=int), start=review),
        "review --done int--> over never happens: review gives Yes, No",
    ),
    ("a type where there is one", lambda: flow(ask.done(over, of=int)), "so leave of=… out"),
    (
        "a state nothing leads to",
        lambda: flow(ask.done(over), review.done(over)),
        "nothing leads to review",
    ),
    (
        "no way to an end",
        lambda: flow(ask.done(act), act.done(ask)),
        "from ask an end is reached only by failing",
    ),
    (
        "a way to an end only by failing",
        lambda: flow(ask.done(act), act.done(ask), act.failed(over)),
        "from ask an end is reached only by failing",
    ),
    ("a time that is none", lambda: flow(ask.done(over), ask.elapsed(other)), "ask has no within_s"),
    ("a pause without a row", lambda: flow(start=pause("nap", 5)), "nap has no row for 'elapsed'"),
    (
        "a guard that is no function",
        lambda: flow(ask.done(over, when=5), ask.done(over)),
        "the guard of .* is 5: a function would be",
    ),
    ("an action that is no function", lambda: flow(ask.done(over, do=5)), "the action of .* is 5: a function would be"),
    ("a lambda as guard", lambda: flow(ask.done(over, when=lambda d, a: True), ask.done(over)), "has no name"),
    ("data that can change", lambda: flow(ask.done(over), data=Open), "'Open', which can be changed in place"),
    ("a list in the data", lambda: flow(ask.done(over), data=WithList), "WithList.items of the data is a list"),
    ("data that can change inside", lambda: flow(ask.done(over), data=WithInner), "is a Open, which can be changed"),
    (
        "two states of one name",
        lambda: flow(ask.done(end("e")), ask.failed(failure("e"))),
        "two states are called 'e'",
    ),
    ("a name that is none", lambda: flow(ask.done(end("the end"))), "a state is called 'the end'"),
    ("a name with a slash", lambda: flow(ask.done(end("a/b"))), "a state is called 'a/b'"),
    ("a reserved name", lambda: flow(ask.done(end("Failed"))), "'Failed', which is every flow's own"),
    ("a name of Python's", lambda: flow(ask.done(end("mro"))), "mro"),
    *[
        (f"{name}, which is Python's", lambda name=name: flow(ask.done(end(name))), f"'{name}', which Python keeps for")
        for name in ("__init__", "__class__", "_order_", "_name_")
    ],
    (
        "members of one name",
        lambda: _both(gather("both", ask, ask)),
        "both has several members called 'ask'",
    ),
    (
        "an enum without members",
        lambda: _both(wait(Empty)(_question)),
        "_question gives Empty, an enum without members",
    ),
    ("one among others", lambda: _both(wait(str, Empty)(_question)), "_question gives Empty, an enum without members"),
    (
        "a mapping as data",
        lambda: flow(ask.done(over), data=dict),
        "the data are 'dict', which can be changed in place",
    ),
    ("a list inside of a tuple", lambda: flow(ask.done(over), data=Nested), "Nested.items.items of the data is a list"),
    ("a member with a time", lambda: _both(gather("both", ask, timed)), "the member timed has a time of its own"),
    ("a member that is no state", lambda: gather("both", ask, over), "'both' has the member <End over>"),
    ("one member", lambda: race("first", ask), r"'first' has 1 member\(s\)"),
    (
        "types that JSON cannot tell apart",
        lambda: _done(wait(Yes, AlsoYes)(lambda d: "?"), name="w"),
        "Yes or AlsoYes, which JSON cannot tell apart",
    ),
    ("a row to nothing", lambda: flow(ask.done(ANYTHING)), "ask has a row to Ellipsis"),
    ("no row at all", lambda: flow(ANYTHING), "rows has Ellipsis: a row such as"),
    ("an end as start", lambda: flow(ask.done(over), start=over), "start is .*: a state that waits would be right"),
    ("a coroutine as guard", lambda: flow(ask.done(over, when=_later), ask.done(over)), "is a coroutine function"),
    (
        "a time below zero",
        lambda: _done(wait(str, within_s=-1)(lambda d: "?"), name="w"),
        "has within_s=-1: a number of seconds above 0",
    ),
    (
        "a function that must not run twice, and a time",
        lambda: _done(execute(once=True, within_s=5)(_acting), name="acting"),
        "must not run twice and has within_s",
    ),
    ("a function without a return type", lambda: execute(_silent), "the function '_silent' has no return type"),
    ("a function of three", lambda: execute(_three), "the function '_three' has 3 parameters"),
    ("text of an agent of numbers", lambda: _done(call(counter, str)(lambda d: "?"), name="c"), "its agent gives int"),
    ("no agent", lambda: call("bot"), "call was given 'bot' alone: an Agent; or the types of the answer"),
    ("no types of an answer", lambda: wait(), "wait was given no types"),
    ("no parallel", lambda: _done(each("all", act, lambda d: (), parallel=0), name="all"), "has parallel=0"),
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


@pytest.mark.parametrize(("what", "make", "says"), MISTAKES, ids=[what for what, _, _ in MISTAKES])
def test_mistakes_are_refused_and_named(what: str, make: Callable[[], Any], says: str) -> None:
    with pytest.raises(FlowError, match=says):
        make()


def test_types_that_cannot_be_found_are_refused() -> None:
    @dataclass(frozen=True)
    class Local:
        hidden: Hidden  # noqa: F821  # which is nowhere

    with pytest.raises(FlowError, match="Local"):
        flow(ask.done(over), data=Local)


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


def test_a_flow_never_changes_and_a_variant_is_another() -> None:
    made = flow(ask.done(over))
    assert replace(made, name="g").name == "g"
    with pytest.raises(AttributeError):
        made.name = "h"  # type: ignore[misc]


@pytest.mark.parametrize("name", ["name", "value", "count", "title", "index", "encode", "names", "isidentifier"])
def test_names_that_strings_and_enums_have_are_names_like_others(name: str) -> None:
    made = flow(ask.done(end(name)))
    run = made.seed(N(), clients={ask: Script("hello")})
    assert made.run(run).state == name


def test_states_of_all_kinds_in_one_flow() -> None:
    inner = flow(act.done(over), start=act)
    nested = subflow("nested", inner, lambda d: N(d.n))
    nap = pause("nap", 5)
    first = race("first", ask, review)
    made = flow(nap.elapsed(nested), nested.done(first), first.done(over, of=str), first.done(other), start=nap)
    assert [state.name for state in made.live] == ["nap", "nested", "first"]
    assert "Flow('f', 3 states" in repr(made)


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

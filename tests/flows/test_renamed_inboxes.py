"""Is an early answer taken that was posted before its state was renamed?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fsm_agent import MemoryStore, Worker
from fsm_agent.call import Returned
from fsm_agent.flows import Flow, FlowSuspended, each, end, gather, race, renamed, reshaped, subflow, wait


@dataclass(frozen=True)
class Order:
    paid: int = 0


@dataclass(frozen=True)
class NewOrder:
    paid: int = 0
    lang: str = "no"


@wait(str)
def address(order: Any) -> str:
    return "where to?"


def english(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "data": {"paid": record["data"]["paid"], "lang": "en"}}


def renamed_and_moved(record: dict[str, Any]) -> dict[str, Any]:
    """Rename the state and move the data in one function, which needs the data as they are."""
    data = dict(record["data"])
    paid = (data.pop("paid") + 1) // 1 - 1
    return renamed(paying="payment")({**record, "data": {**data, "paid": paid, "lang": "en"}})


def renamed_and_reshaped(record: dict[str, Any]) -> dict[str, Any]:
    """Apply two upgrades, of which the second needs a field."""
    return reshaped(drop=["paid"], add={"lang": "en"})(renamed(paying="payment")(record))


def shop(store: Any, version: int, name: str, data: Any = Order, **upgrades: Any) -> Flow[Any]:
    @wait(int, early=True, name=name)
    def paying(order: Any) -> str:
        return "?"

    rows = [address.done(paying), paying.done(end("paid"), do=lambda order, paid: replace(order, paid=paid))]
    return Flow("shop", data, start=address, version=version, store=store, rows=rows, **upgrades)


@pytest.mark.parametrize("is_read", [True, False], ids=["in the run", "unread"])
def test_it_is_taken_under_the_new_name(is_read: bool) -> None:
    store = MemoryStore()
    old = shop(store, 1, "paying")
    new = shop(store, 2, "payment", upgrades={1: renamed(paying="payment")})
    old.runs.submit(Order(), run_id="r")
    Worker([old], store).run(once=True)
    old.runs.all.answer("r", {"inbox:paying": Returned(text="30")}, by="bank")
    if is_read:
        Worker([old], store).run(once=True)
    Worker([new], store).run(once=True)
    assert new.runs.resume("r", {address: "Oslo"}).output == Order(paid=30)


@pytest.mark.parametrize("is_read", [True, False], ids=["in the run", "unread"])
@pytest.mark.parametrize(
    "upgrades",
    [
        {1: [renamed(paying="payment"), reshaped(add={"lang": "en"})]},
        {1: [reshaped(add={"lang": "en"}), renamed(paying="payment")]},
        {1: [english, renamed(paying="payment")]},
        {1: renamed(paying="money"), 2: english, 3: renamed(money="payment")},
        {1: renamed_and_moved},
        {1: renamed_and_reshaped},
    ],
    ids=["and then its data", "after its data", "beside a function", "over versions", "in one function", "in one"],
)
def test_it_is_taken_although_the_data_change_too(upgrades: Any, is_read: bool) -> None:
    store = MemoryStore()
    old = shop(store, 1, "paying")
    new = shop(store, len(upgrades) + 1, "payment", NewOrder, upgrades=upgrades)
    old.runs.submit(Order(), run_id="r")
    Worker([old], store).run(once=True)
    old.runs.all.answer("r", {"inbox:paying": Returned(text="30")}, by="bank")
    if is_read:
        Worker([old], store).run(once=True)
    Worker([new], store).run(once=True)
    assert new.runs.resume("r", {address: "Oslo"}).output == NewOrder(30, "en")


Around = Callable[[Any, Any], Any]


def both(ann: Any, bob: Any) -> Any:
    return gather("both", ann, bob)


def one_of(ann: Any, bob: Any) -> Any:
    return race("both", ann, bob)


def all_of(ann: Any, bob: Any) -> Any:
    return each("all_of", gather("both", ann, bob), lambda order: (order,))


def voting(version: int, name: str, around: Around, **options: Any) -> Flow[int]:
    ann, bob = (wait(str, name=one)(lambda n: "?") for one in (name, "bob"))
    group = around(ann, bob)
    rows = [group.done(end("over"), do=lambda n, votes: n + len(str(votes)))]
    return Flow("voting", int, start=group, rows=rows, version=version, **options)


@pytest.mark.parametrize(
    ("around", "key"),
    [(both, "both#1/answer:ann"), (one_of, "both#1/answer:ann"), (all_of, "all_of#1/0/answer:ann")],
)
@pytest.mark.parametrize("is_inside", [False, True], ids=["alone", "inside"])
def test_a_member_takes_what_was_answered_under_its_old_name(around: Around, key: str, is_inside: bool) -> None:
    store = MemoryStore()

    def made(version: int, name: str, **options: Any) -> Flow[int]:
        if not is_inside:
            return voting(version, name, around, store=store, **options)
        inner = subflow("inner", voting(version, name, around, **options), lambda n: n)
        return Flow("outer", int, start=inner, store=store, rows=[inner.done(end("over"), do=lambda n, votes: votes)])

    old = made(1, "ann")
    with pytest.raises(FlowSuspended):
        old.call(0, run_id="r")
    path = "inner#1/" if is_inside else ""
    old.runs.all.answer("r", {f"{path}{key}": Returned(text='"yes"')})
    new = made(2, "anna", upgrades={1: renamed(ann="anna")})
    if around is one_of:
        assert new.runs.resume("r").state == "over"
        return
    with pytest.raises(FlowSuspended) as waiting:
        new.runs.resume("r")
    (asked,) = [effect.key for effect in waiting.value.run.effects]
    assert asked.endswith("answer:bob")


@pytest.mark.parametrize("is_inside", [False, True], ids=["alone", "inside"])
@pytest.mark.parametrize("way", ["posted", "by key", "by state"])
def test_members_that_swap_their_names_take_what_they_were_asked(way: str, is_inside: bool) -> None:
    """The question was asked under the name that another member has now."""
    store = MemoryStore()

    def made(first: str, second: str, **options: Any) -> tuple[Flow[Any], Any]:
        one, two = (wait(str, name=name)(lambda d: "?") for name in (first, second))
        both = gather("both", one, two)
        flow = Flow("voting", tuple, start=both, rows=[both.done(end("over"), do=lambda d, found: found)], **options)
        if not is_inside:
            return replace(flow, store=store), one
        inner = subflow("inner", flow, lambda d: d)
        rows = [inner.done(end("over"), do=lambda d, found: found)]
        return Flow("outer", tuple, start=inner, store=store, rows=rows), one

    old, _ = made("ann", "bob")
    with pytest.raises(FlowSuspended):
        old.call((), run_id="r")
    new, first = made("bob", "ann", version=2, upgrades={1: renamed(ann="bob", bob="ann")})
    path = "inner#1/both#1" if is_inside else "both#1"
    answers: dict[Any, Any] = {f"{path}/answer:ann": Returned(text='"first"')}
    if way == "posted":
        new.runs.all.answer("r", answers)
    with pytest.raises(FlowSuspended):
        new.runs.resume("r", {"posted": None, "by key": answers, "by state": {first: "first"}}[way])
    result = new.runs.resume("r", {f"{path}/answer:ann": "second"})  # as it is asked now
    assert result.output == ("first", "second")

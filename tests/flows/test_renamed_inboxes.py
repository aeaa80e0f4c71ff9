"""Is an early answer taken that was posted before its state was renamed?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from fsm_agent import MemoryStore, Worker
from fsm_agent.call import Returned
from fsm_agent.flows import Flow, end, renamed, wait


@dataclass(frozen=True)
class Order:
    paid: int = 0


@wait(str)
def address(order: Order) -> str:
    return "where to?"


def shop(store: Any, version: int, name: str, **upgrades: Any) -> Flow[Order]:
    @wait(int, early=True, name=name)
    def paying(order: Order) -> str:
        return "?"

    rows = [address.done(paying), paying.done(end("paid"), do=lambda order, paid: replace(order, paid=paid))]
    return Flow("shop", Order, start=address, version=version, store=store, rows=rows, **upgrades)


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

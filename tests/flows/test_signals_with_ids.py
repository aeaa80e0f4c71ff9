"""Does an answer that is sent again under its id count once, whatever happened to the run meanwhile?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent, Approved, CallSuspended, Denied, MemoryStore, UsageError, function
from fsm_agent.call import Returned
from fsm_agent.flows import Flow, FlowSuspended, end, execute, wait
from fsm_agent.store import AlreadyAnswered, RunBusy, SignalExists
from fsm_agent.testing import Script, function_call


@dataclass(frozen=True)
class Account:
    paid: int = 0


@wait(int)
def opening(a: Account) -> str:
    return "?"


@wait(int, early=True)
def paying(a: Account) -> str:
    return "pay"


def is_part(a: Account, n: int) -> bool:
    return a.paid + n < 100


def add(a: Account, n: int) -> Account:
    return replace(a, paid=a.paid + n)


def account() -> Flow[Account]:
    rows = [opening.done(paying), paying.done(paying, when=is_part, do=add), paying.done(end("full"), do=add)]
    flow = Flow("account", Account, start=opening, rows=rows, store=MemoryStore())
    with suppress(FlowSuspended):
        flow.call(Account(), run_id="r")
    return flow


def resumed(flow: Any, answers: Any, **options: Any) -> None:
    with suppress(FlowSuspended):
        flow.runs.resume("r", answers, **options)


def aresumed(flow: Any, answers: Any, **options: Any) -> None:
    with suppress(FlowSuspended):
        asyncio.run(flow.runs.aresume("r", answers, **options))


def streamed(flow: Any, answers: Any, **options: Any) -> None:
    for _ in flow.runs.stream("r", answers, **options):
        pass


def handled(flow: Any, answers: Any, **options: Any) -> None:
    flow.runs.get("r").answer(answers, **options)
    resumed(flow, None)


ways = pytest.mark.parametrize("give", [resumed, aresumed, streamed, handled])


@ways
def test_a_payment_that_is_given_again_counts_once(give: Callable[..., None]) -> None:
    flow = account()
    for _ in range(2):
        give(flow, {paying: 30}, signal_id="payment-1")  # before it is asked for
    give(flow, {opening: 1}, signal_id="opening")
    give(flow, {opening: 1}, signal_id="opening")  # it is asked no more
    give(flow, {paying: 30}, signal_id="payment-1")
    give(flow, {paying: 30}, signal_id="payment-2")
    assert flow.runs.at("r").data == Account(60)
    give(flow, {paying: 40}, signal_id="payment-3")
    with suppress(RunBusy):
        give(flow, {paying: 40}, signal_id="payment-3")  # it has ended
    assert (flow.runs.at("r").state, flow.runs.at("r").data) == ("full", Account(100))


@ways
def test_another_answer_under_an_id_is_refused_by_its_id(give: Callable[..., None]) -> None:
    flow = account()
    give(flow, {paying: 30}, signal_id="payment-1")
    for answers in ({paying: 31}, {opening: 30}):
        with pytest.raises(SignalExists, match="payment-1"):
            give(flow, answers, signal_id="payment-1")
    give(flow, {opening: 1})
    assert flow.runs.at("r").data == Account(30)


def test_the_runs_take_an_id_too() -> None:
    @function(needs_approval=True)
    def erase() -> str:
        """Erase."""
        return "gone"

    agent = Agent(Script(function_call("erase"), "Done."), functions=[erase], name="clerk", store=MemoryStore())
    with suppress(CallSuspended):
        agent.call("Tidy up.", run_id="r")
    for at_s in (1.0, 2.0):
        agent.runs.all.answer("r", {"ask:1.0": Approved()}, signal_id="click-1", at_s=at_s)
    with pytest.raises(SignalExists, match="click-1"):
        agent.runs.all.answer("r", {"ask:1.0": Denied(reason="no")}, signal_id="click-1")
    assert agent.runs.resume("r").output == "Done."
    agent.runs.all.answer("r", {"ask:1.0": Approved()}, signal_id="click-1")


@pytest.mark.parametrize("answers", [{opening: 1, paying: 30}, 1, {}])
def test_an_id_is_of_one_answer_by_its_key(answers: Any) -> None:
    with pytest.raises(UsageError, match="signal_id"):
        account().runs.resume("r", answers, signal_id="x")
    with pytest.raises(UsageError, match="signal_id"):
        account().runs.all.answer("r", dict.fromkeys(["a", "b"], Returned(text="1")), signal_id="x")


def test_a_run_that_is_busy_takes_an_answer_once(tmp_path: Path) -> None:
    flow: Any = None

    def pays(a: Account) -> str:
        for _ in range(3):
            with suppress(RunBusy):
                flow.runs.resume("r", {paying: 30}, signal_id="payment-1")
        return "over"

    slow = execute(name="slow")(pays)
    rows = [slow.done(paying), paying.done(paying, when=is_part, do=add), paying.done(end("full"), do=add)]
    flow = Flow("account", Account, start=slow, rows=rows, store=str(tmp_path / "runs.db"))
    with suppress(FlowSuspended):
        flow.call(Account(), run_id="r")
    assert flow.runs.at("r").data == Account(30)
    flow.runs.all.close()


def test_who_answers_second_hears_who_was_first() -> None:
    flow = account()
    flow.runs.get("r").answer({opening: 1}, by="ann")  # not taken yet
    for whom in (opening, "answer:opening#1"):
        with pytest.raises(AlreadyAnswered, match="ann"):
            flow.runs.get("r").answer({whom: 2}, by="bob")

"""Does a run go on as it was begun, when code that says less resumes it?"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fsm_agent import Agent, Approved, CallSuspended, FunctionCall, MemoryStore, Worker, function
from fsm_agent.testing import Script, call

paid: list[int] = []


@pytest.fixture
def store() -> Any:
    paid.clear()
    return MemoryStore()


@function
def pay(cents: int) -> str:
    """Pay, without a policy of its own: whoever approves is asked."""
    paid.append(cents)
    return "paid"


def clerk(store: Any, *said: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*said), functions=[pay], store=store, name="clerk", **options)


def by_resume(agent: Agent[Any, Any]) -> None:
    agent.resume("r1", {"ask:1.0": Approved()})


def by_aresume(agent: Agent[Any, Any]) -> None:
    asyncio.run(agent.aresume("r1", {"ask:1.0": Approved()}))


def by_worker(agent: Agent[Any, Any]) -> None:
    agent.runs.answer("r1", {"ask:1.0": Approved()})
    Worker([agent], agent.runs.store).run(once=True)


ways = pytest.mark.parametrize("way", [by_resume, by_aresume, by_worker])


def begun(store: Any, **options: Any) -> None:
    """A run that was begun with an approver, and waits for an answer that the approver did not know."""

    def cannot_say(call: FunctionCall) -> None:
        return None

    with pytest.raises(CallSuspended):
        clerk(store, call("pay", cents=1), approve=cannot_say).call("Pay.", run_id="r1", **options)


@ways
def test_functions_are_asked_about_though_no_approver_is_there_any_more(store: Any, way: Any) -> None:
    begun(store)
    agent = clerk(store, call("pay", cents=2))
    if way is by_worker:
        way(agent)
    else:
        with pytest.raises(CallSuspended, match="ask:"):
            way(agent)
    assert paid == [1]
    assert [question.key for question in agent.runs.store.load("r1").run.waits] == ["ask:3.0"]


@pytest.mark.parametrize("way", [by_resume, by_worker])
def test_the_arguments_of_the_call_hold_for_what_is_still_asked(store: Any, way: Any) -> None:
    begun(store, args={"temperature": 0.25})
    agent = clerk(store, "Done.")
    way(agent)
    assert [request.settings.temperature for request in agent.client.requests] == [0.25]

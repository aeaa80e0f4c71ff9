"""Does a run continue as it began if the resuming code gives fewer options?"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from fsm_agent import Agent, AgentBase, Approved, CallSuspended, FunctionCall, MemoryStore, UsageError, Worker, function
from fsm_agent.messages import Message, Reasoning, Reply, Text
from fsm_agent.store import RunExists
from fsm_agent.testing import Script, function_call

paid: list[int] = []


@pytest.fixture
def store() -> Any:
    paid.clear()
    return MemoryStore()


@function
def pay(cents: int) -> str:
    """Pay.  The function has no policy, so every approver is asked."""
    paid.append(cents)
    return "paid"


def clerk(store: Any, *said: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*said), functions=[pay], store=store, name="clerk", **options)


def by_resume(agent: Agent[Any, Any]) -> None:
    agent.runs.resume("r1", {"ask:1.0": Approved()})


def by_aresume(agent: Agent[Any, Any]) -> None:
    asyncio.run(agent.runs.aresume("r1", {"ask:1.0": Approved()}))


def by_worker(agent: Agent[Any, Any]) -> None:
    agent.runs.all.answer("r1", {"ask:1.0": Approved()})
    Worker([agent], agent.runs.all.store).run(once=True)


ways = pytest.mark.parametrize("way", [by_resume, by_aresume, by_worker])


def begun(store: Any, **options: Any) -> None:
    """A run that was begun with an approver, and waits for an answer that the approver did not know."""

    def cannot_say(call: FunctionCall) -> None:
        return None

    with pytest.raises(CallSuspended):
        clerk(store, function_call("pay", cents=1), approve=cannot_say).call("Pay.", run_id="r1", **options)


@ways
def test_functions_are_asked_about_though_no_approver_is_there_any_more(store: Any, way: Any) -> None:
    begun(store)
    agent = clerk(store, function_call("pay", cents=2))
    if way is by_worker:
        way(agent)
    else:
        with pytest.raises(CallSuspended, match="ask:"):
            way(agent)
    assert paid == [1]
    assert [question.key for question in agent.runs.all.store.load("r1").run.waits] == ["ask:3.0"]


@pytest.mark.parametrize("way", [by_resume, by_worker])
def test_the_arguments_of_the_call_hold_for_what_is_still_asked(store: Any, way: Any) -> None:
    begun(store, args={"temperature": 0.25})
    agent = clerk(store, "Done.")
    way(agent)
    assert [request.settings.temperature for request in agent.client.requests] == [0.25]


# Runs are found by the names of their agents


@pytest.mark.parametrize(
    "make",
    [lambda **options: Agent(Script(), **options), lambda **options: Agent(Script()).changed(**options)],
)
def test_an_agent_with_a_store_and_without_a_name_is_refused(make):
    with pytest.raises(UsageError, match="name"):
        make(store=MemoryStore())
    assert make(store=MemoryStore(), name="billing").name == "billing"


def test_a_worker_finds_no_runs_of_one_without():
    with pytest.raises(UsageError, match="name"):
        Worker([Agent(Script())], MemoryStore())


def test_of_a_class_it_is_the_kind_or_the_class():
    class Billing(AgentBase, register=False):
        agent_type = "billing"

    class Legal(AgentBase, register=False):
        expertise = "You know the law."

    kept = MemoryStore()
    for kind in (Billing, Legal):
        answering: Any = type(kind.__name__, (kind,), {"store": kept})
        assert answering(client=Script("Yes."))("?", run_id=kind.__name__) == "Yes."
    assert {run.agent for run in kept.list()} == {"billing", "Legal"}


def test_runs_of_another_agent_are_not_taken_for_its_own():
    kept = MemoryStore()
    Agent(Script("from billing"), name="billing", store=kept).call("Summarize the case.", run_id="case-1")
    with pytest.raises(RunExists):
        Agent(Script("from legal"), name="legal", store=kept).call("Summarize the case.", run_id="case-1")


CUT = "cut \ud800"


@pytest.mark.parametrize("by_asyncio", [False, True])
@pytest.mark.parametrize(
    "part",
    [
        FunctionCall(name="echo", arguments_json=f'{{"text": "{CUT}"}}'),
        FunctionCall(name="echo", arguments_json='{"text": "x"}', provider_id=CUT),
        FunctionCall(name=CUT, arguments_json="{}"),
        Reasoning(text=CUT),
        Text(text=CUT),
    ],
)
def test_a_reply_that_no_document_can_hold_is_read_and_replayed_as_it_is_written(part: Any, by_asyncio: bool) -> None:
    @function
    def echo(text: str) -> str:
        """Echo."""
        return text

    said = Reply(message=Message(role="assistant", parts=(part,)))
    agent = Agent(Script(said, "Done."), functions=[echo], name="clerk", store=MemoryStore())
    result = asyncio.run(agent.acall("Go.", run_id="r")) if by_asyncio else agent.call("Go.", run_id="r")
    assert agent.runs.replay("r").record == result.record


def test_a_run_that_is_not_named_has_a_name_of_its_own_whatever_the_task() -> None:
    agent = Agent("openai:gpt-4o", name="../desk", store=MemoryStore())  # a `Script` would count its calls
    for _ in range(2):
        agent.runs.submit("Tidy ../../etc/passwd + C:\\*")
    names = {run.id for run in agent.runs.all.store.list()}
    assert len(names) == 2
    assert all(re.fullmatch(r"[0-9a-zA-Z_-]{1,80}", name) for name in names)

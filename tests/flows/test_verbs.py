"""Do agents, conversations, flows and orchestrators have the same verbs with the same meaning, stored and not?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import (
    Agent,
    AgentBase,
    CallFailed,
    CallSuspended,
    Done,
    MemoryStore,
    ProviderError,
    function,
)
from fsm_agent.flows import Flow, FlowFailed, FlowSuspended, end, failure
from fsm_agent.flows import call as asks
from fsm_agent.flows.orchestrator import Orchestrator, Strategy
from fsm_agent.flows.orchestrator.strategy import Step
from fsm_agent.testing import Script

REPLIES = 12  # more than any verb asks for


@function(needs_approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"{path} is gone"


class Shouter(AgentBase[str], register=False):
    expertise = "You shout."
    functions = (erase,)


class Pair(AgentBase[str], register=False):
    agent_group = ("one", "other")

    def answer(self, task: str) -> str:
        first = self.agents["one"].call(task).output
        return self.agents["other"].call(first).output


class AsyncPair(Pair, register=False):
    async def answer(self, task: str) -> str:  # type: ignore[override]
        first = (await self.agents["one"].acall(task)).output
        return (await self.agents["other"].acall(first)).output


@dataclass(frozen=True)
class Data:
    text: str = "hi"


def flow_of(model: Any, **options: Any) -> Flow[Data]:
    @asks(Agent(model, name="clerk", functions=[erase]))
    def asking(d: Data) -> str:
        return d.text

    rows = [
        asking.done(end("done"), do=lambda d, text: Data(text)),
        asking.failed(failure("broken", "the clerk could not")),
    ]
    return Flow("shout", Data, start=asking, rows=rows, **options)


def orchestrator_of(model: Any, **options: Any) -> Orchestrator:
    worker = Agent(model, name="worker", functions=[erase])
    plan = Strategy("goal", (Step("a", "shout", "{{ task }}"),))
    return Orchestrator([worker], strategy=plan, planner=Agent(Script(), name="planner"), **options)


def with_store(cls: Any, model: Any, **options: Any) -> Any:
    """Return an agent of a class; its store is an attribute, as a configuration names only files."""
    return type(cls.__name__, (cls,), options, register=False)(client=model, name="shout")


@dataclass(frozen=True)
class Kind:
    make: Callable[..., Any]
    task: Any
    output: Callable[[str], Any]  # what a reply comes to
    error: type[Exception]
    suspended: type[Exception]


AGENT = {"task": "hi", "output": str, "error": CallFailed, "suspended": CallSuspended}
KINDS = {
    "Agent": Kind(lambda model, **o: Agent(model, name="shout", functions=[erase], **o), **AGENT),
    "AgentBase": Kind(lambda model, **o: with_store(Shouter, model, **o), **AGENT),
    "AgentBase that answers": Kind(lambda model, **o: with_store(Pair, model, **o), **AGENT),
    "AgentBase that answers async": Kind(lambda model, **o: with_store(AsyncPair, model, **o), **AGENT),
    "Conversation": Kind(
        lambda model, store=None: Agent(
            model, name="shout", functions=[erase], store=store or MemoryStore()
        ).conversation("c"),
        **AGENT,
    ),
    "Flow": Kind(flow_of, Data(), Data, FlowFailed, FlowSuspended),
    "Orchestrator": Kind(orchestrator_of, "hi", str, FlowFailed, FlowSuspended),
}


def loud(request: Any) -> str:
    return "HI"


def streamed(one: Any, task: Any, **options: Any) -> Any:
    *_, last = one.stream(task, **options)
    assert isinstance(last, Done)
    return last.result


async def astreamed(one: Any, task: Any, **options: Any) -> Any:
    events = [event async for event in one.astream(task, **options)]
    assert isinstance(events[-1], Done)
    return events[-1].result


VERBS: dict[str, Callable[..., Any]] = {
    "call": lambda one, task, **o: one.call(task, **o),
    "acall": lambda one, task, **o: asyncio.run(one.acall(task, **o)),
    "run": lambda one, task, **o: one.run(one.seed(task, **o)),
    "arun": lambda one, task, **o: asyncio.run(one.arun(one.seed(task, **o))),
    "stream": streamed,
    "astream": lambda one, task, **o: asyncio.run(astreamed(one, task, **o)),
    "stream of a seed": lambda one, task, **o: streamed(one, one.seed(task, **o)),
    "astream of a seed": lambda one, task, **o: asyncio.run(astreamed(one, one.seed(task, **o))),
    "map": lambda one, task, **o: one.map([task], **o)[0].result,
    "amap": lambda one, task, **o: asyncio.run(one.amap([task], **o))[0].result,
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(params=[False, True], ids=["no store", "stored"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return {"store": str(tmp_path / "runs.db")} if request.param else {}


def model_for(kind: Kind, *replies: Any) -> Script:
    """Return a model whose last reply comes as often as the kind asks."""
    asks_twice = kind in (KINDS["AgentBase that answers"], KINDS["AgentBase that answers async"])
    return Script(*replies, *([replies[-1]] if asks_twice else []))


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_of_each_kind_gives_a_result(kind: Kind, verb: str, stored: dict[str, Any]) -> None:
    one = kind.make(model_for(kind, "HI"), **stored)
    result = VERBS[verb](one, kind.task, extra={"ticket": 7})
    assert result.output == kind.output("HI")
    assert result.state in ("Completed", "done", "completed")
    assert result.ending is not None
    assert result.extra == {"ticket": 7}
    assert result.usage == result.record.total_usage
    assert result.trace[0].source == "Seeded"


@pytest.mark.parametrize("verb", VERBS)
def test_without_an_output_each_verb_raises_and_the_error_has_the_result(kind: Kind, verb: str) -> None:
    gone = ProviderError("no such model", status=404)
    replies = [gone] * (4 if kind is KINDS["Orchestrator"] else 1)  # the step is tried again, and then the plan is
    one = kind.make(Script(*replies, may_run_out=True) if False else Script(*replies))
    if "map" in verb:
        failed_result = VERBS[verb](one, kind.task)
    else:
        with pytest.raises(kind.error) as failed:
            VERBS[verb](one, kind.task)
        failed_result = failed.value.result
    assert failed_result.ending is not None
    assert failed_result.state in ("Failed", "broken", "step_spent")

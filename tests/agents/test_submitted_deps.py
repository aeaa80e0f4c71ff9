"""Can work be put in whose functions take typed deps, which only a driver has?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from fsm_agent import Agent, Context, MemoryStore, UsageError, Worker, function
from fsm_agent.fronts import Live
from fsm_agent.testing import Script, call


@dataclass
class Shop:
    name: str


@function
def look(context: Context[Shop]) -> str:
    """Look."""
    return context.deps.name


def shop(**options: Any) -> Agent[Shop, str]:
    script = Script(call("look"), lambda request: request.messages[-1].text)
    return Agent[Shop, str](script, functions=[look], name="shop", **{"store": MemoryStore()} | options)


def test_a_task_and_a_turn_are_done_with_the_deps_of_the_worker() -> None:
    for submit in (Agent.submit, lambda agent, task: agent.conversation("c").submit(task)):
        agent = shop()
        run = submit(agent, "?")
        Worker([agent], agent.store, deps=lambda name, extra: Shop("corner")).run(once=True)
        assert run.result().output == "corner"


def test_a_service_has_its_own() -> None:
    async def main() -> str:
        async with Live(shop(store=None), deps=Shop("corner")) as live:
            run = await live.begin("?")
            events = [event async for _, event in live.follow(run)]
            return str(events[-1].result.output)

    assert asyncio.run(main()) == "corner"


def test_without_deps_a_driver_is_refused() -> None:
    agent = shop()
    agent.submit("?", run_id="r")
    with pytest.raises(UsageError, match="look"):
        agent.resume("r")


def test_a_system_prompt_made_of_deps_needs_them_when_it_is_made() -> None:
    agent = shop(system=lambda deps: f"You work for {deps.name}.")
    with pytest.raises(UsageError, match="system"):
        agent.submit("?")
    agent.submit("?", deps=Shop("corner"), run_id="r")
    Worker([agent], agent.store, deps={"shop": Shop("corner")}).run(once=True)
    assert agent.model.requests[0].messages[0].text == "You work for corner."

"""The ways in which an agent drives a call, heard by a list or by nobody."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from fsm_agent.agents import Agent
from fsm_agent.lifecycle import AgentCall
from fsm_agent.messages import Event, Reply
from fsm_agent.testing import Script

Way = Callable[[Agent[Any, Any], AgentCall[Any], list[Event]], None]


def by_run(agent: Agent[Any, Any], one: AgentCall[Any], heard: list[Event]) -> None:
    agent.run(one, heard.append)


def by_stream(agent: Agent[Any, Any], one: AgentCall[Any], heard: list[Event]) -> None:
    heard += agent.stream(one)


def by_arun(agent: Agent[Any, Any], one: AgentCall[Any], heard: list[Event]) -> None:
    asyncio.run(agent.arun(one, heard.append))


def by_astream(agent: Agent[Any, Any], one: AgentCall[Any], heard: list[Event]) -> None:
    async def main() -> None:
        async for event in agent.astream(one):
            heard.append(event)

    asyncio.run(main())


def by_run_unheard(agent: Agent[Any, Any], one: AgentCall[Any], heard: list[Event]) -> None:
    agent.run(one)


class StuckScript(Script):
    """A model that takes twenty seconds, longer than a test waits for it.

    Args:
        begun: Set when it is asked.
    """

    def __init__(self, begun: threading.Event) -> None:
        super().__init__()
        self._begun = begun

    def complete(self, request: Any, *, timeout_s: float | None = None) -> Reply:
        self._begun.set()
        time.sleep(20)
        return Reply.of("late")

    async def acomplete(self, request: Any, *, timeout_s: float | None = None) -> Reply:
        self._begun.set()
        await asyncio.sleep(20)
        return Reply.of("late")

    def stream(self, request: Any, *, timeout_s: float | None = None) -> Any:
        yield self.complete(request)

    async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
        yield await self.acomplete(request)

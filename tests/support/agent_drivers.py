"""The ways in which an agent drives a call, with and without a listener."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent.agents import Agent
from fsm_agent.call import AgentCall
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


both = pytest.mark.parametrize("way", [by_run, by_arun], ids=lambda way: way.__name__)  # one driver a world


class StuckScript(Script):
    """A model that never replies.

    Args:
        begun: Set when it is asked.
    """

    def __init__(self, begun: threading.Event) -> None:
        super().__init__()
        self._begun = begun

    async def acomplete(self, request: Any, *, timeout_s: float | None = None) -> Reply:
        self._begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
        yield await self.acomplete(request)

"""Agents whose model takes as long as the environment says: for many runs at a time, in separate OS processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Any

from fsm_agent import Agent, function
from fsm_agent.call import Request
from fsm_agent.clients import SyncVerbs
from fsm_agent.messages import Reply
from fsm_agent.testing import function_call


@function
def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing in {where}"


class SlowModel(SyncVerbs):
    """A model that takes a while, and calls a function as often as the environment says before it answers."""

    name = "slow:model"

    def __init__(self) -> None:
        self.model_s = float(os.environ.get("SLOW_MODEL_S", "0.05"))
        self.rounds = int(os.environ.get("SLOW_MODEL_ROUNDS", "1"))
        self.until = os.environ.get("SLOW_MODEL_UNTIL", "")  # a path: under asyncio it takes until that is there
        self._is_there: asyncio.Future[None] | None = None
        self.log = os.environ.get("SLOW_MODEL_LOG", os.devnull)  # gets a line for each request that has begun

    def reply_to(self, request: Request) -> Reply:
        done = sum(message.role == "assistant" for message in request.messages)
        return Reply.of(f"Done after {done} rounds." if done >= self.rounds else function_call("look", where="A"))

    def note(self) -> None:
        with open(self.log, "a") as file:
            file.write("asked\n")

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        self.note()
        await asyncio.sleep(self.model_s)
        if self.until:
            self._is_there = self._is_there or asyncio.ensure_future(self.wait_for_path())  # one for all requests
            await asyncio.shield(self._is_there)
        return self.reply_to(request)

    async def wait_for_path(self) -> None:
        while not os.path.exists(self.until):  # noqa: ASYNC110, ASYNC240  # it is made in another process
            await asyncio.sleep(0.05)

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
        yield await self.acomplete(request)

    def close(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def slow(**options: Any) -> Agent:
    return Agent(SlowModel(), functions=[look], name="slow", **options)


AGENT = slow()

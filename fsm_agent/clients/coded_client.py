"""A client whose replies are made by code: no model, no network."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Generator

from fsm_agent._internal.closing import Closing
from fsm_agent.lifecycle.effects import Request
from fsm_agent.messages.event import Delta
from fsm_agent.messages.reply import Reply


class CodedClient(Closing):
    """A client whose `complete` computes the reply at once; it has no connection."""

    takes_images = False
    reports_logprobs = False

    @abstractmethod
    def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return the reply to ``request``."""

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """`complete` for asyncio."""
        return self.complete(request)

    def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[Delta | Reply]:
        """Yield the whole reply."""
        yield self.complete(request)

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """`stream` for asyncio."""
        yield self.complete(request)

    def close(self) -> None:
        """Close nothing."""

    async def aclose(self) -> None:
        """Close nothing."""

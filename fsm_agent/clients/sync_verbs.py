"""The verbs of a client, made from its async ones: from `acomplete` alone, if it does not stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Generator

from fsm_agent._internal.scope import Closing
from fsm_agent.call.effects import Request
from fsm_agent.messages.events import Delta
from fsm_agent.messages.reply import Reply
from fsm_agent.runtime import portal


class SyncVerbs(Closing):
    """A client with `acomplete`, and `astream` if it can stream; `complete` and `stream` are made from them.

    The sync verbs work in any thread, even one with a running loop.  Their coroutines run in one event loop, in a
    thread of its own.  A client with resources overrides `close`, and `aclose` if closing has to wait.

    Examples:
        >>> class Echo(SyncVerbs):
        ...     name = "own:echo"
        ...     async def acomplete(self, request, *, timeout_s=None):
        ...         return Reply.of(request.messages[-1].text)
        >>> Agent(Echo()).call("Hello").output
        'Hello'
    """

    @abstractmethod
    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return the reply to ``request``."""

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """Yield the reply as it arrives: deltas, then exactly one `Reply`, last; by default the whole reply."""
        yield await self.acomplete(request, timeout_s=timeout_s)

    def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """`acomplete` for sync code."""
        return portal.call(self.acomplete(request, timeout_s=timeout_s))

    def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[Delta | Reply]:
        """`astream` for sync code.  Close it to stop early."""
        return portal.stream(self.astream(request, timeout_s=timeout_s))

    def close(self) -> None:
        """Close nothing."""

    async def aclose(self) -> None:
        """`close` for asyncio."""
        self.close()

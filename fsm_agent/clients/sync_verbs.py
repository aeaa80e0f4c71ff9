"""`SyncVerbs`: a client's sync methods, made from its async ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Generator

from fsm_agent._internal.scope import Closing
from fsm_agent.call.effects import Request
from fsm_agent.messages.events import Delta
from fsm_agent.messages.reply import Reply
from fsm_agent.runtime import portal


class SyncVerbs(Closing):
    """A base class for clients that makes `complete` and `stream` from `acomplete` and `astream`.

    Without `astream`, a client yields whole replies.  The sync methods run coroutines in a background event loop, so
    they work in any thread, even one with a running loop.  A client with resources overrides `close`, and also `aclose`
    if closing has to wait.

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
        """Yield the reply as it arrives: deltas, then exactly one `Reply`.

        By default, yield the whole reply at once.
        """
        yield await self.acomplete(request, timeout_s=timeout_s)

    def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Sync version of `acomplete`."""
        return portal.call(self.acomplete(request, timeout_s=timeout_s))

    def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[Delta | Reply]:
        """Sync version of `astream`.  Close the generator to stop early."""
        return portal.stream(self.astream(request, timeout_s=timeout_s))

    def close(self) -> None:
        """Do nothing, because a client has nothing to close by default."""

    async def aclose(self) -> None:
        """Async version of `close`."""
        self.close()

"""A session with an MCP server, shared by the tasks and event loops of its users.

One task owns it: that task enters and exits the official client, so cancel scopes nest, whatever callers do.  A session
ends when its server does, and cannot be reopened.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import math
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
from pydantic import ValidationError

from fsm_agent.clients.log_masking import masked_logs
from fsm_agent.errors import ConfigError, FsmAgentError, Retry
from fsm_agent.mcp.background import CLOSE_TIMEOUT_S, Background
from fsm_agent.mcp.listing import ListingTooLong, all_tools
from fsm_agent.mcp.transports import StderrTail, Transport
from fsm_agent.providers.streams import mended

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp_types import Tool

_LISTINGS = 3  # in a row, of a server whose tools change while it lists them
_FOLLOW_TIMEOUT_S = 5.0
_END_TIMEOUT_S = 5.0  # for ending the session of a server over HTTP
_ERROR_CHARS = 2000


class MCPServerError(FsmAgentError):
    """An MCP server cannot be reached, has ended, or violated the protocol.

    Examples:
        >>> try:
        ...     with MCPServer.http("http://127.0.0.1:9/mcp") as server:     # where none listens
        ...         print(server.functions)
        ... except MCPServerError:
        ...     print("continue without it")
        continue without it
    """


class MCPToolError(Retry):
    """A tool of an MCP server failed or took too long; the text is for the model.

    Examples:
        >>> @function
        ... def look() -> str:
        ...     "Look."
        ...     raise MCPToolError("the file is locked")             # as functions of an `MCPServer` do
        >>> Agent(Script(function_call("look"), "Locked."), functions=[look]).call("Look.").function_calls[0].error
        'the file is locked'
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server to reach, and the timeout of its start."""

    name: str
    transport: Transport
    start_timeout_s: float

    def __str__(self) -> str:
        return f"MCP server {self.name!r} ({self.transport.address})"

    def scrubbed(self, text: str) -> str:
        """Return ``text`` of the server or the package without secrets."""
        return self.transport.secrets.mask(text)

    def failure(self, problem: str, *details: str) -> MCPServerError:
        """Return the error of a problem with the server."""
        return MCPServerError(": ".join([f"{self} {problem}", *map(self.scrubbed, filter(None, details))]))


class Session:
    """One session with one server: owned by one task, used by any task of the background's loop.

    Attributes:
        tools: As the server lists them; None before the first listing, and when they may have changed.
        was_listed: True after the first listing.
    """

    def __init__(self, target: Target, home: Background) -> None:
        self.tools: tuple[Tool, ...] | None = None
        self.was_listed = False
        self.home = home
        self._target = target
        self._stderr = StderrTail()
        self._problem: BaseException | None = None
        self._scope = anyio.CancelScope()
        self._stop = asyncio.Event()
        self._opened: asyncio.Future[Client] = home.loop.create_future()
        # Retrieve a failure, so that asyncio does not log it; users get it from `client`.
        self._opened.add_done_callback(lambda opened: opened.exception())
        self._listing = asyncio.Lock()
        self._changes = 0
        self._is_followed = False
        self._follower: asyncio.Task[None] | None = None
        self._owner = home.loop.create_task(self._own(), context=contextvars.Context())
        home.at_end.add(self.close)

    @property
    def has_ended(self) -> bool:
        """True once it has ended, so that a new session is needed."""
        return self._stop.is_set()

    async def client(self) -> Client:
        """Return the official client, once it is connected.

        Raises:
            MCPServerError: The server does not start, or does not answer.
            ConfigError: The package or the command is missing.
        """
        return await asyncio.shield(self._opened)

    async def listed(self) -> tuple[Tool, ...]:
        """Return the tools, listed anew if they are unknown or may have changed."""
        client = await self.client()
        async with self._listing:
            if self.tools is not None:
                return self.tools
            for _ in range(_LISTINGS):
                must_follow = await self._follow(client)
                changes, tools = self._changes, await self._list(client)
                if changes == self._changes:
                    if self._is_followed or not must_follow:
                        self.tools = tools
                    break
            self.was_listed = True
            return tools

    async def _list(self, client: Client) -> tuple[Tool, ...]:
        try:
            return await all_tools(client)
        except ListingTooLong as error:
            raise self._target.failure(str(error)) from None

    def let_go(self) -> None:
        """End the session without waiting for it."""
        if not self._opened.done():
            self._scope.cancel()
        self._scope.deadline = self.home.loop.time() + _END_TIMEOUT_S
        self._stop.set()

    async def close(self) -> None:
        """End the session and the server's process, and wait for both."""
        self.let_go()
        await asyncio.wait([self._owner], timeout=CLOSE_TIMEOUT_S)

    async def last_words(self) -> str:
        """Close the session; return the reason of its end and the last stderr of the server, as far as known."""
        await self.close()
        return ": ".join(filter(None, [described(self._problem), self._stderr.text(self._target.transport.secrets)]))

    async def _own(self) -> None:
        self._scope.deadline = self.home.loop.time() + self._target.start_timeout_s
        try:
            with self._scope:
                async with _client(self._streams(), self._changed) as client:
                    self._scope.deadline = math.inf
                    self._opened.set_result(client)
                    await self._stop.wait()
        except Exception as error:
            self._problem = _first(error)
        finally:
            self.home.at_end.discard(self.close)
            if not self._opened.done():
                self._opened.set_exception(self._not_opened())
            self._stop.set()

    def _not_opened(self) -> FsmAgentError:
        target, stderr = self._target, self._stderr.text(self._target.transport.secrets)
        match self._problem:
            case ConfigError() as error:
                return error
            case FileNotFoundError() | PermissionError() | OSError(filename=str()) as error:  # uvloop names no file
                return ConfigError(f"{target} cannot be started: {error.strerror}")
            case None if self._stop.is_set():
                return target.failure("was closed while it started")
            case None:
                return target.failure(f"did not answer in {target.start_timeout_s:g} s", stderr)
            case error:
                return target.failure("cannot be used", described(error), stderr)

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[TransportStreams]:
        transport = self._target.transport
        with masked_logs(transport.secrets):
            async with transport.open(self._stderr) as (read, write):
                yield _Watched(read, self._stop.set), write

    def _changed(self) -> None:
        self._changes += 1
        self.tools = None

    async def _follow(self, client: Client) -> bool:
        """Subscribe to changes of the tools; return True if the protocol needs that, as it does since 2026-07-28.

        Servers of older versions send notifications without a subscription.
        """
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (tools and tools.list_changed):
            return False
        if self._follower is None or self._follower.done():
            ready = asyncio.Event()
            self._follower = asyncio.create_task(self._listen(client, ready), context=contextvars.Context())
            with anyio.move_on_after(_FOLLOW_TIMEOUT_S):
                await ready.wait()
        return True

    async def _listen(self, client: Client, ready: asyncio.Event) -> None:
        try:
            async with client.listen(tools_list_changed=True) as changes:
                self._is_followed = True
                ready.set()
                async for _ in changes:
                    self._changed()
        except Exception:  # after any failure the next listing asks for the tools and subscribes again
            pass
        finally:
            self._is_followed = False
            self.tools = None
            ready.set()


class _Watched:
    """A stream of messages that calls ``at_end`` at its end, and takes half a character in a line."""

    def __init__(self, stream: ReadStream[Any], at_end: Callable[[], None]) -> None:
        self._stream = stream
        self._at_end = at_end

    async def receive(self) -> Any:
        try:
            return _readable(await self._stream.receive())
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._at_end()
            raise

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> bool | None:
        return await self._stream.__aexit__(*exc)


def _readable(item: Any) -> Any:
    """Return what came; of a line that was refused for half a character, the message with U+FFFD in its place.

    JavaScript cuts texts there and writes the half as an escape, which the official client does not read, so the
    request of that answer would wait in vain.
    """
    if not isinstance(item, ValidationError):
        return item
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        line = json.dumps(json.loads(item.errors()[0]["input"]), ensure_ascii=False)
        return SessionMessage(jsonrpc_message_adapter.validate_json(mended(line), by_name=False))
    except (ValueError, TypeError, RecursionError):  # something else is wrong with it
        return item


@asynccontextmanager
async def _client(streams: Any, at_change: Callable[[], None]) -> AsyncIterator[Client]:
    """Open the official client, which by default refuses requests of the server.

    The client does not keep the object of ``at_change``, which may keep the client.
    """
    try:
        from mcp import Client
    except ImportError as error:
        raise ConfigError(
            f"MCP servers need a package that is not installed ({error}); pip install 'fsm-agent[mcp]'"
        ) from error

    change = weakref.WeakMethod(at_change)

    async def hear(message: Any) -> None:
        is_change = getattr(message, "method", "") == "notifications/tools/list_changed"
        if is_change and (at_change := change()) is not None:
            at_change()

    async with Client(streams, message_handler=hear, cache=None) as client:
        yield client


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def described(error: BaseException | None) -> str:
    """Return the text of an error; "" if there is none."""
    return "" if error is None else str(error)[:_ERROR_CHARS] or type(error).__name__

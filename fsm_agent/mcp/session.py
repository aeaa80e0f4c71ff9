"""Sessions with MCP servers, which tasks and event loops can share.

Each session is owned by one task, which enters and exits the official client, so that cancel scopes are properly nested
whatever callers do.  A session ends when its server ends, and cannot be reopened.  Requests from a server are refused.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import json
import logging
import math
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio.abc import ObjectReceiveStream
from pydantic import ValidationError
from pydantic_core import to_json, to_jsonable_python

from fsm_agent._internal.system import at_fork, making
from fsm_agent._internal.text import plain
from fsm_agent.clients.endpoint import masked_logs
from fsm_agent.errors import ConfigError, FsmAgentError, Retry, UsageError
from fsm_agent.mcp.transports import StderrTail, Transport
from fsm_agent.named_objects import needing
from fsm_agent.providers.sse import mended
from fsm_agent.runtime.portal import start_loop

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp_types import CallToolResult, Tool

T = TypeVar("T")

CLOSE_TIMEOUT_S = 10.0  # a process gets 2 s to end by itself, and 2 s more after it is terminated


class Background:
    """The thread that runs all MCP sessions in this process.

    It does not share the event loop of sync calls, because `MCPServer.functions` may block in that loop's thread, and
    the loop would then wait for itself.
    """

    def __init__(self) -> None:
        self.at_end: set[Callable[[], Awaitable[None]]] = set()  # the functions that close the sessions
        _, self.loop = start_loop("fsm_agent MCP")
        atexit.register(self.end)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run ``coroutine`` in the thread's loop, and return a future.  Cancelling the future cancels the coroutine."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def end(self) -> None:
        """Close all sessions.  This is called when the interpreter exits."""
        with suppress(TimeoutError):
            self.submit(self._close()).result(CLOSE_TIMEOUT_S)

    async def _close(self) -> None:
        self.loop.run_in_executor = _at_once  # type: ignore[assignment, method-assign]
        await asyncio.gather(*[close() for close in self.at_end])
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def _at_once(_: object, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """Run ``function`` directly instead of in a thread, because an interpreter that exits starts no threads."""
    future = asyncio.get_running_loop().create_future()
    try:
        future.set_result(function(*arguments))
    except Exception as error:
        future.set_exception(error)
    return future


_current: Background | None = None  # of this process
_inherited: list[object] = []  # kept after a fork, because destructors would close the parent's resources


def background() -> Background:
    """Return this process's background thread, which is started on first use."""
    global _current
    with making:
        if _current is None:
            _current = Background()
        return _current


def _forget_parents_sessions() -> None:
    global _current
    if _current is not None:
        atexit.unregister(_current.end)
    _inherited.append(_current)
    _current = None


at_fork(after_in_child=_forget_parents_sessions)

MAX_TOOLS = 2_000
MAX_PAGES = 200
MAX_NAME_CHARS = 1_000
MAX_DESCRIPTION_CHARS = 10_000  # of a tool or a part of its schema; longer descriptions are cut
MAX_CHARS = 2_000_000  # of all tools together: names, descriptions, schemas
_TEXTS = ("description", "title")  # texts in a schema, for the model to read


async def all_tools(client: Client, target: Target) -> tuple[Tool, ...]:
    """Request all pages of the tool list, and return the tools with their texts shortened and cleaned."""
    if client.server_capabilities.tools is None:
        return ()
    tools: list[Tool] = []
    size_chars = 0
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        if len(tools) + len(page.tools) > MAX_TOOLS:
            raise target.failure(f"lists more than {MAX_TOOLS} tools")
        for tool in page.tools:
            bounded = _bounded(tool, target)
            tools.append(bounded)
            size_chars += len(tool.name) + len(bounded.description or "") + len(to_json(bounded.input_schema))
            if size_chars > MAX_CHARS:
                raise target.failure(
                    f"describes its tools in more than {MAX_CHARS} characters, up to {tool.name!r:.100}"
                )
        cursor = page.next_cursor
        if cursor is None:
            return tuple(tools)
    raise target.failure(f"lists its tools in more than {MAX_PAGES} pages")


def _bounded(tool: Tool, target: Target) -> Tool:
    if len(tool.name) > MAX_NAME_CHARS:
        raise target.failure(f"has a tool whose name is longer than {MAX_NAME_CHARS} characters: {tool.name!r:.100}")
    description = _text(tool.description or tool.title or "")
    return tool.model_copy(update={"description": description, "input_schema": _schema(tool.input_schema)})


def _schema(value: Any) -> Any:
    """Return a schema with its texts shortened and cleaned.

    Names and values stay the same, because arguments have to match them.
    """
    match value:
        case Mapping():
            return {
                key: _text(inner) if key in _TEXTS and isinstance(inner, str) else _schema(inner)
                for key, inner in value.items()
            }
        case list():
            return [_schema(inner) for inner in value]
    return value


def _text(text: str) -> str:
    shown = plain(text[: 2 * MAX_DESCRIPTION_CHARS])
    is_whole = len(shown) <= MAX_DESCRIPTION_CHARS and len(text) <= 2 * MAX_DESCRIPTION_CHARS
    return shown if is_whole else f"{shown[: MAX_DESCRIPTION_CHARS - 1]}…"


_LISTINGS = 3  # attempts, if the tools change while the server lists them
_FOLLOW_TIMEOUT_S = 5.0
_END_TIMEOUT_S = 5.0  # for ending the session of a server over HTTP
_ERROR_CHARS = 2000
_TURNS = 8  # twice as many as needed


LOG = logging.getLogger("fsm_agent.mcp")


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
    """A tool on an MCP server failed or timed out.  The model gets the text of this error.

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
    """A server to connect to."""

    name: str
    transport: Transport
    start_timeout_s: float

    def __str__(self) -> str:
        return f"MCP server {self.name!r} ({self.transport.address})"

    def scrubbed(self, text: str) -> str:
        return self.transport.secrets.mask(text)

    def failure(self, problem: str, *details: str) -> MCPServerError:
        return MCPServerError(": ".join([f"{self} {problem}", *map(self.scrubbed, filter(None, details))]))


class Session:
    """A session with a server, owned by one task.  Any task in the background's loop may use the session.

    Attributes:
        tools: The tools as the server lists them, or None before the first listing and whenever they may have changed.
        was_listed: Whether the tools have been listed at least once.
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
        # Retrieve a failure, so that asyncio does not log it; `client` raises it
        self._opened.add_done_callback(lambda opened: opened.exception())
        self._listing = asyncio.Lock()
        self._changes = 0
        self._is_followed = False
        self._follower: asyncio.Task[None] | None = None
        self._owner = home.loop.create_task(self._own(), context=contextvars.Context())
        home.at_end.add(self.close)

    @property
    def is_live(self) -> bool:
        """Whether the session can be used.  It cannot after a fork, which does not copy its thread."""
        return self.home is _current and not self._stop.is_set()

    async def client(self) -> Client:
        """Wait until the official client is connected, and return it."""
        return await asyncio.shield(self._opened)

    async def listed(self) -> tuple[Tool, ...]:
        """Return the tools, asking the server if they are unknown or may have changed."""
        client = await self.client()
        async with self._listing:
            if self.tools is not None:
                return self.tools
            for _ in range(_LISTINGS):
                must_follow = await self._follow(client)
                changes, tools = self._changes, await all_tools(client, self._target)
                if changes == self._changes:
                    if self._is_followed or not must_follow:
                        self.tools = tools
                    break
            self.was_listed = True
            return tools

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
        """Close the session, and return the reason why it ended and the last part of the server's stderr, if known."""
        await self.close()
        return ": ".join(filter(None, [describe_error(self._problem), self.stderr()]))

    def stderr(self) -> str:
        """Return the last part of the server's stderr, without secrets."""
        return self._stderr.text(self._target.transport.secrets)

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
        target, stderr = self._target, self.stderr()
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
                return target.failure("cannot be used", describe_error(error), stderr)

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
        """Subscribe to changes in the tools, and return whether the protocol needs a subscription.

        The protocol has needed one since version 2026-07-28.  Servers with older versions send notifications without
        being asked.
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
        except Exception:  # the next listing requests the tools and subscribes again
            pass
        finally:
            self._is_followed = False
            self.tools = None
            ready.set()


class _Watched(ObjectReceiveStream[Any]):
    """A message stream that replaces lone surrogates, drops output schemas, and calls ``at_end`` when it ends."""

    def __init__(self, stream: ReadStream[Any], at_end: Callable[[], None]) -> None:
        self._stream = stream
        self._at_end = at_end

    async def receive(self) -> Any:
        try:
            return _without_output_schemas(_readable(await self._stream.receive()))
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._at_end()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()


def _readable(item: Any) -> Any:
    """Return ``item``, with U+FFFD in place of a lone surrogate.

    JavaScript may cut text within a surrogate pair and send one half as an escape.  The official client refuses such a
    line, so the request would hang.
    """
    if not isinstance(item, ValidationError):
        return item
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        line = json.dumps(json.loads(item.errors()[0]["input"]), ensure_ascii=False)
        return SessionMessage(jsonrpc_message_adapter.validate_json(mended(line), by_name=False))
    except (ValueError, TypeError, RecursionError):  # something else is wrong with the line
        return item


def _without_output_schemas(item: Any) -> Any:
    """Drop the output schemas from a list of tools.

    The official client would check results against them with Python's `re`, which a hostile pattern keeps busy forever,
    and no other thread can run in the meantime.
    """
    result = getattr(getattr(item, "message", None), "result", None)
    tools = result.get("tools") if isinstance(result, dict) else None
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            tool.pop("outputSchema", None)
    return item


@asynccontextmanager
async def _client(streams: Any, at_change: Callable[[], None]) -> AsyncIterator[Client]:
    """Open the official client, which refuses requests from the server by default.

    The client holds only a weak reference to the owner of ``at_change``, which may own the client.
    """
    with needing("mcp", "the client of an MCP server"):
        from mcp import Client

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


def describe_error(error: BaseException | None) -> str:
    """Return the text of an error, or "" for None."""
    return "" if error is None else str(error)[:_ERROR_CHARS] or type(error).__name__


class _Forgotten(MCPToolError):
    """An HTTP server does not know the session because it was restarted, so it has not run the call."""


class Connection:
    """Access to a server through its current session or a new one.

    Coroutines run in the background, where `submit` starts them from any thread.  A session ends when nothing
    references its connection.  The functions of an `MCPServer` therefore reference the connection, but the connection
    does not reference the `MCPServer`, which holds the functions: a cycle would keep the session open until garbage
    collection.
    """

    def __init__(self, target: Target, timeout_s: float) -> None:
        self.target = target
        self.is_closed = False
        self._timeout_s = timeout_s
        self._latest: list[Session] = []  # at most one
        weakref.finalize(self, _let_go, self._latest).atexit = False  # at exit, all sessions are closed anyway

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the background, unless the server is closed."""
        if self.is_closed:
            coroutine.close()
            raise UsageError(f"{self.target} is closed; use it inside its with block")
        return background().submit(coroutine)

    @property
    def tools_now(self) -> tuple[Tool, ...] | None:
        """The tools if they are already listed, otherwise None.  This never waits, and is thread-safe."""
        return next((session.tools for session in self._latest if session.is_live and not self.is_closed), None)

    async def tools(self) -> tuple[Tool, ...]:
        """Return the server's tools, starting the server if needed."""
        with masked_logs(self.target.transport.secrets):
            return await self._tools_of(await self._live())

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Call a tool and return its result, which may report an error."""
        with masked_logs(self.target.transport.secrets):  # requests are logged in the context of their sender
            session = await self._live()
            try:
                return await self._call(session, tool, arguments)
            except _Forgotten:
                session.let_go()
            return await self._call(await self._live(), tool, arguments)

    async def close(self) -> None:
        """Close the session.  When the connection is next used, it opens another."""
        for session in self._latest:
            if session.home is _current:
                await session.close()

    async def _live(self) -> Session:
        """Return the session, or a new one if it has ended."""
        await _hear_of_ends()
        if not any(session.is_live for session in self._latest):
            self._latest[:] = [Session(self.target, background())]
        return self._latest[0]

    async def _tools_of(self, session: Session) -> tuple[Tool, ...]:
        await session.client()
        timeout_s = self.target.start_timeout_s
        late = self.target.failure(f"did not list its tools in {timeout_s:g} s")
        return await self._answer(session, session.listed(), timeout_s, late)

    async def _call(self, session: Session, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
        if not session.was_listed:  # otherwise the official client would list them, without our limits
            await self._tools_of(session)
        answer = _call_tool(await session.client(), tool, arguments)
        late = MCPToolError(f"the tool {tool!r} did not answer in {self._timeout_s:g} s")
        return await self._answer(session, answer, self._timeout_s, late, tool)

    async def _answer(
        self, session: Session, answer: Awaitable[T], timeout_s: float, late: FsmAgentError, tool: str | None = None
    ) -> T:
        """Return the server's answer to a tool call or, if there is no tool, to a request for the list of tools."""
        failure = late
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            pass
        except Exception as error:
            failure = await self._understood(error, session, tool)
        try:
            raise failure  # outside the handler, so that tracebacks do not show the server's own error
        finally:
            del failure, late  # otherwise the error and this frame form a cycle

    async def _understood(self, error: Exception, session: Session, tool: str | None) -> FsmAgentError:
        """Convert an error from the official client into one of ours."""
        if isinstance(error, FsmAgentError):
            return error
        if _is_closed(error):
            what = "it listed its tools" if tool is None else f"the tool {tool!r} answered"
            return self.target.failure(f"ended before {what}", await session.last_words())
        if tool is None:
            return self.target.failure("did not list its tools", describe_error(error))
        if _is_fault(error) and (words := session.stderr()):
            LOG.warning("%s: the tool %r failed, and the server's stderr ends with:\n%s", self.target, tool, words)
        kind = _Forgotten if _is_forgotten(error) else MCPToolError
        return kind(self.target.scrubbed(f"the tool {tool!r}: {describe_error(error)}"))


def _let_go(sessions: Iterable[Session]) -> None:
    for session in sessions:
        if session.is_live:
            with suppress(RuntimeError):  # the loop is closed, and so are all its sessions
                session.home.loop.call_soon_threadsafe(session.let_go)


async def _hear_of_ends() -> None:
    """Let the event loop deliver the news that a server has ended, so that no more calls go to its session.

    Otherwise, a call would fail without having reached the server.  The end of a pipe takes four turns of the loop to
    get from the socket through the official client's streams to the session (in mcp 2.3).
    """
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _call_tool(client: Client, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
    """Call a tool with arguments that the official package can send.

    That package would send null for NaN, and would end the session because of a lone surrogate.
    """
    sent: dict[str, Any] = to_jsonable_python(dict(arguments))
    json.dumps(sent, ensure_ascii=False, allow_nan=False).encode()
    return await client.call_tool(tool, sent)


def _is_closed(error: Exception) -> bool:
    """Return whether the connection ended before there was an answer.  Servers use the same code for other errors."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and (error.code, str(error)) == (CONNECTION_CLOSED, "Connection closed")


def _is_fault(error: Exception) -> bool:
    """Return whether the server could not run a tool, for a reason that only its log gives."""
    from mcp import MCPError
    from mcp_types import INTERNAL_ERROR

    return isinstance(error, MCPError) and error.code == INTERNAL_ERROR


def _is_forgotten(error: Exception) -> bool:
    """Return whether an HTTP server answered 404 because it does not know the session.

    https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
    """
    from mcp import MCPError
    from mcp_types import INVALID_REQUEST

    return isinstance(error, MCPError) and (error.code, str(error)) == (INVALID_REQUEST, "Session terminated")

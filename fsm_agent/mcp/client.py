"""An MCP server whose tools are functions of agents."""

from __future__ import annotations

import asyncio
import hashlib
import re
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

from fsm_agent._internal.with_options_shown import with_options_shown
from fsm_agent.errors import UsageError
from fsm_agent.functions.function import Function
from fsm_agent.mcp.background import background
from fsm_agent.mcp.link import Link
from fsm_agent.mcp.results import Piece, error_text, result_value
from fsm_agent.mcp.session import MCPServerError, MCPToolError, Target
from fsm_agent.mcp.transports import Http, Stdio, Transport
from fsm_agent.validation import check

if TYPE_CHECKING:
    from mcp_types import Tool

__all__ = ["MCPServer", "MCPServerError", "MCPToolError"]

T = TypeVar("T")

_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]")
_NAME_CHARS = 64
_HASH_CHARS = 6


class ServerOptions(TypedDict, total=False):
    """Options of every kind of server.

    Attributes:
        name: Its name in messages; by default that of the command or the host.
        prefix: Prefix of all function names: ``files`` makes ``files_read`` of the tool ``read``.
        timeout_s: Timeout of one tool call; reported to the model.
        start_timeout_s: Timeout of the server's start until it answers, and of listing its tools.
        adapt: Called with each function; returns the one to offer, such as one that needs approval, or None to drop
            it.
    """

    name: str
    prefix: str
    timeout_s: float
    start_timeout_s: float
    adapt: Callable[[Function], Function | None]


class MCPServer:
    """A server of the Model Context Protocol, whose tools are functions: ``Agent(…, functions=[server])``.

    Made by `stdio` or `http`, started on first use or by a ``with`` (``async with``) block, and ended by the end of the
    block, by `close`, when it is no longer referenced, or with the interpreter.  A server that has ended by itself is
    restarted on its next use.  Safe to use from any number of threads, tasks and event loops at once.

    The server's own requests, for sampling, elicitation and roots, are refused.

    Examples:
        >>> server = MCPServer.stdio("uvx", "mcp-server-time", prefix="time")     # it is started when it is first used
        >>> server.name
        'uvx'
    """

    @with_options_shown(ServerOptions)
    def __init__(self, transport: Transport, **options: Unpack[ServerOptions]) -> None:
        if unknown := options.keys() - ServerOptions.__annotations__.keys():
            options_text = ", ".join(ServerOptions.__annotations__)
            raise UsageError(f"unknown option {min(unknown)!r} of an MCP server; there are: {options_text}")
        right = "MCPServer.stdio('command', …) or MCPServer.http('https://…')"
        check("transport of an MCP server", transport, hasattr(transport, "name"), right)
        self.name = options.get("name") or transport.name
        self._transport = transport
        self._prefix = options.get("prefix", "")
        self._adapt = options.get("adapt")
        target = Target(name=self.name, transport=transport, start_timeout_s=options.get("start_timeout_s", 60.0))
        self._link = Link(target)
        self._access = _Access(self._link, options.get("timeout_s", 60.0))
        self._offered: tuple[tuple[Tool, ...], tuple[Function, ...]] = ((), ())

    @classmethod
    @with_options_shown(ServerOptions)
    def stdio(
        cls,
        command: str | Path,
        *args: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        **options: Unpack[ServerOptions],
    ) -> Self:
        """Return a server that is started as a child process and speaks over its stdin and stdout.

        Args:
            command: The program to start; looked up in PATH.
            args: Its arguments.
            env: Environment variables beside the few that every server gets (HOME, PATH, USER and the like).
            cwd: Its working directory.
            options: See `ServerOptions`.
        """
        transport = Stdio(command=str(command), args=tuple(map(str, args)), env=dict(env or {}), cwd=cwd)
        return cls(transport, **options)

    @classmethod
    @with_options_shown(ServerOptions)
    def http(
        cls, url: str, *, headers: Mapping[str, str] | None = None, sse: bool = False, **options: Unpack[ServerOptions]
    ) -> Self:
        """Return a server that is reached over HTTP.

        Args:
            url: Its URL.
            headers: Sent with every request, such as ``Authorization``.
            sse: True for the old transport with two endpoints instead of streamable HTTP.
            options: See `ServerOptions`.

        Raises:
            ConfigError: The URL is invalid.
        """
        return cls(Http(url=url, headers=dict(headers or {}), sse=sse), **options)

    @property
    def functions(self) -> tuple[Function, ...]:
        """The current tools; blocks only while the server starts, and once after it reported a change of them.

        Raises:
            MCPServerError: The server does not start, or does not answer.
            ConfigError: The package ``mcp`` or the command is missing.
        """
        tools = None if self._access.is_closed else self._link.tools_now
        return self._functions_of(_wait(self._access.submit(self._link.tools())) if tools is None else tools)

    def call(self, tool: str, /, **arguments: Any) -> str | list[Piece]:
        """Call a tool by the server's name for it.

        Returns:
            The text of its result; with images and documents, a list of them and of the texts between.

        Raises:
            MCPToolError: The tool failed or took too long.
            MCPServerError: The server cannot be reached, or ended before it answered.
        """
        return _wait(self._access.call(tool, arguments))

    async def acall(self, tool: str, /, **arguments: Any) -> str | list[Piece]:
        """`call` for asyncio; cancelling it cancels the call at the server."""
        return await asyncio.wrap_future(self._access.call(tool, arguments))

    def close(self) -> None:
        """End the session and the server's process, if any; afterwards it can only be used in a new block."""
        self._access.is_closed = True
        _wait(background().submit(self._link.close()))

    async def aclose(self) -> None:
        """`close` for asyncio."""
        self._access.is_closed = True
        await asyncio.wrap_future(background().submit(self._link.close()))

    def __enter__(self) -> Self:
        self._access.is_closed = False
        _wait(self._access.submit(self._link.tools()))
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._access.is_closed = False
        await asyncio.wrap_future(self._access.submit(self._link.tools()))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<MCPServer {self.name!r}: {self._transport.address}>"

    def _functions_of(self, tools: tuple[Tool, ...]) -> tuple[Function, ...]:
        listed, functions = self._offered
        if listed is not tools:
            by_name = {tool.name: tool for tool in tools}
            names = function_names(by_name, self._prefix)
            made = [self._function(tool, names[name]) for name, tool in by_name.items()]
            kept = map(self._adapt, made) if self._adapt else made
            functions = tuple([function for function in kept if function is not None])
            self._offered = (tools, functions)
        return functions

    def _function(self, tool: Tool, name: str) -> Function:
        droppable, access = _optional(tool.input_schema), self._access

        async def call(**arguments: Any) -> str | list[Piece]:
            kept = {key: value for key, value in arguments.items() if value is not None or key not in droppable}
            return await asyncio.wrap_future(access.call(tool.name, kept))

        about, schema, hints = tool.description or "", tool.input_schema, tool.annotations
        once = hints is not None and hints.destructive_hint is True and not hints.idempotent_hint
        return Function(name=name, description=about, parameters=schema, call=call, is_async=True, once=once)


class _Access:
    """The use of a server from any thread, by the server's object and by its functions.

    It does not refer to that object, which holds the functions: a reference cycle would keep the session open until
    the collector comes.  The session ends when none of them is left.
    """

    def __init__(self, link: Link, timeout_s: float) -> None:
        self.is_closed = False
        self._link = link
        self._timeout_s = timeout_s
        weakref.finalize(self, link.drop).atexit = False  # all sessions are closed then

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine of the link in the background, unless the server is closed."""
        if self.is_closed:
            coroutine.close()
            raise UsageError(f"{self._link.target} is closed; use it inside its with block")
        return background().submit(coroutine)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Future[str | list[Piece]]:
        """Call a tool by the server's name for it."""
        return self.submit(self._answer(tool, arguments))

    async def _answer(self, tool: str, arguments: Mapping[str, Any]) -> str | list[Piece]:
        result = await self._link.call(tool, arguments, self._timeout_s)
        if result.is_error:
            text = self._link.target.scrubbed(error_text(result))
            raise MCPToolError(text or f"the tool {tool!r} failed without a reason")
        return result_value(result)


def function_names(tools: Iterable[str], prefix: str = "") -> dict[str, str]:
    """Return distinct names by tool that every provider accepts, independent of the order of tools."""
    prefixed = {tool: f"{prefix}_{tool}" if prefix else tool for tool in tools}
    names = {tool: _UNUSABLE.sub("_", name) for tool, name in prefixed.items()}
    wanted = Counter(names.values())
    for tool, name in names.items():
        is_taken = wanted[name] > 1 and name != prefixed[tool]
        if is_taken or not 0 < len(name) <= _NAME_CHARS:
            mark = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:_HASH_CHARS]
            names[tool] = f"{name[: _NAME_CHARS - _HASH_CHARS - 1]}_{mark}"
    return names


def _optional(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the properties that are optional but not nullable: models send null for omitted arguments."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping):
        return frozenset()
    needed = {key for key in required if isinstance(key, str)} if isinstance(required, list) else ()
    return frozenset([key for key, value in properties.items() if key not in needed and not _takes_null(value)])


def _takes_null(schema: Any) -> bool:
    match schema:
        case {"type": str(kind)}:
            return kind == "null"
        case {"type": list(kinds)}:
            return "null" in kinds
        case {"anyOf": list(kinds)} | {"oneOf": list(kinds)}:
            return any(map(_takes_null, kinds))
        case {"enum": list(choices)}:
            return None in choices
    return True


def _wait(future: Future[T]) -> T:
    try:
        return future.result()
    except BaseException:  # an interrupt ends the wait too
        future.cancel()
        raise
    finally:
        del future  # its error holds this frame

"""The client for an MCP server, whose tools become functions for agents."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import groupby
from operator import contains
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from fsm_agent._internal.structs import is_finite
from fsm_agent._internal.text import expanded, guess
from fsm_agent.agents.config_files import read_file
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import is_plain
from fsm_agent.mcp.session import Connection, MCPServerError, MCPToolError, Target, background
from fsm_agent.mcp.transports import Http, Stdio, Transport
from fsm_agent.messages.message import Document, Image
from fsm_agent.validation import require

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock, ResourceLink, Tool

Piece: TypeAlias = str | Image | Document

_TEXTUAL = ("application/json", "application/xml", "application/yaml", "image/svg+xml")


def result_value(result: CallToolResult) -> str | list[Piece]:
    """Convert a tool's result to a function's result, which is text, or a list of texts and attachments.

    Structured content is appended as JSON unless the texts already contain it.
    """
    pieces = [_piece(block) for block in result.content]
    structured = result.structured_content
    if structured is not None and not _contain([piece for piece in pieces if isinstance(piece, str)], structured):
        pieces.append(to_json(structured).decode())
    joined = list(_joined(pieces))
    if not joined:
        return ""
    return joined[0] if len(joined) == 1 and isinstance(joined[0], str) else joined


def error_text(result: CallToolResult) -> str:
    """Return the text of a tool's error, or "" if the error has none."""
    value = result_value(result)
    return value if isinstance(value, str) else "\n".join([piece for piece in value if isinstance(piece, str)])


def _joined(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield the pieces after joining adjacent texts."""
    for kind, group in groupby(pieces, type):
        same = [*group]
        yield from ["\n".join(map(str, same))] if kind is str else same


def _contain(texts: list[str], structured: Any) -> bool:
    """Return whether the texts already contain the structured content, which may be wrapped as ``{"result": …}``."""
    values = [structured]
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        values.append(structured["result"])
    read = [(text, _read_json(text)) for text in texts]
    for value in values:
        if any(value in (text, parsed) for text, parsed in read):
            return True
        if value and isinstance(value, list) and len(value) == len(read) and all(map(contains, read, value)):
            return True
    return False


def _read_json(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return text


def _piece(block: ContentBlock) -> Piece:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return _blob(block.data, block.mime_type, "")
        case "resource_link":
            return _link_text(block)
        case "resource":
            resource = block.resource
            if (text := getattr(resource, "text", None)) is not None:
                return str(text)
            return _blob(resource.blob, resource.mime_type or "", resource.uri)  # type: ignore[union-attr]


def _link_text(link: ResourceLink) -> str:
    facts = ", ".join(filter(None, [link.mime_type, link.description]))
    return f"{link.title or link.name}: {link.uri}" + (f" ({facts})" if facts else "")


def _blob(data: str, media_type: str, uri: str) -> Piece:
    """Return bytes in a form that a model can read: an image, a PDF, text, or a note about them."""
    media_type = media_type.partition(";")[0].strip().lower()
    about = f"{media_type or 'unknown type'}{', ' + uri if uri else ''}"
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        return f"[{about}: not valid base64]"
    if media_type == "application/pdf":
        name = unquote(uri.partition("?")[0].rpartition("/")[2])
        return Document(data=content, media_type=media_type, name=name or None)
    try:
        if media_type.startswith("text/") or media_type in _TEXTUAL:
            return content.decode()
        return Image.of(content)
    except (UsageError, UnicodeDecodeError):
        return f"[{about}, {len(content)} bytes: not shown]"


T = TypeVar("T")

_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]")
_NAME_CHARS = 64
_HASH_CHARS = 6


class MCPServer:
    """A server that speaks the Model Context Protocol and whose tools are functions: ``Agent(…, functions=[server])``.

    Create one with `stdio` or `http`.  The server starts when it is first used, or at the beginning of a ``with`` or
    ``async with`` block.  It stops at the end of the block, when `close` is called, when nothing references it any
    more, or at the end of the program.  If the server ends by itself, it is restarted when it is next used.  Any number
    of threads, tasks and event loops may use it.

    Requests from the server (sampling, elicitation and roots) are refused.

    Args:
        transport: How to reach the server.  Use `stdio` or `http` instead.
        name: The server's name in messages.  The default is the host or the command.  For a launcher such as ``python``
            or ``npx``, it is the program that the launcher starts.
        prefix: The prefix for all function names: ``files`` turns the tool ``read`` into ``files_read``.
        timeout_s: The timeout for one tool call, in seconds.  After a timeout, the model gets an error.
        start_timeout_s: The timeout, in seconds, for the server to start and answer, and for listing its tools.
        adapt: A function that is called with each function and returns the function to offer instead, such as one that
            needs approval, or None to omit it.

    Examples:
        >>> server = MCPServer.stdio("uvx", "mcp-server-time", prefix="time")     # it is started when it is first used
        >>> server.name
        'mcp-server-time'
    """

    def __init__(
        self,
        transport: Transport,
        *,
        name: str = "",
        prefix: str = "",
        timeout_s: float = 60.0,
        start_timeout_s: float = 60.0,
        adapt: Callable[[Function], Function | None] | None = None,
    ) -> None:
        right = "MCPServer.stdio('command', …) or MCPServer.http('https://…')"
        require("transport of an MCP server", transport, hasattr(transport, "name"), right)
        for what, text in (("name", name), ("prefix", prefix)):
            require(f"{what} of an MCP server", text, isinstance(text, str), "a string")
        for what, time_s in (("timeout_s", timeout_s), ("start_timeout_s", start_timeout_s)):
            right = "a number of seconds above 0"
            require(f"{what} of an MCP server", time_s, is_finite(time_s) and time_s > 0, right)
        right = "a plain function of a Function, or None"
        require("adapt of an MCP server", adapt, adapt is None or is_plain(adapt), right)
        self.name = name or transport.name
        self._transport = transport
        self._prefix = prefix
        self._adapt = adapt
        target = Target(name=self.name, transport=transport, start_timeout_s=start_timeout_s)
        self._connection = Connection(target, timeout_s)
        self._offered: tuple[tuple[Tool, ...], tuple[Function, ...]] = ((), ())

    @classmethod
    def stdio(
        cls,
        command: str | Path,
        *args: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        name: str = "",
        prefix: str = "",
        timeout_s: float = 60.0,
        start_timeout_s: float = 60.0,
        adapt: Callable[[Function], Function | None] | None = None,
    ) -> Self:
        """Return a server that runs as a child process and communicates over its stdin and stdout.

        Args:
            command: The program to start, looked up in PATH.
            args: The program's arguments.
            env: Environment variables in addition to the few that every server gets (HOME, PATH, USER and so on).
            cwd: The program's working directory.
            name: See `MCPServer`.
            prefix: See `MCPServer`.
            timeout_s: See `MCPServer`.
            start_timeout_s: See `MCPServer`.
            adapt: See `MCPServer`.
        """
        transport = Stdio(command=str(command), args=tuple(map(str, args)), env={} if env is None else env, cwd=cwd)
        return cls(
            transport, name=name, prefix=prefix, timeout_s=timeout_s, start_timeout_s=start_timeout_s, adapt=adapt
        )

    @classmethod
    def http(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        sse: bool = False,
        name: str = "",
        prefix: str = "",
        timeout_s: float = 60.0,
        start_timeout_s: float = 60.0,
        adapt: Callable[[Function], Function | None] | None = None,
    ) -> Self:
        """Return a server that is reached over HTTP.

        Args:
            url: The server's URL.
            headers: Headers for every request, such as ``Authorization``.
            sse: Whether to use the old transport with two endpoints instead of streamable HTTP.
            name: See `MCPServer`.
            prefix: See `MCPServer`.
            timeout_s: See `MCPServer`.
            start_timeout_s: See `MCPServer`.
            adapt: See `MCPServer`.

        Raises:
            ConfigError: If the URL is invalid.
        """
        transport = Http(url=url, headers={} if headers is None else headers, sse=sse)
        return cls(
            transport, name=name, prefix=prefix, timeout_s=timeout_s, start_timeout_s=start_timeout_s, adapt=adapt
        )

    @property
    def functions(self) -> tuple[Function, ...]:
        """The server's current tools, as functions.

        Reading this attribute blocks while the server starts, and again after the server has reported a change.

        Raises:
            MCPServerError: If the server does not start or answer.
            ConfigError: If the package ``mcp`` or the command is missing.
        """
        tools = self._connection.tools_now
        return self._functions_of(_wait(self._connection.submit(self._connection.tools())) if tools is None else tools)

    def call(self, tool: str, /, **arguments: Any) -> str | list[Piece]:
        """Call a tool by its name on the server.

        Returns:
            The text of the result, or a list of texts, images and documents.

        Raises:
            MCPToolError: If the tool failed or timed out.
            MCPServerError: If the server cannot be reached, or ended before it answered.
        """
        return _wait(self._connection.submit(_call(self._connection, tool, arguments)))

    async def acall(self, tool: str, /, **arguments: Any) -> str | list[Piece]:
        """The async version of `call`.  If this is cancelled, the call on the server is cancelled too."""
        return await asyncio.wrap_future(self._connection.submit(_call(self._connection, tool, arguments)))

    def close(self) -> None:
        """End the session and the server's process, if any.  Afterwards, the server can be used only in a new block."""
        self._connection.is_closed = True
        _wait(background().submit(self._connection.close()))

    async def aclose(self) -> None:
        """The async version of `close`."""
        self._connection.is_closed = True
        await asyncio.wrap_future(background().submit(self._connection.close()))

    def __enter__(self) -> Self:
        self._connection.is_closed = False
        _wait(self._connection.submit(self._connection.tools()))
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._connection.is_closed = False
        await asyncio.wrap_future(self._connection.submit(self._connection.tools()))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<MCPServer {self.name!r}: {self._transport.address}>"

    def _functions_of(self, tools: tuple[Tool, ...]) -> tuple[Function, ...]:
        listed, functions = self._offered
        if listed is not tools:
            by_name: dict[str, Tool] = {}
            for tool in tools:
                if by_name.setdefault(tool.name, tool) != tool:
                    raise MCPServerError(f"MCP server {self.name!r} lists two different tools named {tool.name!r:.80}")
            names = function_names(by_name, self._prefix)
            made = [self._function(tool, names[name]) for name, tool in by_name.items()]
            kept = map(self._adapt, made) if self._adapt else made
            functions = tuple([function for function in kept if function is not None])
            self._offered = (tools, functions)
        return functions

    def _function(self, tool: Tool, name: str) -> Function:
        connection, about, schema, hints = self._connection, tool.description or "", tool.input_schema, tool.annotations

        async def call(**arguments: Any) -> str | list[Piece]:
            return await asyncio.wrap_future(connection.submit(_call(connection, tool.name, arguments)))

        once = hints is not None and hints.destructive_hint is True and not hints.idempotent_hint
        return Function(name=name, description=about, parameters=schema, call=call, is_async=True, once=once)


async def _call(connection: Connection, tool: str, arguments: Mapping[str, Any]) -> str | list[Piece]:
    """Call a tool by its name on the server, and return its result as a function's result."""
    result = await connection.call(tool, arguments)
    if result.is_error:
        text = connection.target.scrubbed(error_text(result))
        raise MCPToolError(text or f"the tool {tool!r} failed without a reason")
    return result_value(result)


def function_names(tools: Iterable[str], prefix: str = "") -> dict[str, str]:
    """Return a distinct name for each tool, made of characters that every provider accepts.

    The names do not depend on the order of the tools.
    """
    prefixed = {tool: f"{prefix}_{tool}" if prefix else tool for tool in tools}
    names = {tool: _UNUSABLE.sub("_", name) for tool, name in prefixed.items()}
    wanted = Counter(names.values())
    for tool, name in names.items():
        is_taken = wanted[name] > 1 and name != prefixed[tool]
        if is_taken or not 0 < len(name) <= _NAME_CHARS:
            mark = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:_HASH_CHARS]
            names[tool] = f"{name[: _NAME_CHARS - _HASH_CHARS - 1]}_{mark}"
    return names


def _wait(future: Future[T]) -> T:
    try:
        return future.result()
    except BaseException:  # an interrupt ends the wait too
        future.cancel()
        raise
    finally:
        del future  # otherwise its error and this frame form a cycle


_PARTS = ("mcpServers", "servers")  # "servers" in VS Code


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)


class _StdioEntry(_Entry):
    command: str = Field(min_length=1)
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None


class _HttpEntry(_Entry):
    url: str = Field(min_length=1)
    headers: dict[str, str] = {}


_KINDS: Mapping[str, type[_Entry]] = {
    "stdio": _StdioEntry,
    **dict.fromkeys(("http", "streamable-http", "streamableHttp", "sse"), _HttpEntry),
}


def mcp_servers(
    config: str | Path | Mapping[str, Any],
    *,
    prefix: str | None = None,
    timeout_s: float = 60.0,
    start_timeout_s: float = 60.0,
    adapt: Callable[[Function], Function | None] | None = None,
) -> dict[str, MCPServer]:
    """Return the servers in a configuration file for Claude, Cursor, VS Code or a similar tool, without starting them.

    The format is ``{"mcpServers": {name: {"command", "args", "env", "cwd"} or {"url", "headers", "type"}}}``.  The key
    may also be ``"servers"``, and other top-level keys are ignored.  Servers with ``"disabled": true`` are omitted.  In
    strings, ``${VAR}`` and ``${env:VAR}`` refer to environment variables, and ``${VAR:-default}`` supplies a default
    for a variable that is missing or empty.

    Args:
        config: The path to the file, or its parsed contents.
        prefix: The prefix for all function names.  The default is each server's name.
        timeout_s: See `MCPServer`.
        start_timeout_s: See `MCPServer`.
        adapt: See `MCPServer`.

    Returns:
        The servers by name, in the file's order.

    Raises:
        ConfigError: If the file cannot be read, a key is unknown, a value is invalid, or a variable is missing.

    Examples:
        >>> servers = mcp_servers({"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}})
        >>> list(servers)
        ['time']
    """
    given: Any = config if isinstance(config, Mapping) else read_file(Path(config))
    label = "an MCP configuration" if given is config else f"the MCP configuration {str(config)!r}"
    named = _servers(given, label)
    transports = {name: _transport(f"MCP server {name!r}", entry) for name, entry in named.items()}
    return {
        name: MCPServer(
            transport,
            name=name,
            prefix=name if prefix is None else prefix,
            timeout_s=timeout_s,
            start_timeout_s=start_timeout_s,
            adapt=adapt,
        )
        for name, transport in transports.items()
        if transport is not None
    }


def _servers(config: Any, label: str) -> Mapping[str, Any]:
    config = _object(config, label)
    for part in _PARTS:
        if part in config:
            return _object(config[part], repr(part))
    hints = [hint for word in config if (hint := guess(word, _PARTS))]
    raise ConfigError(
        f"{label}: expected its servers under 'mcpServers' or 'servers', got neither{next(iter(hints), '')}"
    )


def _transport(label: str, entry: Any) -> Transport | None:
    """Return the transport to a server, or None if the server is disabled."""
    given = dict(_object(entry, label))
    is_disabled = given.pop("disabled", False)
    if not isinstance(is_disabled, bool):
        raise ConfigError(f"'disabled' of {label}: expected true or false, got another value")
    if is_disabled:
        return None
    kind = str(given.pop("type", "http" if "url" in given else "stdio"))
    if kind not in _KINDS:
        raise ConfigError(f"{label}: unknown 'type' {kind!r}{guess(kind, _KINDS)}; known: {', '.join(_KINDS)}")
    values = {key: _expanded(value, f"{key!r} of {label}") for key, value in given.items()}
    try:
        fields = dict(_KINDS[kind].model_validate(values))
    except ValidationError as error:
        raise ConfigError(f"{label}: {_problem(error, kind)}") from None
    return Stdio(**fields) if kind == "stdio" else Http(**fields, sse=kind == "sse")


def _problem(error: ValidationError, kind: str) -> str:
    """Say what is wrong with an entry, without quoting its values, which may be secret."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    known = _KINDS[kind].model_fields
    unknown = [str(one["loc"][0]) for one in problems if one["type"] == "extra_forbidden"]
    if unknown:
        return f"the type {kind!r} has no key {unknown[0]!r}{guess(unknown[0], known)}; known: {', '.join(known)}"
    place = ".".join(map(str, problems[0]["loc"]))
    return f"{place!r} of the type {kind!r}: {problems[0]['msg']}"


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what}: expected a JSON object, got another value")
    return value


def _expanded(value: Any, label: str) -> Any:
    match value:
        case str():
            try:
                return expanded(value, os.environ, label)
            except ValueError as error:
                raise ConfigError(str(error)) from None
        case list():
            return [_expanded(item, label) for item in value]
        case dict():
            return {key: _expanded(item, f"{key!r} in {label}") for key, item in value.items()}
    return value

"""The transports to MCP servers: a child process, or HTTP."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

import anyio
import httpx

from fsm_agent._internal.masking import Secrets, path_tokens, secrets_in_headers, secrets_in_proxies, secrets_in_url
from fsm_agent.clients.network import is_loopback
from fsm_agent.errors import ConfigError

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams

MAX_BYTES = 32 * 1024 * 1024  # a picture arrives in one body or event
_HEX = "[0-9a-fA-F]{2}"
_ESCAPES = re.compile(rf"\\u[dD][89abAB]{_HEX}\\u[dD][c-fC-F]{_HEX}|(?P<half>\\u[dD][89a-fA-F]{_HEX})|\\.")


def _mended_stream(stream: httpx2.AsyncByteStream, *, is_events: bool) -> httpx2.AsyncByteStream:
    """Return the JSON stream with U+FFFD in place of invalid bytes and lone surrogates.

    Text is passed on in whole lines, so that no escape is cut in two.
    """
    import httpx2

    class Mended(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            size_bytes, line = 0, StringIO()
            async for chunk in stream:
                text = decoder.decode(chunk)
                size_bytes += len(chunk)
                if size_bytes > MAX_BYTES:
                    raise httpx2.StreamError(f"the answer: expected at most {MAX_BYTES} bytes, got more")
                if is_events and (end := max(text.rfind("\n"), text.rfind("\r")) + 1):
                    yield _mended(line.getvalue() + text[:end]).encode()
                    text, line = text[end:], StringIO()
                    size_bytes = len(text.encode())
                line.write(text)
            yield _mended(line.getvalue() + decoder.decode(b"", final=True)).encode()

        async def aclose(self) -> None:
            await stream.aclose()

    return Mended()


def _mended(text: str) -> str:
    """Return JSON with U+FFFD in place of lone surrogates."""
    return _ESCAPES.sub(lambda found: "\\ufffd" if found["half"] else found[0], text) if "\\" in text else text


async def check_body(response: httpx2.Response) -> None:
    """Limit the size of a response's body, or of each line in an event stream, and repair invalid characters.

    Raises:
        httpx2.DecodingError: If the body is compressed, so that its real size is unknown.
    """
    import httpx2

    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise httpx2.DecodingError(f"the answer: expected the encoding 'identity', got {encoding!r:.80}")
    is_events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _mended_stream(response.stream, is_events=is_events)


STDERR_CHARS = 2000
_STARTS_OTHERS = re.compile(r"(python|pypy)[\d.]*|node|npx|bunx?|deno|uvx?|pipx|ruby|java|dotnet")
_SUBCOMMANDS = ("run", "tool", "exec", "x")
_FLAGS = ("-m", "-u", "-y", "--yes", "-q", "--quiet", "-jar")  # others may have a value, perhaps a secret one
_PROGRAM = re.compile(r"(?!.*://)[\w.@/\\:+~-]{1,100}")
_PASSWORD = re.compile(r"://[^/\s:@]{0,200}:([^/\s@]{1,200})@")
_DRAIN_TIMEOUT_S = 0.5


def _check_texts(what: str, texts: Any) -> None:
    """Refuse anything but a mapping of strings.  The error does not show the values, which may be secret."""
    if not isinstance(texts, Mapping):
        raise ConfigError(f"{what}: expected a mapping of strings, got a value of type {type(texts).__name__}")
    for name, value in texts.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise ConfigError(f"{what}[{name!r:.80}]: expected strings, got a value of type {type(value).__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stdio:
    """A server that is started as a child process."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | Path | None = None

    def __post_init__(self) -> None:
        _check_texts("env", self.env)
        program, *more = self.command.split() or [""]
        if more and not self.args and shutil.which(self.command) is None and shutil.which(program) is not None:
            raise ConfigError(
                f"the command of an MCP server: expected a program alone, got {program!r} with arguments; pass each"
                f" argument by itself, such as MCPServer.stdio({program!r}, …)"
            )

    @property
    def address(self) -> str:
        """The command as it appears in messages."""
        return self.command

    @property
    def name(self) -> str:
        """The name of the command or, for a launcher such as ``npx``, of the program that it starts."""
        command = Path(self.command).stem
        if _STARTS_OTHERS.fullmatch(Path(self.command).name.removesuffix(".exe")):
            program = next((word for word in self.args if word not in (*_SUBCOMMANDS, *_FLAGS)), "-")
            if program[:1] != "-" and _PROGRAM.fullmatch(program) and self.secrets.mask(program) == program:
                return program
        return command

    @property
    def secrets(self) -> Secrets:
        """Texts that messages must not contain: values of environment variables, and arguments that look secret."""
        texts = [*secrets_in_headers(self.env.items(), all_names=True)]
        for before, argument in pairwise(("", *self.args)):
            name, _, value = argument.rpartition("=")
            option = before if before.startswith("-") else ""
            texts += secrets_in_headers([(f"{option} {name}", value)])
            texts += _PASSWORD.findall(argument)
        return Secrets(texts)

    @asynccontextmanager
    async def open(self, stderr: StderrTail) -> AsyncIterator[TransportStreams]:
        """Start the process and yield its streams.  The process's stderr goes to ``stderr``."""
        from mcp.client.stdio import StdioServerParameters, stdio_client

        parameters = StdioServerParameters(
            command=self.command,
            args=list(self.args),
            env=dict(self.env),
            cwd=self.cwd,
            encoding_error_handler="replace",  # otherwise one wrong byte stops the reading, and all requests hang
        )
        async with stderr.file() as errors, stdio_client(parameters, errlog=errors) as streams:
            yield streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """A server that is reached over streamable HTTP or, if it is old, over SSE."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    sse: bool = False

    def __post_init__(self) -> None:
        _check_texts("headers", self.headers)
        try:
            url = httpx.URL(self.url)
        except (httpx.InvalidURL, TypeError):
            url = httpx.URL("")
        if url.scheme not in ("http", "https") or not url.host:
            raise ConfigError("the URL of an MCP server: expected one like 'https://host/mcp'")

    @property
    def address(self) -> str:
        """The URL as it appears in messages, without its path, which may contain a key."""
        url = httpx.URL(self.url)
        return f"{url.scheme}://{url.host}{f':{url.port}' if url.port else ''}/…"

    @property
    def name(self) -> str:
        return httpx.URL(self.url).host

    @property
    def secrets(self) -> Secrets:
        """Texts that messages must not contain: header values, the URL after its host, and proxy passwords."""
        in_headers = secrets_in_headers(self.headers.items(), all_names=True)
        in_url = [self.url, *secrets_in_url(self.url), *path_tokens(self.url)]
        return Secrets([*in_headers, *in_url, *secrets_in_proxies()])

    @asynccontextmanager
    async def open(self, stderr: StderrTail) -> AsyncIterator[TransportStreams]:
        """Connect and yield the streams.  If the last response was an error, its status goes to ``stderr``."""
        import httpx2
        from mcp.client.sse import sse_client
        from mcp.client.streamable_http import streamable_http_client

        headers = {**self.headers, "Accept-Encoding": "identity"}  # the size limit needs uncompressed bodies
        trust_env = not is_loopback(httpx.URL(self.url))  # the environment's proxies cannot reach this machine

        async def note(response: httpx2.Response) -> None:  # the official client does not report the status
            if response.request.method == "POST":
                stderr.replace(f"HTTP status {response.status_code}" if response.is_error else "")

        hooks = {"response": [check_body, note]}
        if self.sse:
            make = partial(httpx2.AsyncClient, event_hooks=hooks, trust_env=trust_env)
            async with sse_client(self.url, headers=headers, httpx_client_factory=make) as streams:
                yield streams
            return
        timeout = httpx2.Timeout(30, read=None)  # each request has its own timeout
        async with (
            httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks, trust_env=trust_env) as client,
            streamable_http_client(self.url, http_client=client, max_sse_event_size=MAX_BYTES) as streams,
        ):
            yield streams


Transport: TypeAlias = Stdio | Http


class StderrTail(asyncio.Protocol):
    """The last part of a process's stderr, or another text in its place."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self._ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._tail += data
        del self._tail[: -4 * STDERR_CHARS]

    def replace(self, text: str) -> None:
        self._tail[:] = text.encode()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended.set()

    def text(self, secrets: Secrets) -> str:
        """Return the text without secrets.

        The text is masked before it is shortened, because even part of a key is secret.
        """
        return secrets.mask(self._tail.decode(errors="replace")).strip()[-STDERR_CHARS:]

    @asynccontextmanager
    async def file(self) -> AsyncIterator[TextIO]:
        """Yield a file for the process to write to.  When the block ends, all of its output has been read."""
        if sys.platform == "win32":  # pipes cannot be read there without a thread
            with os.fdopen(os.open(os.devnull, os.O_WRONLY), "w") as nowhere:
                yield nowhere
            return
        read, write = os.pipe()
        with os.fdopen(write, "w") as errors:
            pipe = os.fdopen(read, "rb", buffering=0)
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: self, pipe)
            try:
                yield errors
            finally:
                errors.close()
                with anyio.move_on_after(_DRAIN_TIMEOUT_S, shield=True):  # a grandchild may keep it open forever
                    await self._ended.wait()
                transport.close()

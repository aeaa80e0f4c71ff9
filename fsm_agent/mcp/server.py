"""An MCP server whose tools are functions, agents and flows."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from typing import IO, Any, BinaryIO, cast

import anyio
from pydantic_core import from_json, to_json

from fsm_agent.agents.agent import Agent
from fsm_agent.call.effects import Request
from fsm_agent.call.journal import key_bytes
from fsm_agent.call.limits import Limits
from fsm_agent.clients.sync_verbs import SyncVerbs
from fsm_agent.errors import UsageError
from fsm_agent.functions.function import Function
from fsm_agent.functions.toolset import Functions, Toolset
from fsm_agent.mcp.transports import MAX_BYTES
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.messages.reply import Reply
from fsm_agent.named_objects import needing
from fsm_agent.store.runs import Runs
from fsm_agent.store.sql.sqlite import MemoryStore
from fsm_agent.store.store import Store
from fsm_agent.validation import require


def task_of(name: str, arguments: dict[str, Any]) -> str:
    """Return the task for an agent call that only calls one function."""
    return to_json({"function": name, "arguments": arguments}, inf_nan_mode="constants").decode()


class ForcedCallModel(SyncVerbs):
    """A model client that first calls the function named in the task, and then ends the agent call."""

    name = "mcp:client"
    reports_logprobs = False

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        last = request.messages[-1]
        if last.role != "user":
            return Reply.of("done")
        asked = from_json(last.text)
        arguments = to_json(asked["arguments"], inf_nan_mode="constants").decode()
        call = FunctionCall(name=asked["function"], arguments_json=arguments)
        return Reply(message=Message(role="assistant", parts=(call,)))


def why_not_served(function: Function) -> str:
    """Return why a function cannot be served and what to do about it, or "" if it can be served."""
    tool = f"the tool {function.name!r}"
    if function.depends_on:
        needed = ", ".join(function.depends_on)
        return f"{tool} depends on {needed}, but a server runs each tool call on its own; pass depends_on=()"
    if function.delegate is not None and function.delegate.is_handoff:
        return f"{tool} takes the conversation over, but a server has no conversation; serve the agent itself"
    return ""


class BoundedLines:
    """The lines of a file as text.  A line that is too long is replaced with an invalid message."""

    def __init__(self, file: BinaryIO, max_bytes: int = MAX_BYTES) -> None:
        self._file = file
        self._max_bytes = max_bytes

    def readline(self) -> str:
        line = self._file.readline(self._max_bytes + 1)
        if len(line) <= self._max_bytes:
            return line.decode("utf-8", "replace")
        while line and not line.endswith(b"\n"):
            line = self._file.readline(1 << 16)
        return "too long\n"


@contextmanager
def own_stdin() -> Iterator[IO[str]]:
    """Yield standard input, and hide it from all other code so that no function can read the client's messages."""
    private = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    file = os.fdopen(private, "rb", closefd=False)  # a thread may still read it after this block
    try:
        yield cast("IO[str]", BoundedLines(file))
    finally:
        with suppress(OSError):
            os.dup2(private, 0)


ANSWER_WITHIN_S = 7 * 24 * 3600.0
_SHUTDOWN_S = 5


def serve(
    name: str,
    functions: Functions[Any],
    *,
    store: Runs | Store | str | PathLike[str] | None = None,
    signing_key: str | bytes | None = None,
    deps: Any = None,
    limits: Limits = Limits(),
    hooks: Sequence[Any] = (),
    instructions: str = "",
    version: str = "",
    answer_within_s: float = ANSWER_WITHIN_S,
) -> ToolServer:
    """Return an MCP server that offers these functions, agents and flows as tools.

    Each tool call is an agent call whose model calls only that function.  Approvals, limits, argument checks, ``once``
    functions, nested agents and questions therefore work as usual.  Clients see the same names, descriptions and
    schemas as models.

    If a call needs an answer, the server asks the client's user.  As of protocol version 2026-07-28, the client may
    send the answer days later, to another process.  A client that has lost the server's reply sends its state again
    without an answer, and receives the question or the result.  In older versions, the request stays open until the
    answer arrives.  If the client cancels a call, the call ends.

    The server refuses messages larger than 32 MB over stdio or 4 MB over HTTP, and arguments of more than a million
    characters.

    Args:
        name: The name of the server and of the agent that owns the runs.
        functions: The tools: functions, agents, flows, toolsets or MCP servers, as for `Agent`.
        store: The store for the calls, which are runs: a path, a `Store` or `Runs`.  By default, they are kept in
            memory, so calls that are waiting for answers are lost when the process ends, and no other process can
            continue them.  Memory holds the last 1,000 calls that have waited.
        signing_key: The key, of at least 32 bytes, that seals the states that clients keep.  All processes that serve
            the same tools need the same key.  The default is a new random key, so waiting calls are lost when the
            process ends.
        deps: The ``deps`` in the `Context` that functions get: a value, or a function that makes one for each call,
            given the agent's name, ``extra`` and the user.  Over HTTP with a login, the user is the token's subject, or
            its client id if it has no subject; otherwise it is "".
        limits: The budgets for each call.
        hooks: Objects that receive events; see `fsm_agent.agents.hooks`.
        instructions: Information about the server for the client's model.
        version: The version of the server.
        answer_within_s: How long a client may take to answer, in seconds.

    Raises:
        UsageError: If a tool depends on other tools or is a handoff, or the key is too short.
        ConfigError: If the package ``mcp`` is missing.

    Examples:
        >>> @function
        ... def add(a: int, b: int) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> server = serve("sums", [add])                  # server.run_stdio(), or server.run_http(port=8000)
        >>> server.name
        'sums'
    """
    keeps = store is not None  # keeps runs that have ended; memory would grow without limit
    kept = store if keeps else MemoryStore()
    agent: Agent[Any, str] = Agent(
        ForcedCallModel(), functions=functions, name=name, limits=limits, hooks=hooks, store=kept
    )
    for item in agent.functions:
        for offered in item.functions if isinstance(item, Toolset) else (item,):
            if isinstance(offered, Function) and (problem := why_not_served(offered)):
                raise UsageError(problem)
    right = "a number of seconds above 0"
    require("answer_within_s", answer_within_s, isinstance(answer_within_s, int | float) and answer_within_s > 0, right)
    key = os.urandom(32) if signing_key is None else key_bytes(signing_key)
    agent._check_deps(deps)
    with needing("mcp", "an MCP server"):
        from fsm_agent.mcp.served_calls import official_server
    about = {"instructions": instructions or None, "version": version}
    return ToolServer(agent, official_server(agent, deps, key, answer_within_s, about, keeps=keeps))


class ToolServer:
    """The server that `serve` returns.

    Attributes:
        agent: The agent that runs the tool calls.  ``Worker([server.agent])`` continues calls that a process left
            unfinished.
        official: The server object from the official package, for ``mcp.Client`` in tests or
            ``streamable_http_app(auth=…)``.

    Examples:
        >>> @function
        ... def add(a: int, b: int) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> app = serve("sums", [add]).official.streamable_http_app()       # for uvicorn; the path is /mcp
        >>> type(app).__name__
        'Starlette'
    """

    def __init__(self, agent: Agent[Any, Any], official: Any) -> None:
        self.agent, self.official = agent, official

    @property
    def name(self) -> str:
        """The name of the server and of its agent."""
        return self.agent.name

    def run_stdio(self) -> None:
        """Serve one client over standard input and output until it closes them."""
        from fsm_agent.mcp.served_calls import serve_stdio

        anyio.run(serve_stdio, self.official)

    def run_http(self, *, host: str = "127.0.0.1", port: int = 8000, ready: Callable[[str], Any] | None = None) -> None:
        """Serve any number of clients on this machine over HTTP until the process is told to stop.

        A request whose ``Host`` or ``Origin`` names another machine is refused, so websites have no access.  For
        clients on other machines, put ``official.streamable_http_app(…)`` into a server of your own that requires a
        login.

        Args:
            host: An address of this machine.
            port: The port, or 0 for any free port.
            ready: A function that is called with the URL when the port is open.

        Raises:
            UsageError: If the host can be reached from other machines.
        """
        import uvicorn
        from mcp.server.transport_security import TransportSecuritySettings

        if not _is_loopback(host):
            raise UsageError(
                f"host: expected a loopback address, because the tools have no login, got {host!r:.80}; pass"
                " '127.0.0.1', or mount official.streamable_http_app(auth=…, token_verifier=…) in a server of your own"
            )
        shown = f"[{host}]" if ":" in host else host
        names = [f"{name}:*" for name in dict.fromkeys((shown, *_LOOPBACK_NAMES))]
        # By default the package checks Host and Origin only on three addresses in the loopback range.
        security = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
        app = self.official.streamable_http_app(host=host, transport_security=security)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family) as listening:
            if ready is not None:
                ready(f"http://{shown}:{listening.getsockname()[1]}/mcp")
            config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=_SHUTDOWN_S)
            uvicorn.Server(config).run(sockets=[listening])


_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

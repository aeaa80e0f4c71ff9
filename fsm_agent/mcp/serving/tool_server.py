"""An MCP server whose tools are functions, agents and flows."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from fsm_agent.agents.agent import Agent
from fsm_agent.call.limits import Limits
from fsm_agent.call.signing import key_bytes
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.functions.function import Function
from fsm_agent.functions.toolset import Functions, Toolset
from fsm_agent.mcp.serving.asked import Asked
from fsm_agent.mcp.serving.needs import problem_of
from fsm_agent.validation import check

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from fsm_agent.store.runs import Runs
    from fsm_agent.store.store import Store

ANSWER_WITHIN_S = 7 * 24 * 3600.0
_SHUTDOWN_S = 5


class Seal(NamedTuple):
    """What protects the states that clients carry."""

    key: bytes
    valid_s: float


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
    """Return an MCP server whose tools are these functions, agents and flows.

    A call of a tool is an agent call whose model asks for just that function.  So approvals, wrong arguments, limits,
    functions that must not run twice, agents inside and their questions are what they are anywhere else.  Names,
    descriptions and schemas are those that a model is told.

    A call that needs an answer asks the client's user.  In protocol 2026-07-28 it is put aside until the client sends
    the answer, also days later and to another process; before that version its request stays open.  A call that its
    client cancels ends.

    Args:
        name: The name of the server, and of the agent whose runs the store keeps.
        functions: What an `Agent` takes as its functions: functions, agents, flows, toolsets, MCP servers.
        store: Where calls are kept as runs: a path, a `Store` or `Runs`.  A tool that needs approval, or that must not
            run twice, needs one, and so does a tool with such a function inside: the store takes one answer to each
            question.  Without one, calls that wait are carried by the client.
        signing_key: Seals what clients carry, 32 bytes or more: all processes that serve the same tools need the same
            key.  None: a new one, so that what waits is lost with the process.
        deps: What functions find in their `Context`: a value, or a function of (agent, extra, user) that makes it for
            each call, of which ``user`` is whom the server's login knows.
        limits: The budgets of each call.
        hooks: Objects that are told of events; see `fsm_agent.agents.hooks`.
        instructions: What the client's model is told about the server.
        version: The version of the server.
        answer_within_s: How many seconds a client may take to answer.

    Raises:
        UsageError: A tool needs a store, depends on others, or takes the conversation over; or the key is too short.
        ConfigError: The package ``mcp`` is missing.

    Examples:
        >>> @function
        ... def add(a: int, b: int) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> server = serve("sums", [add])                  # server.run_stdio(), or server.run_http(port=8000)
        >>> server.name
        'sums'
    """
    agent: Agent[Any, str] = Agent(Asked(), functions=functions, name=name, limits=limits, hooks=hooks, store=store)
    for item in agent.functions:
        for offered in item.functions if isinstance(item, Toolset) else (item,):
            if isinstance(offered, Function):
                _check(offered, has_store=store is not None)
    right = "a number of seconds above 0"
    check("answer_within_s", answer_within_s, isinstance(answer_within_s, int | float) and answer_within_s > 0, right)
    key = os.urandom(32) if signing_key is None else key_bytes(signing_key)
    server = ToolServer(agent, Seal(key, answer_within_s), deps, instructions=instructions, version=version)
    _ = server.official  # refuses a machine without the package
    return server


class ToolServer:
    """The server that `serve` returns.

    Args:
        agent: Makes the calls of its tools.
        seal: Protects the states that clients carry.
        deps: What functions find in their `Context`: a value, or a function of (agent, extra, user) that makes it for
            each call, of which ``user`` is whom the server's login knows.
        instructions: What the client's model is told about the server.
        version: The version of the server.

    Attributes:
        agent: Makes the calls of its tools: ``Worker([server.agent])`` continues what a process left behind.

    Examples:
        >>> @function
        ... def add(a: int, b: int) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> app = serve("sums", [add]).official.streamable_http_app()       # for uvicorn; the path is /mcp
        >>> type(app).__name__
        'Starlette'
    """

    def __init__(
        self, agent: Agent[Any, Any], seal: Seal, deps: Any = None, *, instructions: str = "", version: str = ""
    ) -> None:
        self.agent = agent
        self._seal = seal
        agent.check_deps(deps)
        self._deps = deps
        self._about = {"instructions": instructions or None, "version": version}

    @property
    def name(self) -> str:
        """Its name, and that of the agent."""
        return self.agent.name

    @cached_property
    def official(self) -> Server[Any]:
        """The server of the official package: for ``mcp.Client`` in a test, and its ``streamable_http_app(auth=…)``.

        Raises:
            ConfigError: The package ``mcp`` is missing.
        """
        try:
            from fsm_agent.mcp.serving.official import official_server
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
                raise
            problem = f"an MCP server needs a package that is not installed ({error}); pip install 'fsm-agent[mcp]'"
            raise ConfigError(problem) from error
        return official_server(self.agent, self._deps, self._seal.key, self._seal.valid_s, self._about)

    def run_stdio(self) -> None:
        """Serve one client over standard input and output, until it closes them."""
        from fsm_agent.mcp.serving.official import serve_stdio

        anyio.run(serve_stdio, self.official)

    def run_http(self, *, host: str = "127.0.0.1", port: int = 8000, ready: Callable[[str], Any] | None = None) -> None:
        """Serve any number of clients over HTTP on this machine, until the process is told to stop.

        A request whose ``Host`` or ``Origin`` names another machine is refused, so that no page of a website gets in.
        For other machines, put ``official.streamable_http_app(…)`` behind a server of yours, with a login.

        Args:
            host: An address of this machine.
            port: The port; 0: any that is free.
            ready: Called with the URL when the port is open.

        Raises:
            UsageError: The host can be reached from elsewhere.
        """
        import uvicorn
        from mcp.server.transport_security import TransportSecuritySettings

        if not _is_loopback(host):
            raise UsageError(
                f"host: expected an address of this machine alone, since the tools have no login, got {host!r:.80};"
                " pass"
                " '127.0.0.1', or put official.streamable_http_app(auth=…, token_verifier=…) into a server of yours"
            )
        shown = f"[{host}]" if ":" in host else host
        names = [f"{name}:*" for name in dict.fromkeys((shown, *_LOOPBACK_NAMES))]
        # By itself the package checks them at three addresses of the loopback range alone.
        security = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
        app = self.official.streamable_http_app(host=host, transport_security=security)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family) as listening:
            if ready is not None:
                ready(f"http://{shown}:{listening.getsockname()[1]}/mcp")
            config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=_SHUTDOWN_S)
            uvicorn.Server(config).run(sockets=[listening])


_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def _check(function: Function, *, has_store: bool) -> None:
    """Refuse a function that cannot be served.

    Raises:
        UsageError: It says why, and what was expected.
    """
    if problem := problem_of(function, has_store=has_store):
        raise UsageError(problem)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""The server of the official package, and its handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity, authenticated_principal
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from fsm_agent._internal.plain_text import plain
from fsm_agent.agents.agent import Agent
from fsm_agent.functions.context import deps_for
from fsm_agent.functions.function import Function
from fsm_agent.mcp.serving.calls import Calls, CarriedCalls, StoredCalls
from fsm_agent.mcp.serving.needs import needs_of, problem_of
from fsm_agent.mcp.serving.stdin import own_stdin
from fsm_agent.mcp.serving.tool_call import Asks, Result, error_result
from fsm_agent.prompts.prompt import Prompt

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

_MAX_NAME_CHARS = 64  # of a tool that does not exist, in an error


def official_server(
    agent: Agent[Any, Any], deps: Any, key: bytes, valid_s: float, about: Mapping[str, Any]
) -> Server[Any]:
    """Return a server whose tools are the functions of an agent.

    Args:
        agent: The agent.
        deps: What functions find in their `Context`; see `ToolServer`.
        key: Seals the states that clients carry.
        valid_s: How many seconds such a state is valid.
        about: What the server says about itself.
    """
    tools = Tools(agent, deps)
    server: Server[Any] = Server(agent.name, on_list_tools=tools.list, on_call_tool=tools.call, **about)
    security = RequestStateSecurity(keys=[key], ttl=valid_s)
    server.middleware.append(RequestStateBoundary(security, default_audience=agent.name))
    return server


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client over standard input and output, until it closes them."""
    with own_stdin() as lines:
        async with stdio_server(stdin=anyio.wrap_file(lines)) as (read, write):
            await server.run(read, write, server.create_initialization_options())


class Tools:
    """The handlers of a server.

    Args:
        agent: Its functions are the tools.
        deps: What they find in their `Context`.
    """

    def __init__(self, agent: Agent[Any, Any], deps: Any) -> None:
        self._agent = agent
        self._deps = deps
        self._has_store = agent.store is not None
        self._calls: Calls = (StoredCalls if self._has_store else CarriedCalls)(agent, deps)
        self._is_fixed = all(isinstance(item, Function) for item in agent.functions)

    async def list(self, context: Any, params: Any) -> types.ListToolsResult:
        """Return the tools that can be called now."""
        offered = await self._offered(context)
        served = [f for f in offered.values() if not problem_of(f, has_store=self._has_store)]
        return types.ListToolsResult(tools=[_tool(f) for f in served])

    async def call(self, context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams) -> Result:
        """Return the result of a tool, or what it needs of the client's user.

        Raises:
            MCPError: There is no such tool, or the server failed.
        """
        function = (await self._offered(context)).get(params.name)
        if function is None:
            raise MCPError(types.INVALID_PARAMS, f"unknown tool {plain(params.name[:_MAX_NAME_CHARS])!r}")
        if problem := problem_of(function, has_store=self._has_store):
            return error_result(problem)
        return await Asks(self._calls, needs_of(function), self._has_store, context, params).result()

    async def _offered(self, context: Any) -> Mapping[str, Function]:
        """Return the functions of a call that begins now, by name."""
        if self._is_fixed:
            return self._agent.prompt.by_name
        user = authenticated_principal(context) or ""
        return (await asyncio.to_thread(self._resolved, user)).by_name

    def _resolved(self, user: str) -> Prompt:
        deps = deps_for(self._deps, self._agent.name, {}, user)
        return self._agent.resolve_prompt(None, {"deps": deps})


def _tool(function: Function) -> types.Tool:
    hints = types.ToolAnnotations(destructive_hint=True, idempotent_hint=False) if function.once else None
    return types.Tool(
        name=function.name,
        description=function.description,
        input_schema=dict(function.parameters),
        annotations=hints,
    )

"""The link to an MCP server, which outlives its sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from fsm_agent.clients.log_masking import masked_logs
from fsm_agent.errors import FsmAgentError
from fsm_agent.mcp.background import background, is_mine
from fsm_agent.mcp.session import MCPToolError, Session, Target, described

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool


class Link:
    """Access to a server through its current session or the next one; only `tools_now` and `drop` are thread-safe."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._session: Session | None = None

    @property
    def tools_now(self) -> tuple[Tool, ...] | None:
        """Return the tools if they are listed already; from any thread, without waiting."""
        session = self._session
        return session.tools if session is not None and self._is_live(session) else None

    async def tools(self) -> tuple[Tool, ...]:
        """Return the tools of the server, which is started if needed."""
        with masked_logs(self.target.transport.secrets):
            return await self._tools_of(self._live())

    async def _tools_of(self, session: Session) -> tuple[Tool, ...]:
        await session.client()
        try:
            async with asyncio.timeout(self.target.start_timeout_s):
                return await session.listed()
        except TimeoutError:
            failure: FsmAgentError = self.target.failure(f"did not list its tools in {self.target.start_timeout_s:g} s")
        except Exception as error:
            failure = await self._understood(error, session, "its list of tools")
        try:
            raise failure  # outside of the handler, so that no traceback shows the server's own error
        finally:
            del failure  # raised, it holds this frame

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_s: float) -> CallToolResult:
        """Call a tool and return its result, which may report an error of its own.

        Raises:
            MCPToolError: It took too long, or the server refused the call.
            MCPServerError: The server cannot be reached, or ended meanwhile; the next call restarts it.
        """
        with masked_logs(self.target.transport.secrets):  # requests are logged in the context of their sender
            return await self._call(tool, arguments, timeout_s)

    async def _call(self, tool: str, arguments: Mapping[str, Any], timeout_s: float) -> CallToolResult:
        session = self._live()
        for may_repeat in (True, False):
            if not session.was_listed:  # the client checks results by the output schemas of the tools
                await self._tools_of(session)
            client = await session.client()
            try:
                async with asyncio.timeout(timeout_s):
                    return await client.call_tool(tool, _sendable(arguments))
            except TimeoutError:
                failure: FsmAgentError | None = MCPToolError(f"the tool {tool!r} did not answer in {timeout_s:g} s")
            except Exception as error:
                is_over = not (may_repeat and _is_forgotten(error))
                failure = await self._understood(error, session, f"the tool {tool!r}") if is_over else None
            if failure is not None:
                try:
                    raise failure  # outside of the handler, so that no traceback shows the server's own error
                finally:
                    del failure  # raised, it holds this frame
            session.let_go()  # a restarted HTTP server does not know the session, and has not run the call
            session = self._live()
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close the session; the next use opens another."""
        if self._session is not None and is_mine(self._session.home):
            await self._session.close()

    def drop(self) -> None:
        """End the session without waiting; from any thread."""
        session = self._session
        if session is not None and self._is_live(session):
            with suppress(RuntimeError):  # its loop has closed, and all sessions before
                session.home.loop.call_soon_threadsafe(session.let_go)

    def _live(self) -> Session:
        if self._session is None or not self._is_live(self._session):
            self._session = Session(self.target, background())
        return self._session

    def _is_live(self, session: Session) -> bool:
        return is_mine(session.home) and not session.has_ended

    async def _understood(self, error: Exception, session: Session, subject: str) -> FsmAgentError:
        if isinstance(error, FsmAgentError):
            return error
        if _is_closed(error):
            return self.target.failure(f"ended before {subject} answered", await session.last_words())
        return MCPToolError(self.target.scrubbed(f"{subject}: {described(error)}"))


def _sendable(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as JSON values: the package sends null for NaN, and ends the session at half a character.

    Raises:
        ValueError: They cannot be written as JSON.
    """
    sent: dict[str, Any] = to_jsonable_python(dict(arguments))
    json.dumps(sent, ensure_ascii=False, allow_nan=False).encode()
    return sent


def _is_closed(error: Exception) -> bool:
    """Return True if the connection ended before the answer; servers use the same code for errors of any kind."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and (error.code, str(error)) == (CONNECTION_CLOSED, "Connection closed")


def _is_forgotten(error: Exception) -> bool:
    """Return True if an HTTP server answered 404 because it does not know the session, so that a new one is needed.

    https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
    """
    from mcp import MCPError
    from mcp_types import INVALID_REQUEST

    return isinstance(error, MCPError) and (error.code, str(error)) == (INVALID_REQUEST, "Session terminated")

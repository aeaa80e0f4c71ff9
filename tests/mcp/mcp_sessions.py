"""The end of all sessions with MCP servers in this OS process."""

from __future__ import annotations

import asyncio

from fsm_agent.mcp.session import background


def end_sessions() -> None:
    """Return when all have ended, and the loop of the background has nothing left to do for them."""

    async def end() -> None:
        await asyncio.gather(*[close() for close in background().at_end])
        for _ in range(10):  # the rounds in which the loop closes pipes and connections
            await asyncio.sleep(0)

    background().submit(end()).result(30)

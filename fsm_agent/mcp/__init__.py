"""Tools of MCP servers as functions of agents, with the official package as the client."""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.mcp.client import MCPServer as MCPServer
    from fsm_agent.mcp.client import MCPServerError as MCPServerError
    from fsm_agent.mcp.client import MCPToolError as MCPToolError
    from fsm_agent.mcp.config import mcp_servers as mcp_servers
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "client": "MCPServer MCPServerError MCPToolError",
            "config": "mcp_servers",
        },
    )

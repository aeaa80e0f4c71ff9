"""Tools of MCP servers as functions of agents, and functions, agents and flows as tools of a server.

The official package is the client, and the server.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.mcp.client import MCPServer as MCPServer
    from fsm_agent.mcp.client import MCPServerError as MCPServerError
    from fsm_agent.mcp.client import MCPToolError as MCPToolError
    from fsm_agent.mcp.config import mcp_servers as mcp_servers
    from fsm_agent.mcp.serving.tool_server import ToolServer as ToolServer
    from fsm_agent.mcp.serving.tool_server import serve as serve
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "client": "MCPServer MCPServerError MCPToolError",
            "config": "mcp_servers",
            "serving.tool_server": "ToolServer serve",
        },
    )

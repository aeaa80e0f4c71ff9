"""Tools of MCP servers as functions of agents, and functions, agents and flows as tools of a server.

The official package is the client, and the server.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.mcp.client import MCPServer as MCPServer
    from fsm_agent.mcp.client import mcp_servers as mcp_servers
    from fsm_agent.mcp.server import ToolServer as ToolServer
    from fsm_agent.mcp.server import serve as serve
    from fsm_agent.mcp.session import MCPServerError as MCPServerError
    from fsm_agent.mcp.session import MCPToolError as MCPToolError
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "client": "MCPServer mcp_servers",
            "server": "ToolServer serve",
            "session": "MCPServerError MCPToolError",
        },
    )

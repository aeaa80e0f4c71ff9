"""Tools of MCP servers as functions of agents, and functions, agents and flows as tools of a server.

The official package is the client, and the server.
"""

from fsm_agent.mcp.client import MCPServer, mcp_servers
from fsm_agent.mcp.server import ToolServer, serve
from fsm_agent.mcp.session import MCPServerError, MCPToolError

__all__ = ["MCPServer", "MCPServerError", "MCPToolError", "ToolServer", "mcp_servers", "serve"]

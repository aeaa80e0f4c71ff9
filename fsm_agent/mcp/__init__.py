"""MCP servers' tools as functions for agents, and functions, agents and flows as tools on an MCP server.

The official package ``mcp`` provides the client and the server.
"""

import fsm_agent.agents  # before its modules; see CONTRIBUTING.md
from fsm_agent.mcp.client import MCPServer, mcp_servers
from fsm_agent.mcp.server import ToolServer, serve
from fsm_agent.mcp.session import MCPServerError, MCPToolError

__all__ = ["MCPServer", "MCPServerError", "MCPToolError", "ToolServer", "mcp_servers", "serve"]

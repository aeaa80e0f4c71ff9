"""Tools of MCP servers as functions of agents, with the official package as the client."""

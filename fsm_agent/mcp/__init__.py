"""How does an agent use the tools of MCP servers?  With the official package as the client."""

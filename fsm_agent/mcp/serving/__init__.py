"""Functions, agents and flows as tools of an MCP server, with the official package as the server.

`tool_server` is what users see.  `official` loads the package, and has the handlers of its server.  `tool_call` turns a
request into an agent call of `calls`.  `forms` put questions into words for the client's user, and `needs` finds what
must not be served without a store.
"""

"""An MCP server made with the official package, over stdio or (``http``) on a port of loopback that it prints."""

from __future__ import annotations

import base64
import os
import socket
import sys

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import BlobResourceContents, EmbeddedResource, ResourceLink, TextContent, TextResourceContents
from pydantic import BaseModel

DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)

server = MCPServer("new", log_level="ERROR")


class Person(BaseModel):
    name: str
    age: int | None = None


@server.tool()
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool(name="people.all")
def people() -> list[Person]:
    """Everybody."""
    return [Person(name="Ada", age=36), Person(name="Bob")]


@server.tool()
def picture() -> list[str | Image]:
    """A picture with words around it."""
    return ["before", Image(data=DOT), "after", "the end"]


@server.tool()
def report() -> list[EmbeddedResource | ResourceLink | TextContent]:
    """All kinds of resources."""
    text = TextResourceContents(uri="file:///notes.txt", text="the notes")
    pdf = BlobResourceContents(uri="file:///a%20b.pdf", mime_type="application/pdf", blob="JVBERi0xLjQ=")
    link = ResourceLink(name="more", uri="https://example.invalid/more", mime_type="text/html")
    return [EmbeddedResource(resource=text), EmbeddedResource(resource=pdf), link]


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError(f"no luck with {os.environ.get('SECRET')}")


@server.tool()
async def wait() -> str:
    """Wait forever."""
    await anyio.sleep_forever()
    return "never"


@server.tool()
def die() -> str:
    """End the process."""
    os._exit(3)


@server.tool()
async def grow(ctx: Context) -> str:
    """Add a tool and say so."""
    server.add_tool(lambda: "tall", name="grown", description="Say how tall.")
    await ctx.notify_tools_changed()
    return "grown"


def serve_http() -> None:
    """Serve on a free port, and print it."""
    import uvicorn

    app = server.streamable_http_app()
    app.routes.extend(server.sse_app().routes)
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    serve_http() if sys.argv[1:] == ["http"] else server.run()

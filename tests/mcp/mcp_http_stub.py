"""An MCP server of the protocol of 2025-06-18 over HTTP, by hand: it forgets sessions, and says what a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.http_stub import HttpStubServer


class HttpStub(HttpStubServer):
    """One tool, ``ask``; ``answer`` says what comes of a call of it.

    Attributes:
        heard: Every request: its method on HTTP, its method in MCP, its headers.
        sessions: The ids of those that are known.
        forgets: Whether a session is forgotten before it is used.
        answer: The body of the answer to a call.
        pages: The pages of its tools.
    """

    def __init__(self, port: int = 0) -> None:
        self.heard: list[tuple[str, str, dict[str, str]]] = []
        self.sessions: list[str] = []
        self.forgets = False
        self.answer: Callable[[Any], bytes] = lambda id: self.body(id, {"content": [{"type": "text", "text": "yes"}]})
        self.pages: Sequence[list[dict[str, Any]]] = [[{"name": "ask", "inputSchema": {"type": "object"}}]]
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"  # a connection for each request: no thread outlives the server

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                method, id = message["method"], message.get("id")
                self.hear(method)
                if method == "initialize":
                    stub.sessions.append(f"session-{len(stub.heard)}")
                    info = {"name": "stub", "version": "1"}
                    result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
                    self.reply(200, stub.body(id, result), stub.sessions[-1])
                elif method == "server/discover":
                    self.reply(400, b"")
                elif self.headers.get("mcp-session-id") not in stub.known(method):
                    self.reply(404, b"")
                elif id is None:
                    self.reply(202, b"")
                elif method == "tools/list":
                    number = int((message.get("params") or {}).get("cursor") or 0)
                    more = {"nextCursor": str(number + 1)} if number + 1 < len(stub.pages) else {}
                    self.reply(200, stub.body(id, {"tools": stub.pages[number], **more}))
                else:
                    self.reply(200, stub.answer(id))

            def do_GET(self) -> None:
                self.hear("")
                self.reply(405, b"")

            def do_DELETE(self) -> None:
                self.hear("")
                self.reply(200, b"")

            def hear(self, method: str) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                stub.heard.append((self.command, method, headers))

            def reply(self, status: int, body: bytes, session: str = "") -> None:
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                if session:
                    self.send_header("mcp-session-id", session)
                self.end_headers()
                self.wfile.write(body)

        super().__init__(Handler, port)
        self.url = f"{self.root}/mcp"

    def known(self, method: str) -> list[str]:
        """The sessions that may use a method."""
        return [] if self.forgets and method == "tools/call" else self.sessions

    @staticmethod
    def body(id: Any, result: Any) -> bytes:
        """The answer to a request."""
        return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()

"""An MCP server of the protocol of 2025-06-18 over HTTP, by hand and in memory: it forgets sessions, and says what a
test wants."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Self

import httpx2
import pytest

ANY = {"type": "object"}


def text(said: str, **more: Any) -> dict[str, Any]:
    """The result of a call that says something."""
    return {"content": [{"type": "text", "text": said}], **more}


class _Chunks(httpx2.AsyncByteStream):
    def __init__(self, content: bytes, size_bytes: int) -> None:
        self._chunks = [content[start : start + size_bytes] for start in range(0, len(content), size_bytes)]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


class HttpStub:
    """An MCP server with one tool, ``ask``.  ``answer`` is the answer to its calls, and ``tools`` answers calls of
    other tools.

    Attributes:
        heard: Every request: its HTTP method, its MCP method, its headers.
        sessions: The ids of the known sessions.
        answer: The body of the answer to a call.
        tools: Functions by tool, which make the result from the arguments; they may wait.
        pages: The pages of the list of tools.
        status: The status of all answers, if it is not 200.
        kind: The type of all bodies: JSON, or a stream of one event.
        chunk_bytes: How many bytes of a body are sent at a time.
        is_away: Whether the server does not listen.
    """

    url = "http://127.0.0.1:9/mcp"

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, dict[str, str]]] = []
        self.sessions: list[str] = []
        self.status, self.is_away = 200, False
        self.kind, self.chunk_bytes = "application/json", 1 << 20
        self.answer: Callable[[Any], bytes] = lambda id: self.body(id, text("yes"))
        self.tools: dict[str, Callable[..., Any]] = {}
        self.pages: Sequence[list[dict[str, Any]]] = [[{"name": "ask", "inputSchema": ANY}]]
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Self:
        async def handle(transport: Any, request: httpx2.Request) -> httpx2.Response:
            body = await request.aread()
            if self.is_away:
                raise httpx2.ConnectError("All connection attempts failed", request=request)
            status, content, session = await self.reply(request, json.loads(body) if body else {})
            headers = {"content-type": self.kind, **({"mcp-session-id": session} if session else {})}
            if content and self.kind == "text/event-stream":
                content = b"event: message\ndata: " + content + b"\n\n"
            return httpx2.Response(status, headers=headers, stream=_Chunks(content, self.chunk_bytes))

        self._patch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    async def reply(self, request: httpx2.Request, message: dict[str, Any]) -> tuple[int, bytes, str]:
        """The status of an answer, its body, and the session that is begun."""
        method, id = message.get("method", ""), message.get("id")
        self.heard.append((request.method, method, {**request.headers}))
        if self.status != 200:
            return self.status, b"", ""
        if request.method != "POST":
            return 405 if request.method == "GET" else 200, b"", ""
        if method == "initialize":
            self.sessions.append(f"session-{len(self.heard)}")
            info = {"name": "stub", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            return 200, self.body(id, result), self.sessions[-1]
        if method == "server/discover":
            return 400, b"", ""
        if request.headers.get("mcp-session-id") not in self.sessions:
            return 404, b"", ""
        if id is None:
            return 202, b"", ""
        params = message.get("params") or {}
        if method == "tools/list":
            number = int(params.get("cursor") or 0)
            more = {"nextCursor": str(number + 1)} if number + 1 < len(self.pages) else {}
            return 200, self.body(id, {"tools": self.pages[number], **more}), ""
        if (made := self.tools.get(params.get("name"))) is not None:
            result = made(**params.get("arguments", {}))
            return 200, self.body(id, await result if hasattr(result, "__await__") else result), ""
        return 200, self.answer(id), ""

    @staticmethod
    def body(id: Any, result: Any) -> bytes:
        """The answer to a request."""
        return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()

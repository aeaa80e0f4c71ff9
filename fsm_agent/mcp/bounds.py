"""Bounds on HTTP bodies of MCP servers.

The official client bounds each event of a stream, but reads any other body to its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

MAX_BYTES = 32 * 1024 * 1024  # a picture is one body, or one event


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size_bytes = 0
        async for chunk in self._stream:
            size_bytes += len(chunk)
            if size_bytes > MAX_BYTES:
                raise httpx2.StreamError(f"the answer is longer than {MAX_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


async def bound(response: httpx2.Response) -> None:
    """Bound the body of a response, unless it is an event stream."""
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise httpx2.DecodingError(f"the answer came as {encoding!r}, which was not asked for")
    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream)

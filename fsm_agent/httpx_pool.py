"""How does a request of an event loop travel over httpx's own client, or over a transport that somebody brings?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import httpx

from fsm_agent.log_masking import masked_logs
from fsm_agent.sending import Sending


class Body:
    """A response of httpx; see `fsm_agent.http_pool.Body`."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._pieces: AsyncIterator[bytes] | None = None
        self.status = response.status_code
        self.headers = response.headers.raw
        self.is_decoded = response.is_stream_consumed  # as the mock transport makes them

    async def read(self) -> bytes:
        """The next bytes; b"" at their end."""
        if self._pieces is None:
            if self._response.is_stream_consumed:
                self._pieces = _the_whole(self._response)
            else:
                self._pieces = aiter(cast("httpx.AsyncByteStream", self._response.stream))
        while (data := await anext(self._pieces, None)) is not None:
            if data:
                return data
        return b""

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._response.aclose()


async def _the_whole(response: httpx.Response) -> AsyncIterator[bytes]:
    yield response.content


class HttpxPool:
    """An `httpx.AsyncClient` as a pool; see `fsm_agent.http_pool.AsyncPool`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def send(self, sending: Sending) -> Body:
        """Send a request; the response must be closed."""
        request = sending.request(is_async=True)
        with masked_logs(request):
            return Body(await self._client.send(request, stream=True))

    async def aclose(self) -> None:
        """Hang up on everybody."""
        await self._client.aclose()

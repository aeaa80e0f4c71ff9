"""Connections of aiohttp under httpx.

httpx's own pool looks at every connection for every request: 500 requests at once take it 7.5 ms of processor time
each, and aiohttp 0.3 ms (httpcore 1.0.9; measured).
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import httpx

KEPT_S = 30.0  # for an unused connection to stay open
# How aiohttp's errors of a failed upload begin (3.13); the rest is an error number, or None, and the URL with its key.
_UPLOAD_FAILED = ("Can not write request body", "Failed to send bytes")
MAX_LINE_BYTES = 65536  # of the status line, and of each header; there may be 128 of them


class AiohttpTransport(httpx.AsyncBaseTransport):
    """A transport over the running event loop; without cookies, and for any number of requests at once.

    Args:
        trust: The TLS context of all connections.
    """

    def __init__(self, trust: ssl.SSLContext) -> None:
        self._session = aiohttp.ClientSession(
            connector=_Connector(limit=0, keepalive_timeout=KEPT_S, ssl=trust),
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            auto_decompress=False,  # which has no bound
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; return the response once its head has arrived.

        Raises:
            aiohttp.ClientError: If there is no response; see `as_error_of_httpx`.
        """
        body, timeouts = request.stream, request.extensions["timeout"]
        response = await self._session.request(
            request.method,
            str(request.url),
            headers=request.headers.multi_items(),
            data=b"".join(body) if isinstance(body, httpx.ByteStream) else body,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(connect=timeouts["connect"], sock_read=timeouts["read"]),
        )
        return httpx.Response(response.status, headers=response.raw_headers, stream=_Body(response))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()

    def forget(self) -> None:
        """Leave the connections alone: those of a closed event loop, or in a forked child those of its parent."""
        self._session.detach()


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_any()

    async def aclose(self) -> None:
        self._response.release()
        await self._response.wait_for_close()


class _Connector(aiohttp.TCPConnector):
    """Connections that end at once; but a forked child closes none, as it shares the selector of its parent's loop."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._pid = os.getpid()

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        _end(protocol, is_over=should_close or protocol.should_close)
        super()._release(key, protocol, should_close=should_close)

    async def _get(self, key: Any, traces: Any) -> Any:
        connection: Any = await super()._get(key, traces)
        while connection is not None and connection.protocol.should_close:
            connection.close()  # what the server has said unasked would be taken for the reply to the next request
            connection = await super()._get(key, traces)
        return connection

    async def close(self, **options: Any) -> None:
        for protocol in self._acquired:
            _end(protocol, is_over=True)
        await super().close(**options)

    def __del__(self, *warnings: Any) -> None:
        if self._pid == os.getpid() and not self._loop.is_closed():
            super().__del__(*warnings)


def _end(protocol: Any, *, is_over: bool) -> None:
    """End a connection that is over or still sending: closing it would wait for the server to read, or to end TLS."""
    transport: asyncio.Transport | None = protocol.transport
    if transport is not None and (is_over or transport.get_write_buffer_size()):
        transport.abort()


def as_error_of_httpx(error: BaseException) -> httpx.TransportError | None:
    """Return the error that httpx's own transport would raise, or None if this is not an error of aiohttp.

    `httpx_aiohttp`, under a user's client, lets some pass, and takes others for `httpx.ConnectTimeout` (0.2.0).  The
    error has no cause of aiohttp, which would show the headers of the request.
    """
    cause = error if isinstance(error, aiohttp.ClientError) else error.__cause__
    root = cause
    while root is not None and _is_of_aiohttp(root):
        root = root.__cause__ or root.__context__
    match cause:
        case aiohttp.ClientConnectorError():  # before its base `ClientOSError`
            failure: httpx.TransportError = httpx.ConnectError(str(root or cause) or type(root).__name__)
        case aiohttp.ConnectionTimeoutError():
            failure = httpx.ConnectTimeout("")
        case aiohttp.ServerTimeoutError():
            failure = httpx.ReadTimeout("")
        case aiohttp.ClientResponseError():
            failure = httpx.RemoteProtocolError(" ".join(cause.message.split()))
        case aiohttp.ClientPayloadError():
            failure = httpx.RemoteProtocolError("the body is incomplete or damaged")
        case aiohttp.ServerDisconnectedError():
            failure = httpx.RemoteProtocolError(str(cause))
        case aiohttp.ClientError() if any(words in str(cause) for words in _UPLOAD_FAILED):
            failure = httpx.WriteError("the connection was closed while the request was sent")
        case aiohttp.ClientError():
            failure = httpx.ReadError(str(cause))
        case _:
            return None
    failure.__cause__ = root if isinstance(root, ssl.SSLError) else None
    return failure


def _is_of_aiohttp(error: BaseException) -> bool:
    return type(error).__module__.startswith("aiohttp.")

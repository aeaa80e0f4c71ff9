"""An httpx transport that uses aiohttp's connections.

With 500 concurrent requests, httpx's own pool takes 7.5 ms of processor time per request, because it looks at every
connection each time, whereas aiohttp takes 0.3 ms (measured with httpcore 1.0.9).
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import httpx

from fsm_agent.clients.http_exchange import HAS_ARRIVED

KEPT_S = 30.0  # how long an unused connection stays open
# The beginnings of aiohttp's messages about a failed upload (3.13).  The rest may show the key in the URL.
_UPLOAD_FAILED = ("Can not write request body", "Failed to send bytes")
MAX_LINE_BYTES = 65536  # for the status line, and for each of at most 128 headers


class AiohttpTransport(httpx.AsyncBaseTransport):
    """A transport for the running event loop, without cookies and without a limit on concurrent requests."""

    def __init__(self, trust: ssl.SSLContext) -> None:
        self._session = aiohttp.ClientSession(
            connector=_Connector(limit=0, keepalive_timeout=KEPT_S, ssl=trust),
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            auto_decompress=False,  # aiohttp's decompression has no limit
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return the response once its headers have arrived.

        Raises:
            aiohttp.ClientError: If there is no response; see `as_error_of_httpx`.
        """
        body, timeouts = request.stream, request.extensions["timeout"]
        response = await self._session.request(
            request.method,
            str(request.url),
            headers=[(name.decode("ascii"), value.decode("ascii")) for name, value in request.headers.raw],
            data=b"".join(body) if isinstance(body, httpx.ByteStream) else body,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(connect=timeouts["connect"], sock_read=timeouts["read"]),
        )
        return httpx.Response(
            response.status,
            headers=response.raw_headers,
            stream=_Body(response),
            extensions={HAS_ARRIVED: response.content.is_eof},
        )

    async def aclose(self) -> None:
        await self._session.close()

    def forget(self) -> None:
        """Drop all connections without closing them.

        Call this when their event loop is closed or belongs to the parent process.
        """
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
    """A connector that aborts connections instead of closing them slowly.

    A forked child aborts none, because it shares the selector with the parent's event loop.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._pid = os.getpid()

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        _end(protocol, is_over=should_close or protocol.should_close)
        super()._release(key, protocol, should_close=should_close)

    async def _get(self, key: Any, traces: Any) -> Any:
        connection: Any = await super()._get(key, traces)
        while connection is not None and connection.protocol.should_close:
            connection.close()  # unsolicited bytes from the server would be read as the next reply
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
    """Abort a connection that has ended or is still sending, because `close` would wait for the server."""
    transport: asyncio.Transport | None = protocol.transport
    if transport is not None and (is_over or transport.get_write_buffer_size()):
        transport.abort()


def as_error_of_httpx(error: BaseException) -> httpx.TransportError | None:
    """Return the error that httpx's own transport would raise, or None if ``error`` does not come from aiohttp.

    `httpx_aiohttp` 0.2.0, which a user's client may use, lets some errors through and turns others into
    `httpx.ConnectTimeout`.  aiohttp's error is not set as the cause of the result, because it would show the request's
    headers.
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

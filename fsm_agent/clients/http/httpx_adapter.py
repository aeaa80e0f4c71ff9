"""Transports over httpx: for proxies, HTTP/2, and transports that users bring.

httpcore, which httpx uses, leaves bytes behind a response in its parser and takes them for the response to the next
request (1.0.9; observed).  So every HTTP/1.1 request asks for a connection of its own; HTTP/2 has neither the header
nor the problem.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, cast

import httpx

from fsm_agent._internal.redaction import EXTENSION
from fsm_agent.clients.http.http1 import PIECE_BYTES
from fsm_agent.clients.http.request import Deadline, OutgoingRequest
from fsm_agent.clients.http.sockets import shut_down
from fsm_agent.clients.log_masking import masked_logs


def _request(request: OutgoingRequest, **extensions: object) -> httpx.Request:
    head = request.head
    headers = head.headers.copy()
    headers["connection"] = "close"
    extensions[EXTENSION] = request.secrets
    made = httpx.Request("POST", head.url, headers=headers, content=request.content, extensions=extensions)
    made.stream = _Pieces(request.content)
    return made


class _Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The content of a request in pieces, each with its own write timeout."""

    def __init__(self, content: bytes) -> None:
        self._pieces = [content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)]

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


class HttpxTransport:
    """An `httpx.Client`; see `Transport`."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._watches = set[_Watch]()

    def send(self, request: OutgoingRequest) -> HttpxResponse:
        """Send a request; the response must be closed."""
        watch = _Watch(request, self._watches)
        try:
            sent = _request(request, timeout=watch.timeouts, trace=watch.trace)
            with masked_logs(sent):
                return HttpxResponse(self._client.send(sent, stream=True), watch)
        except BaseException:
            watch.end()
            raise

    def close(self) -> None:
        """Close all connections."""
        for watch in self._watches.copy():
            watch.hang_up()
        self._client.close()


class _Watch:
    """Enforces the deadline and abort of a sync request: httpcore reads its timeouts only when a step begins.

    An HTTP/2 connection is shared, so it is not closed: there the deadline is checked when bytes arrive.

    Attributes:
        timeouts: Seconds for each step, at this moment; httpcore reads them.
    """

    def __init__(self, request: OutgoingRequest, watches: set[_Watch]) -> None:
        self.timeouts: dict[str, float] = {}
        self._request = request
        self._watches = watches
        self._socket: socket.socket | None = None
        self._is_over = False
        self._timer: threading.Timer | None = None
        self._deadline: Deadline | None = None  # that of the timer
        self.bound()
        watches.add(self)
        if request.abort is not None:
            request.abort.add(self.hang_up)

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Handle a trace event of httpcore, a step by its name."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            stream = info["return_value"]
            tls = stream.get_extra_info("ssl_object")
            is_shared = tls is not None and tls.selected_alpn_protocol() == "h2"
            self._socket = None if is_shared else stream.get_extra_info("socket")
            if self._is_over:
                self.hang_up()
        self.bound()

    def bound(self) -> None:
        """Bound the timeout of each step by the time left."""
        deadline = self._request.deadline
        self.timeouts.update({step: deadline.within(limit_s) for step, limit_s in self._request.limits.items()})
        if self._socket is not None and deadline is not self._deadline:
            self._deadline = deadline
            self._set_timer(deadline.time_left())

    def _set_timer(self, left_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if left_s is not None:
            self._timer = threading.Timer(max(0.0, left_s), self.hang_up)
            self._timer.daemon = True
            self._timer.start()

    def hang_up(self) -> None:
        """End the request, in any thread."""
        self._is_over = True
        if self._socket is not None:
            shut_down(self._socket)

    def check(self) -> None:
        """Raise if the request was ended: then the end of the bytes is not the end of the response."""
        if self._is_over:
            raise httpx.ReadError("another thread hung up")

    def end(self) -> None:
        """Stop watching."""
        self._watches.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._request.abort is not None:
            self._request.abort.discard(self.hang_up)


class HttpxResponse:
    """A response of httpx; see `Response`."""

    def __init__(self, response: httpx.Response, watch: _Watch) -> None:
        self.status = response.status_code
        self.headers = response.headers.raw
        self.is_decoded = response.is_stream_consumed  # as the mock transport makes them
        self._response = response
        self._watch = watch
        self._pieces: Iterator[bytes] | None = None

    def read(self) -> bytes:
        """Return the next bytes of the body; b"" at its end."""
        self._watch.bound()
        if self._pieces is None:
            stream = cast("httpx.SyncByteStream", self._response.stream)
            self._pieces = filter(None, [self._response.content] if self.is_decoded else stream)
        data = next(self._pieces, b"")
        if not data:
            self._watch.check()
        return data

    def close(self) -> None:
        """Close the response; safe to repeat."""
        self._watch.end()
        self._response.close()


class AsyncHttpxTransport:
    """An `httpx.AsyncClient`; see `AsyncTransport`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._sending = set[asyncio.Timeout]()

    async def send(self, request: OutgoingRequest) -> AsyncHttpxResponse:
        """Send a request; the response must be closed."""
        timeouts = dict(request.limits)
        sent = _request(request, timeout=timeouts)
        try:
            async with asyncio.timeout(None) as timeout:
                self._sending.add(timeout)
                with masked_logs(sent):
                    return AsyncHttpxResponse(await self._client.send(sent, stream=True), request, timeouts)
        except TimeoutError as error:
            raise httpx.ReadError("the client was closed") from error
        finally:
            self._sending.discard(timeout)

    async def aclose(self) -> None:
        """Close all connections."""
        for timeout in self._sending:  # httpcore does not wake requests that wait for a connection
            timeout.reschedule(0)
        await self._client.aclose()


class AsyncHttpxResponse:
    """A response of httpx; see `AsyncResponse`."""

    def __init__(self, response: httpx.Response, request: OutgoingRequest, timeouts: dict[str, float]) -> None:
        self.status = response.status_code
        self.headers = response.headers.raw
        self.is_decoded = response.is_stream_consumed
        self._response = response
        self._request = request
        self._timeouts = timeouts
        self._pieces: AsyncIterator[bytes] | None = None

    async def read(self) -> bytes:
        """Return the next bytes of the body; b"" at its end."""
        if self._pieces is None:
            self._timeouts.update(self._request.limits)
            stream = cast("httpx.AsyncByteStream", self._response.stream)
            self._pieces = _whole(self._response) if self.is_decoded else aiter(stream)
        while (data := await anext(self._pieces, None)) is not None:
            if data:
                return data
        return b""

    async def aclose(self) -> None:
        """Close the response; safe to repeat."""
        await self._response.aclose()


async def _whole(response: httpx.Response) -> AsyncIterator[bytes]:
    yield response.content

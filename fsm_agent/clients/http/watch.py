"""Deadlines, aborts and closing over transports that do not support them.

Only the package's own transports do.  The others are httpx's, for proxies and HTTP/2, and those of clients that a user
brings.  Most are built on httpcore, which reports its steps to the ``trace`` extension of a request.  That suffices to
shut its socket down, and to work around a bug: httpcore keeps bytes that follow a response in its parser, and takes
them for the response to the next request (1.0.9; observed).  So each HTTP/1.1 request gets a connection of its own.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from typing import Any, TypeVar

import httpx

from fsm_agent.clients.http.http1 import PIECE_BYTES
from fsm_agent.clients.http.prepared_request import Deadline
from fsm_agent.clients.http.sockets import shut_down
from fsm_agent.runtime.abort import Abort

T = TypeVar("T")


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The content of a request in pieces, each with its own write timeout."""

    def __init__(self, content: bytes) -> None:
        self._pieces = [content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)]

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def _ask_to_close(event: str, info: Mapping[str, Any]) -> None:
    """Have httpcore close the connection after this request, if it is one of HTTP/1.1."""
    if event == "http11.send_request_headers.started" and (request := info["request"]).method != b"CONNECT":
        others = [(name, value) for name, value in request.headers if name.lower() != b"connection"]
        request.headers[:] = [*others, (b"Connection", b"close")]


class Watch:
    """Ends one request of a thread.

    An HTTP/2 connection is shared, so it is not closed: there the deadline is checked when bytes arrive.

    Args:
        limits: Seconds for each piece of the steps connect, read, write and pool.
        deadline: The end of the whole request; it may be moved meanwhile.
        abort: The means to end it from another thread.
        watches: The watches of all requests under way; this one is in it until it ends.

    Attributes:
        timeouts: The limits, until the deadline at most; httpcore reads each when its step begins.
    """

    def __init__(
        self, limits: Mapping[str, float], deadline: Deadline, abort: Abort | None, watches: set[Watch]
    ) -> None:
        self.timeouts: dict[str, float] = {}
        self._limits = limits
        self._deadline = deadline
        self._abort = abort
        self._watches = watches
        self._socket: socket.socket | None = None
        self._is_over = False
        self._timer: threading.Timer | None = None
        self._timer_at_s: float | None = None
        self.bound()
        watches.add(self)
        if abort is not None:
            abort.add(self.hang_up)

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Handle an event of httpcore."""
        _ask_to_close(event, info)
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            stream = info["return_value"]
            tls = stream.get_extra_info("ssl_object")
            is_shared = tls is not None and tls.selected_alpn_protocol() == "h2"
            self._socket = None if is_shared else stream.get_extra_info("socket")
            if self._is_over:
                self.hang_up()
        self.bound()

    def bound(self) -> None:
        """Bound each timeout by the time left, and have the connection closed when there is none."""
        deadline = self._deadline
        self.timeouts.update({step: deadline.within(limit_s) for step, limit_s in self._limits.items()})
        if self._socket is not None and deadline.at_s != self._timer_at_s:
            self._timer_at_s = deadline.at_s
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(max(0.0, deadline.time_left() or 0.0), self.hang_up)
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

    def follow(self, response: httpx.Response) -> None:
        """Watch until the response is closed, too."""
        if response.is_closed:
            self.end()
        else:
            response.stream = _WatchedBody(response.stream, self)

    def end(self) -> None:
        """Stop watching."""
        self._watches.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._abort is not None:
            self._abort.discard(self.hang_up)


class _WatchedBody(httpx.SyncByteStream):
    """The body of a response under a `Watch`."""

    def __init__(self, body: Any, watch: Watch) -> None:
        self._body: httpx.SyncByteStream = body
        self._watch = watch

    def __iter__(self) -> Iterator[bytes]:
        self._watch.bound()
        for data in self._body:
            yield data
            self._watch.bound()
        self._watch.check()

    def close(self) -> None:
        self._watch.end()
        self._body.close()


class AsyncWatch:
    """Ends the requests of one event loop."""

    def __init__(self) -> None:
        self._steps = set[asyncio.Timeout]()  # those that are waited for
        self._is_over = False

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Handle an event of httpcore."""
        _ask_to_close(event, info)

    async def wait(self, step: Awaitable[T], deadline: Deadline) -> T:
        """Return the result of a step of a request.

        Raises:
            httpx.ReadTimeout: It has none before the deadline.
            httpx.ReadError: `hang_up` was called.
        """
        try:
            async with asyncio.timeout(0 if self._is_over else deadline.time_left()) as timeout:
                self._steps.add(timeout)
                return await step
        except TimeoutError as error:
            if timeout.expired() and not deadline.is_over:
                raise httpx.ReadError("the client was closed") from error
            raise httpx.ReadTimeout("") from error
        finally:
            self._steps.discard(timeout)

    def hang_up(self) -> None:
        """End all requests, for good; httpcore itself does not wake those that wait for a connection."""
        self._is_over = True
        for timeout in self._steps:
            if not timeout.expired():
                timeout.reschedule(0)

    def follow(self, response: httpx.Response, deadline: Deadline) -> None:
        """Watch until the response is closed, too."""
        if not response.is_closed:
            response.stream = _AsyncWatchedBody(response.stream, self, deadline)


class _AsyncWatchedBody(httpx.AsyncByteStream):
    """The body of a response under an `AsyncWatch`."""

    def __init__(self, body: Any, watch: AsyncWatch, deadline: Deadline) -> None:
        self._body: httpx.AsyncByteStream = body
        self._pieces = aiter(self._body)
        self._watch = watch
        self._deadline = deadline

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        data: bytes | None = await self._watch.wait(anext(self._pieces, None), self._deadline)
        if data is None:
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        await self._body.aclose()

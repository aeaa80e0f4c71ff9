"""One HTTP/1.1 connection of an event loop."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httpx

from fsm_agent.clients.http.http1 import PIECE_BYTES, Http1, ResponseHead
from fsm_agent.clients.http.request import Origin, PoolRequest
from fsm_agent.clients.http.sockets import is_readable


class AsyncConnection(asyncio.Protocol):
    """A connection that serves one request at a time.

    Args:
        origin: The server it connects to.

    Attributes:
        connecting: The timeout of connecting, until it is connected.
    """

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.idle_since_s = 0.0
        self.connecting: asyncio.Timeout | None = None
        self._http1 = Http1()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._late_s = 0.0  # when the waiter's time is up
        self._late: type[httpx.TimeoutException] = httpx.ReadTimeout
        self._timer: asyncio.TimerHandle | None = None
        self._error: tuple[type[httpx.TransportError], str] | None = None  # raised, it would hold what holds it
        self._is_busy = False
        self._is_writable = True
        self._is_paused = False

    @property
    def is_open(self) -> bool:
        """True once connected."""
        return self._transport is not None

    @property
    def was_ignored(self) -> bool:
        """True if the server did not read the last request: see `Http1.was_ignored`."""
        return self._http1.was_ignored

    async def send(self, request: PoolRequest) -> ResponseHead:
        """Send a request; return the head of its response.

        Raises:
            httpx.TransportError: There is no response.
        """
        transport, http1 = self._transport, self._http1
        data = http1.begin(request)
        self.check()
        if transport is None or transport.is_closing():
            raise httpx.WriteError("the connection is closed")
        self._is_busy = True
        http1.is_sent = await self._write(transport, data, request)
        while http1.head is None:
            self.check()
            await self._wait(request, "read", httpx.ReadTimeout)
        return http1.head

    async def _write(self, transport: asyncio.Transport, data: bytes, request: PoolRequest) -> bool:
        """Send piece by piece; return True if the server took all of it."""
        transport.write(data[:PIECE_BYTES])
        rest = memoryview(data)[PIECE_BYTES:]
        while not (transport.is_closing() or self._http1.refuses_rest):
            if not self._is_writable:
                await self._wait(request, "write", httpx.WriteTimeout)
            elif not rest:
                return True
            elif not self._is_paused and _has_come(transport):  # a write that fails would throw it away
                await asyncio.sleep(0)  # the loop looks
                await asyncio.sleep(0)  # the loop reads
            else:
                transport.write(rest[:PIECE_BYTES])
                rest = rest[PIECE_BYTES:]
        return not rest

    async def read(self, request: PoolRequest) -> bytes:
        """Return the next bytes of the response's body; b"" at its end.

        Raises:
            httpx.TransportError: The connection ended early.
        """
        http1 = self._http1
        while not http1.has_unread:
            if http1.is_complete:
                return b""
            self.check()
            await self._wait(request, "read", httpx.ReadTimeout)
        if self._is_paused:
            self._is_paused = False
            assert self._transport is not None
            self._transport.resume_reading()
        return http1.take()

    async def _wait(self, request: PoolRequest, step: str, late: type[httpx.TimeoutException]) -> None:
        if request.deadline.is_over:
            raise late("")
        self._waiter = self._loop.create_future()
        self._late, self._late_s = late, self._loop.time() + request.timeout_s(step)
        if self._timer is None or self._timer.when() > self._late_s:
            self._look_again(self._late_s)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def check(self) -> None:
        """Raise the error that ended the connection, if any."""
        if self._error is not None:
            kind, message = self._error
            raise kind(message)

    def _look_again(self, at_s: float) -> None:
        """Set the one timer of all waits: a timer for each wait costs more than one that fires too early."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() < self._late_s:
            self._look_again(self._late_s)
        else:
            expire(self._waiter, self._late)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def is_alive(self) -> bool:
        """Return False if the server has closed the connection or sent unsolicited bytes since it became idle.

        The socket is checked itself, because the loop may not have polled it yet.
        """
        transport = self._transport
        return not (transport is None or transport.is_closing() or _has_come(transport))

    def settle(self) -> bool:
        """Return True if the connection may serve another request; the last response is no longer read."""
        transport = self._transport
        if (
            transport is None
            or transport.is_closing()
            or self._error is not None
            or not self._http1.is_reusable
            or transport.get_write_buffer_size() > 0
        ):
            return False
        self._is_busy = False
        return True

    def hang_up(self, reason: str) -> None:
        """Close the connection; its current request fails with ``reason``."""
        self._error = httpx.ReadError, reason
        if self.connecting is not None:
            self.connecting.reschedule(0)
        self.close()
        self._wake()

    def close(self) -> None:
        """Close the connection; safe to repeat."""
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_busy:
            self.close()  # unsolicited bytes
            return
        http1 = self._http1
        try:
            http1.feed(data)
        except httpx.RemoteProtocolError as error:
            self._error = type(error), str(error)
            self.close()
        if http1.is_full and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._error is None and not self._http1.is_complete:
            if exc is not None:
                self._error = httpx.ReadError, str(exc)
            else:
                try:
                    self._http1.end()
                except httpx.RemoteProtocolError as error:
                    self._error = type(error), str(error)
        self._wake()

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        self._wake()


def _has_come(transport: asyncio.Transport) -> bool:
    """Return True if an open connection has bytes to read."""
    sock = transport.get_extra_info("socket")
    return sock is not None and is_readable(sock.fileno())


def expire(waiter: asyncio.Future[Any], kind: type[httpx.TimeoutException]) -> None:
    """End a wait that has timed out."""
    if not waiter.done():
        waiter.set_exception(kind(""))

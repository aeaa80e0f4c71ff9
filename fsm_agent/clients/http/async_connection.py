"""How does one request after another go over one connection of an event loop, and how long may each step take?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import httpx

from fsm_agent.clients.http.http1 import Headers, Wire
from fsm_agent.clients.http.request import Origin, RequestHead

HIGH_WATER_BYTES = 256 * 1024  # of a body that nobody takes, before no more is read


class Connection(asyncio.Protocol):
    """One connection, which serves one request at a time."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.idle_since_s = 0.0
        self._wire = Wire()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[None] | None = None
        self._late_s = 0.0  # when who waits has waited long enough
        self._late: type[httpx.TimeoutException] = httpx.ReadTimeout
        self._timer: asyncio.TimerHandle | None = None
        self._error: tuple[type[httpx.TransportError], str] | None = None  # raised, it would hold what holds it
        self._is_busy = False
        self._is_writable = True
        self._is_paused = False
        self._n_unread_bytes = 0  # about: framing counts

    @property
    def is_closed(self) -> bool:
        """Whether either side has hung up."""
        return self._transport.is_closing()

    async def send(self, head: RequestHead, content: bytes, timeouts: Mapping[str, float]) -> tuple[int, Headers]:
        """Send a request; gives the status and the headers of its response.

        Raises:
            httpx.TransportError: There is none.
        """
        if self._transport.is_closing():
            raise httpx.WriteError("the connection is closed")
        wire = self._wire
        self._is_busy = True
        self._transport.write(wire.begin(head, content))
        while not (self._is_writable or wire.head or self._error):
            await self._wait(timeouts["write"], httpx.WriteTimeout)
        while wire.head is None:
            self._check()
            await self._wait(timeouts["read"], httpx.ReadTimeout)
        return wire.head

    async def read(self, timeout_s: float) -> bytes:
        """All that has come of the response's body; b"" at its end.

        Raises:
            httpx.TransportError: There comes no more.
        """
        wire = self._wire
        while not wire.parts:
            if wire.is_complete:
                return b""
            self._check()
            await self._wait(timeout_s, httpx.ReadTimeout)
        parts, wire.parts = wire.parts, []
        self._n_unread_bytes = 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _wait(self, timeout_s: float, kind: type[httpx.TimeoutException]) -> None:
        self._waiter = self._loop.create_future()
        self._late, self._late_s = kind, self._loop.time() + timeout_s
        if self._timer is None or self._timer.when() > self._late_s:
            self._look_again(self._late_s)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _check(self) -> None:
        if self._error is not None:
            kind, message = self._error
            raise kind(message)

    def _look_again(self, at_s: float) -> None:
        """One timer for all that is waited for: to set one each time costs more than to let it come too early."""
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

    def settle(self) -> bool:
        """Whether the connection may serve another request, now that nobody reads of this one."""
        wire = self._wire
        if wire.is_complete and wire.is_reusable and not (wire.parts or self._transport.is_closing() or self._error):
            self._is_busy = False
            self.idle_since_s = self._loop.time()
            return True
        return False

    def abort(self) -> None:
        """Hang up."""
        self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_busy:
            self.abort()  # nobody asked
            return
        wire = self._wire
        try:
            wire.feed(data)
        except httpx.RemoteProtocolError as error:
            self._error = type(error), str(error)
            self.abort()
        self._n_unread_bytes += len(data)
        if wire.parts and not self._is_paused and self._n_unread_bytes > HIGH_WATER_BYTES:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._error is None and not self._wire.is_complete:
            if exc is not None:
                self._error = httpx.ReadError, str(exc)
            elif self._wire.head is None:
                self._error = httpx.RemoteProtocolError, "Server disconnected without sending a response."
            else:
                try:
                    self._wire.end()
                except httpx.RemoteProtocolError as error:
                    self._error = type(error), str(error)
        self._wake()

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        self._wake()


def expire(waiter: asyncio.Future[Any], kind: type[httpx.TimeoutException]) -> None:
    """Whoever still waits has waited long enough."""
    if not waiter.done():
        waiter.set_exception(kind(""))

"""Over which connection of an event loop does a request go, and how long does each of its steps take at most?

httpx's own pool looks at every connection for every request, which makes 500 requests at once a hundred times slower
than the network (httpcore 1.0.9, `_assign_requests_to_connections`; measured).  This one takes the connection that was
used last.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

import httpx

from fsm_agent.http1 import Headers, Wire
from fsm_agent.sending import Origin, RequestHead, Sending

HIGH_WATER_BYTES = 256 * 1024  # of a body that nobody takes, before no more is read
HAPPY_EYEBALLS_S = 0.25  # RFC 8305 recommends it


class Connection(asyncio.Protocol):
    """One connection, which serves one request at a time."""

    def __init__(self, wire: Wire, origin: Origin) -> None:
        self.origin = origin
        self.idle_since_s = 0.0
        self._wire = wire
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
            _expire(self._waiter, self._late)

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
        self._wire.close()
        self._wake()

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        self._wake()


def _expire(waiter: asyncio.Future[Any], kind: type[httpx.TimeoutException]) -> None:
    if not waiter.done():
        waiter.set_exception(kind(""))


def _is_address(host: bytes) -> bool:
    return b":" in host or host[-1:].isdigit()


class Body:
    """A response, whose head is there; gives its connection back when it is closed.

    Attributes:
        status: Of the response.
        headers: As they came.
        is_decoded: Whether somebody has undone its ``content-encoding``.
    """

    __slots__ = ("_connection", "_pool", "_timeouts", "headers", "status")

    is_decoded = False

    def __init__(
        self, pool: AsyncPool, connection: Connection, head: tuple[int, Headers], timeouts: Mapping[str, float]
    ) -> None:
        self._pool = pool
        self._connection: Connection | None = connection
        self.status, self.headers = head
        self._timeouts = timeouts

    async def read(self) -> bytes:
        """The next bytes; b"" at their end.

        Raises:
            httpx.TransportError: There come no more.
        """
        if self._connection is None:
            raise httpx.StreamClosed
        return await self._connection.read(self._timeouts["read"])

    async def aclose(self) -> None:
        """Let go of the connection; safe to repeat."""
        if (connection := self._connection) is not None:
            self._connection = None
            self._pool.give_back(connection)


class AsyncPool:
    """The connections of one event loop.

    Args:
        wire: Makes the wire of a new connection.
        ssl_context: What to trust; asked for when the first connection of https is made.
        max_connections: At once; who comes later waits, and is served first come, first served.
        idle_s: How long a connection that nobody uses stays open.
    """

    def __init__(
        self,
        wire: Callable[[], Wire],
        ssl_context: Callable[[], ssl.SSLContext],
        *,
        max_connections: int,
        idle_s: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._wire = wire
        self._ssl_context = ssl_context
        self._max = max_connections
        self._idle_s = idle_s
        self._idle = dict[Origin, deque[Connection]]()  # the one used last is last
        self._open = set[Connection]()
        self._n_granted = 0  # connections that are open or being opened
        self._waiting = deque[tuple[Origin, asyncio.Future[Connection | None]]]()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def send(self, sending: Sending) -> Body:
        """Send a request; the response must be closed.

        Raises:
            httpx.TransportError: There is none.
        """
        head, timeouts = sending.head, sending.timeouts
        connection = self._idle_one(head.origin) or await self._turn(head.origin, timeouts["pool"])
        try:
            if connection is None:
                sending.begins("connect_tcp.started")
                connection = await self._connect(head.origin, timeouts["connect"])
            sending.begins("send_request_headers.started")
            return Body(self, connection, await connection.send(head, sending.content, timeouts), timeouts)
        except BaseException:
            self._discard(connection)
            raise

    def _idle_one(self, origin: Origin) -> Connection | None:
        if self._is_closed:
            raise RuntimeError("the pool is closed")
        if idle := self._idle.get(origin):
            oldest_s = self._loop.time() - self._idle_s
            while idle:
                connection = idle.pop()
                if connection.idle_since_s > oldest_s and not connection.is_closed:
                    return connection
                self._discard(connection)
        return None

    async def _turn(self, origin: Origin, timeout_s: float) -> Connection | None:
        """A connection, when it is one's turn; None: one may be opened."""
        if self._n_granted < self._max or self._hang_up_on_another():
            self._n_granted += 1
            return None
        turn: asyncio.Future[Connection | None] = self._loop.create_future()
        self._waiting.append((origin, turn))
        timer = self._loop.call_later(timeout_s, _expire, turn, httpx.PoolTimeout)
        try:
            return await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._grant(turn.result())  # it came, but nobody is there any more
            raise
        finally:
            timer.cancel()
            del turn  # which may hold the error that holds this frame

    def _hang_up_on_another(self) -> bool:
        """Whether a place came free by closing a connection that nobody uses, of another origin."""
        for idle in self._idle.values():
            if idle:
                self._discard(idle.popleft())
                return True
        return False

    async def _connect(self, origin: Origin, timeout_s: float) -> Connection:
        scheme, host, port = origin
        is_secure = scheme == "https"
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self._wire(), origin),
                    host.decode("ascii"),
                    port or (443 if is_secure else 80),
                    ssl=self._ssl_context() if is_secure else None,
                    happy_eyeballs_delay=None if _is_address(host) else HAPPY_EYEBALLS_S,
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        self._open.add(connection)
        return connection

    def give_back(self, connection: Connection) -> None:
        """Take a connection whose response nobody reads any more."""
        if connection in self._open and connection.settle():
            self._grant(connection)
        else:
            self._discard(connection)

    def _discard(self, connection: Connection | None) -> None:
        """Close a connection (None: one that did not come to be), and let somebody else open one."""
        if connection is not None:
            connection.abort()
            if connection not in self._open:
                return
            self._open.discard(connection)
        self._grant(None)

    def _grant(self, connection: Connection | None) -> None:
        """Give a connection, or leave to open one, to who waits longest."""
        while self._waiting:
            origin, turn = self._waiting.popleft()
            if turn.done():
                continue
            if connection is not None and connection.origin != origin:
                connection.abort()
                self._open.discard(connection)
                connection = None
            turn.set_result(connection)
            return
        if connection is None:
            self._n_granted -= 1
            return
        self._idle.setdefault(connection.origin, deque()).append(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(self._idle_s, self._expire_idle)

    def _expire_idle(self) -> None:
        until_s = self._loop.time() - self._idle_s
        for idle in self._idle.values():
            while idle and (idle[0].is_closed or idle[0].idle_since_s <= until_s):
                self._discard(idle.popleft())
        oldest = min([idle[0].idle_since_s for idle in self._idle.values() if idle], default=None)
        self._timer = None if oldest is None else self._loop.call_at(oldest + self._idle_s, self._expire_idle)

    async def aclose(self) -> None:
        """Hang up on everybody; requests on their way fail."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._open):
            connection.abort()
        self._open.clear()
        self._idle.clear()
        for _, turn in self._waiting:
            if not turn.done():
                turn.set_exception(RuntimeError("the pool is closed"))
        self._waiting.clear()
        await asyncio.sleep(0)  # the loop closes the sockets now

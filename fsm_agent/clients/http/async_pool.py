"""A pool of HTTP/1.1 connections for one event loop.

httpx's own pool looks at every connection for every request, which makes 500 requests at once a hundred times slower
than the network (httpcore 1.0.9, `_assign_requests_to_connections`; measured).  This one takes the connection that was
used last.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

import httpx

from fsm_agent.clients.http.http1 import PIECE_BYTES, Http1, ResponseHead
from fsm_agent.clients.http.ledger import IDLE_S, MAX_CONNECTIONS, Ledger
from fsm_agent.clients.http.prepared_request import Origin, PoolRequest
from fsm_agent.clients.http.sockets import is_readable
from fsm_agent.clients.http.trust import check_protocol, http1_context

HAPPY_EYEBALLS_S = 0.25  # RFC 8305 recommends it


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
        self._error: tuple[type[httpx.TransportError], str] | None = (
            None  # not an exception: its traceback would form a cycle
        )
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


class _Body(httpx.AsyncByteStream):
    """The body of a response over a connection of the pool.

    It is its own iterator: a generator that is not read to its end has to be closed by a task of the event loop.
    """

    def __init__(self, pool: _Pool, connection: AsyncConnection, request: PoolRequest) -> None:
        self._pool = pool
        self._connection: AsyncConnection | None = connection
        self._request = request

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._connection is None:
            raise httpx.StreamClosed
        data = await self._connection.read(self._request)
        if not data:
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        """Give the connection back; safe to repeat."""
        if (connection := self._connection) is not None:
            self._connection = None
            self._pool.give_back(connection)


class _Waiter:
    """The queue entry of a waiting task."""

    __slots__ = ("granted", "origin")

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.granted: asyncio.Future[AsyncConnection] = asyncio.get_running_loop().create_future()

    @property
    def is_waiting(self) -> bool:
        return not self.granted.done()

    def grant(self, connection: AsyncConnection) -> None:
        self.granted.set_result(connection)

    def end(self) -> None:
        if self.is_waiting:
            self.granted.set_exception(RuntimeError("the pool is closed"))


class AsyncPooledTransport(httpx.AsyncBaseTransport):
    """A transport of httpx: a pool of HTTP/1.1 connections for each event loop that uses it, which ends with the loop.

    ``httpx.AsyncClient(transport=AsyncPooledTransport())`` has one.  Of a request's extensions it heeds ``timeout``,
    and ``fsm_agent.deadline`` of this package, a `Deadline` of the whole request.  The body of a request is read before
    it is sent.

    Args:
        verify: Trusted certificates, as in `Network`.
        max_connections: At once, for each event loop; further requests wait, first come, first served.
        idle_s: Seconds that an unused connection stays open.
    """

    def __init__(
        self,
        *,
        verify: bool | str | ssl.SSLContext = True,
        max_connections: int = MAX_CONNECTIONS,
        idle_s: float = IDLE_S,
    ) -> None:
        self._verify = verify
        self._max_connections = max_connections
        self._idle_s = idle_s
        self._is_closed = False
        self._pools: dict[asyncio.AbstractEventLoop, tuple[_Pool, AsyncGenerator[None]]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the response must be closed.

        Raises:
            httpx.TransportError: There is no response.
            RuntimeError: The transport is closed.
        """
        if isinstance(request.stream, httpx.ByteStream):
            request.read()
        else:
            await request.aread()
        pool, _ = self._pools.get(asyncio.get_running_loop()) or await self._add_pool()
        return await pool.send(PoolRequest(request))

    async def _add_pool(self) -> tuple[_Pool, AsyncGenerator[None]]:
        if self._is_closed:
            raise RuntimeError("the pool is closed")
        for loop in list(self._pools):
            if loop.is_closed():
                self._pools.pop(loop, None)
        pool = _Pool(self._verify, self._max_connections, self._idle_s)
        keeper = _keep(pool)
        await anext(keeper)  # lets no other task of this loop run
        self._pools[pool.loop] = pool, keeper
        return pool, keeper

    async def aclose(self) -> None:
        """Close all connections; requests in flight fail.  Other event loops close theirs soon after."""
        self._is_closed = True
        for loop, (pool, _) in list(self._pools.items()):
            if loop is asyncio.get_running_loop():
                pool.close()
            elif loop.is_running():
                loop.call_soon_threadsafe(pool.close)
        await asyncio.sleep(0)  # the loop closes the sockets now


class _Pool:
    """The connections of one event loop."""

    def __init__(self, verify: bool | str | ssl.SSLContext, max_connections: int, idle_s: float) -> None:
        self.loop = asyncio.get_running_loop()
        self._verify = verify
        self._ledger = Ledger(AsyncConnection, max_connections=max_connections, idle_s=idle_s)
        self._timer: asyncio.TimerHandle | None = None

    async def send(self, request: PoolRequest) -> httpx.Response:
        """Send a request; the response must be closed."""
        origin, ledger = request.origin, self._ledger
        connection = ledger.borrow(origin) or await self._turn(request)
        try:
            if connection.is_open:
                try:
                    return self._respond(connection, await connection.send(request), request)
                except (httpx.NetworkError, httpx.RemoteProtocolError):
                    if ledger.is_closed or not connection.was_ignored:
                        raise
                connection = ledger.replace(connection, origin)
            await self._connect(connection, request.timeout_s("connect"))
            return self._respond(connection, await connection.send(request), request)
        except BaseException:
            self.give_back(connection)
            raise

    def _respond(self, connection: AsyncConnection, head: ResponseHead, request: PoolRequest) -> httpx.Response:
        return head.response(_Body(self, connection, request))

    async def _turn(self, request: PoolRequest) -> AsyncConnection:
        turn = _Waiter(request.origin)
        self._ledger.wait(turn)
        timer = self.loop.call_later(request.timeout_s("pool"), expire, turn.granted, httpx.PoolTimeout)
        try:
            return await turn.granted
        except BaseException:
            granted = turn.granted
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self.give_back(granted.result())  # granted to a task that no longer waits
            raise
        finally:
            timer.cancel()
            del turn  # which may hold the error that holds this frame

    async def _connect(self, connection: AsyncConnection, timeout_s: float) -> None:
        scheme, host, port = connection.origin
        context = http1_context(self._verify) if scheme == "https" else None
        options: dict[str, Any] = {}
        # Other loops, such as uvloop's, do not know the option, and try one address after the other.
        if isinstance(self.loop, asyncio.BaseEventLoop) and not _is_address(host):
            options = {"happy_eyeballs_delay": HAPPY_EYEBALLS_S}
        try:
            async with asyncio.timeout(timeout_s) as connection.connecting:
                transport, _ = await self.loop.create_connection(lambda: connection, host, port, ssl=context, **options)
        except TimeoutError as error:
            connection.check()
            raise httpx.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        finally:
            connection.connecting = None
        if context is not None:
            check_protocol(transport.get_extra_info("ssl_object").selected_alpn_protocol())

    def give_back(self, connection: AsyncConnection) -> None:
        """Take back a connection whose response is no longer read."""
        self._ledger.give_back(connection)
        if self._timer is None:
            self._expire()

    def _expire(self) -> None:
        self._ledger.expire()
        left_s = self._ledger.expires_in_s()
        self._timer = None if left_s is None else self.loop.call_later(left_s, self._expire)

    def close(self) -> None:
        """Close all connections; requests in flight fail."""
        if self._ledger.is_inherited:  # and so is the loop's selector, which the parent shares
            return
        if self._timer is not None:
            self._timer.cancel()
        self._ledger.close()


async def _keep(pool: _Pool) -> AsyncGenerator[None]:
    """Close a pool when this generator is dropped, or at the end of its loop: `asyncio.run` closes all generators."""
    try:
        yield
    finally:
        pool.close()
        await asyncio.sleep(0)  # the loop closes the sockets now


def _is_address(host: str) -> bool:
    return ":" in host or host[-1:].isdigit()

"""A pool of HTTP/1.1 connections for one event loop.

httpx's own pool looks at every connection for every request, which makes 500 requests at once a hundred times slower
than the network (httpcore 1.0.9, `_assign_requests_to_connections`; measured).  This one takes the connection that was
used last.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import httpx

from fsm_agent.clients.http.async_connection import AsyncConnection, expire
from fsm_agent.clients.http.ledger import Ledger
from fsm_agent.clients.http.request import Headers, Origin, OutgoingRequest
from fsm_agent.clients.http.trust import check_protocol

HAPPY_EYEBALLS_S = 0.25  # RFC 8305 recommends it


class PooledResponse:
    """A response over a connection of the pool; see `AsyncResponse`."""

    __slots__ = ("_connection", "_pool", "_request", "headers", "status")

    is_decoded = False

    def __init__(
        self, pool: AsyncPool, connection: AsyncConnection, head: tuple[int, Headers], request: OutgoingRequest
    ) -> None:
        self._pool = pool
        self._connection: AsyncConnection | None = connection
        self.status, self.headers = head
        self._request = request

    async def read(self) -> bytes:
        """Return the next bytes of the body; b"" at its end."""
        if self._connection is None:
            raise httpx.StreamClosed
        return await self._connection.read(self._request.limits["read"])

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


class AsyncPool:
    """The connections of one event loop; see `AsyncTransport`.

    Args:
        ssl_context: Returns the TLS context; called for the first https connection.
        max_connections: At once; further requests wait, first come, first served.
        idle_s: Seconds that an unused connection stays open.
    """

    def __init__(self, ssl_context: Callable[[], ssl.SSLContext], *, max_connections: int, idle_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._ssl_context = ssl_context
        self._ledger = Ledger(AsyncConnection, max_connections=max_connections, idle_s=idle_s)
        self._timer: asyncio.TimerHandle | None = None

    async def send(self, request: OutgoingRequest) -> PooledResponse:
        """Send a request; the response must be closed.

        Raises:
            httpx.TransportError: There is no response.
            RuntimeError: The pool is closed.
        """
        origin, ledger = request.head.origin, self._ledger
        connection = ledger.borrow(origin) or await self._turn(origin, request.limits["pool"])
        try:
            if connection.is_open:
                try:
                    return PooledResponse(self, connection, await connection.send(request), request)
                except (httpx.NetworkError, httpx.RemoteProtocolError):
                    if ledger.is_closed or not connection.was_ignored:
                        raise
                connection = ledger.replace(connection, origin)
            await self._connect(connection, request.limits["connect"])
            return PooledResponse(self, connection, await connection.send(request), request)
        except BaseException:
            self.give_back(connection)
            raise

    async def _turn(self, origin: Origin, timeout_s: float) -> AsyncConnection:
        turn = _Waiter(origin)
        self._ledger.wait(turn)
        timer = self._loop.call_later(timeout_s, expire, turn.granted, httpx.PoolTimeout)
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
        context = self._ssl_context() if scheme == "https" else None
        eyeballs_s = None if _is_address(host) else HAPPY_EYEBALLS_S
        try:
            async with asyncio.timeout(timeout_s) as connection.connecting:
                transport, _ = await self._loop.create_connection(
                    lambda: connection, host, port, ssl=context, happy_eyeballs_delay=eyeballs_s
                )
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
        self._timer = None if left_s is None else self._loop.call_later(left_s, self._expire)

    async def aclose(self) -> None:
        """Close all connections; requests in flight fail."""
        if self._ledger.is_inherited:  # and so is the loop's selector, which the parent shares
            return
        if self._timer is not None:
            self._timer.cancel()
        self._ledger.close()
        await asyncio.sleep(0)  # the loop closes the sockets now


def _is_address(host: str) -> bool:
    return ":" in host or host[-1:].isdigit()

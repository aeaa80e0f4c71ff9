"""Over which connection of an event loop does a request go?

httpx's own pool looks at every connection for every request, which makes 500 requests at once a hundred times slower
than the network (httpcore 1.0.9, `_assign_requests_to_connections`; measured).  This one takes the connection that was
used last.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping

import httpx

from fsm_agent.clients.http.async_connection import Connection, expire
from fsm_agent.clients.http.http1 import Headers
from fsm_agent.clients.http.request import Origin, Sending

HAPPY_EYEBALLS_S = 0.25  # RFC 8305 recommends it


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
        ssl_context: What to trust; asked for when the first connection of https is made.
        max_connections: At once; who comes later waits, and is served first come, first served.
        idle_s: How long a connection that nobody uses stays open.
    """

    def __init__(self, ssl_context: Callable[[], ssl.SSLContext], *, max_connections: int, idle_s: float) -> None:
        self._loop = asyncio.get_running_loop()
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
        timer = self._loop.call_later(timeout_s, expire, turn, httpx.PoolTimeout)
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
                    lambda: Connection(origin),
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

"""A pool of HTTP/1.1 connections for threads.

httpx's own pool, under threads, mistakes a connection on which another thread has just received its reply for one that
the server has closed, and closes it (httpcore 1.0.9; 2 in 100 requests at the limit of connections; measured).  Here an
idle connection belongs to no thread, and any other to exactly one.
"""

from __future__ import annotations

import queue
import ssl
import threading
from collections.abc import Callable

import httpx

from fsm_agent.clients.http.ledger import Ledger
from fsm_agent.clients.http.request import Deadline, Headers, Origin, OutgoingRequest
from fsm_agent.clients.http.sync_connection import SyncConnection

LOOK_AGAIN_S = 0.25  # between looks for a slot that was freed but not handed over, as after Ctrl-C


class PooledResponse:
    """A response over a connection of the pool; see `Response`."""

    __slots__ = ("_connection", "_pool", "_request", "headers", "status")

    is_decoded = False

    def __init__(
        self, pool: SyncPool, connection: SyncConnection, head: tuple[int, Headers], request: OutgoingRequest
    ) -> None:
        self._pool = pool
        self._connection: SyncConnection | None = connection
        self.status, self.headers = head
        self._request = request

    def read(self) -> bytes:
        """Return the next bytes of the body; b"" at its end."""
        if self._connection is None:
            raise httpx.StreamClosed
        return self._connection.read(self._request)

    def close(self) -> None:
        """Give the connection back; safe to repeat."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.give_back(connection, self._request)


class _Waiter:
    """The queue entry of a waiting thread.

    It waits on a queue and not on an event, whose lock Ctrl-C may leave locked.
    """

    is_waiting = True  # who leaves is taken out of the queue

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.connection: SyncConnection | None = None
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()

    def grant(self, connection: SyncConnection) -> None:
        self.connection = connection
        self._news.put(None)

    def end(self) -> None:
        self._news.put(None)

    def comes_within(self, timeout_s: float) -> bool:
        """Wait for a connection or the end of the pool; return False on timeout."""
        try:
            self._news.get(timeout=timeout_s)
        except queue.Empty:
            return False
        return True


class SyncPool:
    """A pool of connections for threads; see `Transport`.

    Args:
        ssl_context: Returns the TLS context; called for each https connection.
        max_connections: At once; further requests wait, first come, first served.
        idle_s: Seconds that an unused connection may be reused; it is closed at the next request after that.
    """

    def __init__(self, ssl_context: Callable[[], ssl.SSLContext], *, max_connections: int, idle_s: float) -> None:
        self._ssl_context = ssl_context
        self._lock = threading.Lock()  # held for moments, never while bytes move
        self._ledger = Ledger(SyncConnection, max_connections=max_connections, idle_s=idle_s)

    def send(self, request: OutgoingRequest) -> PooledResponse:
        """Send a request; the response must be closed.

        Raises:
            httpx.TransportError: There is no response.
            RuntimeError: The pool is closed.
        """
        connection = self._borrow(request)
        try:
            _watch(connection, request)
            if connection.is_open:
                try:
                    return PooledResponse(self, connection, connection.send(request), request)
                except (httpx.NetworkError, httpx.RemoteProtocolError):
                    if not connection.was_ignored:
                        raise
                connection = self._replace(connection, request)
                _watch(connection, request)
            connection.connect(request, self._ssl_context() if connection.origin[0] == "https" else None)
            return PooledResponse(self, connection, connection.send(request), request)
        except BaseException:
            self.give_back(connection, request)
            raise

    def _borrow(self, request: OutgoingRequest) -> SyncConnection:
        origin = request.head.origin
        with self._lock:
            connection = self._ledger.borrow(origin)
            if connection is not None:
                return connection
            turn = _Waiter(origin)
            self._ledger.wait(turn)
        try:
            return self._wait(turn, request)
        except BaseException:
            with self._lock:
                self._ledger.leave(turn)
                if turn.connection is not None:
                    self._ledger.give_back(turn.connection)
            raise

    def _wait(self, turn: _Waiter, request: OutgoingRequest) -> SyncConnection:
        deadline, abort = Deadline(request.deadline.within(request.limits["pool"])), request.abort
        try:
            if abort is not None:
                abort.add(turn.end)
            while not turn.comes_within(deadline.within(LOOK_AGAIN_S)):
                if self._finds_room(turn):
                    break
                if deadline.is_over:
                    raise httpx.PoolTimeout("")
        finally:
            if abort is not None:
                abort.discard(turn.end)
        if turn.connection is None:
            if abort is not None:
                abort.check()
            raise RuntimeError("the pool is closed")
        return turn.connection

    def _finds_room(self, turn: _Waiter) -> bool:
        """Claim a slot that an interrupted thread failed to hand over; return True if there was one."""
        with self._lock:
            if turn.connection is None and (connection := self._ledger.borrow(turn.origin)) is not None:
                self._ledger.leave(turn)
                turn.connection = connection
        return turn.connection is not None

    def _replace(self, connection: SyncConnection, request: OutgoingRequest) -> SyncConnection:
        if request.abort is not None:
            request.abort.discard(connection.hang_up)
        with self._lock:
            return self._ledger.replace(connection, connection.origin)

    def give_back(self, connection: SyncConnection, request: OutgoingRequest) -> None:
        """Take back a connection that is no longer used."""
        if self._ledger.is_inherited:  # and so are the locks, perhaps held by a thread that is not here
            return
        if request.abort is not None:
            request.abort.discard(connection.hang_up)
        with self._lock:
            self._ledger.give_back(connection)

    def close(self) -> None:
        """Close all connections, also those in use; safe to repeat."""
        if self._ledger.is_inherited:
            return
        with self._lock:
            self._ledger.close()


def _watch(connection: SyncConnection, request: OutgoingRequest) -> None:
    if request.abort is not None:
        request.abort.add(connection.hang_up)

"""A pool of HTTP/1.1 connections for threads.

httpx's own pool, under threads, mistakes a connection on which another thread has just received its reply for one that
the server has closed, and closes it (httpcore 1.0.9; 2 in 100 requests at the limit of connections; measured).  Here an
idle connection belongs to no thread, and any other to exactly one.
"""

from __future__ import annotations

import queue
import ssl
import threading
from collections.abc import Iterator

import httpx

from fsm_agent.clients.http.http1 import ResponseHead
from fsm_agent.clients.http.ledger import IDLE_S, MAX_CONNECTIONS, Ledger
from fsm_agent.clients.http.request import Deadline, Origin, PoolRequest
from fsm_agent.clients.http.sync_connection import SyncConnection
from fsm_agent.clients.http.trust import http1_context

LOOK_AGAIN_S = 0.25  # between looks for a slot that was freed but not handed over, as after Ctrl-C


class _Body(httpx.SyncByteStream):
    """The body of a response over a connection of the pool."""

    def __init__(self, transport: PooledTransport, connection: SyncConnection, request: PoolRequest) -> None:
        self._transport = transport
        self._connection: SyncConnection | None = connection
        self._request = request

    def __iter__(self) -> Iterator[bytes]:
        while True:
            if self._connection is None:
                raise httpx.StreamClosed
            data = self._connection.read(self._request)
            if not data:
                return
            yield data

    def close(self) -> None:
        """Give the connection back; safe to repeat."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport._give_back(connection, self._request)


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


class PooledTransport(httpx.BaseTransport):
    """A transport of httpx: a pool of HTTP/1.1 connections for any number of threads.

    ``httpx.Client(transport=PooledTransport())`` has one.  Of a request's extensions it heeds ``timeout``, and two of
    this package: ``fsm_agent.deadline``, a `Deadline` of the whole request, and ``fsm_agent.abort``, an `Abort` that
    ends it from another thread.  The body of a request is read before it is sent.  In a forked child it begins anew.

    Args:
        verify: Trusted certificates, as in `Network`.
        max_connections: At once; further requests wait, first come, first served.
        idle_s: Seconds that an unused connection may be reused; it is closed at the next request after that.
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
        self._inherited: list[object] = []  # referenced, because destructors would close connections of the parent
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()  # held for moments, never while bytes move
        self._ledger = Ledger(SyncConnection, max_connections=self._max_connections, idle_s=self._idle_s)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the response must be closed.

        Raises:
            httpx.TransportError: There is no response.
            RuntimeError: The transport is closed.
        """
        if self._ledger.is_inherited:
            self._inherited.append(self._ledger)
            self._begin()
        request.read()
        own = PoolRequest(request)
        connection = self._borrow(own)
        try:
            _watch(connection, own)
            if connection.is_open:
                try:
                    return self._respond(connection, connection.send(own), own)
                except (httpx.NetworkError, httpx.RemoteProtocolError):
                    if not connection.was_ignored:
                        raise
                connection = self._replace(connection, own)
                _watch(connection, own)
            connection.connect(own, http1_context(self._verify) if connection.origin[0] == "https" else None)
            return self._respond(connection, connection.send(own), own)
        except BaseException:
            self._give_back(connection, own)
            raise

    def _respond(self, connection: SyncConnection, head: ResponseHead, request: PoolRequest) -> httpx.Response:
        return head.response(_Body(self, connection, request))

    def _borrow(self, request: PoolRequest) -> SyncConnection:
        origin = request.origin
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

    def _wait(self, turn: _Waiter, request: PoolRequest) -> SyncConnection:
        deadline, abort = Deadline(request.timeout_s("pool")), request.abort
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

    def _replace(self, connection: SyncConnection, request: PoolRequest) -> SyncConnection:
        if request.abort is not None:
            request.abort.discard(connection.hang_up)
        with self._lock:
            return self._ledger.replace(connection, connection.origin)

    def _give_back(self, connection: SyncConnection, request: PoolRequest) -> None:
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


def _watch(connection: SyncConnection, request: PoolRequest) -> None:
    if request.abort is not None:
        request.abort.add(connection.hang_up)

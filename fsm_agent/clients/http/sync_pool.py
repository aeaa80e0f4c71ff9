"""A pool of HTTP/1.1 connections for threads, each on a blocking socket.

httpx's own pool, under threads, mistakes a connection on which another thread has just received its reply for one that
the server has closed, and closes it (httpcore 1.0.9; 2 in 100 requests at the limit of connections; measured).  Here an
idle connection belongs to no thread, and any other to exactly one.

The socket's timeout is set to the time left before each piece is sent or received, so the deadline holds however slowly
bytes arrive, without a watching thread.  Only resolving a host's name cannot be bounded: the operating system offers no
way.
"""

from __future__ import annotations

import queue
import selectors
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic
from typing import ParamSpec, TypeVar

import httpx

from fsm_agent.clients.http.http1 import PIECE_BYTES, Http1, ResponseHead
from fsm_agent.clients.http.ledger import IDLE_S, MAX_CONNECTIONS, Ledger
from fsm_agent.clients.http.prepared_request import Deadline, Origin, PoolRequest
from fsm_agent.clients.http.sockets import is_readable, shut_down
from fsm_agent.clients.http.trust import check_protocol, http1_context

P = ParamSpec("P")
T = TypeVar("T")

READ_BYTES = 65_536
LOOK_AGAIN_S = 0.25  # how often waiters look for a free slot that was not handed over, as after Ctrl-C


class SyncConnection:
    """A connection that one thread uses at a time; only `hang_up` may be called from others.

    Args:
        origin: The server it connects to.
    """

    _socket: socket.socket | None = None  # on the class: `__del__` also runs if `__init__` was interrupted

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.idle_since_s = 0.0
        self._http1 = Http1()
        self._hung_up: str | None = None  # why another thread did

    def __del__(self) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """True once connected."""
        return self._socket is not None

    @property
    def was_ignored(self) -> bool:
        """True if the server did not read the last request: see `Http1.was_ignored`."""
        return self._hung_up is None and self._http1.was_ignored

    def connect(self, request: PoolRequest, context: ssl.SSLContext | None) -> None:
        """Connect to the origin, with TLS if there is a context.

        Raises:
            httpx.ConnectError: The connection failed.
            httpx.ConnectTimeout: It was not established in time.
        """
        timeout_s = request.timeout_s("connect")
        deadline = Deadline(timeout_s)
        try:
            sock = self._dial(deadline, timeout_s)
            if context is not None:
                sock.settimeout(deadline.within(timeout_s))
                tls = context.wrap_socket(sock, server_hostname=self.origin[1], do_handshake_on_connect=False)
                self._use(tls)
                tls.do_handshake()
                check_protocol(tls.selected_alpn_protocol())
        except TimeoutError as error:
            raise httpx.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpx.ConnectError(self._hung_up or str(error)) from error

    def _dial(self, deadline: Deadline, timeout_s: float) -> socket.socket:
        """Try one address after the other, each with its share of the time."""
        _, host, port = self.origin
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for n_left, (family, kind, protocol, _, address) in zip(range(len(addresses), 0, -1), addresses, strict=True):
            sock = socket.socket(family, kind, protocol)
            self._use(sock)
            try:
                sock.settimeout(deadline.within(timeout_s) / n_left)
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                if n_left == 1 or self._hung_up is not None:
                    raise
                sock.close()
            else:
                break
        return sock

    def _use(self, sock: socket.socket) -> None:
        """Publish ``sock`` to `hang_up` before anything blocks on it."""
        self._socket = sock
        self._check()

    def send(self, request: PoolRequest) -> ResponseHead:
        """Send a request; return the head of its response.

        Raises:
            httpx.TransportError: There is no response.
        """
        data = self._http1.begin(request)
        sock = self._ready(request, "write", httpx.WriteTimeout)
        if (n_sent := _send(sock, data[:PIECE_BYTES])) is not None:
            self._http1.is_sent = n_sent == len(data) or self._upload(sock, memoryview(data)[n_sent:], request)
        while self._http1.head is None:
            self._receive(self._ready(request, "read", httpx.ReadTimeout))
        return self._http1.head

    def _upload(self, sock: socket.socket, rest: memoryview, request: PoolRequest) -> bool:
        """Send the rest of the request; return True if the server took all of it."""
        http1 = self._http1
        until_s = monotonic() + request.timeout_s("write")
        sock.settimeout(0)
        with selectors.DefaultSelector() as selector:
            selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
            while rest and not http1.refuses_rest:
                ready = selector.select(until_s - monotonic())
                self._check()
                if not ready or request.deadline.is_over:
                    raise httpx.WriteTimeout("")
                if ready[0][1] & selectors.EVENT_READ:
                    self._receive(sock)
                    if http1.is_full or http1.is_complete:
                        selector.modify(sock, selectors.EVENT_WRITE)
                elif (n_sent := _send(sock, rest[:PIECE_BYTES])) is None:
                    break
                elif n_sent > 0:
                    rest = rest[n_sent:]
                    until_s = monotonic() + request.timeout_s("write")
        return not rest

    def read(self, request: PoolRequest) -> bytes:
        """Return the next bytes of the response's body; b"" at its end.

        Raises:
            httpx.TransportError: The connection ended early.
        """
        http1 = self._http1
        while not http1.has_unread:
            if http1.is_complete:
                return b""
            self._receive(self._ready(request, "read", httpx.ReadTimeout))
        return http1.take()

    def _ready(self, request: PoolRequest, step: str, late: type[httpx.TimeoutException]) -> socket.socket:
        """Return the socket, with its timeout set for the next piece."""
        if self._socket is None:
            raise httpx.WriteError("the connection is closed")
        if request.deadline.is_over:
            raise late("")
        self._socket.settimeout(request.timeout_s(step))
        return self._socket

    def _receive(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):  # during an upload: only TLS records came
            return
        except TimeoutError as error:
            raise httpx.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpx.ReadError(self._hung_up or str(error)) from error
        self._check()
        if data:
            self._http1.feed(data)
        else:
            self._http1.end()

    def _check(self) -> None:
        """Raise if another thread has hung up: then the end of the bytes is not the end of the response."""
        if self._hung_up is not None:
            raise httpx.ReadError(self._hung_up)

    def is_alive(self) -> bool:
        """Return False if the server has closed the connection or sent unsolicited bytes since it became idle."""
        return self._socket is not None and not is_readable(self._socket.fileno())

    def settle(self) -> bool:
        """Return True if the connection may serve another request; the last response is no longer read."""
        return self._hung_up is None and self._http1.is_reusable

    def hang_up(self, reason: str = "another thread hung up") -> None:
        """End the request of another thread, which fails with ``reason``; safe to repeat."""
        self._hung_up = reason
        if (sock := self._socket) is not None:
            shut_down(sock)

    def close(self) -> None:
        """Close the connection; for the thread that uses it."""
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()


def _send(sock: socket.socket, data: bytes | memoryview) -> int | None:
    """Return the number of bytes sent; None if the server has hung up, perhaps after a reply to read."""
    try:
        return sock.send(data)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return 0
    except TimeoutError as error:
        raise httpx.WriteTimeout(str(error)) from error
    except OSError:
        return None


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

    is_waiting = True  # always: a thread that stops waiting leaves the queue

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
        # Never held during I/O.  Reentrant: garbage collection may close a response at any point under it.
        self._lock = threading.RLock()
        self._stepping: int | None = None  # the thread that is in the middle of a step of the ledger
        self._returned = deque[SyncConnection]()  # by that thread, during the step
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
        lent = self._step(self._lend, request.origin)
        if isinstance(lent, SyncConnection):
            return lent
        try:
            return self._wait(lent, request)
        except BaseException:
            self._step(self._leave, lent)
            raise

    def _lend(self, origin: Origin) -> SyncConnection | _Waiter:
        connection = self._ledger.borrow(origin)
        if connection is not None:
            return connection
        turn = _Waiter(origin)
        self._ledger.wait(turn)
        return turn

    def _leave(self, turn: _Waiter) -> None:
        self._ledger.leave(turn)
        if turn.connection is not None:
            self._ledger.give_back(turn.connection)

    def _wait(self, turn: _Waiter, request: PoolRequest) -> SyncConnection:
        deadline, abort = Deadline(request.timeout_s("pool")), request.abort
        try:
            if abort is not None:
                abort.add(turn.end)
            while not turn.comes_within(deadline.within(LOOK_AGAIN_S)):
                if self._step(self._finds_room, turn):
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
        if turn.connection is None and (connection := self._ledger.borrow(turn.origin)) is not None:
            self._ledger.leave(turn)
            turn.connection = connection
        return turn.connection is not None

    def _replace(self, connection: SyncConnection, request: PoolRequest) -> SyncConnection:
        if request.abort is not None:
            request.abort.discard(connection.hang_up)
        return self._step(self._ledger.replace, connection, connection.origin)

    def _give_back(self, connection: SyncConnection, request: PoolRequest) -> None:
        """Take back a connection that is no longer used."""
        if self._ledger.is_inherited:  # the lock too: a thread of the parent may have held it at the fork
            return
        if request.abort is not None:
            request.abort.discard(connection.hang_up)
        if self._stepping == threading.get_ident():
            self._returned.append(connection)
        else:
            self._step(self._ledger.give_back, connection)

    def _step(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Take a step of the ledger under the lock; then take back the connections that were closed in its middle.

        After a step that raised, or was interrupted, the next one of any thread does so.
        """
        me = threading.get_ident()
        try:
            with self._lock:
                self._stepping = me
                result = step(*args, **kwargs)
                while self._returned:
                    self._ledger.give_back(self._returned.popleft())
                self._stepping = None
            return result
        finally:
            if self._stepping == me:
                self._stepping = None

    def close(self) -> None:
        """Close all connections, also those in use; safe to repeat."""
        if self._ledger.is_inherited:
            return
        self._step(self._ledger.close)


def _watch(connection: SyncConnection, request: PoolRequest) -> None:
    if request.abort is not None:
        request.abort.add(connection.hang_up)

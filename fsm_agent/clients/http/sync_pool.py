"""Over which connection does the request of a thread go?

The connections are httpcore's, the pool is not: under threads, httpcore 1.0.9's takes a connection on which another
thread has just got its reply for one that the server has closed, and hangs up on it (2 in 100 requests at the limit of
connections; measured).  Here an idle connection belongs to nobody, and any other to one thread alone.
"""

from __future__ import annotations

import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TypeAlias

import httpcore
import httpx

from fsm_agent.clients.http.sockets import shut_down

Origin: TypeAlias = tuple[bytes, bytes, int]


class _Turn:
    """The place in the queue of a thread that waits."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.has_come = threading.Event()
        self.connection: httpcore.HTTPConnection | None = None


class Body(httpx.SyncByteStream):
    """The body of a response; gives its connection back when it is closed."""

    def __init__(
        self, pool: ThreadPool, origin: Origin, connection: httpcore.HTTPConnection, response: httpcore.Response
    ) -> None:
        self._pool = pool
        self._origin = origin
        self._connection: httpcore.HTTPConnection | None = connection
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        with _errors():
            yield from self._response.iter_stream()

    def hang_up(self) -> None:
        """End it for whoever reads it, in any thread."""
        shut_down(self._response.extensions.get("network_stream"))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.bodies.discard(self)
            with _errors():
                self._response.close()
            self._pool.give_back(self._origin, connection)


class ThreadPool(httpx.BaseTransport):
    """The connections of all threads.

    Args:
        ssl_context: What to trust; asked for when the first connection of https is made.
        max_connections: At once; who comes later waits, and is served first come, first served.
        idle_s: How long a connection that nobody uses may be used again.
    """

    def __init__(self, ssl_context: Callable[[], ssl.SSLContext], *, max_connections: int, idle_s: float) -> None:
        self._ssl_context = ssl_context
        self._max = max_connections
        self._idle_s = idle_s
        self._lock = threading.Lock()  # held for moments, never while bytes move
        self._idle = dict[Origin, deque[tuple[float, httpcore.HTTPConnection]]]()  # with the time of their last use
        self._n_granted = 0  # connections that are open or being opened
        self._waiting = deque[_Turn]()
        self.bodies = set[Body]()  # that are being read
        self._is_closed = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; the response's stream must be closed.

        Raises:
            httpx.TransportError: There is no response.
        """
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        origin: Origin = (url.raw_scheme, url.raw_host, port)
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=port, target=url.raw_path)
        sent = httpcore.Request(
            method=request.method,
            url=target,
            headers=request.headers.raw,
            content=request.content,
            extensions=request.extensions,
        )
        connection = self._acquire(origin, request.extensions.get("timeout", {}).get("pool"))
        try:
            if connection is None:
                context = self._ssl_context() if url.scheme == "https" else None
                connection = httpcore.HTTPConnection(target.origin, ssl_context=context, keepalive_expiry=self._idle_s)
            with _errors():
                response = connection.handle_request(sent)
        except BaseException:
            self._hang_up(connection)
            raise
        body = Body(self, origin, connection, response)
        self.bodies.add(body)
        if self._is_closed:
            body.hang_up()
        return httpx.Response(response.status, headers=response.headers, stream=body, extensions=response.extensions)

    def _acquire(self, origin: Origin, timeout_s: float | None) -> httpcore.HTTPConnection | None:
        """An idle connection; None: one may be opened."""
        dead = list[httpcore.HTTPConnection]()
        turn: _Turn | None = None
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the pool is closed")
            found = self._take_idle(origin, dead)
            if found is None and self._n_granted >= self._max and not self._take_place_of_another(dead):
                turn = _Turn(origin)
                self._waiting.append(turn)
            elif found is None:
                self._n_granted += 1
        for connection in dead:
            connection.close()
        return found if turn is None else self._wait(turn, timeout_s)

    def _take_idle(self, origin: Origin, dead: list[httpcore.HTTPConnection]) -> httpcore.HTTPConnection | None:
        idle = self._idle.get(origin, deque())
        while idle:
            _, connection = idle.pop()
            if connection.is_idle() and not connection.has_expired():
                return connection
            dead.append(connection)
            self._n_granted -= 1
        return None

    def _take_place_of_another(self, dead: list[httpcore.HTTPConnection]) -> bool:
        for idle in self._idle.values():
            if idle:
                dead.append(idle.popleft()[1])
                self._n_granted -= 1
                return True
        return False

    def _wait(self, turn: _Turn, timeout_s: float | None) -> httpcore.HTTPConnection | None:
        try:
            has_come = turn.has_come.wait(timeout_s)
        except BaseException:  # Ctrl-C
            if not self._leave(turn):
                self._hang_up(turn.connection)
            raise
        if not has_come and self._leave(turn):
            raise httpx.PoolTimeout("")
        if self._is_closed:
            raise RuntimeError("the pool is closed")
        return turn.connection

    def _leave(self, turn: _Turn) -> bool:
        """Whether the turn has not come, and will not any more."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
        return False

    def give_back(self, origin: Origin, connection: httpcore.HTTPConnection) -> None:
        """Take a connection whose response nobody reads any more."""
        if not connection.is_idle():
            self._hang_up(connection)
            return
        dead = list[httpcore.HTTPConnection]()
        with self._lock:
            if self._is_closed:
                dead.append(connection)
            elif self._waiting:
                turn = self._waiting.popleft()
                if turn.origin == origin:
                    turn.connection = connection
                else:
                    dead.append(connection)
                turn.has_come.set()
            else:
                now_s = monotonic()
                idle = self._idle.setdefault(origin, deque())
                idle.append((now_s, connection))
                while idle[0][0] + self._idle_s < now_s:
                    dead.append(idle.popleft()[1])
                    self._n_granted -= 1
        for one in dead:
            one.close()

    def _hang_up(self, connection: httpcore.HTTPConnection | None) -> None:
        """Close a connection (None: one that did not come to be), and let somebody else open one."""
        if connection is not None:
            connection.close()
        with self._lock:
            if self._waiting:
                self._waiting.popleft().has_come.set()
            else:
                self._n_granted -= 1

    def close(self) -> None:
        """Hang up, on whoever is answering too, and take nobody back."""
        with self._lock:
            self._is_closed = True
            dead = [connection for idle in self._idle.values() for _, connection in idle]
            self._idle.clear()
            for turn in self._waiting:
                turn.has_come.set()
            self._waiting.clear()
        for connection in dead:
            connection.close()
        for body in list(self.bodies):
            body.hang_up()


@contextmanager
def _errors() -> Iterator[None]:
    """httpcore's errors as httpx's, which have the same names."""
    try:
        yield
    except (
        httpcore.TimeoutException,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.ProxyError,
        httpcore.UnsupportedProtocol,
    ) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error

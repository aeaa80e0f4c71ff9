"""One HTTP/1.1 connection of threads, on a blocking socket.

The socket's timeout is set to the time left before each piece is sent or received, so the deadline holds however slowly
bytes arrive, without a watching thread.  Only resolving a host's name cannot be bounded: the operating system offers no
way.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from time import monotonic

import httpx

from fsm_agent.clients.http.http1 import PIECE_BYTES, Http1, ResponseHead
from fsm_agent.clients.http.request import Deadline, Origin, PoolRequest
from fsm_agent.clients.http.sockets import is_readable, shut_down
from fsm_agent.clients.http.trust import check_protocol

READ_BYTES = 65_536


class SyncConnection:
    """A connection that one thread uses at a time; only `hang_up` may be called from others.

    Args:
        origin: The server it connects to.
    """

    _socket: socket.socket | None = None  # here, because `__del__` may come before `__init__` is over

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

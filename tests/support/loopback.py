"""Servers of tests without a port: what connects to one from this OS process gets an end of a socket pair instead.

`Listener` is what the servers of tests stand on.  In the gate (`is_in_memory`, which `conftest.py` sets for each test)
it binds nothing, and its address exists in this OS process alone: any client that connects to it, with threads or
asyncio, with TLS or without, has a real connection all the same, to which a timeout, a cancellation and the end of the
other side happen as to any other.  In the other parts, whose clients may be other OS processes, it is a port.

What is lost on the way exists on ports alone.
"""

from __future__ import annotations

import itertools
import os
import queue
import socket
import struct
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

_HERE = "127.0.0.1"
_numbers = itertools.cycle(range(2_000, 20_000))  # none is given to whoever asks for any
_waiting: dict[int, queue.SimpleQueue[socket.socket | None]] = {}  # connections to accept, by port
_clients = weakref.WeakKeyDictionary[socket.socket, weakref.ref[socket.socket]]()  # the other ends of pairs
_connect, _setsockopt = socket.socket.connect, socket.socket.setsockopt
_getsockname, _getpeername = socket.socket.getsockname, socket.socket.getpeername
_HAS_PAIRS = hasattr(socket, "AF_UNIX")  # not on Windows, whose pairs are of two ports
_is_in_memory = False


@contextmanager
def in_memory(*, is_on: bool = True) -> Iterator[None]:
    """Have the servers that are made in this block bind no port."""
    global _is_in_memory
    before, _is_in_memory = _is_in_memory, is_on and _HAS_PAIRS
    try:
        yield
    finally:
        _is_in_memory = before


class Listener:
    """Accepts connections of this machine, or of this OS process alone.

    Args:
        port: The TCP port, or 0 for any free port.

    Attributes:
        is_in_memory: Whether it listens at no port.
        port: The port for clients.
    """

    def __init__(self, port: int = 0) -> None:
        self.is_in_memory = _is_in_memory
        self._socket = None if self.is_in_memory else socket.create_server((_HERE, port), backlog=64)
        self.port = self._socket.getsockname()[1] if self._socket else port or _free_number()
        self._queue = queue.SimpleQueue[socket.socket | None]()
        if self.is_in_memory:
            _waiting[self.port] = self._queue

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{_HERE}:{self.port}"

    def set_buffer(self, size: int) -> None:
        """Let every connection hold no more than this many unread bytes."""
        if self._socket is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

    def accept(self) -> socket.socket | None:
        """Return the next connection; None once it is closed."""
        if self._socket is None:
            return self._queue.get()
        try:
            accepted = self._socket.accept()[0]
        except OSError:
            return None
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return accepted

    def close(self) -> None:
        """Accept no more, and wake the thread that waits for one."""
        if self._socket is None:
            _waiting.pop(self.port, None)
            self._queue.put(None)
            return
        with suppress(OSError):  # not on every system: closing it wakes the thread there
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _free_number() -> int:
    return next(number for number in _numbers if number not in _waiting)


def end_by_reset(connection: socket.socket) -> None:
    """Have the other side see a reset when this connection is closed."""
    if not _is_pair(connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif (client := _clients[connection]()) is not None:
        socket.socket.send(client, b"unread")  # what is closed before it was read is a reset


def _is_pair(sock: socket.socket) -> bool:
    return not isinstance(_getsockname(sock), tuple)


def _connect_here(sock: socket.socket, address: Any) -> None:
    is_ours = isinstance(address, tuple) and address[0] in (_HERE, "localhost")
    waiting = _waiting.get(address[1]) if is_ours else None
    if waiting is None:
        return _connect(sock, address)
    mine, other = socket.socketpair()
    os.dup2(mine.fileno(), sock.fileno(), inheritable=False)
    mine.close()
    os.set_blocking(sock.fileno(), sock.gettimeout() is None)
    _clients[other] = weakref.ref(sock)
    waiting.put(other)
    return None


def _setsockopt_here(sock: socket.socket, level: int, *option: Any) -> None:
    if level != socket.IPPROTO_TCP or not _is_pair(sock):
        _setsockopt(sock, level, *option)


def _named(name_of: Callable[[socket.socket], Any]) -> Callable[[socket.socket], Any]:
    def name_of_it(sock: socket.socket) -> Any:
        name = name_of(sock)
        is_of_pair = sock.family == socket.AF_INET and not isinstance(name, tuple)
        return (_HERE, 0) if is_of_pair else name

    return name_of_it


if _HAS_PAIRS:
    socket.socket.connect = _connect_here  # type: ignore[assignment,method-assign]
    socket.socket.setsockopt = _setsockopt_here  # type: ignore[assignment,method-assign]
    socket.socket.getsockname = _named(_getsockname)  # type: ignore[assignment,method-assign]
    socket.socket.getpeername = _named(_getpeername)  # type: ignore[assignment,method-assign]

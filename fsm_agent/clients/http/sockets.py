"""Socket operations that asyncio and threads share."""

from __future__ import annotations

import select
import socket
from contextlib import suppress


def is_readable(descriptor: int) -> bool:
    """Return True if there are unread bytes, or the unread end of the connection."""
    if not hasattr(select, "poll"):  # Windows, whose `select` takes any socket
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def shut_down(sock: socket.socket) -> None:
    """Shut a connection down, which wakes any thread that waits on it; safe to repeat.

    On Linux this also ends a pending `connect`.
    """
    with suppress(OSError):  # closed already, or not connected yet
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not TLS's own, which would wait for the peer

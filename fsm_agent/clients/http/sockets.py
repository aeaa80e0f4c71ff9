"""What asyncio and threads both ask of a socket."""

from __future__ import annotations

import select
import socket
from contextlib import suppress


def is_readable(descriptor: int) -> bool:
    """Return whether bytes, or the end of them, have come that nobody has read."""
    if not hasattr(select, "poll"):  # Windows, whose `select` takes any socket
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def shut_down(sock: socket.socket) -> None:
    """End a connection for whoever waits for it, in any thread; safe to repeat.

    On Linux this ends a `connect` under way, too.
    """
    with suppress(OSError):  # closed already, or not connected yet
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not TLS's own, which would wait for the peer

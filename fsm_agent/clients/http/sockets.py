"""How is a thread woken that waits for bytes?"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fsm_agent.deferred import deferred

if TYPE_CHECKING:
    import socket
else:
    socket = deferred("socket")


def shut_down(stream: Any) -> None:
    """End what is read from httpcore's network stream: a blocked `recv` knows no other way.  Safe to repeat."""
    with suppress(OSError, AttributeError):  # closed already, or no socket at all
        socket.socket.shutdown(stream.get_extra_info("socket"), socket.SHUT_RDWR)  # not TLS's own, which unwraps

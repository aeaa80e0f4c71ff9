"""A port for a program that gets its number first and opens it later."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress

ASKED_FOR = range(20_000, 32_768)  # Linux gives none of these to whoever asks for any, as other tests do all the time


def free_port() -> int:
    """Return a port of this machine that nothing uses, and nothing is given before the program begins."""
    while True:
        port = secrets.choice(ASKED_FOR)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port

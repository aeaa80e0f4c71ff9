"""The standard input of an MCP server, of which each line is one message.

The official package reads lines of any length.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, BinaryIO, cast

from fsm_agent.mcp.bodies import MAX_BYTES


class BoundedLines:
    """The lines of a file as text; in place of one that is too long comes one that is no message.

    Args:
        file: The file.
        max_bytes: How long a line may be.
    """

    def __init__(self, file: BinaryIO, max_bytes: int = MAX_BYTES) -> None:
        self._file = file
        self._max_bytes = max_bytes

    def readline(self) -> str:
        """Return the next line; empty at the end."""
        line = self._file.readline(self._max_bytes + 1)
        if len(line) <= self._max_bytes:
            return line.decode("utf-8", "replace")
        while line and not line.endswith(b"\n"):
            line = self._file.readline(1 << 16)
        return "too long\n"


@contextmanager
def own_stdin() -> Iterator[IO[str]]:
    """Yield standard input; for all else it is empty meanwhile, so that no function reads the client's messages."""
    private = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    file = os.fdopen(private, "rb", closefd=False)  # a thread may still read it at the end
    try:
        yield cast("IO[str]", BoundedLines(file))
    finally:
        with suppress(OSError):
            os.dup2(private, 0)

"""Keep an agent call in a file between two processes."""

from __future__ import annotations

import os
from pathlib import Path

from fsm_agent.errors import SnapshotError, UsageError
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.snapshot import snapshot
from fsm_agent.runtime.private_files import write_private

MAX_BYTES = 50_000_000  # of a snapshot


def write_snapshot(call: AgentCall, path: str | os.PathLike[str]) -> None:
    """Write ``call`` to a file, which only its owner may read, and which is either replaced whole or left as it was.

    Raises:
        UsageError: The file cannot be written.
    """
    path = Path(path)
    try:
        write_private(path, snapshot(call).encode())
    except OSError as error:
        raise UsageError(f"no snapshot can be written to {str(path)!r}: {error.strerror or error}") from error


def read_snapshot(path: str | os.PathLike[str]) -> bytes:
    """Return the document that `write_snapshot` wrote, for `Agent.restore`.

    Raises:
        SnapshotError: The file cannot be read, or is larger than any snapshot.
    """
    try:
        with Path(path).open("rb") as file:
            document = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SnapshotError(f"no snapshot can be read from {str(path)!r}: {error.strerror or error}") from error
    if len(document) > MAX_BYTES:
        raise SnapshotError(f"{str(path)!r} is larger than {MAX_BYTES} bytes: no snapshot is")
    return document

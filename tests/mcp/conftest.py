"""What holds for tests of MCP servers: their sessions end with the last test of each file."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from mcp_sessions import end_sessions


@pytest.fixture(autouse=True, scope="module")
def _sessions_end_here() -> Iterator[None]:
    """Other test files count garbage, and the end of a session during them would add to it."""
    yield
    gc.collect()  # servers in the tracebacks of tests
    end_sessions()
    gc.collect()

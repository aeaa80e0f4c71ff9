"""What tests of spans share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.traces import Traces


@pytest.fixture
def traces() -> Iterator[Traces]:
    """Spans of all agents and flows that are driven during the test."""
    with Traces().recording() as recorded:
        yield recorded
        assert recorded.open == 0, "a span was left open"

"""What holds for tests of the connections of our own pools."""

from __future__ import annotations

import pytest


@pytest.fixture
def is_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a connection comes soon after a request was sent, also when it is noticed late on a slow machine."""
    monkeypatch.setattr("fsm_agent.clients.http.http1.RESEND_WITHIN_S", 10.0)

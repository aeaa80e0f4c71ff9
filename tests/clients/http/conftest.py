"""What holds for tests of the connections of our own pools."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def resend_within(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set how soon after a request the end of a connection must come for the request to be sent again."""
    return lambda seconds: monkeypatch.setattr("fsm_agent.clients.http.http1.RESEND_WITHIN_S", seconds)


@pytest.fixture
def is_soon(resend_within: Callable[[float], None]) -> None:
    """The end of a connection comes soon after a request was sent, also when it is noticed late on a slow machine."""
    resend_within(10.0)

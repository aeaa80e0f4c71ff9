"""Front ends whose service does not look for abandoned runs, because nothing sleeps in the gate."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _no_sweeps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sleeps last until the service is closed; a test of the system part really sleeps."""
    if any(request.node.get_closest_marker(tier) for tier in ("system", "nightly")):
        return
    real = asyncio.sleep

    async def sleep(seconds: float, result: Any = None) -> Any:
        if seconds > 0.01:
            await asyncio.Event().wait()
        return await real(seconds, result)

    monkeypatch.setattr(asyncio, "sleep", sleep)

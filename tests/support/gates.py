"""Waits of models that tasks of any event loop share with each other and with threads."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any


class Gate:
    """Waits until it is opened, in any thread or event loop."""

    def __init__(self) -> None:
        self._opened = Future[None]()

    def set(self) -> None:
        with suppress(InvalidStateError):  # twice
            self._opened.set_result(None)

    def is_set(self) -> bool:
        return self._opened.done()

    def block(self) -> None:
        """Wait in this thread."""
        self._opened.result(60)  # and no test takes as long

    async def wait(self) -> None:
        """Wait; a task that is cancelled leaves the gate to the others."""
        await asyncio.shield(asyncio.wrap_future(self._opened))


class Meeting:
    """Makes each visitor wait until this many have come."""

    def __init__(self, expected: int) -> None:
        self._missing = iter(range(expected - 1, -1, -1))
        self._all_came = Gate()

    async def wait(self, *_: Any) -> None:
        if next(self._missing) == 0:
            self._all_came.set()
        async with asyncio.timeout(20):
            await self._all_came.wait()

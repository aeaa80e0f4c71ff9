"""Counters of changes that threads wait for: those that this OS process makes, and those of others to a file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

POLL_S = 0.05  # how often a waiting thread checks for changes by other OS processes


class ChangeNotifier:
    """A counter of changes that threads can wait for; thread-safe.

    Args:
        version: Returns a value that differs after each change by another OS process; None: no other makes any.
    """

    def __init__(self, version: Callable[[], object] | None = None) -> None:
        self._version = version
        self._last: object = None
        self._count = 0
        self._changed = threading.Condition()

    def count(self) -> int:
        """Return the number of changes so far."""
        with self._changed:
            self._look()
            return self._count

    def add(self) -> None:
        """Count a change by this OS process, and wake the waiting threads."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, count: int, timeout_s: float) -> bool:
        """Wait until the count is no longer ``count``; return False after ``timeout_s`` seconds without a change."""
        ends_s = time.monotonic() + timeout_s
        with self._changed:
            while True:
                self._look()
                left_s = ends_s - time.monotonic()
                if self._count != count or left_s <= 0.0:
                    return self._count != count
                self._changed.wait(left_s if self._version is None else min(POLL_S, left_s))

    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        """Wait until the count is no longer ``seen``, for at most ``timeout_s`` seconds; return it."""
        self.wait(seen, timeout_s)
        return self.count()

    def _look(self) -> None:
        if self._version is None:
            return
        version = self._version()
        if version != self._last:
            self._last = version
            self._count += 1
            self._changed.notify_all()

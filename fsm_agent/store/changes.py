"""Wait for changes that any OS process makes to a file, and until the clock makes a run due."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

POLL_S = 0.05  # how often a waiting thread checks for changes by other OS processes


class ChangeNotifier:
    """A counter of changes that threads can wait for; thread-safe.

    Args:
        version: Returns a value that differs after each change by another OS process.
    """

    def __init__(self, version: Callable[[], object]) -> None:
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

    def wait(self, count: int, timeout_s: float) -> None:
        """Wait until the count is no longer ``count``, for at most ``timeout_s`` seconds."""
        ends_s = time.monotonic() + timeout_s
        with self._changed:
            while True:
                self._look()
                left_s = ends_s - time.monotonic()
                if self._count != count or left_s <= 0.0:
                    return
                self._changed.wait(min(POLL_S, left_s))

    def _look(self) -> None:
        version = self._version()
        if version != self._last:
            self._last = version
            self._count += 1
            self._changed.notify_all()


def wait_limit_s(
    timeout_s: float, next_s: tuple[float | None, float | None], due_s: float, looked_s: float, now_s: float
) -> float:
    """Return for how many seconds to wait after a claim that found nothing.

    Args:
        timeout_s: The most.
        next_s: When a run is due next, by the clock of who claimed, and when a lease ends, by that of the store.
        due_s: The time of the claim, by the clock of who claimed.
        looked_s: The same, by that of the store.
        now_s: The present, by that of the store.
    """
    first_s, end_s = next_s
    limits = [timeout_s]
    if first_s is not None:
        limits.append(first_s - due_s - (now_s - looked_s))
    if end_s is not None:
        limits.append(end_s - now_s)
    return min(limits)

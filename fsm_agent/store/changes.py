"""Changes of a file by any OS process, for those who wait for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

POLL_S = 0.05  # how often somebody who waits looks for what other OS processes have done


class ChangeNotifier:
    """A count of changes that can be waited for; thread-safe.

    Args:
        version: Returns something that is another one after each change by another OS process.
    """

    def __init__(self, version: Callable[[], object]) -> None:
        self._version = version
        self._last: object = None
        self._count = 0
        self._changed = threading.Condition()

    def count(self) -> int:
        """Return a number that is greater after a change."""
        with self._changed:
            self._look()
            return self._count

    def add(self) -> None:
        """Tell those who wait of a change by this OS process."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, count: int, timeout_s: float) -> None:
        """Wait until there has been another change than the first ``count``, for at most ``timeout_s`` seconds."""
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

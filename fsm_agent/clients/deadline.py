"""The end of a request to a model."""

from __future__ import annotations

import time


class Deadline:
    """The end of a request: ``timeout_s`` from now, or never.

    Attributes:
        timeout_s: The seconds that it was made with.
        at_s: Its time on the monotonic clock; None: never.
    """

    __slots__ = ("at_s", "timeout_s")

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self.at_s = None if timeout_s is None else time.monotonic() + timeout_s

    def copy(self) -> Deadline:
        """Return an independent copy."""
        copy = Deadline(None)
        copy.timeout_s, copy.at_s = self.timeout_s, self.at_s
        return copy

    def end_within(self, timeout_s: float) -> None:
        """Move it to ``timeout_s`` from now, unless it comes earlier."""
        self.at_s = time.monotonic() + self.within(timeout_s)

    def time_left(self) -> float | None:
        """Return the seconds left, not positive once it has passed; None if there is no deadline."""
        return None if self.at_s is None else self.at_s - time.monotonic()

    def within(self, timeout_s: float) -> float:
        """Return ``timeout_s`` or, if that is less, the time left."""
        left = self.time_left()
        return timeout_s if left is None else max(0.0, min(timeout_s, left))

    @property
    def is_over(self) -> bool:
        """True once no time is left."""
        return self.at_s is not None and self.at_s <= time.monotonic()

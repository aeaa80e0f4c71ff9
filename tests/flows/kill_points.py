"""Places between the steps of a run at which its OS process is killed: around each append, and around an effect."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any


class KillPoints:
    """Kills the OS process at the point of a name and number, or never for 0."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.count = 0

    def point(self, name: str) -> None:
        self.count += name == self.name
        if name == self.name and self.count == self.number:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, store: Any) -> None:
        """Have a point when outcomes are there and not written, and one when they are written and nothing is done."""
        append = store.append

        def appended(lease: Any, n: int, lines: Any, *rest: Any, **options: Any) -> int:
            self.point("before an append")
            left: int = append(lease, n, lines, *rest, **options)
            self.point("behind an append")
            return left

        store.append = appended

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a kill point before its effect, and one when the effect is on disk but not yet
        reported.
        """

        def around(*args: Any, **options: Any) -> Any:
            self.point("before an effect")
            result = function(*args, **options)
            self.point("behind an effect")
            return result

        return around

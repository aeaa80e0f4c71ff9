"""How does the time that something takes grow with its input?"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any


def growth(text: Callable[[int], str], read: Callable[[str], Any], size: int) -> float:
    """By how much the processor time of ``read`` grows with each doubling of ``text``, on average of three.

    2 when it is linear, 4 when it is quadratic.
    """

    def least(size: int) -> float:
        given, took = text(size), []
        gc.disable()
        try:
            for _ in range(3):
                start = time.thread_time()
                read(given)
                took.append(time.thread_time() - start)
        finally:
            gc.enable()
        return min(took)

    return ((least(8 * size) + 1e-3) / (least(size) + 1e-3)) ** (1 / 3)

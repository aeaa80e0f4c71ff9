"""Growth of the time that something takes, with its input."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

ATTEMPTS = 15


def growth(given: Callable[[int], T], read: Callable[[T], Any], size: int, *, until: float = 3) -> float:
    """Return by how much the processor time of ``read`` grows with each doubling of its input, on average of three.

    2 when it is linear, 4 when it is quadratic.  The machine may be busy: what is not below ``until`` is tried again.
    The small input is read thrice: a disturbance there would make the growth look less than it is.
    """

    def least(what: T, times: int) -> float:
        took = []
        gc.disable()
        try:
            for _ in range(times):
                start = time.thread_time()
                read(what)
                took.append(time.thread_time() - start)
        finally:
            gc.enable()
        return min(took)

    few, many = given(size), given(8 * size)
    few_s = many_s = float("inf")
    for _ in range(ATTEMPTS):
        few_s, many_s = min(few_s, least(few, 3)), min(many_s, least(many, 1))
        found = ((many_s + 1e-3) / (few_s + 1e-3)) ** (1 / 3)
        if found < until:
            break
    return found

"""What something costs: growth of its time with its input, and how many functions it calls."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

ATTEMPTS = 15


def growth(given: Callable[[int], T], read: Callable[[T], Any], size: int, *, until: float = 3) -> float:
    """Return the factor by which the processor time of ``read`` grows when its input doubles, averaged over three
    doublings.

    It is 2 for linear time, and 4 for quadratic time.  Because the machine may be busy, a result that is not below
    ``until`` is measured again.  The small input is read three times, because a disturbance there would make the growth
    look smaller.
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


def calls_made(work: Callable[[], Any]) -> int:
    """Return how many Python functions this thread calls to do the work."""
    made = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal made
        made += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return made

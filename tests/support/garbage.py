"""What a piece of work leaves for the collector of garbage, and which objects of the package cause it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any


def garbage_of(work: Callable[[], object]) -> list[Any]:
    """The objects in reference cycles that the work leaves, and those that only they refer to."""
    gc.collect()
    gc.disable()
    try:
        work()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return [*gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def is_ours(kept: Any) -> bool:
    """Is it an object, a function or a frame of the package?"""
    if isinstance(kept, FrameType):
        return str(kept.f_globals.get("__name__")).startswith("fsm_agent")
    return str((kept if isinstance(kept, FunctionType) else type(kept)).__module__).startswith("fsm_agent")


def is_in_a_cycle(kept: Any, garbage: list[Any]) -> bool:
    """Does a way lead from it through other garbage back to itself?"""
    among, seen, coming = {id(other) for other in garbage}, set[int](), [kept]
    while coming:
        for other in gc.get_referents(coming.pop()):
            if other is kept:
                return True
            if id(other) in among and id(other) not in seen:
                seen.add(id(other))
                coming.append(other)
    return False

"""A part of a test without garbage collection, so that the collector's work is not counted."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect what earlier tests left, and then nothing more: the work of a ``__del__`` would be counted.

    What is there stays frozen: each later collection in this OS process would look at the whole suite again.
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

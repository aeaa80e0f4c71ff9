"""Tell whether the garbage collector runs in this thread.

It may run at any point of any code, with any lock held.  So what it ends must wait for no lock in its thread.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

_collector: int | None = None  # the thread that collects now; there is one at a time


def is_collecting() -> bool:
    """Return whether the caller was called by the garbage collector, such as in a generator that it closes."""
    return _collector == threading.get_ident()


def _note(phase: str, _info: dict[str, Any]) -> None:
    global _collector
    _collector = threading.get_ident() if phase == "start" else None


gc.callbacks.append(_note)

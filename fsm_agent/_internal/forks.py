"""What an OS process does around a fork, where there are forks: not on Windows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any


def at_fork(
    *,
    after_in_child: Callable[[], Any],
    before: Callable[[], Any] | None = None,
    after_in_parent: Callable[[], Any] | None = None,
) -> None:
    """Register functions as `os.register_at_fork` does; do nothing on Windows, where no process forks.

    Args:
        after_in_child: Called in the new process: threads, connections and locks of its parent are not its own.
        before: Called in the parent, for example to take a lock that no other thread may hold during the fork.
        after_in_parent: Called in the parent behind the fork.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            after_in_child=after_in_child,
            **{name: call for name, call in (("before", before), ("after_in_parent", after_in_parent)) if call},
        )


making = threading.RLock()  # held while an object is made that two threads must not make at once
at_fork(before=making.acquire, after_in_parent=making.release, after_in_child=making.release)

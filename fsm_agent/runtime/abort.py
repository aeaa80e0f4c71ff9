"""Interrupt the waits of one thread from another thread.

A thread that waits cannot check a flag, so each wait registers a function that wakes it.  What may have to be
interrupted, such as a function of the user, runs under an `Abort`:

    abort = Abort()
    reply = abort.run(client.complete, request)  # in the thread that asks; raises `Aborted`
    abort.set()  # in any other thread, at any time: hangs up at once

The `Abort` in force is a context variable, so it reaches a wait through any number of callers without a parameter, and
a thread that was started in a copy of the context inherits it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Aborted(BaseException):
    """The result is no longer wanted.

    Like `asyncio.CancelledError` this is not a failure: code that handles failures (recalls, fallbacks) must not catch
    it.
    """


class Abort:
    """A one-time switch that interrupts the waits of the code under it; any thread can set it.

    Attributes:
        is_set: Whether it was set.
        is_to_rest: Whether the agent calls under it rest where they stand, to be continued; otherwise they end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: set[Callable[[], object]] = set()
        self.is_set = False
        self.is_to_rest = False

    def set(self) -> None:
        """Wake all present and future waiters; thread-safe, and safe to repeat."""
        with self._lock:
            self.is_set = True
            for wake in self._wakers:
                wake()

    def add(self, wake: Callable[[], object]) -> None:
        """Call ``wake`` when this is set, or at once if it is set already.

        The call may come from another thread, with a lock held: it must be quick, raise nothing, and neither add nor
        discard.
        """
        with self._lock:
            self._wakers.add(wake)
            if self.is_set:
                wake()

    def discard(self, wake: Callable[[], object]) -> None:
        """Undo `add`; once this returns, ``wake`` is not running and will not be called."""
        with self._lock:
            self._wakers.discard(wake)

    def check(self) -> None:
        """Raise `Aborted` if this is set."""
        if self.is_set:
            raise Aborted

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function`` under this.

        Raises:
            Aborted: This was set before ``function`` had finished.
        """
        token = _in_force.set(self)
        try:
            self.check()
            return function(*args, **kwargs)
        finally:
            _in_force.reset(token)


_in_force: ContextVar[Abort | None] = ContextVar("abort", default=None)


def abort_in_force() -> Abort | None:
    """Return the `Abort` that the caller runs under, or None."""
    return _in_force.get()

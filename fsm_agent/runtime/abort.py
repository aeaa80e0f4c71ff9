"""End what one thread waits for, from another thread.

A thread that waits for a socket or a lock notices nothing else, so each wait registers what wakes it.  A request that
may have to be ended runs under an `Abort`:

    abort = Abort()
    reply = abort.run(client.complete, request)  # in the thread that asks; raises `Aborted`
    abort.set()  # in any other thread, at any time: hangs up at once

The `Abort` in force is a context variable, so it reaches a client through any number of callers without a parameter,
and a thread that was started in a copy of the context inherits it.
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

    Like `asyncio.CancelledError` this is no failure: what handles failures (recalls, fallbacks) must not catch it.
    """


class Abort:
    """A switch, good for one use, that ends what runs under it; it can be set from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: set[Callable[[], object]] = set()
        self.is_set = False

    def set(self) -> None:
        """Wake every waiter, now and from now on; thread-safe, and safe to repeat."""
        with self._lock:
            self.is_set = True
            for wake in self._wakers:
                wake()

    def add(self, wake: Callable[[], object]) -> None:
        """Have ``wake`` called when this is set; at once if it is already.

        It is called in another thread, with a lock held: it must be quick, raise nothing, and add or discard nothing.
        """
        with self._lock:
            self._wakers.add(wake)
            if self.is_set:
                wake()

    def discard(self, wake: Callable[[], object]) -> None:
        """Take back `add`: once this returns, ``wake`` is not being called and never will be."""
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
    """Return the `Abort` that may end the caller; None when nothing may."""
    return _in_force.get()

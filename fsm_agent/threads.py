"""How does a function run beside the others, without the power to hold them up?

In a daemon thread of its own: one that blocks for ever can be left behind, and does not keep the process
from ending.  Python cannot end a thread; a coroutine in one can be cancelled.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fsm_agent.deferred import deferred

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

T = TypeVar("T")


class Child(Generic[T]):
    """A function in a thread: ``future`` gets what it returns or raises."""

    __slots__ = ("_cancel", "future")

    def __init__(self, function: Callable[[Child[T]], T]) -> None:
        self.future: Future[T] = Future()
        self._cancel: Callable[[], object] | None = None
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(self._work, function), daemon=True, name="fsm_agent")
        try:
            thread.start()
        except BaseException:  # Ctrl-C, while it is waited for its first breath
            self.cancel()
            raise

    def _work(self, function: Callable[[Child[T]], T]) -> None:
        try:
            result = function(self)
        except BaseException as error:
            if self.future.set_running_or_notify_cancel():
                self.future.set_exception(error)
        else:
            if self.future.set_running_or_notify_cancel():
                self.future.set_result(result)

    def cancel(self) -> None:
        """Give it up: what it returns is dropped; a coroutine is cancelled, a plain function runs on."""
        self.future.cancel()
        if self._cancel is not None:
            with suppress(RuntimeError):  # its loop has closed meanwhile
                self._cancel()

    def run_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in this thread, so that `cancel` reaches it."""

        async def main() -> T:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            self._cancel = partial(loop.call_soon_threadsafe, task.cancel)
            if self.future.cancelled():
                task.cancel()
            return await coroutine

        return asyncio.run(main())


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from sync code, whether or not a loop runs in this thread."""
    child = Child[T](lambda child: child.run_coroutine(coroutine))
    try:
        return child.future.result()
    except BaseException:
        child.cancel()
        raise

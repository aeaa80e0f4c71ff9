"""Threads for what may block: each can be left behind, and does not keep the process from ending.

Python cannot end a thread.  A coroutine in one can be cancelled; other code that waits can ask to be told when nobody
waits for it any more (`on_abandon`), and give up.
"""

from __future__ import annotations

import contextvars
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fsm_agent.deferred import deferred

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

T = TypeVar("T")

IDLE_S = 5.0  # how long a thread waits for its next job

_current: contextvars.ContextVar[Child[Any] | None] = contextvars.ContextVar("fsm_agent_thread", default=None)


class _Worker:
    """A daemon thread that runs one job after another, and ends when there is none for a while.

    To start a thread takes three times as long as to give a job to one that waits.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True, name="fsm_agent").start()

    def run(self, job: Callable[[], object]) -> None:
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_S)
            except queue.Empty:
                try:
                    _idle.remove(self)
                except ValueError:  # somebody has just taken it, and has a job
                    continue
                return
            job()
            del job
            _idle.append(self)


_idle: deque[_Worker] = deque()
os.register_at_fork(after_in_child=_idle.clear)  # a fork takes no threads along


class Child(Generic[T]):
    """A function in a daemon thread: ``future`` gets what it returns or raises.

    Made and started in two steps, so that whoever is interrupted while it starts can `cancel` it.
    """

    __slots__ = ("_ended", "_function", "_on_abandon", "future")

    def __init__(self, function: Callable[[Child[T]], T]) -> None:
        self.future: Future[T] = Future()
        self._function = function
        self._on_abandon: list[Callable[[], object]] = []
        self._ended = threading.Event()

    def start(self) -> Child[T]:
        """Run the function, in a copy of the caller's context."""
        job = partial(contextvars.copy_context().run, self._work)
        try:
            worker = _idle.pop()
        except IndexError:
            worker = _Worker()
        worker.run(job)
        return self

    def _work(self) -> None:
        _current.set(self)
        try:
            result = self._function(self)
        except BaseException as error:
            if self.future.set_running_or_notify_cancel():
                self.future.set_exception(error)
        else:
            if self.future.set_running_or_notify_cancel():
                self.future.set_result(result)
        finally:
            self._ended.set()

    def cancel(self) -> None:
        """Leave it behind: what it returns is dropped, and what it registered with `on_abandon` is called."""
        self.future.cancel()
        for callback in list(self._on_abandon):
            callback()

    def join(self, timeout_s: float) -> None:
        """Wait until the function has ended, at most ``timeout_s`` seconds."""
        self._ended.wait(timeout_s)

    def _register(self, callback: Callable[[], object]) -> None:
        self._on_abandon.append(callback)
        if self.future.cancelled():
            callback()

    def run_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in this thread, so that `cancel` reaches it."""

        async def main() -> T:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None

            def cancel() -> None:
                with suppress(RuntimeError):  # the loop has closed meanwhile
                    loop.call_soon_threadsafe(task.cancel)

            with on_abandon(cancel):
                if self.future.cancelled():
                    task.cancel()
                return await coroutine

        return asyncio.run(main())


@contextmanager
def on_abandon(callback: Callable[[], object]) -> Iterator[None]:
    """Have ``callback`` called, in another thread, when nobody waits for this thread any more.

    It is called while the context lasts, at once if that is so already, perhaps more than once; never in a thread that
    was started elsewhere.  It must not block and must not raise.
    """
    if (child := _current.get()) is None:
        yield
        return
    child._register(callback)
    try:
        yield
    finally:
        with suppress(ValueError):
            child._on_abandon.remove(callback)


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from sync code, whether or not a loop runs in this thread."""
    child = Child[T](lambda child: child.run_coroutine(coroutine))
    try:
        return child.start().future.result()
    except BaseException:
        child.cancel()
        raise

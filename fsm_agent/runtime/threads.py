"""Run plain code in daemon threads that can be left behind.

Python cannot end a thread, but the `Abort` of a `ThreadTask` ends its waits for agents, clients and the clock.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

from fsm_agent._internal.system import at_fork

P = ParamSpec("P")
T = TypeVar("T")


class Aborted(BaseException):
    """The result is no longer wanted.

    Like `asyncio.CancelledError`, this is not a failure.  Code that handles failures (retries, fallbacks) must not
    catch it.
    """


class Abort:
    """A one-time switch that interrupts the waits of the code that runs under it.  Any thread can set it.

    Attributes:
        is_set: True once it is set.
        is_to_rest: True if interrupted agent calls are left at rest, to be continued later.  If False, they end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: set[Callable[[], object]] = set()
        self.is_set = False
        self.is_to_rest = False

    def set(self) -> None:
        """Wake all present and future waiters.  Thread-safe, and safe to repeat."""
        with self._lock:
            self.is_set = True
            for wake in self._wakers:
                wake()

    def add(self, wake: Callable[[], object]) -> None:
        """Call ``wake`` when the switch is set, or at once if it is set already.

        The call may come from another thread while it holds a lock.  So ``wake`` must be quick, must not raise, and
        must not call `add` or `discard`.
        """
        with self._lock:
            self._wakers.add(wake)
            if self.is_set:
                wake()

    def discard(self, wake: Callable[[], object]) -> None:
        """Undo `add`.  After this returns, ``wake`` is not running and will not be called."""
        with self._lock:
            self._wakers.discard(wake)

    def check(self) -> None:
        if self.is_set:
            raise Aborted

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function`` under this switch.

        Raises:
            Aborted: If the switch was set before ``function`` began, or interrupted one of its waits.
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


Settled: TypeAlias = Callable[[], T]

"""The result of work, to be called once: returns the value, or raises the exception and forgets it.

A future would keep the exception in a reference cycle, through the frames of the traceback.  All objects of a call
would then stay alive until the garbage collector runs.
"""

IDLE_S = 5.0  # how long a thread waits for its next job


class _Worker:
    """A daemon thread that runs one job after another, and ends after a while without one.

    Starting a thread takes three times as long as giving a job to an idle one.
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
                except ValueError:  # `_start` has just taken it, and will give it a job
                    continue
                return
            job()
            del job
            _idle.append(self)


_idle: deque[_Worker] = deque()

at_fork(after_in_child=_idle.clear)  # a fork does not copy threads


class ThreadTask(Generic[T]):
    """A function in a daemon thread.  Its result or exception goes to ``future``."""

    __slots__ = ("_function", "abort", "future")

    def __init__(self, function: Callable[[ThreadTask[T]], T]) -> None:
        self.future: futures.Future[T] = futures.Future()
        self._function = function
        self.abort = Abort()

    def start(self) -> ThreadTask[T]:
        _start(self._work)
        return self

    def _work(self) -> None:
        try:
            result = self.abort.run(self._function, self)
        except BaseException as error:
            if self.future.set_running_or_notify_cancel():
                self.future.set_exception(error)
        else:
            if self.future.set_running_or_notify_cancel():
                self.future.set_result(result)


def _start(job: Callable[[], object]) -> None:
    inside = partial(contextvars.copy_context().run, job)
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.run(inside)


async def in_thread(work: Callable[[], T]) -> T:
    """Run plain code in a daemon thread, which a cancellation leaves behind."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Settled[T]] = loop.create_future()  # with a `ThreadTask`, each call takes a third longer
    abort = Abort()

    def perform() -> None:
        try:
            outcome = abort.run(settle, work)
        except BaseException as error:
            outcome = _make_raiser(error)
        with suppress(RuntimeError):  # the loop is closed, so nothing waits
            loop.call_soon_threadsafe(_deliver, ended, outcome)

    _start(perform)
    try:
        return (await ended)()
    except asyncio.CancelledError:
        abort.set()
        raise


def _deliver(ended: asyncio.Future[Settled[T]], outcome: Settled[T]) -> None:
    if not ended.done():
        ended.set_result(outcome)


def settle(work: Callable[[], T]) -> Settled[T]:
    """Run ``work``, and return its settled result.

    The exception may have a type that a future cannot hold, such as `StopIteration`.
    """
    try:
        value = work()
    except Exception as error:
        return _make_raiser(error)
    return lambda: value


def _make_raiser(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        nonlocal error
        try:
            raise error
        finally:
            del error

    return fail

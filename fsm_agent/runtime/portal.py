"""Daemon threads for plain code, and an event loop in a daemon thread, which runs async code for sync calls.

Python cannot end a thread, but a `ThreadTask`'s `Abort` can end the thread's waits for agents, clients and the clock.

`call` and `stream` are for clients and similar code, whereas the sync driver waits for a `LoopTask`.  Each such wait
ends at once on Ctrl-C, or when the function that contains it is abandoned.  The work is then cancelled, and its
connections are closed.

Code in a loop's thread must not wait for that loop, so a sync call made there uses another one.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent import futures
from contextlib import aclosing, closing, suppress
from contextvars import ContextVar
from enum import Enum
from functools import partial
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

from fsm_agent._internal.system import at_fork, making
from fsm_agent.runtime.log import LOG

P = ParamSpec("P")
T = TypeVar("T")


class Aborted(BaseException):
    """Raised in code that waits for something, when its result is no longer wanted.

    Like `asyncio.CancelledError`, this is not a failure.  Code that handles failures (retries, fallbacks) must not
    catch it.
    """


class Abort:
    """A one-time switch that any thread can set.  It interrupts the waits in the code that runs under it.

    Attributes:
        is_set: True once the switch is set.
        is_to_rest: True if interrupted agent calls are left as they are, to be continued later.  If False, they are
            ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: set[Callable[[], object]] = set()
        self.is_set = False
        self.is_to_rest = False

    def set(self) -> None:
        """Wake all present and future waiters.  This is thread-safe, and safe to repeat."""
        with self._lock:
            self.is_set = True
            for wake in self._wakers:
                wake()

    def add(self, wake: Callable[[], object]) -> None:
        """Call ``wake`` when the switch is set, or at once if it is already set.

        ``wake`` may be called from another thread while that thread holds a lock, so it must be quick, must not raise,
        and must not call `add` or `discard`.
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

"""Delivers the result of some work, once: returns the value, or raises the exception and forgets it.

A future would keep the exception in a reference cycle, through the frames of the traceback.  All objects of a call
would then stay alive until the garbage collector runs.
"""

IDLE_S = 5.0  # how long a thread waits for its next job


class _Worker:
    """A daemon thread that runs one job after another, and ends when it has been idle for a while.

    Starting a thread takes three times as long as handing a job to an idle one.
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
    """A function that runs in a daemon thread.  Its result or exception goes to ``future``."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.future: futures.Future[T] = futures.Future()
        self._function = function
        self.abort = Abort()

    def start(self) -> ThreadTask[T]:
        _start(self._work)
        return self

    def _work(self) -> None:
        try:
            result = self.abort.run(self._function)
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
    """Run plain code in a daemon thread, which is abandoned if the task is cancelled."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Settled[T]] = loop.create_future()  # with a `ThreadTask`, each call takes a third longer
    abort = Abort()

    def perform() -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing waits
            loop.call_soon_threadsafe(_deliver, ended, _settled(partial(abort.run, work)))

    _start(perform)
    try:
        return (await ended)()
    except asyncio.CancelledError:
        abort.set()
        raise


def _deliver(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _settled(work: Callable[[], T]) -> Settled[T]:
    """Run ``work``, and return a function that delivers its result.

    The exception may have a type that a future cannot hold, such as `StopIteration`.
    """
    try:
        value = work()
    except BaseException as error:
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


_collector: int | None = None  # the thread that collects now; there is one at a time


def is_collecting() -> bool:
    """Return whether the garbage collector called this code, for example by closing a generator."""
    return _collector == threading.get_ident()


def _note(phase: str, _info: dict[str, Any]) -> None:
    global _collector
    _collector = threading.get_ident() if phase == "start" else None


gc.callbacks.append(_note)


class Place(Enum):
    """Where an activity runs the user's plain code, such as a function.

    Attributes:
        HERE: In the caller's thread, with its connections and thread-locals.  Nothing can wake the code there, so the
            activity's coroutine never waits, and async code runs in the portal's loop.
        THREAD: In a daemon thread, which is abandoned if the activity is cancelled.
        LOOP: In the event loop's thread.
    """

    HERE = "here"
    THREAD = "thread"
    LOOP = "loop"

    async def call(self, work: Callable[[], T]) -> T:
        """Run plain code in this place."""
        return await in_thread(work) if self is Place.THREAD else work()

    def wait_for(self, awaitable: Awaitable[T]) -> Awaitable[T]:
        """Return an awaitable for the result.  For `HERE`, the result is awaited in the portal's loop."""
        return _wait_here(awaitable) if self is Place.HERE else awaitable


async def _wait_here(awaitable: Awaitable[T]) -> T:
    async def result() -> T:
        return await awaitable

    return call(result())


LOOK_UP_S = 1.0  # the longest single wait: a Ctrl-C just before a wait is handled only after it
LEAVE_S = 10.0  # how long a cancelled task may take to end
AHEAD = 64  # how many items a stream may be ahead of its consumer
_homes: list[tuple[threading.Thread, asyncio.AbstractEventLoop]] = []  # each serves callers in the thread before it
_running: set[LoopTask[Any]] = set()  # a loop references its tasks only weakly
_inherited: list[object] = []  # kept, because their destructors would close the parent's sockets


def _forget_parents_loops() -> None:
    _inherited.append([*_homes, *_running])
    _homes.clear()
    _running.clear()


at_fork(after_in_child=_forget_parents_loops)  # a fork does not copy threads


def loop() -> asyncio.AbstractEventLoop:
    """Return the event loop for a caller in this thread.  The loop is started on first use."""
    depth = _depth()
    if depth:
        LOG.warning(
            "a sync call in a coroutine function blocks the loop of all sync calls; await the async method instead"
        )
    if depth == len(_homes):
        with making:
            if depth == len(_homes):
                _homes.append(start_loop("fsm_agent loop"))
    return _homes[depth][1]


def start_loop(name: str) -> tuple[threading.Thread, asyncio.AbstractEventLoop]:
    """Return a daemon thread and the event loop that it runs until the process ends."""
    made = asyncio.new_event_loop()
    made.set_default_executor(_DaemonThreads(1))
    thread = threading.Thread(target=_run, args=(made,), daemon=True, name=name)
    thread.start()  # before the loop is known, so that a Ctrl-C cannot leave one that no thread runs
    return thread, made


def _depth() -> int:
    """If this is a loop's thread, return that loop's number, counted from 1; otherwise return 0."""
    here = threading.get_ident()
    for depth, (thread, _) in enumerate(_homes, 1):
        if thread.ident == here:
            return depth
    return 0


class _DaemonThreads(futures.ThreadPoolExecutor):
    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> futures.Future[T]:
        return ThreadTask(partial(work, *args, **kwargs)).start().future


def _run(made: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(made)
    while True:
        with suppress(KeyboardInterrupt, SystemExit):  # from a task, which keeps it as its exception
            made.run_forever()


class LoopTask(Generic[T]):
    """A handle for a task that runs in a loop, for use from another thread.

    ``make`` is called in the loop, in a copy of the starter's context.  When the task has ended, ``tell`` is called in
    the loop with the task, or with None if it never began.  The threads share no `Event`, `Condition` or `Future`,
    because a Ctrl-C inside one of these could leave its lock held and block the loop.
    """

    def __init__(
        self,
        home: asyncio.AbstractEventLoop,
        make: Callable[[], Coroutine[Any, Any, T]],
        tell: Callable[[asyncio.Task[T] | None], object],
    ) -> None:
        self.home = home
        self._make = make
        self._tell = tell
        self._task: asyncio.Task[T] | None = None
        self.is_over = False  # kept as state, because a Ctrl-C may swallow a message

    def start(self) -> None:
        self.home.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._task = self.home.create_task(self._make())
        _running.add(self)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T] | None) -> None:
        if task is not None and not task.cancelled():
            task.exception()  # marks it as retrieved, so that asyncio does not log it
        tell = self._tell
        del self._make, self._tell  # they may reference this task
        self.is_over = True
        _running.discard(self)
        tell(task)

    def cancel(self) -> None:
        """Cancel the task, from any thread.  If a Ctrl-C prevented it from starting, it ends at once."""
        self.home.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.is_over:
            self._make().close()
            self._end(None)

    def add_done_callback(self, callback: Callable[[asyncio.Task[T]], object]) -> None:
        """Call ``callback`` in the loop when the task has ended.

        This is safe from any thread, once `start` has been called.
        """

        def add() -> None:
            if self._task is not None:
                self._task.add_done_callback(callback)

        self.home.call_soon_threadsafe(add)

    def result(self) -> T:
        """Return the result of a task that has ended, or raise its exception.  This works only once."""
        task, self._task = self._task, None
        assert task is not None
        try:
            return task.result()
        finally:
            del task  # breaks a cycle: the traceback of its exception references this frame


def call(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the loop, and return its result.

    Raises:
        Aborted: If the function that contains the caller was abandoned.
    """
    arriving: queue.SimpleQueue[Any] = queue.SimpleQueue()
    task = LoopTask(loop(), lambda: coroutine, lambda _: arriving.put(None))
    for _ in _arrivals(task, arriving):
        pass
    return task.result()


def stream(items: AsyncGenerator[T]) -> Generator[T]:
    """Yield the items of an async generator that runs in the loop.  Close this generator to stop early.

    The async generator may run ahead by `AHEAD` items.

    Raises:
        Aborted: If the function that contains the caller was abandoned.
    """
    arriving: queue.SimpleQueue[Any] = queue.SimpleQueue()
    task = LoopTask(loop(), lambda: _pump(items, arriving), lambda _: arriving.put(None))
    with closing(_arrivals(task, arriving)) as arrivals:
        for item, gate in arrivals:
            yield item
            if gate is not None:
                open_gate(gate)
    task.result()


def without_waiting(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, without a loop, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    coroutine.close()
    raise AssertionError(f"{coroutine!r} waits")


async def _pump(items: AsyncGenerator[T], arriving: queue.SimpleQueue[Any]) -> None:
    """Put the items into the queue, and from time to time wait until the consumer opens a gate."""
    room = AHEAD
    async with aclosing(items):
        async for item in items:
            if room:
                room -= 1
                arriving.put((item, None))
                continue
            room, gate = AHEAD, asyncio.get_running_loop().create_future()
            arriving.put((item, gate))
            await gate


def open_gate(gate: asyncio.Future[None]) -> None:
    """Let the task that waits for the gate continue.  This is safe from any thread."""
    gate.get_loop().call_soon_threadsafe(_deliver, gate, None)


def _arrivals(task: LoopTask[Any], arriving: queue.SimpleQueue[Any]) -> Generator[Any]:
    """Start a task, and yield its items until it ends.  The task is cancelled if the consumer stops early."""
    try:
        task.start()
        yield from arrivals(arriving, lambda: not (task.is_over and arriving.empty()))
    finally:
        if not task.is_over:
            task.cancel()
            wait_for_end([task], arriving, LEAVE_S)


def arrivals(arriving: queue.SimpleQueue[Any], goes_on: Callable[[], bool]) -> Generator[Any]:
    """Yield the items other than None that arrive in the queue, for as long as ``goes_on`` returns True.

    Raises:
        Aborted: If the function that contains the caller was abandoned.
    """
    abort = abort_in_force()

    def wake() -> None:
        arriving.put(None)

    try:
        if abort is not None:
            abort.add(wake)
        while goes_on():
            with suppress(queue.Empty):
                if (arrived := arriving.get(timeout=LOOK_UP_S)) is not None:
                    yield arrived
                    del arrived
            if abort is not None:
                abort.check()
    finally:
        if abort is not None:
            abort.discard(wake)


def wait_for_end(tasks: Sequence[LoopTask[Any]], bell: queue.SimpleQueue[Any], within_s: float) -> None:
    """Wait up to ``within_s`` seconds for cancelled tasks to end.  A Ctrl-C ends the wait.

    ``bell`` receives an item whenever a task ends.
    """
    if is_collecting() or _depth():  # waiting here might block the tasks themselves
        return
    if sys.is_finalizing():  # the loops no longer run
        return
    homes = [home for _, home in _homes]
    tasks = [task for task in tasks if task.home in homes]  # the parent's tasks do not run in a forked child
    until_s = time.monotonic() + within_s
    while any(not task.is_over for task in tasks) and (left_s := until_s - time.monotonic()) > 0:
        with suppress(queue.Empty):
            bell.get(timeout=min(left_s, LOOK_UP_S))

"""Sync calls of async code: what waits runs in one event loop of the OS process, in a daemon thread.

`call` and `stream` are for clients and the like; the sync driver waits for a `LoopTask`.  Their wait ends at once by
Ctrl-C, or when the function that they run in is left behind.  The work that they waited for is then cancelled, which
closes its connections.

Nothing in the thread of a loop may wait for that loop.  So a sync call there, such as of a coroutine function, holds up
that loop, and is performed in another one.
"""

from __future__ import annotations

import asyncio
import gc
import queue
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent import futures
from contextlib import aclosing, closing, suppress
from enum import Enum
from typing import Any, Generic, TypeVar

from fsm_agent._internal.system import at_fork, making
from fsm_agent.runtime.log import LOG
from fsm_agent.runtime.threads import ThreadTask, abort_in_force, in_thread

_collector: int | None = None  # the thread that collects now; there is one at a time


def is_collecting() -> bool:
    """Return whether the caller was called by the garbage collector, such as in a generator that it closes."""
    return _collector == threading.get_ident()


def _note(phase: str, _info: dict[str, Any]) -> None:
    global _collector
    _collector = threading.get_ident() if phase == "start" else None


gc.callbacks.append(_note)

T = TypeVar("T")


class Place(Enum):
    """Where an activity runs plain code of the user, such as a function.

    Attributes:
        HERE: In the thread of the caller, which nothing can wake: its connections and its thread-locals are at hand.
            The coroutine that performs the activity never waits; what is async runs in the loop of the portal.
        THREAD: In a daemon thread, which a cancellation leaves behind.
        LOOP: In the thread of the event loop.
    """

    HERE = "here"
    THREAD = "thread"
    LOOP = "loop"

    async def call(self, work: Callable[[], T]) -> T:
        """Call plain code there."""
        return await in_thread(work) if self is Place.THREAD else work()

    async def wait_for(self, awaitable: Awaitable[T]) -> T:
        """Wait for async code."""
        return call(_await(awaitable)) if self is Place.HERE else await awaitable


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


LOOK_UP_S = 1.0  # the longest single wait: a Ctrl-C just before a wait is handled only after it
LEAVE_S = 10.0  # how long a task that was cancelled may take to end
AHEAD = 64  # items that a stream may be ahead of its consumer
_homes: list[tuple[threading.Thread, asyncio.AbstractEventLoop]] = []  # each serves callers in the thread before it
_running: set[LoopTask[Any]] = set()  # a loop has only weak references to its tasks
_inherited: list[object] = []  # referenced, because destructors would close sockets of the parent


def _forget_parents_loops() -> None:
    _inherited.append([*_homes, *_running])
    _homes.clear()
    _running.clear()


at_fork(after_in_child=_forget_parents_loops)  # a fork does not copy threads


def loop() -> asyncio.AbstractEventLoop:
    """Return the loop for a caller in this thread, started on first use."""
    depth = _depth()
    if depth:
        LOG.warning("a sync call in a coroutine function holds up the loop of all sync calls; await its async verb")
    if depth == len(_homes):
        with making:
            if depth == len(_homes):
                made = asyncio.new_event_loop()
                made.set_default_executor(_daemon_threads())
                thread = threading.Thread(target=_run, args=(made,), daemon=True, name="fsm_agent loop")
                thread.start()  # first, as a Ctrl-C in between must not leave a loop that no thread runs
                _homes.append((thread, made))
    return _homes[depth][1]


def _depth() -> int:
    """Return the number of the loop in whose thread the caller is, from 1, or 0 outside these threads."""
    here = threading.get_ident()
    return next((depth for depth, (thread, _) in enumerate(_homes, 1) if thread.ident == here), 0)


def _daemon_threads() -> futures.ThreadPoolExecutor:
    """Return the executor of `asyncio.to_thread` and the like; it does not hold up the exit of the interpreter."""

    class DaemonThreads(futures.ThreadPoolExecutor):
        def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> futures.Future[T]:
            return ThreadTask[T](lambda _: work(*args, **kwargs)).start().future

    return DaemonThreads(1)


def _run(made: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(made)
    while True:
        with suppress(KeyboardInterrupt, SystemExit):  # of a task, which keeps it as its exception
            made.run_forever()


class LoopTask(Generic[T]):
    """A task in the loop, as another thread sees it.

    The two share no `Event`, `Condition` or `Future`: a Ctrl-C inside one could leave its lock taken, and the loop
    would stand still.

    Args:
        home: The loop.
        make: Returns the coroutine; called in the loop, in a copy of the context in which the task is started.
        tell: Called in the loop with the task when it has ended; with None if it was never begun.

    Attributes:
        home: The loop.
        is_over: Whether the task has ended.
    """

    __slots__ = ("_make", "_task", "_tell", "home", "is_over")

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
        self.is_over = False  # state, since a Ctrl-C may swallow a message

    def start(self) -> None:
        """Start the task."""
        self.home.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._task = self.home.create_task(self._make())
        _running.add(self)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T] | None) -> None:
        if task is not None and not task.cancelled():
            task.exception()  # so that it is not logged if nothing takes it
        tell = self._tell
        del self._make, self._tell  # which may know this
        self.is_over = True
        _running.discard(self)
        tell(task)

    def cancel(self) -> None:
        """Cancel the task, from any thread; one that a Ctrl-C has kept from its start is over at once."""
        self.home.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.is_over:
            self._make().close()
            self._end(None)

    def add_done_callback(self, callback: Callable[[asyncio.Task[T]], object]) -> None:
        """Call back in the loop with the task when it has ended, or soon if it has; from any thread, once started."""

        def add() -> None:
            if self._task is not None:
                self._task.add_done_callback(callback)

        self.home.call_soon_threadsafe(add)

    def result(self) -> T:
        """Return the result of a task that has ended, or raise its exception; once."""
        task, self._task = self._task, None
        assert task is not None
        try:
            return task.result()
        finally:
            del task  # otherwise its exception would refer to itself


def call(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in the loop, and return its result.

    Raises:
        Aborted: If the function that the caller runs in was left behind.
    """
    arriving: queue.SimpleQueue[Any] = queue.SimpleQueue()
    task = LoopTask(loop(), lambda: coroutine, lambda _: arriving.put(None))
    for _ in _arrivals(task, arriving):
        pass
    return task.result()


def stream(items: AsyncGenerator[T]) -> Generator[T]:
    """Yield what an async generator yields in the loop; close it to stop early.

    The async generator may be ahead by `AHEAD` items.

    Raises:
        Aborted: If the function that the caller runs in was left behind.
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
    """Run a coroutine that never waits in this thread, without a loop; return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    coroutine.close()
    raise AssertionError(f"{coroutine!r} waits")


async def _pump(items: AsyncGenerator[T], arriving: queue.SimpleQueue[Any]) -> None:
    """Put items, each with the gate that its consumer opens before this goes on, or None."""
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
    """Let a task go on that waits for the gate; from any thread."""
    gate.get_loop().call_soon_threadsafe(_open, gate)


def _open(gate: asyncio.Future[None]) -> None:
    if not gate.done():
        gate.set_result(None)


def _arrivals(task: LoopTask[Any], arriving: queue.SimpleQueue[Any]) -> Generator[Any]:
    """Start a task; yield what it puts until it has ended.  If the consumer stops early, the task is cancelled."""
    try:
        task.start()
        yield from arrivals(arriving, lambda: not (task.is_over and arriving.empty()))
    finally:
        if not task.is_over:
            task.cancel()
            wait_for_end([task], arriving, LEAVE_S)


def arrivals(arriving: queue.SimpleQueue[Any], goes_on: Callable[[], bool]) -> Generator[Any]:
    """Yield what arrives, other than None, while it goes on.

    Raises:
        Aborted: If the function that the caller runs in was left behind.
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
    """Wait until tasks that were cancelled have ended, for a while; a Ctrl-C ends the wait.

    Args:
        tasks: The tasks.
        bell: Gets something whenever one of them has ended.
        within_s: For how long.
    """
    if is_collecting() or _depth():  # what waits here might hold up what it waits for
        return
    if sys.is_finalizing():  # the loops stand still
        return
    homes = [home for _, home in _homes]
    tasks = [task for task in tasks if task.home in homes]  # in a forked child, those of its parent do not run
    until_s = time.monotonic() + within_s
    while any(not task.is_over for task in tasks) and (left_s := until_s - time.monotonic()) > 0:
        with suppress(queue.Empty):
            bell.get(timeout=min(left_s, LOOK_UP_S))

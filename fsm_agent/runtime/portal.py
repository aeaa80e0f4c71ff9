"""Sync calls of async code.  The code runs in one event loop of the OS process, in a daemon thread.

`call` and `stream` are for clients and similar code.  The sync driver waits for a `LoopTask`.  The wait ends at once on
Ctrl-C, or when the function around it is left behind.  The work is then cancelled, which closes its connections.

Code in the thread of a loop must not wait for that loop, so a sync call made there uses another loop.
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
    """Return whether the garbage collector called this code, for example by closing a generator."""
    return _collector == threading.get_ident()


def _note(phase: str, _info: dict[str, Any]) -> None:
    global _collector
    _collector = threading.get_ident() if phase == "start" else None


gc.callbacks.append(_note)

T = TypeVar("T")


class Place(Enum):
    """Where an activity runs the user's plain code, such as a function.

    Attributes:
        HERE: In the caller's thread, with its connections and thread-locals.  Nothing can wake the code there.  The
            activity's coroutine never waits, and async code runs in the portal's loop.
        THREAD: In a daemon thread, which a cancellation leaves behind.
        LOOP: In the thread of the event loop.
    """

    HERE = "here"
    THREAD = "thread"
    LOOP = "loop"

    async def call(self, work: Callable[[], T]) -> T:
        """Run plain code in this place."""
        return await in_thread(work) if self is Place.THREAD else work()

    async def wait_for(self, awaitable: Awaitable[T]) -> T:
        return call(_await(awaitable)) if self is Place.HERE else await awaitable


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


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
    """Return the event loop for a caller in this thread, started on first use."""
    depth = _depth()
    if depth:
        LOG.warning(
            "a sync call in a coroutine function blocks the loop of all sync calls; await the async method instead"
        )
    if depth == len(_homes):
        with making:
            if depth == len(_homes):
                made = asyncio.new_event_loop()
                made.set_default_executor(_daemon_threads())
                thread = threading.Thread(target=_run, args=(made,), daemon=True, name="fsm_agent loop")
                thread.start()  # first, so that a Ctrl-C cannot leave a loop that no thread runs
                _homes.append((thread, made))
    return _homes[depth][1]


def _depth() -> int:
    """Return the number, from 1, of the loop whose thread this is, or 0 in any other thread."""
    here = threading.get_ident()
    return next((depth for depth, (thread, _) in enumerate(_homes, 1) if thread.ident == here), 0)


def _daemon_threads() -> futures.ThreadPoolExecutor:
    class DaemonThreads(futures.ThreadPoolExecutor):
        def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> futures.Future[T]:
            return ThreadTask[T](lambda _: work(*args, **kwargs)).start().future

    return DaemonThreads(1)


def _run(made: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(made)
    while True:
        with suppress(KeyboardInterrupt, SystemExit):  # from a task, which keeps it as its exception
            made.run_forever()


class LoopTask(Generic[T]):
    """A task in a loop, as seen from another thread.

    ``make`` is called in the loop, in a copy of the starter's context.  When the task has ended, ``tell`` is called in
    the loop with the task, or with None if it never began.  The threads share no `Event`, `Condition` or `Future`,
    because a Ctrl-C inside one could leave its lock taken and block the loop.
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
        """Cancel the task, from any thread.  If a Ctrl-C prevented its start, it is over at once."""
        self.home.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.is_over:
            self._make().close()
            self._end(None)

    def add_done_callback(self, callback: Callable[[asyncio.Task[T]], object]) -> None:
        """Call ``callback`` in the loop when the task has ended.  Safe from any thread, after `start`."""

        def add() -> None:
            if self._task is not None:
                self._task.add_done_callback(callback)

        self.home.call_soon_threadsafe(add)

    def result(self) -> T:
        """Return the result of a task that has ended, or raise its exception.  Works once."""
        task, self._task = self._task, None
        assert task is not None
        try:
            return task.result()
        finally:
            del task  # breaks a cycle: the traceback of its exception references this frame


def call(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the loop, and return its result.

    Raises:
        Aborted: If the function around the caller was left behind.
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
        Aborted: If the function around the caller was left behind.
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
    """Put the items into the queue.  From time to time, wait until the consumer opens a gate."""
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
    """Let the task that waits for the gate continue.  Safe from any thread."""
    gate.get_loop().call_soon_threadsafe(_open, gate)


def _open(gate: asyncio.Future[None]) -> None:
    if not gate.done():
        gate.set_result(None)


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
    """Yield the items that arrive in the queue, except None, while ``goes_on`` returns True.

    Raises:
        Aborted: If the function around the caller was left behind.
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
    """Wait up to ``within_s`` seconds until cancelled tasks have ended.  A Ctrl-C ends the wait.

    ``bell`` gets an item whenever one of them ends.
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

"""The background thread that runs the sessions with MCP servers.

It is one daemon thread per process with an event loop of its own; requests to sessions are submitted to it.  Sessions
are closed before the interpreter exits.  After `os.fork` the child has none; the parent keeps its own.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import closing
from typing import Any, TypeVar

from fsm_agent._internal.forks import at_fork

T = TypeVar("T")

CLOSE_TIMEOUT_S = 10.0  # a process has 2 s to end by itself, and 2 s more after it was terminated


class Background:
    """The thread that runs the sessions of this process."""

    def __init__(self) -> None:
        self.at_end: set[Callable[[], Awaitable[None]]] = set()  # closes each session
        self._stop = asyncio.Event()
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="fsm_agent MCP", daemon=True)
        self._thread.start()
        self.loop = started.result()
        atexit.register(self.end)

    def _run(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        try:
            with closing(asyncio.new_event_loop()) as loop:  # `asyncio.run` ends with a thread of its own
                loop.run_until_complete(self._live(started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _live(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        loop = asyncio.get_running_loop()
        started.set_result(loop)
        await self._stop.wait()
        loop.run_in_executor = _at_once  # type: ignore[assignment, method-assign]
        await asyncio.gather(*[close() for close in self.at_end])
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await loop.shutdown_asyncgens()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run ``coroutine`` in the thread's loop; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def end(self) -> None:
        """Close all sessions and end the thread."""
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(CLOSE_TIMEOUT_S)


def _at_once(_: object, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """Do what a loop does in threads, such as to look up a host; an interpreter that exits starts none."""
    future = asyncio.get_running_loop().create_future()
    try:
        future.set_result(function(*arguments))
    except Exception as error:
        future.set_exception(error)
    return future


class _Here:
    """The background of this process, and what it inherited by a fork."""

    def __init__(self, *inherited: object) -> None:
        self.lock = threading.Lock()
        self.background: Background | None = None
        self.inherited = inherited  # referenced, because destructors would close resources of the parent


_here = _Here()


def background() -> Background:
    """Return the background of this process, started on first use."""
    with _here.lock:
        if _here.background is None:
            _here.background = Background()
        return _here.background


def is_mine(home: Background) -> bool:
    """Return True if ``home`` is the background of this process."""
    return home is _here.background


def _forget_parents_sessions() -> None:
    global _here
    if (inherited := _here.background) is not None:
        atexit.unregister(inherited.end)
    _here = _Here(_here, inherited)


at_fork(after_in_child=_forget_parents_sessions)

"""A worker's pool, which claims and drives many runs at a time in one event loop.

A stopped worker claims no more runs.  Runs in progress get ``drain_s`` seconds to reach their next step.  After that,
they are interrupted and released.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tenacity import wait_exponential

from fsm_agent.errors import UsageError
from fsm_agent.runtime.portal import in_thread
from fsm_agent.runtime.retry_delay import delay_s
from fsm_agent.store.claiming import Claimed, aclaim
from fsm_agent.store.errors import StoreClosed
from fsm_agent.workers.health import BEAT_S

if TYPE_CHECKING:
    from fsm_agent.workers.worker import Worker

LEAVE_S = 5.0  # how long a cancelled task may take to release its run
TAKERS = 2  # threads that claim runs and make their processes
STORE_WAIT = wait_exponential(multiplier=0.1, max=30)  # the pauses before a failed store is tried again
_log = logging.getLogger("fsm_agent")


class StorePatience:
    """Limits how long a store may keep failing, for example while its server restarts."""

    def __init__(self, worker: Worker) -> None:
        self._limit_s = worker.store_patience_s
        self._heartbeat = worker.heartbeat
        self._failing_since_s: float | None = None  # monotonic; None if the store works
        self._failures = 0  # in a row

    def note_success(self) -> None:
        """Record that the store works."""
        self._heartbeat.note_store(is_away=False)
        self._failing_since_s = None

    def pause_s(self, error: Exception) -> float:
        """Return how many seconds to wait before trying a failed store again.

        Raises:
            Exception: The given error, if the store is closed or has failed for too long.
            UsageError: If the main thread has ended, because Python's thread pools then refuse all work.
        """
        if isinstance(error, StoreClosed):
            raise error
        if isinstance(error, RuntimeError) and not threading.main_thread().is_alive():
            raise UsageError(
                "the worker: expected a running main thread, got one that has ended, so Python's thread pools refuse "
                "all work; let the main thread wait for the worker, for example with thread.join()"
            ) from error
        self._heartbeat.note_store(is_away=True)
        now_s = time.monotonic()
        if self._failing_since_s is None:
            self._failing_since_s, self._failures = now_s, 0
        failed_s = now_s - self._failing_since_s
        if failed_s >= self._limit_s:
            _log.error("the store has failed for %.0f s; the worker gives up: %s", failed_s, error)
            raise error
        self._failures += 1
        pause_s = min(delay_s(STORE_WAIT, self._failures, error), self._limit_s - failed_s)
        _log.warning("the store failed; the worker tries again in %.1f s: %s", pause_s, error)
        return pause_s


class WorkerPool:
    """Drives many runs, each in its own task, and claims the runs in a few threads.

    Args:
        worker: The worker.
        drive: A function that drives a claimed run as far as possible, and releases it if the task is cancelled.
        size: How many runs are driven at a time.
        once: Whether the pool stops as soon as no run is due.
    """

    def __init__(self, worker: Worker, drive: Callable[[Claimed], Awaitable[None]], size: int, once: bool) -> None:
        self._worker = worker
        self._drive = drive
        self._once = once
        self._room = asyncio.Semaphore(size)
        self._driving: set[asyncio.Task[None]] = set()
        self._takers = min(TAKERS, size)
        self._threads = ThreadPoolExecutor(self._takers, thread_name_prefix="fsm_agent worker")
        self._advanced = 0
        self._watch: asyncio.Task[Any]  # ends when the worker is stopped
        self._beating: asyncio.TimerHandle

    async def run(self) -> int:
        """Drive runs until the worker is stopped, and return how many times a run was advanced."""
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(stopped.set)

        self._beat(loop)
        watch = self._watch = loop.create_task(stopped.wait())
        takers = [loop.create_task(self._take_runs()) for _ in range(self._takers)]
        try:
            with self._worker.woken_at_stop(wake):
                await _first_failure(watch, takers)
                await _cancel(takers)
                if self._driving:
                    await asyncio.wait(self._driving, timeout=self._worker.drain_s)
        finally:
            await _cancel([watch, *takers])
            await _cancel(self._driving)  # they have all begun by now, so they release their runs
            self._beating.cancel()
            self._worker.heartbeat.end()
            with suppress(TimeoutError):  # a claim in progress releases its run
                await asyncio.wait_for(in_thread(self._threads.shutdown), LEAVE_S)
        return self._advanced

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._worker.heartbeat.beat()
        self._beating = loop.call_later(BEAT_S, self._beat, loop)

    async def _take_runs(self) -> None:
        patience = StorePatience(self._worker)
        while True:
            await self._room.acquire()
            claimed = None
            try:
                claimed = await aclaim(self._take, self._threads)
                patience.note_success()
            except Exception as error:
                await asyncio.wait([self._watch], timeout=patience.pause_s(error))
                continue
            finally:
                if claimed is None:
                    self._room.release()
            if claimed is not None:
                self._begin(claimed)
            elif self._once:
                if not self._driving:
                    return
                await asyncio.wait(self._driving, return_when=asyncio.FIRST_COMPLETED)

    def _take(self) -> Claimed | None:
        """Claim a run, or wait a while for one.

        Both must happen in the same thread, because `Store.wait` refers to the last claim that its thread made.
        """
        claimed = self._worker.take_next()
        if claimed is None and not self._once:
            self._worker.wait_for_work()
        return claimed

    def _begin(self, claimed: Claimed) -> None:
        task = asyncio.get_running_loop().create_task(self._advance(claimed))
        self._driving.add(task)
        task.add_done_callback(self._end)

    async def _advance(self, claimed: Claimed) -> None:
        try:
            await self._drive(claimed)
        except Exception as error:  # from the store, while the run was released
            _log.warning("a run could not be given back; its lease ends by itself: %s", error)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._driving.discard(task)
        self._room.release()
        self._advanced += 1


async def _first_failure(watch: asyncio.Task[Any], takers: Iterable[asyncio.Task[Any]]) -> None:
    left = {watch, *takers}
    while watch in left and len(left) > 1:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    if left := {task for task in tasks if task.cancel()}:
        _, left = await asyncio.wait(left, timeout=LEAVE_S)
    if left:
        _log.warning("the worker stops while %d runs still hang; their leases end with the worker", len(left))

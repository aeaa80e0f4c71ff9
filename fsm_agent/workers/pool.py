"""Crews: how a worker drives many runs at a time, in threads or in the tasks of an event loop.

Both end alike.  When the worker is stopped, they claim no more; runs in progress may come to their next step for as
long as the worker allows, and are then interrupted, and given back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from tenacity import wait_exponential

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.agents.persistence import aclaim
from fsm_agent.runtime.environment import delay_s
from fsm_agent.store.errors import StoreClosed
from fsm_agent.workers.health import BEAT_S

if TYPE_CHECKING:
    import asyncio

    from fsm_agent.store.claiming import Claimed
    from fsm_agent.workers.worker import Worker
else:
    asyncio = deferred("asyncio")

IDLE_S = 1.0  # after which an idle crew checks whether it was stopped
LEAVE_S = 5.0  # how long a thread whose run was interrupted may take to give it back
TAKERS = 2  # threads that claim runs, and make their processes, for the tasks of a loop
STORE_WAIT = wait_exponential(multiplier=0.1, max=30)  # before a store that failed is tried again
_log = logging.getLogger("fsm_agent")


class StorePatience:
    """How long one driver outlasts a store that fails, such as a server that restarts.

    Args:
        worker: The worker, which says for how many seconds the store may fail.
    """

    def __init__(self, worker: Worker) -> None:
        self._limit_s = worker.store_patience_s
        self._heartbeat = worker.heartbeat
        self._failing_since_s: float | None = None  # monotonic; None: the store works
        self._failures = 0  # in a row

    def note_success(self) -> None:
        """Note that the store works."""
        self._heartbeat.note_store(is_away=False)
        self._failing_since_s = None

    def pause_s(self, error: Exception) -> float:
        """Return how long to wait before a store that failed is tried again; raise its error if it is too late."""
        if isinstance(error, StoreClosed):
            raise error
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


class ThreadCrew:
    """Threads, each of which drives one run at a time.

    Args:
        worker: The worker.
        threads: How many.
        once: Whether they leave as soon as nothing is due.
    """

    def __init__(self, worker: Worker, threads: int, once: bool) -> None:
        self._worker = worker
        self._is_over = threading.Event()
        # Unlike an event, a queue may be put into by a signal handler at any moment, and be waited for under Ctrl-C.
        self._woken = SimpleQueue[None]()
        self._ended = SimpleQueue[None]()
        self._members = [_Member(worker, once, partial(self._ended.put, None)) for _ in range(threads)]

    def run(self) -> int:
        """Return how many times a run was advanced."""
        members, watch = self._members, threading.Thread(target=self._drain, daemon=True, name="fsm_agent drain")
        watch.start()
        try:
            with self._worker.woken_at_stop(partial(self._woken.put, None)):
                self._worker.heartbeat.beat()  # before a thread can have a run
                for member in members:
                    member.start()
                while not self._wait(BEAT_S) and not self._is_over.is_set():
                    self._worker.heartbeat.beat()
        except BaseException:  # such as Ctrl-C: all runs are given back at once
            self._worker.stop()
            self._worker.interrupt()
            self._wait(LEAVE_S)
            raise
        finally:
            self._is_over.set()
            self._woken.put(None)
            watch.join(LEAVE_S)
            self._worker.heartbeat.end()
        for member in members:
            if member.is_over:
                member.join()
            if member.error is not None:
                raise member.error
        return sum(member.advanced for member in members)

    def _drain(self) -> None:
        """Once the worker is stopped, interrupt what is still driven when the time for it is over."""
        self._woken.get()
        self._join(self._worker.drain_s)
        if any(member.is_alive() for member in self._members):
            self._worker.interrupt()
            self._join(LEAVE_S)
        if any(member.is_alive() for member in self._members) and not self._is_over.is_set():
            _log.warning("the worker leaves %d runs behind, which hang; their leases end with it", self._worker.held)
        self._is_over.set()

    def _wait(self, timeout_s: float) -> bool:
        """Wait until all threads have ended, for a while; return whether they have.

        For the main thread: to Python before 3.13, a thread has ended if a Ctrl-C interrupts its `join`.
        """
        until_s = time.monotonic() + timeout_s
        while any(member.ident is not None and not member.is_over for member in self._members):
            if (left_s := until_s - time.monotonic()) <= 0:
                return False
            with suppress(Empty):
                self._ended.get(timeout=min(left_s, BEAT_S))
        return True

    def _join(self, timeout_s: float | None) -> None:
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        for member in self._members:
            if member.is_alive():
                member.join(None if until_s is None else max(0.0, until_s - time.monotonic()))


class _Member(threading.Thread):
    """A thread of a worker, which drives one run at a time."""

    def __init__(self, worker: Worker, once: bool, tell: Callable[[], None]) -> None:
        super().__init__(daemon=True, name="fsm_agent worker")
        self._tell = tell  # that it has ended
        self._worker = worker
        self._once = once
        self._patience = StorePatience(worker)
        self.advanced = 0
        self.error: BaseException | None = None
        self.is_over = False

    def run(self) -> None:
        try:
            while not self._worker.is_stopping and self._goes_on():
                pass
        except BaseException as error:  # the store's: the others stop as well
            self.error = error
            self._worker.stop()
        finally:
            self.is_over = True
            self._tell()

    def _goes_on(self) -> bool:
        """Advance a run, or wait for one; return False if nothing is due and the worker is to end."""
        try:
            if self._worker.advance():
                self.advanced += 1
            elif self._once:
                return False
            else:
                self._worker.wait_for_work()
        except Exception as error:
            self._worker.stopping.wait(self._patience.pause_s(error))
        else:
            self._patience.note_success()
        return True


class TaskCrew:
    """The tasks of an event loop, each of which drives one run; a few threads claim runs for them.

    Args:
        worker: The worker.
        tasks: How many runs are driven at a time.
        once: Whether it leaves as soon as nothing is due.
    """

    def __init__(self, worker: Worker, tasks: int, once: bool) -> None:
        self._worker = worker
        self._once = once
        self._room = asyncio.Semaphore(tasks)
        self._driving: set[asyncio.Task[None]] = set()
        self._takers = min(TAKERS, tasks)
        self._threads = ThreadPoolExecutor(self._takers, thread_name_prefix="fsm_agent worker")
        self._advanced = 0

    async def run(self) -> int:
        """Return how many times a run was advanced."""
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(stopped.set)

        watch, heartbeat = loop.create_task(stopped.wait()), loop.create_task(self._beat())
        takers = [loop.create_task(self._take_runs()) for _ in range(self._takers)]
        try:
            with self._worker.woken_at_stop(wake):
                await _first_failure(watch, takers)
                await _cancel(takers)
                if self._driving:
                    await asyncio.wait(self._driving, timeout=self._worker.drain_s)
        finally:
            await _cancel([watch, *takers])
            await _cancel([heartbeat, *self._driving])  # they have all begun by now, so they give their runs back
            self._worker.heartbeat.end()
            with suppress(TimeoutError):  # a claim that was under way gives its run back
                await asyncio.wait_for(asyncio.to_thread(self._threads.shutdown), LEAVE_S)
        return self._advanced

    async def _beat(self) -> None:
        while True:
            self._worker.heartbeat.beat()
            await asyncio.sleep(BEAT_S)

    async def _take_runs(self) -> None:
        """Claim what is due while there is room for it."""
        patience = StorePatience(self._worker)
        while True:
            await self._room.acquire()
            claimed = None
            try:
                claimed = await aclaim(self._take, self._threads)
                patience.note_success()
            except Exception as error:
                await asyncio.sleep(patience.pause_s(error))
                continue
            finally:
                if claimed is None:
                    self._room.release()
            if claimed is not None:
                self._begin(claimed)
            elif not self._once:
                continue
            elif not self._driving:
                return
            else:
                await asyncio.wait(self._driving, return_when=asyncio.FIRST_COMPLETED)

    def _take(self) -> Claimed | None:
        """Claim a run, or wait for one for a while; in one thread, since a store remembers what a thread asked for."""
        claimed = self._worker.take_next()
        if claimed is None and not self._once:
            self._worker.wait_for_work()
        return claimed

    def _begin(self, claimed: Claimed) -> None:
        task = asyncio.get_running_loop().create_task(self._worker.adrive_claimed(claimed))
        self._driving.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._driving.discard(task)
        self._room.release()
        self._advanced += 1


async def _first_failure(watch: asyncio.Task[Any], takers: Iterable[asyncio.Task[Any]]) -> None:
    """Wait until ``watch`` or all takers have ended; raise the error of a taker that failed."""
    left = {watch, *takers}
    while watch in left and len(left) > 1:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended, for a while."""
    if left := {task for task in tasks if task.cancel()}:
        _, left = await asyncio.wait(left, timeout=LEAVE_S)
    if left:
        _log.warning("the worker leaves %d tasks behind, which hang; their leases end with it", len(left))

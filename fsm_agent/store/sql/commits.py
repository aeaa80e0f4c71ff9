"""Group commits, and counters that let threads wait for changes.

In a group commit, one thread writes the work of many threads in one transaction.  A commit waits for the disk, which
takes as long for two hundred appends as for one, so work that arrives during a commit is collected for the next commit.
If no commit is in progress, a thread that may block commits its own work, since handing the work to another thread can
take as long as writing to the disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

POLL_S = 0.05  # how often a waiting thread checks for changes by other OS processes

W = TypeVar("W")


class GroupCommit(Generic[W]):
    """A queue of work and the thread that commits it.  It is thread-safe.

    The thread starts on demand, and ends after a while without work.

    Args:
        commit: A function that does all given work in one transaction.  It returns the result of each item once it is
            on disk, or an exception for an item that was refused, and raises if the whole transaction failed.
        closed: A function that returns the error for work that is submitted after `close`.
        idle_s: How long the thread waits for more work, in seconds.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[W]], Sequence[Any]],
        closed: Callable[[], Exception],
        *,
        idle_s: float = 5.0,
    ) -> None:
        self._commit = commit
        self._closed = closed
        self._idle_s = idle_s
        self._turn = threading.Lock()  # held during a commit, and when the queue is emptied for one
        self._changed = threading.Condition()
        self._queue: list[tuple[W, Future[Any]]] = []
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, work: W) -> Future[Any]:
        """Return a future for the work's result, which is done once the work is on disk.

        The future's callbacks run in the committing thread and delay the next commit.
        """
        future = Future[Any]()
        with self._changed:
            if self._is_closed:
                raise self._closed()
            self._queue.append((work, future))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="fsm_agent group commit")
                self._thread.start()
            else:
                self._changed.notify_all()
        return future

    def run(self, work: W) -> Any:
        """Do the work and return its result once it is on disk, or raise if it was refused."""
        if self._turn.acquire(blocking=False):
            try:
                if not self._queue and not self._is_closed:  # otherwise it would overtake submitted work
                    return _result(self._commit([work])[0])
            finally:
                self._turn.release()
        future = self.submit(work)
        if threading.current_thread() is self._thread:  # a callback must not wait for its own thread
            self._commit_queue()
        return future.result()

    def close(self) -> None:
        """Refuse further work, and wait until all submitted work is on disk.  Calling this again has no effect."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._turn:
            pass

    def _run(self) -> None:
        while self._has_work():
            self._commit_queue()

    def _has_work(self) -> bool:
        with self._changed:
            if self._changed.wait_for(lambda: self._queue or self._is_closed, self._idle_s) and self._queue:
                return True
            self._thread = None
            return False

    def _commit_queue(self) -> None:
        with self._turn:
            with self._changed:
                queue, self._queue = self._queue, []
            batch = [entry for entry in queue if entry[1].set_running_or_notify_cancel()]
            try:
                outcomes = self._commit([work for work, _ in batch]) if batch else []
            except Exception as error:
                outcomes = [error] * len(batch)
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


def _result(outcome: Any) -> Any:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class ChangeNotifier:
    """A counter of changes that threads can wait for.  It is thread-safe.

    ``version`` returns a value that differs after each change by another OS process, or is None if there are no others.
    """

    def __init__(self, version: Callable[[], object] | None = None) -> None:
        self._version = version
        self._last: object = None
        self._count = 0
        self._changed = threading.Condition()

    def count(self) -> int:
        """Return the number of changes so far that may have made a run due."""
        with self._changed:
            self._look()
            return self._count

    def add(self) -> None:
        """Count a change by this OS process, and wake the waiting threads."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, count: int, timeout_s: float) -> bool:
        """Wait until the count differs from ``count``, or return False after ``timeout_s`` seconds without a change."""
        ends_s = time.monotonic() + timeout_s
        with self._changed:
            while True:
                self._look()
                left_s = ends_s - time.monotonic()
                if self._count != count or left_s <= 0.0:
                    return self._count != count
                self._changed.wait(left_s if self._version is None else min(POLL_S, left_s))

    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        """See `Store.wait_for_rest`."""
        self.wait(seen, timeout_s)
        return self.count()

    def _look(self) -> None:
        if self._version is None:
            return
        version = self._version()
        if version != self._last:
            self._last = version
            self._count += 1
            self._changed.notify_all()

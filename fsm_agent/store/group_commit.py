"""Group commit: what many threads write at a time becomes one transaction, made by one thread.

A commit waits for the disk, and that takes as long for two hundred appends as for one.  So what comes while a commit is
under way waits for its end, and is the next one.  Whoever finds nobody at it, and can wait, commits alone: handing work
to a thread and back may take as long as the disk does.  The thread is started by the first that needs it, and ends when
there has been nothing to do for a while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

W = TypeVar("W")


class GroupCommit(Generic[W]):
    """A queue of work and the thread that commits it; thread-safe.

    Args:
        commit: Does each work in one transaction and returns what each came to, once they are on the disk: the
            exception of one that was refused, which has left nothing.  It raises if nothing at all was written.
        closed: Returns the error for work that is submitted after `close`.
        idle_s: How long the thread waits for the next work.
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
        """Return a future for what the work comes to; it is done once that is on the disk.

        Its callbacks run in the thread that commits, and hold up the next commit.
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
        """Return what the work comes to, once that is on the disk; raise if it was refused."""
        if self._turn.acquire(blocking=False):
            try:
                if not self._queue and not self._is_closed:  # else what was submitted before would be overtaken
                    return _result(self._commit([work])[0])
            finally:
                self._turn.release()
        future = self.submit(work)
        if threading.current_thread() is self._thread:  # in a callback, which must not wait for its own thread
            self._commit_queue()
        return future.result()

    def close(self) -> None:
        """Refuse what comes from now on, and wait until all that has come is on the disk; safe to repeat."""
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
        """Wait for work; return False if there has been none for a while: the thread ends."""
        with self._changed:
            if self._changed.wait_for(lambda: self._queue or self._is_closed, self._idle_s) and self._queue:
                return True
            self._thread = None
            return False

    def _commit_queue(self) -> None:
        """Commit all that has come and was not cancelled."""
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

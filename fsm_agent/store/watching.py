"""Waits for news about runs that others drive.

One thread in the OS process watches runs for all waiting callers.  It looks at them when the store says that a run was
released.  Because stores do not report new entries, it also looks often at first, and later every `LOOK_S` seconds.
After each look, it pauses for as long as the look took.

The driver of a run does not wait here.  `fsm_agent.store.recorder` tells it of posts and cancellations.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, NamedTuple

from fsm_agent.store.store import Run, Store

FIRST_LOOK_S = 0.02  # time between the first two looks at a run
LOOK_S = 0.25  # time between two looks while there is no news
MAX_REST_S = 1.0  # longest pause after a look, however long it took


class Watch(NamedTuple):
    """A run that a caller watches, and the news that the caller waits for."""

    run: str
    is_news: Callable[[Any], bool]
    future: Future[Any]


class RunWatcher:
    """Watches runs for all waiting callers.  It is thread-safe, even in a forked process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Lock()
        self._watches: list[Watch] = []
        self._has_new = False
        self._thread: threading.Thread | None = None

    def watch(self, run: str, is_news: Callable[[Any], bool]) -> Future[Any]:
        """Return a future that is done once there is news about a run or the store fails.  Cancel it to stop waiting.

        Args:
            run: The name of the run, or an empty string for the run that was changed last.
            is_news: A function that gets the stored run, or None if no run exists, and returns whether this is the
                awaited news.
        """
        if self._process != os.getpid():  # a fork has none of its parent's threads
            self._reset()
        watch = Watch(run, is_news, Future())
        with self._changed:
            self._watches.append(watch)
            self._has_new = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True, name="fsm_agent run watcher")
                self._thread.start()
        return watch.future

    def _work(self) -> None:
        pause_s = FIRST_LOOK_S
        seen = self._rests_after(-1, 0.0)  # before the first look: what happens during a look is seen by the next wait
        while True:
            with self._changed:
                self._watches = [watch for watch in self._watches if not watch.future.done()]
                if not self._watches:
                    self._thread = None
                    return
                watches, has_new, self._has_new = [*self._watches], self._has_new, False
            started_s = time.monotonic()
            has_news = self._look(watches)
            took_s = time.monotonic() - started_s
            pause_s = FIRST_LOOK_S if has_news or has_new else min(1.5 * pause_s, LOOK_S)
            time.sleep(min(took_s, MAX_REST_S))
            seen = self._rests_after(seen, max(0.0, pause_s - took_s))

    def _rests_after(self, seen: int, timeout_s: float) -> int:
        try:
            return self._store.wait_for_rest(seen, timeout_s)
        except Exception:  # of the store; the next look reports it to the callers
            time.sleep(timeout_s)
            return seen

    def _look(self, watches: Sequence[Watch]) -> bool:
        """Look at each run once, tell its callers about news, and return whether there was any."""
        has_news = False
        found: dict[str, Any] = {}
        for watch in watches:
            if watch.run not in found:
                try:
                    found[watch.run] = watched_run(self._store, watch.run)
                except Exception as error:
                    found[watch.run] = error
            run = found[watch.run]
            with suppress(InvalidStateError):  # the caller has given up
                if isinstance(run, Exception):
                    watch.future.set_exception(run)
                elif watch.is_news(run):
                    watch.future.set_result(run)
            has_news |= watch.future.done()
        return has_news


def watched_run(store: Store, run: str) -> Run | None:
    """Return the run with this name or, if it is empty, the run that was changed last, or None if there is none."""
    return store.get(run) if run else next(iter(store.list(limit=1)), None)


def is_settled(run: Run) -> bool:
    """Return whether a run has ended or waits for someone's answer."""
    return run.is_ended or (run.holder is None and bool(run.waits) and run.due_s != 0.0)

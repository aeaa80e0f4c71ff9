"""Wait for runs that others drive.

One thread looks at the runs for all who wait for them in this OS process.  It looks whenever the store says that a run
was given back, often at first, and `LOOK_S` apart if there is no news, as no store says that a run has another entry.
After each look it rests for as long as that took.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import NamedTuple

from fsm_agent.store.store import Run, Store

FIRST_LOOK_S = 0.02  # after which a run is looked at again
LOOK_S = 0.25  # between two looks if there is no news
MAX_REST_S = 1.0  # after a look, however long it took


class Watch(NamedTuple):
    """A run, and the news of it that is waited for."""

    run: str
    is_news: Callable[[Run], bool]
    future: Future[Run]


class RunWatcher:
    """Looks at runs for all who wait for them; thread-safe, also on both sides of a fork.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Lock()
        self._watches: list[Watch] = []
        self._has_new = False
        self._thread: threading.Thread | None = None

    def watch(self, run: str, is_news: Callable[[Run], bool]) -> Future[Run]:
        """Return the future of a run, done as soon as there is news of it, or the store fails; cancel it to give up.

        Args:
            run: The name of the run.
            is_news: Says whether the run, as the store has it now, is what is waited for.
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
        """Wait for the store's hint that a run was given back; without one, wait for the time."""
        try:
            return self._store.wait_for_rest(seen, timeout_s)
        except Exception:  # the store's, which those who wait are told by the next look
            time.sleep(timeout_s)
            return seen

    def _look(self, watches: Sequence[Watch]) -> bool:
        """Look at each run once, and tell those whose news there is; return whether there was any."""
        has_news = False
        found: dict[str, Run | Exception] = {}
        for watch in watches:
            if watch.run not in found:
                try:
                    found[watch.run] = self._store.get(watch.run)
                except Exception as error:
                    found[watch.run] = error
            run = found[watch.run]
            with suppress(InvalidStateError):  # who waited has given up
                if isinstance(run, Exception):
                    watch.future.set_exception(run)
                elif watch.is_news(run):
                    watch.future.set_result(run)
            has_news |= watch.future.done()
        return has_news


def is_settled(run: Run) -> bool:
    """Return whether a run has ended, or waits for an answer that no driver gives."""
    return run.is_ended or (run.holder is None and bool(run.waits) and run.due_s != 0.0)

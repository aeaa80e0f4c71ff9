"""News of runs for pages that are open: one thread looks at the store for all of them.

A stream carries marks, not contents: a page that sees another mark than its own asks for what is new.  So a slow page
holds up nothing, and what waits for it is one mark.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fsm_agent._internal.values import to_json
from fsm_agent.errors import FsmAgentError
from fsm_agent.store.errors import RunUnknown
from fsm_agent.store.store import Store

LOOK_S = 0.1  # between two looks at the store
BEAT_S = 15.0  # a comment is sent so often, so that closed pages are noticed
MOST_PAGES = 32  # that are followed at a time
ALL = ""  # in place of the name of a run: the newest of all
GONE, AWAY, REPLACED = "gone", "away", "replaced"  # marks: no such run; the store cannot be read; another file is there


class _Page(NamedTuple):
    run: str
    loop: asyncio.AbstractEventLoop
    news: asyncio.Queue[str]

    def tell(self, mark: str) -> None:
        """Put a mark in place of the one before."""
        while not self.news.empty():
            self.news.get_nowait()
        self.news.put_nowait(mark)


class News:
    """Marks of runs, each another than the one before; thread-safe.

    Args:
        store: The store.
        file: Its file, if it is one.
    """

    def __init__(self, store: Store, file: Path | None = None) -> None:
        self._store, self._file = store, file
        self._identity = self._identify()
        self._changed = threading.Condition()
        self._pages: list[_Page] = []
        self._thread: threading.Thread | None = None
        self.is_closed = False

    @property
    def is_full(self) -> bool:
        """Whether there are as many pages as may be."""
        return len(self._pages) >= MOST_PAGES

    def mark(self, run: str = ALL) -> str:
        """Return what a run, or the newest of all, is known by as the store has it now."""
        if self._identify() != self._identity:
            return REPLACED
        try:
            row = self._store.get(run) if run else next(iter(self._store.list(limit=1)), None)
        except RunUnknown:
            return GONE
        except (FsmAgentError, OSError):
            return AWAY
        return hashlib.blake2b(to_json(row).encode(), digest_size=8).hexdigest() if row else "-"

    async def marks(self, run: str = ALL) -> AsyncGenerator[str | None, None]:
        """Yield the mark of a run, then each that follows; None: nothing has happened for a while."""
        page = _Page(run, asyncio.get_running_loop(), asyncio.Queue())
        self._add(page)
        try:
            while not self.is_closed:
                try:
                    mark = await asyncio.wait_for(page.news.get(), BEAT_S)
                except TimeoutError:
                    yield None
                else:
                    if mark:
                        yield mark
        finally:
            with self._changed:
                self._pages.remove(page)

    def close(self) -> None:
        """End all streams."""
        self.is_closed = True
        with self._changed:
            pages = [*self._pages]
            self._changed.notify()
        for page in pages:
            _send(page, page.tell, "")

    def _add(self, page: _Page) -> None:
        with self._changed:
            self._pages.append(page)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True, name="fsm_agent inspector news")
                self._thread.start()
            self._changed.notify()

    def _work(self) -> None:
        told: dict[int, str] = {}  # by page
        while True:
            with self._changed:
                pages = [*self._pages]
                if self.is_closed or not pages:
                    self._thread = None
                    return
            started_s = time.monotonic()
            marks = {run: self.mark(run) for run in {page.run for page in pages}}
            told = {id(page): told.get(id(page), "") for page in pages}
            for page in pages:
                if told[id(page)] != marks[page.run]:
                    told[id(page)] = marks[page.run]
                    _send(page, page.tell, marks[page.run])
            took_s = time.monotonic() - started_s
            with self._changed:  # a new page is looked at at once; a slow store gets as long a rest as a look took
                self._changed.wait(max(LOOK_S - took_s, min(took_s, 1.0)))

    def _identify(self) -> tuple[int, int] | None:
        """Return what tells the file of the store from another one at its path; None: there is none."""
        if self._file is None:
            return None
        try:
            found = self._file.stat()
        except OSError:
            return -1, -1
        return found.st_dev, found.st_ino


def _send(page: _Page, tell: Callable[[str], None], mark: str) -> None:
    with suppress(RuntimeError):  # the loop is closed
        page.loop.call_soon_threadsafe(tell, mark)

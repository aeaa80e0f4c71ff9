"""Wait for runs that others drive, and follow their journals.

One thread looks at the runs for all who wait for them in this OS process.  It looks whenever the store says that a run
was given back, often at first, and `LOOK_S` apart if there is no news, as no store says that a run has another entry.
After each look it rests for as long as that took.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from fsm_agent.errors import JournalError, ReplayError
from fsm_agent.lifecycle.effects import CallModel, RunFunction
from fsm_agent.lifecycle.outcomes import Replied, Returned
from fsm_agent.machine.journal import fold, line_of, retried_in
from fsm_agent.machine.process import SEPARATOR, along, prefix_of
from fsm_agent.messages.event import Event, FunctionEnded, Inside, ReplyCompleted, Stepped
from fsm_agent.runtime.drivers import last_event
from fsm_agent.store.store import Loaded, Run, Store

if TYPE_CHECKING:
    from fsm_agent.store.claiming import Claiming, Definition

FIRST_LOOK_S = 0.02  # after which a run is looked at again
LOOK_S = 0.25  # between two looks if there is no news
_log = logging.getLogger("fsm_agent")
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


class Follower:
    """Makes the events of a run from its journal, entry by entry.

    Args:
        runs: The runs.
        run: The name of the run.
        definition: How its process is made.
        has_functions: Whether `FunctionEnded` is told as well, with the result that the model got.

    Raises:
        RunUnknown: The run does not exist.
        JournalError: As `Runs.resume` does.
    """

    def __init__(self, runs: Claiming, run: str, definition: Definition, has_functions: bool = False) -> None:
        self._runs, self._definition = runs, definition
        self._has_functions = has_functions
        first = runs.store.load(run, after=0)
        self._begin(first.changed(snapshot=None, lines=(), run=first.run.changed(n=0)))
        self.run = first.run  # as it was read last

    def _begin(self, loaded: Loaded) -> None:
        """Begin with a process that has no entries yet but those before its snapshot."""
        self.process = self._runs.fold_run(loaded, self._definition)
        self._chain = self.process.journal.chain

    @property
    def n(self) -> int:
        """The number of the last entry that was read."""
        return int(self._chain.n)

    def is_news(self, run: Run) -> bool:
        """Return whether there is more to tell than what was read."""
        return run.n != self.n or is_settled(run)

    def load(self) -> Loaded:
        """Return the run with the entries after those that were read."""
        return self._runs.store.load(self.run.id, after=self.n)

    def events(self, loaded: Loaded) -> Iterator[Event]:
        """Yield the events of entries that `load` has returned.

        Entries before the last rest that the present code cannot take are passed over, as by `Runs.resume`.

        Raises:
            JournalError: The journal is damaged, foreign or forged.
            ReplayError: The code has changed, and takes other steps since the last rest.
        """
        self.run = loaded.run
        if loaded.run.n != self.n + len(loaded.lines):
            there = f"the run {loaded.run.id!r} had {self.n} entries, and has {loaded.run.n}"
            raise JournalError(f"{there}: it was deleted and begun anew")
        try:
            for line in loaded.lines:
                yield from self._events_of(line)
        except ReplayError as error:
            yield from self._events_since_the_rest(error)

    def _events_since_the_rest(self, error: ReplayError) -> Iterator[Event]:
        """Yield the events after the last rest, if an entry before it was refused; raise that error if it is later."""
        loaded = self._runs.store.load(self.run.id, after=None)
        rest_n = 0 if loaded.snapshot is None else loaded.snapshot[0]
        if rest_n <= self.n:
            raise error
        _log.warning("run %s: its events before entry %d are left out: %s", self.run.id, rest_n, error)
        self.run = loaded.run
        self._begin(loaded.changed(lines=(), run=loaded.run.changed(n=rest_n)))
        for line in loaded.lines:
            yield from self._events_of(line)

    def _events_of(self, line: str) -> Iterator[Event]:
        entry, process, before = line_of(line), self.process, self.process.record
        if retried_in(entry) is not None:
            fold(process, [line], self._chain)
            return
        reply = self._reply(entry.key, bytes(entry.outcome))
        returned = self._returned(entry.key, bytes(entry.outcome)) if self._has_functions else None
        fold(process, [line], self._chain)
        as_events = getattr(process, "as_events", None)
        if reply is not None:
            yield reply
        for event in process.steps if as_events is None else as_events(before, process.steps):
            if not self._has_functions:
                yield event
                continue
            if (ended := _function_ended(process, event, returned)) is not None:
                yield ended
            if not isinstance(event.event if isinstance(event, Inside) else event, FunctionEnded):
                yield event  # without those of agents, which would come once more

    def last(self) -> Event:
        """Return the last event of a run that has ended, or that rests."""
        return last_event(self.process)

    def _returned(self, key: str, document: bytes) -> FunctionEnded | None:
        """Return the end of a function that is a state of a flow; None: the outcome is another."""
        if prefix_of(key) != RunFunction.prefix or b'"returned"' not in document:
            return None
        outcome: Any = self.process.decode(key, document)
        if type(outcome) is not Returned:
            return None
        id = key.rpartition(SEPARATOR)[2].partition(":")[2]
        return FunctionEnded(id, id.partition("#")[0], outcome.text, outcome.is_error, 0.0)

    def _reply(self, key: str, document: bytes) -> Event | None:
        """Return the event of a model's reply; None: the outcome is another."""
        if b'"replied"' not in document or prefix_of(key) != CallModel.prefix:  # listeners hear of no summary
            return None
        outcome: Any = self.process.decode(key, document)
        if type(outcome) is not Replied:
            return None
        path = key.rpartition(SEPARATOR)[0]
        event = ReplyCompleted(outcome.reply)
        return Inside(path, event) if path else event


def _function_ended(process: Any, event: Event, returned: FunctionEnded | None) -> Event | None:
    """Return the event of the function whose end a step took; None: the step took none.

    Args:
        process: The process after the step.
        event: The step.
        returned: What the entry itself says, in case the function is a state.
    """
    path, step = (event.path, event.event) if isinstance(event, Inside) else ("", event)
    if not isinstance(step, Stepped) or prefix_of(step.key) != RunFunction.prefix:
        return None
    for inner, _ in along(process, path):
        process = inner.process
    id = step.key.partition(":")[2]
    for call in reversed(getattr(process.record, "function_calls", ())):
        if call.id == id:
            text = call.result if call.error is None else call.error
            ended = FunctionEnded(id, call.name, text or "", call.error is not None, 0.0)
            return Inside(path, ended) if path else ended
    if returned is None or returned.id != id:
        return None
    return Inside(path, returned) if path else returned

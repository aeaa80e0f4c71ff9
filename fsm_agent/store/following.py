"""Follows a run: reads its journal, and replays the entries to yield the events that the driver reported.

Entries that the current code cannot replay are reported as they were written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from fsm_agent._internal.structs import from_json
from fsm_agent.call.derived_events import last_event
from fsm_agent.call.effects import CallModel, RunFunction
from fsm_agent.call.journal import header_of, line_of, retried_in
from fsm_agent.call.outcomes import FunctionFailed, Outcome, Replied, Returned
from fsm_agent.call.process import SEPARATOR, inside, prefix_of, process_at, subject_of
from fsm_agent.call.replaying import replay
from fsm_agent.errors import JournalError, ReplayError
from fsm_agent.messages.events import Event, FunctionEnded, ReplyCompleted, Stepped, unwrapped
from fsm_agent.messages.message import FunctionCall
from fsm_agent.store.claiming import ProcessFactory, replay_run
from fsm_agent.store.history import RETRIED, read
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Loaded, Run
from fsm_agent.store.watching import is_settled

_log = logging.getLogger("fsm_agent")


class Follower:
    """Makes a run's events from its journal, entry by entry.

    Args:
        runs: The runs.
        run: The name of the run.
        factory: The factory that makes the run's process.
    """

    def __init__(self, runs: Runs, run: str, factory: ProcessFactory) -> None:
        self._runs, self._factory = runs, factory
        first = runs.store.load(run, after=0)
        self._fingerprint = header_of(first.header).fingerprint
        self._begin(first.changed(snapshot=None, lines=(), run=first.run.changed(n=0)))
        self.run = first.run  # as last read
        self.problem: ReplayError | None = None  # why entries are reported as written
        self._n_told = 0  # the last entry that was reported as written

    def _begin(self, loaded: Loaded) -> None:
        self.process = replay_run(self._runs.journals, loaded, self._factory)
        self._chain = self.process.journal.chain

    @property
    def n(self) -> int:
        """The number of the last entry that was read."""
        return int(self._chain.n) if self.problem is None else self._n_told

    def is_news(self, run: Run) -> bool:
        """Return whether the run has news that has not been read yet."""
        return run.n != self.n or is_settled(run)

    def load(self) -> Loaded:
        """Return the run with the entries that have not been read yet."""
        return self._runs.store.load(self.run.id, after=self.n)

    def events(self, loaded: Loaded) -> Iterator[Event]:
        """Yield the events of the entries that `load` returned.

        Entries that the current code cannot replay are reported as they were written: their steps, replies and function
        results.  These reports have no `HistoryChanged` and no results from agents used as functions.  If the run was
        released later, the entries after that release are replayed, as in `Runs.resume`.
        """
        self.run = loaded.run
        if loaded.run.n != self.n + len(loaded.lines):
            there = f"the run {loaded.run.id!r} had {self.n} entries, and now has {loaded.run.n}"
            raise JournalError(f"{there}: it was deleted and started again")
        if self.problem is None:
            yield from self._replayed(loaded.lines)
        if self.problem is not None:
            yield from self._as_written(loaded.run.n)

    def _replayed(self, lines: Sequence[str]) -> Iterator[Event]:
        for line in lines:
            told = self._chain.n
            try:
                yield from self._events_of(line)
            except ReplayError as error:
                self.problem, self._n_told = error, told
                return

    def _as_written(self, end: int) -> Iterator[Event]:
        """Yield the events of entries as they were written, then replay the entries after a later release."""
        while self.problem is not None and self._n_told < end:
            loaded = self._runs.store.load(self.run.id, after=None)
            rest_n = 0 if loaded.snapshot is None else loaded.snapshot[0]
            is_back = self._n_told < rest_n <= end  # the run has rested since, so replaying can go on from there
            told, self._n_told = self._n_told, rest_n if is_back else end
            yield from written_events(self._runs, self.run.id, told, self._n_told)
            if is_back:
                _log.warning(
                    "run %s: events before entry %d are reported as they were written: %s",
                    self.run.id,
                    rest_n,
                    self.problem,
                )
                self.problem = None
                self._begin(loaded.changed(lines=(), run=loaded.run.changed(n=rest_n)))
                yield from self._replayed(loaded.lines[: end - rest_n])

    def _events_of(self, line: str) -> Iterator[Event]:
        entry, process, before, outcome = line_of(line), self.process, self.process.record, None
        with suppress(ValueError, RecursionError):  # `replay` raises a better error
            outcome = from_json(bytes(entry.outcome), Outcome)
        replay(process, [line], self._chain, self._fingerprint)
        if retried_in(entry) is not None:
            return
        if isinstance(outcome, Replied) and prefix_of(entry.key) == CallModel.prefix:
            yield inside(entry.key.rpartition(SEPARATOR)[0], ReplyCompleted(outcome.reply))
        as_events, returned = getattr(process, "as_events", None), _ended(entry.key, outcome)
        for event in process.steps if as_events is None else as_events(before, process.steps):
            if (ended := _function_ended(process, event, returned)) is not None:
                yield ended
            if not isinstance(unwrapped(event)[1], FunctionEnded):
                yield event  # `FunctionEnded` was reported above

    def last(self) -> Event:
        """Return the last event of a run that has ended or was released.

        Raises:
            ReplayError: If the code has changed and no longer takes the steps in the journal since the last release.
        """
        if self.problem is not None:
            raise self.problem
        return last_event(self.process)


def _function_ended(process: Any, event: Event, returned: FunctionEnded | None) -> Event | None:
    """Return the event for the end of a function that a step recorded, or None if it recorded none.

    For a function that is a state of a flow, ``returned`` is the event from the entry itself.
    """
    path, step = unwrapped(event)
    if not isinstance(step, Stepped) or prefix_of(step.key) != RunFunction.prefix:
        return None
    id, record = subject_of(step.key), process_at(process, path).record
    # Calls of an open round are only in `round`.
    for call in chain(getattr(record, "round", ()), reversed(getattr(record, "function_calls", ()))):
        if call.id == id:
            text = call.result if call.error is None else call.error
            return inside(path, FunctionEnded(id, call.name, text or "", call.error is not None, 0.0))
    return None if returned is None or returned.id != id else inside(path, returned)


def written_events(runs: Runs, run: str, after: int, end: int) -> Iterator[Event]:
    """Yield the events of the entries after number ``after`` up to ``end`` without replaying them.

    These are steps, replies and functions' results, except results from agents used as functions, which the journal
    does not hold.
    """
    found = read(runs, run)
    if not found.is_sound or len(found.entries) < end:
        raise JournalError(f"the journal of the run {run!r} is unreadable before entry {end}: {found.verdict}")
    asked: dict[str, Sequence[FunctionCall]] = {}  # by path, in its last reply
    for entry in found.entries[:end]:
        reply = None  # of a model; summaries are not reported
        if isinstance(entry.outcome, Replied) and prefix_of(entry.key) == CallModel.prefix:
            reply = entry.outcome.reply
            asked[entry.path] = reply.message.function_calls
        if entry.n <= after or entry.kind == RETRIED:
            continue
        if reply is not None:
            yield inside(entry.path, ReplyCompleted(reply))
        ended = _ended(entry.key, entry.outcome, asked.get(entry.path, ()))
        for move in entry.moves:
            if ended is not None and move.path == entry.path:
                yield inside(move.path, ended)
                ended = None
            yield inside(move.path, move.step)


def _ended(key: str, outcome: Outcome | None, asked: Sequence[FunctionCall] = ()) -> FunctionEnded | None:
    """Return the event for the end of a function, or None for other outcomes.

    ``asked`` holds the calls in the model's last reply.
    """
    if not isinstance(outcome, Returned | FunctionFailed) or prefix_of(key) != RunFunction.prefix:
        return None
    id = subject_of(key)
    number = id.rpartition(".")[2]
    is_asked = number.isdecimal() and "#" not in id and int(number) < len(asked)
    name = asked[int(number)].name if is_asked else id.partition("#")[0]
    is_error = isinstance(outcome, FunctionFailed) or outcome.is_error
    return FunctionEnded(id, name, outcome.text, is_error, 0.0)

"""Follow the journal of a run: the events that its driver told, made again from what it wrote.

Where the code takes other steps by now, they are told as the journal has them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from fsm_agent.call.effects import CallModel, RunFunction
from fsm_agent.call.journal import line_of, retried_in
from fsm_agent.call.outcomes import FunctionFailed, Replied, Returned
from fsm_agent.call.process import SEPARATOR, along, prefix_of
from fsm_agent.call.replaying import replay
from fsm_agent.errors import JournalError, ReplayError, UsageError
from fsm_agent.messages.events import Event, FunctionEnded, Inside, ReplyCompleted, Stepped
from fsm_agent.messages.message import FunctionCall
from fsm_agent.runtime.drivers import last_event
from fsm_agent.store.claiming import ProcessFactory, fold_run
from fsm_agent.store.history import RETRIED, HistoryEntry, read
from fsm_agent.store.listing import is_settled
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Loaded, Run

_log = logging.getLogger("fsm_agent")


class Follower:
    """Makes the events of a run from its journal, entry by entry.

    Args:
        runs: The runs.
        run: The name of the run.
        factory: How its process is made.
        has_functions: Whether `FunctionEnded` is told as well, with the result that the model got.

    Raises:
        RunUnknown: The run does not exist.
        JournalError: As `Runs.resume` does.
    """

    def __init__(self, runs: Runs, run: str, factory: ProcessFactory, has_functions: bool = False) -> None:
        self._runs, self._factory = runs, factory
        self._has_functions = has_functions
        first = runs.store.load(run, after=0)
        self._begin(first.changed(snapshot=None, lines=(), run=first.run.changed(n=0)))
        self.run = first.run  # as it was read last
        self.problem: ReplayError | None = None  # why entries are told as they were written
        self._n_told = 0  # the last of these

    def _begin(self, loaded: Loaded) -> None:
        """Begin with a process that has no entries yet but those before its snapshot."""
        self.process = fold_run(self._runs.journals, loaded, self._factory)
        self._chain = self.process.journal.chain

    @property
    def n(self) -> int:
        """The number of the last entry that was read."""
        return int(self._chain.n) if self.problem is None else self._n_told

    def is_news(self, run: Run) -> bool:
        """Return whether there is more to tell than what was read."""
        return run.n != self.n or is_settled(run)

    def load(self) -> Loaded:
        """Return the run with the entries after those that were read."""
        return self._runs.store.load(self.run.id, after=self.n)

    def events(self, loaded: Loaded) -> Iterator[Event]:
        """Yield the events of entries that `load` has returned.

        Entries that the present code cannot take are told as they were written: their steps, replies and results of
        functions, without those of agents inside, and without `HistoryChanged`.  `Runs.resume` passes over them if a
        rest came after them.

        Raises:
            JournalError: The journal is damaged, foreign or forged.
        """
        self.run = loaded.run
        if loaded.run.n != self.n + len(loaded.lines):
            there = f"the run {loaded.run.id!r} had {self.n} entries, and now has {loaded.run.n}"
            raise JournalError(f"{there}: it was deleted and begun again")
        if self.problem is None:
            yield from self._replayed(loaded.lines)
        if self.problem is not None:
            yield from self._as_written(loaded.run.n)

    def _replayed(self, lines: Sequence[str]) -> Iterator[Event]:
        """Yield the events of entries; end at the first that the present code cannot take."""
        for line in lines:
            told = self._chain.n
            try:
                yield from self._events_of(line)
            except ReplayError as error:
                self.problem, self._n_told = error, told
                return

    def _as_written(self, end: int) -> Iterator[Event]:
        """Yield the events of entries as the journal has them; those after a later rest as the code makes them."""
        while self.problem is not None and self._n_told < end:
            loaded = self._runs.store.load(self.run.id, after=None)
            rest_n = 0 if loaded.snapshot is None else loaded.snapshot[0]
            is_back = self._n_told < rest_n <= end  # behind the entry that the code cannot take
            told, self._n_told = self._n_told, rest_n if is_back else end
            has_functions = self._has_functions
            yield from written_events(self._runs, self.run.id, told, self._n_told, has_functions=has_functions)
            if is_back:
                _log.warning(
                    "run %s: events before entry %d are told as they were written: %s",
                    self.run.id,
                    rest_n,
                    self.problem,
                )
                self.problem = None
                self._begin(loaded.changed(lines=(), run=loaded.run.changed(n=rest_n)))
                yield from self._replayed(loaded.lines[: end - rest_n])

    def _events_of(self, line: str) -> Iterator[Event]:
        entry, process, before = line_of(line), self.process, self.process.record
        if retried_in(entry) is not None:
            replay(process, [line], self._chain)
            return
        reply = returned = None
        with suppress(UsageError, ValueError):  # which `replay` refuses by its name
            reply = self._reply(entry.key, bytes(entry.outcome))
            returned = self._returned(entry.key, bytes(entry.outcome)) if self._has_functions else None
        replay(process, [line], self._chain)
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
        """Return the last event of a run that has ended, or that rests.

        Raises:
            ReplayError: The code has changed, and takes other steps since the last rest.
        """
        if self.problem is not None:
            raise self.problem
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
    record = process.record  # calls of a round that is still open are in it alone
    for call in chain(getattr(record, "round", ()), reversed(getattr(record, "function_calls", ()))):
        if call.id == id:
            text = call.result if call.error is None else call.error
            ended = FunctionEnded(id, call.name, text or "", call.error is not None, 0.0)
            return Inside(path, ended) if path else ended
    if returned is None or returned.id != id:
        return None
    return Inside(path, returned) if path else returned


def written_events(runs: Runs, run: str, after: int, end: int, *, has_functions: bool) -> Iterator[Event]:
    """Yield steps, replies and, if asked for, results of functions, of the entries behind ``after`` up to ``end``.

    There are as many steps as the code took then.  What an agent inside returned is not in the journal.

    Raises:
        JournalError: The journal is damaged, or was begun anew.
    """
    found = read(runs, run)
    if not found.is_sound or len(found.entries) < end:
        raise JournalError(f"the journal of the run {run!r} is unreadable before entry {end}: {found.verdict}")
    asked: dict[str, Sequence[FunctionCall]] = {}  # by path, in its last reply
    for entry in found.entries[:end]:
        reply = None  # of a model; listeners hear of no summary
        if isinstance(entry.outcome, Replied) and prefix_of(entry.key) == CallModel.prefix:
            reply = entry.outcome.reply
            asked[entry.path] = [part for part in reply.message.parts if isinstance(part, FunctionCall)]
        if entry.n <= after or entry.kind == RETRIED:
            continue
        if reply is not None:
            yield _inside(entry.path, ReplyCompleted(reply))
        ended = _ended(entry, asked.get(entry.path, ())) if has_functions else None
        for move in entry.moves:
            if ended is not None and move.path == entry.path:
                yield _inside(move.path, ended)
                ended = None
            yield _inside(move.path, move.step)


def _inside(path: str, event: Event) -> Event:
    return Inside(path, event) if path else event


def _ended(entry: HistoryEntry, asked: Sequence[FunctionCall]) -> FunctionEnded | None:
    """Return the end of a function; None: the entry is of something else.

    Args:
        entry: The entry.
        asked: What the model had asked for; a state of a flow was asked for by none.
    """
    outcome = entry.outcome
    if not isinstance(outcome, Returned | FunctionFailed) or prefix_of(entry.key) != RunFunction.prefix:
        return None
    id = entry.key.rpartition(SEPARATOR)[2].partition(":")[2]
    number = id.rpartition(".")[2]
    is_asked = number.isdecimal() and "#" not in id and int(number) < len(asked)
    name = asked[int(number)].name if is_asked else id.partition("#")[0]
    is_error = isinstance(outcome, FunctionFailed) or outcome.is_error
    return FunctionEnded(id, name, outcome.text, is_error, 0.0)

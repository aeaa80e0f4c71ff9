"""Reads runs without needing the code of their agents and flows, and finds where two runs diverge.

For example, list the approvals in a run::

    for entry in read(Runs("runs.db"), "order-17").entries:
        if entry.kind in ("approved", "denied", "modified"):
            print(entry.by, entry.key, entry.kind)

A run consists of processes: the run itself, which has the path ``""``, and the agents, flows and members inside it,
which have paths such as ``run:2.0`` and ``drafting#1/warmly``.  The journal holds the states that each process went
through.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from fsm_agent._internal.structs import from_json
from fsm_agent.call.journal import Beginning, FlowTable, Header, Line, header_of, line_of
from fsm_agent.call.outcomes import Cancelled, Denied, ModelFailed, Outcome, Replied, Returned, Stopped
from fsm_agent.call.process import SEPARATOR
from fsm_agent.call.record import FINAL, ContextUse, State
from fsm_agent.call.snapshots import record_of
from fsm_agent.errors import JournalError, SnapshotError
from fsm_agent.messages.events import Stepped
from fsm_agent.messages.reply import UNUSED, Usage
from fsm_agent.store.journals import title_of
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Loaded, Run, Signal

UNKNOWN = "?"  # a state that is missing from a damaged journal
RETRIED = "retried"  # the kind of the entry that continues a failed run
_FAR_S = 1e15  # Unix times from here on count as damaged
_SEEDED = str(State.SEEDED)
_STAYS = frozenset({"started", "interrupted", "run_again", "kept"})  # triggers after which a flow is in the same step
_FINAL = frozenset(map(str, FINAL))  # members have the same final states
_MOMENTS = frozenset({"at_s", "delay_s", "duration_s"})  # these differ between any two runs
_NAMES = frozenset({"id"})  # of a run, a reply or a function call
Difference: TypeAlias = tuple[str, Any, Any]  # the path, and the two values; None for a missing value
Kind: TypeAlias = Literal["call", "flow", "members"]


class Move(NamedTuple):
    """A step that one process took."""

    n: int  # the number of the entry
    path: str  # the path of the process
    step: Stepped  # with the states before and after it; `UNKNOWN` if the journal is damaged


class HistoryEntry(NamedTuple):
    """An entry of a journal."""

    line: Line
    data: Any  # the outcome as JSON data
    outcome: Outcome | None  # None for a kind of outcome that agent calls do not have
    moves: tuple[Move, ...]  # the steps that it caused
    since_s: float  # Unix time when the process began to wait for it; 0.0 if unknown

    @property
    def n(self) -> int:
        """The number of the entry, counting from 1."""
        return self.line.n

    @property
    def key(self) -> str:
        """The key of the effect whose outcome the entry holds."""
        return self.line.key

    @property
    def path(self) -> str:
        """The path of the process that waited for the outcome."""
        return self.line.key.rpartition(SEPARATOR)[0]

    @property
    def by(self) -> str:
        """The person who posted the outcome, or an empty string if it was not posted or the person is unknown."""
        by = self.data.get("by") if isinstance(self.data, dict) else None
        return self.line.by or (by if isinstance(by, str) else "")

    @property
    def kind(self) -> str:
        """The kind of the outcome."""
        return str(self.data.get("kind", "")) if isinstance(self.data, dict) else ""

    @property
    def at_s(self) -> float:
        """The Unix time of the outcome, or 0.0 if it is missing or damaged, like ``1e999``."""
        at_s = self.data.get("at_s") if isinstance(self.data, dict) else None
        return float(at_s) if isinstance(at_s, int | float) and abs(at_s) < _FAR_S else 0.0

    @property
    def usage(self) -> Usage:
        """The tokens of the reply, if the entry holds one."""
        return self.outcome.reply.usage if isinstance(self.outcome, Replied) else UNUSED

    @property
    def why(self) -> str:
        """Why a reply was refused, in the words that the model received, or why the call failed, or an empty string."""
        return self.line.why

    @property
    def triggers(self) -> str:
        """The triggers of the steps that the entry caused, separated by spaces."""
        return " ".join([f"{path}: {trigger}" if path else trigger for path, trigger in self.line.steps])

    @property
    def undoes_to(self) -> int | None:
        """For a `RETRIED` entry, the number of the last entry that the retry keeps; otherwise None."""
        step = self.data.get("step") if self.kind == RETRIED else None
        return step if isinstance(step, int) else None


class ProcessView(NamedTuple):
    """A process in a run: the run itself, or a nested process."""

    path: str
    kind: Kind
    name: str  # the name of its agent or flow; empty if unknown
    task: str  # what it began with, shortened; empty if unknown, or if it began with the enclosing process's dialog
    n: int  # the number of the entry at which it began
    moves: tuple[Move, ...]

    @property
    def state(self) -> str:
        """The last state of the process."""
        return self.moves[-1].step.to if self.moves else _SEEDED

    @property
    def trace(self) -> list[Stepped]:
        """The steps that the process took, which `fsm_agent.diagrams.trace_diagram` can draw."""
        return [move.step for move in self.moves]

    @property
    def around(self) -> str:
        """The path of the enclosing process."""
        return self.path.rpartition(SEPARATOR)[0]


class Moment(NamedTuple):
    """A run as it was after an entry."""

    n: int
    at_s: float  # Unix time of the entry; 0.0 if unknown
    states: Mapping[str, str]  # the states of the processes in progress, by path
    usage: Usage  # the tokens of all replies so far


class RunHistory(NamedTuple):
    """A stored run, as far as it can be read without code."""

    run: Run
    header: Header
    seed: Any  # what it began with, as JSON data
    title: str
    entries: tuple[HistoryEntry, ...]
    processes: Mapping[str, ProcessView]  # by path, in the order in which they began; "" is the run itself
    tables: Mapping[str, FlowTable]  # the tables of its flows, by name
    signals: tuple[Signal, ...]  # pending signals
    uses: Mapping[str, ContextUse]  # what requests showed the model, by key, up to the last rest of an agent call
    verdict: str  # the result of verifying the digests, in words
    is_sound: bool  # False if the journal is damaged

    @property
    def process(self) -> ProcessView:
        """The process of the run itself."""
        return self.processes[""]

    @property
    def kind(self) -> Kind:
        """Whether the run is an agent call (``"call"``) or a run of a flow (``"flow"``)."""
        return self.process.kind

    @property
    def usage(self) -> Usage:
        """The tokens of all replies."""
        return sum([entry.usage for entry in self.entries], UNUSED)

    def table(self, path: str = "") -> FlowTable | None:
        """Return the table of the flow, or None if the process is not a flow or its table is unknown."""
        process = self.processes[path]
        return self.tables.get(process.name) if process.kind == "flow" else None

    def at(self, n: int) -> Moment:
        """Return the run as it was after entry ``n``, or before the first entry if ``n`` is 0.

        Raises:
            IndexError: If the run has no such entry.
        """
        if not 0 <= n <= len(self.entries):
            raise IndexError(f"entry of the run {self.run.id!r}: expected 0 to {len(self.entries)}, got {n}")
        kept = list[int]()  # the entries that count
        for entry in self.entries[:n]:
            if (step := entry.undoes_to) is None:
                kept.append(entry.n)
            else:
                kept = [number for number in kept if number <= step]
        counts = {*kept}
        taken = {path: [move for move in one.moves if move.n in counts] for path, one in self.processes.items()}
        going = {"": taken[""][-1].step.to if taken[""] else _SEEDED}
        for path, process in self.processes.items():
            if path and process.around in going and taken[path] and not self._is_over(process, taken):
                going[path] = taken[path][-1].step.to
        at_s = next((entry.at_s for entry in reversed(self.entries[:n]) if entry.at_s), self.run.created_s)
        return Moment(n, at_s, going, sum([entry.usage for entry in self.entries[:n]], UNUSED))

    def is_over(self, path: str, state: str) -> bool:
        """Return whether a process in this state has ended."""
        process = self.processes[path]
        if process.kind == "flow":
            table = self.table(path)
            return table is not None and table.states.get(state) in ("end", "failure")
        return state in _FINAL

    def _is_over(self, process: ProcessView, taken: Mapping[str, Sequence[Move]]) -> bool:
        """Return whether, after these steps, a nested process has ended or the enclosing process has moved on."""
        first, last, around = taken[process.path][0], taken[process.path][-1], taken[process.around]
        if self.is_over(process.path, last.step.to) or (around and self.is_over(process.around, around[-1].step.to)):
            return True
        later = [move.step for move in around if move.n > first.n]
        if self.processes[process.around].kind != "flow":  # the result of a nested process is a step with its name
            name = process.path.rpartition(SEPARATOR)[2]
            return any(step.key == name for step in later)
        return any(step.trigger.partition(" ")[0] not in _STAYS for step in later)


def read(runs: Runs, run: str) -> RunHistory:
    """Return a run's history.  If the run is damaged, the history covers what can be read.

    Args:
        runs: The runs in their store.  If they have a signing key, signatures are verified.
        run: The name of the run.

    Raises:
        RunUnknown: If no run has this name.
        JournalError: If its header cannot be read.
    """
    loaded = runs.store.load(run, after=0)
    header = header_of(loaded.header)
    written, problem = _entries(loaded.lines)
    verdict, is_sound = runs.journals.verdict(loaded)
    if problem:
        verdict, is_sound = problem, False
    seed = from_json(bytes(header.seed), Any)
    processes, entries = _processes(header, seed, written)
    return RunHistory(
        loaded.run,
        header,
        seed,
        loaded.run.title or title_of(loaded.header),
        tuple(entries),
        processes,
        _tables(header),
        loaded.signals,
        _uses(runs, loaded),
        verdict,
        is_sound,
    )


def _tables(header: Header) -> Mapping[str, FlowTable]:
    if not (text := bytes(header.tables)):
        return {}
    try:
        tables: Mapping[str, FlowTable] = from_json(text, dict[str, FlowTable])
    except ValueError:
        return {}
    return tables


def _entries(texts: Sequence[str]) -> tuple[list[HistoryEntry], str]:
    """Return the entries before the first unreadable one, without their moves, and what is wrong with that one."""
    found: list[HistoryEntry] = []
    for n, text in enumerate(texts, 1):
        try:
            line = line_of(text)
            if line.n != n:
                return found, f"entry {n}: expected the number {n}, got {line.n}"
            data = json.loads(bytes(line.outcome))
        except (JournalError, ValueError, RecursionError) as error:
            return found, f"entry {n}: {error}"
        outcome = None
        with suppress(ValueError):
            outcome = from_json(bytes(line.outcome), Outcome)
        found.append(HistoryEntry(line, data, outcome, (), 0.0))
    return found, ""


def _uses(runs: Runs, loaded: Loaded) -> Mapping[str, ContextUse]:
    """Return what was shown to the model in requests, or nothing if this is unknown or the run is not an agent call."""
    try:
        saved = runs.journals.read_snapshot(loaded)
        record = None if saved is None else record_of(saved.document)
    except (JournalError, SnapshotError):
        return {}
    return {} if record is None else {use.key: use for use in record.requests}


# Processes, and the states that they went through


def _processes(
    header: Header, seed: Any, written: Iterable[HistoryEntry]
) -> tuple[dict[str, ProcessView], list[HistoryEntry]]:
    """Return the processes by path, and the entries with their moves.

    A `RETRIED` entry leads each process back to its state after an earlier entry.
    """
    reached: dict[str, list[tuple[int, str]]] = {"": [(0, _SEEDED)]}  # entries not undone, with the states after them
    taken: dict[str, list[Move]] = {"": []}
    moved_s: dict[str, float] = {}  # when each process took its last step
    begun: dict[str, tuple[int, Beginning]] = {}
    entries = list[HistoryEntry]()
    for entry in written:
        n, line, moves = entry.n, entry.line, list[Move]()
        for one in line.begun:
            begun.setdefault(one.path, (n, one))
        for path, states in reached.items() if entry.kind == RETRIED else ():
            source, kept = states[-1][1], entry.undoes_to
            states[:] = [state for state in states if state[0] <= max(0, n if kept is None else kept)]
            if source != states[-1][1]:  # otherwise it is a nested process that did not move
                moves.append(Move(n, path, Stepped(source, RETRIED, states[-1][1], "", entry.at_s)))
        detail, usage = _detail(entry.outcome) or line.why, entry.usage if isinstance(entry.outcome, Replied) else None
        for number, (path, trigger) in enumerate(line.steps):
            states = reached.setdefault(path, [(0, _SEEDED)])
            source, to = states[-1][1], line.to[number] if number < len(line.to) else UNKNOWN
            step = Stepped(source, trigger, to, _own_key(line.key, path), entry.at_s, "", detail, usage)
            moves.append(Move(n, path, step))
            states.append((n, to))
            detail, usage = "", None  # only the first process took the outcome
        for move in moves:
            taken.setdefault(move.path, []).append(move)
        entries.append(entry._replace(moves=tuple(moves), since_s=moved_s.get(entry.path, 0.0)))
        moved_s |= dict.fromkeys([entry.path, *[path for path, _ in line.steps]], entry.at_s)
    root: Kind = "call" if isinstance(seed, dict) and "dialog" in seed else "flow"
    found: dict[str, ProcessView] = {}
    for path, moves in taken.items():
        n, one = begun.get(path, (moves[0].n if moves else 0, Beginning(path, "")))
        known: Any = one.kind if one.kind in get_args(Kind) else "call"
        kind, name = (known, one.name) if path else (root, header.agent)
        found[path] = ProcessView(path, kind, name, one.task, n if path else 0, tuple(moves))
    return found, entries


def _detail(outcome: Outcome | None) -> str:
    match outcome:
        case ModelFailed(error=error):
            return error.message
        case Returned(text=detail, is_error=True):
            return detail
        case Cancelled(reason=detail) | Stopped(reason=detail) | Denied(reason=detail):
            return detail
    return ""


def _own_key(key: str, path: str) -> str:
    own = key[len(path) + 1 :] if path and key.startswith(f"{path}{SEPARATOR}") else key
    return own.partition(SEPARATOR)[0]


class Divergence(NamedTuple):
    """The place where two runs diverge."""

    beginning: list[Difference]  # in their headers
    n: int | None  # the number of the first entry that differs; None if all are equal
    entry: list[Difference]  # in that entry


def divergence(a: RunHistory, b: RunHistory) -> Divergence:
    """Return where two runs diverge, ignoring times, names of runs, fences and digests."""
    beginning = _list_differences("", _beginning(a), _beginning(b))
    for n, (one, other) in enumerate(zip_longest(a.entries, b.entries), 1):
        if found := _list_differences("", _content(one), _content(other)):
            return Divergence(beginning, n, found)
    return Divergence(beginning, None, [])


def is_same(a: HistoryEntry | None, b: HistoryEntry | None) -> bool:
    """Return whether two entries are equal except for their times."""
    return not _list_differences("", _content(a), _content(b))


def _beginning(reading: RunHistory) -> dict[str, Any]:
    header = reading.header
    return {"agent": header.agent, "fingerprint": header.fingerprint, "seed": reading.seed, "extra": header.extra}


def _content(entry: HistoryEntry | None) -> dict[str, Any]:
    if entry is None:
        return {}
    return {"key": entry.line.key, "outcome": entry.data, "steps": entry.triggers}


def _list_differences(where: str, a: Any, b: Any) -> list[Difference]:
    if isinstance(a, dict) and isinstance(b, dict):
        names = [name for name in dict.fromkeys([*a, *b]) if name not in _MOMENTS | _NAMES]
        return [
            one
            for name in names
            for one in _list_differences(f"{where}.{name}" if where else name, a.get(name), b.get(name))
        ]
    if isinstance(a, list) and isinstance(b, list):
        pairs = enumerate(zip_longest(a, b))
        return [one for n, (x, y) in pairs for one in _list_differences(f"{where}[{n}]", x, y)]
    return [] if a == b else [(where, a, b)]


def as_json(where: Divergence) -> dict[str, Any]:
    """Return a divergence as JSON data."""
    return {"beginning": _as_json(where.beginning), "n": where.n, "entry": _as_json(where.entry)}


def _as_json(found: list[Difference]) -> list[dict[str, Any]]:
    return [{"where": path, "values": msgspec.to_builtins([a, b])} for path, a, b in found]

"""Read runs from a store without the code of their agents."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, NamedTuple

import typer

from fsm_agent._internal.values import from_json
from fsm_agent.agents.config.named import loaded
from fsm_agent.cli.options import modules_here
from fsm_agent.diagrams.path import path
from fsm_agent.errors import JournalError, SnapshotError, UsageError
from fsm_agent.lifecycle.outcomes import Cancelled, Denied, ModelFailed, Outcome, Replied, Stopped
from fsm_agent.lifecycle.record import ContextUse
from fsm_agent.lifecycle.snapshots import record_of
from fsm_agent.machine.journal import Chain, Header, Line, header_of, is_signed, line_of
from fsm_agent.machine.signing import key_bytes
from fsm_agent.messages.event import Stepped
from fsm_agent.store.conversation_turns import turns_back
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Loaded, Run

_NAMED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
KEY_VARIABLE = "FSM_AGENT_SIGNING_KEY"  # on a command line others would see it

StorePath = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="FSM_AGENT_STORE",
        help="The file with the runs, postgresql://host/database, or module:name of a store; a signing key is taken"
        " from the environment.",
    ),
]


class EntryRead(NamedTuple):
    """An entry of a journal."""

    line: Line
    outcome: Outcome | None  # None: no agent call's
    data: Any  # the outcome as it is in JSON

    @property
    def kind(self) -> str:
        """The kind of the outcome."""
        return str(self.data.get("kind", "")) if isinstance(self.data, dict) else ""

    @property
    def at_s(self) -> float:
        """Unix time of the outcome; 0.0: not known."""
        at_s = self.data.get("at_s") if isinstance(self.data, dict) else None
        return float(at_s) if isinstance(at_s, int | float) else 0.0

    @property
    def triggers(self) -> str:
        """The steps that were taken."""
        return " ".join([f"{path}: {trigger}" if path else trigger for path, trigger in self.line.steps])


class RunReading(NamedTuple):
    """A run as it is in its store."""

    run: Run
    header: Header
    seed: Any  # what the run began with, in JSON
    entries: list[EntryRead]
    trace: list[Stepped] | None  # a step for each entry; None: it is no agent call's
    verdict: str  # on the digests
    is_sound: bool  # False: the journal is damaged
    uses: Mapping[str, ContextUse]  # what requests showed the model, by key, up to the last rest of an agent call


@contextmanager
def opened(store: str, *, must_exist: bool = True, patience_s: float | None = None) -> Iterator[Runs]:
    """Yield the runs of a store, and close it.

    Args:
        store: Its path; its address in Postgres; or ``module:name`` of a `Store`, of `Runs`, or of a function that
            returns one.
        must_exist: What is not there is not made.
        patience_s: Of the runs; see `Runs`.

    Raises:
        UsageError: There is no store at this path, or a folder.
        ConfigError: There is no such module or name.
    """
    is_there = "://" in store or Path(store).exists()
    if _NAMED.fullmatch(store) and not is_there:
        runs = _named(store, patience_s)
        try:
            yield runs
        finally:
            runs.close()
        return
    if must_exist and not is_there:
        raise UsageError(f"there is no store at {store!r}: a file that 'ask --store' or Agent(store=…) has written")
    runs = Runs(store, signing_key=os.environ.get(KEY_VARIABLE) or None, patience_s=patience_s)
    try:
        yield runs
    finally:
        runs.close()


def _named(name: str, patience_s: float | None) -> Runs:
    """Return the runs of a store that code makes."""
    with modules_here():
        found = loaded(name, "store")
        store = found() if isinstance(found, FunctionType) else found
    if isinstance(store, Runs):
        return store
    return Runs(store, signing_key=os.environ.get(KEY_VARIABLE) or None, patience_s=patience_s)


def read(runs: Runs, run: str) -> RunReading:
    """Return a run; one that is damaged, as far as it can be read.

    Raises:
        RunUnknown: There is no such run.
        JournalError: Its header cannot be read.
    """
    loaded = runs.store.load(run, after=0)
    header = header_of(loaded.header)
    entries, problem = _entries(loaded.lines)
    verdict, is_sound = _verdict(loaded.header, loaded.lines)
    if problem:
        verdict, is_sound = problem, False
    steps = [_step(entry) for entry in entries]
    is_all = loaded.run.holder is None and loaded.run.n == len(entries)
    trace = path(steps, loaded.run.state if is_all else None) if all(_is_plain(entry) for entry in entries) else None
    seed = from_json(bytes(header.seed), Any)
    return RunReading(loaded.run, header, seed, entries, trace, verdict, is_sound, _uses(runs, loaded))


def _uses(runs: Runs, loaded: Loaded) -> Mapping[str, ContextUse]:
    """Return what the requests of a run showed the model; empty if it is no agent call's, or cannot be read."""
    try:
        saved = runs.read_snapshot(loaded)
        record = None if saved is None else record_of(saved.document)
    except (JournalError, SnapshotError):
        return {}
    return {} if record is None else {use.key: use for use in record.requests}


def turns_of(
    runs: Runs, conversation: str, *, agent: str | None, ended: bool | None, asked: bool, limit: int
) -> list[Run]:
    """Return the turns of a conversation, the newest first: those that `Store.list` would return of them.

    Raises:
        UsageError: There is no such conversation.
    """
    head = runs.store.head(conversation)
    if not head.version:
        raise UsageError(f"there is no conversation {conversation!r} in this store")
    found = (
        run
        for run in turns_back(runs, head)
        if (agent is None or run.agent == agent)
        and (ended is None or run.is_ended == ended)
        and (run.waits or not asked)
    )
    return list(islice(found, limit))


def _entries(lines: tuple[str, ...]) -> tuple[list[EntryRead], str]:
    """Return the entries up to the first that cannot be read, and what is wrong with that."""
    entries: list[EntryRead] = []
    for text in lines:
        try:
            line = line_of(text)
        except JournalError as error:
            return entries, f"entry {len(entries) + 1}: {error}"
        outcome = None
        with suppress(ValueError):
            outcome = from_json(bytes(line.outcome), Outcome)
        entries.append(EntryRead(line, outcome, json.loads(bytes(line.outcome))))
    return entries, ""


def _verdict(header: str, lines: tuple[str, ...]) -> tuple[str, bool]:
    """Return what the digests tell, and whether nothing is wrong."""
    signing_key = os.environ.get(KEY_VARIABLE) or None
    if lines and signing_key is None and is_signed(lines[0]):
        return f"signed; {KEY_VARIABLE} is not set, so nothing was verified", True
    chain = Chain(header, None if signing_key is None else key_bytes(signing_key))
    try:
        for text in lines:
            chain.verified(text)
    except JournalError as error:
        return str(error), False
    return "digests right" if signing_key is None else "signatures right", True


def _is_plain(entry: EntryRead) -> bool:
    """Return whether an entry is one step of the process itself."""
    return len(entry.line.steps) == 1 and entry.line.steps[0][0] == ""


def _step(entry: EntryRead) -> Stepped:
    """Return the step of an entry, without its states."""
    detail, usage = "", None
    match entry.outcome:
        case Replied(reply=reply):
            usage = reply.usage
        case ModelFailed(error=error):
            detail = error.message
        case Cancelled(reason=detail) | Stopped(reason=detail) | Denied(reason=detail):
            pass
    return Stepped(
        "", entry.line.steps[0][1] if entry.line.steps else "", "", entry.line.key, entry.at_s, "", detail, usage
    )

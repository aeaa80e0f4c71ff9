"""Reads runs as they were after an entry, and forks them; see `Runs.at` and `Runs.fork`.

A fork is an independent run with its own name, which starts with the first entries of another run and continues from
there.  Its header names that run, and may hold an *edit*: an outcome that a person has added after the common entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from fsm_agent._internal.structs import defaults_of, from_json, is_whole, to_json
from fsm_agent.call.effects import Begin
from fsm_agent.call.header import on_its_own
from fsm_agent.call.journal import Chain, Entry, Header, Journal, Line, PastJournal, entry_of, header_of
from fsm_agent.call.outcomes import Begun
from fsm_agent.call.snapshots import check_forkable, with_id
from fsm_agent.errors import JournalError, ReplayError, UsageError
from fsm_agent.store.claiming import Claims, ProcessFactory, replay_run
from fsm_agent.store.errors import RunExists
from fsm_agent.store.journals import Journals
from fsm_agent.store.recorder import Saved, packed_snapshot, suspension_of
from fsm_agent.store.store import FIRST_FENCE, Lease, Loaded, Suspension
from fsm_agent.store.turns import messages_before

_UNEDITED = defaults_of(Header)["edit"]  # JSON leaves out this very object


def past_of(journals: Journals, run: str, step: int | str | None, factory: ProcessFactory) -> Any:
    """Return a run's process as it was after an entry; see `Runs.at`."""
    loaded = journals.store.load(run, after=None if step is None else 0)
    if step is None:
        return _past(journals, loaded, factory)
    if isinstance(step, str) and factory.entry_of is not None:
        step = factory.entry_of(_past(journals, _until(loaded, None), factory), loaded.lines, step)
    until = _until(loaded, step)
    try:
        return _past(journals, until, factory)
    except (JournalError, ReplayError) as error:
        if loaded.snapshot is None or until.snapshot is not None:
            raise
        rested = f"read or fork the run from step {loaded.snapshot[0]} on, where it rested"
        raise type(error)(f"{error}; {rested}") from error


def _past(journals: Journals, loaded: Loaded, factory: ProcessFactory) -> Any:
    process = replay_run(journals, loaded, factory)
    journal: Journal = process.journal
    past = PastJournal(process.record, journal.run, journal.header, journal.chain)
    past.earlier = journal.earlier
    process.journal = past
    return process


def fork(
    claims: Claims,
    run: str,
    step: int | None,
    name: str | None,
    factory: ProcessFactory | None,
    *,
    by: str,
    edit: str,
) -> str:
    """Make a run that continues from an entry of another run, and return its name; see `Runs.fork`."""
    journals = claims.journals
    loaded = journals.store.load(run, after=0)
    journals.check_key(loaded)
    until = _until(loaded, step)
    n = until.run.n
    header = header_of(loaded.header).changed(forked=(run, n), forked_by=by, edit=_UNEDITED)
    if edit:
        header = header.changed(edit=msgspec.Raw(edit.encode()))
    if header.conversation:
        header = on_its_own(header, messages_before(journals, header))
    before = Chain(loaded.header, journals.key)
    common = [before.verified(line) for line in loaded.lines[:n]]
    if factory is None:
        assert name is not None
        copied, _ = _create(claims, name, loaded.run.agent, to_json(header), common)
        if copied is not None:
            claims.store.append(copied, n, (), Suspension(state="Forked"))
        return name
    past = _past(journals, until, factory)
    check_forkable(past, f"the run {run!r} cannot be forked at step {n}")
    past.journal = None  # with it, `save` would leave out the messages of earlier turns
    document = factory.save(past) if past.record.id else ""
    if name is not None:
        _store_fork(claims, name, loaded.run.agent, header, document, common, factory)
        return name
    for new in claims.new_names(factory, None):
        with suppress(RunExists):
            if _store_fork(claims, new, loaded.run.agent, header, document, common, factory):
                return new
    raise AssertionError("there is always another name")


def _store_fork(
    claims: Claims,
    name: str,
    agent: str,
    header: Header,
    document: str,
    common: Sequence[Line],
    factory: ProcessFactory,
) -> bool:
    line = to_json(header)
    process = factory.process_of(header, with_id(document, name) if document else None)
    process.journal = Journal(process.record, name, line)
    if edit := bytes(header.edit):
        now_s = claims.clock_of(factory).now()
        process.advance("", process.decode("", edit).changed(at_s=now_s))
    lease, chain = _create(claims, name, agent, line, common, process.journal.entries)
    if lease is None:
        return False
    process.journal = None
    saved = Saved(chain.start, chain.digest, factory.save(process))
    snapshot = packed_snapshot(saved, claims.journals.key) if lease.n else None
    claims.store.append(lease, lease.n, (), suspension_of(process, is_stopped=False), snapshot=snapshot)
    return True


def _create(
    claims: Claims, name: str, agent: str, header: str, common: Sequence[Line], added: Sequence[Entry] = ()
) -> tuple[Lease | None, Chain]:
    """Create and claim a fork with its entries in one commit.

    Returns:
        The lease, or None if the fork already exists, and the digests of its entries.
    """
    chain = Chain(header, claims.journals.key)
    lines = chain.written([*[_renamed(entry, name) for entry in common], *added], FIRST_FENCE)
    return claims.create_claimed(name, header, agent, lines=lines), chain


def _renamed(line: Line, name: str) -> Entry:
    """Return an entry for the copy of a run, after replacing the run's name, which the first entry holds."""
    entry = entry_of(line)
    if line.key == Begin.prefix:
        return entry.changed(outcome=to_json(from_json(entry.outcome, Begun).changed(id=name)))
    return entry


def _until(loaded: Loaded, step: int | str | None) -> Loaded:
    n = loaded.run.n
    if len(loaded.lines) != n:
        raise JournalError(f"the journal: expected {n} entries, as the store counts, got {len(loaded.lines)}")
    step = n if step is None else step
    if not is_whole(step, 0) or step > n:
        raise UsageError(f"step of the run {loaded.run.id!r}: expected 0 (before the first entry) to {n}, got {step!r}")
    is_rested = loaded.snapshot is not None and loaded.snapshot[0] <= step
    begins = loaded.snapshot[0] if loaded.snapshot is not None and is_rested else 0
    return loaded.changed(
        snapshot=loaded.snapshot if is_rested else None,
        lines=loaded.lines[begins:step],
        run=loaded.run.changed(n=step),
    )

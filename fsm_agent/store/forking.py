"""Read runs as they were, and fork them.

A fork is a run of its own: it has the entries of another run up to one of them, under its own name, and continues from
there.  Its header says of which run, and an outcome that a person has put behind the common entries, its *edit*.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from fsm_agent._internal.field_checks import is_whole
from fsm_agent._internal.values import defaults_of, to_json
from fsm_agent.call.journal import Chain, Header, Journal, Line, PastJournal, header_of
from fsm_agent.call.seeding import on_its_own
from fsm_agent.call.snapshots import check_forkable, with_id
from fsm_agent.errors import JournalError, ReplayError, UsageError
from fsm_agent.store.claiming import Claiming, Definition, apply_edit, renamed_entry
from fsm_agent.store.errors import RunExists
from fsm_agent.store.recorder import packed_snapshot, rest_of
from fsm_agent.store.store import Loaded, Rest
from fsm_agent.store.turns import messages_before

_UNEDITED = defaults_of(Header)["edit"]  # which is left out of JSON by its identity


class Forking(Claiming):
    """The part of `Runs` that reads runs as they were, and forks them."""

    def at(self, run: str, step: int | str | None, definition: Definition) -> Any:
        """Return the process of a run as it was after an entry, to be read: it takes no step.

        The run is not claimed, so another holder may drive it meanwhile.

        Args:
            run: The name of the run.
            step: The number of the entry, 0: before the first; or the name of the step that the entry led to, if the
                process has names for them.  None: as the store has it now; a store in memory is written to when the
                run rests.
            definition: How its process is made.

        Raises:
            RunUnknown: The run does not exist.
            UsageError: The run has no such entry.
            JournalError: As `resume` does.
            ReplayError: The code has changed, and takes other steps than the journal up to this entry.
        """
        loaded = self.store.load(run, after=None if step is None else 0)
        if step is None:
            return self._past(loaded, definition)
        if isinstance(step, str) and definition.entry_of is not None:
            step = definition.entry_of(self._past(_until(loaded, None), definition), loaded.lines, step)
        until = _until(loaded, step)
        try:
            return self._past(until, definition)
        except (JournalError, ReplayError) as error:
            if loaded.snapshot is None or until.snapshot is not None:
                raise
            rested = f"read or fork the run from step {loaded.snapshot[0]} on, where it rested"
            raise type(error)(f"{error}; {rested}") from error

    def _past(self, loaded: Loaded, definition: Definition) -> Any:
        process = self.fold_run(loaded, definition)
        journal: Journal = process.journal
        past = PastJournal(process, journal.run, journal.header, journal.chain)
        past.earlier = journal.earlier
        process.journal = past
        return process

    def fork(
        self,
        run: str,
        step: int | None,
        name: str | None,
        definition: Definition | None = None,
        *,
        by: str = "",
        edit: str = "",
    ) -> str:
        """Make a run that continues from an entry of another; return its name.

        With a definition, the fork rests as its run did there: it is due when a question of it is answered, when a time
        of it has come, or when it is resumed.  Without one, the entries are copied as they are, and the fork is not due
        before it is resumed.

        To make the same fork again changes nothing.

        Args:
            run: The name of the run.
            step: The number of the last entry that both have in common; None: the last there is.
            name: The name of the fork; None: a new one.
            definition: How its process is made; None: without the code of its agent.
            by: Who forks it, for people.
            edit: The outcome behind the common entries, as JSON without a time; empty: none.  It needs a definition.

        Raises:
            RunUnknown: The run does not exist.
            RunExists: Another run has the name of the fork.
            UsageError: The run has no such entry, or is in the midst of a function that must not run twice.
            JournalError: Its journal is damaged.
            ReplayError: The code has changed, and takes other steps than the journal up to this entry.
        """
        loaded = self.store.load(run, after=0)
        self._check_key(loaded)
        until = _until(loaded, step)
        n = until.run.n
        header = header_of(loaded.header).changed(forked=(run, n), forked_by=by, edit=_UNEDITED)
        if edit:
            header = header.changed(edit=msgspec.Raw(edit.encode()))
        if header.conversation:
            header = on_its_own(header, messages_before(self, header))
        if definition is None:
            assert name is not None
            return self._copy(loaded, header, name)
        past = self._past(until, definition)
        check_forkable(past, f"the run {run!r} cannot be forked at step {n}")
        before = Chain(loaded.header, self._key)
        common = [before.verified(line) for line in loaded.lines[:n]]
        past.journal = None  # by which messages of earlier turns would be left out
        document = definition.save(past) if past.record.id else ""
        if name is not None:
            self._store_fork(name, loaded.run.agent, header, document, common, definition)
            return name
        for new in self._new_names(definition, None):
            with suppress(RunExists):
                if self._store_fork(new, loaded.run.agent, header, document, common, definition):
                    return new
        raise AssertionError("there is always another name")

    def _store_fork(
        self, name: str, agent: str, header: Header, document: str, common: Sequence[Line], definition: Definition
    ) -> bool:
        """Store a fork at rest; return False if it was made before."""
        line = to_json(header)
        process = definition.make(header, with_id(document, name) if document else None)
        process.journal = Journal(process, name, line)
        apply_edit(process, header, self.clock_of(definition))
        lease = self._create_claimed(name, line, agent)
        if lease is None:
            return False
        chain = Chain(line, self._key)
        lines = chain.written(
            [*[renamed_entry(entry, name) for entry in common], *process.journal.entries], lease.fence
        )
        process.journal = None
        snapshot = packed_snapshot(line, chain.digest, definition.save(process), self._key) if lines else None
        self.store.append(lease, 0, lines, rest_of(process, is_stopped=False), snapshot=snapshot)
        return True

    def _copy(self, loaded: Loaded, header: Header, name: str) -> str:
        """Copy the entries of a run as they are; return the name of the copy."""
        lease = self._create_claimed(name, to_json(header), loaded.run.agent)
        if lease is not None:
            lease = self._copy_entries(lease, self.store.load(name, after=None))
            self.store.append(lease, lease.n, (), Rest(state="Forked"))
        return name


def _until(loaded: Loaded, step: int | str | None) -> Loaded:
    """Return a run as it was loaded, without what came after an entry.

    Raises:
        UsageError: It has no such entry.
        JournalError: The store has lost entries.
    """
    n = loaded.run.n
    if len(loaded.lines) != n:
        raise JournalError(f"the journal: expected {n} entries, as the store counts, got {len(loaded.lines)}")
    step = n if step is None else step
    if not isinstance(step, int) or not is_whole(step, 0) or step > n:
        raise UsageError(f"step of the run {loaded.run.id!r}: expected 0 (before the first entry) to {n}, got {step!r}")
    is_rested = loaded.snapshot is not None and loaded.snapshot[0] <= step
    begins = loaded.snapshot[0] if loaded.snapshot is not None and is_rested else 0
    return loaded.changed(
        snapshot=loaded.snapshot if is_rested else None,
        lines=loaded.lines[begins:step],
        run=loaded.run.changed(n=step),
    )

"""Claims runs.

Only the holder of a run's lease drives it.  `Claims.begin` claims a new run, `Claims.resume` a run by name, and
`Claims.claim_due` the next due run for a worker.  `fsm_agent.store.resuming` makes the processes of claimed runs.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import copy_context
from functools import cache, partial
from itertools import count
from typing import Generic, TypeVar

from fsm_agent._internal.system import at_fork
from fsm_agent.call.journal import Chain, Journal, PastJournal, header_of, with_traceparent
from fsm_agent.call.process import Process
from fsm_agent.errors import UsageError
from fsm_agent.runtime import probes
from fsm_agent.runtime.environment import random_id
from fsm_agent.store import checks
from fsm_agent.store.errors import RunExists, StoreError
from fsm_agent.store.journals import title_of
from fsm_agent.store.resuming import Claimed, ProcessFactory, Resumer, replay_run
from fsm_agent.store.store import FIRST_FENCE, Head, Lease, Start
from fsm_agent.store.turns import head_before

BEHIND_S = 1.0  # a clock that lags the store's by less than this counts as right
_holders = count(1)

Taken = TypeVar("Taken", bound=Claimed | None)


class Claims(Resumer):
    """Claims runs, and makes their processes.

    See `Runs` for the arguments.
    """

    _is_behind = False  # whether this machine's clock is, as the last claim has shown

    def begin(self, process: Process, factory: ProcessFactory) -> Claimed:
        """Claim the run that the journal of a process names, and create it if it is new.

        If the run exists with the same header, it is resumed.  A run with a random name is created after the first
        step, in one commit with its first entries.

        Raises:
            RunExists: If another run has this name.
            RunBusy: If another holder drives the run.
            UsageError: If the process is for reading only (`Runs.at`), or uses a test's clock with a store that
                outlives this OS process.
        """
        journal = process.journal
        assert journal is not None
        if isinstance(journal, PastJournal):
            raise UsageError(journal.refusal)
        self.clock_of(factory)
        if journal.chain is not None:
            return self._reclaim(process, journal.chain, factory)
        journal.is_lasting = not self.store.is_volatile
        if probes.installed is not None:
            journal.header = with_traceparent(journal.header, probes.traceparent_of(process, factory.agent))
        create = None
        lease: Lease | None
        if self._is_created_later(journal, factory):
            head = _head_before(journal)
            journal.run = next(new_names(factory, head))
            create = partial(self._create_with, journal, factory.agent, head)
            now_s = self.clock_of(factory).now()
            lease = Lease(
                journal.run, factory.agent, "", FIRST_FENCE, now_s, now_s, 0, 1
            )  # until the store gives another
        elif journal.run:
            lease = self._create_named(journal, factory)
        else:
            lease = self._create_unnamed(journal, factory)
        if lease is None:
            return self.resume(journal.run, factory)
        journal.chain = Chain(journal.header, self.journals.key)
        return process, self._make_recorder(lease, process, factory, create=create)

    def is_instant(self, process: Process, factory: ProcessFactory) -> bool:
        """Return whether `begin` never waits for a disk or a server."""
        journal = process.journal
        assert journal is not None
        return self.store.is_volatile or self._is_created_later(journal, factory)

    def _is_created_later(self, journal: Journal, factory: ProcessFactory) -> bool:
        """Return whether the first write creates the run: it is new, and its random name cannot be taken."""
        return not journal.run and journal.chain is None and factory.new_id is random_id

    def _create_with(self, journal: Journal, agent: str, head: Head | None, lines: Sequence[str]) -> Lease:
        lease = self.create_claimed(journal.run, journal.header, agent, head, lines)
        assert lease is not None  # its name is random
        return lease

    def submit(self, process: Process, factory: ProcessFactory, start: Start) -> str:
        """Create the run of a process for a worker to drive, and return its name.

        If the run exists with the same header, nothing changes.
        """
        journal = process.journal
        assert journal is not None
        self.clock_of(factory)
        if probes.installed is not None:
            journal.header = with_traceparent(journal.header, probes.traceparent_here())
        head = _head_before(journal)
        name, is_named = journal.run, bool(journal.run)
        for run in [name] if is_named else new_names(factory, head):
            try:
                is_new = self.store.create(
                    *(run, journal.header),
                    agent=factory.agent,
                    title=title_of(journal.header),
                    follows=head,
                    start=start,
                )
            except RunExists:
                if not is_named:
                    continue
                self._check_same(run, journal.header, factory)
                return run
            if is_new or is_named:
                return run
        raise AssertionError("there is always another name")

    def create_claimed(
        self, run: str, header: str, agent: str, follows: Head | None = None, lines: Sequence[str] = ()
    ) -> Lease | None:
        """Create a run and claim it in one commit, before a worker can.  Return None if it already exists."""
        lease = self.store.create(
            *(run, header),
            agent=agent,
            title=title_of(header),
            follows=follows,
            holder=holder_name(),
            for_s=self.lease_s,
            lines=lines,
        )
        assert lease is not True
        return lease or None

    def _create_named(self, journal: Journal, factory: ProcessFactory) -> Lease | None:
        try:
            return self.create_claimed(journal.run, journal.header, factory.agent, _head_before(journal))
        except RunExists:
            self._check_same(journal.run, journal.header, factory)
            return None

    def _check_same(self, run: str, header: str, factory: ProcessFactory) -> None:
        """Refuse a run that was begun with other arguments.  A change of code alone is no difference."""
        there = header_of(self.store.load(run, after=None).header)
        if differs := factory.differences(there, header_of(header)):
            raise checks.other_arguments(run, differs) from None

    def _create_unnamed(self, journal: Journal, factory: ProcessFactory) -> Lease:
        head = _head_before(journal)
        for journal.run in new_names(factory, head):
            with suppress(RunExists):
                lease = self.create_claimed(journal.run, journal.header, factory.agent, head)
                if lease is not None:
                    return lease
        raise AssertionError("there is always another name")

    def _reclaim(self, process: Process, chain: Chain, factory: ProcessFactory) -> Claimed:
        """Claim the run of a process that was driven before.  Refuse a process that is behind its run."""
        journal = process.journal
        assert journal is not None
        lease = self.claim(journal.run)
        loaded = self.store.load(journal.run, after=max(0, lease.n - 1))
        if lease.n != chain.n or not all(map(chain.ends_with, loaded.lines)):
            self.give_back(lease, loaded)
            there = f"the run {journal.run!r} has {lease.n} entries now, and this process has {chain.n}"
            if lease.n == chain.n:
                there = f"the run {journal.run!r} has another entry {lease.n} than this process, which had lost the run"
            raise StoreError(f"{there}; call runs.resume({journal.run!r}) to continue it")
        return process, self._make_recorder(lease, process, factory, loaded.signals, waits=loaded.run.waits)

    def resume(self, run: str, factory: ProcessFactory) -> Claimed:
        """Claim a run and make its process, starting from its last snapshot."""
        loaded = self.store.load(run, after=None)
        if loaded.run.is_ended:
            return replay_run(self.journals, loaded, factory), None
        self.clock_of(factory)
        return self.load_claimed(self.claim(run), factory)

    def claim(self, run: str) -> Lease:
        """Claim a run by name."""
        lease = self.store.claim(holder_name(), for_s=self.lease_s, run=run)
        assert lease is not None
        return lease

    def claim_due(self, agents: list[str], fingerprints: Sequence[str] | None = None) -> Lease | None:
        """Claim the next due run of these agents, or return None if no run is due.

        If this machine's clock is behind the store's, a run that waits for a time is left to others until this clock
        reaches that time.
        """
        now_s = time.time() if self._is_behind else None
        lease = self.store.claim(
            holder_name(), for_s=self.lease_s, agents=agents, now_s=now_s, fingerprints=fingerprints
        )
        if lease is not None:
            self._is_behind = lease.since_s > time.time() + BEHIND_S
        return lease


def new_names(factory: ProcessFactory, head: Head | None) -> Iterator[str]:
    """Yield a new name for a run, then variants of this name with numbers."""
    name = factory.new_id()
    if head is not None:
        name = f"{head.conversation}:{head.version + 1}-{name}"
    yield name
    for number in count(2):
        yield f"{name}-{number}"


def _head_before(journal: Journal) -> Head | None:
    """Return the head of the conversation before a run, or None if the run is not a turn of a conversation."""
    return None if journal.earlier is None else head_before(header_of(journal.header))


def holder_name() -> str:
    """Return a new name for a holder: the host, the OS process and a number."""
    return f"{_process_name()}:{next(_holders)}"


@cache
def _process_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


at_fork(after_in_child=_process_name.cache_clear)


async def aclaim(claim: Callable[[], Taken], threads: Executor | None = None) -> Taken:
    """Claim a run in another thread, which gives it back if this task is cancelled meanwhile.

    Args:
        claim: Claims the run, if there is one.
        threads: The executor to use, or None for the event loop's default.
    """
    pending = _PendingClaim(claim)
    run = partial(copy_context().run, pending.make)
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, run)
    except asyncio.CancelledError:
        if (claimed := pending.abandon()) is not None:
            await asyncio.to_thread(give_back, claimed)
        raise


class _PendingClaim(Generic[Taken]):
    """A claim in another thread.  Its run is given back if the waiting task was cancelled."""

    def __init__(self, claim: Callable[[], Taken]) -> None:
        self._claim = claim
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._claimed: Taken | None = None

    def make(self) -> Taken:
        claimed = self._claim()
        with self._lock:
            self._claimed = claimed
            is_abandoned = self._is_abandoned
        if is_abandoned and claimed is not None:
            give_back(claimed)
        return claimed

    def abandon(self) -> Claimed | None:
        with self._lock:
            self._is_abandoned = True
            return self._claimed


def give_back(claimed: Claimed) -> None:
    """Give back a run that was claimed but not driven."""
    _, recorder = claimed
    if recorder is not None:
        recorder.finish(is_stopped=True)
        while recorder.is_behind:
            recorder.write()

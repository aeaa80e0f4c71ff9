"""Claims runs, makes their processes, and releases runs that cannot be driven.

Only the holder of a run's lease drives it.  `Claims.begin` claims a new run, `Claims.resume` a run by name, and
`Claims.claim_due` the next due run for a worker.  If a run with the same name exists, `Claims.begin` continues it
if its task is the same, and otherwise refuses.  `fsm_agent.store.sql.statements` decides whether a run is free, and
which due run comes first.

`replay_run` makes a run's process from its journal.  `Claims.load_claimed` refuses a run that the current code cannot
continue, and releases it with a question.  An agent's `ProcessFactory` makes a process from a header.
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
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from fsm_agent._internal.masking import mask_keys
from fsm_agent._internal.structs import from_json, to_json
from fsm_agent._internal.system import at_fork
from fsm_agent.call.header import earlier_messages, request_differences
from fsm_agent.call.journal import Chain, Header, Journal, KeyMissing, PastJournal, header_of, with_traceparent
from fsm_agent.call.outcomes import Cancelled, Outcome
from fsm_agent.call.process import Process
from fsm_agent.call.replaying import replay
from fsm_agent.call.snapshots import loses, lost_approval, missing_function
from fsm_agent.errors import JournalError, ReplayError, SnapshotError, UsageError
from fsm_agent.messages.events import Question
from fsm_agent.messages.message import Message
from fsm_agent.runtime import probes
from fsm_agent.runtime.environment import Clock, SystemClock, lasting, random_id
from fsm_agent.store import checks
from fsm_agent.store.errors import RunExists, StoreError
from fsm_agent.store.journals import Journals, title_of
from fsm_agent.store.listing import STUCK
from fsm_agent.store.recorder import Posted, StoreRecorder, is_end_request
from fsm_agent.store.rescheduling import MAX_TRIES, STUCK_STATE, Stuck, after_attempt, as_stuck
from fsm_agent.store.store import FIRST_FENCE, Head, Lease, Loaded, Signal, Start, Suspension
from fsm_agent.store.turns import head_before, messages_before

BEHIND_S = 1.0  # a clock that lags the store's by less than this counts as correct
_WITHOUT_ARTICLE = ("data", "extra", "limits")  # arguments that two runs have "other" of, not "another"
_holders = count(1)

OnChange: TypeAlias = Literal["report", "rest", "stop"]


class ProcessFactory(NamedTuple):
    """How an agent makes and saves its processes."""

    agent: str  # the name of the agent
    # Takes a header, the document from `save` or None, and the messages of earlier turns if there are any.
    make: Callable[..., Any]
    save: Callable[[Any], str]
    new_id: Callable[[], str]  # returns a name for a run that has none
    # Returns the arguments that differ between two headers, as words for an error.  A change of code is ignored.
    differences: Callable[[Header, Header], Sequence[str]] = request_differences
    clock: Clock = SystemClock()  # the drivers' clock, if the store does not outlive them; see `Claims.clock_of`
    check: Callable[[Header], None] | None = None  # raises if a run must not be claimed
    check_answered: Callable[[Header], None] | None = None  # raises if a run must be neither answered nor claimed
    # Takes a process, all entries of its journal and the name of a step.  Returns the number of the entry that led to
    # the step.  None if steps have no names.
    entry_of: Callable[[Any, Sequence[str], str], int] | None = None

    def process_of(self, header: Header, document: str | None, *turns: Sequence[Message]) -> Any:
        """Return a run's process, made from its snapshot if there is one, else from its header."""
        try:
            return self.make(header, document, *turns)
        except SnapshotError as error:
            raise JournalError(f"the snapshot of the run cannot be used: {error}") from error


Claimed: TypeAlias = tuple[Any, StoreRecorder | None]  # a process and its recorder; None if the run has ended
Taken = TypeVar("Taken", bound=Claimed | None)


class Claims:
    """Claims runs, makes their processes, and releases runs that cannot be driven.

    See `Runs` for the arguments.
    """

    _is_behind = False  # whether this machine's clock lagged the store's at the last claim

    def __init__(
        self,
        journals: Journals,
        *,
        redact: Callable[[Outcome], Outcome] | None,
        lease_s: float,
        patience_s: float | None,
    ) -> None:
        self.journals = journals
        self.store = journals.store
        self._keeps_real_time = checks.keeps_real_time(self.store)
        self.redact = redact
        self.lease_s = lease_s
        self.patience_s = patience_s

    def begin(self, process: Process, factory: ProcessFactory) -> Claimed:
        """Claim the run that the journal of a process names, and create it if it is new.

        If the run exists with the same header, it is resumed.  A run with a random name is created only after its first
        step, in the commit that writes its first entries.

        Raises:
            RunExists: If another run has this name.
            RunBusy: If another holder is driving the run.
            UsageError: If the process is for reading only (`Runs.at`), or uses a test's clock with a store that
                outlives this OS process.
        """
        journal = process.journal
        assert journal is not None
        if isinstance(journal, PastJournal):
            raise UsageError(journal.refusal)
        clock = self.clock_of(factory)
        if journal.chain is not None:
            return self._reclaim(process, journal.chain, factory)
        journal.is_lasting = not self.store.is_volatile
        if probes.installed is not None:
            journal.header = with_traceparent(journal.header, probes.traceparent_of(process, factory.agent))
        create = None
        if self._is_created_later(journal, factory):
            head = _head_before(journal)
            journal.run = next(self.new_names(factory, head))
            create = partial(self.create_claimed, journal.run, journal.header, factory.agent, head)
            now_s = clock.now()
            # until the store gives another
            lease = Lease(journal.run, factory.agent, "", FIRST_FENCE, now_s, now_s, 0, 1)
        elif not isinstance(made := self._create(journal, factory, holder=holder_name(), for_s=self.lease_s), Lease):
            return self.resume(journal.run, factory)
        else:
            lease = made
        journal.chain = Chain(journal.header, self.journals.key)
        return process, self._make_recorder(lease, process, factory, create=create)

    def is_instant(self, process: Process, factory: ProcessFactory) -> bool:
        """Return whether `begin` never waits for a disk or a server."""
        journal = process.journal
        assert journal is not None
        return self.store.is_volatile or self._is_created_later(journal, factory)

    def _is_created_later(self, journal: Journal, factory: ProcessFactory) -> bool:
        """Return whether the first write creates the run, because it is new and its random name cannot be taken."""
        return not journal.run and journal.chain is None and self._new_id_of(factory) is random_id

    def submit(self, process: Process, factory: ProcessFactory, start: Start) -> str:
        """Create the run of a process for a worker to drive, and return the run's name.

        If the run exists with the same header, nothing changes.
        """
        journal = process.journal
        assert journal is not None
        self.clock_of(factory)
        if probes.installed is not None:
            journal.header = with_traceparent(journal.header, probes.traceparent_here())
        self._create(journal, factory, start=start)
        return journal.run

    def _create(self, journal: Journal, factory: ProcessFactory, **options: Any) -> Lease | bool:
        """Create a journal's run under its name or a new one.  Return False if it already exists with this header."""
        head, is_named = _head_before(journal), bool(journal.run)
        how = {"agent": factory.agent, "title": title_of(journal.header), "follows": head, **options}
        for name in [journal.run] if is_named else self.new_names(factory, head):
            journal.run = name
            try:
                made = self.store.create(name, journal.header, **how)
            except RunExists:
                if is_named:
                    self._check_same(name, journal.header, factory)
                    return False
            else:
                if made or is_named:
                    return made
        raise AssertionError("there is always another name")

    def create_claimed(
        self, run: str, header: str, agent: str, follows: Head | None = None, lines: Sequence[str] = ()
    ) -> Lease | None:
        """Create a run and claim it in the same commit, before a worker can.  Return None if the run already exists."""
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

    def _check_same(self, run: str, header: str, factory: ProcessFactory) -> None:
        """Refuse a run that was begun with other arguments.  A change in the code alone does not matter."""
        there = header_of(self.store.load(run, after=None).header)
        if there.agent != factory.agent:
            raise RunExists(
                f"the run {run!r} already exists and belongs to another agent or flow, {there.agent!r}; choose another"
                f" run_id, or call runs.resume({run!r}) of {there.agent!r} to continue that run"
            ) from None
        if differs := factory.differences(there, header_of(header)):
            others = " and ".join([f"{'other' if name in _WITHOUT_ARTICLE else 'another'} {name}" for name in differs])
            raise RunExists(
                f"the run {run!r} already exists and began with {others}; choose another run_id, or call"
                f" runs.resume({run!r}) to continue that run"
            ) from None

    def _reclaim(self, process: Process, chain: Chain, factory: ProcessFactory) -> Claimed:
        """Claim the run of a process that was driven before, and refuse a process that is behind its stored run."""
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

        If this machine's clock is behind the store's, a run that waits until a set time is left to others until this
        clock reaches that time.
        """
        now_s = time.time() if self._is_behind else None
        lease = self.store.claim(
            holder_name(), for_s=self.lease_s, agents=agents, now_s=now_s, fingerprints=fingerprints
        )
        if lease is not None:
            self._is_behind = lease.since_s > time.time() + BEHIND_S
        return lease

    def load_claimed(self, lease: Lease, factory: ProcessFactory, on_change: OnChange | None = None) -> Claimed:
        """Make the process and the recorder of a claimed run.

        If that fails, the run is released with a question, and is not due until it is answered.

        Args:
            lease: The lease.
            factory: The factory that makes the process.
            on_change: What a worker does if the code has changed since the run was last released: "report" continues,
                while "rest" and "stop" raise `ReplayError`.  "stop" releases the run unchanged, without a question.
                None means that a person resumes the run.
        """
        loaded = self.store.load(lease.run, after=None)
        answers = [signal for signal in loaded.signals if signal.key == STUCK]
        # The order of these checks matters.  A run that has ended asks no questions, so that check comes first.
        # The last three find why a process that could be made is not driven, and the question gives only one reason.
        # Dead drivers come before code that lacks something: a driver that noticed the latter would have asked instead
        # of dying.  A lost approval comes before the change that explains it.
        try:
            if loaded.run.is_ended:
                self.give_back(lease, loaded)
                return replay_run(self.journals, loaded, factory), None
            process = replay_run(self.journals, loaded, factory)
            if lease.tries > MAX_TRIES and not answers and not is_told_to_end(loaded):
                raise ReplayError(
                    f"{lease.tries} drivers in a row have claimed it without adding an entry; their logs may say why"
                )
            problem = _find_lost_approval(process, loaded.signals)
            if problem is None and on_change is not None and not answers:
                problem = missing_function(process) or self._find_change(process, loaded, on_change)
            if problem is not None:
                raise ReplayError(problem)
        except BaseException as error:
            if on_change == "stop" and is_of_code(error):
                self.give_back(lease, loaded, counts=False)
            else:
                self._fail(lease, loaded, error, answers, factory, is_worker=on_change is not None)
            raise
        others = [signal for signal in loaded.signals if signal.key != STUCK]
        cancellations = [found for signal in answers if (found := _read_cancellation(signal)) is not None]
        changed_to = process.fingerprint if process.fingerprint != header_of(loaded.header).fingerprint else ""
        if lease.tries > 1:  # the last driver may have failed on a kept outcome, which would fail again before the end
            others.sort(key=lambda signal: not is_end_request(signal))
        signals = [*cancellations, *others]
        recorder = self._make_recorder(lease, process, factory, signals, changed_to, loaded.run.waits)
        recorder.mark_used({signal.id for signal in answers}.difference([signal.id for signal in cancellations]))
        return process, recorder

    def _fail(
        self,
        lease: Lease,
        loaded: Loaded,
        error: BaseException,
        answers: list[Signal],
        factory: ProcessFactory,
        is_worker: bool,
    ) -> None:
        """Release a run that could not be loaded: to be tried again, stuck with a question, or ended by an answer."""
        is_cancelled = any(map(_read_cancellation, answers))
        if not is_cancelled and not is_of_code(error) and lease.tries <= MAX_TRIES:
            # The fault may lie with this caller alone: a missing key, a Ctrl-C, a bug in its `make`.  Another driver
            # may succeed, so the run is not stuck yet.
            if is_worker and isinstance(error, Exception):
                self.put_off(lease, error, self.fingerprint(loaded.header, factory))
            else:
                self.give_back(lease, loaded)
            return
        # Other signals than the answers stay in the store, and do not make the run due.
        if took := [signal.id for signal in answers]:
            # in a separate append, since a question with an unread answer cannot be asked again
            self.store.append(lease, lease.n, (), None, took=took)
        rest = Suspension(state=STUCK_STATE, is_ended=True, is_failed=True)
        if not is_cancelled:
            rest = as_stuck(Stuck(mask_keys(str(error)), self.fingerprint(loaded.header, factory)), loaded.run.waits)
        self.store.append(lease, lease.n, (), rest)

    def _find_change(self, process: Process, loaded: Loaded, on_change: OnChange) -> str | None:
        """Describe how the code has changed since the run was last released, or return None if no change is known."""
        if on_change == "report":
            return None
        saved = self.journals.read_snapshot(loaded)
        before = (saved and saved.fingerprint) or header_of(loaded.header).fingerprint
        if before in ("", process.fingerprint):
            return None
        return (
            f"the code has changed: its fingerprint was {before!r} when the run last rested, and is"
            f" {process.fingerprint!r} now; answer RunAgain() to continue with the code as it is now"
        )

    def give_back(self, lease: Lease, loaded: Loaded, *, counts: bool = True) -> None:
        """Release a run unchanged.  Unless it has ended, it is due at once.

        Args:
            lease: The lease.
            loaded: The run.
            counts: Whether the claim counts as a try.  After too many tries, a run is stuck.
        """
        run = loaded.run
        rest = Suspension(state=run.state, due_s=0.0, questions=run.waits, is_in_vain=counts)
        if run.is_ended:
            rest = Suspension(state=run.state, is_ended=True, is_failed=run.is_failed)
        self.store.append(lease, lease.n, (), rest)

    def put_off(self, lease: Lease, error: Exception, fingerprint: str | None) -> None:
        """Release a run that could not be driven, to be tried again later; see `after_attempt`."""
        loaded = self.store.load(lease.run, after=lease.n)
        run = loaded.run
        if run.is_ended:
            self.give_back(lease.changed(n=run.n), loaded)
            return
        rest = Suspension(state=run.state, questions=run.waits)
        rest = after_attempt(rest, lease, run.n, error, fingerprint, bool(loaded.signals), lease.since_s)
        self.store.append(lease.changed(n=run.n), run.n, (), rest)

    def fingerprint(self, header: str, factory: ProcessFactory) -> str:
        """Return the fingerprint of the code that would drive a run, or an empty string if the code cannot do so."""
        with suppress(Exception):
            fingerprint: str = factory.process_of(header_of(header), None).fingerprint
            return fingerprint
        return ""

    def _make_recorder(
        self,
        lease: Lease,
        process: Process,
        factory: ProcessFactory,
        signals: Sequence[Signal] = (),
        changed_to: str = "",
        waits: Sequence[Question] = (),
        create: Callable[[Sequence[str]], Lease | None] | None = None,
    ) -> StoreRecorder:
        return StoreRecorder(
            self.store,
            lease,
            process,
            save=factory.save,
            clock=self.clock_of(factory),
            signals=signals,
            lease_s=self.lease_s,
            patience_s=self.patience_s,
            redact=self.redact,
            signing_key=self.journals.key,
            fingerprint=changed_to,
            waits=waits,
            create=create,
        )

    def clock_of(self, factory: ProcessFactory) -> Clock:
        """Return the drivers' clock, or the system clock if theirs is a test clock and runs outlive the OS process.

        Raises:
            UsageError: If a test requires its own clock for this run.
        """
        return lasting(factory.clock) if self._keeps_real_time else factory.clock

    def _new_id_of(self, factory: ProcessFactory) -> Callable[[], str]:
        """Return the function that names new runs.  If runs outlive the OS process, it ignores a test's numbering."""
        return lasting(factory.new_id) if self._keeps_real_time else factory.new_id

    def new_names(self, factory: ProcessFactory, head: Head | None) -> Iterator[str]:
        """Yield a new name for a run, then variants of this name with numbers."""
        name = self._new_id_of(factory)()
        if head is not None:
            name = f"{head.conversation}:{head.version + 1}-{name}"
        yield name
        for number in count(2):
            yield f"{name}-{number}"


def _head_before(journal: Journal) -> Head | None:
    """Return the conversation's head before a run, or None if the run is not a turn of a conversation."""
    return None if journal.earlier is None else head_before(header_of(journal.header))


def holder_name() -> str:
    """Return a new name for a holder, made of the host, the OS process and a number."""
    return f"{_process_name()}:{next(_holders)}"


@cache
def _process_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


at_fork(after_in_child=_process_name.cache_clear)


async def aclaim(claim: Callable[[], Taken], threads: Executor | None = None) -> Taken:
    """Claim a run in another thread.  If this task is cancelled meanwhile, that thread releases the run.

    Args:
        claim: A function that claims the run, if there is one.
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
    """A claim that is made in another thread.  The run is released if the waiting task was cancelled."""

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
    """Release a run that was claimed but not driven."""
    _, recorder = claimed
    if recorder is not None:
        recorder.finish(is_stopped=True)
        while recorder.is_behind:
            recorder.write()


def replay_run(journals: Journals, loaded: Loaded, factory: ProcessFactory) -> Any:
    """Return the process of a run, with a journal that can be continued."""
    journals.check_key(loaded)
    header = header_of(loaded.header)
    if header.agent != factory.agent:
        raise checks.not_own(loaded.run.id, factory.agent, header.agent)
    saved = journals.read_snapshot(loaded)
    document = None if saved is None else saved.document
    earlier = messages_before(journals, header) if header.follows else ()
    turns = (earlier,) if earlier else ()
    process = factory.process_of(header, document, *turns)
    chain, before = journals.chain_before(loaded, saved), None
    if saved is not None and saved.before is not None and loaded.lines:  # it failed and was retried
        before = saved.before.step, factory.process_of(header, saved.before.document, *turns).record
    replay(process, loaded.lines, chain, header.fingerprint, before)
    if chain.n != loaded.run.n:
        raise JournalError(f"the journal: expected {loaded.run.n} entries, as the store counts, got {chain.n}")
    if (name := getattr(process.record, "id", "")) not in ("", loaded.run.id):
        raise JournalError(f"the journal: expected that of the run {loaded.run.id!r}, got that of {name!r}")
    process.journal = Journal(process.record, loaded.run.id, loaded.header, chain)
    if header.conversation:
        process.journal.earlier = earlier_messages(header, len(earlier))
    return process


def is_of_code(error: BaseException) -> bool:
    """Return whether an error means that the current code cannot drive a run."""
    return isinstance(error, JournalError | ReplayError) and not isinstance(error, KeyMissing)


def is_told_to_end(loaded: Loaded) -> bool:
    """Return whether a run's unread signals cancel or stop it, so that its next driver only ends it."""
    return any(
        is_end_request(signal) or (signal.key == STUCK and _read_cancellation(signal) is not None)
        for signal in loaded.signals
    )


def _read_cancellation(answer: Signal) -> Signal | None:
    """Return a cancellation of a stuck run if the answer about it asks for one, otherwise None."""
    with suppress(ValueError):
        posted = from_json(answer.body, Posted)
        if isinstance(from_json(bytes(posted.outcome), Outcome), Cancelled):
            return answer.changed(key="", body=to_json(posted.changed(key="")))
    return None


def _find_lost_approval(process: Process, signals: Sequence[Signal]) -> str | None:
    """Describe an approval, posted or in the journal, that this code cannot act on, or return None if there is none."""
    found = lost_approval(process)
    for signal in signals:
        with suppress(ValueError):  # the signal cannot be read; the driver refuses it later
            posted = from_json(signal.body, Posted)
            found = found or loses(process, posted.key, process.decode(posted.key, bytes(posted.outcome)))
    return found

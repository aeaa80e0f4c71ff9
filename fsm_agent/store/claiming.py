"""Claim runs, and make their processes.

Only the holder of a run's lease drives it.  `begin` claims a new run, `resume` one by its name, and `claim_due` the run
that a worker advances next.  A run whose process the present code cannot make is given back, with a question about it.
The `ProcessFactory` of an agent makes a process of a header.
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

from fsm_agent._internal.structs import Value, from_json, to_json
from fsm_agent._internal.system import at_fork
from fsm_agent.call.header import earlier_messages, request_differences
from fsm_agent.call.journal import (
    Chain,
    Header,
    Journal,
    KeyMissing,
    PastJournal,
    header_of,
    with_traceparent,
)
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
from fsm_agent.store.recorder import Posted, StoreRecorder
from fsm_agent.store.store import FIRST_FENCE, Head, Lease, Loaded, Run, Signal, Start, Suspension
from fsm_agent.store.turns import head_before, messages_before

MAX_TRIES = 5  # claims in a row without a new entry; after that, the run is stuck
MAX_PROBLEM_CHARS = 2000  # of the exception in the question about a stuck run
BEHIND_S = 1.0  # by which a clock may be behind that of the store without being told from one that is right
STUCK_STATE = "Stuck"  # the state of such a run
_holders = count(1)

OnChange: TypeAlias = Literal["report", "rest", "stop"]


class Stuck(Value, frozen=True):
    """The subject of the question about a stuck run."""

    problem: str
    fingerprint: str = ""  # the fingerprint of the code that could not drive it; empty: unknown


class ProcessFactory(NamedTuple):
    """How an agent makes and saves its processes."""

    agent: str  # the name of the agent
    # Takes a header, the document that `save` returned or None, and the messages of earlier turns if there are any.
    make: Callable[..., Any]
    save: Callable[[Any], str]
    new_id: Callable[[], str]  # returns a name for a run without one
    # Returns the arguments in which two headers differ, as words for an error; a change of code is no difference.
    differences: Callable[[Header, Header], Sequence[str]] = request_differences
    clock: Clock = SystemClock()  # that of the drivers, if the store is not kept; see `Claims.clock_of`
    check: Callable[[Any], None] | None = None  # raises if a process must not be claimed
    # Takes a process, all entries of its journal and the name of a step; returns the number of the entry by which the
    # process came there.  None: its steps have no names.
    entry_of: Callable[[Any, Sequence[str], str], int] | None = None

    def process_of(self, header: Header, document: str | None, *turns: Sequence[Message]) -> Any:
        """Return the process of a run: as its snapshot says, or without one, as it began.

        Raises:
            UsageError: The run is of another agent.
            JournalError: Its header or its snapshot cannot be used.
        """
        if header.agent != self.agent:
            raise UsageError(f"{self.agent!r}: expected one of its own runs, got a run of {header.agent!r}")
        try:
            return self.make(header, document, *turns)
        except SnapshotError as error:
            raise JournalError(f"the snapshot of the run cannot be used: {error}") from error


Claimed: TypeAlias = tuple[Any, StoreRecorder | None]  # a process and its recorder; None: the run has ended
Taken = TypeVar("Taken", bound=Claimed | None)


class Claims:
    """Claims runs, makes their processes, and gives back what cannot be driven.

    Args:
        journals: The journals of the runs.
        redact: See `Runs`, as the other arguments.
        lease_s: How many seconds a lease lasts.
        patience_s: How many seconds a driver idles before it gives the run back.
    """

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
        self.redact = redact
        self.lease_s = lease_s
        self.patience_s = patience_s
        self._is_behind = False  # the clock of this machine, as the last claim has shown

    def begin(self, process: Process, factory: ProcessFactory) -> Claimed:
        """Claim the run that the journal of a process names; create it if it is new.

        A run that exists with the same header is resumed.  One with a random name is created with its first entries,
        in one commit, as soon as the driver has taken the first step.

        Raises:
            RunExists: Another run has this name.
            RunBusy: Another holder drives the run.
            UsageError: The process is one of `Runs.at`, to be read; or it is timed by the clock of a test, and the
                store outlives this OS process.
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
        """Return whether `begin` waits neither for a disk nor for a server."""
        journal = process.journal
        assert journal is not None
        return self.store.is_volatile or self._is_created_later(journal, factory)

    def _is_created_later(self, journal: Journal, factory: ProcessFactory) -> bool:
        """Return whether the first write is to create the run: it has not begun, and its name cannot be taken."""
        return not journal.run and journal.chain is None and factory.new_id is random_id

    def _create_with(self, journal: Journal, agent: str, head: Head | None, lines: Sequence[str]) -> Lease:
        """Create and claim a run with its first entries."""
        lease = self.create_claimed(journal.run, journal.header, agent, head, lines)
        assert lease is not None  # its name is random
        return lease

    def submit(self, process: Process, factory: ProcessFactory, start: Start) -> str:
        """Create the run of a process, for a worker to drive; return its name.

        A run that exists with the same header stays as it is.

        Raises:
            RunExists: Another run has this name.
            RunUnknown: A run of ``start.after`` does not exist.
            Conflict: The conversation has moved on.
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
        """Create a run and claim it in one commit, before a worker can; return None if it exists already."""
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
        """Create and claim the run that a journal names; return None if it exists already."""
        try:
            return self.create_claimed(journal.run, journal.header, factory.agent, _head_before(journal))
        except RunExists:
            self._check_same(journal.run, journal.header, factory)
            return None

    def _check_same(self, run: str, header: str, factory: ProcessFactory) -> None:
        """Refuse a run that was begun with other arguments; if only the code differs, it is the same run."""
        there = header_of(self.store.load(run, after=None).header)
        if differs := factory.differences(there, header_of(header)):
            raise checks.other_arguments(run, differs) from None

    def _create_unnamed(self, journal: Journal, factory: ProcessFactory) -> Lease:
        """Create and claim a run under a new name."""
        head = _head_before(journal)
        for journal.run in new_names(factory, head):
            with suppress(RunExists):
                lease = self.create_claimed(journal.run, journal.header, factory.agent, head)
                if lease is not None:
                    return lease
        raise AssertionError("there is always another name")

    def _reclaim(self, process: Process, chain: Chain, factory: ProcessFactory) -> Claimed:
        """Claim the run of a process that was driven before; refuse a process that is behind its run."""
        journal = process.journal
        assert journal is not None
        lease = self.claim(journal.run)
        loaded = self.store.load(journal.run, after=max(0, lease.n - 1))
        if lease.n != chain.n or not all(map(chain.ends_with, loaded.lines)):
            self.give_back(lease, loaded)
            there = f"the run {journal.run!r} has {lease.n} entries now, and this process has {chain.n}"
            if lease.n == chain.n:
                there = f"the run {journal.run!r} has another entry {lease.n} than this process, which had lost it"
            raise StoreError(f"{there}; call runs.resume({journal.run!r}) to continue it")
        return process, self._make_recorder(lease, process, factory, loaded.signals, waits=loaded.run.waits)

    def resume(self, run: str, factory: ProcessFactory) -> Claimed:
        """Claim a run and make its process, from its last snapshot on.

        Raises:
            RunUnknown: The run does not exist.
            RunBusy: Another holder drives the run.
            JournalError: Its journal is damaged, foreign or forged.
            ReplayError: The code has changed, and takes other steps than the journal since the last rest.
        """
        loaded = self.store.load(run, after=None)
        if loaded.run.is_ended:
            return fold_run(self.journals, loaded, factory), None
        self.clock_of(factory)
        return self.load_claimed(self.claim(run), factory)

    def load_claimed(self, lease: Lease, factory: ProcessFactory, on_change: OnChange | None = None) -> Claimed:
        """Make the process of a run that was claimed, and its recorder.

        If that fails with one of these errors, the run is given back with a question, and is not due before it is
        answered.

        Args:
            lease: The lease.
            factory: How the process is made.
            on_change: What a worker does if the code has changed since the run last rested: "report" continues, "rest"
                is a `ReplayError`, and with "stop" a run that fails is given back as it was.  None: a person resumes
                the run.

        Raises:
            JournalError: As `resume` does.
            ReplayError: As `resume` does.
        """
        loaded = self.store.load(lease.run, after=None)
        answers = [signal for signal in loaded.signals if signal.key == STUCK]
        # The order of these checks is a protocol.  A run that has ended is never asked about, so no check may come
        # before that.  The last three find why a process that could be made is not driven, and one is told: that
        # drivers died comes before what the code lacks, since a driver that found the latter would have asked, not
        # died; and an approval that is lost comes before a change that explains it.
        try:
            if loaded.run.is_ended:
                self.give_back(lease, loaded)
                return fold_run(self.journals, loaded, factory), None
            process = fold_run(self.journals, loaded, factory)
            if lease.tries > MAX_TRIES and not answers:
                raise ReplayError(f"{lease.tries} drivers in a row have claimed it without adding an entry")
            problem = _find_lost_approval(process, loaded.signals)
            if problem is None and on_change is not None and not answers:
                problem = missing_function(process) or self._find_change(process, loaded, on_change)
            if problem is not None:
                raise ReplayError(problem)
        except BaseException as error:
            if on_change == "stop" and is_of_code(error):
                self.give_back(lease, loaded, counts=False)
            else:
                self._fail(lease, loaded, error, answers, factory)
            raise
        others = [signal for signal in loaded.signals if signal.key != STUCK]
        cancellations = [found for signal in answers if (found := _read_cancellation(signal)) is not None]
        changed_to = process.fingerprint if process.fingerprint != header_of(loaded.header).fingerprint else ""
        signals = [*cancellations, *others]
        recorder = self._make_recorder(lease, process, factory, signals, changed_to, loaded.run.waits)
        recorder.mark_used({signal.id for signal in answers}.difference([signal.id for signal in cancellations]))
        return process, recorder

    def _fail(
        self, lease: Lease, loaded: Loaded, error: BaseException, answers: list[Signal], factory: ProcessFactory
    ) -> None:
        """Give back a run whose process could not be made; ask about it if the failure is permanent."""
        is_cancelled = any(map(_read_cancellation, answers))
        if not is_cancelled and not is_of_code(error) and lease.tries <= MAX_TRIES:
            # The fault may be that of this caller alone: a missing key, a Ctrl-C, a bug in its `make`.  Another driver
            # may succeed, so the run is not stuck yet.
            self.give_back(lease, loaded)
        else:
            stuck = Stuck(str(error), self.fingerprint(loaded.header, factory))
            self._give_up(lease, loaded.run.waits, stuck, answers)

    def _find_change(self, process: Process, loaded: Loaded, on_change: OnChange) -> str | None:
        """Return, in words, that the code is not that under which the run last rested; None: it is, or may be."""
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
        """Give back a run unchanged: due at once, or ended as it was.

        Args:
            lease: The lease.
            loaded: The run.
            counts: Whether the claim counts as a try: after too many, the run is stuck.
        """
        run = loaded.run
        due_s = 0.0 if counts else max(lease.since_s, 1.0)  # a time that has passed resets the tries
        rest = Suspension(state=run.state, due_s=due_s, questions=run.waits)
        if run.is_ended:
            rest = Suspension(state=run.state, is_ended=True, is_failed=run.is_failed)
        self.store.append(lease, lease.n, (), rest)

    def give_up(self, lease: Lease, loaded: Loaded, error: Exception, factory: ProcessFactory) -> None:
        """Give back a run that driver after driver has failed at, with a question that says why.

        Args:
            lease: The lease.
            loaded: The run as it is now.
            error: What the last driver raised.
            factory: How its process is made.
        """
        problem = (
            f"{lease.tries} drivers in a row have claimed it without adding an entry; the last raised {typed(error)}"
        )
        stuck = Stuck(problem, self.fingerprint(loaded.header, factory))
        self._give_up(lease.changed(n=loaded.run.n), loaded.run.waits, stuck, [])

    def _give_up(self, lease: Lease, waits: Sequence[Question], stuck: Stuck, answers: list[Signal]) -> None:
        """Give back a run that cannot be driven, with a question about it; end the run if the answer was to cancel it.

        Other signals stay in the store for a driver that can read them, and do not make the run due.
        """
        took = [signal.id for signal in answers]
        is_ended = any(map(_read_cancellation, answers))
        question = Question(STUCK, STUCK, to_json(stuck), ("run_again", "cancelled"))
        asked = () if is_ended else (question, *[own for own in waits if own.key != STUCK])
        if took:  # in an append of its own: as long as its answer is unread, a question is not asked again
            self.store.append(lease, lease.n, (), None, took=took)
        rest = Suspension(state=STUCK_STATE, is_ended=is_ended, is_failed=is_ended, questions=asked, wakes_on=STUCK)
        self.store.append(lease, lease.n, (), rest)

    def fingerprint(self, header: str, factory: ProcessFactory) -> str:
        """Return the fingerprint of the code that would drive a run; empty: it cannot make the process."""
        with suppress(Exception):
            fingerprint: str = factory.process_of(header_of(header), None).fingerprint
            return fingerprint
        return ""

    def claim(self, run: str) -> Lease:
        """Claim a run.

        Raises:
            RunUnknown: The run does not exist.
            RunBusy: Another holder drives the run.
        """
        lease = self.store.claim(holder_name(), for_s=self.lease_s, run=run)
        assert lease is not None
        return lease

    def claim_due(self, agents: list[str], fingerprints: Sequence[str] | None = None) -> Lease | None:
        """Claim the run of these agents that is to be driven next; return None if none is due.

        If the clock of this machine is behind that of the store, a run that rests until a time is left to others before
        the time has come here.
        """
        now_s = time.time() if self._is_behind else None
        lease = self.store.claim(
            holder_name(), for_s=self.lease_s, agents=agents, now_s=now_s, fingerprints=fingerprints
        )
        if lease is not None:
            self._is_behind = lease.since_s > time.time() + BEHIND_S
        return lease

    def _make_recorder(
        self,
        lease: Lease,
        process: Process,
        factory: ProcessFactory,
        signals: Sequence[Signal] = (),
        changed_to: str = "",
        waits: Sequence[Question] = (),
        create: Callable[[Sequence[str]], Lease] | None = None,
    ) -> StoreRecorder:
        return StoreRecorder(
            self.store,
            lease,
            process,
            save=factory.save,
            signals=signals,
            lease_s=self.lease_s,
            patience_s=self.patience_s,
            redact=self.redact,
            signing_key=self.journals.key,
            fingerprint=changed_to,
            ahead_s=lease.since_s - self.clock_of(factory).now(),
            waits=waits,
            create=create,
        )

    def clock_of(self, factory: ProcessFactory) -> Clock:
        """Return the clock that times a run: the drivers', but never a test's if the run outlives the OS process.

        Raises:
            UsageError: A test has asked for its clock, and no other.
        """
        return lasting(factory.clock) if checks.keeps_real_time(self.store) else factory.clock


def new_names(factory: ProcessFactory, head: Head | None) -> Iterator[str]:
    """Yield a new name for a run, then the same with numbers."""
    name = factory.new_id()
    if head is not None:
        name = f"{head.conversation}:{head.version + 1}-{name}"
    yield name
    for number in count(2):
        yield f"{name}-{number}"


def fold_run(journals: Journals, loaded: Loaded, factory: ProcessFactory) -> Any:
    """Return the process of a run, with a journal that continues that of the run."""
    journals.check_key(loaded)
    header = header_of(loaded.header)
    saved, n = journals.read_snapshot(loaded), 0 if loaded.snapshot is None else loaded.snapshot[0]
    document = None if saved is None else saved.document
    earlier = messages_before(journals, header) if header.follows else ()
    turns = (earlier,) if earlier else ()
    process = factory.process_of(header, document, *turns)
    chain = Chain(loaded.header, journals.key, n, None if saved is None else saved.digest)
    before = None
    if saved is not None and saved.before is not None and loaded.lines:  # it has failed, and was retried
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
    """Return whether the present code cannot drive a run, for as long as it is as it is."""
    return isinstance(error, JournalError | ReplayError) and not isinstance(error, KeyMissing)


def stuck_under(run: Run) -> str | None:
    """Return the fingerprint of the code under which a run got stuck; None: it is not stuck."""
    return None if (stuck := _stuck(run)) is None else stuck.fingerprint


def stuck_problem(run: Run) -> str | None:
    """Return why a run is stuck; None: it is not."""
    return None if (stuck := _stuck(run)) is None else stuck.problem


def _stuck(run: Run) -> Stuck | None:
    for question in run.waits:
        if question.key == STUCK:
            with suppress(ValueError):
                stuck: Stuck = from_json(question.about, Stuck)
                return stuck
    return None


def _read_cancellation(answer: Signal) -> Signal | None:
    """Return the answer to the question about a stuck run as a cancellation of the run; None: it is no cancellation."""
    with suppress(ValueError):
        posted = from_json(answer.body, Posted)
        if isinstance(from_json(bytes(posted.outcome), Outcome), Cancelled):
            return answer.changed(key="", body=to_json(posted.changed(key="")))
    return None


def _find_lost_approval(process: Process, signals: Sequence[Signal]) -> str | None:
    """Return why the code cannot act on an approval that is in the journal or posted; None: it can act on all."""
    found = lost_approval(process)
    for signal in signals if found is None else ():
        with suppress(ValueError):  # the signal cannot be read; the driver refuses it later
            posted = from_json(signal.body, Posted)
            found = found or loses(process, posted.key, process.decode(posted.key, bytes(posted.outcome)))
    return found


def _head_before(journal: Journal) -> Head | None:
    """Return the head that the conversation of a run had before it; None: the run is no turn of a conversation."""
    return None if journal.earlier is None else head_before(header_of(journal.header))


def typed(error: BaseException) -> str:
    """Return an exception as a text that every store can hold, with its type."""
    text = f"{type(error).__name__}: {error}"[:MAX_PROBLEM_CHARS]
    return text.encode("ascii", "backslashreplace").decode().replace("\0", "\\x00")


def holder_name() -> str:
    """Return a new name for a holder: host, OS process, number."""
    return f"{_process_name()}:{next(_holders)}"


@cache
def _process_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


at_fork(after_in_child=_process_name.cache_clear)


async def aclaim(claim: Callable[[], Taken], threads: Executor | None = None) -> Taken:
    """Claim a run in another thread, which gives it back if this task is cancelled meanwhile.

    Args:
        claim: Claims the run, if there is one.
        threads: Whose thread does it; None: one of the event loop's.
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
    """A claim that is made in another thread, and given back if its task was cancelled.

    Args:
        claim: Claims the run, if there is one.
    """

    def __init__(self, claim: Callable[[], Taken]) -> None:
        self._claim = claim
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._claimed: Taken | None = None

    def make(self) -> Taken:
        """Claim the run; give it back if the claim was abandoned meanwhile."""
        claimed = self._claim()
        with self._lock:
            self._claimed = claimed
            is_abandoned = self._is_abandoned
        if is_abandoned and claimed is not None:
            give_back(claimed)
        return claimed

    def abandon(self) -> Claimed | None:
        """Record that the task was cancelled; return a claim that was made already, to be given back."""
        with self._lock:
            self._is_abandoned = True
            return self._claimed


def give_back(claimed: Claimed) -> None:
    """Give back a run that was claimed and not driven since."""
    _, recorder = claimed
    if recorder is not None:
        recorder.finish(is_stopped=True)
        while recorder.is_behind:
            recorder.write()

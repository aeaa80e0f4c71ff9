"""Resumes claimed runs: makes their processes from the store, and gives back the runs that cannot be driven.

`replay_run` makes the process of a run from its journal.  `Resumer.load_claimed` refuses a run that the code as it is
now cannot continue: the run is given back with a question about it.  The `ProcessFactory` of an agent makes a process
from a header.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeAlias

from fsm_agent._internal.structs import Value, from_json, to_json
from fsm_agent.call.header import earlier_messages, request_differences
from fsm_agent.call.journal import Chain, Header, Journal, KeyMissing, header_of
from fsm_agent.call.outcomes import Cancelled, Outcome
from fsm_agent.call.process import Process
from fsm_agent.call.replaying import replay
from fsm_agent.call.snapshots import loses, lost_approval, missing_function
from fsm_agent.errors import JournalError, ReplayError, SnapshotError, UsageError
from fsm_agent.messages.events import Question
from fsm_agent.messages.message import Message
from fsm_agent.runtime.environment import Clock, SystemClock, lasting
from fsm_agent.store import checks
from fsm_agent.store.journals import Journals
from fsm_agent.store.listing import STUCK
from fsm_agent.store.recorder import Posted, StoreRecorder
from fsm_agent.store.store import Lease, Loaded, Run, Signal, Suspension
from fsm_agent.store.turns import messages_before

MAX_TRIES = 5  # claims in a row without a new entry before the run is stuck
MAX_PROBLEM_CHARS = 2000  # longest exception text in the question about a stuck run
STUCK_STATE = "Stuck"  # the state of a stuck run

OnChange: TypeAlias = Literal["report", "rest", "stop"]


class Stuck(Value, frozen=True):
    """The subject of the question about a stuck run."""

    problem: str
    fingerprint: str = ""  # of the code that could not drive the run; empty: unknown


class ProcessFactory(NamedTuple):
    """How an agent makes and saves its processes."""

    agent: str  # the name of the agent
    # Takes a header, the document from `save` or None, and the messages of earlier turns if there are any.
    make: Callable[..., Any]
    save: Callable[[Any], str]
    new_id: Callable[[], str]  # returns a name for a run without one
    # Returns the arguments that differ between two headers, as words for an error.  A change of code is ignored.
    differences: Callable[[Header, Header], Sequence[str]] = request_differences
    clock: Clock = SystemClock()  # the drivers' clock, if the store does not outlive them; see `Resumer.clock_of`
    check: Callable[[Any], None] | None = None  # raises if a process must not be claimed
    # Takes a process, all entries of its journal and the name of a step.  Returns the number of the entry that led to
    # the step.  None: steps have no names.
    entry_of: Callable[[Any, Sequence[str], str], int] | None = None

    def process_of(self, header: Header, document: str | None, *turns: Sequence[Message]) -> Any:
        """Return the process of a run, from its snapshot or, without one, from its beginning."""
        if header.agent != self.agent:
            raise UsageError(f"{self.agent!r}: expected one of its own runs, got a run of {header.agent!r}")
        try:
            return self.make(header, document, *turns)
        except SnapshotError as error:
            raise JournalError(f"the snapshot of the run cannot be used: {error}") from error


Claimed: TypeAlias = tuple[Any, StoreRecorder | None]  # a process and its recorder; None: the run has ended


class Resumer:
    """Makes the processes of claimed runs, and gives back runs that cannot be driven.

    See `Runs` for the arguments.
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

    def load_claimed(self, lease: Lease, factory: ProcessFactory, on_change: OnChange | None = None) -> Claimed:
        """Make the process and the recorder of a claimed run.

        If that fails, the run is given back with a question, and is not due until it is answered.

        Args:
            lease: The lease.
            factory: How the process is made.
            on_change: What a worker does if the code has changed since the run last rested.  "report" continues.
                "rest" raises `ReplayError`.  "stop" gives back a run that fails, unchanged.  None if a person resumes
                the run.
        """
        loaded = self.store.load(lease.run, after=None)
        answers = [signal for signal in loaded.signals if signal.key == STUCK]
        # The order of these checks matters.  Nobody is asked about a run that has ended, so that check comes first.
        # The last three find why a process that could be made is not driven, and the question tells only one reason.
        # Dead drivers come before code that lacks something: a driver that noticed the latter would have asked instead
        # of dying.  A lost approval comes before the change that explains it.
        try:
            if loaded.run.is_ended:
                self.give_back(lease, loaded)
                return replay_run(self.journals, loaded, factory), None
            process = replay_run(self.journals, loaded, factory)
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
        is_cancelled = any(map(_read_cancellation, answers))
        if not is_cancelled and not is_of_code(error) and lease.tries <= MAX_TRIES:
            # The fault may lie with this caller alone: a missing key, a Ctrl-C, a bug in its `make`.  Another driver
            # may succeed, so the run is not stuck yet.
            self.give_back(lease, loaded)
        else:
            stuck = Stuck(str(error), self.fingerprint(loaded.header, factory))
            self._give_up(lease, loaded.run.waits, stuck, answers)

    def _find_change(self, process: Process, loaded: Loaded, on_change: OnChange) -> str | None:
        """Describe how the code has changed since the run last rested.  Return None if no change is known."""
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
        """Give back a run unchanged.  It is due at once, unless it has ended.

        Args:
            lease: The lease.
            loaded: The run.
            counts: Whether the claim counts as a try.  After too many tries, the run is stuck.
        """
        run = loaded.run
        due_s = 0.0 if counts else max(lease.since_s, 1.0)  # any due time except 0.0 resets the tries
        rest = Suspension(state=run.state, due_s=due_s, questions=run.waits)
        if run.is_ended:
            rest = Suspension(state=run.state, is_ended=True, is_failed=run.is_failed)
        self.store.append(lease, lease.n, (), rest)

    def give_up(self, lease: Lease, loaded: Loaded, error: Exception, factory: ProcessFactory) -> None:
        """Give back a run after too many drivers have failed, with a question that quotes the last error."""
        problem = (
            f"{lease.tries} drivers in a row have claimed it without adding an entry; the last raised {typed(error)}"
        )
        stuck = Stuck(problem, self.fingerprint(loaded.header, factory))
        self._give_up(lease.changed(n=loaded.run.n), loaded.run.waits, stuck, [])

    def _give_up(self, lease: Lease, waits: Sequence[Question], stuck: Stuck, answers: list[Signal]) -> None:
        """Give back a run that cannot be driven, with a question about it, or end it if the answer was to cancel it.

        Other signals stay in the store and do not make the run due.
        """
        took = [signal.id for signal in answers]
        is_ended = any(map(_read_cancellation, answers))
        question = Question(STUCK, STUCK, to_json(stuck), ("run_again", "cancelled"))
        asked = () if is_ended else (question, *[own for own in waits if own.key != STUCK])
        if took:  # in a separate append, since a question with an unread answer cannot be asked again
            self.store.append(lease, lease.n, (), None, took=took)
        rest = Suspension(state=STUCK_STATE, is_ended=is_ended, is_failed=is_ended, questions=asked, wakes_on=STUCK)
        self.store.append(lease, lease.n, (), rest)

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
        """Return the clock for a run: the drivers' clock, but not a test's clock if the run outlives the OS process.

        Raises:
            UsageError: If a test requires its own clock for this run.
        """
        return lasting(factory.clock) if checks.keeps_real_time(self.store) else factory.clock


def replay_run(journals: Journals, loaded: Loaded, factory: ProcessFactory) -> Any:
    """Return the process of a run, with a journal that can be continued."""
    journals.check_key(loaded)
    header = header_of(loaded.header)
    saved, n = journals.read_snapshot(loaded), 0 if loaded.snapshot is None else loaded.snapshot[0]
    document = None if saved is None else saved.document
    earlier = messages_before(journals, header) if header.follows else ()
    turns = (earlier,) if earlier else ()
    process = factory.process_of(header, document, *turns)
    chain = Chain(loaded.header, journals.key, n, None if saved is None else saved.digest)
    before = None
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
    """Return whether an error means that the present code cannot drive the run."""
    return isinstance(error, JournalError | ReplayError) and not isinstance(error, KeyMissing)


def stuck_under(run: Run) -> str | None:
    """Return the fingerprint of the code under which a run got stuck, or None if it is not stuck."""
    return None if (stuck := _stuck(run)) is None else stuck.fingerprint


def stuck_problem(run: Run) -> str | None:
    """Return why a run is stuck, or None if it is not."""
    return None if (stuck := _stuck(run)) is None else stuck.problem


def _stuck(run: Run) -> Stuck | None:
    for question in run.waits:
        if question.key == STUCK:
            with suppress(ValueError):
                stuck: Stuck = from_json(question.about, Stuck)
                return stuck
    return None


def _read_cancellation(answer: Signal) -> Signal | None:
    """Turn the answer about a stuck run into a cancellation of the run, or return None if it is a different answer."""
    with suppress(ValueError):
        posted = from_json(answer.body, Posted)
        if isinstance(from_json(bytes(posted.outcome), Outcome), Cancelled):
            return answer.changed(key="", body=to_json(posted.changed(key="")))
    return None


def _find_lost_approval(process: Process, signals: Sequence[Signal]) -> str | None:
    """Describe an approval, posted or in the journal, that this code cannot act on.  Return None if there is none."""
    found = lost_approval(process)
    for signal in signals if found is None else ():
        with suppress(ValueError):  # the signal cannot be read; the driver refuses it later
            posted = from_json(signal.body, Posted)
            found = found or loses(process, posted.key, process.decode(posted.key, bytes(posted.outcome)))
    return found


def typed(error: BaseException) -> str:
    """Return the type and message of an exception, as text that every store can hold."""
    text = f"{type(error).__name__}: {error}"[:MAX_PROBLEM_CHARS]
    return text.encode("ascii", "backslashreplace").decode().replace("\0", "\\x00")

"""Runs: processes that are kept in a store, from their first line to their last.

`Runs` is a store, and how runs are kept in it.  It knows processes, headers and letters; which process a header stands
for is the agent's to say.
"""

from __future__ import annotations

import os
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from fsm_agent._internal.field_checks import is_amount, is_finite
from fsm_agent._internal.values import Value, decoder_of, from_json, to_json
from fsm_agent.errors import JournalError, ReplayError, UsageError
from fsm_agent.lifecycle.effects import Begin
from fsm_agent.lifecycle.outcomes import Begun, Cancelled, Outcome
from fsm_agent.lifecycle.reports.lost_approvals import loses, lost_approval
from fsm_agent.lifecycle.seeding import earlier_messages, on_its_own, request_differences
from fsm_agent.machine.journal import Chain, Entry, Header, Journal, Line, fold, header_of, is_signed
from fsm_agent.machine.process import Process, Question
from fsm_agent.machine.signing import KeyMissing, has_signature, key_bytes, verified
from fsm_agent.mistakes import check
from fsm_agent.store import checks, conversation_turns, pruning
from fsm_agent.store.errors import RunBusy, RunExists, RunUnknown, StoreError
from fsm_agent.store.leases import LEASE_S, RENEWER
from fsm_agent.store.recorder import Posted, Saved, StoreRecorder
from fsm_agent.store.sqlite import SqliteStore
from fsm_agent.store.store import Head, Lease, Loaded, Post, Rest, Run, Store

MAX_TRIES = 5  # claims in a row without an entry; then somebody is asked
MAX_SNAPSHOT_BYTES = 1 << 28  # of a snapshot when it is unpacked
STUCK = "stuck"  # the key of the question about a run that nobody can drive on
STUCK_STATE = "Stuck"  # of such a run
_holders = count(1)

Made = TypeVar("Made", bound=Process)


class Stuck(Value, frozen=True):
    """The subject of the question about a stuck run."""

    problem: str
    definition: str = ""  # the fingerprint of the code that could not drive it; empty: not known


class Definition(NamedTuple):
    """The way in which an agent makes its processes and saves them."""

    agent: str  # its name
    make: Callable[..., Any]  # of a header, what `save` returned or None, and what earlier turns are to be added
    save: Callable[[Any], str]
    new_id: Callable[[], str]  # for runs without a name
    differences: Callable[[Header, Header], Sequence[str]] = request_differences  # of two headers, in words; not code
    now: Callable[[], float] = time.time  # Unix time, by the clock of the drivers
    check: Callable[[Any], None] | None = None  # refuses a process before its run is claimed


Claimed: TypeAlias = tuple[Any, StoreRecorder | None]  # a process and its recorder; None: it has ended


class Runs:
    """The runs of agents, in a store.

    Args:
        store: A `Store`, or the path of a file of SQLite.
        signing_key: Signs journals and snapshots, so that nobody can forge them without it; 32 bytes or more.
        redact: Applied to each outcome before it is taken: what it leaves out reaches neither the store nor the model.
            A pure function, which returns an outcome of the same kind.
        lease_s: How many seconds a run stays with a holder that gives no sign; a living one renews it.
        patience_s: How many seconds a driver may only wait for a moment to come, such as that of the next attempt at a
            model, before it gives the run back; None: as long as need be.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        *,
        signing_key: str | bytes | None = None,
        redact: Callable[[Outcome], Outcome] | None = None,
        lease_s: float = LEASE_S,
        patience_s: float | None = None,
    ) -> None:
        check("lease_s", lease_s, is_finite(lease_s) and lease_s > 0.0, "a number of seconds above 0")
        check("patience_s", patience_s, patience_s is None or is_amount(patience_s), "a number of seconds, or None")
        self.store: Store = _open_store(store)
        self.redact = redact
        self.lease_s = lease_s
        self.patience_s = patience_s
        self._key = None if signing_key is None else key_bytes(signing_key)

    # Driving

    def begin(self, process: Process, definition: Definition) -> Claimed:
        """Claim the run that the journal of a process names; create it if it is new.

        A run of the same header that there is already is gone on with.

        Raises:
            RunExists: There is another run of this name.
            RunBusy: Somebody else drives it.
        """
        journal = process.journal
        assert journal is not None
        if journal.chain is not None:
            return self._reclaim(process, journal.chain, definition)
        journal.is_lasting = not self.store.is_volatile
        lease = self._create_named(journal, definition) if journal.run else self._create_unnamed(journal, definition)
        if lease is None:
            return self.resume(journal.run, definition)
        journal.chain = Chain(journal.header, self._key)
        return process, self._make_recorder(lease, process, definition)

    def _create_claimed(self, run: str, header: str, agent: str, follows: Head | None = None) -> Lease | None:
        """Create a run and claim it, before a worker may; return None if it is there already."""
        lease = self.store.create(run, header, agent=agent, follows=follows, holder=holder_name(), for_s=self.lease_s)
        assert lease is not True
        return lease or None

    def _create_named(self, journal: Journal, definition: Definition) -> Lease | None:
        """Create and claim the run of a journal; return None if it is there already."""
        try:
            return self._create_claimed(journal.run, journal.header, definition.agent, _head_before(journal))
        except RunExists:
            ours = header_of(journal.header)
            there = header_of(self.store.load(journal.run, after=None).header)
            if differs := definition.differences(there, ours):
                raise checks.other_arguments(journal.run, differs) from None
            return None  # only the code has changed since

    def _create_unnamed(self, journal: Journal, definition: Definition) -> Lease:
        """Create and claim a run under a new name, or, where that is taken, under it with a number."""
        name, head = definition.new_id(), _head_before(journal)
        if head is not None:
            name = f"{head.conversation}:{head.version + 1}-{name}"
        journal.run = name
        lease, numbers = None, count(2)
        while lease is None:
            with suppress(RunExists):
                lease = self._create_claimed(journal.run, journal.header, definition.agent, head)
            if lease is None:
                journal.run = f"{name}-{next(numbers)}"
        return lease

    def _reclaim(self, process: Process, chain: Chain, definition: Definition) -> Claimed:
        """Claim the run of a process that was driven before and has been advanced since."""
        journal = process.journal
        assert journal is not None
        lease = self._claim(journal.run)
        loaded = self.store.load(journal.run, after=max(0, lease.n - 1))
        if lease.n != chain.n or not all(map(chain.ends_with, loaded.lines)):
            self._give_back(lease, loaded)
            there = f"the run {journal.run!r} has {lease.n} entries by now, and this process was left at {chain.n}"
            if lease.n == chain.n:
                there = f"the run {journal.run!r} has another entry {lease.n} than this process, which had lost it"
            raise StoreError(f"{there}: resume({journal.run!r}) goes on with it")
        return process, self._make_recorder(lease, process, definition, loaded.posts)

    def resume(self, run: str, definition: Definition) -> Claimed:
        """Claim a run and make its process, from its last rest on.

        Raises:
            RunUnknown: There is no such run.
            RunBusy: Somebody else drives it.
            JournalError: Its journal is damaged, foreign or forged.
            ReplayError: The code has changed, so that it would have gone on otherwise since its last rest.
        """
        loaded = self.store.load(run, after=None)
        if loaded.run.is_ended:
            return self._fold_run(loaded, definition), None
        return self.load_claimed(self._claim(run), definition)

    def load_claimed(self, lease: Lease, definition: Definition) -> Claimed:
        """Make the process of a run that was claimed.

        Raises:
            JournalError: As of `resume`; the run then is not due before somebody has answered a question about it.
            ReplayError: The same.
        """
        loaded = self.store.load(lease.run, after=None)
        answers = [post for post in loaded.posts if post.key == STUCK]
        try:
            if (copied := self._copy_entries(lease, loaded)) is not lease:
                lease, loaded = copied, self.store.load(lease.run, after=None)
            if loaded.run.is_ended:
                self.store.append(lease, lease.n, (), Rest(state=loaded.run.state, is_ended=True))
                return self._fold_run(loaded, definition), None
            process = self._fold_run(loaded, definition)
            if lease.tries > MAX_TRIES and not answers:
                raise ReplayError(f"{lease.tries} drivers have claimed it in a row, and none came to an entry")
            if (problem := _find_lost_approval(process, loaded.posts)) is not None:
                raise ReplayError(problem)
        except BaseException as error:
            self._fail(lease, loaded, error, answers, definition)
            raise
        others = [post for post in loaded.posts if post.key != STUCK]
        cancellations = [letter for post in answers if (letter := _read_cancellation(post)) is not None]
        recorder = self._make_recorder(lease, process, definition, [*cancellations, *others])
        recorder.mark_used({post.id for post in answers}.difference([letter.id for letter in cancellations]))
        return process, recorder

    def _fail(
        self, lease: Lease, loaded: Loaded, error: BaseException, answers: list[Post], definition: Definition
    ) -> None:
        """Give back a run of which no process could be made; ask about it if that will not change by itself."""
        will_last = isinstance(error, JournalError | ReplayError) and not isinstance(error, KeyMissing)
        if not will_last and lease.tries <= MAX_TRIES:
            self._give_back(lease, loaded)  # by mistake of whoever resumes it, say
        else:
            stuck = Stuck(str(error), self.fingerprint(loaded.header, definition))
            self._give_up(lease, loaded.run.waits, stuck, answers)

    def _give_back(self, lease: Lease, loaded: Loaded) -> None:
        """Give back a run as it is, for others to look at."""
        run = loaded.run
        self.store.append(lease, lease.n, (), Rest(state=run.state, due_s=0.0, questions=run.waits))

    def _give_up(self, lease: Lease, waits: Sequence[Question], stuck: Stuck, answers: list[Post]) -> None:
        """Give back a run that cannot be driven, with a question beside its own; end it if that was the answer.

        Posts other than its answer are kept for who can drive the run, and wake nobody before.
        """
        took = [post.id for post in answers]
        is_ended = any(map(_read_cancellation, answers))
        question = Question(STUCK, STUCK, to_json(stuck), ("run_again", "cancelled"))
        asked = () if is_ended else (question, *[own for own in waits if own.key != STUCK])
        if took:  # first: a question that was answered is not asked again under its key
            self.store.append(lease, lease.n, (), None, took=took)
        self.store.append(lease, lease.n, (), Rest(state=STUCK_STATE, is_ended=is_ended, questions=asked, heeds=STUCK))

    def fingerprint(self, header: str, definition: Definition) -> str:
        """Return the fingerprint of the code that would drive a run; empty: it cannot even begin it."""
        with suppress(Exception):
            fingerprint: str = definition.make(header_of(header), None).definition
            return fingerprint
        return ""

    def _claim(self, run: str) -> Lease:
        lease = self.store.claim(holder_name(), for_s=self.lease_s, run=run)
        assert lease is not None
        return lease

    def claim(self, run: str) -> Lease | None:
        """Claim a run that nobody drives; None: somebody was faster."""
        with suppress(RunBusy, RunUnknown):
            return self._claim(run)
        return None

    def claim_due(self, agents: list[str]) -> Lease | None:
        """Claim the run of these agents that has been due longest; None: there is none."""
        return self.store.claim(holder_name(), for_s=self.lease_s, agents=agents)

    def _make_recorder(self, lease: Lease, process: Process, definition: Definition, posts: Any = ()) -> StoreRecorder:
        return StoreRecorder(
            self.store,
            lease,
            process,
            save=definition.save,
            posts=posts,
            lease_s=self.lease_s,
            patience_s=self.patience_s,
            redact=self.redact,
            signing_key=self._key,
        )

    # Folding

    def _fold_run(self, loaded: Loaded, definition: Definition) -> Any:
        """Return the process of a run, with a journal that goes on where the run's ends."""
        self._check_key(loaded)
        header = header_of(loaded.header)
        saved, n = self.read_snapshot(loaded), 0 if loaded.snapshot is None else loaded.snapshot[0]
        document = None if saved is None else saved.document
        earlier = conversation_turns.messages_before(self, header) if header.follows else ()
        process = definition.make(header, document, earlier) if earlier else definition.make(header, document)
        chain = Chain(loaded.header, self._key, n, None if saved is None else saved.digest)
        fold(process, loaded.lines, chain, header.definition)
        if chain.n != loaded.run.n:
            raise JournalError(f"the store has counted {loaded.run.n} entries, and there are {chain.n}")
        if (name := getattr(process.record, "id", "")) not in ("", loaded.run.id):
            raise JournalError(f"the journal of the run {loaded.run.id!r} is that of {name!r}")
        process.journal = Journal(process, loaded.run.id, loaded.header, chain)
        if header.conversation:
            process.journal.earlier = earlier_messages(header, len(earlier))
        return process

    def _check_key(self, loaded: Loaded) -> None:
        """Refuse entries that are signed when there is no key to verify them with."""
        if self._key is None and loaded.lines and is_signed(loaded.lines[0]):
            raise KeyMissing(loaded.run.id)

    def read_snapshot(self, loaded: Loaded) -> Saved | None:
        """Return the snapshot of a run; None: it has none.

        Raises:
            JournalError: It is damaged, foreign or forged.
            KeyMissing: It is signed, and there is no key.
        """
        if loaded.snapshot is None:
            return None
        saved = self._unpack_snapshot(loaded.snapshot[1], loaded.run.id)
        if saved.start != Chain(loaded.header, self._key).digest:
            raise JournalError("the snapshot is of another run, or the header was changed")
        return saved

    def _unpack_snapshot(self, packed: bytes, run: str) -> Saved:
        try:
            unpacker = zlib.decompressobj()
            document = unpacker.decompress(packed, MAX_SNAPSHOT_BYTES)
            if not unpacker.eof and not unpacker.unconsumed_tail:
                raise JournalError("the snapshot of the run is damaged: it was cut off")
            if unpacker.unconsumed_tail:
                raise JournalError(f"the snapshot has more than {MAX_SNAPSHOT_BYTES} bytes")
            if self._key is None and has_signature(document):
                raise KeyMissing(run)
            saved: Saved = decoder_of(Saved).decode(verified(document, self._key))
            return saved
        except KeyMissing:
            raise
        except (zlib.error, ValueError) as error:
            raise JournalError(f"the snapshot of the run is damaged or forged: {error}") from error

    def look_at(self, run: str, definition: Definition) -> Any:
        """Return the process of a run as it is in the store, without claiming it; it has no driver.

        Raises:
            RunUnknown: There is no such run.
            JournalError: As of `resume`.
            ReplayError: As of `resume`.
        """
        return self._fold_run(self.store.load(run, after=None), definition)

    def replay(self, run: str, definition: Definition) -> Any:
        """Fold the whole journal of a run, and verify each entry; return the process, which has no driver.

        Raises:
            JournalError: The journal is damaged, foreign or forged.
            ReplayError: The code has changed, and decides otherwise.
        """
        loaded = self.store.load(run, after=0)
        return self._fold_run(loaded.changed(snapshot=None), definition)

    def fork(self, run: str, at: int, name: str) -> None:
        """Copy a run up to an entry, as a run of its own, which is not due before it is resumed.

        Args:
            run: The run.
            at: The number of the last entry that is copied.
            name: The name of the copy.

        Raises:
            RunUnknown: There is no such run.
            RunExists: There is a run with this name.
            UsageError: The run has no such entry.
            JournalError: Its journal is damaged.
        """
        loaded = self.store.load(run, after=0)
        self._check_key(loaded)
        if not 0 <= at <= len(loaded.lines):
            raise UsageError(f"the run {run!r} has no entry {at!r} to fork at: it has {len(loaded.lines)}")
        forked = header_of(loaded.header).changed(forked=(run, at))
        header = to_json(
            on_its_own(forked, conversation_turns.messages_before(self, forked)) if forked.conversation else forked
        )
        lease = self._create_claimed(name, header, loaded.run.agent)
        if lease is None:
            raise RunExists(f"there is a run {name!r} already, which was forked just so")
        lease = self._copy_entries(lease, self.store.load(name, after=None))
        self.store.append(lease, lease.n, (), Rest(state="Forked"))

    def _copy_entries(self, lease: Lease, fork: Loaded) -> Lease:
        """Copy the entries of the run that this one is a fork of, unless that was done; return the lease as it is then.

        Whoever claims a fork first does so, if the one that made it died before.
        """
        forked = None if lease.n else header_of(fork.header).forked
        if forked is None or forked[1] == 0:
            return lease
        source = self.store.load(forked[0])
        before, after = Chain(source.header, self._key), Chain(fork.header, self._key)
        taken = [before.verified(line) for line in source.lines[: forked[1]]]
        lines = after.written([_rename_entry(line, lease.run) for line in taken], lease.fence)
        self.store.append(lease, 0, lines)
        return lease.changed(n=len(lines))

    # Letters

    def answer(self, run: str, answers: Mapping[str, Outcome], *, by: str = "", at_s: float | None = None) -> None:
        """Post the answers to open questions, by key; ``""`` is for what answers none, such as `Cancelled`.

        Args:
            run: The name of the run.
            answers: Outcomes by the keys of the questions.
            by: Who answers; for people.
            at_s: When (Unix time), for answers that do not say so themselves; None: now.

        Raises:
            RunUnknown: There is no such run.
            NotAsked: There is no such question, or the run has ended.
            AlreadyAnswered: Somebody was first.
            UsageError: The answers are no mapping, or one is not an outcome, or of a kind that its question does not
                take; none is posted.
        """
        right = "outcomes by the keys of the questions, such as {'ask:2.0': Approved()}"
        check("answers", answers, isinstance(answers, Mapping) and all(isinstance(key, str) for key in answers), right)
        for key, outcome in answers.items():
            if not isinstance(outcome, Outcome):
                raise UsageError(f"the answer to {key!r} is {outcome!r:.80}: an outcome such as Approved() is right")
        if any(answers):
            checks.check_answers(answers, self.store.load(run, after=None).run)
        for key, outcome in answers.items():
            kept = outcome if outcome.at_s else outcome.changed(at_s=time.time() if at_s is None else at_s)
            kept = kept if self.redact is None else self.redact(kept)
            body = to_json(Posted(key, msgspec.Raw(to_json(kept).encode())))
            self.store.post(run, key, body, by=by)
        RENEWER.ring(run)

    def cancel(self, run: str, reason: str = "", *, by: str = "") -> None:
        """Post a cancellation: whoever drives the run ends it."""
        self.answer(run, {"": Cancelled(reason=reason)}, by=by)

    # Upkeep

    def prune(
        self,
        *,
        max_age_s: float | None = None,
        keep: int | None = None,
        now_s: float | None = None,
        is_dry: bool = False,
    ) -> list[Run]:
        """Delete runs that have ended, the oldest first, and return them; those that wait or go on are left alone.

        So are those from which a conversation is read.

        Args:
            max_age_s: Delete those that ended longer ago, in seconds.
            keep: Delete all but so many, the newest.
            now_s: Unix time to count back from; None: now.
            is_dry: Only return them.

        Raises:
            UsageError: Neither an age nor a count is given, or one is negative.
        """
        return pruning.prune(self, max_age_s=max_age_s, keep=keep, now_s=now_s, is_dry=is_dry)

    def needed_by(self, run: str) -> str:
        """Return the conversation that is read from a run, and could not go on without it; empty: there is none.

        Raises:
            RunUnknown: There is no such run.
        """
        return pruning.conversation_of(self, self.store.load(run, after=None).run)

    def export(self, run: str, redact: Callable[[Outcome], Outcome] | None = None) -> Iterator[str]:
        """Yield the journal of a run as lines of JSON: its header, then its entries, as they are in the store.

        Args:
            run: The run.
            redact: Applied to each outcome, and to the messages that the run began with as `Injected`: a pure function,
                which returns an outcome of the same kind.  What it returns is exported, without digests, and the first
                line says so; the caller's ``extra`` and arguments are left out.

        Raises:
            RunUnknown: There is no such run.
            JournalError: With ``redact``: an entry is no agent call's.
        """
        loaded = self.store.load(run, after=0)
        if redact is None:
            return iter((loaded.header, *loaded.lines))
        return pruning.redact_journal(loaded, redact)

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def stuck_under(run: Run) -> str | None:
    """Return the fingerprint of the code under which a run got stuck; None: it is not stuck."""
    for question in run.waits:
        if question.key == STUCK:
            with suppress(ValueError):
                stuck: Stuck = from_json(question.about, Stuck)
                return stuck.definition
    return None


def _read_cancellation(answer: Post) -> Post | None:
    """Return the answer to the question about a stuck run as a cancellation of that run, if it is one."""
    with suppress(ValueError):
        posted = from_json(answer.body, Posted)
        if isinstance(from_json(bytes(posted.outcome), Outcome), Cancelled):
            return answer.changed(key="", body=to_json(posted.changed(key="")))
    return None


def _find_lost_approval(process: Process, posts: Sequence[Post]) -> str | None:
    """Return which approval, in the journal or posted, the code of a process cannot act on; None: there is none."""
    found = lost_approval(process)
    for post in posts if found is None else ():
        with suppress(ValueError):  # it cannot be read
            posted = from_json(post.body, Posted)
            found = found or loses(process, posted.key, process.decode(posted.key, bytes(posted.outcome)))
    return found


def _head_before(journal: Journal) -> Head | None:
    """Return the head of its conversation that a run follows; None: it is no turn."""
    return None if journal.earlier is None else conversation_turns.head_before(header_of(journal.header))


def _rename_entry(line: Line, name: str) -> Entry:
    """Return an entry for a copy of its run, which has a name of its own."""
    outcome = bytes(line.outcome).decode()
    if line.key == Begin.prefix:
        outcome = to_json(from_json(outcome, Begun).changed(id=name))
    return Entry(line.key, outcome, to_json(line.steps), None)


def _open_store(store: Store | str | os.PathLike[str]) -> Store:
    """Return a store, or that at a path.

    Raises:
        UsageError: It is neither; an address is not shown, as it may hold a password.
        StoreError: The store cannot be opened.
    """
    right = "the path of a file such as 'runs.db', a Store, or Runs"
    if not isinstance(store, str | os.PathLike):
        check("store", store, hasattr(store, "is_volatile") and not isinstance(store, type), right)
        return store
    text = os.fspath(store)
    scheme, colon, _ = text.partition("://")
    check("store", f"{scheme}://…" if colon else store, bool(text) and not colon, right)
    if os.path.isdir(text):
        file = os.path.join(text, "runs.db")
        raise UsageError(f"store is {text!r}, a folder: a file in it, such as {file!r}, is right")
    return SqliteStore(text)


def holder_name() -> str:
    """Return a name for one that drives: host, OS process, number."""
    return f"{_process_name()}:{next(_holders)}"


@cache
def _process_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


os.register_at_fork(after_in_child=_process_name.cache_clear)

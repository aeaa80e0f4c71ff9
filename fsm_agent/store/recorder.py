"""Records a run in a store while a driver drives it, and looks after its journal, its lease and its signals.

Signals are posts, answers and cancellations from other OS processes.  `fsm_agent.store.leases` fetches them.

A batch that the store has not acknowledged is sent again unchanged.  If it was written after all, the store recognizes
it.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import msgspec

from fsm_agent._internal.structs import Value, decoder_of, from_json, quick_json, to_json
from fsm_agent.call.effects import Reconcile
from fsm_agent.call.journal import Chain, Journal, signed
from fsm_agent.call.process import SEPARATOR, Process, questions_of_runs, wakes_at_s, with_prefix
from fsm_agent.call.snapshots import loses
from fsm_agent.errors import UsageError
from fsm_agent.messages.events import Question
from fsm_agent.runtime.drive_loop import Driver
from fsm_agent.runtime.environment import Clock, PostedOutcome
from fsm_agent.runtime.portal import ThreadTask
from fsm_agent.runtime.run_function import is_in_doubt
from fsm_agent.store import checks
from fsm_agent.store.errors import LeaseLost, StoreError
from fsm_agent.store.leases import RENEWER
from fsm_agent.store.rescheduling import after_attempt
from fsm_agent.store.store import Lease, Signal, Store, Suspension

_log = logging.getLogger("fsm_agent")
_ENDING = frozenset({"cancelled", "stopped"})  # kinds of outcomes that interrupt even a running function


# Kinds of outcomes that can be undone.  These include replies, since asking the model again has no side effects.
_UNDONE = frozenset(
    {"model_failed", "replied", "function_failed", "check_failed", "check_refused", "expired", "slept", "cancelled"}
)
_OF_REQUEST = frozenset({"model_failed", "slept"})  # outcomes of earlier attempts at one request to a model


class Posted(Value, frozen=True):
    """The body of a signal: an outcome, and the key of the effect that it answers."""

    key: str
    outcome: msgspec.Raw


class Before(Value, frozen=True):
    """The state of a process before it failed."""

    step: int  # the number of the last entry that a retry keeps
    state: str
    document: str


class Saved(Value, frozen=True):
    """A snapshot: the state of a process after an entry."""

    start: str  # the digest of the header of its journal
    digest: str  # the digest of the entry
    document: str
    before: Before | None = None  # where a retry of a failed process continues; None if it cannot be retried
    fingerprint: str = ""  # the fingerprint of the code that saved it; empty if it is the same as in the header


class _Batch(NamedTuple):
    """The arguments to one append, and the digest of the chain after it."""

    n: int
    lines: Sequence[str]
    digest: str
    suspension: Suspension | None
    took: Sequence[int]
    snapshot: bytes | None


class _Kind(msgspec.Struct):
    """The part of an outcome that says what kind it is."""

    kind: str = ""
    is_error: bool = False


class StoreRecorder:
    """Records a run from a claim until the run is released or lost.

    Args:
        store: The store.
        lease: The lease of the claim.
        process: The process, with a journal that continues the run's journal.
        save: A function that returns a document from which the process can be made again.
        clock: The driver's clock.
        signals: The pending signals of the run.
        lease_s: See `Runs`.
        patience_s: See `Runs`.
        redact: See `Runs`.
        signing_key: See `Runs`.
        fingerprint: The fingerprint of the current code, if the run began under other code.
        waits: The questions that were open when the run was claimed.
        create: A function for the first write, which creates and claims the run with its first entries.  None if the
            run is already in the store.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        process: Process,
        *,
        save: Callable[[Any], str],
        clock: Clock,
        signals: Sequence[Signal] = (),
        lease_s: float,
        patience_s: float | None = None,
        redact: Callable[[Any], Any] | None = None,
        signing_key: bytes | None = None,
        fingerprint: str = "",
        waits: Sequence[Question] = (),
        create: Callable[[Sequence[str]], Lease | None] | None = None,
    ) -> None:
        assert process.journal is not None
        assert process.journal.chain is not None
        self.store = store
        self.run = lease.run
        self.lease = lease
        self.lease_s = lease_s
        self.patience_s = patience_s
        self.rests_for_people = False
        self.puts_off = False  # a drive that raised is repeated later, not at once; see `after_attempt`
        self.is_asked_outside = False  # if the run is in doubt, the run that began it asks its questions
        self.is_instant = store.is_volatile
        self.is_lasting = checks.keeps_real_time(store)
        self.signals: deque[PostedOutcome] = deque()
        self.unread = 0
        self.lost: LeaseLost | None = None
        self._process = process
        self._journal: Journal = process.journal
        self._chain: Chain = process.journal.chain
        self._save = save
        self.redact = redact
        self.signing_key = signing_key
        self._fingerprint = fingerprint
        self._clock = clock
        self._ahead_s = lease.since_s - clock.now()  # how far the store's clock is ahead of the driver's
        self._n = self._chain.n  # the number of the last entry on disk
        self._digest = self._chain.digest
        self._took: list[int] = []  # ids of signals that the next write removes
        self._seen: set[int] = set()  # ids of signals that were received or used up
        self._written: set[int] = set()  # ids of seen signals that were removed from the store
        self._batch: _Batch | None = None
        self._flying: Future[int] | None = None
        self._sent_at_s = 0.0  # monotonic time when the batch was sent
        self._entries = process.journal.entries
        self._create = create
        self._created: _Batch | None = None  # the batch that created the run
        self._creating = threading.Lock()
        self._is_stopped: bool | None = None  # None while the driver drives the run
        self._failed_with: Exception | None = None  # what ended the drive
        self._is_back = False  # the run was released
        self._late: set[str] = set()  # keys of functions whose outcomes will be posted when they return
        self._has_kept = False  # an outcome was posted for the next driver
        self._is_reported = False  # the driver was told that the run is lost
        self._to_ask: Sequence[Question] | None = None  # questions to ask after the next write
        self._inside = runs_inside(waits)  # the runs that rest while this run asks their questions
        self._driver: weakref.ref[Driver] | None = None
        self._lock = threading.RLock()
        if signals:  # the run asked under the names of the code that saved it
            self._receive(signals, process.present_key)

    # For drivers

    @property
    def is_behind(self) -> bool:
        if self.lost is not None:  # nothing can be written, but `write` must tell the driver
            return not self._is_reported and self._is_stopped is not True
        is_urgent = self._create is not None or bool(self._took) or self._is_to_be_returned
        return is_urgent or self._journal.n > self._n

    def ask(self, questions: Sequence[Question]) -> None:
        self._to_ask = questions

    def attach(self, driver: Driver) -> None:
        # A driver that never ends, as in a closed event loop, must not keep the run until the OS process ends.
        self._driver = weakref.ref(driver, lambda _: RENEWER.drop(self))
        if self._create is not None:
            return
        RENEWER.hold(self)
        if self.store.is_volatile and self.store.pending_signals([self.run]):  # sent since the claim; never polled
            self.fetch()

    def detach(self) -> None:
        with self._lock:
            driver = None if self._driver is None else self._driver()
            self._driver = None
        RENEWER.drop(self)
        if self.lost is None or driver is None:
            return
        # The functions in these entries have run, but the entries can no longer be written.  Their results are posted,
        # so that the new holder does not run the functions a second time.
        for entry in self._journal.since(self._n):
            if entry.key in driver.begun and entry.key not in self._late:
                self._send_late(entry.key, entry.outcome)

    def finish(self, *, is_stopped: bool, raised: object = None) -> None:
        if self._is_stopped is None:
            self._failed_with = raised if self.puts_off and isinstance(raised, Exception) else None
            self._is_stopped = is_stopped

    def mark_used(self, posts: Iterable[int]) -> None:
        """Remove the signals with these ids in the next write."""
        self._took += posts
        self._seen.update(self._took)

    def mark_taken(self, post: PostedOutcome, error: Exception | None = None) -> None:
        if error is not None and self._must_stay(post):
            return
        if error is None and post.by and (entries := self._entries):
            entries[-1] = entries[-1].changed(by=post.by)  # the entry of the step that used it
        self._took.append(post.id)
        if error is not None:
            _log.warning("run %s: the signal of %s was refused: %s", self.run, post.by or "an unknown author", error)

    def _must_stay(self, post: PostedOutcome) -> bool:
        """Return whether a refused signal must stay because it is an approval that only other code can act on."""
        try:
            outcome = self._process.decode(post.key, post.document)
        except UsageError:
            return False
        return loses(self._process, post.key, outcome) is not None

    def write(self) -> None:
        self._raise_if_lost()
        self._batch = batch = self._batch or self._next_batch()
        self._sent_at_s = time.monotonic()
        if (follow_up := self._complete(batch, lambda: self._send(batch))) is not None:
            follow_up()
            self._raise_if_lost()

    def _send(self, batch: _Batch) -> int:
        with self._creating:  # a closed event loop may leave a thread behind that is creating the run
            if self._create is not None:
                self._begin(self._create, batch)
            if batch is self._created:
                return 0
        self._raise_if_lost()
        return self.store.append(
            self.lease, batch.n, batch.lines, batch.suspension, took=batch.took, snapshot=batch.snapshot
        )

    def _begin(self, create: Callable[[Sequence[str]], Lease | None], batch: _Batch) -> None:
        self._create = None
        try:
            lease = create(batch.lines)
        except BaseException as error:
            self._journal.chain = None  # the run is in no store, so the process may be driven again
            self.lost, self._is_reported = LeaseLost(f"the run {self.run!r} was not created: {error}"), True
            raise
        assert lease is not None  # its name is random, so no run can have had it
        self.lease, self._created = lease, batch
        with self._lock:
            if self._driver is not None and self._driver() is not None:
                RENEWER.hold(self)

    def submit(self) -> Future[Any] | None:
        if self.is_instant:
            self.write()
            return None
        self._raise_if_lost()
        if self._flying is None:
            self._batch = batch = self._batch or self._next_batch()
            self._sent_at_s = time.monotonic()
            if self._create is not None:
                self._flying = ThreadTask(partial(self._send, batch)).start().future
            else:
                self._flying = self.store.submit(
                    self.lease, batch.n, batch.lines, batch.suspension, took=batch.took, snapshot=batch.snapshot
                )
        return self._flying

    def complete_write(self, future: Future[Any]) -> Future[Any] | None:
        if future is not self._flying:  # it is the future of a renewal or of a fetch of signals
            future.result()
            self._raise_if_lost()
            return None
        batch, self._flying = self._batch, None
        assert batch is not None
        follow_up = self._complete(batch, future.result)
        return None if follow_up is None else ThreadTask(follow_up).start().future

    def _complete(self, batch: _Batch, result: Callable[[], int]) -> Callable[[], None] | None:
        """Process the result of a write, and return the blocking function that must be called next, or None."""
        try:
            left = result()
        except LeaseLost as error:
            self.lose(error)
            self._raise_if_lost()
            raise
        is_posted = self._acknowledge(batch, left)
        if self._may_be_superseded(batch):
            return self._renew
        if self._to_ask is not None:
            return self._ask_now
        if batch.suspension is not None and batch.suspension.is_ended:
            return self._release_inside if self._inside else None
        if self._is_to_be_returned:  # the batch has created the run
            return self.write
        return self.fetch if is_posted else None

    def _may_be_superseded(self, batch: _Batch) -> bool:
        """Return whether the store took so long to acknowledge a batch that another holder may have claimed the run.

        The next step may be a function that must not run twice, so the lease is checked first.
        """
        return batch.suspension is None and time.monotonic() - self._sent_at_s > self.lease_s

    def _release_inside(self) -> None:
        """Make the nested runs due, because this run has ended and no longer asks questions on their behalf."""
        for run in self._inside:
            try:
                row = self.store.get(run)
                if row.is_ended or row.due_s == 0.0:
                    continue
                lease = self.store.claim(self.lease.holder, for_s=self.lease_s, run=run)
                assert lease is not None
                self.store.append(lease, lease.n, (), Suspension(state=row.state, due_s=0.0, questions=row.waits))
            except StoreError as error:
                _log.warning("run %s has ended, but its nested run %s could not be made due: %s", self.run, run, error)

    def _ask_now(self) -> None:
        """Ask the questions that people may answer while the run goes on, and fetch answers that are already there."""
        if self._to_ask is not None and not self._is_back:
            try:
                self.store.ask(self.lease, self._to_ask)
            except LeaseLost as error:
                self.lose(error)
                return
            self._to_ask = None
            self.fetch()

    def _renew(self) -> None:
        (result,) = self.store.renew_all([self.lease], for_s=self.lease_s)
        self.note_renewal(result)

    def _next_batch(self) -> _Batch:
        self._journal.settle(self._process.record)
        chain, fence = self._chain, self.lease.fence
        chain.n, chain.digest = self._n, self._digest  # an interrupted call may have changed them
        lines = chain.written(self._journal.since(self._n), fence)
        suspension = snapshot = None
        if self._create is not None:
            return _Batch(self._n, lines, chain.digest, None, (), None)
        if self._is_stopped is not None:
            suspension = self._by_the_clock_of_the_store(suspension_of(self._process, is_stopped=self._is_stopped))
            suspension = suspension.changed(unread=self.unread) if self.unread else suspension
            if self.is_asked_outside and suspension.due_s != 0.0 and is_in_doubt(self._process):
                suspension = suspension.changed(questions=())
            if self._failed_with is not None and not suspension.is_ended:
                suspension = self._put_off(suspension, self._failed_with)
            is_over = suspension.is_ended and self.store.is_volatile and self._journal.earlier is None
            # The next turn of a conversation reads the snapshot of the run before; a retry reads that of a failed run.
            if self._chain.n and not (is_over and not suspension.is_failed):
                snapshot = self._pack_snapshot(self._before() if suspension.is_failed else None)
        return _Batch(self._n, lines, chain.digest, suspension, tuple(self._took), snapshot)

    def _put_off(self, suspension: Suspension, error: Exception) -> Suspension:
        has_signals = bool(self._seen - self._written - {*self._took}) or self._has_kept
        fingerprint, now_s = self._process.fingerprint, self._clock.now() + self._ahead_s
        return after_attempt(suspension, self.lease, self._chain.n, error, fingerprint, has_signals, now_s)

    def _by_the_clock_of_the_store(self, suspension: Suspension) -> Suspension:
        """Return a suspension with which the store waits as long as this driver would.

        A store whose clock is ahead would find the run due too early, and the run would be claimed and released in a
        busy loop.
        """
        is_as_it_was = self._chain.n == self.lease.n and not self._took
        if suspension.due_s and suspension.due_s <= self.lease.since_s and is_as_it_was:
            return suspension.changed(due_s=suspension.due_s + self._ahead_s)
        return suspension

    def _pack_snapshot(self, before: Before | None) -> bytes:
        saved = Saved(self._chain.start, self._chain.digest, self._save(self._process), before, self._fingerprint)
        return packed_snapshot(saved, self.signing_key)

    def _before(self) -> Before | None:
        journal = self._journal
        count = count_to_keep([(entry.key, entry.outcome) for entry in journal.entries])
        if count is None:
            return None
        past: Any = copy(self._process)
        past.journal = journal
        past.return_to(journal.records[count])
        return Before(journal.n_before + count, str(past.record.state), self._save(past))

    def _acknowledge(self, batch: _Batch, left: int) -> bool:
        # `_batch` is cleared late: after an interruption before that, the batch is sent again, and the store
        # recognizes it.
        self._n, self._digest = batch.n + len(batch.lines), batch.digest
        if batch.took:
            self._took = [used for used in self._took if used not in batch.took]
            self._written.update(batch.took)
        if batch.suspension is not None:
            self._is_back = True
        self._batch = None
        return left > len(self._seen) - len(self._written)

    @property
    def _is_to_be_returned(self) -> bool:
        return self._is_stopped is not None and not self._is_back

    # Signals

    def fetch(self) -> None:
        """Load the pending signals, and wake the driver if some are new."""
        self._receive(self.store.load(self.run, after=self._n).signals)

    def take_over(self, posts: Sequence[PostedOutcome]) -> None:
        """Store posts to the enclosing run as signals of this run.  A post that is passed on again has no effect."""
        for post in posts:
            body, once = _body(post.key, post.document), f"outer:{post.id}"
            self.store.signal(self.run, "", body, by=post.by, signal_id=once, content=once)
        if posts:
            self.fetch()

    def _receive(self, signals: Iterable[Signal], now_called: Callable[[str], str] = str) -> None:
        is_ending = is_new = False
        with self._lock:
            for signal in signals:
                if signal.id in self._seen:
                    continue
                self._seen.add(signal.id)
                try:
                    posted, ends = _read(signal)
                except _UNREADABLE as error:
                    self.mark_taken(PostedOutcome(signal.id, signal.key, "", signal.by), error)
                    continue
                is_new, is_ending = True, is_ending or ends
                key, document = now_called(posted.key), bytes(posted.outcome).decode()
                self.signals.append(PostedOutcome(signal.id, key, document, signal.by))
        driver = None if self._driver is None else self._driver()
        if is_new and driver is not None:
            (driver.wake if is_ending else driver.wake_for_post)()

    # The lease

    def note_renewal(self, result: int | LeaseLost) -> None:
        """Act on what `Store.renew_all` returned for the lease."""
        if not isinstance(result, LeaseLost):
            if result:
                self.fetch()
            return
        # If a batch that releases the lease is on its way, the lease is gone because of it, and the run is not lost.
        if (batch := self._batch) is None or batch.suspension is None:
            self.lose(result)

    def lose(self, error: LeaseLost) -> None:
        """Stop the driver, because another holder has claimed the run.  Later outcomes are posted as signals."""
        if self.lost is not None or self._is_back:
            return
        self.lost = error
        driver = None if self._driver is None else self._driver()
        if driver is not None:
            driver.wake()

    def leave_to_parent(self) -> None:
        """Stop writing in a forked process, whose copy of the driver would release the run that the parent drives."""
        if self.store.is_volatile:  # the forked process has its own copy of the store
            return
        self._lock = threading.RLock()  # another thread of the parent may have held it
        self._driver = None
        holder = f"{self.lease.holder!r}, and this OS process is a fork of it"
        self.lose(LeaseLost(f"the run {self.run!r} is driven by {holder}"))

    def keep(self, key: str, outcome: Any) -> None:
        if self.redact is not None:
            outcome = self.redact(outcome)
        driver = None if self._driver is None else self._driver()
        self._has_kept = True
        has_begun = driver is not None and key in driver.begun  # a function that must not run twice
        self._signal(with_prefix(key, Reconcile.prefix) if has_begun else key, self._process.encode(key, outcome))

    def report_later(self, key: str, future: Any) -> None:
        """Post the outcome of a function that was still running when the run was lost."""

        def send(ended: Any) -> None:
            if not ended.cancelled() and ended.exception() is None:
                outcome = ended.result() if self.redact is None else self.redact(ended.result())
                document = self._process.encode(key, outcome)
                ThreadTask(partial(self._send_late, key, document)).start()

        self._late.add(key)
        future.add_done_callback(send)

    def _send_late(self, key: str, document: str) -> None:
        # To the new holder the function is in doubt: it was started and has no outcome.  So the outcome answers the
        # question about what became of it.
        self._signal(with_prefix(key, Reconcile.prefix), document)

    def _signal(self, key: str, document: str) -> None:
        try:
            self.store.signal(self.run, "", _body(key, document), by=f"{self.lease.holder}, late")
        except StoreError as error:
            _log.warning("run %s: the outcome of %s could not be posted: %s", self.run, key, error)

    def _raise_if_lost(self) -> None:
        if self.lost is not None:
            self._is_reported = True
            raise self.lost


def _body(key: str, document: str) -> str:
    return msgspec.json.encode(Posted(key, msgspec.Raw(document.encode()))).decode()


_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)


def is_end_request(signal: Signal) -> bool:
    """Return whether a signal cancels or stops the run."""
    try:
        return _read(signal)[1]
    except _UNREADABLE:
        return False


def _read(signal: Signal) -> tuple[Posted, bool]:
    """Return a signal's body and whether it ends the process, or raise one of `_UNREADABLE` if it is malformed."""
    posted: Posted = decoder_of(Posted).decode(signal.body)
    is_own = not posted.key.rpartition(SEPARATOR)[2]  # for the process itself, not one of its effects
    return posted, _kind(posted.outcome).kind in _ENDING and is_own


def packed_snapshot(saved: Saved, signing_key: bytes | None) -> bytes:
    """Return a compressed snapshot, for `Store.append`."""
    text = quick_json(saved)
    data = (signed(text, signing_key) if signing_key else text).encode()
    # By default, zlib allocates 256 KB, which takes longer than compressing a short text.
    window, memory = (12, 5) if len(data) <= 1 << 12 else (zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL)
    packer = zlib.compressobj(1, zlib.DEFLATED, window, memory)
    return packer.compress(data) + packer.flush()


def suspension_of(process: Process, *, is_stopped: bool) -> Suspension:
    """Return the suspension for a process, with the time at which it is due again and its open questions."""
    state = str(process.record.state)
    if not process.effects:
        return Suspension(state=state, is_ended=True, is_failed=process.record.failure is not None)
    asked = questions_of_runs(process)
    questions = tuple([_of_run(question, run) if run else question for question, run in asked])
    if is_stopped:
        return Suspension(state=state, due_s=0.0, questions=questions)
    return Suspension(state=state, due_s=wakes_at_s(process), questions=questions)


def _of_run(question: Question, run: str) -> Question:
    """Add the name of the run that a function began to the function's question, for people and `runs_inside`."""
    about = from_json(question.about or "{}", Any)
    return question.changed(about=to_json({**about, "run": run})) if isinstance(about, dict) else question


def runs_inside(questions: Iterable[Question]) -> set[str]:
    """Return the names of the nested runs that asked these questions."""
    found = set[str]()
    for question in questions:
        if SEPARATOR in question.key:
            with suppress(ValueError):
                about = from_json(question.about or "{}", Any)
                found.update([about["run"]] if isinstance(about, dict) and "run" in about else [])
    return found


def count_to_keep(entries: Sequence[tuple[str, str]]) -> int | None:
    """Return how many entries to keep when a failed run continues, or None if the last entry is not a failure.

    A failed request to a model is made again from its first attempt.

    Args:
        entries: The key and the outcome (as JSON) of each entry.
    """
    if not entries:
        return None
    key, outcome = entries[-1]
    last = _kind(outcome)
    if last.kind not in _UNDONE and not (last.kind == "returned" and last.is_error):
        return None
    count = len(entries) - 1
    while last.kind == "model_failed" and count and _is_attempt(entries[count - 1], key):
        count -= 1
    return count


def _kind(outcome: str | msgspec.Raw) -> _Kind:
    found: _Kind = decoder_of(_Kind).decode(outcome)
    return found


def _is_attempt(entry: tuple[str, str], key: str) -> bool:
    """Return whether an entry is an earlier attempt to make the request with this key, or a pause between attempts."""
    is_same = entry[0].rpartition(SEPARATOR)[0] == key.rpartition(SEPARATOR)[0]
    return is_same and _kind(entry[1]).kind in _OF_REQUEST

"""The recorder of a run in a store: its journal, its lease and its posts, while a driver drives it.

A batch that was handed to the store and not acknowledged is repeated as it is, since nobody knows what became of it.
"""

from __future__ import annotations

import logging
import sys
import threading
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import msgspec

from fsm_agent._internal.values import Value, decoder_of, to_json
from fsm_agent.errors import UsageError
from fsm_agent.lifecycle.effects import FindOut
from fsm_agent.lifecycle.reports.lost_approvals import loses
from fsm_agent.machine.journal import Chain, Journal
from fsm_agent.machine.pending_lines import PendingLines
from fsm_agent.machine.process import SEPARATOR, Process, wakes_at_s, with_prefix
from fsm_agent.machine.signing import signed
from fsm_agent.runtime.reconciler import Reconciler
from fsm_agent.runtime.recorder import PostedOutcome
from fsm_agent.runtime.thread_task import ThreadTask
from fsm_agent.store.errors import LeaseLost, StoreError
from fsm_agent.store.leases import RENEWER
from fsm_agent.store.store import Lease, Post, Rest, Store

_log = logging.getLogger("fsm_agent")
VOLATILE_ENTRIES = 64  # may be left to be written together, where nothing outlives the OS process anyway
_ENDING = frozenset({"cancelled", "stopped"})  # kinds of outcomes for which even a function is ended


class Posted(Value, frozen=True):
    """The body of a post: an outcome, and the key that it is for."""

    key: str
    outcome: msgspec.Raw


class Saved(Value, frozen=True):
    """A snapshot: the process as it was after an entry."""

    start: str  # the digest of the header of its journal
    digest: str  # of that entry
    document: str


class _Batch(NamedTuple):
    """The arguments of one append, and the end of the chain behind it."""

    n: int
    lines: Sequence[str]
    end: str | PendingLines
    rest: Rest | None
    took: Sequence[int]
    snapshot: bytes | None


class _Kind(msgspec.Struct):
    kind: str = ""


class StoreRecorder:
    """The recorder of one claim.

    Args:
        store: The store.
        lease: Of the claim.
        process: The process, with a journal that goes on where the run's ends.
        save: Returns the process as a document, from which it can be made again.
        posts: The posts that wait already.
        lease_s: How long the lease lasts unless it is renewed.
        patience_s: See `fsm_agent.runtime.recorder.Recorder`.
        redact: Applied to each outcome before it is taken.
        signing_key: Signs snapshots.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        process: Process,
        *,
        save: Callable[[Any], str],
        posts: Sequence[Post] = (),
        lease_s: float,
        patience_s: float | None = None,
        redact: Callable[[Any], Any] | None = None,
        signing_key: bytes | None = None,
    ) -> None:
        assert process.journal is not None
        assert process.journal.chain is not None
        self.store = store
        self.run = lease.run
        self.lease = lease
        self.lease_s = lease_s
        self.patience_s = patience_s
        self.is_instant = store.is_volatile
        self.posts: deque[PostedOutcome] = deque()
        self.lost: LeaseLost | None = None
        self._process = process
        self._journal: Journal = process.journal
        self._chain: Chain = process.journal.chain
        self._save = save
        self.redact = redact
        self._signing_key = signing_key
        self._n = self._chain.n  # of the last entry that is on disk
        self._end = self._chain.end  # its digest
        self._took: list[int] = []  # posts that are used up, to be written
        self._seen: set[int] = set()  # posts that were received, or are used up
        self._written: set[int] = set()  # of those, the ones that are gone from the store
        self._batch: _Batch | None = None
        self._flying: Future[int] | None = None
        self._entries = process.journal.entries
        self._may_wait = VOLATILE_ENTRIES if store.is_volatile else 1
        self._behind_at = len(self._entries) + self._may_wait - (self._journal.n - self._n)
        self._is_insisted = False
        self._is_urgent = False  # something is to be written, whatever the number of entries
        self._is_stopped: bool | None = None  # None: the driver goes on
        self._is_back = False
        self._late: set[str] = set()  # keys of functions whose outcomes are posted when they come
        self._is_reported = False  # the driver knows that the run is lost
        self._driver: weakref.ref[Reconciler] | None = None
        self._lock = threading.RLock()
        if posts:
            self._receive(posts)

    # For drivers

    @property
    def is_behind(self) -> bool:
        return self._is_urgent or len(self._entries) >= self._behind_at

    def flush_now(self) -> None:
        self._is_insisted = self._is_urgent = True

    def attach(self, driver: Reconciler) -> None:
        self._driver = weakref.ref(driver)
        RENEWER.hold(self)

    def detach(self) -> None:
        RENEWER.drop(self)
        driver = None if self._driver is None else self._driver()
        if self.lost is None or driver is None:
            return
        for entry in self._journal.since(self._n):  # taken, and not written
            if entry.key in driver.begun and entry.key not in self._late:
                self._post_late(entry.key, entry.outcome)

    def finish(self, *, is_stopped: bool) -> None:
        if self._is_stopped is None:
            self._is_stopped = is_stopped
            self._update_urgency()

    def mark_used(self, posts: Iterable[int]) -> None:
        """Have the next write remove these posts."""
        self._took += posts
        self._seen.update(self._took)
        self._update_urgency()

    def mark_taken(self, post: PostedOutcome, error: Exception | None = None) -> None:
        if error is not None and self._must_stay(post):
            return
        self._took.append(post.id)
        self._update_urgency()
        if error is not None:
            _log.warning("run %s: the post of %s was not taken: %s", self.run, post.by or "somebody", error)

    def _must_stay(self, post: PostedOutcome) -> bool:
        """Return whether a post that was not taken is an approval, for other code than this to act on."""
        try:
            outcome = self._process.decode(post.key, post.document)
        except UsageError:
            return False
        return loses(self._process, post.key, outcome) is not None

    def write(self) -> None:
        self._raise_if_lost()
        self._batch = batch = self._batch or self._next_batch()
        try:
            left = self.store.append(
                self.lease, batch.n, batch.lines, batch.rest, took=batch.took, snapshot=batch.snapshot
            )
        except LeaseLost as error:
            self.lose(error)
            self._raise_if_lost()
            raise
        if self._acknowledge(batch, left):
            self.fetch()

    def submit(self) -> Future[Any] | None:
        if self.is_instant:
            self.write()
            return None
        self._raise_if_lost()
        if self._flying is None:
            self._batch = batch = self._batch or self._next_batch()
            self._flying = self.store.submit(
                self.lease, batch.n, batch.lines, batch.rest, took=batch.took, snapshot=batch.snapshot
            )
        return self._flying

    def complete_write(self, future: Future[Any]) -> Future[Any] | None:
        if future is not self._flying:  # of the posts
            future.result()
            return None
        batch, self._flying = self._batch, None
        assert batch is not None
        try:
            left = future.result()
        except LeaseLost as error:
            self.lose(error)
            self._raise_if_lost()
            raise
        if self._acknowledge(batch, left):
            return ThreadTask[None](lambda _: self.fetch()).start().future
        return None

    def _next_batch(self) -> _Batch:
        self._journal.settle(self._process.record)
        chain, fence = self._chain, self.lease.fence
        chain.n, chain.end = self._n, self._end  # further on if this was begun before, and interrupted
        write = chain.pending if self.store.is_volatile else chain.written  # those in memory when they are read
        lines = write(self._journal.since(self._n), fence)
        rest = snapshot = None
        if self._is_stopped is not None:
            rest = rest_of(self._process, is_stopped=self._is_stopped)
            is_over = rest.is_ended and self.store.is_volatile and self._journal.earlier is None
            if self._chain.n and not is_over:  # the next turn of a conversation reads it, although it has ended
                snapshot = self._pack_snapshot()
        return _Batch(self._n, lines, chain.end, rest, tuple(self._took), snapshot)

    def _pack_snapshot(self) -> bytes:
        start = Chain(self._journal.header, self._signing_key).digest
        document = to_json(Saved(start, self._chain.digest, self._save(self._process)))
        return zlib.compress((signed(document, self._signing_key) if self._signing_key else document).encode(), 1)

    def _acknowledge(self, batch: _Batch, left: int) -> bool:
        """Take note of a batch that is on disk; return whether there are posts to be fetched.

        Interrupted anywhere, it can be done again: the store takes a batch twice.
        """
        self._n, self._end = batch.n + len(batch.lines), batch.end
        if batch.took:
            self._took = [post for post in self._took if post not in batch.took]
            self._written.update(batch.took)
        if batch.rest is not None:
            self._is_back = True
        self._batch = None
        self._is_insisted = False
        self._behind_at = self._n - self._journal.n_before + self._may_wait
        self._update_urgency()
        return left > len(self._seen) - len(self._written)

    def _update_urgency(self) -> None:
        """Find out whether there is something to be written, whatever the number of entries."""
        with self._lock:
            if self.lost is not None:  # there is not; but the driver has to be told
                self._is_urgent = not self._is_reported and self._is_stopped is not True
                self._behind_at = sys.maxsize
                return
            is_to_be_returned = self._is_stopped is not None and not self._is_back
            self._is_urgent = self._is_insisted or bool(self._took) or is_to_be_returned

    # Letters

    def fetch(self) -> None:
        """Load the posts that wait, and have the driver notice those that are new."""
        self._receive(self.store.load(self.run, after=self._n).posts)

    def _receive(self, posts: Iterable[Post]) -> None:
        is_ending = is_new = False
        with self._lock:
            for post in posts:
                if post.id in self._seen:
                    continue
                self._seen.add(post.id)
                try:
                    posted = decoder_of(Posted).decode(post.body)
                    kind = decoder_of(_Kind).decode(posted.outcome).kind
                except (msgspec.DecodeError, ValueError, RecursionError) as error:
                    self.mark_taken(PostedOutcome(post.id, post.key, "", post.by), error)
                    continue
                is_own = not posted.key.rpartition(SEPARATOR)[2]  # for a process, and not for one of its effects
                is_new, is_ending = True, is_ending or (is_own and kind in _ENDING)
                self.posts.append(PostedOutcome(post.id, posted.key, bytes(posted.outcome).decode(), post.by))
        driver = None if self._driver is None else self._driver()
        if is_new and driver is not None:
            (driver.wake if is_ending else driver.wake_for_post)()

    # The lease

    def renew(self) -> None:
        """Have the lease last longer; called by the `LeaseRenewer`."""
        try:
            left = self.store.renew(self.lease, for_s=self.lease_s)
        except LeaseLost as error:
            if (batch := self._batch) is None or batch.rest is None:  # else it may have been given back meanwhile
                self.lose(error)
            return
        if left:
            self.fetch()

    def lose(self, error: LeaseLost) -> None:
        """Take note that somebody else has claimed the run; the driver ends, and what it still learns is posted."""
        if self.lost is not None or self._is_back:
            return
        self.lost = error
        self._update_urgency()
        driver = None if self._driver is None else self._driver()
        if driver is not None:
            driver.wake()

    def report_later(self, key: str, future: Any) -> None:
        """Post what a function comes to that goes on although the run was lost."""

        def post(ended: Any) -> None:
            if not ended.cancelled() and ended.exception() is None:
                outcome = ended.result() if self.redact is None else self.redact(ended.result())
                document = self._process.encode(key, outcome)
                ThreadTask[None](lambda _: self._post_late(key, document)).start()

        self._late.add(key)
        future.add_done_callback(post)

    def _post_late(self, key: str, document: str) -> None:
        doubt = with_prefix(key, FindOut.prefix)
        body = msgspec.json.encode(Posted(doubt, msgspec.Raw(document.encode()))).decode()
        try:
            self.store.post(self.run, "", body, by=f"{self.lease.holder}, late")
        except StoreError as error:
            _log.warning("run %s: what %s came to late was not posted: %s", self.run, key, error)

    def _raise_if_lost(self) -> None:
        if self.lost is not None:
            self._is_reported = True
            self._update_urgency()
            raise self.lost


def rest_of(process: Process, *, is_stopped: bool) -> Rest:
    """Return the state in which a process is given back: when it wants to be claimed again, and what it asks."""
    state, effects = str(process.record.state), process.effects
    if not effects:
        return Rest(state=state, is_ended=True)
    questions = tuple([question for effect in effects if (question := effect.question) is not None])
    if is_stopped:
        return Rest(state=state, due_s=0.0, questions=questions)
    return Rest(state=state, due_s=wakes_at_s(process), questions=questions)

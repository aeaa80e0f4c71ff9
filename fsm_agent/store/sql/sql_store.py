"""The methods of `Store`, which run in transactions of SQLite or Postgres.  Their SQL is in `statements`.

In a group commit, one thread writes the work of many threads in one transaction.  A commit waits for the disk, which
takes as long for two hundred appends as for one, so work that arrives during a commit is collected for the next commit.
If no commit is in progress, a thread that may block commits its own work, since handing the work to another thread can
take as long as writing to the disk.
"""

from __future__ import annotations

import builtins
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, Unpack

from fsm_agent.errors import UsageError
from fsm_agent.messages.events import Question
from fsm_agent.store import checks
from fsm_agent.store.errors import LeaseLost, ReadOnly, RunBusy, StoreClosed, StoreError
from fsm_agent.store.listing import parse_query
from fsm_agent.store.sql import statements as runs
from fsm_agent.store.sql.statements import Append, NewRun, Sql, Taker
from fsm_agent.store.store import Head, Lease, Loaded, Page, Run, RunCount, RunFilter, RunsHealth, Start, Suspension
from fsm_agent.validation import require

T = TypeVar("T")
Work: TypeAlias = Callable[[Sql], T]
POLL_S = 0.5  # how often a waiting thread looks for due runs and dead holders that were not announced


class _Vain(NamedTuple):
    """A claim that found no run."""

    changes: int  # the count before the claim
    agents: Sequence[str]
    due_s: float | None  # Unix time at which runs had to be due, by the claimer's clock, or None for the store's clock
    looked_s: float  # Unix time of the claim, by the store's clock


class SqlStore(ABC):
    """The methods of `Store`, without the transactions of a particular database."""

    is_volatile = False
    _place = "not open"  # in the `repr` of a store whose address is wrong, such as on a page of a crash
    _changes: ChangeNotifier

    def __init__(self, place: str, *, read_only: bool = False) -> None:
        self._place = place
        self.is_read_only = read_only
        self._looked = threading.local()  # `vain`: the thread's last claim, if it found nothing

    def __reduce__(self) -> Any:  # for `copy` and `pickle`; a copy would share the connections of the original
        kind = type(self).__name__
        raise UsageError(f"a {kind} cannot be copied or pickled; share it, or open another")

    # Each database implements these

    @abstractmethod
    def _write(self, work: Work[T], *, may_repeat: bool = False, is_promise: bool = True) -> T:
        """Do work in a transaction, and return its result once it is on disk.

        Args:
            work: A function that reads and writes.
            may_repeat: Whether the work may be done again if it is unknown whether it was committed.
            is_promise: If False, this may return before the work is on disk.  A crash of the machine can then undo the
                work, unless something was written after it.
        """

    @abstractmethod
    def _read(self, work: Work[T]) -> T:
        """Do work that only reads, based on one consistent view of the store."""

    @abstractmethod
    def _submit(self, run: str, work: Work[T]) -> Future[T]:
        """Do work on a run without blocking, in a transaction that may be shared with other threads' work."""

    def _instance(self) -> str:
        """Return the name of the instance whose death ends the leases of this store, or an empty string."""
        return ""

    def _dead(self, c: Sql, instances: Collection[str]) -> Collection[str]:
        """Return which of these instances are known to be dead."""
        return ()

    # Methods of `Store`

    def create(
        self,
        run: str,
        header: str,
        *,
        agent: str,
        title: str = "",
        follows: Head | None = None,
        holder: str | None = None,
        for_s: float = 0.0,
        lines: Sequence[str] = (),
        start: Start | None = None,
    ) -> Lease | bool:
        starts = checks.check_create(run, header, agent, title, follows, holder, for_s, lines, start)
        self._check_writable()
        new = NewRun(run, header, agent, title, follows, tuple(lines), starts)
        taker = None if holder is None else Taker(holder, for_s, self._instance())

        def work(c: Sql) -> Lease | bool:
            made = runs.create(c, new, taker)
            if isinstance(made, Lease):
                return made
            if made is not None and made < math.inf:
                c.tell(run, made)
            return made is not None

        begun = self._write(work, is_promise=holder is None or bool(lines))
        if begun is True:
            self._changes.add()
        return begun

    def claim(
        self,
        holder: str,
        *,
        for_s: float,
        run: str | None = None,
        agents: Sequence[str] = (),
        now_s: float | None = None,
        fingerprints: Sequence[str] | None = None,
    ) -> Lease | None:
        checks.check_claim(holder, for_s, run, agents)
        self._check_writable()
        changes = self._changes.count()
        looked_s = 0.0

        def find(c: Sql) -> int | None:
            nonlocal looked_s
            looked_s = c.now_s
            if run is not None:
                return runs.lock_free(c, run)
            return runs.find(c, agents, fingerprints, c.now_s if now_s is None else now_s)

        lease: Lease | None = None
        if run is not None or self._is_worth_a_claim(find):
            taker = Taker(holder, for_s, self._instance())

            def work(c: Sql) -> Lease | None:
                key = self._found_of_living(c, find)
                return None if key is None else runs.take(c, key, taker)

            lease = self._write(work, is_promise=False)
        if lease is None:
            self._looked.vain = _Vain(changes, tuple(agents), now_s, looked_s)
        return lease

    def _is_worth_a_claim(self, find: Callable[[Sql], int | None]) -> bool:
        """Return whether to look for a due run in a transaction that writes."""
        return True

    def _found_of_living(self, c: Sql, find: Callable[[Sql], int | None]) -> int | None:
        """Return the key of the run that ``find`` finds.  If there is none, end dead processes' leases and retry."""
        try:
            if (key := find(c)) is not None:
                return key
        except RunBusy:
            if not self._end_leases_of_the_dead(c):
                raise
        else:
            if not self._end_leases_of_the_dead(c):
                return None
        return find(c)

    def _end_leases_of_the_dead(self, c: Sql) -> bool:
        if dead := self._find_dead(c):
            runs.end_leases(c, dead)
        return bool(dead)

    def _find_dead(self, c: Sql) -> Collection[str]:
        return self._dead(c, held) if (held := runs.instances(c)) else ()

    def renew_all(self, leases: Sequence[Lease], *, for_s: float) -> Sequence[int | LeaseLost]:
        checks.check_for_s(for_s)
        return self._write(lambda c: runs.renew(c, leases, c.now_s + for_s), may_repeat=True, is_promise=False)

    def pending_signals(self, names: Sequence[str]) -> Collection[str]:
        return self._read(lambda c: runs.pending_signals(c, names))

    def append(
        self,
        lease: Lease,
        n: int,
        lines: Sequence[str],
        suspension: Suspension | None = None,
        *,
        took: Sequence[int] = (),
        snapshot: bytes | None = None,
    ) -> int:
        unread = self._write(self._append(Append(lease, n, lines, suspension, took, snapshot)), may_repeat=True)
        if suspension is not None:
            self._changes.add()
        return unread

    def submit(
        self,
        lease: Lease,
        n: int,
        lines: Sequence[str],
        suspension: Suspension | None = None,
        *,
        took: Sequence[int] = (),
        snapshot: bytes | None = None,
    ) -> Future[int]:
        future = self._submit(lease.run, self._append(Append(lease, n, lines, suspension, took, snapshot)))
        if suspension is not None:
            future.add_done_callback(lambda _: self._changes.add())
        return future

    def _append(self, new: Append) -> Work[int]:
        suspension = checks.check_append(new.lines, new.suspension)
        new = new._replace(lines=tuple(new.lines), suspension=suspension, took=tuple(new.took))

        def work(c: Sql) -> int:
            key, unread, is_new = runs.append(c, new)
            if suspension is not None and is_new:
                c.tell_rest()
                if suspension.is_ended:
                    self._end(c, key)
                elif unread or suspension.due_s is not None:
                    c.tell(new.lease.run, suspension.due_s or c.now_s)
            return unread

        return work

    def _end(self, c: Sql, key: int) -> None:
        for name, due_s in runs.end(c, key):
            c.tell(name, due_s)

    def load(self, run: str, *, after: int | None = 0) -> Loaded:
        checks.check_run(run)
        is_right = after is None or (isinstance(after, int) and after >= 0)
        require("after", after, is_right, "a whole number of at least 0, or None")
        return self._read(lambda c: runs.load(c, run, after))

    def ask(self, lease: Lease, questions: Sequence[Question]) -> None:
        checks.check_questions(questions)
        self._write(lambda c: runs.ask(c, lease, questions), may_repeat=True)
        self._changes.add()

    def signal(self, run: str, key: str, body: str, *, by: str = "", signal_id: str = "", content: str = "") -> None:
        checks.check_signal(run, key, body, by, signal_id)

        def work(c: Sql) -> None:
            if runs.signal(c, run, key, body, by, signal_id, content or body):
                c.tell(run, c.now_s)

        self._write(work, may_repeat=bool(signal_id))
        self._changes.add()

    def signalled(self, run: str, signal_id: str) -> str | None:
        checks.check_run(run)
        checks.check_signal_id(signal_id)
        return self._read(lambda c: runs.signalled(c, run, signal_id))

    def get(self, run: str) -> Run:
        checks.check_run(run)
        return self._read(lambda c: runs.get(c, run))

    def list(self, *, after: str | None = None, limit: int = 100, **which: Unpack[RunFilter]) -> Page:
        asked = parse_query(after, limit, which)
        return self._read(lambda c: runs.select(c, asked))

    def stats(self) -> builtins.list[RunCount]:
        return self._read(runs.stats)

    def health(self) -> RunsHealth:
        return self._read(runs.health)

    def head(self, conversation: str) -> Head:
        checks.check_conversation(conversation)
        return self._read(lambda c: runs.head(c, conversation))

    def delete(self, run: str) -> None:
        checks.check_run(run)

        def work(c: Sql) -> None:
            key = self._found_of_living(c, lambda c: runs.lock_free(c, run))
            assert key is not None  # an unknown run has raised
            self._end(c, key)
            runs.delete(c, key)

        self._write(work)
        self._changes.add()

    def wait(self, timeout_s: float) -> None:
        vain: _Vain | None = getattr(self._looked, "vain", None)
        self._looked.vain = None
        changes = self._changes.count() if vain is None else vain.changes
        ends_s = time.monotonic() + timeout_s
        while True:
            next_s = self._read(lambda c: self._next_due_in_s(c, vain))
            pause_s = min(ends_s - time.monotonic(), next_s, POLL_S)
            if pause_s <= 0.0 or self._changes.wait(changes, pause_s) or pause_s == next_s:
                return

    def _next_due_in_s(self, c: Sql, vain: _Vain | None) -> float:
        """Return the seconds until a run is due: 0.0 if a holder has died, infinity if no due time is known."""
        if not self.is_read_only and self._find_dead(c):
            return 0.0
        agents = () if vain is None else vain.agents
        wake_s = runs.next_wake_s(c, agents, c.now_s)
        next_s = math.inf if wake_s is None else wake_s - c.now_s
        if vain is not None and vain.due_s is not None:  # a run may be due by the claimer's clock
            timed_s = runs.next_wake_s(c, agents, vain.due_s)
            if timed_s is not None:
                next_s = min(next_s, timed_s - vain.due_s - (c.now_s - vain.looked_s))
        return next_s

    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        return self._changes.wait_for_rest(seen, timeout_s)

    def _check_writable(self) -> None:
        if self.is_read_only:
            raise ReadOnly(self._place)

    def _closed_error(self) -> StoreError:
        return StoreClosed(self._place)


CHECK_S = 0.05  # how often a waiting thread checks for changes by other OS processes

W = TypeVar("W")


class GroupCommit(Generic[W]):
    """A queue of work and the thread that commits it.  It is thread-safe.

    The thread starts on demand, and ends after a while without work.

    Args:
        commit: A function that does all given work in one transaction.  It returns the result of each item once it is
            on disk, or an exception for an item that was refused, and raises if the whole transaction failed.
        closed: A function that returns the error for work that is submitted after `close`.
        idle_s: How long the thread waits for more work, in seconds.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[W]], Sequence[Any]],
        closed: Callable[[], Exception],
        *,
        idle_s: float = 5.0,
    ) -> None:
        self._commit = commit
        self._closed = closed
        self._idle_s = idle_s
        self._turn = threading.Lock()  # held during a commit, and when the queue is emptied for one
        self._changed = threading.Condition()
        self._queue: list[tuple[W, Future[Any]]] = []
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, work: W) -> Future[Any]:
        """Return a future that is done, with the work's result, once the work is on disk.

        The future's callbacks run in the committing thread and delay the next commit.
        """
        future = Future[Any]()
        with self._changed:
            if self._is_closed:
                raise self._closed()
            self._queue.append((work, future))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="fsm_agent group commit")
                self._thread.start()
            else:
                self._changed.notify_all()
        return future

    def run(self, work: W) -> Any:
        """Do the work and return its result once it is on disk, or raise if it was refused."""
        if self._turn.acquire(blocking=False):
            try:
                if not self._queue and not self._is_closed:  # otherwise it would overtake submitted work
                    return _result(self._commit([work])[0])
            finally:
                self._turn.release()
        future = self.submit(work)
        if threading.current_thread() is self._thread:  # a callback must not wait for its own thread
            self._commit_queue()
        return future.result()

    def close(self) -> None:
        """Refuse further work, and wait until all submitted work is on disk.  Calling this again has no effect."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._turn:
            pass

    def _run(self) -> None:
        while self._has_work():
            self._commit_queue()

    def _has_work(self) -> bool:
        with self._changed:
            if self._changed.wait_for(lambda: self._queue or self._is_closed, self._idle_s) and self._queue:
                return True
            self._thread = None
            return False

    def _commit_queue(self) -> None:
        with self._turn:
            with self._changed:
                queue, self._queue = self._queue, []
            batch = [entry for entry in queue if entry[1].set_running_or_notify_cancel()]
            try:
                outcomes = self._commit([work for work, _ in batch]) if batch else []
            except Exception as error:
                outcomes = [error] * len(batch)
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


def _result(outcome: Any) -> Any:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class ChangeNotifier:
    """A counter of changes that threads can wait for.  It is thread-safe.

    ``version`` returns a value that differs after each change by another OS process, or is None if there are no others.
    """

    def __init__(self, version: Callable[[], object] | None = None) -> None:
        self._version = version
        self._last: object = None
        self._count = 0
        self._changed = threading.Condition()

    def count(self) -> int:
        """Return the number of changes so far that may have made a run due."""
        with self._changed:
            self._look()
            return self._count

    def add(self) -> None:
        """Count a change by this OS process, and wake the waiting threads."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, count: int, timeout_s: float) -> bool:
        """Wait until the count differs from ``count``, or return False after ``timeout_s`` seconds without a change."""
        ends_s = time.monotonic() + timeout_s
        with self._changed:
            while True:
                self._look()
                left_s = ends_s - time.monotonic()
                if self._count != count or left_s <= 0.0:
                    return self._count != count
                self._changed.wait(left_s if self._version is None else min(CHECK_S, left_s))

    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        """See `Store.wait_for_rest`."""
        self.wait(seen, timeout_s)
        return self.count()

    def _look(self) -> None:
        if self._version is None:
            return
        version = self._version()
        if version != self._last:
            self._last = version
            self._count += 1
            self._changed.notify_all()

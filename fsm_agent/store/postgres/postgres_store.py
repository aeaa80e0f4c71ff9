"""A store in Postgres 12 or newer: runs that any number of OS processes on any number of machines drive.

Appends that are submitted become one commit; other transactions run side by side on a pool of connections.  What failed
before its commit was asked for is tried again, and so is what may be repeated; so a restart of the server is a delay.
A store may be used by many threads, and on both sides of a fork.
"""

from __future__ import annotations

import builtins
import logging
import math
import re
import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.forks import at_fork
from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.with_options_shown import with_options_shown
from fsm_agent.errors import ConfigError
from fsm_agent.messages.question import Question
from fsm_agent.store.checks import (
    check_append,
    check_claim,
    check_conversation,
    check_create,
    check_for_s,
    check_post,
    check_post_id,
    check_questions,
    check_run,
)
from fsm_agent.store.errors import LeaseLost, ReadOnly, RunBusy, StoreClosed, StoreError
from fsm_agent.store.group_commit import GroupCommit
from fsm_agent.store.listing import wanted
from fsm_agent.store.postgres.address import Address, address_of
from fsm_agent.store.postgres.engine_jobs import HOOKS, OnDue
from fsm_agent.store.postgres.postgres_runs import Append, NewPost, RunTables
from fsm_agent.store.postgres.schema import check_schema, prepare
from fsm_agent.store.postgres.session import POLL_S, Session, rests_channel
from fsm_agent.store.store import Head, Lease, Loaded, Page, Rest, Run, RunCount, RunFilter, RunsHealth, Start

if TYPE_CHECKING:
    from typing import Unpack

    import psycopg
    import psycopg_pool
    import tenacity
else:
    psycopg, psycopg_pool, tenacity = deferred("psycopg"), deferred("psycopg_pool"), deferred("tenacity")

CONNECTIONS = 10  # at most, beside that of the session
PATIENCE_S = 30.0  # how long a server that is away is waited for
GRACE_S = 5.0  # after a start of the server, in which sessions that ended with it may begin anew
_CLOCKS_S = 5.0  # by which clocks of hosts may differ without a word
_QUIET_S = 1.5  # after this, one line says that the server is away
_LOOK_S = 0.5  # how long a connection is waited for before it is asked for anew, as the pool may have stopped trying
_IDLE_S = 5  # after which the server ends a transaction whose holder is frozen or cut off, and frees what it has locked
_BEGIN = f"; SET LOCAL idle_in_transaction_session_timeout = '{_IDLE_S}s'"  # not of the session: a pooler shares those
_READS = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
_MAY_PASS = ("08", "25P03", "40", "53", "57P")  # SQLSTATEs: connection, idle, rolled back, resources, shutdown
_UNDONE = ("25P03", "40001", "40P01")  # of them, those with which a commit surely did not happen
# Why there is no connection has no SQLSTATE, only the words of libpq or of the server.
_LASTS = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|(role|database) .* does not exist|permission denied"
    r"|certificate|not support SSL|sslmode|invalid (\w+ value|port number)",
    re.IGNORECASE,
)
_log = logging.getLogger("fsm_agent")
# A pool warns of each attempt, twice a second. A program that sets up logging gets that; others would get it on stderr.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())

Work = Callable[["psycopg.Connection[Any]"], Any]


class PostgresStore:
    """A store in a schema of a database, which is created if it does not exist; see `Store` for its methods.

    For example, ``Agent(…, store="postgresql://agents@db.internal/work?schema=orders&sslmode=verify-full")``.  The
    password is taken from ``PGPASSWORD``, a password file, or the URL; it is in no message, log or repr.

    The server's clock times leases; when a run is due is Unix time, as the clock of its last driver had it.  A run
    whose holder's session has ended is due at once.

    Args:
        url: ``postgresql://user@host:port/database?schema=name``; see `address_of`.
        clock: Returns the Unix time, for tests; None: the server's clock.
        connections: The largest number of connections at once, beside one more that listens.
        patience_s: How many seconds a server that is away is waited for.
        on_due: Called with the connection, the run and the Unix time at which it is due, within the transaction that
            makes a run due; an engine puts its job into the same commit.  None: the hook of the engine in the URL.
        read_only: The schema is neither created nor written, so it has to be there, in the version of this release; to
            write raises `ReadOnly`.

    Raises:
        UsageError: The URL cannot be read.
        ConfigError: psycopg is not installed.
        StoreError: The server is not there, or the schema is another program's or of a newer version.

    Examples:
        >>> store = PostgresStore("postgresql://me@localhost/shop?schema=runs")      # doctest: +SKIP
    """

    is_volatile = False

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] | None = None,
        *,
        connections: int = CONNECTIONS,
        patience_s: float = PATIENCE_S,
        on_due: OnDue | None = None,
        read_only: bool = False,
    ) -> None:
        try:
            import psycopg  # noqa: F401
            import psycopg_pool  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                f"a store in Postgres needs psycopg ({error}); pip install 'fsm-agent[postgres]'"
            ) from None
        self._address = address_of(url)
        self._clock = clock
        self.has_own_clock = clock is not None
        self._size = connections
        self._patience_s = patience_s
        self._is_read_only = read_only
        engine = self._address.engine
        self._on_due = HOOKS[engine](self._address.schema) if on_due is None and engine else on_due
        self._tables = RunTables(self._address.schema)
        self._channel = f"fsm_agent_{self._address.schema}"
        self._open()
        try:
            if read_only:
                self._read(lambda c: check_schema(c, self._address.schema, self._address.name))
            else:
                self._do(lambda c: prepare(c, self._address.schema, self._address.name))
                self._check_clock()
        except BaseException:
            self.close()
            raise
        _stores.add(self)

    def __repr__(self) -> str:
        return f"PostgresStore({self._address.name})"

    @property
    def address(self) -> Address:
        """Where the store is; it may hold a password."""
        return self._address

    def _open(self) -> None:
        """Make the connections and threads, which each OS process has for itself."""
        self._is_closed = False
        self._pool = psycopg_pool.ConnectionPool(
            self._address.conninfo,
            min_size=0,
            max_size=self._size,
            timeout=_LOOK_S,
            reconnect_timeout=0.0,  # its pauses double, and would outlast a restart of the server
            open=True,
            name=self._channel,
            kwargs={"autocommit": True, "prepare_threshold": None},  # a pooler of transactions knows no statements
        )
        self._writer = GroupCommit[tuple[str, Work]](self._commit, self._closed_error)
        self._session = Session(self._address.conninfo, self._channel, is_possible=not self._address.is_pooled)
        self._looked = threading.local()  # `vain`: the changes heard before the thread's last claim found nothing

    def _check_clock(self) -> None:
        """Warn if the clocks of this host and of the server differ; leases are timed by the server's, waits by ours."""
        began_s = time.time()
        ahead_s = began_s - self._do(self._now)
        if self._clock is None and abs(ahead_s) > _CLOCKS_S and time.time() - began_s < _CLOCKS_S:
            _log.warning(
                "the clock of this host is %.0f s %s that of the store %s; waits and deadlines set here are wrong by as"
                " much on other hosts",
                abs(ahead_s),
                "ahead of" if ahead_s > 0.0 else "behind",
                self._address.name,
            )

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
        start: Start | None = None,
    ) -> Lease | bool:
        starts = check_create(run, header, agent, title, follows, holder, for_s, start)
        self._check_writable()
        instance = 0 if holder is None else self._session.instance()

        def work(c: psycopg.Connection[Any]) -> Lease | bool:
            now_s = self._now(c)
            due_s = self._tables.create(c, run, header, agent, title, follows, starts, now_s)
            if due_s is None:
                return False
            if due_s < math.inf:
                self._tell(c, run, due_s, now_s)
            if holder is None:
                return True
            key = self._tables.lock_free(c, run, now_s)
            return self._tables.take(c, key, holder, instance, now_s, for_s)

        begun: Lease | bool = self._do(work)
        return begun

    def claim(
        self,
        holder: str,
        *,
        for_s: float,
        run: str | None = None,
        agents: Sequence[str] = (),
        now_s: float | None = None,
        definitions: Sequence[str] | None = None,
    ) -> Lease | None:
        check_claim(holder, for_s, run, agents)
        self._check_writable()
        changes, instance = self._session.count(), self._session.instance()

        def work(c: psycopg.Connection[Any]) -> Lease | None:
            clock_s = self._now(c)
            due_s = clock_s if now_s is None else now_s
            if run is not None:
                key: int | None = self._lock_free(c, run, clock_s)
            else:
                key = self._tables.find(c, agents, due_s, clock_s, definitions)
            return None if key is None else self._tables.take(c, key, holder, instance, clock_s, for_s)

        lease: Lease | None = self._do(work)
        if lease is None:
            self._looked.vain = changes
        return lease

    def renew(self, lease: Lease, *, for_s: float) -> int:
        check_for_s(for_s)
        unread: int = self._do(lambda c: self._tables.renew(c, lease, self._now(c) + for_s), may_repeat=True)
        return unread

    def renew_all(self, leases: Sequence[Lease], *, for_s: float) -> Sequence[int | LeaseLost]:
        check_for_s(for_s)
        renewed: Sequence[int | LeaseLost] = self._do(
            lambda c: self._tables.renew_all(c, leases, self._now(c) + for_s), may_repeat=True
        )
        return renewed

    def unread(self, names: Sequence[str]) -> Collection[str]:
        found: Collection[str] = self._read(lambda c: self._tables.unread(c, names))
        return found

    def append(
        self,
        lease: Lease,
        n: int,
        lines: Sequence[str],
        rest: Rest | None = None,
        *,
        took: Sequence[int] = (),
        snapshot: bytes | None = None,
    ) -> int:
        unread: int = self._do(self._append(lease, n, lines, rest, took, snapshot), may_repeat=True)
        return unread

    def submit(
        self,
        lease: Lease,
        n: int,
        lines: Sequence[str],
        rest: Rest | None = None,
        *,
        took: Sequence[int] = (),
        snapshot: bytes | None = None,
    ) -> Future[int]:
        return self._writer.submit((lease.run, self._append(lease, n, lines, rest, took, snapshot)))

    def _append(
        self,
        lease: Lease,
        n: int,
        lines: Sequence[str],
        rest: Rest | None,
        took: Sequence[int],
        snapshot: bytes | None,
    ) -> Work:
        rest = check_append(lines, rest)
        new = Append(lease, n, tuple(lines), rest, tuple(took), snapshot)

        def work(c: psycopg.Connection[Any]) -> int:
            now_s = self._now(c)
            unread = self._tables.append(c, new, now_s)
            if rest is not None and rest.is_ended:
                self._end(c, lease.run, now_s)
            if rest is not None:
                c.execute(f"NOTIFY {rests_channel(self._channel)}")
            if rest is not None and not rest.is_ended and (unread or rest.due_s is not None):
                self._tell(c, lease.run, rest.due_s or now_s, now_s)
            return unread

        return work

    def load(self, run: str, *, after: int | None = 0) -> Loaded:
        check_run(run)
        loaded: Loaded = self._read(lambda c: self._tables.load(c, run, after, self._now(c)))
        return loaded

    def ask(self, lease: Lease, questions: Sequence[Question]) -> None:
        check_questions(questions)
        self._do(lambda c: self._tables.ask(c, lease, questions), may_repeat=True)

    def post(self, run: str, key: str, body: str, *, by: str = "", post_id: str = "", content: str = "") -> None:
        check_post(run, key, body, by, post_id)
        new = NewPost(run, key, body, by, post_id, content or body)

        def work(c: psycopg.Connection[Any]) -> None:
            now_s = self._now(c)
            if self._tables.post(c, new, now_s):
                self._tell(c, run, now_s, now_s)

        self._do(work, may_repeat=bool(post_id))

    def posted(self, run: str, post_id: str) -> str | None:
        check_run(run)
        check_post_id(post_id)
        content: str | None = self._read(lambda c: self._tables.posted(c, run, post_id))
        return content

    def get(self, run: str) -> Run:
        check_run(run)
        row: Run = self._read(lambda c: self._tables.get(c, run, self._now(c)))
        return row

    @with_options_shown("fsm_agent.store.store:RunFilter")
    def list(self, *, after: str | None = None, limit: int = 100, **which: Unpack[RunFilter]) -> Page:
        asked = wanted(after, limit, which)
        page: Page = self._read(lambda c: self._tables.select(c, asked, self._now(c)))
        return page

    def stats(self) -> builtins.list[RunCount]:
        counts: builtins.list[RunCount] = self._read(self._tables.stats)
        return counts

    def health(self) -> RunsHealth:
        health: RunsHealth = self._read(lambda c: self._tables.health(c, self._now(c)))
        return health

    def head(self, conversation: str) -> Head:
        check_conversation(conversation)
        head: Head = self._read(lambda c: self._tables.head(c, conversation))
        return head

    def delete(self, run: str) -> None:
        check_run(run)

        def work(c: psycopg.Connection[Any]) -> None:
            now_s = self._now(c)
            self._lock_free(c, run, now_s)
            self._end(c, run, now_s)
            self._tables.delete(c, run, now_s)

        self._do(work)

    def wait(self, timeout_s: float) -> None:
        vain: int | None = getattr(self._looked, "vain", None)
        changes = self._session.count() if vain is None else vain
        self._looked.vain = None
        ends_s = time.monotonic() + timeout_s
        due_in_s = self._read if self._is_read_only else self._do
        next_s = due_in_s(self._next_due_s)
        while (left_s := ends_s - time.monotonic()) > 0.0:
            is_near = next_s is not None and next_s < POLL_S
            pause_s = min(left_s, max(next_s, 0.0) if is_near else POLL_S)
            if self._session.wait(changes, pause_s) or is_near:
                return
            next_s = due_in_s(self._next_due_s)

    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        return self._session.wait_for_rest(seen, timeout_s)

    def _next_due_s(self, c: psycopg.Connection[Any]) -> float | None:
        """Return in how many seconds the next run is due by itself, 0 if a session has died; None: none is."""
        now_s = self._now(c)
        if not self._is_read_only and self._tables.end_leases_of_the_dead(c, now_s, GRACE_S):
            return 0.0
        next_s = self._tables.next_due_s(c, now_s)
        return None if next_s is None else next_s - now_s

    # Engines

    def tell(self, run: str, in_s: float = 0.0) -> None:
        """Tell the engine of a run; in so many seconds, it is to look at the run."""
        check_run(run)

        def work(c: psycopg.Connection[Any]) -> None:
            if self._on_due is not None:
                self._on_due(c, run, self._now(c) + in_s)

        self._do(work)

    def remind(self, agents: Sequence[str], *, older_s: float, limit: int) -> int:
        """Tell the engine once more of runs whose jobs were lost, and return of how many.

        They are the runs without a holder that have been due for long, or whose holder has died.  A run counts as due
        since then, so that a long queue is not told of again and again.

        Args:
            agents: Only runs of these agents.
            older_s: For how many seconds a run has to have been due, unless its holder has died since.
            limit: The largest number of runs.
        """

        def work(c: psycopg.Connection[Any]) -> int:
            now_s = self._now(c)
            self._tables.end_leases_of_the_dead(c, now_s, GRACE_S)
            found = self._tables.remind(c, agents, now_s, older_s, limit)
            for run in found:
                self._tell(c, run, now_s, now_s)
            return len(found)

        told: int = self._do(work)
        return told

    def close(self) -> None:
        """Finish submitted work, and close connections; safe to repeat."""
        self._writer.close()
        self._is_closed = True
        self._session.close()
        self._pool.close()

    # Transactions

    def _do(self, work: Work, *, may_repeat: bool = False, begin: str = "BEGIN") -> Any:
        """Do the work in a transaction, and return its result when it is on disk.

        Args:
            work: What reads and writes; done again if the transaction failed in passing.
            may_repeat: The work may also be done again when it is not known whether it was committed.
            begin: The statement that begins the transaction.

        Raises:
            StoreError: The work was refused, or the server failed.
        """
        if begin != _READS:
            self._check_writable()
        is_told = False

        def tell(state: tenacity.RetryCallState) -> None:
            nonlocal is_told
            if not is_told and (state.seconds_since_start or 0.0) > _QUIET_S:
                is_told = True
                _log.warning(
                    "the store %s does not answer; trying again for %.0f s in all", self._address.name, self._patience_s
                )

        attempts = tenacity.Retrying(
            before_sleep=tell,
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, _Passing)),
            stop=tenacity.stop_after_delay(self._patience_s),
            wait=tenacity.wait_exponential_jitter(initial=0.02, max=_LOOK_S, jitter=0.05),
            reraise=True,
        )
        try:
            return attempts(self._try, work, may_repeat, begin)
        except _Passing as error:
            raise StoreError(f"the store {self._address.name} failed: {error}") from error.__cause__

    def _read(self, work: Work) -> Any:
        """Do work that only reads, all of it as of one moment."""
        return self._do(work, may_repeat=True, begin=_READS)

    def _try(self, work: Work, may_repeat: bool, begin: str) -> Any:
        is_asked = False  # for the commit
        try:
            if self._is_closed:
                raise self._closed_error()
            with self._pool.connection() as connection:  # at its end, it commits or rolls back
                connection.execute(begin + _BEGIN)
                result = work(connection)
                is_asked = True
            return result
        except psycopg_pool.PoolClosed:
            raise self._closed_error() from None
        except psycopg_pool.PoolTimeout:
            reason = self._why_not_connected()
        except psycopg.Error as error:
            state = error.sqlstate or ""
            is_passing = state.startswith(_MAY_PASS) if state else isinstance(error, psycopg.OperationalError)
            if is_passing and not state.startswith(("40", "53")):
                self._pool.check()  # other connections were lost with this one
            is_in_doubt = is_passing and is_asked and not state.startswith(_UNDONE)
            if is_passing and (may_repeat or not is_in_doubt):
                raise _Passing(_first_line(error)) from error
            doubt = ", perhaps after the write" if is_in_doubt else ""
            raise StoreError(f"the store {self._address.name} failed{doubt}: {_first_line(error)}") from error
        if _LASTS.search(reason):
            raise StoreError(f"the store {self._address.name} cannot be reached: {reason}")
        raise _Passing(reason)

    def _why_not_connected(self) -> str:
        """Return why the pool gives no connection; it does not say, and its own errors are only logged."""
        if self._pool.get_stats()["pool_size"] >= self._size:
            return f"all {self._size} connections are in use"
        try:
            psycopg.connect(self._address.conninfo).close()
        except psycopg.Error as error:
            return _first_line(error)  # without its traceback, in which the password is a variable
        return "the server was slow to connect"

    def _commit(self, works: Sequence[tuple[str, Work]]) -> Sequence[Any]:
        """Do submitted work in one transaction; see `GroupCommit`."""
        if len(works) == 1:
            try:
                return [self._do(works[0][1], may_repeat=True)]
            except StoreError as error:
                return [error]
        outcomes: dict[int, Any] = {}

        def work(c: psycopg.Connection[Any]) -> None:
            for number in sorted(range(len(works)), key=lambda number: works[number][0]):  # no two wait for each other
                try:
                    with c.transaction():
                        outcomes[number] = works[number][1](c)
                except StoreError as error:
                    outcomes[number] = error

        self._do(work, may_repeat=True)
        return [outcomes[number] for number in range(len(works))]

    def _now(self, c: psycopg.Connection[Any]) -> float:
        if self._clock is not None:
            return self._clock()
        row = c.execute(_NOW).fetchone()
        assert row is not None
        return float(row[0])

    def _tell(self, c: psycopg.Connection[Any], run: str, due_s: float, now_s: float) -> None:
        """Tell an engine when a run is due, and workers if it is due now."""
        if self._on_due is not None:
            self._on_due(c, run, due_s)
        if due_s <= now_s:
            c.execute(f"NOTIFY {self._channel}")

    def _end(self, c: psycopg.Connection[Any], run: str, now_s: float) -> None:
        """Make due the runs that await the end of this one."""
        for name, due_s in self._tables.end(c, run, now_s):
            self._tell(c, name, due_s, now_s)

    def _lock_free(self, c: psycopg.Connection[Any], run: str, now_s: float) -> int:
        """Lock a run without a holder, or whose holder's session is over; return its key."""
        try:
            return self._tables.lock_free(c, run, now_s)
        except RunBusy:
            if not self._tables.end_leases_of_the_dead(c, now_s, GRACE_S):
                raise
            return self._tables.lock_free(c, run, now_s)

    def _check_writable(self) -> None:
        if self._is_read_only:
            raise ReadOnly(self._address.name)

    def _closed_error(self) -> StoreError:
        return StoreClosed(self._address.name)

    def _reopen_after_fork(self) -> None:
        """Make connections and threads in a forked process; those of its parent are its parent's."""
        _inherited.append((self._pool, self._session, self._writer))  # never closed here: that would end them there
        is_closed = self._is_closed
        self._open()
        if is_closed:
            self.close()


class _Passing(Exception):
    """A transaction that failed in passing, and may be tried again."""


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


_stores: weakref.WeakSet[PostgresStore] = weakref.WeakSet()
_inherited: list[Any] = []


def _reopen_all() -> None:
    for store in list(_stores):
        store._reopen_after_fork()


at_fork(after_in_child=_reopen_all)

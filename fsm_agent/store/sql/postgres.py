"""A store in Postgres 12 or newer, for OS processes on any number of machines.

Submitted appends share one commit, while other transactions run side by side on a pool of connections.  A transaction
is tried again if it failed before its commit was requested, or if it may be repeated, so a server restart causes only a
delay.  A store can be used from many threads, and from both processes after a fork.

The store needs psycopg: ``pip install 'fsm-agent[postgres]'``.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from fsm_agent._internal.system import at_fork
from fsm_agent.named_objects import needing
from fsm_agent.store import checks
from fsm_agent.store.errors import StoreError
from fsm_agent.store.sql import tables
from fsm_agent.store.sql.engine_jobs import HOOKS, OnDue
from fsm_agent.store.sql.postgres_session import (
    LOCKS,
    Address,
    Session,
    address_of,
    channel_of,
    decode,
    encode,
    rests_channel,
)
from fsm_agent.store.sql.sql_store import GroupCommit, SqlStore, T, Work
from fsm_agent.store.sql.statements import Sql

if TYPE_CHECKING:
    import psycopg
    import tenacity

CONNECTIONS = 10  # at most, not counting the connection of the session
PATIENCE_S = 30.0  # how long to wait for a server that is down
GRACE_S = 5.0  # after a restart of the server, the time in which sessions may reconnect
_CLOCKS_S = 5.0  # a difference between the clocks of hosts that needs no warning
_QUIET_S = 1.5  # after this time, one line is logged to say that the server is down
_LOOK_S = 0.5  # how long to wait for a connection before asking again, as the pool may have stopped trying
_IDLE_S = 5  # after this time, the server ends the transaction of a frozen or lost client, which frees its locks
_READS = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_WRITES = "BEGIN ISOLATION LEVEL READ COMMITTED"  # independent of the role's default: see `statements`
_MAY_PASS = ("08", "25P03", "40", "53", "57P")  # SQLSTATEs: connection, idle, rolled back, resources, shutdown
_UNDONE = ("25P03", "40001", "40P01")  # the ones after which nothing can have been committed
# A failure to connect has no SQLSTATE, only a message from libpq or the server.
_LASTS = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|(role|database) .* does not exist|permission denied"
    r"|certificate|not support SSL|sslmode|invalid (\w+ value|port number)|unrecognized configuration parameter",
    re.IGNORECASE,
)
_SESSIONS = (  # the sessions that are alive, by their locks; see `Session`
    f"SELECT objid::bigint::text FROM pg_locks WHERE locktype = 'advisory' AND classid = {LOCKS} AND objsubid = 2"
    " AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_log = logging.getLogger("fsm_agent")
# A pool warns about each attempt, twice a second.  Without this, a program that does not set up logging gets these
# warnings on stderr.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
_Connection: TypeAlias = "psycopg.Connection[Any]"


_TYPES = {
    **dict.fromkeys(("new_key", "serial"), "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    **{"key": "bigint PRIMARY KEY", "int": "bigint", "real": "double precision", "bool": "boolean"},
    **{"text": 'text COLLATE "C"', "bytes": "bytea"},
    # "roomy" pages keep free space, so that an append does not write to an index.
    **{"plain": "", "roomy": "WITH (fillfactor = 70)", "sorted": ""},
}


class PostgresSql:
    """A transaction in Postgres."""

    types: Mapping[str, str] = _TYPES
    for_update = "FOR UPDATE"
    skip_locked = "FOR UPDATE SKIP LOCKED"

    def __init__(self, connection: _Connection, schema: str, now_s: float, on_due: OnDue | None) -> None:
        self.connection = connection
        self.now_s = now_s
        self._on_due = on_due
        self._channel = channel_of(schema)
        table = f"SELECT 1 FROM pg_tables WHERE schemaname = '{schema}' AND tablename"
        self.is_store, self.is_taken = f"{table} = 'fsm_agent_store'", f"{table} = 'run'"

    def __call__(self, statement: str, /, **values: Any) -> list[Any]:
        cursor = self.connection.execute(_with_percents(statement), _encoded(values))
        return [tuple(map(_decoded, row)) for row in cursor] if cursor.description else []

    def many(self, statement: str, rows: Sequence[Mapping[str, Any]], /) -> None:
        with self.connection.cursor() as cursor:
            cursor.executemany(_with_percents(statement), [*map(_encoded, rows)])

    def tell_engine(self, run: str, due_s: float) -> None:
        """Tell the engine that a run is due."""
        if self._on_due is not None:
            self._on_due(self.connection, run, due_s)

    def tell(self, run: str, due_s: float) -> None:
        self.tell_engine(run, due_s)
        if due_s <= self.now_s:
            self.connection.execute(f"NOTIFY {self._channel}")

    def tell_rest(self) -> None:
        self.connection.execute(f"NOTIFY {rests_channel(self._channel)}")


@lru_cache(1000)
def _with_percents(statement: str) -> str:
    return re.sub(r"(?<!:):([a-z]\w*)", r"%(\1)s", statement)


def _encoded(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: encode(value) if isinstance(value, str) else value for name, value in values.items()}


def _decoded(value: Any) -> Any:
    return decode(value) if type(value) is str else value


class PostgresStore(SqlStore):
    """A store in a schema of a Postgres database.  The schema is created if needed.  See `Store` for the methods.

    For example, ``Agent(…, store="postgresql://agents@db.internal/work?schema=orders&sslmode=verify-full")``.  The
    password is taken from ``PGPASSWORD``, a password file, or the URL.  It never appears in a message, log or repr.

    Leases use the server's clock; due times use the clock of the run's last driver.  If the session of a run's holder
    has ended, the run is due at once.

    Args:
        url: ``postgresql://user@host:port/database?schema=name``; see `address_of`.
        clock: A function that returns the Unix time, for tests, or None for the server's clock.
        connections: The maximum number of connections, not counting the one that listens.
        patience_s: How long to wait for a server that is down, in seconds.
        on_due: A function that is called within each transaction that makes a run due, with the connection, the run and
            the Unix time at which it is due.  An engine uses this to put its job into the same commit.  None means the
            hook for the engine that the URL names.
        read_only: Whether to open the store for reading only.  The schema must already exist and have this release's
            version.  Each write raises `ReadOnly`.

    Raises:
        UsageError: If the URL cannot be read.
        ConfigError: If psycopg is not installed.
        StoreError: If the server cannot be reached, or the schema belongs to another program or has a newer version.

    Examples:
        >>> store = PostgresStore("postgresql://me@localhost/shop?schema=runs")      # doctest: +SKIP
    """

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
        with needing("postgres", "a store in Postgres"):
            import psycopg  # noqa: F401
            import psycopg_pool  # noqa: F401
        self._address = address_of(url)
        super().__init__(self._address.name, read_only=read_only)
        self._clock = clock
        self.has_own_clock = clock is not None
        self._size = connections
        self._patience_s = patience_s
        engine, schema = self._address.engine, self._address.schema
        self._on_due = HOOKS[engine](schema) if on_due is None and engine else on_due
        self._channel = channel_of(schema)
        # Settings of the transaction, because a pooler shares sessions.  The clock is read in the same round trip.
        self._begin = (
            f"; SET LOCAL idle_in_transaction_session_timeout = '{_IDLE_S}s'; SET LOCAL jit = off;"
            f' SET LOCAL search_path = {schema}, "$user", public; SELECT extract(epoch FROM clock_timestamp())::float8'
        )
        self._open()
        try:
            if read_only:
                self._read(lambda c: tables.check_readable(c, self._place))
            else:
                self._write(self._prepare)
                self._check_clock()
        except BaseException:
            self.close()
            raise
        _stores.add(self)

    def __repr__(self) -> str:
        return f"PostgresStore({self._place})"

    @property
    def address(self) -> Address:
        """The address of the store, which may contain a password."""
        return self._address

    def _open(self) -> None:
        import psycopg_pool

        self._is_closed = False
        self._pool = psycopg_pool.ConnectionPool(
            self._address.conninfo,
            min_size=0,
            max_size=self._size,
            timeout=_LOOK_S,
            reconnect_timeout=0.0,  # its pauses double, and would last longer than a restart of the server
            open=True,
            name=self._channel,
            kwargs={"autocommit": True, "prepare_threshold": None},  # a transaction pooler has no prepared statements
        )
        self._writer = GroupCommit[tuple[str, Work[Any]]](self._commit, self._closed_error)
        self._session = Session(self._address.conninfo, self._channel, is_possible=not self._address.is_pooled)
        self._changes = self._session
        self._looked = threading.local()

    def _prepare(self, c: Sql) -> None:
        """Make the tables, or migrate them to the newest version.  Several OS processes may do this at once."""
        [[encoding]] = c("SHOW server_encoding")
        if encoding != "UTF8":
            raise StoreError(
                f"{self._place}: expected a database in the encoding UTF8, got {encoding}, which lacks characters"
            )
        if tables.version_of(c, self._place) == tables.newest():
            return
        c("SELECT pg_advisory_xact_lock(:lock)", lock=LOCKS)
        if not c("SELECT 1 FROM pg_namespace WHERE nspname = :name", name=self._address.schema):
            c(f"CREATE SCHEMA {self._address.schema}")
        tables.prepare(c, self._place)

    def _check_clock(self) -> None:
        """Warn if the clocks of this host and the server differ.

        Leases use the server's clock, and waits use this host's.
        """
        began_s = time.time()
        ahead_s = began_s - self._write(lambda c: c.now_s)
        if self._clock is None and abs(ahead_s) > _CLOCKS_S and time.time() - began_s < _CLOCKS_S:
            _log.warning(
                "the clock of this host is %.0f s %s that of the store %s; waits and deadlines set here are wrong by as"
                " much on other hosts",
                abs(ahead_s),
                "ahead of" if ahead_s > 0.0 else "behind",
                self._place,
            )

    # Changes, and holders that die

    def _instance(self) -> str:
        return self._session.instance()

    def _dead(self, c: Sql, instances: Collection[str]) -> Collection[str]:
        # Sessions also end with the server, and their owners need a moment to reconnect.
        started = "SELECT pg_postmaster_start_time() < clock_timestamp() - make_interval(secs => :grace)"
        [[is_settled]] = c(started, grace=GRACE_S)
        return {*instances}.difference([number for (number,) in c(_SESSIONS)]) if is_settled else ()

    # Engines

    def tell(self, run: str, in_s: float = 0.0) -> None:
        """Tell the engine to look at a run in ``in_s`` seconds."""
        checks.check_run(run)

        self._write(lambda c: c.tell_engine(run, c.now_s + in_s))  # type: ignore[attr-defined]  # of `PostgresSql`

    def remind(self, agents: Sequence[str], *, older_s: float, limit: int) -> int:
        """Send the engine new jobs for runs whose jobs were lost, and return their number.

        These are runs that have long been overdue and have no holder, and runs whose holder has died.  Each of them
        then counts as newly due, so that runs in a long queue are not given new jobs again and again.

        Args:
            agents: The agents whose runs are considered.
            older_s: How long a run must have been due, in seconds, unless its holder has died.
            limit: The maximum number of runs.
        """

        def work(c: Sql) -> int:
            self._end_leases_of_the_dead(c)
            found = c(
                "UPDATE run SET wake = :now WHERE key IN (SELECT key FROM run WHERE agent = ANY(:agents)"
                " AND wake <= :now AND (wake <= :old OR until IS NOT NULL AND wake <= until)"
                f" ORDER BY wake LIMIT :limit {c.skip_locked}) RETURNING id",
                **{"now": c.now_s, "agents": [encode(agent) for agent in agents], "old": c.now_s - older_s},
                limit=limit,
            )
            for (run,) in found:
                c.tell(run, c.now_s)
            return len(found)

        return self._write(work)

    def close(self) -> None:
        """Finish submitted work and close connections.  Calling this again has no effect."""
        self._writer.close()
        self._is_closed = True
        self._session.close()
        self._pool.close()

    # Transactions

    def _write(self, work: Work[T], *, may_repeat: bool = False, is_promise: bool = True) -> T:
        self._check_writable()
        return self._do(work, may_repeat, _WRITES)

    def _read(self, work: Work[T]) -> T:
        return self._do(work, True, _READS)

    def _submit(self, run: str, work: Work[T]) -> Future[T]:
        return self._writer.submit((run, work))

    def _do(self, work: Work[T], may_repeat: bool, begin: str) -> T:
        """Do work in a transaction, trying again after temporary failures, and return its result once it is on disk."""
        import tenacity

        is_told = False

        def tell(state: tenacity.RetryCallState) -> None:
            nonlocal is_told
            if not is_told and (state.seconds_since_start or 0.0) > _QUIET_S:
                is_told = True
                _log.warning(
                    "the store %s does not answer; trying again for %.0f s in all", self._place, self._patience_s
                )

        attempts = tenacity.Retrying(
            before_sleep=tell,
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, _Passing)),
            stop=tenacity.stop_after_delay(self._patience_s),
            wait=tenacity.wait_exponential_jitter(initial=0.02, max=_LOOK_S, jitter=0.05),
            reraise=True,
        )
        try:
            result: T = attempts(self._try, work, may_repeat, begin)
        except _Passing as error:
            raise StoreError(f"the store {self._place} failed: {error}") from error.__cause__
        return result

    def _try(self, work: Work[T], may_repeat: bool, begin: str) -> T:
        import psycopg
        import psycopg_pool

        is_asked = False  # whether the commit was requested
        try:
            if self._is_closed:
                raise self._closed_error()
            with self._pool.connection() as connection:  # at its end, it commits or rolls back
                result = work(self._begun(connection, begin))
                is_asked = True
            return result
        except psycopg_pool.PoolClosed:
            raise self._closed_error() from None
        except psycopg_pool.PoolTimeout:
            reason = self._why_not_connected()
        except psycopg.Error as error:
            state, is_passing = error.sqlstate or "", _is_passing(error)
            if is_passing and not state.startswith(("40", "53")):
                self._pool.check()  # other connections were lost with this one
            is_in_doubt = is_passing and is_asked and not state.startswith(_UNDONE)
            if is_passing and (may_repeat or not is_in_doubt):
                raise _Passing(_first_line(error)) from error
            raise self._failed(error, ", perhaps after the write" if is_in_doubt else "") from error
        if _LASTS.search(reason):
            raise StoreError(f"the store {self._place} cannot be reached: {reason}")
        raise _Passing(reason)

    def _failed(self, error: psycopg.Error, doubt: str = "") -> StoreError:
        return StoreError(f"the store {self._place} failed{doubt}: {_first_line(error)}")

    def _begun(self, connection: _Connection, begin: str) -> PostgresSql:
        cursor = connection.execute(begin + self._begin)
        while cursor.nextset():
            pass
        [(now_s,)] = cursor.fetchall()
        now_s = now_s if self._clock is None else self._clock()
        return PostgresSql(connection, self._address.schema, now_s, self._on_due)

    def _why_not_connected(self) -> str:
        """Return why the pool provides no connection, because the pool itself only logs its errors."""
        import psycopg

        if self._pool.get_stats()["pool_size"] >= self._size:
            return f"all {self._size} connections are in use"
        try:
            psycopg.connect(self._address.conninfo).close()
        except psycopg.Error as error:
            return _first_line(error)  # without the traceback, where the password is a variable
        return "the server was slow to connect"

    def _commit(self, works: Sequence[tuple[str, Work[Any]]]) -> Sequence[Any]:
        import psycopg

        if len(works) == 1:
            try:
                return [self._write(works[0][1], may_repeat=True)]
            except StoreError as error:
                return [error]
        outcomes: dict[int, Any] = {}

        def work(c: Any) -> None:
            for number in sorted(range(len(works)), key=lambda number: works[number][0]):  # prevents deadlocks
                try:
                    with c.connection.transaction():
                        outcomes[number] = works[number][1](c)
                except StoreError as error:
                    outcomes[number] = error
                except psycopg.Error as error:
                    if _is_passing(error):
                        raise
                    outcomes[number] = self._failed(error)

        self._write(work, may_repeat=True)
        return [outcomes[number] for number in range(len(works))]

    def _reopen_after_fork(self) -> None:
        """Make new connections and threads in a forked process, because the parent keeps the old ones."""
        _inherited.append((self._pool, self._session, self._writer))  # closing them here would end them in the parent
        is_closed = self._is_closed
        self._open()
        if is_closed:
            self.close()


class _Passing(Exception):
    """A temporary failure, after which the transaction may be tried again."""


def _is_passing(error: psycopg.Error) -> bool:
    import psycopg

    state = error.sqlstate or ""
    return state.startswith(_MAY_PASS) if state else isinstance(error, psycopg.OperationalError)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


_stores: weakref.WeakSet[PostgresStore] = weakref.WeakSet()
_inherited: list[Any] = []


def _reopen_all() -> None:
    for store in list(_stores):
        store._reopen_after_fork()


at_fork(after_in_child=_reopen_all)

"""Stores in SQLite: in a file that OS processes on one machine share, or in memory.

Reads from a file use a pool of connections, and one thread does the writes (see `GroupCommit`).  Each commit is written
to a log and synced to the disk, so it survives a crash of the OS process or of the machine.  A claim alone is not
synced, because a crash of the machine would end its holder too; it is synced with the holder's first entry.  A store
can be used from many threads, and from both processes after a fork.

The file, SQLite's files next to it and the folder of locks are readable only by their owner.
"""

from __future__ import annotations

import errno
import math
import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from fsm_agent._internal.system import at_fork
from fsm_agent.errors import UsageError
from fsm_agent.store import checks
from fsm_agent.store.errors import StoreClosed, StoreError
from fsm_agent.store.leases import LeaseLocks
from fsm_agent.store.sql import statements as runs
from fsm_agent.store.sql import tables
from fsm_agent.store.sql.sql_store import ChangeNotifier, GroupCommit, SqlStore, T, Work
from fsm_agent.store.sql.statements import Sql

PAGE_BYTES = 1024  # a commit writes whole pages, and an entry has about 300 bytes; with 512, each would need a new page
BUSY_S = 30.0  # how long a transaction waits for one in another OS process
IDLE = 8  # how many unused connections stay open
_FAILURES = (sqlite3.Error, UnicodeDecodeError)  # UnicodeDecodeError when SQLite quotes a damaged file
_STATEMENTS = 256  # how many prepared statements a connection keeps
_OLDEST = (3, 37, 0)  # the first SQLite with strict tables
_OWNERS = stat.S_IRUSR | stat.S_IWUSR


_TYPES = {
    **dict.fromkeys(("key", "new_key"), "INTEGER PRIMARY KEY"),
    **{"serial": "INTEGER PRIMARY KEY AUTOINCREMENT", "int": "INTEGER", "real": "REAL", "text": "TEXT"},
    **{"bool": "INTEGER", "bytes": "BLOB", "plain": "STRICT", "roomy": "STRICT", "sorted": "STRICT, WITHOUT ROWID"},
}


class SqliteSql:
    """A transaction in SQLite, which locks all runs when it writes."""

    types: Mapping[str, str] = _TYPES
    for_update = skip_locked = ""
    is_store = "SELECT 1 FROM sqlite_schema WHERE name = 'fsm_agent_store'"
    is_taken = "SELECT 1 FROM sqlite_schema"

    def __init__(self, connection: sqlite3.Connection, now_s: float) -> None:
        self._execute = connection.execute
        self.many = connection.executemany
        self.now_s = now_s

    def __call__(self, statement: str, /, **values: Any) -> list[Any]:
        try:
            return self._execute(statement, values).fetchall()
        except OverflowError:  # an integer of more than 64 bits, which no row has
            return self._execute(statement, {name: _comparable(value) for name, value in values.items()}).fetchall()

    def tell(self, run: str, due_s: float) -> None:
        """Do nothing, because other OS processes poll the file."""

    def tell_rest(self) -> None:
        """Do nothing, because other OS processes poll the file."""


class SqliteStore(SqlStore):
    """A store in one file; see `Store` for its methods.

    Next to the file are SQLite's own files (``-wal``, ``-shm``) and a folder of locks (``.leases``).  All of them are
    readable only by their owner.

    Args:
        path: The file, on a local disk.  ``~`` is the home folder.
        clock: A function that returns the Unix time.
        read_only: Whether to open the file for reading only.  It must already exist, with the version of this release.
            Every write raises `ReadOnly`.  SQLite may still create its two files next to it.

    Raises:
        StoreError: If the file is not a store, has a newer version, or cannot be opened.

    Examples:
        >>> store = SqliteStore("runs.db")
        >>> Agent(Script("Hi."), name="host", store=store).call("Hello", run_id="r1").output
        'Hi.'
        >>> store.close()
    """

    def __init__(
        self, path: str | os.PathLike[str], clock: Callable[[], float] = time.time, *, read_only: bool = False
    ) -> None:
        if os.fspath(path) in ("", ":memory:"):
            raise UsageError(
                f"the path of a store: expected a file, got {os.fspath(path)!r}; use MemoryStore() for runs in memory"
            )
        checks.check_path(path)
        self._path = Path(os.path.realpath(os.path.expanduser(path)))  # the files next to it are named after it
        super().__init__(str(self._path), read_only=read_only)
        self._clock = clock
        self.has_own_clock = clock is not time.time
        with _opening:
            try:
                self._check_readable() if read_only else self._prepare()
            except _FAILURES as error:
                raise _failed(self._path, error) from error
            self._file = _identity(os.stat(self._path))
            self._open()
            _stores.add(self)

    def _open(self) -> None:
        connections = partial(Connections, self._path, self._file, read_only=self.is_read_only)
        self._connections, self._watching = connections(), connections()
        self._writer = GroupCommit[tuple[Work[Any], bool]](self._commit, self._closed_error)
        self._changes = ChangeNotifier(self._version)
        self._lease_locks = LeaseLocks(self._path.with_name(self._path.name + ".leases"))

    def _prepare(self) -> None:
        """Create the file, readable only by its owner, or migrate it to the newest version (not thread-safe)."""
        if sqlite3.sqlite_version_info < _OLDEST:
            raise StoreError(f"SQLite: expected version 3.37 or newer, got {sqlite3.sqlite_version}")
        try:
            _create(self._path)
        except OSError as error:
            raise StoreError(f"the store {str(self._path)!r} cannot be opened: {error.strerror}") from error
        with closing(_connect(self._path)) as connection:
            c, place = SqliteSql(connection, 0.0), repr(str(self._path))
            connection.execute("BEGIN")
            version = tables.version_of(c, place)
            connection.execute("COMMIT")
            is_empty = version is None and not c(c.is_taken)
            if is_empty or version is not None:  # the file of another program keeps its mode
                for suffix in ("", "-wal", "-shm"):
                    _make_private(self._path.with_name(self._path.name + suffix))
            if version == tables.newest():
                return
            if is_empty:
                connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
                _keep_a_log(connection)
            connection.execute("BEGIN IMMEDIATE")  # another OS process may have made the tables meanwhile
            tables.prepare(c, place)
            connection.execute("COMMIT")

    def _check_readable(self) -> None:
        if not self._path.is_file():
            raise checks.no_store(repr(str(self._path)))
        with closing(_connect(self._path, read_only=True)) as connection:
            tables.check_readable(SqliteSql(connection, 0.0), repr(str(self._path)))

    # Transactions

    def _write(self, work: Work[T], *, may_repeat: bool = False, is_promise: bool = True) -> T:
        result: T = self._writer.run((work, is_promise))
        return result

    def _submit(self, run: str, work: Work[T]) -> Future[T]:
        return self._writer.submit((work, True))

    def _read(self, work: Work[T]) -> T:
        with self._connections.one() as connection:
            connection.execute("BEGIN")
            result = work(SqliteSql(connection, self._clock()))
            connection.execute("COMMIT")
        return result

    def _commit(self, works: Sequence[tuple[Work[Any], bool]]) -> Sequence[Any]:
        """Do all work in one transaction, and sync it to the disk if any work requires that; see `GroupCommit`."""
        self._check_writable()
        is_synced = any(is_promise for _, is_promise in works)
        with self._connections.one() as connection:
            connection.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            c = SqliteSql(connection, self._clock())
            outcomes = [works[0][0](c)] if len(works) == 1 else [self._try(connection, c, work) for work, _ in works]
            connection.execute("COMMIT")
        return outcomes

    def _try(self, connection: sqlite3.Connection, c: Sql, work: Work[Any]) -> Any:
        """Do one piece of work in a shared transaction.  If it fails, undo only this piece and return the exception."""
        connection.execute("SAVEPOINT work")
        try:
            return work(c)
        except Exception as error:
            if not connection.in_transaction:  # SQLite has rolled back everything, for example because the disk is full
                raise
            connection.execute("ROLLBACK TO work")
            if not isinstance(error, _FAILURES):
                return error
            failed = _failed(self._path, error)
            failed.__cause__ = error
            return failed
        finally:
            if connection.in_transaction:
                connection.execute("RELEASE work")

    # Changes, and holders that die

    def _is_worth_a_claim(self, find: Callable[[Sql], int | None]) -> bool:
        # A worker that finds nothing to do must not delay writers.
        return self._read(lambda c: find(c) is not None or bool(self._find_dead(c)))

    def _version(self) -> object:
        with self._watching.one() as connection:
            return connection, connection.execute("PRAGMA data_version").fetchone()

    def _instance(self) -> str:
        return self._lease_locks.instance(self._has_leases)

    def _has_leases(self, instance: str) -> bool:
        try:
            return self._read(lambda c: runs.has_leases(c, instance))
        except StoreError:  # the file is gone, or damaged
            return True

    def _dead(self, c: Sql, instances: Collection[str]) -> Collection[str]:
        return [*filter(self._lease_locks.is_dead, instances)]

    # The file

    def backup(self, path: str | os.PathLike[str]) -> int:
        """Copy the store to a new file, and return the copy's size in bytes.  Others may write in the meantime.

        The copy is consistent and can be read only by its owner.  It also contains the leases, which expire normally or
        when the first worker opens the copy.

        Args:
            path: The new file, which must not exist yet.

        Raises:
            StoreError: If the file exists or cannot be written, or the store is damaged.
        """
        checks.check_path(path)
        with self._connections.one() as connection:
            return _copy(connection, Path(path).absolute())

    def close(self) -> None:
        """Finish submitted work, and close files and connections.  Calling this again has no effect."""
        self._writer.close()
        if not self._connections.is_closed:
            self._lease_locks.end(self._has_leases)
        for connections in self._pools:
            connections.close()

    @property
    def _pools(self) -> Sequence[Connections]:
        return self._connections, self._watching

    def _before_fork(self) -> None:
        for connections in self._pools:
            connections.before_fork()

    def _after_fork(self, *, is_child: bool) -> None:
        """In a forked process, make new connections, locks and threads, since it cannot use its parent's."""
        if not is_child:
            for connections in self._pools:
                connections.after_fork()
            return
        is_closed = self._connections.is_closed
        self._lease_locks.abandon()
        self._open()
        if is_closed:
            self.close()


class MemoryStore(SqlStore):
    """A store in memory, for tests and for runs that need not outlive the OS process; see `Store` for its methods.

    Args:
        clock: A function that returns the Unix time.

    Examples:
        >>> agent = Agent(Script("Hi."), name="host", store=MemoryStore())
        >>> agent.call("Hello", run_id="r1").output, [run.id for run in agent.runs.all.store.list()]
        ('Hi.', ['r1'])
    """

    is_volatile = True
    has_own_clock = False

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__("in memory")
        self._clock = clock
        if clock is not time.time:
            self.has_own_clock = True
        self._lock = threading.Lock()
        self._changes = ChangeNotifier()
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS
        )
        weakref.finalize(self, self._connection.close)  # Python 3.13 and later warn about open connections
        with _opening:
            _stores.add(self)
        self._write(lambda c: tables.prepare(c, self._place))

    def _write(self, work: Work[T], *, may_repeat: bool = False, is_promise: bool = True) -> T:
        with self._lock:
            connection = self._connection
            connection.execute("BEGIN")
            try:
                result = work(SqliteSql(connection, self._clock()))
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.rollback()
        return result

    def _read(self, work: Work[T]) -> T:
        with self._lock:
            return work(SqliteSql(self._connection, self._clock()))

    def _submit(self, run: str, work: Work[T]) -> Future[T]:
        future = Future[Any]()
        try:
            future.set_result(self._write(work))
        except Exception as error:
            future.set_exception(error)
        return future

    def forget(self, conversation: str) -> None:
        """Delete a conversation, but keep its runs.  This frees memory."""
        checks.check_conversation(conversation)
        self._write(lambda c: c("DELETE FROM conversation WHERE name = :name", name=conversation))

    def close(self) -> None:
        """Do nothing, because a store in memory stays open."""

    def _before_fork(self) -> None:
        self._lock.acquire()

    def _after_fork(self, *, is_child: bool) -> None:
        if is_child:
            self._changes = ChangeNotifier()  # another thread of the parent may have held its lock
        self._lock.release()


class Connections:
    """A pool of connections to one file, each used by one thread at a time.  The pool is thread-safe.

    SQLite keeps track of what its OS process has locked.  A forked process inherits these records but not the locks, so
    neither an inherited nor a new connection would be safe there.  Before a fork, all connections must therefore be
    returned and closed.

    Args:
        path: The file.
        file: The identity of the file that was opened.
        read_only: Whether connections only read.
    """

    def __init__(self, path: Path, file: tuple[int, int], *, read_only: bool) -> None:
        self._connect = partial(_connect, path, read_only=read_only)
        self._path, self._file = str(path), file
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._idle: list[sqlite3.Connection] = []
        self._in_use = 0
        self._forks = 0  # forks in progress
        self.is_closed = False
        # Python 3.13 and later warn about connections that were not closed.  In a reference cycle, as after an
        # exception, a `__del__` of ours may run after theirs.  A finalizer runs before them.
        weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def one(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection.  If a transaction is open when it is returned, roll the transaction back.

        Raises:
            StoreClosed: After `close`.
            StoreError: If SQLite fails, or the file was deleted, moved or replaced since it was opened.
        """
        self._check_place()
        try:
            connection = self._take()
            try:
                yield connection
            finally:
                self._take_back(connection)
        except _FAILURES as error:
            raise _failed(self._path, error) from error

    def _check_place(self) -> None:
        try:
            there = _identity(os.stat(self._path))
        except FileNotFoundError:
            there = None
        if there != self._file and not self.is_closed:
            got = "none" if there is None else "another one"
            raise StoreError(
                f"the store {self._path!r}: expected the file that was opened, got {got}; put it back, or open the"
                " store anew"
            )

    def _take(self) -> sqlite3.Connection:
        with self._lock:
            while self._forks:
                self._changed.wait()
            if self.is_closed:
                raise StoreClosed(self._path)
            self._in_use += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._connect()
        except BaseException:
            self._take_back(None)
            raise

    def close(self) -> None:
        """Close all connections, but those in use only once they are returned.  Calling this again has no effect."""
        with self._lock:
            self.is_closed = True
            _close_all(self._idle)

    def before_fork(self) -> None:
        """Wait until all connections are returned, close them, and lend no more until the fork is over."""
        with self._lock:
            self._forks += 1
            while self._in_use:
                self._changed.wait()
            _close_all(self._idle)

    def after_fork(self) -> None:
        """Lend connections again, in the parent of a fork."""
        with self._lock:
            self._forks -= 1
            self._changed.notify_all()

    def _take_back(self, connection: sqlite3.Connection | None) -> None:
        is_usable = False
        try:
            if connection is not None and connection.in_transaction:
                connection.rollback()
            is_usable = connection is not None
        finally:
            with self._lock:
                if connection is not None:
                    if is_usable and not self.is_closed and not self._forks and len(self._idle) < IDLE:
                        self._idle.append(connection)
                    else:
                        connection.close()
                self._in_use -= 1
                if self._forks:
                    self._changed.notify_all()


def _comparable(value: Any) -> Any:
    """Return the value, or infinity in place of an integer of more than 64 bits, which SQLite cannot compare."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return math.inf if value > 0 else -math.inf
    return value


def _close_all(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()


def _connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    mode = ("ro&immutable=1" if _is_immutable(path) else "ro") if read_only else "rw"  # never creates a file
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS,
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # on macOS, where an fsync alone does not reach the disk
    except BaseException:
        connection.close()
        raise
    return connection


def _is_immutable(path: Path) -> bool:
    """Return whether a file is complete and is on a read-only disk, where SQLite cannot create files next to it.

    If there is a write-ahead log, the file alone is not the whole store, or another machine writes to it.
    """
    if not hasattr(os, "statvfs"):  # on Windows
        return False
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY) and not path.with_name(f"{path.name}-wal").exists()
    except OSError:
        return False


def _create(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _OWNERS)
    except FileExistsError:
        if not path.is_file():
            raise OSError(errno.EINVAL, "expected a regular file, got a device or a folder") from None
    else:
        # Only a new file may be closed here, since no connection to it is open yet.  Closing a file releases all locks
        # that the OS process has on it, including SQLite's.
        os.close(descriptor)


def _failed(path: Path | str, error: Exception) -> StoreError:
    return StoreError(f"the store {str(path)!r} failed: {error}")


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _make_private(path: Path) -> None:
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & ~_OWNERS:
            path.chmod(mode & _OWNERS)


def _keep_a_log(connection: sqlite3.Connection) -> None:
    # If another OS process uses the file, SQLite does not wait here but reports at once that the file is locked.
    import tenacity

    is_locked = tenacity.retry_if_exception(
        lambda error: getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    )
    patience = tenacity.stop_after_delay(BUSY_S)
    for attempt in tenacity.Retrying(retry=is_locked, stop=patience, wait=tenacity.wait_fixed(0.01), reraise=True):
        with attempt:
            connection.execute("PRAGMA journal_mode = WAL")


def _copy(source: sqlite3.Connection, path: Path) -> int:
    """Copy a database to a new file and check the copy; see `SqliteStore.backup`."""
    part = path.with_name(path.name + ".part")
    try:
        if path.exists():
            raise StoreError(f"the copy: expected the path of a new file, got {str(path)!r}, which exists")
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, _OWNERS))
        with closing(sqlite3.connect(part, isolation_level=None)) as copy:
            source.backup(copy)  # in one step, which reads the source as of one moment without blocking writers
            copy.execute("PRAGMA journal_mode = DELETE")  # so that the copy is a single file
            [problem] = copy.execute("PRAGMA quick_check(1)").fetchone()
        if problem != "ok":
            raise StoreError(f"the store is damaged and was not copied: {problem}")
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.rename(path)
        return path.stat().st_size
    except OSError as error:
        raise StoreError(f"the store cannot be copied to {str(path)!r}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


_stores: weakref.WeakSet[SqliteStore | MemoryStore] = weakref.WeakSet()
_opening = threading.Lock()  # held while a store is opened, and during a fork
_forking: list[SqliteStore | MemoryStore] = []  # the stores that wait for the end of a fork


def _before_fork() -> None:
    _opening.acquire()
    _forking.extend(_stores)
    for store in _forking:
        store._before_fork()


def _after_fork(*, is_child: bool) -> None:
    for store in _forking:
        store._after_fork(is_child=is_child)
    _forking.clear()
    _opening.release()


at_fork(
    before=_before_fork,
    after_in_parent=partial(_after_fork, is_child=False),
    after_in_child=partial(_after_fork, is_child=True),
)

"""The file of a `SqliteStore`: its schema, the migrations from older ones, and its connections.

The file, the files that SQLite puts beside it (whose modes follow it) and the folder of locks are readable by their
owner only.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.store import checks
from fsm_agent.store.errors import StoreError

if TYPE_CHECKING:
    import tenacity
else:
    tenacity = deferred("tenacity")

APPLICATION_ID = 0x66736D61  # "fsma"; tells a store from another program's database
PAGE_BYTES = 1024  # a commit writes whole pages: an entry has some 300 bytes; with 512, each would begin a new page
BUSY_S = 30.0  # how long a transaction waits for that of another OS process
IDLE = 8  # connections that stay open
_OLDEST = (3, 37, 0)  # of SQLite, for strict tables
_OWNERS = stat.S_IRUSR | stat.S_IWUSR

# Columns of a run: `due` is as in `Run.due_s`; `queued` is the time since when the run is due, or from which it will
# be.  `until` is the end of the lease, also after it has passed; null: the lease was given back.  `heeds` is as in
# `Rest`.  `asks` has the kinds of open questions, see `Group`.  `unread` counts the posts, so that a rest and a post at
# the same time change the same row.  `given_back` is the `n` of the append that gave the lease back.  The header is
# entry 0.
#
# The `place` of a line has the key of its run in the upper 32 bits and its number in the lower ones.  So an append
# writes one page, that where the lines of its run end, and no page of an index.  It does not write the row of the run
# either: `updated` is the time of the last rest, and while the run has a holder, the time of its last line is newer.
#
# A `predecessor` is a run that has not ended and before which another one is not due; `due` is the time from which that
# one may be due.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE run (
            key INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            agent TEXT NOT NULL,
            n INTEGER NOT NULL,
            state TEXT NOT NULL,
            is_ended INTEGER NOT NULL,
            due REAL,
            queued REAL,
            unread INTEGER NOT NULL,
            fence INTEGER NOT NULL,
            tries INTEGER NOT NULL,
            holder TEXT NOT NULL,
            instance TEXT NOT NULL,
            since REAL NOT NULL,
            until REAL,
            given_back INTEGER NOT NULL,
            created REAL NOT NULL,
            updated REAL NOT NULL
        ) STRICT""",
        "CREATE INDEX run_free ON run (agent, due, queued) WHERE until IS NULL AND due IS NOT NULL",
        "CREATE INDEX run_held ON run (instance, until) WHERE until IS NOT NULL AND due IS NOT NULL",
        "CREATE INDEX run_updated ON run (agent, updated)",
        """CREATE TABLE entry (
            run INTEGER NOT NULL, n INTEGER NOT NULL, line TEXT NOT NULL, PRIMARY KEY (run, n)
        ) STRICT, WITHOUT ROWID""",
        "CREATE TABLE snapshot (run INTEGER PRIMARY KEY, n INTEGER NOT NULL, record BLOB NOT NULL) STRICT",
        """CREATE TABLE question (
            run INTEGER NOT NULL,
            key TEXT NOT NULL,
            kind TEXT NOT NULL,
            about TEXT NOT NULL,
            answers TEXT NOT NULL,
            answered_by TEXT NOT NULL,
            answered REAL,
            PRIMARY KEY (run, key)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX question_open ON question (run) WHERE answered IS NULL",
        """CREATE TABLE post (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            run INTEGER NOT NULL,
            key TEXT NOT NULL,
            body TEXT NOT NULL,
            posted_by TEXT NOT NULL,
            posted REAL NOT NULL
        ) STRICT""",
        "CREATE INDEX post_of_run ON post (run)",
        "CREATE TABLE conversation (name TEXT PRIMARY KEY, version INTEGER NOT NULL, run TEXT NOT NULL) STRICT",
    ),
    (  # an append wrote a page or two of `entry`, one of `run`, and one or two of the index `run_updated`
        "CREATE TABLE journal (place INTEGER PRIMARY KEY, at REAL NOT NULL, line TEXT NOT NULL) STRICT",
        "INSERT INTO journal SELECT (run << 32) + n, 0.0, line FROM entry ORDER BY run, n",
        "DROP TABLE entry",
        "ALTER TABLE run DROP COLUMN n",
        "DROP INDEX run_held",
        "CREATE INDEX run_held ON run (instance, until, due) WHERE until IS NOT NULL",
    ),
    (  # those that go on were looked for among all that have ended
        "ALTER TABLE run ADD COLUMN heeds TEXT",
        "CREATE INDEX run_open ON run (agent) WHERE is_ended = 0",
    ),
    (  # all runs were claimed in the order in which they became due, and all were due when they were created
        "ALTER TABLE run ADD COLUMN priority INTEGER NOT NULL DEFAULT 0",
        "DROP INDEX run_free",
        "CREATE INDEX run_free ON run (agent, priority, due, queued) WHERE until IS NULL AND due IS NOT NULL",
        "DROP INDEX run_held",
        "CREATE INDEX run_held ON run (instance, priority, until, due) WHERE until IS NOT NULL",
        "CREATE INDEX run_new ON run (agent) WHERE fence = 0",
        """CREATE TABLE predecessor (
            before INTEGER NOT NULL, run INTEGER NOT NULL, due REAL NOT NULL, PRIMARY KEY (before, run)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX predecessor_of_run ON predecessor (run)",
    ),
    (  # runs in one state were looked for among all of their agent
        "ALTER TABLE run ADD COLUMN title TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE run ADD COLUMN is_failed INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE run ADD COLUMN asks TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE question ADD COLUMN schema TEXT NOT NULL DEFAULT ''",
        "UPDATE run SET is_failed = is_ended AND state = 'Failed'",
        """UPDATE run SET asks = coalesce((SELECT group_concat(kind, char(10)) FROM (
            SELECT DISTINCT kind FROM question WHERE run = run.key AND answered IS NULL ORDER BY kind
        )), '') WHERE key IN (SELECT run FROM question WHERE answered IS NULL)""",
        "DROP INDEX run_updated",
        "DROP INDEX run_open",
        "CREATE INDEX run_group ON run (agent, is_failed, is_ended, asks, state, updated)",
    ),
    (  # what a claim may be told to choose by, and what those who share a store have spent of a shared limit
        "ALTER TABLE run ADD COLUMN definition TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE run ADD COLUMN concurrency_key TEXT NOT NULL DEFAULT ''",
        """UPDATE run SET definition = coalesce(
            (SELECT iif(json_valid(line), json_extract(line, '$.definition'), '') FROM journal WHERE place = key << 32),
            '') WHERE is_ended = 0""",
        """CREATE TABLE spent (
            name TEXT NOT NULL, at REAL NOT NULL, amount INTEGER NOT NULL, PRIMARY KEY (name, at)
        ) STRICT, WITHOUT ROWID""",
    ),
    (  # who counts the runs that have a holder reads this index alone
        "DROP INDEX run_held",
        """CREATE INDEX run_held ON run (instance, priority, until, due, agent, concurrency_key)
            WHERE until IS NOT NULL""",
    ),
    (  # a post that was repeated was two
        """CREATE TABLE posted (
            run INTEGER NOT NULL, id TEXT NOT NULL, content TEXT NOT NULL, PRIMARY KEY (run, id)
        ) STRICT, WITHOUT ROWID""",
    ),
    (  # a service took up whatever was due, and could not tell the runs that it had begun
        "ALTER TABLE run ADD COLUMN service TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX run_of_service ON run (service, is_ended) WHERE service != ''",
    ),
)


def prepare(path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Create the file or migrate it to the newest version; not thread-safe.

    Args:
        path: The file.
        migrations: The statements that lead to each version from the one before; the first from an empty file.

    Raises:
        StoreError: The file is not a store, is of a newer version, or cannot be opened.
    """
    if sqlite3.sqlite_version_info < _OLDEST:
        raise StoreError(f"SQLite: expected version 3.37 or newer, got {sqlite3.sqlite_version}")
    try:
        _create_private(path)
    except OSError as error:
        raise StoreError(f"the store {str(path)!r} cannot be opened: {error.strerror}") from error
    connection = connect(path)
    try:
        with name_file_in_errors(path):
            _migrate(connection, path, migrations)
    finally:
        connection.close()


def check_file(path: Path) -> None:
    """Check that a file is a store of the newest version, without creating or changing it.

    Raises:
        StoreError: The file does not exist, is not a store, is of another version, or cannot be opened.
    """
    if not path.is_file():
        raise checks.no_store(repr(str(path)))
    connection = connect(path, read_only=True)
    try:
        with name_file_in_errors(path):
            version = _version(connection, path, newest := len(MIGRATIONS))
    finally:
        connection.close()
    if version < newest:
        raise checks.older_store(repr(str(path)), version, newest)


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Return a new connection, for one thread at a time, with explicit transactions.

    Raises:
        StoreError: The file cannot be opened.
    """
    with name_file_in_errors(path):
        only = "mode=ro&immutable=1" if read_only and _is_immutable(path) else "mode=ro"
        where = f"{path.as_uri()}?{only}" if read_only else path
        connection = sqlite3.connect(
            where, uri=read_only, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = ON")  # on macOS, where an fsync alone does not reach the disk
        except BaseException:
            connection.close()
            raise
        return connection


def _is_immutable(path: Path) -> bool:
    """Return whether a file is on a disk that is read only, and complete.

    SQLite needs no file beside it then, which it could not make there.  One with entries means that the file alone is
    not the whole store, or that it is written to from elsewhere.
    """
    if not hasattr(os, "statvfs"):  # on Windows
        return False
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY) and not path.with_name(f"{path.name}-wal").exists()
    except OSError:
        return False


def copy_file(source: sqlite3.Connection, path: Path) -> int:
    """Copy a database to a new file, and check the copy; return how many bytes it has.

    Raises:
        StoreError: The file exists or cannot be written, or the database is damaged.
    """
    part = path.with_name(path.name + ".part")
    try:
        if path.exists():
            raise StoreError(f"the copy: expected the path of a new file, got {str(path)!r}, which exists")
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, _OWNERS))
        with name_file_in_errors(part), closing(sqlite3.connect(part, isolation_level=None)) as copy:
            source.backup(copy)  # in one step, in which the source is read as of one moment; writers do not wait for it
            copy.execute("PRAGMA journal_mode = DELETE")  # so that the copy is this one file
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


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite as a `StoreError` that names the file."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter when it quotes a damaged file
        raise StoreError(f"the store {str(path)!r} failed: {error}") from error


def _create_private(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _OWNERS)
    except FileExistsError:
        if not path.is_file():
            raise OSError(errno.EINVAL, "expected a regular file, got a device or a folder") from None
        for suffix in ("", "-wal", "-shm"):
            _make_private(path.with_name(path.name + suffix))
    else:
        # Only a new file may be closed here: to close a file frees all locks that the OS process has on it, including
        # SQLite's, and no connection to a new file is open yet.
        os.close(descriptor)


def _make_private(path: Path) -> None:
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & ~_OWNERS:
            path.chmod(mode & _OWNERS)


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]]) -> None:
    newest = len(migrations)
    connection.execute("BEGIN")  # so that both pragmas are read at the same moment
    version = _version(connection, path, newest)
    connection.execute("COMMIT")
    if version == newest:
        return
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # has an effect on a new file only
    _keep_a_log(connection)
    connection.execute("BEGIN IMMEDIATE")
    version = _version(connection, path, newest)  # another OS process may have migrated it meanwhile
    for statements in migrations[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {newest}")
    connection.execute("COMMIT")


def _keep_a_log(connection: sqlite3.Connection) -> None:
    """Switch the file to a write-ahead log."""
    # SQLite does not wait here when another OS process uses the file: it reports at once that the file is locked.
    is_locked = tenacity.retry_if_exception(
        lambda error: getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    )
    patience = tenacity.stop_after_delay(BUSY_S)
    for attempt in tenacity.Retrying(retry=is_locked, stop=patience, wait=tenacity.wait_fixed(0.01), reraise=True):
        with attempt:
            connection.execute("PRAGMA journal_mode = WAL")


def _version(connection: sqlite3.Connection, path: Path, newest: int) -> int:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [application] = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID and connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
        raise StoreError(f"{str(path)!r}: expected a store, got the database of another program; use a file of its own")
    if version > newest:
        raise checks.newer_store(repr(str(path)), version, newest)
    return int(version)


class Connections:
    """A pool of connections to one file, each lent to one thread at a time; none crosses a fork.  Thread-safe.

    SQLite remembers per OS process what it has locked.  A forked process inherits that memory, but not the locks, so
    neither an inherited connection nor a new one beside it could be trusted there.  A fork therefore waits until all
    connections are returned, and closes them.

    Args:
        connect: Returns a new connection.
        closed: Returns the error for a request after `close`.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], closed: Callable[[], Exception]) -> None:
        self._connect = connect
        self._closed = closed
        self._changed = threading.Condition()
        self._idle: list[sqlite3.Connection] = []
        self._lent = 0
        self._forks = 0  # under way
        self.is_closed = False
        # Those of a store that was not closed would warn, from Python 3.13 on.  A `__del__` may come after theirs where
        # both are in one cycle, as after an exception; this comes before.
        weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def one(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection; roll back a transaction that is open at the end."""
        with self._changed:
            while self._forks:
                self._changed.wait()
            if self.is_closed:
                raise self._closed()
            self._lent += 1
            connection = self._idle.pop() if self._idle else None
        try:
            if connection is None:
                connection = self._connect()
            yield connection
        finally:
            self._take_back(connection)

    def close(self) -> None:
        """Close all connections, lent ones when they are returned; safe to repeat."""
        with self._changed:
            self.is_closed = True
            _close_all(self._idle)

    def before_fork(self) -> None:
        """Wait until all connections are returned, close them, and lend none until the fork is over."""
        with self._changed:
            self._forks += 1
            while self._lent:
                self._changed.wait()
            _close_all(self._idle)

    def after_fork(self) -> None:
        """Lend connections again, in the parent of a fork."""
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()

    def _take_back(self, connection: sqlite3.Connection | None) -> None:
        is_usable = False
        try:
            if connection is not None and connection.in_transaction:
                connection.rollback()
            is_usable = connection is not None
        finally:
            with self._changed:
                if connection is not None:
                    if is_usable and not self.is_closed and not self._forks and len(self._idle) < IDLE:
                        self._idle.append(connection)
                    else:
                        connection.close()
                self._lent -= 1
                if self._forks:
                    self._changed.notify_all()


def _close_all(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()

"""A store in a file of SQLite: thousands of runs, driven by any number of OS processes on one machine.

Reads use a pool of connections; one thread does the writes (see `GroupCommit`).  Each commit is synced to a write-ahead
log, so it survives a crash of the OS process or of the machine.  A store may be used by many threads, and on both sides
of a fork.
"""

from __future__ import annotations

import builtins
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.forks import at_fork
from fsm_agent._internal.with_options_shown import with_options_shown
from fsm_agent.errors import UsageError
from fsm_agent.messages.question import Question
from fsm_agent.store.changes import ChangeNotifier, wait_limit_s
from fsm_agent.store.checks import (
    check_append,
    check_claim,
    check_conversation,
    check_create,
    check_for_s,
    check_path,
    check_post,
    check_post_id,
    check_questions,
    check_run,
    result_or_loss,
)
from fsm_agent.store.errors import LeaseLost, ReadOnly, StoreClosed, StoreError
from fsm_agent.store.group_commit import GroupCommit
from fsm_agent.store.holders import HolderLiveness
from fsm_agent.store.listing import wanted
from fsm_agent.store.sqlite import sqlite_runs as runs
from fsm_agent.store.sqlite.sqlite_file import Connections, check_file, connect, copy_file, name_file_in_errors, prepare
from fsm_agent.store.store import Head, Lease, Loaded, Page, Rest, Run, RunCount, RunFilter, RunsHealth, Start

if TYPE_CHECKING:
    from typing import Unpack

Write = Callable[[sqlite3.Connection], Any]


class SqliteStore:
    """A store in one file; see `Store` for its methods.

    Beside the file are those of SQLite (``-wal``, ``-shm``) and a folder of locks (``.holders``).  All are readable by
    their owner only.

    Args:
        path: The file, on a local disk.
        clock: Returns the Unix time.
        read_only: The file is neither created nor written, so it has to be there, in the version of this release; to
            write raises `ReadOnly`.  SQLite may still put its own two files beside it.

    Raises:
        StoreError: The file is not a store, is of a newer version, or cannot be opened.

    Examples:
        >>> store = SqliteStore("runs.db")
        >>> Agent(Script("Hi."), name="host", store=store).call("Hello", run_id="r1").output
        'Hi.'
        >>> store.close()
    """

    is_volatile = False

    def __init__(
        self, path: str | os.PathLike[str], clock: Callable[[], float] = time.time, *, read_only: bool = False
    ) -> None:
        if os.fspath(path) in ("", ":memory:"):
            raise UsageError(
                f"the path of a store: expected a file, got {os.fspath(path)!r}; use MemoryStore() for runs in memory"
            )
        check_path(path)
        self._path = Path(path).absolute()
        self._clock = clock
        self.has_own_clock = clock is not time.time
        self._is_read_only = read_only
        with _opening:
            check_file(self._path) if read_only else prepare(self._path)
            self._open()
            _stores.add(self)

    def _open(self) -> None:
        """Make the connections, locks and threads, which each OS process has for itself."""
        connected = partial(connect, self._path, read_only=self._is_read_only)
        self._connections = Connections(connected, self._closed_error)
        self._watching = Connections(connected, self._closed_error)
        self._writer = GroupCommit[Write](self._commit, self._closed_error)
        self._changes = ChangeNotifier(self._version)
        self._holders = HolderLiveness(self._path.with_name(self._path.name + ".holders"))
        self._looked = threading.local()  # `vain`: the arguments of the thread's last claim that found nothing

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
        instance = "" if holder is None else self._holders.instance(self._has_leases)

        def write(connection: sqlite3.Connection) -> Lease | bool | None:
            now_s = self._clock()
            is_new = runs.create(connection, run, header, agent, title, follows, starts, now_s)
            if not is_new or holder is None:
                return is_new
            return runs.take(connection, runs.Claim(holder, for_s, run, (), now_s, now_s, frozenset()), instance)

        begun: Lease | bool = self._writer.run(write)
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
        definitions: Sequence[str] | None = None,
    ) -> Lease | None:
        check_claim(holder, for_s, run, agents)
        self._check_writable()
        changes = self._changes.count()

        def wish() -> runs.Claim:
            clock_s = self._clock()
            due_s = clock_s if now_s is None else now_s
            chosen = None if definitions is None else tuple(definitions)
            return runs.Claim(holder, for_s, run, tuple(agents), due_s, clock_s, dead, chosen)

        with self._read_transaction() as connection:  # a worker that finds nothing to do does not delay the writers
            dead = self._dead_instances(connection, run)
            looked = wish()
            is_found = runs.find(connection, looked) is not None
        lease: Lease | None = None
        if is_found:
            instance = self._holders.instance(self._has_leases)
            lease = self._writer.run(lambda connection: runs.take(connection, wish(), instance))
        if lease is None:
            self._looked.vain = changes, looked.agents, looked.due_s, looked.now_s
        return lease

    def renew(self, lease: Lease, *, for_s: float) -> int:
        check_for_s(for_s)
        unread: int = self._writer.run(lambda connection: runs.renew(connection, lease, self._clock() + for_s))
        return unread

    def renew_all(self, leases: Sequence[Lease], *, for_s: float) -> Sequence[int | LeaseLost]:
        check_for_s(for_s)

        def write(connection: sqlite3.Connection) -> Sequence[int | LeaseLost]:
            until_s = self._clock() + for_s
            return [result_or_loss(runs.renew, connection, lease, until_s) for lease in leases]

        renewed: Sequence[int | LeaseLost] = self._writer.run(write)
        return renewed

    def unread(self, names: Sequence[str]) -> Collection[str]:
        with self._read_transaction() as connection:
            return runs.unread(connection, names)

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
        unread: int = self._writer.run(self._append(lease, n, lines, rest, took, snapshot))
        if rest is not None:
            self._changes.add()
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
        future: Future[int] = self._writer.submit(self._append(lease, n, lines, rest, took, snapshot))
        if rest is not None:
            future.add_done_callback(lambda _: self._changes.add())
        return future

    def _append(
        self,
        lease: Lease,
        n: int,
        lines: Sequence[str],
        rest: Rest | None,
        took: Sequence[int],
        snapshot: bytes | None,
    ) -> Write:
        rest = check_append(lines, rest)
        new = runs.Append(lease, n, tuple(lines), rest, tuple(took), snapshot)
        return lambda connection: runs.append(connection, new, self._clock())

    def load(self, run: str, *, after: int | None = 0) -> Loaded:
        check_run(run)
        with self._read_transaction() as connection:
            return runs.load(connection, run, after, self._clock())

    def ask(self, lease: Lease, questions: Sequence[Question]) -> None:
        check_questions(questions)
        self._writer.run(lambda connection: runs.ask(connection, lease, questions))
        self._changes.add()

    def post(self, run: str, key: str, body: str, *, by: str = "", post_id: str = "", content: str = "") -> None:
        check_post(run, key, body, by, post_id)
        new = runs.NewPost(run, key, body, by, post_id, content or body)
        self._writer.run(lambda connection: runs.post(connection, new, self._clock()))
        self._changes.add()

    def posted(self, run: str, post_id: str) -> str | None:
        check_run(run)
        check_post_id(post_id)
        with self._read_transaction() as connection:
            return runs.posted(connection, run, post_id)

    def get(self, run: str) -> Run:
        check_run(run)
        with self._read_transaction() as connection:
            return runs.get(connection, run, self._clock())

    @with_options_shown("fsm_agent.store.store:RunFilter")
    def list(self, *, after: str | None = None, limit: int = 100, **which: Unpack[RunFilter]) -> Page:
        asked = wanted(after, limit, which)
        with self._read_transaction() as connection:
            return runs.select(connection, asked, self._clock())

    def stats(self) -> builtins.list[RunCount]:
        with self._read_transaction() as connection:
            return runs.stats(connection)

    def health(self) -> RunsHealth:
        with self._read_transaction() as connection:
            return runs.health(connection, self._clock(), self._dead_instances(connection, None))

    def head(self, conversation: str) -> Head:
        check_conversation(conversation)
        with self._read_transaction() as connection:
            return runs.head(connection, conversation)

    def delete(self, run: str) -> None:
        check_run(run)
        self._check_writable()
        with self._read_transaction() as connection:
            dead = self._dead_instances(connection, run)
        self._writer.run(lambda connection: runs.delete(connection, run, self._clock(), dead))
        self._changes.add()

    def wait(self, timeout_s: float) -> None:
        now_s = self._clock()
        changes, agents, due_s, looked_s = getattr(self._looked, "vain", None) or (None, (), now_s, now_s)
        self._looked.vain = None
        if changes is None:
            changes = self._changes.count()
        with self._read_transaction() as connection:
            next_s = runs.next_due_s(connection, agents, due_s, looked_s)
        timeout_s = wait_limit_s(timeout_s, next_s, due_s, looked_s, self._clock())
        self._changes.wait(changes, timeout_s)

    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        self._changes.wait(seen, timeout_s)
        return self._changes.count()

    def backup(self, path: str | os.PathLike[str]) -> int:
        """Copy the store as it is at one moment to another file, while others write; return how many bytes it has.

        The copy is a store, readable by its owner only, and has all that was committed before.  Leases are in it, too;
        they end at their time, or when it is opened by the first worker.

        Args:
            path: The file, which must not exist.

        Raises:
            StoreError: The file exists or cannot be written, or the store is damaged.
        """
        check_path(path)
        with self._connections.one() as connection, name_file_in_errors(self._path):
            return copy_file(connection, Path(path).absolute())

    def close(self) -> None:
        """Finish submitted work, and close files and connections; safe to repeat."""
        self._writer.close()
        if not self._connections.is_closed:
            self._holders.end(self._has_leases)
        self._connections.close()
        self._watching.close()

    def _before_fork(self) -> None:
        for connections in (self._connections, self._watching):
            connections.before_fork()

    def _after_fork(self) -> None:
        for connections in (self._connections, self._watching):
            connections.after_fork()

    def _reopen_after_fork(self) -> None:
        """Make connections, locks and threads in a forked process: it has none of its parent's."""
        is_closed = self._connections.is_closed
        self._holders.abandon()
        self._open()
        if is_closed:
            self.close()

    def _check_writable(self) -> None:
        if self._is_read_only:
            raise ReadOnly(str(self._path))

    def _closed_error(self) -> StoreError:
        return StoreClosed(str(self._path))

    @contextmanager
    def _read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection in a read transaction, which sees the store as it is at its beginning."""
        with self._connections.one() as connection, name_file_in_errors(self._path):
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")

    def _commit(self, writes: Sequence[Write]) -> Sequence[Any]:
        """Do all writes in one transaction; see `GroupCommit`."""
        self._check_writable()
        with self._connections.one() as connection, name_file_in_errors(self._path):
            connection.execute("BEGIN IMMEDIATE")
            if len(writes) == 1:
                outcomes = [writes[0](connection)]
            else:
                outcomes = [self._try(connection, write) for write in writes]
            connection.execute("COMMIT")
        return outcomes

    def _try(self, connection: sqlite3.Connection, write: Write) -> Any:
        """Do one write of many; if it is refused, undo it alone and return its exception."""
        connection.execute("SAVEPOINT write")
        try:
            with name_file_in_errors(self._path):
                return write(connection)
        except Exception as error:
            if not connection.in_transaction:  # SQLite has rolled back all of it: the disk is full, for instance
                raise
            connection.execute("ROLLBACK TO write")
            return error
        finally:
            if connection.in_transaction:
                connection.execute("RELEASE write")

    def _version(self) -> object:
        with self._watching.one() as connection, name_file_in_errors(self._path):
            return connection, connection.execute("PRAGMA data_version").fetchone()

    def _dead_instances(self, connection: sqlite3.Connection, run: str | None) -> frozenset[str]:
        return frozenset(filter(self._holders.is_dead, runs.instances(connection, run)))

    def _has_leases(self, instance: str) -> bool:
        with self._read_transaction() as connection:
            return runs.has_leases(connection, instance)


_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_opening = threading.Lock()  # held while a store is opened, and during a fork
_forking: list[SqliteStore] = []  # the stores that wait for the end of a fork


def _before_fork() -> None:
    _opening.acquire()
    _forking.extend(_stores)
    for store in _forking:
        store._before_fork()


def _after_fork_in_parent() -> None:
    for store in _forking:
        store._after_fork()
    _after_fork()


def _after_fork_in_child() -> None:
    for store in _forking:
        store._reopen_after_fork()
    _after_fork()


def _after_fork() -> None:
    _forking.clear()
    _opening.release()


at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)

"""A pool of connections to an SQLite file, each lent to one thread at a time; none crosses a fork.

SQLite remembers per OS process what it has locked.  A forked process inherits that memory, but not the locks, so
neither an inherited connection nor a new one beside it could be trusted there.  A fork therefore waits until all
connections are returned, and closes them.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

IDLE = 8  # connections that stay open


class Connections:
    """A pool of connections to one file; thread-safe.

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

    def __del__(self) -> None:
        """Close idle connections of a store that was not closed; from Python 3.13 on, they would warn."""
        self._close_idle()

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
            self._close_idle()

    def before_fork(self) -> None:
        """Wait until all connections are returned, close them, and lend none until the fork is over."""
        with self._changed:
            self._forks += 1
            while self._lent:
                self._changed.wait()
            self._close_idle()

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

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

"""Connections to an SQLite file, each lent to one thread at a time; none crosses a fork.

SQLite knows by OS process what it has locked.  A forked one inherits that knowledge, but no locks: neither an inherited
connection nor a new one beside it could be trusted there.  So a fork waits until all are returned, and closes them.
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
        closed: Returns the error for whoever wants one after `close`.
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
        """Close what stays open when nobody closes the store: from Python 3.13 on, connections warn of that."""
        self._close_idle()

    @contextmanager
    def one(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection; a transaction that is open at the end is rolled back."""
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
        """Close all connections, those that are lent when they are returned; safe to repeat."""
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
        """Lend connections again, in the OS process that has forked."""
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

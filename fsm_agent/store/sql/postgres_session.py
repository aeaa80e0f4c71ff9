"""The session of a store: a connection that hears of changes, and whose death ends the leases of the store.

It holds an advisory lock, which Postgres frees when the session ends, however the OS process dies.  Both are
optimisations.  Behind a pooler of transactions there is no session of one's own: the lock would be that of a connection
that the pooler may close, which would end the leases of a living process.  So none is begun there; leases end at their
time, and a waiting thread looks every `POLL_S` seconds.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.lazy_import import deferred

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = deferred("psycopg")

LOCKS = 0x66736D61  # "fsma": the first half of the lock of each session, and of the name of nothing else
POLL_S = 0.5  # how often the server is asked for a session when it is away, or still sees the one before
_READY_S = 5.0  # how long the first lease waits for the session


def channel_of(schema: str) -> str:
    """Return the channel on which it is told that runs of a schema are due."""
    return f"fsm_agent_{schema}"


def rests_channel(channel: str) -> str:
    """Return the channel on which it is told that runs were given back."""
    return f"{channel}_rest"


class Session:
    """A connection of its own with a thread that listens on it; thread-safe.

    Args:
        conninfo: What libpq is told.
        channel: Where it is told that runs are due; those that were given back are told on `rests_channel` of it.
        is_possible: False: there is a pooler of transactions; no session is begun.
    """

    def __init__(self, conninfo: str, channel: str, *, is_possible: bool = True) -> None:
        self._is_possible = is_possible
        self._conninfo = conninfo
        self._channel = channel
        self._number = secrets.randbelow(2**31 - 1) + 1
        self._changed = threading.Condition()
        self._count = 0
        self._rests = 0
        self._is_locked = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._awake, self._waker = socket.socketpair()  # ends a wait for the server

    def instance(self) -> str:
        """Return the number under which the leases of this store are taken; empty: nothing shares its life."""
        with self._changed:
            self._start()
            if self._is_possible:
                self._changed.wait_for(lambda: self._is_locked or self._is_closed, _READY_S)
            return str(self._number) if self._is_locked else ""

    def count(self) -> int:
        """Return the number of changes heard so far."""
        with self._changed:
            self._start()
            return self._count

    def add(self) -> None:
        """Do nothing: the server tells this session of its own changes, too."""

    def wait(self, count: int, timeout_s: float) -> bool:
        """Wait until the count is no longer ``count``; return False after ``timeout_s`` seconds without a change."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count != count or self._is_closed, max(0.0, timeout_s))

    def close(self) -> None:
        """End the session, and the leases that share its life; safe to repeat."""
        with self._changed:
            is_first, self._is_closed = not self._is_closed, True
            self._changed.notify_all()
            thread = self._thread
        if is_first:
            self._waker.close()
            if thread is not None:
                thread.join()
            self._awake.close()

    def _start(self) -> None:
        if self._thread is None and self._is_possible and not self._is_closed:
            self._thread = threading.Thread(target=self._run, daemon=True, name="fsm_agent postgres session")
            self._thread.start()

    def _run(self) -> None:
        while not self._is_closed:
            try:
                with psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None) as connection:
                    self._listen(connection)
            except psycopg.Error:
                with self._changed:
                    self._is_locked = False
                time.sleep(0.0 if self._is_closed else POLL_S)  # the server is away

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"LISTEN {self._channel}; LISTEN {rests_channel(self._channel)}")
        self._hear()  # something may have changed before
        with selectors.DefaultSelector() as selector:
            for readable in (connection, self._awake):
                selector.register(readable, selectors.EVENT_READ)
            while not self._is_closed:
                if not self._is_locked:  # after a cut, the server may still see the session before
                    found = connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (LOCKS, self._number)).fetchone()
                    with self._changed:
                        self._is_locked = bool(found and found[0])
                        self._changed.notify_all()
                selector.select(None if self._is_locked else POLL_S)
                for told in connection.notifies(timeout=0):
                    self._hear(is_rest=told.channel != self._channel)

    def _hear(self, *, is_rest: bool = False) -> None:
        with self._changed:
            self._count += not is_rest
            self._rests += is_rest
            self._changed.notify_all()

    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        """Wait until the number of rests is no longer ``seen``, for at most ``timeout_s`` seconds; return it."""
        with self._changed:
            self._start()
            self._changed.wait_for(lambda: self._rests != seen or self._is_closed, max(0.0, timeout_s))
            return self._rests

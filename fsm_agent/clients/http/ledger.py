"""Bookkeeping of a connection pool: open connections, idle ones, and the queue of waiting requests.

Asyncio and threads share it.  It neither blocks nor locks: a pool of threads calls it under its lock.

Nothing is counted.  A connection takes a slot for as long as it exists: idle ones are referenced here, the others only
by their users.  So no slot can leak, not even when Ctrl-C strikes between any two steps: a connection without
references is gone, and its slot is free.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Generic, Protocol, TypeVar
from weakref import WeakSet

from fsm_agent.clients.http.prepared_request import Origin

MAX_CONNECTIONS = 1000  # at once
IDLE_S = 30.0  # for an unused connection to stay open


class Lendable(Protocol):
    """A connection of a pool.

    Attributes:
        origin: The server it connects to.
        idle_since_s: When it was last given back, monotonic.
    """

    origin: Origin
    idle_since_s: float

    def is_alive(self) -> bool:
        """Return False if the peer has closed the connection or sent unsolicited bytes since it became idle."""

    def settle(self) -> bool:
        """Return True if the connection may serve another request; the last response is no longer read."""

    def hang_up(self, reason: str) -> None:
        """Close the connection; its current request fails with ``reason``."""

    def close(self) -> None:
        """Close the connection; for its user, or while it is idle."""


C = TypeVar("C", bound=Lendable)
C_contra = TypeVar("C_contra", bound=Lendable, contravariant=True)


class Waiter(Protocol[C_contra]):
    """An entry in the queue."""

    origin: Origin

    @property
    def is_waiting(self) -> bool:
        """True while a request waits on this entry."""

    def grant(self, connection: C_contra) -> None:
        """Take a connection, which may have to be opened still."""

    def end(self) -> None:
        """End the wait: the pool is closed."""


class Ledger(Generic[C]):
    """The connections of a pool and the queue for them.

    Args:
        new: Makes a connection that is not open yet.
        max_connections: At once.
        idle_s: Seconds that an unused connection stays open.
    """

    def __init__(self, new: Callable[[Origin], C], *, max_connections: int, idle_s: float) -> None:
        self._new = new
        self._max = max_connections
        self._idle_s = idle_s
        self._idle = dict[Origin, deque[C]]()  # the one used last is last
        self._turns = deque[Waiter[C]]()
        self._pid = os.getpid()
        self.connections = WeakSet[C]()
        self.is_closed = False

    @property
    def is_inherited(self) -> bool:
        """True in a forked child: everything here belongs to the parent process."""
        return self._pid != os.getpid()

    def borrow(self, origin: Origin) -> C | None:
        """Return the idle connection that was used last, or a new one; None if the request has to wait.

        Raises:
            RuntimeError: The pool is closed.
        """
        if self.is_closed:
            raise RuntimeError("the pool is closed")
        self.expire()
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.is_alive():
                return connection
            self._drop(connection)
        if len(self.connections) < self._max or self._drop_idle():
            return self._add(origin)
        return None

    def wait(self, turn: Waiter[C]) -> None:
        """Add ``turn`` to the queue."""
        self._turns.append(turn)

    def leave(self, turn: Waiter[C]) -> None:
        """Leave the queue; safe to repeat."""
        if turn in self._turns:
            self._turns.remove(turn)

    def give_back(self, connection: C) -> None:
        """Take back an unused connection; close it unless it can serve another request."""
        if self.is_inherited:
            return
        was_counted = connection in self.connections
        is_good = was_counted and not self.is_closed and connection.settle()
        if not is_good:
            self._drop(connection)
        turn = self._next_turn() if was_counted else None
        if turn is None:
            if is_good:
                connection.idle_since_s = monotonic()
                self._idle.setdefault(connection.origin, deque()).append(connection)
        elif is_good and turn.origin == connection.origin and connection.is_alive():
            turn.grant(connection)
        else:
            turn.grant(self.replace(connection, turn.origin))

    def replace(self, connection: C, origin: Origin) -> C:
        """Close a connection, and return a new one in its place."""
        self._drop(connection)
        return self._add(origin)

    def expire(self) -> None:
        """Close connections that have been idle for too long."""
        since_s = monotonic() - self._idle_s
        for idle in self._idle.values():
            while idle and idle[0].idle_since_s <= since_s:
                self._drop(idle.popleft())

    def expires_in_s(self) -> float | None:
        """Return the seconds until the next idle connection expires; None if there is none."""
        oldest_s = min([idle[0].idle_since_s for idle in self._idle.values() if idle], default=None)
        return None if oldest_s is None else max(0.0, oldest_s + self._idle_s - monotonic())

    def close(self) -> None:
        """Close all connections, end all waits, and lend no more."""
        self.is_closed = True
        for idle in self._idle.values():
            while idle:
                self._drop(idle.popleft())
        while self._turns:
            self._turns.popleft().end()
        for connection in self.connections:
            connection.hang_up("the client was closed")

    def _add(self, origin: Origin) -> C:
        connection = self._new(origin)
        self.connections.add(connection)
        return connection

    def _drop(self, connection: C) -> None:
        self.connections.discard(connection)
        connection.close()

    def _drop_idle(self) -> bool:
        """Close an idle connection of any origin to free its slot."""
        for idle in self._idle.values():
            if idle:
                self._drop(idle.popleft())
                return True
        return False

    def _next_turn(self) -> Waiter[C] | None:
        while self._turns:
            turn = self._turns.popleft()
            if turn.is_waiting:
                return turn
        return None

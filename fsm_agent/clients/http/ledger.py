"""Bookkeeping of a pool: which connections there are, which are idle, and who waits for one.

Asyncio and threads share it.  It waits for nothing and locks nothing: a pool of threads calls it under its lock.

Nothing is counted.  A connection takes a place for as long as it exists: the idle ones are held here, the others only
by whoever uses them.  So a place cannot be lost, not even when Ctrl-C strikes between any two steps: what nobody holds
any more is gone, and its place is free.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Generic, Protocol, TypeVar
from weakref import WeakSet

from fsm_agent.clients.http.request import Origin


class Lendable(Protocol):
    """A connection of a pool.

    Attributes:
        origin: Whom it is to.
        idle_since_s: When it was last given back, monotonic.
    """

    origin: Origin
    idle_since_s: float

    def is_alive(self) -> bool:
        """Return whether the peer has neither hung up nor sent anything unasked since it became idle."""

    def settle(self) -> bool:
        """Return whether it may serve another request, now that nobody reads the response to the last one."""

    def hang_up(self, reason: str) -> None:
        """End it for whoever uses it, who gets an error with ``reason``."""

    def close(self) -> None:
        """End it; for whoever uses it, or when nobody does."""


C = TypeVar("C", bound=Lendable)
C_contra = TypeVar("C_contra", bound=Lendable, contravariant=True)


class Turn(Protocol[C_contra]):
    """A place in the queue."""

    origin: Origin

    @property
    def is_waiting(self) -> bool:
        """Somebody is still there."""

    def grant(self, connection: C_contra) -> None:
        """Take a connection, perhaps one that is to be opened."""

    def end(self) -> None:
        """Wait no longer: the pool is closed."""


class Ledger(Generic[C]):
    """The connections of a pool.

    Args:
        new: Makes a connection that is to be opened.
        max_connections: At once.
        idle_s: How long a connection that nobody uses stays open.
    """

    def __init__(self, new: Callable[[Origin], C], *, max_connections: int, idle_s: float) -> None:
        self._new = new
        self._max = max_connections
        self._idle_s = idle_s
        self._idle = dict[Origin, deque[C]]()  # the one used last is last
        self._turns = deque[Turn[C]]()
        self._pid = os.getpid()
        self.connections = WeakSet[C]()
        self.is_closed = False

    @property
    def is_inherited(self) -> bool:
        """All of this belongs to the process from which this one was forked."""
        return self._pid != os.getpid()

    def borrow(self, origin: Origin) -> C | None:
        """Return the idle connection that was used last, or a new one; None: one has to wait.

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

    def wait(self, turn: Turn[C]) -> None:
        """Queue up."""
        self._turns.append(turn)

    def leave(self, turn: Turn[C]) -> None:
        """Leave the queue; safe to repeat."""
        if turn in self._turns:
            self._turns.remove(turn)

    def give_back(self, connection: C) -> None:
        """Take a connection over which nobody sends or reads any more; close it unless it can serve another request."""
        if self.is_inherited:
            return
        had_place = connection in self.connections
        is_good = had_place and not self.is_closed and connection.settle()
        if not is_good:
            self._drop(connection)
        turn = self._next_turn() if had_place else None
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
        """Close what has been idle for too long."""
        since_s = monotonic() - self._idle_s
        for idle in self._idle.values():
            while idle and idle[0].idle_since_s <= since_s:
                self._drop(idle.popleft())

    def expires_in_s(self) -> float | None:
        """Return when the next connection will have been idle for too long, seconds from now; None: there is none."""
        oldest_s = min([idle[0].idle_since_s for idle in self._idle.values() if idle], default=None)
        return None if oldest_s is None else max(0.0, oldest_s + self._idle_s - monotonic())

    def close(self) -> None:
        """Close what is idle, lend nothing more, and hang up on whoever uses a connection or waits for one."""
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
        """Make room by closing a connection that is idle, of whatever origin."""
        for idle in self._idle.values():
            if idle:
                self._drop(idle.popleft())
                return True
        return False

    def _next_turn(self) -> Turn[C] | None:
        while self._turns:
            turn = self._turns.popleft()
            if turn.is_waiting:
                return turn
        return None

"""The queue of a store in memory: find the run of the highest priority that has been due longest.

No search looks at all runs.

A run has at most one valid *ticket* in the heaps.  A move gives it a new ticket and leaves the old one in its heap,
since to find an item in a heap takes as long as to read the heap.  Stale tickets are dropped when they come to the top,
or all at once when they outnumber the valid ones.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Generic, Protocol, TypeAlias, TypeVar

_Kind: TypeAlias = tuple[int, str]  # a priority, and the fingerprint of the code that began runs


class Queued(Protocol):
    """A run as the queue sees it."""

    agent: str
    priority: int
    definition: str  # the fingerprint of the code that began it
    is_ended: bool
    ticket: int  # the valid one; 0: none
    until_s: float | None  # Unix time at which its lease ends; None: it has no holder


R = TypeVar("R", bound=Queued)

_FEW = 64  # the number of tickets up to which stale ones are left alone
_tickets = itertools.count(1)


class _Heap(Generic[R]):
    """A heap of runs by a time, the earliest first."""

    __slots__ = ("_many", "_tickets")

    def __init__(self) -> None:
        self._tickets: list[tuple[float, int, R]] = []
        self._many = _FEW

    def push(self, at_s: float, run: R) -> None:
        run.ticket = ticket = next(_tickets)
        heapq.heappush(self._tickets, (at_s, ticket, run))
        if len(self._tickets) > self._many:
            self._tickets = [entry for entry in self._tickets if entry[1] == entry[2].ticket]
            heapq.heapify(self._tickets)
            self._many = max(_FEW, 2 * len(self._tickets))

    def first(self) -> tuple[float, int, R] | None:
        """Return the earliest valid ticket."""
        tickets = self._tickets
        while tickets:
            if (first := tickets[0])[1] == first[2].ticket:
                return first
            heapq.heappop(tickets)
        return None

    def valid(self) -> Iterator[tuple[float, R]]:
        """Yield the times and runs of the valid tickets, in no order."""
        return ((at_s, run) for at_s, ticket, run in self._tickets if ticket == run.ticket)

    def first_after(self, at_s: float) -> float | None:
        """Return the earliest time after ``at_s``."""
        if (first := self.first()) is None or first[0] > at_s:
            return first[0] if first is not None else None
        later = [entry[0] for entry in self._tickets if entry[0] > at_s and entry[1] == entry[2].ticket]
        return min(later, default=None)


class _Waiting(Generic[R]):
    """The runs of one agent and one priority without a holder that are due, or will be at a known time."""

    __slots__ = ("later", "now")

    def __init__(self) -> None:
        self.now = _Heap[R]()  # by the time since when they are due
        self.later = _Heap[R]()

    @property
    def is_empty(self) -> bool:
        return self.now.first() is None and self.later.first() is None


class DueQueue(Generic[R]):
    """The runs that are due or will be, and those with a holder.  Not thread-safe."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, defaultdict[_Kind, _Waiting[R]]] = defaultdict(lambda: defaultdict(_Waiting))
        # By the ends of their leases when they were pushed.  A renewal moves no ticket; `_end_leases` pushes a renewed
        # run again when the old end comes.
        self._held = _Heap[R]()

    def make_due(self, run: R, since_s: float) -> None:
        """Make a run without a holder due at once."""
        self._waiting[run.agent][run.priority, run.definition].now.push(since_s, run)

    def make_due_at(self, run: R, due_s: float) -> None:
        """Make a run without a holder due from ``due_s`` on."""
        self._waiting[run.agent][run.priority, run.definition].later.push(due_s, run)

    def hold(self, run: R, until_s: float) -> None:
        """Make a run due when its lease ends, unless it is given back or renewed before."""
        self._held.push(until_s, run)

    def longest_due(
        self, agents: Iterable[str], now_s: float, due_s: float, definitions: Collection[str] | None = None
    ) -> R | None:
        """Return the run without a holder of the highest priority that has been due longest.

        Args:
            agents: Only runs of these agents; empty: of all.
            now_s: Unix time by which leases have ended.
            due_s: Unix time at which runs have to be due.
            definitions: Only runs that were begun by code with one of these fingerprints; None: by any code.
        """
        self._end_leases(now_s)
        best: tuple[int, float, int, R] | None = None
        for agent in agents or list(self._waiting):
            for kind, waiting in [*self._waiting[agent].items()] if agent in self._waiting else ():
                priority, definition = kind
                if waiting.is_empty:
                    del self._waiting[agent][kind]
                elif definitions is not None and definition not in definitions:
                    continue
                first = self._first_free(waiting.now, now_s)
                if first is not None and (best is None or (-priority, *first) < best):
                    best = -priority, *first
                first = waiting.later.first()
                if first is not None and first[0] <= due_s and (best is None or (-priority, *first) < best):
                    best = -priority, *first
        return best[3] if best is not None else None

    def due_since(self, now_s: float) -> list[float]:
        """Return since when each run without a holder is due that is due now."""
        self._end_leases(now_s)
        found: list[float] = []
        for waiting in [runs for kinds in self._waiting.values() for runs in kinds.values()]:
            now = [(at_s if run.until_s is None else max(at_s, run.until_s)) for at_s, run in waiting.now.valid()]
            found += [at_s for at_s in now if at_s <= now_s]
            found += [at_s for at_s, _ in waiting.later.valid() if at_s <= now_s]
        return found

    def next_due_s(self, agents: Iterable[str], due_s: float, now_s: float) -> tuple[float | None, float | None]:
        """Return when a run of these agents becomes due by itself next, and when the next lease ends.

        Args:
            agents: Of these agents; empty: of all.
            due_s: Unix time after which the first is.
            now_s: Unix time after which the second is.
        """
        found = [self._waiting[agent] for agent in agents or self._waiting if agent in self._waiting]
        waiting = [runs for priorities in found for runs in priorities.values()]
        firsts = [runs.later.first_after(due_s) for runs in waiting]
        return min([first for first in firsts if first is not None], default=None), self._held.first_after(now_s)

    def _end_leases(self, now_s: float) -> None:
        while (first := self._held.first()) is not None and first[0] <= now_s:
            until_s, _, run = first
            if run.until_s is not None and run.until_s > now_s:  # it was renewed
                self._held.push(run.until_s, run)
            elif run.is_ended:
                run.ticket = 0
            else:
                self.make_due(run, until_s)

    def _first_free(self, heap: _Heap[R], now_s: float) -> tuple[float, int, R] | None:
        while (first := heap.first()) is not None:
            since_s, _, run = first
            if run.until_s is None or run.until_s <= since_s:
                return first
            # Its lease had ended, and was renewed before the run was claimed.
            if run.until_s > now_s:
                self.hold(run, run.until_s)
            else:
                self.make_due(run, run.until_s)
        return None

"""The order of the runs of a store in memory, for its pages.

Runs of each `Group` are kept in the order of their last change, those with a holder apart: an append changes when they
changed last, and would move them each time.  So a page costs as much as it has runs, and as there are holders.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

from fsm_agent.store.listing import Group, Place, Wanted
from fsm_agent.store.memory.stored_run import StoredRun, group_of

_Listed = tuple[float, int, StoredRun]  # the place of a run; no two have the same


class ListedRuns:
    """All runs of a store; not thread-safe."""

    def __init__(self) -> None:
        self._resting: dict[Group, list[_Listed]] = {}
        self.held: dict[int, StoredRun] = {}  # by number, those whose leases were not given back

    def put(self, run: StoredRun) -> None:
        """Add a run, or put it where it belongs now."""
        self.remove(run)
        if run.until_s is not None:
            self.held[run.number] = run
            return
        run.listed = group, at_s = group_of(run), run.updated_s
        insort(self._resting.setdefault(group, []), (at_s, run.number, run))  # nearly always at the end

    def remove(self, run: StoredRun) -> None:
        """Remove a run, if it is there."""
        self.held.pop(run.number, None)
        if run.listed is None:
            return
        group, at_s = run.listed
        runs = self._resting[group]
        del runs[bisect_left(runs, (at_s, run.number, run))]
        if not runs:
            del self._resting[group]
        run.listed = None

    def found(self, asked: Wanted) -> Iterator[tuple[Place, StoredRun]]:
        """Yield the runs of the wanted groups and times, the last changed first, from where the page begins."""
        first_s, end_s = asked.times
        before = min(asked.before, (end_s, 0))
        held = [run for run in self.held.values() if asked.takes_group(group_of(run))]
        places = [(run.updated_s, run.number, run) for run in held]
        lists = [_backwards(runs, first_s, before) for group, runs in self._resting.items() if asked.takes_group(group)]
        for at_s, number, run in heapq.merge(sorted(places, reverse=True), *lists, reverse=True):
            yield (at_s, number), run

    def counted(self) -> dict[Group, tuple[int, float]]:
        """Return how many runs there are of each group, and when the one changed that has changed least recently."""
        counts = {group: (len(runs), runs[0][0]) for group, runs in self._resting.items()}
        for run in self.held.values():
            count, oldest_s = counts.get(group := group_of(run), (0, run.updated_s))
            counts[group] = count + 1, min(oldest_s, run.updated_s)
        return counts


def _backwards(runs: list[_Listed], first_s: float, before: Place) -> Iterator[Any]:
    """Yield the runs before a place, the last first, as far as they have changed at ``first_s`` or later."""
    for n in range(bisect_left(runs, before) - 1, -1, -1):  # a shorter tuple is less
        if runs[n][0] < first_s:
            return
        yield runs[n]

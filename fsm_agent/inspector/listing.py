"""The list of runs: its filters, which stand in the address, and one page of it; open questions come first."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from fsm_agent.store.listing import STUCK, is_undriven
from fsm_agent.store.store import Run, RunFilter, Store

PAGE = 50  # runs
FIRST = 10  # of them, those that ask and come first
AGES = {"hour": 3_600.0, "day": 86_400.0, "week": 604_800.0}
ONLY = {"": "All", "asked": "Asking", "open": "Open", "ended": "Ended", "failed": "Failed"}
_MOST_WORDS = 200


class Filters(NamedTuple):
    """What is looked for, as the address has it."""

    words: str = ""
    agent: str = ""
    state: str = ""
    only: str = ""
    age: str = ""
    after: str = ""  # the `next` of the page before

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        """Return the filters in an address; what is none is left out."""
        values = {name: query.get(name, "")[:_MOST_WORDS] for name in cls._fields}
        values["only"] = values["only"] if values["only"] in ONLY else ""
        values["age"] = values["age"] if values["age"] in AGES else ""
        return cls(**values)

    def address(self, **changes: str) -> str:
        """Return the address with these filters, some of them changed."""
        return urlencode([(name, value) for name, value in self._replace(**changes)._asdict().items() if value])

    @property
    def which(self) -> RunFilter:
        """The filters as a store takes them."""
        found = RunFilter(text=self.words)
        if self.agent:
            found["agent"] = self.agent
        if self.state:
            found["state"] = self.state
        if self.age:
            found["changed_after"] = time.time() - AGES[self.age]
        if self.only in ("open", "asked"):
            found["ended"] = False
        if self.only == "ended":
            found["ended"] = True
        if self.only == "failed":
            found["failed"] = True
        if self.only == "asked":
            found["asked"] = True
        return found


class Found(NamedTuple):
    """A page of runs."""

    asking: list[Run]  # those that come first
    runs: list[Run]
    next: str | None
    has_more_asking: bool


def found_runs(store: Store, filters: Filters) -> Found:
    """Return the runs of a page; the first page of all begins with those that ask."""
    asking: list[Run] = []
    has_more = False
    if filters.only in ("", "open") and not filters.after:
        which = filters.which
        which["ended"], which["asked"] = False, True
        first = store.list(limit=FIRST, **which)
        asking, has_more = [*first], first.next is not None
    page = store.list(after=filters.after or None, limit=PAGE, **filters.which)
    above = {run.id for run in asking}
    return Found(asking, [run for run in page if run.id not in above], page.next, has_more)


def is_undriven_now(run: Run) -> bool:
    """Return whether a run is due, and has no driver."""
    return is_undriven(run, time.time())


def run_state(run: Run) -> tuple[str, str]:
    """Return the state of a run for people, and its tone."""
    if run.is_ended:
        return run.state, "failure" if run.is_failed else "success"
    if run.holder is not None:
        return run.state or "begins", "running"
    if run.waits:
        return run.state, "failure" if any(one.key == STUCK for one in run.waits) else "person"
    return run.state or ("begun" if run.n else "not begun"), "waiting"

"""The list of runs.  Its filters come from the address.  Its pages show runs in groups, beginning with open questions.

This module also formats durations, times, tokens and costs for the templates, which escape all text.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from fsm_agent._internal.text import format_duration, format_moment
from fsm_agent.messages.reply import Usage
from fsm_agent.store.listing import STUCK, is_undriven
from fsm_agent.store.store import Run, RunFilter, Store

PAGE = 50  # runs
FIRST = 10  # runs with open questions that come first
AGES = {"hour": 3_600.0, "day": 86_400.0, "week": 604_800.0}
ONLY = {"": "All", "asked": "Asking", "open": "Open", "ended": "Ended", "failed": "Failed"}
_WHICH: Mapping[str, RunFilter] = {
    "asked": {"ended": False, "asked": True},
    "open": {"ended": False},
    "ended": {"ended": True},
    "failed": {"failed": True},
}
_MOST_WORDS = 200


class Filters(NamedTuple):
    """The filters for the list, taken from the address."""

    words: str = ""
    agent: str = ""
    state: str = ""
    only: str = ""
    age: str = ""
    after: str = ""  # the `next` of the previous page

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        """Return the filters in an address, except invalid ones."""
        values = {name: query.get(name, "")[:_MOST_WORDS] for name in cls._fields}
        values["only"] = values["only"] if values["only"] in ONLY else ""
        values["age"] = values["age"] if values["age"] in AGES else ""
        return cls(**values)

    def address(self, **changes: str) -> str:
        """Return the query string for these filters, after changing some of them."""
        return urlencode([(name, value) for name, value in self._replace(**changes)._asdict().items() if value])

    @property
    def which(self) -> RunFilter:
        """The filters in the form that `Store.list` takes."""
        found = RunFilter(text=self.words)
        if self.agent:
            found["agent"] = self.agent
        if self.state:
            found["state"] = self.state
        if self.age:
            found["changed_after"] = time.time() - AGES[self.age]
        found.update(_WHICH.get(self.only, {}))
        return found


class Row(NamedTuple):
    """A run in the list."""

    run: Run
    conversation: str = ""  # its conversation, or "" if it has none or the run's name does not contain it
    is_later: bool = False  # it is listed below another turn of its conversation

    @property
    def since_s(self) -> float:
        """The Unix time when the run began to wait for an answer or a driver."""
        due_s = self.run.due_s if is_undriven(self.run) and not self.run.waits else None
        return max(self.run.updated_s, due_s or 0.0)


class Group(NamedTuple):
    """A group of runs on a page, such as the failed ones."""

    title: str
    time: str  # the heading of the time column: WAITING, ELAPSED or CONTINUES
    rows: Sequence[Row]


WAITING, ELAPSED, CONTINUES = "Waiting since", "Elapsed", "Continues"
_GROUPS = {  # the heading of the time column, by title
    "Waiting for an answer": WAITING,
    "No driver yet; the runs are due": WAITING,
    "Running": ELAPSED,
    "Paused": CONTINUES,
    "Failed": ELAPSED,
    "Ended": ELAPSED,
}


class Found(NamedTuple):
    """A page of runs."""

    groups: list[Group]
    next: str | None
    has_more_asking: bool


def find_runs(store: Store, filters: Filters) -> Found:
    """Return a page of runs.  The first page of all or of open runs begins with the runs that ask a question."""
    asking: list[Run] = []
    has_more = False
    if filters.only in ("", "open") and not filters.after:
        which = filters.which
        which["ended"], which["asked"] = False, True
        first = store.list(limit=FIRST, **which)
        asking, has_more = [*first], first.next is not None
    page = store.list(after=filters.after or None, limit=PAGE, **filters.which)
    above = {run.id for run in asking}
    return Found(_grouped([*asking, *[run for run in page if run.id not in above]], store), page.next, has_more)


def _grouped(runs: Iterable[Run], store: Store) -> list[Group]:
    """Return the groups that are not empty.  Within a group, a conversation's turns are kept together."""
    grouped: dict[str, dict[str, list[Row]]] = {title: {} for title in _GROUPS}
    known: dict[str, bool] = {}
    for run in runs:
        conversation = run.id.rpartition(":")[0]
        if conversation and conversation not in known:
            known[conversation] = bool(store.head(conversation).run)
        is_turn = known.get(conversation, False)
        turns = grouped[_group_of(run)].setdefault(f"turns of {conversation}" if is_turn else f"run {run.id}", [])
        turns.append(Row(run, conversation if is_turn else "", is_later=bool(turns)))
    return [
        Group(title, _GROUPS[title], [row for rows in found.values() for row in rows])
        for title, found in grouped.items()
        if found
    ]


def _group_of(run: Run) -> str:
    if run.is_ended:
        return "Failed" if run.is_failed else "Ended"
    if run.waits:
        return "Waiting for an answer"
    if run.holder is not None:
        return "Running"
    return "No driver yet; the runs are due" if is_undriven(run) else "Paused"


def run_state(run: Run) -> tuple[str, str]:
    """Return `(state, tone)`: a run's state in words, and the tone in which to show it."""
    if run.is_ended:
        return run.state, "failure" if run.is_failed else "success"
    if run.holder is not None:
        return run.state or "begins", "running"
    if run.waits:
        return run.state, "failure" if any(one.key == STUCK for one in run.waits) else "person"
    return run.state or ("begun" if run.n else "not begun"), "waiting"


def span(seconds: float) -> str:
    """Format a duration in its largest units, or return "" if it is implausible because a clock was set back."""
    return format_duration(seconds, with_days=True) if 0 <= seconds < 1e12 else ""


def ago(at_s: float) -> str:
    """Return how long ago a time was, in one unit."""
    seconds = max(0.0, time.time() - at_s)
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{seconds // unit_s:.0f} {unit} ago"
    return "now" if seconds < 1 else f"{seconds:.0f} s ago"


def since(at_s: float) -> str:
    """Return the duration from a time to now."""
    return span(max(0.0, time.time() - at_s))


def clock(at_s: float) -> str:
    """Format a time in UTC, or return "" if it is unknown."""
    return format_moment(at_s) if at_s else ""


def tokens(usage: Usage) -> str:
    """Format tokens as input + output, or return "" if no tokens were used."""
    return f"{usage.input_tokens or 0:,} + {usage.output_tokens or 0:,}" if usage.total_tokens else ""


def money(usage: Usage) -> str:
    """Format a cost, or return "" if costs were not tracked."""
    cost = usage.cost_usd
    return "" if cost is None else f"${cost:.4f}" if cost >= 0.0001 or not cost else f"${cost:.6f}"

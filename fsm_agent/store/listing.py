"""Makes pages of runs.

A *group* consists of one agent's runs that share a state and have the same kinds of open questions.  Even a large
number of runs forms only a few groups.  A store finds the runs in each group in the order of their last change, so a
page is made by merging groups.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias, Unpack

from fsm_agent._internal.structs import is_finite, is_whole
from fsm_agent.errors import UsageError, hint
from fsm_agent.store.checks import check_text
from fsm_agent.store.store import Run, RunFilter, Store
from fsm_agent.validation import require

ALL = 1 << 31  # more runs than a store has
LOOKED = 5_000  # how many runs a page searches for a text
STUCK = "stuck"  # the kind and the key of the question about a run that the current code cannot drive
KINDS = "\n"  # separates the kinds of questions in `Group.asks`

Place: TypeAlias = tuple[float, int]  # the time of the last change of a run, and its number


class Group(NamedTuple):
    """One agent's runs that share a state and have the same kinds of open questions."""

    agent: str
    is_failed: bool
    is_ended: bool
    asks: str  # the kinds of open questions, sorted, with `KINDS` between them
    state: str


class RunQuery(NamedTuple):
    """The arguments of `Store.list`."""

    which: RunFilter
    before: Place  # runs at or after this place are on earlier pages
    limit: int

    @property
    def looked(self) -> int:
        """How many runs in the wanted groups are looked at for a page."""
        return LOOKED if self.which.get("text") and not self.is_narrow else ALL

    def takes_group(self, group: Group) -> bool:
        """Return whether a group matches the filter."""
        which = self.which
        agent, state, kind = which.get("agent"), which.get("state"), which.get("waiting_for")
        ended, failed = which.get("ended"), which.get("failed")
        return (
            (agent is None or group.agent == agent)
            and (state is None or group.state == state)
            and (ended is None or bool(group.is_ended) is ended)
            and (failed is None or bool(group.is_failed) is failed)
            and (not which.get("asked") or bool(group.asks))
            and (kind is None or kind in kinds_in(group.asks))
        )

    @property
    def times(self) -> tuple[float, float]:
        """The bounds `(first, end)` on the time of a run's last change, which must be before ``end``."""
        after_s, before_s = self.which.get("changed_after"), self.which.get("changed_before")
        return -math.inf if after_s is None else after_s, math.inf if before_s is None else before_s

    def takes(self, changed_s: float, due_s: float | None, name: str, title: str, service: str) -> bool:
        """Return whether a run in a matching group matches the rest of the filter."""
        due_before, (first_s, end_s) = self.which.get("due_before"), self.times
        return (
            first_s <= changed_s < end_s
            and (due_before is None or (due_s is not None and due_s < due_before))
            and name.startswith(self.which.get("prefix") or "")
            and self.which.get("service") in (None, "", service)
            and (self.which.get("text") or "").casefold() in f"{name}\n{title}".casefold()
        )

    @property
    def is_narrow(self) -> bool:
        """Whether the filter has a name or a service.  Few runs match either of them."""
        return bool(self.which.get("prefix") or self.which.get("service"))


def parse_query(after: str | None, limit: int, which: RunFilter) -> RunQuery:
    """Check the arguments to `Store.list` and return them as a query."""
    for name, value in which.items():
        if name not in RunFilter.__optional_keys__:
            raise UsageError(f"unknown filter {name!r} of runs{hint(name, RunFilter.__optional_keys__)}")
        if value is None:
            continue
        if name in ("agent", "state", "waiting_for", "text", "prefix", "service"):
            check_text(name, value)  # type: ignore[arg-type]
        elif name in ("ended", "failed", "asked"):
            require(name, value, isinstance(value, bool), "True or False")
        else:
            require(name, value, is_finite(value), "a Unix time")
    require("limit", limit, is_whole(limit), "a whole number")
    return RunQuery(which, _place_in(after), max(0, min(limit, ALL)))


def is_undriven(run: Run) -> bool:
    """Return whether a run is due now but has no driver."""
    return not run.is_ended and run.holder is None and run.due_s is not None and run.due_s <= time.time()


def each_listed(store: Store, *, at_a_time: int = 100, **which: Unpack[RunFilter]) -> Iterator[Run]:
    """Yield every run that `Store.list` finds, the most recently changed first, reading pages as they are needed."""
    page = store.list(limit=at_a_time, **which)
    yield from page
    while page.next is not None:  # with a text, a page may be empty although there is a next one
        page = store.list(limit=at_a_time, after=page.next, **which)
        yield from page


def behind(prefix: str) -> str:
    """Return the smallest string greater than every string with this prefix, or "" if there is none."""
    kept = prefix.rstrip(chr(sys.maxunicode))
    if not kept:
        return ""
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)  # lone surrogates are not text


def kinds_in(asks: str) -> tuple[str, ...]:
    """Return the kinds of questions in `Group.asks`."""
    return tuple(asks.split(KINDS)) if asks else ()


def _place_in(after: str | None) -> Place:
    if after is None:
        return math.inf, 0
    if isinstance(after, str):
        moment, _, number = after.partition("~")
        try:
            place = float(moment), int(number)
        except ValueError:
            pass
        else:
            if math.isfinite(place[0]) and abs(place[1]) < 2**63:
                return place
    raise UsageError(f"after: expected the `next` of a page, or None, got {after!r:.80}")

"""Two runs side by side: where they part, and what each has after that."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from fsm_agent.inspector.story import Item, story
from fsm_agent.inspector.wording import pretty, shown
from fsm_agent.store.differences import Parting, is_same, parting
from fsm_agent.store.reading import RunReading

MOST_SAME = 100  # equal entries that are shown before
MOST_ROWS = 500  # that are shown from where the runs part
_MOST_DIFFERENCES = 40


class Row(NamedTuple):
    """Two entries of one number."""

    n: int
    a: Item | None
    b: Item | None
    is_same: bool


class Comparison(NamedTuple):
    """What differs between two runs."""

    beginning: Sequence[tuple[str, str, str]]  # where, and both values as text
    n: int | None  # of the first entry that differs; None: none does
    entry: Sequence[tuple[str, str, str]]
    common: int  # how many entries are equal before that
    same: Sequence[Row]  # the last of them
    others: Sequence[Row]


def compared(a: RunReading, b: RunReading) -> Comparison:
    """Return how two runs differ; times, names and digests do not count."""
    where: Parting = parting(a, b)
    count = max(len(a.entries), len(b.entries))
    common = count if where.n is None else where.n - 1
    rows = _rows(a, b, max(0, common - MOST_SAME), min(count, common + MOST_ROWS))
    first = min(common, MOST_SAME)
    return Comparison(_as_text(where.beginning), where.n, _as_text(where.entry), common, rows[:first], rows[first:])


def _rows(a: RunReading, b: RunReading, after: int, until: int) -> list[Row]:
    pairs = zip_longest(a.entries[after:until], b.entries[after:until])
    items = zip_longest(story(a, after, until), story(b, after, until))
    return [
        Row(n, one, other, is_same(*pair))
        for n, (pair, (one, other)) in enumerate(zip(pairs, items, strict=True), after + 1)
    ]


def _as_text(found: Sequence[tuple[str, object, object]]) -> list[tuple[str, str, str]]:
    return [(shown(where), _value(a), _value(b)) for where, a, b in found[:_MOST_DIFFERENCES]]


def _value(value: object) -> str:
    return "-" if value is None else shown(value) if isinstance(value, str) else pretty(value)

"""Two runs side by side: where they part, and what each has after that."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from fsm_agent.inspector.wording import pretty, shown
from fsm_agent.store.differences import Parting, is_same, parting

if TYPE_CHECKING:
    from fsm_agent.inspector.app import View
    from fsm_agent.inspector.story import Item

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
    same: Sequence[Row]
    others: Sequence[Row]


def compared(a: View, b: View) -> Comparison:
    """Return how two runs differ; times, names and digests do not count."""
    where: Parting = parting(a.reading, b.reading)
    pairs = zip_longest(a.reading.entries, b.reading.entries)
    rows = [Row(n, _item(a, n), _item(b, n), is_same(one, other)) for n, (one, other) in enumerate(pairs, 1)]
    common = len(rows) if where.n is None else where.n - 1
    return Comparison(
        _as_text(where.beginning), where.n, _as_text(where.entry), rows[:common], rows[common : common + MOST_ROWS]
    )


def _item(view: View, n: int) -> Item | None:
    return view.items[n - 1] if n <= len(view.items) else None


def _as_text(found: Sequence[tuple[str, object, object]]) -> list[tuple[str, str, str]]:
    return [(shown(where), _value(a), _value(b)) for where, a, b in found[:_MOST_DIFFERENCES]]


def _value(value: object) -> str:
    return "-" if value is None else shown(value) if isinstance(value, str) else pretty(value)

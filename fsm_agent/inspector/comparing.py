"""Two runs side by side: where they part, and what each has after that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from fsm_agent.inspector.story import Item, story
from fsm_agent.inspector.wording import pretty, shown
from fsm_agent.store.differences import Parting, is_same, parting
from fsm_agent.store.reading import RunReading

MOST_SAME = 100  # equal entries that are shown before
MOST_OTHERS = 500  # of each run that are shown from where they part
_MOST_DIFFERENCES = 40


class Row(NamedTuple):
    """Two entries of one key, or one alone."""

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
    more: int = 0  # entries behind those, of the longer run


def compared(a: RunReading, b: RunReading) -> Comparison:
    """Return how two runs differ; times, names and digests do not count."""
    where: Parting = parting(a, b)
    common = max(len(a.entries), len(b.entries)) if where.n is None else where.n - 1
    same = _numbered(a, b, max(0, common - MOST_SAME), common)
    others = list(_lined_up(a, b, common, common + MOST_OTHERS))
    more = max(0, max(len(a.entries), len(b.entries)) - common - MOST_OTHERS)
    return Comparison(_as_text(where.beginning), where.n, _as_text(where.entry), common, same, others, more)


def _numbered(a: RunReading, b: RunReading, after: int, until: int) -> list[Row]:
    pairs = zip(story(a, after, until), story(b, after, until), strict=True)
    return [Row(one, other, True) for one, other in pairs]


def _lined_up(a: RunReading, b: RunReading, after: int, until: int) -> Iterator[Row]:
    """Yield the entries of both runs in their order, those of one key beside each other."""
    ones, others = a.entries[after:until], b.entries[after:until]
    items, other_items = story(a, after, until), story(b, after, until)
    matcher = SequenceMatcher(None, _labels(a, after, until), _labels(b, after, until), autojunk=False)
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag == "equal":
            for x, y in zip(range(i, i_end), range(j, j_end), strict=True):
                yield Row(items[x], other_items[y], is_same(ones[x], others[y]))
        else:
            yield from (Row(item, None, False) for item in items[i:i_end])
            yield from (Row(None, item, False) for item in other_items[j:j_end])


def _labels(reading: RunReading, after: int, until: int) -> list[tuple[str, int]]:
    """Return what each entry answers and how often that was answered before, so that no two are equal."""
    count: Counter[str] = Counter()
    labels = []
    for entry in reading.entries[after:until]:
        labels.append((entry.key, count[entry.key]))
        count[entry.key] += 1
    return labels


def _as_text(found: Sequence[tuple[str, object, object]]) -> list[tuple[str, str, str]]:
    rows = [(shown(where), _value(a), _value(b)) for where, a, b in found[:_MOST_DIFFERENCES]]
    left = len(found) - len(rows)
    return [*rows, (f"and {left:,} more", "…", "…")] if left else rows


def _value(value: object) -> str:
    return "-" if value is None else shown(value) if isinstance(value, str) else pretty(value)

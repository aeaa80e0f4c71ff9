"""Places the states of a machine in layers: where each box stands, and how each way runs.

Layers are by the longest way from the start without ways back; four sweeps by the median of the neighbours reduce
crossings; ways back are arcs at the side.  Enough for tables that people write, which have a dozen states.  No program
and no library is needed, and what is drawn is bounded: a journal may be damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

WIDTH, HEIGHT = 118, 38  # of a box
MOST_STATES = 60  # in a picture
_GAP_X, _GAP_Y, _MARGIN = 22, 34, 14
_FINAL = frozenset({"success", "failure"})


class Box(NamedTuple):
    """A state."""

    name: str
    tone: str  # a class of the sheet
    note: str  # below the name
    x: float  # of its centre
    y: float

    @property
    def left(self) -> float:
        """Its left border."""
        return self.x - WIDTH / 2

    @property
    def top(self) -> float:
        """Its upper border."""
        return self.y - HEIGHT / 2


class Way(NamedTuple):
    """An arrow."""

    source: str
    to: str
    title: str
    line: str  # the path, as SVG writes it


class Picture(NamedTuple):
    """A machine as it is drawn."""

    title: str
    boxes: tuple[Box, ...]
    ways: tuple[Way, ...]
    width: float
    height: float


class Machine(NamedTuple):
    """What is to be drawn."""

    title: str
    start: str
    ways: Mapping[tuple[str, str], str]  # by source and target: what leads there
    tones: Mapping[str, str]
    notes: Mapping[str, str]

    @property
    def states(self) -> list[str]:
        """All states, the start first."""
        return [*dict.fromkeys([self.start, *[name for way in self.ways for name in way]])]


def placed(machine: Machine, places: Mapping[str, tuple[int, int]]) -> Picture:
    """Return a machine whose states have a column and a row each; ways are straight."""
    at = {
        name: (_MARGIN + (column + 0.5) * WIDTH + column * _GAP_X, _MARGIN + row * (HEIGHT + 38) + HEIGHT / 2)
        for name, (column, row) in places.items()
    }
    columns, rows = (max(axis) + 1 for axis in zip(*places.values(), strict=True))
    size = 2 * _MARGIN + columns * (WIDTH + _GAP_X), 2 * _MARGIN + rows * (HEIGHT + 38) - 38
    return _drawn(machine, at, size, is_straight=True)


def layered(machine: Machine) -> Picture:
    """Return a machine in layers from its start."""
    names = machine.states
    after = {name: [to for source, to in machine.ways if source == name and to != name] for name in names}
    forward = _forward(machine.start, after)
    rows = _rows(names, forward, {name for name in names if machine.tones.get(name) in _FINAL and not after[name]})
    _sort_rows(rows, forward)
    widest = max([len(row) for row in rows])
    at = {
        name: (
            35 + (widest - len(row)) * (WIDTH + _GAP_X) / 2 + (n + 0.5) * (WIDTH + _GAP_X),
            _MARGIN + layer * (HEIGHT + _GAP_Y) + HEIGHT / 2,
        )
        for layer, row in enumerate(rows)
        for n, name in enumerate(row)
    }
    size = widest * (WIDTH + _GAP_X) + 70, 2 * _MARGIN + len(rows) * (HEIGHT + _GAP_Y) - _GAP_Y
    return _drawn(machine, at, size)


def _forward(start: str, after: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """Return the ways that do not lead back, by a walk in depth."""
    found: set[tuple[str, str]] = set()
    done: set[str] = set()
    for first in [start, *after]:
        walk = [] if first in done else [(first, iter(after[first]))]
        while walk:
            name, targets = walk[-1]
            to = next(targets, None)
            if to is None:
                done.add(name)
                walk.pop()
            elif all(to != one for one, _ in walk):
                found.add((name, to))
                if to not in done:
                    walk.append((to, iter(after[to])))
    return found


def _rows(names: Sequence[str], forward: Iterable[tuple[str, str]], ends: set[str]) -> list[list[str]]:
    layer = dict.fromkeys(names, 0)
    for _ in names:
        for source, to in forward:
            layer[to] = max(layer[to], layer[source] + 1)
    last = max(layer.values())
    return [[name for name in names if (last if name in ends else layer[name]) == n] for n in range(last + 1)]


def _sort_rows(rows: list[list[str]], forward: Iterable[tuple[str, str]]) -> None:
    near: dict[str, set[str]] = {}
    for source, to in forward:
        near.setdefault(source, set()).add(to)
        near.setdefault(to, set()).add(source)
    for sweep in range(4):
        order = rows if sweep % 2 == 0 else rows[::-1]
        for above, row in pairwise(order):
            at = {name: n for n, name in enumerate(above)}
            medians = {}
            for name in row:
                places = sorted([at[other] for other in near.get(name, ()) if other in at])
                medians[name] = places[len(places) // 2] if places else len(above) / 2
            row.sort(key=medians.__getitem__)


def _drawn(
    machine: Machine, at: Mapping[str, tuple[float, float]], size: tuple[float, float], *, is_straight: bool = False
) -> Picture:
    boxes = [Box(name, machine.tones.get(name, ""), machine.notes.get(name, ""), x, y) for name, (x, y) in at.items()]
    ways = [
        Way(
            source,
            to,
            f"{source} → {to}: {label}",
            _line(at[source], at[to], is_both=(to, source) in machine.ways, is_straight=is_straight, width=size[0]),
        )
        for (source, to), label in machine.ways.items()
    ]
    return Picture(machine.title, tuple(boxes), tuple(ways), *size)


def _line(a: tuple[float, float], b: tuple[float, float], *, is_both: bool, is_straight: bool, width: float) -> str:
    """Return the path of an arrow; two that go both ways lie side by side."""
    (x, y), (u, v) = a, b
    if a == b:
        return f"M{x + WIDTH / 2:.0f} {y - 8:.0f}c26 -8 26 24 0 16"
    if is_straight or abs(v - y) < 1:
        return _straight(a, b, 6.0 if is_both else 0.0)
    is_next = abs(v - y) < HEIGHT + _GAP_Y + 1
    if v > y and is_next:
        x, u = (x - 9, u - 9) if is_both else (x, u)
        top, bottom = y + HEIGHT / 2, v - HEIGHT / 2
        return f"M{x:.0f} {top:.0f}C{x:.0f} {top + 18:.0f} {u:.0f} {bottom - 18:.0f} {u:.0f} {bottom:.0f}"
    if is_next and abs(x - u) < 1:
        return f"M{x + 9:.0f} {y - HEIGHT / 2:.0f}L{u + 9:.0f} {v + HEIGHT / 2:.0f}"
    side = -1 if (x + u) / 2 < width / 2 else 1  # around, at the side that is nearer
    far = min(x, u) - WIDTH / 2 - 22 if side < 0 else max(x, u) + WIDTH / 2 + 22
    far = max(6.0, min(width - 6, far))
    start, stop = x + side * WIDTH / 2, u + side * WIDTH / 2
    return f"M{start:.0f} {y:.0f}C{far:.0f} {y:.0f} {far:.0f} {v:.0f} {stop:.0f} {v:.0f}"


def _straight(a: tuple[float, float], b: tuple[float, float], aside: float) -> str:
    """Return a line from the border of one box to that of another."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = (dx * dx + dy * dy) ** 0.5
    ox, oy = -dy / length * aside, dx / length * aside
    reach = min(WIDTH / 2 / abs(dx) if dx else 9.0, HEIGHT / 2 / abs(dy) if dy else 9.0)
    start = a[0] + dx * reach + ox, a[1] + dy * reach + oy
    stop = b[0] - dx * reach + ox, b[1] - dy * reach + oy
    return f"M{start[0]:.0f} {start[1]:.0f}L{stop[0]:.0f} {stop[1]:.0f}"

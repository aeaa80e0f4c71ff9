"""Pictures of the machines in a run: their states laid out, and the transitions that the run took or may take.

A state's layer is the length of the longest path to it from the start, ignoring back edges.  Four sweeps of the median
heuristic reduce crossings.  This is enough for machines that people write, with about a dozen states.  Arrows are
straight, or bent around boxes.  The layout needs no other program or library.  The size of a picture is limited,
because a journal may be damaged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias
from unicodedata import east_asian_width

from fsm_agent.call.journal import FlowTable
from fsm_agent.call.record import State
from fsm_agent.diagrams.diagram import ANY, call_diagram
from fsm_agent.diagrams.drawing import Diagram
from fsm_agent.store.history import RETRIED, UNKNOWN, Move, ProcessView, RunHistory

HEIGHT = 38  # of a box
_MOST_LETTERS, _MOST_NOTE = 16, 22  # of a name and of a note in a box; `machine.html` cuts longer ones
MOST_STATES = 60  # in a picture
_COLUMN, _ROW = 128, 80  # between the centres of boxes that are placed by hand
_LETTER, _SMALL, _PADDING = 7.7, 6.2, 20  # the widths of a name's letter, a note's letter and the padding
_GAP_X, _GAP_Y, _MARGIN = 22, 38, 12
_NUMBERS = 3  # entry numbers on an arrow
_BENDS = (13, 26, 39, 52, 65, 78, 91, 117, 143, 182)
_BOWS = (0, *[side * bend for bend in _BENDS for side in (1, -1)])  # how far an arrow may bend
_BOWS_OF_PAIRS = (*_BENDS, *[-bend for bend in _BENDS[1:]])  # the same for arrows in both directions
_MOST_AROUND = 100  # with more arrows in a picture, none is led around boxes
_SAMPLES = 24  # points of an arrow that are checked
_FINAL = frozenset({"success", "failure"})

Point: TypeAlias = tuple[float, float]
Curve: TypeAlias = tuple[Point, Point, Point, Point]  # of Bézier


class Box(NamedTuple):
    """A state in a picture."""

    name: str
    label: str
    tone: str  # a class of the style sheet
    note: str  # below the name
    about: str  # what happens there, as a tooltip
    x: float  # of its centre
    y: float
    width: float

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def top(self) -> float:
        return self.y - HEIGHT / 2

    def holds(self, point: Point) -> bool:
        """Return whether a point is inside the box or close to it."""
        return abs(point[0] - self.x) < self.width / 2 + 4 and abs(point[1] - self.y) < HEIGHT / 2 + 4

    def border(self, to: Point, gap: float = 0) -> Point:
        """Return where the line from the centre to a point leaves the box."""
        dx, dy = to[0] - self.x, to[1] - self.y
        reach = min(self.width / 2 / abs(dx) if dx else 9e9, HEIGHT / 2 / abs(dy) if dy else 9e9)
        reach += gap / max(1.0, (dx * dx + dy * dy) ** 0.5)
        return self.x + dx * reach, self.y + dy * reach


class Way(NamedTuple):
    """An arrow in a picture."""

    source: str
    to: str
    title: str
    curve: Curve
    entries: tuple[int, ...]  # the numbers of the entries in which the run took it
    is_dashed: bool
    at: Point  # where these numbers are written

    @property
    def line(self) -> str:
        """The path in SVG's notation."""
        (x, y), *others = self.curve
        return f"M{x:.0f} {y:.0f}C{' '.join([f'{u:.0f} {v:.0f}' for u, v in others])}"

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.entries[:_NUMBERS]


class Picture(NamedTuple):
    """A machine with positions for its states and arrows."""

    title: str
    boxes: tuple[Box, ...]
    ways: tuple[Way, ...]
    left: float
    top: float
    width: float
    height: float
    is_placed: bool  # by hand


class Machine(NamedTuple):
    """A machine to draw."""

    title: str
    start: str
    ways: Mapping[tuple[str, str], str]  # the triggers, by source and target
    tones: Mapping[str, str]
    notes: Mapping[str, str] = {}
    abouts: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}  # of states whose label is not their name
    entries: Mapping[tuple[str, str], Sequence[int]] = {}  # the numbers of the entries in which the run took an arrow
    dashed: Collection[tuple[str, str]] = ()

    @property
    def states(self) -> list[str]:
        return [*dict.fromkeys([self.start, *[name for way in self.ways for name in way]])]

    def box(self, name: str, x: float, y: float) -> Box:
        label, note = self.labels.get(name, name), self.notes.get(name, "")
        width = max(_letters(label[:_MOST_LETTERS]) * _LETTER, _letters(note[:_MOST_NOTE]) * _SMALL) + _PADDING
        return Box(name, label, self.tones.get(name, ""), note, self.abouts.get(name, ""), x, y, width)

    def way(self, way: tuple[str, str], curve: Curve) -> Way:
        """Return an arrow.  If another arrow leads back, each arrow's numbers are near its beginning."""
        source, to = way
        entries = tuple(self.entries.get(way, ()))
        title = f"{self.labels.get(source, source)} → {to}: {self.ways[way]}".removesuffix(": ")
        is_back = source != to and (to, source) in self.ways
        at = _middle(curve[1], curve[2]) if source == to else _point(curve, 0.3 if is_back else 0.5)
        return Way(source, to, title, curve, entries, way in self.dashed, at)


def _letters(text: str) -> int:
    """Return a text's width in letters.  Letters in some scripts are twice as wide."""
    return sum([2 if east_asian_width(letter) in "WF" else 1 for letter in text])


def place_states(machine: Machine, places: Mapping[str, tuple[float, float]]) -> Picture:
    """Return a picture of a machine, with a column and a row for each state."""
    boxes = {name: machine.box(name, column * _COLUMN, row * _ROW) for name, (column, row) in places.items()}
    ways = [machine.way(way, _between(way, boxes, machine.ways)) for way in machine.ways]
    return _picture(machine, boxes.values(), ways, is_placed=True)


def layer_states(machine: Machine) -> Picture:
    """Return a picture of a machine in layers from its start."""
    names = machine.states
    after = {name: [to for source, to in machine.ways if source == name and to != name] for name in names}
    forward = _forward(machine.start, after)
    rows = _rows(names, forward, {name for name in names if machine.tones.get(name) in _FINAL and not after[name]})
    _sort_rows(rows, forward)
    boxes: dict[str, Box] = {}
    for layer, row in enumerate(rows):
        widths = [machine.box(name, 0, 0).width for name in row]
        left = -(sum(widths) + (len(row) - 1) * _GAP_X) / 2
        for name, width in zip(row, widths, strict=True):
            boxes[name] = machine.box(name, left + width / 2, layer * (HEIGHT + _GAP_Y))
            left += width + _GAP_X
    ways = [machine.way(way, _between(way, boxes, machine.ways)) for way in machine.ways]
    return _picture(machine, boxes.values(), ways, is_placed=False)


def _forward(start: str, after: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """Return the transitions that are not back edges, found by depth-first search."""
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


def _picture(machine: Machine, boxes: Iterable[Box], ways: Sequence[Way], *, is_placed: bool) -> Picture:
    drawn = tuple(boxes)
    points = [point for way in ways for point in _points(way.curve)]
    points += [(x, box.y + side * HEIGHT / 2) for box in drawn for x in (box.left, box.left + box.width)
               for side in (-1, 1)]  # fmt: skip
    left, top = (min(axis) - _MARGIN for axis in zip(*points, strict=True))
    right, bottom = (max(axis) + _MARGIN for axis in zip(*points, strict=True))
    return Picture(machine.title, drawn, tuple(ways), left, top, right - left, bottom - top, is_placed)


def _between(way: tuple[str, str], boxes: Mapping[str, Box], ways: Collection[tuple[str, str]]) -> Curve:
    """Return an arrow between two boxes: straight, or bent around other boxes."""
    a, b = boxes[way[0]], boxes[way[1]]
    if a is b:
        return _loop(a)
    curves = [_bowed(a, b, bow) for bow in (_BOWS_OF_PAIRS if way[::-1] in ways else _BOWS)]
    return curves[0] if len(ways) > _MOST_AROUND else _free(curves, way, boxes)


def _free(curves: Sequence[Curve], way: tuple[str, str], boxes: Mapping[str, Box]) -> Curve:
    """Return the first curve that crosses no other box.  If every curve crosses one, return the first curve."""
    others = [box for name, box in boxes.items() if name not in way]
    free = (curve for curve in curves if not any(box.holds(point) for point in _points(curve) for box in others))
    return next(free, curves[0])


def _bowed(a: Box, b: Box, bow: float) -> Curve:
    dx, dy = b.x - a.x, b.y - a.y
    length = max(1.0, (dx * dx + dy * dy) ** 0.5)
    middle = (a.x + b.x) / 2 - dy / length * 2 * bow, (a.y + b.y) / 2 + dx / length * 2 * bow
    start, stop = a.border(middle), b.border(middle, gap=1)
    return start, _toward(start, middle), _toward(stop, middle), stop


def _toward(point: Point, other: Point) -> Point:
    return point[0] + (other[0] - point[0]) * 2 / 3, point[1] + (other[1] - point[1]) * 2 / 3


def _loop(box: Box) -> Curve:
    """Return an arrow from a box to itself, below it."""
    x, y = box.x, box.y + HEIGHT / 2
    return (x - 8, y), (x - 16, y + 26), (x + 16, y + 26), (x + 8, y)


def _middle(a: Point, b: Point) -> Point:
    return (a[0] + b[0]) / 2, (a[1] + b[1]) / 2


def _points(curve: Curve) -> Iterator[Point]:
    for n in range(_SAMPLES + 1):
        yield _point(curve, n / _SAMPLES)


def _point(curve: Curve, t: float) -> Point:
    weights = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
    x, y = (
        sum([weight * axis for weight, axis in zip(weights, axes, strict=True)]) for axes in zip(*curve, strict=True)
    )
    return x, y


_SEEDED = str(State.SEEDED)
_PLACES: dict[str, tuple[float, float]] = {  # column and row of an agent call's states, with the usual path in one row
    State.PARSE_EXCEPTION: (1.5, 0),
    State.SEEDED: (0, 1), State.CALLING: (1, 1), State.CHECKING: (2, 1), State.COMPLETED: (3, 1),
    State.BACKOFF: (0, 2), State.TOOL_INTERRUPT: (1.05, 2), ANY: (3, 2),
    State.HANDED_OVER: (2, 3), State.FAILED: (3, 3),
}  # fmt: skip
_TONES = {"Completed": "success", "Failed": "failure", "ParseException": "branch", "Backoff": "branch", _SEEDED: "seed"}
_TONES_OF_WORDS = {"end": "success", "failure": "failure", "a person": "person"}  # of `FlowTable.states`
Taken: TypeAlias = Mapping[tuple[str, str], list[Move]]  # the moves of a process, by source and target


@cache
def _overview() -> Diagram:
    return call_diagram(level="overview")


def draw_machine(reading: RunHistory, process: ProcessView) -> Picture | None:
    """Return the picture of a process's machine, or None if it has too many states."""
    taken: dict[tuple[str, str], list[Move]] = {}
    for move in process.moves:
        way = move.step.source, move.step.to
        if UNKNOWN not in way and move.step.trigger != RETRIED:
            taken.setdefault(way, []).append(move)
    if process.kind == "call" and {name for way in taken for name in way} <= _PLACES.keys():
        return place_states(_call(taken), {str(state): place for state, place in _PLACES.items()})
    machine = _flow(reading.table(process.path), taken, process)
    return None if len(machine.states) > MOST_STATES else layer_states(machine)


def _call(taken: Taken) -> Machine:
    """Return the machine of an agent call: the usual transitions, and all others that the run took."""
    overview = _overview()
    ways = {(edge.source, edge.target): ", ".join(edge.lines).replace("_", " ") for edge in overview.edges}
    branch = {way for way in taken if way[1] == State.PARSE_EXCEPTION}
    return Machine(
        "The states of the agent call",
        _SEEDED,
        ways | {way: _triggers(moves).replace("_", " ") for way, moves in taken.items()},
        _TONES | {ANY: "any"},
        abouts={node.id: ", ".join(node.note) for node in overview.nodes},
        labels={node.id: node.label for node in overview.nodes},
        entries=_entries(taken),
        dashed=branch | {(edge.source, edge.target) for edge in overview.edges if edge.is_dashed},
    )


def _flow(table: FlowTable | None, taken: Taken, process: ProcessView) -> Machine:
    """Return a flow's machine, derived from its table, or from the run's path if the table is unknown."""
    ways: dict[tuple[str, str], str] = {}
    words: dict[str, str] = {}
    if table is not None:
        words = dict(table.states)
        ways[_SEEDED, table.start] = "begun"
        for source, event, guard, to in table.rows:
            label = f"{event} [{guard}]" if guard else event
            ways[source, to] = f"{ways[source, to]}, {label}" if (source, to) in ways else label
    ways |= {way: _triggers(moves) for way, moves in taken.items() if way not in ways}
    tones = {name: _TONES_OF_WORDS.get(word, "") for name, word in words.items()}
    tones = {**_TONES, **tones} if table is None else {_SEEDED: "seed", **tones}
    notes = {name: word for name, word in words.items() if word not in ("end", "failure")}
    title = "The states of the flow" if process.kind == "flow" else "The states of the members"
    return Machine(title, _SEEDED, ways, tones, notes, entries=_entries(taken))


def _triggers(moves: list[Move]) -> str:
    return ", ".join(dict.fromkeys([move.step.trigger for move in moves]))


def _entries(taken: Taken) -> dict[tuple[str, str], list[int]]:
    """Return the numbers of the entries in which each transition was taken."""
    return {way: [*dict.fromkeys([move.n for move in moves])] for way, moves in taken.items()}

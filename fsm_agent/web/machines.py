"""Lays out pictures of the machines in a run, with their states and the transitions that the run took or may take.

A state's layer is the length of the longest path to it from the start, ignoring back edges, and four sweeps of the
median heuristic reduce crossings.  This is enough for machines that people write, with about a dozen states, and needs
no other program or library.  Arrows are straight, or bent around boxes.  The size of a picture is limited, because a
journal may be damaged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from statistics import median_high
from typing import NamedTuple, TypeAlias
from unicodedata import east_asian_width

from fsm_agent.call.journal import FlowTable
from fsm_agent.call.record import State
from fsm_agent.diagrams.drawing import Diagram
from fsm_agent.diagrams.machine_diagrams import ANY, call_diagram
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

Curve: TypeAlias = tuple[complex, complex, complex, complex]  # of Bézier; points are complex numbers, x + y·j
Pair: TypeAlias = tuple[str, str]  # the source and the target of an arrow
Taken: TypeAlias = Mapping[Pair, list[Move]]  # the moves of a process


class Box(NamedTuple):
    """A state in a picture."""

    name: str
    label: str
    tone: str  # a class of the style sheet
    note: str  # below the name
    about: str  # what happens there, as a tooltip
    width: float
    at: complex = 0  # its centre

    @property
    def left(self) -> float:
        return self.at.real - self.width / 2

    @property
    def top(self) -> float:
        return self.at.imag - HEIGHT / 2

    def holds(self, point: complex) -> bool:
        """Return whether a point is inside the box or close to it."""
        away = point - self.at
        return abs(away.real) < self.width / 2 + 4 and abs(away.imag) < HEIGHT / 2 + 4

    def border(self, to: complex, gap: float = 0) -> complex:
        """Return where the line from the centre to a point leaves the box."""
        away = to - self.at
        x, y = abs(away.real), abs(away.imag)
        reach = min(self.width / 2 / x if x else 9e9, HEIGHT / 2 / y if y else 9e9)
        return self.at + away * (reach + gap / max(1.0, abs(away)))


class Way(NamedTuple):
    """An arrow in a picture."""

    source: str
    to: str
    title: str
    curve: Curve
    entries: tuple[int, ...]  # the numbers of the entries in which the run took it
    is_dashed: bool
    at: complex  # where these numbers are written

    @property
    def line(self) -> str:
        """The arrow's path in SVG's notation."""
        start, *others = [f"{point.real:.0f} {point.imag:.0f}" for point in self.curve]
        return f"M{start}C{' '.join(others)}"

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.entries[:_NUMBERS]


class Picture(NamedTuple):
    """A machine whose states and arrows have positions."""

    title: str
    boxes: Collection[Box]
    ways: Sequence[Way]
    left: float
    top: float
    width: float
    height: float
    is_placed: bool  # by hand


# Machines

_SEEDED = str(State.SEEDED)
_PLACES: dict[str, tuple[float, float]] = {  # column and row of an agent call's states, with the usual path in one row
    State.PARSE_EXCEPTION: (1.5, 0),
    State.SEEDED: (0, 1), State.CALLING: (1, 1), State.CHECKING: (2, 1), State.COMPLETED: (3, 1),
    State.BACKOFF: (0, 2), State.TOOL_INTERRUPT: (1.05, 2), ANY: (3, 2),
    State.HANDED_OVER: (2, 3), State.FAILED: (3, 3),
}  # fmt: skip
_TONES = {
    "Completed": "success", "Failed": "failure", "ParseException": "branch", "Backoff": "branch", _SEEDED: "seed",
    ANY: "any",
}  # fmt: skip
_TONES_OF_WORDS = {"end": "success", "failure": "failure", "a person": "person"}  # of `FlowTable.states`


def draw_machine(reading: RunHistory, process: ProcessView) -> Picture | None:
    """Return the picture of a process's machine, or None if it has too many states."""
    taken: dict[Pair, list[Move]] = {}
    for move in process.moves:
        way = move.step.source, move.step.to
        if UNKNOWN not in way and move.step.trigger != RETRIED:
            taken.setdefault(way, []).append(move)
    if process.kind == "call" and {name for way in taken for name in way} <= _PLACES.keys():
        return _draw_call(taken)
    title = "The states of the flow" if process.kind == "flow" else "The states of the members"
    return _draw_flow(title, reading.table(process.path), taken)


def _draw_call(taken: Taken) -> Picture:
    """Return an agent call's machine, with the usual transitions and all others that the run took."""
    overview = _overview()
    words = {(edge.source, edge.target): ", ".join(edge.lines) for edge in overview.edges} | _triggers(taken)
    dashed = {(edge.source, edge.target) for edge in overview.edges if edge.is_dashed}
    dashed |= {way for way in taken if way[1] == State.PARSE_EXCEPTION}
    boxes = {}
    for node in overview.nodes:
        column, row = _PLACES[node.id]
        box = _box(node.id, node.label, _TONES.get(node.id, ""), about=", ".join(node.note))
        boxes[node.id] = box._replace(at=complex(column * _COLUMN, row * _ROW))
    words = {way: text.replace("_", " ") for way, text in words.items()}
    return _picture("The states of the agent call", boxes, words, taken, dashed, is_placed=True)


@cache
def _overview() -> Diagram:
    return call_diagram(level="overview")


def _draw_flow(title: str, table: FlowTable | None, taken: Taken) -> Picture | None:
    """Return a flow's machine, derived from its table, or from the run's path if the table is unknown."""
    words: dict[Pair, str] = {}
    tones: Mapping[str, str] = _TONES
    notes: Mapping[str, str] = {}
    if table is not None:
        words[_SEEDED, table.start] = "begun"
        for source, event, guard, to in table.rows:
            label = f"{event} [{guard}]" if guard else event
            words[source, to] = f"{words[source, to]}, {label}" if (source, to) in words else label
        tones = {_SEEDED: "seed"} | {name: _TONES_OF_WORDS.get(word, "") for name, word in table.states.items()}
        notes = {name: word for name, word in table.states.items() if word not in ("end", "failure")}
    words |= {way: text for way, text in _triggers(taken).items() if way not in words}
    names = dict.fromkeys([_SEEDED, *[name for way in words for name in way]])
    if len(names) > MOST_STATES:
        return None
    boxes = {name: _box(name, name, tones.get(name, ""), notes.get(name, "")) for name in names}
    return _picture(title, _in_layers(boxes, words), words, taken)


def _triggers(taken: Taken) -> dict[Pair, str]:
    return {way: ", ".join(dict.fromkeys([move.step.trigger for move in moves])) for way, moves in taken.items()}


def _box(name: str, label: str, tone: str, note: str = "", about: str = "") -> Box:
    width = max(_letters(label[:_MOST_LETTERS]) * _LETTER, _letters(note[:_MOST_NOTE]) * _SMALL) + _PADDING
    return Box(name, label, tone, note, about, width)


def _letters(text: str) -> int:
    """Return the width of text, counted in letters.  Letters in some scripts count twice."""
    return sum([2 if east_asian_width(letter) in "WF" else 1 for letter in text])


def _picture(
    title: str,
    boxes: Mapping[str, Box],
    words: Mapping[Pair, str],
    taken: Taken,
    dashed: Collection[Pair] = (),
    *,
    is_placed: bool = False,
) -> Picture:
    """Return a picture with an arrow for each pair in ``words``."""
    ways = []
    for source, to in words:
        curve = _curve(boxes[source], boxes[to], boxes.values(), words)
        is_back = source != to and (to, source) in words  # then each arrow's numbers are near its beginning
        at = complex(curve[0].real + 8, curve[1].imag) if source == to else _point(curve, 0.3 if is_back else 0.5)
        about = f"{boxes[source].label} → {to}: {words[source, to]}".removesuffix(": ")
        entries = tuple(dict.fromkeys([move.n for move in taken.get((source, to), ())]))
        ways.append(Way(source, to, about, curve, entries, (source, to) in dashed, at))
    points = [point for way in ways for point in _points(way.curve)]
    points += [box.at + side * complex(box.width, HEIGHT) / 2 for box in boxes.values() for side in (-1, 1)]
    left, top = min([p.real for p in points]) - _MARGIN, min([p.imag for p in points]) - _MARGIN
    right, bottom = max([p.real for p in points]) + _MARGIN, max([p.imag for p in points]) + _MARGIN
    return Picture(title, boxes.values(), ways, left, top, right - left, bottom - top, is_placed)


# Layers


def _in_layers(boxes: Mapping[str, Box], ways: Iterable[Pair]) -> dict[str, Box]:
    """Return the boxes after placing them in layers, beginning with the first box."""
    after = {name: [to for source, to in ways if source == name and to != name] for name in boxes}
    forward = _forward(after)
    ends = {name for name, box in boxes.items() if box.tone in _FINAL and not after[name]}
    rows = _rows(boxes, forward, ends)
    _sort_rows(rows, forward)
    placed: dict[str, Box] = {}
    for layer, row in enumerate(rows):
        left = -(sum([boxes[name].width for name in row]) + (len(row) - 1) * _GAP_X) / 2
        for box in map(boxes.__getitem__, row):
            placed[box.name] = box._replace(at=complex(left + box.width / 2, layer * (HEIGHT + _GAP_Y)))
            left += box.width + _GAP_X
    return placed


def _forward(after: Mapping[str, Sequence[str]]) -> set[Pair]:
    """Return the transitions that are not back edges, found by depth-first search."""
    found: set[Pair] = set()
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        for to in after[name]:
            if to not in way:
                found.add((name, to))
                if to not in done:
                    visit(to, (*way, to))
        done.add(name)

    for name in after:
        if name not in done:
            visit(name, (name,))
    return found


def _rows(names: Iterable[str], forward: Iterable[Pair], ends: set[str]) -> list[list[str]]:
    layer = dict.fromkeys(names, 0)
    for _ in names:
        for source, to in forward:
            layer[to] = max(layer[to], layer[source] + 1)
    last = max(layer.values())
    return [[name for name in names if (last if name in ends else layer[name]) == n] for n in range(last + 1)]


def _sort_rows(rows: list[list[str]], forward: Iterable[Pair]) -> None:
    near = defaultdict[str, set[str]](set)
    for source, to in forward:
        near[source].add(to)
        near[to].add(source)
    for sweep in range(4):
        for above, row in pairwise(rows if sweep % 2 == 0 else rows[::-1]):
            places = {name: [n for n, other in enumerate(above) if other in near[name]] for name in row}
            medians = {name: median_high(found or [len(above) / 2]) for name, found in places.items()}
            row.sort(key=medians.__getitem__)


# Arrows


def _curve(a: Box, b: Box, boxes: Iterable[Box], ways: Collection[Pair]) -> Curve:
    """Return an arrow between two boxes: the first curve that crosses no other box, or the straightest one."""
    if a is b:
        below = a.at + complex(0, HEIGHT / 2)
        return below - 8, below - 16 + 26j, below + 16 + 26j, below + 8
    curves = [_bowed(a, b, bow) for bow in (_BOWS_OF_PAIRS if (b.name, a.name) in ways else _BOWS)]
    if len(ways) > _MOST_AROUND:
        return curves[0]
    others = [box for box in boxes if box is not a and box is not b]
    free = (curve for curve in curves if not any(box.holds(point) for point in _points(curve) for box in others))
    return next(free, curves[0])


def _bowed(a: Box, b: Box, bow: float) -> Curve:
    along = b.at - a.at
    middle = (a.at + b.at) / 2 + along / max(1.0, abs(along)) * 2j * bow
    start, stop = a.border(middle), b.border(middle, gap=1)
    return start, start + (middle - start) * 2 / 3, stop + (middle - stop) * 2 / 3, stop


def _points(curve: Curve) -> list[complex]:
    return [_point(curve, n / _SAMPLES) for n in range(_SAMPLES + 1)]


def _point(curve: Curve, t: float) -> complex:
    a, b, c, d = curve
    return (1 - t) ** 3 * a + 3 * t * (1 - t) ** 2 * b + 3 * t * t * (1 - t) * c + t**3 * d

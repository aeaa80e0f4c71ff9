"""What a picture shows of a table and of a run: which arrows, and the words on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from fsm_agent.diagrams.drawing import Node
from fsm_agent.messages.events import Stepped
from fsm_agent.validation import check

Level: TypeAlias = Literal["overview", "triggers", "rows"]

ANY = "* any state"  # the id of the node that stands for all states
ANY_NODE = Node(id=ANY, label="any state", is_dashed=True)
MANY_ROWS = 30  # from here on a picture of all rows cannot be read
_USUAL = 2  # words on an arrow of an overview
_OF_ALL = 3  # states from which "any state" is shorter than an arrow each
_NUMBERS = 4  # of steps, on an arrow
_TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True, slots=True)
class Way:
    """A row of a table, for one of its sources and one of its triggers."""

    source: str
    trigger: str
    target: str
    guard: str = ""  # "else": the rows before it have one; empty: it is always taken
    action: str = ""

    @property
    def label(self) -> str:
        """The words of the whole row, as ``done [is_good] / keep``."""
        guard, action = (f"[{self.guard}]" if self.guard else ""), (f"/ {self.action}" if self.action else "")
        return " ".join([word for word in (self.trigger, guard, action) if word])


def level_for(level: Level | None, rows: int) -> Level:
    """Return the level of a picture: the one asked for, else one that can be read with as many rows.

    Raises:
        UsageError: There is no such level.
    """
    check("level", level, level is None or level in get_args(Level), "'overview', 'triggers', 'rows' or None")
    return level or ("overview" if rows >= MANY_ROWS else "rows")


def with_else(ways: Iterable[Way]) -> list[Way]:
    """Mark each row that is taken if the guards of those before it say no."""
    guarded: set[tuple[str, str]] = set()
    marked = []
    for way in ways:
        if way.guard:
            guarded.add((way.source, way.trigger))
        marked.append(replace(way, guard="else") if not way.guard and (way.source, way.trigger) in guarded else way)
    return marked


def lines_of(ways: Sequence[Way], level: Level, ends: Mapping[str, bool]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the arrows of a picture, and the lines on each.

    - ``rows``: every row.  One that all states share is one arrow from `ANY`.
    - ``triggers``: the same without guards.
    - ``overview``: also no arrows from a state to itself, and the two commonest triggers of an arrow only.  All
      that leads to a failure is one arrow from `ANY` if most states can fail so, and so is what leads most states to
      another end.

    Args:
        ways: The table.
        level: How much of it is shown.
        ends: The states that are ends, and whether each is a failure.
    """
    live = {way.source for way in ways} - ends.keys()
    sources: dict[tuple[str, ...], set[str]] = {}
    for way in ways:
        sources.setdefault(_row(way, level), set()).add(way.source)

    def is_shared(row: tuple[str, ...]) -> bool:
        found, to = sources[row], row[1]
        if len(found) < _OF_ALL:
            return False
        return found >= live - {to} or (level == "overview" and to in ends and 3 * len(found) >= 2 * len(live))

    shared = {row for row in sources if is_shared(row)}
    failures = {row[1] for row in shared if level == "overview" and ends.get(row[1])}
    words: dict[tuple[str, str], dict[str, set[str]]] = {}  # of an arrow, by word: the states that it leads from
    for way in ways:
        source = ANY if way.target in failures or _row(way, level) in shared else way.source
        if level != "overview" or source != way.target:
            word = way.label if level == "rows" else way.trigger
            words.setdefault((source, way.target), {}).setdefault(word, set()).add(way.source)
    shown = _usual if level == "overview" else tuple
    return {arrow: tuple(filter(None, shown(found))) for arrow, found in words.items()}


def _row(way: Way, level: Level) -> tuple[str, ...]:
    """Return what the ways of one row have in common, as far as it is shown."""
    return (way.trigger, way.target, way.guard, way.action) if level == "rows" else (way.trigger, way.target)


def _usual(words: Mapping[str, set[str]]) -> tuple[str, ...]:
    most = sorted(words, key=lambda word: -len(words[word]))
    return (*most[:_USUAL], f"+{len(most) - _USUAL} more") if len(most) > _USUAL + 1 else tuple(most)


def without_done(ways: Sequence[Way]) -> list[Way]:
    """Leave the word "done" out where a state has no other way of its own than by its result."""
    usual = ("done", "cancelled", "expired")  # the last two are about the whole flow
    others = {way.source for way in ways if way.trigger.partition(" ")[0] not in usual}
    return [
        way if way.source in others else replace(way, trigger=way.trigger.removeprefix("done").lstrip()) for way in ways
    ]


def steps_on(trace: Sequence[Stepped], label: Callable[[Stepped], str]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the lines of the arrows that a run has taken: the numbers of its steps, from 1, and their words."""
    numbers: dict[tuple[str, str], dict[str, list[int]]] = {}
    for number, step in enumerate(trace, 1):
        words = numbers.setdefault((str(step.source), str(step.to)), {})
        words.setdefault(label(step), []).append(number)
    return {
        arrow: tuple([f"{_numbers(found)} {word}".rstrip() for word, found in words.items()])
        for arrow, words in numbers.items()
    }


def _numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_NUMBERS]))
    return shown if len(numbers) <= _NUMBERS else f"{shown} … ({_TIMES}{len(numbers)})"

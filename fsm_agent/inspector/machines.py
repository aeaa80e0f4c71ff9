"""The picture of each process in a run: its table, the states that it was in, and the ways that it took."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

from fsm_agent.call.journal import FlowTable
from fsm_agent.call.record import State
from fsm_agent.diagrams.arrows import ANY
from fsm_agent.diagrams.diagram import Diagram, lifecycle
from fsm_agent.inspector.layout import MOST_STATES, Machine, Picture, layered, placed
from fsm_agent.store.reading import RETRIED, UNKNOWN, Move, ProcessReading, RunReading

_SEEDED = str(State.SEEDED)
_PLACES: dict[str, tuple[float, float]] = {  # of the states of an agent call: column and row, the usual way in one row
    State.PARSE_EXCEPTION: (1.5, 0),
    State.SEEDED: (0, 1), State.CALLING: (1, 1), State.CHECKING: (2, 1), State.COMPLETED: (3, 1),
    State.BACKOFF: (0, 2), State.TOOL_INTERRUPT: (1.05, 2), ANY: (3, 2),
    State.HANDED_OVER: (2, 3), State.FAILED: (3, 3),
}  # fmt: skip
_TONES = {"Completed": "success", "Failed": "failure", "ParseException": "branch", "Backoff": "branch", _SEEDED: "seed"}
_TONES_OF_WORDS = {"end": "success", "failure": "failure", "a person": "person"}  # of `FlowTable.states`
Taken: TypeAlias = Mapping[tuple[str, str], list[Move]]  # the moves of a process, by the way that they took


@cache
def _overview() -> Diagram:
    return lifecycle(level="overview")


def picture(reading: RunReading, process: ProcessReading) -> Picture | None:
    """Return the machine of a process; None: it has too many states for one."""
    taken: dict[tuple[str, str], list[Move]] = {}
    for move in process.moves:
        way = move.step.source, move.step.to
        if UNKNOWN not in way and move.step.trigger != RETRIED:
            taken.setdefault(way, []).append(move)
    if process.kind == "call" and {name for way in taken for name in way} <= _PLACES.keys():
        return placed(_call(taken), {str(state): place for state, place in _PLACES.items()})
    machine = _flow(reading.table(process.path), taken, process)
    return None if len(machine.states) > MOST_STATES else layered(machine)


def _call(taken: Taken) -> Machine:
    """Return the machine of an agent call: the usual ways, and those that the run took."""
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


def _flow(table: FlowTable | None, taken: Taken, process: ProcessReading) -> Machine:
    """Return the machine of a flow by its table; of one whose table is not known, what the run went through."""
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
    """Return the numbers of the entries by which each way was taken."""
    return {way: [*dict.fromkeys([move.n for move in moves])] for way, moves in taken.items()}

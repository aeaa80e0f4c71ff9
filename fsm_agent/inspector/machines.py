"""The picture of each process in a run: its table, the states that it was in, and the ways that it took."""

from __future__ import annotations

from functools import cache

from fsm_agent.diagrams.diagram import lifecycle
from fsm_agent.inspector.layout import MOST_STATES, Machine, Picture, layered, placed
from fsm_agent.lifecycle.record import State
from fsm_agent.machine.journal import FlowTable
from fsm_agent.store.reading import RETRIED, UNKNOWN, ProcessReading, RunReading

_SEEDED = str(State.SEEDED)
_PLACES = {  # of the states of an agent call, by hand: column and row
    State.SEEDED: (1, 0), State.PARSE_EXCEPTION: (0, 1), State.CALLING: (1, 1), State.TOOL_INTERRUPT: (2, 1),
    State.BACKOFF: (0, 2), State.CHECKING: (2, 2), State.FAILED: (0, 3), State.COMPLETED: (1, 3),
    State.HANDED_OVER: (2, 3),
}  # fmt: skip
_USUAL = frozenset({  # ways that are drawn though no run has taken them: with all 32, nothing could be seen
    (State.SEEDED, State.CALLING), (State.CALLING, State.TOOL_INTERRUPT), (State.TOOL_INTERRUPT, State.CALLING),
    (State.CALLING, State.PARSE_EXCEPTION), (State.PARSE_EXCEPTION, State.CALLING), (State.CALLING, State.BACKOFF),
    (State.BACKOFF, State.CALLING),
})  # fmt: skip
_TONES = {"Completed": "success", "Failed": "failure", "ParseException": "branch", "Backoff": "branch", _SEEDED: "seed"}
_TONES_OF_WORDS = {"end": "success", "failure": "failure", "a person": "person"}  # of `FlowTable.states`


@cache
def _ways_of_calls() -> dict[tuple[str, str], str]:
    return {(str(edge.source), str(edge.target)): ", ".join(edge.lines) for edge in lifecycle(level="rows").edges}


def picture(reading: RunReading, process: ProcessReading) -> Picture | None:
    """Return the machine of a process; None: it has too many states for one."""
    taken: dict[tuple[str, str], str] = {}
    for move in process.moves:
        way = move.step.source, move.step.to
        if UNKNOWN not in way and move.step.trigger != RETRIED:
            taken.setdefault(way, move.step.trigger)
    if process.kind == "call" and {name for way in taken for name in way} <= _PLACES.keys():
        return _call(taken)
    machine = _flow(reading.table(process.path), taken, process)
    return None if len(machine.states) > MOST_STATES else layered(machine)


def _call(taken: dict[tuple[str, str], str]) -> Picture:
    known = _ways_of_calls()
    ends = {(State.CALLING, State.COMPLETED)} if not any(to == State.COMPLETED for _, to in taken) else set()
    ways = {way: label for way, label in known.items() if way in taken or way in _USUAL or way in ends}
    ways |= {way: trigger for way, trigger in taken.items() if way not in known}
    machine = Machine("The states of the agent call", _SEEDED, ways, _TONES, {})
    return placed(machine, {str(state): place for state, place in _PLACES.items()})


def _flow(table: FlowTable | None, taken: dict[tuple[str, str], str], process: ProcessReading) -> Machine:
    """Return the machine of a flow by its table; of one whose table is not known, what the run went through."""
    ways: dict[tuple[str, str], str] = {}
    words: dict[str, str] = {}
    if table is not None:
        words = dict(table.states)
        ways[_SEEDED, table.start] = "begun"
        for source, event, guard, to in table.rows:
            label = f"{event} [{guard}]" if guard else event
            ways[source, to] = f"{ways[source, to]}, {label}" if (source, to) in ways else label
    ways |= {way: trigger for way, trigger in taken.items() if way not in ways}
    tones = {name: _TONES_OF_WORDS.get(word, "") for name, word in words.items()}
    tones = {**_TONES, **tones} if table is None else {_SEEDED: "seed", **tones}
    notes = {name: word for name, word in words.items() if word not in ("end", "failure")}
    title = "The states of the flow" if process.kind == "flow" else "The states of the members"
    return Machine(title, _SEEDED, ways, tones, notes)

"""Diagrams of flows and of their runs, drawn from the table and the trace.

A state with members or an inner flow is drawn as a box around them.  Default rows are drawn only if a run has taken
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from fsm_agent._internal.structs import is_whole
from fsm_agent._internal.text import counted
from fsm_agent.diagrams.drawing import Diagram, Edge, Node, Tone
from fsm_agent.diagrams.machine_diagrams import (
    ANY,
    ANY_NODE,
    Level,
    Way,
    level_for,
    lines_of,
    stays_in,
    with_else,
    with_run,
    without_done,
)
from fsm_agent.flows.flow import Flow
from fsm_agent.flows.process import FlowProcess
from fsm_agent.flows.run import FlowRun
from fsm_agent.flows.states import FIRST_TIME, End, LiveState, State, SubflowState, WaitState
from fsm_agent.flows.transition_table import TableEntry
from fsm_agent.messages.events import Stepped
from fsm_agent.validation import require


@dataclass
class _Drawing:
    """The parts of a diagram drawn so far, and the options."""

    level: Level | None = None
    depth: int | None = None
    drawn: dict[str, str] = field(default_factory=dict)  # the state that shows an inner flow, by the flow's name
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def diagram(self, title: str, caption: Sequence[str] = ()) -> Diagram:
        return Diagram(title=title, nodes=tuple(self.nodes), edges=tuple(self.edges), caption=tuple(caption))


def flow_diagram(flow: Flow[Any], *, level: Level | None = None, depth: int | None = None) -> Diagram:
    """Return a diagram of a flow that shows its states, what each of them waits for, and its rows as arrows.

    A row that all states share is drawn as one arrow from "any state".  The label "done" is omitted for a state that
    has no other trigger.

    Args:
        flow: The flow.
        level: How much detail to show on the arrows.  ``"rows"`` shows each row with its guard, as in
            ``done [is_good]``, or with ``[else]`` if it follows guarded rows.  ``"overview"`` omits guards and arrows
            from a state to itself, shows the two most common triggers on an arrow, and draws the failures that most
            states share as one arrow.  None means ``"overview"`` for 30 rows or more, and ``"rows"`` for fewer.
        depth: How many levels of nested flows to draw, or None for all.  A flow at a deeper level is drawn as a box
            that gives its number of states.

    Raises:
        UsageError: If ``flow`` is not a flow, or the level is unknown.

    Examples:
        >>> @execute
        ... def greet(name: str) -> str:
        ...     return name
        >>> from fsm_agent.diagrams import render
        >>> "greet" in render(flow_diagram(Flow("hello", str, start=greet, rows=[greet.done(end("said"))])), "mermaid")
        True
    """
    require("the flow", flow, isinstance(flow, Flow), "a Flow")
    require("depth", depth, depth is None or is_whole(depth, 0), "a whole number of at least 0, or None for all")
    level_for(level, 0)  # checks it
    drawing = _Drawing(level, depth)
    _draw(flow, drawing, "", "")
    return drawing.diagram(flow.name)


def run_diagram(run: FlowRun[Any]) -> Diagram:
    """Return a diagram of a flow that shows how often a run took each arrow and how long it was in each state.

    The current state, and the inner states in which the run is waiting, have a thick border.

    Raises:
        UsageError: If ``run`` is not a `FlowRun`.

    Examples:
        >>> @execute
        ... def greet(name: str) -> str:
        ...     return name
        >>> result = Flow("hello", str, start=greet, rows=[greet.done(end("said"))]).call("Ada")
        >>> run_diagram(result.run).title.startswith("hello")
        True
    """
    right = "a FlowRun, such as result.run or the run of FlowSuspended"
    require("the run", run, isinstance(run, FlowRun), right)
    flow, trace = run.flow, run.record.trace
    drawn = _Drawing()
    _draw(flow, drawn, "", "")
    stays = stays_in(trace)
    known = {node.id for node in drawn.nodes}
    drawn.nodes += [_node(flow.states[name], name, "", flow) for name in stays if name in flow.states.keys() - known]
    ending = run.record.ending
    caption = [f"{'waits' if ending is None else 'ended'} in {run.state} after {run.record.steps} states"]
    caption += [ending.detail] if ending is not None and ending.detail else []
    machine = drawn.diagram(f"{flow.name}: {run.record.id or 'a run'}", caption)
    return with_run(machine, trace, stays, _current(run, ""), _label)


def _draw(flow: Flow[Any], drawing: _Drawing, prefix: str, box: str, level: int = 0) -> None:
    """Add a flow as a box.  The ids of its states get a prefix."""
    entries = [e for e in flow.entries if not e.is_default]
    for name in dict.fromkeys([flow.start.name, *[name for entry in entries for name in (entry.source, entry.to)]]):
        _draw_state(flow.states[name], drawing, f"{prefix}{name}", box, flow, level)
    ways = without_done(with_else([_way(entry) for entry in entries]))
    ends = {name: state.is_failure for name, state in flow.states.items() if isinstance(state, End)}
    arrows = lines_of(ways, level_for(drawing.level, len(ways)), ends)
    if any(source == ANY for source, _ in arrows):
        drawing.nodes.append(replace(ANY_NODE, id=f"{prefix}{ANY}", box=box))
    drawing.edges += [
        Edge(source=f"{prefix}{source}", target=f"{prefix}{to}", lines=lines, weight=1 if source == ANY else 2)
        for (source, to), lines in arrows.items()
    ]


def _draw_state(state: State[Any], drawing: _Drawing, id: str, box: str, flow: Flow[Any], level: int) -> None:
    inside: Sequence[LiveState[Any, Any]] = state.members if isinstance(state, LiveState) else ()
    if isinstance(state, SubflowState) and level == drawing.depth:
        node = _node(state, id, box, flow)
        folded = f"flow {state.flow.name}, {counted(len(state.flow.live), 'state')} not drawn"
        drawing.nodes.append(replace(node, note=(folded, *node.note[1:])))
        return
    if not inside and not isinstance(state, SubflowState):
        drawing.nodes.append(_node(state, id, box, flow))
        return
    is_start = state is flow.start
    note = tuple(_time_of(state))
    drawing.nodes.append(Node(id=id, label=f"{state.name}: {state.words}", note=note, is_start=is_start, box=box))
    for member in inside:
        _draw_state(member, drawing, f"{id}/{member.name}", id, flow, level)
    if isinstance(state, SubflowState):
        if (other := drawing.drawn.setdefault(state.flow.fingerprint, state.name)) != state.name:
            drawing.nodes.append(Node(id=f"{id}/{other}", label=f"as in {other}", is_dashed=True, box=id))
        else:
            _draw(state.flow, drawing, f"{id}/", id, level + 1)


def _node(state: State[Any], id: str, box: str, flow: Flow[Any]) -> Node:
    tone: Tone = "plain"
    if isinstance(state, End):
        tone = "failure" if state.is_failure else "success"
    elif isinstance(state, WaitState):
        tone = "branch"
    is_only = (
        isinstance(state, End) and bool(box) and len({row.to for row in flow.rows if isinstance(row.to, End)}) == 1
    )
    return Node(
        id=id,
        label="" if is_only else state.name,  # a dot says enough
        tone=tone,
        is_start=state is flow.start,
        is_final=isinstance(state, End),
        note=tuple(_waits_for(state)),
        box=box,
    )


def _waits_for(state: State[Any]) -> Iterator[str]:
    if isinstance(state, LiveState) and state.words:
        yield state.words
    yield from _time_of(state)


def _time_of(state: State[Any]) -> Iterator[str]:
    if isinstance(state, LiveState) and state.is_timed:
        yield f"{_time(state)}{'' if state.restart else ', in all'}"


def _time(state: LiveState[Any, Any]) -> str:
    time, word = (state.until, "until") if state.within_s is None else (state.within_s, "within")
    if callable(time):
        name = getattr(time, "__name__", "<lambda>")
        return f"{word} {'…' if name == '<lambda>' else name}(data)"
    if word == "within":
        return f"within {_duration(time)}"
    moment = time if isinstance(time, datetime) else datetime.fromtimestamp(time, UTC)
    return f"until {moment.isoformat(' ', 'minutes')}"


def _way(entry: TableEntry) -> Way:
    guard = "" if entry.guard == FIRST_TIME else entry.guard  # a rule that the flow adds
    return Way(entry.source, entry.event, entry.to, guard)


def _label(step: Stepped) -> str:
    return f"{step.trigger} [{step.guard}]" if step.guard not in ("", FIRST_TIME) else step.trigger


def _current(run: FlowProcess, prefix: str) -> set[str]:
    """Return the ids of the states in which the run is waiting, including nested states."""
    if isinstance(run, FlowRun):
        ids = {f"{prefix}{run.record.state}"}
        inner = f"{prefix}{run.record.state}/"
    else:
        ids = {f"{prefix}{run.state_of(name)[0].name}" for name in (*run.record.once, *run.record.children)}
        inner = prefix
    for name in run.record.children:
        cell = run.child_process(run.record, name)
        if isinstance(cell, FlowProcess):
            ids |= _current(cell, inner if isinstance(run, FlowRun) else f"{inner}{run.state_of(name)[0].name}/")
    return ids


def _duration(seconds: float) -> str:
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"

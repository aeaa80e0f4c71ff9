"""Diagrams of flows and of their runs, drawn from the table and the trace.

Members of one state, and flows inside a flow, are in boxes.  Default rows are left out unless a run has taken them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fsm_agent.diagrams.drawing import Box, Diagram, Edge, Node, Tone
from fsm_agent.flows.definition.states import (
    CallState,
    EachState,
    End,
    FunctionState,
    GatherState,
    LiveState,
    PauseState,
    State,
    SubflowState,
    WaitState,
)
from fsm_agent.flows.definition.table import TableEntry
from fsm_agent.flows.flow import Flow
from fsm_agent.flows.process.flow_process import FlowProcess
from fsm_agent.flows.process.flow_run import FlowRun
from fsm_agent.messages.event import Stepped
from fsm_agent.mistakes import check

_TIMES = "\N{MULTIPLICATION SIGN}"
_KINDS: dict[type, str] = {
    FunctionState: "function",
    WaitState: "somebody",
    PauseState: "time",
    SubflowState: "flow",
}


@dataclass
class _Drawn:
    """The parts of a diagram so far."""

    nodes: list[Node]
    edges: list[Edge]
    boxes: list[Box]


def flow_diagram(flow: Flow[Any], *, shows_defaults: bool = False) -> Diagram:
    """Return the machine of a flow: its states, what each waits for, and every row on an edge.

    ``[else]`` marks a row that is taken if the rows before it are not.

    Args:
        flow: The flow.
        shows_defaults: Whether the rows are drawn that the user did not write.

    Raises:
        UsageError: It is not a flow.
    """
    check("the flow", flow, isinstance(flow, Flow), "a Flow")
    drawn = _Drawn([], [], [])
    _draw(flow, drawn, "", "", shows_defaults)
    return Diagram(title=flow.name, nodes=tuple(drawn.nodes), edges=tuple(drawn.edges), boxes=tuple(drawn.boxes))


def run_diagram(run: FlowRun[Any]) -> Diagram:
    """Return a run on the map of its flow: how often each way was taken, and how long it was in each state.

    The present state has a thick border, and so has each state inside it that the run waits for.

    Raises:
        UsageError: It is not a run.
    """
    right = "a FlowRun, such as result.run or the run of FlowSuspended,"
    check("the run", run, isinstance(run, FlowRun), right)
    flow, trace = run.flow, run.record.trace
    drawn = _Drawn([], [], [])
    _draw(flow, drawn, "", "", shows_defaults=False)
    visits = Counter(step.to for step in trace if step.source != step.to or step.trigger.startswith("done"))
    spent = _spent(trace)
    current = _current(run, "")
    known = {node.id for node in drawn.nodes}
    drawn.nodes += [_node(flow.states[name], name, "", flow) for name in visits if name not in known]
    nodes = [
        replace(
            node,
            visits=visits[node.id] if "/" not in node.id else None,
            note=(*node.note, *_note(visits[node.id], spent.get(node.id))),
            is_current=node.id in current,
        )
        for node in drawn.nodes
    ]
    taken = Counter((step.source, step.to) for step in trace if step.source in known)
    labels: dict[tuple[str, str], list[str]] = {}
    for (source, to, label), times in Counter((s.source, s.to, _label(s.trigger, s.guard)) for s in trace).items():
        labels.setdefault((source, to), []).append(f"{_TIMES}{times} {label}" if times > 1 else label)
    edges = [
        replace(edge, times=taken[edge.source, edge.target], lines=tuple(labels.get((edge.source, edge.target), ())))
        if "/" not in edge.source
        else edge
        for edge in drawn.edges
    ]
    drawn_ways = {(edge.source, edge.target) for edge in edges}
    edges += [
        Edge(source=source, target=to, lines=tuple(labels[source, to]), times=times)
        for (source, to), times in taken.items()
        if (source, to) not in drawn_ways and source != to
    ]
    verb = "ended" if run.record.ending is not None else "waits"
    ending = run.record.ending
    caption = [f"{verb} in {run.state} after {run.record.steps} states"]
    caption += [ending.detail] if ending is not None and ending.detail else []
    title = f"{flow.name}: {run.record.id or 'a run'}"
    return Diagram(
        title=title, nodes=tuple(nodes), edges=tuple(edges), boxes=tuple(drawn.boxes), caption=tuple(caption)
    )


def _draw(flow: Flow[Any], drawn: _Drawn, prefix: str, box: str, shows_defaults: bool) -> None:
    """Add a flow: its states under a prefix, in a box."""
    entries = [entry for entry in flow.entries if entry.row is not None and (shows_defaults or not entry.is_default)]
    named = dict.fromkeys([flow.start.name, *[name for entry in entries for name in (entry.source, entry.to)]])
    for name in named:
        _draw_state(flow.states[name], drawn, f"{prefix}{name}", box, flow, shows_defaults)
    labels: dict[tuple[str, str], list[str]] = {}
    for entry, label in _labelled(entries):
        found = labels.setdefault((entry.source, entry.to), [])
        if label not in found:
            found.append(label)
    drawn.edges += [
        Edge(source=f"{prefix}{source}", target=f"{prefix}{to}", lines=tuple(lines), weight=2)
        for (source, to), lines in labels.items()
    ]


def _draw_state(state: State[Any], drawn: _Drawn, id: str, box: str, flow: Flow[Any], shows_defaults: bool) -> None:
    inside: Sequence[LiveState[Any, Any]] = state.members if isinstance(state, LiveState) else ()
    if not inside and not isinstance(state, SubflowState):
        drawn.nodes.append(_node(state, id, box, flow))
        return
    own = f"box {id}"
    drawn.boxes.append(Box(id=own, label=_box_label(state), box=box))
    drawn.nodes.append(_node(state, id, own, flow))
    for member in inside:
        _draw_state(member, drawn, f"{id}/{member.name}", own, flow, shows_defaults)
        drawn.edges.append(Edge(source=id, target=f"{id}/{member.name}", is_dashed=True))
    if isinstance(state, SubflowState):
        _draw(state.flow, drawn, f"{id}/", own, shows_defaults)
        drawn.edges.append(Edge(source=id, target=f"{id}/{state.flow.start.name}", is_dashed=True))


def _node(state: State[Any], id: str, box: str, flow: Flow[Any]) -> Node:
    tone: Tone = "plain"
    if isinstance(state, End):
        tone = "failure" if state.is_failure else "success"
    elif isinstance(state, WaitState):
        tone = "branch"
    return Node(
        id=id,
        label=state.name,
        tone=tone,
        is_start=state is flow.start and "/" not in id,
        is_final=isinstance(state, End),
        note=tuple(_waits_for(state)),
        box=box,
    )


def _waits_for(state: State[Any]) -> Iterator[str]:
    """Yield the notes of a state: what it waits for, and how long."""
    if isinstance(state, CallState):
        name = getattr(state.agent, "name", "") or "by the data"
        yield f"role {state.agent}" if isinstance(state.agent, str) else f"agent {name}"
    elif (kind := _KINDS.get(type(state))) is not None:
        once = isinstance(state, FunctionState) and state.function.once
        early = isinstance(state, WaitState) and state.is_early
        yield f"{kind}, once" if once else f"{kind}, also early" if early else kind
    if isinstance(state, LiveState) and state.within_s is not None:
        yield f"within {_duration(state.within_s)}"


def _box_label(state: State[Any]) -> str:
    match state:
        case SubflowState():
            return f"flow {state.flow.name}"
        case EachState():
            at_once = "" if state.parallel is None else f", {state.parallel} at once"
            enough = "" if state.enough is None else f", {_enough(state.enough)} enough"
            return f"for each item{at_once}{enough}"
        case GatherState():
            if state.is_race or state.enough is None:
                return "the first of" if state.is_race else "at once"
            return f"at once, {_enough(state.enough)} enough"
    return state.name


def _enough(enough: float) -> str:
    if isinstance(enough, float):
        return f"{enough:.3g} of them are"
    return f"{enough} {'is' if enough == 1 else 'are'}"


def _labelled(entries: Sequence[TableEntry]) -> Iterator[tuple[TableEntry, str]]:
    guarded: set[tuple[str, str]] = set()
    for entry in entries:
        condition = entry.guard or ("else" if (entry.source, entry.event) in guarded else "")
        if entry.guard:
            guarded.add((entry.source, entry.event))
        yield entry, _label(entry.event, condition)


def _label(event: str, condition: str) -> str:
    return f"{event} [{condition}]" if condition else event


def _current(run: FlowProcess, prefix: str) -> set[str]:
    """Return the ids of the states that the run waits for, including states inside others."""
    if isinstance(run, FlowRun):
        ids = {f"{prefix}{run.record.state}"}
        inner = f"{prefix}{run.record.state}/"
    else:
        ids = {f"{prefix}{run.state_of(name)[0].name}" for name in (*run.record.once, *run.record.children)}
        inner = prefix
    for name in run.record.children:
        cell = run._child_process(run.record, name)
        if isinstance(cell, FlowProcess):
            is_deeper = not isinstance(run, FlowRun) and isinstance(cell, FlowProcess)
            ids |= _current(cell, f"{inner}{run.state_of(name)[0].name}/" if is_deeper else inner)
    return ids


def _spent(trace: Sequence[Stepped]) -> dict[str, float]:
    """Return the seconds that a run spent in each state that it has left."""
    spent: dict[str, float] = {}
    since_s: float | None = None
    for step in trace:
        if since_s is not None and step.at_s >= since_s:
            spent[step.source] = spent.get(step.source, 0.0) + step.at_s - since_s
        since_s = step.at_s
    return spent


def _note(visits: int, spent_s: float | None) -> list[str]:
    if not visits:
        return []
    times = [f"{visits} visit{'s' if visits != 1 else ''}"]
    return times if spent_s is None else [*times, _duration(spent_s)]


def _duration(seconds: float) -> str:
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"

"""Diagrams of the machine of an agent call, and of its runs.

Both are drawn from `ROWS`.  Dashed lines are the exception branch, whose messages are sent to the model and pruned from
the dialog.  `write_lifecycle` writes ``diagrams/agent_call.*``.
"""

from __future__ import annotations

import math
import os
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsm_agent._internal.durations import format_duration
from fsm_agent.diagrams.drawing import Diagram, Edge, Node, Tone, one_line, render, write
from fsm_agent.errors import UsageError
from fsm_agent.lifecycle.record import FINAL, State
from fsm_agent.lifecycle.table import ROWS
from fsm_agent.machine.journal import FlowTable
from fsm_agent.machine.rows import Row
from fsm_agent.messages.event import Stepped
from fsm_agent.messages.reply import Usage
from fsm_agent.mistakes import check

__all__ = [
    "Diagram",
    "Edge",
    "Node",
    "is_entry",
    "lifecycle",
    "render",
    "table_diagram",
    "trace_diagram",
    "write",
    "write_lifecycle",
]


_TONES: dict[str, Tone] = {
    State.PARSE_EXCEPTION: "branch",
    State.COMPLETED: "success",
    State.FAILED: "failure",
}
_TONES_OF_WORDS: dict[str, Tone] = {"end": "success", "failure": "failure", "a person": "branch"}
_ENDS = ("end", "failure")  # words of `FlowTable`, as above
_STATES = frozenset(map(str, State))
_WEIGHTS: dict[tuple[str, str], int] = {(State.SEEDED, State.CALLING): 8, (State.CALLING, State.PARSE_EXCEPTION): 4}
_LEGEND = "dashed: seen by the model, pruned from the dialog"
_REASON = 240  # characters of the reason of a failure
_REASON_LINE = 70
_TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True, slots=True)
class _Arrow:
    """A row for one of its sources."""

    source: str
    trigger: str
    to: str
    guard: str  # "": none
    label: str
    stays: bool


@dataclass(slots=True)
class _Stay:
    """The time and tokens that a run spent in one state."""

    visits: int = 0
    spent_s: float | None = None
    usage: Usage = Usage()

    @property
    def note(self) -> tuple[str, ...]:
        lines = [_format_count(self.visits, "visit")] if self.visits else []
        if self.spent_s is not None:
            lines.append(format_duration(self.spent_s))
        if self.usage.total_tokens:
            lines.append(f"{self.usage.input_tokens or 0:,} + {self.usage.output_tokens or 0:,} tokens")
        return tuple(lines)


def lifecycle(rows: Sequence[Row] = ROWS, *, title: str = "One agent call") -> Diagram:
    """Return the machine of an agent call: its states, and every row as ``trigger [guard]`` on an edge.

    Rows between the same two states share an edge.  ``[else]`` marks a row that is taken if no earlier row with
    the same trigger is.

    Args:
        rows: The table.
        title: The title above the diagram.

    Examples:
        >>> [node.id for node in lifecycle().nodes][:3]
        [<State.SEEDED: 'Seeded'>, <State.CALLING: 'Calling'>, <State.PARSE_EXCEPTION: 'ParseException'>]
    """
    labels: dict[tuple[str, str], list[str]] = {}
    for arrow in _arrows(rows):
        labels.setdefault((arrow.source, arrow.to), []).append(arrow.label)
    edges = [_edge(source, to, lines) for (source, to), lines in labels.items()]
    return Diagram(title=title, nodes=tuple([_node(s) for s in State]), edges=tuple(edges), caption=(_LEGEND,))


def trace_diagram(
    trace: Sequence[Stepped], *, title: str = "A run of an agent call", shows_unvisited: bool = True
) -> Diagram:
    """Return one run drawn on the whole machine: how often each edge was taken, and the time and tokens of each state.

    Notes on states show visits, the time spent there, and the tokens (input + output) of the replies awaited there.
    The current or final state has a thick border; the caption shows why a run failed.

    Args:
        trace: The steps in order.  The steps of several runs, one after the other, add up.
        title: The title above the diagram.
        shows_unvisited: Draw the states and edges outside the run too, in gray.

    Raises:
        UsageError: The trace is not that of an agent call.

    Examples:
        >>> result = Agent(Script("Hi.")).call("Hello")
        >>> trace_diagram(result.trace).title
        'A run of an agent call'
    """
    is_trace = isinstance(trace, Sequence) and all(isinstance(step, Stepped) for step in trace)
    check("the trace", trace, is_trace, "the steps of an agent call, such as result.trace,")
    if trace and trace[0].source == State.SEEDED and str(trace[0].to) not in _STATES:
        what = f"the trace goes from Seeded to {trace[0].to!r}, as no agent call does"
        raise UsageError(f"{what}: run_diagram(result.run) draws the run of a flow")
    stays = _stays(trace)
    taken = Counter((str(step.source), str(step.to)) for step in trace)
    current = str(trace[-1].to) if trace else State.SEEDED
    nodes = [
        replace(_node(name), visits=stay.visits, note=stay.note, is_current=name == current)
        for name, stay in stays.items()
        if stay.visits or shows_unvisited
    ]
    labels = _labels_of_taken(trace)
    ways = dict.fromkeys((arrow.source, arrow.to) for arrow in _arrows(ROWS)) | dict.fromkeys(taken)
    edges = [
        replace(_edge(source, to, labels.get((source, to), ())), times=taken[source, to])
        for source, to in ways
        if taken[source, to] or shows_unvisited
    ]
    return Diagram(title=title, nodes=tuple(nodes), edges=tuple(edges), caption=_summary(trace, current, stays))


def table_diagram(table: FlowTable | None, trace: Sequence[Stepped], *, title: str = "A run of a flow") -> Diagram:
    """Return one run of a flow drawn on its table as the journal has it, without the flow's code.

    Args:
        table: The table; None: it is not known, and only what the run went through is drawn.
        trace: The steps in order.
        title: The title above the diagram.
    """
    table = table or FlowTable(trace[0].to if trace else "", {}, ())
    visits, spent = Counter[str](), dict[str, float]()
    since_s = 0.0
    for step in trace:
        if since_s and step.at_s:
            spent[step.source] = spent.get(step.source, 0.0) + _elapsed_s(since_s, step.at_s)
        since_s = step.at_s
        visits[step.to] += is_entry(step)
    ways: dict[tuple[str, str], list[str]] = {}
    for source, event, guard, to in table.rows:
        ways.setdefault((source, to), []).append(f"{event} [{guard}]" if guard else event)
    taken = Counter((step.source, step.to) for step in trace if step.source != State.SEEDED)
    for (source, to), triggers in _triggers_by_way(trace).items():
        ways.setdefault((source, to), triggers)
    drawn = dict.fromkeys([table.start, *[name for way in ways for name in way]])
    current = trace[-1].to if trace else ""
    nodes = [
        Node(
            id=name,
            label=name,
            tone=_TONES_OF_WORDS.get(word := table.states.get(name, ""), "plain"),
            is_start=name == table.start,
            is_final=word in _ENDS,
            is_current=name == current,
            visits=visits[name],
            note=(*([word] if word and word not in _ENDS else ()), *_stay_note(name, visits, spent)),
        )
        for name in drawn
        if name
    ]
    edges = [
        Edge(source=source, target=to, lines=tuple(dict.fromkeys(lines)), times=taken[source, to])
        for (source, to), lines in ways.items()
    ]
    is_over = table.states.get(current) in _ENDS
    caption = f"{'ended' if is_over else 'is'} in {current} after {_format_count(len(trace), 'step')}"
    return Diagram(title=title, nodes=tuple(nodes), edges=tuple(edges), caption=(caption,) if trace else ())


def is_entry(step: Stepped) -> bool:
    """Return whether a step of a flow enters its state, anew if it was there before; with some it lingers there."""
    if step.source != step.to:
        return True
    if step.trigger in ("cancelled", "expired"):
        return step.guard == "first_time"
    return step.trigger not in ("started", "interrupted", "run_again", "kept")


def _triggers_by_way(trace: Sequence[Stepped]) -> dict[tuple[str, str], list[str]]:
    """Return the triggers by which a run went from one state to another."""
    found: dict[tuple[str, str], list[str]] = {}
    for step in trace:
        if step.source not in (step.to, State.SEEDED):
            found.setdefault((step.source, step.to), []).append(step.trigger)
    return found


def _stay_note(name: str, visits: Counter[str], spent: Mapping[str, float]) -> list[str]:
    noted = [_format_count(visits[name], "visit")] if visits[name] else []
    return [*noted, format_duration(spent[name])] if name in spent else noted


def write_lifecycle(directory: str | os.PathLike[str]) -> list[Path]:
    """Write ``agent_call.mmd``, ``.dot`` and ``.svg`` into ``directory``.

    Raises:
        ConfigError: `dot` is not installed; the other two files have been written.
        UsageError: There is no such directory.

    Examples:
        >>> write_lifecycle("pictures")                             # doctest: +SKIP
    """
    return [write(lifecycle(), Path(directory, f"agent_call{suffix}")) for suffix in (".mmd", ".dot", ".svg")]


def _arrows(rows: Sequence[Row]) -> list[_Arrow]:
    arrows: list[_Arrow] = []
    guarded: set[tuple[str, str]] = set()
    for trigger, sources, to, guard, _ in rows:
        name = guard.__name__ if guard else ""
        for source in sources if isinstance(sources, tuple) else (sources,):
            condition = name or ("else" if (trigger, source) in guarded else "")
            label = f"{trigger} [{condition}]" if condition else trigger
            arrows.append(_Arrow(source, trigger, to or source, name, label, to is None))
            if guard:
                guarded.add((trigger, source))
    return arrows


def _node(name: str) -> Node:
    return Node(
        id=name,
        label=name,
        tone=_TONES.get(name, "plain"),
        is_start=name == State.SEEDED,
        is_final=name in FINAL,
    )


def _edge(source: str, to: str, lines: Sequence[str]) -> Edge:
    # Only a usable reply leaves the exception branch for the dialog; its other messages are pruned.
    branch, unused = State.PARSE_EXCEPTION, (State.BACKOFF, State.FAILED)
    is_dashed = to == branch or (source == branch and to in unused)
    weight = _WEIGHTS.get((source, to), 1)
    return Edge(source=source, target=to, lines=tuple(lines), is_dashed=is_dashed, weight=weight)


def _stays(trace: Sequence[Stepped]) -> dict[str, _Stay]:
    """Return the stays by state, in the order of the lifecycle; unknown states come last."""
    stays: dict[str, _Stay] = {str(state): _Stay() for state in State}
    lingering = {(arrow.source, arrow.trigger) for arrow in _arrows(ROWS) if arrow.stays}
    before: Stepped | None = None
    at_s = 0.0
    for step in trace:
        since_s, at_s = at_s, step.at_s or at_s  # 0: the time is unknown
        source, to = stays.setdefault(str(step.source), _Stay()), stays.setdefault(str(step.to), _Stay())
        if before is not None and before.to == step.source:
            source.spent_s = (source.spent_s or 0.0) + _elapsed_s(since_s, at_s)
        else:
            source.visits += 1  # a run begins
        source.usage += step.usage or Usage()
        to.visits += step.source != step.to or (step.source, step.trigger) not in lingering
        before = step
    if before is None:
        stays[State.SEEDED].visits = 1
    return stays


def _labels_of_taken(trace: Sequence[Stepped]) -> dict[tuple[str, str], list[str]]:
    """Return the lines of the labels of the edges taken, in the order first taken."""
    label_of = {(arrow.source, arrow.trigger, arrow.to, arrow.guard): arrow.label for arrow in _arrows(ROWS)}
    labels: dict[tuple[str, str], list[str]] = {}
    for taken, times in Counter((str(s.source), s.trigger, str(s.to), s.guard) for s in trace).items():
        source, trigger, to, guard = taken
        label = label_of.get(taken, f"{trigger} [{guard}]" if guard else trigger)
        labels.setdefault((source, to), []).append(f"{_TIMES}{times} {label}" if times > 1 else label)
    return labels


def _summary(trace: Sequence[Stepped], current: str, stays: dict[str, _Stay]) -> tuple[str, ...]:
    verb = "ended" if current in FINAL else "waits"
    spent = format_duration(sum(stay.spent_s or 0.0 for stay in stays.values()))
    tokens = _format_count(sum(stay.usage.total_tokens for stay in stays.values()), "token")
    lines = [f"{verb} in {current} after {_format_count(len(trace), 'step')}, {spent}, {tokens}"]
    if trace and current == State.FAILED:
        last = trace[-1]
        why = f"{last.trigger}: {last.detail}" if last.detail else last.trigger
        lines += textwrap.wrap(one_line(why, _REASON), _REASON_LINE)
    return tuple(lines)


def _elapsed_s(since_s: float, at_s: float) -> float:
    """Return the difference, or 0 if it is not plausible: a clock was set back, or a file holds any number."""
    elapsed = at_s - since_s
    return elapsed if 0 <= elapsed < math.inf else 0.0


def _format_count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' if number != 1 else ''}"

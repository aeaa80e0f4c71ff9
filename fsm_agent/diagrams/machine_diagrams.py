"""Diagrams of runs, and of the machine that every agent call follows.

Dashed lines mark the exception branch, whose messages are sent to the model and then pruned from the dialog.
`write_call_diagram` writes ``diagrams/agent_call.*``.
"""

from __future__ import annotations

import math
import os
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from fsm_agent._internal.text import counted, format_duration
from fsm_agent.call.journal import FlowTable
from fsm_agent.call.machine import Row, single_rows
from fsm_agent.call.record import FINAL, State
from fsm_agent.call.transition_table import ROWS
from fsm_agent.diagrams.drawing import Diagram, Edge, Node, Tone, one_line, write
from fsm_agent.errors import UsageError
from fsm_agent.messages.events import Stepped
from fsm_agent.messages.reply import Usage
from fsm_agent.validation import require

Level: TypeAlias = Literal["overview", "rows"]

ANY = "* any state"  # the id of the node that stands for all states

ANY_NODE = Node(id=ANY, label="any state", is_dashed=True)

MANY_ROWS = 30  # with this many rows, a diagram of all rows is unreadable

_USUAL = 2  # triggers on an arrow of an overview

_OF_ALL = 3  # with this many source states, one arrow from "any state" is shorter

_NUMBERS = 4  # step numbers on an arrow

_TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True, slots=True)
class Way:
    """A table row for one of its sources and one of its triggers."""

    source: str
    trigger: str
    target: str
    guard: str = ""  # "else" if rows before this one have guards; "" if it is always taken

    @property
    def label(self) -> str:
        """The label of the complete row, such as ``done [is_good]``."""
        return f"{self.trigger} [{self.guard}]".lstrip() if self.guard else self.trigger


def level_for(level: Level | None, rows: int) -> Level:
    """Return ``level`` or, if it is None, a level at which this number of rows is readable.

    Raises:
        UsageError: If the level is unknown.
    """
    require("level", level, level is None or level in get_args(Level), "'overview', 'rows' or None")
    return level or ("overview" if rows >= MANY_ROWS else "rows")


def with_else(ways: Iterable[Way]) -> list[Way]:
    """Mark each row that has no guard and follows guarded rows for the same source and trigger."""
    guarded: set[tuple[str, str]] = set()
    marked = []
    for way in ways:
        if way.guard:
            guarded.add((way.source, way.trigger))
        marked.append(replace(way, guard="else") if not way.guard and (way.source, way.trigger) in guarded else way)
    return marked


def lines_of(ways: Sequence[Way], level: Level, ends: Mapping[str, bool]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the lines of text on each arrow of a diagram, by the arrow's source and target.

    - ``rows`` shows every row.  A row that all states share becomes one arrow from `ANY`.
    - ``overview`` leaves out guards and arrows from a state to itself.  An arrow shows its two most common triggers.  A
      row that leads from most states to an end becomes one arrow from `ANY`.  If that end is a failure, all rows that
      lead to it join this arrow.

    Args:
        ways: The table.
        level: How much of the table to show.
        ends: The end states, and whether each is a failure.
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
    words: dict[tuple[str, str], dict[str, set[str]]] = {}  # the labels of each arrow, and the sources of each label
    for way in ways:
        source = ANY if way.target in failures or _row(way, level) in shared else way.source
        if level != "overview" or source != way.target:
            word = way.label if level == "rows" else way.trigger
            words.setdefault((source, way.target), {}).setdefault(word, set()).add(way.source)
    shown = _usual if level == "overview" else tuple
    return {arrow: tuple(filter(None, shown(found))) for arrow, found in words.items()}


def _row(way: Way, level: Level) -> tuple[str, ...]:
    return (way.trigger, way.target, way.guard) if level == "rows" else (way.trigger, way.target)


def _usual(words: Mapping[str, set[str]]) -> tuple[str, ...]:
    most = sorted(words, key=lambda word: -len(words[word]))
    return (*most[:_USUAL], f"+{len(most) - _USUAL} more") if len(most) > _USUAL + 1 else tuple(most)


def without_done(ways: Sequence[Way]) -> list[Way]:
    """Remove the trigger "done" from arrows that begin at states with no other trigger of their own."""
    usual = ("done", "cancelled", "expired")  # the last two concern the whole flow
    others = {way.source for way in ways if way.trigger.partition(" ")[0] not in usual}
    return [
        way if way.source in others else replace(way, trigger=way.trigger.removeprefix("done").lstrip()) for way in ways
    ]


def steps_on(trace: Sequence[Stepped], label: Callable[[Stepped], str]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the arrows that a run took, with lines of text.  Each line has a label and its steps' numbers, from 1."""
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


_TONES: dict[str, Tone] = {
    State.PARSE_EXCEPTION: "branch",
    State.COMPLETED: "success",
    State.FAILED: "failure",
}

_TONES_OF_WORDS: dict[str, Tone] = {"end": "success", "failure": "failure", "a person": "branch"}

_ENDS = ("end", "failure")  # words of `FlowTable`

_CALL_ENDS: dict[str, bool] = {State.COMPLETED: False, State.FAILED: True}

_STATES = frozenset(map(str, State))

_ABOUT: dict[str, tuple[str, ...]] = {  # what happens in a state, for newcomers
    State.SEEDED: ("not begun",),
    State.CALLING: ("asks the model",),
    State.TOOL_INTERRUPT: ("people approve,", "functions run"),
    State.PARSE_EXCEPTION: ("told what was wrong,", "asked again"),
    State.BACKOFF: ("provider busy:", "wait, retry"),
    State.CHECKING: ("your own check,", "if you have one"),
    State.HANDED_OVER: ("another agent", "takes over"),
}

_LIMITS = {  # guards of rows that are taken at a limit; an overview omits these rows
    *("too_deep", "after_final", "loop_must_stop", "stops_at_limit", "fails_at_limit", "out_of_handoffs")
}

_TWIN = State.PARSE_EXCEPTION, State.CALLING  # of the arrows from the first, an overview shows only those to an end

_SPINE = {(State.SEEDED, State.CALLING), (State.CALLING, State.CHECKING), (State.CHECKING, State.COMPLETED)}

_WEIGHTS: dict[tuple[str, str], int] = {(State.SEEDED, State.CALLING): 8, (State.CALLING, State.PARSE_EXCEPTION): 4}

_LEGEND = "dashed: the model sees it, and an accepted answer removes it from the dialog"

_REASON = 240  # maximum characters of a failure's reason

_REASON_LINE = 70


@dataclass(slots=True)
class Stay:
    """The visits, time and tokens of a run in one state."""

    visits: int = 0
    spent_s: float | None = None
    usage: Usage = Usage()

    @property
    def note(self) -> tuple[str, ...]:
        lines = [counted(self.visits, "visit")] if self.visits else []
        if self.spent_s is not None:
            lines.append(format_duration(self.spent_s))
        if self.usage.total_tokens:
            lines.append(f"{self.usage.input_tokens or 0:,} + {self.usage.output_tokens or 0:,} tokens")
        return tuple(lines)


def call_diagram(rows: Sequence[Row] = ROWS, *, level: Level | None = None, title: str = "One agent call") -> Diagram:
    """Return a diagram of an agent call's machine.

    Args:
        rows: The table.
        level: ``"overview"`` shows the usual transitions from left to right, without the effects of limits.  ``"rows"``
            shows every row as ``trigger [guard]``, with ``[else]`` for a row that is taken if no earlier row is.  The
            default is ``"rows"`` for tables with fewer than 30 rows, otherwise ``"overview"``.
        title: The title above the diagram.

    Raises:
        UsageError: If the level is unknown.

    Examples:
        >>> "Calling" in render(call_diagram(), "mermaid")
        True
        >>> len(call_diagram(level="rows").edges) > len(call_diagram(level="overview").edges)
        True
    """
    ways = with_else([Way(row.source, row.trigger, row.to, row.guard_name) for row in single_rows(rows)])
    is_overview = level_for(level, len(ways)) == "overview"
    rows_of = lines_of(ways, "rows", _CALL_ENDS)
    edges = _overview(ways) if is_overview else [_edge(*arrow, lines) for arrow, lines in rows_of.items()]
    about = _ABOUT if is_overview else {}
    nodes = (*[replace(_node(state), note=about.get(state, ())) for state in State], *_any_state(edges))
    direction: Literal["down", "right"] = "right" if is_overview else "down"
    return Diagram(title=title, nodes=nodes, edges=tuple(edges), caption=(_LEGEND,), direction=direction)


def _overview(ways: Sequence[Way]) -> list[Edge]:
    twin, other = _TWIN
    usual = [way for way in ways if way.guard not in _LIMITS or way.target == State.FAILED]
    lines = lines_of(usual, "overview", _CALL_ENDS)
    as_other = {(twin, to) for source, to in lines if other in (source, to) and to not in _CALL_ENDS}
    into_both = {(source, twin) for source, to in lines if to == other and source != twin}
    hidden = as_other | {way for way in into_both if {*lines.get(way, ())} <= {*lines[way[0], other]}}
    lines = {arrow: found for arrow, found in lines.items() if arrow not in hidden}
    return [replace(_edge(*arrow, found), weight=20 if arrow in _SPINE else 1) for arrow, found in lines.items()]


def trace_diagram(trace: Sequence[Stepped], *, title: str = "A run of an agent call") -> Diagram:
    """Return a diagram that shows one run on a drawing of the machine.

    Each arrow that the run followed is labelled with the numbers of its steps: ``2, 4 functions_asked`` means the
    second and the fourth step.  Each state shows how often it was visited, the time spent in it, and the tokens (input
    + output) of the replies that arrived there.  The current or final state has a thick border, and everything that the
    run did not reach is gray.  If the run failed, the caption shows why.

    Args:
        trace: The steps in order.  If they are from several consecutive runs, the counts are added up.
        title: The title above the diagram.

    Raises:
        UsageError: If the trace is not from an agent call.

    Examples:
        >>> result = Agent(Script("Hi.")).call("Hello")
        >>> trace_diagram(result.trace).title
        'A run of an agent call'
    """
    is_trace = isinstance(trace, Sequence) and all(isinstance(step, Stepped) for step in trace)
    require("the trace", trace, is_trace, "the steps of an agent call, such as result.trace")
    if trace and trace[0].source == State.SEEDED and str(trace[0].to) not in _STATES:
        what = f"expected the steps of an agent call, got one from Seeded to {trace[0].to!r}"
        raise UsageError(f"the trace: {what}; call run_diagram(result.run) for the run of a flow")
    whole = call_diagram(level="overview", title=title)
    lingering = {(row.source, row.trigger) for row in single_rows([row for row in ROWS if row[2] is None])}
    stays = stays_in(trace, lambda step: step.source != step.to or (step.source, step.trigger) not in lingering)
    if not trace:
        stays[State.SEEDED] = Stay(visits=1)
    current = str(trace[-1].to) if trace else State.SEEDED
    nodes = [replace(node, note=()) for node in whole.nodes]
    nodes += [_node(name) for name in stays if name not in _STATES]
    whole = replace(whole, nodes=tuple(nodes), caption=_summary(trace, current, stays))
    return with_run(whole, trace, stays, {current}, _trigger_of, _edge)


def table_diagram(table: FlowTable | None, trace: Sequence[Stepped], *, title: str = "A run of a flow") -> Diagram:
    """Return a diagram of one run of a flow.  It is drawn from the journal, without the flow's code.

    Args:
        table: The flow's table from the journal.  If it is None, only the path of the run is drawn.
        trace: The steps in order.
        title: The title above the diagram.
    """
    table = table or FlowTable(trace[0].to if trace else "", {}, ())
    stays = stays_in(trace)
    ways = [Way(source, event, to, guard) for source, event, guard, to in table.rows]
    ends = {name: word == "failure" for name, word in table.states.items() if word in _ENDS}
    edges = [
        Edge(source=source, target=to) for source, to in lines_of(without_done(ways), level_for(None, len(ways)), ends)
    ]
    named = [table.start, *[name for edge in edges for name in (edge.source, edge.target)], *stays]
    nodes = [
        Node(
            id=name,
            label=name,
            tone=_TONES_OF_WORDS.get(word := table.states.get(name, ""), "plain"),
            is_start=name == table.start,
            is_final=word in _ENDS,
            note=(word,) if word and word not in _ENDS else (),
        )
        for name in dict.fromkeys(named)
        if name and name not in (ANY, State.SEEDED)
    ]
    current = trace[-1].to if trace else ""
    is_over = table.states.get(current) in _ENDS
    caption = f"{'ended' if is_over else 'is'} in {current} after {counted(len(trace), 'step')}"
    drawn = Diagram(
        title=title,
        nodes=(*nodes, *_any_state(edges)),
        edges=tuple(edges),
        caption=(caption,) if trace else (),
    )
    return with_run(drawn, trace, stays, {current}, _label_of_step)


def with_run(
    machine: Diagram,
    trace: Sequence[Stepped],
    stays: Mapping[str, Stay],
    current: Collection[str],
    label: Callable[[Stepped], str],
    edge: Callable[[str, str, Sequence[str]], Edge] = lambda source, to, lines: Edge(source=source, target=to),
) -> Diagram:
    """Return a machine's diagram with a run drawn on it, showing visits, times, tokens and numbered steps.

    Args:
        machine: The machine's diagram.  The ids of states inside other states contain a slash, and their counts are
            unknown.
        trace: The steps in order.
        stays: The run's visits, time and tokens in each state.
        current: The ids of the states in which the run is waiting.
        label: A function that returns the words on a step's arrow.
        edge: A function that makes the edge for an arrow that the run took but the machine's diagram does not show.
    """

    def of_run(node: Node) -> Node:
        stay = stays.get(node.id, Stay())
        visits = None if "/" in node.id else stay.visits
        return replace(node, visits=visits, note=(*node.note, *stay.note), is_current=node.id in current)

    nodes = tuple(map(of_run, machine.nodes))
    known = {node.id for node in nodes}
    lines = steps_on(trace, label)
    taken = Counter((str(step.source), str(step.to)) for step in trace if step.source in known)
    entered = {(step.source, step.to) for step in trace if is_entry(step)}
    drawn = {(one.source, one.target): one for one in machine.edges}
    drawn |= {arrow: edge(*arrow, ()) for arrow in taken if arrow not in drawn and arrow in entered}
    edges = [
        one if "/" in arrow[0] else replace(one, times=taken[arrow], lines=lines.get(arrow, ()))
        for arrow, one in drawn.items()
    ]
    return replace(machine, nodes=nodes, edges=tuple(edges))


def is_entry(step: Stepped) -> bool:
    """Return whether a step enters or re-enters its state, rather than staying in it."""
    if step.source != step.to:
        return True
    if step.trigger in ("cancelled", "expired"):
        return step.guard == "first_time"
    return step.trigger not in ("started", "interrupted", "run_again", "kept")


def stays_in(trace: Iterable[Stepped], is_entry: Callable[[Stepped], bool] = is_entry) -> dict[str, Stay]:
    """Return a run's visits, time and tokens for each state."""
    stays: dict[str, Stay] = {}
    before: Stepped | None = None
    at_s = 0.0
    for step in trace:
        since_s, at_s = at_s, step.at_s or at_s  # 0: the time is unknown
        source, to = stays.setdefault(str(step.source), Stay()), stays.setdefault(str(step.to), Stay())
        if before is not None and before.to == step.source:
            source.spent_s = (source.spent_s or 0.0) + _elapsed_s(since_s, at_s)
        else:
            source.visits += 1  # a run begins
        source.usage += step.usage or Usage()
        to.visits += is_entry(step)
        before = step
    return stays


def write_call_diagram(directory: str | os.PathLike[str]) -> list[Path]:
    """Write the overview of an agent call into ``directory``: ``agent_call.mmd``, ``.dot`` and ``.svg``.

    Raises:
        ConfigError: If `dot` is not installed.  The other two files are still written.
        UsageError: If the directory does not exist.

    Examples:
        >>> write_call_diagram("pictures")                             # doctest: +SKIP
    """
    return [write(call_diagram(), Path(directory, f"agent_call{suffix}")) for suffix in (".mmd", ".dot", ".svg")]


def _any_state(edges: Sequence[Edge]) -> list[Node]:
    return [ANY_NODE] if any(edge.source == ANY for edge in edges) else []


def _trigger_of(step: Stepped) -> str:
    return step.trigger


def _label_of_step(step: Stepped) -> str:
    return f"{step.trigger} [{step.guard}]" if step.guard else step.trigger


def _node(name: str) -> Node:
    return Node(
        id=name,
        label=name,
        tone=_TONES.get(name, "plain"),
        is_start=name == State.SEEDED,
        is_final=name in FINAL,
    )


def _edge(source: str, to: str, lines: Sequence[str]) -> Edge:
    # Only a usable reply returns from the exception branch to the dialog; the branch's other messages are pruned.
    branch, unused = State.PARSE_EXCEPTION, (State.BACKOFF, State.FAILED)
    is_dashed = to == branch or (source == branch and to in unused)
    weight = _WEIGHTS.get((source, to), 1)
    return Edge(source=source, target=to, lines=tuple(lines), is_dashed=is_dashed, weight=weight)


def _summary(trace: Sequence[Stepped], current: str, stays: Mapping[str, Stay]) -> tuple[str, ...]:
    verb = "ended" if current in FINAL else "waits"
    spent = format_duration(sum(stay.spent_s or 0.0 for stay in stays.values()))
    tokens = counted(sum(stay.usage.total_tokens for stay in stays.values()), "token")
    lines = [f"{verb} in {current} after {counted(len(trace), 'step')}, {spent}, {tokens}"]
    if trace and current == State.FAILED:
        last = trace[-1]
        why = f"{last.trigger}: {last.detail}" if last.detail else last.trigger
        lines += textwrap.wrap(one_line(why, _REASON), _REASON_LINE)
    return tuple(lines)


def _elapsed_s(since_s: float, at_s: float) -> float:
    """Return the difference between two times, or 0 if it is implausible, for example because a clock was set back."""
    elapsed = at_s - since_s
    return elapsed if 0 <= elapsed < math.inf else 0.0

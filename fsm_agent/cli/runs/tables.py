"""Runs, questions and differences as tables and paragraphs."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fsm_agent._internal.durations import format_moment
from fsm_agent._internal.plain_text import plain
from fsm_agent.cli.runs.picture import safe, shown_duration
from fsm_agent.cli.terminal import TABLE_WIDTH, folded, one_line, shown_call, whole_call
from fsm_agent.messages.events import Question
from fsm_agent.messages.message import FunctionCall
from fsm_agent.store.history import RunReading
from fsm_agent.store.listing import STUCK, is_undriven
from fsm_agent.store.store import Run, RunCount

_SHOWN_VALUE = 200  # characters of a value that differs
_LEAST, _LEAST_VALUE, _GAP = 20, 12, 2  # columns next to the names, of each differing value, and between columns
UNDRIVEN = "no driver: due for a worker"
OPTIONS = {  # of ``runs answer``, by the kind of the outcome
    "approved": "--approve",
    "modified": "--arguments JSON",
    "denied": "--deny [--reason WHY]",
    "returned": "--result TEXT",
    "function_failed": "--failed TEXT",
    "run_again": "--run-again",
    "cancelled": "--cancel [--reason WHY]",
}


def runs_table(runs: Sequence[Run], width: int | None = None) -> RenderableType:
    """Return a line for each run; where the terminal is too narrow for one, a paragraph."""
    table = _table("run", "agent", "state", "entries", "changed", "waits for")
    table.columns[3].justify = table.columns[4].justify = "right"
    now_s = time.time()
    rows = [
        (
            *(run.id, run.agent, run.state or "-", str(run.n)),
            f"{shown_duration(max(0.0, now_s - run.updated_s))} ago",
            waits_for(run, now_s),
        )
        for run in runs
    ]
    return _fill_table(table, rows, width, 5)


def waits_for(run: Run, now_s: float) -> str:
    """Return what a run waits for, in a few words."""
    if run.is_ended:
        return ""
    if run.holder is not None:
        return f"driven by {run.holder}"
    awaited = [f"{question.key} ({question.kind}){_until(question)}" for question in run.waits]
    if is_undriven(run, now_s):  # also one that asks, when its driver was interrupted
        awaited.append("a worker: it is due")
    if awaited:
        return ", ".join(awaited)
    return "a post" if run.due_s is None else format_moment(run.due_s)


def _until(question: Question) -> str:
    """Return until when a question can be answered, as the end of what is said of it."""
    return "" if question.until_s is None else f" until {format_moment(question.until_s)}"


def whereabouts(run: Run, now_s: float) -> str:
    """Return what a run does or waits for, as what is said of it: ``has ended``."""
    if run.is_ended:
        return "has ended"
    return f"{'is' if run.holder is not None else 'waits for'} {waits_for(run, now_s)}"


def questions_table(runs: Sequence[Run], width: int | None = None) -> RenderableType:
    """Return a line for each open question; where the terminal is too narrow for one, a paragraph."""
    asked = [(run, question) for run in runs for question in run.waits]
    is_timed = any(question.until_s is not None for _, question in asked)
    table = _table("run", "agent", "key", "kind", "about", "since", *["until"] * is_timed)
    table.columns[5].justify = "right"
    now_s = time.time()
    rows = [
        (
            *(run.id, run.agent, question.key, question.kind, about_question(question)),
            shown_duration(max(0.0, now_s - run.updated_s)),
            *["" if question.until_s is None else format_moment(question.until_s)] * is_timed,
        )
        for run, question in asked
    ]
    return _fill_table(table, rows, width, 4)


def counts_table(counts: Sequence[RunCount]) -> RenderableType:
    """Return a line for each agent and state, and one for all."""
    table = _table("agent", "state", "runs", "failed", "asking", "stuck", "oldest")
    for column in table.columns[2:]:
        column.justify = "right"
    now_s = time.time()
    groups: dict[tuple[str, str], list[RunCount]] = {}
    for count in counts:
        groups.setdefault((count.agent, count.state or "-"), []).append(count)
    for (agent, state), found in groups.items():
        table.add_row(safe(agent), safe(state), *_counted(found, now_s))
    table.add_row(Text("all", "bold"), "", *_counted(counts, now_s))
    return table


def _counted(counts: Sequence[RunCount], now_s: float) -> Iterator[str]:
    """Yield how many runs there are, have failed, ask or are stuck, and how long ago the oldest last changed."""
    for of in (
        lambda _: True,
        lambda count: count.is_failed,
        lambda count: bool(count.waits_for),
        lambda count: STUCK in count.waits_for,
    ):
        found = sum([count.count for count in counts if of(count)])
        yield f"{found:,}" if found else "-"
    yield shown_duration(max(0.0, now_s - min([count.oldest_s for count in counts])))


def _fill_table(table: Table, rows: Sequence[tuple[str, ...]], width: int | None, broken: int) -> RenderableType:
    """Return a table with its rows, of which one column is broken; as paragraphs, where the others have no room."""
    table.columns[broken].overflow = "fold"
    whole = [column for n, column in enumerate(zip(*rows, strict=True)) if n != broken]
    names_width = sum(max(cell_len(one_line(cell)) for cell in column) + _GAP for column in whole)
    if width is None or width >= max(TABLE_WIDTH, names_width + _LEAST):
        for n, column in enumerate(table.columns):
            column.no_wrap = n != broken
        for row in rows:
            table.add_row(*map(safe, row))
        return table
    lines = list[Text]()
    for row in rows:
        first, *cells = [one_line(cell) for cell in row]
        named = [f"{column.header}: {cell}" for column, cell in zip(table.columns[1:], cells, strict=True) if cell]
        lines += [Text(first, "bold"), Text(folded(", ".join(named), width, "  ", "  "))]
    return Group(*lines)


def about_question(question: Question, *, whole: bool = False) -> str:
    """Return what a question is about: a function call as Python writes it, or its text."""
    try:
        about = msgspec.json.decode(question.about or "{}")
    except msgspec.DecodeError:
        return plain(question.about)
    if isinstance(about, dict) and isinstance(about.get("function"), str) and isinstance(about.get("arguments"), str):
        call = FunctionCall(name=about["function"], arguments_json=about["arguments"])
        return whole_call(call) if whole else shown_call(call)
    texts = [about.get(name) for name in ("question", "problem")] if isinstance(about, dict) else []
    return plain(next((text for text in texts if isinstance(text, str)), question.about))


def _option(question: Question, kind: str) -> str:
    """Return the option of ``runs answer`` for a kind of answer; of a flow's question, with the types that it takes."""
    types = question.types if kind == "returned" else ()
    return f"--result 'JSON of {' | '.join(types)}'" if types else OPTIONS.get(kind, kind)


def head_lines(reading: RunReading) -> list[tuple[str, str]]:
    """Return the lines above the picture of a run, each with a style."""
    run, header = reading.run, reading.header
    now_s = time.time()
    where = run.state or ("begun" if run.n else "not begun")  # it is kept when a run rests
    waits = waits_for(run, now_s)
    who = "flow" if reading.kind == "flow" else "agent"
    lines = [(f"run {one_line(run.id)} of {who} {one_line(run.agent)!r}: {one_line(where)}", "bold")]
    lasted = shown_duration(max(0.0, run.updated_s - run.created_s))
    lines.append((f"{format_moment(run.created_s)}, for {lasted}; {run.n} entries; {reading.verdict}", "dim"))
    if header.conversation:
        behind = f", behind the run {one_line(header.follows)}" if header.follows else ""
        lines.append((f"turn {header.turn} of the conversation {one_line(header.conversation)!r}{behind}", "dim"))
    if header.forked is not None:
        by = f", by {one_line(header.forked_by)}" if header.forked_by else ""
        lines.append((f"a fork of the run {one_line(header.forked[0])} after its step {header.forked[1]}{by}", "dim"))
    if reading.title:
        lines.append((f"{'task' if reading.kind == 'call' else 'data'}: {one_line(reading.title)}", ""))
    if header.extra:
        lines.append((f"extra: {one_line(msgspec.json.encode(header.extra).decode())}", ""))
    if is_undriven(run, now_s):
        lines.append((UNDRIVEN, "yellow"))
    elif waits and not run.waits:
        lines.append((f"waits for {one_line(waits)}", ""))
    for question in run.waits:
        lines.append(("", ""))
        lines.append(
            (
                f"{one_line(question.key)} asks ({one_line(question.kind)}){_until(question)}:"
                f" {about_question(question, whole=True)}",
                "bold yellow",
            )
        )
        right = ", ".join([_option(question, kind) for kind in question.answers])
        named = shlex.join(map(one_line, (run.id, question.key)))  # names may come from clients of a service
        lines.append((f"    fsm-agent runs answer {named} …", ""))
        lines.append((f"    where … is one of: {one_line(right)}", ""))
    return lines


def processes_table(reading: RunReading, width: int | None = None) -> RenderableType:
    """Return a line for each process inside of a run; where the terminal is too narrow for one, a paragraph."""
    table = _table("inside", "what", "state", "entry", "task")
    table.columns[3].justify = "right"
    rows = [
        (path, one.name or one.kind, one.state, str(one.n), one_line(one.task, _SHOWN_VALUE))
        for path, one in reading.processes.items()
        if path
    ]
    return _fill_table(table, rows, width, 4)


def differences_table(
    names: tuple[str, str], found: Sequence[tuple[str, Any, Any]], width: int | None = None
) -> RenderableType:
    """Return a line for each value that differs; where the terminal is too narrow for the names, a paragraph."""
    places_width = max([cell_len(one_line(where)) for where, *_ in found], default=0)
    names_width = sum([max(cell_len(one_line(name)), _LEAST_VALUE) + _GAP for name in names])
    if width is not None and width < places_width + _GAP + names_width:
        return Group(*[line for where, a, b in found for line in _difference(names, where, (a, b), width)])
    table = _table("", *[one_line(name) for name in names])
    for column in table.columns:
        column.overflow = "fold"
    table.columns[0].no_wrap = width is not None
    for where, a, b in found:
        table.add_row(safe(where), _value(a), _value(b))
    return table


def _difference(names: tuple[str, str], where: str, values: tuple[Any, Any], width: int) -> Iterator[Text]:
    yield Text(one_line(where), "bold")
    for name, value in zip(names, values, strict=True):
        yield Text(folded(f"{one_line(name)}: {_value(value)}", width, "  ", "    "))


def _value(value: Any) -> Text:
    text = value if isinstance(value, str) else "-" if value is None else msgspec.json.encode(value).decode()
    return Text(one_line(text, _SHOWN_VALUE))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(Text(column), vertical="top")
    return table

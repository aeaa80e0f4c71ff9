"""Shows runs on a terminal, as tables and as a picture with a lane for each state."""

from __future__ import annotations

import json
import shlex
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fsm_agent._internal.text import format_duration, format_moment, plain
from fsm_agent.call import outcomes
from fsm_agent.call.question_forms import about_of, question_text
from fsm_agent.call.record import ContextUse, State
from fsm_agent.cli.terminal import one_line, shown_call, whole_call
from fsm_agent.messages.events import Question
from fsm_agent.messages.message import FunctionCall
from fsm_agent.store.history import RETRIED, HistoryEntry, RunHistory
from fsm_agent.store.listing import STUCK, is_undriven
from fsm_agent.store.store import Run, RunCount

OPTIONS = {  # options of ``runs answer``, by the kind of the outcome
    "approved": "--approve",
    "modified": "--arguments JSON",
    "denied": "--deny [--reason WHY]",
    "returned": "--result TEXT",
    "function_failed": "--failed TEXT",
    "run_again": "--run-again",
    "cancelled": "--cancel [--reason WHY]",
}
_ABOUT = 200  # characters of an entry's description
_KEY, _STEP, _WHY = 20, 20, 1_000  # characters of a key or a state, of triggers, of why a reply was refused
_GAP, _LEAST, _LEAST_WHY = 2, 16, 40  # columns between cells; minimum widths of the folded column and of reasons
_MOST_LANES = 16
_FIRST = "model:0"  # the first request
_STYLES: dict[str, str] = {
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.PARSE_EXCEPTION: "yellow",
    State.BACKOFF: "yellow",
}
_STYLES_OF_WORDS = {"end": "green", "failure": "red", "a person": "yellow"}  # in the table of a flow


class TextTable:
    """Shows rows of untrusted text as a table, or as paragraphs if the terminal is too narrow.

    The widest column is folded, but words in other columns are never broken, so that names can be copied.

    Args:
        headers: The column headers.
        rows: The cells of each row.
        numbers: The indices of columns with numbers.
    """

    def __init__(self, headers: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()) -> None:
        self._headers, self._numbers = headers, numbers
        self._lines = [[one_line(cell) for cell in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [max(map(cell_len, column)) for column in zip(self._headers, *self._lines, strict=True)]
        folded = max(range(1, len(widths)), key=widths.__getitem__)
        if sum(widths) - widths[folded] + _GAP * len(widths) + _LEAST > options.max_width:
            for line in self._lines:
                yield from _paragraph(self._headers, line)
            return
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
        for n, header in enumerate(self._headers):
            justify: Any = "right" if n in self._numbers else "left"
            table.add_column(Text(header), overflow="fold", justify=justify, no_wrap=n != folded)
        for line in self._lines:
            table.add_row(*map(Text, line))
        yield table


def _paragraph(headers: Sequence[str], line: Sequence[str]) -> Iterator[RenderableType]:
    yield Text(line[0], "bold", no_wrap=True, overflow="ignore")
    about = ", ".join([f"{header}: {cell}" for header, cell in zip(headers[1:], line[1:], strict=True) if cell])
    yield Padding(Text(about), (0, 0, 0, 2), expand=False)


def runs_table(runs: Sequence[Run]) -> RenderableType:
    """Return a table with a line for each run."""
    rows = [
        (run.id, run.agent, run.state or "-", str(run.n), f"{_age(run.updated_s)} ago", waits_for(run)) for run in runs
    ]
    return TextTable(("run", "agent", "state", "entries", "changed", "waits for"), rows, numbers=(3, 4))


def questions_table(runs: Sequence[Run]) -> RenderableType:
    """Return a table with a line for each open question."""
    rows = [
        (
            *(run.id, run.agent, question.key, question.kind, about_question(question), _age(run.updated_s)),
            "" if question.until_s is None else format_moment(question.until_s),
        )
        for run in runs
        for question in run.waits
    ]
    columns = 7 if any(row[-1] for row in rows) else 6
    headers = ("run", "agent", "question", "kind", "about", "for", "until")
    return TextTable(headers[:columns], [row[:columns] for row in rows], numbers=(5,))


def counts_table(counts: Sequence[RunCount]) -> RenderableType:
    """Return a table with a line for each agent and state, and a total."""
    groups: dict[tuple[str, str], list[RunCount]] = {}
    for count in counts:
        groups.setdefault((count.agent, count.state or "-"), []).append(count)
    rows = [(*names, *_counted(found)) for names, found in groups.items()]
    headers = ("agent", "state", "runs", "failed", "asking", "stuck", "oldest")
    return TextTable(headers, [*rows, ("all", "", *_counted(counts))], numbers=range(2, 7))


def _counted(counts: Sequence[RunCount]) -> Iterator[str]:
    """Yield a row's cells: the numbers of all, failed, asking and stuck runs, and the age of the oldest run."""
    for found in (
        counts,
        [count for count in counts if count.is_failed],
        [count for count in counts if count.waits_for],
        [count for count in counts if STUCK in count.waits_for],
    ):
        yield f"{sum([count.count for count in found]):,}" if found else "-"
    yield _age(min([count.oldest_s for count in counts]))


def processes_table(reading: RunHistory) -> RenderableType:
    """Return a table with a line for each process inside a run."""
    rows = [
        (path, one.name or one.kind, one.state, str(one.n), one.task) for path, one in reading.processes.items() if path
    ]
    return TextTable(("inside", "what", "state", "entry", "task"), rows, numbers=(3,))


def differences_table(names: tuple[str, str], found: Sequence[tuple[str, Any, Any]]) -> RenderableType:
    """Return a table with a line for each value that differs."""
    return TextTable(("", *names), [(where, _value(a), _value(b)) for where, a, b in found])


def _value(value: Any) -> str:
    return value if isinstance(value, str) else "-" if value is None else msgspec.json.encode(value).decode()


def waits_for(run: Run) -> str:
    """Return what a run waits for, in a few words."""
    if run.is_ended:
        return ""
    if run.holder is not None:
        return f"driven by {run.holder}"
    awaited = [f"{question.key} ({question.kind}){_until(question)}" for question in run.waits]
    if is_undriven(run):  # also a run that asks, if its driver was interrupted
        awaited.append("a worker: it is due")
    return ", ".join(awaited) or ("a post" if run.due_s is None else format_moment(run.due_s))


def rest_of(run: Run) -> str:
    """Return what an unfinished run waits for, or who drives it."""
    if is_undriven(run):
        return "no driver yet; the run is due"
    if run.holder is not None:
        return waits_for(run)
    return f"waits {'until' if run.due_s is not None and not run.waits else 'for'} {waits_for(run)}"


def _until(question: Question) -> str:
    """Return a question's deadline in words that end a sentence."""
    return "" if question.until_s is None else f" until {format_moment(question.until_s)}"


def about_question(question: Question, *, whole: bool = False) -> str:
    """Return what a question is about: a function call in Python's notation, or text."""
    about = about_of(question)
    if isinstance(about.get("function"), str) and isinstance(about.get("arguments"), str):
        call = FunctionCall(name=about["function"], arguments_json=about["arguments"])
        return whole_call(call) if whole else shown_call(call)
    return question_text(question) or plain(question.about)


def head_lines(reading: RunHistory) -> Iterator[tuple[str, str]]:
    """Yield the lines above the picture of a run, each with a style."""
    run, header = reading.run, reading.header
    where = run.state or ("begun" if run.n else "not begun")  # the state is stored when a run rests
    who = "flow" if reading.kind == "flow" else "agent"
    yield f"run {one_line(run.id)} of {who} {one_line(run.agent)!r}: {one_line(where)}", "bold"
    lasted = _duration(max(0.0, run.updated_s - run.created_s))
    yield f"{format_moment(run.created_s)}, for {lasted}; {run.n} entries; {reading.verdict}", "dim"
    if header.conversation:
        behind = f", behind the run {one_line(header.follows)}" if header.follows else ""
        yield f"turn {header.turn} of the conversation {one_line(header.conversation)!r}{behind}", "dim"
    if header.forked is not None:
        by = f", by {one_line(header.forked_by)}" if header.forked_by else ""
        yield f"a fork of the run {one_line(header.forked[0])} after its step {header.forked[1]}{by}", "dim"
    if reading.title:
        yield f"{'task' if reading.kind == 'call' else 'began with'}: {one_line(reading.title)}", ""
    if header.extra:
        yield f"extra: {one_line(msgspec.json.encode(header.extra).decode())}", ""
    is_due = is_undriven(run)
    if is_due or not (run.is_ended or run.waits):
        yield one_line(rest_of(run)), "yellow" if is_due else ""
    for question in run.waits:
        named = shlex.join(map(one_line, (run.id, question.key)))  # names may come from clients of a service
        right = one_line(", ".join([option_for(question, kind) for kind in question.answers]))
        yield "", ""
        yield question_line(question), "bold yellow"
        yield f"    fsm-agent runs answer {named} …", ""
        yield f"    where … is one of: {right}", ""


def question_line(question: Question) -> str:
    """Return a question with its key, its kind and its whole subject."""
    about = about_question(question, whole=True)
    return f"{one_line(question.key)} asks ({one_line(question.kind)}){_until(question)}: {about}"


def option_for(question: Question, kind: str) -> str:
    """Return the command-line option of ``runs answer`` that gives this kind of answer to a question."""
    types = question.types if kind == "returned" else ()
    return f"--result 'JSON of {' | '.join(types)}'" if types else OPTIONS.get(kind, kind)


class RunPicture:
    """Shows a run's entries, one per line, next to the run's path through the states.

    The message that the model received about a refused reply is shown below that reply.
    """

    def __init__(self, reading: RunHistory) -> None:
        self._reading = reading

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in _run_lines(self._reading, options.max_width):
            line.rstrip()
            line.no_wrap, line.overflow = True, "ellipsis"
            yield line


def _run_lines(reading: RunHistory, width: int) -> list[Text]:
    """Return the lines that show a run on a terminal with ``width`` columns."""
    lanes = _Lanes(reading)
    began_s = next((entry.at_s for entry in reading.entries if entry.at_s), 0.0)
    cells = [
        (
            str(entry.n),
            _duration(entry.at_s - began_s) if entry.at_s else "",
            _key(entry.key),
            one_line(_triggers(entry), _STEP),
            _context_text(reading.uses.get(entry.key)),
        )
        for entry in reading.entries
    ]
    n, after, key, step, context = [max(map(len, column)) for column in zip(*cells, strict=True)]
    beside = "│ " * len(lanes.names)
    lines = lanes.legend()
    fence = reading.entries[0].line.fence
    for entry, cell in zip(reading.entries, cells, strict=True):
        if entry.line.fence != fence:
            fence = entry.line.fence
            lines.append(Text.assemble((beside, "dim"), (f"  claimed again, fence {fence}", "dim italic")))
        drawn = lanes.line(entry)
        drawn.append(f" {cell[0]:>{n}}  {cell[1]:>{after}}  ", "dim")
        drawn.append(f"{cell[2]:<{key}}  ").append(f"{cell[3]:<{step}}  ", "bold")
        if context:
            drawn.append(f"{cell[4]:<{context}}  ", "dim")
        by = f"by {entry.by}" if entry.by else ""
        lines.append(drawn.append(one_line(": ".join(filter(None, [by, _about(entry)])), _ABOUT)))
        if why := why_of(entry):
            room = max(_LEAST_WHY, width - len(beside))
            parts = textwrap.wrap(why, room, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
            lines += [Text.assemble((beside, "dim"), (part, "yellow")) for part in parts]
    return lines


def _key(key: str) -> str:
    """Shorten a key at its beginning, because the end says more."""
    text = one_line(key)
    return text if len(text) <= _KEY else f"…{text[1 - _KEY :]}"


def _triggers(entry: HistoryEntry) -> str:
    """Return an entry's triggers, except those that begin nested processes."""
    if entry.kind == RETRIED:
        return RETRIED
    return " ".join([trigger for path, trigger in entry.line.steps if not (path and trigger == "begun")])


def _context_text(use: ContextUse | None) -> str:
    """Describe the size of a request's context, how much was left out of it, and whether it was started afresh."""
    if use is None:
        return ""
    tokens = use.reported if use.estimated is None else use.estimated
    text = f"{use.messages or 0:,} messages" if tokens is None else f"{tokens:,} tokens"
    if use.before is not None and use.estimated is not None and use.before > use.estimated:
        text = f"{use.before:,} → {text}"
    cached = f", {use.cached:,} cached" if use.cached else ""
    is_new = not use.extends and use.key != _FIRST
    return f"{text}{cached}, new beginning" if is_new else f"{text}{cached}"


def _about(entry: HistoryEntry) -> str:
    """Describe an entry: its outcome, and the processes that it began."""
    if (step := entry.undoes_to) is not None:
        return f"continues from step {step}"
    begun = ", ".join([f"{one.path} ({one.name})" for one in entry.line.begun if one.name])
    return "; ".join(filter(None, [_outcome_text(entry), begun and f"begins {begun}"]))


def why_of(entry: HistoryEntry) -> str:
    """Return, in one line, why the call failed, or what the model was told about a refused reply."""
    is_end = any(move.path == entry.path and move.step.to == State.FAILED for move in entry.moves)
    if not entry.why or (is_end and entry.why in _outcome_text(entry)):
        return ""
    return f"{'the call failed' if is_end else 'the model was told'}: {one_line(entry.why, _WHY)}"


def _outcome_text(entry: HistoryEntry) -> str:
    match entry.outcome:
        case outcomes.Begun():
            return ""
        case outcomes.Replied(reply=reply):
            calls = "; ".join([shown_call(call) for call in reply.message.function_calls])
            return calls or repr(reply.message.text or reply.refusal or "")
        case outcomes.ModelFailed(error=error, delay_s=delay_s):
            failure = f"{error.kind}: {error.message}"
            return f"{failure}; again after {_duration(delay_s)}" if delay_s else failure
        case outcomes.Returned(text=text, is_error=is_error):
            return f"raised {text}" if is_error else f"→ {text}"
        case outcomes.Modified(arguments_json=text) | outcomes.FunctionFailed(text=text):
            return text
        case outcomes.Denied(reason=text) | outcomes.Cancelled(reason=text) | outcomes.Stopped(reason=text):
            return text
        case outcomes.Injected(messages=messages):
            return "; ".join([message.text for message in messages])
        case None if entry.kind == "edited":
            return json.dumps(entry.data.get("data"), ensure_ascii=False)
        case None:
            return f"{entry.kind} {bytes(entry.line.outcome).decode(errors='replace')}"
    return ""


class _Lanes:
    """The lanes for a run's states, in the order of a call's lifecycle or of a flow's path."""

    def __init__(self, reading: RunHistory) -> None:
        moves, table = reading.process.moves, reading.table()
        visited = dict.fromkeys([name for move in moves for name in (move.step.source, move.step.to)])
        is_call = reading.kind == "call"
        names = [str(state) for state in State if str(state) in visited] if is_call else [*visited]
        words = {} if table is None else table.states
        self._styles = _STYLES | {name: _STYLES_OF_WORDS.get(word, "bold cyan") for name, word in words.items()}
        self._names_state = len(names) > _MOST_LANES  # too many lanes: name the state instead
        self.names = [] if self._names_state or len(names) < len(visited) else names
        self._now = moves[0].step.source if moves else ""
        self._width = max([len(one_line(name, _KEY)) for name in visited], default=0)

    def legend(self) -> list[Text]:
        return [
            Text.assemble(("│ " * n, "dim"), ("╭ ", "dim"), (one_line(name), self._styles.get(name, "bold")))
            for n, name in enumerate(self.names)
        ]

    def line(self, entry: HistoryEntry) -> Text:
        """Return the beginning of an entry's line, which leads from the lane of its source to that of its target."""
        own = [move.step for move in entry.moves if not move.path]
        source, to = (own[0].source, own[-1].to) if own else (self._now, self._now)
        self._now = to
        if self._names_state:
            return Text(f"{one_line(to if own else '', _KEY):<{self._width}} ", self._styles.get(to, "bold"))
        drawn = Text()
        if not self.names:
            return drawn
        here, there = self.names.index(source), self.names.index(to)
        low, high = min(here, there), max(here, there)
        for n in range(len(self.names)):
            mark, style = ("─", "cyan") if low < n < high else ("│", "dim")
            if n == there:
                mark, style = ("●" if own else "┃"), self._styles.get(to, "bold cyan")
            elif n == here:
                mark, style = ("╰" if here < there else "╯"), "cyan"
            drawn.append(mark, style)
            drawn.append("─" if low <= n < high else " ", "cyan")
        return drawn


def _age(since_s: float) -> str:
    return _duration(max(0.0, time.time() - since_s))


def _duration(seconds: float) -> str:
    """Format a duration with at most two units.  A negative one, from a clock that was set back, is shown as "?"."""
    if not 0 <= seconds < 1e12:
        return "?"
    return f"{seconds:.1f} s" if seconds < 1 else format_duration(seconds, with_days=True)  # a column of one unit

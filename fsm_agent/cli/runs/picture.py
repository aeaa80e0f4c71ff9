"""A run as lines of a terminal: a lane for each state that it was in, a line for each entry."""

from __future__ import annotations

import json

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from fsm_agent._internal.plain_text import plain
from fsm_agent.call.outcomes import (
    Begun,
    Cancelled,
    Denied,
    FunctionFailed,
    Injected,
    ModelFailed,
    Modified,
    Replied,
    Returned,
    Stopped,
)
from fsm_agent.call.record import ContextUse, State
from fsm_agent.cli.terminal import folded, one_line, shown_call
from fsm_agent.store.history import RETRIED, EntryReading, RunReading

_STYLES = {State.COMPLETED: "green", State.FAILED: "red", State.PARSE_EXCEPTION: "yellow", State.BACKOFF: "yellow"}
_STYLES_OF_WORDS = {"end": "green", "failure": "red", "a person": "yellow"}  # in the table of a flow
_FIRST = "model:0"  # the request that none precedes
_KEY, _STEP, _ABOUT = 20, 20, 200  # characters of a key, of triggers, of what an entry is about
_WHY = 1_000  # characters of why a reply was refused
_MOST_LANES = 16
_LEAST = 40  # columns of why a reply was refused


def picture(reading: RunReading, width: int) -> RenderableType:
    """Return the entries of a run, one a line, with its path through the states next to them.

    Below a reply that was refused stands what the model was told.

    Args:
        reading: The run.
        width: Columns of the terminal.
    """
    lanes = _Lanes(reading)
    began_s = next((entry.at_s for entry in reading.entries if entry.at_s), 0.0)
    cells = [
        (
            str(entry.n),
            _after(entry.at_s, began_s),
            _key(entry.key),
            one_line(_triggers(entry), _STEP),
            context_of(reading.uses.get(entry.key)),
        )
        for entry in reading.entries
    ]
    n, after, key, step, context = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = lanes.legend()
    fence = reading.entries[0].line.fence
    for entry, cell in zip(reading.entries, cells, strict=True):
        if entry.line.fence != fence:
            fence = entry.line.fence
            note = f"  claimed again, fence {fence}"
            lines.append(Text.assemble(("│ " * len(lanes.names), "dim"), (note, "dim italic")))
        drawn = lanes.line(entry)
        drawn.append(f" {cell[0]:>{n}}  {cell[1]:>{after}}  ", "dim")
        drawn.append(f"{cell[2]:<{key}}  ").append(f"{cell[3]:<{step}}  ", "bold")
        if context:
            drawn.append(f"{cell[4]:<{context}}  ", "dim")
        lines.append(drawn.append(one_line(": ".join(filter(None, [_by(entry), about_of(entry)])), _ABOUT)))
        if why := why_of(entry):
            beside = "│ " * len(lanes.names)
            for part in folded(why, max(_LEAST, width - len(beside)), "  ", "    ").split("\n"):
                lines.append(Text.assemble((beside, "dim"), (part, "yellow")))
    for line in lines:
        line.rstrip()
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines)


def _key(key: str) -> str:
    """Return a key with its end, which tells more of it than its beginning."""
    text = one_line(key)
    return text if len(text) <= _KEY else f"…{text[1 - _KEY :]}"


def _triggers(entry: EntryReading) -> str:
    """Return the triggers of an entry, without those by which processes inside begin."""
    if entry.kind == RETRIED:
        return RETRIED
    return " ".join([trigger for path, trigger in entry.line.steps if not (path and trigger == "begun")])


def begun_in(entry: EntryReading) -> str:
    """Return what has begun inside of a run by an entry, in a few words."""
    named = [f"{one.path} ({one.name})" for one in entry.line.begun if one.name]
    return f"begins {', '.join(named)}" if named else ""


def context_of(use: ContextUse | None) -> str:
    """Return what a request showed the model, for people: its tokens, what was left out, whether it begins anew."""
    if use is None:
        return ""
    tokens = use.reported if use.estimated is None else use.estimated
    text = f"{use.messages or 0:,} messages" if tokens is None else f"{tokens:,} tokens"
    if use.before is not None and use.estimated is not None and use.before > use.estimated:
        text = f"{use.before:,} → {text}"
    cached = f", {use.cached:,} cached" if use.cached else ""
    is_new = not use.extends and use.key != _FIRST
    return f"{text}{cached}, new beginning" if is_new else f"{text}{cached}"


def about_of(entry: EntryReading) -> str:
    """Return what an entry says, for people: its outcome, and what has begun by it."""
    if (step := entry.undoes_to) is not None:
        return f"continues from step {step}"
    return "; ".join(filter(None, [_said(entry), begun_in(entry)]))


def why_of(entry: EntryReading) -> str:
    """Return what the model was told of a reply that was refused, or why the call failed by it, as one line."""
    is_end = any(move.path == entry.path and move.step.to == State.FAILED for move in entry.moves)
    if not entry.why or (is_end and entry.why in _said(entry)):
        return ""
    return f"{'the call failed' if is_end else 'the model was told'}: {one_line(entry.why, _WHY)}"


def _said(entry: EntryReading) -> str:
    match entry.outcome:
        case Begun():
            return ""
        case Replied(reply=reply):
            calls = "; ".join([shown_call(call) for call in reply.message.function_calls])
            return calls or repr(reply.message.text or reply.refusal or "")
        case ModelFailed(error=error, delay_s=delay_s):
            failure = f"{error.kind}: {error.message}"
            return f"{failure}; again after {shown_duration(delay_s)}" if delay_s else failure
        case Returned(text=text, is_error=is_error):
            return f"raised {text}" if is_error else f"→ {text}"
        case Modified(arguments_json=text) | FunctionFailed(text=text):
            return text
        case Denied(reason=text) | Cancelled(reason=text) | Stopped(reason=text):
            return text
        case Injected(messages=messages):
            return "; ".join([message.text for message in messages])
        case None if entry.kind == "edited":
            return json.dumps(entry.data.get("data"), ensure_ascii=False)
        case None:
            return f"{entry.kind} {bytes(entry.line.outcome).decode(errors='replace')}"
    return ""


def _by(entry: EntryReading) -> str:
    """Return who posted an outcome, or edited the data."""
    return f"by {entry.by}" if entry.by else ""


class _Lanes:
    """A lane for each state that a run was in: of a call in the order of its lifecycle, of a flow as they came.

    Args:
        reading: The run.
    """

    def __init__(self, reading: RunReading) -> None:
        moves = reading.process.moves
        visited = dict.fromkeys([name for move in moves for name in (move.step.source, move.step.to)])
        is_call = reading.kind == "call"
        names = [str(state) for state in State if str(state) in visited] if is_call else [*visited]
        table = reading.table()
        words = {} if table is None else table.states
        self._styles = {str(state): style for state, style in _STYLES.items()}
        self._styles |= {name: _STYLES_OF_WORDS.get(word, "bold cyan") for name, word in words.items()}
        self._names_state = len(names) > _MOST_LANES  # in words then
        self.names = [] if self._names_state or len(names) < len(visited) else names
        self._now = moves[0].step.source if moves else ""
        self._width = max([cell_len(one_line(name, _KEY)) for name in visited], default=0)

    def legend(self) -> list[Text]:
        """Return a line for each lane."""
        return [
            Text.assemble(("│ " * n, "dim"), ("╭ ", "dim"), (one_line(name), self._style(name, "bold")))
            for n, name in enumerate(self.names)
        ]

    def line(self, entry: EntryReading) -> Text:
        """Return the beginning of an entry's line: from the lane of its source to that of its target."""
        own = [move.step for move in entry.moves if not move.path]
        source, to = (own[0].source, own[-1].to) if own else (self._now, self._now)
        self._now = to
        if self._names_state:
            return Text(f"{one_line(to if own else '', _KEY):<{self._width}} ", self._style(to, "bold"))
        if not self.names:
            return Text()
        here, there = self.names.index(source), self.names.index(to)
        low, high = min(here, there), max(here, there)
        drawn = Text()
        for n in range(len(self.names)):
            if n == there:
                mark, style = ("●" if own else "┃"), self._style(to, "bold cyan")
            elif n == here:
                mark, style = ("╰" if here < there else "╯"), "cyan"
            elif low < n < high:
                mark, style = "─", "cyan"
            else:
                mark, style = "│", "dim"
            drawn.append(mark, style)
            drawn.append("─" if low <= n < high else " ", "cyan")
        return drawn

    def _style(self, name: str, otherwise: str) -> str:
        return self._styles.get(name, otherwise)


def _after(at_s: float, began_s: float) -> str:
    return shown_duration(at_s - began_s) if at_s else ""


def shown_duration(seconds: float) -> str:
    """Return a span of time in its two largest units, at most."""
    if not 0 <= seconds < 1e12:
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} days"


def safe(text: str) -> Text:
    """Return text of a run as one plain line."""
    return Text(one_line(plain(text)))

"""A run as lines of a terminal: a lane for each state that it was in, a line for each entry."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from fsm_agent._internal.plain_text import plain
from fsm_agent.cli.runs.reading import EntryRead, RunReading
from fsm_agent.cli.terminal import one_line, shown_call
from fsm_agent.lifecycle.outcomes import (
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
from fsm_agent.lifecycle.record import ContextUse, State

_STYLES = {State.COMPLETED: "green", State.FAILED: "red", State.PARSE_EXCEPTION: "yellow", State.BACKOFF: "yellow"}
_FIRST = "model:0"  # the request that none precedes
_KEY, _STEP, _ABOUT = 20, 20, 200  # characters of a key, of triggers, of what an entry is about


def picture(reading: RunReading) -> RenderableType:
    """Return the entries of a run, one a line, with its path through the states next to them."""
    lanes = _lanes(reading)
    began_s = next((entry.at_s for entry in reading.entries if entry.at_s), 0.0)
    cells = [
        (
            str(entry.line.n),
            _after(entry.at_s, began_s),
            one_line(entry.line.key, _KEY),
            one_line(entry.triggers, _STEP),
            context_of(reading.uses.get(entry.line.key)),
        )
        for entry in reading.entries
    ]
    n, after, key, step, context = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [_legend(lanes, lane) for lane in range(len(lanes))]
    fence = reading.entries[0].line.fence
    for number, (entry, cell) in enumerate(zip(reading.entries, cells, strict=True)):
        if entry.line.fence != fence:
            fence = entry.line.fence
            lines.append(Text.assemble(("│ " * len(lanes), "dim"), (f"  claimed again, fence {fence}", "dim italic")))
        drawn = (
            Text() if reading.trace is None else _lane(lanes, reading.trace[number].source, reading.trace[number].to)
        )
        drawn.append(f" {cell[0]:>{n}}  {cell[1]:>{after}}  ", "dim")
        drawn.append(f"{cell[2]:<{key}}  ").append(f"{cell[3]:<{step}}  ", "bold")
        if context:
            drawn.append(f"{cell[4]:<{context}}  ", "dim")
        lines.append(drawn.append(one_line(": ".join(filter(None, [_by(entry), about_of(entry)])), _ABOUT)))
    for line in lines:
        line.rstrip()
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines)


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


def about_of(entry: EntryRead) -> str:
    """Return what an outcome says, for people."""
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


def _by(entry: EntryRead) -> str:
    """Return who posted an outcome, or edited the data."""
    by = entry.line.by or (entry.data.get("by", "") if entry.kind == "edited" else "")
    return f"by {by}" if by else ""


def _lanes(reading: RunReading) -> list[str]:
    """Return the states that the run was in, in the order of the lifecycle."""
    if not reading.trace:
        return []
    visited = {name for step in reading.trace for name in (step.source, step.to)}
    return [str(state) for state in State if str(state) in visited]


def _legend(lanes: Sequence[str], n: int) -> Text:
    return Text.assemble(("│ " * n, "dim"), ("╭ ", "dim"), (lanes[n], _STYLES.get(State(lanes[n]), "bold")))


def _lane(lanes: Sequence[str], source: str, to: str) -> Text:
    """Return the line of a step: from the lane of its source to that of its target."""
    here, there = lanes.index(source), lanes.index(to)
    low, high = min(here, there), max(here, there)
    drawn = Text()
    for n in range(len(lanes)):
        if n == there:
            mark, style = "●", _STYLES.get(State(to), "bold cyan")
        elif n == here:
            mark, style = ("╰" if here < there else "╯"), "cyan"
        elif low < n < high:
            mark, style = "─", "cyan"
        else:
            mark, style = "│", "dim"
        drawn.append(mark, style)
        drawn.append("─" if low <= n < high else " ", "cyan")
    return drawn


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

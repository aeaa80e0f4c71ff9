"""Spans, moments, tokens, money and JSON, as people read them; all text is escaped by the templates."""

from __future__ import annotations

import json
import time
from typing import Any

from fsm_agent._internal.durations import format_duration, format_moment
from fsm_agent._internal.plain_text import plain
from fsm_agent.messages.reply import Usage

SHOWN = 20_000  # characters of one text on a page; the export has all
_LINE = 76  # characters of JSON that stay in one line


def span(seconds: float) -> str:
    """Return a span of time in its largest units; empty: a clock was set back, or a file holds any number."""
    return format_duration(seconds, with_days=True) if 0 <= seconds < 1e12 else ""


def ago(at_s: float) -> str:
    """Return how long ago a moment was, in one unit."""
    seconds = max(0.0, time.time() - at_s)
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{seconds // unit_s:.0f} {unit} ago"
    return "now" if seconds < 1 else f"{seconds:.0f} s ago"


def since(at_s: float) -> str:
    """Return the span from a moment to now."""
    return span(max(0.0, time.time() - at_s))


def clock(at_s: float) -> str:
    """Return a moment in UTC; empty: not known."""
    return format_moment(at_s) if at_s else ""


def tokens(usage: Usage) -> str:
    """Return tokens as input + output; empty: there were none."""
    return f"{usage.input_tokens or 0:,} + {usage.output_tokens or 0:,}" if usage.total_tokens else ""


def money(usage: Usage) -> str:
    """Return a cost; empty: it was not tracked."""
    cost = usage.cost_usd
    return "" if cost is None else f"${cost:.4f}" if cost >= 0.0001 or not cost else f"${cost:.6f}"


def shown(text: Any) -> str:
    """Return text without control characters and marks that reorder it, cut if it is very long."""
    text = plain(str(text))
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text) - SHOWN:,} more characters are in the export)"


def pretty(text: Any, *, is_spread: bool = False) -> str:
    """Return JSON in a line if it is short, or with line breaks; other text as it is."""
    try:
        value = json.loads(text) if isinstance(text, str | bytes) else text
        line = json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        return shown(text)
    is_line = len(line) <= _LINE and not is_spread
    return shown(line if is_line else json.dumps(value, indent=2, ensure_ascii=False))

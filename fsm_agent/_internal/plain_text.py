"""Clean untrusted text for display."""

from __future__ import annotations

import json
import re
from typing import Any

_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # but for tabs and line ends
_SURROGATES = r"\ud800-\udfff"
_REORDERING = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_TAGS = r"\U000e0000-\U000e007f"  # letters that are invisible, but read by models
_HIDDEN = re.compile(f"[{_CONTROLS}{_SURROGATES}{_REORDERING}{_TAGS}]+")


def plain(text: str) -> str:
    """Return ``text`` without control characters (line ends and tabs stay), tags, and marks that reorder it."""
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub("", text)


MAX_SHOWN = 20_000  # characters of one text that is shown; an export has all
_LINE = 76  # characters of JSON that stay in one line


def shown(text: Any) -> str:
    """Return a text as people read it: plain, and cut if it is very long."""
    found = plain(str(text))
    if len(found) <= MAX_SHOWN:
        return found
    return f"{found[:MAX_SHOWN]}… ({len(found) - MAX_SHOWN:,} more characters are in the export)"


def pretty(text: Any, *, is_spread: bool = False) -> str:
    """Return JSON in a line if it is short, or with line breaks; other text as it is."""
    try:
        value = json.loads(text) if isinstance(text, str | bytes) else text
        line = json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        return shown(text)
    is_line = len(line) <= _LINE and not is_spread
    return shown(line if is_line else json.dumps(value, indent=2, ensure_ascii=False))

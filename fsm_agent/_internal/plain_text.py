"""Clean untrusted text for display."""

from __future__ import annotations

import re

_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # but for tabs and line ends
_SURROGATES = r"\ud800-\udfff"
_REORDERING = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_TAGS = r"\U000e0000-\U000e007f"  # letters that are invisible, but read by models
_HIDDEN = re.compile(f"[{_CONTROLS}{_SURROGATES}{_REORDERING}{_TAGS}]+")


def plain(text: str) -> str:
    """Return ``text`` without control characters (line ends and tabs stay), tags, and marks that reorder it."""
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub("", text)

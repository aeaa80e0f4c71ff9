"""Clean untrusted text for display."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsm_agent._internal.lazy_import import deferred

if TYPE_CHECKING:
    import unicodedata
else:
    unicodedata = deferred("unicodedata")  # a library of its own on most systems

_KEPT = "\n\t"
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_TAGS = range(0xE0000, 0xE0080)  # letters that are invisible, but read by models


def plain(text: str) -> str:
    """Return ``text`` without control characters (line ends and tabs stay), tags, and marks that reorder it."""
    if text.isascii() and text.isprintable():
        return text
    return "".join([c for c in text if c in _KEPT or not _is_hidden(c)])


def _is_hidden(c: str) -> bool:
    return unicodedata.category(c) in ("Cc", "Cs") or c in _REORDERING or ord(c) in _TAGS

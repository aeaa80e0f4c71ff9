"""Text that arrives in pieces, which may be cut between the halves of a surrogate pair.

JSON may escape a character beyond U+FFFF as two halves, and a server that cuts text by UTF-16 units (as JavaScript
counts) sends each in an event of its own.  Neither half is a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Self

_HALF = re.compile("[\ud800-\udfff]")
_LOST = "\ufffd"


class CutText(str):
    """A string that begins or ends with half a surrogate pair; as a `str` it has U+FFFD there.

    Attributes:
        halves: The string as received.
    """

    __slots__ = ("halves",)

    halves: str

    def __new__(cls, halves: str) -> Self:
        """Make the string from the received one."""
        text = super().__new__(cls, mended(halves))
        text.halves = halves
        return text

    def __deepcopy__(self, memo: object) -> str:
        """Return a plain string."""
        return str(self)


def mended(text: str) -> str:
    """Return ``text`` with its surrogate pairs joined, and U+FFFD for each half that is left."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def with_halves(value: Any) -> Any:
    """Return a JSON value in which strings that begin or end with half a pair are `CutText`, and all are valid."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return [with_halves(item) for item in value]
    return {mended(key): with_halves(item) for key, item in value.items()} if isinstance(value, dict) else value


def joined(pieces: Iterable[str]) -> str:
    """Return the pieces of a text joined."""
    return _text("".join([piece.halves if isinstance(piece, CutText) else piece for piece in pieces]))


def _text(text: str) -> str:
    if _HALF.search(text) is None:
        return text
    return CutText(text) if _HALF.match(text[0]) or _HALF.match(text[-1]) else mended(text)


class ArrivingText:
    """A text that is still arriving.

    Attributes:
        pieces: The text so far, without half a pair at its end.
    """

    __slots__ = ("half", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.half = ""

    def add(self, piece: str) -> str:
        """Take the next piece; return the text that it completes."""
        if type(piece) is str and not self.half:  # as nearly all are
            self.pieces.append(piece)
            return piece
        text = self.half + (piece.halves if isinstance(piece, CutText) else piece)
        self.half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        text_so_far = mended(text.removesuffix(self.half))
        self.pieces.append(text_so_far)
        return text_so_far

    def end(self) -> str:
        """Take the end; return the text that it completes: U+FFFD if half a pair was left."""
        if not self.half:
            return ""
        self.half = ""
        self.pieces.append(_LOST)
        return _LOST

    def __bool__(self) -> bool:
        return bool(self.pieces or self.half)

    def __str__(self) -> str:
        return "".join(self.pieces)

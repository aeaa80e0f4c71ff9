"""A model's turn in pieces, as a service may stream it, and independent of any wire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Literal, TypeAlias

from fsm_agent.messages import Usage

Kind: TypeAlias = Literal["text", "reasoning", "call"]


@dataclass(frozen=True)
class TurnPart:
    """A part of a turn, in the pieces in which it arrives.

    Attributes:
        kind: The kind of the part.
        pieces: The pieces of its text, or of a call's arguments (JSON).
        name: The name of a called function.
        id: The provider's id of a call.

    Examples:
        >>> "".join(TurnPart("text", ["Hel", "lo"]).pieces)
        'Hello'
    """

    kind: Kind
    pieces: Sequence[str]
    name: str = ""
    id: str = ""

    @property
    def text(self) -> str:
        """The pieces joined."""
        return mended("".join(self.pieces))


@dataclass(frozen=True)
class Turn:
    """A turn of a model: texts and reasoning, then function calls.

    Examples:
        >>> Turn([TurnPart("text", ["Hel", "lo"])]).parts[0].kind
        'text'
    """

    parts: Sequence[TurnPart]
    usage: Usage = field(default_factory=lambda: Usage(input_tokens=7, output_tokens=3))

    @property
    def calls(self) -> list[TurnPart]:
        """The function calls."""
        return [part for part in self.parts if part.kind == "call"]

    def joined(self, kind: Kind) -> str:
        """Return the texts of all parts of one kind, joined."""
        return "".join([part.text for part in self.parts if part.kind == kind])


def mended(text: str) -> str:
    """Return a text with the halves of surrogate pairs joined, and with U+FFFD for each half alone.

    Examples:
        >>> mended("a" + chr(0xD83D)) == "a" + chr(0xFFFD)
        True
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def utf16_units(text: str) -> list[str]:
    """Return the UTF-16 units of a text: of a character beyond U+FFFF, two halves."""
    raw = text.encode("utf-16-le", "surrogatepass")
    return [raw[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(raw), 2)]


def interleaved_pieces(calls: Sequence[TurnPart]) -> Iterator[tuple[int, str]]:
    """Yield the pieces of several calls in turns, each with the call's index."""
    for row in zip_longest(*[call.pieces for call in calls]):
        yield from [(index, piece) for index, piece in enumerate(row) if piece is not None]

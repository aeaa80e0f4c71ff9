"""What is there of the items of a response while they arrive?"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fsm_agent.providers.arriving_text import ArrivingText
from fsm_agent.providers.openai.parts import text_or_none
from fsm_agent.providers.openai.responses_items import as_text, entries, item_type


class Piece(NamedTuple):
    """What one kind of event brings: a part of which items, where it stands in them, and under which key."""

    item: str
    place: str
    part: str  # type of the part; "" for a text that is no part
    key: str


PIECES = {
    "response.output_text": Piece("message", "content", "output_text", "text"),
    "response.refusal": Piece("message", "content", "refusal", "refusal"),
    "response.reasoning_summary_text": Piece("reasoning", "summary", "summary_text", "text"),
    "response.reasoning_text": Piece("reasoning", "content", "reasoning_text", "text"),
    "response.function_call_arguments": Piece("function_call", "arguments", "", "arguments"),
    "response.custom_tool_call_input": Piece("custom_tool_call", "input", "", "input"),
}


class Told(ArrivingText):
    """A text as far as it has come, which may come again as a whole."""

    __slots__ = ("length",)

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def add(self, piece: str) -> str:
        """Take the next piece; see `ArrivingText`."""
        text = super().add(piece)
        self.length += len(text)
        return text

    def rest(self, whole: str) -> str:
        """Return what the whole text says beyond it; nothing when they differ."""
        self.half = ""  # the whole says what became of it
        if len(whole) <= self.length or not whole.startswith(str(self)):
            return ""
        return whole[self.length :]


class ArrivingItem:
    """An item of the output while it arrives."""

    __slots__ = ("call", "data", "index", "is_completed", "is_done", "is_matched", "kind", "told", "totals")

    def __init__(self, kind: str, index: int) -> None:
        self.kind = kind
        self.index = index  # in the output
        self.data: dict[str, Any] = {}  # as an event gave it
        self.is_done = False  # it is whole there
        self.is_matched = False
        self.told: dict[tuple[Piece, int], Told] = {}  # by the index that the events give a part
        # All parts together: some services count the index on from item to item, so it says nothing of a whole item.
        self.totals: dict[Piece, Told] = {}
        self.call: int | None = None  # its index among the calls of the reply, once its name is known
        self.is_completed = False

    def part(self, piece: Piece, index: int) -> Told:
        """Return what is there of the part that events give this index."""
        return self.told.setdefault((piece, index), Told())

    def total(self, piece: Piece) -> Told:
        """Return what has been told of all such parts together."""
        return self.totals.setdefault(piece, Told())

    def whole(self) -> dict[str, Any]:
        """The item; of the pieces when it never came as a whole."""
        if self.is_done:
            return self.data
        item = self.data or {"type": self.kind}
        parts: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        for (piece, index), told in self.told.items():
            text = str(told)
            if piece.part:
                parts.setdefault(piece.place, []).append((index, {"type": piece.part, piece.key: text}))
            else:
                item = {**item, piece.place: text}
        for place, found in parts.items():
            item = {**item, place: [part for _, part in sorted(found, key=lambda entry: entry[0])]}
        return item


def whole_text(piece: Piece, data: Mapping[str, Any]) -> str:
    """Return the text of all such parts of a whole item."""
    if not piece.part:
        return as_text(data.get(piece.place))
    parts = [entry.get(piece.key) for entry in entries(data.get(piece.place)) if entry.get("type") == piece.part]
    return "".join([text for text in parts if isinstance(text, str)])


def matched(arrived: Sequence[ArrivingItem], output: Sequence[dict[str, Any]]) -> list[ArrivingItem]:
    """What has arrived of the items of the whole output: the same by id, else by index, else the next of its kind."""
    by_id: dict[tuple[str, str], ArrivingItem | None] = {}
    by_index: dict[tuple[str, int], ArrivingItem | None] = {}
    by_kind: dict[str, deque[ArrivingItem]] = {}
    for item in arrived:
        if id := text_or_none(item.data.get("id")):
            by_id[item.kind, id] = None if (item.kind, id) in by_id else item  # used again, an id tells nothing
        by_index[item.kind, item.index] = item
        by_kind.setdefault(item.kind, deque()).append(item)
    found = [_free(by_id.get((item_type(data), text_or_none(data.get("id")) or ""))) for data in output]
    items = []
    for index, data in enumerate(output):
        kind = item_type(data)
        same = by_kind.get(kind, deque())
        while same and same[0].is_matched:
            same.popleft()
        known = found[index] or _free(by_index.get((kind, index))) or _free(same[0] if same else None)
        items.append(known or ArrivingItem(kind, index))
        items[-1].index = index
    return items


def _free(item: ArrivingItem | None) -> ArrivingItem | None:
    """The item, once."""
    if item is None or item.is_matched:
        return None
    item.is_matched = True
    return item

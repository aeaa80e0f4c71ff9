"""The items of a response that is still arriving."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fsm_agent.providers.openai.parts import text_or_none
from fsm_agent.providers.openai.responses_items import as_text, entries, item_type
from fsm_agent.providers.streams import ArrivingText


class DeltaTarget(NamedTuple):
    """The target of one kind of event: the type of items, the field in them, the type of part, and its key."""

    item: str
    field: str
    part: str  # type of the part; "" for a text outside of parts
    key: str


PIECES = {
    "response.output_text": DeltaTarget("message", "content", "output_text", "text"),
    "response.refusal": DeltaTarget("message", "content", "refusal", "refusal"),
    "response.reasoning_summary_text": DeltaTarget("reasoning", "summary", "summary_text", "text"),
    "response.reasoning_text": DeltaTarget("reasoning", "content", "reasoning_text", "text"),
    "response.function_call_arguments": DeltaTarget("function_call", "arguments", "", "arguments"),
    "response.custom_tool_call_input": DeltaTarget("custom_tool_call", "input", "", "input"),
}


class RepeatableText(ArrivingText):
    """A text that is still arriving, and may be repeated as a whole."""

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
        """Return the rest of the whole text; "" if it does not continue this one."""
        self.half = ""  # the whole text replaces it
        if len(whole) <= self.length or not whole.startswith(str(self)):
            return ""
        return whole[self.length :]


class ArrivingItem:
    """An item of the output that is still arriving."""

    __slots__ = ("call", "data", "index", "is_completed", "is_done", "is_matched", "kind", "texts", "totals")

    def __init__(self, kind: str, index: int) -> None:
        self.kind = kind
        self.index = index  # in the output
        self.data: dict[str, Any] = {}  # as received
        self.is_done = False  # `data` is complete
        self.is_matched = False
        self.texts: dict[tuple[DeltaTarget, int], RepeatableText] = {}  # by the index that the events give a part
        # All parts together: some services continue the index from item to item, so it does not fit whole items.
        self.totals: dict[DeltaTarget, RepeatableText] = {}
        self.call: int | None = None  # its index among the calls of the reply, once its name is known
        self.is_completed = False

    def part(self, piece: DeltaTarget, index: int) -> RepeatableText:
        """Return the received text of the part with this index in events."""
        return self.texts.setdefault((piece, index), RepeatableText())

    def total(self, piece: DeltaTarget) -> RepeatableText:
        """Return the emitted text of all such parts together."""
        return self.totals.setdefault(piece, RepeatableText())

    def whole(self) -> dict[str, Any]:
        """Return the item, made from its pieces if it never arrived as a whole."""
        if self.is_done:
            return self.data
        item = self.data or {"type": self.kind}
        parts: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        for (piece, index), arrived in self.texts.items():
            text = str(arrived)
            if piece.part:
                parts.setdefault(piece.field, []).append((index, {"type": piece.part, piece.key: text}))
            else:
                item = {**item, piece.field: text}
        for field, indexed in parts.items():
            item = {**item, field: [part for _, part in sorted(indexed, key=lambda entry: entry[0])]}
        return item


def whole_text(piece: DeltaTarget, data: Mapping[str, Any]) -> str:
    """Return the text of all such parts of a whole item."""
    if not piece.part:
        return as_text(data.get(piece.field))
    parts = [entry.get(piece.key) for entry in entries(data.get(piece.field)) if entry.get("type") == piece.part]
    return "".join([text for text in parts if isinstance(text, str)])


def matched(arrived: Sequence[ArrivingItem], output: Sequence[dict[str, Any]]) -> list[ArrivingItem]:
    """Match the items of the whole output to arrived ones: by id, else by index, else the next of the kind."""
    by_id: dict[tuple[str, str], ArrivingItem | None] = {}
    by_index: dict[tuple[str, int], ArrivingItem | None] = {}
    by_kind: dict[str, deque[ArrivingItem]] = {}
    for item in arrived:
        if id := text_or_none(item.data.get("id")):
            by_id[item.kind, id] = None if (item.kind, id) in by_id else item  # a repeated id is ambiguous
        by_index[item.kind, item.index] = item
        by_kind.setdefault(item.kind, deque()).append(item)
    same_ids = [_free(by_id.get((item_type(data), text_or_none(data.get("id")) or ""))) for data in output]
    items = []
    for index, data in enumerate(output):
        kind = item_type(data)
        same = by_kind.get(kind, deque())
        while same and same[0].is_matched:
            same.popleft()
        match = same_ids[index] or _free(by_index.get((kind, index))) or _free(same[0] if same else None)
        items.append(match or ArrivingItem(kind, index))
        items[-1].index = index
    return items


def _free(item: ArrivingItem | None) -> ArrivingItem | None:
    """Mark the item as matched and return it; None if it was matched before."""
    if item is None or item.is_matched:
        return None
    item.is_matched = True
    return item

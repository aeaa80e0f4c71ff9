"""Replies from the Responses API, complete or streamed.

In a message, an item becomes an `Opaque` part followed by provider-independent parts.  The opaque part is the item as
received, without what the other parts contain.  It holds ids, citations, encrypted reasoning and so on, and is sent
back only to this API.  An item that only this API understands becomes just an opaque part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pydantic_core

from fsm_agent.functions.hosted_calls import COMPUTER
from fsm_agent.messages.message import (
    FunctionCall,
    Opaque,
    Part,
    Reasoning,
    Text,
)
from fsm_agent.messages.reply import Finish, Reply, Usage
from fsm_agent.providers.codec import Decoder
from fsm_agent.providers.content import (
    as_text,
    citations,
    first_count,
    object_at,
    text_or_none,
    token_logprobs,
)
from fsm_agent.providers.sse import ArrivingText

WIRE = "openai-responses"
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}  # types of items, and the field of their arguments
# The fields of a computer_call: one or more actions, and the checks that a person has to confirm.  From
# https://developers.openai.com/api/docs/guides/tools-computer-use and the types in SDK 3.54 (November 2026).
_ACTION = ("action", "actions", "pending_safety_checks")
TEXTS = frozenset({"output_text", "summary_text", "reasoning_text"})  # types of an item's parts
FINISHES: dict[str, Finish] = {
    **dict.fromkeys(("completed", "complete"), "stop"),
    **dict.fromkeys(("queued", "in_progress"), "pending"),
    "incomplete:content_filter": "content_filter",
}
_FAILED = ("failed", "cancelled")
_ENDS = {
    **{f"response.{status}": status for status in ("completed", "incomplete", *_FAILED)},
    "response.done": "completed",
}


def item_parts(item: Mapping[str, Any], *, has_answer: bool = False) -> Iterator[Part]:
    """Yield an item as message parts.

    A message item's text counts as reasoning if another item is the answer.
    """
    kind = item_type(item)
    if kind == "message":
        content, _ = _strip_texts(entries(item.get("content")))
        yield Opaque(wire=WIRE, data={**item, "content": content})
        texts = [entry for entry in entries(item.get("content")) if _has_text(entry)]
        if has_answer and not is_answer(item):
            yield from [Reasoning(text=entry["text"]) for entry in texts]
        else:
            yield from [Text(entry["text"], annotations=citations(entry.get("annotations"))) for entry in texts]
    elif kind == "reasoning":
        summary, summaries = _strip_texts(entries(item.get("summary")))
        content, thought = _strip_texts(entries(item.get("content")))
        yield Opaque(wire=WIRE, data={**item, "summary": summary, **({"content": content} if content else {})})
        yield from [Reasoning(text=text) for text in (*summaries, *thought)]
    elif (call := call_of(item)) is not None:
        of_call = {"computer_call": _ACTION, "mcp_approval_request": ("id",)}.get(kind) or ("name", CALLS[kind])
        yield Opaque(wire=WIRE, data=without(item, "call_id", *of_call))
        yield call
    else:
        yield Opaque(wire=WIRE, data=dict(item))


def is_answer(item: Mapping[str, Any]) -> bool:
    """Return whether a message item is marked as the final answer.

    The phases are ``commentary`` and ``final_answer``, according to `ResponseOutputMessage` in openai-python 3.54
    (November 2026).
    """
    return item.get("phase") == "final_answer"


def call_of(item: Mapping[str, Any]) -> FunctionCall | None:
    """Return the call that an item makes, or None for other items.

    The item may call a function, a computer, or an MCP server that asks for approval first.
    """
    kind = item_type(item)
    name, id = text_or_none(item.get("name")) or "", text_or_none(item.get("call_id"))
    if kind in CALLS:
        return FunctionCall(name=name, arguments_json=as_text(item.get(CALLS[kind])), provider_id=id)
    if kind == "computer_call":
        arguments: dict[str, Any] = {key: item[key] for key in _ACTION if item.get(key)}
        return FunctionCall(name=COMPUTER, arguments_json=as_text(arguments), provider_id=id)
    if kind == "mcp_approval_request":
        label, id = text_or_none(item.get("server_label")) or "", text_or_none(item.get("id"))
        arguments = {"name": name, "arguments": _parse(item.get("arguments"))}
        return FunctionCall(name=label, arguments_json=as_text(arguments), provider_id=id)
    return None


def item_type(item: Any) -> str:
    """Return the type that an item, entry or event has, or "" if it has none."""
    return (text_or_none(item.get("type")) or "") if isinstance(item, Mapping) else ""


def entries(content: Any) -> list[dict[str, Any]]:
    """Return the entries in an item's content."""
    return [entry for entry in content if isinstance(entry, dict)] if isinstance(content, list) else []


def _parse(arguments: Any) -> Any:
    try:
        return pydantic_core.from_json(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def _strip_texts(content: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    texts = [entry["text"] for entry in content if _has_text(entry)]
    return [without(entry, "logprobs", *(("text",) if _has_text(entry) else ())) for entry in content], texts


def _has_text(entry: Mapping[str, Any]) -> bool:
    return item_type(entry) in TEXTS and text_or_none(entry.get("text")) is not None


def without(item: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return the item without these keys."""
    return {key: value for key, value in item.items() if key not in keys}


class DeltaTarget(NamedTuple):
    """Where the deltas from one kind of event belong."""

    item: str  # type of the item
    field: str  # the item's field
    part: str  # type of the part in the field; "" for a text outside of parts
    key: str  # the part's key


PIECES = {
    "response.output_text": DeltaTarget("message", "content", "output_text", "text"),
    "response.refusal": DeltaTarget("message", "content", "refusal", "refusal"),
    "response.reasoning_summary_text": DeltaTarget("reasoning", "summary", "summary_text", "text"),
    "response.reasoning_text": DeltaTarget("reasoning", "content", "reasoning_text", "text"),
    "response.function_call_arguments": DeltaTarget("function_call", "arguments", "", "arguments"),
    "response.custom_tool_call_input": DeltaTarget("custom_tool_call", "input", "", "input"),
}


class ArrivingItem:
    """An item in the output that is still arriving."""

    __slots__ = ("call", "data", "index", "is_completed", "is_done", "is_matched", "kind", "texts", "totals")

    def __init__(self, kind: str, index: int) -> None:
        self.kind = kind
        self.index = index  # in the output
        self.data: dict[str, Any] = {}  # as received
        self.is_done = False  # `data` is complete
        self.is_matched = False
        self.texts: dict[tuple[DeltaTarget, int], ArrivingText] = {}  # by the part's index in events
        # All parts together: some services continue the index from item to item, so it does not match whole items.
        self.totals: dict[DeltaTarget, ArrivingText] = {}
        self.call: int | None = None  # its index among the calls of the reply, once its name is known
        self.is_completed = False

    def part(self, piece: DeltaTarget, index: int) -> ArrivingText:
        """Return the text received so far for the part that has this index in the events."""
        return self.texts.setdefault((piece, index), ArrivingText())

    def total(self, piece: DeltaTarget) -> ArrivingText:
        return self.totals.setdefault(piece, ArrivingText())

    def filled(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return a whole item without text, with the texts received so far."""
        for piece, total in self.totals.items():
            if text := str(total):
                data = {**data, piece.field: [{"type": piece.part, piece.key: text}] if piece.part else text}
        return data

    def whole(self) -> dict[str, Any]:
        """Return the item, assembled from its pieces if it never arrived as a whole."""
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
    """Return the text in all parts of this kind in a whole item."""
    if not piece.part:
        return as_text(data.get(piece.field))
    parts = [entry.get(piece.key) for entry in entries(data.get(piece.field)) if entry.get("type") == piece.part]
    return "".join([text for text in parts if isinstance(text, str)])


def matched(arrived: Sequence[ArrivingItem], output: Sequence[dict[str, Any]]) -> list[ArrivingItem]:
    """Match items in the whole output to items that have arrived: by id, else by index, else by kind in order."""
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
    """Mark the item as matched and return it, or return None if it has been matched before."""
    if item is None or item.is_matched:
        return None
    item.is_matched = True
    return item


class ResponsesDecoder(Decoder):
    """Decodes a complete response, or the events in a stream."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(headers)
        self._status = ""
        self._items: list[ArrivingItem] = []
        self._by_key: dict[
            int | str, ArrivingItem
        ] = {}  # by index in the output, which is stable, and by id, which may change

    def take_whole(self, document: dict[str, Any]) -> None:
        if _is_error(document, ""):
            raise self.reported_error(document)
        if text_or_none(document.get("status")) not in _FAILED and not isinstance(document.get("output"), list):
            raise self.no_answer()
        self._end(document, "")

    def take(self, event: dict[str, Any]) -> None:
        kind, response = item_type(event), event.get("response")
        stem, _, last = kind.rpartition(".")
        if _is_error(event, kind):
            raise self.reported_error(event)
        if kind in _ENDS:
            self._end(response if isinstance(response, dict) else {}, _ENDS[kind])
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._take_item(event, is_done=last == "done")
        elif stem in PIECES and last in ("delta", "done"):
            self._take_piece(PIECES[stem], event, is_done=last == "done")
        elif isinstance(response, dict):
            self._take_head(response)
        elif not kind and isinstance(event.get("output"), list):  # a whole response as the only event
            self._end(event, "")

    def reply(self) -> Reply:
        """Return the reply.

        Raises:
            BadReply: If no reply has arrived, the reply was cut off, or a function call has no name.
        """
        if not self.is_ended:
            raise self.bad_reply("the reply was cut off before its end") if self._items else self.no_answer()
        items = [item.whole() for item in sorted(self._items, key=lambda item: item.index)]
        has_answer = any(map(is_answer, items))
        parts = [part for item in items for part in item_parts(item, has_answer=has_answer)]
        calls = [part for part in parts if isinstance(part, FunctionCall)]
        if not all(call.name for call in calls):
            raise self.bad_reply("a function call in the reply has no name")
        finish = FINISHES.get(self._status, "length" if self._status.startswith("incomplete") else None)
        contents = [part for item in items if item_type(item) == "message" for part in entries(item.get("content"))]
        return self.reply_of(
            parts,
            "tool_calls" if finish == "stop" and calls else finish,
            finish_raw=self._status or None,
            refusal="".join([text_or_none(part.get("refusal")) or "" for part in contents]) or None,
            logprobs=tuple([token for part in contents for token in token_logprobs(part.get("logprobs"))]),
        )

    def _take_head(self, response: Mapping[str, Any]) -> None:
        self.model = text_or_none(response.get("model")) or self.model
        self.response_id = text_or_none(response.get("id")) or self.response_id
        self.take_usage(response.get("usage"), _usage)

    def _end(self, response: Mapping[str, Any], status: str) -> None:
        status = text_or_none(response.get("status")) or status
        if response.get("error") or status in _FAILED:
            problem = {"message": f"the response ended with the status {status!r}, without a reason"}
            raise self.reported_error(response if response.get("error") else problem)
        self._take_head(response)
        output, details = response.get("output"), response.get("incomplete_details")
        if isinstance(details, dict) and status == "incomplete" and (reason := text_or_none(details.get("reason"))):
            status = f"incomplete:{reason}"
        self._status = status
        self.is_ended = self.is_over = True
        if isinstance(output, list):
            self._take_output([data for data in output if isinstance(data, dict)])
        for item in self._items:
            self._end_item(item)

    def _take_output(self, output: list[dict[str, Any]]) -> None:
        """Replace the received items with those in the whole output, and emit the deltas that are missing for them."""
        items = matched(self._items, output)
        for item, data in zip(items, output, strict=True):
            self._settle(item, data)
        self._items = items or self._items

    def _take_item(self, event: Mapping[str, Any], *, is_done: bool) -> None:
        data = event.get("item")
        if not isinstance(data, dict):
            return
        item = self._item(item_type(data), event.get("output_index"), data.get("id"), is_new=not is_done)
        if is_done:
            self._settle(item, data)
        else:
            item.data = data
            self._start(item)

    def _take_piece(self, piece: DeltaTarget, event: Mapping[str, Any], *, is_done: bool) -> None:
        item = self._item(piece.item, event.get("output_index"), event.get("item_id"))
        index = event.get("summary_index" if piece.field == "summary" else "content_index")
        text = event.get(piece.key if is_done else "delta")
        if item.is_done or not isinstance(text, str):
            return
        if (name := text_or_none(event.get("name"))) and not item.data.get("name"):
            item.data = {**item.data, "name": name}
            self._start(item)
        text_of_part = item.part(piece, index if type(index) is int else 0)
        self._emit(item, piece, text_of_part.add(text_of_part.rest(text) if is_done else text))

    def _item(self, kind: str, index: Any, id: Any, *, is_new: bool = False) -> ArrivingItem:
        """Return the item that an event belongs to, found by index or id, or else the newest item."""
        keys = [key for key in (index, id) if type(key) is int or (type(key) is str and key)]
        match = self._by_key.get(keys[0]) if keys else self._items[-1] if self._items else None
        if match is None or match.kind != kind or (is_new and match.is_done):
            match = ArrivingItem(kind, index if type(index) is int else len(self._items))
            self._items.append(match)
        for key in keys:
            self._by_key[key] = match
        return match

    def _start(self, item: ArrivingItem) -> None:
        """Announce a call once its name is known, with the arguments received so far."""
        call = call_of({**item.data, "type": item.kind}) if item.call is None else None
        if call is None or not call.name:
            return
        item.call = self.deltas.begin_call(call.name, call.provider_id)
        self.deltas.add_arguments(item.call, "".join(map(str, item.totals.values())))

    def _settle(self, item: ArrivingItem, data: dict[str, Any]) -> None:
        pieces = [piece for piece in PIECES.values() if piece.item == item.kind]
        if not any(whole_text(piece, data) for piece in pieces):  # some services leave out what they have streamed
            data = item.filled(data)
        item.data, item.is_done = data, True
        self._start(item)
        for piece in pieces:
            self._emit(item, piece, item.total(piece).rest(whole_text(piece, data)))
        if item.kind not in CALLS and item.call is not None and not item.is_completed and (call := call_of(data)):
            self.deltas.add_arguments(item.call, call.arguments_json)  # these arguments never come in pieces
        self._end_item(item)

    def _end_item(self, item: ArrivingItem) -> None:
        if not item.is_done:
            for (piece, _), text in item.texts.items():
                self._emit(item, piece, text.end())
        if item.call is not None and not item.is_completed:
            item.is_completed = True
            self.deltas.complete_call(item.call)

    def _emit(self, item: ArrivingItem, piece: DeltaTarget, text: str) -> None:
        if not text:
            return
        item.total(piece).add(text)
        if piece.part == "output_text":
            self.deltas.say(Text, text)
        elif piece.item == "reasoning":
            self.deltas.say(Reasoning, text)
        elif item.call is not None:
            self.deltas.add_arguments(item.call, text)
            item.is_completed = False


def _is_error(document: Mapping[str, Any], kind: str) -> bool:
    """Return whether the document is an error.  ``kind`` is an event's type, or "" for a whole body."""
    if kind:
        return kind.endswith("error") or (not kind.startswith("response.") and bool(document.get("error")))
    is_flat = document.get("object") == "error" or "message" in document or "detail" in document
    return bool(document.get("error")) or (is_flat and not isinstance(document.get("output"), list))


def _usage(usage: Mapping[str, Any]) -> Usage:
    inputs, outputs = object_at(usage, "input_tokens_details"), object_at(usage, "output_tokens_details")
    return Usage(
        input_tokens=first_count(usage.get("input_tokens"), usage.get("prompt_tokens")),
        output_tokens=first_count(usage.get("output_tokens"), usage.get("completion_tokens")),
        cached_tokens=first_count(inputs.get("cached_tokens")),
        cache_write_tokens=first_count(inputs.get("cache_write_tokens")),
        reasoning_tokens=first_count(outputs.get("reasoning_tokens")),
    )

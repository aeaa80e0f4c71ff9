"""Decoding of replies of OpenAI's Responses API, whole or event by event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsm_agent._internal.lazy_import import pydantic_core
from fsm_agent.messages.event import (
    ArgumentsDelta,
    Delta,
    FunctionCallCompleted,
    FunctionCallStarted,
    ReasoningDelta,
    TextDelta,
)
from fsm_agent.messages.message import Message
from fsm_agent.messages.reply import UNUSED, Finish, Reply, Usage
from fsm_agent.providers.failures import no_object, reported, unreadable
from fsm_agent.providers.openai.parts import first_count, text_or_none, token_logprobs
from fsm_agent.providers.openai.responses_arrival import PIECES, ArrivingItem, DeltaTarget, matched, whole_text
from fsm_agent.providers.openai.responses_items import CALLS, call_of, entries, is_answer, item_parts, item_type
from fsm_agent.providers.streams import request_id

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


class ReplyInItems:
    """Collects a reply from one whole response, or from the events of a stream."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers
        self.is_ended = False  # by its last event, behind which nothing follows
        self.usage = UNUSED
        self._status = ""
        self._model: str | None = None
        self._response_id: str | None = None
        self._items: list[ArrivingItem] = []
        self._by_key: dict[
            int | str, ArrivingItem
        ] = {}  # index in the output, which is stable, and id, which may not be
        self._calls = 0
        self._deltas: list[Delta] = []

    @property
    def is_over(self) -> bool:
        """True once the last event has arrived."""
        return self.is_ended

    def take_whole(self, document: Any) -> None:
        """Take a whole response.

        Raises:
            ProviderError: It reports an error, or is not a response.
        """
        if not isinstance(document, dict):
            raise no_object(document, self._headers)
        if _is_error(document, ""):
            raise reported(document, self._headers)
        if text_or_none(document.get("status")) not in _FAILED and not isinstance(document.get("output"), list):
            raise unreadable("the reply has no answer", self._headers, pydantic_core.to_json(document)[:1000])
        self._end(document, "")

    def take(self, event: Any) -> list[Delta]:
        """Take an event of a stream; return its deltas.

        Raises:
            ProviderError: It reports an error, or is not an event.
        """
        if not isinstance(event, dict):
            raise no_object(event, self._headers)
        self._deltas = []
        if self.is_ended:
            return []
        kind, response = item_type(event), event.get("response")
        stem, _, last = kind.rpartition(".")
        if _is_error(event, kind):
            raise reported(event, self._headers)
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
        return self._deltas

    def end(self, *, is_cut: bool) -> list[Delta]:
        """Take the end of the stream: nothing is held back beyond the last version of the response."""
        return []

    def finished(self) -> Reply:
        """Return the reply.

        Raises:
            BadReply: None has arrived.
        """
        if not self.is_ended:
            problem = "the reply was cut off before its end" if self._items else "the reply has no answer"
            raise unreadable(problem, self._headers)
        items = [item.whole() for item in sorted(self._items, key=lambda item: item.index)]
        has_answer = any(map(is_answer, items))
        parts = [part for item in items for part in item_parts(item, has_answer=has_answer)]
        message = Message(role="assistant", parts=tuple(parts))
        if not all(call.name for call in message.function_calls):
            raise unreadable("a function call in the reply has no name", self._headers)
        finish = FINISHES.get(self._status, "length" if self._status.startswith("incomplete") else None)
        contents = [part for item in items if item_type(item) == "message" for part in entries(item.get("content"))]
        return Reply(
            message=message,
            usage=self.usage,
            finish="tool_calls" if finish == "stop" and message.function_calls else finish,
            finish_raw=self._status or None,
            refusal="".join([text_or_none(part.get("refusal")) or "" for part in contents]) or None,
            logprobs=tuple([token for part in contents for token in token_logprobs(part.get("logprobs"))]),
            model=self._model,
            response_id=self._response_id,
            request_id=request_id(self._headers),
        )

    def _take_head(self, response: Mapping[str, Any]) -> None:
        """Take the fields that every version of the response has; the newest counts."""
        self._model = text_or_none(response.get("model")) or self._model
        self._response_id = text_or_none(response.get("id")) or self._response_id
        usage = response.get("usage")
        if isinstance(usage, dict) and (counted := _usage(usage)) not in (UNUSED, self.usage):
            self.usage = counted

    def _end(self, response: Mapping[str, Any], status: str) -> None:
        """Take the last version of the response."""
        status = text_or_none(response.get("status")) or status
        if response.get("error") or status in _FAILED:
            problem = {"message": f"the response ended as {status!r}, and no reason was given"}
            raise reported(response if response.get("error") else problem, self._headers)
        self._take_head(response)
        output, details = response.get("output"), response.get("incomplete_details")
        if isinstance(details, dict) and status == "incomplete" and (reason := text_or_none(details.get("reason"))):
            status = f"incomplete:{reason}"
        self._status = status
        self.is_ended = self.is_ended or bool(status) or isinstance(output, list)
        if isinstance(output, list):
            self._take_output([data for data in output if isinstance(data, dict)])
        if self.is_ended:
            for item in self._items:
                self._end_item(item)

    def _take_output(self, output: list[dict[str, Any]]) -> None:
        """Take all items at the end, which replace the received ones; emit their missing deltas."""
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
        """Return the item that an event is about: by index, else by id, else the newest one of its kind."""
        keys = [key for key in (index, id) if type(key) is int or (type(key) is str and key)]
        match = self._by_key.get(keys[0]) if keys else self._items[-1] if self._items else None
        if match is None or match.kind != kind or (is_new and match.is_done):
            match = ArrivingItem(kind, index if type(index) is int else len(self._items))
            self._items.append(match)
        for key in keys:
            self._by_key[key] = match
        return match

    def _start(self, item: ArrivingItem) -> None:
        """Announce a call as soon as its name is known, with the arguments received so far."""
        call = call_of({**item.data, "type": item.kind}) if item.call is None else None
        if call is None or not call.name:
            return
        item.call = self._calls
        self._calls += 1
        self._deltas.append(FunctionCallStarted(item.call, call.name, call.provider_id))
        if arguments := "".join(map(str, item.totals.values())):
            self._deltas.append(ArgumentsDelta(item.call, arguments))

    def _settle(self, item: ArrivingItem, data: dict[str, Any]) -> None:
        """Take the whole item; emit its missing deltas."""
        item.data, item.is_done = data, True
        self._start(item)
        for piece in PIECES.values():
            if piece.item == item.kind:
                self._emit(item, piece, item.total(piece).rest(whole_text(piece, data)))
        if item.kind not in CALLS and item.call is not None and not item.is_completed and (call := call_of(data)):
            self._deltas.append(ArgumentsDelta(item.call, call.arguments_json))  # it arrives in no pieces
        self._end_item(item)

    def _end_item(self, item: ArrivingItem) -> None:
        """End an item, which is complete or was cut off."""
        if not item.is_done:
            for (piece, _), text in item.texts.items():
                self._emit(item, piece, text.end())
        if item.call is not None and not item.is_completed:
            item.is_completed = True
            self._deltas.append(FunctionCallCompleted(item.call))

    def _emit(self, item: ArrivingItem, piece: DeltaTarget, text: str) -> None:
        if not text:
            return
        item.total(piece).add(text)
        if piece.part == "output_text":
            self._deltas.append(TextDelta(text))
        elif piece.item == "reasoning":
            self._deltas.append(ReasoningDelta(text))
        elif item.call is not None:
            self._deltas.append(ArgumentsDelta(item.call, text))
            item.is_completed = False


def _is_error(document: Mapping[str, Any], kind: str) -> bool:
    """Return True if an event of this type, or a whole body (""), has the shape of an error."""
    if kind:
        return kind.endswith("error") or (not kind.startswith("response.") and bool(document.get("error")))
    is_flat = document.get("object") == "error" or "message" in document or "detail" in document
    return bool(document.get("error")) or (is_flat and not isinstance(document.get("output"), list))


def _usage(usage: Mapping[str, Any]) -> Usage:
    input_details, output_details = usage.get("input_tokens_details"), usage.get("output_tokens_details")
    inputs = input_details if isinstance(input_details, dict) else {}
    outputs = output_details if isinstance(output_details, dict) else {}
    return Usage(
        input_tokens=first_count(usage.get("input_tokens"), usage.get("prompt_tokens")),
        output_tokens=first_count(usage.get("output_tokens"), usage.get("completion_tokens")),
        cached_tokens=first_count(inputs.get("cached_tokens")),
        cache_write_tokens=first_count(inputs.get("cache_write_tokens")),
        reasoning_tokens=first_count(outputs.get("reasoning_tokens")),
    )

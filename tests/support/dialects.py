"""The wires as their services speak them: the part of a `CodecConformance` that writes turns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from conformance.streams import ServerEvent
from conformance.turns import Turn, TurnPart, interleaved_pieces, utf16_units

from fsm_agent.providers import AnthropicCodec, GeminiCodec, OpenAIChatCodec, OpenAIResponsesCodec


def event(document: Any, name: str = "") -> ServerEvent:
    return ServerEvent(name, json.dumps(document).encode())


def pieces_of(calls: Sequence[TurnPart], *, interleaved: bool) -> Iterator[tuple[int, str]]:
    """Yield the pieces of calls, each with the call's index."""
    if interleaved:
        yield from interleaved_pieces(calls)
    else:
        yield from [(index, piece) for index, call in enumerate(calls) for piece in call.pieces]


class ChatDialect:
    """Chat completions."""

    codec = OpenAIChatCodec()
    interleaves_calls = True
    cuts_characters = True

    def events(self, turn: Turn, *, interleaved: bool = False) -> list[ServerEvent]:
        deltas: list[Any] = [{"role": "assistant", "content": ""}]
        for part in turn.parts:
            key = "content" if part.kind == "text" else "reasoning_content"
            deltas += [{key: piece} for piece in part.pieces if part.kind != "call"]
        calls = turn.calls
        begun = [self._call(index, call.name, "", id=call.id) for index, call in enumerate(calls)]
        told = [(index, self._call(index, None, piece)) for index, piece in pieces_of(calls, interleaved=interleaved)]
        if interleaved:
            deltas += [*begun, *[delta for _, delta in told]]
        else:
            deltas += [d for i, first in enumerate(begun) for d in (first, *[delta for n, delta in told if n == i])]
        chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]})
        usage = {"prompt_tokens": turn.usage.input_tokens, "completion_tokens": turn.usage.output_tokens}
        chunks.append({"choices": [], "usage": usage})
        return [*map(event, chunks), ServerEvent("", b"[DONE]")]

    def response(self, turn: Turn) -> bytes:
        message: dict[str, Any] = {"role": "assistant", "content": turn.joined("text")}
        if reasoning := turn.joined("reasoning"):
            message["reasoning_content"] = reasoning
        if calls := turn.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
                for call in calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        usage = {"prompt_tokens": turn.usage.input_tokens, "completion_tokens": turn.usage.output_tokens}
        return json.dumps({"choices": [choice], "usage": usage}).encode()

    def _call(self, index: int, name: str | None, arguments: str, **more: Any) -> dict[str, Any]:
        function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
        return {"tool_calls": [{"index": index, "function": function, **more}]}

    def error_event(self, message: str) -> ServerEvent:
        return event({"error": {"message": message, "code": 503}})


class ResponsesDialect:
    """The Responses API.

    Attributes:
        runs_on: ``content_index`` counts all parts of the response, as vLLM has it.
        is_bare: Nothing comes as a whole: neither a text, nor an item, nor the output.
    """

    runs_on = False
    is_bare = False

    codec = OpenAIResponsesCodec()
    interleaves_calls = True
    cuts_characters = True

    def events(self, turn: Turn, *, interleaved: bool = False) -> list[ServerEvent]:
        items = [self._item(part, part.text) for part in turn.parts]
        events: list[Any] = [{"type": "response.created", "response": {"id": "r1", "model": "m1"}}]
        words = [part for part in turn.parts if part.kind != "call"]
        for index, part in enumerate(words):
            events += [self._added(part, index), *[self._piece(part, index, piece) for piece in part.pieces]]
            events += self._done(part, index)
        calls = turn.calls
        if interleaved:
            events += [self._added(call, len(words) + index) for index, call in enumerate(calls)]
        for index, call in enumerate(calls):
            at = len(words) + index
            if not interleaved:
                events += [self._added(call, at), *[self._piece(call, at, piece) for piece in call.pieces]]
                events += self._done(call, at)
        if interleaved:
            events += [self._piece(calls[i], len(words) + i, piece) for i, piece in pieces_of(calls, interleaved=True)]
            events += [done for i, call in enumerate(calls) for done in self._done(call, len(words) + i)]
        output = [] if self.is_bare else items
        events.append({"type": "response.completed", "response": self._response(turn, output)})
        return [event(each, each["type"]) for each in events]

    def response(self, turn: Turn) -> bytes:
        return json.dumps(self._response(turn, [self._item(part, part.text) for part in turn.parts])).encode()

    def _response(self, turn: Turn, output: list[Any]) -> dict[str, Any]:
        usage = {"input_tokens": turn.usage.input_tokens, "output_tokens": turn.usage.output_tokens}
        return {"id": "r1", "model": "m1", "status": "completed", "usage": usage, "output": output}

    def _item(self, part: TurnPart, text: str) -> dict[str, Any]:
        if part.kind == "call":
            return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": text}
        if part.kind == "reasoning":
            return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}

    def _added(self, part: TurnPart, index: int) -> dict[str, Any]:
        item = self._item(part, "")
        if part.kind != "call":
            item["content"] = []
        return {"type": "response.output_item.added", "output_index": index, "item": item}

    def _piece(self, part: TurnPart, index: int, piece: str) -> dict[str, Any]:
        return {**self._about(part, index, "delta"), "delta": piece}

    def _about(self, part: TurnPart, index: int, what: str) -> dict[str, Any]:
        kinds = {"text": "output_text", "reasoning": "reasoning_text", "call": "function_call_arguments"}
        place = {} if part.kind == "call" else {"content_index": index if self.runs_on else 0}
        return {"type": f"response.{kinds[part.kind]}.{what}", "output_index": index, **place}

    def _done(self, part: TurnPart, index: int) -> list[dict[str, Any]]:
        if self.is_bare:
            return []
        key = "arguments" if part.kind == "call" else "text"
        item = {"type": "response.output_item.done", "output_index": index, "item": self._item(part, part.text)}
        return [{**self._about(part, index, "done"), key: part.text}, item]

    def error_event(self, message: str) -> ServerEvent:
        return event({"type": "error", "message": message, "code": "server_error"}, "error")


class AnthropicDialect:
    """Anthropic's messages."""

    codec = AnthropicCodec()
    interleaves_calls = True
    cuts_characters = True

    def events(self, turn: Turn, *, interleaved: bool = False) -> list[ServerEvent]:
        usage = {"input_tokens": turn.usage.input_tokens, "output_tokens": 0}
        events: list[Any] = [{"type": "message_start", "message": {"id": "r1", "model": "m1", "usage": usage}}]
        words = [part for part in turn.parts if part.kind != "call"]
        for index, part in enumerate(words):
            events += [self._start(part, index), *[self._delta(part, index, piece) for piece in part.pieces]]
            events += [{"type": "content_block_stop", "index": index}, {"type": "ping"}]
        calls = turn.calls
        starts = [self._start(call, len(words) + index) for index, call in enumerate(calls)]
        stops = [{"type": "content_block_stop", "index": len(words) + index} for index in range(len(calls))]
        told = [
            (i, self._delta(calls[i], len(words) + i, piece)) for i, piece in pieces_of(calls, interleaved=interleaved)
        ]
        if interleaved:
            events += [*starts, *[delta for _, delta in told], *stops]
        else:
            for index, (start, stop) in enumerate(zip(starts, stops, strict=True)):
                events += [start, *[delta for i, delta in told if i == index], stop]
        last = {"stop_reason": "tool_use" if calls else "end_turn"}
        events.append({"type": "message_delta", "delta": last, "usage": {"output_tokens": turn.usage.output_tokens}})
        return [event(each, each["type"]) for each in [*events, {"type": "message_stop"}]]

    def response(self, turn: Turn) -> bytes:
        content = []
        for part in turn.parts:
            block = self._start(part, 0)["content_block"]
            key = {"text": "text", "reasoning": "thinking", "call": "input"}[part.kind]
            content.append({**block, key: json.loads(part.text) if part.kind == "call" else part.text})
        usage = {"input_tokens": turn.usage.input_tokens, "output_tokens": turn.usage.output_tokens}
        reason = "tool_use" if turn.calls else "end_turn"
        message = {"type": "message", "id": "r1", "model": "m1", "content": content, "usage": usage}
        return json.dumps({**message, "stop_reason": reason}).encode()

    def _start(self, part: TurnPart, index: int) -> dict[str, Any]:
        blocks: dict[str, dict[str, Any]] = {
            "text": {"type": "text", "text": ""},
            "reasoning": {"type": "thinking", "thinking": ""},
            "call": {"type": "tool_use", "id": part.id, "name": part.name, "input": {}},
        }
        return {"type": "content_block_start", "index": index, "content_block": blocks[part.kind]}

    def _delta(self, part: TurnPart, index: int, piece: str) -> dict[str, Any]:
        names = {
            "text": ("text_delta", "text"),
            "reasoning": ("thinking_delta", "thinking"),
            "call": ("input_json_delta", "partial_json"),
        }
        kind, key = names[part.kind]
        return {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: piece}}

    def error_event(self, message: str) -> ServerEvent:
        return event({"type": "error", "error": {"type": "overloaded_error", "message": message}}, "error")


class GeminiDialect:
    """Gemini, as Vertex AI streams: the arguments of calls come in pieces too, one call after the other."""

    codec = GeminiCodec()
    cuts_characters = True

    def events(self, turn: Turn, *, interleaved: bool = False) -> list[ServerEvent]:
        parts: list[Any] = []
        for part in turn.parts:
            thought = {"thought": True} if part.kind == "reasoning" else {}
            parts += [{"text": piece, **thought} for piece in part.pieces if part.kind != "call"]
            parts += self._call(part) if part.kind == "call" else []
        usage = {"promptTokenCount": turn.usage.input_tokens, "candidatesTokenCount": turn.usage.output_tokens}
        so_far = {"promptTokenCount": turn.usage.input_tokens}
        chunks = [
            {"candidates": [{"content": {"role": "model", "parts": [part]}}], "usageMetadata": so_far} for part in parts
        ]
        end = {"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}], "usageMetadata": usage}
        return [*map(event, chunks), event(end)]

    def response(self, turn: Turn) -> bytes:
        parts: list[Any] = []
        for part in turn.parts:
            if part.kind == "call":
                parts.append({"functionCall": {"name": part.name, "id": part.id, "args": json.loads(part.text)}})
            else:
                parts.append({"text": part.text, **({"thought": True} if part.kind == "reasoning" else {})})
        usage = {"promptTokenCount": turn.usage.input_tokens, "candidatesTokenCount": turn.usage.output_tokens}
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
        return json.dumps({"candidates": [candidate], "usageMetadata": usage}).encode()

    def _call(self, call: TurnPart) -> list[Any]:
        value = json.loads("".join(call.pieces), strict=False)["a"]
        pieces = [{"jsonPath": "$.a", "stringValue": unit, "willContinue": True} for unit in utf16_units(value)]
        begun = {"name": call.name, "id": call.id, "willContinue": True}
        return [
            {"functionCall": said}
            for said in (begun, *[{"partialArgs": [piece], "willContinue": True} for piece in pieces], {})
        ]

    def error_event(self, message: str) -> ServerEvent:
        return event({"error": {"code": 503, "message": message, "status": "UNAVAILABLE"}})

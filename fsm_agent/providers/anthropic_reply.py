"""Replies from Anthropic's Messages API, complete or streamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pydantic_core

from fsm_agent.functions.hosted_calls import COMPUTER, as_action
from fsm_agent.messages.message import FunctionCall, Opaque, Part, Reasoning, Text
from fsm_agent.messages.reply import Finish, Reply, Usage
from fsm_agent.providers.codec import Decoder
from fsm_agent.providers.content import (
    arguments_object,
    citations,
    first_count,
    object_at,
    streamed_arguments,
    text_or_none,
)
from fsm_agent.providers.sse import ArrivingText

WIRE = "anthropic"
# An `Opaque` with this key is not a block.  It holds extra fields for the next part's block (signature, citations,
# caller) or, with the value "request", fields that the next request must repeat.
ADDS_TO = "adds_to"
# The key that marks calls to a toolset, and their results.  No request declares a toolset's functions.  A computer's
# toolset is named "computer".  According to the types in SDK 2.12 (November 2026).
TOOLSET = "toolset_name"

FINISHES: dict[str, Finish] = {
    **dict.fromkeys(("end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("pause_turn", "compaction"), "pause"),
    "tool_use": "tool_calls",
    "refusal": "refusal",
}
_READ_KEYS = {"text": {"text"}, "thinking": {"thinking"}, "tool_use": {"id", "name", "input"}}  # kept in our parts
_TYPES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}
# By the type of a block, which is also the key of its text.
_STREAMED: dict[str, type[Text] | type[Reasoning]] = {"text": Text, "thinking": Reasoning}
_DIRECT = {"type": "direct"}  # the usual caller of a function: the model itself


class _Block:
    __slots__ = ("arguments", "call", "data", "is_whole", "open_keys", "texts")

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = dict(data)
        self.texts: dict[str, ArrivingText] = {}  # arriving in pieces, by key
        self.open_keys: set[str] = set()  # of texts that have grown since the block last ended
        self.arguments = ArrivingText()
        self.call: int | None = None  # its index among the function calls
        self.is_whole = False

    @property
    def type(self) -> str | None:
        return text_or_none(self.data.get("type"))

    def begin(self, key: str) -> str:
        text, begun = ArrivingText(), self.data.get(key)
        self.texts[key] = text
        self.open_keys.add(key)
        return text.add(begun) if isinstance(begun, str) else ""

    def add(self, key: str, piece: str) -> str:
        if key not in self.texts:
            self.begin(key)
        self.open_keys.add(key)
        return self.texts[key].add(piece)

    def parts(self) -> Iterator[Part]:
        block = self.data | {key: str(text) for key, text in self.texts.items()}
        kind = self.type
        if kind not in _READ_KEYS:
            if self.arguments:
                block["input"] = arguments_object(str(self.arguments))
            yield Opaque(wire=WIRE, data=block)
            return
        beside = {
            key: value
            for key, value in block.items()
            if key != "type" and key not in _READ_KEYS[kind] and value and value != _DIRECT
        }
        if beside or (kind == "thinking" and block.get(kind)):  # services other than Anthropic may sign nothing
            yield Opaque(wire=WIRE, data={ADDS_TO: kind, **beside})
        if kind == "tool_use":
            id = text_or_none(block.get("id"))
            call = FunctionCall(
                name=block["name"], arguments_json=streamed_arguments(str(self.arguments)), provider_id=id
            )
            yield as_action(call) if block.get(TOOLSET) == COMPUTER else call
        elif kind == "thinking":
            yield Reasoning(text=text_or_none(block.get("thinking")) or "")
        elif text := text_or_none(block.get("text")):
            yield Text(text, annotations=citations(block.get("citations")))


class AnthropicDecoder(Decoder):
    """Decodes a complete message, or the events in a stream."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(headers)
        self._has_message = False
        self._finish_raw: str | None = None
        self._refusal: str | None = None
        self._container: str | None = None
        self._blocks: list[_Block] = []
        self._by_index: dict[int, _Block] = {}

    def take(self, event: dict[str, Any]) -> None:
        self._check_error(event)
        match event.get("type"):
            case "message_start":
                self._take_message(event.get("message"))
            case "content_block_start":
                self._begin(event.get("index"), event.get("content_block"))
            case "content_block_delta":
                self._take_delta(event.get("index"), event.get("delta"))
            case "content_block_stop":
                if block := self._block(event.get("index")):
                    self._end(block)
            case "message_delta":
                self._take_state(event.get("delta"))
                self.take_usage(event.get("usage"), _usage)
            case "message_stop":
                self._end_all()
            case "message":
                self.take_whole(event)

    def take_whole(self, document: dict[str, Any]) -> None:
        self._check_error(document)
        if not isinstance(document.get("content"), list):
            raise self.no_answer()
        self._take_message(document)
        self._end_all()

    def close(self, *, is_cut: bool) -> None:
        """End the blocks if the stream contained a stop reason but no ``message_stop``."""
        if self.is_ended and not self.is_over:
            self._end_all()

    def reply(self) -> Reply:
        """Return the reply.

        Raises:
            BadReply: If no reply has arrived, or only part of one.
        """
        if not self.is_ended:
            raise self.bad_reply("the stream was cut off before the end of the reply")
        if not self._has_message and not self._blocks:
            raise self.no_answer()
        if any(block.type == "tool_use" and block.call is None for block in self._blocks):
            raise self.bad_reply("a function call in the reply has no name")
        parts = [part for block in self._blocks for part in block.parts()]
        if self._container:
            parts.append(Opaque(wire=WIRE, data={ADDS_TO: "request", "container": self._container}))
        finish = FINISHES.get(self._finish_raw or "")
        return self.reply_of(parts, finish, finish_raw=self._finish_raw, refusal=self._refusal)

    def _check_error(self, document: Mapping[str, Any]) -> None:
        message = document.get("message") or document.get("detail")
        if document.get("type") == "error" or document.get("error") or isinstance(message, str):
            raise self.reported_error(document)

    def _take_message(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        self._has_message = True
        self.model = text_or_none(message.get("model")) or self.model
        self.response_id = text_or_none(message.get("id")) or self.response_id
        self._take_state(message)
        self.take_usage(message.get("usage"), _usage)
        content = message.get("content")
        for index, block in enumerate(content if isinstance(content, list) else ()):
            self._begin(index, block)

    def _take_state(self, state: Any) -> None:
        if not isinstance(state, dict):
            return
        if reason := text_or_none(state.get("stop_reason")):  # some gateways then close, without ``message_stop``
            self._finish_raw, self.is_ended = reason, True
        if isinstance(details := state.get("stop_details"), dict):
            self._refusal = text_or_none(details.get("explanation")) or self._refusal
        if isinstance(container := state.get("container"), dict):
            self._container = text_or_none(container.get("id")) or self._container

    def _begin(self, index: Any, data: Any) -> _Block | None:
        if not isinstance(data, dict):
            return None
        block = _Block(data)
        self._blocks.append(block)
        if isinstance(index, int):
            self._by_index[index] = block
        if block.type == "tool_use" and (name := text_or_none(data.get("name"))):
            block.call = self.deltas.begin_call(name, text_or_none(data.get("id")))
        elif block.type in _STREAMED:
            self._tell(block.type, block.begin(block.type))
        elif block.type == "fallback" and isinstance(successor := data.get("to"), dict):
            self.model = text_or_none(successor.get("model")) or self.model
        return block

    def _block(self, index: Any) -> _Block | None:
        if isinstance(index, int):
            return self._by_index.get(index)
        return self._blocks[-1] if self._blocks else None

    def _block_for(self, index: Any, kind: str) -> _Block | None:
        """Return the block for this kind of delta, which is begun here if its start never arrived.

        Some gateways send a delta to a block of another type, for example reasoning to the block of the answer:
        https://github.com/BerriAI/litellm/issues/33224 and https://github.com/sgl-project/sglang/pull/24294 (2026)
        """
        block, type_ = self._block(index), _TYPES.get(kind)
        if type_ is None or (block is not None and (block.type == type_ or block.type not in _READ_KEYS)):
            return block
        calls = [other for other in self._blocks if block is not None and other.type == type_ == "tool_use"]
        return calls[-1] if calls else self._begin(index, {"type": type_})

    def _take_delta(self, index: Any, delta: Any) -> None:
        """Append to a block."""
        if not isinstance(delta, dict):
            return
        kind = text_or_none(delta.get("type")) or ""
        block = self._block_for(index, kind)
        if block is None:
            return
        match kind:
            case "input_json_delta":
                if piece := text_or_none(delta.get("partial_json")):
                    self._take_arguments(block, piece)
            case "citations_delta":
                block.data["citations"] = block.data.get("citations") or []
                if isinstance(block.data["citations"], list):
                    block.data["citations"].append(delta.get("citation"))
            case "signature_delta":
                block.data["signature"] = delta.get("signature") or block.data.get("signature")
            case _:
                self._take_pieces(block, delta)

    def _take_pieces(self, block: _Block, delta: Mapping[str, Any]) -> None:
        for key, value in delta.items():
            if isinstance(value, str) and key != "type":
                text = block.add(key, value)
                if key == block.type:
                    self._tell(key, text)
            elif value is not None and key != "type":
                block.data[key] = value

    def _tell(self, key: str, text: str) -> None:
        if key in _STREAMED:
            self.deltas.say(_STREAMED[key], text)

    def _take_arguments(self, block: _Block, piece: str) -> None:
        block.is_whole = False
        self._tell_arguments(block, block.arguments.add(piece))

    def _tell_arguments(self, block: _Block, text: str) -> None:
        if block.call is not None:
            self.deltas.add_arguments(block.call, text)

    def _end(self, block: _Block) -> None:
        """End a block.  If no pieces of its arguments arrived, they were complete at its start or are empty."""
        for key in block.open_keys:
            rest = block.texts[key].end()
            if key == block.type:
                self._tell(key, rest)
        block.open_keys.clear()
        if block.is_whole:
            return
        if block.call is not None and not block.arguments:
            arguments = block.data.get("input")
            self._take_arguments(
                block,
                arguments
                if isinstance(arguments, str) and arguments
                else pydantic_core.to_json(arguments or {}).decode(),
            )
        block.is_whole = True
        self._tell_arguments(block, block.arguments.end())
        if block.call is not None:
            self.deltas.complete_call(block.call)

    def _end_all(self) -> None:
        self.is_ended = self.is_over = True
        for block in self._blocks:
            self._end(block)


def _usage(usage: Mapping[str, Any]) -> Usage:
    """Return the counts.  Cached tokens are added to the API's input tokens, which do not include them."""
    input_tokens, cached = first_count(usage.get("input_tokens")), first_count(usage.get("cache_read_input_tokens"))
    written = first_count(usage.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=None if input_tokens is None else input_tokens + (cached or 0) + (written or 0),
        output_tokens=first_count(usage.get("output_tokens")),
        cached_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=first_count(object_at(usage, "output_tokens_details").get("thinking_tokens")),
    )

"""Do all wires read a stream of ten megabytes in time that is linear in it?"""

from __future__ import annotations

import json
from functools import partial
from math import log2
from typing import Any

import pytest
from support.time_growth import growth

from fsm_agent.providers import AnthropicCodec, GeminiCodec, OpenAIChatCodec, OpenAIResponsesCodec

pytestmark = pytest.mark.system

SIZE = 10_000_000
SHORT = 4_000_000  # with which a copy of the text for each delta takes several times as long as all else
ANTHROPIC_START = (
    {"type": "message_start", "message": {"id": "m", "model": "claude", "role": "assistant", "content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
)
ANTHROPIC_STOP = (
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
)
WIRES: dict[str, tuple[Any, tuple[Any, ...], Any, tuple[Any, ...]]] = {
    "chat": (
        OpenAIChatCodec(),
        (),
        {"choices": [{"index": 0, "delta": {"content": "a word "}}]},
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},),
    ),
    "responses": (
        OpenAIResponsesCodec(),
        (),
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "a word "},
        ({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}},),
    ),
    "anthropic": (
        AnthropicCodec(),
        ANTHROPIC_START,
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a word "}},
        ANTHROPIC_STOP,
    ),
    "gemini": (
        GeminiCodec(),
        (),
        {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": "a word "}]}}]},
        ({"candidates": [{"index": 0, "content": {"role": "model", "parts": []}, "finishReason": "STOP"}]},),
    ),
}


def event(document: Any) -> bytes:
    name = f"event: {document['type']}\n" if "type" in document else ""
    return f"{name}data: {json.dumps(document)}\n\n".encode()


def stream(wire: str, size: int) -> tuple[int, list[bytes]]:
    """How many deltas a stream has, and its pieces as they come from a connection."""
    _, start, again, stop = WIRES[wire]
    count = size // len(event(again))
    body = b"".join([*map(event, start), event(again) * count, *map(event, stop)])
    return count, [body[at : at + 65_536] for at in range(0, len(body), 65_536)]


def read(wire: str, given: tuple[int, list[bytes]]) -> None:
    count, pieces = given
    decoder = WIRES[wire][0].decoder({})
    for piece in pieces:
        decoder.feed(piece)
    assert decoder.finish().message.text == "a word " * count


@pytest.mark.parametrize("size", [SHORT, pytest.param(SIZE, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("wire", WIRES)
def test_time_is_linear_in_the_size(wire: str, size: int) -> None:
    bound = 20 ** (1 / log2(10))  # for each doubling: ten times as much takes less than twenty times as long
    assert growth(partial(stream, wire), partial(read, wire), size // 8, until=bound) < bound

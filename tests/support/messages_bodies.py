"""Responses of services of Anthropic's wire, and the replies that the codec reads in them."""

from __future__ import annotations

import json
from typing import Any

from conformance.streams import read

from fsm_agent.messages import Delta, Reply
from fsm_agent.providers import AnthropicCodec

CODEC = AnthropicCodec()


def message(*content: Any, stop_reason: Any = "end_turn", **more: Any) -> bytes:
    """A whole message with these blocks."""
    body = {"type": "message", "id": "r1", "model": "m1", "content": content, "stop_reason": stop_reason, **more}
    return json.dumps(body).encode()


def sse(*events: Any) -> bytes:
    """A stream of these events, each named by its type."""
    names = [event.get("type", "") if isinstance(event, dict) else "" for event in events]
    return "".join(
        [f"event: {name}\ndata: {json.dumps(event)}\n\n" for name, event in zip(names, events, strict=True)]
    ).encode()


def block(index: int, start: Any, *deltas: Any) -> list[Any]:
    """The events of one block of content."""
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *[{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas],
        {"type": "content_block_stop", "index": index},
    ]


def text(*pieces: str) -> list[Any]:
    """The events of a block of text at the beginning."""
    return block(0, {"type": "text", "text": ""}, *[{"type": "text_delta", "text": piece} for piece in pieces])


START = {"type": "message_start", "message": {"id": "r1", "model": "m1", "content": [], "usage": {"input_tokens": 3}}}
STOP = {"type": "message_stop"}


def end(stop_reason: Any = "end_turn", **usage: Any) -> dict[str, Any]:
    """The event that says why the model stopped."""
    return {"type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": None}, "usage": usage}


def stream(*events: Any, stop_reason: Any = "end_turn", **usage: Any) -> bytes:
    """A whole stream around these events."""
    return sse(START, *events, end(stop_reason, **usage), STOP)


def whole(body: bytes, **headers: str) -> Reply:
    """The reply in a whole body."""
    return CODEC.decode(200, headers, body)


def streamed(body: bytes, piece: int = 0) -> tuple[Reply, list[Delta]]:
    """Return the reply of a stream and its deltas, fed in pieces of this many bytes or at once."""
    return read(CODEC, body, piece)


def marks(value: Any, path: str = "") -> list[str]:
    """Where the breakpoints of a request are."""
    if isinstance(value, list):
        return [found for index, inner in enumerate(value) for found in marks(inner, f"{path}[{index}]")]
    if not isinstance(value, dict):
        return []
    inner = [found for key in value if key != "cache_control" for found in marks(value[key], f"{path}.{key}")]
    return [*([path] if "cache_control" in value else []), *inner]

"""Responses of services of chat completions, and the replies that the codec reads in them."""

from __future__ import annotations

import json
from typing import Any

from conformance.streams import read

from fsm_agent.messages import Delta, Reply
from fsm_agent.providers import OpenAIChatCodec

CODEC = OpenAIChatCodec()


def completion(message: Any = None, *, finish_reason: Any = "stop", choice: Any = None, **more: Any) -> bytes:
    """A whole completion with this message."""
    first = {"index": 0, "message": message, "finish_reason": finish_reason, **(choice or {})}
    return json.dumps({"id": "r1", "model": "m1", "choices": [first], **more}).encode()


def sse(*chunks: Any, done: bool = True) -> bytes:
    """A stream of these chunks."""
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return ("".join(lines) + ("data: [DONE]\n\n" if done else "")).encode()


def stream(*deltas: Any, done: bool = True, **last: Any) -> bytes:
    """A stream of these deltas, and a chunk that ends it."""
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return sse(*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", **last}]}, done=done)


def whole(body: bytes, **headers: str) -> Reply:
    """The reply in a whole body."""
    return CODEC.decode(200, headers, body)


def streamed(body: bytes, piece: int = 0) -> tuple[Reply, list[Delta]]:
    """Return the reply of a stream and its deltas, fed in pieces of this many bytes or at once."""
    return read(CODEC, body, piece)

"""Responses of Gemini, and the replies that the codec reads in them."""

from __future__ import annotations

import json
from typing import Any

from conformance.streams import read

from fsm_agent.messages import Delta, Reply
from fsm_agent.providers import GeminiCodec

CODEC = GeminiCodec()


def response(*parts: Any, finish: Any = "STOP", candidate: Any = None, **more: Any) -> dict[str, Any]:
    """A response (or a chunk of a stream) with these parts."""
    first = {"content": {"role": "model", "parts": list(parts)}, **({"finishReason": finish} if finish else {})}
    return {"candidates": [{**first, **(candidate or {})}], "modelVersion": "m1", "responseId": "r1", **more}


def chunk(*parts: Any, **more: Any) -> dict[str, Any]:
    """A chunk after which others come."""
    return response(*parts, finish=None, **more)


def text(said: str, **more: Any) -> dict[str, Any]:
    """A part of text."""
    return {"text": said, **more}


def call(name: str | None = None, args: Any = None, signature: str | None = None, **more: Any) -> dict[str, Any]:
    """A part that calls a function, or continues to do so."""
    said = {"name": name, "args": args, **more}
    part: dict[str, Any] = {"functionCall": {key: value for key, value in said.items() if value is not None}}
    return {**part, "thoughtSignature": signature} if signature else part


def sse(*chunks: Any) -> bytes:
    """A stream of these chunks, in Google's framing."""
    return "".join([f"data: {json.dumps(said)}\r\n\r\n" for said in chunks]).encode()


def whole(*parts: Any, **more: Any) -> Reply:
    """The reply in a whole response with these parts."""
    return CODEC.decode(200, {}, json.dumps(response(*parts, **more)).encode())


def streamed(body: bytes, piece: int = 0) -> tuple[Reply, list[Delta]]:
    """Return the reply of a stream and its deltas, fed in pieces of this many bytes or at once."""
    return read(CODEC, body, piece)

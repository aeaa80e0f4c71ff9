"""Recorded traffic, which is not in the repository: where it is, and what skips without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fsm_agent.errors import ProviderError
from fsm_agent.messages import Reply
from fsm_agent.providers import Codec
from support.paths import SHARED

RECORDED = SHARED / "wire"
LOCAL = SHARED / "wire_local"

needs_recorded = pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded traffic (../shared/wire) is not here")
needs_local = pytest.mark.skipif(not LOCAL.is_dir(), reason="the samples (../shared/wire_local) are not here")


def sample(path: Path) -> tuple[str, dict[str, Any], int, dict[str, str], bytes]:
    """One exchange with the llama.cpp server: the first line, the request, status, headers and body."""
    asked, _, answered = path.read_text(encoding="utf-8").partition("\n=== HTTP ")
    head, _, body = answered.partition("\n\n")
    status, *lines = head.split("\n")
    headers = dict(line.split(": ", 1) for line in lines if ": " in line)
    first, _, json_text = asked.partition("\n")
    try:
        request = json.loads(json_text)
    except ValueError:
        request = {}
    return first, request, int(status.split()[0]), headers, body.rstrip("\n").encode() + b"\n\n"


def local_outcome(codec: Codec, address: str, path: Path) -> Reply | ProviderError | None:
    """What the codec makes of a sample; None when it is of another wire."""
    first, request, status, headers, body = sample(path)
    if first != f"POST {address}":
        return None
    try:
        if not request.get("stream") or status != 200:
            return codec.decode(status, headers, body)
        decoder = codec.decoder(headers)
        for start in range(0, len(body), 7):
            decoder.feed(body[start : start + 7])
        return decoder.finish()
    except ProviderError as error:
        return error

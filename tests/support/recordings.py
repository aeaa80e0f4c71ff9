"""Recorded traffic, which is not in the repository: where it is, and what skips without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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

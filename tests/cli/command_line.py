"""The commands in process, and what they tell."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from fsm_agent.cli import app

MODEL = ("--model", "openai-compatible:stub", "--base-url", "http://127.0.0.1:1/v1")
KEY = "sk-abcdefghijklmnopqrstuvwx"
EVIL = "a\x1b[31mred\x1b]0;title\x07\x9b2Jb\u202ec"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def ran(*words: str, code: int = 0, **options: Any) -> Any:
    """Run a command that ends with this code."""
    ended = CliRunner().invoke(app, [*words], prog_name="fsm-agent", catch_exceptions=False, **options)
    assert ended.exit_code == code, ended.output
    return ended


def refused(*words: str, code: int = 1) -> str:
    """What a command tells that ends with this code, on one line and without a frame."""
    return re.sub(r"[│╭╮╰╯─\s]+", " ", ran(*words, code=code).stderr)


def at_terminal(monkeypatch: pytest.MonkeyPatch, *words: str, answers: Sequence[str]) -> str:
    """Run a command at a terminal where a person types these answers, and return its output."""
    typed, terminal = os.openpty()
    left = [*answers]

    class Terminal(io.StringIO):
        def write(self, text: str) -> int:
            if text.endswith(": "):
                os.write(typed, left.pop(0).encode())
            return super().write(text)

    screen = Terminal()
    with open(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stderr", screen)
        code = app([*words], standalone_mode=False)
    os.close(typed)
    assert (code or 0, left) == (0, []), screen.getvalue()
    return screen.getvalue()


def lines_of(ended: Any) -> list[dict[str, Any]]:
    """The lines of JSON on stdout."""
    return [json.loads(line) for line in ended.stdout.splitlines()]

"""Does a person decide what a model may call that guesses, and is the next step always said?"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT, TESTS
from support.stub_server import StubServer
from typer.testing import CliRunner

from fsm_agent.cli import app
from fsm_agent.cli.models import GUESSES, code_of, guesses
from fsm_agent.clients.local.model import command_to_fetch, find_model

needs_model = pytest.mark.skipif(
    find_model() is None or importlib.util.find_spec("xllamacpp") is None,
    reason=f"no local model or engine: {command_to_fetch()}",
)
ADD = ("--function", "support.own_functions:add")
STUB = ("--model", "openai-compatible:stub")
WATCHED = ("--function", "watched_tools:watched")
CALL = {"id": "c", "type": "function", "function": {"name": "watched", "arguments": "{}"}}
ASKS = {"role": "assistant", "content": "", "tool_calls": [CALL]}
TOOLS = """
from fsm_agent import function

@function(needs_approval=True)
def watched() -> str:
    "Do it."
    return "done"
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(ROOT)]), "COLUMNS": "200"}


def ask(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fsm_agent", "ask", "What is 17 + 25?", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, cwd=folder, stdin=subprocess.DEVNULL, timeout=200
    )


def a_model(folder: Path) -> str:
    (folder / "other.gguf").write_bytes(b"GGUF")
    return str(folder / "other.gguf")


class TestGuesses:
    def test_the_small_model_guesses_and_no_other(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        assert guesses("local:", None)
        assert not guesses("local:", "http://127.0.0.1:1/v1")
        assert not guesses("openai:gpt-5-mini", None)
        assert not guesses(f"local:{a_model(tmp_path)}", None)
        monkeypatch.setenv("FSM_AGENT_LOCAL_MODEL", a_model(tmp_path))
        assert not guesses("local:", None)

    def test_a_function_needs_approval_of_whoever_is_there_unless_the_model_is_trusted(self):
        (trusted,), _ = code_of(["support.own_functions:add"], None)
        (watched,), _ = code_of(["support.own_functions:add"], None, trusted=False)
        assert (trusted.needs_approval, watched.needs_approval) == (False, None)


def typed(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), prog_name="fsm-agent", catch_exceptions=False)


class TestEnds:
    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", [*sys.path])
        (tmp_path / "watched_tools.py").write_text(TOOLS)
        yield
        sys.modules.pop("watched_tools", None)

    @pytest.mark.system
    def test_the_command_that_goes_on_can_be_typed_as_it_is(self, monkeypatch: pytest.MonkeyPatch):
        with StubServer([ASKS, "It is done."]) as stub:
            asked = ["ask", "?", *STUB, "--base-url", stub.base_url, *WATCHED, "--set", "temperature=0"]
            asked += ["--set", "rounds=3", "--store", "my runs.db", "--run-id", "one"]
            monkeypatch.setattr(sys, "argv", ["fsm-agent", *asked])
            ended = typed(*asked)
            assert ended.exit_code == 3
            lines = [line for line in ended.stderr.splitlines() if "fsm-agent runs" in line]
            for command in reversed([line[line.index("fsm-agent runs") :] for line in lines]):  # the last one answers
                done = typed(*shlex.split(command)[1:])
                assert done.exit_code == 0, done.stderr
        assert len(lines) == 2
        assert done.stdout == "It is done.\n"

    @pytest.mark.system
    def test_approve_runs_what_requires_approval(self):
        with StubServer([ASKS, "It is done."]) as stub:
            ended = typed("ask", "?", *STUB, "--base-url", stub.base_url, *WATCHED, "--approve")
        assert (ended.exit_code, ended.stdout) == (0, "It is done.\n")


@needs_model
@pytest.mark.nightly
@pytest.mark.timeout(300)  # on a busy machine a real model takes its time
class TestSmallModel:
    def test_without_a_person_it_waits(self, tmp_path: Path):
        ended = ask(*ADD, folder=tmp_path)
        assert ended.returncode == 3
        assert ended.stderr.splitlines()[0] == GUESSES
        assert "waits for approval as ask:1.0: add(a=17, b=25)" in ended.stderr

    def test_with_approve_it_answers(self, tmp_path: Path):
        ended = ask(*ADD, "--approve", folder=tmp_path)
        assert (ended.returncode, ended.stdout) == (0, "The answer is 42.\n")

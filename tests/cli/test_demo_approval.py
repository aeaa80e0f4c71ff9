"""Does the call of one process really go on in another?"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.stub_server import StubServer

from fsm_agent.agents import Agent
from fsm_agent.cli.demo.approval import Reach, approved_elsewhere, eraser
from fsm_agent.cli.demo.items import DemoItem, Finding, PartStarted, Remark
from fsm_agent.lifecycle import Limits
from fsm_agent.prompts import Prompts
from fsm_agent.prompts.library import packaged_prompts
from fsm_agent.testing import Script, call

posix = pytest.mark.skipif(os.name == "nt", reason="a shell, and os.kill(pid, 0) that asks, are POSIX")
ERASE = call("erase", path="notes.txt")


def prompt():
    return Prompts("demo", directory=packaged_prompts())("erase")


def shown(*entries: Any, elsewhere: list[str], key: str = "", **options: Any) -> tuple[list[DemoItem], StubServer]:
    """The part: a script answers this process, a server on loopback the second one."""
    with Script(*entries) as script, StubServer(elsewhere) as stub:
        agent = Agent(script, name="demo/eraser", **options)
        given = ("--model", "llamacpp:stub", "--base-url", stub.base_url)
        reach = Reach(options=given, environment={"LLAMA_API_KEY": key} if key else {})
        return list(approved_elsewhere(agent, prompt(), reach)), stub


def texts(items: list[DemoItem], *, is_quoted: bool = False) -> list[str]:
    return [item.text for item in items if isinstance(item, Remark) and item.is_quoted is is_quoted]


def finding(items: list[DemoItem]) -> Finding:
    assert isinstance(items[0], PartStarted)
    assert isinstance(items[-1], Finding)
    return items[-1]


@pytest.fixture(scope="module")
def played() -> tuple[list[DemoItem], StubServer]:
    return shown(ERASE, elsewhere=["It is gone."], key="sk-of-the-demo", limits=Limits(rounds=2))


class TestGood:
    @pytest.mark.system
    def test_the_second_process_goes_on_where_the_first_waits(self, played: tuple[list[DemoItem], StubServer]):
        items, stub = played
        found = finding(items)
        assert (found.output, found.problem, found.rounds) == ("It is gone.", "", 1)
        (ended,) = found.calls
        assert [str(step.to) for step in ended.record.trace] == [
            *("Calling", "ToolInterrupt"),
            *("ToolInterrupt", "Calling", "Completed"),
        ]
        assert (ended.record.turn, ended.record.limits.rounds, found.usage.total_tokens) == (2, 2, 10)
        assert len(stub.requests) == 1
        assert stub.requests[0]["messages"][-1]["content"] == "notes.txt is erased"

    @pytest.mark.system
    def test_the_file_is_there_before_and_gone_after(self, played: tuple[list[DemoItem], StubServer]):
        items, _ = played
        here, asked, kept, denied, there, further, gone = texts(items)
        assert here == f"process {os.getpid()}, this one:"
        assert asked == "to be approved: erase(path='notes.txt')"
        assert kept == "notes.txt is still there, and the call is a run of 2 entries in runs.db"
        assert denied == (
            "a copy of it, denied: ToolInterrupt → Calling (denied),"
            " and the model is told 'The call was not allowed: not today'"
        )
        runs = r"process \d+, which runs: fsm-agent runs"
        assert re.fullmatch(rf"{runs} answer tidy ask:9\.0 --approve --store runs\.db", there)
        assert re.fullmatch(rf"{runs} resume tidy --store runs\.db …", further)
        assert gone == "notes.txt is gone; one call in several processes: 1 of 2 rounds, 2 requests, 10 tokens"

    @pytest.mark.system
    def test_the_key_is_the_second_process_s_alone_and_shown_nowhere(self, played: tuple[list[DemoItem], StubServer]):
        assert finding(played[0]).problem == ""
        assert "sk-of-the-demo" not in repr(played) + repr(Reach(options=(), environment={"K": "sk-of-the-demo"}))
        assert "LLAMA_API_KEY" not in os.environ


def problem_with(monkeypatch: pytest.MonkeyPatch, folder: Path, program: str) -> str:
    """What is wrong with the part, if each other process is this program of a shell."""
    other = folder / "other"
    other.write_text(f"#!/bin/sh\n{program}\n")
    other.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(other))
    items = approved_elsewhere(Agent(Script(ERASE), name="demo/eraser"), prompt(), Reach(options=()))
    return finding(list(items)).problem


class TestBad:
    @pytest.mark.system
    @posix
    def test_a_second_process_that_erases_nothing(self, tmp_path, monkeypatch):
        assert problem_with(monkeypatch, tmp_path, "exit 0") == "notes.txt is still there"

    @pytest.mark.system
    @posix
    @pytest.mark.parametrize("command", ["answer", "resume"])
    def test_a_second_process_that_fails(self, tmp_path, monkeypatch, command):
        fails = f'[ "$4" != {command} ] || {{ echo "it told $4"; exit 7; }}'
        problem = problem_with(monkeypatch, tmp_path, fails)
        assert problem == f"the other process ended with status 7: it told {command}"

    @pytest.mark.system
    @posix
    def test_whoever_stops_watching_ends_the_second_process(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        reach = Reach(options=("--model", "openai-compatible:stub"))
        items = approved_elsewhere(Agent(Script(ERASE), name="eraser"), prompt(), reach)
        started = next(item for item in items if isinstance(item, Remark) and "which runs" in item.text)
        items.close()
        with pytest.raises(ProcessLookupError):
            os.kill(int(started.text.split()[1].strip(",")), 0)
        assert not list(tmp_path.iterdir())


class TestEraser:
    def test_it_erases_in_its_directory_only(self, tmp_path):
        (tmp_path / "in").mkdir()
        for path in ("x", "in/x"):
            (tmp_path / path).touch()
        erase = eraser(tmp_path / "in")
        for path in ("../x", str(tmp_path / "x"), "..", ""):
            with pytest.raises((ValueError, OSError)):
                erase(path)
        assert erase("x") == "x is erased"
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["in", "x"]

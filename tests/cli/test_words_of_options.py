"""Do errors name options, and is everything legible on a narrow terminal?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from support.own_functions import add
from support.stub_server import StubServer
from typer.testing import CliRunner

from fsm_agent import Agent
from fsm_agent.cli import app
from fsm_agent.cli.agents.commands import _approver
from fsm_agent.cli.models import GUESSES
from fsm_agent.cli.render import Approver
from fsm_agent.cli.reporting import error_text
from fsm_agent.cli.terminal import Screen
from fsm_agent.errors import UsageError
from fsm_agent.testing import Script

STUB = ("--model", "openai-compatible:stub")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
ONE_AFTER_THE_OTHER = """
import sys
from contextlib import suppress
from fsm_agent.cli import main
for command in sys.argv[1:]:
    sys.argv[1:] = command.split()
    with suppress(SystemExit):
        main()
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def error_of(*arguments: str) -> str:
    ended = CliRunner().invoke(app, list(arguments), prog_name="fsm-agent")
    assert ended.exit_code in (1, 2), ended.output
    return re.sub(r"[│\s]+", " ", ended.stderr)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ask", "?", "--model", "gpt-5"), "--model: 'gpt-5' names no provider"),
        (("chat", "--model", "openia:x"), "--model: no provider 'openia'"),
        (("ask", "?", "--base-url", "nope", *STUB), "fsm-agent: --base-url 'nope' is no base URL"),
        (("ask", "?", "--function", "nowhere:x", *STUB), "--function: there is no module 'nowhere'"),
        (("ask", "?", "--set", "rounds=-1", *STUB), "for --set: rounds is -1: a whole number"),
        (("ask", "?", "--set", "cost_usd=1", "--base-url", "http://127.0.0.1:1", *STUB), "; leave out cost_usd"),
        (("diagram", "--output", "a.bmp"), "--output is 'a.bmp': one that ends in .mmd"),
        (("diagram", "--output", "no/a.dot"), "--output is 'no/a.dot': 'no' is no directory"),
        (("worker", "--store", "r.db", "--create", "--agents", "nowhere"), "--agents: there is no module 'nowhere'"),
        (("agents", "run", "x.txt", "?"), "does not end in '.toml', '.yaml', '.yml' or '.json'"),
    ],
)
def test_an_error_names_the_option(arguments: tuple[str, ...], says: str):
    said = error_of(*arguments)
    assert says in said
    assert not re.search(r"base_url|timeout_s|limits\.|the document|build_agent|prices=|path is", said)


@pytest.mark.system
def test_a_limit_that_is_used_up_is_named_as_it_is_set():
    with StubServer(["ok"]) as stub:
        said = error_of("ask", "?", "--set", "tokens=2", "--base-url", stub.base_url, *STUB)
    assert "fsm-agent: over budget: --set tokens=2, and 10 tokens were used" in said


def test_a_limit_of_a_configuration_keeps_its_name():
    assert error_text(UsageError("limits.rounds=3 are used up")) == "limits.rounds=3 are used up"


@pytest.mark.system
def test_what_waits_is_told_without_code(here: Path):
    (here / "waiting.py").write_text(
        "from fsm_agent import function\n@function(needs_approval=True)\ndef erase() -> str: ...\n"
    )
    call = {"id": "c1", "type": "function", "function": {"name": "erase", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    with StubServer([message]) as stub:
        given = ["--base-url", stub.base_url, "--function", "waiting:erase"]
        ended = CliRunner().invoke(app, ["ask", "?", *STUB, *given])
    assert ended.exit_code == 3
    waits = "waits in ToolInterrupt for 'ask:1.0' (approval of erase({}))"
    assert ended.stderr.splitlines()[-1].endswith(
        f"{waits}: the call was not kept: ask again with --approve, or with --store runs.db to answer later"
    )


class TestNarrow:
    @pytest.mark.system
    @pytest.mark.parametrize("columns", [40, pytest.param(58, marks=pytest.mark.nightly)])
    def test_help_and_errors(self, columns: int):
        commands = ("--help", "ask --help", "runs answer --help", "demo -x")
        environment = {**ENVIRONMENT, "COLUMNS": str(columns)}  # which is read when the command is loaded
        launched = [sys.executable, "-c", ONE_AFTER_THE_OTHER, *commands]
        ended = subprocess.run(launched, capture_output=True, text=True, env=environment, check=True)
        said = ended.stdout + ended.stderr
        assert said.count("Usage: ") == len(commands), said
        assert "│" not in said
        assert "…" not in said
        assert [line for line in said.splitlines() if len(line) > columns] == []

    def test_nothing_is_coloured_where_nobody_sees_it(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("NO_COLOR", "1")
        assert not Console().color_system
        for arguments in (["providers", "list"], ["models", "list"], ["--help"], ["ask", "--nonsense"]):
            ended = CliRunner().invoke(app, arguments)
            assert "\x1b" not in ended.output


class TestAgentsOfTheSmallModel:
    def approved(self, agent: Agent, capsys: pytest.CaptureFixture[str], *, approve: bool = False) -> tuple[Agent, str]:
        made = replace(agent, **_approver(agent, Screen(), approve))
        return made, " ".join(capsys.readouterr().err.split())

    def test_the_person_at_the_terminal_approves(self, capsys: pytest.CaptureFixture[str], monkeypatch):
        monkeypatch.delenv("FSM_AGENT_LOCAL_MODEL", raising=False)
        made, said = self.approved(Agent("local:", functions=[add]), capsys)
        assert (type(made.approve), said) == (Approver, GUESSES)

    def test_whoever_was_chosen_is_asked(self, capsys: pytest.CaptureFixture[str], monkeypatch):
        monkeypatch.delenv("FSM_AGENT_LOCAL_MODEL", raising=False)

        def nobody(call: object) -> bool:
            return False

        made, said = self.approved(Agent("local:", functions=[add], approve=nobody), capsys)
        assert (made.approve, said) == (nobody, GUESSES)
        made, said = self.approved(made, capsys, approve=True)
        assert made.approve is not None
        assert (made.approve(None), said) == (True, "")  # type: ignore[arg-type]

    def test_others_are_left_as_they_are(self, capsys: pytest.CaptureFixture[str]):
        for agent in (Agent("openai:m", functions=[add]), Agent("local:"), Agent(Script("x"))):
            made, said = self.approved(agent, capsys)
            assert (made.approve, said) == (None, "")

"""Do the commands of agents list, check, run and begin what a person has?"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.stub_server import StubServer
from support.terminal import LIMIT_S, Terminal, screen_of
from typer.testing import CliRunner

from fsm_agent.agents.registry import AGENTS
from fsm_agent.cli import app

PLUGIN = "fsm_agent.testing.pytest_plugin"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    with AGENTS.scoped():
        yield
    for name in {*sys.modules} - before:
        if name.endswith("_agent"):
            del sys.modules[name]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["agents", *arguments], prog_name="fsm-agent", catch_exceptions=False)


@pytest.fixture
def weather(tmp_path) -> Path:
    done = run("new", "weather")
    assert done.exit_code == 0, done.stderr
    return tmp_path / "weather"


@pytest.mark.system
@pytest.mark.parametrize("columns", [40, None])
def test_the_list_breaks_no_name(columns, tmp_path):
    name = "letters_agent"
    code = "from fsm_agent import AgentBase\nclass ExaminerOfLetters(AgentBase[str]):\n    agent_type = 'examiner'\n"
    about = " ".join(["letters"] * 40)
    (tmp_path / f"{name}.py").write_text(f"{code}    expertise = {about!r}\n    description = {about!r}\n")
    if columns is None:
        listed = run("list", name)
        assert re.search(rf"^examiner +{name}:ExaminerOfLetters +{about} *$", listed.stdout, re.MULTILINE)
        return
    with Terminal("agents", "list", name, columns=columns, folder=tmp_path) as terminal:
        terminal.read_until()
        assert terminal.process.wait(LIMIT_S) == 0
    words = screen_of(terminal.seen, columns).split()
    assert f"{name}:ExaminerOfLetters" in words
    assert words.count("letters") >= 40, "no other word is broken either"


@pytest.mark.spec("3.35: a command writes an agent's project")
def test_new_writes_a_project(weather):
    assert sorted(path.relative_to(weather).as_posix() for path in weather.rglob("*") if path.is_file()) == [
        "agent.schema.json",
        "prompts/weather/system.jinja",
        "prompts/weather/task.jinja",
        "test_weather.py",
        "weather.toml",
        "weather_agent.py",
    ]
    schema = json.loads((weather / "agent.schema.json").read_text())
    assert schema["properties"]["agent_configs"]


@pytest.mark.system
@pytest.mark.spec("3.35: its test passes")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["word_smith2", pytest.param("script", marks=pytest.mark.nightly)])
def test_the_test_of_the_project_passes_and_fails_when_it_should(tmp_path, name):
    assert run("new", name, "--folder", "mine", "--model", "anthropic:claude-opus-5").exit_code == 0

    def tested() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # Hypothesis and others take as long as all else
        return subprocess.run(command, cwd=tmp_path / "mine", env=environment, capture_output=True, text=True)

    done = tested()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    config = tmp_path / "mine" / f"{name}.toml"
    config.write_text(config.read_text().replace("rounds = 3", "ronuds = 3"))
    done = tested()
    assert done.returncode == 1
    assert "line 10, limits.ronuds is unknown: did you mean 'rounds'?" in done.stdout


def test_the_next_command_can_be_copied(tmp_path):
    assert "now: cd 'my agents' && pytest" in run("new", "weather", "--folder", "my agents").stderr


def test_new_overwrites_nothing(weather):
    (weather / "weather_agent.py").write_text("mine")
    again = run("new", "weather")
    assert again.exit_code == 1
    assert "is there already: another --folder would be right" in again.stderr.replace("\n", " ")
    assert (weather / "weather_agent.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("Weather",), "'Weather' is no name for an agent"),
        (("class",), "'class' is no name for an agent"),
        (("fsm",), "its module would hide this package"),
        (("../x",), "'../x' is no name for an agent"),
        (("weather", "--model", "opnai:m"), "did you mean 'openai'?"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, arguments, says):
    done = run("new", *arguments)
    assert done.exit_code == 1
    assert says in done.stderr
    assert [*tmp_path.iterdir()] == []


def test_check_says_what_is_right_and_what_is_missing(weather):
    done = run("check", "weather/weather.toml")
    assert (done.exit_code, done.stdout) == (
        0,
        "weather/weather.toml: weather is right, with weather (openai:gpt-5-mini)\n",
    )
    assert "needs a key: set OPENAI_API_KEY" in done.stderr
    assert run("check", "weather/weather.toml", "--available").exit_code == 1


def test_check_reports_each_file(weather):
    good = (weather / "weather.toml").read_text()
    (weather / "one.toml").write_text(good.replace("profile", "profil"))
    (weather / "two.toml").write_text(good.replace("weather/task", "weather/tsak"))
    done = run("check", *[f"weather/{name}.toml" for name in ("one", "weather", "two")])
    assert done.exit_code == 1
    assert "weather.toml: weather is right" in done.stdout
    assert "line 6, profil: 'profil' is unknown: did you mean 'profile'?" not in done.stderr
    assert "profil: 'profil' is unknown: did you mean 'profile'?" in done.stderr
    assert "prompt: no prompt 'weather/tsak' is registered" in done.stderr
    assert "did you mean 'task'?" in done.stderr


def test_list_shows_the_classes_of_modules_and_configurations(weather):
    assert "no agents are registered" in run("list").stderr
    done = run("list", "weather/weather.toml")
    assert done.exit_code == 0, done.stderr
    for word in ("weather_agent:Weather", "Answer questions about texts.", "count words"):
        assert word in done.stdout
    (weather.parent / "more_agent.py").write_text("from weather_agent import Weather\n")
    listed = json.loads(run("list", "more_agent", "--json").stdout)
    assert listed["weather"] == {
        "class": "weather_agent:Weather",
        "description": "Answer questions about texts.",
        "capabilities": ["count words"],
        "agent_group": [],
    }
    assert "there is no module 'nowhere'" in run("list", "nowhere").stderr


ANSWER = json.dumps({"text": "Two.", "confidence": 0.5})


@pytest.mark.system
def test_run_does_a_task(weather, monkeypatch):
    with StubServer([ANSWER]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
        done = run("run", "weather/weather.toml", "How many?", "--model", "openai-chat:m", "--profile", "deterministic")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == {"text": "Two.", "confidence": 0.5}
    assert "Calling → Completed (answered)" in done.stderr


STUCK = """
from fsm_agent import AgentBase, function

@function(needs_approval=True)
def erase(path: str) -> str:
    "Erase a file."
    return "gone"

class Eraser(AgentBase[str]):
    agent_type = "eraser"
    functions = [erase]

class Broken(AgentBase[str]):
    agent_type = "broken"
    agent_group = ("one",)
    def answer(self, task: str) -> str:
        raise ValueError("no letter for sk-abcdefghijklmnopqrstuvwx\\n" + "x " * 5_000)
"""


@pytest.fixture
def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "stuck_agent.py").write_text(STUCK)
    for kind in ("Eraser", "Broken"):
        model = f'agent_type = "stuck_agent:{kind}"\nmodel = "openai-chat:m"\n'
        (tmp_path / f"{kind.lower()}.toml").write_text(model)
    call = {"id": "c1", "type": "function", "function": {"name": "erase", "arguments": '{"path": "x"}'}}
    with StubServer([{"role": "assistant", "content": None, "tool_calls": [call]}]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
        yield


@pytest.mark.system
@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("json_lines", [True, False])
@pytest.mark.usefixtures("stuck")
def test_a_run_that_waits_says_for_what_and_how_to_answer(tmp_path: Path, is_kept: bool, json_lines: bool):
    if is_kept:
        with (tmp_path / "eraser.toml").open("a") as file:
            file.write(f"store = {str(tmp_path / 'runs.db')!r}\nname = 'eraser'\n")
    waiting = run("run", "eraser.toml", "Erase x.", *(["--json"] if json_lines else []))
    assert waiting.exit_code == 3
    assert "waits for approval as ask:1.0: erase(path='x')" in waiting.stderr
    last = waiting.stderr.splitlines()[-1]
    assert last.startswith("fsm-agent: the agent call waits in ToolInterrupt for 'ask:1.0' (approval of erase(")
    command = last.rpartition("answer with ")[2]
    if is_kept:
        answered = CliRunner().invoke(app, shlex.split(command)[1:], prog_name="fsm-agent")
        assert answered.stdout.startswith("posted approved to ask:1.0 of "), answered.stderr
    else:
        assert "the call was not kept: --approve, or a store in the configuration" in last
    if json_lines:
        told = json.loads(waiting.stdout.splitlines()[-1])
        assert (told["type"], told["exit_status"], told["waits_for"]) == ("suspended", 3, ["ask:1.0"])
        assert told["answer_with"] == ({"ask:1.0": command} if is_kept else {})


@pytest.mark.system
@pytest.mark.usefixtures("stuck")
def test_an_answer_that_raises_is_told_in_one_line_with_its_place_and_without_keys():
    failed = run("run", "broken.toml", "?")
    assert failed.exit_code == 1
    *_, last = failed.stderr.splitlines()
    assert last.startswith("fsm-agent: ")
    assert "ValueError: no letter for sk-a*** x x" in last
    assert last.endswith("(stuck_agent.py, line 17, in answer)")
    assert len(last) < 600

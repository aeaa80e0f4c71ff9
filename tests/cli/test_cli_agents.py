"""Do the commands of agents check and run what a person has configured?"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from command_line import KEY, lines_of, ran, refused

from fsm_agent.clients import register_client
from fsm_agent.testing import Script, function_call

MODULE = f"""
from fsm_agent import AgentBase, function

@function(needs_approval=True)
def erase(path: str) -> str:
    "Erase a file."
    return "gone"

class Eraser(AgentBase[str]):
    agent_type = "eraser"
    expertise = "Erase files."
    description = "Erases files."
    functions = [erase]

class Broken(AgentBase[str]):
    agent_type = "broken"
    agent_group = ("one",)
    def answer(self, task: str) -> str:
        raise ValueError("no letter for {KEY}\\n" + "x " * 5_000)

class Bug(AgentBase[str]):
    agent_type = "bug"
    def __init__(self, *args, **kwargs):
        {{}}["x"]
"""


@pytest.fixture(autouse=True)
def _crew(here: Path) -> None:
    (here / "crew.py").write_text(MODULE)
    for kind in ("Eraser", "Broken", "Bug"):
        (here / f"{kind.lower()}.toml").write_text(f'agent_type = "crew:{kind}"\nmodel = "house:m"\n')
    register_client("house", lambda model: Script(function_call("erase", path="x"), "It is gone."))


def test_check_reports_each_file_and_what_is_missing(here: Path):
    (here / "real.toml").write_text('agent_type = "crew:Eraser"\nmodel = "openai:gpt-5-mini"\nname = "real"\n')
    (here / "wrong.toml").write_text('agent_type = "crew:Eraser"\nmodel = "house:m"\nprofil = "fast"\n')
    ended = ran("agents", "check", "wrong.toml", "real.toml", code=1)
    assert "real.toml" in ended.stdout
    assert "wrong.toml" not in ended.stdout
    assert "'profile'" in ended.stderr
    ended = ran("agents", "check", "real.toml")
    assert "OPENAI_API_KEY" in ended.stderr
    assert "OPENAI_API_KEY" in refused("agents", "check", "real.toml", "--available")
    assert "'.toml'" in refused("agents", "run", "x.txt", "?")
    (here / "unknown.toml").write_text('agent_type = "report"\nmodel = "house:m"\n')
    assert "'module:Class'" in refused("agents", "check", "unknown.toml")


def test_run_does_a_task():
    ended = ran("agents", "run", "eraser.toml", "Erase x.", "--approve")
    assert ended.stdout == "It is gone.\n"
    assert "erase(path='x')" in ended.stderr


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_run_that_waits_says_for_what_and_how_to_answer(here: Path, is_kept: bool):
    if is_kept:
        with (here / "eraser.toml").open("a") as file:
            file.write("store = 'runs.db'\nname = 'eraser'\n")
    waiting = ran("agents", "run", "eraser.toml", "Erase x.", "--json", code=3)
    last = lines_of(waiting)[-1]
    (key,) = last["waits_for"]
    assert f"as {key}: erase(path='x')" in waiting.stderr
    assert (last["type"], last["exit_status"]) == ("suspended", 3)
    assert [*last["answer_with"]] == ([key] if is_kept else [])
    for command in last["answer_with"].values():
        ran(*shlex.split(command)[1:])


@pytest.mark.parametrize(("name", "place"), [("broken", "crew.py, line 19, in"), ("bug", "crew.py, line 24, in")])
def test_an_error_of_the_users_code_is_one_line_with_its_place_and_without_keys(name: str, place: str):
    *_, last = ran("agents", "run", f"{name}.toml", "?", code=1).stderr.splitlines()
    assert place in last
    assert "bug of fsm-agent" not in last
    assert KEY not in last
    assert len(last) < 600


def test_a_run_without_a_key_is_not_begun(here: Path):
    text = 'agent_type = "crew:Eraser"\nmodel = "openai:gpt-5-mini"\nname = "real"\nstore = "runs.db"\n'
    (here / "real.toml").write_text(text)
    assert "OPENAI_API_KEY" in refused("agents", "run", "real.toml", "Erase x.")
    assert not (here / "runs.db").exists()

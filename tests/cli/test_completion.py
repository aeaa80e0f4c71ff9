"""Does a shell complete commands, options and the names of things, quickly and silently?"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.stub_server import StubServer
from typer.testing import CliRunner

from fsm_agent.cli import app
from fsm_agent.cli.completion import join_at_colons

RUN = "from fsm_agent.cli import main; main()"
ROOT = Path(__file__).parents[2]
SHOP = """
raise SystemExit("nobody may import this")
import anything
async def refund(order: str) -> str: ...
def _hidden(): ...
HELPER = Agent("openai:gpt-5-mini", name="helper")
TYPED: Agent[int] = fsm_agent.Agent[int]("openai:gpt-5-mini")
letters = Flow("letters", int, start=one, rows=[])
NUMBER = 3
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FSM_AGENT_STORE", raising=False)
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "broken.py").write_text("def (")
    return tmp_path


def complete(line: str, shell: str = "zsh", **environment: str) -> str:
    """What the command prints for the shell's script; ``line`` is what was typed."""
    variables = {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"} | environment
    variables |= {"_FSM_AGENT_COMPLETE": f"complete_{shell}"}
    ended = CliRunner().invoke(app, prog_name="fsm-agent", env=variables)
    assert (ended.exit_code, ended.stderr) == (0, ""), ended.output
    return ended.stdout


def words(line: str) -> list[str]:
    return [found.partition("\t")[0] for found in complete(line, "fish").splitlines() if found]


class TestNames:
    def test_commands_and_those_behind_them(self):
        assert words("fsm-agent a") == ["ask", "agents"]
        assert words("fsm-agent runs d") == ["diagram", "diff", "delete"]
        assert "--prompt" in words("fsm-agent ask --p")

    def test_providers_and_their_models(self, monkeypatch: pytest.MonkeyPatch):
        assert words("fsm-agent ask --model open") == ["openai:", "openai-chat:", "openai-compatible:", "openrouter:"]
        assert words("fsm-agent ask -m openai:gpt-5-m") == ["openai:gpt-5-mini"]
        assert "local:hf:Qwen/Qwen3-4B-GGUF:Q4_K_M" in words("fsm-agent chat --model local:hf:Qw")
        assert words("fsm-agent ask --model nobody:x") == []

    def test_functions_agents_and_flows_of_modules_that_are_not_imported(self):
        assert words("fsm-agent ask --function sh") == ["shop:refund"]
        assert words("fsm-agent worker --agents shop:") == ["shop:HELPER", "shop:TYPED"]
        assert words("fsm-agent flows check ") == ["shop:letters"]
        assert words("fsm-agent ask --function broken:") == []
        assert words("fsm-agent agents check x.toml --module s") == ["shop"]

    @pytest.mark.system
    def test_runs_their_agents_and_questions(self, monkeypatch: pytest.MonkeyPatch):
        given = ("--model", "openai-compatible:stub", "--store", "runs.db", "--run-id")
        with StubServer(["Hi.", "Hi."]) as stub:
            for name in ("tidy", "told"):
                CliRunner().invoke(app, ["ask", "?", *given, name, "--base-url", stub.base_url])
        assert words("fsm-agent runs show --store runs.db t") == ["told", "tidy"]
        assert words("fsm-agent runs show t") == []
        monkeypatch.setenv("FSM_AGENT_STORE", "runs.db")
        assert words("fsm-agent runs diff tidy to") == ["told"]
        assert words("fsm-agent runs list --agent ") == ["ask"]

    def test_what_cannot_be_looked_up_is_none(self, here: Path):
        (here / "runs.db").write_text("no store")
        assert words("fsm-agent runs show --store runs.db ") == []
        assert words("fsm-agent runs show --store no.db ") == []
        assert not (here / "no.db").exists()

    @pytest.mark.system
    def test_a_name_with_control_characters_is_none(self, here: Path):
        given = ("--model", "openai-compatible:stub", "--store", "runs.db", "--run-id", "a\x1b[2J")
        with StubServer(["Hi."]) as stub:
            CliRunner().invoke(app, ["ask", "?", *given, "--base-url", stub.base_url])
        assert words("fsm-agent runs show --store runs.db a") == []


class TestShells:
    def test_zsh_and_fish(self):
        assert complete("fsm-agent ask --model anth") == "_arguments '*: :((\"anthropic\\\\:\"))'\n"
        assert complete("fsm-agent runs pru", "fish").startswith("prune\tDelete runs that have ended")

    @pytest.mark.system
    @pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
    def test_bash_which_splits_at_colons(self, here: Path):
        typed = ["fsm-agent", "ask", "--model", "local", ":", "hf", ":", "Qwen/Qwen3"]
        (here / "fsm-agent").write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{RUN}' \"$@\"\n")
        (here / "fsm-agent").chmod(0o755)
        (here / "try.sh").write_text(
            f'eval "$(_FSM_AGENT_COMPLETE=source_bash fsm-agent)"\nCOMP_WORDS=({" ".join(map(repr, typed))})\n'
            f"COMP_CWORD={len(typed) - 1}\n_fsm_agent_completion fsm-agent\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
        )
        path = {**os.environ, "PATH": f"{here}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(
            ["bash", "--norc", "try.sh"], capture_output=True, text=True, env=path, check=False, timeout=60
        )
        assert (ended.stdout.split(), ended.stderr) == (["Qwen/Qwen3-4B-GGUF:Q4_K_M"], "")


@pytest.mark.parametrize(
    ("words", "place", "after"),
    [
        ("f ask --model openai : gpt", 5, ("f ask --model gpt", 3, "openai:")),
        ("f ask --model openai :", 4, ("f ask --model", 3, "openai:")),
        ("f ask --model local : ", 5, ("f ask --model local:", 4, None)),
        ("f ask --model local : --st", 5, ("f ask --model local: --st", 4, None)),
        ("f ask 'a b' --mo", 3, ("f ask 'a b' --mo", 3, None)),
        ("f ask 'a b --mo", 3, ("f ask 'a b --mo", 3, None)),  # a quote is open
    ],
)
def test_words_are_joined_at_colons(words: str, place: int, after: Any):
    environment = {"COMP_WORDS": words, "COMP_CWORD": str(place)}
    join_at_colons(environment)
    prefix = environment.get("_FSM_AGENT_COMPLETE_PREFIX")
    assert (environment["COMP_WORDS"], int(environment["COMP_CWORD"]), prefix) == after

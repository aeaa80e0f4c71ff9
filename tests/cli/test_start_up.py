"""Is a command loaded when it is used, and not before?"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.stub_server import StubServer
from typer.testing import CliRunner

from fsm_agent.cli import app
from fsm_agent.cli.commands import COMMANDS, load_command

LOADED = """
import json, sys
from fsm_agent.cli import main
sys.argv = ["fsm-agent", *sys.argv[1:]]
try:
    main()
finally:
    print(json.dumps([name for name in sys.modules if name.partition(".")[0] not in sys.stdlib_module_names]))
"""
OTHERS = ("store", "mcp", "flows", "diagrams", "testing", "agents.worker", "agents.registry", "cli.runs", "cli.demo")
OTHERS += ("cli.prompts", "cli.agents", "cli.chat", "cli.flows", "cli.providers", "cli.local_models")
CODECS = {  # and the module of each
    "openai-chat": "fsm_agent.providers.openai.chat",
    "openai": "fsm_agent.providers.openai.responses",
    "anthropic": "fsm_agent.providers.anthropic.messages",
    "google": "fsm_agent.providers.gemini.generate_content",
}


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a command has loaded at its end, the standard library's left out."""
    ended = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return set(json.loads(ended.stdout.splitlines()[-1]))


@pytest.mark.system
def test_the_version_loads_typer_and_the_table():
    ours = {name for name in loaded_by("--version") if name.startswith("fsm_agent")}
    of_names = {"fsm_agent._internal", "fsm_agent._internal.exports"}  # what is public, and where
    assert ours == {"fsm_agent", "fsm_agent.cli", "fsm_agent.cli.commands", *of_names}


@pytest.mark.system
def test_ask_loads_what_it_uses(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with StubServer(["Hello."]) as stub:  # of a provider that has another wire, too
        loaded = loaded_by("ask", "Hi?", "--model", "openai-chat:stub", "--base-url", stub.base_url)
    assert "fsm_agent.agents.agent" in loaded
    assert loaded & {*CODECS.values()} == {CODECS["openai-chat"]}
    assert {name for name in loaded if name.startswith(tuple(f"fsm_agent.{other}" for other in OTHERS))} == set()


@pytest.mark.system
def test_a_codec_is_loaded_when_it_is_used():
    code = """
import json, sys
from fsm_agent.providers.catalog import PROVIDERS
codecs = json.loads(sys.argv[1])
def loaded():
    return [name for name in codecs if codecs[name] in sys.modules]
print(loaded())
for name in codecs:
    PROVIDERS[name].codec.path("m", stream=False)
    print(loaded())
"""
    ended = subprocess.run([sys.executable, "-c", code, json.dumps(CODECS)], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [str([*CODECS][:count]) for count in range(5)]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_does(name: str):
    command = load_command(name)
    assert command.name == name
    assert " ".join(command.help.split()) == COMMANDS[name].help


def test_a_command_that_is_unknown_is_guessed():
    ended = CliRunner().invoke(app, ["aks"])
    assert (ended.exit_code, "Did you mean" in ended.stderr, "'ask'" in ended.stderr) == (2, True, True)

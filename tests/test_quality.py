"""The checkers are content, and importing loads little."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).parent.parent
CODE = ["fsm_agent", "tests", "examples", "docs", "deploy"]


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", *CODE], ["ruff", "format", "--check", *CODE]],
    ids=["ruff check", "ruff format"],
)
def test_the_checkers_are_content(command):
    """Of mypy, typing/test_typing.py."""
    pytest.importorskip(command[0], reason=f"{command[0]} comes with the [dev] extra")
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


AGENT = "from fsm_agent import Agent, function; from fsm_agent.clients.http_client import HttpClient"
HEAVY = {  # each is loaded by what needs it first
    *("pydantic", "pydantic_core", "httpx", "httpcore", "h11", "anyio", "jinja2", "json_repair", "tenacity"),
    *("docstring_parser", "graphviz", "rich", "typer", "mcp", "hashlib", "email", "transitions", "logging"),
    *("asyncio", "ssl", "socket", "subprocess", "random", "urllib", "ipaddress", "pathlib", "difflib"),
}
FIRST_USE = """
from fsm_agent import Dialog, Message, ProviderError
from fsm_agent.lifecycle import Request
from fsm_agent.lifecycle.effects import CallModel
from fsm_agent.runtime.model_request import model_failed
from fsm_agent.runtime.world import World

@function
def add(a: int, b: int) -> int:
    "Add two numbers.\\n\\nArgs:\\n    a: The first."
    return a + b

assert add.parameters["properties"]["a"]["description"] == "The first."
request = Request(messages=[Message.of("user", "Hello")])
with HttpClient("openai-chat", "m", base_url="http://127.0.0.1:9", api_key="none") as client:
    try:
        client.complete(request)
    except ProviderError as error:
        assert model_failed(CallModel("", request, 1), error, World.of(client)).delay_s > 0
from fsm_agent.testing import Script, call
agent = Agent(Script(call("add", a=1, b=2), "the sum: {'sum': 3,}"), functions=[add], output=dict[str, int])
result = agent.call("1 + 2?")
assert result.output == {"sum": 3}
dialog = Dialog(result.dialog.messages)
assert Dialog.from_json(dialog.to_json()) == dialog
print("used")
"""
FLOOR = "import sys; sys.modules['click'] = None; import asyncio, json, httpx"  # without the command line of httpx


def run(code: str) -> str:
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment).stdout


def test_what_is_heavy_is_not_loaded_before_it_is_used():
    listed = "import sys; print(*sys.modules)"
    modules = set(run(f"{AGENT}; {listed}").split()) - set(run(listed).split())
    loaded = {name.partition(".")[0] for name in modules}
    assert "msgspec" in loaded
    assert not loaded & HEAVY
    assert "fsm_agent.providers.provider" in modules
    assert "fsm_agent.providers.catalog" not in modules


def test_what_is_not_loaded_is_there_when_it_is_used():
    assert run(f"{AGENT}\n{FIRST_USE}").split() == ["used"]


@pytest.mark.nightly
def test_importing_is_cheap():
    """Ratio of the least of several runs each, by turns; more of them while the machine is busy."""

    def cost_s(statement: str) -> float:
        return float(run(f"import time; t = time.process_time(); {statement}; print(time.process_time() - t)"))

    runs: list[tuple[float, ...]] = []
    for _ in range(20):
        runs.append(tuple(map(cost_s, ("import fsm_agent", AGENT, FLOOR))))
        package, agent, floor = map(min, zip(*runs, strict=True))
        is_cheap = package < 0.3 * floor and agent < 1.2 * floor  # 0.12 and 0.85 to 1.0 by the machine's mood
        if is_cheap and len(runs) >= 5:
            break
    assert is_cheap, runs

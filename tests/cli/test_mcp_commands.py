"""Does ``fsm-agent mcp serve`` serve what a module has?"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from typer.testing import CliRunner

from fsm_agent.cli import app
from fsm_agent.mcp import ToolServer

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import ElicitResult

SHOP = '''
from fsm_agent import Agent, function
from fsm_agent.mcp import serve
from fsm_agent.testing import Script

print("a module may print")

@function
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@function(needs_approval=True)
def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"

desk = Agent(Script("Good day."), name="desk")
all = [add, refund, desk]
sums = serve("sums", [add])
number = 3
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop_tools.py").write_text(SHOP)
    return tmp_path


def ran(*words: str) -> Any:
    return CliRunner().invoke(app, ["mcp", "serve", *words])


def test_what_cannot_be_served_is_refused(folder, monkeypatch):
    monkeypatch.chdir(folder)
    result = ran("shop_tools:refund")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the tool 'refund' needs a store" in " ".join(result.stderr.split())
    for words, problem in [
        (["shop_tools:nothing"], "nothing"),
        (["shop_tools:number"], "3"),
        (["shop_tools:sums", "--name", "x"], "is a server, which has"),
    ]:
        result = ran(*words)
        assert result.exit_code in (1, 2)
        assert problem in " ".join(result.stderr.split())


@pytest.mark.system
@pytest.mark.parametrize("named", ["all", pytest.param("sums", marks=pytest.mark.nightly)])
def test_over_stdio(folder, named):
    command = ["-m", "fsm_agent", "mcp", "serve", f"shop_tools:{named}"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    if named == "all":
        command += ["--store", "runs.db"]

    async def approve(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"approve": True})

    async def main() -> list[str]:
        transport = stdio_client(StdioServerParameters(command=sys.executable, args=command, env=env, cwd=folder))
        async with Client(transport, elicitation_callback=approve) as client:
            assert client.server_info.name == {"all": "shop_tools", "sums": "sums"}[named]
            texts = [(await client.call_tool("add", {"a": 1, "b": 2})).content[0].text]
            if named == "all":
                texts += [(await client.call_tool("refund", {"order": "A"})).content[0].text]
                texts += [(await client.call_tool("desk", {"task": "Hello"})).content[0].text]
        return texts

    assert asyncio.run(main()) == (["3", "refunded A", "Good day."] if named == "all" else ["3"])


def test_the_kind_and_the_port_are_those_that_are_asked_for(folder, monkeypatch):
    monkeypatch.chdir(folder)
    served = []

    def serve_http(server: ToolServer, *, port: int, ready: Callable[[str], None]) -> None:
        served.append((server.name, port))
        ready("http://here")

    monkeypatch.setattr(ToolServer, "run_http", serve_http)
    monkeypatch.setattr(ToolServer, "run_stdio", lambda server: served.append((server.name, None)))
    assert ran("shop_tools:add", "--http", "--port", "7").stderr.endswith("shop_tools: http://here\n")
    assert ran("shop_tools:sums").exit_code == 0
    assert served == [("shop_tools", 7), ("sums", None)]


@pytest.mark.nightly
def test_over_http(folder):
    command = [sys.executable, "-m", "fsm_agent", "mcp", "serve", "shop_tools:add", "--http", "--port", "0"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}

    async def main(url: str) -> str:
        async with Client(url) as client:
            return str((await client.call_tool("add", {"a": 1, "b": 2})).content[0].text)

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder, env=env) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline(), process.stderr.readline()]
        assert lines[0] == "a module may print\n"
        name, _, url = lines[1].strip().partition(": ")
        try:
            assert (name, asyncio.run(main(url))) == ("shop_tools", "3")
        finally:
            process.terminate()
        assert process.wait(timeout=30) in (0, 143, -15)

"""Does a page show the rest after its server was killed in the middle of an answer?"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.paths import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]
MODULE = """
import time
from pathlib import Path

from fsm_agent import Agent, Runs, function
from fsm_agent.testing import Pieces, Script, call

@function
def count() -> str:
    "Count."
    Path("began").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    return "counted"

def reply(request):
    return Pieces("It is ", "counted.") if request.messages[-1].role == "tool" else call("count")

agent = Agent(Script(*[reply] * 100), name="clerk", functions=[count], store=Runs("runs.db", lease_s=1.0))
two = [agent, agent.changed(name="other")]
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def server(folder: Path, port: int, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "fsm_agent", "serve", "clerks:agent", "--port", str(port), *arguments]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    with (
        (folder / "server.log").open("ab") as log,
        subprocess.Popen(command, cwd=folder, env=env, stderr=log) as running,
    ):
        try:
            while running.poll() is None:
                try:
                    httpx.get(f"http://127.0.0.1:{port}/", timeout=5)
                    break
                except httpx.TransportError:
                    time.sleep(0.05)
            assert running.poll() is None, (folder / "server.log").read_text()
            yield running
        finally:
            running.kill()


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.startswith("data: "):
            yield json.loads(line[6:])


def test_the_rest_is_shown_after_a_kill(tmp_path: Path) -> None:
    (tmp_path / "clerks.py").write_text(MODULE)
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    body = {"threadId": "c1", "runId": "r1", "messages": [{"id": "1", "role": "user", "content": "Count."}]}
    with server(tmp_path, port) as first:
        seen = []
        with pytest.raises(httpx.TransportError), httpx.stream("POST", f"{base}/agui", json=body, timeout=60) as answer:  # noqa: PT012
            for event in events(answer.iter_lines()):
                seen.append(event["type"])
                if event["type"] == "TOOL_CALL_END":
                    while not (tmp_path / "began").exists():
                        time.sleep(0.01)
                    first.send_signal(signal.SIGKILL)
        assert "RUN_FINISHED" not in seen
    with server(tmp_path, port):
        (tmp_path / "go").touch()
        with httpx.stream("GET", f"{base}/conversations/c1", timeout=60) as answer:
            shown = [*events(answer.iter_lines())]
    types = [event["type"] for event in shown]
    assert (types.count("TOOL_CALL_START"), types.count("TOOL_CALL_RESULT"), types[-1]) == (1, 1, "RUN_FINISHED")
    assert "".join([event["delta"] for event in shown if event["type"] == "TEXT_MESSAGE_CONTENT"]) == "It is counted."


def test_a_server_that_ends_gives_its_runs_back(tmp_path: Path) -> None:
    (tmp_path / "clerks.py").write_text(MODULE)
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    body = {"threadId": "c1", "runId": "r1", "messages": [{"id": "1", "role": "user", "content": "Count."}]}
    with server(tmp_path, port) as first:
        with httpx.stream("POST", f"{base}/agui", json=body, timeout=60) as answer:
            next(event for event in events(answer.iter_lines()) if event["type"] == "TOOL_CALL_END")
        first.send_signal(signal.SIGINT)
        (tmp_path / "go").touch()
        first.wait(30)
    with server(tmp_path, port), httpx.stream("GET", f"{base}/conversations/c1", timeout=60) as answer:
        assert [*events(answer.iter_lines())][-1]["type"] == "RUN_FINISHED"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["clerks:agent", "--host", "0.0.0.0"], "only with --user"),
        (["clerks:two"], "module:name is right"),
        (["clerks:nothing"], "nothing"),
    ],
)
def test_a_wrong_command_line_is_named(arguments: list[str], told: str, tmp_path: Path) -> None:
    (tmp_path / "clerks.py").write_text(MODULE)
    command = [sys.executable, "-m", "fsm_agent", "serve", *arguments]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "COLUMNS": "200"}
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert told in " ".join(ended.stderr.replace("│", " ").split())

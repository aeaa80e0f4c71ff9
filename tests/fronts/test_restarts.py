"""Does a page show the rest after its server was killed in the middle of an answer?"""

from __future__ import annotations

import json
import os
import re
import signal
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
from support.ports import free_port

from fsm_agent.fronts.door import derived

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(180)]
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


TOKEN = "A-token-which-is-known-to-tests_0123456789"
PROGRAM = {"authorization": f"Bearer {TOKEN}"}


def address(port: int) -> str:
    return f"http://127.0.0.1:{port}/{derived(TOKEN, 'path')[:12]}"


@contextmanager
def server(folder: Path, port: int, token: str = TOKEN) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "fsm_agent", "serve", "clerks:agent", "--port", str(port)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "FSM_AGENT_TOKEN": token}
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
    base = address(port)
    body = {"threadId": "c1", "runId": "r1", "messages": [{"id": "1", "role": "user", "content": "Count."}]}
    with server(tmp_path, port) as first:
        seen = []
        with (  # noqa: PT012
            pytest.raises(httpx.TransportError),
            httpx.stream("POST", f"{base}/agui", json=body, headers=PROGRAM, timeout=60) as answer,
        ):
            for event in events(answer.iter_lines()):
                seen.append(event["type"])
                if event["type"] == "TOOL_CALL_END":
                    while not (tmp_path / "began").exists():
                        time.sleep(0.01)
                    first.send_signal(signal.SIGKILL)
        assert "RUN_FINISHED" not in seen
    with server(tmp_path, port):
        (tmp_path / "go").touch()
        with httpx.stream("GET", f"{base}/conversations/c1", headers=PROGRAM, timeout=60) as answer:
            shown = [*events(answer.iter_lines())]
    types = [event["type"] for event in shown]
    assert (types.count("TOOL_CALL_START"), types.count("TOOL_CALL_RESULT"), types[-1]) == (1, 1, "RUN_FINISHED")
    assert "".join([event["delta"] for event in shown if event["type"] == "TEXT_MESSAGE_CONTENT"]) == "It is counted."


def test_a_server_that_ends_gives_its_runs_back(tmp_path: Path) -> None:
    (tmp_path / "clerks.py").write_text(MODULE)
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    body = {"threadId": "c1", "runId": "r1", "messages": [{"id": "1", "role": "user", "content": "Count."}]}
    with server(tmp_path, port, token="") as first:
        with httpx.stream("POST", f"{base}/agui", json=body, timeout=60) as answer:
            next(event for event in events(answer.iter_lines()) if event["type"] == "TOOL_CALL_END")
        first.send_signal(signal.SIGINT)
        (tmp_path / "go").touch()
        first.wait(30)
    with server(tmp_path, port, token=""), httpx.stream("GET", f"{base}/conversations/c1", timeout=60) as answer:
        assert [*events(answer.iter_lines())][-1]["type"] == "RUN_FINISHED"


def test_with_a_token_other_users_of_the_machine_do_not_get_in(tmp_path: Path) -> None:
    (tmp_path / "clerks.py").write_text(MODULE)
    port = free_port()
    base, home = address(port), f"http://127.0.0.1:{port}"
    body = {"threadId": "c1", "runId": "r1", "messages": [{"id": "1", "role": "user", "content": "Count."}]}
    with server(tmp_path, port), httpx.Client(timeout=60) as stranger:
        for url in (home, f"{home}/conversations", f"{base}/", f"{base}/conversations", f"{base}/?token=x"):
            for headers in ({}, {"authorization": f"Bearer {TOKEN}x"}, {"authorization": TOKEN}):
                refused = stranger.get(url, headers=headers)
                assert refused.status_code == 403
                assert "fsm-agent serve" in refused.text
        assert stranger.post(f"{base}/agui", json=body).status_code == 403
        assert not stranger.cookies
        with httpx.Client(timeout=60, follow_redirects=True) as user:
            page = user.get(f"{base}/?token={TOKEN}")
            assert page.status_code == 200
            assert "token" not in str(page.url)
            assert page.url.path == f"/{derived(TOKEN, 'path')[:12]}/"
            assert user.get(f"{base}/static/chat.js").status_code == 200
            assert user.get(f"{base}/conversations").json() == []
            assert user.get(f"{base}/", headers={"host": "evil.example"}).status_code == 421
        assert httpx.get(f"{base}/conversations", headers=PROGRAM, timeout=60).json() == []


def test_the_address_is_printed_with_a_new_token_each_time(tmp_path: Path) -> None:
    (tmp_path / "clerks.py").write_text(MODULE)
    command = [sys.executable, "-m", "fsm_agent", "serve", "clerks:agent", "--port", str(free_port()), "--token"]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    found = set()
    for _ in range(2):
        with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            found.add(running.stdout.readline().strip())
            running.kill()
    assert len(found) == 2
    assert all(re.fullmatch(r"http://127\.0\.0\.1:\d+/[0-9a-f]{12}/\?token=[\w-]{43}", url) for url in found)


@pytest.mark.parametrize("token", ["short", "a" * 19, "a" * 20 + "&b=c"])
def test_a_token_that_is_none_is_named_and_not_shown(token: str, tmp_path: Path) -> None:
    (tmp_path / "clerks.py").write_text(MODULE)
    command = [sys.executable, "-m", "fsm_agent", "serve", "clerks:agent", "--port", str(free_port())]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "FSM_AGENT_TOKEN": token}
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "FSM_AGENT_TOKEN is no token" in " ".join(ended.stderr.split())
    assert "a" * 19 not in ended.stderr


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

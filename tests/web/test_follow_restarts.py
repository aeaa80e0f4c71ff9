"""Does a page show the rest after its server was killed in the middle of an answer, and only to its user?"""

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

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]
MODULE = """
import time
from pathlib import Path

from fsm_agent import Agent, function
from fsm_agent.store import Runs
from fsm_agent.testing import Pieces, Script, function_call

@function
def count() -> str:
    "Count."
    Path("began").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    return "counted"

def reply(request):
    return Pieces("It is ", "counted.") if request.messages[-1].role == "tool" else function_call("count")

agent = Agent(Script(*[reply] * 100), name="clerk", functions=[count], store=Runs("runs.db", lease_s=1.0))
"""
TOKEN = "A-token-which-is-known-to-tests_0123456789"
PROGRAM = {"authorization": f"Bearer {TOKEN}"}
BODY = {"threadId": "c1", "runId": "r1", "messages": [{"id": "1", "role": "user", "content": "Count."}]}


@contextmanager
def server(folder: Path, port: int, *words: str, token: str = TOKEN) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that answers, and the address that it prints, without its query."""
    (folder / "clerks.py").write_text(MODULE)
    command = [sys.executable, "-m", "fsm_agent", "serve", "clerks:agent", "--port", str(port), *words]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "FSM_AGENT_TOKEN": token}
    with (
        (folder / "server.log").open("ab") as log,
        subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=log, text=True) as running,
    ):
        try:
            assert running.stdout is not None
            printed = running.stdout.readline().strip()
            while running.poll() is None:
                try:
                    httpx.get(f"http://127.0.0.1:{port}/", timeout=5)
                    break
                except httpx.TransportError:
                    time.sleep(0.05)
            assert running.poll() is None, (folder / "server.log").read_text()
            yield running, printed
        finally:
            running.kill()


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.startswith("data: "):
            yield json.loads(line[6:])


def test_the_rest_is_shown_after_a_kill(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path, port) as (first, printed):
        base, seen = printed.partition("/?")[0], []
        with (  # noqa: PT012
            pytest.raises(httpx.TransportError),
            httpx.stream("POST", f"{base}/agui", json=BODY, headers=PROGRAM, timeout=60) as answer,
        ):
            for event in events(answer.iter_lines()):
                seen.append(event["type"])
                if event["type"] == "TOOL_CALL_END":
                    while not (tmp_path / "began").exists():
                        time.sleep(0.01)
                    first.send_signal(signal.SIGKILL)
        assert "RUN_FINISHED" not in seen
    with server(tmp_path, port) as (_, printed):
        assert printed.partition("/?")[0] == base, "open pages stay open"
        (tmp_path / "go").touch()
        with httpx.stream("GET", f"{base}/conversations/c1", headers=PROGRAM, timeout=60) as answer:
            shown = [*events(answer.iter_lines())]
    types = [event["type"] for event in shown]
    assert (types.count("TOOL_CALL_START"), types.count("TOOL_CALL_RESULT"), types[-1]) == (1, 1, "RUN_FINISHED")
    assert "".join([event["delta"] for event in shown if event["type"] == "TEXT_MESSAGE_CONTENT"]) == "It is counted."


def test_with_a_token_other_users_of_the_machine_do_not_get_in(tmp_path: Path) -> None:
    port, found = free_port(), set()
    home = f"http://127.0.0.1:{port}"
    for _ in range(2):
        with server(tmp_path, port, "--token", token="") as (_, printed), httpx.Client(timeout=60) as stranger:
            found.add(printed)
            assert re.fullmatch(rf"{home}/[0-9a-f]{{12}}/\?token=[\w-]{{43}}", printed)
            base, _, token = printed.partition("/?token=")
            for url in (home, f"{home}/conversations", f"{base}/", f"{base}/conversations", f"{base}/?token=x"):
                for headers in ({}, {"authorization": f"Bearer {token}x"}, {"authorization": token}):
                    assert stranger.get(url, headers=headers).status_code == 403
            assert stranger.post(f"{base}/agui", json=BODY).status_code == 403
            assert not stranger.cookies
            with httpx.Client(timeout=60, follow_redirects=True) as user:
                page = user.get(printed)
                assert page.status_code == 200
                assert "token" not in str(page.url)
                assert user.get(f"{base}/static/chat.js").status_code == 200
                assert user.get(f"{base}/conversations").json() == []
                assert user.get(f"{base}/", headers={"host": "evil.example"}).status_code == 421
            program = {"authorization": f"Bearer {token}"}
            assert httpx.get(f"{base}/conversations", headers=program, timeout=60).json() == []
    assert len(found) == 2, "each time a new token"

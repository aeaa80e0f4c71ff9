"""Does ``fsm-agent inspect`` serve a store, and end plainly?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from fsm_agent import Agent, Runs
from fsm_agent.cli import app
from fsm_agent.testing import Script

LIMIT_S = 60
BROWSER = """
import sys
from urllib.request import HTTPCookieProcessor, build_opener
page = build_opener(HTTPCookieProcessor()).open(sys.argv[1], timeout=60).read()
open(__file__ + ".html", "wb").write(page)
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    with Agent(Script("Hi."), name="host", store=path) as agent:
        agent.call("Hello", run_id="r")
    return path


def kept(store: Path) -> tuple[Any, list[str]]:
    with closing(Runs(store, read_only=True)) as runs:
        return runs.store.get("r"), list(runs.export("r"))


def begin(*words: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fsm_agent", "inspect", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=cwd, env={**os.environ, **environment}, **pipes)


def end(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert "Traceback" not in errors
    assert "ERROR" not in errors
    assert process.returncode == 0


@pytest.mark.system
def test_it_serves_with_the_code_of_agents_until_it_is_told_to_end(store, tmp_path):
    (tmp_path / "hosts.py").write_text(
        "from fsm_agent import Agent\nfrom fsm_agent.testing import Script\n"
        "host = Agent(Script(), name='host')\nprint('loaded')\n"
    )
    process = begin("--no-browser", "--agents", "hosts", cwd=tmp_path, FSM_AGENT_STORE=str(store))
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()  # what a module prints is not on stdout
        with httpx.Client(follow_redirects=True, timeout=LIMIT_S) as client:
            page = client.get(url)
            assert page.status_code == 200
            assert "token" not in str(page.url)
            assert "Hello" in page.text
            assert client.post(f"{page.url}do/cancel").status_code == 403
            assert "waits for" in client.get(f"{page.url}moment?id=r&n=1").text
        end(process, signal.SIGTERM)
    finally:
        process.kill()
        process.wait()


@pytest.mark.system
def test_a_browser_in_the_terminal_is_served_and_read_only_writes_nothing(store, tmp_path):
    """The browser runs until its user leaves it, and so does `webbrowser.open`."""
    before = kept(store)
    browser, shown = tmp_path / "browser", tmp_path / "browser.html"
    browser.write_text(f"#!{sys.executable} -IS\n{BROWSER}")
    browser.chmod(0o700)
    process = begin(str(store), "--read-only", cwd=tmp_path, BROWSER=str(browser))
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with httpx.Client(follow_redirects=True, timeout=LIMIT_S) as client:
            page = client.get(url)
            assert "read only" in page.text
            base = str(page.url)
            assert client.get(f"{base}run?id=r").status_code == 200
            origin = base.rpartition("/")[0].rpartition("/")[0]
            assert client.post(f"{base}do/delete", data={"id": "r"}, headers={"origin": origin}).status_code == 403
        ends_s = time.monotonic() + LIMIT_S
        while not shown.exists() or "</html>" not in shown.read_text():
            assert time.monotonic() < ends_s
            time.sleep(0.02)
        end(process, signal.SIGINT)
    finally:
        process.kill()
        process.wait()
    assert kept(store) == before


def failure(*words: str) -> str:
    ended = CliRunner().invoke(app, ["inspect", *words, "--no-browser"], prog_name="fsm-agent", catch_exceptions=False)
    assert ended.exit_code == 1, ended.output
    assert ended.stderr.count("\n") == 1
    return str(ended.stderr)


def test_what_is_wrong_is_one_line(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "there is no store at 'nothing.db'" in failure("nothing.db")
    assert "no_such_module" in failure(str(store), "--agents", "no_such_module")


def test_a_missing_extra_is_one_line(store, monkeypatch):
    monkeypatch.delitem(sys.modules, "fsm_agent.inspector.serving", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert failure(str(store)).endswith("the inspector needs uvicorn: pip install 'fsm-agent[inspect]'\n")

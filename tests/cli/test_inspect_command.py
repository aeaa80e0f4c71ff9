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

from fsm_agent import Agent, Runs
from fsm_agent.testing import Script

LIMIT_S = 60


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    with Agent(Script("Hi."), name="host", store=path) as agent:
        agent.call("Hello", run_id="r")
    return path


def kept(store: Path) -> tuple[Any, list[str]]:
    with closing(Runs(store, read_only=True)) as runs:
        return runs.store.get("r"), list(runs.export("r"))


def begin(*words: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fsm_agent", "inspect", *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


def failure(*words: str, cwd: Path | None = None) -> str:
    command = [sys.executable, "-m", "fsm_agent", "inspect", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, cwd=cwd, check=False)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(store, number):
    process = begin("--no-browser", FSM_AGENT_STORE=str(store))
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with httpx.Client(follow_redirects=True, timeout=LIMIT_S) as client:
            page = client.get(url)
            assert page.status_code == 200
            assert "token" not in str(page.url)
            assert "Hello" in page.text
            assert client.post(str(page.url) + "do/cancel").status_code == 403
        process.send_signal(number)
        _, errors = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in errors
    assert "ERROR" not in errors
    assert process.returncode == 0


def test_a_browser_in_the_terminal_is_served(store, tmp_path):
    """It runs until its user leaves it, and so does `webbrowser.open`."""
    browser, page = tmp_path / "browser", tmp_path / "page.html"
    got = f"httpx.get(sys.argv[1], follow_redirects=True, timeout={LIMIT_S})"
    browser.write_text(f"#!{sys.executable}\nimport httpx, sys\nopen({str(page)!r}, 'w').write({got}.text)\n")
    browser.chmod(0o700)
    process = begin(str(store), BROWSER=str(browser))
    try:
        ends_s = time.monotonic() + LIMIT_S
        while not page.exists() or "</html>" not in page.read_text():
            assert time.monotonic() < ends_s
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)


def test_read_only_writes_nothing(store):
    before = kept(store)
    process = begin(str(store), "--no-browser", "--read-only")
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
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
    assert kept(store) == before


def test_the_code_of_agents_is_loaded(store, tmp_path):
    (tmp_path / "hosts.py").write_text(
        "from fsm_agent import Agent\nfrom fsm_agent.testing import Script\n"
        "host = Agent(Script(), name='host')\nprint('loaded')\n"
    )
    command = [sys.executable, "-m", "fsm_agent", "inspect", str(store), "--no-browser", "--agents", "hosts"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()  # what a module prints is not on stdout
        with httpx.Client(follow_redirects=True, timeout=LIMIT_S) as client:
            base = str(client.get(url).url)
            assert "waits for" in client.get(f"{base}moment?id=r&n=1").text
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)


def test_what_is_wrong_is_one_line(tmp_path, store):
    assert "there is no store at 'nothing.db'" in failure("nothing.db", "--no-browser", cwd=tmp_path)
    assert "no_such_module" in failure(str(store), "--no-browser", "--agents", "no_such_module")


def test_a_missing_extra_is_one_line(store, tmp_path):
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('no', name='uvicorn')")
    command = [sys.executable, "-m", "fsm_agent", "inspect", str(store), "--no-browser"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("the inspector needs uvicorn: pip install 'fsm-agent[inspect]'")
    assert len(done.stderr.strip().splitlines()) == 1

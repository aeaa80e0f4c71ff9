"""Do real worker processes that wait for many slow models hold little, lose nothing, and leave well?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from support.paths import ROOT
from support.slow_agent import slow

from fsm_agent.store import Runs

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are POSIX")
MOST_MB = 150  # of memory, with a thousand runs in flight


def create(runs: Runs, count: int) -> None:
    agent = slow(store=runs)
    for number in range(count):
        header = agent.prepare("Look in A.", run_id=f"r{number}").journal.header
        assert runs.store.create(f"r{number}", header, agent=agent.name)


@contextmanager
def started(
    store: str, *options: str, model_s: float, rounds: int = 1, until: str = ""
) -> Iterator[subprocess.Popen[str]]:
    path = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
    model = {"SLOW_MODEL_S": str(model_s), "SLOW_MODEL_ROUNDS": str(rounds), "SLOW_MODEL_LOG": f"{store}.asked"}
    model["SLOW_MODEL_UNTIL"] = until
    environment = {**os.environ, "PYTHONPATH": path, **model}
    command = [sys.executable, "-m", "fsm_agent", "worker", "--store", store, "--agents", "support.slow_agent"]
    process = subprocess.Popen([*command, *options], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def until(condition: Any, patience_s: float = 100.0) -> None:
    ends_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < ends_s
        time.sleep(0.05)


def health_url(process: subprocess.Popen[str]) -> str:
    """Return where a worker answers probes, which it says first."""
    assert process.stderr is not None
    return process.stderr.readline().partition("health: ")[2].strip()


def health(url: str) -> dict[str, Any]:
    """Return what a worker says of itself, also before it is alive."""
    try:
        with urlopen(url, timeout=20) as answer:
            said: dict[str, Any] = json.load(answer)
    except HTTPError as error:
        with error:
            said = json.load(error)
    return said


def held(runs: Runs) -> int:
    return sum(row.holder is not None for row in runs.store.list(ended=False, limit=10_000))


def ended(runs: Runs) -> int:
    return len(runs.store.list(ended=True, limit=10_000))


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with_store = Runs(tmp_path / "runs.db")
    yield with_store
    with_store.close()


def check_journals(runs: Runs, count: int) -> None:
    """Each run has ended once, with all of its entries, whose fences never fall."""
    agent = slow(store=runs)
    for number in range(count):
        call = agent.runs.replay(f"r{number}")
        assert call.result().output == "Done after 1 rounds."


@pytest.mark.system
def test_what_a_killed_worker_had_is_taken_by_another(runs: Runs, tmp_path: Path) -> None:
    """It had all of them in the tasks of one event loop."""
    create(runs, 20)
    with started(str(tmp_path / "runs.db"), "--tasks", "100", model_s=600.0) as first:
        until(lambda: held(runs) == 20)
        first.send_signal(signal.SIGKILL)
        first.wait(100)
        with started(str(tmp_path / "runs.db"), "--tasks", "100", model_s=0.05) as second:
            until(lambda: ended(runs) == 20)
            second.send_signal(signal.SIGTERM)
            assert second.wait(100) == 0
    check_journals(runs, 20)
    assert {row.holder for row in runs.store.list(limit=100)} == {None}


@pytest.mark.system
@pytest.mark.parametrize("mode", [("--tasks", "100"), pytest.param(("--threads", "8"), marks=pytest.mark.nightly)])
def test_sigterm_gives_back_what_does_not_end_in_time(runs: Runs, tmp_path: Path, mode: tuple[str, str]) -> None:
    """With exit status 0, within its time.  The next worker need not wait for leases."""
    create(runs, 20)
    with started(str(tmp_path / "runs.db"), *mode, "--drain-s", "0.5", model_s=600.0) as first:
        until(lambda: held(runs) == (20 if "--tasks" in mode else 8))
        first.send_signal(signal.SIGTERM)
        assert first.wait(100) == 0, "no model has answered"
    rows = runs.store.list(limit=100)
    assert {(row.holder, row.due_s, row.is_ended) for row in rows} == {(None, 0.0, False)}
    with started(str(tmp_path / "runs.db"), *mode, "--once", model_s=0.01) as second:
        assert second.wait(100) == 0
    assert ended(runs) == 20


@pytest.mark.system
def test_a_second_signal_ends_it_at_once(runs: Runs, tmp_path: Path) -> None:
    create(runs, 3)
    options = ("--tasks", "9", "--drain-s", "60", "--health-port", "0")
    with started(str(tmp_path / "runs.db"), *options, model_s=600.0) as process:
        url = health_url(process)
        asked = tmp_path / "runs.db.asked"
        until(lambda: asked.exists() and len(asked.read_text().splitlines()) == 3)
        assert health(url)["is_ready"]
        assert health(url)["held"] == held(runs) == 3
        process.send_signal(signal.SIGTERM)
        until(lambda: not health(url)["is_ready"])  # of two that come together, one may be heard
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(100) == 128 + signal.SIGTERM


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_thousand_runs_in_flight(runs: Runs, tmp_path: Path) -> None:
    create(runs, 1000)
    free = tmp_path / "free"
    with started(str(tmp_path / "runs.db"), "--tasks", "1000", "--once", model_s=0.0, until=str(free)) as process:
        until(lambda: held(runs) == 1000, 120)
        time.sleep(6)  # their leases are renewed
        status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        found = dict(line.split(":", 1) for line in status)
        peak_mb = int(found["VmHWM"].split()[0]) / 1024
        free.touch()
        until(lambda: process.poll() is not None, 200)
    print(f"1,000 runs in flight: {peak_mb:.0f} MB at most, {found['Threads'].strip()} threads")
    assert peak_mb < MOST_MB
    assert ended(runs) == 1000
    check_journals(runs, 1000)


ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", "COLUMNS": "100"}


def fsm_agent(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fsm_agent", *arguments]
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=100, check=False)


BEGIN = """
from contextlib import suppress
from support import shop_agent as shop
from fsm_agent import CallSuspended
with suppress(CallSuspended):
    shop.shop(store="runs.db").call("Refund order A-17.", run_id="order-17")
"""


class TestProcesses:
    @pytest.mark.system
    def test_one_begins_another_answers_and_a_third_finishes(self, tmp_path):
        subprocess.run([sys.executable, "-c", BEGIN], cwd=tmp_path, env=ENVIRONMENT, timeout=60, check=True)
        answered = fsm_agent(
            *("runs", "answer", "order-17", "ask:3.0", "--approve", "--by", "ann", "--store", "runs.db"), cwd=tmp_path
        )
        assert answered.returncode == 0, answered.stderr
        done = fsm_agent("worker", "--store", "runs.db", "--agents", "support.shop_agent", "--once", cwd=tmp_path)
        assert (done.returncode, "it advanced 1 run" in done.stderr) == (0, True), done.stderr
        runs = Runs(tmp_path / "runs.db")
        loaded = runs.store.load("order-17")
        runs.close()
        assert loaded.run.state == "Completed"
        assert "Done: 19.50 EUR for A-17 are on their way" in loaded.lines[-1]
        fences = [json.loads(line)["fence"] for line in loaded.lines]
        assert fences == sorted(fences)
        assert len(set(fences)) == 2

    @pytest.mark.system
    @pytest.mark.skipif(os.name == "nt", reason="signals are POSIX")
    def test_ctrl_c_ends_it_well(self, tmp_path):
        command = [sys.executable, "-m", "fsm_agent", "worker", "--store", "runs.db", "--agents", "support.shop_agent"]
        command.append("--create")
        with subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert "Ctrl-C ends it" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            assert "it advanced no run" in process.stderr.read()

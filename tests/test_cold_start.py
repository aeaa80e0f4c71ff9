"""May many threads be the first to use everything, at the same time, and what does the first import cost?"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import cold_start
import pytest
from support.paths import TESTS

pytestmark = pytest.mark.system

PROCESSES = 200


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A store with runs that wait for 32 threads."""
    path = tmp_path_factory.mktemp("prepared") / "runs.db"
    cold_start.prepare(str(path))
    return path


def outcome(prepared: Path, folder: Path, *parts: str) -> str:
    """What a fresh OS process says; "" is right."""
    path = folder / "runs.db"
    shutil.copy(prepared, path)
    command = [sys.executable, "-X", "faulthandler", str(TESTS / "cold_start.py"), str(path), *parts]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    for file in folder.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    return f"{done.returncode}: {done.stdout}{done.stderr}" if done.returncode else ""


def test_32_threads_use_everything_first_at_once(prepared, tmp_path):
    assert outcome(prepared, tmp_path) == ""


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_no_thread_of_hundreds_of_fresh_processes_fails(prepared, tmp_path, say):
    parts = [(), *[(part.__name__,) for part in cold_start.PARTS]]
    found = Counter(outcome(prepared, tmp_path, *parts[n % len(parts)]) for n in range(PROCESSES))
    say(f"{PROCESSES} fresh processes of {cold_start.THREADS} threads: {found.pop('', 0)} as they should be")
    assert not found, "\n".join(found)


FIRST_NAMES = """
import threading, fsm_agent
from importlib import import_module
names = ("Agent", "Prompt", "Limits", "store", "flows", "Worker", "web", "testing", "MCPServer", "SqliteStore")
at_once, found = threading.Barrier(len(names)), []
def first(name):
    at_once.wait()
    found.append(import_module(f"fsm_agent.{name}") if name.islower() else getattr(fsm_agent, name))
threads = [threading.Thread(target=first, args=[name]) for name in names]
[thread.start() for thread in threads]
[thread.join(60) for thread in threads]
assert len(found) == len(names)
"""


def test_threads_may_each_be_the_first_to_load_a_room():
    for _ in range(5):  # without a lock, most of them fail
        subprocess.run([sys.executable, "-c", FIRST_NAMES], check=True, timeout=120, capture_output=True)


def processor_s(code: str) -> float:
    """The least processor time of a fresh OS process that runs the code, of nine; bytecode is kept."""
    command = [sys.executable, "-c", f"{code}\nimport time; print(time.process_time())"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    run = partial(subprocess.run, command, env=environment, capture_output=True, text=True, check=True)
    return min(float(run().stdout) for _ in range(9))


def test_an_agent_is_imported_in_twice_the_time_of_its_libraries(say):
    ratio = processor_s("from fsm_agent import Agent") / processor_s("import pydantic, httpx")
    say(f"the import costs {ratio:.2f} times that of pydantic and httpx")
    assert ratio < 2.2  # twice, and what a busy machine adds

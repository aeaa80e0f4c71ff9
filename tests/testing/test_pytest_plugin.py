"""Does the plugin do its part in other people's tests?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fsm_agent.call import ROWS

pytestmark = pytest.mark.system

TESTS = """
import threading
import pytest
from fsm_agent import Agent
from fsm_agent.testing import function_call

def add(a: int) -> int:
    "Add."
    return a

def test_good(script):
    assert Agent(script(function_call("add", a=1), "ok"), functions=[add]).call("hi").output == "ok"

def test_in_a_thread(script):
    agent = Agent(script("no number", "42"), output=int)
    thread = threading.Thread(target=agent.call, args=("hi",))
    thread.start()
    thread.join()

@pytest.fixture(scope="session")
def asked():
    Agent("openai:gpt-5-mini").call("hi")

def test_session(asked):
    pass

def test_missing(script):
    Agent(script()).call("hi")

def test_missing_and_caught(script):
    with pytest.raises(Exception):
        Agent(script()).call("hi")

@pytest.mark.xfail
def test_expected(script):
    Agent(script("ok", "never")).call("hi")
    assert False

def test_left_over(script):
    Agent(script("ok", "never")).call("hi")

def test_real():
    Agent("openai:gpt-5-mini").call("hi")

@pytest.mark.model_requests
def test_allowed(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none-at-all")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    Agent("openai:gpt-5-mini", limits={limits}).call("hi")
""".replace("{limits}", "__import__('fsm_agent').Limits(recalls=0)")


def run(folder: Path, *options: str) -> str:
    options = ("-p", "no:cacheprovider", "--fsm-coverage", "-W", "error", *options)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "fsm_agent", *options, str(folder)]
    environment = {**os.environ, "COLUMNS": "250", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # others load for a second
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=50, check=False)
    return done.stdout


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("others")
    (folder / "test_others.py").write_text(TESTS)
    return run(folder, "--fsm-no-model-requests")


def test_replies_left_over_fail_the_test_that_wrote_them(output):
    assert "1 got none: 'never'" in output
    assert "ERROR test_others.py::test_left_over" in output


def test_one_mistake_is_reported_once(output):
    names = [line.split()[:2] for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    assert [kind for kind, name in names if name.endswith("test_missing")] == ["FAILED"]
    assert [kind for kind, name in names if name.endswith("test_missing_and_caught")] == ["ERROR"]
    assert not [kind for kind, name in names if name.endswith("test_expected")]


def test_real_models_are_refused_unless_a_test_says_otherwise(output):
    assert "FAILED test_others.py::test_real - fsm_agent.errors.UsageError" in output
    assert "ERROR test_others.py::test_session - fsm_agent.errors.UsageError" in output
    assert "CallFailed: model failed: no connection" in output


def test_the_rows_are_listed_with_their_counts(output):
    assert "       1  Calling --functions_asked [opens_round]--> ToolInterrupt" in output
    assert "Backoff --slept [in_branch]--> ParseException" not in output  # which no test of theirs is about
    assert "       1  Calling --parse_failed [may_retry]--> ParseException" in output, "a step in a thread"
    count = sum(len(sources) if isinstance(sources, tuple) else 1 for _, sources, *_ in ROWS)
    assert f" of {count} rows were taken" in output


@pytest.mark.nightly
def test_the_rows_of_several_workers_are_added_up(tmp_path):
    for name in ("one", "other"):
        (tmp_path / f"test_{name}.py").write_text(TESTS.partition("@pytest.fixture")[0])
    output = run(tmp_path, "-p", "xdist", "-n2", "--dist", "loadfile")
    assert "4 passed" in output
    assert "       2  Calling --functions_asked [opens_round]--> ToolInterrupt" in output

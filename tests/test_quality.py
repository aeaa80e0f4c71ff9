"""Are the checkers content, and are files as small as they should be?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CODE = ["fsm_agent", "tests", "examples"]


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", *CODE], ["ruff", "format", "--check", *CODE], ["mypy"]],
    ids=["ruff check", "ruff format", "mypy"],
)
def test_the_checkers_are_content(command):
    pytest.importorskip(command[0], reason=f"{command[0]} comes with the [dev] extra")
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_is_cheap():
    """Ratio in one process group: the least of several runs each, for the machine is shared."""

    def least_s(statement: str) -> float:
        code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
        runs = [
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)
        ]
        return min(float(run.stdout) for run in runs)

    floor = least_s("import pydantic, httpx; from pydantic import BaseModel")
    assert least_s("import fsm_agent") < 0.5 * floor
    assert least_s("from fsm_agent import Agent, Prompt, build_agent, function") < 3 * floor

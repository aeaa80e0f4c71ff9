"""Does the core of the suite pass under the newest other supported Python on this machine?

The workflows test the versions in between.  Here, three of them would take too long for a night.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.paths import ROOT

# Folders that need no network and no model, and in which a Python could differ.
HEART = (*("_internal", "messages", "functions", "call", "runtime", "flows"), "store/sql/test_sqlite.py")
# What takes the same code again, in greater numbers or in other words.
LEFT_OUT = (
    *("test_flow_costs.py", "test_flow_coverage.py", "test_random_forks.py", "test_recipes.py"),
    *("test_orchestrator_*.py", "ports/test_*.py"),
)
EXTRAS = "cli,mcp,yaml,prices"
TOOLS = ("pytest", "pytest-xdist", "pytest-timeout", "hypothesis", "trustme", "pyte")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SUPPORTED = [version for line in PROJECT["classifiers"] for version in re.findall(r"Python :: (3\.\d+)$", line)]
HERE = "{}.{}".format(*sys.version_info)


def full_version(python: Path) -> tuple[int, ...]:
    """Return the version of a Python that can make environments; nothing for one that cannot, such as a shim."""
    code = "import ensurepip, sys, venv; print(*sys.version_info[:3])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else ()


def interpreter(version: str) -> Path | None:
    """Return the newest Python of a version on the PATH or in pyenv, or None."""
    on_path = shutil.which(f"python{version}")
    candidates = [*([Path(on_path)] if on_path else []), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    found = {full_version(python): python for python in candidates}
    found.pop((), None)
    return found[max(found)] if found else None


def test_the_oldest_version_is_the_one_that_is_required():
    assert PROJECT["requires-python"] == f">={SUPPORTED[0]}"


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_heart_of_the_suite_passes(tmp_path: Path, say: Callable[[str], None]):
    others = [version for version in reversed(SUPPORTED) if version != HERE]
    version, newest = next(((version, found) for version in others if (found := interpreter(version))), ("", None))
    if newest is None:
        pytest.skip("there is no other supported Python on the PATH, and none in ~/.pyenv/versions")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}

    def output(*command: str | Path) -> str:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=environment | {"PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")},
            check=False,
        )
        assert done.returncode == 0, done.stdout[-10_000:]
        return done.stdout

    output(newest, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    tools = [line for line in PROJECT["optional-dependencies"]["dev"] if re.split(r"[\[<>=]", line)[0] in TOOLS]
    output(python, "-m", "pip", "install", "-q", "-e", f"{ROOT}[{EXTRAS}]", *tools)
    folders = [ROOT / "tests" / name for name in HEART]
    left_out = [f"--ignore-glob={ROOT}/tests/flows/{name}" for name in LEFT_OUT]
    said = output(python, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *left_out, *folders)
    say(f"Python {version} ({output(python, '-VV').strip()}): {said.splitlines()[-1]}")

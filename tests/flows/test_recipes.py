"""Do the recipes print what they say?"""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from pathlib import Path

import pytest
from support.paths import ROOT

SLEEP = ("polling", "reminder")
RECIPES = sorted((ROOT / "examples" / "recipes").glob("*.py"))
SHOWN = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.system] if path.stem in SLEEP else [], id=path.stem) for path in RECIPES],
)
def test_it_prints_what_it_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command is run as by a new OS process: nothing is left of the one before but files."""
    (shown,) = SHOWN.findall(ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "")
    monkeypatch.chdir(tmp_path)
    said, asked = "", [line.removeprefix("$ ") for line in shown.splitlines() if line.startswith("$ ")]
    assert len(asked) >= 1
    for command in asked:
        file, *words = shlex.split(command)[1:]
        monkeypatch.setattr("sys.argv", [file, *words])
        runpy.run_path(str(ROOT / file), run_name="__main__")
        said += f"$ {command}\n{capsys.readouterr().out}"
    assert said == shown

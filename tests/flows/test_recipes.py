"""Do the recipes do what their pages say, and do the pages show what is there?"""

from __future__ import annotations

import runpy
import shlex
from pathlib import Path

import pytest
import recipe_pages as pages
from support.paths import ROOT

SLEEP = ("polling", "reminder")
everyone = pytest.mark.parametrize("name", pages.NAMES)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.system] if name in SLEEP else []) for name in pages.NAMES]
)
def test_it_prints_what_its_page_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command is run as by a new OS process: nothing is left of the one before but files."""
    shown = pages.block("console", pages.page(name).read_text("utf-8"))
    monkeypatch.chdir(tmp_path)
    said, asked = "", pages.commands(name)
    assert len(asked) >= 1
    for command in asked:
        file, *words = shlex.split(command)[1:]
        monkeypatch.setattr("sys.argv", [file, *words])
        runpy.run_path(str(ROOT / file), run_name="__main__")
        said += f"$ {command}\n{capsys.readouterr().out}"
    assert said == shown

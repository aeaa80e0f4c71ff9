"""Write the code, the output and the picture of each recipe into its page.

PYTHONPATH=tests python tools/recipe_pages.py
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from support.paths import ROOT

from fsm_agent.diagrams import render
from fsm_agent.flows import Flow, flow_diagram

FOLDER = ROOT / "examples" / "recipes"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
BLOCK = r"^```{}\n(.*?)^```$"
sys.path.append(str(FOLDER.parent))


def recipe(name: str) -> ModuleType:
    return importlib.import_module(f"recipes.{name}")


def page(name: str) -> Path:
    return ROOT / "docs" / "recipes" / f"{name.replace('_', '-')}.md"


def code(name: str) -> str:
    """Return what the page shows of the file: all but its docstring, which the page replaces."""
    return (FOLDER / f"{name}.py").read_text("utf-8").split('"""\n', 1)[1].lstrip("\n")


def flow(name: str) -> Flow[Any]:
    """Return the flow of a recipe: the last one of the file."""
    return [value for value in vars(recipe(name)).values() if isinstance(value, Flow)][-1]


def block(language: str, text: str) -> str:
    found = re.search(BLOCK.format(language), text, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def picture(name: str) -> str:
    return render(flow_diagram(flow(name)), "mermaid")


def commands(name: str) -> list[str]:
    """Return the commands that the page shows."""
    shown = block("console", page(name).read_text("utf-8"))
    return [line.removeprefix("$ ") for line in shown.splitlines() if line.startswith("$ ")]


def run(command: str, folder: Path) -> str:
    """Run a command of a page in a process of its own, in this folder, and return what it prints."""
    file, *words = shlex.split(command)[1:]
    done = subprocess.run(
        [sys.executable, str(ROOT / file), *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
        check=True,
    )
    return done.stdout


def session(name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return "".join(f"$ {command}\n{run(command, Path(folder))}" for command in commands(name))


def written(name: str) -> str:
    """Return the page as it is right now."""
    text = page(name).read_text("utf-8")
    for language, body in (("python", code(name)), ("mermaid", picture(name)), ("console", session(name))):
        text = text.replace(f"```{language}\n{block(language, text)}```", f"```{language}\n{body.rstrip()}\n```", 1)
    return text


if __name__ == "__main__":
    for name in NAMES:
        page(name).write_text(written(name), "utf-8")

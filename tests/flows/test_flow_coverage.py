"""Does pytest report the rows of the flows that the tests used?"""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

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


@pytest.mark.parametrize(("required", "passes"), [("50", True), ("51", False)])
def test_rows_of_flows_are_reported(pytester: pytest.Pytester, required: str, passes: bool) -> None:
    pytester.makepyfile(dedent(TESTS))
    done = pytester.runpytest_subprocess(
        "-p",
        "no:cacheprovider",
        "--fsm-coverage",
        f"--fsm-coverage-fail-under={required}",
        "--fsm-coverage-json=c.json",
    )
    text = done.stdout.str()
    assert "rows of the flow 'steps'" in text
    assert "       1  step --done True--> over" in text
    assert "  MISSED  step --done False--> other" in text
    assert "1 of 2 rows were taken" in text
    assert "       1  Seeded --begun--> step  (default)" in text
    assert "step --failed--> Failed" not in text
    assert (done.ret == 0) is passes
    assert ("FAILED: 50 % of the rows of flows, below 51 %" in text) is not passes
    written = json.loads(Path(pytester.path, "c.json").read_text())
    assert written["flows"]["steps"]["step --done True--> over"] == {"taken": 1, "is_default": False}
    assert written["covered"] == 50.0


VERSIONS = """
from fsm_agent.flows import Flow, end, execute

@execute
def step(n: int) -> bool:
    return n > 0

over, other = end("over"), end("other")
first = Flow("steps", int, start=step, rows=[step.done(over)])
second = Flow("steps", int, start=step, rows=[step.done(over, of=True), step.done(other, of=False)])

def test_one():
    assert first.call(1).state == "over"

def test_other():
    assert second.call(1).state == "over"
"""


@pytest.mark.parametrize("workers", [(), pytest.param(("-n2", "--dist=load"), marks=pytest.mark.long)])
def test_the_rows_of_all_flows_of_one_name_are_reported(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    """Also where one worker uses the one flow, and another the other."""
    pytester.makepyfile(dedent(VERSIONS))
    options = ("-p", "no:cacheprovider", "--fsm-coverage", "--fsm-coverage-fail-under=100")
    done = pytester.runpytest_subprocess(*options, *workers)
    text = done.stdout.str()
    assert "  MISSED  step --done False--> other" in text
    assert "1 of 3 rows were taken" in text
    assert done.ret == 1

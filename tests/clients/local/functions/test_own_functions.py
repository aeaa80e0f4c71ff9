"""Do ten functions of one's own, asked for in plain questions, come out right on the embedded model?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.embedded import needs_model
from support.own_functions import OWN, Asked, is_right

TESTS = Path(__file__).parents[3]


def came_out_right(asked: Asked) -> str:
    """Ask at the command line.  Return the mistakes in the call and the answer, or empty."""
    offered = [word for f in asked.functions for word in ("--function", f"support.own_functions:{f.__name__}")]
    command = [sys.executable, "-m", "fsm_agent", "ask", asked.question, *offered, "--approve", "--json"]
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    if run.returncode:
        return f"status {run.returncode}: {run.stderr[-500:]}"
    shown = json.loads(run.stdout.splitlines()[-1])
    calls = [(call["name"], call["arguments"]) for call in shown["function_calls"]]
    if not asked.name:
        return "" if not calls and asked.answer in shown["text"] else f"{calls}: {shown['text']}"
    if len(calls) != 1 or not is_right(asked, *calls[0]):
        return f"called {calls}"
    return "" if asked.answer in shown["text"].replace(",", "") else f"answered {shown['text']!r}"


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@needs_model
@pytest.mark.parametrize("time", ["once", "again"])
def test_eight_of_ten_come_out_right(time: str, say: Callable[[str], None]):
    problems = {asked.question: came_out_right(asked) for asked in OWN}
    right = sum(not problem for problem in problems.values())
    say(f"{right} of {len(OWN)} own functions came out right ({time})")
    for question, problem in problems.items():
        if problem:
            say(f"  {question} {problem}")
    assert right >= 8, problems

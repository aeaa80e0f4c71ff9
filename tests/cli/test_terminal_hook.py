"""Does `TerminalHook` show progress and an overview: piped, on a terminal, without colours and in 40 columns?"""

from __future__ import annotations

import os
import re
import runpy
import sys

import pytest
from support.terminal import LIMIT_S, ROOT, Terminal

from fsm_agent import Agent
from fsm_agent.cli import TerminalHook
from fsm_agent.errors import CallFailed, Overloaded
from fsm_agent.testing import Script, call

HERE = ROOT / "tests" / "cli"
PROGRAM = "from shown_agent import guide; guide.call('What do I wear?')"
PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)])}
OVERVIEW = [
    "1 round, 1 function call",
    "  ask_weather",
    "1,500 tokens in, 150 out",
    "  itself: 300 tokens in, 30 out",
    "  run:1.0: 1,200 tokens in, 120 out",
]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOURS = re.compile(r"\x1b\[[0-9;]*(3[0-8]|4[0-8]|9[0-7])m")
posix = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.mark.spec("3.27: progress and an overview are shown")
def test_piped_the_answer_is_alone_and_progress_has_the_path_of_who_makes_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "40")
    runpy.run_path(str(HERE / "shown_agent.py"))["guide"].call("What do I wear?")
    out, err = capsys.readouterr()
    assert out == "[b]Take a coat.\n"
    lines = err.splitlines()
    assert lines[-5:] == OVERVIEW
    assert "ask_weather(task='Berlin?')" in lines
    for inside in ("measure(city='Berlin')", "measure → 11.5", "Calling → Completed (answered)"):
        assert f"run:1.0: {inside}" in lines
    assert "run:1.0: measure raised ValueError: it has sunk" in lines
    assert lines.index("run:1.0: Calling → Completed (answered)") < lines.index("ask_weather → It is mild.")
    assert "\x1b" not in err


@pytest.mark.system
@pytest.mark.spec("3.27: progress and an overview are shown")
@posix
def test_on_a_terminal_of_40_columns_without_colours():
    with Terminal(program=PROGRAM, COLUMNS="40", NO_COLOR="1", **PATHS) as terminal:
        terminal.read_until()
        assert terminal.process.wait(LIMIT_S) == 0
    seen = terminal.seen
    lines = ESCAPES.sub("", seen).replace("\r\n", "\n").splitlines()
    assert [line.rstrip() for line in lines if line.rstrip() in OVERVIEW] == OVERVIEW
    assert all(len(line) <= 40 for line in OVERVIEW)
    assert "run:1.0: measure → 11.5" in ESCAPES.sub("", seen)
    assert "[b]Take a coat." in seen
    assert seen.count("\x1b[?25h") >= seen.count("\x1b[?25l") > 0, "the cursor is back"
    assert not COLOURS.search(seen)


def test_functions_are_counted_and_those_that_failed(capsys: pytest.CaptureFixture[str]):
    script = Script([call("add", a=1, b=2), call("add", a=1, b="x")], call("add", a=3, b=4), "7")
    Agent(script, functions=[add], hooks=[TerminalHook(steps=False)]).call("Add.")
    err = capsys.readouterr().err.splitlines()
    assert err[:2] == ["2 rounds, 3 function calls", "  add 3 times, 1 failed"]


def test_a_call_that_fails_has_its_overview_and_no_answer(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(CallFailed):
        Agent(Script(*[Overloaded("busy")] * 9), hooks=[TerminalHook()], world={"backoff": lambda *_: 0.0}).call("Hi")
    out, err = capsys.readouterr()
    assert out == ""
    assert "→ Failed" in err
    assert err.splitlines()[-3:] == [
        "ended without an answer: model failed",
        "0 rounds, 0 function calls",
        "0 tokens in, 0 out",
    ]

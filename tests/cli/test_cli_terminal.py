"""At a terminal, is each question shown whole, is Ctrl-C one line, and is the terminal left in order?"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from command_line import ran
from support import shop_agent as shop
from support.fault_server import SSE_HEAD, STALL, FaultServer, chunk, events
from support.stub_server import StubServer
from support.terminal import LIMIT_S, ROOT, Terminal, screen_of

from fsm_agent import CallSuspended
from fsm_agent.store import Runs

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform == "win32", reason="terminals are POSIX"),
]
MODEL = ("--model", "openai-compatible:stub", "--base-url")
REMOVE = ("--function", "tools:remove")
TOOLS = '''
import sys, time
from fsm_agent import function

def count() -> int:
    """Count aloud."""
    print("one")
    print("two", file=sys.stderr)
    time.sleep(0.3)  # and the live line is drawn anew
    print("three", end="")
    time.sleep(0.3)
    print(" and four")
    print("five", end="")
    return 5

@function(needs_approval=True)
def remove(path: str) -> str:
    """Remove a file."""
    return f"removed {path}"
'''


@pytest.fixture(autouse=True)
def _tools(here: Path) -> None:
    (here / "tools.py").write_text(TOOLS)


def asks_for(name: str, *arguments: dict[str, Any]) -> dict[str, Any]:
    """A chat message that asks for a function as often as there are arguments for it."""
    functions = [{"name": name, "arguments": json.dumps(given)} for given in arguments or ({},)]
    calls = [{"id": f"c{n}", "type": "function", "function": given} for n, given in enumerate(functions, 1)]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def ended(terminal: Terminal) -> int:
    terminal.read_until()
    return terminal.process.wait(LIMIT_S)


def begun(text: str) -> bytes:
    """The first event of a stream."""
    return events({"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]}, done=False)


def test_the_answer_streams_and_ctrl_c_leaves_the_terminal_in_order():
    with (
        FaultServer([SSE_HEAD + chunk(begun("The first")), STALL]) as server,
        Terminal("ask", "?", *MODEL, server.base_url, NO_COLOR="1") as terminal,
    ):
        terminal.read_until("The first")  # though the server has not said the rest
        terminal.interrupt()
        assert ended(terminal) == 130
    seen = terminal.seen
    assert "Calling · round 0 · 1 token · " in seen
    assert seen.splitlines()[-1].endswith("interrupted")
    assert seen.rfind("\x1b[?25h") > seen.rfind("\x1b[?25l"), "the cursor is back"
    assert not re.search(r"\x1b\[[0-9;]*3[0-8]", seen), "NO_COLOR asks for none"


def test_what_a_function_prints_stands_above_the_live_line(here: Path):
    with StubServer([asks_for("count"), "It has counted."]) as stub:
        words = ("ask", "?", *MODEL, stub.base_url, "--function", "tools:count")
        with Terminal(*words, columns=40, folder=here) as terminal:
            assert ended(terminal) == 0
    shown = "count()\none\ntwo\nthree and four\nfive\ncount → 5\nIt has counted."
    assert screen_of(terminal.seen, 40) == shown
    between = terminal.seen.partition("two")[2].partition("three")[0]
    assert "Interrupt" in between, "the live line stays while the function is at work"


def test_whoever_sits_there_is_shown_all_that_is_asked_about_and_approves():
    path = "x" * 1000 + "  REAL"
    asks = asks_for("remove", {"path": "x\x1b[2J"}, {"path": path})
    with (
        StubServer([asks, "One is gone."]) as stub,
        Terminal("ask", "?", *MODEL, stub.base_url, *REMOVE) as terminal,
    ):
        terminal.read_until("May the model call remove(path='x\\x1b[2J')? [y/N]: ")
        terminal.type("y\n")
        terminal.read_until("? [y/N]: ")
        assert f"remove(path='{path}')" in terminal.seen.replace("\r\n", "")
        terminal.type("n\n")
        assert ended(terminal) == 0
    *_, removed, denied = stub.requests[1]["messages"]
    assert removed["content"].startswith("removed x")
    assert not denied["content"].startswith("removed")


def test_whoever_does_not_answer_is_told_how_to_continue(here: Path):
    with (
        StubServer([asks_for("remove", {"path": "x"})]) as stub,
        Terminal("ask", "?", *MODEL, stub.base_url, *REMOVE, "--store", str(here / "r.db")) as terminal,
    ):
        terminal.read_until("? [y/N]: ")
        terminal.interrupt()
        terminal.read_until("fsm-agent runs resume ")
        assert ended(terminal) == 130


class TestChat:
    def test_ctrl_c_leaves_a_turn_out_and_the_chat_goes_on(self):
        whole = events({"choices": [{"index": 0, "delta": {"content": "Fine."}, "finish_reason": "stop"}]})
        with (
            FaultServer([SSE_HEAD + chunk(begun("The first")), STALL], [SSE_HEAD + chunk(whole)]) as server,
            Terminal("chat", *MODEL, server.base_url) as terminal,
        ):
            terminal.read_until("> ")
            terminal.type("a\n")
            terminal.read_until("The first")
            terminal.interrupt()
            terminal.read_until("interrupted")
            terminal.read_until("> ")
            terminal.type("/undo\n")
            terminal.read_until("nothing to undo")
            terminal.interrupt()
            assert ended(terminal) == 130
        assert "Traceback" not in terminal.seen

    def test_what_is_typed_after_a_question_answers_it_and_ctrl_c_leaves_it(self):
        asks = asks_for("remove", {"path": "x"})
        with (
            StubServer([asks, "It is there.", asks, "It is gone.", asks, "Hi there."]) as stub,
            Terminal("chat", *MODEL, stub.base_url, *REMOVE) as terminal,
        ):

            def ask(typed: str) -> None:
                terminal.read_until("> ")
                terminal.type(typed)
                terminal.read_until("? [y/N]: ")

            ask("Remove x.\ny\n")  # as several lines are pasted: what came before the question is no answer to it
            terminal.type("n\n")
            terminal.read_until("It is there.")
            assert "removed x" not in str(stub.requests)
            ask("Remove x.\n")
            terminal.type("y\n")
            terminal.read_until("It is gone.")
            assert stub.requests[-1]["messages"][-1]["content"] == "removed x"
            ask("Remove x.\n")
            terminal.interrupt()
            terminal.read_until("interrupted")
            terminal.read_until("> ")
            terminal.type("y\n")  # the next line is a turn
            terminal.read_until("Hi there.")
            assert stub.requests[-1]["messages"][-1]["content"] == "y"
            terminal.type("\x04")
            assert ended(terminal) == 0


class TestRuns:
    @pytest.fixture
    def store(self, here: Path) -> Path:
        with closing(Runs(here / "runs.db")) as runs, suppress(CallSuspended):
            shop.shop(store=runs).call("Refund \x9b31m \x7f \u202e", run_id="odd")
        return here / "runs.db"

    @pytest.mark.parametrize(("answer", "left"), [("", 1), ("yes", 0)])
    def test_a_person_is_asked_before_a_run_is_deleted(self, store: Path, answer: str, left: int):
        with Terminal("runs", "delete", "odd", FSM_AGENT_STORE=str(store)) as terminal:
            terminal.read_until("[y/N] ")
            terminal.type(f"{answer}\r")
            terminal.read_until()
        assert len(json.loads(ran("runs", "list", "--store", str(store), "--json").stdout)["runs"]) == left

    def test_nothing_in_an_export_is_a_command_of_the_terminal(self, store: Path):
        with Terminal("runs", "export", "odd", "--store", str(store)) as terminal:
            assert ended(terminal) == 0
        assert not re.search("[\x9b\x7f\u202e]", terminal.seen)
        header = ran("runs", "export", "odd", "--store", str(store)).stdout.splitlines()[0]
        assert "\u202e" in header
        assert json.loads(terminal.seen.splitlines()[0]) == json.loads(header)


def test_the_hook_at_a_terminal_of_40_columns_without_colours():
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    program = "from shown_agent import guide; guide.call('What do I wear?')"
    with Terminal(program=program, COLUMNS="40", NO_COLOR="1", PYTHONPATH=paths) as terminal:
        assert ended(terminal) == 0
    seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.seen)
    for told in ("1 round, 1 function call", "run:1.0: measure → 11.5", "[b]Take a coat."):
        assert told in seen
    assert terminal.seen.count("\x1b[?25h") >= terminal.seen.count("\x1b[?25l") > 0, "the cursor is back"
    assert not re.search(r"\x1b\[[0-9;]*(3[0-8]|4[0-8]|9[0-7])m", terminal.seen)

"""Is a conversation at the terminal one, with its commands, its questions, and Ctrl-C at any moment?"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.fault_server import SSE_HEAD, STALL, FaultServer, chunk, events
from support.stub_server import StubServer
from support.terminal import LIMIT_S, Terminal
from typer.testing import CliRunner

from fsm_agent.cli import app

pytestmark = pytest.mark.system

MODEL = ("--model", "openai-compatible:stub")
TOOLS = """
from fsm_agent import function

@function(needs_approval=True)
def remove(path: str) -> str:
    "Remove a file."
    return f"removed {path}"
"""
ASKS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "remove", "arguments": '{"path": "x"}'}}],
}
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals are POSIX")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "chat_tools.py").write_text(TOOLS)
    yield tmp_path
    sys.modules.pop("chat_tools", None)


def chat(replies: Sequence[Any], *lines: str, arguments: Sequence[str] = ()) -> tuple[Any, list[list[str]]]:
    """The command, given these lines; and what each request said."""
    with StubServer(replies) as stub:
        words = ["chat", *MODEL, "--base-url", stub.base_url, *arguments]
        ended = CliRunner().invoke(app, words, input="\n".join(lines), prog_name="fsm-agent", catch_exceptions=False)
        return ended, [[message["content"] for message in request["messages"]] for request in stub.requests]


def test_each_line_is_a_turn_that_follows_the_one_before():
    ended, said = chat(["Hello Ann.", "Ann."], "I am Ann.", "", "Who am I?", arguments=["--system", "Be brief."])
    assert (ended.exit_code, ended.stdout) == (0, "Hello Ann.\nAnn.\n")
    assert said == [["Be brief.", "I am Ann."], ["Be brief.", "I am Ann.", "Hello Ann.", "Who am I?"]]


def test_undo_takes_back_one_turn_after_the_other():
    ended, said = chat(["1", "2", "3"], "a", "b", "/undo", "/undo", "/undo", "c")
    assert said == [["a"], ["a", "1", "b"], ["c"]]
    told = [line for line in ended.stderr.splitlines() if "undo" in line or "taken" in line]
    assert told == ["taken back: b", "taken back: a", "there is nothing to undo"]


def test_a_fork_leaves_the_conversation_as_it_is():
    ended, said = chat(["1", "2", "3"], "a", "/fork other", "b", "/fork chat", "/fork other", "c")
    assert said == [["a"], ["a", "1", "b"], ["a", "1", "b", "2", "c"]]
    assert "from here on this is the conversation 'other'" in ended.stderr
    assert ended.stderr.count("already: another name would be right") == 2


@pytest.mark.parametrize("line", ["/nothing", "/undo now", "/fork", "/quit x"])
def test_what_is_no_command_is_said_and_not_sent(line: str):
    ended, said = chat([], line)
    assert said == []
    assert f"{line!r} is no command: /undo, /fork NAME, /draw, /help, /quit are" in ended.stderr


def test_a_turn_that_fails_leaves_the_rest(here: Path):
    ended, said = chat([" ", "Fine."], "a", "b", arguments=["--set", "parse_retries=0"])
    assert ended.stdout == "Fine.\n"
    assert "fsm-agent: unparseable: the answer is empty" in ended.stderr
    assert said[-1] == ["b"]
    assert ended.exit_code == 1


def test_a_store_keeps_it_for_the_next_time(here: Path):
    store = ["friend", "--store", "chats.db"]
    first, _ = chat(["Hello Ann."], "I am Ann.", arguments=store)
    assert "to continue: fsm-agent" in first.stderr
    _, said = chat(["Ann."], "Who am I?", arguments=store)
    assert said == [["I am Ann.", "Hello Ann.", "Who am I?"]]
    _, said = chat(["Hi."], "Who am I?", arguments=["other", *store[1:]])
    assert said == [["Who am I?"]]


@pytest.mark.parametrize(
    ("lines", "arguments", "told"),
    [
        (["a", "/fork other", "b"], [], "chat --store chats.db other"),
        (["a", "/fork other", "b"], ["first"], "chat other --store chats.db"),
        (["a", "/fork other"], ["first"], "chat first --store chats.db"),
        (["a", "/undo"], [], "chat --store chats.db"),
        (["a", "/undo", "b"], [], "chat --store chats.db"),
    ],
)
def test_the_command_to_continue_is_about_the_conversation_that_was_left(
    lines: list[str], arguments: list[str], told: str, here: Path, monkeypatch: pytest.MonkeyPatch
):
    words = [*arguments, "--store", "chats.db"]
    monkeypatch.setattr(sys, "argv", ["fsm-agent", "chat", *words])
    ended, _ = chat(["one", "two"], *lines, arguments=words)
    assert ended.stderr.endswith(f"to continue: fsm-agent {told}\n")
    is_kept = not lines[-1].startswith("/")
    assert ("no turn came after the last /undo or /fork, so it is not kept" in ended.stderr) is not is_kept


def test_a_turn_that_waits_says_how_it_is_answered(here: Path):
    options = ["my files", "--store", "chats.db", "--function", "chat_tools:remove"]
    ended, _ = chat([ASKS], "Remove x.", "more", arguments=options)
    assert ended.exit_code == 3
    [command] = [line.partition("answer with ")[2] for line in ended.stderr.splitlines() if "runs answer" in line]
    run = shlex.split(command)[3]
    assert run.startswith("my files-")
    assert command == f"fsm-agent runs answer '{run}' --store chats.db ask:1.0 --approve"
    answered = CliRunner().invoke(app, shlex.split(command)[1:], prog_name="fsm-agent")
    assert answered.exit_code == 0, answered.stderr


@posix
def test_ctrl_c_leaves_a_turn_out_and_the_chat_goes_on():
    first = events({"choices": [{"index": 0, "delta": {"role": "assistant", "content": "The first"}}]}, done=False)
    whole = events({"choices": [{"index": 0, "delta": {"content": "Fine."}, "finish_reason": "stop"}]})
    with (
        FaultServer([SSE_HEAD + chunk(first), STALL], [SSE_HEAD + chunk(whole)]) as server,
        Terminal("chat", *MODEL, "--base-url", server.base_url) as terminal,
    ):
        terminal.read_until("> ")
        terminal.type("a\n")
        terminal.read_until("The first")
        terminal.interrupt()
        terminal.read_until("interrupted: this turn is left out")
        terminal.read_until("> ")
        terminal.type("/undo\n")
        terminal.read_until("there is nothing to undo")
        terminal.interrupt()
        terminal.read_until()
        assert terminal.process.wait(LIMIT_S) == 130
    assert "Traceback" not in terminal.seen


@posix
def test_what_is_typed_after_a_question_answers_it_and_ctrl_c_leaves_it():
    with (
        StubServer([ASKS, "It is there.", ASKS, "It is gone.", ASKS, "Hi there."]) as stub,
        Terminal("chat", *MODEL, "--base-url", stub.base_url, "--function", "chat_tools:remove") as terminal,
    ):

        def ask(typed: str) -> None:
            terminal.read_until("> ")
            terminal.type(typed)
            terminal.read_until("May the model call remove(path='x')? [y/N]: ")

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
        terminal.read_until("interrupted: what was called stays in the conversation")
        terminal.read_until("> ")
        terminal.type("y\n")  # the next line is a turn
        terminal.read_until("Hi there.")
        assert stub.requests[-1]["messages"][-1]["content"] == "y"
        terminal.type("\x04")
        terminal.read_until()
        assert terminal.process.wait(LIMIT_S) == 0


@posix
def test_a_signal_ends_the_chat_and_not_only_the_turn(here: Path):
    (here / "chat_tools.py").write_text("import os, signal\ndef stop() -> None: os.kill(os.getpid(), signal.SIGTERM)")
    call = {"id": "c1", "type": "function", "function": {"name": "stop", "arguments": "{}"}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        ended, said = chat([asks, "Bye."], "a", "b", arguments=["--function", "chat_tools:stop", "--store", "runs.db"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.exit_code == 143
    assert "to continue: fsm-agent" in ended.stderr
    assert ended.stderr.endswith("fsm-agent: ended by SIGTERM\n")
    assert all("b" not in request for request in said)

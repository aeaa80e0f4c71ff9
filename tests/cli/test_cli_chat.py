"""Is a conversation at the terminal one, with its commands, and is it kept?"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import MODEL, lines_of, ran

from fsm_agent.testing import Script, function_call

TOOLS = """
import os, signal
from fsm_agent import function

@function(needs_approval=True)
def remove(path: str) -> str:
    "Remove a file."
    return f"removed {path}"

def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.fixture(autouse=True)
def _tools(here: Path) -> None:
    (here / "chat_tools.py").write_text(TOOLS)


def chat(*lines: str, words: tuple[str, ...] = (), code: int = 0) -> Any:
    return ran("chat", *MODEL, *words, input="\n".join(lines), code=code)


def said(script: Script) -> list[list[str]]:
    return [[message.text for message in request.messages] for request in script.requests]


def test_each_line_is_a_turn_that_follows_the_one_before(model: Callable[..., Script]):
    script = model("Hello Ann.", "Ann.")
    ended = chat("I am Ann.", "", "Who am I?", words=("--system", "Be brief."))
    assert ended.stdout == "Hello Ann.\nAnn.\n"
    assert said(script) == [["Be brief.", "I am Ann."], ["Be brief.", "I am Ann.", "Hello Ann.", "Who am I?"]]


def test_undo_leaves_the_turns_before(model: Callable[..., Script]):
    script = model(*"123")
    chat("a", "b", "/undo", "/undo", "/undo", "c")
    assert said(script) == [["a"], ["a", "1", "b"], ["c"]]


def test_help_tells_each_command_and_draw_shows_the_last_turn(model: Callable[..., Script]):
    model("Hello.")
    ended = chat("/help", "/draw", "a", "/draw")
    for command in ("/undo", "/draw", "/quit", "/help"):
        assert command in ended.stderr
    before, _, after = ended.stdout.partition("Hello.\n")
    assert (before, "Completed" in after) == ("", True)


def test_quit_ends_it(model: Callable[..., Script]):
    script = model("1")
    chat("a", "/quit", "c")
    assert len(script.requests) == 1


@pytest.mark.parametrize("line", ["/nothing", "/undo now"])
def test_what_is_no_command_is_said_and_not_sent(line: str, model: Callable[..., Script]):
    model()
    assert repr(line) in chat(line).stderr


def test_a_turn_that_fails_leaves_the_rest(model: Callable[..., Script]):
    script = model(" ", "Fine.")
    ended = chat("a", "b", words=("--set", "parse_retries=0"), code=1)
    assert (ended.stdout, said(script)[-1]) == ("Fine.\n", ["b"])
    assert "unparseable" in ended.stderr


def test_a_store_keeps_it_for_the_next_time(model: Callable[..., Script], monkeypatch: pytest.MonkeyPatch):
    store = ("friend", "--store", "chats.db")
    monkeypatch.setattr(sys, "argv", ["fsm-agent", "chat", *store])
    script = model("Hello Ann.", "Ann.", "Hi.")
    assert chat("I am Ann.", words=store).stderr.endswith("fsm-agent chat friend --store chats.db\n")
    chat("Who am I?", words=store)
    chat("Who am I?", words=("new", *store[1:]))
    assert said(script)[1:] == [["I am Ann.", "Hello Ann.", "Who am I?"], ["Who am I?"]]


def test_a_bug_in_a_later_turn_is_the_last_line_of_json(model: Callable[..., Script]):
    model("One.", KeyError("x"))
    assert [line["type"] for line in lines_of(chat("a", "b", words=("--json",), code=1))][-1] == "failure"


def test_who_names_an_object_as_conversation_is_told_what_talks_with_it(model: Callable[..., Script]):
    model("Hi.")
    assert "fsm-agent serve shop:clerk" in chat("hello", words=("shop:clerk",)).stderr


def test_a_turn_that_waits_says_how_it_is_answered(model: Callable[..., Script]):
    model(function_call("remove", path="x"))
    words = ("my files", "--store", "chats.db", "--function", "chat_tools:remove")
    told = chat("Remove x.", "more", words=words, code=3).stderr.splitlines()
    [command] = [line.partition("answer with ")[2] for line in told if "runs answer" in line]
    ran(*shlex.split(command)[1:])


def test_each_turn_has_its_result_as_json(model: Callable[..., Script]):
    model("One.", "Two.")
    told = lines_of(chat("a", "b", words=("--json",)))
    assert [line["output"] for line in told if line["type"] == "result"] == ["One.", "Two."]
    assert told[-1]["type"] == "result"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_a_signal_ends_the_chat_and_not_only_the_turn(model: Callable[..., Script]):
    script = model(function_call("stop"))
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        ended = chat("a", "b", words=("--function", "chat_tools:stop", "--store", "runs.db"), code=143)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "to continue: fsm-agent" in ended.stderr
    assert "SIGTERM" in ended.stderr.splitlines()[-1]
    assert len(script.requests) == 1

"""Where the output is a terminal: does a line tell where the call stands, and give way to all that stays?"""

from __future__ import annotations

import errno
import logging
import re
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CONTROLS, EVIL, MODEL, lines_of, ran
from support.terminal import screen_of

from fsm_agent.errors import AuthFailed, Overloaded
from fsm_agent.testing import Script, function_call

TOOLS = """
import sys
from fsm_agent import function

def count() -> int:
    "Count aloud."
    print("one")
    print("two, in pi", end="")
    print("eces")
    print("three", end="")
    return 3

def echo(text: str) -> str:
    "Echo."
    return text

@function(needs_approval=True)
def remove(path: str) -> str:
    "Remove a file."
    return f"removed {path}"
"""
COUNT = ("--function", "tools:count")
WARNS = logging.getLogger("fsm_agent.clients")


@pytest.fixture(autouse=True)
def _terminal(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "tools.py").write_text(TOOLS)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # which Rich believes of any stream


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda columns: monkeypatch.setenv("COLUMNS", str(columns))


def seen(written: str, columns: int = 160) -> str:
    """What is left on a terminal that this was written to."""
    return screen_of(written.replace("\n", "\r\n"), columns)


def ask(*words: str, **options: Any) -> Any:
    return ran("ask", "?", *MODEL, *words, **options)


@pytest.mark.parametrize("columns", [3, 4, 7, 20, 80])
def test_the_line_is_one_row_and_leaves_nothing(
    columns: int, wide: Callable[[int], None], model: Callable[..., Script]
):
    wide(columns)
    model(function_call("count"), "It has counted.")
    ended = ask(*COUNT)
    assert ended.stderr.count("\x1b[?25l") >= 1, "there was a line"
    assert "".join(seen(ended.stderr, columns).split()) == "count()onetwo,inpiecesthreecount→3"
    assert ended.stdout == "It has counted.\n"


def test_the_line_tells_state_round_and_tokens(model: Callable[..., Script]):
    model(function_call("count"), "It has counted.")
    told = ask(*COUNT).stderr
    for standing in ("Seeded · round 0 · 0 tokens", "Calling · round 1 · "):
        assert standing in told
    assert "functions_asked" not in told, "the line says it"


@pytest.mark.parametrize("text", ["x" * 400, "x" * 2_000, "x" + " " * 2_000 + "y", "x\n" * 300])
def test_what_is_said_of_functions_is_one_bounded_line(
    text: str, model: Callable[..., Script], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TTY_COMPATIBLE", "0")
    model(function_call("echo", text=text), "Done.")
    told = ask("--function", "tools:echo").stderr.splitlines()
    begun, result = [line for line in told if "Calling" not in line]
    for line, lead in ((begun, "echo(text='x"), (result, "echo → x")):
        assert line.startswith(lead)
        assert line.endswith("…")
        assert len(line) <= len("echo → ") + 300


def test_without_a_call_there_is_no_line():
    for words in (["models"], ["providers"]):
        assert ran(*words).stderr == ""


def test_what_went_wrong_stays_and_a_failure_is_told_once(model: Callable[..., Script]):
    model(Overloaded("so busy", retry_after_s=0), "Hi.")
    assert "Backoff (model_failed: so busy)" in seen(ask().stderr)
    model(AuthFailed("no such key"))
    assert seen(ask(code=1).stderr).count("no such key") == 1


def test_a_warning_of_the_library_stands_above_the_line_and_is_plain(model: Callable[..., Script]):
    def warned(_: object) -> str:
        WARNS.warning("it ignores %s", EVIL)
        return "Hi."

    model(warned)
    ended = ask()
    assert seen(ended.stderr) == "it ignores a[31mred]0;title2Jbc"
    assert not CONTROLS.search(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", ended.stderr).replace("\r", ""))
    model(warned)
    assert ask("--quiet").stderr == ""
    assert not logging.getLogger("fsm_agent").handlers


def test_a_warning_that_cannot_be_written_is_no_error_of_a_run(
    model: Callable[..., Script], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("TTY_COMPATIBLE")

    def full(_: str) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    def warned(_: object) -> str:
        with monkeypatch.context() as disk:
            disk.setattr(sys.stderr, "write", full)
            WARNS.warning("it takes long")
        return "Hi."

    model(warned)
    assert ask().stdout == "Hi.\n"


@pytest.mark.parametrize("columns", [20, 160])
def test_what_a_person_may_copy_stays_in_one_line_and_the_rest_is_broken_between_words(
    columns: int, wide: Callable[[int], None], model: Callable[..., Script], monkeypatch: pytest.MonkeyPatch
):
    wide(columns)
    words = ["?", *MODEL, "--function", "tools:remove", "--store", "runs.db"]
    monkeypatch.setattr("sys.argv", ["fsm-agent", "ask", *words])
    model(function_call("remove", path="a path of several words"))
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", ran("ask", *words, code=3).stderr).splitlines()
    commands = [line[line.index("fsm-agent runs") :] for line in lines if "fsm-agent runs" in line]
    assert len(commands) == 2
    for command in commands:
        shlex.split(command)
        assert "--store runs.db" in command
    assert all(len(line) <= columns for line in lines if "fsm-agent runs" not in line)
    shown = ran("models").stdout.splitlines()
    assert len([line for line in shown if line.startswith("  hf download ")]) == 3
    assert max(len(line) for line in shown if "hf" not in line and "local:" not in line) <= columns


def test_lines_of_json_stand_alone_at_a_terminal_too(model: Callable[..., Script]):
    model("Hi.")
    assert lines_of(ask("--json"))[-1]["text"] == "Hi."


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_ctrl_c_leaves_nothing_of_the_line(model: Callable[..., Script]):
    model(lambda _: signal.raise_signal(signal.SIGINT))
    told = ask(code=130).stderr
    assert told.count("\x1b[?25l") == told.count("\x1b[?25h") > 0
    assert seen(told) == "fsm-agent: interrupted"


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize(
    "words",
    [
        ("runs", "list", "--store", "runs.db"),
        ("runs", "diff", "an_order_of_" + "9" * 22, "B" * 34, "--store", "runs.db"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_no_name_is_broken(
    words: tuple[str, ...], columns: int, wide: Callable[[int], None], model: Callable[..., Script]
):
    names = ("an_order_of_" + "9" * 22, "B" * 34)
    for n, name in enumerate(names):
        model(f"Done: {n}.")
        ask("--store", "runs.db", "--run-id", name)
    wide(columns)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", ran(*words).stdout).split()
    for name in names:
        assert any(name in word for word in shown), f"{name} is broken"

"""Is what reaches the terminal plain, and does it tell where the call stands?"""

from __future__ import annotations

import io
import logging
import os
import re
import signal
import sys
import unicodedata

import pytest
import typer
from rich.console import Console

from fsm_agent._internal.plain_text import plain
from fsm_agent.agents import Agent
from fsm_agent.cli.terminal import (
    MAX_SHOWN,
    Screen,
    Standing,
    folded,
    one_line,
    shown_call,
    shown_function,
    shown_step,
    whole_call,
)
from fsm_agent.errors import Overloaded
from fsm_agent.messages import FunctionCall, FunctionEnded, FunctionStarted, Stepped, TextDelta, Usage
from fsm_agent.testing import Script, call

REORDERING = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
EVIL = "a\x1b[31mred\x1b]0;title\x07\x9b2J\r\x08\x7f\u202eb\ud800\tc\nd"


def add(a: int, b: int) -> int:
    return a + b


class TestPlain:
    def test_no_control_character_is_left_but_lines_and_tabs(self):
        assert plain(EVIL) == "a[31mred]0;title2Jb\tc\nd"

    def test_what_people_write_stays(self):
        text = "Grüße, 世界 👩‍👩‍👧 [red]not markup[/red] :smile:"
        assert plain(text) == text

    def test_it_drops_the_controls_surrogates_tags_and_reordering_marks_of_unicode(self):
        every = "".join(map(chr, [*range(0x10000), *range(0xE0000, 0xE0100)]))  # no others have these categories
        hidden = {*every} - {*plain(every)}
        assert {c for c in hidden if unicodedata.category(c) in ("Cc", "Cs")} == {
            c for c in every if unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\n"
        }
        others = {c for c in hidden if unicodedata.category(c) not in ("Cc", "Cs")}
        reordering = {c for c in every if unicodedata.bidirectional(c) in REORDERING} | {*"\u061c\u200e\u200f"}
        assert others == reordering | {*map(chr, range(0xE0000, 0xE0080))}

    def test_one_line_is_bounded(self):
        assert one_line("a\n  b\x1b") == "a b"
        assert one_line("x" * 1000) == "x" * (MAX_SHOWN - 1) + "…"
        assert one_line("x" + " " * 1000 + "y").endswith("…")
        assert len(one_line("x" * MAX_SHOWN)) == MAX_SHOWN


class TestFolded:
    @pytest.mark.parametrize(
        ("text", "width", "lines"),
        [
            ("one two three", None, "> one two three"),
            ("one two three", 15, "> one two three"),
            ("one two three", 14, "> one two\n- three"),
            ("one 二二 three", 8, "> one\n- 二二\n- three"),
            ("a-word-too-long-for-it x", 8, "> a-word-too-long-for-it\n- x"),
            ("", 8, "> "),
        ],
    )
    def test_lines_are_broken_between_words(self, text, width, lines):
        assert folded(text, width, "> ", "- ") == lines


class TestShown:
    def test_a_call_as_python(self):
        assert shown_call(call("add", a=17, b="x")) == "add(a=17, b='x')"
        assert shown_call(call("now")) == "now()"
        assert shown_call(FunctionCall(name="now", arguments_json="")) == "now()"

    def test_a_call_whole_hides_nothing(self):
        path = "a  b" + "x" * 1000 + "\x1b[2J\u202e\n\u200b"
        shown = "a  b" + "x" * 1000 + r"\x1b[2J\u202e\n\u200b"
        assert whole_call(call("erase", path=path)) == f"erase(path='{shown}')"
        assert whole_call(FunctionCall(name="f", arguments_json='{"a\\nb": 1}')) == r"f('a\nb'=1)"

    def test_a_function(self):
        assert shown_function(FunctionStarted("1.0", "add", '{"a": 1}')) == "add(a=1)"
        assert shown_function(FunctionEnded("1.0", "add", "4\x1b2", False, 0.1)) == "add → 42"
        assert shown_function(FunctionEnded("1.0", "add", "ValueError", True, 0.1)) == "add raised ValueError"

    def test_a_step(self):
        step = Stepped("Calling", "parse_failed", "ParseException", "model:0", 1.0, detail="no\nJSON\x1b")
        assert shown_step(step) == "Calling → ParseException (parse_failed: no JSON)"


class TestStanding:
    def test_state_rounds_and_tokens(self):
        standing, seen = Standing(), []

        def sink(event):
            standing.take(event)
            seen.append((standing.state, standing.rounds, standing.tokens))

        script = Script(call("add", a=1, b=2), [call("nope"), call("add", a=2, b=2)], "The answer is 3.")
        agent = Agent(script, functions=[add])
        agent.run(agent.seed("1 + 2?"), sink)
        assert seen[-1] == ("Completed", 2, 0)
        assert ("ToolInterrupt", 0, 0) in seen
        assert ("ToolInterrupt", 1, 0) in seen
        assert max(tokens for _, _, tokens in seen) == 4  # the pieces of the text, before its usage is known

    def test_reported_tokens_replace_the_pieces(self):
        standing = Standing()
        standing.take(TextDelta("a"))
        standing.take(TextDelta("b"))
        assert standing.tokens == 2
        standing.take(
            Stepped("Calling", "answered", "Completed", "", 1.0, usage=Usage(input_tokens=40, output_tokens=2))
        )
        assert standing.tokens == 42
        assert re.fullmatch(r"Completed · round 0 · 42 tokens · \d+\.\d s", str(standing))

    def test_a_new_call_begins_at_round_0(self):
        standing = Standing()
        standing.take(Stepped("ToolInterrupt", "returned", "Calling", "", 1.0))
        standing.take(Stepped("Seeded", "begun", "Calling", "", 1.0))
        assert standing.rounds == 0


@pytest.fixture
def streams():
    return io.StringIO(), io.StringIO()


class Interrupting(io.StringIO):
    """A stream beside which Ctrl-C is typed, once, when a text is written."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text: str | None = text

    def write(self, text: str) -> int:
        count = super().write(text)
        if self._text is not None and self._text in text:
            self._text = None
            signal.raise_signal(signal.SIGINT)
        return count


def screen_on(streams, *, out_is_terminal=False, err_is_terminal=False, **options):
    screen = Screen(**options)
    for name, stream, is_terminal in zip(("out", "err"), streams, (out_is_terminal, err_is_terminal), strict=True):
        console = Console(file=stream, force_terminal=is_terminal, markup=False, emoji=False, highlight=False, width=80)
        setattr(screen, name, console)
    return screen


class TestScreen:
    @pytest.mark.parametrize("columns", [*range(1, 9), 20, 80])
    def test_the_live_line_is_one_where_there_is_room_for_it(self, streams, columns):
        with screen_on(streams) as screen:
            screen.err.width = columns
            drawn = screen.err.render_lines(screen._line(), screen.err.options.update(width=columns))
        assert len(drawn) == (2 if columns < 3 else 1), "what is above it would be erased with it"

    def test_text_goes_out_plain_and_as_it_is(self, streams):
        with screen_on(streams) as screen:
            screen.write("[bold]x[/bold] :smile: " + EVIL, "red")
            screen.write("\ttab " + "w" * 200)
            screen.line("end")
        assert streams[0].getvalue() == f"[bold]x[/bold] :smile: {plain(EVIL)}\ttab {'w' * 200}\nend\n"
        assert streams[1].getvalue() == ""

    def test_steps_are_lines_where_there_is_no_terminal(self, streams):
        script = Script(call("add", a=1, b=2), "3")
        with screen_on(streams) as screen:
            agent = Agent(script, functions=[add])
            agent.run(agent.seed("1 + 2?"), screen.take)
        assert streams[1].getvalue().splitlines() == [
            "Seeded → Calling (begun)",
            "Calling → ToolInterrupt (functions_asked)",
            "add(a=1, b=2)",
            "add → 3",
            "ToolInterrupt → Calling (returned)",
            "Calling → Completed (answered)",
        ]

    def test_on_a_terminal_a_live_line_tells_the_state(self, streams):
        script = Script(Overloaded("busy"), call("add", a=1, b=2), "3")
        with screen_on(streams, err_is_terminal=True) as screen:
            screen.resume()
            agent = Agent(script, functions=[add])
            agent.run(agent.seed("1 + 2?"), screen.take)
            assert "Completed · round 1" in str(screen.standing)
        said = streams[1].getvalue()
        assert "Seeded · round 0 · 0 tokens" in said
        assert "add(a=1, b=2)" in said
        assert "ToolInterrupt (functions_asked)" not in said
        assert "Backoff (model_failed: busy)" in said  # what went wrong stays on the screen
        assert said.rstrip().endswith("\x1b[2K")  # the line is gone

    def test_the_live_line_does_not_stand_in_a_line_that_is_not_ended(self, streams):
        with screen_on(streams, out_is_terminal=True, err_is_terminal=True) as screen:
            screen.write("The answ")
            written = streams[1].getvalue()
            screen.take(TextDelta("er"))
            screen.resume()
            assert streams[1].getvalue() == written
            screen.end_line()
            screen.resume()
            assert streams[1].getvalue() != written

    @pytest.mark.parametrize("written", ["\x1b[?25l", "Seeded", "\x1b[?25h"], ids=["begun", "drawn", "removed"])
    def test_the_live_line_is_removed_whenever_ctrl_c_comes(self, streams, written):
        screen = screen_on((streams[0], Interrupting(written)), err_is_terminal=True)

        def show():
            with screen:
                screen.resume()
                screen.pause()

        with pytest.raises(KeyboardInterrupt):
            show()
        said = screen.err.file.getvalue()
        assert (said.count("\x1b[?25l"), said.count("\x1b[?25h")) == (1, 1)  # the cursor, hidden and shown
        assert said.endswith("\x1b[2K")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_a_warning_of_the_library_makes_the_live_line_give_way_as_well(self, streams):
        with screen_on(streams, err_is_terminal=True) as screen:
            screen.resume()
            logging.getLogger("fsm_agent.clients").warning("the model does not take \x1b[2Jit")
            screen.pause()
        assert re.search(r"\x1b\[2K\x1b\[2mthe model does not take \[2Jit\x1b\[0m\n", streams[1].getvalue())
        assert not logging.getLogger("fsm_agent").handlers

    def test_on_a_terminal_the_step_to_a_failure_is_left_to_its_error(self, streams):
        with screen_on(streams, err_is_terminal=True) as screen:
            screen.take(Stepped("Calling", "model_failed", "Failed", "model:0", 1.0, detail="busy"))
        assert "busy" not in streams[1].getvalue()

    def test_a_line_that_a_function_prints_in_pieces_is_ended_once(self, streams, monkeypatch):
        monkeypatch.setattr(sys, "stderr", streams[1])
        with screen_on(streams, err_is_terminal=True) as screen:
            screen.resume()
            print("one ", end="", file=sys.stderr, flush=True)
            print("line", file=sys.stderr)
            screen.tell("and a remark")
        assert streams[1].getvalue().endswith("one line\n\x1b[2mand a remark\x1b[0m\n")

    def test_the_line_of_a_question_that_ctrl_d_leaves_open_is_ended(self, streams, monkeypatch):
        with open(os.devnull) as nothing, screen_on(streams) as screen:
            monkeypatch.setattr(sys, "stdin", nothing)
            with pytest.raises(typer.Abort):
                screen.ask("Is it so? ")
        assert streams[1].getvalue() == "Is it so? \n"

    def test_prose_is_broken_between_words_and_a_command_stays_whole(self, streams):
        with screen_on(streams, out_is_terminal=True, err_is_terminal=True) as screen:
            screen.out.width = screen.err.width = 20
            screen.prose("    the model is not here at all", hang="  ")
            screen.prose("to continue: fsm-agent runs resume tidy")
            screen.tell("nothing is wrong with any of it")
        assert streams[0].getvalue().splitlines() == [
            "    the model is not",
            "  here at all",
            "to continue: fsm-agent runs resume tidy",
        ]
        assert "\x1b[2mnothing is wrong\x1b[0m\n\x1b[2mwith any of it\x1b[0m\n" in streams[1].getvalue()

    def test_a_remark_is_written_once_whenever_ctrl_c_comes(self, streams):
        screen = screen_on((streams[0], Interrupting("it waits")), err_is_terminal=True)
        with pytest.raises(KeyboardInterrupt):
            screen.tell("it waits")
        screen.tell("interrupted")
        assert screen.err.file.getvalue() == "\x1b[2mit waits\x1b[0m\n\x1b[2minterrupted\x1b[0m\n"

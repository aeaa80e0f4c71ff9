"""The output of the command on a terminal.

The answer goes to stdout; remarks on it, and the line that shows the state of a call, to stderr.  Text of models,
functions and files is untrusted: it is never interpreted as markup, and its control characters are removed.
"""

from __future__ import annotations

import logging
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib import import_module
from typing import IO, Any, Self

import typer
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from fsm_agent._internal.plain_text import plain
from fsm_agent.call.record import State
from fsm_agent.clients.local.model import SMOLLM2
from fsm_agent.clients.local.server import local_server
from fsm_agent.messages.events import (
    ArgumentsDelta,
    Event,
    FunctionEnded,
    FunctionStarted,
    Inside,
    ReasoningDelta,
    Stepped,
    TextDelta,
)
from fsm_agent.messages.message import FunctionCall
from fsm_agent.runtime.abort import Abort, abort_in_force

MAX_SHOWN = 300  # characters of arguments, results and reasons
REFRESHES_PER_S = 8
MAX_ANSWER_BYTES = 4096  # of a line at a terminal, as Linux has it
BAR_WIDTH = 40
UNBROKEN = 100_000  # columns where lines are not to be broken
TABLE_WIDTH = 70  # columns, at least; on a narrower terminal the rows of a table are paragraphs
_LOG = logging.getLogger("fsm_agent")
_COMMAND = re.compile(r"\b(fsm-agent|pip|hf) ")
_ROUND_TRIGGERS = ("functions_asked", "returned", "denied")  # triggers that lead back to the model


def one_line(text: str, at_most: int = MAX_SHOWN) -> str:
    """Return ``text`` as one plain line of bounded length."""
    line = " ".join(plain(text[: 2 * at_most]).split())
    return line if len(line) <= at_most and len(text) <= 2 * at_most else line[: at_most - 1] + "…"


def folded(text: str, width: int | None, indent: str = "", hang: str = "") -> str:
    """Return one line of text as lines of at most ``width`` columns, broken between words; no word is broken.

    Args:
        text: A line.
        width: Columns; None: the line stays whole.
        indent: Stands before the first line.
        hang: Stands before the others.
    """
    indent, text = indent + text[: len(text) - len(text.lstrip(" "))], text.lstrip(" ")
    if width is None or len(indent) + cell_len(text) <= width:
        return indent + text
    lines = [indent]
    for word in text.split(" "):
        is_first = lines[-1] in (indent, hang)
        if not is_first and cell_len(lines[-1]) + 1 + cell_len(word) > width:
            lines.append(hang)
            is_first = True
        lines[-1] += word if is_first else f" {word}"
    return "\n".join(lines)


def shown_call(call: FunctionCall) -> str:
    """Return a function call as one plain line of bounded length."""
    return one_line(_format_call(call))


def whole_call(call: FunctionCall) -> str:
    """Return a function call as plain text, with every character of its arguments."""
    return plain(_format_call(call))


def _format_call(call: FunctionCall) -> str:
    """Return a function call as Python writes it; as the model did, when its arguments are not a JSON object."""
    try:
        arguments = [f"{key if key.isidentifier() else repr(key)}={value!r}" for key, value in call.arguments.items()]
    except ValueError:  # a number of more digits than Python writes out
        arguments = []
    is_empty = call.arguments_json.strip() in ("", "{}")
    return f"{call.name}({', '.join(arguments) or ('' if is_empty else call.arguments_json)})"


def shown_function(event: FunctionStarted | FunctionEnded) -> str:
    """Return the event of a function call as text."""
    if isinstance(event, FunctionStarted):
        return shown_call(FunctionCall(name=event.name, arguments_json=event.arguments_json))
    return f"{event.name} {'raised' if event.is_error else '→'} {one_line(event.text)}"


def shown_step(step: Stepped) -> str:
    """Return a step as its states and its reason."""
    why = f": {one_line(step.detail)}" if step.detail else ""
    return f"{step.source} → {step.to} ({step.trigger}{why})"


class Standing:
    """The progress of the calls of one command, as their events show it."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self.state: str = State.SEEDED
        self.rounds = 0
        self._reported = 0
        self._pieces = 0  # of the incoming reply: nearly its tokens

    @property
    def tokens(self) -> int:
        """Tokens so far, in and out; of an incoming reply, an estimate."""
        return self._reported + self._pieces

    def take(self, event: Event) -> None:
        """Update the progress from an event."""
        match event:
            case TextDelta() | ReasoningDelta() | ArgumentsDelta():
                self._pieces += 1
            case Stepped():
                self.state = event.to
                self._reported += event.usage.total_tokens if event.usage else 0
                self._pieces = 0
                if event.trigger == "begun":
                    self.rounds = 0
                elif event.trigger in _ROUND_TRIGGERS and event.to == State.CALLING:
                    self.rounds += 1

    def __str__(self) -> str:
        elapsed_s = time.monotonic() - self._began_s
        tokens = "1 token" if self.tokens == 1 else f"{self.tokens:,} tokens"
        return f"{self.state} · round {self.rounds} · {tokens} · {elapsed_s:.1f} s"


class Screen:
    """Both streams of the command, and the live line that gives way to all other output.

    Args:
        quiet: Only results and errors are written.
        steps: Whether steps and functions are written on stderr; on a terminal, whose live line shows the state, only
            the steps that went wrong.
    """

    def __init__(self, *, quiet: bool = False, steps: bool = True) -> None:
        self.out, self.err = _console(sys.stdout), _console(sys.stderr)
        self.quiet = quiet
        self._steps = steps
        self.standing = Standing()
        self._spinner = Spinner("dots")
        self._live: Live | None = None
        self._fetched: tuple[int, int] | None = None  # bytes of the model so far, and in total
        self._is_inside_line = False
        self._is_asking = False
        self._warnings = _Warnings(self)
        self.lock = threading.RLock()  # functions print in threads of their own
        self._printed: _Printed | None = None

    @property
    def columns(self) -> int | None:
        """Columns of the terminal that is stdout; None: it is none."""
        return self.out.width if self.out.is_terminal else None

    def __enter__(self) -> Self:
        if not _LOG.handlers:
            _LOG.addHandler(self._warnings)
        if self.err.is_terminal and not self.quiet:
            self._printed = sys.stderr = _Printed(self, sys.stderr)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _LOG.removeHandler(self._warnings)
        self.pause()
        if self._printed is not None:
            sys.stderr = self._printed.stream
        self._end_question()
        if kind is not BrokenPipeError:
            self.end_line()

    def pause(self) -> None:
        """Remove the live line, and end the line that a function has printed the beginning of."""
        with self.lock:
            self.remove_line()
            if self._printed is not None:
                self._printed.end_line()

    def remove_line(self) -> None:
        """Remove the live line."""
        if self._live is None:
            return
        with _defer_interrupts():
            self._live.stop()
            self._live = None

    def print_above(self, lines: str) -> bool:
        """Write whole lines above the live line; return False if there is none."""
        if self._live is not None:
            _print(self.err, Text(lines), end="")
        return self._live is not None

    def resume(self) -> None:
        """Restore the live line, if there is one and its place is free."""
        is_taken = self._is_inside_line and self.out.is_terminal
        if self._live is not None or self.quiet or is_taken or not self.err.is_terminal:
            return
        with self.lock, _defer_interrupts():
            if self._printed is not None:
                self._printed.end_line()
            self._live = Live(
                get_renderable=self._line,
                console=self.err,
                transient=True,
                refresh_per_second=REFRESHES_PER_S,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start(refresh=True)

    def _line(self) -> RenderableType:
        if self._fetched is None:
            standing = Text(str(self.standing), "dim")
            standing.truncate(max(1, self.err.width - 5), overflow="ellipsis")  # between the spinner and a ^C
            self._spinner.update(text=standing)
            return self._spinner
        done_bytes, total_bytes = self._fetched
        line = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=total_bytes, completed=done_bytes, width=max(0, min(BAR_WIDTH, self.err.width - 36)))
        line.add_row(Text("fetching the model"), bar, Text(f"{done_bytes / 1e6:.0f} of {total_bytes / 1e6:.0f} MB"))
        return line

    def write(self, text: str, style: str = "") -> None:
        """Write the next piece of a line on stdout."""
        text = plain(text)
        if not text:
            return
        if self.out.is_terminal:
            self.pause()
        self._is_inside_line = not text.endswith("\n")  # before it is written: then comes a Ctrl-C, perhaps
        if style and self.out.is_terminal:
            _print(self.out, Text(text, style), end="")
        else:
            self.out.file.write(text)
        self.out.file.flush()

    def end_line(self) -> None:
        """End the line that was begun on stdout, if one was."""
        if self._is_inside_line:
            self.write("\n")

    def line(self, text: str = "", style: str = "") -> None:
        """Write a whole line on stdout."""
        is_live = self._live is not None
        self.end_line()
        self.write(f"{text}\n", style)
        if is_live:
            self.resume()

    def prose(
        self, text: str, style: str = "", *, indent: str = "", hang: str = "", at_most: int | None = None
    ) -> None:
        """Write a line on stdout that is broken between words where a terminal ends, and after `at_most` columns.

        One with a command stays whole, to be copied.
        """
        widths = [width for width in (self.columns, at_most) if width is not None]
        width = None if _COMMAND.search(text) else min(widths, default=None)
        self.line(folded(text, width, indent, hang), style)

    def ask(self, question: str) -> str:
        """Return the line that the person at the terminal answers, in any thread.

        It is read past `sys.stdin`: a thread that waits in there would have the interpreter abort after Ctrl-C.  What
        was typed before the question is discarded: it answers something else.

        Raises:
            typer.Abort: The person ends the input, with Ctrl-D.
            Aborted: The answer is no longer wanted, as after Ctrl-C; what is typed next is for others.
        """
        self.pause()
        _discard_input()
        self.err.file.write(question)
        self.err.file.flush()
        self._is_asking = True
        if (abort := abort_in_force()) is not None:
            _wait_for_input(abort)
        answer = os.read(sys.stdin.fileno(), MAX_ANSWER_BYTES)
        if not answer:
            raise typer.Abort
        self._is_asking = False
        return answer.decode(errors="replace")

    def _end_question(self) -> None:
        """End the line of an unanswered question."""
        if self._is_asking:
            self._is_asking = False
            self.err.file.write("\n")

    def show(self, picture: RenderableType, *, is_whole: bool = False) -> None:
        """Write a table or the like on stdout; its texts have to be plain already.

        Args:
            picture: The table.
            is_whole: Its lines are broken at terminals only; those of paragraphs have been, between words.
        """
        is_live = self._live is not None
        self.end_line()
        self.pause()
        out = _console(self.out.file, UNBROKEN) if is_whole and not self.out.is_terminal else self.out
        out.print(picture, soft_wrap=is_whole and isinstance(picture, Group))
        if is_live:
            self.resume()

    def tell(self, text: str, style: str = "dim") -> None:
        """Write a line on stderr, unless quiet."""
        if self.quiet:
            return
        is_live = self._live is not None
        if self.out.is_terminal:
            self.end_line()
        self.pause()
        self._end_question()
        _print(self.err, Text(_break_lines(plain(text), self.err), style))
        if is_live:
            self.resume()

    def take(self, event: Event) -> None:
        """Update the progress from an event, and write it; that of a call inside follows its path."""
        path = ""
        if isinstance(event, Inside):
            path, event = f"{one_line(event.path)}: ", event.event
        else:
            self.standing.take(event)
        if self._steps and isinstance(event, FunctionStarted | FunctionEnded):
            self.tell(path + shown_function(event))
        elif self._steps and isinstance(event, Stepped):
            went_wrong = event.detail and event.to != State.FAILED  # an error reports that end
            if went_wrong or not self.err.is_terminal:
                self.tell(path + shown_step(event))
        self.resume()

    def start_embedded(self, path: str) -> str:
        """Start the embedded model's server, after fetching the model if need be; return the model's name.

        Raises:
            ConfigError: The model or the engine is missing or unfit.
            ProviderError: The server could not be started.
        """
        self.standing.state = "starting the model"
        server = local_server(path or None, say=self.tell, progress=self._fetching)
        self._fetched = None
        self.standing.state = State.SEEDED
        return SMOLLM2.name if server.model == SMOLLM2.alias else server.model

    def _fetching(self, done_bytes: int, total_bytes: int) -> None:
        """Show how far a download is."""
        self._fetched = (done_bytes, total_bytes)


class _Printed:
    """The stream of what functions print, while there may be a live line: its lines stand above that, in order.

    Args:
        screen: Has the live line.
        stream: The one in whose place this is.
    """

    def __init__(self, screen: Screen, stream: Any) -> None:
        self.stream = stream
        self._screen = screen
        self._begun = ""  # a part of a line, which waits for the rest of it
        self._is_inside_line = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write a text; while there is a live line, an incomplete line is held back."""
        with self._screen.lock:
            lines, newline, rest = (self._begun + text).rpartition("\n")
            if self._screen.print_above(lines + newline):
                self._begun = rest
            elif text:  # a prompt of input(), perhaps, whose line a person ends
                self.stream.write(text)
                self._is_inside_line &= "\n" not in text
        return len(text)

    def flush(self) -> None:
        """Show everything; an incomplete line takes the place of the live line."""
        with self._screen.lock:
            if self._begun:
                self._screen.remove_line()
                self._show()
            self.stream.flush()

    def end_line(self) -> None:
        """End the line that was begun, if one was."""
        self._show()
        if self._is_inside_line:
            self._is_inside_line = False
            self.stream.write("\n")

    def _show(self) -> None:
        if self._begun:
            begun, self._begun = self._begun, ""
            self.stream.write(begun)
            self._is_inside_line = True


class _Warnings(logging.Handler):
    """Show warnings of the library as remarks, which may come while there is a live line."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Show a warning; steps are shown as events."""
        if record.funcName != "log_steps":
            self._screen.tell(self.format(record))


@contextmanager
def _defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block: a live line that is only partly drawn could not be removed.

    Raises:
        KeyboardInterrupt: There was one.
    """
    is_ours = threading.current_thread() is threading.main_thread()  # no other one is interrupted
    if not is_ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    interruptions: list[Any] = []
    signal.signal(signal.SIGINT, lambda *interruption: interruptions.append(interruption))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if interruptions:
            signal.default_int_handler(*interruptions[0])


def _discard_input() -> None:
    """Discard what was typed and not read yet."""
    with suppress(ImportError, OSError):  # on Windows; on what is no terminal
        termios: Any = import_module("termios")
        with suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _wait_for_input(abort: Abort) -> None:
    """Wait until something was typed.

    Raises:
        Aborted: The thread was left behind meanwhile.
    """
    if sys.platform == "win32":  # whose consoles `select` does not know
        return
    read, write = os.pipe()
    wake = partial(os.write, write, b".")
    abort.add(wake)
    try:
        select.select([sys.stdin, read], [], [])
        abort.check()
    finally:
        abort.discard(wake)
        os.close(read)
        os.close(write)


def error_line(text: Any) -> None:
    """Write an error on stderr."""
    console, lead = _console(sys.stderr), "fsm-agent: "
    message = Text(_break_lines(lead + plain(str(text)), console))
    message.stylize("bold red", 0, len(lead))
    _print(console, message)


def _print(console: Console, text: Text, end: str = "\n") -> None:
    """Print; on a terminal defer Ctrl-C, because rich would repeat the output of an interrupted print."""
    with _defer_interrupts() if console.is_terminal else nullcontext():
        console.print(text, end=end, soft_wrap=True)


def _break_lines(text: str, console: Console) -> str:
    """Return lines that are broken between words where a terminal ends, but for those with a command to be copied."""
    if not console.is_terminal:
        return text
    lines = text.split("\n")
    return "\n".join([line if _COMMAND.search(line) else folded(line, console.width) for line in lines])


def discard_output() -> None:
    """Discard all further output to stdout silently, because its reader is gone."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Console(Console):
    """A console that raises when its reader has left, as any other write does; Rich would end with status 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _console(stream: IO[str], width: int | None = None) -> Console:
    return _Console(file=stream, markup=False, emoji=False, highlight=False, width=width)

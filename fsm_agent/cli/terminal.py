"""The output of the command on a terminal.

Answers go to stdout.  Remarks and the live status line go to stderr.  Text from models, functions and files is
untrusted: it is never interpreted as markup, and its control characters are removed.
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
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout, suppress
from functools import partial
from importlib import import_module
from typing import IO, Any, Self

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from fsm_agent._internal.text import plain
from fsm_agent.call.record import State
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
from fsm_agent.runtime.log import traceback_text
from fsm_agent.runtime.portal import Abort, abort_in_force

MAX_SHOWN = 300  # characters of arguments, results and reasons
REFRESHES_PER_S = 8
MAX_ANSWER_BYTES = 4096  # Linux's limit for a line at a terminal
UNBROKEN = 100_000  # columns, so that lines are not broken
_LOG = logging.getLogger("fsm_agent")
_COMMAND = re.compile(r"\b(fsm-agent|pip|hf) ")
_ROUND_TRIGGERS = ("functions_asked", "returned", "denied")  # triggers that lead back to the model


def one_line(text: str, at_most: int = MAX_SHOWN) -> str:
    """Return ``text`` as one plain line of limited length."""
    line = " ".join(plain(text[: 2 * at_most]).split())
    return line if len(line) <= at_most and len(text) <= 2 * at_most else line[: at_most - 1] + "…"


def shown_call(call: FunctionCall) -> str:
    """Return a function call as one plain line of limited length."""
    return one_line(_format_call(call))


def whole_call(call: FunctionCall) -> str:
    """Return a function call as plain text, with all of its arguments."""
    return plain(_format_call(call))


def _format_call(call: FunctionCall) -> str:
    """Return a function call in Python's notation, or as the model wrote it if its arguments are not a JSON object."""
    try:
        arguments = [f"{key if key.isidentifier() else repr(key)}={value!r}" for key, value in call.arguments.items()]
    except ValueError:  # a number with more digits than Python prints
        arguments = []
    is_empty = call.arguments_json.strip() in ("", "{}")
    return f"{call.name}({', '.join(arguments) or ('' if is_empty else call.arguments_json)})"


def shown_function(event: FunctionStarted | FunctionEnded) -> str:
    """Return an event of a function call as text."""
    if isinstance(event, FunctionStarted):
        return shown_call(FunctionCall(name=event.name, arguments_json=event.arguments_json))
    return f"{event.name} {'raised' if event.is_error else '→'} {one_line(event.text)}"


def shown_step(step: Stepped) -> str:
    """Return a step as its states and its reason."""
    why = f": {one_line(step.detail)}" if step.detail else ""
    return f"{step.source} → {step.to} ({step.trigger}{why})"


class StatusLine:
    """The progress of the calls that one command makes."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self.state: str = State.SEEDED
        self.rounds = 0
        self._reported = 0
        self._pieces = 0  # of the incoming reply: about as many as its tokens

    def take(self, event: Event) -> None:
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
        elapsed_s, tokens = time.monotonic() - self._began_s, self._reported + self._pieces
        return f"{self.state} · round {self.rounds} · {tokens:,} token{'' if tokens == 1 else 's'} · {elapsed_s:.1f} s"


class Screen:
    """The command's stdout and stderr, and a live line.  All other output moves the live line down.

    Inside a ``with`` block, the output of functions and modules goes to stderr.

    Args:
        quiet: Write only results and errors.
        log_format: The format of the library's warnings.
    """

    def __init__(self, *, quiet: bool = False, log_format: str = "%(message)s") -> None:
        self.out, self.err = _console(sys.stdout), _console(sys.stderr)
        self.quiet = quiet
        self.status = StatusLine()
        self._log_format = log_format
        self._spinner = Spinner("dots")
        self._live: Live | None = None
        self._is_inside_line = False
        self._is_asking = False
        self._entered = ExitStack()
        self._lock = threading.RLock()  # approvers and hooks write from other threads

    def __enter__(self) -> Self:
        self._entered.enter_context(redirect_stdout(sys.stderr))
        if not _LOG.handlers:
            warnings = _Warnings(self)
            warnings.setFormatter(_Formatter(self._log_format))
            _LOG.addHandler(warnings)
            self._entered.callback(_LOG.removeHandler, warnings)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.pause()
        self._entered.close()
        self._end_question()
        if kind is not BrokenPipeError:
            self.end_line()

    def pause(self) -> None:
        """Remove the live line."""
        with self._lock, _defer_interrupts():
            if self._live is not None:
                sys.stdout.flush()  # the live line holds back unfinished lines that functions have printed
                sys.stderr.flush()
                self._live.stop()
                self._live = None

    def resume(self) -> None:
        """Restore the live line, if there is one and no other line is in progress."""
        with self._lock, _defer_interrupts():
            is_taken = self._is_asking or (self._is_inside_line and self.out.is_terminal)
            if self._live is not None or self.quiet or is_taken or not self.err.is_terminal:
                return
            self._live = Live(
                get_renderable=self._line,
                console=self.err,
                transient=True,
                refresh_per_second=REFRESHES_PER_S,
                redirect_stdout=_console(sys.stdout).is_terminal,  # piped output is not redirected
            )
            self._live.start(refresh=True)

    def _line(self) -> RenderableType:
        text = Text(str(self.status), "dim")
        text.truncate(max(1, self.err.width - 5), overflow="ellipsis")  # leaves room for the spinner and a ^C
        self._spinner.update(text=text)
        return self._spinner

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Hide the live line inside the block."""
        with self._lock:
            was_live = self._live is not None
            self.pause()
            yield
            if was_live:
                self.resume()

    def write(self, text: str, style: str = "") -> None:
        """Write the next piece of a line to stdout."""
        text = plain(text)
        if not text:
            return
        with self._lock:
            if self.out.is_terminal:
                self.pause()
            self._is_inside_line = not text.endswith("\n")  # set before writing, which Ctrl-C may interrupt
            if style and self.out.is_terminal:
                _print(self.out, Text(text, style), end="")
            else:
                self.out.file.write(text)
            self.out.file.flush()

    def end_line(self) -> None:
        """End an unfinished line on stdout."""
        if self._is_inside_line:
            self.write("\n")

    def line(self, text: str = "", style: str = "") -> None:
        """Write a whole line to stdout, unchanged."""
        with self._paused():
            self.end_line()
            self.write(f"{text}\n", style)

    def prose(self, text: str, style: str = "", *, indent: int = 0) -> None:
        """Write a line to stdout, wrapped on a terminal.  A line with a command is not wrapped."""
        with self._paused():
            self.end_line()
            lead = " " * indent
            for part in _wrapped(f"{lead}{plain(text)}", self.out, lead):
                self.write(f"{part}\n", style)

    def ask(self, question: str) -> str:
        """Return the line that the person at the terminal types.  Can be called from any thread.

        The line is not read through `sys.stdin`, because a thread that waits there makes the interpreter abort after
        Ctrl-C.  Text typed before the question is discarded.

        Raises:
            typer.Abort: If the person ends the input with Ctrl-D.
            Aborted: If the answer is no longer wanted, for example after Ctrl-C.
        """
        with self._lock:
            self.pause()
            self._is_asking = True
        _discard_input()
        self.err.file.write(question)
        self.err.file.flush()
        if (abort := abort_in_force()) is not None:
            _wait_for_input(abort)
        answer = os.read(sys.stdin.fileno(), MAX_ANSWER_BYTES)
        if not answer:
            raise typer.Abort
        self._is_asking = False
        return answer.decode(errors="replace")

    def _end_question(self) -> None:
        if self._is_asking:
            self._is_asking = False
            self.err.file.write("\n")

    def show(self, picture: RenderableType) -> None:
        """Write a table or picture to stdout.  Its texts must already be plain.  They are wrapped only on terminals."""
        with self._paused():
            self.end_line()
            (self.out if self.out.is_terminal else _console(self.out.file, UNBROKEN)).print(picture, crop=False)

    def tell(self, text: str, style: str = "dim") -> None:
        """Write a line to stderr, unless the screen is quiet."""
        if self.quiet:
            return
        with self._paused():
            if self.out.is_terminal:
                self.end_line()
            self._end_question()
            for line in plain(text).split("\n"):
                for part in _wrapped(line, self.err):
                    _print(self.err, Text(part, style))

    def take(self, event: Event) -> None:
        """Update the progress from an event, and write it.  Lines about a nested call begin with the call's path.

        On a terminal, where the live line shows the state, only steps that went wrong are written.
        """
        path = ""
        if isinstance(event, Inside):
            path, event = f"{one_line(event.path)}: ", event.event
        else:
            self.status.take(event)
        if isinstance(event, FunctionStarted | FunctionEnded):
            self.tell(path + shown_function(event))
        elif isinstance(event, Stepped):
            went_wrong = event.detail and event.to != State.FAILED  # an error reports that end
            if went_wrong or not self.err.is_terminal:
                self.tell(path + shown_step(event))
        self.resume()

    def start_embedded(self, path: str) -> str:
        """Start the embedded model's server, and fetch the model if needed.  Return the model's name."""
        from fsm_agent.clients.local.model import SMOLLM2
        from fsm_agent.clients.local.server import local_server

        def fetching(done_bytes: int, total_bytes: int) -> None:
            self.status.state = f"fetching the model: {done_bytes / 1e6:.0f} of {total_bytes / 1e6:.0f} MB"

        self.status.state = "starting the model"
        server = local_server(path or None, say=self.tell, progress=fetching)
        self.status.state = State.SEEDED
        return SMOLLM2.name if server.model == SMOLLM2.alias else server.model


class _Formatter(logging.Formatter):
    def formatException(self, ei: Any) -> str:  # noqa: N802
        return traceback_text(ei[1])


class _Warnings(logging.Handler):
    """A log handler that shows the library's warnings without disturbing the live line."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        if record.funcName != "log_steps":
            try:
                self._screen.tell(self.format(record))
            except Exception:  # as handlers do: the code that logs is not at fault
                self.handleError(record)


@contextmanager
def _defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block, because a partly drawn live line could not be removed."""
    is_ours = threading.current_thread() is threading.main_thread()  # other threads are never interrupted
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
    """Discard text that was typed but not read yet."""
    with suppress(ImportError, OSError):  # on Windows, or without a terminal
        termios: Any = import_module("termios")
        with suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _wait_for_input(abort: Abort) -> None:
    """Wait until something is typed.

    Raises:
        Aborted: If the thread is abandoned in the meantime.
    """
    if sys.platform == "win32":  # `select` does not support its consoles
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
    """Write an error to stderr."""
    console, lead = _console(sys.stderr), "fsm-agent: "
    for n, part in enumerate(_wrapped(lead + plain(str(text)), console)):
        line = Text(part)
        if not n:
            line.stylize("bold red", 0, len(lead))
        _print(console, line)


def _print(console: Console, text: Text, end: str = "\n") -> None:
    """Print text.  On a terminal, defer Ctrl-C, because rich would repeat the output of an interrupted print."""
    with _defer_interrupts() if console.is_terminal else nullcontext():
        console.print(text, end=end, soft_wrap=True)


def _wrapped(line: str, console: Console, indent: str = "") -> list[str]:
    """Return a line wrapped to the width of the terminal.  A line with a command stays whole."""
    width = console.width - len(indent)
    if not console.is_terminal or width < 1 or _COMMAND.search(line):
        return [line]
    parts = Text(line[len(indent) :]).wrap(console, width)
    return [f"{indent}{part.plain.rstrip()}" for part in parts] or [line]


def discard_output() -> None:
    """Discard all further output to stdout, because its reader is gone."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Console(Console):
    """A console that raises when its reader is gone.  Rich itself would exit with status 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _console(stream: IO[str], width: int | None = None) -> Console:
    return _Console(file=stream, markup=False, emoji=False, highlight=False, width=width)

"""The output of commands on a terminal.

Answers go to stdout, while remarks and the live status line go to stderr.  Text from models, functions and files is
untrusted, so it is never interpreted as markup, and its control characters are removed.
"""

from __future__ import annotations

import json
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

from fsm_agent._internal.text import counted, plain
from fsm_agent.call.record import State
from fsm_agent.cli.errors import SUSPENDED, exit_of
from fsm_agent.messages import events
from fsm_agent.messages.event_json import EXACT, event_data, masked_data
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


def json_text(value: Any) -> str:
    """Return ``value`` as ASCII JSON, so that a model's text cannot control the terminal."""
    return json.dumps(value, indent=2)


def one_line(text: str, at_most: int = MAX_SHOWN) -> str:
    """Return ``text`` as one plain line of limited length."""
    line = " ".join(plain(text[: 2 * at_most]).split())
    return line if len(line) <= at_most and len(text) <= 2 * at_most else line[: at_most - 1] + "…"


def shown_call(call: FunctionCall) -> str:
    """Return a function call as one plain line of limited length."""
    return one_line(whole_call(call))


def whole_call(call: FunctionCall) -> str:
    """Return a function call in Python's notation, with all of its arguments, as plain text.

    Arguments that are not a JSON object are shown as the model wrote them.
    """
    try:
        arguments = [f"{key if key.isidentifier() else repr(key)}={value!r}" for key, value in call.arguments.items()]
    except ValueError:  # a number with more digits than Python prints
        arguments = []
    is_empty = call.arguments_json.strip() in ("", "{}")
    return plain(f"{call.name}({', '.join(arguments) or ('' if is_empty else call.arguments_json)})")


def shown_function(event: events.FunctionStarted | events.FunctionEnded) -> str:
    """Return an event about a function call as text."""
    if isinstance(event, events.FunctionStarted):
        return shown_call(FunctionCall(name=event.name, arguments_json=event.arguments_json))
    return f"{event.name} {'raised' if event.is_error else '→'} {one_line(event.text)}"


def shown_step(step: events.Stepped) -> str:
    """Return a step as text, with its states and its reason."""
    why = f": {one_line(step.detail)}" if step.detail else ""
    return f"{step.source} → {step.to} ({step.trigger}{why})"


class StatusLine:
    """The status line, which shows the progress of the calls that a command makes."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self.state: str = State.SEEDED
        self.rounds = 0
        self._reported = 0
        self._pieces = 0  # of the incoming reply: about as many as its tokens

    def take(self, event: events.Event) -> None:
        match event:
            case events.TextDelta() | events.ReasoningDelta() | events.ArgumentsDelta():
                self._pieces += 1
            case events.Stepped():
                self.state = event.to
                self._reported += event.usage.total_tokens if event.usage else 0
                self._pieces = 0
                if event.trigger == "begun":
                    self.rounds = 0
                elif event.trigger in _ROUND_TRIGGERS and event.to == State.CALLING:
                    self.rounds += 1

    def __str__(self) -> str:
        elapsed_s, tokens = time.monotonic() - self._began_s, self._reported + self._pieces
        return f"{self.state} · round {self.rounds} · {counted(tokens, 'token')} · {elapsed_s:.1f} s"


class Screen:
    """The output of a command: an answer on stdout, with remarks and a live line on stderr, or lines of JSON on stdout.

    Other output appears above the live line.  Inside a ``with`` block, what functions and modules print goes to stderr.

    Args:
        quiet: Write only results and errors.
        as_json: Write each event as a line of JSON.  The last line has the type ``result``, ``suspended`` or
            ``failure``.
        log_format: The format of the library's warnings.
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False, log_format: str = "%(message)s") -> None:
        self.out, self.err = _console(sys.stdout), _console(sys.stderr)
        self.quiet, self.as_json = quiet, as_json
        self.status = StatusLine()
        self._log_format = log_format
        self._spinner = Spinner("dots")
        self._live: Live | None = None
        self._is_inside_line = False
        self._is_asking = False
        self._has_ended = False  # whether the last line of JSON is written
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.pause()
        self._entered.close()
        self._end_question()
        if kind is not BrokenPipeError:
            self.end_line()
            if isinstance(error, Exception | KeyboardInterrupt):
                self._end_by(error)

    def _end_by(self, error: BaseException) -> None:
        """Write the last line of JSON, unless the call has written it or the command line is wrong."""
        if self._has_ended or isinstance(error, typer.Exit | typer.BadParameter):
            return
        status, message = exit_of(error)
        with suppress(OSError, ValueError):  # stderr gets its line even if stdout is full or closed
            self.end("suspended" if status == SUSPENDED else "failure", error=message, exit_status=status)

    def pause(self) -> None:
        """Remove the live line."""
        with self._lock, _defer_interrupts():
            if self._live is not None:
                sys.stdout.flush()  # the live line holds back unfinished lines that functions have printed
                sys.stderr.flush()
                self._live.stop()
                self._live = None

    def resume(self) -> None:
        """Restore the live line if there is one and no other line is unfinished."""
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
        """Hide the live line inside the ``with`` block."""
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
                with _defer_interrupts():
                    self.out.print(Text(text, style), end="", soft_wrap=True)
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
        """Write lines to stdout.  On a terminal, lines that contain no command are wrapped."""
        with self._paused():
            self.end_line()
            _print(self.out, Text(plain(text), style), indent)

    def ask(self, question: str) -> str:
        """Return the line that the person at the terminal types.  This may be called from any thread.

        The line is not read through `sys.stdin`, because a thread that waits there makes the interpreter abort after
        Ctrl-C.  Text that was typed before the question is discarded.

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
        """Write lines to stderr, unless the screen is quiet."""
        if self.quiet:
            return
        with self._paused():
            if self.out.is_terminal:
                self.end_line()
            self._end_question()
            _print(self.err, Text(plain(text), style))

    def take(self, event: events.Event, where: events.Where | None = None) -> None:
        """Update the progress from an event and write the event, after the call's path if the call is nested.

        On a terminal, only steps that went wrong are written, because the live line shows the state.

        Args:
            event: The event.
            where: The call that the event comes from, if the command runs several.
        """
        if self.as_json and not isinstance(event, events.Done | events.Suspended):  # `end` writes those
            self.pause()
            about = {} if where is None else {"call": where.call, "agent": where.agent}
            self._write_json({**event_data(event), **about})
            self._has_ended = False
        path = ""
        if isinstance(event, events.Inside):
            path, event = f"{one_line(event.path)}: ", event.event
        else:
            self.status.take(event)
        if isinstance(event, events.FunctionStarted | events.FunctionEnded):
            self.tell(path + shown_function(event))
        elif isinstance(event, events.Stepped):
            went_wrong = event.detail and event.to != State.FAILED  # an error reports that end
            if went_wrong or not self.err.is_terminal:
                self.tell(path + shown_step(event))
        self.resume()

    def end(self, kind: str, **fields: Any) -> None:
        """Remove the live line and, with ``as_json``, write the last line: ``result``, ``suspended`` or ``failure``."""
        self.pause()
        if self.as_json:
            self._write_json(masked_data({"type": kind, **fields}, EXACT))
            self._has_ended = True

    def _write_json(self, data: Any) -> None:
        self.out.file.write(f"{json.dumps(data)}\n")
        self.out.file.flush()


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
    """Defer Ctrl-C until the end of the block, because a partly drawn live line could not be removed."""
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
    _print(_console(sys.stderr), Text.assemble(("fsm-agent: ", "bold red"), plain(str(text))))


def _print(console: Console, text: Text, indent: int = 0) -> None:
    """Print lines, wrapped on a terminal, except that a line with a command stays whole so that it can be copied.

    On a terminal, Ctrl-C is deferred, because rich would repeat the output of an interrupted print.
    """
    with _defer_interrupts() if console.is_terminal else nullcontext():
        for line in text.split("\n", allow_blank=True):
            is_whole = not console.is_terminal or _COMMAND.search(line.plain)
            for part in [line] if is_whole else line.wrap(console, max(1, console.width - indent)):
                console.print(Text(" " * indent).append_text(part), soft_wrap=True)


def discard_output() -> None:
    """Discard all further output to stdout, because its reader is gone."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Console(Console):
    """A console that raises when its reader is gone, whereas Rich itself would exit with status 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _console(stream: IO[str], width: int | None = None) -> Console:
    return _Console(file=stream, markup=False, emoji=False, highlight=False, width=width)

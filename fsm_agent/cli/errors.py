"""Turns errors in commands into messages and exit codes, and handles the signals that end a command."""

from __future__ import annotations

import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import typer

from fsm_agent._internal.masking import mask_keys
from fsm_agent._internal.text import plain
from fsm_agent.call.result import CallSuspended
from fsm_agent.errors import ConfigError, FsmAgentError, UsageError

T = TypeVar("T")

# Exit codes.  2 means an invalid command line; the last two are 128 + SIGINT and 128 + SIGPIPE, as in shells.
FAILED, SUSPENDED, INTERRUPTED, BROKEN_PIPE = 1, 3, 130, 141
MAX_QUOTED, END_SHOWN = 2_000, 200  # characters of an error message, and of the end of a longer one
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_WORDS = {  # the library's words, and the command line's
    "base_url": "--base-url",
    ", or give api_key": "",
    "path: ": "--output: ",
    "deps=: ": "--deps: ",
    " deps=": " --deps MODULE:NAME of ",
    "runs.all.store.list()": "'fsm-agent runs list'",
}
_CALLS = re.compile(r"\bcall (?:agent\.)?(?:runs\.)?(fork|requeue|resume|retry)\((?:'[^']*'|\"[^\"]*\")[^()]*\)")
_received: list[signal.Signals] = []


def exit_of(error: BaseException) -> tuple[int, str]:
    """Return the exit code for a command that ends with this error, and the message to show."""
    if isinstance(error, Exception) and not isinstance(error, typer.Abort):
        return FAILED if waiting_process(error) is None else SUSPENDED, error_text(error)
    return (128 + _received[0], f"ended by {_received[0].name}") if _received else (INTERRUPTED, "interrupted")


def is_ending() -> bool:
    """Return whether a signal ends the whole command.  Ctrl-C, by contrast, may end only part of it."""
    return bool(_received)


@contextmanager
def end_by_signals() -> Iterator[None]:
    """Make signals end the command as Ctrl-C does, so that the terminal is restored and the last line is written."""

    def end(number: int, frame: FrameType | None) -> None:
        _received.append(signal.Signals(number))
        interrupt: Any = signal.getsignal(signal.SIGINT)
        (interrupt if callable(interrupt) else signal.default_int_handler)(signal.SIGINT, frame)

    _received.clear()
    is_ours = threading.current_thread() is threading.main_thread()  # only this thread may set handlers
    ending = [number for number in _ENDING if is_ours and signal.getsignal(number) is signal.SIG_DFL]
    for number in ending:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


def waiting_process(error: Exception) -> Any:
    """Return the call or flow that an error reports as waiting for an answer, or None for any other error."""
    if isinstance(error, CallSuspended):
        return error.call
    flows = sys.modules.get("fsm_agent.flows")  # without this module, no flow has run
    return error.run if flows is not None and isinstance(error, flows.FlowSuspended) else None


def error_text(error: Exception) -> str:
    """Return an error's message for people."""
    if (process := waiting_process(error)) is not None:  # the error's own advice is for Python code
        keys = ", ".join([repr(effect.key) for effect in process.effects])
        return ": ".join([f"the run waits in {process.state} for {keys}", *getattr(error, "__notes__", ())])
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    if not isinstance(error, FsmAgentError):
        where = _line_of_user(error) or "this is a bug of fsm-agent; --debug shows where it is"
        return f"{type(error).__name__}: {error} ({where})"
    message, cause = mask_keys(in_options(str(error))), error.__cause__
    if len(message) > MAX_QUOTED:
        message = f"{message[: MAX_QUOTED - END_SHOWN]} … {message[-END_SHOWN:]}"
    if not isinstance(error, UsageError):
        message = " ".join(message.split())
    if isinstance(cause, Exception) and not isinstance(cause, FsmAgentError) and (at := _line_of_user(cause)):
        message += f" ({at})"
    return message


def _line_of_user(error: BaseException) -> str:
    """Return the innermost line of the user's own code in a traceback, or "" if there is none."""
    ours, library = Path(__file__).parents[1], Path(traceback.__file__).parent
    found = ""
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        is_library = {"site-packages", "dist-packages"} & {*path.parts} or {ours, library} & {*path.parents}
        if not is_library and path.is_file():
            found = f"{path.name}, line {frame.lineno}, in {frame.name}"
    return found


def in_options(message: str) -> str:
    """Replace the library's names for arguments and methods in a message with options and commands."""
    for theirs, ours in _WORDS.items():
        message = message.replace(theirs, ours)
    return _CALLS.sub(r"use 'fsm-agent runs \1'", message)


def option(option: str, take: Callable[..., T], *words: Any) -> T:
    """Return an option's values as converted by ``take``.

    Raises:
        ConfigError: If a named object does not exist; the message names the option.
        typer.BadParameter: If the values are invalid.
    """
    try:
        return take(*words)
    except ConfigError as error:
        if type(error) is not ConfigError or in_options(str(error)).startswith(option):
            raise
        raise ConfigError(f"{option}: {error}") from error
    except UsageError as error:
        message = in_options(str(error)).removeprefix("the document: ").removeprefix("limits.")
        message = message.removeprefix(f"{option}: ")
        raise typer.BadParameter(plain(message), param_hint=option) from error

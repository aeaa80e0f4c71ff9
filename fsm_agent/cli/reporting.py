"""Errors of the commands, as exit codes and paragraphs."""

from __future__ import annotations

import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.plain_text import plain
from fsm_agent._internal.redaction import mask_keys
from fsm_agent.cli.json_lines import LineWriter
from fsm_agent.cli.terminal import discard_output, error_line
from fsm_agent.errors import CallFailed, CallSuspended, ConfigError, FsmAgentError, UsageError

if TYPE_CHECKING:
    from fsm_agent.flows import errors as flow_errors
else:
    flow_errors = deferred("fsm_agent.flows.errors")

T = TypeVar("T")

# 2 is a command line that is wrong; the last two are 128 + SIGINT and 128 + SIGPIPE, as shells count.
FAILED, SUSPENDED, INTERRUPTED, BROKEN_PIPE = 1, 3, 130, 141
MAX_QUOTED, END_SHOWN = 2_000, 200  # characters of the error of a call that failed, and of the end of a longer one
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_received: list[signal.Signals] = []


def is_ending() -> bool:
    """Return True if a signal ends the whole command; Ctrl-C may end only a part of it."""
    return bool(_received)


@contextmanager
def _end_by_signals() -> Iterator[None]:
    """Make signals end the command as Ctrl-C does, so that the terminal is restored and the last line written."""

    def end(number: int, frame: FrameType | None) -> None:
        _received.append(signal.Signals(number))
        interrupt: Any = signal.getsignal(signal.SIGINT)
        (interrupt if callable(interrupt) else signal.default_int_handler)(signal.SIGINT, frame)

    _received.clear()
    is_ours = threading.current_thread() is threading.main_thread()  # no other one may set handlers
    ending = [number for number in _ENDING if is_ours and signal.getsignal(number) is signal.SIG_DFL]
    for number in ending:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def reporting(debug: bool, lines: LineWriter | None = None, *, has_set: bool = False) -> Iterator[None]:
    """Turn any exception into an exit code, and into a paragraph on stderr if it is an error.

    Args:
        debug: Whether tracebacks are shown.
        lines: Lines of JSON, if they are the output; the last one tells the error, too.
        has_set: Whether limits are those of ``--set``.

    Raises:
        typer.Exit: Something went wrong.
        typer.BadParameter: The command line is wrong.
    """
    try:
        with _end_by_signals():
            yield
    except (typer.Exit, typer.BadParameter):
        raise
    except BrokenPipeError:
        discard_output()
        raise typer.Exit(BROKEN_PIPE) from None
    except (KeyboardInterrupt, typer.Abort):
        message, status = (
            (f"ended by {_received[0].name}", 128 + _received[0]) if _received else ("interrupted", INTERRUPTED)
        )
        _tell(lines, message, status)
        raise typer.Exit(status) from None
    except Exception as error:
        if debug:
            traceback.print_exc()
        status = SUSPENDED if isinstance(error, CallSuspended | flow_errors.FlowSuspended) else FAILED
        message = error_text(error, has_set=has_set)
        _tell(lines, message, status)
        try:
            sys.stdout.flush()
        except (OSError, ValueError):  # at the end it would fail once more
            discard_output()
        raise typer.Exit(status) from None


def _tell(lines: LineWriter | None, error: str, status: int) -> None:
    """Write an error; the last line of JSON as well, unless the call itself has.

    If one stream fails, as on a full disk or after a terminal hung up, the other still gets its line.
    """
    with suppress(OSError, ValueError):  # the latter: it is closed
        if lines and not lines.has_ended:
            lines.end("suspended" if status == SUSPENDED else "failure", error=error, exit_status=status)
    with suppress(OSError, ValueError):
        error_line(error)


def error_text(error: Exception, *, has_set: bool = False) -> str:
    """Return an error for people; limits are spelled as options if the command has ``--set``."""
    if isinstance(error, FsmAgentError):
        message = in_options(str(error))
        if isinstance(error, CallFailed | flow_errors.FlowFailed):
            message, cause = _shorten(message), error.__cause__
            is_of_user = isinstance(cause, Exception) and not isinstance(cause, FsmAgentError)
            if is_of_user or not isinstance(error, CallFailed):
                message = " ".join(message.split())
            if cause is not None and is_of_user and (at := _line_of_user(cause)):
                message += f" ({at})"
        elif isinstance(error, CallSuspended | flow_errors.FlowSuspended):
            message = ": ".join([message, *getattr(error, "__notes__", ())])
        return _LIMIT.sub(r"--set \1=", message) if has_set else message
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    where = _line_of_user(error) or "this is a bug of fsm-agent; --debug shows where it is"
    return f"{type(error).__name__}: {error} ({where})"


def _shorten(message: str) -> str:
    """Return a message that may quote an exception without keys, and without the middle of a long text."""
    text = mask_keys(message)
    return text if len(text) <= MAX_QUOTED else f"{text[: MAX_QUOTED - END_SHOWN]} … {text[-END_SHOWN:]}"


def _line_of_user(error: BaseException) -> str:
    """Return the innermost line of the user's code in a traceback that our code called; empty if there is none."""
    ours, library = Path(__file__).parents[1], Path(traceback.__file__).parent
    is_called, found = False, ""
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if ours in path.parents:
            is_called = is_called or frame.filename != __file__
        elif is_called and not ({"site-packages", "dist-packages"} & {*path.parts} or library in path.parents):
            found = f"{path.name}, line {frame.lineno}, in {frame.name}" if path.is_file() else found
    return found


_WORDS = {  # of the library, and those of the command line, which has no option for a key
    r"\bbase_url[= ](?=')": "--base-url ",
    r", or give api_key\b": "",
    r"^path: ": "--output: ",
    r", or a format(?=, got )": ", or --format",
    # The command tells its own next step.
    r"[:;] (?:advance the (?:call|run) with |answer with (?:(?:agent|flow)\.runs\.resume|error\.run\.give)\().*$": "",
    r"[:;] \w+\.(?:runs\.resume|run)\([^()]*\) continues it$": "",
    r"\bpass resume\(…, prompt=…\)": "pass --prompt",
    r"; rename it, or read it yourself .*$": "; rename it",
    r"; pass prices=\{.*$": "; leave out cost_usd",
    r"^base_url: ": "--base-url: ",
}
_LIMIT = re.compile(r"\blimits\.(\w+)(?:=| is (?=\S+, ))")


def in_options(message: str) -> str:
    """Return a message of the library in the words of the command line."""
    for theirs, ours in _WORDS.items():
        message = re.sub(theirs, ours, message)
    return message


def option(option: str, take: Callable[..., T], *words: Any) -> T:
    """Return the values of an option as ``take`` converts them.

    Raises:
        ConfigError: An object that they name does not exist; the message names the option, too.
        typer.BadParameter: They are invalid.
    """
    try:
        return take(*words)
    except ConfigError as error:
        if type(error) is not ConfigError or str(error).startswith(option):
            raise
        raise ConfigError(f"{option}: {error}") from error
    except UsageError as error:
        message = in_options(str(error)).removeprefix("the document: ").removeprefix("limits.")
        raise typer.BadParameter(plain(message), param_hint=option) from error

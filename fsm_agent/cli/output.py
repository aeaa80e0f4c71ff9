"""The output of commands: running calls, JSON lines, and errors as exit codes and messages."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import typer

from fsm_agent._internal.redaction import mask_keys
from fsm_agent._internal.text import plain
from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import AskApproval, Reconcile
from fsm_agent.call.result import CallFailed, CallResult, CallSuspended
from fsm_agent.cli.live_output import LiveOutput
from fsm_agent.cli.terminal import MAX_SHOWN, Screen, discard_output, error_line, whole_call
from fsm_agent.errors import ConfigError, FsmAgentError, UsageError
from fsm_agent.messages.events import Done, Event, Suspended, Where
from fsm_agent.messages.json_data import EXACT, event_data, masked_data
from fsm_agent.messages.message import FunctionCall
from fsm_agent.runtime.environment import Verdict

T = TypeVar("T")

# Exit codes.  2 means an invalid command line; the last two are 128 + SIGINT and 128 + SIGPIPE, as in shells.
FAILED, SUSPENDED, INTERRUPTED, BROKEN_PIPE = 1, 3, 130, 141
MAX_QUOTED, END_SHOWN = 2_000, 200  # characters of an error message, and of the end of a longer one
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_ANSWERS = {AskApproval: "--approve", Reconcile: "--result TEXT"}
_WORDS = {  # the library's words, and the command line's
    "base_url": "--base-url",
    ", or give api_key": "",
    "path: ": "--output: ",
    "deps=: ": "--deps: ",
    " deps=": " --deps MODULE:NAME of ",
}
_received: list[signal.Signals] = []


class LineWriter:
    """Writes the events of a command as JSON lines on stdout.

    The last line has the type ``result``, ``suspended`` or ``failure``.

    Args:
        is_on: If False, all methods do nothing.
    """

    def __init__(self, is_on: bool = True) -> None:
        self._out = sys.stdout if is_on else None  # what functions print goes to stderr
        self.has_ended = False

    def __bool__(self) -> bool:
        return self._out is not None

    def take(self, event: Event, where: Where | None = None) -> None:
        """Write an event, except the last one of a call, which `end` writes.

        Args:
            event: The event.
            where: The call that the event comes from, if the command runs several.
        """
        if self._out is not None and not isinstance(event, Done | Suspended):
            about = {} if where is None else {"call": where.call, "agent": where.agent}
            self._write({**event_data(event), **about})
            self.has_ended = False

    def end(self, kind: str, **fields: Any) -> None:
        """Write the last line: a ``result``, ``suspended`` or ``failure``."""
        if self._out is not None:
            self._write(masked_data({"type": kind, **fields}, EXACT))
            self.has_ended = True

    def _write(self, data: Any) -> None:
        assert self._out is not None
        self._out.write(f"{json.dumps(data)}\n")
        self._out.flush()


def json_text(value: Any) -> str:
    """Return ``value`` as ASCII JSON, so that a model's text cannot control the terminal."""
    return json.dumps(value, indent=2)


class Approver:
    """An approver that asks the person at the terminal."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __call__(self, call: FunctionCall) -> Verdict:
        """Return the verdict, or None if no person is at the terminal."""
        if not sys.stdin.isatty():
            return None
        request = whole_call(call)
        if len(request) > MAX_SHOWN:
            self._screen.pause()
            typer.echo(request, err=True)
            request = f"{call.name} with all of these {len(request):,} characters"
        while True:
            match self._screen.ask(f"May the model call {request}? [y/N]: ").strip().lower():
                case "y" | "yes":
                    return True
                case "" | "n" | "no":
                    return False
                case _:
                    typer.echo("Please answer y or n.", err=True)


def drive_and_show(
    drive: Callable[[Callable[[Event], None]], CallResult[Any]],
    screen: Screen,
    lines: LineWriter,
    *,
    model: str,
    command: str,
    otherwise: str = "",
    shown: Callable[[CallResult[Any]], str] | None = None,
) -> None:
    """Run a call and show its output.  A terminal shows the text as it arrives, other outputs once it is final.

    Args:
        drive: Runs the call, and passes its events to a sink.
        screen: The output.
        lines: Writes the events as JSON lines, for ``--json``.
        model: The model's name for the last JSON line.
        command: The command that answers a question, up to the key and the answer.  "" without a store.
        otherwise: The advice about a question if there is no command.
        shown: Returns the text to show for the final result.  The default is its own text.

    Raises:
        CallFailed: If the call has no answer.
        CallSuspended: If the call waits for an answer.
    """
    output = LiveOutput(screen, is_live=False if lines or shown is not None else None)

    def sink(event: Event) -> None:
        if lines:
            screen.pause()
            lines.take(event)
        output.take(event)

    try:
        result = drive(sink)
        screen.pause()
        lines.end("result", **_call_fields(model, result.call))
    except (CallFailed, CallSuspended) as error:
        screen.pause()
        kind, fields = "failure", dict[str, Any](exit_status=FAILED)
        if isinstance(error, CallSuspended):
            kind = "suspended"
            fields = {"exit_status": SUSPENDED, "answer_with": tell_waits(error, screen, command, otherwise)}
        if error.call.record.turn:
            lines.end(kind, error=error_text(error), **fields, **_call_fields(model, error.call))
        raise
    finally:
        screen.pause()
    if not lines:
        output.finish(result.text if shown is None else shown(result))
    if (reply := result.record.reply) and reply.is_cut_off:
        screen.tell("the answer was cut off at the token limit; --set max_tokens=… sets another")


def _call_fields(model: str, call: AgentCall) -> dict[str, Any]:
    """Return the fields of the last line about a call."""
    return {"model": model, **CallResult(call).to_dict()}


def tell_waits(
    error: Exception,
    screen: Screen,
    command: str,
    otherwise: str = "",
    of_state: Callable[[Any], str] = lambda _: "",
) -> dict[str, str]:
    """Show each function call that waits for approval, and add to the error how to answer.

    Args:
        error: The error of a suspended call or flow.
        screen: The output.
        command: The command that answers a question, up to the key and the answer.  "" without a store.
        otherwise: The advice if there is no command.
        of_state: Shows the question of a flow's state, and returns the command that answers it.

    Returns:
        The command for each question, by key.
    """
    commands = dict[str, str]()
    for effect in _waiting(error).effects:
        if isinstance(effect, AskApproval):
            screen.tell(f"waits for approval as {effect.key}: {whole_call(effect.call)}")
        answer = next((words for kind, words in _ANSWERS.items() if isinstance(effect, kind)), "")
        whole = f"{command} {shlex.quote(effect.key)} {answer}" if answer else of_state(effect)
        if command and whole:
            commands[effect.key] = whole
    if len(commands) > 1:
        for whole in commands.values():
            screen.tell(f"    {whole}")
    if how := next((f"answer with {whole}" for whole in commands.values()), otherwise):
        error.add_note(how)
    return commands


def is_ending() -> bool:
    """Return whether a signal ends the whole command.  Ctrl-C may end only a part of it."""
    return bool(_received)


@contextmanager
def _end_by_signals() -> Iterator[None]:
    """Make signals end the command like Ctrl-C, so that the terminal is restored and the last line is written."""

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


@contextmanager
def reporting(debug: bool, lines: LineWriter | None = None) -> Iterator[None]:
    """Turn every exception into an exit code, and write errors to stderr.

    Args:
        debug: Whether to show tracebacks.
        lines: Also writes the error in the last JSON line, for ``--json``.

    Raises:
        typer.Exit: If something went wrong.
        typer.BadParameter: If the command line is invalid.
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
        status = FAILED if _waiting(error) is None else SUSPENDED
        _tell(lines, error_text(error), status)
        try:
            sys.stdout.flush()
        except (OSError, ValueError):  # flushing at exit would fail again
            discard_output()
        raise typer.Exit(status) from None


def _tell(lines: LineWriter | None, error: str, status: int) -> None:
    """Write an error, and the last JSON line unless the call has already written it.

    If one stream fails, for example on a full disk, the other still gets its line.
    """
    with suppress(OSError, ValueError):  # ValueError: the stream is closed
        if lines and not lines.has_ended:
            lines.end("suspended" if status == SUSPENDED else "failure", error=error, exit_status=status)
    with suppress(OSError, ValueError):
        error_line(error)


def _waiting(error: Exception) -> Any:
    """Return the call or flow whose error says that it waits for an answer, or None for any other error."""
    if isinstance(error, CallSuspended):
        return error.call
    flows = sys.modules.get("fsm_agent.flows")  # without this module, no flow has run
    return error.run if flows is not None and isinstance(error, flows.FlowSuspended) else None


def error_text(error: Exception) -> str:
    """Return the message of an error for people."""
    if (process := _waiting(error)) is not None:  # the error's own advice is for Python code
        keys = ", ".join([repr(effect.key) for effect in process.effects])
        return ": ".join([f"the run waits in {process.state} for {keys}", *getattr(error, "__notes__", ())])
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    if not isinstance(error, FsmAgentError):
        where = _line_of_user(error) or "this is a bug of fsm-agent; --debug shows where it is"
        return f"{type(error).__name__}: {error} ({where})"
    message, cause = _shorten(in_options(str(error))), error.__cause__
    if not isinstance(error, UsageError):
        message = " ".join(message.split())
    if isinstance(cause, Exception) and not isinstance(cause, FsmAgentError) and (at := _line_of_user(cause)):
        message += f" ({at})"
    return message


def _shorten(message: str) -> str:
    """Return a message with keys masked, and without the middle if it is long."""
    text = mask_keys(message)
    return text if len(text) <= MAX_QUOTED else f"{text[: MAX_QUOTED - END_SHOWN]} … {text[-END_SHOWN:]}"


def _line_of_user(error: BaseException) -> str:
    """Return the innermost line of the user's own code in a traceback, or "" if there is none."""
    ours, library = Path(__file__).parents[1], Path(traceback.__file__).parent
    is_called, found = False, ""
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if ours in path.parents:
            is_called = is_called or frame.filename != __file__
        elif is_called and not ({"site-packages", "dist-packages"} & {*path.parts} or library in path.parents):
            found = f"{path.name}, line {frame.lineno}, in {frame.name}" if path.is_file() else found
    return found


def in_options(message: str) -> str:
    """Replace the library's argument names in a message with the options of the command."""
    for theirs, ours in _WORDS.items():
        message = message.replace(theirs, ours)
    return message


def option(option: str, take: Callable[..., T], *words: Any) -> T:
    """Return an option's values as converted by ``take``.

    Raises:
        ConfigError: If a named object does not exist.  The message names the option.
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

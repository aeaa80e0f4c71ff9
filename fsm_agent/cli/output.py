"""The output of commands: running calls, errors as messages and exit codes, and `TerminalHook` for any agent."""

from __future__ import annotations

import json
import logging
import shlex
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from fsm_agent._internal.text import counted, format_moment
from fsm_agent.call.effects import AskApproval, Reconcile
from fsm_agent.call.record import State
from fsm_agent.call.result import CallFailed, CallResult, CallSuspended
from fsm_agent.cli import errors
from fsm_agent.cli.terminal import Screen, discard_output, error_line, one_line, whole_call
from fsm_agent.messages import events
from fsm_agent.messages.reply import Usage

_ANSWERS = {AskApproval: "--approve", Reconcile: "--result TEXT"}
_LOG = logging.getLogger("fsm_agent.hooks")


def _debug(debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False) -> None:
    """The option that every command has."""


_alone = typer.Typer(add_completion=False)  # Typer makes options from the parameters of a function only
_alone.command()(_debug)
_DEBUG = typer.main.get_command(_alone).params


class Command(TyperCommand):
    """A command that has the option ``--debug`` and turns its errors into messages and exit codes."""

    def __init__(self, name: str | None, *, params: Any = None, **attributes: Any) -> None:
        super().__init__(name, params=[*(params or ()), *_DEBUG], **attributes)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _reporting(ctx.params.pop("debug")):
            return super().invoke(ctx)


@contextmanager
def _reporting(debug: bool) -> Iterator[None]:
    """Turn every exception into an exit code, and write error messages to stderr.

    Raises:
        typer.Exit: If something went wrong.
        typer.BadParameter: If the command line is invalid.
    """
    try:
        with errors.end_by_signals():
            yield
    except (typer.Exit, typer.BadParameter):
        raise
    except BrokenPipeError:
        discard_output()
        raise typer.Exit(errors.BROKEN_PIPE) from None
    except (Exception, KeyboardInterrupt) as error:
        if debug and not isinstance(error, KeyboardInterrupt | typer.Abort):
            traceback.print_exc()
        status, message = errors.exit_of(error)
        with suppress(OSError, ValueError):  # such as a full disk, or a closed stream
            error_line(message)
        try:
            sys.stdout.flush()
        except (OSError, ValueError):  # flushing at exit would fail again
            discard_output()
        raise typer.Exit(status) from None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Advice for a person whose call or flow is waiting or was interrupted."""

    command: str = ""  # answers a question, if its key and the answer follow; "" without a store
    again: str = ""  # the command that continues the run; "" without a store
    otherwise: str = "the call was not kept; pass --approve, or --store runs.db to answer later"  # if nothing answers
    of_state: Callable[[Any], str] = lambda _: ""  # shows the question of a flow's state, and returns what answers it


def drive_and_show(
    drive: Callable[[Callable[[events.Event], None]], Any],
    screen: Screen,
    advice: Advice,
    *,
    model: str = "",
    shown: Callable[[Any], str] | None = None,
) -> None:
    """Run a call or a flow, and show its output.

    On a terminal, a call's text is shown as it arrives.  Elsewhere, it is shown once it is final.

    Args:
        drive: A function that runs the call or flow, and passes its events to a sink.
        screen: The output.
        advice: What to do if the call or flow waits or is interrupted.
        model: The model's name, for the last JSON line about a call.
        shown: A function that returns the text to show for the result, once it is final.  The default is the text of a
            call.
    """
    output = LiveOutput(screen, is_final=screen.as_json or shown is not None)
    try:
        result = drive(output.take)
    except CallFailed as error:
        told = {"exit_status": errors.FAILED, "model": model, **CallResult(error.call).to_dict()}
        screen.end("failure", error=errors.error_text(error), **told)
        raise
    except (KeyboardInterrupt, typer.Abort):
        screen.pause()
        if advice.again:
            screen.tell(f"to continue: {advice.again}")
        raise
    except Exception as error:
        if (process := errors.waiting_process(error)) is not None:
            is_call = isinstance(error, CallSuspended)
            tell_waits(error, screen, advice, **({"model": model, **CallResult(process).to_dict()} if is_call else {}))
        raise
    is_call = isinstance(result, CallResult)
    screen.end("result", **({"model": model} if is_call else {}), **result.to_dict())
    if not screen.as_json:
        output.finish(result.text if shown is None else shown(result))
    if is_call and (reply := result.record.reply) and reply.is_cut_off:
        screen.tell("the answer was cut off at the token limit; --set max_tokens=… sets another")


def tell_waits(error: Any, screen: Screen, advice: Advice, **fields: Any) -> None:
    """Show what a suspended call or flow waits for, and add a note to its error that says how to answer.

    ``fields`` are further fields for the last JSON line.
    """
    screen.pause()
    process, commands = errors.waiting_process(error), dict[str, str]()
    for effect in process.effects:
        if isinstance(effect, AskApproval):
            screen.tell(f"waits for approval as {effect.key}: {whole_call(effect.call)}")
        answer = next((words for kind, words in _ANSWERS.items() if isinstance(effect, kind)), "")
        whole = f"{advice.command} {shlex.quote(effect.key)} {answer}" if answer else advice.of_state(effect)
        if advice.command and whole:
            commands[effect.key] = whole
    if len(commands) > 1:
        for whole in commands.values():
            screen.tell(f"    {whole}")
    wake_at_s = getattr(error, "wake_at_s", None)  # of a flow
    due = "" if wake_at_s is None else f" at {format_moment(wake_at_s)}"
    if commands:
        error.add_note(f"answer with {next(iter(commands.values()))}")
        if due:
            screen.tell(f"without an answer it continues{due}")
        if advice.again:
            screen.tell(f"to continue: {advice.again}")
    else:
        error.add_note(f"a worker continues it{due}, or: {advice.again}" if advice.again else advice.otherwise)
    told = {"waits_for": [effect.key for effect in process.effects], "answer_with": commands, **fields}
    screen.end("suspended", error=errors.error_text(error), exit_status=errors.SUSPENDED, **told)


class LiveOutput:
    """Shows a call's events on a screen, and its text as it arrives.

    Args:
        screen: The output.
        is_final: Whether to write the text only once it is final, even on a terminal.
    """

    def __init__(self, screen: Screen, *, is_final: bool = False) -> None:
        self.screen = screen
        self.has_written = False
        self._is_live = screen.out.is_terminal and not is_final

    def take(self, event: events.Event) -> None:
        self.screen.take(event)
        if self._is_live and isinstance(event, events.TextDelta):
            self.screen.write(event.text)
            self.has_written = True
        elif self._is_live and isinstance(event, events.ReplyCompleted):
            self.screen.end_line()

    def finish(self, text: str) -> None:
        """Show the whole answer, unless its text was already written."""
        self.screen.pause()
        if not self.has_written:
            self.screen.line(text)
            self.screen.pause()
        self.has_written = False


def overview(result: Any) -> Iterator[str]:
    """Yield short lines about a call or flow that has ended: a call's rounds and functions, then tokens and cost."""
    usage = result.usage
    if isinstance(result, CallResult):
        calls = Counter([call.name for call in result.function_calls])
        failed = Counter([call.name for call in result.function_calls if call.error is not None])
        rounds = counted(result.record.rounds, "round")
        yield f"{rounds}, {counted(calls.total(), 'function call')}"
        for name, count in calls.items():
            often = f" {count} times" if count > 1 else ""
            yield f"  {one_line(name)}{often}{f', {failed[name]} failed' if failed[name] else ''}"
    yield _tokens(usage)
    by_agent = result.usage_by_agent if isinstance(result, CallResult) else {}
    if len(by_agent) > 1:
        for path, used in by_agent.items():
            yield f"  {one_line(path) or 'itself'}: {_tokens(used)}"
    if usage.cost_usd is not None:
        yield f"cost: ${usage.cost_usd:.6f}"


def _answer(result: Any) -> str | None:
    """Return a call's text, or a flow's data as ASCII JSON, or None if there is no answer."""
    if isinstance(result, CallResult):
        return result.text or "" if result.state is State.COMPLETED else None
    return None if result.ending.is_failure else json.dumps(result.to_dict()["data"], indent=2)


def _tokens(usage: Usage) -> str:
    return f"{counted(usage.input_tokens or 0, 'token')} in, {usage.output_tokens or 0:,} out"


class TerminalHook:
    """A hook that prints what ``fsm-agent ask`` prints: the answer on stdout, and steps and functions on stderr.

    Lines about a nested agent begin with the agent's path.  At the end, the hook writes an overview of rounds,
    functions, tokens and cost to stderr.  The hook's own errors are logged and never raised.

    Args:
        quiet: Show only the answer.

    Examples:
        >>> Agent(Script("Hi."), hooks=[TerminalHook(quiet=True)]).call("Hello").output
        Hi.
        'Hi.'
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._screen = Screen(quiet=quiet)
        self._driven = set[events.Where]()  # running calls
        self._unknown = _ShownCall(self, events.Where(""))

    def of_call(self, where: events.Where) -> _ShownCall:
        """Return the hook for one call."""
        if not where.path:
            self._driven.add(where)
        return _ShownCall(self, where)

    def on_event(self, event: events.Event) -> None:
        """Show an event whose call is not known, such as an event from a sink."""
        self._unknown.on_event(event)


class _ShownCall:
    """The hook for one call.  If several calls are running, each line names its call."""

    def __init__(self, hook: TerminalHook, where: events.Where) -> None:
        self._hook = hook
        self._where = where
        self._output = LiveOutput(hook._screen)

    def on_event(self, event: events.Event) -> None:
        try:
            self._show(event)
        except Exception:
            _LOG.exception("the terminal could not show a %s", type(event).__name__)
        finally:
            if isinstance(event, events.Done | events.Suspended):
                self._hook._driven.discard(self._where)

    def _show(self, event: events.Event) -> None:
        is_one_of_many = not self._where.path and len(self._hook._driven) > 1
        screen, whose = self._hook._screen, f"{one_line(self._where.call)}: " if is_one_of_many else ""
        if isinstance(event, events.Done):
            result: Any = event.result
            if (answer := _answer(result)) is not None:
                self._output.finish(answer)
            else:
                screen.tell(f"{whose}ended without an answer: {result.record.ending.reason}")
            for line in overview(result):
                screen.tell(whose + line)
            screen.pause()
        elif isinstance(event, events.Suspended):
            screen.tell(f"{whose}waits for {', '.join(event.keys)}")
            screen.pause()
        elif is_one_of_many and isinstance(event, events.Stepped | events.FunctionStarted | events.FunctionEnded):
            screen.take(events.Inside(self._where.call, event))
        else:
            self._output.take(event)

"""Drive a call from the command line, and show its output."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Any

import typer

from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import AskApproval, FindOut
from fsm_agent.call.result import CallResult
from fsm_agent.cli.json_lines import LineWriter, call_fields
from fsm_agent.cli.reporting import FAILED, SUSPENDED, error_text
from fsm_agent.cli.terminal import MAX_SHOWN, Screen, whole_call
from fsm_agent.cli.terminal_hook import Showing
from fsm_agent.errors import CallFailed, CallSuspended
from fsm_agent.messages.events import Event
from fsm_agent.messages.message import FunctionCall
from fsm_agent.runtime.world import Verdict


class Approver:
    """An approver that asks the person at the terminal.

    Args:
        screen: Pauses for the question.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __call__(self, call: FunctionCall) -> Verdict:
        """Return the verdict; None if no person is at the terminal."""
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
                    typer.echo("answer y or n", err=True)


def answer(
    drive: Callable[[Callable[[Event], None]], CallResult[Any]],
    screen: Screen,
    *,
    lines: LineWriter | None = None,
    model: str = "",
    command: str = "",
    otherwise: str = "",
    shown: Callable[[CallResult[Any]], str] | None = None,
) -> CallResult[Any]:
    """Drive a call and show its output: on a terminal as it comes, elsewhere when it is final.

    Args:
        drive: Drives the call, and gives its events to a sink.
        screen: The output.
        lines: The events as lines of JSON, if that is the output.
        model: The model's name, which the last of these lines tells.
        command: Answers a question of the run when its key and the answer follow; empty: the call is in no store.
        otherwise: What to do about a question without such a command.
        shown: Returns what is shown of the result, when it is final; None: its text.

    Raises:
        CallFailed: There is no answer.
        CallSuspended: The call waits for an answer.
    """
    lines = lines or LineWriter(is_on=False)
    showing = Showing(screen, is_live=False if lines or shown is not None else None)
    call: AgentCall | None = None

    def sink(event: Event) -> None:
        if lines:
            screen.pause()
            lines.take(event)
        showing.take(event)

    try:
        result = drive(sink)
        call = result.call
        screen.pause()
        lines.end("result", **call_fields(model, call))
    except (CallFailed, CallSuspended) as error:
        call = error.call
        screen.pause()
        kind, fields = "failure", dict[str, Any](exit_status=FAILED)
        if isinstance(error, CallSuspended):
            kind = "suspended"
            fields = {"exit_status": SUSPENDED, "answer_with": tell_waits(error, screen, command, otherwise)}
        if call.record.turn:
            lines.end(kind, error=error_text(error, has_set=True), **fields, **call_fields(model, call))
        raise
    finally:
        screen.pause()
    if not lines:
        showing.finish(result.text if shown is None else shown(result))
    if call.record.reply and call.record.reply.finish == "length":
        screen.tell("the answer was cut off at the token limit; --set max_tokens=… sets another")
    return result


def tell_waits(error: CallSuspended, screen: Screen, command: str, otherwise: str = "") -> dict[str, str]:
    """Show each function call that waits for approval, with every character; the error tells how to answer.

    Args:
        error: What the call waits for.
        screen: The output.
        command: Answers a question when its key and the answer follow; empty: the call is in no store.
        otherwise: What to do without such a command.

    Returns:
        The command for each question, by its key.
    """
    commands = dict[str, str]()
    for effect in error.call.effects:
        if isinstance(effect, AskApproval):
            screen.tell(f"waits for approval as {effect.key}: {whole_call(effect.call)}")
        answer = next((words for kind, words in _ANSWERS.items() if isinstance(effect, kind)), "")
        if command and answer:
            commands[effect.key] = f"{command} {shlex.quote(effect.key)} {answer}"
    add_answers(error, screen, commands, otherwise)
    return commands


def add_answers(error: Exception, screen: Screen, commands: Mapping[str, str], otherwise: str = "") -> None:
    """Have an error tell how its question is answered; of several questions, a line each tells it as well."""
    if len(commands) > 1:
        for command in commands.values():
            screen.tell(f"    {command}")
    if how := next((f"answer with {command}" for command in commands.values()), otherwise):
        error.add_note(how)


_ANSWERS = {AskApproval: "--approve", FindOut: "--result TEXT"}


def json_text(value: Any) -> str:
    """Return ``value`` as JSON in ASCII, so that no text of a model controls the terminal."""
    return json.dumps(value, indent=2)

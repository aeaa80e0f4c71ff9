"""Drive a call from the command line, and show its output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import typer
from msgspec import to_builtins
from pydantic_core import to_jsonable_python

from fsm_agent.agents.agent import Agent
from fsm_agent.cli.snapshot_files import write_snapshot
from fsm_agent.cli.terminal import MAX_SHOWN, Screen, whole_call
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.effects import AskApproval
from fsm_agent.lifecycle.outcomes import Approved, Denied
from fsm_agent.messages.event import ReplyCompleted, Stepped, TextDelta
from fsm_agent.messages.message import FunctionCall
from fsm_agent.runtime.world import Verdict


class Approver:
    """An approver that decides as the command line does, or else as the person at the terminal does.

    Args:
        screen: Pauses for the question.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._verdicts: dict[str, Approved | Denied] = {}  # by the function call's id

    def settle(self, calls: Iterable[FunctionCall], verdict: Approved | Denied) -> None:
        """Show these function calls, and give this verdict on them and on no other."""
        for call in calls:
            self._screen.tell(f"{verdict.kind}: {whole_call(call)}")
            self._verdicts[call.id] = verdict

    def __call__(self, call: FunctionCall) -> Verdict:
        """Return the verdict; None: nobody is there."""
        if call.id in self._verdicts:
            return self._verdicts[call.id]
        if not sys.stdin.isatty():
            return None
        self._screen.pause()
        request = whole_call(call)
        if len(request) > MAX_SHOWN:
            typer.echo(request, err=True)
            request = f"{call.name} with all of these {len(request):,} characters"
        return typer.confirm(f"May the model call {request}?", err=True)


def waiting_calls(call: AgentCall) -> list[FunctionCall]:
    """Return the function calls that wait for approval."""
    return [effect.call for effect in call.effects if isinstance(effect, AskApproval)]


def answer(
    agent: Agent, call: AgentCall, screen: Screen, *, json_of: str | None = None, kept_in: Path | None = None
) -> None:
    """Drive the call and show its output: on a terminal as it comes, elsewhere when it is final.

    Args:
        agent: The agent of the call.
        call: The call.
        screen: The output.
        json_of: The model's name, if the output is JSON.
        kept_in: The file in which the call is kept, from step to step.

    Raises:
        CallFailed: There is no answer.
        CallSuspended: The call waits for somebody.
        UsageError: The call cannot be kept.
    """
    is_live = screen.out.is_terminal and json_of is None and bool(call.effects)
    events: Any = agent.stream(call)
    try:
        with closing(events):
            for event in events:
                if kept_in is not None and isinstance(event, Stepped):
                    write_snapshot(call, kept_in)
                screen.take(event)
                if is_live and isinstance(event, TextDelta):
                    screen.write(event.text)
                elif is_live and isinstance(event, ReplyCompleted):
                    screen.end_line()
        for waiting in waiting_calls(call):
            screen.tell(f"waits for approval as {waiting.id}: {whole_call(waiting)}")
        result = call.result()
    finally:
        screen.pause()
        if kept_in is not None:
            write_snapshot(call, kept_in)
        if json_of is not None and call.record.turn:
            screen.line(json_text(_call_json(json_of, call)))
    if json_of is None and not is_live:
        screen.line(result.text)
    if call.record.reply and call.record.reply.finish == "length":
        screen.tell("the answer was cut off at the token limit; --set max_tokens=… sets another")


def _call_json(model: str, call: AgentCall) -> dict[str, Any]:
    r = call.record
    return {
        "model": model,
        "state": str(r.state),
        "reason": str(r.ending.reason) if r.ending else None,
        "detail": r.ending.detail or None if r.ending else None,
        "output": to_jsonable_python(call.output, serialize_unknown=True),
        "text": r.reply.message.text if r.reply else None,
        "finish": r.reply.finish if r.reply else None,
        "usage": to_builtins(r.usage),
        "rounds": r.rounds,
        "states": [str(step.to) for step in r.trace],
        "waits_for": [effect.key for effect in call.effects],
        "function_calls": [
            {"name": f.name, "arguments": f.arguments, "result": f.result, "error": f.error} for f in r.function_calls
        ],
    }


def json_text(value: Any) -> str:
    """Return ``value`` in ASCII: a model's text never reaches a terminal as it is."""
    return json.dumps(value, indent=2)

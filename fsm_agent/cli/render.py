"""How is a call driven from the command line, and what is said of it?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import typer
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
    """Decides which functions may be called: as the command line says, or else as whoever sits at the terminal does.

    Args:
        screen: Makes room for the question.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._given: dict[str, Approved | Denied] = {}  # by the function call's id

    def settle(self, calls: Iterable[FunctionCall], verdict: Approved | Denied) -> None:
        """Show these function calls, and give this verdict on them and on no other."""
        for call in calls:
            self._screen.tell(f"{verdict.kind}: {whole_call(call)}")
            self._given[call.id] = verdict

    def __call__(self, call: FunctionCall) -> Verdict:
        """Return the verdict; None: nobody is there."""
        if call.id in self._given:
            return self._given[call.id]
        if not sys.stdin.isatty():
            return None
        self._screen.pause()
        asked = whole_call(call)
        if len(asked) > MAX_SHOWN:
            typer.echo(asked, err=True)
            asked = f"{call.name} with all of these {len(asked):,} characters"
        return typer.confirm(f"May the model call {asked}?", err=True)


def waiting_calls(call: AgentCall) -> list[FunctionCall]:
    """The function calls that wait for somebody's approval."""
    return [effect.call for effect in call.effects if isinstance(effect, AskApproval)]


def answer(
    agent: Agent, call: AgentCall, screen: Screen, *, json_of: str | None = None, kept_in: Path | None = None
) -> None:
    """Drive the call, and say what comes of it: on a terminal as it comes, elsewhere when it is sure.

    Args:
        agent: Whose call it is.
        call: The call.
        screen: Where it is said.
        json_of: The model's name, if it is to be said as JSON.
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
        "usage": to_jsonable_python(r.usage),
        "rounds": r.rounds,
        "states": [str(step.to) for step in r.trace],
        "waits_for": [effect.key for effect in call.effects],
        "function_calls": [
            {"name": f.name, "arguments": f.arguments, "result": f.result, "error": f.error} for f in r.function_calls
        ],
    }


def json_text(value: Any) -> str:
    """``value`` in ASCII: what models say reaches no terminal as it is."""
    return json.dumps(value, indent=2)

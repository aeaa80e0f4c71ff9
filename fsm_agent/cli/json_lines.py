"""Events as lines of JSON, for programs: what ``--json`` prints of a command that drives a call or a flow.

Each line is an object as `event_data` makes it; the last one is a ``result``, ``suspended`` or a ``failure``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from fsm_agent.call.call import AgentCall
from fsm_agent.call.result import CallResult
from fsm_agent.messages.events import Done, Event, Suspended, Where
from fsm_agent.messages.json_data import EXACT, event_data, masked_data


class LineWriter:
    """The lines of one command, on stdout.

    Args:
        is_on: False: every method does nothing.
    """

    def __init__(self, is_on: bool = True) -> None:
        self._out = sys.stdout if is_on else None  # functions that print do so elsewhere
        self.has_ended = False

    def __bool__(self) -> bool:
        return self._out is not None

    def take(self, event: Event, where: Where | None = None) -> None:
        """Write an event; the last line tells what the last events would.

        Args:
            event: The event.
            where: Its call, if a command drives several.
        """
        if self._out is not None and not isinstance(event, Done | Suspended):
            self._write(event_line(event, where))
            self.has_ended = False

    def end(self, kind: str, **fields: Any) -> None:
        """Write the last line: a ``result``, ``suspended`` or a ``failure``."""
        if self._out is not None:
            self._write(json.dumps(masked_data({"type": kind, **fields}, EXACT)))
            self.has_ended = True

    def _write(self, line: str) -> None:
        assert self._out is not None
        self._out.write(f"{line}\n")
        self._out.flush()


def event_line(event: Event, where: Where | None = None) -> str:
    """Return an event as one line of JSON in ASCII, with its call and its agent if they are known."""
    about = {} if where is None else {"call": where.call, "agent": where.agent}
    return json.dumps({**event_data(event), **about})


def call_fields(model: str, call: AgentCall) -> dict[str, Any]:
    """Return what the last line tells of a call."""
    return {"model": model, **CallResult(call).to_dict()}

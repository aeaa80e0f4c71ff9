"""The outcomes of handoffs, which only the call itself can pass to its table."""

from __future__ import annotations

from typing import ClassVar

from fsm_agent._internal.values import Value
from fsm_agent.lifecycle.record import CallRecord
from fsm_agent.messages.reply import Usage


class HandedOver(Value, frozen=True, kw_only=True):
    """Another agent gets the dialog, at the model's request or because it had the dialog in an earlier turn."""

    kind: ClassVar[str] = "handed_over"

    name: str  # of the handoff
    agent: str  # its name
    at_s: float


class HandoffEnded(Value, frozen=True, kw_only=True):
    """The agent that took the dialog over has ended, which ends the call in the same way."""

    kind: ClassVar[str] = "relayed"

    name: str  # of the handoff
    record: CallRecord
    at_s: float

    @property
    def usage(self) -> Usage:
        """Its tokens."""
        return self.record.total_usage

"""The protocol of delegates: agents and flows that do the work of a function call, inside the call that asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fsm_agent.messages.message import FunctionCall


class Delegate(Protocol):
    """An agent or a flow as a function; see `fsm_agent.call.delegation`."""

    @property
    def is_handoff(self) -> bool:
        """True if it takes the dialog over, so that its answer is the answer of the call."""

    @property
    def world(self) -> Any:
        """The world in which the effects of its calls are performed."""

    @property
    def hooks(self) -> Sequence[Any]:
        """The objects that are told of the events of its calls."""

    @property
    def hears_inside(self) -> bool:
        """True if they are told of the events of what is inside of it, too."""

    @property
    def has_listener(self) -> bool:
        """True if it has hooks, or an agent among its functions has."""

    @property
    def agents(self) -> Sequence[Any]:
        """The agents whose models it may ask, without those among their functions."""

    @property
    def fingerprint(self) -> str:
        """A text that changes with what decides the steps of its calls."""

    @property
    def tables_json(self) -> bytes:
        """The tables of the flow and of those inside it, as JSON; empty: it is no flow, or they are too large."""

    def seeded(self, f: FunctionCall, depth: int, deps: Any) -> Any:
        """Return the record of a call, or of a run of a flow, that has not begun; pure, as it is part of a step.

        Args:
            f: The function call whose work it does.
            depth: How many agent calls it is inside of.
            deps: Those of the call that asks.
        """

    def take_over(self, record: Any, path: str, deps: Any, is_system_own: bool) -> Any:
        """Return the record of a call that takes the dialog over, and has not begun; pure; for handoffs alone.

        Args:
            record: That of the call whose dialog it takes over.
            path: The handoffs from it to the agent that governs the dialog; empty: itself.
            deps: Those of that call.
            is_system_own: No agent put the system message of the dialog there.
        """

    @property
    def agent_name(self) -> str:
        """The agent's name."""

    def call_of(self, record: Any, deps: Any, has_approver: bool) -> Any:
        """Return the agent call around a record, or the process around a `ProcessRecord`.

        Args:
            record: Its state.
            deps: Those of the call that asks.
            has_approver: That one has an approver, who is asked if the agent has none of its own.
        """

"""The protocol of delegates: agents that do the work of a function call, inside the agent call that asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fsm_agent.messages.message import FunctionCall


class Delegate(Protocol):
    """An agent as a function; see `fsm_agent.lifecycle.delegation`."""

    @property
    def world(self) -> Any:
        """The world in which the effects of its calls are performed."""

    @property
    def hooks(self) -> Sequence[Any]:
        """The objects that are told of the events of its calls."""

    @property
    def is_heard(self) -> bool:
        """True if it has hooks, or an agent among its functions has."""

    @property
    def fingerprint(self) -> str:
        """A text that changes with what decides the steps of its calls."""

    def check_prices(self) -> None:
        """Refuse a model, its own or one of an agent inside of it, whose price nobody knows.

        Raises:
            UsageError: It names the model.
        """

    def seeded(self, f: FunctionCall, depth: int, deps: Any) -> Any:
        """Return the record of a call that has not begun; pure, as it is part of a step.

        Args:
            f: The function call whose work it does.
            depth: How many agent calls it is inside of.
            deps: Those of the call that asks.
        """

    def call_of(self, record: Any, deps: Any, has_approver: bool) -> Any:
        """Return the agent call around a record.

        Args:
            record: Its state.
            deps: Those of the call that asks.
            has_approver: That one has an approver, who is asked if the agent has none of its own.
        """

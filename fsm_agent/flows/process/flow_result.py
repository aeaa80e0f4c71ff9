"""The result of a run of a flow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fsm_agent._internal.vector import Vector
from fsm_agent.messages.event import Stepped
from fsm_agent.messages.event_json import EXACT, masked_data
from fsm_agent.messages.json_result import JsonResult
from fsm_agent.messages.reply import Usage

if TYPE_CHECKING:
    from fsm_agent.flows.process.flow_run import FlowRun
    from fsm_agent.flows.process.record import FlowEnding, FlowRecord

D = TypeVar("D")


class FlowResult(JsonResult, Generic[D]):
    """The result of a run of a flow.

    Attributes:
        run: The run.

    Examples:
        >>> @execute
        ... def double(n: int) -> int:
        ...     return 2 * n
        >>> doubling = Flow("doubling", int, start=double, rows=[double.done(end("over"), do=lambda n, more: more)])
        >>> result = doubling.call(4)
        >>> result.output, result.state
        (8, 'over')
    """

    __slots__ = ("run",)

    def __init__(self, run: FlowRun[D]) -> None:
        self.run = run

    @property
    def record(self) -> FlowRecord:
        """All that the run knows."""
        return self.run.record

    @property
    def output(self) -> D:
        """The data that the flow ended with."""
        return self.run.data

    @property
    def state(self) -> str:
        """The name of the end."""
        return self.run.state

    @property
    def ending(self) -> FlowEnding | None:
        """How it ended; None: it has not ended."""
        return self.record.ending

    @property
    def extra(self) -> Mapping[str, Any]:
        """The data that the caller gave with ``extra``."""
        return self.record.extra

    @property
    def usage(self) -> Usage:
        """Tokens of all agent calls."""
        return self.record.total_usage

    @property
    def trace(self) -> Vector[Stepped]:
        """The flow's own steps."""
        return self.record.trace

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON data: its state, data, usage; see `CallResult.to_dict`.

        ``data`` are those that the flow ended with, whole and as they are.
        """
        ending = self.ending
        fields = {
            "state": str(self.state),
            "failed": ending is not None and ending.is_failure,
            "reason": None if ending is None else str(ending.state),
            "detail": ending.detail or None if ending is not None else None,
            "data": json.loads(self.run.flow.data_json(self.run.data)),
            "usage": self.usage,
            "states": [str(step.to) for step in self.trace],
            "waits_for": [effect.key for effect in self.run.effects],
        }
        told: dict[str, Any] = masked_data(fields, EXACT)
        return told

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlowResult) and self.record == other.record

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.state}, {self.run.data!r})"

"""What a configuration may name: functions, an approver, hooks, a type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from fsm_agent import FunctionCall, Message
from fsm_agent.call import Price, StopContext
from fsm_agent.messages import Stepped
from fsm_agent.runtime import ResultPipeline, truncate


class Report(BaseModel):
    """An output."""

    text: str


class Steps:
    """A hook."""

    def __init__(self) -> None:
        self.triggers: list[str] = []

    def on_stepped(self, event: Stepped) -> None:
        self.triggers.append(event.trigger)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def approve(call: FunctionCall) -> bool:
    return call.name == "add"


def stop(context: StopContext) -> Any:
    return None


def judge(output: Any) -> Any:
    return output


def last_message(messages: Sequence[Message]) -> Sequence[Message]:
    return messages[-1:]


prices = {"*": Price(input_micro_usd=1_000_000, output_micro_usd=2_000_000)}
results = ResultPipeline(processor=truncate(1000))

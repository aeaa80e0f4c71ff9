"""The agent whose runs `engine_costs` counts, for workers in OS processes of their own."""

from __future__ import annotations

import asyncio
from typing import Any

from fsm_agent import Agent, function
from fsm_agent.runtime import SystemClock
from fsm_agent.testing import Script, function_call

MODEL_S = 0.05


class Model(Script):
    """Takes its time, and knows from the dialog what to say; a task to wait takes it a minute."""

    async def acomplete(self, request: Any, *, timeout_s: float | None = None) -> Any:
        await asyncio.sleep(60 if request.messages[-1].text == "wait" else MODEL_S)
        return await super().acomplete(request)

    def _next(self, request: Any, timeout_s: float | None) -> Any:
        calls = [
            function_call("look_up", item="kettle"),
            function_call("look_up", item="cup"),
            function_call("look_up", item="pot"),
            function_call("pay"),
        ]
        done = sum(message.role == "assistant" for message in request.messages)
        steps: list[Any] = [calls[0], calls[1:3], calls[3], "Paid."]
        return self._make_reply(steps[done], request, timeout_s)


@function
def look_up(item: str) -> float:
    """Look up a price."""
    return 19.5


@function(once=True)
def pay() -> str:
    """Pay."""
    return "paid"


AGENT = Agent(Model(), functions=[look_up, pay], name="buyer", environment={"clock": SystemClock()})

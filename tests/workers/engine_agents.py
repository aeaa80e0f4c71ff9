"""The runnables of workers in the tests of engines: an agent, a flow and an orchestrator that need no state of a
process.

Their models reply according to the dialog, so that any worker can continue any run.  Their effects are lines in files
of the folder in which the worker runs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "flows"))

import flow_kill_worker
import orchestrator_kill_worker
from flow_runs import s
from support.gates import Gate

from fsm_agent import Agent, Context, Limits, function
from fsm_agent.errors import Overloaded
from fsm_agent.flows.orchestrator import Orchestrator
from fsm_agent.messages import Inside
from fsm_agent.runtime import SystemClock
from fsm_agent.testing import Script, function_call

DELAY_S = float(os.environ.get("MODEL_DELAY_S", 0))  # of the clerk's model
TURN_S = float(os.environ.get("TURN_S", 0))  # for how long a draft may wait for the other one
WORLD = {"threads": 0, "clock": SystemClock()}  # one after another, and by the clock that engines have, too


def note(file: str, line: str) -> None:
    with Path(file).open("a") as opened:
        opened.write(f"{line}\n")


class Model(Script):
    """Answers the clerk, after a delay; it is busy once for each run."""

    def __init__(self) -> None:
        super().__init__()
        self._refused: set[str] = set()

    async def acomplete(self, request: Any, *, timeout_s: float | None = None) -> Any:
        await asyncio.sleep(DELAY_S)
        return await super().acomplete(request)

    async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
        await asyncio.sleep(DELAY_S)
        async for item in super().astream(request):
            yield item

    def _next(self, request: Any, timeout_s: float | None) -> Any:
        return self._make_reply(self._reply(request), request, timeout_s)

    def _reply(self, request: Any) -> Any:
        task = request.messages[0].text if request.messages[0].role == "user" else request.messages[1].text
        results = [message for message in request.messages if message.role == "tool"]
        if not results:
            return [function_call("look_up", item="kettle"), function_call("pay", amount=19)]
        if len(results) == 2:
            if task not in self._refused and "busy" in task:
                self._refused.add(task)
                return Overloaded("busy", retry_after_s=0.5)
            return "many" if request.messages[-1].role == "tool" else function_call("send", to="ann")
        return "42"


@function
def look_up(item: str) -> float:
    """Look up a price."""
    return 19.5


@function(once=True)
def pay(context: Context[Any], amount: int) -> str:
    """Pay."""
    note("paid.txt", context.idempotency_key)
    return f"paid {amount}"


@function(needs_approval=True)
def send(to: str) -> str:
    """Send a parcel."""
    return f"sent to {to}"


LIMITS = Limits(recalls=50)  # where workers are killed, each new one finds the model busy once more
clerk = Agent(Model(), functions=[look_up, pay, send], output=int, limits=LIMITS, name="clerk", environment=WORLD)


class Turns:
    """A hook of the support flow: of two drafts that are written at once, the terse one is ready after the warm one."""

    def __init__(self) -> None:
        self.is_warm = Gate()

    def on_event(self, event: Any) -> None:
        if isinstance(event, Inside) and "draft_warmly" in event.path and getattr(event.event, "to", "") == "Completed":
            self.is_warm.set()


class Second(flow_kill_worker.Model):
    async def acomplete(self, request: Any, *, timeout_s: float | None = None) -> Any:
        await self._turn()
        return await super().acomplete(request)

    async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
        await self._turn()
        async for item in super().astream(request):
            yield item

    async def _turn(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(TURN_S):
                await turns.is_warm.wait()


turns = Turns()
for state, model in {**flow_kill_worker.models(), s.draft_tersely: Second()}.items():
    one: Any = state.agent
    one.__dict__.update(client=model, _own_environment=one._environment_with(model).changed(**WORLD))

support = replace(s.support, environment=WORLD, hooks=[turns])


@function(once=True, name="note")
def outbox(context: Context[Any], text: str) -> str:
    """Note a text."""
    note("noted.txt", f"{context.idempotency_key} {text}")
    return "noted"


orchestrator = Orchestrator(
    [Agent(orchestrator_kill_worker.Model(), name="worker", functions=[outbox], environment=WORLD)],
    planner=Agent(orchestrator_kill_worker.Model(), name="planner", environment=WORLD),
    name="news",
    environment=WORLD,
)

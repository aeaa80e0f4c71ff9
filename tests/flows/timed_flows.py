"""Flows of timers on the system's clock: what they are made of, and the ways to drive them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import Any

import pytest

from fsm_agent import Agent, Limits
from fsm_agent.call import Request
from fsm_agent.flows import Flow, ask, end
from fsm_agent.messages import Reply
from fsm_agent.runtime import SystemClock
from fsm_agent.testing import Script

SHORT_S = 0.04  # what a timer lasts
FAR_S = 30.0  # one that must not fire
REAL = {"clock": SystemClock()}


@dataclass(frozen=True)
class Log:
    """What has come, in order."""

    entries: tuple[str, ...] = ()


class Stopwatch:
    """Measures how long a flow takes, by the clock that shows more.

    Timers use the system's time, and waits use a clock that is never set.  If the system's time is corrected meanwhile,
    one of the two clocks shows less than a flow of both has waited.
    """

    def __init__(self) -> None:
        self._began = time.time(), time.monotonic()

    @property
    def taken_s(self) -> float:
        return max(time.time() - self._began[0], time.monotonic() - self._began[1])


def noted(text: str) -> Callable[[Log, Any], Log]:
    return lambda log, _: Log((*log.entries, text))


over = end("over")


FREE = threading.Event()


@pytest.fixture(autouse=True, scope="module")
def freed() -> Generator[None]:
    """Release everything that was left in threads."""
    FREE.clear()
    yield
    FREE.set()


class Silent(Script):
    """A model that does not answer."""

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        await asyncio.sleep(FAR_S)
        return await super().acomplete(request)

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
        yield await self.acomplete(request)


async def too_long(log: Any) -> str:
    """Work."""
    await asyncio.Event().wait()
    return "never"


def too_long_in_a_thread(log: Any) -> str:
    """Work."""
    FREE.wait(FAR_S)
    return "never"


async def a_while(log: Any) -> str:
    """Work."""
    await asyncio.sleep(SHORT_S)
    return "fine"


def a_while_in_a_thread(log: Any) -> str:
    """Work."""
    time.sleep(SHORT_S)
    return "fine"


def asking(
    name: str, model: Script, limits: Limits | None = None, *functions: Any, environment: Any = REAL, **options: Any
) -> Any:
    agent = Agent(model, name=name, functions=functions, limits=limits or Limits(), environment=environment)
    return ask(agent, name=name, **options)(lambda _: "Go.")


def flow_of(*states: Any, name: str = "timed", environment: Any = REAL, **options: Any) -> Flow[Log]:
    """Return a flow of states in a row, each of which notes its end."""
    rows = []
    for state, following in zip(states, [*states[1:], over], strict=True):
        events = ["done"] * hasattr(state, "done") + ["failed"] * hasattr(state, "failed")
        events += ["elapsed"] * state.is_timed
        rows += [getattr(state, event)(following, do=noted(f"{state.name} {event}")) for event in events]
    return Flow(name, Log, start=states[0], rows=rows, environment=environment, **options)

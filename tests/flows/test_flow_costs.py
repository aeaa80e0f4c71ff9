"""Do steps, members and their stored data grow only in proportion to the work?"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from dataclasses import dataclass, replace
from typing import Any

import pytest
from support.time_growth import growth

from fsm_agent import Agent, MemoryStore
from fsm_agent.flows import Flow, FlowLimits, ask, each, end, execute
from fsm_agent.testing import Script

pytestmark = pytest.mark.nightly


@dataclass(frozen=True)
class Count:
    limit: int
    n: int = 0


@execute
def here(d: Count) -> int:
    return d.n + 1


@execute
def there(d: Count) -> int:
    return d.n + 1


def is_over(d: Count, n: int) -> bool:
    return n >= d.limit


def keep(d: Count, n: int) -> Count:
    return replace(d, n=n)


over = end("over")
to_and_fro = Flow(
    "to and fro",
    Count,
    start=here,
    rows=[
        here.done(over, when=is_over, do=keep),
        here.done(there, do=keep),
        there.done(over, when=is_over, do=keep),
        there.done(here, do=keep),
    ],
    limits=FlowLimits(steps=100_000),
)


@execute
async def doubled(n: int) -> int:
    return 2 * n


class Same(Script):
    """A model that always gives the same answer."""

    def _next(self, request: Any, timeout_s: float | None) -> Any:
        return self._make_reply("hello", request, timeout_s)


@ask(Agent(Same()))
def asking(n: int) -> str:
    return "hi"


def fan_of(member: Any, parallel: int | None, store: Any = None) -> Flow[Count]:
    members = each("members", member, lambda d: range(d.limit), parallel=parallel)
    row = members.done(over, do=lambda d, given: replace(d, n=len(given)))
    environment = {"threads": 0}  # one after another: what is measured is the work of this thread
    return Flow("fan", Count, start=members, rows=[row], environment=environment, store=store)


def test_steps_take_linear_time() -> None:
    assert growth(lambda n: n, lambda n: to_and_fro.call(Count(n)), 100) < 3


@pytest.mark.parametrize("kind", ["functions", "calls of agents", "functions, stored"])
def test_a_thousand_members_at_once_cost_little_more_than_32_at_a_time(kind: str) -> None:
    """What grows with the number of those that run is copies of plain dictionaries."""
    member = asking if kind == "calls of agents" else doubled

    def took_s(parallel: int | None) -> float:
        flow = fan_of(member, parallel, MemoryStore() if kind.endswith("stored") else None)
        gc.collect()
        gc.disable()  # that Python looks through what lives is no matter of ours
        try:
            start = time.thread_time()
            assert asyncio.run(flow.acall(Count(1000))).output.n == 1000
            return time.thread_time() - start
        finally:
            gc.enable()

    few, many = [], []
    for _ in range(5):  # others use the machine, too
        few.append(took_s(32))
        many.append(took_s(None))
        if min(many) <= 1.3 * min(few):
            break
    assert min(many) <= 1.3 * min(few)


def test_what_a_run_in_a_store_keeps_of_its_members_is_linear() -> None:
    """Each entry of its journal has the record after it, and these share the results of the members."""

    def kept(n: int) -> int:
        tracemalloc.start()
        try:
            run = replace(fan_of(doubled, 32), store=MemoryStore()).prepare(Count(n))
            run.flow.run(run)
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    kept(10)
    assert kept(200) < 6 * kept(50)

"""Does a step of a flow cost what it did, and do steps and members grow as they should?

Calls of functions are counted, which knows no noise; `benchmarks/flow_steps.py` measures times beside others.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
import tracemalloc
from dataclasses import dataclass, replace
from typing import Any

import pytest
from support.paths import ROOT
from test_costs import count

from benchmarks import flow_steps
from benchmarks.costs import exponent
from benchmarks.flow_adapters import ADAPTERS, shared_runner
from fsm_agent import Agent
from fsm_agent.flows import Flow, FlowLimits, call, each, end, execute
from fsm_agent.lifecycle import Begun, Returned
from fsm_agent.store.memory import MemoryStore
from fsm_agent.testing import Script

A_STEP = {  # calls of functions, Python's and C's: a tenth more than there are (November 2026)
    "core": 212,
    "sync driver": 276,
    "asyncio driver": 278,
}
A_MEMBER = {  # the same, of 50 to 100 at once
    "core": 251,
    "sync driver": 311,
    "asyncio driver": 337,
    "sync driver, heard": 333,
    "asyncio driver, heard": 359,
    "sync driver, stored": 344,
    "asyncio driver, stored": 368,
}
AN_AGENT_CALL = {  # of a step that is one: the same as a multiple of those of the call alone, and beyond them
    "times": 1.57,
    "more": 206,
}
SIZES = (50, 200)


@dataclass(frozen=True)
class Count:
    limit: int
    n: int = 0


@execute
async def ahead(d: Count) -> int:
    return d.n + 1


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
ROOM = FlowLimits(steps=max(SIZES) + 1)
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
    limits=ROOM,
)
onward = Flow(
    "onward",
    Count,
    start=ahead,
    rows=[ahead.done(over, when=is_over, do=keep), ahead.done(ahead, do=keep)],
    limits=ROOM,
)


@execute
def doubled(n: int) -> int:
    return 2 * n


@execute
async def doubled_async(n: int) -> int:
    return 2 * n


def fan_of(member: Any, parallel: int | None, store: Any = None, total: Any = sum) -> Flow[Count]:
    members = each("members", member, lambda d: range(d.limit), parallel=parallel)
    row = members.done(over, do=lambda d, given: replace(d, n=total(given)))
    world = {"threads": 0}  # one after another: what is counted is the work of this thread
    return Flow("fan", Count, start=members, rows=[row], world=world, store=store)


fan = fan_of(doubled, 32)


class Same(Script):
    """A model that gives one answer for ever."""

    def _next(self, request: Any, timeout_s: float | None) -> Any:
        return self._make_reply("hello", request, timeout_s)


agent = Agent(Same())


@call(agent)
def asking(d: Count) -> str:
    return "hi"


@call(agent)
def asking_item(n: int) -> str:
    return "hi"


def is_last(d: Count, answer: str) -> bool:
    return d.n + 1 >= d.limit


asked = Flow(
    "asked",
    Count,
    start=asking,
    rows=[asking.done(over, when=is_last), asking.done(asking, do=lambda d, answer: replace(d, n=d.n + 1))],
    limits=ROOM,
)


async def asked_in_a_flow(times: int) -> None:
    assert asked.call(Count(times)).output.n == times - 1


async def asked_alone(times: int) -> None:
    for _ in range(times):
        assert agent.call("hi").output == "hello"


async def core(steps: int) -> None:
    run = to_and_fro.seed(Count(steps))
    run.advance("begin", Begun(id="r", at_s=0.0))
    while run.effects:
        (effect,) = run.effects
        run.advance(effect.key, Returned(text=str(run.data.n + 1)))
    assert run.data.n == steps


async def sync_driver(steps: int) -> None:
    assert to_and_fro.call(Count(steps)).output.n == steps


async def asyncio_driver(steps: int) -> None:
    assert (await onward.acall(Count(steps))).output.n == steps


def members(way: str, parallel: int | None):
    async def work(n: int) -> None:
        driver, _, besides = way.partition(", ")
        store = MemoryStore() if besides == "stored" else None
        flow = fan_of(doubled_async if driver == "asyncio driver" else doubled, parallel, store)
        sink = (lambda _: None) if besides == "heard" else None
        run = flow.seed(Count(n), run_id="r" if store else None)
        if driver == "core":
            run.advance("begin", Begun(id="r", at_s=0.0))
            while run.effects:
                run.advance(run.effects[0].key, Returned(text="2"))
            assert run.data.n == 2 * n
        elif driver == "sync driver":
            assert flow.run(run, sink).output.n == n * (n - 1)
        else:
            assert (await flow.arun(run, sink)).output.n == n * (n - 1)

    return work


WAYS = {"core": core, "sync driver": sync_driver, "asyncio driver": asyncio_driver}


def calls(way, n):
    return count(lambda: way(n)).calls


@pytest.mark.parametrize("name", A_STEP)
def test_steps_are_linear_and_take_no_more_calls_of_functions(name):
    few, many = [calls(WAYS[name], n) for n in SIZES]
    assert (many - few) / (SIZES[1] - SIZES[0]) <= A_STEP[name]
    assert exponent(SIZES, (few, many)) < 1.01


def test_an_agent_call_in_a_flow_takes_little_more_than_one_alone():
    inside, alone = [(calls(way, 60) - calls(way, 30)) / 30 for way in (asked_in_a_flow, asked_alone)]
    assert inside <= AN_AGENT_CALL["times"] * alone
    assert inside - alone <= AN_AGENT_CALL["more"]


@pytest.mark.parametrize("parallel", [None, pytest.param(32, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", A_MEMBER)
def test_members_are_linear_and_cost_no_more(name, parallel):
    few, many = (calls(members(name, parallel), n) for n in (50, 100))
    assert (many - few) / 50 <= A_MEMBER[name]
    assert exponent((50, 100), (few, many)) < 1.03


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["core", "sync driver", "asyncio driver"])
def test_a_thousand_members_are_linear(name):
    sizes = (125, 250, 500, 1000)
    assert exponent(sizes, [calls(members(name, None), n) for n in sizes]) < 1.03


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["functions", "calls of agents", "functions, stored"])
def test_five_thousand_members_at_once_cost_little_more_than_32_at_a_time(kind):
    """Each step copied what is known of all members that run, which counted calls do not show."""
    member = asking_item if kind == "calls of agents" else doubled_async

    def took_s(parallel):
        flow = fan_of(member, parallel, MemoryStore() if kind.endswith("stored") else None, total=len)
        gc.collect()
        gc.disable()  # that Python looks through what lives is no matter of ours
        try:
            start = time.thread_time()
            assert asyncio.run(flow.acall(Count(5000))).output.n == 5000
            return time.thread_time() - start
        finally:
            gc.enable()

    few, many = [], []
    for _ in range(5):  # others use the machine, too
        few.append(took_s(32))
        many.append(took_s(None))
        if min(many) <= 1.2 * min(few):
            break
    assert min(many) <= 1.2 * min(few)


def test_a_thousand_members_give_what_they_should():
    assert fan.call(Count(1000)).output.n == 999_000
    assert asyncio.run(fan.acall(Count(100))).output.n == 9_900


def test_what_a_run_in_a_store_keeps_of_its_members_is_linear():
    """Each entry of its journal has the record after it, and these share the results of the members."""

    def kept(n):
        tracemalloc.start()
        try:
            run = replace(fan, store=MemoryStore()).seed(Count(n))
            run.flow.run(run)
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    kept(10)
    sizes = (50, 100, 200)
    assert exponent(sizes, [kept(n) for n in sizes]) < 1.2


class TestPage:
    TIMES = json.loads(flow_steps.FIGURES.read_text())["times"]

    def test_the_table_is_that_of_the_figures(self):
        assert flow_steps.table(self.TIMES) in (ROOT / "docs" / "cost.md").read_text()

    @pytest.mark.parametrize(("library", "most"), [("core", 16), ("sync", 25), ("asyncio", 25)])
    def test_what_was_measured_is_within_the_aims(self, library, most):
        name = f"fsm_agent, {library}"
        assert flow_steps.cell(self.TIMES, name, "loop", 200) <= most
        assert flow_steps.cell(self.TIMES, name, "loop", (100, 800)) <= 1.05
        assert flow_steps.cell(self.TIMES, name, "members", (125, 1000)) <= 1.1

    @pytest.mark.parametrize("adapter", [name for name, needs in flow_steps.LIBRARIES.items() if not needs])
    def test_what_is_measured_does_what_it_should(self, adapter):
        for work in ADAPTERS[adapter]().values():
            work(7)  # each checks what came of it
        shared_runner().close()
        shared_runner.cache_clear()

"""With 500 clients at once, some slow and some leaving, is nothing lost, and does memory stay flat?"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
from typing import Any

import pytest
from test_follow import Item, last, lasting

from fsm_agent import Agent, MemoryStore, function
from fsm_agent.messages import Done, TextDelta
from fsm_agent.testing import Pieces, Script, function_call
from fsm_agent.web import RunFollower

CLIENTS, RUNS, PIECES = 500, 25, 200
GOING_AWAY = 0.1


def chatty(request: Any) -> Any:
    if request.messages[-1].role == "user":
        return function_call("wait_for_all")
    return Pieces(*[f"word{n} " for n in range(PIECES)])


class Crowd:
    """A function that ends once all clients listen."""

    def __init__(self) -> None:
        self.missing, self.is_there = CLIENTS, asyncio.Event()

        @function
        async def wait_for_all() -> str:
            "Wait."
            await self.is_there.wait()
            return "all are there"

        self.function = wait_for_all

    def come(self) -> None:
        self.missing -= 1
        if not self.missing:
            self.is_there.set()


async def listen(live: RunFollower, run: str, number: int, chance: random.Random, crowd: Crowd) -> list[Item]:
    """Follow a run as a client would: slow or fast, and perhaps going away and coming back."""
    found: list[Item] = []
    is_slow, leaves = number % 2 == 0, chance.random() < GOING_AWAY
    while True:
        after = max([steps for steps, _ in found], default=0)
        items = live.follow(run, after=after)
        async for item in items:
            if not found:
                crowd.come()
            found.append(item)
            for _ in range(chance.randrange(20) if is_slow else 0):
                await asyncio.sleep(0)
            if leaves and len(found) > 5:
                leaves = False
                break
        await items.aclose()
        if found and isinstance(last(found), Done):
            return found


@pytest.mark.nightly
@pytest.mark.timeout(300)
async def test_nothing_is_lost_and_memory_is_flat() -> None:
    async def round_of(live: RunFollower, number: int, crowd: Crowd) -> None:
        runs = [await live.begin("The weather?", run_id=f"{number}-{n}") for n in range(RUNS)]
        chance = random.Random(number)
        ways = [listen(live, runs[n % RUNS], n, chance, crowd) for n in range(CLIENTS)]
        found = await asyncio.gather(*ways)
        whole = {run: lasting([item async for item in live.follow(run)]) for run in runs}
        for n, items in enumerate(found):
            steps: dict[int, Any] = {}
            for one in lasting(items):
                steps.setdefault(one[0], []).append(one[1:]) if one[1:] not in steps.get(one[0], []) else None
            there: dict[int, Any] = {}
            for one in whole[runs[n % RUNS]]:
                there.setdefault(one[0], []).append(one[1:])
            assert steps == there
        pieces = [sum(isinstance(event, TextDelta) for _, event in items) for items in found[1::2]]
        assert pieces.count(PIECES) > 0.8 * len(pieces), "fast ones hear each piece"
        live.runs.prune(keep=0)

    sizes, crowd = [], Crowd()
    model = Script(*[chatty] * (2 * RUNS * 6))
    async with RunFollower(Agent(model, name="desk", functions=[crowd.function], store=MemoryStore())) as live:
        for number in range(4):
            crowd.missing, crowd.is_there = CLIENTS, asyncio.Event()
            await round_of(live, number, crowd)
            model.requests.clear()
            gc.collect()
            sizes.append(sys.getallocatedblocks())
        assert live._driven == {}
    assert sizes[-1] < 1.2 * sizes[1], sizes

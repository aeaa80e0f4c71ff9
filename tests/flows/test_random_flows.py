"""Do random flows come to what their model says, by the system's clock, under every driver?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from random_flows import RandomFlows
from timed_flows import Log, Stopwatch, freed

from fsm_agent import MemoryStore
from fsm_agent.flows import Flow, FlowFailed
from fsm_agent.testing import FakeClock

__all__ = ["freed"]


class Cancel:
    """Cancels the running run from one of its functions, which may run again after a stop of the driver."""

    run: Any

    def __call__(self) -> None:
        if self.run.end_request is None and not self.run.record.reacted_to:
            self.run.cancel("enough")


def seeded(flow: Flow[Log], cancel: Cancel) -> Any:
    cancel.run = flow.prepare(Log(), deps=cancel)
    return cancel.run


def by_call(flow: Flow[Log], cancel: Cancel) -> Any:
    return flow.run(seeded(flow, cancel))


def by_acall(flow: Flow[Log], cancel: Cancel) -> Any:
    return asyncio.run(flow.arun(seeded(flow, cancel)))


def by_stream(flow: Flow[Log], cancel: Cancel) -> Any:
    return [*flow.stream(seeded(flow, cancel))][-1].result  # type: ignore[union-attr]


def by_astream(flow: Flow[Log], cancel: Cancel) -> Any:
    async def main() -> Any:
        return [event async for event in flow.astream(seeded(flow, cancel))][-1]

    return asyncio.run(main()).result


def by_run(flow: Flow[Log], cancel: Cancel) -> Any:
    """With a listener."""
    return flow.run(seeded(flow, cancel), lambda event: None)


def by_call_stored(flow: Flow[Log], cancel: Cancel) -> Any:
    return by_call(replace(flow, store=MemoryStore()), cancel)


def by_acall_stored(flow: Flow[Log], cancel: Cancel) -> Any:
    return by_acall(replace(flow, store=MemoryStore()), cancel)


def by_pieces(flow: Flow[Log], cancel: Cancel) -> Any:
    """Stop after the first event, the third, the seventh …; each time, go on through JSON."""
    run, events = seeded(flow, cancel), 1
    while run.effects:
        with closing(flow.stream(run)) as driven:
            list(islice(driven, events))
        request, run = run.end_request, flow.restore(run.snapshot(), deps=cancel)
        cancel.run = run
        run.end_request = request  # it belongs to the object, and was not taken yet
        events *= 2
    return run.result()


Way = Callable[[Flow[Log], Cancel], Any]
WAYS: list[Way] = [by_call, by_acall, by_stream, by_astream, by_run, by_call_stored, by_acall_stored, by_pieces]


def came_to(seed: int, drive: Way) -> Any:
    """Return what a flow has come to, and whether it took its time and no longer."""
    flow, _, entries, least_s = RandomFlows(seed).flow()
    watch = Stopwatch()
    try:
        ended = drive(flow, Cancel())
    except FlowFailed as failed:
        ended = failed.run
    took_s = watch.taken_s
    is_right = took_s >= least_s - 0.01
    found = None if entries is None else ended.output.entries
    return ended.state, found, "in time" if is_right else f"after {took_s:.2f} s, not {least_s:.2f}"


def wrong_of(seed: int, ways: list[Way]) -> dict[str, Any]:
    """Return what a flow has come to under the ways of driving that lead it elsewhere."""
    _, state, entries, _ = RandomFlows(seed).flow()
    found = {drive.__name__: came_to(seed, drive) for drive in ways}
    return {way: end for way, end in found.items() if end != (state, entries, "in time")}


@pytest.mark.parametrize("seed", range(24))
def test_random_flows_come_to_the_same_end_by_a_clock_of_their_own(seed: int) -> None:
    for turn in (0, 3, 6):
        flow, state, entries, _ = RandomFlows(seed, FakeClock()).flow()
        drive = WAYS[(seed + turn) % len(WAYS)]
        try:
            ended = drive(flow, Cancel())
        except FlowFailed as failed:
            ended = failed.run
        assert (ended.state, None if entries is None else ended.output.entries) == (state, entries), drive


@pytest.mark.system
@pytest.mark.parametrize("seed", range(6))
def test_random_flows_come_to_the_same_end_in_their_time_under_drivers_by_turns(seed: int) -> None:
    ways = [WAYS[(seed + turn) % len(WAYS)] for turn in (0, 3)]
    with ThreadPoolExecutor(len(ways)) as threads:
        assert [*threads.map(lambda way: wrong_of(seed, [way]), ways)] == [{}] * len(ways)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seeds", [range(first, first + 1250) for first in range(0, 5_000, 1250)], ids=str)
def test_so_do_five_thousand(seeds: range, say: Callable[[str], None]) -> None:
    def wrong_in_turns(seed: int) -> dict[str, Any]:
        """Five of the drivers for each flow, so that each driver has its turn."""
        return wrong_of(seed, [WAYS[(seed + turn) % len(WAYS)] for turn in range(5)])

    with ThreadPoolExecutor(16) as threads:
        found = dict(zip(seeds, threads.map(wrong_in_turns, seeds), strict=True))
    ends = Counter(RandomFlows(seed).flow()[1] for seed in seeds)
    say(f"{len(seeds)} random flows under five of {len(WAYS)} drivers each: {dict(ends)}")
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}

"""Do random flows come to what their model says, by the system's clock, under every driver?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import pytest
from random_flows import RandomFlows
from timed_flows import FAR_S, Log, freed

from fsm_agent import MemoryStore
from fsm_agent.flows import Flow, FlowFailed

__all__ = ["freed"]


Hold = Callable[[Any], None]  # is given the run that is driven, before it is


def seeded(flow: Flow[Log], hold: Hold) -> Any:
    run = flow.seed(Log())
    hold(run)
    return run


def by_call(flow: Flow[Log], hold: Hold) -> Any:
    return flow.run(seeded(flow, hold))


def by_acall(flow: Flow[Log], hold: Hold) -> Any:
    return asyncio.run(flow.arun(seeded(flow, hold)))


def by_stream(flow: Flow[Log], hold: Hold) -> Any:
    return [*flow.stream(seeded(flow, hold))][-1].result  # type: ignore[union-attr]


def by_astream(flow: Flow[Log], hold: Hold) -> Any:
    async def main() -> Any:
        return [event async for event in flow.astream(seeded(flow, hold))][-1]

    return asyncio.run(main()).result


def by_run(flow: Flow[Log], hold: Hold) -> Any:
    """With a listener."""
    return flow.run(seeded(flow, hold), lambda event: None)


def by_call_stored(flow: Flow[Log], hold: Hold) -> Any:
    return by_call(replace(flow, store=MemoryStore()), hold)


def by_acall_stored(flow: Flow[Log], hold: Hold) -> Any:
    return by_acall(replace(flow, store=MemoryStore()), hold)


def by_pieces(flow: Flow[Log], hold: Hold) -> Any:
    """Stop after the first event, the third, the seventh …; each time, go on through JSON."""
    run, events = seeded(flow, hold), 1
    while run.effects:
        with closing(flow.stream(run)) as driven:
            list(islice(driven, events))
        request, run = run.end_request, flow.restore(run.snapshot())
        hold(run)
        run.end_request = request  # it belongs to the object, and was not taken yet
        events *= 2
    return run.result()


WAYS = [by_call, by_acall, by_stream, by_astream, by_run, by_call_stored, by_acall_stored, by_pieces]


def came_to(seed: int, drive: Callable[[Flow[Log], Hold], Any]) -> Any:
    """Return what a flow has come to, and whether it took its time and no longer."""
    drawn = RandomFlows(seed)
    flow, _, entries, least_s = drawn.flow()

    def hold(run: Any) -> None:
        drawn.cancel = partial(_cancel_once, run)

    began = time.monotonic()
    try:
        ended = drive(flow, hold)
    except FlowFailed as failed:
        ended = failed.run
    took_s = time.monotonic() - began
    is_right = least_s - 0.01 <= took_s < FAR_S / 2
    found = None if entries is None else ended.output.entries
    return ended.state, found, "in time" if is_right else f"after {took_s:.2f} s, not {least_s:.2f}"


def _cancel_once(run: Any) -> None:
    """Cancel a run from a function of it, which may run again after the driver was stopped."""
    if run.end_request is None and not run.record.reacted_to:
        run.cancel("enough")


@pytest.mark.parametrize("seed", range(24))
def test_a_random_flow_comes_to_the_same_end_in_its_time_under_every_driver(seed: int) -> None:
    _, state, entries, _ = RandomFlows(seed).flow()
    with ThreadPoolExecutor(len(WAYS)) as threads:
        tried = {drive.__name__: threads.submit(came_to, seed, drive) for drive in WAYS}
        found = {way: one.result() for way, one in tried.items()}
    assert found == dict.fromkeys(found, (state, entries, "in time"))

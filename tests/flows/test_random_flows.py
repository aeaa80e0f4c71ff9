"""Do random flows come to what their model says, by the system's clock, under every driver?"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from random_flows import RandomFlows
from timed_flows import DRIVERS, FAR_S, Log, by_acall, by_call, freed

from fsm_agent import MemoryStore
from fsm_agent.flows import Flow, FlowFailed

__all__ = ["freed"]


def by_run(flow: Flow[Log]) -> Any:
    """With a listener."""
    return flow.run(flow.seed(Log()), lambda event: None)


def by_call_stored(flow: Flow[Log]) -> Any:
    return by_call(replace(flow, store=MemoryStore()))


def by_acall_stored(flow: Flow[Log]) -> Any:
    return by_acall(replace(flow, store=MemoryStore()))


def by_pieces(flow: Flow[Log]) -> Any:
    """Stop after the first event, the third, the seventh …; each time, go on through JSON."""
    run, events = flow.seed(Log()), 1
    while run.effects:
        with closing(flow.stream(run)) as driven:
            list(islice(driven, events))
        run, events = flow.restore(run.snapshot()), 2 * events
    return run.result()


WAYS = [*DRIVERS, by_run, by_call_stored, by_acall_stored, by_pieces]


def came_to(seed: int, drive: Callable[[Flow[Log]], Any]) -> Any:
    """Return what a flow has come to, and whether it took its time and no longer."""
    flow, _, entries, least_s = RandomFlows(seed).flow()
    began = time.monotonic()
    try:
        ended = drive(flow)
    except FlowFailed as failed:
        ended = failed.run
    took_s = time.monotonic() - began
    is_right = least_s - 0.01 <= took_s < FAR_S / 2
    found = None if entries is None else ended.output.entries
    return ended.state, found, "in time" if is_right else f"after {took_s:.2f} s, not {least_s:.2f}"


@pytest.mark.parametrize("seed", range(24))
def test_a_random_flow_comes_to_the_same_end_in_its_time_under_every_driver(seed: int) -> None:
    _, state, entries, _ = RandomFlows(seed).flow()
    with ThreadPoolExecutor(len(WAYS)) as threads:
        tried = {drive.__name__: threads.submit(came_to, seed, drive) for drive in WAYS}
        found = {way: one.result() for way, one in tried.items()}
    assert found == dict.fromkeys(found, (state, entries, "in time"))

"""Is a random flow, read without its code, at every entry in the states in which its process is?"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from random_flows import RandomFlows
from timed_flows import Log, freed

from fsm_agent import MemoryStore
from fsm_agent.flows import FlowFailed
from fsm_agent.store.history import read
from fsm_agent.testing import FakeClock

__all__ = ["freed"]

LATER_S = 4e9  # by a clock that is ahead of the store's, which says when a run was cancelled


def states_in(record: Any, path: str = "") -> dict[str, str]:
    """Return the states of a process and its inner processes, by path."""
    found = {path: str(record.state)}
    for name, child in record.children.items():
        found |= states_in(getattr(child, "record", child), f"{path}/{name}" if path else name)
    return found


def wrong_in(seed: int, clock: Any = None) -> list[str]:
    """Run the flow of a seed; return where its reading differs from its process."""
    made, *_ = RandomFlows(seed, clock).flow()
    flow = replace(made, store=MemoryStore())
    with suppress(FlowFailed):
        flow.call(Log(), run_id="one", deps=lambda *_: partial(flow.runs.all.cancel, "one"))
    reading, wrong = read(flow.runs.all, "one"), []
    for n in range(len(reading.entries) + 1):
        there, read_there = states_in(flow.runs.at("one", n).record), dict(reading.at(n).states)
        if read_there != there:
            wrong.append(f"seed {seed}, entry {n}: {read_there}, and {there} would be right")
    table = reading.table()
    if table is None or {move.step.to for move in reading.process.moves} - {*table.states}:
        wrong.append(f"seed {seed}: the table {table} lacks a state")
    return wrong


@pytest.mark.parametrize("seed", range(8))
def test_it_is_read_as_it_was(seed: int) -> None:
    assert wrong_in(seed, FakeClock(LATER_S)) == []


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_so_are_a_thousand(say: Callable[[str], None]) -> None:
    wrong = [problem for seed in range(1000) for problem in wrong_in(seed)]
    say(f"1,000 random flows read at every entry, {len(wrong)} entries read wrongly")
    assert wrong == []

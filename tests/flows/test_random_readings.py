"""Is a random flow, read without its code, at every entry in the states in which its process is?"""

from __future__ import annotations

import json
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
from fsm_agent.machine.journal import line_of
from fsm_agent.machine.process import SEPARATOR
from fsm_agent.store.reading import UNKNOWN, read

pytestmark = pytest.mark.system

__all__ = ["freed"]


def states_in(record: Any, path: str = "") -> dict[str, str]:
    """Return the states of a process and of those inside of it, by path."""
    found = {path: str(record.state)}
    for name, child in record.children.items():
        found |= states_in(getattr(child, "record", child), f"{path}{SEPARATOR}{name}" if path else name)
    return found


def wrong_in(seed: int) -> list[str]:
    """Run the flow of a seed; return where its reading differs from its process."""
    made, *_ = RandomFlows(seed).flow()
    flow = replace(made, store=MemoryStore())
    with suppress(FlowFailed):
        flow.call(Log(), run_id="one", deps=partial(flow.runs.cancel, "one"))
    reading, wrong = read(flow.runs, "one"), []
    for n in range(len(reading.entries) + 1):
        there, read_there = states_in(flow.at("one", n).record), dict(reading.at(n).states)
        if read_there != there:
            wrong.append(f"seed {seed}, entry {n}: {read_there}, and {there} would be right")
    table = reading.table()
    if table is None or {move.step.to for move in reading.process.moves} - {*table.states}:
        wrong.append(f"seed {seed}: the table {table} lacks a state")
    return wrong


@pytest.mark.parametrize("seed", range(12))
def test_it_is_read_as_it_was(seed: int) -> None:
    assert wrong_in(seed) == []


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_so_are_a_thousand(say: Callable[[str], None]) -> None:
    wrong = [problem for seed in range(1000) for problem in wrong_in(seed)]
    say(f"1,000 random flows read at every entry, {len(wrong)} entries read wrongly")
    assert wrong == []


@pytest.mark.parametrize("seed", range(6))
def test_a_journal_of_an_earlier_release_is_read(seed: int) -> None:
    """It says neither what began inside nor where steps led: the states are found from the keys, or are unknown."""
    made, *_ = RandomFlows(seed).flow()
    flow = replace(made, store=MemoryStore())
    with suppress(FlowFailed):
        flow.call(Log(), run_id="one", deps=partial(flow.runs.cancel, "one"))
    now = read(flow.runs, "one")
    kept = flow.runs.store._runs["one"]
    header = json.loads(kept.header)
    header.pop("tables", None)
    kept.header = json.dumps(header)
    kept.lines[:] = [
        json.dumps({name: value for name, value in json.loads(line).items() if name not in ("to", "begun")})
        for line in kept.lines
    ]
    assert not any(line_of(line).to for line in kept.lines)
    then = read(flow.runs, "one")
    assert (then.kind, [*then.processes]) == (now.kind, [*now.processes])
    assert [len(one.moves) for one in then.processes.values()] == [len(one.moves) for one in now.processes.values()]
    steps = [(old.step.to, new.step.to) for old, new in zip(then.process.moves, now.process.moves, strict=True)]
    assert [old for old, new in steps if old not in (new, UNKNOWN)] == []
    assert then.process.state == now.process.state
    for n in range(len(then.entries) + 1):
        then.at(n)

"""Do forks of random flows, at every step, come to the end of the flow they were made from?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from random_flows import RandomFlows
from timed_flows import FAR_S, Log, freed

from fsm_agent import MemoryStore
from fsm_agent.flows import Flow, FlowFailed, FlowLimits
from fsm_agent.store import Runs
from fsm_agent.testing import FakeClock

__all__ = ["freed"]

LATER_S = 4e9  # by a clock that is ahead of the store's, which says when a run was cancelled
AT_ONCE = 16  # forks that are driven at a time
DEADLINE_S = 3600.0  # of a flow that has one which must not pass: its forks keep it, and all of them must end before


def driven(flow: Flow[Log], run_id: str, by_asyncio: bool) -> Any:
    """Continue a run; return its end."""

    def cancel(*_: Any) -> Any:
        return partial(flow.runs.all.cancel, run_id)

    try:
        return (
            asyncio.run(flow.runs.aresume(run_id, deps=cancel)) if by_asyncio else flow.runs.resume(run_id, deps=cancel)
        )
    except FlowFailed as failed:
        return failed.run.result_so_far


def tried(flow: Flow[Log], step: int, end: tuple[str, Any], chance: Random) -> list[str]:
    """Fork a run at a step, with the same data and with others.  Return the mistakes in the forks."""
    past = flow.runs.at("one", step)
    wrong = []
    state, entries = end
    for edit in [None, Log(("new",))]:
        if edit is not None and past.state not in [state.name for state in flow.live]:
            continue
        name = flow.runs.fork("one", step, data=edit, by="ann", new_run_id=f"{step} {edit}")
        if flow.runs.replay(name).snapshot() != flow.runs.at(name).snapshot():
            wrong.append(f"{name}: its snapshot is another record than its journal")
        if past.record.trace and flow.runs.at(name).record.trace[: len(past.record.trace)] != past.record.trace[:]:
            wrong.append(f"{name}: it has another beginning")
        ended = driven(flow, name, chance.random() < 0.5)
        right = entries if edit is None or entries is None else (*edit.entries, *entries[len(past.data.entries) :])
        found = ended.state, None if entries is None else ended.output.entries
        if found != (state, right):
            wrong.append(f"{name}: {found}, and {state, right} would be right")
    return wrong


def forks_of(seed: int, store: Any = None, *, at_most: int | None = None, clock: Any = None) -> list[str]:
    """Run the flow of a seed, and fork it at all or some of its steps.  Return the mistakes in the forks."""
    made, state, entries, _ = RandomFlows(seed, clock).flow()
    limits = FlowLimits(deadline_s=DEADLINE_S) if made.limits.deadline_s == FAR_S else made.limits
    flow = replace(made, store=store or MemoryStore(), limits=limits)
    with suppress(FlowFailed):
        flow.call(Log(), run_id="one", deps=lambda *_: partial(flow.runs.all.cancel, "one"))
    before = flow.runs.all.store.load("one")
    chance = Random(seed)
    every = range(before.run.n + 1)
    steps = every if at_most is None else sorted(chance.sample(every, min(at_most, len(every))))
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = threads.map(lambda step: tried(flow, step, (state, entries), Random(chance.random())), steps)
    wrong = [f"seed {seed}: {problem}" for problems in found for problem in problems]
    if flow.runs.all.store.load("one") != before:
        wrong.append(f"seed {seed}: the run was changed by its forks")
    return wrong


@pytest.mark.parametrize("seed", range(4))
def test_a_fork_at_any_step_comes_to_the_end_of_the_run(seed: int) -> None:
    assert forks_of(seed, clock=FakeClock(LATER_S)) == []


@pytest.mark.system
def test_so_do_forks_in_a_file(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.db", signing_key="k" * 32)
    assert forks_of(3, runs) == []
    runs.close()


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seeds", [range(first, first + 1250) for first in range(0, 5_000, 1250)], ids=str)
def test_forks_of_five_thousand_flows_come_to_their_ends(
    seeds: range, tmp_path: Path, say: Callable[[str], None]
) -> None:
    def in_one_of_the_stores(seed: int) -> list[str]:
        if seed % 25:
            return forks_of(seed, at_most=None if seed % 10 == 0 else 3)
        with closing(Runs(tmp_path / f"{seed}.db", signing_key="k" * 32)) as runs:
            return forks_of(seed, runs)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(in_one_of_the_stores, seeds))
    say(f"{len(seeds)} random flows forked at three steps, every tenth at each; {len(seeds[::25])} in a file")
    assert [problem for problems in found for problem in problems] == []

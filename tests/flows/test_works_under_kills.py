"""Do a support flow, a coding agent of 60 rounds and an orchestrator end alike on each store, while workers die?

And with every scheduler: the store's claims, DBOS and Temporal.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import works_worker
from flow_kill_worker import models
from flow_runs import given_to_agents
from support import temporal
from support.kept_runs import assert_fences
from support.postgres import NOT_HERE, PostgresServer, programs
from support.temporal import TemporalServer
from works_worker import answers, effects_in, seeded, works

from fsm_agent.errors import FsmAgentError
from fsm_agent.store import MemoryStore, Runs
from fsm_agent.workers import Worker

COUNTS = {"support": 120, "coder": 60, "orchestrator": 120}
FEWER = {"support": 16, "coder": 8, "orchestrator": 16}  # over engines, which take longer
WORKERS = 3
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform == "win32", reason="kill -9"),
]


class Place(NamedTuple):
    """Where the runs are, and who says which is due."""

    address: str
    engine: str = ""
    temporal: str = ""  # the address of its server

    @property
    def counts(self) -> dict[str, int]:
        return FEWER if self.engine else COUNTS


ENGINES = [
    pytest.param("dbos", marks=pytest.mark.skipif(find_spec("dbos") is None, reason="dbos comes with [dbos]")),
    pytest.param(
        "temporal",
        marks=[
            pytest.mark.skipif(find_spec("temporalio") is None, reason="temporalio comes with [temporal]"),
            pytest.mark.skipif(temporal.program() is None, reason=temporal.NOT_HERE),
        ],
    ),
]


@pytest.fixture(params=["sqlite", "postgres", *ENGINES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield Place(str(tmp_path / "runs.db"))
        return
    if programs() is None:
        pytest.skip(NOT_HERE)
    with ExitStack() as stack:
        server = stack.enter_context(closing(PostgresServer()))
        if request.param == "postgres":
            yield Place(server.url())
            return
        of_temporal = stack.enter_context(closing(TemporalServer())).address if request.param == "temporal" else ""
        yield Place(f"{server.url()}&engine={request.param}", request.param, of_temporal)


def end_of(work: Any, run: str) -> Any:
    """Return how a run ended, and on the way there, without times and names; its whole journal is folded again."""
    assert_fences(work.runs.all.store.load(run).lines)
    if work.name == "coder":
        result = work.runs.resume(run)
        text = "\n".join([message.text for message in result.dialog])
        return result.output, len(result.dialog), hashlib.blake2b(text.encode()).hexdigest()
    if work.name == "support":
        record = work.runs.replay(run).record
        taken = [(step.source, step.to) for step in record.trace if step.source != step.to]
        return record.state, replace(record.data, receipt=""), taken
    result = work.runs.replay(run).result_so_far
    tried = [(e.step_id, e.agent, e.status, e.output, e.error) for e in result.journal]
    return result.state, result.context, result.redesigns, result.steps_executed, tried


def answered(runs: Runs, made: dict[str, Any], folder: Path) -> int:
    """Have a person answer all that is asked; return how many doubts there were."""
    doubts, effects = 0, {*effects_in(folder)}
    for run in runs.store.list(asked=True, limit=sum(COUNTS.values())):
        told = answers(made[run.agent], run, effects)
        with suppress(FsmAgentError):  # it has moved on
            runs.answer(run.id, told, by="ann")
            doubts += sum("reconcile:" in key for key in told)
    return doubts


def undisturbed(folder: Path) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return the end and the effects of each work without kills."""
    runs = Runs(MemoryStore())
    made = works(runs)
    for name, work in made.items():
        assert runs.store.create(name, seeded(work, name).journal.header, agent=name)
    while runs.store.list(ended=False):
        Worker([*made.values()], runs).run(once=True)
        assert not answered(runs, made, folder)
    effects = {name: sorted([text for run, text in effects_in(folder) if run == name]) for name in made}
    return {name: end_of(work, name) for name, work in made.items()}, effects


def test_each_ends_as_if_nobody_had_died(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Callable[[str], None]
) -> None:
    given_to_agents(models(), monkeypatch)
    alone, crowd = tmp_path / "alone", tmp_path / "crowd"
    for folder in (alone, crowd):
        folder.mkdir()
    monkeypatch.chdir(alone)
    ends, effects = undisturbed(alone)
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, [Path(__file__).parent, *Path(__file__).parents[1:3]]))
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["works_worker", "psycopg", "psycopg_pool"])
    runs, deaths, doubts, rng = Runs(place.address), 0, 0, random.Random(5)
    made = works(runs)
    names = [(f"{name} {number}", name) for name, count in place.counts.items() for number in range(count)]
    for run, name in rng.sample(names, len(names)):
        assert runs.store.create(run, seeded(made[name], run).journal.header, agent=name)
    began_s = time.monotonic()
    workers: list[Any] = []
    next_kill_s, effects_before = began_s + 2.0, 0
    try:
        while runs.store.list(ended=False, limit=1):
            assert time.monotonic() < began_s + 800
            while len(workers) < WORKERS:
                arguments = (place.address, str(crowd), place.engine, place.temporal)
                workers.append(forks.Process(target=works_worker.work, args=arguments, daemon=True))
                workers[-1].start()
            doubts += answered(runs, made, crowd)
            effects_now = len(effects_in(crowd))
            if time.monotonic() > next_kill_s and effects_now >= effects_before + 3:  # they have gone on since
                effects_before = effects_now
                victim = workers.pop(rng.randrange(len(workers)))
                victim.kill()
                victim.join(10)
                deaths += 1
                next_kill_s = time.monotonic() + rng.uniform(1.0, 3.0)
            runs.store.wait(0.1)
    finally:
        for worker in workers:
            worker.kill()
            worker.join(10)
    took_s = time.monotonic() - began_s
    done = effects_in(crowd)
    assert max(Counter(done).values()) == 1
    assert [run for run, name in names if end_of(made[name], run) != ends[name]] == []
    assert {run: sorted([text for of, text in done if of == run]) for run, _ in names} == {
        run: effects[name] for run, name in names
    }
    runs.close()
    assert deaths > (2 if place.engine else 5)
    say(
        f"{place.engine or 'own claim'}: {len(names)} runs ({place.counts}) in {took_s:.0f} s, {deaths} deaths of"
        f" {WORKERS} workers: equal ends, {len(done)} effects, each once; {doubts} times a person was asked"
    )

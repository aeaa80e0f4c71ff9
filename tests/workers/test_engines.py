"""Own claim, DBOS and Temporal: does each drive the same runs to the same journals?"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from engine_agents import clerk, orchestrator, support
from engine_crews import EFFECTS, answered_until_all_end, begin, begin_all, journal, lines, worker
from support import temporal
from support.postgres import NOT_HERE, PostgresServer, programs
from support.temporal import TemporalServer

from fsm_agent.store import Runs

pytestmark = [
    pytest.mark.skipif(programs() is None, reason=NOT_HERE),
    pytest.mark.timeout(300),  # workers begin in OS processes of their own, on a machine that may be busy
]
DBOS = pytest.param("dbos", marks=pytest.mark.skipif(find_spec("dbos") is None, reason="dbos comes with [dbos]"))
TEMPORAL = pytest.param(
    "temporal",
    marks=[
        pytest.mark.skipif(find_spec("temporalio") is None, reason="temporalio comes with [temporal]"),
        pytest.mark.skipif(temporal.program() is None, reason=temporal.NOT_HERE),
    ],
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with closing(PostgresServer()) as server:
        yield server


@pytest.fixture(scope="module")
def temporal_server() -> Iterator[Callable[[], TemporalServer]]:
    """Return the server, which is started when it is first needed."""
    with ExitStack() as stack:
        servers: list[TemporalServer] = []

        def started() -> TemporalServer:
            if not servers:
                servers.append(stack.enter_context(closing(TemporalServer())))
            return servers[0]

        yield started


class Place:
    """A store, and how its workers are started."""

    def __init__(self, postgres: PostgresServer, engine: str, server: Any, folder: Path) -> None:
        self.folder = folder
        self.engine = engine
        self.schema = "t" + hashlib.blake2b(f"{folder}{engine}".encode(), digest_size=8).hexdigest()
        self.url = postgres.url(self.schema) + (f"&engine={engine}" if engine else "")
        self.options = ["--engine", engine] if engine else []
        self.temporal = server().address if engine == "temporal" else ""

    def worker(self, *options: str, **more: Any) -> Any:
        return worker(self.folder, self.url, *self.options, *options, temporal=self.temporal, **more)

    def runs(self, **options: Any) -> Any:
        return closing(Runs(self.url, **options))


Places = Callable[[str], Place]


@pytest.fixture
def place(postgres: PostgresServer, temporal_server: Any, tmp_path: Path) -> Places:
    def made(engine: str) -> Place:
        folder = tmp_path / (engine or "own")
        folder.mkdir()
        return Place(postgres, engine, temporal_server, folder)

    return made


def driven(place: Place) -> dict[str, str]:
    """Have one run of each kind driven by a worker, and return their journals."""
    with place.runs() as runs, place.worker("--threads", "2", "--patience", "0", turn_s=60):
        names = begin_all(runs, [1])
        answered_until_all_end(place.folder, runs, names, 200)
        return {name: journal(runs, name) for name in names}


@pytest.fixture(scope="module")
def own_journals(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return driven(Place(postgres, "", None, tmp_path_factory.mktemp("own")))


@pytest.mark.system
@pytest.mark.parametrize("engine", [DBOS, TEMPORAL])
def test_the_journals_are_those_of_the_own_claim(engine: str, place: Places, own_journals: dict[str, str]) -> None:
    here = place(engine)
    journals = driven(here)
    assert journals.keys() == own_journals.keys()
    for name, lines_of in journals.items():
        assert lines_of == own_journals[name], name
    for file in EFFECTS:
        keys = [line.split()[0] for line in lines(here.folder / file)]
        assert len(keys) == len({*keys}), file


@pytest.mark.nightly
@pytest.mark.parametrize("engine", [DBOS])
def test_the_rows_of_jobs_that_are_done_are_removed(engine: str, place: Places) -> None:
    here, at_once = place(engine), "import fsm_agent.workers.dbos as d; d.KEEP_S = d.TIDY_S = 0.0"
    with here.runs() as runs, here.worker(before=at_once):
        begin(runs, clerk, "clerk", "Send it.")
        answered_until_all_end(here.folder, runs, ["clerk"], 200)
        tables = [f"{here.schema}_dbos.workflow_{name}" for name in ("status", "input", "output")]
        rows = " + ".join(f"(SELECT count(*) FROM {table})" for table in tables)
        with psycopg.connect(runs.store.address.conninfo, autocommit=True) as connection:
            ends_s = time.monotonic() + 60
            while connection.execute(f"SELECT {rows}").fetchone() != (0,):
                assert time.monotonic() < ends_s
                time.sleep(0.1)


@pytest.mark.nightly
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("engine", [pytest.param("", id="own"), DBOS, TEMPORAL])
def test_nothing_is_lost_while_workers_are_killed(engine: str, place: Places, say: Callable[[str], None]) -> None:
    """Three workers; every few entries, one that drives a run is killed, and another begins."""
    here, random, kills, next_n = place(engine), Random(31), 0, 10
    with here.runs() as runs, ExitStack() as stack:
        crew = {one.pid: one for one in (stack.enter_context(here.worker("--threads", "3")) for _ in range(3))}
        names = begin_all(runs, range(14))

        def kill() -> None:
            nonlocal kills, next_n
            rows = runs.store.list(limit=1000)
            held = [int(run.holder.split(":")[1]) for run in rows if run.holder is not None]
            if held and sum(run.n for run in rows) >= next_n and (one := crew.pop(random.choice(held), None)):
                one.kill()
                one.wait()
                later = stack.enter_context(here.worker("--threads", "3"))
                crew[later.pid] = later
                kills, next_n = kills + 1, sum(run.n for run in rows) + random.randint(5, 25)

        doubts = answered_until_all_end(here.folder, runs, names, 1400, kill)
        once = [line.split()[0] for file in EFFECTS for line in lines(here.folder / file)]
        kinds = {
            "clerk": lambda runs: replace(clerk, store=runs),
            "support": lambda runs: replace(support, store=runs),
            "news": lambda runs: orchestrator.changed(store=runs),
        }
        states = Counter(f"{run.agent} {run.state}" for run in runs.store.list(limit=1000))
        for name in names:
            fences = [json.loads(line)["fence"] for line in runs.store.load(name).lines]
            assert fences == sorted(fences), name
            kinds[name.partition("-")[0]](runs).runs.replay(name)  # raises where two have driven it
    say(f"{engine or 'own claim'}: {len(names)} runs, {kills} kills, {doubts} doubts, {len(once)} effects")
    assert states == {"clerk Completed": 14, "support sent": 14, "news completed": 14}
    assert len(once) == len({*once}) == 14 * (1 + 1 + 2), "each that is `once` was done once"

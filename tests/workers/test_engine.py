"""What a store tells an engine, and how the engine reacts, without a real engine."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.postgres import NOT_HERE, PostgresServer, programs
from support.shop_agent import OTHER, shop
from support.workers import Away
from typer.testing import CliRunner

from fsm_agent import Worker
from fsm_agent.cli import app
from fsm_agent.errors import UsageError
from fsm_agent.messages import Question
from fsm_agent.store import MemoryStore, PostgresStore, Start, StoreError, Suspension
from fsm_agent.workers import Engine, engine_of

OLD_S = 10.0  # after which a run that is due counts as lost
ODD = 'it\'s \x00 \x1a "odd" \\ ü\u2028 {}'


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    if programs() is None:
        pytest.skip(NOT_HERE)
    with closing(PostgresServer()) as server:
        yield server


@pytest.fixture
def url(server: PostgresServer, tmp_path: Path) -> str:
    return server.url("t" + hashlib.blake2b(str(tmp_path).encode(), digest_size=8).hexdigest())


class Clock:
    """A clock that only a test moves."""

    now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


class Told:
    """A store, and what its hook was told."""

    def __init__(self, url: str) -> None:
        self.clock = Clock()
        self.all: list[tuple[str, float]] = []
        self.store = PostgresStore(url, self.clock, on_due=lambda c, run, due_s: self.all.append((run, due_s)))

    def now(self) -> list[tuple[str, float]]:
        """Return the messages to the hook since the last time."""
        told, self.all[:] = [*self.all], []
        return told

    def runs(self) -> list[str]:
        return [run for run, _ in self.now()]

    def remind(self, *agents: str, limit: int = 10) -> list[str]:
        told = self.store.remind(agents or ["a"], older_s=OLD_S, limit=limit)
        runs = self.runs()
        assert told == len(runs)
        return runs

    def rest(self, lease: Any, **rest: Any) -> None:
        self.store.append(lease, lease.n, (), Suspension(state="S", **rest))


@pytest.fixture
def told(url: str) -> Iterator[Told]:
    told = Told(url)
    with closing(told.store):
        yield told


# The hook


@pytest.mark.system
def test_it_is_told_of_each_commit_that_makes_a_run_due(told: Told) -> None:
    store, start_s = told.store, told.clock.now_s
    store.create("r", "header", agent="a")
    assert told.now() == [("r", start_s)]
    store.create("r", "header", agent="a")
    assert told.now() == []
    told.rest(store.claim("w", for_s=60), due_s=start_s + 50)
    assert told.now() == [("r", start_s + 50)]
    lease = store.claim("w", for_s=60, run="r")
    store.append(lease, 0, ["1"])
    store.append(lease, 1, [], Suspension(state="S", questions=(Question("ask:1", "approval", "", ("approved",)),)))
    assert told.now() == []
    store.signal("r", "ask:1", "{}")
    assert told.now() == [("r", start_s)]
    lease = store.claim("w", for_s=60, run="r")
    told.rest(lease, is_ended=True)
    assert told.now() == []


@pytest.mark.system
def test_a_hook_that_fails_leaves_nothing_behind(url: str) -> None:
    """The job and the run are one commit."""

    def fails(connection: psycopg.Connection[Any], run: str, due_s: float) -> None:
        connection.execute("SELECT 1 / 0")

    with closing(PostgresStore(url, on_due=fails)) as store:
        with pytest.raises(StoreError, match="division by zero"):
            store.create("r", "header", agent="a")
        assert store.list() == []


DBOS_BEGUN = """
CREATE SCHEMA {0}_dbos;
CREATE FUNCTION {0}_dbos.enqueue_workflow(workflow_name text, queue_name text, positional_args json[])
RETURNS text LANGUAGE sql AS 'SELECT 1 / 0'
"""
DBOS_TABLE = """
DROP FUNCTION {0}_dbos.enqueue_workflow;
CREATE TABLE {0}_dbos.jobs (run text, later bigint, priority int);
CREATE FUNCTION {0}_dbos.enqueue_workflow(
    workflow_name text, queue_name text, positional_args json[], delay_until_epoch_ms bigint = NULL,
    timeout_ms bigint = NULL, priority int = NULL
) RETURNS text LANGUAGE sql AS '
    INSERT INTO {0}_dbos.jobs VALUES (positional_args[1]::text, delay_until_epoch_ms, priority) RETURNING run'
"""


@pytest.mark.system
def test_dbos_is_told_as_soon_as_a_worker_has_made_its_tables(url: str) -> None:
    with closing(PostgresStore(f"{url}&engine=dbos")) as store, psycopg.connect(store.address.conninfo) as other:
        store.create("early", "header", agent="a")
        schema = store.address.schema
        other.execute(DBOS_BEGUN.format(schema))  # its first migration, which a later one replaces
        other.commit()
        store.create("meanwhile", "header", agent="a")
        other.execute(DBOS_TABLE.format(schema))
        other.commit()
        store.create(ODD, "header", agent="a", start=Start(priority=7))
        store.tell("early", 60)
        store.tell("gone", 60)
        found = f"SELECT run, later > 1000 * extract(epoch FROM now()), priority FROM {schema}_dbos.jobs"
        jobs = [(json.loads(run), *rest) for run, *rest in other.execute(found)]
        assert jobs == [(ODD, None, -7), ("early", True, 0)], "DBOS takes the smallest number first"


@pytest.mark.system
def test_temporal_is_told_when_it_is_committed(url: str) -> None:
    with closing(PostgresStore(f"{url}&engine=temporal")) as store:
        with psycopg.connect(store.address.conninfo, autocommit=True) as other:
            other.execute(f"LISTEN fsm_agent_{store.address.schema}_due")
            store.create(ODD, "header", agent="a")
            store.tell("later", 60)
            told = [json.loads(note.payload) for note in other.notifies(timeout=5, stop_after=2)]
        assert [run for run, _ in told] == [ODD, "later"]
        assert 50 < told[1][1] - told[0][1] < 70


@pytest.mark.system
def test_without_an_engine_nobody_is_told(url: str) -> None:
    with closing(PostgresStore(url)) as store:
        store.create("r", "header", agent="a")
        store.tell("r")
        assert store.remind(["a"], older_s=0.0, limit=9) == 1


# Jobs that were lost


@pytest.mark.system
def test_a_run_that_is_due_for_long_is_told_of_again_once_in_that_time(told: Told) -> None:
    told.store.create("r", "header", agent="a")
    told.now()
    assert told.remind() == []
    told.clock.now_s += OLD_S
    assert told.remind("b") == []
    assert told.remind() == ["r"]
    assert told.remind() == []
    told.clock.now_s += OLD_S
    assert told.remind() == ["r"]


@pytest.mark.system
def test_a_run_of_a_dead_holder_is_told_of_at_once_and_then_not_for_long(told: Told) -> None:
    told.store.create("r", "header", agent="a")
    told.store.claim("w", for_s=15)
    told.now()
    told.clock.now_s += 14.9
    assert told.remind() == []
    told.clock.now_s += 0.2
    assert told.remind() == ["r"]
    assert told.remind() == []
    told.clock.now_s += OLD_S
    assert told.remind() == ["r"]
    assert told.store.claim("v", for_s=15) is not None  # the store's own claim takes it, too
    told.now()
    told.clock.now_s += OLD_S
    assert told.remind() == []


@pytest.mark.system
def test_the_oldest_come_first_and_each_once_for_many_who_look(told: Told, url: str) -> None:
    for number in range(20):
        told.store.create(f"r{number}", "header", agent="a")
        told.clock.now_s += 0.001
    told.now()
    told.clock.now_s += OLD_S
    first = told.remind(limit=3)
    assert {*first} == {"r0", "r1", "r2"}
    ready = threading.Barrier(4)

    def look() -> None:
        ready.wait(10)
        while told.store.remind(["a"], older_s=OLD_S, limit=3):
            pass

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(first + told.runs()) == sorted(f"r{number}" for number in range(20))


# Jobs


class Hints(Engine):
    """An engine whose jobs a test does."""

    @contextmanager
    def serving(self, threads: int) -> Iterator[None]:
        yield


def begin(store: Any, name: str, agent: Any) -> None:
    kept = replace(agent, store=store)
    assert store.create(name, kept.prepare("Refund order A-17.", run_id=name).journal.header, agent=agent.name)


def test_a_job_drives_its_run_and_one_too_many_does_nothing() -> None:
    store: Any = MemoryStore()
    begin(store, "r", shop())
    engine = Hints(Worker([shop()], store), store)
    assert engine.drive("r") is None
    assert store.load("r").run.state == "ToolInterrupt"
    n = store.load("r").run.n
    assert engine.drive("r") is None
    assert store.load("r").run.n == n
    assert engine.drive("none") is None


def test_a_job_that_meets_a_holder_looks_again_after_its_lease() -> None:
    store: Any = MemoryStore()
    begin(store, "r", shop())
    worker = Worker([shop()], store)
    store.claim("other", for_s=60, run="r")
    assert Hints(worker, store).drive("r") == worker.runs.claims.lease_s
    worker.stop()
    assert Hints(worker, store).drive("r") == 0.0  # somebody else is to do it, at once


def test_a_job_does_not_fail(caplog: pytest.LogCaptureFixture) -> None:
    store = Away(0, "get")
    begin(store, "r", OTHER)
    engine = Hints(Worker([shop()], store), store)
    assert engine.drive("r") is None
    assert "'other'" in caplog.text
    store.failures = 1
    assert engine.drive("r") == OLD_S, "it is tried again later"
    assert "the server is away" in caplog.text


@pytest.mark.parametrize(("drain_s", "leave_s"), [(None, 24 * 3600.0), (2.0, 7.0)])
def test_while_it_runs_it_looks_for_as_many_lost_jobs_as_it_has_threads(drain_s: float | None, leave_s: float) -> None:
    class Reminding(MemoryStore):
        def remind(self, agents: Any, *, older_s: float, limit: int) -> None:
            looks.append((set(agents), older_s < OLD_S, limit))
            engine.drive("r")

    class Once(Hints):
        def pause(self, seconds: float) -> None:
            self.worker.stop()

    looks = list[Any]()
    store: Any = Reminding()
    begin(store, "r", shop())
    worker = Worker([shop()], store, drain_s=drain_s)
    engine = Once(worker, store)
    assert engine.run(threads=2) == 1
    assert looks == [({"shop"}, True, 2)]
    assert engine.leave_s == leave_s
    assert worker.is_stopping
    with pytest.raises(UsageError, match="threads"):
        engine.run(threads=0)


@pytest.mark.system
def test_while_it_runs_it_looks_for_lost_jobs_and_outlasts_a_store_that_fails(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    told.store.create("r", "header", agent="shop")
    told.now()
    told.clock.now_s += 1
    worker = Worker([shop()], told.store, store_patience_s=0.2)
    engine = Hints(worker, told.store)
    seen: list[str] = []

    def look(seconds: float) -> None:
        seen.extend(told.runs())
        worker.stop()

    engine.pause = look  # type: ignore[method-assign]
    assert engine.run(threads=2) == 0
    assert seen == ["r"], "it was due before anybody could hear of it"
    told.store.close()
    failing = Worker([shop()], told.store, store_patience_s=0.2)
    with pytest.raises(StoreError, match="closed"):
        Hints(failing, told.store).run()
    assert failing.is_stopping


# Words


@pytest.mark.system
@pytest.mark.parametrize(
    ("engine", "query", "name"),
    [
        ("celery", "", "celery"),
        ("dbos", "", "engine=dbos"),
        ("temporal", "&engine=temporal&pooled=yes", "pooled"),
        ("dbos", "&engine=temporal", "engine=dbos"),
    ],
)
def test_an_engine_needs_a_store_that_tells_it(url: str, engine: str, query: str, name: str) -> None:
    with closing(PostgresStore(url + query)) as store, pytest.raises(UsageError, match=name):
        engine_of(engine, Worker([shop()], store))


def test_an_engine_needs_postgres() -> None:
    with pytest.raises(UsageError, match="postgresql"):
        engine_of("dbos", Worker([shop()], MemoryStore()))


def test_the_address_names_an_engine_that_there_is() -> None:
    for wrong in ("celery", ""):
        with pytest.raises(UsageError, match="engine") as refused:
            PostgresStore(f"postgresql://me:secret@h/d?engine={wrong}")
        assert "secret" not in str(refused.value)


@pytest.mark.system
def test_the_command_says_what_is_wrong(url: str) -> None:
    for options in (["celery"], ["dbos", "--once"], ["dbos", "--tasks", "9"]):
        words = ["worker", "--store", url, "--agents", "support.shop_agent:AGENT", "--engine", *options]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 2
        assert options[-1] in result.output or options[-2] in result.output

"""The store in Postgres: the conformance suite, and what that does not see: sessions, restarts, forks, secrets."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from conformance.storages import ENDED, outcome
from conformance.store_conformance import StoreConformance
from support.postgres import NOT_HERE, Network, PostgresServer, programs
from typer.testing import CliRunner

from fsm_agent import Agent, Approved, CallSuspended, Runs, function
from fsm_agent.cli import app
from fsm_agent.errors import UsageError
from fsm_agent.flows import Flow, FlowSuspended, end, wait
from fsm_agent.lifecycle import Returned
from fsm_agent.messages import Question
from fsm_agent.store import (
    Lease,
    LeaseLost,
    PostgresStore,
    QueueFull,
    Rest,
    RunBusy,
    RunUnknown,
    Start,
    Store,
    StoreError,
)
from fsm_agent.store.postgres import postgres_store
from fsm_agent.store.postgres import schema as schema_module
from fsm_agent.store.postgres.address import address_of
from fsm_agent.store.postgres.session import _READY_S as READY_S
from fsm_agent.store.postgres.session import POLL_S
from fsm_agent.testing import Script, call

pytestmark = pytest.mark.skipif(programs() is None, reason=NOT_HERE)
LONG_S = 600.0
PATIENCE_S = 30.0
AWAY_S = 8.0  # how long a server is away

OTHER = """
import sys, time
from fsm_agent.store import PostgresStore
store = PostgresStore(sys.argv[1])
store.create("r", "header", agent="a")
lease = store.claim("other", for_s=600, run="r")
store.append(lease, 0, ["one"])
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with closing(PostgresServer()) as server:
        yield server


def schema_of(folder: Path) -> str:
    return "t" + hashlib.blake2b(str(folder).encode(), digest_size=8).hexdigest()


@pytest.mark.system
class TestPostgresStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _server(self, server: PostgresServer) -> None:
        self.server = server

    def opened(self, folder: Path, clock: Callable[[], float]) -> Store:
        return PostgresStore(self.server.url(schema_of(folder)), clock=clock)

    def opened_to_read(self, folder: Path, clock: Callable[[], float]) -> Store:
        return PostgresStore(self.server.url(schema_of(folder)), clock=clock, read_only=True)


@pytest.fixture
def url(server: PostgresServer, tmp_path: Path) -> str:
    return server.url(schema_of(tmp_path))


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(url)) as store:
        yield store


# Sessions


@pytest.mark.system
def test_an_append_that_only_removes_posts_is_no_change_of_a_run(url: str) -> None:
    """As in the other stores: it came to the front of the list."""
    with closing(PostgresStore(url)) as store:
        lease = store.create("r", "header", agent="a", holder="w", for_s=LONG_S)
        assert isinstance(lease, Lease)
        store.append(lease, 0, ["one"])
        store.post("r", "", "body")
        before = store.load("r")
        assert store.append(lease, 1, [], took=[post.id for post in before.posts]) == 0
        assert store.get("r").updated_s == before.run.updated_s


@pytest.mark.system
def test_what_is_due_at_once_is_so_for_a_worker_whose_clock_is_behind(url: str) -> None:
    """It was left to others for as long as the clock was behind; only what waits for a time is."""
    with closing(PostgresStore(url)) as store:
        behind_s = time.time() - 60.0
        store.create("timed", "header", agent="a", start=Start(due_s=behind_s + 30.0))
        store.create("r", "header", agent="a")
        store.append(store.claim("v", for_s=LONG_S, run="r"), 0, ["one"], Rest(state="S"))  # type: ignore[arg-type]
        store.post("r", "", "body")
        lease = store.claim("w", for_s=LONG_S, now_s=behind_s)
        assert lease is not None
        assert lease.run == "r"
        assert store.claim("w", for_s=LONG_S, now_s=behind_s) is None


@pytest.mark.system
def test_a_killed_process_frees_its_runs_soon(store: PostgresStore, url: str):
    """Its lease would last ten minutes, and the wait half of one; time, the server's and a worker's, is real."""
    store._session.instance()
    held = subprocess.Popen([sys.executable, "-c", OTHER, url], stdout=subprocess.PIPE, text=True)
    assert held.stdout is not None
    assert held.stdout.readline() == "held\n"
    assert store.claim("w", for_s=9) is None
    with pytest.raises(RunBusy):
        store.claim("w", for_s=9, run="r")
    # A server that has just started gives sessions time to begin anew
    time.sleep(max(0.0, 5.5 - _age_s(store)))
    held.kill()
    held.wait()
    held.stdout.close()
    began = time.monotonic()
    lease = None
    while lease is None and time.monotonic() - began < PATIENCE_S:
        store.wait(PATIENCE_S)
        lease = store.claim("w", for_s=9)
    assert lease is not None
    assert (lease.run, lease.fence, lease.n) == ("r", 2, 1)
    assert time.monotonic() - began < PATIENCE_S / 3


def _age_s(store: PostgresStore) -> float:
    age = "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8"
    return float(store._do(lambda c: c.execute(age).fetchone()[0]))


@pytest.mark.system
def test_a_stopped_process_keeps_its_runs_until_its_lease_ends_and_cannot_write_after(store: PostgresStore, url: str):
    script = OTHER.replace("for_s=600", "for_s=3").replace(
        "time.sleep(60)",
        "sys.stdin.readline()\ntry:\n    store.append(lease, 1, ['two'])\nexcept Exception as error:\n"
        "    print(type(error).__name__, flush=True)",
    )
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    held = subprocess.Popen([sys.executable, "-c", script, url], **pipes)
    assert held.stdout.readline() == "held\n"
    held.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(RunBusy):
            store.claim("w", for_s=LONG_S, run="r")
        began, lease = time.monotonic(), None
        while lease is None and time.monotonic() - began < PATIENCE_S:
            store.wait(5.0)
            lease = store.claim("w", for_s=LONG_S)
        assert lease is not None
        held.stdin.write("append\n")
    finally:
        held.send_signal(signal.SIGCONT)
    assert held.stdout.readline() == "LeaseLost\n"
    held.kill()
    held.communicate()
    assert store.load("r").lines == ("one",)


@pytest.mark.system
def test_leases_end_with_a_session_alone_and_not_soon_after_a_start_of_the_server(store: PostgresStore, url: str):
    with closing(PostgresStore(url)) as other:
        for name, holder in {"living": other, "dead": other, "pooled": other}.items():
            holder.create(name, "header", agent="a")
        for name, instance in {"living": other._session.instance(), "dead": 1, "pooled": 0}.items():
            other._do(
                lambda c, n=name, i=instance: other._tables.take(c, key_of(c, other, n), "w", i, time.time(), 99.0)
            )

        def ended(grace_s: float) -> int:
            return store._do(lambda c: store._tables.end_leases_of_the_dead(c, store._now(c), grace_s))

        assert ended(1e6) == 0
        ended(0.0)
        assert [store.load(name).run.holder for name in ("living", "dead", "pooled")] == ["w", None, "w"]
        other.close()
        other.close()
        latest_s = time.monotonic() + PATIENCE_S
        while store.load("living").run.holder is not None and time.monotonic() < latest_s:
            ended(0.0)
        assert store.load("living").run.holder is None
        assert other._session._thread is not None
        assert not other._session._thread.is_alive()


def key_of(c: Any, store: PostgresStore, run: str) -> int:
    return int(c.execute(f"SELECT key FROM {store._address.schema}.run WHERE id = %s", (run,)).fetchone()[0])


@pytest.mark.system
def test_a_session_that_was_cut_begins_anew_under_its_number(store: PostgresStore):
    number = 0
    while not number:  # it may take some time on a busy machine
        number = store._session.instance()
    lock = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid::bigint = %s AND granted"

    def holders() -> list[int]:
        return store._do(lambda c: [pid for (pid,) in c.execute(lock, (number,))])

    [first] = holders()
    store._do(lambda c: c.execute("SELECT pg_terminate_backend(%s, 5000)", (first,)))
    until_s = time.monotonic() + PATIENCE_S
    while not (now := holders()):
        assert time.monotonic() < until_s
        time.sleep(0.02)
    assert now != [first]
    assert store._session.instance() == number


@pytest.mark.system
def test_behind_a_pooler_there_is_no_session_and_leases_end_at_their_time(url: str):
    """A lock would be that of a connection of the pooler, whose end would be taken for the death of the process."""
    with closing(PostgresStore(f"{url}&pooled=yes")) as pooled, closing(PostgresStore(url)) as other:
        pooled.create("r", "header", agent="a")
        began = time.monotonic()
        lease = pooled.claim("w", for_s=LONG_S, run="r")
        assert time.monotonic() - began < READY_S - 1.0, "it has waited for a session"
        assert lease is not None
        assert pooled._session._thread is None
        other._session.instance()
        other._do(lambda c: other._tables.end_leases_of_the_dead(c, other._now(c), 0.0))
        assert other.load("r").run.holder == "w"
        pooled.renew(lease, for_s=0.5)
        began, took = time.monotonic(), None
        while took is None and time.monotonic() - began < PATIENCE_S:
            pooled.wait(2.0)
            took = pooled.claim("v", for_s=LONG_S)
        assert took is not None


@pytest.mark.system
def test_a_change_elsewhere_wakes_a_waiting_thread_at_once(store: PostgresStore, url: str):
    assert store.claim("w", for_s=9) is None
    store._session.wait(store._session.count(), POLL_S)  # it listens by now
    assert store.claim("w", for_s=9) is None
    with closing(PostgresStore(url)) as other:
        began = time.monotonic()
        other.create("r", "header", agent="a")
        store.wait(30.0)
    assert time.monotonic() - began < 5.0
    assert store.claim("w", for_s=9) is not None


@pytest.mark.system
def test_a_rest_wakes_those_who_wait_for_room_and_no_others(store: PostgresStore):
    """Else each run that ends would have all idle threads claim in vain."""
    session = store._session

    def heard(what: Callable[[], int], more_than: int) -> int:
        ends_s = time.monotonic() + 20.0
        while (count := what()) <= more_than:
            assert time.monotonic() < ends_s
            time.sleep(0.005)
        return count

    due, rests = heard(session.count, 0), session.rests  # it listens by now
    for number in range(3):
        lease = store.create(f"r{number}", "header", agent="a", holder="w", for_s=LONG_S)
        assert isinstance(lease, Lease)
        due = heard(session.count, due)
        store.append(lease, 0, ["one"], ENDED)
        rests = heard(lambda: session.rests, rests)
        assert session.count() == due


# The server


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_restart_of_the_server_is_a_delay(tmp_path: Path):
    """Appends, submitted or not, reads and claims wait for it; nothing is written twice, nothing is lost."""
    with closing(PostgresServer()) as server, closing(PostgresStore(server.url(), patience_s=90.0)) as store:
        store.create("r", "header", agent="a")
        lease = store.claim("w", for_s=LONG_S, run="r")
        assert lease is not None
        assert store.append(lease, 0, ["one"]) == 0
        server.stop()
        future = store.submit(lease, 1, ["two"])
        assert not future.done()
        server.start()
        assert future.result(PATIENCE_S) == 0
        server.stop("fast")
        server.start()
        assert store.append(lease, 2, ["three"], Rest(state="S", due_s=0.0)) == 0
        server.stop()
        server.start()
        assert store.load("r").lines == ("one", "two", "three")
        server.stop()
        server.start()
        assert store.claim("w", for_s=9) is not None


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["immediate", "fast"])
@pytest.mark.timeout(300)
def test_after_a_restart_work_goes_on_at_once(mode: str):
    """All connections of the pool are lost, and no attempt at a new one may have pauses that double."""
    with closing(PostgresServer()) as server, closing(PostgresStore(server.url(), patience_s=90.0)) as store:
        with ThreadPoolExecutor(10) as threads:  # so many connections
            barrier = threading.Barrier(10)
            for future in [threads.submit(store._do, lambda c: barrier.wait(PATIENCE_S)) for _ in range(10)]:
                future.result()
            server.stop(mode)
            heads = [threads.submit(store.head, "c") for _ in range(10)]
            time.sleep(AWAY_S)
            assert not any(head.done() for head in heads)
            server.start()
            began_s = time.monotonic()
            for head in heads:
                assert head.result(PATIENCE_S).version == 0
            assert time.monotonic() - began_s < AWAY_S / 2, "a pause that doubles would be about as long as the outage"
        server.stop(mode)
        server.start()
        began_s = time.monotonic()
        assert store.head("c").version == 0
        assert time.monotonic() - began_s < AWAY_S / 2


@pytest.mark.system
def test_a_holder_that_freezes_in_a_transaction_locks_nothing_for_long(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
):
    """The server ends what idles in a transaction, so that others can take the run; the holder tries again."""
    monkeypatch.setattr(postgres_store, "_BEGIN", postgres_store._BEGIN.replace("5s", "1s"))
    store.create("r", "header", agent="a")
    tries = []

    def freeze(c: Any) -> None:
        c.execute(f"SELECT 1 FROM {store._address.schema}.run FOR UPDATE")
        tries.append(1)
        if len(tries) == 1:
            assert other.claim("w", for_s=LONG_S) is None
            assert other.claim("w", for_s=LONG_S, run="r") is not None  # would wait for ever

    with closing(PostgresStore(url)) as other:
        assert other.claim("w", for_s=LONG_S, agents=["none"]) is None  # it has begun what takes long: its session
        store._do(freeze)
    assert len(tries) == 2


class Losing:
    """Work whose connection is ended by the server, before it goes on or when it is to be committed."""

    def __init__(self, store: PostgresStore, *, goes_on: bool) -> None:
        self._store = store
        self._goes_on = goes_on
        self.tries = 0

    def __call__(self, c: Any) -> int:
        self.tries += 1
        if self.tries == 1:
            pid = c.info.backend_pid
            self._store._do(lambda other: other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,)))
            if self._goes_on:
                c.execute("SELECT 1")
        return self.tries


@pytest.mark.system
def test_what_may_have_been_written_is_done_again_only_if_it_may_be(store: PostgresStore):
    before = Losing(store, goes_on=True)
    assert store._do(before) == 2
    in_doubt = Losing(store, goes_on=False)
    with pytest.raises(StoreError, match="failed, and whether it was written is not known: "):
        store._do(in_doubt)
    assert in_doubt.tries == 1
    assert store._do(Losing(store, goes_on=False), may_repeat=True) == 2


@pytest.mark.system
def test_after_one_connection_was_lost_the_others_are_looked_at(url: str):
    """All of them are dead after a restart of the server, and each would cost an attempt and a pause."""
    with closing(PostgresStore(url)) as other, closing(PostgresStore(url)) as store:
        barrier = threading.Barrier(8)
        with ThreadPoolExecutor(8) as threads:
            pids = list(threads.map(lambda _: store._do(lambda c: (barrier.wait(30), c.info.backend_pid)[1]), range(8)))
        assert len({*pids}) == 8
        for pid in pids:
            other._do(lambda c, pid=pid: c.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,)))
        losing = Losing(other, goes_on=False)
        losing.tries = 1
        waits: list[float] = []
        sleep = time.sleep
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(time, "sleep", lambda s: (waits.append(s), sleep(s)))
            store._do(losing)
        assert len(waits) <= 2


# Engines


@pytest.mark.system
def test_an_engine_is_told_in_the_same_commit_when_a_run_is_due(url: str):
    told: list[tuple[str, float]] = []

    def on_due(c: Any, run: str, due_s: float) -> None:
        told.append((run, due_s))
        c.execute("SELECT 1")
        if run == "refused":
            raise StoreError("the engine is full")

    with closing(PostgresStore(url, on_due=on_due)) as store:
        began_s = store._do(store._now)
        store.create("r", "header", agent="a")
        [(run, due_s)] = told
        assert run == "r"
        assert began_s <= due_s <= began_s + 60.0
        lease = store.claim("w", for_s=LONG_S, run="r")
        assert lease is not None
        store.append(lease, 0, ["one"], Rest(state="S", due_s=5e9))
        store.post("r", "", "body")
        assert [run for run, _ in told] == ["r", "r", "r"]
        assert told[1] == ("r", 5e9)
        assert told[2][1] < began_s + 60.0
        again = store.claim("w", for_s=LONG_S, run="r")
        assert again is not None
        store.append(again, 1, ["two"], Rest(state="S", is_ended=True))
        assert len(told) == 3
        with pytest.raises(StoreError, match="the engine is full"):
            store.create("refused", "header", agent="a")
        with pytest.raises(RunUnknown):
            store.load("refused")


@pytest.mark.system
def test_the_lease_of_a_deleted_run_is_not_that_of_another_of_its_name(store: PostgresStore):
    """Which has the same holder, and counts its fences from 1 again."""
    leases = []
    for _ in range(2):
        store.create("r", "header", agent="a")
        leases.append(store.claim("w", for_s=LONG_S, run="r"))
        if len(leases) == 1:
            store.append(leases[0], 0, ["one"], Rest(state="S"))
            store.delete("r")
    old, new = leases
    assert (old.fence, old.holder) == (new.fence, new.holder)
    with pytest.raises(LeaseLost):
        store.append(old, 0, ["one"])
    assert store.append(new, 0, ["one"]) == 0


@pytest.mark.system
def test_a_deleted_run_leaves_nothing(store: PostgresStore):
    store.create("r", "header", agent="a")
    lease = store.claim("w", for_s=LONG_S, run="r")
    assert lease is not None
    asked = Rest(state="S", questions=(Question("q", "approval", "", ()),))
    store.append(lease, 0, ["one"], asked, snapshot=b"snapshot")
    store.post("r", "q", "body")
    store.delete("r")
    tables = ("run", "entry", "snapshot", "question", "post")
    rest = " UNION ALL ".join([f"SELECT count(*) FROM {store._address.schema}.{table}" for table in tables])
    assert store._do(lambda c: [count for (count,) in c.execute(rest)]) == [0] * 5


# Secrets, and reasons


def everything_of(error: BaseException | None) -> str:
    """What a log or a page of a crash could hold of an error: its texts, causes, and the variables of its frames."""
    found = []
    while error is not None:
        shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        found.append(f"{error!r} {error} {vars(error)} {''.join(shown.format())}")
        error = error.__cause__ or error.__context__
    return "\n".join(found)


def refused_of(url: str, patience_s: float = 30.0) -> str:
    """Return why a store cannot be opened; its password is nowhere to be found."""
    began_s = time.monotonic()
    try:
        PostgresStore(url, patience_s=patience_s)
    except StoreError as error:
        assert time.monotonic() - began_s < 15.0
        frames = everything_of(error).replace(repr(url), "")  # the caller's own variable
        assert "s3cret" not in frames
        return str(error)
    raise AssertionError("it was opened")


@pytest.mark.system
def test_a_server_that_stays_away_is_named_with_the_reason(caplog: pytest.LogCaptureFixture):
    with caplog.at_level("DEBUG"):
        refused = refused_of("postgresql://fsm:s3cret@127.0.0.1:1/work", patience_s=0.8)
    assert "127.0.0.1:1/work (schema fsm_agent)" in refused
    assert "Connection refused" in refused
    assert "s3cret" not in caplog.text


@pytest.mark.system
def test_a_program_without_logging_hears_once_that_a_server_is_away():
    """And not of each attempt of the pool."""
    opened = (
        "from fsm_agent.store import PostgresStore; PostgresStore('postgresql://fsm@127.0.0.1:1/work', patience_s=3)"
    )
    ended = subprocess.run([sys.executable, "-c", opened], capture_output=True, text=True, timeout=60, check=False)
    before, _, error = ended.stderr.partition("Traceback")
    assert before == "the store 127.0.0.1:1/work (schema fsm_agent) does not answer; trying again for 3 s in all\n"
    assert "Connection refused" in error


@pytest.mark.system
def test_what_waiting_cannot_mend_is_said_at_once(server: PostgresServer, url: str, caplog: pytest.LogCaptureFixture):
    with closing(PostgresStore(url)) as store:
        made = "DO $$ BEGIN CREATE ROLE guarded LOGIN PASSWORD 'right'; EXCEPTION WHEN duplicate_object THEN END $$"
        store._do(lambda c: c.execute(made))
    secret = server.url().replace("fsm@", "fsm:s3cret@")
    with caplog.at_level("DEBUG"):
        for wrong, reason in {
            server.url().replace("fsm@", "guarded:s3cret@"): "password authentication failed",
            server.url().replace("fsm@", "nobody:s3cret@"): 'role "nobody" does not exist',
            secret.replace("/postgres", "/nowhere"): 'database "nowhere" does not exist',
            f"{secret}&sslmode=require": "server does not support SSL, but SSL was required",
            f"{secret}&sslmode=sometimes": 'invalid sslmode value: "sometimes"',
        }.items():
            assert reason in refused_of(wrong)
    assert "s3cret" not in caplog.text


@pytest.mark.system
def test_a_password_is_in_no_repr_and_in_no_error_of_a_statement(server: PostgresServer):
    with closing(PostgresStore(server.url().replace("fsm@", "fsm:s3cret@"))) as store:
        store.create("r", "header", agent="a")
        shop = Agent(Script(), name="shop", store=store)
        told = [repr(one) for one in (store, store._address, store._pool, store._session, shop, shop.runs)]
        with pytest.raises(StoreError) as failed:
            store._do(lambda c: c.execute("SELECT nonsense"))
        told.append(everything_of(failed.value))
        store.claim("w", for_s=LONG_S, run="r")
        with pytest.raises(RunBusy) as busy:
            store.claim("w", for_s=LONG_S, run="r")
        told.append(everything_of(busy.value))
        assert 'column "nonsense" does not exist' in told[-2]
        assert not [text for text in told if "s3cret" in text]


@pytest.mark.parametrize("url", ["postgresql://u:pa%ss@host/db", "postgresql://h/db?nonsense=1", "postgres://[x/db"])
def test_an_address_that_cannot_be_read_is_not_quoted(url: str):
    with pytest.raises(UsageError, match="postgresql://user@host/database") as refused:
        PostgresStore(url)
    assert "pa%ss" not in str(refused.value)
    assert refused.value.__suppress_context__


@pytest.mark.system
def test_pooled_is_yes_or_no(url: str):
    with pytest.raises(UsageError, match="pooled of the store is 'maybe': yes or no would be right"):
        PostgresStore(f"{url}&pooled=maybe")


def test_a_server_that_is_gone_without_a_word_is_noticed_unless_the_address_says_otherwise():
    plain = address_of("postgresql://h/db").conninfo.split()
    assert {"keepalives_idle=10", "tcp_user_timeout=20000", "connect_timeout=10"} <= {*plain}
    assert "tcp_user_timeout=5" in address_of("postgresql://h/db?tcp_user_timeout=5").conninfo.split()


@pytest.mark.system
@pytest.mark.parametrize("schema", ["", "Orders", "a-b", 'x"; DROP TABLE run; --', "a" * 60])
def test_a_schema_is_a_plain_name(server: PostgresServer, schema: str):
    with pytest.raises(UsageError, match="schema"):
        PostgresStore(f"{server.url().partition('?')[0]}?schema={schema}")


@pytest.mark.system
@pytest.mark.parametrize(("ahead_s", "how"), [(3600.0, "3600 s ahead of"), (-90.0, "90 s behind"), (0.0, "")])
def test_a_clock_that_is_not_the_servers_is_told(
    url: str, ahead_s: float, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + ahead_s)
    PostgresStore(url).close()
    told = [record.getMessage() for record in caplog.records if record.name == "fsm_agent"]
    assert [how in text for text in told] == [True] * bool(how)


# Starts


@pytest.fixture
def held_up(store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[object]]:
    """Return a function that does one thing, and another before the transaction of the first is committed."""
    begun, is_done = threading.Event(), threading.Event()

    def act(method: str, first: Callable[[], object], second: Callable[[PostgresStore], object]) -> list[object]:
        original = getattr(store._tables, method)

        def slow(*arguments: Any) -> object:
            made = original(*arguments)
            begun.set()
            is_done.wait(0.5)  # what happens meanwhile has to wait for the commit
            return made

        with closing(PostgresStore(url)) as other, ThreadPoolExecutor(1) as threads:
            monkeypatch.setattr(store._tables, method, slow)
            future = threads.submit(lambda: outcome(first))
            assert begun.wait(20)
            then = outcome(lambda: second(other))
            is_done.set()
            return [future.result(20), then]

    return act


@pytest.mark.system
def test_no_run_ends_while_one_is_created_that_comes_after_it(
    store: PostgresStore, held_up: Callable[..., list[object]]
):
    lease = store.create("before", "header", agent="a", holder="w", for_s=LONG_S)
    start, end = Start(after=("before",)), Rest(state="Done", is_ended=True)
    outcomes = held_up(
        "create",
        lambda: store.create("r", "header", agent="a", start=start),
        lambda other: other.append(lease, 0, ["one"], end),
    )
    assert outcomes == [True, 0]
    assert store.load("r").run.due_s == 0.0


@pytest.mark.system
def test_of_two_runs_that_end_in_two_transactions_the_second_starts_the_next(
    store: PostgresStore, held_up: Callable[..., list[object]]
):
    leases = [store.create(name, "header", agent="a", holder="w", for_s=LONG_S) for name in ("one", "two")]
    store.create("r", "header", agent="a", start=Start(after=("one", "two")))
    end = Rest(state="Done", is_ended=True)
    outcomes = held_up(
        "end",
        lambda: store.append(leases[0], 0, ["line"], end),
        lambda other: other.append(leases[1], 0, ["line"], end),
    )
    assert outcomes == [0, 0]
    assert store.load("r").run.due_s == 0.0


@pytest.mark.system
def test_two_that_join_a_queue_wait_for_each_other(store: PostgresStore, held_up: Callable[..., list[object]]):
    start = Start(queue_limit=1)
    outcomes = held_up(
        "create",
        lambda: store.create("r", "header", agent="a", start=start),
        lambda other: other.create("s", "header", agent="a", start=start),
    )
    assert outcomes[0] is True
    assert isinstance(outcomes[1], QueueFull)


# Migrations


CREATE = """
import sys
from fsm_agent.store import PostgresStore
print("ready", flush=True)
sys.stdin.readline()
PostgresStore(sys.argv[1]).close()
"""


@pytest.mark.system
def test_processes_may_create_a_schema_at_once(url: str):
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    some = [subprocess.Popen([sys.executable, "-c", CREATE, url], **pipes) for _ in range(2)]
    for one in some:
        assert one.stdout.readline() == "ready\n"
    for one in some:
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in some:
        _, errors = one.communicate(timeout=60)
        assert (one.returncode, errors) == (0, "")


@pytest.mark.system
def test_a_schema_of_version_1_is_migrated_by_many_at_once_and_goes_on(url: str, server: PostgresServer):
    schema = url.rpartition("=")[2]
    import psycopg  # the tests are skipped where it is missing

    with psycopg.connect(url.partition("?")[0]) as connection:
        schema_module.prepare(connection, schema, "here", schema_module.MIGRATIONS[:1])
        connection.execute(
            f"INSERT INTO {schema}.run (id, agent, header, n, state, is_ended, due, wake, unread, fence, tries, holder,"
            " instance, since, given_back, created, updated, touched)"
            " SELECT 'r' || i, 'a', 'header', 0, '', false, 0, 1000 + i, 0, 0, 0, '', 0, 0, -1, 0, 0, 0"
            " FROM generate_series(1, 5) AS i"
        )
    script = "import sys; from fsm_agent.store import PostgresStore; PostgresStore(sys.argv[1]).close()"
    all_ = [subprocess.Popen([sys.executable, "-c", script, url], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for one in all_:
        _, errors = one.communicate(timeout=60)
        assert (one.returncode, errors) == (0, "")
    with closing(PostgresStore(url)) as store:
        store.create("new", "header", agent="a", start=Start(priority=1))
        found = [store.claim("w", for_s=LONG_S, agents=agents) for agents in ([], ["a"], [])]
        assert [lease and lease.run for lease in found] == ["new", "r1", "r2"]


@pytest.mark.system
def test_a_schema_is_migrated_once_and_a_newer_one_is_refused(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
):
    store.create("r", "header", agent="a")
    newer = (*schema_module.MIGRATIONS, ("ALTER TABLE {s}.run ADD COLUMN note text",))
    monkeypatch.setattr(schema_module.prepare, "__defaults__", (newer,))
    for _ in range(2):
        with closing(PostgresStore(url)) as migrated:
            assert migrated.load("r").header == "header"
    monkeypatch.undo()
    here = len(schema_module.MIGRATIONS)
    with pytest.raises(StoreError, match=f"has version {here + 1}, and this release of fsm_agent supports .* {here}:"):
        PostgresStore(url)


@pytest.mark.system
def test_tables_of_another_program_are_left_alone(server: PostgresServer, store: PostgresStore):
    store._do(lambda c: c.execute("CREATE SCHEMA IF NOT EXISTS theirs"))
    store._do(lambda c: c.execute("CREATE TABLE IF NOT EXISTS theirs.run (x int)"))
    with pytest.raises(StoreError, match="tables of another program"):
        PostgresStore(server.url("theirs"))


# Forks, threads, asyncio


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are those of POSIX")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_both_sides_of_a_fork_use_it(store: PostgresStore):
    store.create("r", "header", agent="a")
    lease = store.claim("parent", for_s=LONG_S, run="r")
    assert lease is not None
    store.load("r")
    connection = store._do(lambda c: c.info.backend_pid)
    pid = os.fork()
    if pid == 0:  # the child
        try:
            store.create("child", "header", agent="a")
            mine = store.claim("child", for_s=LONG_S, run="child")
            assert mine is not None
            store.append(mine, 0, ["from the child"])
            store.close()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert store._do(lambda c: c.info.backend_pid) == connection, "the child did not close it"
    assert store.append(lease, 0, ["one"]) == 0
    assert store.submit(lease, 1, ["two"]).result(20) == 0
    assert store.load("child").lines == ("from the child",)
    assert store.load("r").run.holder == "parent"


@pytest.mark.system
def test_submitted_appends_of_many_runs_are_one_commit_and_refused_ones_refuse_themselves_alone(store: PostgresStore):
    leases = []
    for number in range(40):
        store.create(f"r{number}", "header", agent="a")
        leases.append(store.claim("w", for_s=LONG_S, run=f"r{number}"))
    lost = leases[7]
    assert lost is not None
    store.append(lost, 0, [], Rest(state="S"))

    async def at_once() -> list[object]:
        futures = [asyncio.wrap_future(store.submit(lease, 0, ["one"])) for lease in leases if lease is not None]
        return await asyncio.gather(*futures, return_exceptions=True)

    outcomes = asyncio.run(at_once())
    assert [n for n, outcome in enumerate(outcomes) if outcome != 0] == [7]
    assert isinstance(outcomes[7], LeaseLost)


@function(needs_approval=True)
def refund(order: str) -> str:
    """Pay a customer back."""
    return f"{order} is paid back"


@pytest.mark.system
def test_a_server_that_stands_still_holds_up_no_event_loop(server: PostgresServer, tmp_path: Path):
    """Neither where runs begin, nor at their steps, nor where they end or go on."""
    gaps_s: list[float] = []

    async def tick() -> None:
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(0.01)
            gaps_s.append(time.monotonic() - before_s)

    async def main(network: Network, store: PostgresStore) -> None:
        loop, is_still = asyncio.get_running_loop(), asyncio.Event()
        ticking = asyncio.create_task(tick())

        @function
        async def stand_still() -> str:
            """Have the server stand still for a while, in which others begin, and go on."""
            network.stall()
            is_still.set()
            loop.call_later(3.0, network.heal)
            return "ok"

        def shop(*replies: Any) -> Agent[Any, str]:
            return Agent(Script(*replies), functions=[stand_still, refund], name="shop", store=store)

        with pytest.raises(CallSuspended):
            await shop(call("refund", order="A-17"), "Paid.").acall("Pay.", run_id="waiting")
        first = asyncio.create_task(shop(call("stand_still"), "Done.").acall("Go.", run_id="first"))
        await is_still.wait()
        others = [shop("Done.").acall("Go.", run_id=f"other{n}") for n in range(3)]
        resumed = shop("Paid.").aresume("waiting", {"ask:1.0": Approved()})
        results = await asyncio.gather(first, *others, resumed)
        assert [result.output for result in results] == ["Done."] * 4 + ["Paid."]
        ticking.cancel()

    with (
        closing(Network(server.port)) as network,
        closing(PostgresStore(server.url(schema_of(tmp_path), network.port))) as store,
    ):
        asyncio.run(main(network, store))
    assert max(gaps_s) < 2.5


# The same agent, with another address


@pytest.mark.system
@pytest.mark.parametrize("is_async", [False, True])
def test_an_agent_needs_the_address_alone(url: str, is_async: bool):
    shop = Agent(Script(call("refund", order="A-17"), "Done."), functions=[refund], name="shop", store=url)
    with pytest.raises(CallSuspended):
        _ = asyncio.run(shop.acall("Pay.", run_id="order")) if is_async else shop.call("Pay.", run_id="order")
    runs = Runs(url)
    [waiting] = runs.store.list(agent="shop", asked=True)
    assert [question.key for question in waiting.waits] == ["ask:1.0"]
    again = Agent(Script("Done."), functions=[refund], name="shop", store=runs)
    answers = {"ask:1.0": Approved()}
    result = asyncio.run(again.aresume("order", answers)) if is_async else again.resume("order", answers)
    assert result.output == "Done."
    assert shop.runs.replay("order", shop.definition()).record == result.record
    runs.store.close()
    shop.runs.store.close()


class Counting:
    """Work of a store that counts its statements."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work
        self.statements = 0

    def __call__(self, connection: Any) -> Any:
        self._connection = connection
        return self._work(self)

    def execute(self, *statement: Any) -> Any:
        self.statements += 1
        return self._connection.execute(*statement)


# What a step cost in the sketch by which the store was designed, for a line of 460 characters.
SKETCH_STATEMENTS, SKETCH_BYTES = 6, 1065  # the begin and the end of the transaction included; of write-ahead log


@pytest.mark.system
def test_the_statements_of_a_step_are_constant(store: PostgresStore):
    """The clock, the lock, and one that writes the entry and the row of the run, however long the run is."""
    store.create("r", "header", agent="a")
    lease = store.claim("w", for_s=LONG_S, run="r")
    assert lease is not None
    counts = []
    for n in (0, 1, 200):
        if n == 200:
            store.append(lease, 2, ["line"] * 198)
        counting = Counting(store._append(lease, n, ["line"], None, (), None))
        store._do(counting)
        counts.append(counting.statements)
    assert counts == [3, 3, 3]
    assert 2 + counts[0] <= 1.3 * SKETCH_STATEMENTS


@pytest.mark.system
def test_the_bytes_of_a_step_are_constant(store: PostgresStore):
    """An append without a rest writes no page of an index of runs; medians, as the server writes at other times too."""
    store.create("r", "header", agent="a")
    lease = store.claim("w", for_s=LONG_S, run="r")
    assert lease is not None
    written = [_written_bytes(store)]
    for n in range(300):
        store.append(lease, n, ["x" * 460])
        if n % 10 == 9:
            written.append(_written_bytes(store))
    steps = [(after - before) / 10 for before, after in pairwise(written)]
    early, late = median(steps[:10]), median(steps[-10:])
    assert early * 0.95 <= late <= early * 1.05
    assert late <= 1.3 * SKETCH_BYTES


def _written_bytes(store: PostgresStore) -> int:
    log = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
    return int(store._do(lambda c: c.execute(log).fetchone()[0]))


@pytest.mark.system
def test_questions_answered_here_are_asked_there(store: PostgresStore, url: str):
    """Texts that Postgres cannot hold, zero characters, come back as they were."""
    odd = "a\x00b\x1a0c\u2028\U0001f600"
    store.create(odd, "header", agent=odd)
    lease = store.claim(odd, for_s=LONG_S, run=odd)
    assert lease is not None
    store.append(lease, 0, [odd], Rest(state=odd, questions=(Question(odd, odd, odd, (odd,)),)))
    with closing(PostgresStore(url)) as other:
        other.post(odd, odd, odd, by=odd)
        loaded = other.load(odd)
        assert (loaded.lines, loaded.posts[0].body, loaded.run.state) == ((odd,), odd, odd)
        assert other.list(agent=odd)[0].id == odd


@pytest.mark.system
def test_the_command_line_takes_the_address(url: str, store: PostgresStore):
    store.create("r", '{"version":1,"agent":"shop","definition":"","seed":{}}', agent="shop")
    listed = CliRunner().invoke(app, ["runs", "list", "--store", url], catch_exceptions=False)
    assert listed.exit_code == 0, listed.stderr
    assert "shop" in listed.stdout


@dataclass(frozen=True)
class Order:
    paid: tuple[int, ...] = ()


@wait(str)
def addressing(d: Order) -> str:
    return "Where to?"


@wait(int, early=True)
def paying(d: Order) -> str:
    return f"{d.paid} so far."


def is_part(d: Order, amount: int) -> bool:
    return sum(d.paid) + amount < 100


def pay(d: Order, amount: int) -> Order:
    return Order((*d.paid, amount))


ORDERS = Flow(
    "orders",
    Order,
    start=addressing,
    rows=[
        addressing.done(paying),
        paying.done(paying, when=is_part, do=pay),
        paying.done(end("paid"), do=pay),
    ],
)


@pytest.mark.system
def test_a_flow_keeps_early_answers_is_read_and_forked(url: str):
    runs, others = Runs(url), Runs(url)
    orders = replace(ORDERS, store=runs)
    with pytest.raises(FlowSuspended):
        orders.call(Order(), run_id="o1")
    for _ in range(2):  # two posts are two answers
        others.answer("o1", {"inbox:paying": Returned(text="30")})
    with pytest.raises(FlowSuspended) as waiting:
        orders.resume("o1", {addressing: "Oslo"})
    assert (waiting.value.run.state, waiting.value.run.data) == ("paying", Order((30, 30)))
    seen = replace(ORDERS, store=others)
    assert (seen.at("o1").data, seen.at("o1", "addressing#1").data) == (Order((30, 30)), Order())
    assert seen.fork("o1", data=Order((90,)), by="ann", new_run_id="o2") == "o2"
    assert seen.resume("o2", {paying: 10}).output == Order((90, 10))
    assert orders.resume("o1", {paying: 40}).output == Order((30, 30, 40))
    assert seen.replay("o1").record == orders.at("o1").record
    for one in (runs, others):
        one.store.close()

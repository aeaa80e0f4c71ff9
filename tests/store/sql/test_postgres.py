"""The store in Postgres: the conformance suite, and what that does not see: sessions, restarts, forks, secrets."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conformance.storages import outcome
from conformance.store_conformance import StoreConformance
from psycopg.conninfo import conninfo_to_dict
from support.postgres import NOT_HERE, Network, PostgresServer, programs

from fsm_agent import Agent, Approved, CallSuspended, function
from fsm_agent.errors import UsageError
from fsm_agent.store import (
    LeaseLost,
    PostgresStore,
    RunBusy,
    RunUnknown,
    Start,
    Store,
    StoreError,
    Suspension,
)
from fsm_agent.store.sql import statements
from fsm_agent.testing import Script, function_call

pytestmark = pytest.mark.skipif(programs() is None, reason=NOT_HERE)
LONG_S = 600.0
PATIENCE_S = 30.0

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


@pytest.fixture
def server(postgres: PostgresServer) -> PostgresServer:
    return postgres


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
def url(server: PostgresServer, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The address of a schema of the test's own, with the settings that it is parametrized with."""
    return server.url(schema_of(tmp_path)) + getattr(request, "param", "")


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(url)) as store:
        yield store


# Sessions


@pytest.mark.system
def test_what_is_due_at_once_is_so_for_a_worker_whose_clock_is_behind(url: str) -> None:
    """Earlier it was left to others as long as the clock was behind.  Now only runs that wait for a time are."""
    with closing(PostgresStore(url)) as store:
        behind_s = time.time() - 60.0
        store.create("timed", "header", agent="a", start=Start(due_s=behind_s + 30.0))
        store.create("r", "header", agent="a")
        store.append(store.claim("v", for_s=LONG_S, run="r"), 0, ["one"], Suspension(state="S"))  # type: ignore[arg-type]
        store.signal("r", "", "body")
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


@pytest.mark.system
def test_a_session_that_was_cut_begins_anew_under_its_number(store: PostgresStore):
    number = 0
    while not number:  # it may take some time on a busy machine
        number = store._session.instance()
    lock = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid::bigint = %s AND granted"

    def holders() -> list[int]:
        return store._write(lambda c: [pid for (pid,) in c.connection.execute(lock, (number,))])

    [first] = holders()
    store._write(lambda c: c.connection.execute("SELECT pg_terminate_backend(%s, 5000)", (first,)))
    until_s = time.monotonic() + PATIENCE_S
    while not (now := holders()):
        assert time.monotonic() < until_s
        time.sleep(0.02)
    assert now != [first]
    assert store._session.instance() == number


@pytest.mark.system
def test_behind_a_pooler_there_is_no_session_and_leases_end_at_their_time(url: str):
    """A lock would belong to a connection of the pooler, whose end would look like the death of the process."""
    with closing(PostgresStore(f"{url}&pooled=yes")) as pooled, closing(PostgresStore(url)) as other:
        pooled.create("r", "header", agent="a")
        lease = pooled.claim("w", for_s=LONG_S, run="r")
        assert lease is not None
        assert pooled._session._thread is None
        assert other.claim("v", for_s=LONG_S) is None
        assert other.load("r").run.holder == "w"
        pooled.renew_all([lease], for_s=0.5)
        began, took = time.monotonic(), None
        while took is None and time.monotonic() - began < PATIENCE_S:
            pooled.wait(2.0)
            took = pooled.claim("v", for_s=LONG_S)
        assert took is not None


@pytest.mark.system
def test_a_change_elsewhere_wakes_a_waiting_thread_at_once(store: PostgresStore, url: str):
    assert store.claim("w", for_s=9) is None
    store._session.wait(store._session.count(), 1.0)  # it listens by now
    assert store.claim("w", for_s=9) is None
    with closing(PostgresStore(url)) as other:
        other.create("r", "header", agent="a")
        store.wait(100.0)  # the time-out of the test is as long
    assert store.claim("w", for_s=9) is not None


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
        assert store.append(lease, 2, ["three"], Suspension(state="S", due_s=0.0)) == 0
        server.stop()
        server.start()
        assert store.load("r").lines == ("one", "two", "three")
        server.stop()
        server.start()
        assert store.claim("w", for_s=9) is not None


@pytest.mark.system
def test_a_holder_that_freezes_in_a_transaction_locks_nothing_for_long(store: PostgresStore, url: str):
    """The server ends what idles in a transaction, so that others can take the run; the holder tries again."""
    store.create("r", "header", agent="a")
    tries = []

    def freeze(c: Any) -> None:
        c("SELECT 1 FROM run FOR UPDATE")
        tries.append(1)
        if len(tries) == 1:
            assert other.claim("w", for_s=LONG_S) is None
            assert other.claim("w", for_s=LONG_S, run="r") is not None  # would wait for ever

    with closing(PostgresStore(url)) as other:
        assert other.claim("w", for_s=LONG_S, agents=["none"]) is None  # it has begun what takes long: its session
        store._write(freeze)
    assert len(tries) == 2


class Losing:
    """Work whose connection the server ends, before it continues or at its commit."""

    def __init__(self, store: PostgresStore, *, goes_on: bool) -> None:
        self._store = store
        self._goes_on = goes_on
        self.tries = 0

    def __call__(self, c: Any) -> int:
        self.tries += 1
        if self.tries == 1:
            pid = c.connection.info.backend_pid
            self._store._write(lambda other: other.connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,)))
            if self._goes_on:
                c("SELECT 1")
        return self.tries


@pytest.mark.system
def test_what_may_have_been_written_is_done_again_only_if_it_may_be(store: PostgresStore):
    before = Losing(store, goes_on=True)
    assert store._write(before) == 2
    in_doubt = Losing(store, goes_on=False)
    with pytest.raises(StoreError):
        store._write(in_doubt)
    assert in_doubt.tries == 1
    assert store._write(Losing(store, goes_on=False), may_repeat=True) == 2


@pytest.mark.system
def test_one_refused_among_many_leaves_the_others(store: PostgresStore):
    leases = [store.create(f"r{i}", "header", agent="a", holder="w", for_s=LONG_S) for i in range(4)]
    begun, goes_on = threading.Event(), threading.Event()

    def slow(c: Any) -> None:
        begun.set()
        goes_on.wait(PATIENCE_S)

    first = store._submit("r", slow)
    assert begun.wait(PATIENCE_S)
    wrong: Any = 5  # which the server refuses when half is done
    snapshots = [None, wrong, None, None]
    futures = [
        store.submit(lease, n, ["line"], snapshot=snapshot)  # type: ignore[arg-type]
        for lease, n, snapshot in zip(leases, [0, 0, 7, 0], snapshots, strict=True)
    ]
    goes_on.set()
    first.result(PATIENCE_S)
    refused = [type(None), StoreError, LeaseLost, type(None)]
    assert [type(future.exception(PATIENCE_S)) for future in futures] == refused
    assert [len(store.load(f"r{i}").lines) for i in range(4)] == [1, 0, 0, 1]


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
        began_s = store._read(lambda c: c.now_s)
        store.create("r", "header", agent="a")
        [(run, due_s)] = told
        assert run == "r"
        assert began_s <= due_s <= began_s + 60.0
        lease = store.claim("w", for_s=LONG_S, run="r")
        assert lease is not None
        store.append(lease, 0, ["one"], Suspension(state="S", due_s=5e9))
        store.signal("r", "", "body")
        assert [run for run, _ in told] == ["r", "r", "r"]
        assert told[1] == ("r", 5e9)
        assert told[2][1] < began_s + 60.0
        again = store.claim("w", for_s=LONG_S, run="r")
        assert again is not None
        store.append(again, 1, ["two"], Suspension(state="S", is_ended=True))
        assert len(told) == 3
        with pytest.raises(StoreError, match="the engine is full"):
            store.create("refused", "header", agent="a")
        with pytest.raises(RunUnknown):
            store.load("refused")


# Secrets, and reasons


def everything_of(error: BaseException | None) -> str:
    """What a log or a page of a crash could hold of an error: its texts, causes, and the variables of its frames."""
    found = []
    while error is not None:
        shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        found.append(f"{error!r} {error} {vars(error)} {''.join(shown.format())}")
        error = error.__cause__ or error.__context__
    return "\n".join(found)


def refused_of(url: str, patience_s: float = 600.0) -> str:
    """Return why a store cannot be opened, at once; its password is nowhere to be found."""
    try:
        PostgresStore(url, patience_s=patience_s)
    except (StoreError, UsageError) as error:
        frames = everything_of(error).replace(repr(url), "")  # the caller's own variable
        assert "s3cret" not in frames
        return str(error)
    raise AssertionError("it was opened")


def test_a_server_that_stays_away_is_named_with_the_reason(caplog: pytest.LogCaptureFixture):
    with caplog.at_level("DEBUG"):
        refused = refused_of("postgresql://fsm:s3cret@127.0.0.1:1/work", patience_s=0.01)
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
    assert before.count("\n") == 1
    assert "127.0.0.1:1/work" in before
    assert "Connection refused" in error


@pytest.mark.system
def test_what_waiting_cannot_mend_is_said_at_once(server: PostgresServer, url: str, caplog: pytest.LogCaptureFixture):
    with closing(PostgresStore(url)) as store:
        made = "DO $$ BEGIN CREATE ROLE guarded LOGIN PASSWORD 'right'; EXCEPTION WHEN duplicate_object THEN END $$"
        store._write(lambda c: c.connection.execute(made))
    secret = server.url().replace("fsm@", "fsm:s3cret@")
    with caplog.at_level("DEBUG"):
        for wrong, reason in {
            server.url().replace("fsm@", "guarded:s3cret@"): "password authentication failed",
            server.url().replace("fsm@", "nobody:s3cret@"): 'role "nobody" does not exist',
            secret.replace("/postgres", "/nowhere"): 'database "nowhere" does not exist',
            f"{secret}&options=-c%20nonsense%3D1": 'unrecognized configuration parameter "nonsense"',
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
            store._write(lambda c: c.connection.execute("SELECT nonsense"))
        told.append(everything_of(failed.value))
        store.claim("w", for_s=LONG_S, run="r")
        with pytest.raises(RunBusy) as busy:
            store.claim("w", for_s=LONG_S, run="r")
        told.append(everything_of(busy.value))
        assert 'column "nonsense" does not exist' in told[-2]
        assert not [text for text in told if "s3cret" in text]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cret%ss@host/db",
        "postgresql://u:s3cret@h/db?nonsense=1",
        "postgres://u:s3cret@[x/db",
        "postgresql+psycopg://u:s3cret@host/db",
    ],
)
def test_an_address_that_cannot_be_read_is_not_quoted(url: str):
    """Nor is it in what psycopg says of it, which a page of a crash could show."""
    assert "postgresql://user@host/database" in refused_of(url)


@pytest.mark.system
@pytest.mark.parametrize(
    ("url", "name", "value"),
    [
        ("&application_name=a%20b%2Bc&pooled=no", "application_name", "a b+c"),
        ("&application_name=a+b", "application_name", "a+b"),
        ("&password=p+w%26%25", "password", "p+w&%"),
        ("&client_encoding=latin1", "client_encoding", "utf8"),
    ],
    indirect=["url"],
)
def test_libpq_is_told_what_the_address_says_but_the_encoding(store: PostgresStore, name: str, value: str):
    assert conninfo_to_dict(store.address.conninfo)[name] == value


@pytest.mark.system
@pytest.mark.parametrize("url", ["&client_encoding=LATIN1", "&client_encoding=SQL_ASCII"], indirect=True)
def test_no_encoding_of_a_client_lacks_characters(store: PostgresStore):
    assert store.create("r \N{SNOWMAN}", "header", agent="a")
    assert [run.id for run in store.list()] == ["r \N{SNOWMAN}"]


@pytest.mark.system
def test_pooled_is_yes_or_no(url: str):
    with pytest.raises(UsageError, match="pooled"):
        PostgresStore(f"{url}&pooled=maybe")


@pytest.mark.system
def test_a_server_that_is_gone_without_a_word_is_noticed_unless_the_address_says_otherwise(url: str):
    for address, timeout_ms in ((url, 20_000), (f"{url}&tcp_user_timeout=5000", 5_000)):
        with closing(PostgresStore(address)) as store:
            options = store._write(lambda c: c.connection.info.get_parameters())
            assert (options["keepalives_idle"], options["tcp_user_timeout"]) == ("10", str(timeout_ms))


@pytest.mark.system
@pytest.mark.parametrize("name", ["", "Orders", "a-b", 'x"; DROP TABLE run; --', "a" * 60])
def test_a_schema_is_a_plain_name(server: PostgresServer, name: str):
    with pytest.raises(UsageError, match="schema"):
        PostgresStore(f"{server.url().partition('?')[0]}?schema={name}")


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


# Costs


@pytest.mark.system
def test_no_claim_and_no_page_goes_through_all_runs(store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    """Among 30,000 runs, some of them due.  The query plan depends on the results of ANALYZE."""
    for name in ("a", "b", "c"):
        lease = store.create(name, "header", agent=name, holder="w", for_s=LONG_S)
        store.append(lease, 0, ["one"], Suspension(state="S", due_s=0.0 if name == "c" else 1e10))  # type: ignore[arg-type]

    def fill(c: Any) -> None:
        columns = "SELECT attname FROM pg_attribute WHERE attrelid = 'run'::regclass AND attnum > 0"
        some = ", ".join([name for (name,) in c(columns) if name not in ("key", "id")])
        c(f"INSERT INTO run (id, {some}) SELECT id || i, {some} FROM run, generate_series(1, 10000) AS i")
        c("ANALYZE run")

    store._write(fill)
    read, transact = list[int](), store._do

    def rows_read(c: Any) -> int:
        [[rows]] = c("SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relid = 'run'::regclass")
        return int(rows)

    def counted(work: Callable[[Any], Any], *options: Any) -> Any:
        def both(c: Any) -> Any:
            before = rows_read(c)
            result = work(c)
            read.append(rows_read(c) - before)
            return result

        return transact(both, *options)

    monkeypatch.setattr(store, "_do", counted)
    assert store.claim("w", for_s=LONG_S) is not None
    assert store.claim("w", for_s=LONG_S, agents=["a", "c"], fingerprints=["x"]) is None
    assert len(store.list(limit=3)) == len(store.list(limit=3, agent="b")) == 3
    assert len(store.list(limit=3, prefix="a77")) == 3
    assert store.health().due == 10_000
    store.wait(0.0)
    assert read == [0] * len(read)
    assert read


# Starts


@pytest.fixture
def held_up(store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[object]]:
    """Return a function that does one thing, and another before the transaction of the first is committed."""
    begun, is_done = threading.Event(), threading.Event()

    def act(method: str, first: Callable[[], object], second: Callable[[PostgresStore], object]) -> list[object]:
        original = getattr(statements, method)

        def slow(*arguments: Any) -> object:
            made = original(*arguments)
            if not begun.is_set():
                begun.set()
                is_done.wait(0.5)  # what happens meanwhile has to wait for the commit
            return made

        with closing(PostgresStore(url)) as other, ThreadPoolExecutor(1) as threads:
            monkeypatch.setattr(statements, method, slow)
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
    start, end = Start(after=("before",)), Suspension(state="Done", is_ended=True)
    outcomes = held_up(
        "create",
        lambda: store.create("r", "header", agent="a", start=start),
        lambda other: other.append(lease, 0, ["one"], end),
    )
    assert outcomes == [True, 0]
    assert store.load("r").run.due_s == 0.0


@pytest.mark.system
@pytest.mark.parametrize(
    "url",
    [
        "",
        "&options=-c%20default_transaction_isolation%3Drepeatable%5C%20read",
        "&options=-c%20default_transaction_isolation%3Dserializable",
    ],
    ids=["as usual", "repeatable read", "serializable"],
    indirect=True,
)
def test_of_two_runs_that_end_in_two_transactions_the_second_starts_the_next(
    store: PostgresStore, held_up: Callable[..., list[object]]
):
    leases = [store.create(name, "header", agent="a", holder="w", for_s=LONG_S) for name in ("one", "two")]
    store.create("r", "header", agent="a", start=Start(after=("one", "two")))
    end = Suspension(state="Done", is_ended=True)
    outcomes = held_up(
        "end",
        lambda: store.append(leases[0], 0, ["line"], end),
        lambda other: other.append(leases[1], 0, ["line"], end),
    )
    assert outcomes == [0, 0]
    assert store.load("r").run.due_s == 0.0


# Schemas


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
def test_tables_of_another_program_are_left_alone(server: PostgresServer, store: PostgresStore):
    store._write(lambda c: c.connection.execute("CREATE SCHEMA IF NOT EXISTS theirs"))
    store._write(lambda c: c.connection.execute("CREATE TABLE IF NOT EXISTS theirs.run (x int)"))
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
    connection = store._write(lambda c: c.connection.info.backend_pid)
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
    assert store._write(lambda c: c.connection.info.backend_pid) == connection, "the child did not close it"
    assert store.append(lease, 0, ["one"]) == 0
    assert store.submit(lease, 1, ["two"]).result(20) == 0
    assert store.load("child").lines == ("from the child",)
    assert store.load("r").run.holder == "parent"


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are those of POSIX")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_parent_of_a_fork_closes_it_while_the_child_lives(store: PostgresStore):
    store.create("r", "header", agent="a", holder="parent", for_s=LONG_S)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:  # the child
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    closing_it = threading.Thread(target=store.close, daemon=True)
    closing_it.start()
    closing_it.join(20.0)
    is_closed = not closing_it.is_alive()
    os.close(writing)
    os.waitpid(pid, 0)
    assert is_closed


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
            loop.call_later(11.0, network.heal)
            return "ok"

        def shop(*replies: Any) -> Agent[Any, str]:
            return Agent(Script(*replies), functions=[stand_still, refund], name="shop", store=store)

        with pytest.raises(CallSuspended):
            await shop(function_call("refund", order="A-17"), "Paid.").acall("Pay.", run_id="waiting")
        first = asyncio.create_task(shop(function_call("stand_still"), "Done.").acall("Go.", run_id="first"))
        await is_still.wait()
        others = [shop("Done.").acall("Go.", run_id=f"other{n}") for n in range(3)]
        resumed = shop("Paid.").runs.aresume("waiting", {"ask:1.0": Approved()})
        results = await asyncio.gather(first, *others, resumed)
        assert [result.output for result in results] == ["Done."] * 4 + ["Paid."]
        ticking.cancel()

    with (
        closing(Network(server.port)) as network,
        closing(PostgresStore(server.url(schema_of(tmp_path), network.port))) as store,
    ):
        asyncio.run(main(network, store))
    assert max(gaps_s) < 10.0

"""The store in SQLite: the conformance suite, and what that does not see: its file, its locks, its connections."""

from __future__ import annotations

import gc
import itertools
import os
import re
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from conformance.store_conformance import StoreConformance

from fsm_agent.errors import UsageError
from fsm_agent.messages import Question
from fsm_agent.store import Choice, Lease, LeaseLost, Rest, RunBusy, Store, StoreError
from fsm_agent.store.listing import wanted
from fsm_agent.store.sqlite import SqliteStore, sqlite_file, sqlite_runs
from fsm_agent.store.sqlite.sqlite_file import IDLE, Connections

PATIENCE_S = 30.0
LONG_S = 3600.0
posix = pytest.mark.skipif(os.name != "posix", reason="locks, modes and forks are those of POSIX")
linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")

OTHER = """
import sys
from fsm_agent.store.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
"""


class TestSqliteStore(StoreConformance):
    def opened(self, folder: Path, clock: Callable[[], float]) -> Store:
        return SqliteStore(folder / "runs.db", clock=clock)

    def opened_to_read(self, folder: Path, clock: Callable[[], float]) -> Store:
        return SqliteStore(folder / "runs.db", clock=clock, read_only=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(path)) as store:
        yield store


class Other:
    """Another OS process with a store, which says what it has done and then waits for a line."""

    def __init__(self, path: Path, code: str) -> None:
        command = [sys.executable, "-W", "error", "-c", OTHER + code, str(path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)

    def end(self) -> int:
        self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


def held(store: SqliteStore, run: str = "r", *, for_s: float = LONG_S) -> Lease:
    store.create(run, "header", agent="a")
    lease = store.claim("w", for_s=for_s, run=run)
    assert lease is not None
    return lease


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_files(path: Path) -> int:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the folder itself was open
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(name.startswith(str(path)) and not name.endswith(".lock") for name in found)


# The file


def test_the_file_says_what_it_is(path: Path, store: SqliteStore):
    held(store)
    with closing(sqlite3.connect(path)) as connection:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        [application] = connection.execute("PRAGMA application_id").fetchone()
        [journal] = connection.execute("PRAGMA journal_mode").fetchone()
    assert (version, application, journal) == (len(sqlite_file.MIGRATIONS), sqlite_file.APPLICATION_ID, "wal")


def test_runs_outlive_the_store(path: Path):
    with closing(SqliteStore(path)) as store:
        lease = held(store)
        store.append(lease, 0, ["one\0two", "\u2028"], Rest(state="Waiting", due_s=5.0), snapshot=b"\0record")
        before = store.load("r")
    assert sorted(os.listdir(path.parent)) == ["runs.db", "runs.db.holders"]
    with closing(SqliteStore(str(path))) as store:
        assert store.load("r") == before
        assert before.snapshot == (2, b"\0record")


@pytest.mark.parametrize("module", sorted(Path(sqlite_runs.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_no_placeholder_has_a_number(module: Path):
    """Python 3.12.0 to 3.12.3 take `?1` for a name and warn of it: https://github.com/python/cpython/issues/117995."""
    assert not re.findall(r"\?\d", module.read_text())


def test_an_older_version_is_brought_up_to_date(path: Path):
    with closing(SqliteStore(path)) as store:
        held(store)
    later = (*sqlite_file.MIGRATIONS, ("ALTER TABLE run ADD COLUMN more TEXT", "CREATE INDEX run_more ON run (more)"))
    for _ in range(2):
        sqlite_file.prepare(path, later)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(later),)
        assert connection.execute("SELECT id, more FROM run").fetchall() == [("r", None)]
    with pytest.raises(StoreError, match=rf"'{path}' has version {len(later)}, .* up to {len(later) - 1}"):
        SqliteStore(path)


def test_a_step_that_fails_leaves_the_older_version(path: Path):
    SqliteStore(path).close()
    with pytest.raises(StoreError, match="nowhere"):
        sqlite_file.prepare(path, (*sqlite_file.MIGRATIONS, ("CREATE TABLE more (x)", "DROP TABLE nowhere")))
    with closing(SqliteStore(path)) as store:
        held(store)


def test_a_file_that_is_no_database_is_refused_and_kept(path: Path):
    path.write_text("Dear diary, " * 100)
    with pytest.raises(StoreError, match=rf"'{path}' .*not a database"):
        SqliteStore(path)
    assert path.read_text() == "Dear diary, " * 100


def test_the_database_of_another_program_is_refused_and_kept(path: Path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmark (url)")
    with pytest.raises(StoreError, match=rf"'{path}' is a database of another program"):
        SqliteStore(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("bookmark",)]


def test_a_path_that_cannot_be_opened_is_named(tmp_path: Path):
    for path in (tmp_path / "missing" / "runs.db", tmp_path):
        with pytest.raises(StoreError, match=str(path)):
            SqliteStore(path)


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_memory_is_another_store(path: str):
    with pytest.raises(UsageError, match="MemoryStore"):
        SqliteStore(path)


@posix
@pytest.mark.parametrize("is_new", [True, False])
def test_files_are_their_owners_alone(path: Path, is_new: bool):
    before = os.umask(0)
    try:
        if not is_new:
            SqliteStore(path).close()
            (path.parent / "runs.db.holders").mkdir(exist_ok=True)
            for old in path.parent.iterdir():
                old.chmod(0o777)
        with closing(SqliteStore(path)) as store:
            held(store)
            modes = {found.name: mode(found) for found in path.parent.rglob("*") if found.suffix != ".lock"}
            assert modes == {
                **{"runs.db": 0o600, "runs.db-wal": 0o600, "runs.db-shm": 0o600},
                "runs.db.holders": 0o700,
            }
            assert [mode(lock) for lock in path.parent.rglob("*.lock")] == [0o600]
    finally:
        os.umask(before)


@pytest.mark.system
def test_many_os_processes_open_a_new_file_at_once(path: Path):
    code = "store.create(sys.argv[1] + str(__import__('os').getpid()), 'header', agent='a'); store.close()"
    others = [Other(path, code) for _ in range(4)]
    assert [other.end() for other in others] == [0, 0, 0, 0]
    with closing(SqliteStore(path)) as store:
        assert len(store.list()) == 4


# Connections


def test_a_store_that_nobody_closes_leaves_no_connection_open(path: Path):
    store = SqliteStore(path)
    held(store, "r")
    (connection,) = store._connections._idle
    del store
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_a_closed_store_says_so(path: Path):
    store = SqliteStore(path)
    lease = held(store)
    store.close()
    store.close()
    for method in (
        lambda: store.create("r", "header", agent="a"),
        lambda: store.claim("w", for_s=1.0),
        lambda: store.renew(lease, for_s=1.0),
        lambda: store.append(lease, 0, []),
        lambda: store.submit(lease, 0, []),
        lambda: store.load("r"),
        lambda: store.post("r", "", "body"),
        lambda: store.list(),
        lambda: store.head("c"),
        lambda: store.delete("r"),
        lambda: store.wait(0.0),
    ):
        with pytest.raises(StoreError, match=rf"'{path}' is closed"):
            method()


@linux
def test_threads_leave_no_connection_behind(path: Path):
    store = SqliteStore(path)
    lease = held(store)
    for turn in range(5):
        meeting = threading.Barrier(20)

        def use(number: int, meeting: threading.Barrier = meeting) -> None:
            meeting.wait(PATIENCE_S)
            store.create(str(number), "header", agent="b")
            store.load("r")

        threads = [threading.Thread(target=use, args=(turn * 20 + i,)) for i in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    store.submit(lease, 0, ["one"]).result(PATIENCE_S)
    store.wait(0.0)
    with ExitStack() as lent:
        for _ in range(20):
            lent.enter_context(store._connections.one()).execute("SELECT 1 FROM run")
    logs = path.with_name("runs.db-wal")  # SQLite keeps the file itself open, for the next connection
    assert 0 < open_files(logs) <= IDLE + 1  # one watches
    store.close()
    assert open_files(path) == 0
    gc.collect()  # a connection that was not closed would warn


def test_what_was_submitted_is_there_after_closing(path: Path):
    store = SqliteStore(path)
    lease = held(store)
    futures = [store.submit(lease, n, [str(n)]) for n in range(50)]
    store.close()
    assert [future.result(0) for future in futures] == [0] * 50
    with closing(SqliteStore(path)) as store:
        assert store.load("r").lines == tuple(map(str, range(50)))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (
            "DELETE FROM journal WHERE place = (SELECT key << 32 FROM run)",
            "the run 'r' is damaged: its header is missing",
        ),
        ("UPDATE question SET answers = '5'", "the question 'k' is damaged: its answers are '5': "),
        ("UPDATE question SET answers = '[1]'", r"the question 'k' is damaged: its answers are '\[1\]': "),
        ("UPDATE question SET answers = '{'", "the question 'k' is damaged: its answers are '{': "),
    ],
)
def test_a_run_whose_rows_are_damaged_is_named(path: Path, store: SqliteStore, damage: str, problem: str):
    question = Question(key="k", kind="approval", answers=("approved",))
    store.append(held(store, "r"), 0, ["one"], Rest(state="Waiting", questions=(question,)))
    with sqlite3.connect(path) as other:
        other.execute(damage)
    other.close()
    with pytest.raises(StoreError, match=problem):
        store.load("r")


def test_one_refused_among_many_leaves_the_others(store: SqliteStore):
    leases = [held(store, f"r{i}") for i in range(5)]
    with sqlite3.connect(store._path, isolation_level=None) as other:  # so that all are one commit
        other.execute("BEGIN IMMEDIATE")
        first = store.submit(leases[0], 0, ["first"])
        places = [1, 0, 7, 0, 0]
        futures = [store.submit(*pair, ["line"]) for pair in zip(leases, places, strict=True)]
        late = store.submit(leases[2], 0, ["line"], snapshot="a text")  # type: ignore[arg-type]  # refused when half is done
        other.execute("COMMIT")
    other.close()
    assert first.result(PATIENCE_S) == 0
    assert [type(future.exception(PATIENCE_S)) for future in futures] == [type(None)] * 2 + [LeaseLost] + [
        type(None)
    ] * 2
    with pytest.raises(StoreError, match="TEXT value in BLOB"):
        late.result(PATIENCE_S)
    assert [len(store.load(f"r{i}").lines) for i in range(5)] == [2, 1, 0, 1, 1]
    assert store.append(leases[2], 0, ["line"]) == 0  # nothing of it is in the way


def test_a_transaction_that_breaks_leaves_nothing_of_its_group(store: SqliteStore):
    leases = [held(store, f"r{i}") for i in range(3)]

    def breaks(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")  # as SQLite does by itself when the disk is full
        raise sqlite3.OperationalError("database or disk is full")

    appends = [store._append(lease, 0, ["line"], None, (), None) for lease in leases]
    with pytest.raises(StoreError, match="database or disk is full"):
        store._commit([appends[0], breaks, appends[1], appends[2]])
    assert [len(store.load(f"r{i}").lines) for i in range(3)] == [0, 0, 0]
    assert store.append(leases[0], 0, ["line"]) == 0


def test_a_commit_is_forced_to_the_disk(store: SqliteStore):
    with store._connections.one() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert connection.execute("PRAGMA fullfsync").fetchone() == (1,)


@pytest.mark.parametrize("schema", [b"\xff\xfe", b"\x80("])
def test_a_file_whose_schema_is_damaged_is_named(path: Path, schema: bytes):
    with closing(SqliteStore(path)):
        pass
    data = path.read_bytes()
    at = data.index(b"CREATE TABLE conversation")
    path.write_bytes(data[:at] + schema + data[at + len(schema) :])
    with pytest.raises(StoreError, match=re.escape(str(path))), closing(SqliteStore(path)) as store:
        store.head("c")


# Forks


def in_child(action: Callable[[], None]) -> int:
    """Return the exit status of a forked OS process that does this."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            action()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.system
@posix
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_store_is_used_on_both_sides_of_a_fork(store: SqliteStore):
    lease = held(store)
    store.submit(lease, 0, ["one"]).result(PATIENCE_S)  # its thread is not in the child

    def use() -> None:
        assert store.load("r").lines == ("one",)
        assert store.append(lease, 1, ["two"]) == 0
        assert store.submit(lease, 2, ["three"]).result(PATIENCE_S) == 0
        assert store.create("child's", "header", agent="a")
        assert store.claim("c", for_s=LONG_S, run="child's") is not None
        store.wait(0.0)
        store.close()

    assert in_child(use) == 0
    assert store.load("r").lines == ("one", "two", "three")
    assert store.append(lease, 3, ["four"]) == 0
    taken = store.claim("w", for_s=LONG_S, run="child's")  # whose OS process is dead
    assert taken is not None
    assert taken.fence == 2


@pytest.mark.system
@linux
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_no_connection_crosses_a_fork(path: Path, store: SqliteStore):
    leases = [held(store, f"r{i}") for i in range(4)]
    is_over = threading.Event()

    def write(lease: Lease) -> int:
        n = 0
        while not is_over.is_set():
            store.append(lease, n, [str(n)])
            assert len(store.load(lease.run, after=n).lines) == 1
            n += 1
        return n

    def look() -> None:
        assert open_files(path) == 0
        assert store.load("r0").run.n >= 0

    with ThreadPoolExecutor(4) as threads:
        written = [threads.submit(write, lease) for lease in leases]
        try:
            assert [in_child(look) for _ in range(10)] == [0] * 10
        finally:
            is_over.set()
    for lease, future in zip(leases, written, strict=True):
        assert store.load(lease.run).lines == tuple(map(str, range(future.result())))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# Holders that die

CLAIM = """
print(store.claim("dead", for_s=3600.0, run="r").fence, flush=True)
input()
"""


@pytest.mark.system
@posix
@pytest.mark.parametrize("run", ["r", None])
def test_a_killed_process_is_followed_at_once(store: SqliteStore, run: str | None):
    store.create("r", "header", agent="a")
    other = Other(store._path, CLAIM)
    assert other.said() == "1"
    assert store.claim("w", for_s=LONG_S) is None  # it lives
    with pytest.raises(RunBusy, match="'dead'"):
        store.claim("w", for_s=LONG_S, run="r")
    with pytest.raises(RunBusy):
        store.delete("r")
    other.kill()
    assert store.claim("w", for_s=LONG_S, agents=["b"]) is None
    lease = store.claim("w", for_s=LONG_S, run=run)
    assert lease is not None
    assert (lease.run, lease.fence, lease.tries) == ("r", 2, 2)
    assert store.claim("v", for_s=LONG_S) is None  # nor is this one dead


@pytest.mark.system
@posix
def test_a_child_does_not_keep_the_lock_of_its_parent(store: SqliteStore):
    store.create("r", "header", agent="a")
    code = """
import os
print(store.claim("dead", for_s=3600.0, run="r").fence, flush=True)
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, b"1")
    sys.stdin.read()  # until the test ends, too
    os._exit(0)
os.read(reading, 1)
print("forked", flush=True)
sys.stdin.read()
"""
    other = Other(store._path, code)
    assert [other.said(), other.said()] == ["1", "forked"]
    other.process.kill()
    other.process.wait(PATIENCE_S)
    lease = store.claim("w", for_s=LONG_S)
    assert lease is not None
    assert lease.fence == 2
    other.process.communicate(timeout=PATIENCE_S)


@posix
def test_two_stores_of_one_process_respect_each_other(path: Path, store: SqliteStore):
    lease = held(store)
    with closing(SqliteStore(path)) as other:
        held(other, "s")
        for each in (store, other):
            assert each.claim("v", for_s=LONG_S) is None
        assert other.append(lease, 0, ["one"]) == 0  # a lease is good for any of them
    assert store.claim("v", for_s=LONG_S) is not None  # "s", whose store was closed
    assert store.claim("v", for_s=LONG_S) is None


@posix
def test_a_lock_that_was_removed_ends_no_lease(path: Path, store: SqliteStore):
    held(store)
    [lock] = path.parent.glob("runs.db.holders/*.lock")
    lock.unlink()
    with closing(SqliteStore(path)) as other:
        assert other.claim("v", for_s=LONG_S) is None


@pytest.mark.system
@posix
def test_locks_of_the_dead_are_removed_when_nothing_is_left_of_them(path: Path):
    with closing(SqliteStore(path)) as store:
        store.create("r", "header", agent="a")
        other = Other(path, CLAIM)
        assert other.said() == "1"
        other.kill()
    folder = path.parent / "runs.db.holders"
    [dead] = folder.iterdir()
    with closing(SqliteStore(path)) as store:
        store.append(held(store, "s"), 0, [], Rest(state=""))
        assert dead.exists()  # it has a lease left
        lease = store.claim("w", for_s=LONG_S)
        assert lease is not None
        store.append(lease, 0, [], Rest(state=""))
    assert list(folder.iterdir()) == [dead]  # that of a store that gave all back is gone
    with closing(SqliteStore(path)) as store:
        held(store, "t")
        assert not dead.exists()


# Speed


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    """Return a store with 20,000 runs that wait for people, or for another day; it is only read."""
    store = SqliteStore(tmp_path_factory.mktemp("crowd") / "runs.db")
    held(store, "held")
    with store._connections.one() as connection:
        connection.execute(
            "WITH RECURSIVE number (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < 20000)"
            " INSERT INTO run (id, agent, state, is_ended, due, queued, unread, fence, tries, holder, instance,"
            " since, given_back, created, updated)"
            " SELECT 'run' || i, 'a' || (i % 3), '', 0, CASE WHEN i % 2 THEN 1e10 + i END, NULL, 0, 1, 0, '', '', 0.0,"
            " -1, i, i FROM number"
        )
        connection.execute("INSERT OR IGNORE INTO journal SELECT key << 32, 0.0, 'header' FROM run")
    with closing(store):
        yield store


@pytest.mark.parametrize(
    "query",
    [
        *[
            query.format(also=also)
            for query in (sqlite_runs.FREE, sqlite_runs.HELD)
            for also in ("", sqlite_runs.CHOSEN)
        ],
        *(sqlite_runs.HOLDING, sqlite_runs.HELD_NOW, sqlite_runs.AGENTS, sqlite_runs.NEXT_GROUP),
        *(sqlite_runs.NEXT_FREE, sqlite_runs.NEXT_HELD, sqlite_runs.PRIORITIES),
        *(sqlite_runs.OF_GROUP, sqlite_runs.COUNTS),
    ],
)
def test_the_queue_is_read_by_its_indexes(crowd: SqliteStore, query: str):
    names = {"agent": "a", "priority": 0, "due_s": 0.0, "instance": "", "until_s": 0.0}
    names |= {"now_s": 0.0, "dead": "[]"}
    names |= {"definitions": None, "busy": "[]", "is_failed": 0, "is_ended": 0, "asks": "", "state": ""}
    with crowd._connections.one() as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {query}", names if ":" in query else [0] * query.count("?"))
        steps = [step for *_, step in plan]
    reads = [step for step in steps if " run " in f"{step} "]
    assert reads
    assert all("INDEX run_" in step for step in reads), steps
    assert not any("TEMP B-TREE FOR ORDER" in step for step in steps), steps


def test_runs_that_go_on_are_not_looked_for_among_20000_that_have_ended(crowd: SqliteStore, store: SqliteStore):
    count = 0

    def step() -> None:
        nonlocal count
        count += 1

    with crowd._connections.one() as full, store._connections.one() as connection:
        full.backup(connection)
        connection.execute("UPDATE run SET is_ended = 1, due = NULL WHERE key > 10")
        connection.execute(
            "INSERT INTO question SELECT key, 'k', 'approval', '{}', '[]', '', NULL, '' FROM run WHERE key <= 10"
        )
        connection.execute("UPDATE run SET asks = 'approval' WHERE key <= 10")
        connection.set_progress_handler(step, 1)
    for wish in ({"ended": False}, {"asked": True}, {"asked": True, "agent": "a1"}):
        count = 0
        found = store.list(**wish)  # type: ignore[arg-type]
        assert 3 <= len(found) <= 10, wish
        assert 0 < count < 20_000, f"{wish} reads a row of each that has ended"
    with store._connections.one() as connection:
        connection.set_progress_handler(None, 0)


@pytest.mark.system
def test_a_claim_and_a_list_cost_the_same_among_20000_that_wait(path: Path, crowd: SqliteStore):
    def steps(store: SqliteStore, agents: tuple[str, ...], choice: Choice | None) -> tuple[int, int]:
        claim = sqlite_runs.Claim("w", 9.0, None, agents, time.time(), time.time(), frozenset(), choice)
        count = 0

        def step() -> None:
            nonlocal count
            count += 1

        with store._connections.one() as connection:
            connection.set_progress_handler(step, 1)
            assert sqlite_runs.find(connection, claim) is None
            claimed = count
            asked = wanted(None, 1, {"agent": agents[0]} if agents else {})
            assert len(sqlite_runs.select(connection, asked, time.time())) == 1
            connection.set_progress_handler(None, 0)
        return claimed, count - claimed

    few = path.with_name("few.db")
    with closing(SqliteStore(few)) as alone:
        for name in ("a0", "a1", "a2"):
            lease = alone.create(name, "header", agent=name) and alone.claim("w", for_s=9.0, run=name)
            assert lease
            alone.append(lease, 0, [], Rest(state="", due_s=1e10))
        held(alone, "held")
        limited = Choice(limits=(("a1", 1), ("a2", 3)), key_limit=2)
        for agents, choice in itertools.product(((), ("a1",)), (None, limited)):
            for many, one in zip(steps(crowd, agents, choice), steps(alone, agents, choice), strict=True):
                assert many <= 1.5 * one


def test_an_append_is_one_question_and_one_insert_in_one_transaction(store: SqliteStore):
    lease = held(store)
    statements: list[str] = []
    store.append(lease, 0, ["the first, which says that this try came to something"])
    with store._connections.one() as connection:
        connection.set_trace_callback(statements.append)
    store.append(lease, 1, ["x" * 600])
    store.append(lease, 2, ["y", "z"])
    assert [statement.split()[0] for statement in statements] == [
        *("BEGIN", "SELECT", "INSERT", "COMMIT"),
        *("BEGIN", "SELECT", "INSERT", "INSERT", "COMMIT"),
    ]


MAKING = """
import sys
from fsm_agent.store.sqlite import SqliteStore
for path in sys.argv[1:]:
    print(end=".", flush=True)
    sys.stdin.read(1)
    SqliteStore(path).close()
print(end="!", flush=True)
"""


@pytest.mark.nightly
def test_several_os_processes_may_make_one_file_at_once(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.db") for number in range(200)]
    command = [sys.executable, "-c", MAKING, *paths]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    with ExitStack() as stack:
        makers = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in range(3)]  # type: ignore[call-overload]
        for _ in paths:
            assert [maker.stdout.read(1) for maker in makers] == [b".", b".", b"."]
            for maker in makers:
                maker.stdin.write(b"\n")
        assert [maker.stdout.read(1) for maker in makers] == [b"!", b"!", b"!"]
    print(f"\n{len(paths)} files were made by 3 OS processes at once")


def test_the_connections_of_a_store_that_was_not_closed_do_not_warn_whatever_is_collected_first(path: Path):
    older = [sqlite3.connect(path, check_same_thread=False)]
    connections = Connections(lambda one=older[0]: one, RuntimeError)  # type: ignore[misc]
    with connections.one():
        pass
    older.append(connections)  # type: ignore[arg-type]
    older.append(older)  # type: ignore[arg-type]
    del older, connections
    gc.collect()  # a warning would be an error

"""The store in SQLite: the conformance suite, and what that does not see: its file, its locks, its connections."""

from __future__ import annotations

import gc
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
from typing import Any

import pytest
from conformance.store_conformance import StoreConformance

from fsm_agent.errors import UsageError
from fsm_agent.messages import Question
from fsm_agent.store import Lease, LeaseLost, RunBusy, Runs, SqliteStore, Start, Store, StoreError, Suspension

PATIENCE_S = 30.0
LONG_S = 3600.0
posix = pytest.mark.skipif(os.name != "posix", reason="locks, modes and forks are those of POSIX")
linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")

OTHER = """
import sys
from fsm_agent.store import SqliteStore
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
    """Another OS process with a store.  It reports its work and then waits for a line."""

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


def test_a_file_that_is_no_database_is_refused_and_kept(path: Path):
    path.write_text("Dear diary, " * 100)
    path.chmod(0o644)
    with pytest.raises(StoreError, match=str(path)):
        SqliteStore(path)
    assert (path.read_text(), mode(path)) == ("Dear diary, " * 100, 0o644)


def test_the_database_of_another_program_is_refused_and_kept(path: Path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmark (url)")
    path.chmod(0o644)
    with pytest.raises(StoreError, match=str(path)):
        SqliteStore(path)
    assert mode(path) == 0o644
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("bookmark",)]


def moved(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def replaced(path: Path) -> None:
    other = path.with_name("other.db")
    SqliteStore(other).close()
    other.rename(path)


def cut(path: Path) -> None:
    os.truncate(path, 5000)


METHODS: dict[str, Callable[[SqliteStore, Lease], object]] = {
    "append": lambda store, lease: store.append(lease, 0, ["line"]),
    "submit": lambda store, lease: store.submit(lease, 0, ["line"]).result(PATIENCE_S),
    "create": lambda store, lease: store.create("s", "header", agent="a"),
    "claim": lambda store, lease: store.claim("w", for_s=LONG_S),
    "get": lambda store, lease: store.get("r"),
    "list": lambda store, lease: store.list(),
    "wait": lambda store, lease: store.wait(0.0),
    "backup": lambda store, lease: store.backup(f"{store._path}.copy"),
}


@posix
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("happens", [Path.unlink, moved, replaced, cut], ids=["deleted", "moved", "replaced", "cut"])
def test_a_file_that_is_not_what_was_opened_is_neither_read_nor_written(path: Path, happens: Any, method: str):
    """What is written to a file that was deleted is lost, however well it went."""
    with closing(SqliteStore(path)) as store:
        lease = held(store)
    with closing(SqliteStore(path)) as store:
        happens(path)
        before = {found.name for found in path.parent.iterdir()}
        with pytest.raises(StoreError, match=str(path)):
            METHODS[method](store, lease)
    assert path.name not in {found.name for found in path.parent.iterdir()} - before, "no other is made in its place"


@posix
def test_a_link_is_another_name_of_its_file(path: Path, tmp_path: Path):
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    with closing(SqliteStore(link)) as store, closing(SqliteStore(path)) as other:
        held(store)
        assert [run.holder for run in other.list()] == ["w"]
        assert [found.name for found in link.parent.iterdir()] == ["link.db"]  # all else is beside the file


def test_a_path_that_cannot_be_opened_is_named(tmp_path: Path):
    for path in (tmp_path / "missing" / "runs.db", tmp_path):
        with pytest.raises(StoreError, match=str(path)):
            SqliteStore(path)


@pytest.mark.parametrize("path", ["", ":memory:", "a\0b", "a\ud83d", "x" * 5000])
@pytest.mark.parametrize("opened", [SqliteStore, Runs])
def test_a_path_that_is_none_is_refused(opened: Callable[[str], object], path: str):
    with pytest.raises((UsageError, StoreError)):
        opened(path)


@pytest.mark.parametrize("opened", [SqliteStore, Runs, lambda path: Runs(Path(path))])
def test_a_tilde_is_the_home_folder(opened: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    opened("~/runs.db").close()
    assert (tmp_path / "runs.db").exists()
    with pytest.raises(UsageError, match="'~'"):
        Runs("~")


def test_a_folder_is_no_store(tmp_path: Path):
    with pytest.raises(UsageError, match=str(tmp_path)):
        Runs(tmp_path)


@posix
@pytest.mark.parametrize("is_new", [True, False])
def test_files_are_their_owners_alone(path: Path, is_new: bool):
    before = os.umask(0)
    try:
        if not is_new:
            SqliteStore(path).close()
            (path.parent / "runs.db.leases").mkdir(exist_ok=True)
            for old in path.parent.iterdir():
                old.chmod(0o777)
        with closing(SqliteStore(path)) as store:
            held(store)
            modes = {found.name: mode(found) for found in path.parent.rglob("*") if found.suffix != ".lock"}
            assert modes == {
                **{"runs.db": 0o600, "runs.db-wal": 0o600, "runs.db-shm": 0o600},
                "runs.db.leases": 0o700,
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


@linux
def test_threads_leave_no_connection_behind(path: Path):
    store = SqliteStore(path)
    lease = held(store)
    for turn in range(2):
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
    assert 0 < open_files(logs) < 20
    store.close()
    assert open_files(path) == 0
    gc.collect()  # a connection that was not closed would warn


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (
            "DELETE FROM journal WHERE place = (SELECT key << 32 FROM run)",
            "'r'",
        ),
        ("UPDATE question SET answers = '[1]'", "'k'"),
        ("UPDATE question SET answers = '{'", "'k'"),
    ],
)
def test_a_run_whose_rows_are_damaged_is_named(path: Path, store: SqliteStore, damage: str, problem: str):
    question = Question(key="k", kind="approval", answers=("approved",))
    store.append(held(store, "r"), 0, ["one"], Suspension(state="Waiting", questions=(question,)))
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
    with pytest.raises(StoreError, match="BLOB") as refused:
        late.result(PATIENCE_S)
    assert isinstance(refused.value.__cause__, sqlite3.Error)
    assert [len(store.load(f"r{i}").lines) for i in range(5)] == [2, 1, 0, 1, 1]
    assert store.append(leases[2], 0, ["line"]) == 0  # nothing of it is in the way


def test_a_transaction_that_breaks_leaves_nothing_of_its_group(store: SqliteStore):
    leases = [held(store, f"r{i}") for i in range(3)]

    def breaks(c: Any) -> None:
        c("ROLLBACK")  # as SQLite does by itself when the disk is full
        raise sqlite3.OperationalError("database or disk is full")

    changes = [lambda c, run=lease.run: c("UPDATE run SET title = 'x' WHERE id = :id", id=run) for lease in leases]
    with pytest.raises(StoreError, match="database or disk is full"):
        store._commit([(work, True) for work in (changes[0], breaks, changes[1], changes[2])])
    assert [store.get(f"r{i}").title for i in range(3)] == ["", "", ""]
    assert store.append(leases[0], 0, ["line"]) == 0


def test_what_is_promised_is_forced_to_the_disk_and_a_claim_alone_is_not(store: SqliteStore):
    """A lease matters only with the first entry, and its holder dies with the machine."""
    levels = list[str]()
    with store._connections.one() as connection:
        assert connection.execute("PRAGMA fullfsync").fetchone() == (1,)
        connection.set_trace_callback(lambda told: levels.append(told) if "synchronous" in told else None)
    lease = store.create("r", "header", agent="a", holder="w", for_s=0.0)
    store.create("s", "header", agent="a")
    assert isinstance(lease, Lease)
    lease = store.claim("w", for_s=LONG_S, run="r")
    assert lease is not None
    store.renew_all([lease], for_s=LONG_S)
    store.append(lease, 0, ["one"])
    store.submit(lease, 1, ["two"], Suspension(state="S")).result(PATIENCE_S)
    store.signal("r", "", "body")
    full, normal = [f"PRAGMA synchronous = {level}" for level in ("FULL", "NORMAL")]
    assert levels == [normal, full, normal, normal, full, full, full]


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
@linux
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_store_is_used_on_both_sides_of_a_fork_and_no_connection_crosses_it(path: Path, store: SqliteStore):
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
        mine = held(store, f"child {os.getpid()}")
        assert store.submit(mine, 0, ["of the child"]).result(PATIENCE_S) == 0
        store.close()

    with ThreadPoolExecutor(4) as threads:
        written = [threads.submit(write, lease) for lease in leases]
        try:
            assert [in_child(look) for _ in range(3)] == [0] * 3
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
def test_a_killed_process_is_followed_at_once(store: SqliteStore):
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
    lease = store.claim("w", for_s=LONG_S)
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


def test_a_wait_lasts_while_nothing_is_due_and_ends_with_what_is(store: SqliteStore):
    store.create("later", "{}", agent="a", start=Start(due_s=time.time() + LONG_S))
    waits = threading.Thread(target=store.wait, args=(PATIENCE_S,), daemon=True)
    waits.start()
    waits.join(0.02)
    assert waits.is_alive()
    store.create("now", "{}", agent="a")
    waits.join(PATIENCE_S / 2)
    assert not waits.is_alive()


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
    [lock] = path.parent.glob("runs.db.leases/*.lock")
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
    folder = path.parent / "runs.db.leases"
    [dead] = folder.iterdir()
    with closing(SqliteStore(path)) as store:
        store.append(held(store, "s"), 0, [], Suspension(state=""))
        assert dead.exists()  # it has a lease left
        lease = store.claim("w", for_s=LONG_S)
        assert lease is not None
        store.append(lease, 0, [], Suspension(state=""))
    assert list(folder.iterdir()) == [dead]  # that of a store that gave all back is gone
    with closing(SqliteStore(path)) as store:
        held(store, "t")
        assert not dead.exists()


@pytest.mark.nightly
def test_methods_cost_the_same_among_20000_that_wait(tmp_path: Path):
    """Steps of the virtual machine of SQLite: of a claim and of pages, where all wait for people, or have ended."""

    def steps(many: int) -> list[int]:
        counts, count = [], 0

        def step() -> None:
            nonlocal count
            count += 1

        with closing(SqliteStore(tmp_path / f"{many}.db")) as store:
            for name in ("a0", "a1", "a2"):
                store.append(held(store, name), 0, [], Suspension(state="", due_s=1e10))
            with store._connections.one() as connection:
                columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(run)")]
                listed = ", ".join([name for name in columns if name not in ("key", "id")])
                connection.execute(
                    "WITH RECURSIVE number (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < ?)"
                    f" INSERT INTO run (id, {listed}) SELECT 'run' || i, {listed} FROM number, run WHERE id = 'a0'",
                    (many,),
                )
                connection.execute("INSERT OR IGNORE INTO journal SELECT key << 32, 'header' FROM run")
                connection.set_progress_handler(step, 1)
            for action in (
                lambda: store.claim("w", for_s=9.0),
                lambda: store.claim("w", for_s=9.0, agents=["a"]),
                lambda: store.list(limit=3),
                lambda: store.list(limit=3, agent="a"),
                lambda: store.list(limit=3, asked=True),
            ):
                count = 0
                action()
                counts.append(count)
            with store._connections.one() as connection:
                connection.set_progress_handler(None, 0)
        return counts

    for few, many in zip(steps(10), steps(20_000), strict=True):
        assert 0 < many <= 1.5 * few + 50

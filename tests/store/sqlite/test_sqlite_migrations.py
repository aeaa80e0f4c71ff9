"""Files of older versions: they are read, go on, and are one version or the other wherever a migration is cut off."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fsm_agent.messages import Question
from fsm_agent.store import Head, Lease, Rest
from fsm_agent.store.sqlite import SqliteStore, sqlite_file
from fsm_agent.store.store import Post

VERSION_1 = Path(__file__).with_name("version_1.sql")
NOW_S = 1021.0  # a second after the last append of that file
NEWEST = len(sqlite_file.MIGRATIONS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of version 1.

    It has runs of all kinds, and two turns of a conversation, the later of which is held.  One run was deleted.
    """
    path = tmp_path / "runs.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(VERSION_1.read_text())
    return path


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def opened(path: Path) -> SqliteStore:
    return SqliteStore(path, clock=lambda: NOW_S)


def assert_all_there(store: SqliteStore) -> None:
    """Assert what the code of version 1 returned for the file."""
    listed = store.list()
    assert [(run.id, run.n, run.updated_s) for run in listed] == [
        ("turn 2", 2, 1020.0),
        ("turn 1", 1, 1018.0),
        ("new", 0, 1017.0),
        ("timed", 1, 1016.0),
        ("asks", 2, 1014.0),
        ("ended", 13, 1013.0),
    ]
    loaded = {run.id: store.load(run.id) for run in listed}
    assert [loaded[run.id].run for run in listed] == listed
    ended = tuple([f'{{"n": {n + 1}, "text": "\\u00e9\\u0000\\u2028 {n}"}}' for n in range(12)])
    assert {run: (kept.header, kept.lines, kept.snapshot) for run, kept in loaded.items()} == {
        "turn 2": ("t2", ("b", "c"), None),
        "turn 1": ("t1", ("a",), None),
        "new": ("header", (), None),
        "timed": ("header", ("x" * 900,), None),
        "asks": ('{"h":1}', ("one", "two"), (2, b"asks")),
        "ended": ("header", (*ended, "last"), (13, b"\0ended\xff")),
    }
    assert [(run.state, run.is_ended, run.due_s, run.holder) for run in listed] == [
        ("", False, 0.0, "w"),
        ("Completed", True, None, None),
        ("", False, 0.0, None),
        ("Backoff", False, 5000.0, None),
        ("ToolInterrupt", False, 0.0, None),
        ("Completed", True, None, None),
    ]
    assert loaded["asks"].run.waits == (Question("ask:1.0", "approval", '"x"', ("approved", "denied")),)
    assert loaded["asks"].posts == (
        Post(1, "ask:1.1", '{"kind":"denied"}', "ann", 1015.0),
        Post(2, "", "hello", "", 1015.0),
    )
    assert store.head("customer") == Head("customer", 2, "turn 2")


def test_a_file_of_version_1_is_read_and_goes_on(path: Path):
    lease = Lease("turn 2", "c", "w", 1, 1019.0, 1079.0, 0, 1)  # that of its holder, who goes on
    with closing(opened(path)) as store:
        assert_all_there(store)
        assert store.append(lease, 0, ["b", "c"]) == 0  # again
        assert store.append(lease, 2, ["d"]) == 0
        assert store.load("turn 2").run.updated_s == NOW_S
        store.post("asks", "ask:1.0", "yes")
        claimed = store.claim("v", for_s=9.0, agents=["b"])
        assert claimed is not None
        assert (claimed.run, claimed.n, claimed.fence) == ("asks", 2, 2)
        assert store.append(claimed, 2, ["three"], Rest(state="Completed", is_ended=True), took=[1, 2, 3]) == 0
        store.delete("ended")
    assert version(path) == NEWEST
    with closing(opened(path)) as store:
        assert store.load("turn 2").lines == ("b", "c", "d")
        assert store.load("asks", after=1).lines == ("two", "three")
        assert [run.id for run in store.list()] == ["turn 2", "asks", "turn 1", "new", "timed"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


class Deadly(tuple[str, ...]):
    """The statements of a migration, after the first so many of which the OS process is killed."""

    survived = 0

    def __iter__(self) -> Iterator[str]:
        yield from self[: self.survived]
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.system
@pytest.mark.skipif(os.name != "posix", reason="kill -9")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("survived", range(len(sqlite_file.MIGRATIONS[1]) + 1))
def test_a_migration_that_is_killed_leaves_the_older_version(path: Path, survived: int):
    if (child := os.fork()) == 0:
        try:
            deadly = Deadly(sqlite_file.MIGRATIONS[1])
            deadly.survived = survived
            sqlite_file.prepare(path, (sqlite_file.MIGRATIONS[0], deadly))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert version(path) == 1
    with closing(opened(path)) as store:
        assert_all_there(store)


def test_a_migration_whose_log_is_cut_off_has_been_made_or_not(path: Path, tmp_path: Path):
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:  # whose presence keeps the log
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entry").fetchone()
        sqlite_file.prepare(path)
        log = path.with_name("runs.db-wal").read_bytes()
        (tmp_path / "copy").mkdir()
        copy = tmp_path / "copy" / "runs.db"
        versions = []
        ends = range(32, len(log) + 1, 24 + 2048)  # of its frames
        for end in sorted({*ends, *[end - 1 for end in ends], *[end + 1000 for end in ends[:-1]]}):
            shutil.copy(path, copy)
            copy.with_name("runs.db-wal").write_bytes(log[:end])
            versions.append(version(copy))
            with closing(opened(copy)) as store:
                assert_all_there(store)
    assert versions == [1] * (len(versions) - 1) + [NEWEST]
    assert ends[-1] == len(log)
    assert len(ends) > 5


def test_an_older_program_that_has_the_file_open_writes_no_entry_after_a_migration(path: Path):
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        older.execute("SELECT key, n, unread, until, given_back FROM run").fetchone()
        sqlite_file.prepare(path)
        for statement in (
            "INSERT INTO entry VALUES (7, 3, 'd')",
            "UPDATE run SET n = 3, unread = 0, updated = 0.0, tries = 0 WHERE key = 7",
            "SELECT id, agent, fence, n, tries FROM run WHERE key = 7",
        ):
            with pytest.raises(sqlite3.OperationalError, match="no such"):
                older.execute(statement)
    with closing(opened(path)) as store:
        assert_all_there(store)

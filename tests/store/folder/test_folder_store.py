"""Is a folder of files a store, whatever happens to it?"""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsm_agent.errors import UsageError
from fsm_agent.machine.process import Question
from fsm_agent.store.errors import Conflict, LeaseLost, RunUnknown, StoreError
from fsm_agent.store.folder import FolderStore, run_file
from fsm_agent.store.store import Head, Lease, Rest, Store
from fsm_agent.testing import StoreConformance

QUESTION = Question(key="k", kind="approval")
WAITING = Rest(state="ToolInterrupt", questions=(QUESTION,))


class TestFolderStore(StoreConformance):
    def opened(self, folder: Path, clock: Callable[[], float]) -> Store:
        return FolderStore(folder / "runs", clock=clock)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FolderStore]:
    store = FolderStore(tmp_path)
    yield store
    store.close()


def begun(store: FolderStore, run: str = "r", *, for_s: float = 600.0) -> Lease:
    store.create(run, "header", agent="a")
    lease = store.claim("w", for_s=for_s, run=run)
    assert lease is not None
    return lease


def journal(tmp_path: Path, name: str = "r") -> Path:
    return tmp_path / "runs" / f"{name}.jsonl"


class TestFiles:
    def test_a_person_can_read_them(self, store, tmp_path):
        store.append(begun(store), 0, ['{"n": 1}', '{"n": 2}'], WAITING)
        lines = journal(tmp_path).read_text().splitlines()
        assert [line[:20] for line in lines] == [
            '{"kind":"run","nonce',
            "header",
            '{"kind":"claimed","f',
            '{"kind":"appended","',
            '{"n": 1}',
            '{"n": 2}',
        ]

    def test_they_are_the_owners_alone(self, tmp_path):
        before = os.umask(0)
        try:
            store = FolderStore(tmp_path / "a" / "store")
            store.create("r", "header", agent="a", follows=Head("c"))
            lease = store.claim("w", for_s=9)
            store.post("r", "", "body")
            store.append(lease, 0, ["one"], snapshot=b"1")
        finally:
            os.umask(before)
        paths = [tmp_path / "a" / "store", *(tmp_path / "a" / "store").rglob("*")]
        assert len([path for path in paths if path.is_file()]) == 6
        assert [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
        store.close()

    @pytest.mark.spec("3.27: a session has a safe id")
    def test_names_are_those_of_files(self, store, tmp_path):
        for name in ("../../etc/passwd", "A" * 1000, "a" * 150, "a" * 151, "é\n\0", ".."):
            store.create(name, "header", agent="a")
        names = [path.name for path in (tmp_path / "runs").iterdir()]
        assert len(names) == 6
        assert max(map(len, names)) <= 160
        assert "%2e%2e%2f%2e%2e%2fetc%2fpasswd.jsonl" in names
        assert all(name == name.lower() and name.isascii() for name in names)

    def test_the_snapshot_before_is_removed(self, store, tmp_path):
        lease = begun(store)
        for n in range(5):
            store.append(lease, n, [str(n)], snapshot=b"%d" % n)
        (left,) = (tmp_path / "snapshots").iterdir()
        assert left.read_bytes() == b"4"
        store.append(lease, 5, [], WAITING)
        store.delete("r")
        assert [*(tmp_path / "snapshots").iterdir(), *(tmp_path / "runs").iterdir()] == []

    def test_a_run_that_came_too_late_leaves_no_file(self, store, tmp_path):
        store.create("r", "header", agent="a", follows=Head("c"))
        with pytest.raises(Conflict):
            store.create("late", "header", agent="a", follows=Head("c"))
        assert [path.name for path in (tmp_path / "runs").iterdir()] == ["r.jsonl"]

    def test_no_descriptor_is_left(self, tmp_path):
        def use() -> None:
            store = FolderStore(tmp_path)
            lease = begun(store, "r")
            store.submit(lease, 0, ["one"], snapshot=b"1").result()
            with pytest.raises(LeaseLost):
                store.append(lease, 9, ["one"])
            store.post("r", "", "body")
            store.list()
            store.head("c")
            store.append(lease, 1, [], WAITING)
            store.delete("r")
            store.close()

        use()
        before = os.listdir("/dev/fd")
        for _ in range(3):
            use()
        assert len(os.listdir("/dev/fd")) == len(before)
        assert not run_file.open_descriptors

    def test_a_closed_store_says_so(self, store, tmp_path):
        store.create("r", "header", agent="a")
        store.close()
        for use in (lambda: store.load("r"), store.list, lambda: store.create("s", "h", agent="a")):
            with pytest.raises(StoreError, match=f"'{tmp_path}' is closed"):
                use()

    def test_a_system_without_locks_is_refused(self, monkeypatch, tmp_path):
        monkeypatch.setattr(run_file, "fcntl", None)
        with pytest.raises(UsageError, match="SqliteStore is right here"):
            FolderStore(tmp_path)


class TestTorn:
    """An OS process may be killed at any byte."""

    def test_what_was_cut_off_is_dropped(self, tmp_path, caplog):
        """Acknowledged entries stay, and the next append is as good as ever."""
        first = FolderStore(tmp_path)
        lease = begun(first)
        first.append(lease, 0, ["one \u2028 é"], snapshot=b"1")
        good = journal(tmp_path).read_bytes()
        before = first.load("r")
        first.append(lease, 1, ["two", "three \U0001f600"], WAITING)
        whole = journal(tmp_path).read_bytes()
        first.close()
        for size in range(len(good), len(whole)):
            journal(tmp_path).write_bytes(whole[:size])
            caplog.clear()
            store = FolderStore(tmp_path)
            assert store.load("r") == before
            assert [record.levelname for record in caplog.records] == ["WARNING"] * (size > len(good))
            assert store.append(lease, 1, ["two"]) == 0
            assert FolderStore(tmp_path).load("r").lines == ("one \u2028 é", "two")
            store.close()
        assert f"{journal(tmp_path)} ended in the midst of a record" in caplog.text
        journal(tmp_path).write_bytes(whole)
        assert FolderStore(tmp_path).load("r").lines == ("one \u2028 é", "two", "three \U0001f600")

    def test_a_run_that_was_not_created_to_the_end_is_not_there(self, store, tmp_path):
        store.create("r", "header", agent="a", follows=Head("c"))
        whole = journal(tmp_path).read_bytes()
        for size in range(len(whole)):
            journal(tmp_path).write_bytes(whole[:size])
            later = FolderStore(tmp_path)
            with pytest.raises(RunUnknown):
                later.load("r")
            assert later.list() == []
            assert later.head("c") == Head("c"), "the head of a conversation is a run that is not there"
            assert later.create("r", "another header", agent="a", follows=Head("c")) is True
            assert later.head("c") == Head("c", 1, "r")
            later.close()

    def test_a_store_that_is_open_notices_it_too(self, store, tmp_path, caplog):
        lease = begun(store)
        store.append(lease, 0, ["one"])
        with journal(tmp_path).open("ab") as file:
            file.write(b'{"kind":"appended","fence":1')
        assert [run.n for run in store.list()] == [1]
        assert store.append(lease, 1, ["two"]) == 0
        assert store.load("r").lines == ("one", "two")
        assert len(caplog.records) == 1

    @pytest.mark.parametrize("failing", ["fsync", "pwrite"])
    def test_a_failure_of_the_disk_leaves_nothing(self, store, tmp_path, monkeypatch, failing):
        lease = begun(store)
        store.append(lease, 0, ["one"])
        before = store.load("r")

        pwrite = os.pwrite

        def fail(descriptor: int, data: bytes = b"", at: int = 0) -> None:
            if failing == "pwrite":
                pwrite(descriptor, data[:50], at)
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, failing, fail)
            with pytest.raises(StoreError, match=r"r\.jsonl': No space left on device"):
                store.append(lease, 1, ["two"], WAITING)
        assert store.load("r") == FolderStore(tmp_path).load("r") == before
        assert store.append(lease, 1, ["two"]) == 0


class TestDamage:
    def test_a_damaged_file_is_named(self, store, tmp_path, caplog):
        """Its run is not in the queue, and no other run suffers."""
        store.append(begun(store, for_s=0.0), 0, ["one"])
        store.create("other", "header", agent="a")
        data = journal(tmp_path).read_bytes()
        for damaged in (
            data.replace(b"one", b"two"),
            data.replace(b'"kind":"claimed"', b'"kind":"unheard"'),
            data.replace(b'"fence":1', b'"fence":2'),
            data[data.index(b"\n") + 1 :],
            b"something else",
        ):
            journal(tmp_path).write_bytes(damaged)
            later = FolderStore(tmp_path)
            with pytest.raises(StoreError, match=r"r\.jsonl' is damaged"):
                later.load("r")
            assert [run.id for run in later.list()] == ["other"]
            assert later.claim("w", for_s=0.0, now_s=1e12).run == "other"
            assert journal(tmp_path).read_bytes() == damaged, "a damaged file was changed"
            later.close()
        assert "a run is left out" in caplog.text

    @pytest.mark.parametrize("damaged", [("one", "two"), ('"bytes":4', '"bytes":9'), ("\none\n", "\none ")])
    def test_a_file_that_is_damaged_while_it_is_known_is_named(self, store, tmp_path, damaged):
        lease = begun(store)
        store.append(lease, 0, ["one"])
        data = journal(tmp_path).read_bytes()
        journal(tmp_path).write_bytes(data.replace(*[part.encode() for part in damaged]))
        for use in (lambda: store.load("r"), lambda: store.append(lease, 0, ["one"])):
            with pytest.raises(StoreError, match=r"r\.jsonl' is damaged at byte \d+: "):
                use()

    def test_a_snapshot_is_never_sought_outside_of_its_folder(self, store, tmp_path):
        """A journal of somebody else, put into the folder, reads and removes no other files."""
        store.append(begun(store), 0, ["one"], WAITING, snapshot=b"packed")
        other = tmp_path / "other"
        other.write_bytes(b"another's")
        data = journal(tmp_path).read_bytes()
        (name,) = [path.name for path in (tmp_path / "snapshots").iterdir()]
        for path in ("../other", str(other), "..", "a.1/../../other", "a.1\\n", "a.1\\u0000"):
            journal(tmp_path).write_bytes(data.replace(name.encode(), path.encode()))
            later = FolderStore(tmp_path)
            for use in (later.load, later.delete):
                with pytest.raises(StoreError, match="is no name of a snapshot"):
                    use("r")
            later.close()
        assert other.read_bytes() == b"another's"

    def test_the_file_of_another_run_is_named(self, store, tmp_path):
        begun(store)
        journal(tmp_path, "s").write_bytes(journal(tmp_path).read_bytes())
        with pytest.raises(StoreError, match=r"s\.jsonl' is the file of another run, 'r'"):
            store.load("s")
        assert [run.id for run in store.list()] == ["r"]

    def test_other_files_are_named_as_well(self, store, tmp_path):
        begun(store)
        for name, use in (
            ("conversations/c.jsonl", lambda: store.head("c")),
            ("last-post", lambda: store.post("r", "", "body")),
        ):
            (tmp_path / name).write_text("something else\n")
            with pytest.raises(StoreError, match=name.replace(".", r"\.")):
                use()

    def test_a_snapshot_that_is_missing_is_named(self, store, tmp_path):
        store.append(begun(store), 0, ["one"], snapshot=b"1")
        (path,) = (tmp_path / "snapshots").iterdir()
        path.unlink()
        with pytest.raises(StoreError, match=path.name):
            store.load("r")


DRIVE = """
import sys
from fsm_agent.store.folder import FolderStore
from fsm_agent.store.store import Rest
store, me = FolderStore(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
while (lease := store.claim(me, for_s=60)) is not None:
    for n in range(lease.n, lease.n + 3):
        store.append(lease, n, [f"{lease.fence} {me} {n}"])
    rest = Rest(state="Done", is_ended=True) if lease.n == 9 else Rest(state="Calling", due_s=0.0)
    store.append(lease, lease.n + 3, [], rest)
"""
HOLD = """
import sys, time
from fsm_agent.store.folder import FolderStore
store = FolderStore(sys.argv[1])
lease = store.claim("dead", for_s=3600)
print(store.append(lease, 0, ["one"]), flush=True)
time.sleep(60)
"""


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


class TestOsProcesses:
    def test_several_drive_each_run_by_turns(self, store, tmp_path):
        for i in range(8):
            store.create(f"r{i}", "header", agent="a")
        others = [python(DRIVE, str(tmp_path), f"p{i}") for i in range(3)]
        assert [other.stdout.readline() for other in others] == ["ready\n"] * 3
        for other in others:
            other.stdin.write("go\n")
            other.stdin.flush()
        assert [other.wait(50) for other in others] == [0, 0, 0]
        for other in others:
            other.stdin.close()
            other.stdout.close()
        runs = store.list(ended=True)
        assert len(runs) == 8
        for run in runs:
            lines = [line.split() for line in store.load(run.id).lines]
            assert [n for _, _, n in lines] == [str(n) for n in range(12)]
            assert [fence for fence, _, _ in lines] == [str(fence) for fence in (1, 2, 3, 4) for _ in range(3)]

    def test_the_leases_of_a_dead_one_are_taken_at_once(self, store, tmp_path):
        store.create("r", "header", agent="a")
        other = python(HOLD, str(tmp_path))
        assert other.stdout.readline() == "0\n"
        assert store.claim("w", for_s=9) is None
        other.send_signal(signal.SIGKILL)
        other.wait()
        other.stdin.close()
        other.stdout.close()
        lease = store.claim("w", for_s=9)
        assert lease is not None
        assert (lease.run, lease.fence, lease.n) == ("r", 2, 1)

    def test_a_fork_has_its_own(self, store, tmp_path):
        """The child takes no lock along, neither that of a run nor that of its parent's leases."""
        lease = begun(store)
        store.submit(lease, 0, ["one"]).result()
        held, goes_on = threading.Event(), threading.Event()

        def hold() -> None:
            with store._opened("r"):
                held.set()
                goes_on.wait(20)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(20)
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads, of which this is about
            pid = os.fork()
        if not pid:
            try:
                copies = len(run_file.open_descriptors)
                store.create("child", "header", agent="a")
                mine = store.claim("c", for_s=3600, run="child")
                store.submit(mine, 0, ["of the child"]).result(20)
                os.write(write, b"%d" % copies)
            finally:
                signal.pause()
        os.close(write)
        told = os.read(read, 10)
        os.close(read)
        goes_on.set()
        thread.join()
        assert told == b"0"
        assert store.append(lease, 1, ["two"]) == 0
        assert store.load("child").lines == ("of the child",)
        assert store.claim("w", for_s=9) is None
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        taken = store.claim("w", for_s=9)
        assert taken is not None
        assert taken.run == "child"
        assert FolderStore(tmp_path).claim("v", for_s=9) is None, "the lease of a live OS process was taken"


def test_only_files_that_changed_are_read(store, tmp_path, monkeypatch):
    """Claims among many runs cost a look at each."""
    for i in range(50):
        store.create(f"r{i}", "header", agent="a")
    later, reads = FolderStore(tmp_path), []
    read = run_file.LockedFile.read
    monkeypatch.setattr(run_file.LockedFile, "read", lambda file, start=0: reads.append(start) or read(file, start))
    first = later.claim("w", for_s=9)
    assert len(reads) == 50
    reads.clear()
    store.append(store.claim("v", for_s=9), 0, ["one"])
    assert later.append(first, 0, ["one"]) == 0
    reads.clear()
    assert later.claim("w", for_s=9) is not None
    assert len(reads) == 1
    assert reads[0] > 0, "a file was read from its beginning"


def test_a_large_file_of_changes_begins_anew(store, tmp_path):
    with (tmp_path / "changes").open("wb") as file:
        file.truncate(1 << 20)
    store.create("r", "header", agent="a")
    assert (tmp_path / "changes").stat().st_size == 0


def test_logging_is_of_the_package(tmp_path, caplog):
    (tmp_path / "runs").mkdir()
    journal(tmp_path, "notes").write_text("not a run")
    with caplog.at_level(logging.WARNING, "fsm_agent"):
        assert FolderStore(tmp_path).list() == []
    assert [record.name for record in caplog.records] == ["fsm_agent"]
    assert journal(tmp_path, "notes").read_text() == "not a run"

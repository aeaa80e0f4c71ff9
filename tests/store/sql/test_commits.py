"""Do many writes become few commits, and does each get its own outcome?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from fsm_agent.store import StoreError
from fsm_agent.store.sql.sql_store import GroupCommit

PATIENCE_S = 20.0
Work = Callable[[], object]


class Disk:
    """A place for commits, which can be blocked."""

    def __init__(self) -> None:
        self.commits: list[int] = []
        self.threads: list[threading.Thread] = []
        self.is_free = threading.Event()
        self.is_free.set()
        self.is_busy = threading.Event()
        self.group = GroupCommit[Work](self.commit, lambda: StoreError("closed"))

    def commit(self, works: Sequence[Work]) -> list[object]:
        self.threads.append(threading.current_thread())
        self.is_busy.set()
        assert self.is_free.wait(PATIENCE_S)
        self.commits.append(len(works))
        return [work() for work in works]

    def hold(self) -> None:
        """Have the thread that commits stand still in a commit of one."""
        self.is_busy.clear()
        self.is_free.clear()
        self.group.submit(lambda: None)
        assert self.is_busy.wait(PATIENCE_S)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.is_free.set()
    disk.group.close()


def test_what_comes_during_a_commit_is_the_next_one(disk: Disk):
    disk.hold()
    futures = [disk.group.submit(lambda i=i: i) for i in range(200)]
    disk.is_free.set()
    assert [future.result(PATIENCE_S) for future in futures] == list(range(200))
    assert disk.commits == [1, 200]


def test_who_is_alone_commits_in_its_own_thread(disk: Disk):
    assert disk.group.run(lambda: 1) == 1
    assert disk.threads == [threading.current_thread()]


def test_nothing_overtakes_what_was_submitted_before(disk: Disk):
    done: list[int] = []
    disk.hold()
    disk.group.submit(lambda: done.append(1))
    with ThreadPoolExecutor(1) as thread:
        last = thread.submit(disk.group.run, lambda: done.append(2))
        disk.is_free.set()
        last.result(PATIENCE_S)
    assert done == [1, 2]


def test_each_gets_its_own_outcome(disk: Disk):
    refusal = StoreError("no")
    disk.hold()
    futures = [disk.group.submit(lambda i=i: refusal if i == 2 else i) for i in range(5)]
    disk.is_free.set()
    assert [future.exception(PATIENCE_S) for future in futures] == [None, None, refusal, None, None]
    with pytest.raises(StoreError, match="no"):
        disk.group.run(lambda: refusal)


def test_a_failed_commit_fails_all_of_it_and_nothing_after(disk: Disk):
    disk.hold()
    futures = [disk.group.submit(lambda i=i: i / 0 if i == 2 else i) for i in range(5)]
    disk.is_free.set()
    assert {type(future.exception(PATIENCE_S)) for future in futures} == {ZeroDivisionError}
    with pytest.raises(ZeroDivisionError):
        disk.group.run(lambda: 1 / 0)
    assert disk.group.submit(lambda: 1).result(PATIENCE_S) == disk.group.run(lambda: 1) == 1


def test_what_was_cancelled_is_not_done(disk: Disk):
    done: list[int] = []
    disk.hold()
    futures = [disk.group.submit(lambda i=i: done.append(i)) for i in range(3)]
    assert futures[1].cancel()
    disk.is_free.set()
    futures[2].result(PATIENCE_S)
    assert done == [0, 2]
    with pytest.raises(CancelledError):
        futures[1].result()


def test_a_callback_may_write(disk: Disk):
    done = threading.Event()
    outcomes: list[object] = []

    def write(_: object) -> None:
        later = disk.group.submit(lambda: 1)
        outcomes.append(disk.group.run(lambda: 2))
        outcomes.append(later.result(PATIENCE_S))
        done.set()

    disk.hold()
    disk.group.submit(lambda: 0).add_done_callback(write)
    disk.is_free.set()
    assert done.wait(PATIENCE_S)
    assert outcomes == [2, 1]


def test_closing_finishes_what_has_come(disk: Disk):
    disk.hold()
    futures = [disk.group.submit(lambda: 1) for _ in range(3)]
    futures[0].add_done_callback(lambda _: disk.group.close())  # also from the thread that commits
    disk.is_free.set()
    disk.group.close()
    disk.group.close()
    assert [future.result() for future in futures] == [1, 1, 1]
    for write in (disk.group.submit, disk.group.run):
        with pytest.raises(StoreError, match="closed"):
            write(lambda: 1)


def test_the_thread_ends_when_there_is_nothing_to_do():
    threads: list[threading.Thread] = []

    def commit(works: Sequence[Work]) -> list[object]:
        threads.append(threading.current_thread())
        return [work() for work in works]

    group = GroupCommit[Work](commit, lambda: StoreError("closed"), idle_s=0.0)
    for i in range(3):
        assert group.submit(lambda i=i: i).result(PATIENCE_S) == i
        threads[-1].join(PATIENCE_S)
        assert not threads[-1].is_alive()
    group.close()

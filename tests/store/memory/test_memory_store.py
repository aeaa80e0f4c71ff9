"""The store in memory: the conformance suite, and what that does not see: what methods cost, and the queue."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from conformance.store_conformance import StoreConformance
from support.uncollected import uncollected

from fsm_agent.messages import Question
from fsm_agent.store import Lease, Rest, Store, StoreError
from fsm_agent.store.listing import wanted
from fsm_agent.store.memory import MemoryStore
from fsm_agent.store.memory.stored_run import row_of

PATIENCE_S = 20.0


class TestMemoryStore(StoreConformance):
    def opened(self, folder: Path, clock: Callable[[], float]) -> Store:
        return MemoryStore(clock)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def held(store: MemoryStore, run: str = "r", *, agent: str = "a", for_s: float = 10.0) -> Lease:
    store.create(run, "header", agent=agent)
    lease = store.claim("w", for_s=for_s, run=run)
    assert lease is not None
    return lease


def calls(action: Callable[[], object]) -> int:
    """Return how many functions are called, those in C included."""
    count = 0

    def see(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    with uncollected():
        sys.setprofile(see)
        try:
            action()
        finally:
            sys.setprofile(None)
    return count


def lines(action: Callable[[], object]) -> int:
    """Return how many lines of Python are run."""
    count = 0

    def see(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return see

    before = sys.gettrace()
    with uncollected():
        sys.settrace(see)
        try:
            action()
        finally:
            sys.settrace(before)
    return count


def crowded(many: int, clock: Clock) -> MemoryStore:
    """Return a store with runs that wait for people, for another day, or are held."""
    store = MemoryStore(clock)
    for i in range(many):
        lease = held(store, f"run{i}", agent=f"a{i % 3}", for_s=10.0 + i % 7)
        if i % 4:
            store.append(lease, 0, ["one"], Rest(state="", due_s=(None, None, 1e9, 2e9)[i % 4]))
    assert store.claim("w", for_s=1.0) is None
    return store


def test_methods_cost_the_same_among_2000_runs_that_wait():
    costs = []
    for many in (40, 2_000):
        clock = Clock()
        store = crowded(many, clock)
        lease = held(store)
        costs.append(
            [
                calls(lambda store=store: store.claim("w", for_s=1.0)),
                calls(lambda store=store: store.claim("w", for_s=1.0, agents=["a1"])),
                calls(lambda store=store: store.post("run1", "", "body")),
                calls(lambda store=store: store.claim("w", for_s=1.0)),
                calls(lambda store=store, lease=lease: store.append(lease, 0, ["one"])),
                calls(lambda store=store, lease=lease: store.append(lease, 1, ["two"], Rest(state="", due_s=5.0))),
                calls(lambda store=store: store.claim("w", for_s=1.0)),
                calls(lambda store=store: store.wait(0.0)),
            ]
        )
    assert costs[0] == costs[1]


def test_a_page_costs_what_it_has_whatever_the_store_has():
    """And what is held, which is the same here: pages from the front, from the middle, of one group, and counts."""
    costs = []
    for many in (100, 4_000):
        clock = Clock()
        store = MemoryStore(clock)
        for i in range(many):
            clock.now_s += 1.0
            lease = held(store, f"run{i}")
            if i >= 5:
                ended = Rest(state="Completed", is_ended=True) if i % 10 else Rest(state="Asks", due_s=1e9)
                store.append(lease, 0, ["one"], ended)
        middle = f"{1_000.0 + many / 2}~0"
        wishes = [{}, {"after": middle}, {"ended": False}, {"state": "Asks"}, {"changed_before": 1_000.0 + many / 2}]
        costs.append([calls(lambda store=store, wish=wish: store.list(limit=3, **wish)) for wish in wishes])
        costs[-1].append(calls(store.stats))
        costs[-1].append(lines(lambda store=store, at_s=clock.now_s: store.list(limit=3, changed_after=at_s)))
    assert costs[0] == costs[1]


def test_pages_have_what_a_look_at_all_runs_finds():
    """Whatever came before: runs that are held, posted to, deleted, and a clock that goes back."""
    random_, clock = random.Random(11), Clock()
    store, leases = MemoryStore(clock), dict[str, Lease]()
    for step in range(500):
        clock.now_s += random_.choice([0.0, 1.0, 1.0, -3.0])
        name = f"run{random_.randrange(40)}"
        lease = leases.pop(name, None)
        if lease is None:
            store.create(name, "header", agent=random_.choice("ab"))
            if random_.random() < 0.2:
                with suppress(StoreError):
                    store.post(name, "k", "body")
            elif (found := store.claim("w", for_s=1e9, run=name)) is not None:
                leases[name] = found
        elif random_.random() < 0.1:
            store.append(lease, lease.n, (), Rest(state="x", is_ended=True))
            store.delete(name)
        else:
            asks = (Question("k", random_.choice(["approval", "answer"]), "{}"),) if step % 2 else ()
            store.append(lease, lease.n, (), Rest(state=random_.choice("xy"), questions=asks))
        wish: Any = random_.choice([{}, {"agent": "a"}, {"state": "x"}, {"asked": True}, {"changed_after": 1_100.0}])
        found_runs, page = [], store.list(limit=7, **wish)
        while True:
            found_runs += page
            if page.next is None:
                break
            page = store.list(limit=7, after=page.next, **wish)
        rows = [row_of(kept, clock.now_s) for kept in store._runs.values()]
        right = [row for row in rows if wanted(None, 7, wish).takes_run(row)]
        assert sorted(run.id for run in found_runs) == sorted(run.id for run in right)
        times = [run.updated_s for run in found_runs]
        assert times == sorted(times, reverse=True)


def test_an_append_is_a_few_calls():
    store = MemoryStore(Clock())
    lease = held(store)
    assert calls(lambda: store.append(lease, 0, ["line" * 100])) <= (13 if sys.version_info >= (3, 14) else 12)


def test_tickets_that_were_left_behind_are_dropped():
    """A run that is driven by its name a hundred thousand times is never at the top of the queue."""
    clock = Clock()
    store = MemoryStore(clock)
    held(store, "holder of the top")
    rest = Rest(state="", due_s=0.0)

    def drive(times: int) -> None:
        for _ in range(times):
            lease = store.claim("w", for_s=100.0, run="r")
            assert lease is not None
            store.append(lease, 0, [], rest)

    store.create("r", "header", agent="a")
    drive(1_000)
    tracemalloc.start()
    try:
        drive(10_000)
        gc.collect()
        grown_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown_bytes < 50_000


def test_a_lease_that_ends_unnoticed_and_is_renewed_is_held_again():
    clock = Clock()
    store = MemoryStore(clock)
    lease = held(store, for_s=10.0)
    clock.now_s += 10.0
    assert store.claim("w", for_s=1.0, agents=["b"]) is None  # sees that the lease is over
    store.renew(lease, for_s=10.0)
    assert store.claim("w", for_s=1.0) is None
    clock.now_s += 10.0
    again = store.claim("w", for_s=1.0)
    assert again is not None
    assert again.fence == 2


def test_a_lease_that_ends_again_after_such_a_renewal_counts_from_its_own_end():
    clock = Clock()
    store = MemoryStore(clock)
    lease = held(store, for_s=10.0)
    clock.now_s += 10.0
    assert store.claim("w", for_s=1.0, agents=["b"]) is None  # sees that the lease is over
    store.renew(lease, for_s=10.0)
    clock.now_s += 5.0
    store.create("before", "header", agent="a")
    clock.now_s += 10.0
    assert store.health().oldest_due_s == 10.0  # "before"; "r" has been due for 5
    assert [store.claim("w", for_s=1.0).run for _ in range(2)] == ["before", "r"]  # type: ignore[union-attr]


def test_a_lease_that_was_renewed_for_less_ends_sooner():
    clock = Clock()
    store = MemoryStore(clock)
    store.renew(held(store, for_s=100.0), for_s=5.0)
    clock.now_s += 5.0
    assert store.health().due == 1
    assert store.claim("w", for_s=1.0) is not None


def test_a_run_that_is_due_keeps_its_place_when_it_is_posted_to():
    """One that waits for a worker, and is cancelled, came after all that were put in before the cancellation."""
    clock = Clock()
    store = MemoryStore(clock)
    for run in ("first", "second"):
        store.create(run, "header", agent="a")
        clock.now_s += 1.0
    store.post("first", "", "cancel")
    clock.now_s += 1.0
    assert store.health().oldest_due_s == 3.0
    assert [store.claim("w", for_s=1.0).run for _ in range(2)] == ["first", "second"]  # type: ignore[union-attr]


def test_a_run_that_was_deleted_and_begun_again_is_another():
    clock = Clock()
    store = MemoryStore(clock)
    old = held(store, for_s=0.0)
    store.delete("r")
    clock.now_s += 1.0
    new = held(store)
    assert (old.fence, new.fence) == (1, 1)
    assert store.submit(old, 0, ["old"]).exception(PATIENCE_S) is not None
    assert store.submit(new, 0, ["new"]).result(PATIENCE_S) == 0
    assert store.load("r").lines == ("new",)


@pytest.mark.system
def test_what_happens_between_a_claim_and_a_wait_ends_the_wait():
    store = MemoryStore(Clock())
    assert store.claim("w", for_s=1.0) is None
    other = threading.Thread(target=lambda: store.create("r", "header", agent="a"))
    other.start()
    other.join(PATIENCE_S)
    started_s = time.monotonic()
    store.wait(PATIENCE_S)
    assert time.monotonic() - started_s < PATIENCE_S / 2


@pytest.mark.system
def test_a_wait_ends_when_the_clock_makes_a_run_due():
    store = MemoryStore()
    store.append(held(store), 0, [], Rest(state="", due_s=time.time() + 0.05))
    assert store.claim("w", for_s=1.0) is None
    store.wait(PATIENCE_S)
    while (lease := store.claim("w", for_s=1.0)) is None:
        store.wait(PATIENCE_S)
    assert lease.run == "r"
    assert time.time() < lease.since_s + PATIENCE_S / 2


@pytest.mark.system
def test_a_run_of_others_that_is_overdue_does_not_end_a_wait():
    clock = Clock()
    store = MemoryStore(clock)
    store.append(held(store, agent="others"), 0, [], Rest(state="", due_s=1.0))
    assert store.claim("w", for_s=1.0, agents=["a"]) is None
    started_s = time.monotonic()
    store.wait(0.05)
    store.wait(0.05)
    assert time.monotonic() - started_s >= 0.1


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_can_use_its_copy_whatever_other_threads_did_at_that_moment():
    """A thread that it does not have held the lock, for ever."""
    is_writing = threading.Event()

    class Slow(Clock):
        def __call__(self) -> float:
            is_writing.set()
            time.sleep(0.2)
            return self.now_s

    store = MemoryStore(Slow())
    writer = threading.Thread(target=store.create, args=("r", "header"), kwargs={"agent": "a"})
    writer.start()
    assert is_writing.wait(PATIENCE_S)
    if (child := os.fork()) == 0:
        signal.alarm(30)
        status = 1
        try:
            status = len(store.list()) - 1
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.join(PATIENCE_S)
    assert [run.id for run in store.list()] == ["r"]

"""The store in memory: the conformance suite, and what that does not see: what methods cost, and the queue."""

from __future__ import annotations

import gc
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from support.uncollected import uncollected

from fsm_agent.store.memory import MemoryStore
from fsm_agent.store.store import Lease, Rest, Store
from fsm_agent.testing import StoreConformance

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


def test_what_happens_between_a_claim_and_a_wait_ends_the_wait():
    store = MemoryStore(Clock())
    assert store.claim("w", for_s=1.0) is None
    other = threading.Thread(target=lambda: store.create("r", "header", agent="a"))
    other.start()
    other.join(PATIENCE_S)
    started_s = time.monotonic()
    store.wait(PATIENCE_S)
    assert time.monotonic() - started_s < PATIENCE_S / 2


def test_a_wait_ends_when_the_clock_makes_a_run_due():
    store = MemoryStore()
    store.append(held(store), 0, [], Rest(state="", due_s=time.time() + 0.05))
    assert store.claim("w", for_s=1.0) is None
    store.wait(PATIENCE_S)
    while (lease := store.claim("w", for_s=1.0)) is None:
        store.wait(PATIENCE_S)
    assert lease.run == "r"
    assert time.time() < lease.since_s + PATIENCE_S / 2


def test_a_run_of_others_that_is_overdue_does_not_end_a_wait():
    clock = Clock()
    store = MemoryStore(clock)
    store.append(held(store, agent="others"), 0, [], Rest(state="", due_s=1.0))
    assert store.claim("w", for_s=1.0, agents=["a"]) is None
    started_s = time.monotonic()
    store.wait(0.05)
    store.wait(0.05)
    assert time.monotonic() - started_s >= 0.1

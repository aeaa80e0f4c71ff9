"""The store in memory: the conformance suite, and what that does not see."""

from __future__ import annotations

import os
import signal
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance.store_conformance import StoreConformance

from fsm_agent.store import MemoryStore, Rest, Store

PATIENCE_S = 20.0


class TestMemoryStore(StoreConformance):
    def opened(self, folder: Path, clock: Callable[[], float]) -> Store:
        return MemoryStore(clock)


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_can_use_its_copy_whatever_other_threads_did_at_that_moment():
    """A thread that it does not have held the lock, for ever."""
    is_writing = threading.Event()

    def slow() -> float:
        is_writing.set()
        time.sleep(0.2)
        return 1_000.0

    store = MemoryStore(slow)
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


def test_a_run_that_is_driven_by_its_name_leaves_nothing_in_the_queue():
    """It is never at the top of the queue, where what is left behind would be found."""
    store = MemoryStore(lambda: 1_000.0)
    store.create("holder of the top", "header", agent="a", holder="w", for_s=10.0)
    store.create("r", "header", agent="a")

    def drive(times: int) -> None:
        for _ in range(times):
            lease = store.claim("w", for_s=100.0, run="r")
            assert lease is not None
            store.append(lease, 0, [], Rest(state="", due_s=0.0))

    drive(200)
    tracemalloc.start()
    try:
        drive(2_000)
        grown_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown_bytes < 50_000

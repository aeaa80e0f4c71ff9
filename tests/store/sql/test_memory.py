"""The store in memory: the conformance suite, and what that does not see."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conformance.store_conformance import StoreConformance

from fsm_agent.errors import UsageError
from fsm_agent.store import MemoryStore, Store

PATIENCE_S = 20.0


@pytest.mark.system  # in the gate, the same statements are proven on a file
class TestMemoryStore(StoreConformance):
    def opened(self, folder: Path, clock: Callable[[], float]) -> Store:
        return MemoryStore(clock)


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_can_use_its_copy_whatever_other_threads_did_at_that_moment():
    """Otherwise a thread that does not exist there would hold the lock forever."""
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


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_store_has_no_copies(how: Callable[[Any], Any]) -> None:
    """They would lose their connections with the original."""
    with pytest.raises(UsageError, match="MemoryStore"):
        how(MemoryStore())

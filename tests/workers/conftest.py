"""What tests of workers share."""

from __future__ import annotations

import threading

import pytest

from fsm_agent.store import MemoryStore, SqliteStore


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def sqlite(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    yield store
    store.close()


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    """Have workers that idle look soon whether they were stopped, as most of these tests end so."""
    monkeypatch.setattr("fsm_agent.workers.worker.IDLE_S", 0.02)
    monkeypatch.setattr("fsm_agent.workers.pool.BEAT_S", 0.01)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """No thread of a worker outlives its purpose."""
    yield
    left = [thread.name for thread in threading.enumerate()]
    assert [name for name in left if name.startswith(("fsm_agent worker", "fsm_agent prune"))] == []

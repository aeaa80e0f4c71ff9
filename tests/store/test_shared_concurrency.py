"""Do limits of concurrency hold over all workers of a store, which are OS processes, also when they are killed?"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

from fsm_agent.store import Runs

if os.name == "nt":
    pytest.skip("file locks are POSIX", allow_module_level=True)

from store.limited_worker import KEY, KEY_LIMIT, LIMIT, Places, limited

RUNS = 60


class Crew:
    """Workers that are killed and started again."""

    def __init__(self, store: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "store.limited_worker", store, str(folder)]
        path = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
        self._environment = {**os.environ, "PYTHONPATH": path}
        self.workers: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        worker = subprocess.Popen(self._command, env=self._environment)
        self.workers[worker.pid] = worker

    def kill(self, pid: int) -> None:
        worker = self.workers.pop(pid)
        worker.kill()
        worker.wait(30)

    def close(self) -> None:
        for pid in [*self.workers]:
            self.kill(pid)


def until(condition: Callable[[], object], patience_s: float = 60.0) -> None:
    ends_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < ends_s
        time.sleep(0.01)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_so_many_are_driven_whoever_is_killed(tmp_path: Path) -> None:
    """All the places are used, those of the dead are used by others, and never is there one too many."""
    address = str(tmp_path / "runs.db")
    places, random_ = Places(tmp_path / "places"), random.Random(7)
    places.folder.mkdir()
    runs, crew = Runs(address), Crew(address, places.folder)
    agent = limited(places.folder, store=runs)
    for number in range(RUNS):
        key: dict[str, Any] = {"extra": {"concurrency_key": KEY}} if number % 2 else {}
        agent.submit(KEY if key else "other", run_id=f"r{number}", **key)
    try:
        for _ in range(3):
            crew.start()
        for _ in range(4):  # fewer than make a run stuck that dies each time
            until(lambda: len(places.holders("agent")) == LIMIT)
            until(lambda: len({row.id for row in runs.store.list(ended=False) if row.holder is not None}) == LIMIT)
            assert len(places.holders("key")) <= KEY_LIMIT
            crew.kill(random_.choice(places.holders("agent")))
            crew.start()
        (places.folder / "go").touch()
        for _ in range(6):
            time.sleep(random_.uniform(0.1, 0.8))
            crew.kill(random_.choice([*crew.workers]))
            crew.start()
        until(lambda: len(runs.store.list(ended=True, limit=RUNS)) == RUNS, 300.0)
    finally:
        crew.close()
    assert places.crowded == []
    assert {row.state for row in runs.store.list(limit=RUNS)} == {"Completed"}
    runs.store.close()

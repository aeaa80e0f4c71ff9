"""Does a round write as much late in a long call as early, and little enough?"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.works import TASK, agent_of, turns
from fsm_agent.store import Store
from fsm_agent.store.sqlite import SqliteStore

STORES: dict[str, Callable[[Path], Store]] = {
    "sqlite": lambda path: SqliteStore(path.with_suffix(".db")),
}


LANGGRAPH = 55_494_556  # bytes that its SQLite saver gives to write() for 200 rounds; see `benchmarks/store_costs.py`


class Meter:
    """A store that counts the bytes of the lines that reach it; rests and snapshots are counted apart."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lines: list[int] = []
        self.rests = 0
        self.snapshot = 0

    def append(self, lease: Any, n: int, lines: Any, rest: Any = None, **rest_of: Any) -> int:
        self.lines += [len(line.encode()) for line in lines]
        self.rests += rest is not None
        self.snapshot += len(rest_of.get("snapshot") or b"")
        return self._store.append(lease, n, lines, rest, **rest_of)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def kept(store: Store, rounds: int) -> Meter:
    """What a call of so many rounds writes."""
    meter = Meter(store)
    result = replace(agent_of(turns(rounds)), store=meter).call(TASK, run_id="run")
    assert result.output == f"The total of {rounds} additions is ready."
    assert sum(meter.lines) == sum(len(line.encode()) for line in store.load("run").lines)
    assert len(meter.lines) == 2 * rounds + 2
    store.close()
    return meter


@pytest.mark.parametrize("name", STORES)
def test_a_round_of_100_writes_as_much_as_one_of_10(name, tmp_path):
    few, many = kept(STORES[name](tmp_path / "few"), 10), kept(STORES[name](tmp_path / "many"), 100)
    (early, late) = (sum(meter.lines[1:-1]) / rounds for meter, rounds in ((few, 10), (many, 100)))
    assert early * 0.95 <= late <= early * 1.05
    assert (few.rests, many.rests) == (1, 1)
    assert few.snapshot < many.snapshot  # it grows with the dialog, and so is written at rests alone


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="bytes are counted in /proc")
def test_200_rounds_write_a_fiftieth_of_what_langgraph_writes(tmp_path):
    before = written()
    kept(SqliteStore(tmp_path / "runs.db"), 200)
    assert (written() - before) * 50 <= LANGGRAPH


def written() -> int:
    """Return how many bytes this OS process has given to write()."""
    return int(re.findall(r"wchar: (\d+)", Path("/proc/self/io").read_text())[0])

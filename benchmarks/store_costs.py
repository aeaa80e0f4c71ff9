"""What keeping runs costs: ``python benchmarks/store_costs.py [part ...]`` prints a table for each part.

rounds      bytes that a round takes in a file of SQLite and in a folder, in calls of 10 and of 400 rounds
langgraph   bytes that 200 rounds write, beside LangGraph's SQLite saver, for the same messages
memory      a call with a store in memory beside one without, alternately, by processor time
appends     an append beside a bare ``write`` + ``fsync``, or ``INSERT`` + ``COMMIT``, of the same bytes, alternately
loop        the longest time for which 200 runs at once on one file of SQLite hold up their event loop

Without names, all parts.  LangGraph runs in an environment of its own, which has ``langchain`` and
``langgraph-checkpoint-sqlite``; the variable ``LANGGRAPH_PYTHON`` names its interpreter, and without it that half is
skipped.  ``STORE_COSTS_DIR`` is where files are written; by default a temporary folder.  Machines are shared: look at
the ratios.  For instructions instead of times, run ``store_costs.py calls WORK KEPT COUNT`` (WORK: one, three or
sixteen; KEPT: 0 or 1) under ``valgrind --tool=callgrind`` with two counts, and divide the difference.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.works import AT_ONCE, TASK, agent_of, turns
from fsm_agent.agents import Agent
from fsm_agent.store import Lease, Store
from fsm_agent.store.sql.sqlite import PAGE_BYTES, MemoryStore, SqliteStore

SCRIPTS = {"one": turns(0), "three": turns(3), "sixteen": turns(1, AT_ONCE)}
LANGGRAPH = Path(__file__).with_name("langgraph_rounds.py")
ROUNDS = 200
AT_ONCE_RUNS = 200
LINE = '{"n":1,"key":"model:0","outcome":{"kind":"replied"},"text":"' + "x" * 500 + '"}'


def files_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def counted(name: str) -> int:
    """Return a counter of this OS process: ``wchar``, bytes given to write(), or ``write_bytes``, those for a disk."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines[name])


def kept_rounds(store: Store, rounds: int) -> None:
    """Make one call of so many rounds, named ``run``."""
    replace(agent_of(turns(rounds)), store=store).call(TASK, run_id="run")


def entries_bytes(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) for line in lines)


def per_round(make: Callable[[Path], Store], rounds: int, folder: Path) -> tuple[float, float, int]:
    """Return the bytes of entries and of files that a round takes, and those of the snapshot of the last rest.

    The first entry and the last are of no round: the call begins, and there is the answer.
    """
    folder.mkdir()
    store = make(folder)
    empty = files_bytes(folder)
    kept_rounds(store, rounds)
    loaded = store.load("run")
    entries = entries_bytes(loaded.lines[1:-1])
    store.close()
    rest = len(loaded.snapshot[1]) if loaded.snapshot else 0
    return entries / rounds, (files_bytes(folder) - empty - rest) / rounds, rest


def rounds(folder: Path) -> None:
    stores: dict[str, Callable[[Path], Store]] = {
        "sqlite": lambda path: SqliteStore(path / "runs.db"),
    }
    for name, make in stores.items():
        (few, few_files, _), (many, many_files, rest) = (per_round(make, n, folder / f"{name}{n}") for n in (10, 400))
        print(f"{name}: entries {few:.0f} B in 10 rounds, {many:.0f} B a round of 400: {many / few - 1:+.1%};", end=" ")
        print(f"files {few_files:.0f} and {many_files:.0f} B a round; the rest of 400 rounds: {rest} B")


def langgraph(folder: Path) -> None:
    (folder / "ours").mkdir()
    before = counted("wchar"), counted("write_bytes")
    store = SqliteStore(folder / "ours" / "runs.db")
    kept_rounds(store, ROUNDS)
    entries = entries_bytes(store.load("run").lines)
    store.close()
    wchar, disk = counted("wchar") - before[0], counted("write_bytes") - before[1]
    ours = {"file": files_bytes(folder / "ours"), "wchar": wchar, "write_bytes": disk}
    print(f"fsm_agent: {entries} B of entries; {ours}")
    python = os.environ.get("LANGGRAPH_PYTHON")
    if not python:
        print("langgraph: skipped, since LANGGRAPH_PYTHON names no interpreter that has it")
        return
    (folder / "theirs").mkdir()
    arguments = [python, str(LANGGRAPH), str(folder / "theirs" / "saver.db"), str(ROUNDS)]
    printed = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.split()
    theirs = dict(zip(("payload", "wchar", "write_bytes"), map(int, printed), strict=True))
    theirs["file"] = files_bytes(folder / "theirs")
    print(f"langgraph: {theirs}")
    print(f"langgraph / fsm_agent: payload to entries {theirs['payload'] / entries:.0f},", end=" ")
    print(", ".join(f"{name} {theirs[name] / size:.0f}" for name, size in ours.items()))


async def batch(agent: Agent, count: int) -> float:
    """Return the processor time of a call, in µs."""
    began_s = time.process_time()
    for _ in range(count):
        await agent.acall(TASK)
    return (time.process_time() - began_s) / count * 1e6


async def both(name: str, batches: int = 41) -> None:
    """Print what a store in memory adds; each batch has a store of its own, so that none grows without end."""
    bare = agent_of(SCRIPTS[name])
    await batch(bare, 50)
    ours, theirs = list[float](), list[float]()
    for _ in range(batches):
        kept = replace(bare, store=MemoryStore())
        await batch(kept, 5)
        gc.collect()
        theirs.append(await batch(bare, 60))
        ours.append(await batch(kept, 60))
    low, mid, high = quantiles([a / b for a, b in zip(ours, theirs, strict=True)], n=4)
    least = min(ours) / min(theirs)
    print(f"{name}: {min(theirs):.0f} µs bare, {min(ours):.0f} µs kept; ratio {mid:.2f} ({low:.2f}-{high:.2f})", end="")
    print(f", of the least {least:.2f}")


def memory(folder: Path) -> None:
    for name in SCRIPTS:
        asyncio.run(both(name))


def alternately(name: str, store: Store, bare: Callable[[], None], appends: int = 400) -> None:
    store.create("run", "{}", agent="a")
    lease: Lease | None = store.claim("bench", for_s=1e6, run="run")
    assert lease is not None
    ours, theirs = list[float](), list[float]()
    for n in range(appends):
        began_s = time.perf_counter()
        store.append(lease, n, [LINE])
        between_s = time.perf_counter()
        bare()
        ours.append(between_s - began_s)
        theirs.append(time.perf_counter() - between_s)
    low, mid, high = quantiles([a / b for a, b in zip(ours, theirs, strict=True)], n=4)
    print(f"{name}: {median(ours) * 1e6:.0f} µs, bare {median(theirs) * 1e6:.0f} µs: of the medians", end=" ")
    print(f"{median(ours) / median(theirs):.2f}, of pairs {mid:.2f} ({low:.2f}-{high:.2f})")
    store.close()


def appends(folder: Path) -> None:
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE entry (n INTEGER PRIMARY KEY, line TEXT NOT NULL)")

    def insert() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO entry (line) VALUES (?)", (LINE,))
        connection.execute("COMMIT")

    alternately("sqlite", SqliteStore(folder / "runs.db"), insert)
    connection.close()


class Held:
    """The times for which the callbacks of an event loop, one by one, have held it up."""

    def __init__(self) -> None:
        self.longest_s: list[float] = []

    def __enter__(self) -> Held:
        self._run = run = asyncio.events.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began_s = time.perf_counter()
            run(handle)
            self.longest_s.append(time.perf_counter() - began_s)

        asyncio.events.Handle._run = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.events.Handle._run = self._run  # type: ignore[method-assign]
        self.longest_s = sorted(self.longest_s, reverse=True)


def loop(folder: Path) -> None:
    async def main(store: Store | None) -> None:
        agents: list[Any] = [agent_of(turns(3)) for _ in range(AT_ONCE_RUNS)]
        if store is not None:
            agents = [replace(agent, store=store) for agent in agents]
        assert [agent._resolver for agent in agents]  # made at the first call
        await asyncio.gather(*[agent.acall(TASK) for agent in agents])

    asyncio.run(main(None))
    for name, store in (("no store", None), ("sqlite", SqliteStore(folder / "runs.db"))):
        gc.collect()
        with Held() as held:
            asyncio.run(main(store))
        longest = ", ".join(f"{held_s * 1e3:.1f}" for held_s in held.longest_s[1:4])  # the first makes the agents
        print(f"{name}: {len(held.longest_s)} callbacks; those that held the loop up longest: {longest} ms")
        if store is not None:
            store.close()


def calls(name: str, kept: str, count: str) -> None:
    gc.disable()
    agent = agent_of(SCRIPTS[name])
    asyncio.run(batch(replace(agent, store=MemoryStore()) if kept == "1" else agent, int(count)))


PARTS = {part.__name__: part for part in (rounds, langgraph, memory, appends, loop)}


def main(names: list[str]) -> None:
    for name in names or PARTS:
        print(f"{name} (load {os.getloadavg()[0]:.1f})")
        with tempfile.TemporaryDirectory(dir=os.environ.get("STORE_COSTS_DIR")) as folder:
            PARTS[name](Path(folder))


if __name__ == "__main__":
    if sys.argv[1:2] == ["calls"]:
        calls(*sys.argv[2:])
    else:
        main(sys.argv[1:])

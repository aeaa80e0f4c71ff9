"""Runs a second, takeover and memory by the store's own claim, DBOS and Temporal, for docs/production.md.

``python -m benchmarks.engine_costs [rounds]``; the three take turns, and the table has medians.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.postgres import PostgresServer
from support.temporal import TemporalServer

from benchmarks.engine_agents import AGENT
from fsm_agent.store import Runs

RUNS, THREADS = 120, 8
TESTS = Path(__file__).parents[1]
_numbers = iter(range(10**6))


def megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def worker(url: str, engine: str, address: str) -> Iterator[subprocess.Popen[bytes]]:
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    options = ["--threads", str(THREADS), *(["--engine", engine] if engine else [])]
    process = subprocess.Popen(
        [sys.executable, "-m", "fsm_agent", "worker", "--store", url, "--agents", "benchmarks.engine_agents", *options],
        env={**os.environ, "PYTHONPATH": path, "TEMPORAL_ADDRESS": address},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def begin(runs: Runs, name: str, task: str = "Buy a kettle.") -> None:
    kept = replace(AGENT, store=runs)
    runs.store.create(name, kept.prepare(task, run_id=name).journal.header, agent=AGENT.name)


def wait_for(runs: Runs, is_so: Any, within_s: float = 300.0) -> float:
    start_s = time.monotonic()
    while not is_so(runs.store.list(limit=1000)):
        assert time.monotonic() - start_s < within_s
        time.sleep(0.02)
    return time.monotonic() - start_s


def measured(postgres: PostgresServer, engine: str, address: str, workers: int) -> dict[str, float]:
    url = postgres.url(f"b{next(_numbers)}") + (f"&engine={engine}" if engine else "")
    with closing(Runs(url)) as runs, ExitStack() as stack:
        crew = [stack.enter_context(worker(url, engine, address)) for _ in range(workers)]
        for number in range(2 * THREADS * workers):  # until all have begun, and loaded what they need
            begin(runs, f"warm-{number}")
        wait_for(runs, lambda rows: all(run.is_ended for run in rows))
        time.sleep(2)
        before_s = sum(cpu_s(one.pid) for one in crew)
        start_s = time.monotonic()
        for number in range(RUNS):
            begin(runs, f"r-{number}")
        wait_for(runs, lambda rows: all(run.is_ended for run in rows))
        took_s = time.monotonic() - start_s
        found = {
            f"runs/s, {workers}": RUNS / took_s,
            f"CPU ms a run, {workers}": 1000 * (sum(cpu_s(one.pid) for one in crew) - before_s) / RUNS,
            "MB": max(megabytes(one.pid) for one in crew),
        }
        idle_s = sum(cpu_s(one.pid) for one in crew)
        time.sleep(5)
        found["idle, % of a core"] = 100 * (sum(cpu_s(one.pid) for one in crew) - idle_s) / 5 / workers
        if workers == 1:
            return found
        begin(runs, "waits", "wait")
        wait_for(runs, lambda rows: any(run.holder and run.id == "waits" for run in rows))
        time.sleep(1)
        (row,) = [run for run in runs.store.list(limit=1000) if run.id == "waits"]
        assert row.holder is not None
        pid = int(row.holder.split(":")[1])
        next(one for one in crew if one.pid == pid).kill()
        found["takeover, s"] = wait_for(
            runs, lambda rows: any(run.id == "waits" and run.holder and f":{pid}:" not in run.holder for run in rows)
        )
        return found


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    table: dict[tuple[str, str], list[float]] = defaultdict(list)
    with closing(PostgresServer()) as postgres, closing(TemporalServer()) as temporal:
        for turn in range(rounds):
            for engine in ("", "dbos", "temporal"):
                for workers in (1, 2):
                    for name, value in measured(postgres, engine, temporal.address, workers).items():
                        table[engine or "own claim", name].append(value)
            print(f"round {turn + 1}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        print(f"Temporal's server: {megabytes(temporal.pid):.0f} MB", file=sys.stderr)
    names = list(dict.fromkeys(name for _, name in table))
    print("| |", " | ".join(names), "|")
    for engine in dict.fromkeys(engine for engine, _ in table):
        print(f"| {engine} |", " | ".join(f"{statistics.median(table[engine, name]):.1f}" for name in names), "|")


if __name__ == "__main__":
    main()

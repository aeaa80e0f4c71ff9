"""Runs a second over Postgres, by OS processes: ``python benchmarks/throughput.py [RUNS [PROCESSES …]]``.

Each run is three rounds with a call of a function, and an answer: four requests to a model that takes 50 ms.  A process
drives eight runs at a time, in threads or tasks.  Beside it the same work with LangGraph's Postgres saver, and with
pydantic-ai on DBOS, over the same server, one after the other for each number of processes; they have no queue of the
same kind, so each of their processes is given its share of the runs.  All have every step on disk before the next one.

Peers run in environments of their own: ``LANGGRAPH_PYTHON`` names an interpreter that has ``langchain`` and
``langgraph-checkpoint-postgres``, ``DBOS_PYTHON`` one that has ``pydantic-ai-slim[dbos]``; without them they are left
out.  What is timed begins when all processes have loaded everything and wait for a word.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from support.postgres import PostgresServer

from benchmarks.works import TASK, turns
from fsm_agent.agents import Agent
from fsm_agent.store import Runs
from fsm_agent.testing import Script, function_call
from fsm_agent.workers import Worker

MODEL_S, ROUNDS, AT_ONCE = 0.05, 3, 8
SCRIPT = turns(ROUNDS)
HERE = Path(__file__).parent
PEERS = {
    "LangGraph, its Postgres saver": ("LANGGRAPH_PYTHON", "langgraph_runs.py"),
    "pydantic-ai on DBOS": ("DBOS_PYTHON", "dbos_runs.py"),
}


class Model(Script):
    """A model that takes its time, and knows from the messages what to say."""

    async def acomplete(self, request: Any, *, timeout_s: float | None = None) -> Any:
        await asyncio.sleep(MODEL_S)
        return await super().acomplete(request)

    def _next(self, request: Any, timeout_s: float | None) -> Any:
        done = sum(message.role == "tool" for message in request.messages)
        reply = SCRIPT[-1].text if done == ROUNDS else function_call("add", a=0, b=1000 * done)
        return self._make_reply(reply, request, timeout_s)


def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def agent(runs: Runs) -> Agent[Any, str]:
    return Agent(Model(), name="adder", functions=[add], store=runs)


def work(url: str) -> None:
    """Be one of our processes."""
    runs = Runs(url)
    worker = Worker([agent(runs)], runs)
    runs.store.list(limit=1)
    before_s = sum(os.times()[:2])
    print("ready", flush=True)
    sys.stdin.readline()
    worker.run(threads=AT_ONCE, once=True)
    print(sum(os.times()[:2]) - before_s, flush=True)
    runs.close()


def timed(commands: list[list[str]]) -> tuple[float, float]:
    """Return for how long these processes have worked, and the processor seconds that they took then."""
    workers = [subprocess.Popen(c, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for c in commands]
    pipes = [(worker.stdin, worker.stdout) for worker in workers if worker.stdin and worker.stdout]
    for _, told in pipes:
        assert told.readline() == "ready\n"
    began_s = time.perf_counter()
    for told, _ in pipes:
        told.write("go\n")
        told.flush()
    cpu_s = sum(float(told.readline()) for _, told in pipes)
    took_s = time.perf_counter() - began_s
    for worker in workers:
        worker.communicate(timeout=60)
    return took_s, cpu_s


def ours(server: PostgresServer, processes: int, count: int) -> tuple[float, float]:
    url = server.url(f"ours{processes}")
    runs = Runs(url)
    one = agent(runs)
    for number in range(count):
        seed = one.prepare(TASK, run_id=f"run{number}")
        assert runs.store.create(f"run{number}", seed.journal.header, agent="adder")
    taken = timed([[sys.executable, __file__, "worker", url]] * processes)
    for number in range(count):
        assert one.runs.resume(f"run{number}").output == SCRIPT[-1].text
    runs.close()
    return taken


def theirs(server: PostgresServer, python: str, script: str, processes: int, count: int) -> tuple[float, float]:
    url, shares = server.url().partition("?")[0], range(processes)
    started = [python, str(HERE / script), url, f"{script.partition('_')[0]}{processes}"]
    subprocess.run([*started, "0", "1", "0", "1"], input="go\n", stdout=subprocess.DEVNULL, text=True, check=True)
    return timed([[*started, str(share), str(processes), str(count), str(AT_ONCE)] for share in shares])


def main(count: int, numbers: list[int]) -> None:
    print(f"{count} runs, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; runs/s (processor ms a run)\n")
    print("| | " + " | ".join(f"{number} process{'es' * (number > 1)}" for number in numbers) + " |")
    print("|---" * (len(numbers) + 1) + "|")
    rows: dict[str, list[str]] = {}
    with closing(PostgresServer(fsync=True)) as server:
        for number in numbers:
            figures = {"fsm_agent, `Worker`": ours(server, number, count)}
            for name, (variable, script) in PEERS.items():
                if python := os.environ.get(variable):
                    figures[name] = theirs(server, python, script, number, count)
            for name, (took_s, cpu_s) in figures.items():
                rows.setdefault(name, []).append(f"{count / took_s:.1f} ({cpu_s / count * 1e3:.0f})")
    for name, cells in rows.items():
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(sys.argv[2])
    else:
        main(int([*sys.argv, "120"][1]), [int(number) for number in sys.argv[2:]] or [1, 2, 4, 8])

"""Measure what a step of a flow costs beside other libraries: ``python benchmarks/flow_steps.py``.

The same machine in each (`flow_adapters.py`), each in an OS process of its own, in turns, so that noise on the machine
affects all of them.  Told is processor time, as a multiple of the same by hand in the same run: a loop over a table,
with frozen data and a trace.  Libraries that are not installed are left out.  They have environments of their own, in a
folder that FLOW_BENCH_VENVS names:

    python -m venv venvs/burr && venvs/burr/bin/pip install "apache-burr[tracking]==0.43.0"
    python -m venv venvs/pydantic-graph && venvs/pydantic-graph/bin/pip install pydantic-graph==2.68.0
    python -m venv venvs/langgraph && venvs/langgraph/bin/pip install langgraph==1.2.22
    FLOW_BENCH_VENVS=venvs python benchmarks/flow_steps.py --json benchmarks/flow_steps.json

The last writes the figures of the table in ``docs/cost.md``, which ``--table`` prints.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from math import inf, log
from pathlib import Path
from typing import Any, TypeAlias

HERE = Path(__file__).resolve().parent
FIGURES = HERE / "flow_steps.json"
BY_HAND = "by hand"
LIBRARIES = {  # adapters, and the environment that each needs; "": this one
    BY_HAND: "",
    "transitions": "",
    "fsm_agent, core": "",
    "fsm_agent, sync": "",
    "fsm_agent, asyncio": "",
    "burr": "burr",
    "pydantic-graph": "pydantic-graph",
    "langgraph": "langgraph",
    "langgraph, InMemorySaver": "langgraph",
}
SIZES = {"loop": (1, 100, 200, 400, 800), "models": (100,), "members": (16, 125, 250, 500, 1000)}
ROWS = {  # of the table: a work and one size, or two for the exponent from one to the other
    "a run of one step": ("loop", 1),
    "a step, of 200": ("loop", 200),
    "growth from 100 to 800 steps: n to the": ("loop", (100, 800)),
    "a step that asks a model, of 100": ("models", 100),
    "a member, of 16 at once": ("members", 16),
    "a member, of 1,000 at once": ("members", 1000),
    "growth from 125 to 1,000 members: n to the": ("members", (125, 1000)),
}
BATCH_S = 0.02
Times: TypeAlias = Mapping[str, Mapping[str, float]]  # µs a step, by library, and by work and size


class Worker:
    """An OS process that does the works of one library."""

    def __init__(self, library: str, python: str) -> None:
        self.library = library
        command = [python, str(HERE / "flow_adapters.py"), library]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.versions: list[str] = self._read()  # of the library, and of Python

    def seconds(self, work: str, size: int, at_least_s: float) -> float | None:
        """Return how long a work takes; None: the library has no such."""
        assert self._process.stdin is not None
        print(json.dumps([work, size, at_least_s]), file=self._process.stdin, flush=True)
        found: float | None = self._read()
        return found

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.library} has ended with {self._process.wait()}")
        return json.loads(line)


def pythons(folder: str) -> dict[str, str]:
    """Return the interpreter for each library that is here."""
    found = dict[str, str]()
    for library, name in LIBRARIES.items():
        python = Path(folder, name, "bin", "python") if name else Path(sys.executable)
        if (folder or not name) and python.exists():
            found[library] = str(python.absolute())
        else:
            print(f"{library} is left out: there is no {python}", file=sys.stderr)
    return found


def measured(workers: Sequence[Worker], rounds: int, batch_s: float = BATCH_S) -> Times:
    """Return the least time of each work, a step or a member: what is more is the noise of the machine."""
    found: dict[str, dict[str, float]] = {worker.library: {} for worker in workers}
    for number in range(rounds):
        turn = number % len(workers)
        for work, sizes in SIZES.items():
            for size in sizes:
                for worker in (*workers[turn:], *workers[:turn]):
                    took_s = worker.seconds(work, size, batch_s)
                    if took_s is not None:
                        times, name = found[worker.library], f"{work} {size}"
                        times[name] = round(min(times.get(name, inf), took_s / size * 1e6), 3)
    return found


def cell(times: Times, library: str, work: str, size: int | tuple[int, int]) -> float | None:
    """Return a figure of the table; None: the library has no such work."""
    mine, by_hand = times[library], times[BY_HAND]
    if isinstance(size, tuple):
        few, many = size
        if f"{work} {few}" not in mine:
            return None
        return 1 + log(mine[f"{work} {many}"] / mine[f"{work} {few}"]) / log(many / few)
    time_us = mine.get(f"{work} {size}")
    if time_us is None:
        return None
    return time_us if library == BY_HAND else time_us / by_hand[f"{work} {size}"]


def table(times: Times) -> str:
    """Return the table as Markdown."""
    head = ["", *[f"{name}, µs" if name == BY_HAND else name for name in times]]
    lines = [head, ["---", *["---:"] * len(times)]]
    for title, (work, size) in ROWS.items():
        lines.append([title, *[shown(cell(times, library, work, size)) for library in times]])
    return "".join([f"| {' | '.join(line)} |\n" for line in lines])


def shown(figure: float | None) -> str:
    return (
        ""
        if figure is None
        else f"{figure:,.0f}"
        if figure >= 100
        else f"{figure:.1f}"
        if figure >= 10
        else f"{figure:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--table", action="store_true", help="print the table of the figures that are kept")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(FIGURES.read_text())["times"]), end="")
        return
    here = pythons(os.environ.get("FLOW_BENCH_VENVS", ""))
    workers = [Worker(library, python) for library, python in here.items()]
    times = measured(workers, options.rounds)
    versions = sorted({found for worker in workers for found in worker.versions})
    for worker in workers:
        worker.end()
    if options.json is not None:
        options.json.write_text(json.dumps({"versions": versions, "times": times}, indent=1) + "\n")
    print(table(times), end="")


if __name__ == "__main__":
    main()

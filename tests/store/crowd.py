"""Workers that are disturbed while they drive many runs of one store, and a person who answers what they ask."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import kill_worker
from kill_worker import LEASE_S, Notes, answers, clerk
from support.kept_runs import assert_fences

from fsm_agent.errors import FsmAgentError
from fsm_agent.store import Runs

GONE_ON = 5  # entries between two disturbances
OPEN = 12  # runs that workers have to do as long as they were not disturbed enough


def forked() -> Any:
    """Return what makes OS processes that have loaded everything, from a server that finds modules by its path."""
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, [Path(__file__).parent, *Path(__file__).parents[1:3]]))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kill_worker", "psycopg", "psycopg_pool"])
    return context


def assert_journal(lines: Any) -> None:
    """Assert one ending, intact fences, and that nothing was started twice without a person's word."""
    assert_fences(lines)
    entries = [json.loads(line) for line in lines]
    assert sum(entry["steps"][-1][1] == "answered" for entry in entries) == 1
    assert entries[-1]["steps"][-1][1] == "answered"


class Often:
    """Does something now and then.

    Args:
        least_s: The least time between two times.
        most_s: The greatest.
        do: What is done.
        after_s: How long nothing is done at first.
    """

    def __init__(self, least_s: float, most_s: float, do: Callable[[], object], *, after_s: float = 0.0) -> None:
        self._random = random.Random(13)
        self._least_s, self._most_s, self._do = least_s, most_s, do
        self._next_s = time.monotonic() + after_s

    def __call__(self) -> None:
        if time.monotonic() > self._next_s:
            self._do()
            self._next_s = time.monotonic() + self._random.uniform(self._least_s, self._most_s)


class Crowd:
    """Workers of a store in separate OS processes, which are started again when they die.

    Args:
        forks: Makes OS processes; see `forked`.
        address: The address of the undisturbed store.
        folder: The folder for notes of effects.
        workers: The address of the store for each worker, and by how many seconds its clock is ahead.
        runs: How many runs there are at first.
        lease_s: The lease of the workers.
        doubt_s: How long a doubt waits for an answer, because the doubted process may still be alive.
    """

    def __init__(
        self,
        forks: Any,
        address: str,
        folder: Path,
        workers: Sequence[tuple[str, float]],
        *,
        runs: int,
        lease_s: float = LEASE_S,
        doubt_s: float = 0.0,
    ) -> None:
        self.random = random.Random(12)
        self.deaths = self.doubts = 0
        self.frozen: set[int] = set()  # pids
        self._forks, self._workers, self._lease_s, self._doubt_s = forks, workers, lease_s, doubt_s
        self._notes = folder / "notes"
        self._notes.touch()
        self._entries = 0  # when a disturbance was last let pass
        self._runs = Runs(address)
        self._store = self._runs.store
        self._clerk = clerk(self._store, Notes(str(self._notes)))
        self.names: list[str] = []
        for _ in range(runs):
            self._begin()
        self.processes: list[Any] = [None] * len(workers)
        self._seen_s: dict[tuple[str, str], float] = {}  # since when doubts are there

    def _begin(self) -> None:
        name = f"run {len(self.names)}"
        assert self._store.create(name, self._clerk.prepare("Go.", run_id=name).journal.header, agent="clerk")
        self.names.append(name)

    def drive(self, disturb: Callable[[], None], within_s: float, is_enough: Callable[[], bool] = lambda: True) -> None:
        """Have all runs ended while they are disturbed, and more runs until that is enough.

        Args:
            disturb: Called at each moment.
            within_s: How long it may take.
            is_enough: Whether the runs were disturbed enough: a machine that is not busy ends them soon.
        """
        until_s = time.monotonic() + within_s
        try:
            while (left := self._store.list(ended=False, limit=OPEN)) or not is_enough():
                assert time.monotonic() < until_s, left
                if len(left) < OPEN and not is_enough():
                    self._begin()
                for place, process in enumerate(self.processes):
                    if process is None or not process.is_alive():
                        self._hire(place)
                self._answer()
                disturb()
                self._store.wait(0.02)
        finally:
            for process in self.processes:
                if process is not None:
                    process.kill()
                    process.join(10)

    def has_gone_on(self) -> bool:
        """Return whether something was done since this was last true: on a busy machine, disturbances have to wait."""
        entries = sum([run.n for run in self._store.list(limit=len(self.names))])
        if entries < self._entries + GONE_ON:
            return False
        self._entries = entries
        return True

    def kill_one(self) -> None:
        victim = self.random.choice(self.processes)
        if victim.pid not in self.frozen and self.has_gone_on():
            victim.kill()
            victim.join(10)
            self.deaths += 1

    def _hire(self, place: int) -> None:
        address, ahead_s = self._workers[place]
        arguments = (address, str(self._notes), self._lease_s, ahead_s)
        self.processes[place] = process = self._forks.Process(target=kill_worker.work, args=arguments, daemon=True)
        process.start()

    def _answer(self) -> None:
        now_s, effects = time.monotonic(), self._notes.read_text()
        for run in self._store.list(asked=True, limit=len(self.names)):
            told = answers(run, effects)
            for key in [key for key in told if key.startswith("reconcile")]:
                seen_s = self._seen_s.setdefault((run.id, key), now_s)
                if self.frozen or now_s < seen_s + self._doubt_s:
                    del told[key]
            if told:
                with suppress(FsmAgentError):  # somebody was faster, or the store is away
                    self._runs.answer(run.id, told, by="ann")
                    self.doubts += sum(key.startswith("reconcile") for key in told)

    def assert_ended_once(self) -> str:
        """Assert that each run has ended and was paid once, and return a summary."""
        effects = Counter(self._notes.read_text().splitlines())
        highest = 0
        for name in self.names:
            lines = self._store.load(name).lines
            assert_journal(lines)
            assert effects[f"{name} pay"] == 1
            highest = max(highest, json.loads(lines[-1])["fence"])
        self._store.close()
        return (
            f"{len(self._workers)} workers, {len(self.names)} runs, {self.deaths} deaths: each ended once, paid once;"
            f" {self.doubts} times a person was asked; the highest fence is {highest}"
        )

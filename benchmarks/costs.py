"""Measure the cost of a call on this machine, beside the same work done by hand.

Every work is done in two ways: by an `Agent` with a model in this process, and by a loop over plain dicts.  Their
batches alternate, so that other activity of the machine affects both alike; the difference between them is the
library's.  Both have to return the same answer, or nothing is measured.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import platform
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fsm_agent
from benchmarks.works import TASK, Work, agent_of, message_of, opening, turns
from fsm_agent.agents import Agent
from fsm_agent.call import AgentCall, Limits, snapshot
from fsm_agent.clients import Client
from fsm_agent.messages import ReplyCompleted, Settings, TextDelta
from fsm_agent.runtime import Environment, run

SIZES = (50, 100, 200, 400)  # rounds of one call
LONG = 200  # of these, the one that is reported
WAITING = 200  # calls that wait at once
BATCH_S = 0.01
QUESTION = "Name the planets of the solar system, and say one sentence about each."
DISTRIBUTIONS = ("fsm-agent", "transitions", "pydantic", "pydantic-core", "httpx")
IMPORT_OURS = "from fsm_agent import Agent, function; from fsm_agent.clients.http_client import HttpClient"
IMPORT_BY_HAND = "import asyncio, json, httpx"

# Where the clock of the processor is too coarse (on Windows), that of the wall.
now_s = time.process_time if time.get_clock_info("process_time").resolution < 1e-5 else time.perf_counter


@dataclass(frozen=True, slots=True)
class Spread:
    """A median between its quartiles."""

    lower: float
    median: float
    upper: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Return the spread of at least one sample."""
        if len(samples) == 1:
            return cls(samples[0], samples[0], samples[0])
        return cls(*statistics.quantiles(samples, n=4, method="inclusive"))


@dataclass(frozen=True, slots=True)
class Cost:
    """The measurements of one work, in seconds, sample by sample."""

    name: str
    ours_s: list[float]
    by_hand_s: list[float]

    @property
    def ratios(self) -> list[float]:
        """The ratios of samples that were taken beside each other."""
        return [ours / by_hand for ours, by_hand in zip(self.ours_s, self.by_hand_s, strict=True)]


def measure(works: Sequence[Work], *, runs: int, batch_s: float = BATCH_S) -> list[Cost]:
    """Do each work in both ways, in batches that take turns.

    Args:
        works: The works.
        runs: How many batches of each.
        batch_s: About how long a batch takes.

    Raises:
        RuntimeError: The two ways do not return the same answer.
    """
    with asyncio.Runner() as runner:
        return runner.run(_measured(works, runs, batch_s))


async def _measured(works: Sequence[Work], runs: int, batch_s: float) -> list[Cost]:
    costs, times = [Cost(work.name, [], []) for work in works], list[tuple[int, int]]()
    for work in works:
        ours, by_hand = await work.ours(), await work.by_hand()
        if ours != by_hand:
            raise RuntimeError(f"{work.name}: the agent said {ours!r:.80}, and the loop by hand {by_hand!r:.80}")
        times.append((await _times(work.ours, batch_s), await _times(work.by_hand, batch_s)))
    for _ in range(runs):
        gc.collect()
        for work, cost, (ours_times, by_hand_times) in zip(works, costs, times, strict=True):
            cost.ours_s.append(await _took_s(work.ours, ours_times) / work.units)
            cost.by_hand_s.append(await _took_s(work.by_hand, by_hand_times) / work.units)
    return costs


async def _times(once: Callable[[], Awaitable[Any]], batch_s: float) -> int:
    """Return how often the work is done in a batch."""
    took_s = min([await _took_s(once, 1) for _ in range(3)])
    return max(1, int(batch_s / max(took_s, 1e-7)))  # a clock may not have moved


async def _took_s(once: Callable[[], Awaitable[Any]], times: int) -> float:
    start_s = now_s()
    for _ in range(times):
        await once()
    return (now_s() - start_s) / times


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return how cost grows with size: 1 is linear, 2 quadratic.  The slope between their logarithms."""
    return statistics.linear_regression([math.log(n) for n in sizes], [math.log(cost) for cost in costs]).slope


@dataclass(frozen=True, slots=True)
class Waiting:
    """The memory of a call that waits for an approval, in bytes."""

    ours: float
    by_hand: float  # a list of the same messages
    snapshot: int  # as JSON


def measure_waiting(count: int = WAITING) -> Waiting:
    """Keep so many calls waiting, and return the memory that they hold."""
    turn = turns(1)[0]
    agent = agent_of([turn], needs_approval=True)
    environment = Environment.of(agent.client)

    def waiting() -> AgentCall:
        return run(agent.prepare(f"{TASK} "), environment)

    def by_hand_waiting() -> list[dict[str, Any]]:
        return [*opening(), message_of(turn)]

    first = waiting()
    if [effect.key.partition(":")[0] for effect in first.effects] != ["ask"]:
        raise RuntimeError(f"the call waits in {first.state} for {first.effects!r:.80}, not for an approval")
    return Waiting(_held(waiting, count), _held(by_hand_waiting, count), len(snapshot(first)))


def _held(make: Callable[[], object], count: int) -> float:
    """Return the bytes of heap that each of so many objects holds."""
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        kept = [make() for _ in range(count)]
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / len(kept)
    finally:
        if not was_tracing:
            tracemalloc.stop()


def measure_imports(runs: int) -> Cost:
    """Return the cost of importing, each time in a process of its own; by hand, an HTTP client is needed, too."""
    pairs = [(_import_s(IMPORT_OURS), _import_s(IMPORT_BY_HAND)) for _ in range(runs)]
    return Cost("import", [ours for ours, _ in pairs], [by_hand for _, by_hand in pairs])


def _import_s(statement: str) -> float:
    code = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    command, folder = [sys.executable, "-c", code], Path(fsm_agent.__file__).parents[1]  # where no module is a user's
    return float(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout)


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """The cost of one request to a real model, by the clock of the wall."""

    first_delta_s: float | None  # None: no delta came before the end
    took_s: float
    output_tokens: int

    @property
    def tokens_per_s(self) -> float:
        return self.output_tokens / self.took_s


def ask(client: Client, settings: Settings, requests: int) -> Iterator[RequestTiming]:
    """Send the same question to a model so often, and stream the answers.

    Raises:
        CallFailed: There is no answer.
    """
    agent = Agent(client, settings=settings, limits=Limits(on_cut="accept"))
    for _ in range(requests):
        start_s, first_s, deltas, reported = time.perf_counter(), None, 0, None
        with closing(agent.stream(QUESTION)) as events:
            for event in events:
                if isinstance(event, TextDelta):
                    deltas += 1
                    first_s = first_s if first_s is not None else time.perf_counter() - start_s
                elif isinstance(event, ReplyCompleted):
                    reported = event.reply.usage.output_tokens
        yield RequestTiming(first_s, time.perf_counter() - start_s, deltas if reported is None else reported)


def machine() -> dict[str, str]:
    """Return the machine, the system and the versions of the measurement."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{_processor()}, {os.cpu_count()} cores{load}",
        "system": platform.system(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        **{name: version(name) for name in DISTRIBUTIONS},
    }


def _processor() -> str:
    with suppress(OSError):  # only Linux has it
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

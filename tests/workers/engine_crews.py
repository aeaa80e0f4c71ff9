"""Workers in separate OS processes, the runs that they get, and the person who answers them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine_agents import clerk, orchestrator, s, support

from fsm_agent import Approved
from fsm_agent.call import Outcome, Returned, RunAgain
from fsm_agent.flows.orchestrator import Accept
from fsm_agent.messages import Question
from fsm_agent.store import AlreadyAnswered, NotAsked, Run, Runs

HERE = Path(__file__).parent
PATHS = [HERE, HERE.parent / "flows", HERE.parent, HERE.parents[1]]
BUSY = "Send it to ann, though you are busy."
MAIN = "from fsm_agent.cli import main; main()"
EFFECTS = ("paid.txt", "outbox.txt", "noted.txt")  # a line each, which begins with its idempotency key


@contextmanager
def worker(
    folder: Path, url: str, *options: str, temporal: str = "", turn_s: float = 0.0, before: str = ""
) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a worker in a separate OS process, which is killed at the end if it is still there.

    Args:
        folder: The folder in which it runs.
        url: The address of its store.
        options: The options of the command.
        temporal: The address of Temporal's server.
        turn_s: See `engine_agents`.
        before: Python code that runs before the command.
    """
    path = os.pathsep.join([*map(str, PATHS), os.environ.get("PYTHONPATH", "")])
    with (folder / "workers.log").open("a") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"{before}\n{MAIN}",
                "worker",
                "--store",
                url,
                "--agents",
                "engine_agents",
                *options,
            ],
            env={**os.environ, "PYTHONPATH": path, "TEMPORAL_ADDRESS": temporal, "TURN_S": f"{turn_s}"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def begin(runs: Runs, what: Any, name: str, task: Any) -> None:
    """Put a run into the store."""
    kept = what.changed(store=runs) if what is orchestrator else replace(what, store=runs)
    assert runs.store.create(name, kept.prepare(task, run_id=name).journal.header, agent=what.name)


def begin_all(runs: Runs, numbers: Iterable[int]) -> list[str]:
    """Put one run of each kind into the store for each number; return their names."""
    names = []
    for number in numbers:
        for what, task in ((clerk, BUSY), (support, s.Ticket("x")), (orchestrator, "the news")):
            names.append(f"{what.name}-{number}")
            begin(runs, what, names[-1], task if what is not clerk else f"{task} ({number})")
    return names


def answer(folder: Path, run: Run, question: Question) -> Outcome:
    """Return what a person says who has seen the effects."""
    if question.kind == "approval":
        return Approved()
    if question.kind == "doubt":
        key = json.loads(question.about)["idempotency_key"]
        done = [line.split()[0] for file in EFFECTS if (folder / file).exists() for line in lines(folder / file)]
        return Returned(text='"found"') if key in done else RunAgain()
    state = question.key.rpartition(":")[2].partition("#")[0]
    if state == "customer":
        return Returned(text=s.customer.answer_types.dump("order 17"))
    if state == "review":
        return Returned(text=s.review.answer_types.dump(s.Approve("ann")))
    return Returned(text=orchestrator.reviewing.answer_types.dump(Accept()))


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def answered_until_all_end(
    folder: Path, runs: Runs, names: list[str], within_s: float, meanwhile: Callable[[], None] = lambda: None
) -> int:
    """Answer questions until all runs have ended.  Return how many doubts there were."""
    ends_s, doubts = time.monotonic() + within_s, 0
    while not all_ended(runs, names):
        log = folder / "workers.log"
        assert time.monotonic() < ends_s, f"{runs.store.list(ended=False)}\n{log.read_text()[-3000:]}"
        for run in runs.store.list(asked=True, limit=1000):
            for question in run.waits:
                assert question.kind != "stuck", question.about
                with suppress(AlreadyAnswered, NotAsked):
                    runs.answer(run.id, {question.key: answer(folder, run, question)}, by="ann")
                    doubts += question.kind == "doubt"
        meanwhile()
        time.sleep(0.05)
    return doubts


def all_ended(runs: Runs, names: list[str]) -> bool:
    ended = {run.id for run in runs.store.list(ended=True, limit=1000)}
    return ended.issuperset(names)


TIMES = ("at_s", "entered_at_s", "started_at_s", "until_s", "since_s", "duration_s", "elapsed_s", "latency_s")


def journal(runs: Runs, name: str) -> str:
    """Return the journal of a run, without its times, digests and fences."""
    loaded = runs.store.load(name)
    return "\n".join([json.dumps(_plain(json.loads(line))) for line in (loaded.header, *loaded.lines)])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        left = {key: _plain(item) for key, item in value.items() if key not in ("digest", "fence")}
        return {key: 0 if key in TIMES else item for key, item in left.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value

"""Do runs survive ``kill -9`` between two steps, when an effect is there without its entry, or the other way round?"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import flow_kill_worker
import orchestrator_kill_worker
import pytest
from flow_runs import s

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform == "win32", reason="kill -9"),
]

POINTS = ("before an append", "behind an append", "before an effect", "behind an effect")
LEASE_S = 0.5  # of the workers


def sent_support(folder: Path) -> tuple[Any, list[str]]:
    run = replace(s.support, store=str(folder / "runs.db")).runs.replay(flow_kill_worker.RUN)
    times = dict.fromkeys(("entered_at_s", "started_at_s"), 0.0)
    assert run.state == "sent"
    return run.record.changed(**times, data=replace(run.data, receipt="")), ["t1/sending#8"]


def completed_orchestration(folder: Path) -> tuple[Any, list[str]]:
    one = orchestrator_kill_worker.orchestrator(str(folder))
    result = one.runs.replay(orchestrator_kill_worker.RUN).result_so_far
    tried = [(e.step_id, e.agent, e.status, e.output, e.error) for e in result.journal]
    assert result.state == "completed"
    end = (result.context, result.redesigns, result.steps_executed, tried)
    return end, ["Find the news", "Send [Write warmly done]"]


@pytest.mark.parametrize(
    ("worker", "ended"),
    [(flow_kill_worker, sent_support), (orchestrator_kill_worker, completed_orchestration)],
    ids=["support", "orchestrator"],
)
def test_killed_between_any_two_steps_it_ends_equally(
    worker: Any, ended: Callable[[Path], tuple[Any, list[str]]], tmp_path: Path
) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([worker.__name__])

    def driven(folder: Path, name: str, number: int) -> int | None:
        process = context.Process(target=worker.drive_between, args=(str(folder), name, number))
        process.start()
        process.join(60)
        return process.exitcode

    (whole := tmp_path / "whole").mkdir()
    assert driven(whole, "", 0) == 0
    end, effects = ended(whole)
    kills, doubts = Counter[str](), Counter[str]()
    for name in POINTS:
        for number in count(1):  # entries that come together are written together, so there may be one more or less
            (folder := tmp_path / f"{name} {number}").mkdir()
            was_killed = driven(folder, name, number) == -signal.SIGKILL
            if was_killed:
                kills[name] += 1
                time.sleep(LEASE_S + 0.05)  # the lease of the dead ends
                assert driven(folder, "", 0) == 0, folder.name
            assert ended(folder)[0] == end, folder.name
            outbox = [line.partition("\t")[0] for line in (folder / "outbox.txt").read_text().splitlines()]
            assert outbox == effects, f"what must not run twice, killed {folder.name}"
            asked = folder / "asked.txt"
            doubts[name] += was_killed and asked.exists() and "reconcile:" in asked.read_text()
            if not was_killed:
                break
    print(f"{kills.total()} kills {dict(kills)}; a person was asked what became of a function: {dict(doubts)}")
    for name in ("before an effect", "behind an effect"):
        assert kills[name] == doubts[name] == len(effects)
    for name in ("before an append", "behind an append"):
        assert kills[name] >= 10
        assert doubts[name] <= 2 * len(effects), "from its noted start to its noted end, and nowhere else"

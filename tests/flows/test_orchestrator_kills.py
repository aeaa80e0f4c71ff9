"""Does an orchestrator survive ``kill -9`` at each of its steps, on SQLite, and run what must not run twice once?"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import orchestrator_kill_worker as worker
import pytest

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform == "win32", reason="kill -9"),
]


def test_killed_at_every_step_it_ends_equally(tmp_path: Path) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["orchestrator_kill_worker"])
    found, kills, doubts, steps, at = [], 0, 0, 1, 0
    while at <= steps:
        folder = tmp_path / str(at)
        folder.mkdir()
        for kill_at in (at, 0) if at else (0,):
            process = context.Process(target=worker.drive, args=(str(folder), kill_at))
            process.start()
            process.join(60)
            assert process.exitcode == (-signal.SIGKILL if kill_at else 0), (at, kill_at)
            if kill_at:
                kills += 1
                time.sleep(0.55)  # the lease of the dead ends
        if not at:
            steps = int((folder / "steps.txt").read_text())
        one = worker.orchestrator(str(folder))
        result = one.flow.replay(worker.RUN).outcome
        assert (folder / "outbox.txt").read_text().splitlines() == _notes(), at
        asked = (folder / "asked.txt").read_text() if (folder / "asked.txt").exists() else ""
        doubts += asked.count("doubt:")
        found.append((result.state, result.context, result.redesigns, result.steps_executed, _tried(result)))
        at += 1
    print(f"{kills} kills, one at each of {steps} steps; {doubts} doubts about functions")
    assert all(one == found[0] for one in found)
    assert found[0][0] == "completed"
    assert kills == steps > 40
    assert doubts >= 2, "at the start of each function"


def _notes() -> list[str]:
    return ["Find the news", "Send [Write warmly done]"]


def _tried(result: object) -> list[tuple[str, str, str, str, str]]:
    return [(e.step_id, e.agent, e.status, e.output, e.error) for e in result.journal]  # type: ignore[attr-defined]

"""Does the support flow survive ``kill -9`` at every one of its steps, on SQLite, and send its reply once?"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import flow_kill_worker
import pytest
from flow_runs import s

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform == "win32", reason="kill -9"),
]


def test_killed_at_every_step_it_ends_equally(tmp_path: Path) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["flow_kill_worker"])
    records, doubts = [], 0
    for at in range(12):
        folder = tmp_path / str(at)
        folder.mkdir()
        for kill_at in (at, 0) if at else (0,):
            process = context.Process(target=flow_kill_worker.drive, args=(str(folder), kill_at))
            process.start()
            process.join(60)
            assert process.exitcode in (0, -signal.SIGKILL)
            time.sleep(0.6)  # the lease of the dead ends
        flow = replace(s.support, store=str(folder / "runs.db"))
        run = flow.replay(flow_kill_worker.RUN)
        assert run.state == "sent", at
        assert len((folder / "outbox.txt").read_text().splitlines()) == 1, at
        asked = (folder / "asked.txt").read_text()
        doubts += "doubt:" in asked
        times = ("entered_at_s", "started_at_s")
        records.append(run.record.changed(**dict.fromkeys(times, 0.0), data=replace(run.data, receipt="")))
    assert all(record == records[0] for record in records)
    assert doubts == 2, "at the answer, with which the start of the function is written, and at that start"

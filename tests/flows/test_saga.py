"""Does a saga compensate after a failure, a cancellation and the deadline, each step once, wherever it is killed?"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import saga_kill_worker as worker
from saga_kill_worker import RUN, START_S, Order, saga, shipping, stored

from fsm_agent.flows import FlowFailed, FlowSuspended
from fsm_agent.testing import explore

BEGINNINGS = ("failure", "cancellation", "deadline")
WHYS = {"failure": "", "cancellation": "cancelled: the customer left", "deadline": "expired: 3600 s are over"}
EFFECTS = ["booked", "paid", "refunded", "unbooked"]


def to_shipping() -> None:
    with pytest.raises(FlowSuspended) as waiting:
        stored().call(Order(), run_id=RUN)
    assert waiting.value.run.state == "shipping"


def end_it(how: str) -> float:
    """Let the saga fail, or ask for its end; return the time at which it is driven on."""
    if how == "cancellation":
        stored().runs.all.cancel(RUN, "the customer left", by="ann")
    elif how == "failure":
        flow = stored()
        flow.runs.all.answer(RUN, flow._outcomes(RUN, {shipping: False}, flow._definition({})))
    return START_S + (3600 if how == "deadline" else 60)


def outcome() -> tuple[str, Any, list[str]]:
    run = stored().runs.replay(RUN)
    return run.state, run.data, Path("effects.txt").read_text().split()


@pytest.mark.parametrize("how", BEGINNINGS)
def test_it_undoes_what_was_done(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    to_shipping()
    now_s = end_it(how)
    with pytest.raises(FlowFailed):
        stored(now_s).runs.resume(RUN)
    assert outcome() == ("undone", Order(("booked", "paid"), ("refunded", "unbooked"), WHYS[how]), EFFECTS)


def test_explore_finds_no_way_to_undo_twice_or_what_was_not_done() -> None:
    answers: dict[Any, Any] = {
        state: [True, False] if state is shipping else [None] if state.name == "undoing" else [done]
        for state, done in zip(saga.live, ["booked", "paid", "", True, "refunded", "unbooked"], strict=True)
    }

    def holds(state: str, o: Order) -> bool:
        undone = Counter(o.undone)
        return max(undone.values(), default=0) <= 1 and (not undone["refunded"] or "paid" in o.done)

    found = explore(saga, Order(), answers, holds=holds)
    assert (found.missed, found.is_whole) == ((), True)


POINTS = ("", "before an effect", "behind an effect", "behind an append")


@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
@pytest.mark.parametrize(
    ("how", "points"),
    [
        pytest.param("failure", POINTS[2:3], marks=pytest.mark.system),
        *[pytest.param(how, POINTS, marks=pytest.mark.nightly) for how in BEGINNINGS],
    ],
)
def test_killed_anywhere_in_its_compensation_it_undoes_each_step_once(
    how: str, points: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path(__file__)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, here.parents[:3])))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([worker.__name__])

    def driven(folder: Path, now_s: float, kill_at: int, point: str) -> int | None:
        process = context.Process(target=worker.main, args=(str(folder), now_s, kill_at, point))
        process.start()
        process.join(60)
        return process.exitcode

    kills = Counter[str]()
    for point in points:
        for number in count(1):
            (folder := tmp_path / f"{how} {point} {number}").mkdir()
            monkeypatch.chdir(folder)
            to_shipping()
            now_s = end_it(how)
            was_killed = driven(folder, now_s, number, point) == -signal.SIGKILL
            if was_killed:
                kills[point] += 1
                time.sleep(0.55)  # the lease of the dead ends
                assert driven(folder, now_s, 0, "") == 0
            state, data, effects = outcome()
            assert (state, effects) == ("undone", EFFECTS), folder.name
            assert (data.undone, data.why) == (("refunded", "unbooked"), WHYS[how])
            if not was_killed:
                break
    assert kills["behind an effect"] == 2
    if points == POINTS:
        assert kills[""] >= 8
        assert kills["before an effect"] == 2

"""Does a run survive ``kill -9`` at every step and at every write, with each thing done as often as it may be?"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kill_worker
import pytest
from crowd import Crowd, Often, assert_journal, forked
from kill_worker import RUN, Notes, answers, clerk, opened
from support.kept_runs import definition_of

from fsm_agent.errors import CallSuspended
from fsm_agent.store import RunUnknown
from fsm_agent.store.sqlite import SqliteStore

WORKERS, RUNS = 8, 200
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform == "win32", reason="kill -9"),
]


@pytest.fixture(scope="module")
def forks() -> Any:
    return forked()


class Case:
    """One run in one store, driven by one OS process after the other."""

    def __init__(self, forks: Any, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.forks = forks
        self.path, self.notes = str(folder / "runs"), folder / "notes"
        self.notes.touch()

    def do(self, act: Callable[..., None], at: int = 0) -> bool:
        """Have an OS process do something; return False if it was killed."""
        process = self.forks.Process(target=act, args=(self.path, str(self.notes), at))
        process.start()
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
        return bool(process.exitcode == 0)

    def lines(self) -> list[str]:
        return self.notes.read_text().splitlines()

    def points(self) -> int:
        return int(self.lines()[-1].split()[1])

    def assert_kept(self) -> None:
        """No entry is lost whose append had returned."""
        wrote = max([int(line.split()[1]) for line in self.lines() if line.startswith("wrote")], default=0)
        store = opened(self.path)
        try:
            there = store.load(RUN).run.n
        except RunUnknown:
            there = 0
        finally:
            store.close()
        assert there >= wrote

    def finish(self) -> int:
        """Go on until the run has ended; return how often a person was asked about `pay`."""
        asked = 0
        for _ in range(10):
            assert self.do(kill_worker.go_on)
            store = opened(self.path)
            run = store.load(RUN).run
            store.close()
            if run.is_ended:
                self.assert_right()
                return asked
            asked += sum(question.kind == "doubt" for question in run.waits)
            assert self.do(kill_worker.answer)
        raise AssertionError("it has no end")

    def assert_right(self) -> None:
        effects = Counter(self.lines())
        assert effects[f"{RUN} pay"] == 1
        store = opened(self.path)
        agent = clerk(store, Notes(str(self.notes)))
        result = agent.resume(RUN)
        whole = agent.runs.replay(RUN, definition_of(agent))
        lines = store.load(RUN).lines
        store.close()
        assert result.output == 42
        assert whole.record == result.record
        assert [m.text for m in result.dialog if m.role == "tool"] == ["3", "paid 3", "7", "wiped"]
        assert_journal(lines)


ACTS = {"begin": kill_worker.begin, "answer": kill_worker.answer, "go on": kill_worker.go_on}


def led_to(case: Case, phase: str) -> None:
    for name, act in ACTS.items():
        if name == phase:
            return
        assert case.do(act)


@pytest.mark.spec("4.23: in another OS process, without running again what ran")
def test_a_run_survives_a_kill_at_every_step_and_every_write(forks: Any, tmp_path: Path, say: Callable[[str], None]):
    kills: Counter[str] = Counter()
    asked = 0
    for phase, act in ACTS.items():
        first = Case(forks, tmp_path / phase)
        led_to(first, phase)
        assert first.do(act)
        points = first.points()
        assert first.finish() == 0, "where nobody is killed, nobody is asked"
        template = Case(forks, tmp_path / f"{phase} template")
        led_to(template, phase)
        for at in range(1, points + 1):
            case = Case(forks, tmp_path / f"{phase} {at}")
            shutil.copytree(Path(template.path).parent, Path(case.path).parent, dirs_exist_ok=True)
            kills[phase] += not case.do(act, at)
            case.assert_kept()
            asked += case.finish()
            shutil.rmtree(Path(case.path).parent)
    assert asked > 0
    say(f"{kills.total()} kills ({dict(kills)}): all ended well, {asked} times a person was asked")


def test_a_run_survives_whatever_is_left_of_the_write_ahead_log(forks: Any, tmp_path: Path, say: Callable[[str], None]):
    case = Case(forks, tmp_path / "whole")
    assert case.do(kill_worker.begin)
    count, ns = killed_in_the_log(case, tmp_path)
    assert len(ns) > 5, "different states were seen"
    say(f"the write-ahead log cut off at {count} places: {len(ns)} states, all went on")


def killed_in_the_log(case: Case, folder: Path) -> tuple[int, set[int]]:
    """Copy the file and its log while a store has them open, cut the log off, and go on."""
    live = folder / "live"
    live.mkdir()
    store = SqliteStore(live / "runs")
    notes = Notes(str(live / "notes"))
    agent = clerk(store, notes)
    with pytest.raises(CallSuspended):
        agent.call("Go.", run_id=RUN)
    size, ns, count = (live / "runs-wal").stat().st_size, set[int](), 0
    for at in range(0, size + 1, max(1, size // 150)):
        copy = folder / f"cut {at}"
        copy.mkdir()
        shutil.copy(live / "runs", copy / "runs")
        shutil.copy(live / "runs-wal", copy / "runs-wal")
        with open(copy / "runs-wal", "r+b") as log:
            log.truncate(at)
        ns.add(gone_on(copy))
        count += 1
        shutil.rmtree(copy)
    store.close()
    return count, ns


def gone_on(copy: Path) -> int:
    notes = Notes(str(copy / "notes"))
    store = SqliteStore(copy / "runs", clock=lambda: time.time() + 10_000.0)
    agent = clerk(store, notes)
    try:
        n = store.load(RUN).run.n
    except RunUnknown:
        n = 0
    runs = agent.runs
    for _ in range(5):
        try:
            output = agent.run(agent.seed("Go.", run_id=RUN)).output
            break
        except CallSuspended:
            effects = (copy / "notes").read_text() if n < 3 else f"{RUN} pay\n"
            runs.answer(RUN, answers(store.load(RUN).run, effects))
    assert output == 42
    assert_journal(store.load(RUN).lines)
    store.close()
    return n


def test_many_workers_are_killed_and_every_run_ends_once(forks: Any, tmp_path: Path, say: Callable[[str], None]):
    address = str(tmp_path / "runs.db")
    crowd = Crowd(forks, address, tmp_path, [(address, 0.0)] * WORKERS, runs=RUNS)
    crowd.drive(Often(0.02, 0.12, crowd.kill_one, after_s=1.0), within_s=600)
    said = crowd.assert_ended_once()
    assert crowd.deaths > 10
    say(f"{said}")

"""Does a run survive ``kill -9`` at every step and at every write, with each thing done as often as it may be?"""

from __future__ import annotations

import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kill_worker
import pytest
from crowd import Crowd, Often, assert_journal, forked
from kill_worker import RUN, Notes, clerk, opened

from fsm_agent.store import RunUnknown

WORKERS, RUNS = 8, 200
pytestmark = [pytest.mark.timeout(900), pytest.mark.skipif(sys.platform == "win32", reason="kill -9")]
FEW = 19  # the one of so many places at which the system part kills


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
        result = agent.runs.resume(RUN)
        whole = agent.runs.replay(RUN)
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


@pytest.mark.system
@pytest.mark.parametrize("every", [FEW, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_run_survives_a_kill_at_every_step_and_every_write(
    every: int, forks: Any, tmp_path: Path, say: Callable[[str], None]
):
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
        for at in range(1 + every // 2, points + 1, every):
            case = Case(forks, tmp_path / f"{phase} {at}")
            shutil.copytree(Path(template.path).parent, Path(case.path).parent, dirs_exist_ok=True)
            kills[phase] += not case.do(act, at)
            case.assert_kept()
            asked += case.finish()
            shutil.rmtree(Path(case.path).parent)
    assert asked > 0 or every > 1
    say(f"{kills.total()} kills ({dict(kills)}): all ended well, {asked} times a person was asked")


@pytest.mark.nightly
def test_many_workers_are_killed_and_every_run_ends_once(forks: Any, tmp_path: Path, say: Callable[[str], None]):
    address = str(tmp_path / "runs.db")
    crowd = Crowd(forks, address, tmp_path, [(address, 0.0)] * WORKERS, runs=RUNS)
    crowd.drive(Often(0.02, 0.12, crowd.kill_one, after_s=1.0), within_s=600)
    said = crowd.assert_ended_once()
    assert crowd.deaths > 10
    say(f"{said}")

"""Does the example of the support flow, killed half-way, go on the next day, with a person at the terminal?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flow_kill_worker import models
from flow_runs import given_to_agents, s

from fsm_agent.call import RunAgain
from fsm_agent.flows import AwaitAnswer, FlowSuspended
from fsm_agent.messages import Stepped
from fsm_agent.store import SqliteStore
from fsm_agent.testing import FakeClock

HOUR_S = 3600.0
TEXT = "I have paid twice for order 17."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Killed(BaseException):
    """Stands for the end of the process."""


def answer(question: AwaitAnswer) -> Any:
    return "order 17" if question.state is s.customer else s.Approve("ann")


def stored(clock: FakeClock, **changes: Any) -> Any:
    environment = {"clock": clock}
    return replace(
        s.support,
        **{"store": SqliteStore("support.db", clock.now), "environment": environment, "answer": answer, **changes},
    )


@pytest.mark.parametrize("at", range(1, 11))
def test_killed_at_a_step_it_goes_on_the_next_day(folder: Path, at: int) -> None:
    undisturbed = stored(FakeClock()).call(s.Ticket(TEXT), run_id="undisturbed", clients=models())
    Path("outbox.txt").unlink()
    clock, steps = FakeClock(), 0

    def sink(event: Any) -> None:
        nonlocal steps
        steps += isinstance(event, Stepped)
        if steps == at:
            raise Killed

    flow = stored(clock)
    with pytest.raises(Killed):
        flow.run(flow.prepare(s.Ticket(TEXT), run_id="t1", clients=models()), sink)
    clock.advance(20 * HOUR_S)
    tomorrow = stored(clock)
    try:
        result = tomorrow.call(s.Ticket(TEXT), run_id="t1", clients=models())
    except FlowSuspended as waiting:
        (doubt,) = waiting.run.effects
        assert doubt.key == "reconcile:sending#8"
        assert at in (8, 9), "at the answer, with which the start of the function is written, and at that start"
        result = tomorrow.runs.resume("t1", {doubt.key: RunAgain()})
    assert [(step.source, step.to) for step in result.trace if step.source != step.to] == [
        (step.source, step.to) for step in undisturbed.trace if step.source != step.to
    ]
    assert result.output == replace(undisturbed.output, receipt="sent as t1/sending#8")
    assert Path("outbox.txt").read_text() == "t1/sending#8\t'Refunded.'\n"


class TestTheTerminal:
    """The program itself, with models that know what to say, in place of the embedded one."""

    @pytest.fixture(autouse=True)
    def _models(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        given_to_agents(models(), monkeypatch)
        monkeypatch.setattr("sys.argv", ["support.py", TEXT])

    def typed(self, monkeypatch: pytest.MonkeyPatch, *lines: Any) -> None:
        left = iter(lines)

        def type_next(prompt: str) -> str:
            line = next(left)
            if isinstance(line, BaseException):
                raise line
            return str(line)

        monkeypatch.setattr("builtins.input", type_next)

    @pytest.mark.parametrize(("word", "count", "receipt"), [("yes", 1, "sent before it"), ("no", 2, "sent as ")])
    def test_killed_while_it_was_sent_the_person_is_asked(
        self, word: str, count: int, receipt: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.typed(monkeypatch, "order 17", "ok", "", word)
        with monkeypatch.context() as died:
            died.setattr(s.Progress, "on_stepped", dies_at("started"))
            with pytest.raises(Killed):
                s.run(TEXT)
        Path("outbox.txt").write_text(f"{TEXT}/sending#8\t'Refunded.'\n")  # it was written, and no word of it came back
        s.main()
        assert capsys.readouterr().out.endswith("It waits in sending. Start it again to continue.\n")
        s.main()
        assert receipt in capsys.readouterr().out
        assert len(Path("outbox.txt").read_text().splitlines()) == count


def dies_at(trigger: str) -> Any:
    def on_stepped(self: Any, step: Stepped) -> None:
        if step.trigger == trigger:
            raise Killed

    return on_stepped

"""Does the support flow take the same path under every driver and with every interruption?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flow_runs import DRIVERS, Driver, by_run, everywhere, given_to_agents, people, s, scripts, steps_of

from fsm_agent import Suspended
from fsm_agent.call import Cancelled, Returned
from fsm_agent.errors import OutcomeError
from fsm_agent.flows import FlowFailed
from fsm_agent.messages import Done
from fsm_agent.testing import FakeClock, Script


@pytest.fixture(autouse=True)
def outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "outbox.txt"


def flow(**changes: Any) -> Any:
    return replace(
        s.support, **{"answer": people(), "environment": {"clock": FakeClock(), "new_id": lambda: "r1"}, **changes}
    )


EXPECTED = [
    ("Seeded", "begun", "triage"),
    ("triage", "done", "research"),
    ("research", "done Unclear", "customer"),
    ("customer", "done", "research"),
    ("research", "done Known", "drafting"),
    ("drafting", "done", "judging"),
    ("judging", "done", "review"),
    ("review", "done Change", "drafting"),
    ("drafting", "done", "judging"),
    ("judging", "done", "review"),
    ("review", "done Approve", "sending"),
    ("sending", "started", "sending"),
    ("sending", "done", "sent"),
]


@pytest.mark.parametrize("driven", DRIVERS)
def test_equal_records_and_steps_on_all_drivers(driven: Driver, outbox: Path) -> None:
    one, other = flow(), flow()
    first = one.prepare(s.Ticket("I paid twice"), clients=scripts())
    driven(one, first)
    assert steps_of(first) == EXPECTED
    second = other.prepare(s.Ticket("I paid twice"), clients=scripts())
    by_run(other, second)
    assert first.record == second.record
    assert first.data.receipt == "sent as r1/sending#11"
    assert outbox.read_text() == "r1/sending#11\t'Refunded. Sorry.'\n" * 2


@everywhere
def test_the_last_event_is_one_done_or_one_suspended(driven: Driver) -> None:
    one = flow()
    events = driven(one, one.prepare(s.Ticket("x"), clients=scripts()))
    assert [type(e) for e in events if isinstance(e, Done | Suspended)] in ([Done], [])
    waiting = flow(answer=None)
    run = waiting.prepare(s.Ticket("x"), clients=scripts())
    events = driven(waiting, run)
    if events:
        assert isinstance(events[-1], Suspended)
        assert events[-1].keys == tuple(effect.key for effect in run.effects)
    assert run.state == "customer"


def test_an_answer_that_is_none_is_refused_and_changes_nothing() -> None:
    one = flow(answer=None)
    run = one.prepare(s.Ticket("x"), clients=scripts())
    by_run(one, run)
    before = run.record
    for key, outcome in [
        ("answer:customer#3", Returned(text="17")),
        ("answer:customer#3", Returned(text="not JSON")),
        ("answer:customer#2", Returned(text='"x"')),
        ("answer:review#7", Returned(text='"x"')),
        ("nonsense", Returned(text='"x"')),
        ("customer#3/x", Returned(text='"x"')),
        ("answer:customer#3", Cancelled()),
    ]:
        with pytest.raises(OutcomeError):
            run.advance(key, outcome)
        assert run.record is before
    with pytest.raises(OutcomeError, match="review"):
        run.give(s.review, s.Approve("eve"))
    run.give(s.customer, "17")
    assert run.state == "research"


def test_too_many_changes_are_a_failure_of_the_flow() -> None:
    clients = scripts()
    one = flow(answer=lambda question: "17" if question.state is s.customer else s.Change("again"))
    clients[s.draft_warmly] = Script(*['{"text": "a"}'] * 3)
    clients[s.draft_tersely] = Script(*['{"text": "b"}'] * 3)
    clients[s.judging] = Script(*['{"best": 1}'] * 3)
    with pytest.raises(FlowFailed, match="the reviewer wished for more than two changes") as failed:
        one.call(s.Ticket("x"), clients=clients)
    assert failed.value.run.state == "rejected"


def test_at_the_terminal_an_empty_line_leaves_it_for_another_day(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], outbox: Path
) -> None:
    given_to_agents(scripts(), monkeypatch)
    monkeypatch.setattr("sys.argv", ["support.py", "I", "paid", "twice"])
    typed = iter(["", "order 17", "say sorry", "ok"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    s.main()
    assert "[customer] Which order?" in capsys.readouterr().out
    s.main()
    printed = capsys.readouterr().out
    assert "[review] Refunded." in printed
    assert printed.endswith("sent: sent as I paid twice/sending#11\n")
    s.main()  # the run has ended: it says so, and sends nothing
    assert capsys.readouterr().out.endswith("sent: sent as I paid twice/sending#11\n")
    assert outbox.read_text().count("\n") == 1

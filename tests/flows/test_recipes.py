"""Do the recipes do what their pages say, and do the pages show what is there?"""

from __future__ import annotations

import runpy
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import recipe_pages as pages
from recipes import approval_chain as chain
from recipes import polling, quorum, reminder, saga, supervisor
from support.paths import ROOT

from fsm_agent import ProviderError, SqliteStore
from fsm_agent.flows import Flow
from fsm_agent.store import Runs
from fsm_agent.testing import Script, explore

everyone = pytest.mark.parametrize("name", pages.NAMES)


@everyone
def test_it_prints_what_its_page_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command is run as by a new OS process: nothing is left of the one before but files."""
    shown = pages.block("console", pages.page(name).read_text("utf-8"))
    monkeypatch.chdir(tmp_path)
    said, asked = "", pages.commands(name)
    assert len(asked) >= 1
    for command in asked:
        file, *words = shlex.split(command)[1:]
        monkeypatch.setattr("sys.argv", [file, *words])
        runpy.run_path(str(ROOT / file), run_name="__main__")
        said += f"$ {command}\n{capsys.readouterr().out}"
    assert said == shown


class TestQuorum:
    def models(self, votes: list[str]) -> dict[Any, Script]:
        members = (quorum.first, quorum.second, quorum.third)
        said = [ProviderError("it is down") if vote == "down" else f'"{vote}"' for vote in votes]
        return {member: Script(word) for member, word in zip(members, said, strict=True)}


class TestReminder:
    def flow(self, folder: Path, patience_s: float = 0) -> Flow[reminder.Invoice]:
        store = Runs(SqliteStore(folder / "runs.db"), patience_s=patience_s)
        return replace(reminder.reminder, store=store)

    def invoice(self, due_in: timedelta) -> reminder.Invoice:
        return reminder.Invoice("ann", 80, datetime.now(UTC) + due_in)


EITHER = [chain.Approve("a"), chain.Refuse("b", "c")]
VOTES = tuple(quorum.Verdict)
DUE = datetime(2026, 12, 1, tzinfo=UTC)
EXPLORED: list[tuple[Flow[Any], Any, dict[Any, Any]]] = [
    (
        saga.saga,
        saga.Trip("Rome"),
        {saga.flight: ["flight"], saga.hotel: ["hotel"], saga.payment: ["payment"], saga.undoing: [(None,)]},
    ),
    (
        quorum.quorum,
        quorum.Post("Cats can fly."),
        {
            quorum.voting: [VOTES[:1] * 2, VOTES[1:] * 2, VOTES],
            quorum.judging: [*quorum.Verdict],
        },
    ),
    (
        reminder.reminder,
        reminder.Invoice("ann", 80, DUE),
        {reminder.payment: [30, 80], reminder.overdue: [True, False], reminder.reminding: [DUE]},
    ),
    (
        polling.polling,
        polling.Job("text"),
        {polling.submitting: ["id"], polling.looking: [polling.Ready("r"), polling.Running(0.5)]},
    ),
    (
        chain.approval_chain,
        chain.Expense("a server", 20_000),
        {chain.lead: EITHER, chain.manager: EITHER, chain.director: EITHER, chain.paying: [None]},
    ),
    (
        supervisor.supervisor,
        supervisor.Team("plot"),
        {supervisor.supervising: [*supervisor.Next], supervisor.researching: ["r"], supervisor.coding: ["c"]},
    ),
]


@pytest.mark.parametrize(("flow", "start", "answers"), EXPLORED, ids=lambda value: getattr(value, "name", ""))
def test_every_row_of_one_that_is_no_port_can_be_taken(flow: Flow[Any], start: Any, answers: Any) -> None:
    missed = explore(flow, start, answers, limit=300).missed
    if flow is chain.approval_chain:  # what a small amount takes
        missed = tuple(set(missed) & set(explore(flow, replace(start, amount=500), answers).missed))
    assert missed == ()

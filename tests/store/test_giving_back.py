"""Is a run given back, and the error that ended its driver told, whatever else goes wrong at that moment?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.kept_runs import loaded

from fsm_agent.agents.agent import Agent
from fsm_agent.store.leases import HEART
from fsm_agent.store.sqlite import SqliteStore
from fsm_agent.testing import Script


class Renewing(SqliteStore):
    """A store whose leases are renewed just after they were given back."""

    def append(self, lease: Any, n: int, lines: Any, rest: Any = None, **rest_: Any) -> int:
        left = super().append(lease, n, lines, rest, **rest_)
        for recorder in list(HEART._renewed):
            recorder.renew()
        return left


def test_a_lease_that_is_renewed_when_it_was_just_given_back_is_not_lost(tmp_path: Path):
    store = Renewing(tmp_path / "runs.db")
    assert Agent(Script("fine"), store=store).call("Go.", run_id="r1").output == "fine"
    assert loaded(store).run.is_ended
    store.close()

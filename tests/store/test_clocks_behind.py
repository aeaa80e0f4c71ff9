"""Is a run in backoff left alone by a driver whose clock is behind the store's clock?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent
from fsm_agent.errors import RateLimited
from fsm_agent.store import Runs, SqliteStore, Suspension
from fsm_agent.testing import FakeClock, Script
from fsm_agent.workers import Worker

AHEAD_S = 3600.0
BACKOFF_S = 30.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of this OS process."""
    clock = FakeClock(1_800_000_000.0)
    monkeypatch.setattr(time, "time", clock.now)
    return clock


@pytest.fixture
def store(clock: FakeClock, tmp_path: Path) -> Iterator[Any]:
    """A store whose clock is ahead."""
    with closing(SqliteStore(tmp_path / "runs.db", lambda: clock.now() + AHEAD_S)) as store:
        yield store


def count_claims(store: Any) -> list[bool]:
    """Return a list that grows with each claim, by whether it found a run."""
    claims: list[bool] = []
    claim = store.claim

    def counted(*arguments: Any, **options: Any) -> Any:
        lease = claim(*arguments, **options)
        claims.append(lease is not None)
        return lease

    store.claim = counted
    return claims


def in_backoff(store: Any, clock: Any) -> Agent[Any]:
    """Return an agent of whose run the model has failed once, and whose next attempt is due in 30 s."""
    model = Script(RateLimited("busy", retry_after_s=BACKOFF_S), "Done.", clock=clock)
    agent = Agent(model, name="clerk", store=Runs(store, patience_s=1.0))
    agent.runs.submit("Tidy up.", run_id="r")
    return agent


def test_it_is_claimed_twice(store: Any, clock: FakeClock) -> None:
    """To be begun, and when it is due here."""
    agent = in_backoff(store, clock)
    worker, claims = Worker([agent], agent.runs.all, patience_s=1.0), count_claims(store)
    assert worker.run(once=True) == 1
    for _ in range(5):
        assert worker.run(once=True) == 0
    clock.advance(BACKOFF_S + 1.0)
    assert worker.run(once=True) == 1
    assert agent.runs.resume("r").output == "Done."
    assert claims.count(True) == 2


def test_who_claims_it_too_early_gives_it_back_for_as_long_as_it_waits(store: Any, clock: FakeClock) -> None:
    """For example, a worker that an engine notifies, or that does not know yet that its clock is behind."""
    agent = in_backoff(store, clock)
    worker = Worker([agent], agent.runs.all, patience_s=1.0)
    assert worker.drive("r")
    due_s = store.get("r").due_s
    assert due_s == pytest.approx(clock.now() + BACKOFF_S), "as this clock has it"
    assert store.claim("w", for_s=9.0, agents=["else"]) is None
    clock.advance(10.0)
    assert worker.drive("r")
    assert store.get("r").due_s == pytest.approx(due_s + AHEAD_S), "as the clock of the store has it"
    assert store.claim("w", for_s=9.0) is None
    clock.advance(BACKOFF_S - 10.0)
    lease = store.claim("w", for_s=9.0)
    assert lease is not None
    store.append(lease, lease.n, (), Suspension(state="Backoff", due_s=0.0))
    assert worker.drive("r")
    assert agent.runs.resume("r").output == "Done."


def test_others_whose_clocks_are_right_take_it_in_time(store: Any, clock: FakeClock) -> None:
    """A worker that knows that its clock is behind leaves them the runs that it considers not due."""
    behind = Runs(store)
    store.create("first", "{}", agent="a")
    lease = behind.claims.claim_due(["a"])
    assert lease is not None
    store.append(lease, 0, (), Suspension(state="Backoff", due_s=clock.now() + AHEAD_S - 1.0))
    assert behind.claims.claim_due(["a"]) is None
    store.create("second", "{}", agent="a")
    found = behind.claims.claim_due(["a"])
    assert found is not None
    assert found.run == "second", "what is due at once is so by each clock"
    taken = store.claim("right", for_s=60.0, agents=["a"], now_s=clock.now() + AHEAD_S)
    assert taken is not None
    assert taken.run == "first"

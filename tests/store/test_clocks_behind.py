"""Is a run in backoff left in peace by a driver whose clock is behind that of the store?"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fsm_agent import Agent
from fsm_agent.agents import Worker
from fsm_agent.errors import RateLimited
from fsm_agent.runtime import SystemClock
from fsm_agent.store import Rest, Runs, claiming
from fsm_agent.store.memory import MemoryStore
from fsm_agent.store.sqlite import SqliteStore
from fsm_agent.testing import FakeClock, Script

pytestmark = pytest.mark.system

AHEAD_S = 3600.0
BACKOFF_S = 30.0


class Clock:
    """The clock of a store; the time that has passed is that of a test, or real as well."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now, self.ahead_s = now, AHEAD_S

    def __call__(self) -> float:
        return self.now() + self.ahead_s


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: Any, tmp_path: Path) -> Iterator[Callable[[Clock], Any]]:
    stores = []

    def open_(clock: Clock) -> Any:
        stores.append(MemoryStore(clock) if request.param == "memory" else SqliteStore(tmp_path / "runs.db", clock))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


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
    agent.submit("Tidy up.", run_id="r")
    return agent


def test_by_a_clock_of_a_test_it_is_claimed_twice(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To be begun, and when it is due here."""
    clock = FakeClock(time.time())
    monkeypatch.setattr(claiming, "time", SimpleNamespace(time=clock.now))
    store = opened(Clock(clock.now))
    agent = in_backoff(store, clock)
    worker, claims = Worker([agent], agent.runs, patience_s=1.0), count_claims(store)
    assert worker.run(once=True) == 1
    for _ in range(5):
        assert worker.run(once=True) == 0
    clock.advance(BACKOFF_S + 1.0)
    assert worker.run(once=True) == 1
    assert agent.resume("r").output == "Done."
    assert claims.count(True) == 2


def test_who_claims_it_too_early_gives_it_back_for_as_long_as_it_waits(opened: Any) -> None:
    """As one does that an engine tells of it, or that does not know yet that its clock is behind."""
    clock = FakeClock(time.time())
    store = opened(Clock(clock.now))
    agent = in_backoff(store, clock)
    worker = Worker([agent], agent.runs, patience_s=1.0)
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
    store.append(lease, lease.n, (), Rest(state="Backoff", due_s=0.0))
    assert worker.drive("r")
    assert agent.resume("r").output == "Done."


@pytest.mark.nightly
@pytest.mark.parametrize("mode", [{"threads": 1}, {"tasks": 2}], ids=str)
def test_by_the_real_clock_it_is_hardly_claimed(opened: Any, mode: dict[str, Any]) -> None:
    """A worker that runs for a while waits, and looks as often as an idle one; it costs no processor time."""
    store = opened(Clock(time.time))
    agent = in_backoff(store, SystemClock())
    worker, claims = Worker([agent], agent.runs, patience_s=1.0), count_claims(store)
    used_s, began_s = time.process_time(), time.monotonic()
    stopping = threading.Timer(3.0, worker.stop)
    stopping.start()
    if "tasks" in mode:
        asyncio.run(worker.arun(**mode))
    else:
        worker.run(**mode)
    took_s = time.monotonic() - began_s
    assert claims.count(True) <= 2
    assert len(claims) <= 10 + 8 * took_s
    assert time.process_time() - used_s < 0.5 * took_s
    assert store.get("r").state == "Backoff"


def test_others_whose_clocks_are_right_take_it_in_time(opened: Any) -> None:
    """One that has learned that its clock is behind leaves to them what it does not think to be due."""
    store = opened(Clock(time.time))
    behind = Runs(store)
    store.create("first", "{}", agent="a")
    lease = behind.claim_due(["a"])
    assert lease is not None
    store.append(lease, 0, (), Rest(state="Backoff", due_s=time.time() + AHEAD_S - 1.0))
    assert behind.claim_due(["a"]) is None
    store.create("second", "{}", agent="a")
    found = behind.claim_due(["a"])
    assert found is not None
    assert found.run == "second", "what is due at once is so by each clock"
    taken = store.claim("right", for_s=60.0, agents=["a"], now_s=time.time() + AHEAD_S)
    assert taken is not None
    assert taken.run == "first"

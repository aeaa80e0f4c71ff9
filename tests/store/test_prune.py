"""Does retention delete what it promises, and no run in progress?"""

from __future__ import annotations

import pytest
from support import shop_agent as shop

from fsm_agent import CallSuspended, UsageError
from fsm_agent.call import Approved
from fsm_agent.store import MemoryStore, Runs, Suspension


@pytest.fixture
def runs():
    """Three runs that ended one after the other, a second apart, and one that waits."""
    now_s = [1000.0]
    runs = Runs(MemoryStore(clock=lambda: now_s[0]))
    agent = shop.shop(store=runs)
    for name in ("one", "two", "three", "waiting"):
        now_s[0] += 1
        with pytest.raises(CallSuspended):
            agent.call("Refund order A-17.", run_id=name)
        if name != "waiting":
            agent.runs.resume(name, {"ask:3.0": Approved()})
    return runs


def names(runs):
    return [run.id for run in runs.store.list()]


def test_those_beyond_the_newest_go_the_oldest_first(runs):
    assert [run.id for run in runs.prune(keep=0, is_dry=True)] == ["one", "two", "three"]
    assert [run.id for run in runs.prune(keep=1)] == ["one", "two"]
    assert names(runs) == ["waiting", "three"]
    assert [run.id for run in runs.prune(keep=0)] == ["three"]
    assert runs.prune(keep=0) == []


def test_those_go_that_ended_too_long_ago_or_are_too_many(runs):
    assert [run.id for run in runs.prune(max_age_s=2, now_s=1004.5, is_dry=True)] == ["one", "two"]
    assert [run.id for run in runs.prune(max_age_s=3, keep=1, now_s=1004.5)] == ["one", "two"]


def test_one_that_somebody_has_is_left(runs):
    assert runs.store.claim("me", for_s=60, run="one") is not None
    assert [run.id for run in runs.prune(keep=0)] == ["two", "three"]


def test_one_that_was_retried_since_it_was_listed_is_left(runs):
    """It waits for a driver, so it has no holder."""
    store, listed = runs.store, runs.store.list

    def lists(**which):
        page = listed(**which)
        lease = store.claim("who retries", for_s=60, run="one")
        store.append(lease, lease.n, (), Suspension(state="Retried", due_s=0.0))
        return page

    store.list = lists
    assert [run.id for run in runs.prune(keep=0)] == ["two", "three"]
    assert not store.get("one").is_ended


@pytest.mark.parametrize(
    ("options", "said"), [({}, "prune"), ({"keep": -1}, "keep"), ({"max_age_s": float("nan")}, "max_age_s")]
)
def test_limits_that_make_no_sense(runs, options, said):
    with pytest.raises(UsageError, match=said):
        runs.prune(**options)
    assert len(names(runs)) == 4

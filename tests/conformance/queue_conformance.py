"""The part of the suite of stores that is about runs that are put in: when they start, and how many may wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from conformance import storages
from conformance.storages import ENDED, LONG_S, Storage, StoreTests, begun, claimed, waiting
from fsm_agent.errors import UsageError
from fsm_agent.store import Lease, RunUnknown, Start, Store

MAX_PRIORITY = 100


class QueueConformance(StoreTests):
    """Checks of `Start`: due times, priorities, runs that come after others, and full queues."""

    def test_a_run_starts_at_its_time(self, storage: Storage) -> None:
        """Not before, and without a rest that says so."""
        store, other, due_s = storage.store, storage.another(), storage.now_s + 50
        assert put_in(store, "r", due_s=due_s) is True
        row = other.load("r").run
        assert (row.due_s, row.holder, row.state, row.is_ended, row.n) == (due_s, None, "", False, 0)
        assert store.claim("w", for_s=9) is None
        assert other.claim("w", for_s=9, now_s=due_s - 0.1) is None
        lease = other.claim("w", for_s=9, now_s=due_s)
        assert lease is not None
        assert (lease.run, lease.fence, lease.n, lease.tries) == ("r", 1, 0, 1)
        put_in(store, "soon", due_s=storage.now_s + storage.short_s)
        storage.elapse(storage.short_s * 1.5)
        assert first_due(other) == "soon"
        for name, at_once_s in (("zero", 0.0), ("less", -7.5)):
            put_in(store, name, due_s=at_once_s)
            assert other.load(name).run.due_s == 0.0
            assert first_due(other) == name

    def test_no_post_starts_a_run(self, storage: Storage) -> None:
        """It waits for its holder; a claim by name starts the run, which is like any other from then on."""
        store, other, due_s = storage.store, storage.another(), storage.now_s + 500
        begun(store, "before")
        put_in(store, "timed", due_s=due_s)
        put_in(store, "after", after=("before",))
        for run, due in (("timed", due_s), ("after", None)):
            other.signal(run, "", "body")
            assert (other.load(run).run.due_s, store.claim("v", for_s=LONG_S)) == (due, None)
            lease = claimed(other, run)
            assert [post.body for post in store.load(run).signals] == ["body"]
            assert store.append(lease, 0, (), waiting()) == 1
            assert (store.load(run).run.due_s, first_due(other)) == (0.0, run)

    def test_the_highest_priority_is_claimed_first(self, storage: Storage) -> None:
        """Of those that are due and of those agents; of one priority, what has been due longest."""
        store, other = storage.store, storage.another()
        numbers = {"low": -3, "first": 0, "high": 7, "second": 0, "highest": MAX_PRIORITY, "lowest": -MAX_PRIORITY}
        for number, (name, priority) in enumerate(numbers.items()):
            put_in(store, name, agent="ab"[number % 2], priority=priority)
            storage.elapse(0.01)
        put_in(store, "not yet", priority=MAX_PRIORITY, due_s=storage.now_s + 500)
        put_in(store, "long ago", priority=-1, due_s=storage.now_s - 500)
        assert {run.id: run.priority for run in store.list(agent="a")} == {
            "low": -3, "high": 7, "highest": MAX_PRIORITY, "not yet": MAX_PRIORITY, "long ago": -1
        }  # fmt: skip
        assert first_due(other, "b") == "first"
        found = [first_due(each) for each in (store, other) * 3]
        assert found == ["highest", "high", "second", "long ago", "low", "lowest"]
        assert store.claim("w", for_s=LONG_S) is None

    def test_a_run_keeps_its_priority(self, storage: Storage) -> None:
        """After a rest, a post, a due time, and the end of a lease."""
        store, other = storage.store, storage.another()
        for name in ("plain", "rested", "posted", "timed", "lost"):
            put_in(store, name, priority=0 if name == "plain" else 1)
        store.append(claimed(store, "rested"), 0, ["one"], waiting(due_s=0.0))
        store.append(claimed(store, "posted"), 0, ["one"], waiting("k"))
        store.append(claimed(store, "timed"), 0, ["one"], waiting(due_s=storage.now_s + storage.short_s))
        claimed(store, "lost", for_s=storage.short_s)
        other.signal("posted", "k", "body")
        storage.elapse(storage.short_s * 1.5)
        found = [first_due(other) for _ in range(5)]
        assert sorted(found[:4]) == ["lost", "posted", "rested", "timed"]
        assert found[4] == "plain"

    def test_a_run_starts_after_others(self, storage: Storage) -> None:
        """When each of them has ended or is gone, and not before its own time.  Runs that had ended already do not
        count.
        """
        store, other = storage.store, storage.another()
        leases = [begun(store, name) for name in ("one", "two", "old")]
        store.append(leases[2], 0, ["line"], ENDED)
        put_in(store, "r", after=("one", "two", "one", "old"))
        put_in(store, "both", after=("two",), due_s=storage.now_s + 500)
        put_in(store, "free", after=("old",))
        assert [other.load(run).run.due_s for run in ("r", "both", "free")] == [None, None, 0.0]
        assert first_due(other) == "free"
        store.append(leases[0], 0, ["line"], waiting("k"))
        lease = claimed(other, "one")
        other.append(lease, 1, ["line"], ENDED)
        assert other.append(lease, 1, ["line"], ENDED) == 0, "a repeated rest"
        assert (other.load("r").run.due_s, store.claim("w", for_s=9)) == (None, None)
        store.append(leases[1], 0, ["line"], waiting())
        assert store.load("r").run.due_s is None
        other.delete("two")
        assert store.load("r").run.due_s == 0.0
        assert store.load("both").run.due_s == pytest.approx(storage.now_s + 500, abs=60)
        assert first_due(other) == "r"
        assert store.claim("w", for_s=9) is None

    def test_a_run_that_others_come_after_may_start_by_name(self, storage: Storage) -> None:
        """The end of the runs before it then changes nothing, nor does the end of a run that was deleted and created
        again.
        """
        store, other = storage.store, storage.another()
        before = begun(store, "before")
        for name in ("held", "resting", "timed", "gone"):
            put_in(store, name, after=("before",))
        lease = claimed(other, "held")
        other.append(claimed(other, "resting"), 0, ["one"], waiting("k"))
        other.append(claimed(other, "timed"), 0, ["one"], waiting(due_s=1e11))
        assert store.load("timed").run.due_s == 1e11
        store.delete("gone")
        put_in(store, "gone", due_s=storage.now_s + 500)
        store.append(before, 0, ["line"], ENDED)
        assert store.claim("v", for_s=9) is None
        assert [store.load(run).run.due_s for run in ("resting", "timed")] == [None, 1e11]
        assert other.append(lease, 0, ["one"], ENDED) == 0

    def test_a_run_comes_after_known_ones(self, storage: Storage) -> None:
        """An unknown one is named, and so is the run itself; nothing is written."""
        store = storage.store
        begun(store, "known")
        for unknown in ("nobody", "r"):
            with pytest.raises(RunUnknown, match=repr(unknown)):
                put_in(store, "r", after=("known", unknown))
        assert [run.id for run in storage.another().list()] == ["known"]
        assert put_in(store, "r", after=("known",)) is True
        store.delete("r")

    @pytest.mark.parametrize("first", ["end", "create"])
    def test_an_end_and_a_run_after_it_take_turns(self, storage: Storage, first: str) -> None:
        """Whichever is first, the run is due."""
        store, other = storage.store, storage.another()
        lease = begun(store, "before")
        actions: list[Callable[[], object]] = [
            partial(other.append, lease, 0, ["line"], ENDED),
            partial(put_in, store, "r", after=("before",)),
        ]
        if first == "create":
            actions.reverse()
        outcomes = storage.interleaved(*actions)
        assert sorted(outcomes, key=repr) == [0, True], outcomes
        assert store.load("r").run.due_s == 0.0, "it was not told of the end"
        assert first_due(other) == "r"

    def test_of_two_that_end_at_once_one_starts_the_next(self, storage: Storage) -> None:
        """Each sees the other."""
        store, other = storage.store, storage.another()
        leases = [begun(store, name) for name in ("one", "two")]
        put_in(store, "r", after=("one", "two"))
        outcomes = storage.interleaved(
            lambda: store.append(leases[0], 0, ["line"], ENDED), lambda: other.append(leases[1], 0, ["line"], ENDED)
        )
        assert outcomes == [0, 0]
        assert first_due(store) == "r"

    def test_a_start_is_kept_as_it_was(self, storage: Storage) -> None:
        """Creating the run again changes nothing."""
        store, due_s = storage.store, storage.now_s + 500
        put_in(store, "r", due_s=due_s, priority=2)
        before = store.load("r")
        assert put_in(storage.another(), "r", priority=9, after=("nobody",)) is False
        assert store.load("r") == before
        assert store.claim("w", for_s=9) is None

    def test_a_wrong_start_is_refused(self, storage: Storage) -> None:
        """It names the value; nothing is written."""
        store = storage.store
        wrong: dict[str, list[Any]] = {
            "priority": [MAX_PRIORITY + 1, -MAX_PRIORITY - 1, True, 0.5],
            "due_s": [float("nan"), float("inf")],
            "after": ["r", ("\ud800",)],
        }
        for name, values in wrong.items():
            for value in values:
                with pytest.raises(UsageError):
                    store.create("r", "header", agent="a", start=Start(**{name: value}))
        with pytest.raises(UsageError, match="start"):
            store.create("r", "header", agent="a", holder="w", for_s=LONG_S, start=Start())
        assert store.list() == []

    def test_wait_hears_of_a_start(self, storage: Storage) -> None:
        """Of one that comes after the end of another run, and of one whose time comes."""
        store = storage.store
        for number, waiter in enumerate((store, storage.another())):
            lease = begun(store, f"before {number}")
            put_in(store, f"after {number}", after=(f"before {number}",))
            assert waiter.claim("w", for_s=LONG_S) is None
            ended = threading.Timer(0.05, store.append, (lease, 0, ["line"], ENDED))
            ended.start()
            wait_for(waiter, f"after {number}")
            ended.join()
        if not self.takes_clock:
            put_in(store, "timed", due_s=storage.now_s + storage.short_s)
            wait_for(storage.another(), "timed")


def put_in(
    store: Store, run: str, *, agent: str = "a", due_s: float = 0.0, after: tuple[str, ...] = (), priority: int = 0
) -> Lease | bool:
    """Create a run that starts in this way."""
    start = Start(due_s=due_s, after=after, priority=priority)
    return store.create(run, "header", agent=agent, start=start)


def first_due(store: Store, *agents: str) -> str:
    """Return the name of the run that a worker of these agents claims."""
    lease = store.claim("w", for_s=LONG_S, agents=agents)
    assert lease is not None, "no run is due: one is right"
    return lease.run


def wait_for(store: Store, run: str) -> None:
    """Claim a run as a worker does, which waits in between."""
    started_s = time.monotonic()
    while (lease := store.claim("w", for_s=LONG_S)) is None:
        store.wait(storages.PATIENCE_S)
        assert time.monotonic() - started_s < storages.PATIENCE_S, f"wait did not hear that {run!r} is due"
    assert lease.run == run

"""The half of the suite of stores that is about who may drive a run, and when: leases, due times, the queue."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from conformance import storages
from conformance.storages import ENDED, LONG_S, Storage, StoreTests, begun, claimed, outcome, renew, together, waiting
from fsm_agent.errors import UsageError
from fsm_agent.store import Lease, LeaseLost, NotAsked, RunBusy, RunUnknown, Store, Suspension


class LeaseConformance(StoreTests):
    """Checks of leases, and of the store as a queue."""

    def test_a_claim_gives_a_lease(self, storage: Storage) -> None:
        """The lease has everything that its holder needs, for a claim by name and for a claim of due runs."""
        for name in ("named", "due"):
            storage.store.create(name, "header", agent=f"agent of {name}")
        for run in ("named", None):
            lease = storage.store.claim("w", for_s=30, run=run)
            assert lease is not None
            assert (lease.run, lease.agent) == (run or "due", f"agent of {run or 'due'}")
            assert (lease.holder, lease.fence, lease.n, lease.tries) == ("w", 1, 0, 1)
            assert storage.is_now(lease.since_s)
            assert lease.until_s == pytest.approx(lease.since_s + 30)
            row = storage.another().load(lease.run).run
            assert (row.holder, row.due_s) == ("w", 0.0)
        assert storage.store.claim("w", for_s=30) is None

    def test_a_run_is_begun_with_a_lease(self, storage: Storage) -> None:
        """Like the lease of a claim.  An existing run gives none."""
        store, other = storage.store, storage.another()
        lease = store.create("r", "header", agent="a", holder="w", for_s=LONG_S)
        assert isinstance(lease, Lease), f"create(…, holder='w') returned {lease!r}"
        assert (lease.run, lease.agent, lease.holder) == ("r", "a", "w")
        assert (lease.fence, lease.n, lease.tries) == (1, 0, 1)
        assert storage.is_now(lease.since_s)
        assert lease.until_s == pytest.approx(lease.since_s + LONG_S)
        assert other.claim("v", for_s=LONG_S) is None
        with pytest.raises(RunBusy, match="'w'"):
            other.claim("v", for_s=LONG_S, run="r")
        assert other.create("r", "header", agent="a", holder="v", for_s=LONG_S) is False
        assert store.append(lease, 0, ["one"], waiting("k")) == 0
        assert other.create("r", "header", agent="a", holder="v", for_s=LONG_S) is False
        assert other.load("r").run.holder is None
        store.create("s", "header", agent="a", holder="w", for_s=storage.short_s)
        storage.elapse(storage.short_s * 1.5)
        assert claimed_due(other).fence == 2, "a run is due when the lease that it was begun with is over"

    def test_a_run_is_begun_and_claimed_in_one(self, storage: Storage) -> None:
        """Neither a worker that looks for due runs nor a claim by name can come first."""
        other = storage.another()
        for run in (None, "r"):
            lease, found = storage.interleaved(
                lambda: storage.store.create("r", "header", agent="a", holder="w", for_s=LONG_S),
                partial(other.claim, "v", for_s=LONG_S, run=run),
            )
            assert isinstance(lease, Lease), f"create(…, holder='w') beside a claim by 'v' came to {lease!r}"
            assert found is None or isinstance(found, RunBusy | RunUnknown), found
            storage.store.append(lease, 0, (), ENDED)
            storage.store.delete("r")

    @pytest.mark.parametrize("holder", ["v", "w"])
    def test_a_run_is_held_by_one(self, storage: Storage, holder: str) -> None:
        """A second claim by the holder fails like any other, and says who holds the run and until when."""
        lease = begun(storage.store)
        for store in (storage.store, storage.another()):
            with pytest.raises(RunBusy) as busy:
                store.claim(holder, for_s=LONG_S, run="r")
            error = busy.value
            assert (error.run, error.holder, error.since_s, error.until_s) == ("r", "w", lease.since_s, lease.until_s)
            assert store.claim(holder, for_s=LONG_S) is None
        assert storage.store.append(lease, 0, ["one"]) == 0

    def test_each_claim_raises_the_fence(self, storage: Storage) -> None:
        """After a giving-back as after the end of a lease, and by the same holder."""
        fences = []
        storage.store.create("r", "header", agent="a")
        for turn in range(6):
            store = (storage.store, storage.another())[turn % 2]
            lease = claimed(store, for_s=storage.short_s)
            fences.append(lease.fence)
            if turn % 3:
                store.append(lease, lease.n, [str(turn)], waiting())
            else:
                storage.elapse(storage.short_s * 1.5)
        assert fences == [1, 2, 3, 4, 5, 6]

    def test_a_lease_that_is_over_is_taken(self, storage: Storage) -> None:
        """At its end, not before; the one who had it finds out, and writes nothing."""
        store, other, old = storage.store, storage.another(), begun(storage.store, for_s=storage.short_s)
        store.append(old, 0, ["one"])
        storage.elapse(storage.short_s)
        new = other.claim("v", for_s=LONG_S)
        assert new is not None
        assert (new.run, new.holder, new.fence, new.n) == ("r", "v", old.fence + 1, 1)
        before = store.load("r")
        with pytest.raises(LeaseLost, match="'r'"):
            store.append(old, 1, ["two"], ENDED, snapshot=b"1")
        with pytest.raises(LeaseLost, match="'r'"):
            store.append(old, 1, [], waiting("k"))
        with pytest.raises(LeaseLost, match="'r'"):
            renew(store, old, for_s=LONG_S)
        assert store.load("r") == before
        other.append(new, 1, ["two"])
        assert store.load("r").lines == ("one", "two")

    def test_a_lease_that_nobody_takes_goes_on(self, storage: Storage) -> None:
        """Time never decides."""
        lease = begun(storage.store, for_s=storage.short_s)
        storage.elapse(storage.short_s * 1.5)
        assert storage.another().load("r").run.holder is None
        storage.store.append(lease, 0, ["one"])
        renew(storage.store, lease, for_s=LONG_S)
        assert storage.another().load("r").run.holder == "w"
        assert storage.another().claim("v", for_s=9) is None
        storage.store.append(lease, 1, ["two"], waiting())
        assert storage.store.load("r").lines == ("one", "two")

    def test_a_lease_that_was_given_back_is_over(self, storage: Storage) -> None:
        """For its holder too."""
        lease = begun(storage.store)
        storage.store.append(lease, 0, ["one"], Suspension(state="Calling", due_s=0.0))
        before = storage.store.load("r")
        assert (before.run.holder, before.run.state, before.run.due_s) == (None, "Calling", 0.0)
        with pytest.raises(LeaseLost):
            storage.store.append(lease, 1, ["two"])
        with pytest.raises(LeaseLost):
            renew(storage.store, lease, for_s=9)
        assert storage.store.load("r") == before
        assert claimed(storage.another()).fence == lease.fence + 1

    def test_a_renewal_counts_from_now(self, storage: Storage) -> None:
        """It says how many posts wait, as an append does."""
        lease = begun(storage.store, for_s=60)
        storage.elapse(storage.short_s)
        assert renew(storage.store, lease, for_s=30) == 0
        with pytest.raises(RunBusy) as busy:
            storage.another().claim("v", for_s=9, run="r")
        assert busy.value.since_s == lease.since_s
        assert storage.is_now(busy.value.until_s - 30)
        storage.another().signal("r", "", "body")
        assert renew(storage.store, lease, for_s=storage.short_s) == 1
        storage.elapse(storage.short_s * 1.5)
        assert claimed(storage.another(), holder="v").holder == "v"

    def test_a_lease_that_ended_unnoticed_and_is_renewed_is_held_again(self, storage: Storage) -> None:
        """And over again at its new end, from which its run is due; also one that was renewed for less."""
        store, lease = storage.store, begun(storage.store, for_s=storage.short_s)
        storage.elapse(storage.short_s * 1.5)
        assert store.claim("v", for_s=9, agents=["none"]) is None  # which sees that the lease is over
        renew(store, lease, for_s=LONG_S)
        assert store.claim("v", for_s=9) is None
        renew(store, lease, for_s=storage.short_s)
        store.create("before", "header", agent="a")
        storage.elapse(storage.short_s * 1.5)
        assert [claimed_due(store).run for _ in range(2)] == ["before", "r"]

    def test_a_run_that_is_due_keeps_its_place_when_it_is_posted_to(self, storage: Storage) -> None:
        """One that waits for a worker, and is cancelled, came after all that were put in before the cancellation."""
        store = storage.store
        for run in ("first", "second"):
            store.create(run, "header", agent="a")
            storage.elapse(0.01)
        store.signal("first", "", "cancel")
        assert [claimed_due(store).run for _ in range(2)] == ["first", "second"]

    @pytest.mark.parametrize("for_s", [float("inf"), float("nan"), "9"])
    def test_a_lease_for_no_finite_time_is_refused(self, storage: Storage, for_s: Any) -> None:
        """Nothing is written."""
        lease = begun(storage.store, for_s=0.0)
        for use in (
            lambda: storage.store.claim("w", for_s=for_s, run="r"),
            lambda: renew(storage.store, lease, for_s=for_s),
        ):
            with pytest.raises(UsageError, match="for_s"):
                use()
        assert claimed(storage.store).fence == 2

    def test_a_lease_that_lasts_beyond_the_calendar_is_told_of(self, storage: Storage) -> None:
        begun(storage.store, for_s=1e12)
        with pytest.raises(RunBusy, match=r"e\+12"):
            storage.store.claim("v", for_s=9, run="r")

    def test_many_leases_are_renewed_together(self, storage: Storage) -> None:
        """Each as if it were alone: lost leases are reported in their places, and the others are extended."""
        store, other = storage.store, storage.another()
        leases = [begun(store, name, for_s=storage.short_s) for name in ("a", "b\0", "c", "d", "e")]
        other.signal("b\0", "", "body")
        store.append(leases[2], 0, ["one"], waiting("k"))
        assert store.pending_signals(["a", "b\0", "c", "none"]) == {"b\0"}
        assert store.pending_signals([]) == set()
        assert store.renew_all([], for_s=LONG_S) == []
        storage.elapse(storage.short_s * 1.5)
        taken = other.claim("v", for_s=LONG_S, run="d")
        assert taken is not None
        renewed = [*reversed(store.renew_all([*reversed(leases)], for_s=LONG_S))]
        assert renewed[:2] == [0, 1]
        assert [type(result) for result in renewed[2:]] == [LeaseLost, LeaseLost, int]
        assert "'d'" in str(renewed[3])
        storage.elapse(storage.short_s * 1.5)
        assert {run.id for run in other.list() if run.holder == "w"} == {"a", "b\0", "e"}
        assert other.load("d").run.holder == "v"

    def test_a_claim_may_choose_by_fingerprint(self, storage: Storage) -> None:
        """This includes runs whose leases have expired.  A claim by name ignores the choice."""
        store, other = storage.store, storage.another()
        for number, fingerprint in enumerate(["x1", "x2", "x2"]):
            store.create(f"r{number}", f'{{"fingerprint":"{fingerprint}"}}', agent="a")
        store.create("plain", "header", agent="a")
        assert other.claim("v", for_s=9, fingerprints=["x3"]) is None
        assert other.claim("v", for_s=9, fingerprints=[]) is None
        first = other.claim("v", for_s=storage.short_s, fingerprints=["x3", "x2"])
        assert first is not None
        assert first.run == "r1"
        storage.elapse(storage.short_s * 1.5)
        taken = [other.claim("v", for_s=LONG_S, fingerprints=chosen) for chosen in (["x2"], ["x2"], ["x2"], [""], None)]
        assert [lease and lease.run for lease in taken] == ["r2", "r1", None, "plain", "r0"]

    def test_a_run_is_due_at_the_time_of_its_rest(self, storage: Storage) -> None:
        """The time is the caller's, or now."""
        store, due_s = storage.store, storage.now_s + 50
        store.append(begun(store), 0, ["one"], waiting(due_s=due_s))
        assert store.load("r").run.due_s == due_s
        assert store.claim("w", for_s=9) is None
        assert store.claim("w", for_s=9, now_s=due_s - 0.1) is None
        lease = storage.another().claim("w", for_s=9, now_s=due_s)
        assert lease is not None
        store.append(lease, 1, ["two"], waiting(due_s=storage.now_s + storage.short_s))
        storage.elapse(storage.short_s * 1.5)
        assert claimed_due(storage.another()).run == "r"

    def test_what_has_been_due_longest_is_claimed_first(self, storage: Storage) -> None:
        """Of those agents that were asked for."""
        now_s = storage.now_s
        storage.store.create("new", "header", agent="x")
        for name, ago_s in (("b", 20), ("d", 40), ("a", 10), ("c", 30)):
            agent = "a" if name in "ab" else "c"
            storage.store.append(begun(storage.store, name, agent=agent), 0, ["one"], waiting(due_s=now_s - ago_s))
        assert storage.store.claim("w", for_s=9, agents=["y"]) is None
        order = [claimed_due(storage.another(), agents=["y", "a"]).run]
        order += [claimed_due(store).run for store in (storage.store, storage.another(), storage.store, storage.store)]
        assert order == ["b", "d", "c", "a", "new"]
        assert storage.store.claim("w", for_s=9) is None

    def test_nobody_waits_for_ever(self, storage: Storage) -> None:
        """A run that is due at once counts from its creation or from a post, so it overtakes no other run."""
        store = storage.store
        store.append(begun(store, "timer"), 0, ["one"], waiting(due_s=storage.now_s + 1))
        store.append(begun(store, "posted"), 0, ["one"], waiting("k"))
        for name in ("z", "y"):
            store.create(name, "header", agent="a")
            storage.elapse(0.01)
        store.signal("posted", "k", "yes")
        assert claimed_due(storage.another()).run == "z"
        assert claimed_due(storage.another()).run == "y"
        now_s = storage.now_s + 2
        storage.elapse(0.01)
        store.create("x", "header", agent="a")
        left = [storage.another().claim("w", for_s=LONG_S, now_s=now_s) for _ in range(3)]
        found = [lease.run for lease in left if lease is not None]
        assert sorted(found) == ["posted", "timer", "x"]
        assert found.index("posted") < found.index("x")

    def test_a_run_that_was_not_given_back_is_due(self, storage: Storage) -> None:
        """So after the death of its holder, another holder can claim it, whatever the last rest said."""
        store = storage.store
        store.append(begun(store), 0, ["one"], waiting("k", due_s=storage.now_s + 500))
        lease = claimed(store, for_s=storage.short_s)
        store.append(lease, 1, ["two"])
        for holder in ("w", None):
            row = storage.another().load("r").run
            assert (row.holder, row.due_s, row.state) == (holder, 0.0, "ToolInterrupt")
            storage.elapse(storage.short_s * 1.5)
        assert claimed_due(storage.another()).fence == lease.fence + 1

    def test_an_ended_run_is_never_due(self, storage: Storage) -> None:
        """Not even with unread posts; and it takes no further post."""
        store, lease = storage.store, begun(storage.store)
        store.signal("r", "", "body")
        store.append(lease, 0, ["one"], ENDED)
        row = storage.another().load("r").run
        assert (row.is_ended, row.due_s, row.state) == (True, None, "Completed")
        assert store.claim("w", for_s=9, now_s=storage.now_s + 1e9) is None
        for key in ("", "k"):
            with pytest.raises(NotAsked, match="'r'"):
                store.signal("r", key, "late")
        assert [post.body for post in store.load("r").signals] == ["body"]
        assert store.list(due_before=storage.now_s + 1e9) == []

    def test_tries_are_the_claims_since_the_last_entry(self, storage: Storage) -> None:
        """A run whose holders die is found by them."""
        store, tries = storage.store, []
        store.create("r", "header", agent="a")
        for _ in range(3):
            lease = claimed_due(storage.another(), for_s=storage.short_s)
            tries.append(lease.tries)
            storage.elapse(storage.short_s * 1.5)
        store.append(lease, 0, [], Suspension(state="Calling", due_s=0.0))
        lease = claimed_due(store, for_s=storage.short_s)
        store.append(lease, 0, ["one"])
        storage.elapse(storage.short_s * 1.5)
        assert [*tries, lease.tries, claimed_due(store).tries] == [1, 2, 3, 4, 1]

    def test_a_rest_that_is_not_due_at_once_resets_tries(self, storage: Storage) -> None:
        """A holder that releases the run for later, or to people, has not failed."""
        store = storage.store
        store.create("r", "header", agent="a")
        rests = [waiting("k"), waiting(due_s=storage.now_s + 500), waiting(due_s=0.0), waiting(due_s=-1.0), waiting()]
        tries = []
        for rest in rests:
            lease = claimed(store, for_s=storage.short_s)
            storage.elapse(storage.short_s * 1.5)
            lease = claimed(storage.another())
            tries.append(lease.tries)
            store.append(lease, 0, [], rest)
        assert tries == [2, 2, 2, 4, 6]
        assert claimed(store).tries == 1

    def test_an_ended_run_can_be_claimed_by_its_name(self, storage: Storage) -> None:
        """It stays unchanged: it is never due, reads no posts, and is released like any other."""
        store = storage.store
        store.append(begun(store), 0, ["one"], ENDED)
        lease = claimed(storage.another(), for_s=storage.short_s)
        assert (lease.fence, lease.n) == (2, 1)
        row = store.load("r").run
        assert (row.is_ended, row.due_s, row.holder, row.state) == (True, None, "w", "Completed")
        with pytest.raises(NotAsked, match="'r'"):
            store.signal("r", "", "late")
        with pytest.raises(RunBusy):
            store.delete("r")
        storage.elapse(storage.short_s * 1.5)
        assert store.claim("v", for_s=9, now_s=storage.now_s + 1e9) is None, "a lease that is over made it due"
        store.append(lease, 1, (), ENDED)
        assert (store.load("r").run.holder, store.load("r").lines) == (None, ("one",))

    @pytest.mark.nightly
    def test_many_who_claim_have_a_run_each(self, storage: Storage) -> None:
        """Eight claimers and twenty runs: each run is claimed once, and no claimer stops while runs are left."""
        runs = [f"r{i}" for i in range(20)]
        for run in runs:
            storage.store.create(run, "header", agent="a")

        def claim_all(store: Store, holder: str) -> list[Lease]:
            leases = []
            while (lease := store.claim(holder, for_s=LONG_S)) is not None:
                leases.append(lease)
            return leases

        stores = [storage.store, storage.another()] * 4
        outcomes = together(*[partial(claim_all, store, f"w{i}") for i, store in enumerate(stores)])
        leases = [lease for found in outcomes for lease in found]
        assert sorted(lease.run for lease in leases) == sorted(runs)
        assert {lease.fence for lease in leases} == {1}

    @pytest.mark.parametrize("run", ["r", None])
    def test_a_run_is_looked_at_and_claimed_in_one(self, storage: Storage, run: str | None) -> None:
        """Another claim cannot come between."""
        other = storage.another()
        storage.store.create("r", "header", agent="a")
        outcomes = storage.interleaved(
            lambda: storage.store.claim("w", for_s=LONG_S, run=run), lambda: other.claim("v", for_s=LONG_S, run=run)
        )
        leases = [lease for lease in outcomes if isinstance(lease, Lease)]
        assert [lease.fence for lease in leases] == [1], outcomes
        assert storage.store.load("r").run.holder == leases[0].holder

    def test_an_append_compares_and_writes_in_one(self, storage: Storage) -> None:
        """A claim that comes between has to wait, or outdates it."""
        other, old = storage.another(), begun(storage.store, for_s=0.0)
        append, new = storage.interleaved(
            lambda: storage.store.append(old, 0, ["old"]), lambda: other.claim("v", for_s=LONG_S, run="r")
        )
        assert isinstance(new, Lease)
        if isinstance(append, LeaseLost):
            assert (new.n, storage.store.load("r").lines) == (0, ())
        else:
            assert (new.n, storage.store.load("r").lines) == (1, ("old",))
        other.append(new, new.n, ["new"])

    @pytest.mark.nightly
    def test_two_holders_never_mix(self, storage: Storage) -> None:
        """Leases without length: each append is one's own, or refused."""
        stores = [storage.store, storage.another()] * 2
        storage.store.create("r", "header", agent="a")

        def drive(store: Store, holder: str) -> list[str]:
            written = []
            for turn in range(10):
                lease = outcome(partial(claimed, store, holder=holder, for_s=0.0))
                line = f"{lease.fence} {holder} {turn}" if isinstance(lease, Lease) else ""
                if line and not isinstance(outcome(partial(store.append, lease, lease.n, [line])), LeaseLost):
                    written.append(line)
            return written

        outcomes = together(*[partial(drive, store, f"w{i}") for i, store in enumerate(stores)])
        lines = storage.store.load("r").lines
        assert sorted(lines) == sorted(line for written in outcomes for line in written)
        fences = [int(line.partition(" ")[0]) for line in lines]
        assert fences == sorted(fences), "a fence has fallen"

    def test_wait_hears_of_a_new_run_and_of_a_post(self, storage: Storage) -> None:
        """Of one that came by another store, too."""
        numbers = iter(range(10**6))
        storage.store.append(begun(storage.store), 0, ["one"], waiting("k"))
        for store in (storage.store, storage.another()):
            check_heard(store, lambda: storage.store.create(str(next(numbers)), "header", agent="a"))
            check_heard(store, lambda: storage.store.signal("r", "", "body"))

    def test_a_rest_is_heard(self, storage: Storage) -> None:
        """For a run that ends, and for one that waits for a person.  No rest since the previous call is missed."""
        names, rests = map(str, range(10**6)), itertools.cycle([ENDED, waiting("k")])
        for store in (storage.store, storage.another()):
            seen = store.wait_for_rest(-1, LONG_S)
            check_heard(
                store,
                lambda: storage.store.append(begun(storage.store, next(names)), 0, ["one"], next(rests)),
                lambda store, timeout_s: store.wait_for_rest(store.wait_for_rest(-1, 0.0), timeout_s),
            )
            assert store.wait_for_rest(seen, LONG_S) != seen
        storage.store.wait_for_rest(storage.store.wait_for_rest(-1, 0.0), 0.01)  # it ends at its time, too
        storage.store.wait(0.01)


def claimed_due(store: Store, *, agents: list[str] | None = None, for_s: float = LONG_S) -> Lease:
    """Return the lease of a run that is due."""
    lease = store.claim("w", for_s=for_s, agents=agents or ())
    assert lease is not None, "no run is due: one is right"
    return lease


def check_heard(
    store: Store, happen: Callable[[], object], hear: Callable[[Store, float], object] = lambda store, s: store.wait(s)
) -> None:
    """Check that a wait ends when something happens; it happens again and again, as the wait may not have begun."""
    patience_s = storages.PATIENCE_S
    thread = threading.Thread(target=hear, args=(store, 2 * patience_s), daemon=True)
    thread.start()
    end_s = time.monotonic() + patience_s
    while thread.is_alive() and time.monotonic() < end_s:
        happen()
        thread.join(0.01)
    assert not thread.is_alive(), "wait did not hear of it"

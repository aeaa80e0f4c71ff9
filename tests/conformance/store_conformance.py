"""The conformance suite of stores."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from conformance.journal_conformance import JournalConformance
from conformance.lease_conformance import LeaseConformance, claimed_due
from conformance.listing_conformance import ListingConformance
from conformance.queue_conformance import QueueConformance
from conformance.storages import ENDED, LONG_S, Storage, begun, claimed, together, waiting
from fsm_agent import UsageError
from fsm_agent.messages import Question
from fsm_agent.store import AlreadyAnswered, Head, LeaseLost, NotAsked, RunUnknown, SignalExists, Start, Suspension

ROUNDS = 40  # of a race


class StoreConformance(JournalConformance, LeaseConformance, ListingConformance, QueueConformance):
    """The tests that every `Store` passes.

    A test class derives from it, and opens stores::

        class TestAcme(StoreConformance):
            def opened(self, folder, clock):
                return AcmeStore(folder / "runs", clock=clock)

    If the store can be opened for reading only, the class also defines ``opened_to_read(folder, clock)``.

    It needs only pytest.  Stores that are opened with one folder have the same runs, like the stores of two OS
    processes.  Each test opens only one store if the store is volatile.  Time passes on the clock that `opened`
    receives.  Races are run by threads that begin at once, and again with one of two methods stopped where it reads the
    clock, while the other runs.

    Attributes:
        takes_clock: Whether the stores read the clock that `opened` receives.  If not, some tests wait for leases to
            expire, and no method is stopped.
        short_s: The seconds that these leases last: more than a claim and two reads take on a busy machine.
    """

    def test_posts_wait_in_order(self, storage: Storage) -> None:
        """Until they are consumed.  The holder hears of them, and greater ids are later, across all runs."""
        store, other = storage.store, storage.another()
        lease = begun(store)
        begun(store, "else")
        other.signal("r", "", "one", by="ann")
        store.signal("else", "", "not for r")
        storage.elapse(0.01)
        store.signal("r", "", "two")
        other.signal("r", "", "three", by="bob")
        posts = store.load("r").signals
        assert [(post.key, post.body, post.by) for post in posts] == [
            ("", "one", "ann"),
            ("", "two", ""),
            ("", "three", "bob"),
        ]
        ids = [posts[0].id, *[post.id for post in store.load("else").signals], posts[1].id, posts[2].id]
        assert ids == sorted(set(ids))
        assert storage.is_now(posts[2].at_s)
        assert store.append(lease, 0, ["line"]) == 3
        assert store.append(lease, 1, ["line"], took=[posts[1].id, ids[1]]) == 2
        assert [post.body for post in other.load("r").signals] == ["one", "three"]
        assert len(other.load("else").signals) == 1, "posts of another run were used up"
        assert store.append(lease, 2, ["line"], waiting("k"), took=[posts[0].id, posts[2].id]) == 0
        assert other.load("r").signals == ()

    def test_a_run_with_unread_posts_is_due(self, storage: Storage) -> None:
        """Whatever its rest says; a post also wakes one that waits for an hour."""
        store, rest = storage.store, waiting("k", due_s=storage.now_s + 3600)
        lease = begun(store)
        storage.another().signal("r", "", "body")
        assert store.append(lease, 0, ["one"], rest) == 1
        assert storage.another().load("r").run.due_s == 0.0
        lease = claimed(store)
        (post,) = store.load("r").signals
        store.append(lease, 1, ["two"], rest, took=[post.id])
        assert store.load("r").run.due_s == storage.now_s + 3600 or not self.takes_clock
        assert store.claim("w", for_s=9) is None
        storage.another().signal("r", "", "body")
        assert store.load("r").run.due_s == 0.0
        due = store.claim("w", for_s=9)
        assert due is not None
        assert due.run == "r"

    def test_signals_that_a_holder_leaves_unread_make_no_run_due(self, storage: Storage) -> None:
        """Only a further one does, before the run is released or after it."""
        store, other, rest = storage.store, storage.another(), waiting().changed(unread=1)
        lease = begun(store)
        other.signal("r", "", "left")
        assert store.append(lease, 0, ["one"], rest) == 1
        assert (store.load("r").run.due_s, other.claim("v", for_s=LONG_S)) == (None, None)
        other.signal("r", "", "after")
        assert store.load("r").run.due_s == 0.0
        lease = claimed_due(other)
        assert other.append(lease, 1, (), rest) == 2
        assert store.load("r").run.due_s == 0.0

    def test_a_run_may_heed_one_question_alone(self, storage: Storage) -> None:
        """Other posts are kept for its next holder, and wake no worker: not before the rest, nor after it."""
        store, other, rest = storage.store, storage.another(), waiting("k", "own").changed(wakes_on="k")
        lease = begun(store)
        other.signal("r", "", "before")
        assert store.append(lease, 0, ["one"], rest) == 1
        assert (store.load("r").run.due_s, other.claim("v", for_s=LONG_S)) == (None, None)
        other.signal("r", "own", "after")
        assert (store.load("r").run.due_s, other.claim("v", for_s=LONG_S)) == (None, None)
        store.signal("r", "k", "heeded")
        assert store.load("r").run.due_s == 0.0
        lease = claimed_due(other)
        posts = other.load("r").signals
        assert [post.body for post in posts] == ["before", "after", "heeded"]
        assert other.append(lease, 1, (), rest) == 3
        lease = claimed_due(other)
        assert other.append(lease, 1, (), rest, took=[post.id for post in posts[1:]]) == 1
        assert other.claim("v", for_s=LONG_S) is None
        lease = claimed(other)
        store.signal("r", "", "to its holder")
        assert store.load("r").run.due_s == 0.0
        assert other.append(lease, 1, (), waiting("own")) == 2
        assert claimed_due(store).run == "r", "the next rest is woken by all signals"

    def test_a_question_is_answered_once(self, storage: Storage) -> None:
        """A late one learns who answered, and when; nothing of a refused answer is left."""
        store, other = storage.store, storage.another()
        store.append(begun(store), 0, ["one"], waiting("b", "c", "a"))
        assert [question.key for question in other.load("r").run.waits] == ["a", "b", "c"]
        other.signal("r", "b", "yes", by="ann")
        answered_s = storage.now_s
        storage.elapse(0.01)
        before = store.load("r")
        with pytest.raises(AlreadyAnswered) as late:
            store.signal("r", "b", "no", by="bob")
        assert (late.value.run, late.value.key, late.value.by) == ("r", "b", "ann")
        assert late.value.at_s == pytest.approx(answered_s, abs=0.001 if self.takes_clock else 20)
        with pytest.raises(NotAsked, match="'x'"):
            store.signal("r", "x", "yes")
        assert store.load("r") == before, "it wakes nobody, either"
        assert [(post.key, post.body) for post in before.signals] == [("b", "yes")]
        assert [question.key for question in before.run.waits] == ["a", "c"]
        store.signal("r", "a", "yes")
        assert [post.key for post in store.load("r").signals] == ["b", "a"]

    def test_a_question_is_answered_once_even_if_the_run_then_asks_another(self, storage: Storage) -> None:
        """Until the answer is used, a late one learns who answered.  Such a run may be stuck."""
        store = storage.store
        store.append(begun(store), 0, ["one"], waiting("a"))
        store.signal("r", "a", "yes", by="ann")
        store.append(claimed(store), 1, (), waiting("stuck"))
        with pytest.raises(AlreadyAnswered) as late:
            store.signal("r", "a", "no", by="bob")
        assert late.value.by == "ann"
        loaded = store.load("r")
        assert [question.key for question in loaded.run.waits] == ["stuck"]
        store.append(claimed(store), 1, ["two"], waiting("stuck"), took=[post.id for post in loaded.signals])
        with pytest.raises(NotAsked):
            store.signal("r", "a", "no", by="bob")

    def test_a_rest_says_which_questions_are_open(self, storage: Storage) -> None:
        """An append without a rest leaves them unchanged."""
        store = storage.store
        store.append(begun(store), 0, ["one"], waiting("old", "kept"))
        lease = claimed(store)
        store.append(lease, 1, ["two"])
        assert [question.key for question in store.load("r").run.waits] == ["kept", "old"]
        store.append(lease, 2, ["three"], waiting("kept", "new"))
        assert [question.key for question in storage.another().load("r").run.waits] == ["kept", "new"]
        with pytest.raises(NotAsked):
            store.signal("r", "old", "late")
        store.append(claimed(store), 3, ["four"], ENDED)
        assert store.load("r").run.waits == ()

    @pytest.mark.parametrize("what", ["run", "agent", "conversation", "due_s"])
    def test_what_no_index_could_hold_is_refused_by_its_field(self, storage: Storage, what: str) -> None:
        """The store continues to work."""
        store, long = storage.store, "ä" * 501
        given: dict[str, Any] = {"run": "r", "header": "{}", "agent": "a"}
        given |= {
            "run": {"run": long},
            "agent": {"agent": long},
            "conversation": {"follows": Head(long)},
            "due_s": {"start": Start(due_s=1e300)},
        }[what]
        with pytest.raises(UsageError, match=what):
            store.create(**given)
        assert store.list() == []
        assert store.create("ä" * 500, "{}", agent="ä" * 500)
        assert claimed_due(store) is not None

    def test_half_a_character_in_a_rest_is_refused_and_nothing_is_kept(self, storage: Storage) -> None:
        lease, half = begun(storage.store), "\ud83d"
        wrong: list[dict[str, Any]] = [{"state": half}, {"wakes_on": half}, {"questions": (Question(half, "k"),)}]
        for fields in wrong:
            with pytest.raises(UsageError, match="surrogate"):
                storage.store.append(lease, 0, ["one"], waiting("k").changed(**fields))
        assert storage.store.load("r").lines == ()
        storage.store.append(lease, 0, ["one"], waiting("k"))

    def test_a_rest_until_a_time_beyond_all_calendars_is_kept(self, storage: Storage) -> None:
        """The time is so far away that no driver will see it."""
        store = storage.store
        store.append(begun(store), 0, ["one"], Suspension(state="Backoff", due_s=1e300))
        assert store.get("r").due_s == 253_402_300_799.0

    def test_a_rest_in_vain_counts_as_a_try(self, storage: Storage) -> None:
        """Others that are not due at once do not; an entry ends the count."""
        store = storage.store
        store.append(begun(store), 0, (), Suspension(state="Calling", due_s=1e12, is_in_vain=True))
        lease = claimed(store)
        assert lease.tries == 2
        store.append(lease, 0, (), Suspension(state="Calling", due_s=1e12, is_in_vain=True))
        lease = claimed(store)
        assert lease.tries == 3
        store.append(lease, 0, ["one"], Suspension(state="Calling", due_s=1e12, is_in_vain=True))
        lease = claimed(store)
        assert lease.tries == 1
        store.append(lease, 1, (), Suspension(state="Calling", due_s=0.0))
        lease = claimed(store)
        assert lease.tries == 2
        store.append(lease, 1, (), Suspension(state="Calling", due_s=0.0, is_in_vain=False))
        lease = claimed(store)
        assert lease.tries == 1
        store.append(lease, 1, (), Suspension(state="Calling", due_s=1e12))
        assert claimed(store).tries == 1

    def test_a_post_with_an_id_is_made_once(self, storage: Storage) -> None:
        """Also when it was used up, its question is closed, or the run has ended; another content is refused."""
        store, other = storage.store, storage.another()
        store.append(begun(store), 0, ["one"], waiting("k"))
        for _ in range(2):
            other.signal("r", "k", "yes", signal_id="p-1", content="yes, at whatever time")
        store.signal("r", "k", "yes, later", signal_id="p-1", content="yes, at whatever time")
        store.signal("r", "", "hello", signal_id="p-2")
        assert [(post.key, post.body) for post in store.load("r").signals] == [("k", "yes"), ("", "hello")]
        assert (store.signalled("r", "p-1"), store.signalled("r", "p-2")) == ("yes, at whatever time", "hello")
        assert other.signalled("r", "p-3") is None
        with pytest.raises(SignalExists, match="p-1"):
            store.signal("r", "k", "no", signal_id="p-1")
        took = [post.id for post in store.load("r").signals]
        store.append(claimed(store), 1, ["two"], ENDED, took=took)
        other.signal("r", "k", "yes", signal_id="p-1", content="yes, at whatever time")
        assert store.load("r").signals == ()
        with pytest.raises(SignalExists, match="p-2"):
            other.signal("r", "", "bye", signal_id="p-2")
        store.delete("r")
        store.append(begun(store), 0, ["one"], waiting("k"))
        store.signal("r", "k", "no", signal_id="p-1")
        with pytest.raises(RunUnknown):
            store.signalled("other", "p-1")

    def test_the_holder_asks_while_it_goes_on(self, storage: Storage) -> None:
        """Without an entry, and it keeps the run.  A withdrawn question is not answered."""
        store = storage.store
        lease = begun(store)
        store.ask(lease, waiting("one", "two").questions)
        run = storage.another().load("r").run
        assert ([question.key for question in run.waits], run.n, run.holder) == (["one", "two"], 0, lease.holder)
        assert [found.id for found in store.list(asked=True)] == ["r"]
        storage.another().signal("r", "one", "yes", by="ann")
        with pytest.raises(AlreadyAnswered):
            store.signal("r", "one", "no")
        assert store.append(lease, 0, ["first"]) == 1
        store.ask(lease, ())
        assert storage.another().list(asked=True) == []
        with pytest.raises(NotAsked):
            store.signal("r", "two", "late")
        assert [post.body for post in store.load("r").signals] == ["yes"]
        store.append(lease, 1, ["last"], ENDED)
        with pytest.raises(LeaseLost):
            store.ask(lease, waiting("three").questions)

    def test_a_question_that_is_asked_again_stays_as_it_is(self, storage: Storage) -> None:
        """Answered or not; what was asked first is what people see."""
        store = storage.store
        store.append(begun(store), 0, ["one"], waiting("done", "open"))
        first = store.load("r").run.waits
        store.signal("r", "done", "yes", by="ann")
        again = [question.changed(about='"again"') for question in first]
        store.append(claimed(store), 1, ["two"], Suspension(state="ToolInterrupt", questions=tuple(again)))
        assert storage.another().load("r").run.waits == (first[1],)
        with pytest.raises(AlreadyAnswered) as late:
            store.signal("r", "done", "no")
        assert late.value.by == "ann"
        assert [post.body for post in store.load("r").signals] == ["yes"]

    def test_a_question_whose_answer_was_refused_is_asked_again(self, storage: Storage) -> None:
        """An answer that is consumed in the append that asks again has not closed the question."""
        store = storage.store
        store.append(begun(store), 0, ["one"], waiting("k"))
        store.signal("r", "k", "first")
        took = [post.id for post in store.load("r").signals]
        store.append(claimed(store), 1, ["two"], waiting("k"), took=took)
        assert [question.key for question in store.load("r").run.waits] == ["k"]
        storage.another().signal("r", "k", "second")
        assert [post.body for post in store.load("r").signals] == ["second"]

    def test_a_question_is_looked_at_and_answered_in_one(self, storage: Storage) -> None:
        """Another answer cannot come between."""
        other = storage.another()
        storage.store.append(begun(storage.store), 0, ["one"], waiting("k"))
        outcomes = storage.interleaved(
            lambda: storage.store.signal("r", "k", "0", by="0"), lambda: other.signal("r", "k", "1", by="1")
        )
        assert sorted(type(results).__name__ for results in outcomes) == ["AlreadyAnswered", "NoneType"]
        assert [post.body for post in other.load("r").signals] == [str(outcomes.index(None))]

    @pytest.mark.nightly
    def test_a_post_at_the_time_of_a_giving_back_is_not_lost(self, storage: Storage) -> None:
        """Whichever is first, the run is due."""
        store, other = storage.store, storage.another()
        for i in range(ROUNDS):
            lease = begun(store, run := f"r{i}")
            results = together(
                partial(store.append, lease, 0, ["one"], waiting("k")), partial(other.signal, run, "", "body")
            )
            assert results[0] in (0, 1)
            assert [post.body for post in store.load(run).signals] == ["body"]
            due = other.claim("v", for_s=LONG_S)
            assert due is not None, f"a post was lost: {store.load(run).run}"
            assert due.run == run

    @pytest.mark.parametrize("first", ["post", "append"])
    def test_a_post_and_a_giving_back_take_turns(self, storage: Storage, first: str) -> None:
        """One of the two is stopped halfway, in an open transaction if the store has one."""
        store, other = storage.store, storage.another()
        lease = begun(store)
        actions: list[Callable[[], object]] = [
            partial(other.signal, "r", "", "body"),
            partial(store.append, lease, 0, ["one"], waiting("k")),
        ]
        if first == "append":
            actions.reverse()
        results = storage.interleaved(*actions)
        assert {type(each).__name__ for each in results} == {"int", "NoneType"}
        loaded = store.load("r")
        assert (loaded.lines, [post.body for post in loaded.signals]) == (("one",), ["body"])
        assert loaded.run.due_s == 0.0, "a post was lost: the run is not due"
        due = other.claim("v", for_s=9)
        assert due is not None

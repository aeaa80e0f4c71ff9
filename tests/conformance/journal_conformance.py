"""The half of the store suite for stored data: journals, snapshots, rows and conversations."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial

import pytest

from conformance import storages
from conformance.storages import (
    ENDED,
    PATIENCE_S,
    Storage,
    StoreTests,
    begun,
    claimed,
    outcome,
    renew,
    together,
    waiting,
)
from fsm_agent.errors import UsageError
from fsm_agent.messages import Question
from fsm_agent.store import (
    Conflict,
    Head,
    Lease,
    LeaseLost,
    Loaded,
    Run,
    RunBusy,
    RunExists,
    RunUnknown,
    Store,
    StoreError,
    Suspension,
)

ODD = 'a "quoted" \\u0000 \\ \x00 \t \x1c \x7f \x85 \u2028 \u2029 é e\u0301 \U0001f600 \ufeff {}[]'
NAMES = (
    *("r", "R", "r ", " r", ".", "..", "...", "-", "~", "a/b", "a%2fb", "a%2Fb", "/etc/hosts", "a\\b", "a:b", "a\nb"),
    *("con", "nul.jsonl", ".hidden", "é", "e\u0301", "\U0001f600", "\x00", "x" * 300, "x" * 301, "X" * 300, "é" * 300),
    *("r.jsonl", "r.lock", "%", "*", "?"),
)


class JournalConformance(StoreTests):
    """Checks of what a store keeps."""

    def test_a_new_run_is_due_and_empty(self, storage: Storage) -> None:
        """Its row has everything that can be known."""
        assert storage.store.create("r", "header", agent="a") is True
        loaded = storage.store.load("r")
        assert (loaded.header, loaded.snapshot, loaded.lines, loaded.signals) == ("header", None, (), ())
        run = loaded.run
        assert (run.id, run.agent, run.n, run.state, run.is_ended) == ("r", "a", 0, "", False)
        assert (run.due_s, run.holder, run.waits) == (0.0, None, ())
        assert storage.is_now(run.created_s)
        assert run.updated_s == run.created_s

    def test_creating_again_changes_nothing(self, storage: Storage) -> None:
        """With the same header it is the same run; with another one, another run of this name."""
        lease = begun(storage.store)
        storage.store.append(lease, 0, ["one"], waiting("k"))
        before = storage.store.load("r")
        assert storage.another().create("r", "header", agent="a") is False
        with pytest.raises(RunExists, match="'r'"):
            storage.store.create("r", "another header", agent="a")
        assert storage.store.load("r") == before

    def test_a_run_may_be_created_with_its_first_entries(self, storage: Storage) -> None:
        """The holder continues after them.  An existing run is not changed."""
        lease = storage.store.create("r", "header", agent="a", holder="w", for_s=PATIENCE_S, lines=["one", "two"])
        assert isinstance(lease, Lease)
        assert (lease.fence, lease.n) == (1, 2)
        assert storage.another().create("r", "header", agent="a", holder="w", for_s=PATIENCE_S, lines=["x"]) is False
        with pytest.raises(LeaseLost):
            storage.store.append(lease, 1, ["other"])
        storage.store.append(lease, 2, ["three"], ENDED)
        loaded = storage.another().load("r")
        assert (loaded.header, loaded.lines, loaded.run.n) == ("header", ("one", "two", "three"), 3)

    @pytest.mark.parametrize("options", [{"lines": ["one"]}, {"lines": ["o\nne"], "holder": "w", "for_s": 1.0}])
    def test_entries_that_no_journal_could_hold_create_nothing(
        self, storage: Storage, options: dict[str, object]
    ) -> None:
        """Entries without a holder, and one with a line break."""
        with pytest.raises(UsageError, match="line"):
            storage.store.create("r", "header", agent="a", **options)  # type: ignore[arg-type]
        with pytest.raises(RunUnknown):
            storage.store.get("r")

    def test_many_create_one_run_once(self, storage: Storage) -> None:
        """Of several creators with the same header, exactly one hears that it made the run."""
        stores = [storage.store, storage.another()] * 3
        made = together(*[partial(store.create, "r", "header", agent="a") for store in stores])
        assert sorted(made) == [False] * 5 + [True]

    def test_an_unknown_run_is_named(self, storage: Storage) -> None:
        """By every method that is given the name of a run."""
        storage.store.create("r", "header", agent="a")
        for method in (storage.store.load, storage.store.delete):
            with pytest.raises(RunUnknown, match="nobody's"):
                method("nobody's")
        with pytest.raises(RunUnknown, match="nobody's"):
            storage.store.claim("w", for_s=1, run="nobody's")
        with pytest.raises(RunUnknown, match="nobody's"):
            storage.store.signal("nobody's", "", "body")

    def test_entries_come_back_in_order(self, storage: Storage) -> None:
        """From the first that is asked for; another store sees them at once."""
        other, lease = storage.another(), begun(storage.store)
        storage.store.append(lease, 0, ["one", "two"])
        assert other.load("r").lines == ("one", "two")
        storage.elapse(1)
        storage.store.append(lease, 2, ["three"])
        for store in (storage.store, other):
            assert store.load("r").lines == ("one", "two", "three")
            assert store.load("r", after=1).lines == ("two", "three")
            assert store.load("r", after=2).lines == ("three",)
            assert store.load("r", after=3).lines == ()
            assert store.load("r", after=9).lines == ()
            run = store.load("r").run
            assert (run.n, run.holder, run.state) == (3, "w", "")
            assert storage.is_now(run.updated_s)
            assert run.updated_s > run.created_s or not self.takes_clock

    def test_an_append_follows_the_last_entry(self, storage: Storage) -> None:
        """Otherwise nothing is written, and the lease stays valid."""
        lease = begun(storage.store)
        storage.store.append(lease, 0, ["one", "two"], snapshot=b"old")
        storage.store.signal("r", "", "body")
        before = storage.store.load("r")
        took = [post.id for post in before.signals]
        for n in (0, 1, 3):
            with pytest.raises(LeaseLost, match="'r'"):
                storage.store.append(lease, n, ["else", "more"], waiting("k"), took=took, snapshot=b"new")
            assert storage.store.load("r") == before
        assert storage.store.append(lease, 2, ["three"], took=took) == 0
        assert storage.store.load("r").lines == ("one", "two", "three")

    def test_an_append_can_be_repeated(self, storage: Storage) -> None:
        """It is not known whether a commit whose connection broke was done; one that is over is not done again."""
        lease = begun(storage.store)
        storage.store.append(lease, 0, ["one"], snapshot=b"1")
        before = storage.store.load("r")
        assert storage.another().append(lease, 0, ["one"], snapshot=b"1") == 0
        assert storage.store.load("r") == before
        storage.store.append(lease, 1, ["two", "three"])
        before = storage.store.load("r")
        assert storage.store.append(lease, 0, ["one"], snapshot=b"1") == 0
        assert storage.store.append(lease, 1, ["two", "three"]) == 0
        assert storage.store.load("r") == before
        with pytest.raises(LeaseLost):
            storage.store.append(lease, 1, ["two", "four"])
        assert storage.store.load("r") == before

    def test_a_giving_back_can_be_repeated(self, storage: Storage) -> None:
        """It changes nothing, also when the run has been answered in the meantime; other lines are refused."""
        lease = begun(storage.store)
        storage.store.append(lease, 0, ["one"], waiting("k"))
        assert storage.store.append(lease, 0, ["one"], waiting("k")) == 0
        storage.store.signal("r", "k", "yes")
        before = storage.store.load("r")
        assert storage.store.append(lease, 0, ["one"], waiting("k")) == 1
        with pytest.raises(LeaseLost):
            storage.store.append(lease, 0, ["else"], waiting("k"))
        assert storage.store.load("r") == before

    def test_a_repeated_append_gives_nothing_back(self, storage: Storage) -> None:
        """If some lines exist already and others follow them, the rest that comes with them belongs to an old state."""
        lease = begun(storage.store)
        storage.store.append(lease, 0, ["one"])
        storage.store.append(lease, 1, ["two"])
        before = storage.store.load("r")
        outcome(lambda: storage.store.append(lease, 0, ["one"], ENDED, snapshot=b"old"))
        assert storage.store.load("r") == before
        storage.store.append(lease, 2, ["three"])

    def test_a_repetition_has_a_rest_if_the_first_had_one(self, storage: Storage) -> None:
        """Otherwise it is another append, and entries are there already."""
        store, kept, returned = storage.store, begun(storage.store), begun(storage.store, "s")
        store.append(kept, 0, ["one"])
        store.append(returned, 0, ["one"], waiting("k"))
        before = [store.load("r"), store.load("s")]
        with pytest.raises(LeaseLost, match="'r'"):
            store.append(kept, 0, ["one"], waiting("k"))
        with pytest.raises(LeaseLost, match="'s'"):
            store.append(returned, 0, ["one"])
        assert [store.load("r"), store.load("s")] == before

    def test_a_repetition_is_refused_after_another_claim(self, storage: Storage) -> None:
        """A holder whose lease is lost has to read which of its entries were kept."""
        store, kept, returned = storage.store, begun(storage.store, for_s=storage.short_s), begun(storage.store, "s")
        store.append(kept, 0, ["one"])
        store.append(returned, 0, ["one"], waiting("k"))
        storage.elapse(storage.short_s * 1.5)
        for run in ("r", "s"):
            claimed(storage.another(), run, holder="v")
        before = [store.load("r"), store.load("s")]
        with pytest.raises(LeaseLost, match="'r'"):
            store.append(kept, 0, ["one"])
        with pytest.raises(LeaseLost, match="'s'"):
            store.append(returned, 0, ["one"], waiting("k"))
        assert [store.load("r"), store.load("s")] == before

    def test_an_append_may_have_no_lines(self, storage: Storage) -> None:
        """It uses posts up, keeps a snapshot, or gives the run back."""
        lease = begun(storage.store)
        storage.store.append(lease, 0, ["one"])
        storage.store.signal("r", "", "body")
        (post,) = storage.store.load("r").signals
        assert storage.store.append(lease, 1, [], took=[post.id], snapshot=b"1") == 0
        assert storage.store.append(lease, 1, (), waiting("k")) == 0
        assert storage.store.append(lease, 1, (), waiting("k")) == 0
        loaded = storage.store.load("r")
        assert (loaded.lines, loaded.signals, loaded.snapshot, loaded.run.holder) == (("one",), (), (1, b"1"), None)
        assert [question.key for question in loaded.run.waits] == ["k"]

    def test_any_text_comes_back(self, storage: Storage) -> None:
        """Lines, including the header, have no line breaks.  Everything else may have them."""
        store, text = storage.store, f"{ODD}\n\r\n{ODD}\r"
        question = Question(key=text, kind=text, about=text, answers=(text, ODD))
        store.create(text, ODD, agent=text, follows=Head(text))
        lease = store.claim(text, for_s=600, agents=[text])
        assert lease is not None
        store.signal(text, "", text, by=text)
        assert (lease.run, lease.agent, lease.holder) == (text, text, text)
        store.append(lease, 0, [ODD, "", f" {ODD} "], Suspension(state=text, questions=(question,)))
        assert storage.another().load(text).run.waits == (question,)
        store.signal(text, text, text, by=text)
        for loaded in (store.load(text), storage.another().load(text)):
            assert (loaded.header, loaded.lines) == (ODD, (ODD, "", f" {ODD} "))
            assert [(post.key, post.body, post.by) for post in loaded.signals] == [("", text, text), (text, text, text)]
            assert (loaded.run.id, loaded.run.agent, loaded.run.state) == (text, text, text)
        assert store.head(text) == Head(text, 1, text)

    def test_what_cannot_be_kept_is_refused(self, storage: Storage) -> None:
        """A run without a name, a line with a line break, and half a surrogate pair.  Nothing is written."""
        store, lease, half = storage.store, begun(storage.store), "\ud83d"
        store.append(lease, 0, ["one"])
        before = store.load("r")
        for refused in (
            partial(store.create, "", "header", agent="a"),
            partial(store.create, "s", "a\nheader", agent="a"),
            partial(store.create, half, "header", agent="a"),
            partial(store.append, lease, 1, ["two", "a\nline"]),
            partial(store.append, lease, 1, ["two", half]),
            partial(store.append, lease, 1, ["two"], Suspension(state=half)),
            partial(store.signal, "r", "", half),
            *[partial(look, half) for look in (store.load, store.delete, store.head)],
            partial(store.claim, "w", for_s=9.0, run=half),
            partial(store.claim, "w", for_s=9.0, agents=["a", half]),
            partial(store.signal, half, "", "body"),
            partial(store.list, agent=half),
            partial(store.load, "r", after=-1),
            partial(store.append, lease, 1, ["two"], Suspension(state="s" * 1001)),
            partial(store.append, lease, 1, ["two"], waiting("k" * 2001)),
            partial(store.ask, lease, [Question("k", "k" * 1001)]),
        ):
            with pytest.raises(UsageError):
                refused()
        assert (store.load("r"), store.list()) == (before, [before.run])
        for no_text in (b"one", None):
            with pytest.raises(UsageError, match="header"):
                store.create("s", no_text, agent="a")  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="line"):
                store.append(lease, 1, ["two", no_text])  # type: ignore[list-item]
        with pytest.raises(UsageError):
            store.submit(lease, 1, ["a\nline"]).result(PATIENCE_S)
        assert (store.load("r"), store.list()) == (before, [before.run])

    def test_numbers_of_any_size_are_numbers(self, storage: Storage) -> None:
        """A number that no row has belongs to no entry and no post, and a page may have any length."""
        store, lease, huge = storage.store, begun(storage.store), 2**63
        store.append(lease, 0, ["one"])
        assert store.load("r", after=huge).lines == ()
        assert [run.id for run in store.list(limit=huge - 1)] == ["r"]
        assert store.append(lease, 1, ["two"], took=[huge]) == 0
        for late in (lease.changed(fence=huge), lease.changed(fence=-huge - 1)):
            with pytest.raises(LeaseLost):
                store.append(late, 2, ["three"])
        with pytest.raises(LeaseLost):
            store.append(lease, huge, ["three"])
        with pytest.raises(Conflict):
            store.create("s", "{}", agent="a", follows=Head("c", huge, "r"))
        assert store.load("r").lines == ("one", "two")

    def test_names_stay_apart(self, storage: Storage) -> None:
        """A name is any text.  No name leads out of the store, and no two names are confused."""
        for name in NAMES:
            assert storage.store.create(name, f"header of {name!r}", agent="a", follows=Head(name)) is True
        for name in NAMES:
            assert storage.store.load(name).header == f"header of {name!r}"
            assert storage.another().head(name) == Head(name, 1, name)
        assert sorted(run.id for run in storage.store.list(limit=1000)) == sorted(NAMES)

    def test_a_snapshot_replaces_the_one_before(self, storage: Storage) -> None:
        """A snapshot is kept until the next one; ``after=None`` begins after it."""
        lease, data = begun(storage.store), bytes(range(256)) * 300
        assert storage.store.load("r", after=None).lines == ()
        storage.store.append(lease, 0, ["one", "two"], snapshot=b"old")
        storage.store.append(lease, 2, ["three"])
        loaded = storage.store.load("r", after=None)
        assert (loaded.snapshot, loaded.lines) == ((2, b"old"), ("three",))
        storage.store.append(lease, 3, ["four"], waiting("k"), snapshot=data)
        for store in (storage.store, storage.another()):
            loaded = store.load("r", after=None)
            assert (loaded.snapshot, loaded.lines, loaded.run.n) == ((4, data), (), 4)
            loaded = store.load("r", after=1)
            assert (loaded.snapshot, loaded.lines) == ((4, data), ("two", "three", "four"))

    def test_what_is_kept_outlives_its_store(self, storage: Storage) -> None:
        """A store that is opened later sees the same; one that is volatile keeps nothing."""
        if storage.store.is_volatile:
            pytest.skip("is_volatile: nothing outlives this store")
        storage.store.create("r", "header", agent="a", follows=Head("c"))
        lease = claimed(storage.store)
        storage.store.signal("r", "", "body", by="ann")
        storage.store.append(lease, 0, ["one"], waiting("k"), snapshot=b"1")
        before = storage.store.load("r")
        storage.store.close()
        later = storage.another()
        assert (later.load("r"), later.list(), later.head("c")) == (before, [before.run], Head("c", 1, "r"))
        next_lease = later.claim("v", for_s=9)
        assert next_lease is not None
        assert next_lease.fence > lease.fence

    def test_a_closed_store_says_so(self, storage: Storage) -> None:
        """Nothing is done from then on; other stores on the same runs go on."""
        if storage.store.is_volatile:
            pytest.skip("is_volatile: this store has nothing to close")
        store, lease = storage.another(), begun(storage.store)
        before = storage.store.load("r")
        store.close()
        for refused in (
            partial(store.create, "s", "header", agent="a"),
            partial(store.claim, "v", for_s=9, run="r"),
            partial(store.claim, "v", for_s=9),
            partial(store.renew_all, [lease], for_s=9),
            partial(store.pending_signals, ["r"]),
            partial(store.append, lease, 0, ["one"]),
            partial(store.load, "r"),
            partial(store.signal, "r", "", "body"),
            partial(store.list),
            partial(store.delete, "r"),
            lambda: store.submit(lease, 0, ["one"]).result(PATIENCE_S),
        ):
            with pytest.raises(StoreError, match="closed"):
                refused()
        assert (storage.store.load("r"), storage.store.list()) == (before, [before.run])
        assert storage.store.append(lease, 0, ["one"]) == 0

    def test_submit_does_what_append_does(self, storage: Storage) -> None:
        """In the order in which it is called."""
        lease = begun(storage.store)
        storage.store.signal("r", "", "body")
        (post,) = storage.store.load("r").signals
        futures = [storage.store.submit(lease, n, [str(n)]) for n in range(20)]
        futures.append(storage.store.submit(lease, 20, ["20"], waiting("k"), took=[post.id], snapshot=b"21"))
        assert all(isinstance(future, Future) for future in futures)
        assert [future.result(PATIENCE_S) for future in futures] == [1] * 20 + [0]
        loaded = storage.store.load("r")
        assert loaded.lines == tuple([str(n) for n in range(21)])
        assert (loaded.snapshot, loaded.signals, loaded.run.holder) == ((21, b"21"), (), None)
        assert [question.key for question in loaded.run.waits] == ["k"]

    def test_what_is_submitted_fails_alone(self, storage: Storage) -> None:
        """The others of its commit are not touched by it."""
        one, two = begun(storage.store, "one"), begun(storage.store, "two")
        submitted = [(one, 0, "1"), (one, 7, "else"), (two, 0, "2"), (two, 0, "else"), (one, 1, "3"), (two, 1, "4")]
        futures = [storage.store.submit(lease, n, [line]) for lease, n, line in submitted]
        failures = [type(future.exception(PATIENCE_S)) for future in futures]
        assert failures == [type(None), LeaseLost, type(None), LeaseLost, type(None), type(None)]
        assert (storage.store.load("one").lines, storage.store.load("two").lines) == (("1", "3"), ("2", "4"))

    def test_submit_does_not_block(self, storage: Storage) -> None:
        """It returns while the commit is under way; a volatile store has nothing to wait for."""
        lease, goes_on, was_late = begun(storage.store), threading.Event(), []
        if storage.store.is_volatile:
            pytest.skip("is_volatile: this store never waits")
        storage.clock.held_thread = None
        storage.clock.holds_up = lambda: was_late.append(not goes_on.wait(storages.PATIENCE_S))
        future = storage.store.submit(lease, 0, ["one"])
        goes_on.set()
        assert future.result(PATIENCE_S) == 0
        storage.clock.holds_up = None
        assert not any(was_late), "submit returned only after its commit"

    def test_list_has_what_was_asked_for(self, storage: Storage) -> None:
        """Each filter alone, and all filters together."""
        store, now_s = storage.store, storage.now_s
        store.append(begun(store, "ended", agent="a"), 0, ["1"], ENDED)
        store.append(begun(store, "asks", agent="b"), 0, ["1"], waiting("k"))
        store.append(begun(store, "answered", agent="a"), 0, ["1"], waiting("k", due_s=now_s + 500))
        store.signal("answered", "k", "yes")
        store.append(begun(store, "later", agent="b"), 0, ["1"], waiting("k", due_s=now_s + 100))
        begun(store, "held", agent="a")
        store.create("new", "header", agent="b")

        def ids(runs: list[Run]) -> set[str]:
            return {run.id for run in runs}

        assert ids(store.list(agent="a")) == {"ended", "answered", "held"}
        assert ids(store.list(agent="c")) == set()
        assert ids(store.list(ended=True)) == {"ended"}
        assert ids(store.list(ended=False)) == {"asks", "answered", "later", "held", "new"}
        assert ids(store.list(asked=True)) == {"asks", "later"}
        assert ids(store.list(due_before=now_s)) == {"answered", "held", "new"}
        assert ids(store.list(due_before=now_s + 100)) == {"answered", "held", "new"}
        assert ids(store.list(due_before=now_s + 101)) == {"answered", "held", "new", "later"}
        assert ids(store.list(agent="b", ended=False, asked=True, due_before=now_s + 101)) == {"later"}

    def test_a_conversation_is_a_chain_of_runs(self, storage: Storage) -> None:
        """A run that follows an old head is refused, and leaves no trace."""
        store, other = storage.store, storage.another()
        start = store.head("c")
        assert start == Head("c", 0, "")
        store.create("r1", "header", agent="a", follows=start)
        first = other.head("c")
        assert first == Head("c", 1, "r1")
        for stale in (start, Head("c", 1, "r0"), Head("c", 2, "r1")):
            with pytest.raises(Conflict) as conflict:
                other.create("r2", "header", agent="a", follows=stale)
            assert (conflict.value.conversation, conflict.value.run) == ("c", "r1")
        with pytest.raises(RunUnknown):
            store.load("r2")
        assert store.create("r1", "header", agent="a", follows=start) is False, "the same again is no conflict"
        assert store.create("r2", "header", agent="a", follows=first) is True
        assert store.create("alone", "header", agent="a") is True
        assert (store.head("c"), store.head("d")) == (Head("c", 2, "r2"), Head("d"))

    def test_a_head_is_compared_and_moved_in_one(self, storage: Storage) -> None:
        """Another run cannot come between."""
        other = storage.another()
        outcomes = storage.interleaved(
            lambda: storage.store.create("r1", "header", agent="a", follows=Head("c")),
            lambda: other.create("r2", "header", agent="a", follows=Head("c")),
        )
        assert sorted(type(made).__name__ for made in outcomes) == ["Conflict", "bool"]
        winner = ["r1", "r2"][outcomes.index(True)]
        assert storage.store.head("c") == Head("c", 1, winner)
        assert [run.id for run in storage.store.list()] == [winner]

    def test_a_deleted_run_is_gone(self, storage: Storage) -> None:
        """Unless a process holds it; others stay, and a conversation keeps its head."""
        store, others = storage.store, list[Loaded]()
        for name in ("earlier", "r", "later"):
            store.create(name, "header", agent="a", follows=Head("c") if name == "r" else None)
            if name != "r":
                store.append(claimed(store, name), 0, ["one", "two"], waiting("k"), snapshot=b"1")
                store.signal(name, "", "body")
                others.append(store.load(name))
        lease = claimed(store, for_s=storage.short_s)
        store.append(lease, 0, ["one"], snapshot=b"1")
        renew(store, lease, for_s=600)
        before = store.load("r")
        with pytest.raises(RunBusy) as busy:
            storage.another().delete("r")
        assert (busy.value.run, busy.value.holder) == ("r", "w")
        assert store.load("r") == before
        store.append(lease, 1, [], waiting("k"))
        store.delete("r")
        for gone in (lambda: store.load("r"), lambda: store.delete("r"), lambda: store.signal("r", "k", "yes")):
            with pytest.raises(RunUnknown):
                gone()
        assert {run.id for run in storage.another().list()} == {"earlier", "later"}
        assert [storage.another().load(name) for name in ("earlier", "later")] == others
        assert storage.another().head("c") == Head("c", 1, "r")
        assert store.create("next", "header", agent="a", follows=Head("c", 1, "r")) is True

    def test_a_run_that_was_deleted_begins_anew(self, storage: Storage) -> None:
        """Nothing of the old run is left, and its holder does not hold the new one."""
        store, old = storage.store, begun(storage.store, for_s=storage.short_s)
        store.append(old, 0, ["one", "two", "three"], snapshot=b"1")
        store.signal("r", "", "body")
        storage.elapse(storage.short_s * 1.5)
        store.delete("r")
        assert store.create("r", "header", agent="b") is True
        loaded: Loaded = storage.another().load("r")
        assert (loaded.lines, loaded.signals, loaded.snapshot, loaded.run.agent) == ((), (), None, "b")
        _check_lost(store, old)
        new = claimed(store, holder="v")
        assert (new.n, new.tries) == (0, 1)
        _check_lost(store, old)
        store.append(new, 0, ["other"])
        _check_lost(store, old)
        assert store.load("r").lines == ("other",)


def _check_lost(store: Store, lease: Lease) -> None:
    for n in (0, 1):
        with pytest.raises(LeaseLost):
            store.append(lease, n, ["of the old one"])
    with pytest.raises(LeaseLost):
        renew(store, lease, for_s=600)

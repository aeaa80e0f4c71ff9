"""The part of the suite of stores that is about finding runs: pages, filters, counts, and stores that only read."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.storages import ENDED, LONG_S, PATIENCE_S, Storage, StoreTests, begun, claimed, renew, waiting
from fsm_agent.errors import UsageError
from fsm_agent.messages import Question
from fsm_agent.store import Page, ReadOnly, Run, RunCount, RunsHealth, RunUnknown, Start, Store, StoreError, Suspension

FAILED = Suspension(state="Failed", is_ended=True, is_failed=True)
MANY = 24  # runs of which pages are read


def walked(store: Store, limit: int, **which: Any) -> list[Run]:
    """Return the runs of all pages."""
    runs: list[Run] = []
    page = store.list(limit=limit, **which)
    while True:
        assert len(page) <= limit
        runs += page
        if page.next is None:
            return runs
        page = store.list(limit=limit, after=page.next, **which)


class ListingConformance(StoreTests):
    """Checks of how runs are found."""

    def opened_to_read(self, folder: Path, clock: Callable[[], float]) -> Store | None:
        """Return a store that only reads the runs in this folder, or None if there is no such store."""
        return None

    def test_a_run_is_got_without_its_journal(self, storage: Storage) -> None:
        """Its row, as `load` and `list` have it."""
        store, schema = storage.store, '{"type":"object","title":"\u00e9\u2028"}'
        assert store.create("r", "header", agent="a", title="Refund \u2028 order A-17") is True
        assert storage.another().get("r").title == "Refund \u2028 order A-17"
        question = Question("k", "approval", '"about"', ("approved", "denied"), schema)
        store.append(claimed(store), 0, ["one"], Suspension(state="Waits", questions=(question,)))
        run = storage.another().get("r")
        assert (run.title, run.state, run.n, run.waits) == ("Refund \u2028 order A-17", "Waits", 1, (question,))
        assert run == store.load("r").run == store.list()[0]
        with pytest.raises(RunUnknown, match="nobody's"):
            store.get("nobody's")

    def test_a_failure_is_told_from_another_end(self, storage: Storage) -> None:
        """It is no longer a failure when the run continues."""
        store = storage.store
        store.append(begun(store, "good"), 0, ["1"], ENDED)
        store.append(begun(store, "bad"), 0, ["1"], FAILED)
        store.append(begun(store, "open"), 0, ["1"], waiting("k"))
        other = storage.another()
        assert [run.is_failed for run in map(other.get, ("good", "bad", "open"))] == [False, True, False]
        assert [run.id for run in other.list(failed=True)] == ["bad"]
        assert {run.id for run in other.list(failed=False)} == {"good", "open"}
        assert [run.id for run in other.list(failed=False, ended=True)] == ["good"]
        store.append(claimed(store, "bad"), 1, ["2"], Suspension(state="Calling", due_s=0.0))
        assert (other.get("bad").is_failed, other.list(failed=True)) == (False, [])
        due = other.claim("v", for_s=LONG_S)
        assert due is not None
        assert due.run == "bad", "a run that goes on after its end is due"

    def test_runs_are_found_by_what_they_wait_for(self, storage: Storage) -> None:
        """By the kind of a question that is open, not of one that was answered."""
        store = storage.store

        def asks(**kinds: str) -> Suspension:
            return Suspension(state="Asks", questions=tuple([Question(key, kind) for key, kind in kinds.items()]))

        store.append(begun(store, "both"), 0, ["1"], asks(a="approval", b="doubt", c="approval"))
        store.append(begun(store, "one"), 0, ["1"], asks(a="approval"))
        store.append(begun(store, "none"), 0, ["1"], Suspension(state="Asks"))

        def found(kind: str) -> set[str]:
            return {run.id for run in storage.another().list(waiting_for=kind)}

        assert (found("approval"), found("doubt"), found("app")) == ({"both", "one"}, {"both"}, set())
        store.signal("both", "a", "yes")
        store.signal("one", "a", "yes")
        assert (found("approval"), found("doubt")) == ({"both"}, {"both"})
        assert {run.id for run in store.list(asked=True)} == {"both"}
        store.signal("both", "c", "yes")
        assert (found("approval"), found("doubt")) == (set(), {"both"})
        store.append(claimed(store, "both"), 1, ["2"], asks(b="doubt", d="stuck"))
        assert (found("doubt"), found("stuck")) == ({"both"}, {"both"})
        store.append(claimed(store, "both"), 2, ["3"], ENDED)
        assert (found("doubt"), store.list(asked=True)) == (set(), [])

    def test_runs_are_found_by_state_time_and_words(self, storage: Storage) -> None:
        """Each filter alone.  The words are in the name or the title, in any case."""
        store = storage.store
        for name, title in {"r1": "Straße nach Rom", "r2": "100% _sure_", "order-7": ""}.items():
            store.create(name, "header", agent="a", title=title)
        store.append(claimed(store, "r1"), 0, ["1"], waiting("k"))
        storage.elapse(0.01)
        between_s = storage.now_s
        storage.elapse(0.01)
        store.append(claimed(store, "r2"), 0, ["1"], Suspension(state="Backoff", due_s=1e10))

        def found(**which: Any) -> list[str]:
            return [run.id for run in storage.another().list(**which)]

        assert found(state="ToolInterrupt") == ["r1"]
        assert found(state="Tool") == []
        assert found(changed_after=between_s) == ["r2"]
        assert set(found(changed_before=between_s)) == {"r1", "order-7"}
        assert (found(text="STRASSE"), found(text="ORDER"), found(text="% _SURE")) == (["r1"], ["order-7"], ["r2"])
        assert (found(text="r_"), found(text="nothing")) == ([], [])
        assert (found(text="r", state="Backoff"), found(text="r", agent="b")) == (["r2"], [])
        store.append(claimed(store, "r1"), 1, ["2"])
        assert found(changed_after=between_s, state="ToolInterrupt") == ["r1"], "with a holder it is found, too"

    @pytest.mark.parametrize("prefix", ["a", "a\ud7ff", "a\U0010ffff", "a\0", "\U0010ffff", "ä%_"])
    def test_a_prefix_is_of_names_that_begin_with_it(self, storage: Storage, prefix: str) -> None:
        """With every last character, and every character after it."""
        names = {prefix, f"{prefix}\0", f"{prefix}z", f"{prefix}\U0010ffff"}
        for name in (*names, f"0{prefix}", "b", "\ue000"):
            storage.store.create(name, "header", agent="a")
        assert {run.id for run in storage.another().list(prefix=prefix)} == names

    def test_what_is_no_filter_is_refused(self, storage: Storage) -> None:
        """By its name, with what would be right."""
        for wrong in ("status", "ended", "changed_before", "state"):
            with pytest.raises(UsageError, match=wrong):
                storage.store.list(**{wrong: b"x"})  # type: ignore[arg-type]
        for place in ("", "x~1", "1.0~", "1.0", 3, "nan~1", "inf~1", f"1.0~{2**63}", f"1.0~-{2**70}"):
            with pytest.raises(UsageError, match="after"):
                storage.store.list(after=place)  # type: ignore[arg-type]

    def test_pages_have_each_run_once(self, storage: Storage) -> None:
        """In the order of their last change, with many changes at the same moment, and with any filter."""
        store, chance = storage.store, random.Random(32)
        rests = (waiting("k"), ENDED, FAILED, Suspension(state="Backoff", due_s=1e10), None)
        for n in range(MANY):
            agent, service = chance.choice("abc"), chance.choice(["", "chat", "chat-2"])
            store.create(f"r{n}", "header", agent=agent, start=Start(service=service))
            lease = claimed(store, f"r{n}")
            store.append(lease, 0, ["1"], chance.choice(rests))
            if chance.random() < 0.3:
                storage.elapse(0.001)
        whole = store.list(limit=1000)
        assert isinstance(whole, Page)
        assert (len(whole), whole.next) == (MANY, None)
        assert [run.updated_s for run in whole] == sorted([run.updated_s for run in whole], reverse=True)
        for limit in (1, 7, MANY, MANY + 1):
            assert walked(storage.another(), limit) == whole
        wanted: list[tuple[dict[str, Any], Callable[[Run], bool]]] = [
            ({"agent": "b"}, lambda run: run.agent == "b"),
            ({"state": "Failed"}, lambda run: run.state == "Failed"),
            ({"agent": "a", "ended": False}, lambda run: run.agent == "a" and not run.is_ended),
            ({"waiting_for": "approval"}, lambda run: bool(run.waits)),
            ({"text": "R1"}, lambda run: "r1" in run.id),
            ({"prefix": "r1"}, lambda run: run.id.startswith("r1")),
            ({"prefix": "r1", "ended": False}, lambda run: run.id.startswith("r1") and not run.is_ended),
            ({"service": "chat"}, lambda run: run.service == "chat"),
            (
                {"service": "chat", "agent": "a", "ended": False, "due_before": 1.0},
                lambda run: (run.service, run.agent, run.due_s) == ("chat", "a", 0.0),
            ),
            ({"due_before": 1.0}, lambda run: run.due_s is not None and run.due_s < 1.0),
        ]
        for which, is_wanted in wanted:
            assert walked(storage.another(), 4, **which) == [run for run in whole if is_wanted(run)], which
        assert (store.list(limit=0), store.list(limit=0).next) == ([], None)

    def test_a_page_goes_on_where_the_one_before_ended(self, storage: Storage) -> None:
        """Although its last run was deleted, and others were changed and made meanwhile."""
        store = storage.store
        for n in range(6):
            store.create(f"r{n}", "header", agent="a")
            storage.elapse(0.01)
        page = store.list(limit=2)
        assert [run.id for run in page] == ["r5", "r4"]
        store.delete("r4")
        store.create("new", "header", agent="a")
        store.append(claimed(store, "r2"), 0, ["1"])
        assert [run.id for run in store.list(after=page.next)] == ["r3", "r1", "r0"]

    def test_runs_are_counted(self, storage: Storage) -> None:
        """By agent, state and what they wait for, with the time of the oldest."""
        store = storage.store
        first_s = storage.now_s
        for name, rest in {"one": waiting("k"), "two": waiting("k", "l"), "bad": FAILED, "new": None}.items():
            lease = begun(store, name, agent="a")
            if rest is not None:
                store.append(lease, 0, ["1"], rest)
            storage.elapse(0.01)
        store.create("b", "header", agent="b")
        counts = storage.another().stats()
        assert all(isinstance(count, RunCount) for count in counts)
        assert {(c.agent, c.state, c.is_ended, c.is_failed, c.waits_for, c.count) for c in counts} == {
            ("a", "ToolInterrupt", False, False, ("approval",), 2),
            ("a", "Failed", True, True, (), 1),
            ("a", "", False, False, (), 1),
            ("b", "", False, False, (), 1),
        }
        asks = next(count for count in counts if count.waits_for)
        assert asks.oldest_s == store.get("one").updated_s
        assert asks.oldest_s >= first_s or not self.takes_clock
        store.delete("b")
        assert {count.agent for count in store.stats()} == {"a"}

    def test_health_counts(self, storage: Storage) -> None:
        """It counts due runs and since when, held runs, asking runs and stuck runs, without runs that have ended."""
        store, other = storage.store, storage.another()
        assert other.health() == RunsHealth(due=0, oldest_due_s=0.0, held=0, asked=0, stuck=0)
        leases = {name: begun(store, name) for name in ("ended", "asks", "stuck\0", "later", "held")}
        store.append(leases["ended"], 0, ["1"], ENDED)
        store.append(leases["asks"], 0, ["1"], waiting("k", "l"))
        stuck = Question("stuck", "stuck", "{}")
        store.append(
            leases["stuck\0"], 0, ["1"], Suspension(state="Stuck", questions=(stuck, Question("k", "approval", "{}")))
        )
        store.append(leases["later"], 0, ["1"], waiting("k", due_s=storage.now_s + 500))
        assert other.health() == RunsHealth(due=0, oldest_due_s=0.0, held=1, asked=3, stuck=1)
        for name in ("first", "second"):
            store.create(name, "header", agent="b")
            storage.elapse(storage.short_s)
        health = other.health()
        assert (health.due, health.held, health.asked) == (2, 1, 3)
        assert 2 * storage.short_s - 0.001 <= health.oldest_due_s < 2 * storage.short_s + PATIENCE_S
        store.append(claimed(store, "first"), 0, ["1"], Suspension(state="x", due_s=storage.now_s - 100.0))
        assert 100.0 <= other.health().oldest_due_s < 100.0 + PATIENCE_S
        claimed(store, "first", for_s=storage.short_s)
        claimed(store, "second")
        store.signal("asks", "k", "answer")
        assert other.health().changed(oldest_due_s=0.0) == RunsHealth(due=1, oldest_due_s=0.0, held=3, asked=3, stuck=1)
        storage.elapse(storage.short_s * 1.5)
        health = store.health()
        assert (health.due, health.held) == (2, 2), "a run whose lease is over waits for a driver"
        assert claimed(store, "asks").fence == 2
        assert store.health().due == 1

    def test_a_store_that_only_reads_writes_nothing(self, storage: Storage, tmp_path: Path) -> None:
        """It reads what the others write, and refuses by name what would write."""
        if (reader := self.opened_to_read(tmp_path, storage.clock)) is None:
            pytest.skip("this store has no form that only reads")
        try:
            store = storage.store
            store.append(begun(store), 0, ["one"], waiting("k"))
            lease = begun(store, "held")
            assert reader.load("r") == store.load("r")
            assert (reader.get("r"), reader.list(), reader.stats()) == (store.get("r"), store.list(), store.stats())
            assert reader.head("c") == store.head("c")
            reader.wait(0.0)
            writes: list[Callable[[], Any]] = [
                lambda: reader.create("new", "header", agent="a"),
                lambda: reader.create("new", "header", agent="a", holder="w", for_s=1.0),
                lambda: reader.claim("w", for_s=1.0),
                lambda: reader.claim("w", for_s=1.0, run="r"),
                lambda: renew(reader, lease, for_s=1.0),
                lambda: reader.append(lease, 0, ["x"]),
                lambda: reader.submit(lease, 0, ["x"]).result(20),
                lambda: reader.signal("r", "k", "yes"),
                lambda: reader.delete("r"),
            ]
            before = (store.load("r"), store.load("held"), store.list())
            for write in writes:
                with pytest.raises(ReadOnly):
                    write()
            assert (store.load("r"), store.load("held"), store.list()) == before
            store.append(lease, 0, ["two"], ENDED)
            assert reader.get("held").is_ended
        finally:
            reader.close()

    def test_a_store_that_only_reads_makes_nothing(self, tmp_path: Path, storage: Storage) -> None:
        """If there is no store, there is none afterwards."""
        empty = tmp_path / "empty"
        empty.mkdir()
        if self.opened_to_read.__func__ is ListingConformance.opened_to_read:  # type: ignore[attr-defined]
            pytest.skip("this store has no form that only reads")
        for _ in range(2):
            with pytest.raises(StoreError, match="expected a store"):
                self.opened_to_read(empty, storage.clock)
        assert [*empty.iterdir()] == []

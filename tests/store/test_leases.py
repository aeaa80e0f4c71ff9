"""Are leases renewed in time, and does nothing remain of released leases?"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.kept_runs import LastingStore, Moving

from fsm_agent.agents import Agent
from fsm_agent.functions import function
from fsm_agent.store import Runs, StoreClosed, StoreError, leases
from fsm_agent.testing import Script, function_call

PATIENCE_S = 20.0


class Counting(LastingStore):
    """A store that tells the recorder of each lease of its renewal."""

    def __init__(self) -> None:
        super().__init__()
        self.together: list[int] = []  # how many leases were renewed at a time
        self.asked = 0  # how often it was asked for posts

    def renew_all(self, leases: Any, *, for_s: float) -> Any:
        self.together.append(len(leases))
        for recorder in leases:
            recorder.begin_renewal()
        return [0] * len(leases)

    def pending_signals(self, names: Any) -> Any:
        self.asked += 1
        return names


class Renewed:
    """All of a recorder that a heart sees; each renewal and each look for letters is noted."""

    def __init__(
        self, lease_s: float, renew: Callable[[], None] | None = None, store: Counting | None = None, run: str = "r"
    ) -> None:
        self.run, self.lease_s, self.store = run, lease_s, store or Counting()
        self.renewals = 0
        self.fetched = 0
        self._renew = renew
        self._changed = threading.Condition()

    @property
    def lease(self) -> Any:
        return self

    def begin_renewal(self) -> None:
        with self._changed:
            self.renewals += 1
            self._changed.notify_all()
        if self._renew is not None:
            self._renew()

    def leave_to_parent(self) -> None:
        pass

    def note_renewal(self, result: Any) -> None:
        assert result == 0

    def fetch(self) -> None:
        with self._changed:
            self.fetched += 1
            self._changed.notify_all()

    def wait(self, condition: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_S)

    def wait_for(self, renewals: int) -> None:
        self.wait(lambda: self.renewals >= renewals)


@pytest.fixture
def heart() -> Iterator[Any]:
    heart = leases.LeaseRenewer()
    yield heart
    for recorder in list(heart._renewals):
        heart.drop(recorder)


@pytest.mark.parametrize("lease_s", [0.06, 0.0])
def test_a_short_lease_is_renewed_again_and_again(heart: Any, lease_s: float) -> None:
    """Also one that comes when the thread already waits for others; nothing else is done more often for it."""
    patient, hasty = Renewed(60.0), Renewed(lease_s)
    heart.hold(patient)
    heart.hold(hasty)
    hasty.wait_for(3)
    assert patient.renewals == 0


class Ticking:
    """Monotonic time, which a test moves on."""

    def __init__(self) -> None:
        self.s = 1_000.0

    def monotonic(self) -> float:
        return self.s


def test_a_lease_is_renewed_when_a_third_of_it_has_passed_and_earlier_together_with_another(
    heart: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "time", ticking := Ticking())
    store = Counting()
    recorders = [Renewed(60.0, store=store, run=f"r{number}") for number in range(4)]
    due_s = [1_000.0 + after_s for after_s in (20.0, 21.0, 29.0, 31.0)]
    heart._renewals = dict(zip(recorders, due_s, strict=True))

    def beat(at_s: float) -> None:
        ticking.s = at_s
        heart._renew(store, 60.0, recorders)

    beat(1_019.0)
    assert store.together == []
    beat(1_020.0)
    assert (store.together, [one.renewals for one in recorders]) == ([3], [1, 1, 1, 0])
    beat(1_031.0)
    beat(1_040.0)
    assert (store.together, [one.renewals for one in recorders]) == ([3, 4], [2, 2, 2, 1])
    heart._renewals = {}


@pytest.mark.parametrize("kind", [StoreError, LookupError])  # a store of one's own may raise anything
def test_a_renewal_that_fails_is_tried_again(heart: Any, kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise kind("the disk is away")

    away = Renewed(0.06, fail)
    heart.hold(away)
    away.wait_for(3)
    heart.drop(away)
    assert "run r:" in caplog.text
    assert "the disk is away" in caplog.text


@pytest.mark.parametrize("lease_s", [0.06, 60.0])  # to be renewed, or to be asked for posts
def test_a_store_that_was_closed_is_told_of_once(
    heart: Any, lease_s: float, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier it warned at each heartbeat for as long as its driver lived."""

    class Closed(Counting):
        def renew_all(self, leases: Any, *, for_s: float) -> Any:
            raise StoreClosed("runs.db")

        def pending_signals(self, names: Any) -> Any:
            raise StoreClosed("runs.db")

    monkeypatch.setattr(leases, "POLL_S", 0.02)
    store, other = Closed(), Renewed(0.06)
    for run in ("r1", "r2"):
        heart.hold(Renewed(lease_s, store=store, run=run))
    heart.hold(other)
    other.wait_for(4)
    assert list(heart._renewals) == [other]
    told = [message for message in caplog.messages if "runs.db" in message]
    assert len(told) == 1
    assert "run r1" in told[0]


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_renews_its_own_leases() -> None:
    """The thread of the one that has forked is not in it."""
    ours = Renewed(0.05)
    leases.RENEWER.hold(ours)
    ours.wait_for(1)
    if (child := os.fork()) == 0:
        theirs = Renewed(0.05)
        leases.RENEWER.hold(theirs)
        with theirs._changed:
            os._exit(not theirs._changed.wait_for(lambda: theirs.renewals > 1, PATIENCE_S))
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        leases.RENEWER.drop(ours)


def test_an_answer_that_was_posted_is_no_failure_though_its_driver_cannot_be_told_now() -> None:
    """After a failure, people would answer again, and hear that it had been answered before."""

    class Away(Renewed):
        def fetch(self) -> None:
            raise StoreError("the disk is away")

    store, away = LastingStore(), Away(60.0, run="r")
    store.create("r", "header", agent="a", holder="w", for_s=60.0)
    leases.RENEWER.hold(away)  # type: ignore[arg-type]
    try:
        Runs(store).cancel("r")
    finally:
        leases.RENEWER.drop(away)  # type: ignore[arg-type]
    assert len(store.load("r").signals) == 1


def test_posts_are_one_question_for_all_runs(heart: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those without posts are not read."""
    monkeypatch.setattr(leases, "POLL_S", 0.02)
    store = Counting()
    store.pending_signals = lambda names: [name for name in names if name == "r7"]  # type: ignore[method-assign]
    recorders = [Renewed(60.0, store=store, run=f"r{number}") for number in range(20)]
    for recorder in recorders:
        heart.hold(recorder)
    recorders[7].wait(lambda: recorders[7].fetched >= 3)
    assert [recorder.run for recorder in recorders if recorder.fetched] == ["r7"]


def test_a_run_whose_posts_cannot_be_read_keeps_no_other_from_its_own(
    heart: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the posts are asked for or told of at a renewal; the log names the run, and says what failed."""
    monkeypatch.setattr(leases, "POLL_S", 0.02)

    class Damaged(Renewed):
        def fetch(self) -> None:
            raise StoreError("its question is damaged")

        def note_renewal(self, result: Any) -> None:
            self.fetch()

    class Whole(Renewed):
        noted = False

        def note_renewal(self, result: Any) -> None:
            self.noted = True

    store = Counting()
    damaged, whole = Damaged(0.06, store=store, run="damaged"), Whole(0.06, store=store, run="whole")
    heart.hold(damaged)
    heart.hold(whole)
    whole.wait_for(2)
    whole.wait(lambda: whole.fetched and whole.noted)
    assert "run damaged: signals could not be fetched: its question is damaged" in caplog.text
    assert "could not be renewed" not in caplog.text


def test_a_lease_that_is_given_back_during_its_renewal_is_not_kept(heart: Any) -> None:
    """Its recorder, and with it the record of the process, would stay as long as the OS process."""
    is_renewing, goes_on = threading.Event(), threading.Event()

    def renew() -> None:
        is_renewing.set()
        assert goes_on.wait(PATIENCE_S)

    recorder = Renewed(0.03, renew)
    heart.hold(recorder)
    assert is_renewing.wait(PATIENCE_S)
    heart.drop(recorder)
    goes_on.set()
    later = Renewed(0.03)
    heart.hold(later)
    later.wait_for(2)
    assert list(heart._renewals) == [later]


def test_a_lease_cannot_be_given_back_between_the_look_and_the_note(heart: Any) -> None:
    """A renewal looks whether the lease is still held, and then notes when the next is due: in one."""
    recorder = Renewed(60.0)
    dropped = threading.Event()

    class Watched(dict[Any, float]):
        def __contains__(self, key: object) -> bool:
            is_there = super().__contains__(key)
            thread = threading.Thread(target=lambda: (heart.drop(recorder), dropped.set()), daemon=True)
            thread.start()
            dropped.wait(0.02)  # it has to wait for its turn
            return is_there

    heart._renewals = Watched({recorder: 0.0})
    heart._renew(recorder.store, recorder.lease_s, [recorder])
    assert dropped.wait(PATIENCE_S)
    assert not heart._renewals


def test_the_thread_ends_when_there_is_nothing_to_renew_and_begins_again(
    heart: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "POLL_S", 0.01)
    first = Renewed(60.0)
    heart.hold(first)
    thread = heart._thread
    heart.drop(first)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert heart._thread is None
    again = Renewed(0.03)
    heart.hold(again)
    again.wait_for(1)
    assert heart._thread is not thread


@pytest.mark.system
def test_a_run_with_a_short_lease_is_kept_through_a_long_function() -> None:
    """Nobody can claim it while its function runs, for more than the length of its lease."""
    store = LastingStore()
    store._clock = clock = Moving()
    renew_all, claims = store.renew_all, list[Any]()

    def renewed(leases: Any, *, for_s: float) -> Any:
        results = renew_all(leases, for_s=for_s)
        clock.s += 0.5  # with each renewal: on a busy machine, a lease may end by a clock that goes on by itself
        return results

    @function
    def work() -> str:
        """Work."""
        begun_s = clock.s
        for _ in range(3_000):
            claims.append(store.claim("another", for_s=9.0))
            threading.Event().wait(0.01)
            if clock.s >= begun_s + 2.0:
                break
        return f"{clock.s - begun_s} s"

    store.renew_all = renewed  # type: ignore[method-assign]

    agent = Agent(
        Script([function_call("work")], "fine"), functions=[work], name="clerk", store=Runs(store, lease_s=0.6)
    )
    assert [m.text for m in agent.call("Go.", run_id="r").dialog if m.role == "tool"] == ["2.0 s"]
    assert set(claims) == {None}

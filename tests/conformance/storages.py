"""The storage of the stores in one test, its clock, and ways to run two actions concurrently."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fsm_agent.messages import Question
from fsm_agent.store import Lease, LeaseLost, Store, StoreError, Suspension

PATIENCE_S = 20.0  # for what happens at once on a machine that is not busy
HELD_UP_S = 0.05  # for how long a method stands still at its reading of the clock, if nothing else happens
LONG_S = 600.0


class StillClock:
    """A clock that stands still until it is moved, and that can stop a thread which reads it."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.5
        self.holds_up: Callable[[], None] | None = None  # called at the next reading, if it is ``held_thread``'s
        self.held_thread: int | None = None  # None: any

    def __call__(self) -> float:
        hold_up = self.holds_up
        if hold_up is not None and self.held_thread in (None, threading.get_ident()):
            self.holds_up = None
            hold_up()
        return self.now_s


class Storage:
    """A storage for runs: a store on it, and any number of further ones, as other OS processes have them."""

    def __init__(
        self, opened: Callable[[Callable[[], float]], Store], *, takes_clock: bool = True, short_s: float = 0.02
    ) -> None:
        self._opened = opened
        self._takes_clock = takes_clock
        self.short_s = short_s  # of leases that shall run out
        self._stores: list[Store] = []
        self.clock = StillClock()
        self.store = self.another()

    def another(self) -> Store:
        """Return a further store with the same runs, or the same store if its runs are private."""
        if self._stores and self._stores[0].is_volatile:
            return self._stores[0]
        self._stores.append(self._opened(self.clock))
        return self._stores[-1]

    def close(self) -> None:
        """Close the stores twice, since closing must be repeatable."""
        for store in self._stores * 2:
            store.close()

    @property
    def now_s(self) -> float:
        """The present, as the stores see it."""
        return self.clock.now_s if self._takes_clock else time.time()

    def is_now(self, at_s: float) -> bool:
        """Return whether a time that a store has written is the present."""
        return abs(at_s - self.now_s) < (0.001 if self._takes_clock else PATIENCE_S)

    def elapse(self, seconds: float) -> None:
        """Let time pass.  For stores with their own clock, really wait."""
        self.clock.now_s += seconds
        if not self._takes_clock:
            time.sleep(seconds)

    def interleaved(self, first: Callable[[], Any], second: Callable[[], Any]) -> list[Any]:
        """Begin the second when the first reads the clock.  Continue the first when the second has ended or is blocked.

        A blocked action gets another chance whenever the first reads the clock again.

        Returns:
            The two outcomes, each a value or a `StoreError`.
        """
        with ThreadPoolExecutor(1) as thread:
            futures: list[Future[Any]] = []

            def begin_second() -> None:
                if not futures:
                    futures.append(thread.submit(outcome, second))
                if wait(futures, HELD_UP_S).not_done:
                    self.clock.holds_up = begin_second

            self.clock.held_thread, self.clock.holds_up = threading.get_ident(), begin_second
            first_outcome = outcome(first)
            self.clock.holds_up = None
            if not futures:  # it reads no clock
                begin_second()
                self.clock.holds_up = None
            return [first_outcome, futures[0].result(PATIENCE_S)]


class StoreTests:
    """The base of all tests of stores.

    Attributes:
        takes_clock: The stores read the clock that `opened` is given.  If not, some tests wait for leases to run out.
        short_s: How many seconds these leases last: more than a claim and two reads take on a busy machine.
    """

    takes_clock: ClassVar[bool] = True
    short_s: ClassVar[float] = 0.5

    def opened(self, folder: Path, clock: Callable[[], float]) -> Store:
        """Return a store.

        Those that are opened with one folder are stores on the same runs, as two OS processes have them.

        Args:
            folder: An empty folder at first.
            clock: Return Unix time in seconds.
        """
        raise NotImplementedError(f"{type(self).__name__}.opened is missing: a store on this folder is right")

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Iterator[Storage]:
        """Return the storage of one test."""
        storage = Storage(
            lambda clock: self.opened(tmp_path, clock), takes_clock=self.takes_clock, short_s=self.short_s
        )
        yield storage
        storage.close()


def outcome(action: Callable[[], Any]) -> Any:
    """Return the outcome of an action: its value or its `StoreError`."""
    try:
        return action()
    except StoreError as error:
        return error


def together(*actions: Callable[[], Any]) -> list[Any]:
    """Do these at once, each in a separate thread.  Return the results: values or `StoreError`s."""
    meeting = threading.Barrier(len(actions), timeout=PATIENCE_S)

    def act(action: Callable[[], Any]) -> Any:
        meeting.wait()
        return outcome(action)

    with ThreadPoolExecutor(len(actions)) as threads:
        return [future.result() for future in [threads.submit(act, action) for action in actions]]


def claimed(store: Store, run: str = "r", *, holder: str = "w", for_s: float = LONG_S) -> Lease:
    """Return a lease of this run."""
    lease = store.claim(holder, for_s=for_s, run=run)
    assert lease is not None, f"claim of the run {run!r} by its name is None: a lease is right"
    return lease


def begun(store: Store, run: str = "r", *, agent: str = "a", for_s: float = LONG_S) -> Lease:
    """Begin a run and return its lease."""
    store.create(run, "header", agent=agent)
    return claimed(store, run, for_s=for_s)


def waiting(*keys: str, due_s: float | None = None) -> Suspension:
    """Return a rest with questions under these keys."""
    questions = tuple([Question(key=key, kind="approval", about="{}") for key in keys])
    return Suspension(state="ToolInterrupt", due_s=due_s, questions=questions)


ENDED = Suspension(state="Completed", is_ended=True)


def renew(store: Store, lease: Lease, *, for_s: float) -> int:
    """Renew one lease.  Return the number of its posts, or raise its error."""
    (renewed,) = store.renew_all([lease], for_s=for_s)
    if isinstance(renewed, LeaseLost):
        raise renewed
    return renewed

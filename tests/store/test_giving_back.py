"""Is a run released, and the error that ended its driver raised, whatever else fails at that moment?"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.kept_runs import Elsewhere, LastingStore, loaded, renew
from support.uncollected import uncollected

from fsm_agent.agents import Agent
from fsm_agent.functions import function
from fsm_agent.messages import Done, FunctionStarted
from fsm_agent.store import LeaseLost, MemoryStore, Runs, SqliteStore, StoreError
from fsm_agent.store.leases import RENEWER
from fsm_agent.testing import Script, function_call


class Renewing(SqliteStore):
    """A store whose leases are renewed just after they were released."""

    def append(self, lease: Any, n: int, lines: Any, rest: Any = None, **rest_: Any) -> int:
        left = super().append(lease, n, lines, rest, **rest_)
        for recorder in RENEWER._recorders():
            renew(recorder)
        return left


def test_a_lease_that_is_renewed_when_it_was_just_given_back_is_not_lost(tmp_path: Path):
    store = Renewing(tmp_path / "runs.db")
    assert Agent(Script("fine"), name="clerk", store=store).call("Go.", run_id="r1").output == "fine"
    assert loaded(store).run.is_ended
    store.close()


class Full(LastingStore):
    """A store that fails from some moment on."""

    is_full = False

    def append(self, *args: Any, **rest: Any) -> int:
        if self.is_full:
            raise StoreError("the disk is full")
        return super().append(*args, **rest)


def stopped_by(error: BaseException, store: Full) -> Agent[Any, Any]:
    """Return an agent whose function ends its driver just after the store has begun to fail."""

    @function
    def end() -> str:
        """End it."""
        store.is_full = True
        raise error

    return Agent(Script(function_call("end")), functions=[end], name="clerk", store=store)


def test_what_has_ended_the_driver_is_raised_though_the_store_fails(caplog: pytest.LogCaptureFixture):
    store = Full()
    with pytest.raises(KeyboardInterrupt) as caught:
        stopped_by(KeyboardInterrupt(), store).call("Go.", run_id="r1")
    (note,) = caught.value.__notes__
    assert note.endswith("could not be kept: the disk is full")
    assert note in caplog.text


def test_a_store_that_fails_is_told_where_nothing_else_was_wrong():
    store = Full()
    events = Agent(Script("fine"), name="clerk", store=store).stream("Go.", run_id="r1")
    next(events)
    store.is_full = True
    with pytest.raises(StoreError, match="the disk is full"):
        list(events)


def test_nothing_is_begun_once_the_run_is_known_to_be_lost():
    store, begun = LastingStore(), threading.Event()

    @function(once=True)
    def pay() -> str:
        """Pay."""
        begun.set()
        return "paid"

    def listen(event: Any) -> None:
        if isinstance(event, FunctionStarted):
            store._clock = Elsewhere()
            store.claim("another", for_s=600.0, run="r1")
            for recorder in RENEWER._recorders():
                renew(recorder)

    agent = Agent(Script(function_call("pay")), functions=[pay], name="clerk", store=store)
    with pytest.raises(LeaseLost):
        agent.run(agent.prepare("Go.", run_id="r1"), listen)
    assert not begun.wait(0.05), "whoever has the run now may have been told that it did not begin"


class Slow(SqliteStore):
    """A store whose claims take as long as the test likes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_claiming, self.may_claim, self.is_back = threading.Event(), threading.Event(), threading.Event()

    def create(self, *args: Any, holder: str | None = None, **options: Any) -> Any:
        if holder is not None:
            self._hold_up()
        return super().create(*args, holder=holder, **options)

    def claim(self, *args: Any, **options: Any) -> Any:
        self._hold_up()
        return super().claim(*args, **options)

    def _hold_up(self) -> None:
        self.is_claiming.set()
        assert self.may_claim.wait(30)

    def append(self, lease: Any, n: int, lines: Any, rest: Any = None, **options: Any) -> int:
        left = super().append(lease, n, lines, rest, **options)
        if rest is not None:
            self.is_back.set()
        return left


@pytest.mark.parametrize("is_resumed", [False, True], ids=["acall", "aresume"])
def test_a_run_is_given_back_although_its_caller_was_cancelled_while_it_was_claimed(tmp_path: Path, is_resumed: bool):
    store = Slow(tmp_path / "runs.db")
    agent = Agent(Script("fine"), name="clerk", store=store)
    if is_resumed:
        store.create("r1", agent.prepare("Go.", run_id="r1").journal.header, agent="clerk")  # type: ignore[union-attr]

    async def main() -> None:
        called = agent.runs.aresume("r1") if is_resumed else agent.acall("Go.", run_id="r1")
        task = asyncio.create_task(called)
        await asyncio.to_thread(store.is_claiming.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        store.may_claim.set()

    asyncio.run(main())
    assert store.is_back.wait(30)
    assert loaded(store).run.holder is None
    assert agent.runs.resume("r1").output == "fine"
    store.close()


@pytest.mark.parametrize("verb", ["acall", "astream"])
def test_a_cancel_scope_of_anyio_cancels_no_cleanup(verb: str, tmp_path: Path):
    """Starlette, FastAPI and others run handlers in such scopes, which cancel again at each await."""
    store = SqliteStore(tmp_path / "runs.db")
    begun: list[int] = []
    cleaned: list[int] = []

    @function
    async def stand(n: int) -> str:
        """Wait."""
        try:
            begun.append(n)
            if len(begun) == 2:
                began.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            cleaned.append(n)
        return ""

    async def drive(agent: Agent[Any, Any]) -> None:
        if verb == "acall":
            await agent.acall("Go.", run_id="r1")
        else:
            _ = [event async for event in agent.astream("Go.", run_id="r1")]

    async def main() -> None:
        nonlocal began
        began = asyncio.Event()
        agent = Agent(
            Script((function_call("stand", n=1), function_call("stand", n=2))),
            functions=[stand],
            name="clerk",
            store=store,
        )
        async with anyio.create_task_group() as group:
            group.start_soon(drive, agent)
            await began.wait()
            group.cancel_scope.cancel()

    began = asyncio.Event()
    asyncio.run(main())
    assert sorted(cleaned) == [1, 2]
    assert (loaded(store).run.holder, loaded(store).run.due_s) == (None, 0.0)
    store.close()


@pytest.mark.parametrize("is_lasting", [False, True], ids=["memory", "file"])
def test_a_task_that_is_cancelled_again_in_its_cleanup_gives_its_run_back(is_lasting: bool, tmp_path: Path):
    store = SqliteStore(tmp_path / "runs.db") if is_lasting else MemoryStore()

    @function
    async def stand(n: int) -> str:
        """Wait."""
        if n == 2:
            driving.cancel()
            try:
                await asyncio.Event().wait()
            finally:
                driving.cancel()
        await asyncio.Event().wait()
        return ""

    async def main() -> None:
        nonlocal driving
        replies = (function_call("stand", n=1), function_call("stand", n=2))
        agent = Agent(Script(replies), functions=[stand], name="clerk", store=store)
        driving = asyncio.create_task(agent.acall("Go.", run_id="r1"))
        await asyncio.wait([driving])

    driving: asyncio.Task[Any]
    asyncio.run(main())
    assert driving.cancelled()
    assert (loaded(store).run.holder, loaded(store).run.due_s) == (None, 0.0)
    store.close()


class Writing(Slow):
    """A store whose writes, rather than its claims, take as long as the test likes."""

    create, claim = SqliteStore.create, SqliteStore.claim

    def submit(self, *args: Any, **options: Any) -> Any:
        return self.pool.submit(self.append, *args, **options)

    def append(self, *args: Any, **options: Any) -> int:
        self._hold_up()
        return super().append(*args, **options)

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1)


def test_a_task_that_is_cancelled_again_while_it_writes_gives_its_run_back(tmp_path: Path):
    store = Writing(tmp_path / "runs.db")
    agent = Agent(Script("fine"), name="clerk", store=store)

    async def main() -> None:
        task = asyncio.create_task(agent.acall("Go.", run_id="r1"))
        await asyncio.to_thread(store.is_claiming.wait, 30)
        for _ in range(2):
            task.cancel()
            await asyncio.wait([task], timeout=0)
        with pytest.raises(asyncio.CancelledError):
            await task
        store.may_claim.set()

    asyncio.run(main())
    assert store.is_back.wait(30)
    assert loaded(store).run.holder is None
    store.close()


PATIENCE_S = 60.0  # the lease, of an hour, is not what gives it back


class Collecting:
    """A clock that collects garbage when it is looked at, which a store does under its lock."""

    is_to_collect = False

    def __call__(self) -> float:
        if self.is_to_collect:
            self.is_to_collect = False
            gc.collect()
        return time.time()


@function
def add() -> str:
    """Add."""
    return "2"


asleep = threading.Event()


@function
async def sleep() -> str:
    """Sleep."""
    asleep.set()
    await asyncio.Event().wait()
    return "slept"


def in_a_ring(dropped: object) -> weakref.ref[object]:
    """Leave an object to the garbage collector; return a reference that tells whether it is gone."""
    ring = [dropped]
    ring.append(ring)
    return weakref.ref(dropped)


def half_read(agent: Agent[Any, Any]) -> object:
    events = agent.stream("Go.", run_id="r1")
    next(events)
    return events


def left_with_its_loop(agent: Agent[Any, Any]) -> object:
    """Return the task of a call that waits, whose event loop is closed."""
    asleep.clear()
    loop = asyncio.new_event_loop()
    task = loop.create_task(agent.acall("Go.", run_id="r1"))
    while not asleep.is_set():  # before that, a write may have begun
        loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    return task


@pytest.mark.system
@pytest.mark.parametrize("leave", [half_read, left_with_its_loop])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_drive_that_garbage_collection_ends_under_the_lock_of_the_store_is_given_back(
    tmp_path: Path, leave: Callable[[Agent[Any, Any]], object]
):
    clock = Collecting()
    store = SqliteStore(tmp_path / "runs.db", clock)
    with uncollected():
        dropped = in_a_ring(
            leave(
                Agent(
                    Script(function_call("sleep")), functions=[sleep], name="clerk", store=Runs(store, lease_s=3600.0)
                )
            )
        )
        for run in range(100):  # a thread that has just written for the call may hold it for a moment
            clock.is_to_collect = True
            thread = threading.Thread(target=store.create, args=(f"by {run}", "{}"), kwargs={"agent": "a"}, daemon=True)
            thread.start()
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "it waits for a lock that its own thread holds"
            if dropped() is None:
                break
    assert dropped() is None
    ends_s = time.monotonic() + PATIENCE_S
    while (row := store.get("r1")).holder is not None and time.monotonic() < ends_s:
        time.sleep(0.01)
    assert (row.holder, row.due_s) == (None, 0.0)
    store.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_coroutine_that_is_closed_after_its_loop_gives_its_run_back():
    agent = Agent(Script(function_call("sleep")), functions=[sleep], name="clerk", store=MemoryStore())
    coroutine = agent.acall("Go.", run_id="r1")
    loop = asyncio.new_event_loop()
    task = loop.create_task(coroutine)
    while not RENEWER._recorders():
        loop.run_until_complete(asyncio.sleep(0.01))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    with suppress(ValueError):  # of the function, which is closed in another context than it began in
        coroutine.close()
    assert loaded(agent.runs.all.store).run.holder is None


def test_the_lease_of_a_driver_that_was_left_behind_is_not_renewed():
    async def begin() -> object:
        events = agent.astream("Go.", run_id="r1")
        async for event in events:
            if isinstance(event, FunctionStarted):
                return events
        raise AssertionError("no function was started")

    agent = Agent(Script(function_call("sleep")), functions=[sleep], name="clerk", store=MemoryStore())
    loop = asyncio.new_event_loop()
    events = loop.run_until_complete(begin())
    [recorder] = [one for one in RENEWER._recorders() if one.store is agent.runs.all.store]
    loop.close()  # without `shutdown_asyncgens`, so the stream is never closed
    del events
    gc.collect()
    assert recorder not in RENEWER._recorders()


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_forked_process_does_not_give_back_the_run_that_its_parent_drives(tmp_path: Path, goes_on: bool):
    """It has a copy of the driver, which it ends when it leaves the loop, or drives."""
    agent = Agent(Script([function_call("add")], "fine"), functions=[add], name="clerk", store=tmp_path / "runs.db")
    events = agent.stream("Go.", run_id="r1")
    while not isinstance(next(events), FunctionStarted):
        pass
    if (child := os.fork()) == 0:
        status = 1
        try:
            if goes_on:
                for _ in events:
                    pass
            events.close()
            status = 0
        except LeaseLost:
            status = 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (2 if goes_on else 0)
    [last] = [event for event in events if isinstance(event, Done)]
    assert last.result.output == "fine"
    agent.runs.all.close()


@pytest.mark.parametrize("is_collected", [False, True], ids=["at the end of the loop", "in a cycle"])
@pytest.mark.parametrize("taken", [1, 3])
def test_a_stream_that_was_left_half_way_is_closed_without_an_error(
    is_collected: bool, taken: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """All abandoned async generators are closed at once, each by a separate task."""
    store = SqliteStore(tmp_path / "runs.db")
    left: list[Any] = []

    async def main() -> None:
        events = Agent(Script("fine"), name="clerk", store=store).astream("Go.", run_id="r1")
        for _ in range(taken):
            await anext(events)
        left.extend([events, left])
        if is_collected:
            left[:] = [[events]]
            left[0].append(left[0])
            del events
            left.clear()
            gc.collect()
            await asyncio.sleep(0)  # then the loop has tasks that close what was collected
            await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(main())
    gc.collect()  # asyncio tells of a task that has failed when it is gone
    assert not caplog.records
    assert loaded(store).run.holder is None
    store.close()

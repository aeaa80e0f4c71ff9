"""Are requests and tokens limited together with all who share a store?"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from support.drivers import busy_threads

from fsm_agent import ConfigError
from fsm_agent.clients import RateLimit
from fsm_agent.errors import TimedOut
from fsm_agent.store.memory import MemoryStore
from fsm_agent.store.sqlite import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: Any, tmp_path: Any) -> Any:
    """Two stores over the same runs, as two OS processes have them, and their clock."""
    now = [1000.0]
    if request.param == "memory":
        made: list[Any] = [MemoryStore(clock=lambda: now[0])] * 2
    else:
        made = [SqliteStore(tmp_path / "runs.db", clock=lambda: now[0]) for _ in range(2)]
    yield (*made, now)
    for store in made:
        store.close()


class Moving:
    """A clock whose sleeps move the clock of the stores."""

    def __init__(self, now: list[float]) -> None:
        self._now = now
        self.slept: list[float] = []

    def now(self) -> float:
        return self._now[0]

    def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        self._now[0] += delay_s

    async def asleep(self, delay_s: float) -> None:
        self.sleep(delay_s)


def charge(limit: RateLimit, reservation: Any, tokens: int) -> None:
    """Charge it, and wait for the correction, which is made in a thread."""
    busy, pause = busy_threads(), threading.Event()
    limit.charge(reservation, tokens)
    assert any(busy_threads() <= busy or pause.wait(0.001) for _ in range(20_000))


def begin(limit: RateLimit, tokens: int = 0, *, is_async: bool = False, timeout_s: float | None = None) -> Any:
    async def abegin() -> Any:
        async with limit.areserve(tokens, timeout_s=timeout_s) as reservation:
            return reservation

    if is_async:
        return asyncio.run(abegin())
    with limit.reserve(tokens, timeout_s=timeout_s) as reservation:
        return reservation


@pytest.mark.parametrize("is_async", [False, True])
def test_requests_are_counted_together(stores: Any, is_async: bool) -> None:
    one, other, now = stores
    clock = Moving(now)
    limits = [RateLimit(requests_per_minute=3, shared=store, name="openai", clock=clock) for store in (one, other)]
    for number in range(3):
        begin(limits[number % 2], is_async=is_async)
    assert clock.slept == []
    begin(limits[1], is_async=is_async)
    assert 59.0 < sum(clock.slept) < 61.0
    elsewhere = RateLimit(requests_per_minute=3, shared=one, name="anthropic", clock=clock)
    before = len(clock.slept)
    begin(elsewhere, is_async=is_async)
    assert len(clock.slept) == before


@pytest.mark.parametrize("is_async", [False, True])
def test_no_turn_in_time(stores: Any, is_async: bool) -> None:
    one, other, now = stores
    limits = [RateLimit(requests_per_minute=1, shared=s, name="x", clock=Moving(now)) for s in (one, other)]
    begin(limits[0])
    with pytest.raises(TimedOut, match="requests_per_minute=1"):
        begin(limits[1], is_async=is_async, timeout_s=5.0)
    assert (limits[1].waiting, limits[1].under_way) == (0, 0)


def test_tokens_that_had_no_request_are_given_back_and_estimates_are_corrected(stores: Any) -> None:
    one, other, now = stores
    limit = RateLimit(requests_per_minute=2, tokens_per_minute=100, shared=one, name="x", clock=Moving(now))
    begin(limit, 40)
    reservation = begin(limit, 20)
    with pytest.raises(TimedOut):
        begin(limit, 30, timeout_s=1.0)  # there is room for its tokens, and none for it
    charge(limit, reservation, 30)
    assert other.spend("tokens of x", 1, limit=70, within_s=60.0) > 0.0  # 40 and 30 are used
    assert other.spend("tokens of x", 1, limit=71, within_s=60.0) == 0.0


def test_a_request_that_took_longer_than_a_minute_gives_nothing_back_of_what_others_spent(stores: Any) -> None:
    one, other, now = stores
    limit = RateLimit(tokens_per_minute=100, shared=one, name="x", clock=Moving(now))
    reservation = begin(limit, 90)
    now[0] += 70.0
    assert other.spend("tokens of x", 90, limit=100, within_s=60.0) == 0.0
    charge(limit, reservation, 10)
    assert other.spend("tokens of x", 11, limit=100, within_s=60.0) > 0.0


def test_the_minute_of_a_request_is_counted_from_its_beginning(stores: Any) -> None:
    one, other, now = stores
    limit = RateLimit(requests_per_minute=1, tokens_per_minute=100, shared=one, name="x", clock=Moving(now))
    begin(limit)
    reservation = begin(limit, 90)  # it has waited for a minute
    charge(limit, reservation, 10)
    assert other.spend("tokens of x", 90, limit=100, within_s=60.0) == 0.0


def test_a_task_that_is_cancelled_while_the_store_is_asked_holds_no_place() -> None:
    class Slow(MemoryStore):
        def spend(self, *arguments: Any, **options: Any) -> float:
            asked.set()
            assert may_answer.wait(20)
            try:
                return super().spend(*arguments, **options)
            finally:
                answers.append(arguments[1])
                if len(answers) == 4:
                    has_given_back.set()

    asked, may_answer, has_given_back = threading.Event(), threading.Event(), threading.Event()
    answers = list[int]()
    store = Slow()
    limit = RateLimit(tokens_per_minute=9, requests_per_minute=1, max_concurrent=1, shared=store, name="x")

    async def take(timeout_s: float | None = None) -> None:
        async with limit.areserve(9, timeout_s=timeout_s):
            pass

    async def main() -> None:
        task = asyncio.create_task(take())
        assert await asyncio.to_thread(asked.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_answer.set()
        assert await asyncio.to_thread(has_given_back.wait, 20)
        assert answers == [9, 1, -9, -1]
        assert (limit.waiting, limit.under_way) == (0, 0)
        await take(timeout_s=20)  # nor has it spent anything

    asyncio.run(main())


@pytest.mark.system
def test_many_threads_never_exceed_it(tmp_path: Any) -> None:
    stores = [SqliteStore(tmp_path / "runs.db") for _ in range(4)]
    begun = list[int]()

    def ask(store: Any) -> None:
        limit = RateLimit(requests_per_minute=10, shared=store, name="x")
        for _ in range(5):
            try:
                begin(limit, timeout_s=1.0)
                begun.append(1)
            except TimedOut:
                pass

    threads = [threading.Thread(target=ask, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for store in stores:
        store.close()
    assert len(begun) == 10


def test_a_store_and_a_name_go_together() -> None:
    options: list[dict[str, Any]] = [{"shared": MemoryStore()}, {"name": "x"}, {"shared": "runs.db", "name": "x"}]
    for wrong in options:
        with pytest.raises(ConfigError):
            RateLimit(requests_per_minute=1, **wrong)

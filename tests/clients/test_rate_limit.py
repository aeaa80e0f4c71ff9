"""Does every request get a turn, in order, and never too many at once or in a minute?"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import tracemalloc
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.gates import Gate

from fsm_agent.agents import Agent
from fsm_agent.call import Reason
from fsm_agent.clients import RateLimit, RateLimitedClient
from fsm_agent.errors import ConfigError, TimedOut
from fsm_agent.runtime import run
from fsm_agent.testing import FakeClock, Script

PERIOD_S = 60.0
PATIENCE_S = 10.0  # for what happens at once; only a broken limit takes as long


def begun(limit: RateLimit, clock: FakeClock, *amounts: int) -> list[float]:
    """When each of these requests begins, one after the other, in seconds from the first."""
    started_s, at_s = clock.now(), []

    async def main() -> None:
        for amount in amounts:
            async with limit.reserve(amount):
                at_s.append(round(clock.now() - started_s, 3))

    asyncio.run(main())
    return at_s


def took(limit: RateLimit, clock: FakeClock, estimate: int, tokens: int, after_s: float = 0.0) -> None:
    """A request that took this many tokens, which is known after this time."""

    async def main() -> None:
        async with limit.reserve(estimate) as turn:
            clock.advance(after_s)
            limit.charge(turn, tokens)

    asyncio.run(main())


def soon(holds: Callable[[], bool]) -> None:
    """Let the other threads run until ``holds``."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S * 1000)):
        if holds():
            return
        pause.wait(0.001)
    raise AssertionError("it never came to be")


@pytest.mark.parametrize("limits", [{}, {"requests_per_minute": 0}])
def test_a_limit_is_a_whole_number_from_one(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RateLimit(**limits)


# A minute


@pytest.mark.parametrize(
    ("limits", "amounts", "at_s"),
    [
        ({"requests_per_minute": 2}, [0, 0, 0, 0, 0], [0, 0, 60, 60, 120]),
        ({"tokens_per_minute": 100}, [60, 40, 1, 99, 1], [0, 0, 60, 60, 120]),
        ({"tokens_per_minute": 100}, [1, 500, 1], [0, 60, 120]),
        ({"requests_per_minute": 3, "tokens_per_minute": 10}, [9, 5, 1, 1, 1], [0, 60, 60, 60, 120]),
    ],
    ids=["requests", "tokens", "more than a minute's tokens waits for an empty one", "both"],
)
def test_so_much_begins_in_a_minute(limits: dict[str, int], amounts: list[int], at_s: list[float]) -> None:
    clock = FakeClock()
    assert begun(RateLimit(**limits, clock=clock), clock, *amounts) == at_s
    assert sum(clock.sleeps) == pytest.approx(at_s[-1])


def test_requests_that_begin_together_leave_room_a_minute_after_the_last_of_them() -> None:
    clock = FakeClock()
    limit = RateLimit(requests_per_minute=2, clock=clock)
    begun(limit, clock, 0)
    clock.advance(0.2)
    assert begun(limit, clock, 0, 0) == [0, 60]
    clock.advance(0.2)
    begun(limit, clock, 0)
    clock.advance(59.9)
    assert begun(limit, clock, 0) == [0.1]


def test_tokens_are_put_right_by_what_a_request_really_took() -> None:
    clock = FakeClock()
    limit = RateLimit(tokens_per_minute=100, clock=clock)
    took(limit, clock, 10, 95)
    assert begun(limit, clock, 10) == [60]
    clock.advance(60)
    took(limit, clock, 90, 5)
    assert begun(limit, clock, 95) == [0]


def test_what_is_taken_late_counts_from_then() -> None:
    clock = FakeClock()
    limit = RateLimit(tokens_per_minute=100, clock=clock)
    took(limit, clock, 10, 110, after_s=100)
    clock.advance(20)
    assert begun(limit, clock, 1) == [40]
    clock.advance(100)
    took(limit, clock, 10, 1, after_s=100)  # its minute is over: nothing is left to give back
    assert begun(limit, clock, 100, 1) == [0, 60]


@examples(100)
@given(
    limit=st.integers(1, 5),
    arrivals=st.lists(st.tuples(st.floats(0, 40) | st.floats(0, 0.3), st.integers(0, 7)), min_size=1, max_size=40),
)
def test_no_minute_has_more_than_the_limit(limit: int, arrivals: list[tuple[float, int]]) -> None:
    clock = FakeClock()
    both = RateLimit(requests_per_minute=limit, tokens_per_minute=10, clock=clock)
    at: list[tuple[float, int]] = []

    async def arrive() -> None:
        for pause_s, tokens in arrivals:
            clock.advance(pause_s)
            async with both.reserve(tokens):
                at.append((clock.now(), tokens))

    asyncio.run(arrive())
    for start_s, _ in at:
        inside = [tokens for at_s, tokens in at if start_s <= at_s < start_s + PERIOD_S - 1e-5]
        assert len(inside) <= limit
        assert sum(inside) <= 10
    assert sum(clock.sleeps) <= len(arrivals) * PERIOD_S


@pytest.mark.nightly
def test_memory_is_bounded_whatever_the_limit() -> None:
    clock = FakeClock()
    limit = RateLimit(requests_per_minute=10**9, clock=clock)
    tracemalloc.start()

    async def main() -> None:
        for _ in range(100_000):
            clock.advance(0.01)
            async with limit.reserve():
                pass

    asyncio.run(main())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


# Time


def test_no_turn_in_time_is_said_at_once() -> None:
    clock = FakeClock()
    limit = RateLimit(requests_per_minute=1, clock=clock)
    begun(limit, clock, 0)
    clock.advance(15)
    with pytest.raises(TimedOut, match="requests_per_minute=1") as caught:
        asyncio.run(begin(limit, timeout_s=30))
    assert caught.value.retryable
    assert caught.value.retry_after_s == pytest.approx(45)
    assert clock.sleeps == []
    assert limit.waiting == 0


async def begin(limit: RateLimit, **options: Any) -> float | None:
    """Begin and end a request, and return what was left of its time."""
    async with limit.reserve(**options) as turn:
        return turn.time_left()


def test_what_is_left_of_the_time_is_told() -> None:
    clock = FakeClock()
    limit = RateLimit(requests_per_minute=1, clock=clock)
    begun(limit, clock, 0)
    assert asyncio.run(begin(limit, timeout_s=100)) == pytest.approx(40)
    assert asyncio.run(begin(limit)) is None


async def test_a_queue_that_does_not_move_is_left_in_time() -> None:
    limit = RateLimit(max_concurrent=1)
    async with limit.reserve():
        for timeout_s in (0.01, 0):
            with pytest.raises(TimedOut, match="max_concurrent=1"):
                await begin(limit, timeout_s=timeout_s)
        assert limit.waiting == 0
    async with limit.reserve(timeout_s=0):
        assert limit.under_way == 1


# Tasks


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


class Held(FakeClock):
    """A clock that moves only when the test advances it, and then wakes who sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()
        self.blocked = 0

    async def asleep(self, delay_s: float) -> None:
        self.blocked += 1
        await self.gate.wait()
        super().sleep(delay_s)


def test_one_that_needs_much_is_not_overtaken() -> None:
    """The first in the queue waits for the clock.  The others could start at once, but do not."""
    clock, order = Held(), list[int]()
    limit = RateLimit(tokens_per_minute=10, clock=clock)

    async def work(tokens: int) -> None:
        async with limit.reserve(tokens):
            order.append(tokens)

    async def main() -> None:
        await work(8)
        tasks = [asyncio.create_task(work(tokens)) for tokens in (9, 1)]
        await settle()
        assert order == [8]
        clock.gate.set()
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)

    asyncio.run(main())
    assert order == [8, 9, 1]


def test_tasks_go_in_order_and_the_cancelled_give_their_place_back() -> None:
    limit = RateLimit(max_concurrent=1)
    order: list[int] = []

    async def work(number: int) -> None:
        async with limit.reserve():
            order.append(number)
            await settle()

    async def main() -> None:
        async with limit.reserve():
            tasks = [asyncio.create_task(work(number)) for number in range(6)]
            await settle()
            assert limit.waiting == 6
            tasks[2].cancel()
            await settle()
            assert limit.waiting == 5
        tasks[0].cancel()  # it has been told that it is the next, and not begun
        done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE_S)
        assert [isinstance(one, asyncio.CancelledError) for one in done] == [True, False, True, False, False, False]

    asyncio.run(main())
    assert order == [1, 3, 4, 5]
    assert (limit.waiting, limit.under_way) == (0, 0)


async def test_as_many_go_on_as_places_become_free() -> None:
    limit = RateLimit(max_concurrent=3)

    async def work(together: asyncio.Barrier) -> None:
        async with limit.reserve():
            await together.wait()

    together = asyncio.Barrier(3)
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(limit.reserve())
        tasks = [asyncio.create_task(work(together)) for _ in range(6)]
        await settle()
        assert limit.waiting == 6
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)


async def test_one_cancelled_while_it_waits_for_the_clock_gives_its_place_back() -> None:
    clock = Held()
    limit = RateLimit(requests_per_minute=1, clock=clock)

    async def work() -> float:
        async with limit.reserve():
            return clock.now()

    await work()
    first, second = asyncio.create_task(work()), asyncio.create_task(work())
    await settle()
    assert (clock.blocked, limit.waiting) == (1, 2)
    clock.advance(60)
    first.cancel()
    await asyncio.wait_for(second, PATIENCE_S)  # the minute is the second's: the first took nothing of it
    assert first.cancelled()


def test_event_loops_share_one_limit() -> None:
    limit = RateLimit(max_concurrent=2)
    seen: deque[int] = deque()
    start = threading.Barrier(4, timeout=PATIENCE_S)

    async def task() -> None:
        async with limit.reserve():
            seen.append(limit.under_way)
            await asyncio.sleep(0)

    async def tasks() -> None:
        await asyncio.gather(*[task() for _ in range(25)])

    def loop() -> None:
        start.wait()
        asyncio.run(tasks())

    threads = [threading.Thread(target=loop, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert len(seen) == 100
    assert max(seen) <= 2
    assert (limit.waiting, limit.under_way) == (0, 0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_loop_that_died_does_not_hold_up_the_others() -> None:
    limit = RateLimit(max_concurrent=1)

    async def wait() -> None:
        async with limit.reserve():
            raise AssertionError("its loop is gone")

    def left_in(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[None]]:
        tasks = [loop.create_task(wait()) for _ in range(2)]
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        return tasks

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    async with limit.reserve():
        tasks = await asyncio.to_thread(left_in, loop)
        assert limit.waiting == 2
    async with limit.reserve(timeout_s=PATIENCE_S):
        assert (limit.waiting, limit.under_way) == (0, 1)
    tasks.clear()
    gc.collect()
    assert (limit.waiting, limit.under_way) == (0, 0)


async def test_garbage_that_is_collected_under_the_lock_frees_its_place() -> None:
    """An abandoned request may be closed at any moment, even in the middle of our own work."""
    limit = RateLimit(max_concurrent=1)

    async def hold() -> None:
        async with limit.reserve():
            await asyncio.Event().wait()

    dropped = hold()
    dropped.send(None)
    assert limit.under_way == 1
    with limit._lock:
        del dropped
        gc.collect()
    assert limit.under_way == 0


# Threads that are left behind, and forks


@pytest.mark.parametrize("waits_for", ["its minute", "the others"])
def test_a_call_that_is_cancelled_leaves_the_queue_at_once(waits_for: str) -> None:
    """The cancellation comes from another thread."""
    limit = RateLimit(**{"max_concurrent" if waits_for == "the others" else "requests_per_minute": 1}, clock=Held())
    script = Script("never")
    agent = Agent(RateLimitedClient(script, limit))
    pending = agent.prepare("Hello?")

    async def main() -> None:
        async with limit.reserve():
            running = asyncio.create_task(asyncio.to_thread(run, pending, agent._own_environment))
            await asyncio.to_thread(soon, lambda: limit.waiting == 1)
            pending.cancel("enough")
            await asyncio.to_thread(soon, lambda: limit.waiting == 0)
            await running

    asyncio.run(main())
    assert pending.record.ending.reason is Reason.CANCELLED
    assert script.requests == []


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_after_a_fork_the_requests_of_the_parent_hold_nobody_up() -> None:
    code = """if True:
        import asyncio, os, threading
        from fsm_agent.clients import RateLimit
        limit, has_begun, may_end = RateLimit(max_concurrent=1), threading.Event(), threading.Event()
        async def hold():
            async with limit.reserve():
                has_begun.set()
                may_end.wait(20)
        for _ in range(2):  # one holds it, and the other waits
            threading.Thread(target=lambda: asyncio.run(hold())).start()
        has_begun.wait(20)
        while not limit.waiting:
            pass
        limit._lock.acquire()
        if not (child := os.fork()):
            async def ask():
                async with limit.reserve(timeout_s=1):
                    os._exit(42)
            asking = threading.Thread(target=lambda: asyncio.run(ask()), daemon=True)  # the lock is not of this thread
            asking.start()
            asking.join(5)
            os._exit(1)
        limit._lock.release()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), limit.under_way)
        may_end.set()"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=40, check=True
    )
    assert ended.stdout == "42 1\n"

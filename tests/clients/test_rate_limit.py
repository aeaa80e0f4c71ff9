"""Does everybody get a turn, in order, and never too many at once or in a minute?"""

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
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from fsm_agent.agents import Agent
from fsm_agent.clients import RateLimit, RateLimitedClient
from fsm_agent.errors import ConfigError, TimedOut
from fsm_agent.lifecycle import Reason
from fsm_agent.runtime import run
from fsm_agent.testing import FakeClock, Script

PERIOD_S = 60.0
PATIENCE_S = 10.0  # for what happens at once; only a broken limit takes as long


def begun(limit: RateLimit, clock: FakeClock, *amounts: int) -> list[float]:
    """When each of these requests begins, one after the other, in seconds from the first."""
    started_s, at_s = clock.now(), []
    for amount in amounts:
        with limit.reserve(amount):
            at_s.append(round(clock.now() - started_s, 3))
    return at_s


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


def test_so_many_requests_begin_in_a_minute() -> None:
    clock = FakeClock()
    assert begun(RateLimit(requests_per_minute=2, clock=clock), clock, 0, 0, 0, 0, 0) == [0, 0, 60, 60, 120]
    assert clock.sleeps == pytest.approx([60, 60])


def test_a_place_is_free_a_minute_after_it_was_taken() -> None:
    clock = FakeClock()
    limit = RateLimit(requests_per_minute=2, clock=clock)
    begun(limit, clock, 0)
    clock.advance(50)
    assert begun(limit, clock, 0, 0, 0) == [0, 10, 60]


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


def test_so_many_tokens_begin_in_a_minute() -> None:
    clock = FakeClock()
    limit = RateLimit(tokens_per_minute=100, clock=clock)
    assert begun(limit, clock, 60, 40, 1, 99, 1) == [0, 0, 60, 60, 120]


def test_what_is_more_than_a_minutes_tokens_waits_for_an_empty_minute() -> None:
    clock = FakeClock()
    limit = RateLimit(tokens_per_minute=100, clock=clock)
    assert begun(limit, clock, 1, 500, 1) == [0, 60, 120]


def test_both_limits_count() -> None:
    clock = FakeClock()
    limit = RateLimit(requests_per_minute=3, tokens_per_minute=10, clock=clock)
    assert begun(limit, clock, 9, 5, 1, 1, 1) == [0, 60, 60, 60, 120]


def test_tokens_are_put_right_by_what_a_request_really_took() -> None:
    clock = FakeClock()
    limit = RateLimit(tokens_per_minute=100, clock=clock)
    with limit.reserve(10) as turn:
        limit.charge(turn, 95)
    assert begun(limit, clock, 10) == [60]
    clock.advance(60)
    with limit.reserve(90) as turn:
        limit.charge(turn, 5)
    assert begun(limit, clock, 95) == [0]


def test_what_is_taken_late_counts_from_then() -> None:
    clock = FakeClock()
    limit = RateLimit(tokens_per_minute=100, clock=clock)
    with limit.reserve(10) as turn:
        clock.advance(100)
        limit.charge(turn, 110)
    clock.advance(20)
    assert begun(limit, clock, 1) == [40]
    clock.advance(100)
    with limit.reserve(10) as turn:
        clock.advance(100)
        limit.charge(turn, 1)  # its minute is over: nothing is left to give back
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
    for pause_s, tokens in arrivals:
        clock.advance(pause_s)
        with both.reserve(tokens):
            at.append((clock.now(), tokens))
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
    for _ in range(100_000):
        clock.advance(0.01)
        begun(limit, clock, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


# Time


def test_no_turn_in_time_is_said_at_once() -> None:
    clock = FakeClock()
    limit = RateLimit(requests_per_minute=1, clock=clock)
    begun(limit, clock, 0)
    clock.advance(15)
    with pytest.raises(TimedOut, match="requests_per_minute=1") as caught, limit.reserve(timeout_s=30):
        pass
    assert caught.value.retryable
    assert caught.value.retry_after_s == pytest.approx(45)
    assert clock.sleeps == []
    assert limit.waiting == 0


def test_what_is_left_of_the_time_is_told() -> None:
    clock = FakeClock()
    limit = RateLimit(requests_per_minute=1, clock=clock)
    begun(limit, clock, 0)
    with limit.reserve(timeout_s=100) as turn:
        assert turn.time_left() == pytest.approx(40)
    with limit.reserve() as turn:
        assert turn.time_left() is None


def test_a_queue_that_does_not_move_is_left_in_time() -> None:
    limit = RateLimit(max_concurrent=1)
    with limit.reserve():
        with pytest.raises(TimedOut, match="max_concurrent=1"), limit.reserve(timeout_s=0.01):
            pass
        with pytest.raises(TimedOut), limit.reserve(timeout_s=0):
            pass
        assert limit.waiting == 0
    with limit.reserve(timeout_s=0):
        assert limit.under_way == 1


def test_a_queue_that_does_not_move_is_left_in_time_under_asyncio() -> None:
    limit = RateLimit(max_concurrent=1)

    async def main() -> None:
        async with limit.areserve():
            with pytest.raises(TimedOut, match="max_concurrent=1"):
                async with limit.areserve(timeout_s=0.01):
                    pass
            assert limit.waiting == 0
        async with limit.areserve(timeout_s=0):
            assert limit.under_way == 1

    asyncio.run(main())


# Threads


def test_so_many_threads_at_once_and_no_fewer() -> None:
    limit = RateLimit(max_concurrent=3)
    together = threading.Barrier(3, timeout=PATIENCE_S)
    most = []

    def work() -> None:
        with limit.reserve():
            together.wait()
            most.append(limit.under_way)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(most) == 12
    assert max(most) <= 3
    assert (limit.waiting, limit.under_way) == (0, 0)


def test_threads_go_in_the_order_in_which_they_came() -> None:
    limit = RateLimit(max_concurrent=1)
    order: list[int] = []

    def work(number: int) -> None:
        with limit.reserve():
            order.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    with limit.reserve():
        for number, thread in enumerate(threads):
            thread.start()
            soon(lambda number=number: limit.waiting == number + 1)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == list(range(8))


def test_one_that_needs_much_is_not_overtaken() -> None:
    """The first in the queue waits for the clock; those behind it could go at once, and do not."""

    class Gate(FakeClock):
        def __init__(self) -> None:
            super().__init__()
            self.opened = threading.Event()

        def sleep(self, delay_s: float) -> None:
            assert self.opened.wait(PATIENCE_S)
            super().sleep(delay_s)

    clock = Gate()
    limit = RateLimit(tokens_per_minute=10, clock=clock)
    order: list[int] = []

    def work(tokens: int) -> None:
        with limit.reserve(tokens):
            order.append(tokens)

    with limit.reserve(8):
        pass
    threads = [threading.Thread(target=work, args=(tokens,)) for tokens in (9, 1)]
    for number, thread in enumerate(threads):
        thread.start()
        soon(lambda number=number: limit.waiting == number + 1)
    assert order == []
    clock.opened.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == [9, 1]


def test_whatever_ends_a_turn_frees_the_place() -> None:
    limit = RateLimit(max_concurrent=1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), limit.reserve(timeout_s=0):
            raise ZeroDivisionError
    assert (limit.waiting, limit.under_way) == (0, 0)


def test_an_interrupted_sleep_gives_the_place_back() -> None:
    class Interrupted(FakeClock):
        def sleep(self, delay_s: float) -> None:
            raise KeyboardInterrupt

    clock = Interrupted()
    limit = RateLimit(requests_per_minute=1, clock=clock)
    begun(limit, clock, 0)
    with pytest.raises(KeyboardInterrupt), limit.reserve():
        pass
    assert limit.waiting == 0
    clock.advance(60)
    assert begun(limit, clock, 0) == [0]


# Tasks


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_tasks_go_in_order_and_the_cancelled_give_their_place_back() -> None:
    limit = RateLimit(max_concurrent=1)
    order: list[int] = []

    async def work(number: int) -> None:
        async with limit.areserve():
            order.append(number)
            await settle()

    async def main() -> None:
        async with limit.areserve():
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


def test_as_many_go_on_as_places_become_free() -> None:
    limit = RateLimit(max_concurrent=3)

    async def work(together: asyncio.Barrier) -> None:
        async with limit.areserve():
            await together.wait()

    async def main() -> None:
        together = asyncio.Barrier(3)
        with ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(limit.reserve())
            tasks = [asyncio.create_task(work(together)) for _ in range(6)]
            await settle()
            assert limit.waiting == 6
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)

    asyncio.run(main())


def test_one_cancelled_while_it_waits_for_the_clock_gives_its_place_back() -> None:
    class Gate(FakeClock):
        def __init__(self) -> None:
            super().__init__()
            self.blocked = 0

        async def asleep(self, delay_s: float) -> None:
            self.blocked += 1
            await asyncio.Event().wait()

    clock = Gate()
    limit = RateLimit(requests_per_minute=1, clock=clock)

    async def work() -> float:
        async with limit.areserve():
            return clock.now()

    async def main() -> None:
        await work()
        first, second = asyncio.create_task(work()), asyncio.create_task(work())
        await settle()
        assert (clock.blocked, limit.waiting) == (1, 2)
        clock.advance(60)
        first.cancel()
        await asyncio.wait_for(second, PATIENCE_S)  # the minute is the second's: the first took nothing of it
        assert first.cancelled()

    asyncio.run(main())


def test_the_clock_is_asked_to_wait_under_asyncio_too() -> None:
    clock = FakeClock()
    limit = RateLimit(requests_per_minute=1, clock=clock)

    async def main() -> list[float]:
        at_s = []
        for _ in range(3):
            async with limit.areserve():
                at_s.append(clock.now() - 1_000_000_000)
        return at_s

    assert asyncio.run(main()) == pytest.approx([0, 60, 120])


def test_threads_and_event_loops_share_one_limit() -> None:
    limit = RateLimit(max_concurrent=2)
    seen: deque[int] = deque()
    start = threading.Barrier(4, timeout=PATIENCE_S)

    async def task() -> None:
        async with limit.areserve():
            seen.append(limit.under_way)
            await asyncio.sleep(0)

    async def tasks() -> None:
        await asyncio.gather(*[task() for _ in range(25)])

    def loop() -> None:
        start.wait()
        asyncio.run(tasks())

    def plain() -> None:
        start.wait()
        for _ in range(25):
            with limit.reserve():
                seen.append(limit.under_way)

    threads = [threading.Thread(target=target, daemon=True) for target in (loop, loop, plain, plain)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert len(seen) == 100
    assert max(seen) <= 2
    assert (limit.waiting, limit.under_way) == (0, 0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_died_does_not_hold_up_the_others() -> None:
    limit = RateLimit(max_concurrent=1)

    async def wait() -> None:
        async with limit.areserve():
            raise AssertionError("its loop is gone")

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    with limit.reserve():
        tasks = [loop.create_task(wait()) for _ in range(2)]
        loop.run_until_complete(asyncio.sleep(0))
        assert limit.waiting == 2
        loop.close()
    with limit.reserve(timeout_s=PATIENCE_S):
        assert (limit.waiting, limit.under_way) == (0, 1)
    tasks.clear()
    gc.collect()
    assert (limit.waiting, limit.under_way) == (0, 0)


def test_garbage_that_is_collected_under_the_lock_frees_its_place() -> None:
    """A stream that somebody dropped may be closed at any moment, in the middle of our own work as well."""
    limit = RateLimit(max_concurrent=1)

    def stream() -> Any:
        with limit.reserve():
            yield

    dropped = stream()
    next(dropped)
    with limit._lock:
        del dropped
        gc.collect()
    assert limit.under_way == 0


# Threads that are left behind, and forks


@pytest.mark.parametrize("waits_for", ["its minute", "the others"])
def test_a_call_that_is_cancelled_leaves_the_queue_at_once(waits_for: str) -> None:
    """From another thread, whatever it waits for there."""
    limit = RateLimit(max_concurrent=1) if waits_for == "the others" else RateLimit(requests_per_minute=1)
    script = Script("never")
    agent = Agent(RateLimitedClient(script, limit))
    pending = agent.seed("Hello?")
    with limit.reserve():
        thread = threading.Thread(target=lambda: run(pending, agent.own_world), daemon=True)
        thread.start()
        soon(lambda: limit.waiting == 1)
        pending.cancel("enough")
        soon(lambda: limit.waiting == 0)
        thread.join(PATIENCE_S)
    assert pending.record.ending.reason is Reason.CANCELLED
    assert script.requests == []


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_after_a_fork_the_requests_of_the_parent_hold_nobody_up() -> None:
    code = """if True:
        import os, threading
        from fsm_agent.clients import RateLimit
        limit, has_begun, may_end = RateLimit(max_concurrent=1), threading.Event(), threading.Event()
        def hold():
            with limit.reserve():
                has_begun.set()
                may_end.wait(20)
        for _ in range(2):  # one holds it, and the other waits
            threading.Thread(target=hold).start()
        has_begun.wait(20)
        while not limit.waiting:
            pass
        limit._lock.acquire()
        if not (child := os.fork()):
            def ask():
                with limit.reserve(timeout_s=1):
                    os._exit(42)
            asking = threading.Thread(target=ask, daemon=True)  # the lock is not of this thread
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

"""Do a rate limit and a cache do what they say, around plain functions and coroutine functions?"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.drivers import Driver, anyhow, by_arun, by_run, seed

from fsm_agent.call import Limits, restore, snapshot
from fsm_agent.errors import UsageError
from fsm_agent.functions import Function, function
from fsm_agent.messages import FunctionCall
from fsm_agent.prompts import Prompt
from fsm_agent.runtime import Cache, Throttle
from fsm_agent.testing import FakeClock, Script, function_call


class Counted:
    """A function of a number that counts how often it was run."""

    def __init__(self, kind: str, *middleware: Any, clock: FakeClock | None = None, takes_s: float = 0.0) -> None:
        self.ran: list[int] = []
        self.begun_at: list[float] = []
        self.clock = clock or FakeClock()
        self.takes_s = takes_s
        chosen: Callable[..., Any] = self.plain if kind == "plain" else self.waiting
        self.function = Function.of(chosen, name="work", repeatable=True, middleware=middleware)

    def plain(self, n: int) -> str:
        """Work."""
        self.ran.append(n)
        self.begun_at.append(self.clock.now())
        self.clock.advance(self.takes_s)
        if n < 0:
            raise ValueError(n)
        return f"{n}, for the {self.ran.count(n)}. time"

    async def waiting(self, n: int) -> str:
        """Work."""
        await asyncio.sleep(0)
        return self.plain(n)

    def asked(self, driven: Driver, *numbers: int, parallel: int | None = 1) -> list[FunctionCall]:
        """Return the outcomes of these calls, one reply each."""
        script = Script(*[function_call("work", n=n) for n in numbers], "done", clock=self.clock)
        one = seed(Prompt("x", functions=[self.function]), limits=Limits(rounds=None, parallel=parallel))
        driven(one, script)
        return list(one.record.function_calls)


kinds = pytest.mark.parametrize("kind", ["plain", "waiting"])


class TestThrottle:
    @anyhow
    @kinds
    def test_so_many_begin_in_any_span(self, driven: Driver, kind: str):
        work = Counted(kind, Throttle(2, per_s=1.0))
        start_s = work.clock.now()
        calls = work.asked(driven, *range(5))
        assert [at - start_s for at in work.begun_at] == [0, 0, 1, 1, 2]
        assert work.clock.sleeps == [1.0, 1.0]
        assert [f.result for f in calls] == [f"{n}, for the 1. time" for n in range(5)]

    def test_what_passed_by_itself_is_not_waited_for(self):
        work = Counted("plain", Throttle(1, per_s=1.0), takes_s=0.75)
        work.asked(by_arun, 1, 2, 3)
        assert work.clock.sleeps == [0.25, 0.25]
        slow = Counted("plain", Throttle(1, per_s=1.0), takes_s=2.0)
        slow.asked(by_arun, 1, 2, 3)
        assert slow.clock.sleeps == []

    def test_threads_take_their_turns_one_by_one(self):
        clock, throttle = FakeClock(), Throttle(3, per_s=1.0)
        barrier, waits = threading.Barrier(12), list[float]()

        def take() -> None:
            barrier.wait(timeout=20)
            waits.append(throttle._delay_s(clock))

        threads = [threading.Thread(target=take) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(waits) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]

    def test_functions_that_share_one_share_its_limit(self):
        shared, clock = Throttle(1, per_s=10.0), FakeClock()
        one, other = Counted("plain", shared, clock=clock), Counted("plain", shared, clock=clock)
        one.asked(by_arun, 1)
        other.asked(by_arun, 1)
        assert clock.sleeps == [10.0]

    @pytest.mark.parametrize(("calls", "per_s"), [(0, 1.0), (1, 0.0)])
    def test_nonsense_is_named(self, calls: int, per_s: float):
        with pytest.raises(UsageError, match="Throttle"):
            Throttle(calls, per_s)


class TestCache:
    @anyhow
    @kinds
    def test_a_hit_is_not_run_and_says_so_and_what_raised_is_tried_again(self, driven: Driver, kind: str):
        work = Counted(kind, Cache(ttl_s=60))
        calls = work.asked(driven, 1, 1, 2, 1, -1, -1)
        assert work.ran == [1, 2, -1, -1]
        assert [f.is_cached for f in calls] == [False, True, False, True, False, False]
        assert [f.result for f in calls[:4]] == [f"{n}, for the 1. time" for n in (1, 1, 2, 1)]

    @kinds
    def test_what_is_too_old_is_run_again(self, kind: str):
        cache = Cache(ttl_s=60)
        work = Counted(kind, cache)
        runs = []
        for passed_s in (0.0, 59.0, 1.0, 59.0):
            work.clock.advance(passed_s)
            work.asked(by_arun, 1)
            runs.append(len(work.ran))
        assert runs == [1, 1, 2, 2]

    def test_none_is_a_result_too(self):
        ran = []

        @function(middleware=[Cache(ttl_s=60)], repeatable=True)
        def nothing() -> None:
            """Nothing."""
            ran.append(1)

        one = seed(Prompt("x", functions=[nothing]))
        by_arun(one, Script(function_call("nothing"), function_call("nothing"), "done"))
        assert ran == [1]

    def test_equal_arguments_are_the_same_whatever_their_order(self):
        ran = []

        @function(middleware=[Cache(ttl_s=60)], repeatable=True)
        def add(a: float, b: float) -> float:
            """Add."""
            ran.append((a, b))
            return a + b

        one = seed(Prompt("x", functions=[add]), limits=Limits(rounds=None))
        by_arun(
            one,
            Script(
                function_call("add", a=1, b=2), function_call("add", b=2, a=1), function_call("add", a=2, b=1), "done"
            ),
        )
        assert ran == [(1, 2), (2, 1)]

    def test_the_one_unused_for_longest_goes_first(self):
        work = Counted("plain", Cache(ttl_s=60, size=2))
        work.asked(by_run, 1, 2, 1, 3, 1, 2)
        assert work.ran == [1, 2, 3, 2]

    def test_two_functions_may_share_one(self):
        cache = Cache(ttl_s=60)
        one = Function.of(lambda n: "one", name="one", middleware=[cache])
        other = Function.of(lambda n: "other", name="other", middleware=[cache])
        made = seed(Prompt("x", functions=[one, other]))
        by_arun(made, Script([function_call("one", n=1), function_call("other", n=1)], "done"))
        assert [f.result for f in made.record.function_calls] == ["one", "other"]

    def test_what_stands_around_it_may_change_the_arguments(self):
        def doubled(call: FunctionCall, following: Any) -> Any:
            return following(call.changed(arguments_json=f'{{"n": {next(numbers)}}}'))

        numbers = iter([7, 8, 7])
        work = Counted("plain", doubled, Cache(ttl_s=60))
        calls = work.asked(by_arun, 1, 1, 1)
        assert work.ran == [7, 8]
        assert [f.result for f in calls] == ["7, for the 1. time", "8, for the 1. time", "7, for the 1. time"]

    def test_what_has_to_be_awaited_is_kept_when_it_has_come(self):
        ran = []

        async def lookup(n: int) -> str:
            """Look it up."""
            ran.append(n)
            return f"found {n}"

        @functools.wraps(lookup)
        def wrapped(n: int) -> Any:
            return lookup(n)

        made = Function.of(wrapped, repeatable=True, middleware=[Cache(ttl_s=60)])
        one = seed(Prompt("x", functions=[made]))
        by_arun(one, Script(function_call("lookup", n=1), function_call("lookup", n=1), "done"))
        assert [f.result for f in one.record.function_calls] == ["found 1"] * 2
        assert ran == [1]

    def test_a_snapshot_keeps_the_mark(self):
        work = Counted("plain", Cache(ttl_s=60))
        one = seed(Prompt("x", path="p", functions=[work.function]))
        by_run(one, Script(function_call("work", n=1), function_call("work", n=1), "done", clock=work.clock))
        again = restore(snapshot(one), one.prompt)
        assert [f.is_cached for f in again.record.function_calls] == [False, True]

    def test_a_throttle_within_a_cache_counts_what_is_run(self):
        work = Counted("plain", Cache(ttl_s=60), Throttle(1, per_s=10.0))
        work.asked(by_run, 1, 1, 1, 2)
        assert work.clock.sleeps == [10.0]

    @pytest.mark.parametrize(("ttl_s", "size"), [(0, 1), (-1.0, 1), (1.0, 0)])
    def test_nonsense_is_named(self, ttl_s: float, size: int):
        with pytest.raises(UsageError, match="Cache"):
            Cache(ttl_s, size=size)

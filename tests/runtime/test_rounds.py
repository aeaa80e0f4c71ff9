"""Do the functions of a round run at once where they can, and are they released where they must be?"""

from __future__ import annotations

import asyncio
import functools
import gc
import pickle
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from support.agent_calls import assert_sendable, begun, say
from support.drivers import (
    Driver,
    anyhow,
    by_arun,
    by_arun_unheard,
    by_threads,
    environment,
    everywhere,
    heard,
    seed,
)

from fsm_agent.call import AgentCall, CallFailed, Cancelled, Limits, Reason, State, restore, snapshot
from fsm_agent.errors import Retry
from fsm_agent.functions import Context, Function, Retries, function
from fsm_agent.messages import Done, FunctionEnded, FunctionProgress, FunctionStarted
from fsm_agent.prompts import Prompt
from fsm_agent.runtime import ResultPipeline, arun
from fsm_agent.testing import FakeClock, Script, function_call

LONG_S = 60  # never waited out


def prompt(*functions: Any) -> Prompt:
    return Prompt("x", path="p", functions=functions)


def results(one: AgentCall) -> list[str | None]:
    return [f.error if f.result is None else f.result for f in one.record.function_calls]


def log_of(events: list[Any]) -> list[str]:
    """Which functions began and ended, in order."""
    signs = {FunctionStarted: "(", FunctionEnded: ")"}
    return [f"{e.name}{signs[type(e)]}" for e in events if type(e) in signs]


@contextmanager
def stuck() -> Iterator[Callable[[str], Any]]:
    """Makes functions that wait until the test is over: plain, a coroutine function, and one that will not die."""
    over = threading.Event()

    def plain() -> str:
        """Wait forever."""
        over.wait(LONG_S)
        return "never heard"

    async def waiting() -> str:
        """Wait forever."""
        await asyncio.Event().wait()
        return "never heard"

    async def stubborn() -> str:
        """Wait forever, also when it is cancelled."""
        while not over.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(1)
                if len(swallowed) > 1:  # by then the loop is being closed
                    break
        return "never heard"

    swallowed: list[int] = []
    made = {"plain": plain, "waiting": waiting, "stubborn": stubborn}
    try:
        yield lambda kind, **policy: Function.of(made[kind], name="stuck", **policy)
    finally:
        over.set()


stuck_kinds = pytest.mark.parametrize("kind", ["plain", "waiting", "stubborn"])


class TestAtOnce:
    @pytest.mark.parametrize(
        ("driven", "parallel"), [(by_threads, 16), (by_threads, None), (by_arun, None), (by_arun_unheard, 16)]
    )
    def test_sixteen_functions_run_at_once(self, driven: Driver, parallel: int | None):
        barrier = threading.Barrier(16)

        def meet(n: int) -> int:
            """Meet the others."""
            barrier.wait(timeout=20)
            return n

        one = seed(prompt(meet), limits=Limits(parallel=parallel))
        driven(one, Script([function_call("meet", n=n) for n in range(16)], "done"))
        assert results(one) == [str(n) for n in range(16)]

    @everywhere
    @pytest.mark.parametrize("kind", ["plain", "waiting"])
    @pytest.mark.parametrize("policy", [{}, {"timeout_s": LONG_S}], ids=["here", "watched"])
    def test_one_after_another_when_the_limits_say_so(self, driven: Driver, kind: str, policy: dict[str, Any]):
        lock = threading.Lock()

        def plain(n: int) -> int:
            """Be alone."""
            assert lock.acquire(blocking=False), "two at once"
            lock.release()
            return n

        async def waiting(n: int) -> int:
            """Be alone."""
            assert lock.acquire(blocking=False), "two at once"
            await asyncio.sleep(0)
            lock.release()
            return n

        chosen = Function.of(plain if kind == "plain" else waiting, name="f", **policy)
        one = seed(prompt(chosen), limits=Limits(parallel=1))
        events = driven(one, Script([function_call("f", n=n) for n in range(5)], "done"))
        assert log_of(events) == ["f(", "f)"] * 5
        assert results(one) == list("01234")

    @pytest.mark.parametrize("driven", [by_threads, by_arun])
    def test_so_many_at_once_as_the_limits_say(self, driven: Driver):
        barrier, lock, running, most = threading.Barrier(3), threading.Lock(), 0, 0

        def meet(n: int) -> int:
            """Meet two others."""
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            barrier.wait(timeout=20)
            with lock:
                running -= 1
            return n

        one = seed(prompt(meet), limits=Limits(parallel=3))
        driven(one, Script([function_call("meet", n=n) for n in range(9)], "done"))
        assert (len(results(one)), most) == (9, 3)

    @pytest.mark.parametrize("driven", [by_threads, by_arun])
    @pytest.mark.parametrize("threads", [1, 3])
    def test_no_more_threads_than_there_are(self, driven: Driver, threads: int):
        one = seed(prompt(Function.of(lambda n: n, name="work", timeout_s=LONG_S)))
        events = driven(one, Script([function_call("work", n=n) for n in range(9)], "done"), threads=threads)
        running, most = 0, 0
        for event in events:
            running += isinstance(event, FunctionStarted) - isinstance(event, FunctionEnded)
            most = max(most, running)
        assert (most, len(results(one))) == (threads, 9)

    @pytest.mark.parametrize("driven", [by_arun, by_arun_unheard])
    def test_a_coroutine_runs_beside_a_function_that_has_the_only_thread(self, driven: Driver):
        met = threading.Event()

        def plain() -> None:
            """Wait for the coroutine."""
            assert met.wait(20)

        async def waiting() -> None:
            """Meet."""
            met.set()

        one = seed(prompt(plain, waiting))
        driven(one, Script([function_call("plain"), function_call("waiting")], "done"), threads=1)
        assert results(one) == ["null", "null"]

    @everywhere
    def test_each_begins_and_ends_once_with_what_it_said(self, driven: Driver):
        def add(a: int, b: int) -> int:
            """Add."""
            if a == 2:
                raise ValueError("not two")
            return a + b

        one = seed(prompt(add))
        events = driven(one, Script([function_call("add", a=n, b=1) for n in range(4)], "done"))
        started = [(e.id, e.name, e.arguments_json) for e in events if isinstance(e, FunctionStarted)]
        assert started == [(f"2.{n}", "add", f'{{"a": {n}, "b": 1}}') for n in range(4)]
        ended = sorted((e.id, e.text, e.is_error) for e in events if isinstance(e, FunctionEnded))
        assert ended == [
            ("2.0", "1", False),
            ("2.1", "2", False),
            ("2.2", "ValueError: not two", True),
            ("2.3", "4", False),
        ]
        assert sum(isinstance(e, Done) for e in events) == 1

    @pytest.mark.parametrize("driven", [by_threads, by_arun])
    @pytest.mark.parametrize("kind", ["plain", "waiting"])
    def test_the_next_begins_as_soon_as_one_of_so_many_has_ended(self, driven: Driver, kind: str):
        last = threading.Event()

        def plain(n: int) -> bool:
            """Wait for the last, unless it is the second."""
            last.set() if n == 2 else None
            return n == 1 or last.wait(10)

        async def waiting(n: int) -> bool:
            """Wait for the last, unless it is the second."""
            last.set() if n == 2 else None
            return n == 1 or await asyncio.to_thread(last.wait, 10)

        one = seed(prompt(Function.of(plain if kind == "plain" else waiting, name="f")), limits=Limits(parallel=2))
        driven(one, Script([function_call("f", n=n) for n in range(3)], "done"))
        assert results(one) == ["true"] * 3


class TestStopping:
    """A stopped driver keeps the outcomes that have come, and reports the abandoned effects."""

    @pytest.mark.parametrize("driven", [by_threads, by_arun])
    def test_functions_that_are_left_behind_are_told(self, driven: Driver):
        begun, heard, never = threading.Barrier(3), threading.Semaphore(0), threading.Event()

        def work(context: Context, n: int) -> None:
            """Work until the last waiter has gone."""
            begun.wait(10)
            for _ in range(2000):
                if context.is_cancelled():
                    heard.release()
                    return
                never.wait(0.005)

        def report(context: Context) -> None:
            """Say that they have begun."""
            begun.wait(10)
            context.emit("begun")

        def listen(event: Any) -> None:
            if isinstance(event, FunctionProgress):
                raise LookupError

        one = seed(prompt(Function.of(work), Function.of(report)))
        stopped(
            driven,
            one,
            Script([function_call("work", n=0), function_call("work", n=1), function_call("report")]),
            listen,
        )
        assert heard.acquire(timeout=5)
        assert heard.acquire(timeout=5)


def stopped(driven: Driver, one: AgentCall, script: Script, listen: Any) -> None:
    """Drive ``one`` until ``listen`` raises a `LookupError`."""
    with pytest.raises(LookupError):
        heard(driven, one, script, listen)


class TestWaves:
    @everywhere
    @pytest.mark.parametrize("policy", [{}, {"timeout_s": LONG_S}], ids=["here", "watched"])
    def test_a_reply_is_run_in_waves(self, driven: Driver, policy: dict[str, Any]):
        def named(name: str, *depends_on: str) -> Function:
            return Function(name=name, call=lambda: name, depends_on=depends_on, **policy)

        one = seed(prompt(named("a", "b"), named("b", "c"), named("c")))
        events = driven(one, Script([function_call("a"), function_call("b"), function_call("c")], "done"))
        assert log_of(events) == ["c(", "c)", "b(", "b)", "a(", "a)"]
        assert [m.text for m in one.record.dialog[3:6]] == ["a", "b", "c"]

    @pytest.mark.parametrize("driven", [by_threads, by_arun, by_arun_unheard])
    def test_the_second_wave_begins_while_others_of_the_first_still_run(self, driven: Driver):
        second = threading.Event()

        @function
        def first() -> str:
            """Return at once."""
            return "first"

        @function
        def long() -> str:
            """Wait for the second wave."""
            assert second.wait(20)
            return "long"

        @function(depends_on=["first"])
        def behind() -> str:
            """Begin after the first."""
            second.set()
            return "behind"

        one = seed(prompt(first, long, behind))
        driven(one, Script([function_call("long"), function_call("behind"), function_call("first")], "done"))
        assert results(one) == ["long", "behind", "first"]


class TestTimeouts:
    @anyhow
    @stuck_kinds
    @pytest.mark.parametrize("is_alone", [True, False])
    def test_one_that_waits_for_ever_is_told_and_the_others_are_heard(self, driven: Driver, kind: str, is_alone: bool):
        def quick(n: int) -> int:
            """Return at once."""
            return n

        with stuck() as made:
            one = seed(prompt(made(kind, timeout_s=0.05), quick))
            asked = (
                [function_call("stuck")]
                if is_alone
                else [function_call("quick", n=1), function_call("stuck"), function_call("quick", n=2)]
            )
            driven(one, Script(asked, "done"))
        told = results(one)[0 if is_alone else 1]
        assert (told.startswith("TimeoutError"), "0.05 s" in told) == (True, True)
        assert is_alone or (results(one)[0], results(one)[2]) == ("1", "2")
        assert one.result().output == "done"
        assert_sendable(one.record.dialog)

    @anyhow
    @pytest.mark.parametrize("kind", ["plain", "waiting"])
    def test_retries_are_within_the_time(self, driven: Driver, kind: str):
        over, runs = threading.Event(), []

        class Clock(FakeClock):
            def sleep(self, delay_s: float) -> None:
                over.wait(delay_s)

            async def asleep(self, delay_s: float) -> None:
                await asyncio.Event().wait()

        def fails() -> None:
            """Fail."""
            runs.append(1)
            raise OSError("busy")

        async def afails() -> None:
            """Fail."""
            fails()

        policy = {"timeout_s": 0.05, "retries": Retries(attempts=9, delay_s=LONG_S, max_delay_s=LONG_S)}
        one = seed(prompt(Function.of(fails if kind == "plain" else afails, name="fails", **policy)))
        try:
            driven(one, Script(function_call("fails"), "done"), clock=Clock())
        finally:
            over.set()
        assert "TimeoutError" in results(one)[0]
        assert len(runs) <= 1

    @pytest.mark.parametrize("driven", [by_threads, by_arun])
    @pytest.mark.parametrize("wrapped", [False, True])
    def test_a_coroutine_whose_time_is_up_is_cancelled(self, driven: Driver, wrapped: bool):
        began, cancelled = threading.Event(), threading.Event()

        async def work() -> None:
            """Wait forever."""
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        @functools.wraps(work)
        def plain() -> Any:
            return work()

        one = seed(prompt(Function.of(plain if wrapped else work, name="work", timeout_s=0.05)))
        driven(one, Script(function_call("work"), "done"))
        assert not began.is_set() or cancelled.wait(10)  # a busy machine may not have begun it in time

    @pytest.mark.parametrize("driven", [by_threads, by_arun])
    def test_it_hears_that_nobody_waits_and_nobody_hears_it(self, driven: Driver):
        heard, over = threading.Event(), threading.Event()

        @function(timeout_s=0.1)
        def work(context: Context) -> None:
            """Work until the last waiter has gone."""
            context.emit("begun")
            while not context.is_cancelled():
                over.wait(0.001)
            context.emit("too late")
            heard.set()

        one = seed(prompt(work))
        events = driven(one, Script(function_call("work"), lambda request: heard.wait(20) and "done"))
        assert one.result().output == "done"
        assert "too late" not in [e.data for e in events if isinstance(e, FunctionProgress)]

    def test_what_becomes_of_it_later_disturbs_nobody(self):
        complaints: list[Any] = []

        @function(timeout_s=0.05)
        async def late() -> str:
            """Return when cancelled."""
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "late"

        def broken(name: str, text: str) -> str:
            raise ValueError(text)

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
            script = Script(function_call("late"), "done")
            await arun(seed(prompt(late)), environment(script, results=ResultPipeline(processor=broken)))
            for _ in range(3):
                await asyncio.sleep(0)
            gc.collect()

        asyncio.run(main())
        assert complaints == []

    @stuck_kinds
    def test_what_is_let_go_of_does_not_hold_up_asyncio(self, kind: str):
        """Other tasks of the loop go on meanwhile."""

        async def main(made: Any) -> tuple[AgentCall, int]:
            beats = 0

            async def beat() -> None:
                nonlocal beats
                while True:
                    beats += 1
                    await asyncio.sleep(0)

            beating = asyncio.create_task(beat())
            one = await arun(
                seed(prompt(made(kind, timeout_s=0.1))), environment(Script(function_call("stuck"), "done"))
            )
            beating.cancel()
            return one, beats

        with stuck() as made:
            one, beats = asyncio.run(main(made))
        assert one.result().output == "done"
        assert beats >= 3


class TestDeadline:
    @anyhow
    @stuck_kinds
    def test_it_ends_the_wait_for_functions(self, driven: Driver, kind: str):
        with stuck() as made:
            one = say(begun(Limits(deadline_s=0.05), prompt(made(kind))), function_call("stuck"))
            events = driven(one, Script(clock=FakeClock(100.0)))
        assert one.record.ending.reason is Reason.EXPIRED
        assert "deadline_s" in results(one)[0]
        assert_sendable(one.record.dialog)
        assert sum(isinstance(e, Done) for e in events) == 1

    @anyhow
    @pytest.mark.parametrize("kind", ["plain", "waiting"])
    def test_what_had_returned_by_then_is_kept(self, driven: Driver, kind: str):
        clock = FakeClock()
        with stuck() as made:
            quick = Function(name="quick", call=lambda: clock.advance(9.0))
            one = seed(prompt(made(kind), quick), limits=Limits(deadline_s=5.0))
            driven(one, Script([function_call("quick"), function_call("stuck")], clock=clock))
        assert results(one)[0] == "null"
        assert "deadline_s" in results(one)[1]

    @anyhow
    def test_time_that_passes_in_a_function_ends_the_call_behind_it(self, driven: Driver):
        clock = FakeClock()
        one = seed(prompt(Function(name="work", call=lambda: clock.advance(9.0))), limits=Limits(deadline_s=5.0))
        script = Script(function_call("work"), clock=clock)
        driven(one, script)
        assert (one.record.ending.reason, results(one)) == (Reason.EXPIRED, ["null"])
        assert one.record.reply.message.function_calls[0].name == "work", "the last reply is kept"

    @anyhow
    @pytest.mark.parametrize("limits", [{"parallel": 1}, {}], ids=["parallel", "threads"])
    def test_no_function_begins_behind_it(self, driven: Driver, limits: dict[str, int]):
        clock = FakeClock()
        one = seed(
            prompt(Function.of(lambda n: clock.advance(9.0), name="work")), limits=Limits(deadline_s=5.0, **limits)
        )
        events = driven(one, Script([function_call("work", n=n) for n in range(3)], clock=clock), threads=1)
        assert one.record.ending.reason is Reason.EXPIRED
        assert ["deadline_s" in text for text in results(one)[1:]] == [True] * 2
        assert log_of(events) in (["work(", "work)"], ["work("], [])  # it may expire before the first is heard of

    @anyhow
    @pytest.mark.parametrize(
        ("deadline_s", "timeout_s", "is_over"),
        [(1000.0, 0.05, False), (0.05, LONG_S, True), (0.05, None, True)],
    )
    def test_a_wait_that_ends_ends_what_was_waited_for(
        self, deadline_s: float | None, timeout_s: float | None, is_over: bool, driven: Driver
    ):
        """The clock stands still, but the wait has lasted its time, so only its timer is over."""
        free = threading.Event()
        work = Function(name="work", call=lambda: free.wait(LONG_S), timeout_s=timeout_s)
        one = seed(prompt(work), limits=Limits(deadline_s=deadline_s))
        try:
            driven(one, Script(function_call("work"), "fine"))
        finally:
            free.set()
        assert (one.state is State.FAILED) is is_over


class TestProgress:
    @pytest.mark.parametrize("driven", [by_threads, by_arun])
    @pytest.mark.parametrize("kind", ["plain", "waiting"])
    @pytest.mark.parametrize("among", [1, 3])
    def test_it_arrives_while_the_function_runs(self, driven: Driver, kind: str, among: int):
        seen = threading.Event()

        def plain(context: Context, n: int) -> str:
            """Continue only after the progress has been seen."""
            context.emit({"step": n})
            assert seen.wait(20)
            return "seen"

        async def waiting(context: Context, n: int) -> str:
            """Continue only after the progress has been seen."""
            context.emit({"step": n})
            assert await asyncio.to_thread(seen.wait, 20)
            return "seen"

        events: list[Any] = []

        def sink(event: Any) -> None:
            events.append(event)
            if sum(isinstance(e, FunctionProgress) for e in events) == among:
                seen.set()

        one = seed(prompt(Function.of(plain if kind == "plain" else waiting, name="work")))
        script = Script([function_call("work", n=n) for n in range(among)], "done")
        heard(driven, one, script, sink)
        progress = [(e.id, e.name, e.data) for e in events if isinstance(e, FunctionProgress)]
        assert sorted(progress, key=str) == [(f"2.{n}", "work", {"step": n}) for n in range(among)]
        assert results(one) == ["seen"] * among

    @everywhere
    def test_it_stands_between_the_beginning_and_the_end_in_order(self, driven: Driver):
        def count(context: Context) -> None:
            """Count."""
            for n in range(50):
                context.emit(n)

        events = driven(seed(prompt(count)), Script(function_call("count"), "done"))
        first = next(i for i, e in enumerate(events) if isinstance(e, FunctionStarted))
        assert [e.data for e in events[first + 1 : first + 51]] == list(range(50))
        assert isinstance(events[first + 51], FunctionEnded)


class TestFailing:
    @anyhow
    def test_a_failure_that_is_the_calls_ends_it_and_lets_go_of_the_others(self, driven: Driver):
        def breaks() -> None:
            """Break."""
            raise OSError("the disk is full")

        with stuck() as made:
            one = seed(prompt(Function.of(breaks, on_error="fail"), made("waiting")))
            events = driven(one, Script([function_call("stuck"), function_call("breaks")]), threads=16)
        ending = one.record.ending
        assert (ending.reason, ending.function) == (Reason.FUNCTION_FAILED, "breaks")
        assert "the disk is full" in ending.detail
        assert "breaks" in results(one)[0]
        assert_sendable(one.record.dialog)
        assert [e.is_error for e in events if isinstance(e, FunctionEnded)] in ([True], [])
        with pytest.raises(CallFailed) as caught:
            one.result()
        assert isinstance(cause := caught.value.__cause__, OSError)
        assert "breaks" in [frame.name for frame in traceback.extract_tb(cause.__traceback__)]
        elsewhere = pickle.loads(pickle.dumps(caught.value))
        assert "the disk is full" in str(elsewhere.__cause__)
        with pytest.raises(CallFailed) as caught:  # resumed in another OS process, which has the record alone
            restore(snapshot(one), one.prompt).result()
        assert "the disk is full" in str(caught.value.__cause__)

    @pytest.mark.parametrize("on_error", ["retry", "fail"])
    @everywhere
    def test_the_traceback_of_what_it_raised_is_told_to_who_listens(self, driven: Driver, on_error: str):
        def look_up() -> str:
            """Look it up."""
            return {"password": "sk-abcdefghijklmnop"}["name"]

        one = seed(prompt(Function.of(look_up, on_error=on_error, retries=Retries(attempts=2, delay_s=0.0))))
        (ended,) = [e for e in driven(one, Script(function_call("look_up"), "done")) if isinstance(e, FunctionEnded)]
        lines = ended.traceback.splitlines()
        assert lines[1].startswith(f'  File "{__file__}", line ')
        assert lines[1].endswith(", in look_up")
        assert "abcdefghijklmnop" not in ended.traceback
        assert ended.text in ended.traceback
        assert "traceback" not in repr(ended).lower()

    @everywhere
    def test_what_a_function_says_to_the_model_has_no_traceback(self, driven: Driver):
        def ask() -> str:
            """Ask."""
            raise Retry("give it with its country")

        one = seed(prompt(ask))
        (ended,) = [e for e in driven(one, Script(function_call("ask"), "done")) if isinstance(e, FunctionEnded)]
        assert (ended.is_error, ended.traceback) == (True, "")


class TestListeners:
    @everywhere
    @pytest.mark.parametrize("policy", [{}, {"timeout_s": LONG_S}], ids=["here", "watched"])
    @pytest.mark.parametrize("kind", ["plain", "waiting"])
    def test_what_is_called_off_when_it_should_begin_is_not_run(
        self, driven: Driver, kind: str, policy: dict[str, Any]
    ):
        ran: list[int] = []

        async def waiting(n: int) -> None:
            """Note it."""
            ran.append(n)

        def plain(n: int) -> None:
            """Note it."""
            ran.append(n)

        def listen(event: Any) -> None:
            if isinstance(event, FunctionStarted) and event.id == "2.1":
                one.advance("", Cancelled(reason="enough"))

        one = seed(prompt(Function.of(plain if kind == "plain" else waiting, name="work", **policy)))
        script = Script([function_call("work", n=n) for n in range(3)])
        heard(driven, one, script, listen)
        assert one.record.ending.reason is Reason.CANCELLED
        assert set(ran) <= {0}

"""Do all drivers do the same, at once where they can, and let go where they must?"""

from __future__ import annotations

import asyncio
import functools
import gc
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing, suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
import tenacity
from support.agent_calls import PROMPT, add, assert_sendable, parse, tick
from support.drivers import (
    DRIVERS,
    Driver,
    anyhow,
    busy_threads,
    by_adrive,
    by_arun,
    by_arun_unheard,
    by_run,
    by_run_unheard,
    by_threads,
    everywhere,
    seed,
    until_threads_rest,
    world,
)
from support.nested_process import Solo, Stage, Team, TeamRecord

from fsm_agent import flows
from fsm_agent.agents import Agent
from fsm_agent.errors import CallFailed, Overloaded, RateLimited, UsageError
from fsm_agent.functions import Function, Retries, function
from fsm_agent.lifecycle import (
    AgentCall,
    Approved,
    Cancelled,
    Denied,
    Injected,
    Limits,
    Modified,
    Reason,
    Request,
    Returned,
    State,
    restore,
    snapshot,
)
from fsm_agent.messages import (
    ArgumentsDelta,
    Delta,
    Done,
    FunctionCallStarted,
    FunctionEnded,
    FunctionStarted,
    Inside,
    LoopDetected,
    Message,
    Reply,
    RequestStarted,
    Stepped,
    Suspended,
    TextDelta,
    Usage,
)
from fsm_agent.prompts import Prompt
from fsm_agent.runtime import SystemClock, World, adrive, arun, drive, run
from fsm_agent.runtime.reconciler import MAX_BACKLOG
from fsm_agent.runtime.run_function import current_depth
from fsm_agent.runtime.sync_driver import SyncDriver
from fsm_agent.testing import Delayed, FakeClock, Script, ScriptError, call


def rich_script() -> Script:
    return Script(
        RateLimited("slow down", status=429, retry_after_s=7.0),
        ["Let me see.", call("add", a=17, b=25)],
        call("add", b=25, a=17),
        call("nosuch"),
        "forty-two",
        Overloaded("busy", status=529),
        call("erase", path="x"),
        "42",
    )


def facts(events: list[Any]) -> list[Any]:
    """Events as values; the result as the record and output that it stands for."""
    return [(e.result.call.record, e.result.output) if isinstance(e, Done) else e for e in events]


@pytest.mark.spec(
    "1.25: every way to listen gets equal events",
    "3.26: the same script gives the same trace",
    "4.33: a stream is the same machine",
)
@everywhere
def test_one_script_gives_equal_records_and_equal_events_under_every_driver(driven: Driver):
    script, reference = rich_script(), rich_script()
    one, other = seed(limits=Limits(recalls=3)), seed(limits=Limits(recalls=3))
    events = driven(one, script, approve=lambda f: f.arguments["path"] != "/")
    assert facts(events) == facts(by_run(other, reference, approve=lambda f: f.arguments["path"] != "/"))
    assert one.record == other.record
    assert one.record.trace == other.record.trace
    assert one.result().output == 42
    assert script.clock.sleeps == [7.0, 1.0]
    assert [r.messages for r in script.requests] == [r.messages for r in reference.requests]
    script.assert_exhausted()


@pytest.mark.spec("1.24: every stream ends with exactly one", "1.24: a failed call has one too")
@everywhere
def test_exactly_one_done_and_nothing_behind_it(driven: Driver):
    for script in (Script("42"), Script("a", "b", "c", "d"), Script(Overloaded("x", retryable=False))):
        events = driven(seed(), script)
        assert [isinstance(e, Done) for e in events] == [False] * (len(events) - 1) + [True]


@pytest.mark.spec("1.23: every transition, parse failures and recalls among them")
@everywhere
def test_the_steps_among_the_events_are_the_trace(driven: Driver):
    one = seed(limits=Limits(recalls=3))
    events = driven(one, rich_script(), approve=lambda f: True)
    assert [e for e in events if isinstance(e, Stepped)] == list(one.record.trace)


@everywhere
@pytest.mark.spec(
    "1.22: pieces of arguments that add up to the whole",
    "1.23: the golden order of one script",
    "1.25: deltas and lifecycle come in one order",
)
def test_deltas_and_steps_come_in_one_order(driven: Driver):
    script = Script(["Let me", call("add", a=17, b=25)], "forty two", "42")
    events = driven(seed(), script)
    assert "".join(e.text for e in events if isinstance(e, ArgumentsDelta)) == '{"a": 17, "b": 25}'
    shown = []
    for event in events:
        match event:
            case Stepped():
                shown.append(f"{event.source} {event.trigger} {event.to}")
            case TextDelta():
                shown.append(event.text)
            case FunctionStarted() | FunctionEnded():
                shown.append(f"{type(event).__name__} {event.id} {event.name} {getattr(event, 'text', '')}".strip())
            case _:
                shown.append(type(event).__name__)
    assert shown == [
        "Seeded begun Calling",
        "RequestStarted",
        "Let",
        " me",
        "FunctionCallStarted",
        "ArgumentsDelta",
        "FunctionCallCompleted",
        "ReplyCompleted",
        "HistoryChanged",
        "Calling functions_asked ToolInterrupt",
        "FunctionStarted 2.0 add",
        "FunctionEnded 2.0 add 42",
        "HistoryChanged",
        "ToolInterrupt returned Calling",
        "RequestStarted",
        "forty",
        " two",
        "ReplyCompleted",
        "HistoryChanged",
        "Calling parse_failed ParseException",
        "RequestStarted",
        "42",
        "ReplyCompleted",
        "HistoryChanged",
        "ParseException answered Completed",
        "Done",
    ]


def test_run_with_and_without_a_sink_give_equal_records():
    one, other = seed(limits=Limits(recalls=3)), seed(limits=Limits(recalls=3))
    run(one, world(rich_script(), approve=lambda f: True))
    by_run(other, rich_script(), approve=lambda f: True)
    assert one.record == other.record


@pytest.mark.spec("1.22: text deltas", "4.22: text in pieces, over server-sent events")
@everywhere
def test_text_comes_in_pieces(driven: Driver):
    events = driven(seed(Prompt("x")), Script("It is forty two."))
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "It is forty two."
    assert sum(isinstance(e, TextDelta) for e in events) == 4


# Functions at once


@pytest.mark.spec(
    "1.3: ends are told in the order of completion",
    "1.3: results enter the dialog in call order",
    "4.6: results in order",
)
@pytest.mark.parametrize("driven", [by_threads, by_arun])
def test_a_slow_function_holds_up_neither_the_events_nor_the_order_of_results(driven: Driver):
    quick_ended = threading.Event()

    def slow() -> str:
        """Wait for the other to end."""
        assert quick_ended.wait(timeout=20)
        return "slow"

    def quick() -> str:
        """Return at once."""
        return "quick"

    one = seed(Prompt("x", functions=(slow, quick)))
    seen: list[str] = []

    def sink(event: Any) -> None:
        if isinstance(event, FunctionStarted | FunctionEnded):
            seen.append(f"{type(event).__name__} {event.name}")
            if seen[-1] == "FunctionEnded quick":
                quick_ended.set()

    script = Script([call("slow"), call("quick")], "done")
    if driven is by_threads:
        run(one, world(script), sink)
    else:
        asyncio.run(arun(one, world(script), sink))
    assert seen[2:] == ["FunctionEnded quick", "FunctionEnded slow"]
    assert [m.text for m in one.record.dialog[3:5]] == ["slow", "quick"]


@pytest.mark.spec("1.3: one after another when switched off")
def test_one_after_another_when_asked():
    log: list[str] = []

    def step(n: int) -> None:
        """Take a step."""
        log.append(f"begin {n}")
        log.append(f"end {n}")

    by_run(seed(Prompt("x", functions=(step,))), Script([call("step", n=1), call("step", n=2)], "done"))
    assert log == ["begin 1", "end 1", "begin 2", "end 2"]


@anyhow
def test_plain_and_coroutine_functions_work_under_every_driver(driven: Driver):
    @function
    def double(n: int) -> int:
        """Double it."""
        return 2 * n

    @function
    async def triple(n: int) -> int:
        """Triple it."""
        await asyncio.sleep(0)
        return 3 * n

    one = seed(Prompt("x", functions=(double, triple)))
    driven(one, Script([call("double", n=2), call("triple", n=2)], call("triple", n=5), "done"))
    assert [f.result for f in one.record.function_calls] == ["4", "6", "15"]


@pytest.mark.system
def test_the_sync_driver_works_inside_a_running_loop():
    async def lookup() -> str:
        """Look it up."""
        return "found"

    async def main() -> AgentCall:
        return run(seed(Prompt("x", functions=(lookup,))), world(Script(call("lookup"), "done")))

    assert asyncio.run(main()).record.function_calls[0].result == "found"


@pytest.mark.spec(
    "3.17: an exception is told to the model and the loop goes on",
    "4.5: errors are told and the loop goes on",
)
@everywhere
def test_what_a_function_raises_is_told(driven: Driver):
    def broken() -> None:
        """Break."""
        raise LookupError("no such file")

    one = seed(Prompt("x", functions=(broken,)))
    events = driven(one, Script(call("broken"), "sorry"))
    assert one.record.function_calls[0].error == "LookupError: no such file"
    assert [e.is_error for e in events if isinstance(e, FunctionEnded)] == [True]


@anyhow
def test_a_function_that_does_not_block_needs_no_thread(driven: Driver):
    names = []

    @function(blocking=False)
    def here() -> None:
        """Run here."""
        names.append(threading.current_thread().name)

    driven(seed(Prompt("x", functions=(here,))), Script(call("here"), "done"))
    assert names == ["MainThread"]


@pytest.mark.spec("1.21: functions know how deep they are")
@anyhow
def test_functions_know_how_deep_they_are(driven: Driver):
    depths = []

    def probe() -> None:
        """Look."""
        depths.append(current_depth())

    driven(seed(Prompt("x", functions=(probe,)), depth=1), Script(call("probe"), "done"))
    assert depths == [2]
    assert current_depth() == 0


# Approval and suspension


@pytest.mark.spec(
    "1.4: without a verdict the call is suspended and goes on later",
    "1.30: a call that waits goes on later",
)
@everywhere
def test_without_an_approver_the_call_is_suspended_and_goes_on_later(driven: Driver):
    script = Script(call("erase", path="x"), "42")
    one = seed()
    *_, last = driven(one, script)
    assert last == Suspended(("ask:2.0",), questions=(one.effects[0].question,))
    assert (last.questions[0].key, last.questions[0].kind) == ("ask:2.0", "approval")
    one.advance("ask:2.0", Approved())
    assert isinstance(driven(one, script)[-1], Done)


@pytest.mark.spec(
    "1.4: an approved call is run", "1.4: a denied call is not run", "1.4: the result of a denied call gives the reason"
)
@anyhow
@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (True, "erased x"),
        (Approved(), "erased x"),
        (False, "The call was not allowed: no reason was given"),
        (Denied(reason="not today"), "The call was not allowed: not today"),
    ],
)
def test_what_an_approver_says_is_what_the_model_is_told(driven: Driver, verdict: Any, said: str):
    one = seed()
    driven(one, Script(call("erase", path="x"), "42"), approve=lambda f: verdict)
    assert one.record.dialog[3].text == said


def test_an_approver_may_be_a_coroutine_function():
    async def approve(f: Any) -> bool:
        return f.name == "erase"

    one = seed()
    by_arun(one, Script(call("erase", path="x"), "42"), approve=approve)
    assert one.record.dialog[3].text == "erased x"


@anyhow
def test_a_verdict_that_is_none_of_these_is_the_callers_mistake(driven: Driver):
    with pytest.raises(UsageError, match="returned 'yes'"):
        driven(seed(), Script(call("erase", path="x")), approve=lambda f: "yes")


@pytest.mark.spec("3.16: without a callable it is answered from outside")
@everywhere
def test_a_function_without_a_callable_is_answered_from_outside(driven: Driver):
    order = Function(name="order", parameters={"type": "object", "properties": {"item": {"type": "string"}}})

    def now() -> str:
        """The time."""
        return "noon"

    one = seed(Prompt("x", functions=(order, now)))
    script = Script([call("order", item="tea"), call("now")], "done")
    *_, last = driven(one, script)
    assert last == Suspended(("run:2.0",), questions=(one.effects[0].question,))
    assert (last.questions[0].key, last.questions[0].kind) == ("run:2.0", "result")
    one.advance("run:2.0", Returned(text="it comes"))
    driven(one, script)
    assert [m.text for m in one.record.dialog[3:5]] == ["it comes", "noon"]


# Time


@pytest.mark.spec(
    "1.12: it ends the wait for the model",
    "1.12: the limit is named",
    "1.27: timeout, with the limit",
    "4.30: a time limit for the call",
)
@anyhow
def test_the_deadline_ends_the_call_while_the_model_is_waited_for(driven: Driver):
    one = seed(limits=Limits(deadline_s=5.0))
    driven(one, Script(Delayed(6.0, "42")))
    with pytest.raises(CallFailed, match=r"expired: limits\.deadline_s=5\.0 has passed in Calling"):
        one.result()


@pytest.mark.spec("4.30: a time limit for a step")
@anyhow
def test_a_request_that_takes_too_long_has_failed_and_the_model_is_asked_again(driven: Driver):
    script = Script(Delayed(4.0, call("add", a=1, b=2)), Delayed(6.0, "never"), Delayed(4.0, "42"))
    one = seed(limits=Limits(request_s=5.0, deadline_s=60.0))
    driven(one, script)
    assert (one.result().output, len(script.requests), one.record.recalls) == (42, 3, 1)
    (failure,) = one.result().failures
    assert (failure.report.kind, failure.report.message) == ("TimedOut", "no reply within 5.0 s")


class Deaf(Script):
    """A model that takes no notice of a timeout, and answers its first requests late."""

    def __init__(self, *entries: Any, late: int) -> None:
        super().__init__(*entries)
        self.late = late
        self.free = threading.Event()

    def is_late(self, request: Request) -> bool:
        self.requests.append(request)
        return len(self.requests) <= self.late

    def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        if self.is_late(request):
            self.free.wait(30)
        return super().complete(request)

    def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[Any]:
        if self.is_late(request):
            yield TextDelta("4")
            self.free.wait(30)
        yield from super().stream(request)

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        if self.is_late(request):
            await asyncio.sleep(30)
        return super().complete(request)

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
        if self.is_late(request):
            yield TextDelta("4")
            await asyncio.sleep(30)
        for item in super().stream(request):
            yield item


@pytest.mark.system
@pytest.mark.spec("4.30: a time limit for a step")
@anyhow
@pytest.mark.parametrize("deadline_s", [None, 30.0])
def test_a_request_ends_in_time_although_its_client_goes_on(driven: Driver, deadline_s: float | None):
    script = Deaf(call("add", a=1, b=2), "42", late=1)
    one = seed(limits=Limits(request_s=0.5, recalls=1, deadline_s=deadline_s))
    began = time.monotonic()
    try:
        driven(one, script, backoff=tenacity.wait_none())
    finally:
        script.free.set()
    assert one.result().output == 42
    assert 0.5 <= time.monotonic() - began < 15
    reports = [(f.report.kind, f.report.message, f.report.model) for f in one.result().failures]
    assert reports == [("TimedOut", "no reply within 0.5 s", "script")]


@anyhow
def test_the_shorter_of_the_limits_of_a_request_and_of_the_call_counts(driven: Driver):
    one = seed(limits=Limits(request_s=5.0, deadline_s=3.0))
    driven(one, Script(Delayed(4.0, "42")))
    assert one.record.ending.reason is Reason.EXPIRED
    one = seed(limits=Limits(request_s=5.0, recalls=0))
    driven(one, Script(Delayed(6.0, "42")))
    assert one.record.ending.reason is Reason.MODEL_FAILED


@pytest.mark.spec("1.12: it is checked between two steps")
@anyhow
def test_a_deadline_that_was_waited_for_has_passed_although_the_clock_stands_still(driven: Driver):
    free = threading.Event()

    def stuck() -> None:
        """Wait."""
        free.wait(10)

    one, clock = seed(Prompt("x", functions=(stuck,)), limits=Limits(deadline_s=0.05)), FakeClock()
    try:
        driven(one, Script(call("stuck")), clock=clock)
    finally:
        free.set()
    assert (one.record.ending.reason, clock.sleeps) == (Reason.EXPIRED, [])


@anyhow
def test_the_deadline_ends_the_call_between_effects(driven: Driver):
    script = Script(Delayed(3.0, call("add", a=1, b=2)), Delayed(3.0, "bad"))
    one = seed(limits=Limits(deadline_s=5.9))
    driven(one, script)
    assert one.state is State.FAILED
    assert_sendable(one.record.dialog)


@pytest.mark.spec("1.12: zero asks no model")
@anyhow
def test_a_deadline_of_zero_asks_no_model(driven: Driver):
    script = Script()
    one = seed(limits=Limits(deadline_s=0))
    driven(one, script)
    assert (one.record.ending.reason, script.requests) == (Reason.EXPIRED, [])


@pytest.mark.system
@pytest.mark.spec("1.12: it ends the wait for functions", "4.30: a time limit for the call")
@pytest.mark.parametrize("driven", [by_threads, by_arun])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_that_blocks_for_ever_cannot_keep_the_call_alive(driven: Driver, is_async: bool):
    release, began, cancelled = threading.Event(), threading.Event(), threading.Event()

    def stuck() -> None:
        """Wait for ever."""
        release.wait(60)

    async def astuck() -> None:
        """Wait for ever."""
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    name, prompt = (
        ("astuck", Prompt("x", functions=(astuck,))) if is_async else ("stuck", Prompt("x", functions=(stuck,)))
    )
    one = seed(prompt, limits=Limits(deadline_s=0.05))
    clock = type("Real", (), {"now": staticmethod(time.time)})()
    driven(one, Script(call(name)), clock=clock)
    release.set()
    assert one.record.ending.reason is Reason.EXPIRED
    assert_sendable(one.record.dialog)
    assert not began.is_set() or cancelled.wait(10)


# Letting go


def test_an_interrupt_in_a_function_leaves_a_call_that_another_driver_finishes():
    interrupted = []

    def once() -> str:
        """Be interrupted once."""
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        return "fine"

    script = Script(call("once"), "done")
    one = seed(Prompt("x", functions=(once,)))
    with pytest.raises(KeyboardInterrupt):
        run(one, world(script))
    assert (one.state, [e.key for e in one.effects]) == (State.TOOL_INTERRUPT, ["run:2.0"])
    asyncio.run(arun(one, world(script)))
    assert one.record.function_calls[0].result == "fine"


@pytest.mark.system
def test_an_interrupt_while_others_run_ends_the_children():
    began, ended = threading.Event(), threading.Event()

    async def stuck() -> None:
        """Wait until cancelled."""
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    def interrupt() -> None:
        """Interrupt the driver."""
        assert began.wait(20)
        raise KeyboardInterrupt

    one = seed(Prompt("x", functions=(stuck, interrupt)))
    with pytest.raises(KeyboardInterrupt):
        run(one, world(Script([call("stuck"), call("interrupt")])))
    assert ended.wait(20)
    assert [e.key for e in one.effects] == ["run:2.0", "run:2.1"]


class TestStoppedFunctions:
    """A function whose wait ends with its driver has no outcome yet: the next driver runs it again."""

    @pytest.mark.system
    @pytest.mark.parametrize("stopped", ["sync", "asyncio"])
    @pytest.mark.parametrize("kind", ["plain", "coroutine"])
    def test_between_two_attempts(self, kind: str, stopped: str):
        waits, runs = threading.Event(), list[int]()

        class Clock(SystemClock):
            def sleep(self, delay_s: float) -> None:
                waits.set()
                super().sleep(delay_s)

            async def asleep(self, delay_s: float) -> None:
                waits.set()
                await super().asleep(delay_s)

        def busy_once() -> str:
            runs.append(1)
            if len(runs) == 1:
                raise ConnectionError("busy")
            return "fine"

        async def waiting() -> str:
            return busy_once()

        again = Retries(delay_s=30.0, max_delay_s=30.0, jitter=0.0)
        work = Function.of(busy_once if kind == "plain" else waiting, name="work", retries=again)
        self.stop_and_go_on(work, waits, stopped, clock=Clock())
        assert len(runs) == 2

    @pytest.mark.system
    @pytest.mark.parametrize("stopped", ["sync", "asyncio"])
    def test_inside_of_an_agent_call_of_its_own(self, stopped: str):
        waits = threading.Event()

        class Slow(Script):
            def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
                if not waits.is_set():
                    waits.set()
                    SystemClock().sleep(30.0)
                return super().complete(request)

        inner = Agent(Slow("fine", "fine"), name="inner")

        def ask() -> str:
            return str(inner.call("Go.").output)

        self.stop_and_go_on(Function.of(ask, name="work"), waits, stopped)

    def stop_and_go_on(self, work: Function, waits: threading.Event, stopped: str, **changes: Any) -> None:
        class Lingering(Script):
            """A model that takes a moment to be left: in it, other waits end."""

            def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
                if not self.requests:
                    self.requests.append(request)
                    SystemClock().sleep(30.0)
                    time.sleep(0.03)
                return super().complete(request)

            async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
                self.requests.append(request)
                try:
                    await asyncio.sleep(30.0)
                finally:
                    await asyncio.sleep(0.03)
                return Reply.of("never")

        within = World.of(Script(call("work"), "done"), **changes)
        beside = Solo(prompt=Prompt("x"), world=World.of(Lingering("one", "two")))
        team = Team(
            TeamRecord(), {"works": Solo(prompt=Prompt("x", functions=(work,)), world=within), "beside": beside}
        )

        def interrupt() -> None:
            assert waits.wait(20)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        async def astop() -> None:
            task = asyncio.create_task(arun(team, within))
            assert await asyncio.to_thread(waits.wait, 20)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        if stopped == "asyncio":
            asyncio.run(astop())
        else:
            threading.Thread(target=interrupt).start()
            with pytest.raises(KeyboardInterrupt):
                run(team, within)
        assert [e.key for e in team.effects] == ["works/run:1.0", "beside/model:0"]
        run(team, world(Script()))
        assert team.record.ended["works"].function_calls[0].result == "fine"


@pytest.mark.system
@pytest.mark.spec("4.30: a driver that is cancelled leaves the call at rest")
@pytest.mark.parametrize("count", [1, 3])
def test_a_cancelled_task_ends_its_children_and_leaves_a_call_that_another_driver_finishes(count: int):
    ended: list[str] = []

    async def main() -> AgentCall:
        began, runs = asyncio.Event(), 0

        async def work(n: int) -> str:
            """Work."""
            nonlocal runs
            runs += 1
            if runs > count:
                return "fine"
            if runs == count:
                began.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(str(n))
            return "never"

        script = Script([call("work", n=n) for n in range(count)], "done")
        one = seed(Prompt("x", functions=(work,)))
        task = asyncio.create_task(arun(one, world(script)))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(ended) == count
        assert len(one.effects) == count
        return await arun(one, world(script))

    assert [f.result for f in asyncio.run(main()).record.function_calls] == ["fine"] * count


@pytest.mark.parametrize("driven", DRIVERS)
def test_a_bug_of_a_performer_goes_through_at_once_and_changes_nothing(driven: Driver):
    one = seed()
    with pytest.raises(ScriptError, match="request 1 has no reply"):
        driven(one, Script())
    assert (one.state, one.record.turn) == (State.CALLING, 0)


@pytest.mark.system
def test_a_stream_that_nobody_reads_on_lets_go_of_the_model():
    closed = []

    class Endless:
        name = "endless"

        def stream(self, request: Any, *, timeout_s: float | None = None) -> Any:
            try:
                while True:
                    yield TextDelta("x")
            finally:
                closed.append(True)

        async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
            for item in self.stream(request):
                yield item

    events = drive(seed(), World(client=Endless()))
    while not isinstance(next(events), TextDelta):
        pass
    events.close()
    assert closed == [True]

    async def main() -> None:
        agen = adrive(seed(), World(client=Endless()))
        while not isinstance(await anext(agen), TextDelta):
            pass
        await agen.aclose()

    asyncio.run(main())
    assert len(closed) == 2


@pytest.mark.system
def test_a_stream_runs_ahead_of_a_slow_listener_only_so_far():
    made, is_far_ahead = 0, threading.Event()

    class Endless:
        name = "endless"

        def stream(self, request: Any, *, timeout_s: float | None = None) -> Any:
            nonlocal made
            while True:
                made += 1
                if made == MAX_BACKLOG:
                    is_far_ahead.set()
                yield TextDelta("x")

    events = drive(seed(), World(client=Endless()))
    while not isinstance(next(events), TextDelta):
        pass
    assert is_far_ahead.wait(10)
    time.sleep(0.05)  # for what it must not do
    assert made <= MAX_BACKLOG + 2
    for _ in range(MAX_BACKLOG):
        assert next(events) == TextDelta("x")
    events.close()
    assert made <= 2 * MAX_BACKLOG + 2


@pytest.mark.system
def test_a_stream_that_waits_for_room_ends_with_its_driver():
    made, is_full, busy = 0, threading.Event(), busy_threads()

    class Endless:
        name = "endless"

        def stream(self, request: Any, *, timeout_s: float | None = None) -> Any:
            nonlocal made
            while True:
                made += 1
                if made == MAX_BACKLOG + 2:  # the driver has taken one, and the rest fills the room
                    is_full.set()
                yield TextDelta("x")

    events = drive(seed(), World(client=Endless()))
    while not isinstance(next(events), TextDelta):
        pass
    assert is_full.wait(10)
    events.close()
    until_threads_rest(busy)


@pytest.mark.system
def test_under_asyncio_no_one_is_told_what_a_request_raises_that_was_left_behind():
    told, go_on = list[Any](), asyncio.Event()

    class Stubborn(Script):
        begun = threading.Event()

        async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
            self.requests.append(request)
            if len(self.requests) == 2:
                self.begun.set()
            try:
                await asyncio.sleep(30.0)
            finally:
                await go_on.wait()
                raise ValueError("too late")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        model = Stubborn()
        member = Solo(prompt=Prompt("x"), world=World.of(model))
        team = Team(TeamRecord(), {"one": member, "other": member})
        driver = asyncio.create_task(arun(team, world(Script())))
        assert await asyncio.to_thread(model.begun.wait, 10)
        team.cancel("enough")
        await driver
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert len(left) == 2
        go_on.set()
        await asyncio.wait(left)
        left.clear()
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(main())
    assert told == []


class TestReturnedWhenStopped:
    """What a function had returned when its driver was stopped, before the driver has taken it."""

    def stopped_behind(self, is_async: bool, end: Callable[[AgentCall], object] = lambda one: None) -> AgentCall:
        """Return a call of two functions whose driver was stopped when the first was done, and the second had returned.

        Args:
            is_async: Under asyncio.
            end: Called before the driver is stopped.
        """
        busy, go = busy_threads(), threading.Event()

        def quick() -> str:
            """Return at once."""
            return "fine"

        def late() -> str:
            """Return when the driver is held up."""
            go.wait(10)
            return "late"

        one = seed(Prompt("x", functions=(quick, late)))
        within = world(Script([call("quick"), call("late")]))

        def hold_up() -> None:
            go.set()
            until_threads_rest(busy)
            end(one)

        async def main() -> None:
            async with aclosing(adrive(one, within)) as events:
                async for event in events:
                    if isinstance(event, FunctionEnded):
                        break
                hold_up()

        if is_async:
            asyncio.run(main())
        else:
            with closing(drive(one, within)) as events:
                while not isinstance(next(events), FunctionEnded):
                    pass
                hold_up()
        return one

    @pytest.mark.parametrize("is_async", [False, True])
    def test_it_is_kept(self, is_async: bool):
        one = self.stopped_behind(is_async)
        assert [f.result for f in one.record.function_calls] == ["fine", "late"]
        assert one.state is State.CALLING

    @pytest.mark.parametrize("is_async", [False, True])
    def test_it_is_not_kept_for_a_call_that_has_ended(self, is_async: bool, caplog: pytest.LogCaptureFixture):
        one = self.stopped_behind(is_async, lambda one: one.advance("", Cancelled(reason="by hand")))
        assert (one.record.ending.reason, one.record.ending.detail) == (Reason.CANCELLED, "by hand")
        assert [f.result for f in one.record.function_calls] == ["fine", None]
        assert "could not be kept" not in caplog.text


@pytest.mark.system
def test_under_asyncio_streams_beside_each_other_run_ahead_only_so_far():
    """Those of a later state as far: what was dropped with a member gives its room back."""

    class Fast(Script):
        """A model that says so much at once, behind its first word."""

        made = 0

        async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
            for _ in range(100 * MAX_BACKLOG):
                self.made += 1
                yield TextDelta("x")

    class Brief(Script):
        """A model that answers when the other has filled the room."""

        async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
            await asyncio.sleep(0)
            yield Reply.of("fine")

    dropped, fast, over = Fast(), Fast(), flows.end("over")

    def asking(name: str, model: Script) -> Any:
        return flows.call(Agent(model, name=name), name=name)(lambda n: "?")

    first = flows.race("first", asking("dropped", dropped), asking("brief", Brief()))
    then = flows.gather("then", asking("one", fast), asking("other", fast))
    flow = flows.Flow("f", int, start=first, rows=[first.done(then), then.done(over)])

    async def main() -> None:
        async with aclosing(flow.astream(1)) as events:
            async for event in events:
                if isinstance(event, Inside) and isinstance(event.event, TextDelta) and event.path.startswith("then"):
                    break
                await asyncio.sleep(0)  # others fill the room
            for _ in range(4 * MAX_BACKLOG):
                await asyncio.sleep(0)  # long enough for more than they may do
            assert dropped.made > MAX_BACKLOG
            assert MAX_BACKLOG <= fast.made <= MAX_BACKLOG + 4  # those in the room, the first word, one in each hand

    asyncio.run(main())


@pytest.mark.system
@everywhere
@pytest.mark.parametrize("is_cut", [False, True])
def test_long_streams_beside_each_other_end_although_one_is_cut(is_cut: bool, driven: Driver):
    """Those that wait for room go on when others have gone, whatever became of their events."""
    text = " ".join(["x"] * 3 * MAX_BACKLOG)

    class Cut(Script):
        """Its request takes too long when it has said so much."""

        def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[Any]:
            if len(self.requests) == 0 and is_cut:
                self.requests.append(request)
                yield from [TextDelta("x")] * 2 * MAX_BACKLOG
                SystemClock().sleep(30.0)
                return
            yield from super().stream(request)

        async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
            if len(self.requests) == 0 and is_cut:
                self.requests.append(request)
                for _ in range(2 * MAX_BACKLOG):
                    yield TextDelta("x")
                await asyncio.sleep(30.0)
                return
            for item in super().stream(request):
                yield item

    limits = Limits(request_s=0.5) if is_cut else Limits()
    members = {
        "cut": Solo(prompt=Prompt("x"), limits=limits, world=World.of(Cut(text), backoff=tenacity.wait_none())),
        **{name: Solo(prompt=Prompt("x"), world=World.of(Script(text))) for name in ("one", "other")},
    }
    team = Team(TeamRecord(), members)
    events = driven(team, Script())
    assert team.record.state is Stage.DONE
    said = [event.path for event in events if isinstance(event, Inside) and isinstance(event.event, TextDelta)]
    assert said.count("one") == said.count("other") == 3 * MAX_BACKLOG


@everywhere
def test_no_delta_is_reported_that_came_after_a_cancellation(driven: Driver):
    class Hasty(Script):
        def stream(self, request: Any, *, timeout_s: float | None = None) -> Any:
            for item in super().stream(request):
                one.cancel("enough")
                yield item

    one = seed()
    events = driven(one, Hasty("one two three"))
    assert one.record.ending.reason is Reason.CANCELLED
    assert not [event for event in events if isinstance(event, TextDelta)]


# What a listener does


def cut(driven: str, script: Script, one: AgentCall, at: int) -> None:
    """Drive until the event number ``at``, and stop in one of the ways that people stop."""

    def sink(event: Any) -> None:
        sink.seen += 1
        if sink.seen == at:
            raise LookupError

    async def main(way: str) -> None:
        agen = adrive(one, world(script))
        for _ in range(at):
            await anext(agen, None)
        await agen.aclose()

    sink.seen = 0
    if driven == "close":
        events = drive(one, world(script))
        for _ in range(at):
            next(events, None)
        events.close()
    elif driven == "aclose":
        asyncio.run(main(driven))
    elif driven == "sink":
        with suppress(LookupError):
            run(one, world(script), sink)
    else:
        with suppress(LookupError):
            asyncio.run(arun(one, world(script), sink))


@pytest.mark.system
@pytest.mark.parametrize("driven", ["close", "sink", "aclose", "asink"])
def test_stopped_at_any_event_nothing_is_asked_twice_and_the_end_is_the_same(driven: str):
    said = {2: call("note", n=1), 4: [call("note", n=2), call("anote", n=3)], 7: "bad", 9: "42"}

    def model() -> Script:
        """Answers by what was said so far, so that a request whose reply was cut can be made again."""
        return Script(*[lambda request: said[len(request.messages)]] * 6)

    def seeded(ran: list[int]) -> AgentCall:
        def note(n: int) -> int:
            """Note it."""
            ran.append(n)
            return n

        async def anote(n: int) -> int:
            """Note it, too."""
            ran.append(n)
            return n

        return seed(Prompt("x", functions=(note, anote), parser=parse))

    whole = seeded([])
    events = by_run(whole, model())
    for at in range(1, len(events) + 1):
        ran: list[int] = []
        one, script = seeded(ran), model()
        cut(driven, script, one, at)
        run(one, world(script, threads=0))
        assert one.record == whole.record
        was_cut = at > 1 and isinstance(events[at - 1], Delta)
        assert len(script.requests) == 4 + was_cut, f"stopped at {at}, {events[at - 1]}"
        assert sorted(set(ran)) == [1, 2, 3]
        assert ran.count(1) == 1


@pytest.mark.spec("4.30: by a listener, at any event")
@everywhere
@pytest.mark.parametrize("at", range(1, 14))
def test_a_listener_may_call_it_off_at_any_event(driven: Driver, at: int):
    script = Script(["so so", call("add", a=1, b=2)], [call("add", a=2, b=2), call("add", a=3, b=2)], "one two")
    one, seen = seed(Prompt("x", functions=PROMPT.functions)), []

    def listen(event: Any) -> None:
        seen.append(event)
        if len(seen) == at:
            one.advance("", Cancelled(reason="enough"))

    if driven in (by_arun, by_adrive):
        asyncio.run(arun(one, world(script), listen))
    else:
        run(one, world(script, threads=16 if driven is by_threads else 0), listen)
    assert one.record.ending.reason is Reason.CANCELLED
    assert isinstance(seen[-1], Done)
    assert_sendable(one.record.dialog)


@pytest.mark.spec("1.30: they stand behind the results")
@everywhere
def test_a_message_that_is_injected_while_functions_run_disturbs_none_of_them(driven: Driver):
    ran: list[int] = []
    begun: list[str] = []

    def work(n: int) -> str:
        """Work."""
        ran.append(n)
        return str(n)

    def listen(event: Any) -> None:
        if isinstance(event, FunctionStarted):
            begun.append(event.id)
        if isinstance(event, FunctionStarted) and event.arguments_json == '{"n": 1}':
            one.advance("", Injected((Message.of("user", "Be brief."),)))

    one = seed(PROMPT.extend(functions=[Function.of(work)]))
    script = Script([call("work", n=n) for n in range(3)], "42")
    if driven in (by_arun, by_adrive):
        asyncio.run(arun(one, world(script), listen))
    else:
        run(one, world(script, threads=16 if driven is by_threads else 0), listen)
    assert one.result().output == 42
    assert sorted(ran) == [0, 1, 2], "each ran once"
    assert begun == ["2.0", "2.1", "2.2"], "and was said to begin once"
    assert [m.text for m in script.requests[1].messages][-4:] == ["0", "1", "2", "Be brief."]


@everywhere
def test_a_message_that_a_listener_injects_while_the_model_answers_makes_that_request_anew(driven: Driver):
    one, deltas = seed(), []

    def listen(event: Any) -> None:
        if isinstance(event, TextDelta):
            deltas.append(event.text)
            if len(deltas) == 1:
                one.advance("", Injected((Message.of("user", "Be brief."),)))

    script = Script("one two three", "42")
    if driven in (by_arun, by_adrive):
        asyncio.run(arun(one, world(script), listen))
    else:
        run(one, world(script, threads=16 if driven is by_threads else 0), listen)
    assert one.result().output == 42
    assert deltas == ["one", "42"]
    assert [len(request.messages) for request in script.requests] == [2, 3]
    assert script.requests[1].messages[-1].text == "Be brief."


@everywhere
def test_nothing_of_a_reply_is_reported_once_a_listener_has_ended_the_call(driven: Driver):
    one, seen = seed(), []

    def listen(event: Any) -> None:
        seen.append(event)
        if isinstance(event, TextDelta):
            one.advance("", Cancelled(reason="enough"))

    if driven in (by_arun, by_adrive):
        asyncio.run(arun(one, world(Script("one two three four 5")), listen))
    else:
        run(one, world(Script("one two three four 5"), threads=16 if driven is by_threads else 0), listen)
    assert [type(event) for event in seen] == [Stepped, RequestStarted, TextDelta, Done]


@pytest.mark.parametrize("method", ["complete", "stream", "acomplete", "astream"])
def test_a_client_that_gives_no_reply_is_named(method: str):
    class Silent(Script):
        def complete(self, request: Any, *, timeout_s: float | None = None) -> Any:
            return None

        def stream(self, request: Any, *, timeout_s: float | None = None) -> Any:
            yield TextDelta("so so")

        async def acomplete(self, request: Any, *, timeout_s: float | None = None) -> Any:
            return None

        async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
            yield TextDelta("so so")

    driven = {"complete": by_run_unheard, "stream": by_run, "acomplete": by_arun_unheard, "astream": by_arun}[method]
    with pytest.raises(UsageError, match=rf"{method}\(\) of the client 'mine' ended with None: a Reply would be right"):
        driven(seed(), Silent(name="mine"))


@everywhere
@pytest.mark.parametrize(
    ("usage", "wrong"),
    [
        (Usage(input_tokens=-(10**9), output_tokens=5), "Usage.input_tokens is -1000000000: a whole number from 0"),
        (Usage(output_tokens=10**30), "Usage.output_tokens is 10{30}: a whole number"),
    ],
)
def test_counts_that_no_request_can_have_used_are_refused_where_they_enter(driven: Driver, usage: Usage, wrong: str):
    one = seed()
    reply = Reply(message=Message.of("assistant", "42"), usage=usage)
    with pytest.raises(UsageError, match=f"of the client 'mine' ended with Reply(?s:.*){wrong}"):
        driven(one, Script(reply, name="mine"))
    assert one.record.usage == Usage(), "no budget is reckoned with them"


@anyhow
def test_a_wait_that_is_over_when_the_call_is_taken_up_again_takes_no_time(driven: Driver):
    one, script = seed(), Script(RateLimited("slow down", status=429, retry_after_s=7.0), "42")
    asked = drive(one, world(script))
    while one.state is not State.BACKOFF:
        next(asked)
    asked.close()
    script.clock.advance(100.0)
    driven(restore(snapshot(one), PROMPT), script)
    assert script.clock.sleeps == [0.0]


@pytest.mark.system
@anyhow
def test_what_asyncio_cannot_pass_on_is_told_all_the_same(driven: Driver):
    def empty() -> int:
        """Take the first of nothing."""
        return next(iter([]))

    async def gone() -> None:
        """Wait for what was cancelled."""
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task

    one = seed(Prompt("x", functions=(empty, gone)))
    driven(one, Script(call("empty"), call("gone"), "sorry"))
    first, second = one.record.function_calls
    assert first.error == "StopIteration"
    assert second.error == "RuntimeError: what the function waited for was cancelled"


@anyhow
def test_a_plain_wrapper_around_a_coroutine_function_is_awaited(driven: Driver):
    async def lookup() -> str:
        """Look it up."""
        return "found"

    @functools.wraps(lookup)
    def wrapped() -> Any:
        return lookup()

    one = seed(Prompt("x", functions=(wrapped,)))
    driven(one, Script(call("lookup"), "done"))
    assert one.record.function_calls[0].result == "found"


@anyhow
def test_an_approver_who_cannot_say_is_asked_once(driven: Driver):
    asked: list[str] = []

    def approve(f: Any) -> bool | None:
        asked.append(f.arguments["path"])
        return None if f.arguments["path"] == "b" else True

    one = seed()
    driven(one, Script([call("erase", path=p) for p in "abc"]), approve=approve)
    assert asked == ["a", "b", "c"]
    assert [effect.key for effect in one.effects] == ["ask:2.1"]


@anyhow
def test_nobody_is_asked_about_what_a_denial_before_has_settled(driven: Driver):
    asked: list[str] = []

    def approve(f: Any) -> Any:
        asked.append(f.name)
        return Denied(reason="not today")

    plan = Function(name="plan", call=lambda: "a plan", needs_approval=True)
    edit = Function(name="edit", call=lambda: "edited", needs_approval=True, depends_on=("plan",))
    one = seed(Prompt("x", functions=(plan, edit)))
    driven(one, Script([call("plan"), call("edit")], "done"), approve=approve)
    assert asked == ["plan"]
    assert [f.error for f in one.record.function_calls] == [
        "The call was not allowed: not today",
        "edit requires plan to have succeeded first.",
    ]


@pytest.mark.spec(
    "1.4: all are asked before any function runs",
    "1.4: changed arguments are the ones that are run",
    "1.4: changed arguments are checked against the schema",
)
@anyhow
def test_all_are_approved_before_any_is_run(driven: Driver):
    log: list[str] = []

    def approve(f: Any) -> Any:
        log.append(f"approve {f.arguments['n']}")
        return [True, Denied(reason="not this"), Modified('{"n": 20}'), Modified('{"n": "x"}')][f.arguments["n"]]

    def work(n: int) -> str:
        """Work."""
        log.append(f"work {n}")
        return f"worked {n}"

    one = seed(Prompt("x", functions=(Function.of(work, needs_approval=True),)), limits=Limits(parallel=1))
    driven(one, Script([call("work", n=n) for n in range(4)], "done"), approve=approve)
    assert log == ["approve 0", "approve 1", "approve 2", "approve 3", "work 0", "work 20"]
    told = [(m.parts[0].text.partition(":")[0], m.parts[0].is_error) for m in one.record.dialog[3:7]]
    assert told == [
        ("worked 0", False),
        ("The call was not allowed", True),
        ("worked 20", False),
        ("The arguments of work are not valid", True),
    ]


@pytest.mark.spec("1.4: an approver that raises ends it before anything is run")
@anyhow
def test_an_approver_that_fails_ends_the_driver_before_anything_is_run(driven: Driver):
    ran: list[int] = []

    def approve(f: Any) -> Any:
        raise LookupError("no such user")

    one = seed(Prompt("x", functions=(Function.of(ran.append, name="work", needs_approval=True),)))
    with pytest.raises(LookupError, match="no such user"):
        driven(one, Script(call("work", object=1)), approve=approve)
    assert (ran, one.state) == ([], State.TOOL_INTERRUPT)


@anyhow
def test_a_predicate_says_which_calls_need_approval(driven: Driver):
    asked: list[str] = []

    def approve(f: Any) -> bool:
        asked.append(f.arguments["path"])
        return True

    risky = Function(name="read", call=lambda path: path, needs_approval=lambda f: f.arguments["path"] == "/etc")
    one = seed(Prompt("x", functions=(risky,)))
    driven(one, Script([call("read", path="/tmp"), call("read", path="/etc")], "done"), approve=approve)
    assert asked == ["/etc"]
    assert [f.result for f in one.record.function_calls] == ["/tmp", "/etc"]


@pytest.mark.spec(
    "1.4: without a verdict the call is suspended and goes on later",
    "1.30: a call that waits goes on later",
    "4.23: every budget is kept",
)
@anyhow
def test_a_suspended_call_goes_on_from_its_snapshot_with_all_budgets_kept(driven: Driver):
    functions = (
        *PROMPT.functions,
        Function(name="flaky", call=lambda: [][0], max_failures=2),
        Function(name="once", call=lambda: "once", max_calls=1),
    )
    limits = Limits(rounds=3, parse_retries=1, recalls=1, identical_rounds=9)
    prompt = Prompt("x", path="p", functions=functions, parser=parse)
    script = Script(
        Overloaded("busy", status=529),
        [call("flaky"), call("once")],
        "no number",
        call("flaky"),
        call("erase", path="x"),
        "42",
    )
    one = seed(prompt, limits=limits)
    driven(one, script, approve=lambda f: None)
    before = one.record
    assert (before.rounds, before.recalls, before.parse_errors, before.turn) == (2, 1, 1, 5)
    again = restore(snapshot(one), prompt)
    assert again.record == before
    assert [e.key for e in again.effects] == ["ask:7.0"]
    again.advance("ask:7.0", Approved())
    driven(again, script)
    assert again.result().output == 42
    assert (again.record.rounds, again.record.recalls, again.record.parse_errors) == (3, 1, 1)
    assert [[f.name for f in r.functions if f.name in ("flaky", "once")] for r in script.requests] == [
        ["flaky", "once"],
        ["flaky", "once"],
        ["flaky"],
        ["flaky"],
        [],
        [],
    ]
    assert script.requests[-1].functions == ()


def test_an_approver_that_times_out_by_itself_is_no_deadline():
    async def approve(f: Any) -> bool:
        raise TimeoutError("the form was not sent")

    with pytest.raises(TimeoutError, match="the form"):
        by_arun(seed(), Script(call("erase", path="x")), approve=approve)


@pytest.mark.spec("1.23: the start of a request with its number and size")
def test_every_request_is_announced_with_its_number_and_size():
    script = Script(call("add", a=1, b=2), Overloaded("busy"), "3")
    events = list(Agent(script, system="You add.", functions=[add]).stream("1 + 2?"))
    started = [event for event in events if isinstance(event, RequestStarted)]
    assert [(event.number, event.messages) for event in started] == [(1, 2), (2, 4), (3, 4)]
    assert isinstance(events[events.index(started[0]) + 1], FunctionCallStarted)


@pytest.mark.spec(
    "1.8: it fires at every multiple of the threshold",
    "1.9: the loop is told to observers",
    "1.9: the repeated functions are still run",
    "1.10: the call fails before the loop is run",
    "1.23: a loop with name, count and action",
)
@pytest.mark.parametrize(("action", "told"), [("warn", [3, 6]), ("tell", [3, 6]), ("stop", [3])])
def test_a_loop_is_told_to_observers_at_every_multiple(action, told):
    script = Script(*[call("tick")] * 7, "done")
    limits = Limits(rounds=None, identical_rounds=3, on_loop=action)
    seen = []
    agent = Agent(script, functions=[Function.of(tick, repeatable=True)], limits=limits)
    with suppress(CallFailed):
        agent.run(agent.seed("What time?"), seen.append)
    found = [event for event in seen if isinstance(event, LoopDetected)]
    assert found == [LoopDetected("tick", count, action) for count in told]
    ran = sum(isinstance(event, FunctionEnded) for event in seen)
    assert ran == (2 if action == "stop" else 7)


def test_threads_may_append_while_an_outcome_is_looked_for_after_the_deadline():
    class AnotherArrives(tuple[Any, Any, Any]):
        """An item during whose reading a thread appends one more, as it may between any two instructions."""

        def __iter__(self):
            driver.inbox.append((dropped, None, None))
            return super().__iter__()

    dropped = cast(Any, SimpleNamespace(stream=None, is_dropped=True))
    driver = SyncDriver(seed(), world(Script("ok")))
    driver.inbox += [AnotherArrives((dropped, TextDelta("a"), None)), (dropped, None, None)]
    assert driver._take_next(is_late=True) == ()

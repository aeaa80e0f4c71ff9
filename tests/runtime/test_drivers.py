"""Do all drivers do the same, at once where they can, and stop where they must?"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing, suppress
from typing import Any

import pytest
import tenacity
from support.agent_calls import PROMPT, add, assert_sendable, parse
from support.drivers import (
    DRIVERS,
    Driver,
    anyhow,
    busy_threads,
    by_arun,
    by_arun_unheard,
    by_run,
    by_run_unheard,
    by_threads,
    environment,
    everywhere,
    heard,
    rest,
    seed,
    until_threads_rest,
)
from support.nested_process import Solo, Stage, Team, TeamRecord

from fsm_agent.agents import Agent
from fsm_agent.call import (
    AgentCall,
    Approved,
    CallFailed,
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
from fsm_agent.errors import Overloaded, RateLimited
from fsm_agent.functions import Function, Retries
from fsm_agent.messages import (
    ArgumentsDelta,
    Delta,
    Done,
    FunctionCallStarted,
    FunctionEnded,
    FunctionStarted,
    Inside,
    Message,
    RequestStarted,
    Stepped,
    Suspended,
    TextDelta,
)
from fsm_agent.prompts import Prompt
from fsm_agent.runtime import Environment, SystemClock, adrive, arun, drive, run
from fsm_agent.runtime.activity import MAX_BACKLOG
from fsm_agent.testing import Delayed, Script, function_call


def rich_script() -> Script:
    return Script(
        RateLimited("slow down", status=429, retry_after_s=7.0),
        ["Let me see.", function_call("add", a=17, b=25)],
        function_call("add", b=25, a=17),
        function_call("nosuch"),
        "forty-two",
        Overloaded("busy", status=529),
        function_call("erase", path="x"),
        "42",
    )


def facts(events: list[Any]) -> list[Any]:
    """Events as values; the result as the record and output that it stands for."""
    return [(e.result.call.record, e.result.output) if isinstance(e, Done) else e for e in events]


@pytest.mark.parametrize("driven", [*DRIVERS, by_run_unheard, by_arun_unheard])
def test_one_script_gives_equal_records_and_equal_events_under_every_driver(driven: Driver):
    script, reference = rich_script(), rich_script()
    one, other = seed(limits=Limits(recalls=3)), seed(limits=Limits(recalls=3))
    expected = by_run(other, reference, approve=lambda f: f.arguments["path"] != "/")
    events = driven(one, script, approve=lambda f: f.arguments["path"] != "/")
    if driven not in (by_run_unheard, by_arun_unheard):
        assert facts(events) == facts(expected)
    assert one.record == other.record
    assert one.record.trace == other.record.trace
    assert list(one.record.trace) == [e for e in expected if isinstance(e, Stepped)]
    assert one.result().output == 42
    assert script.clock.sleeps == [7.0, 1.0]
    assert [r.messages for r in script.requests] == [r.messages for r in reference.requests]
    script.assert_exhausted()


@everywhere
def test_exactly_one_done_and_nothing_behind_it(driven: Driver):
    for script in (Script("42"), Script("a", "b", "c", "d"), Script(Overloaded("x", retryable=False))):
        events = driven(seed(), script)
        assert [isinstance(e, Done) for e in events] == [False] * (len(events) - 1) + [True]


@everywhere
def test_deltas_and_steps_come_in_one_order(driven: Driver):
    script = Script(["Let me", function_call("add", a=17, b=25)], "forty two", "42")
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


# Functions at once


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

    heard(driven, one, Script([function_call("slow"), function_call("quick")], "done"), sink)
    assert seen[2:] == ["FunctionEnded quick", "FunctionEnded slow"]
    assert [m.text for m in one.record.dialog[3:5]] == ["slow", "quick"]


def test_the_sync_driver_works_inside_a_running_loop():
    async def lookup() -> str:
        """Look it up."""
        return "found"

    async def main() -> AgentCall:
        return run(seed(Prompt("x", functions=(lookup,))), environment(Script(function_call("lookup"), "done")))

    assert asyncio.run(main()).record.function_calls[0].result == "found"


@anyhow
def test_functions_know_how_deep_they_are(driven: Driver):
    def ask() -> int:
        """Ask another agent."""
        return Agent(Script()).prepare("Go.").record.depth

    one = seed(Prompt("x", functions=(ask,)), depth=1)
    driven(one, Script(function_call("ask"), "done"))
    assert one.record.function_calls[0].result == "2"
    assert ask() == 0


# Approval and suspension


@everywhere
def test_without_an_approver_the_call_is_suspended_and_goes_on_later(driven: Driver):
    script = Script(function_call("erase", path="x"), "42")
    one = seed()
    *_, last = driven(one, script)
    assert last == Suspended(("ask:2.0",), questions=(one.effects[0].question,))
    assert (last.questions[0].key, last.questions[0].kind) == ("ask:2.0", "approval")
    one.advance("ask:2.0", Approved())
    assert isinstance(driven(one, script)[-1], Done)


def test_an_approver_may_be_a_coroutine_function():
    async def approve(f: Any) -> bool:
        return f.name == "erase"

    one = seed()
    by_arun(one, Script(function_call("erase", path="x"), "42"), approve=approve)
    assert one.record.dialog[3].text == "erased x"


@everywhere
def test_a_function_without_a_callable_is_answered_from_outside(driven: Driver):
    order = Function(name="order", parameters={"type": "object", "properties": {"item": {"type": "string"}}})

    def now() -> str:
        """The time."""
        return "noon"

    one = seed(Prompt("x", functions=(order, now)))
    script = Script([function_call("order", item="tea"), function_call("now")], "done")
    *_, last = driven(one, script)
    assert last == Suspended(("run:2.0",), questions=(one.effects[0].question,))
    assert (last.questions[0].key, last.questions[0].kind) == ("run:2.0", "result")
    one.advance("run:2.0", Returned(text="it comes"))
    driven(one, script)
    assert [m.text for m in one.record.dialog[3:5]] == ["it comes", "noon"]


# Time


@anyhow
def test_the_deadline_ends_the_call_while_the_model_is_waited_for(driven: Driver):
    one = seed(limits=Limits(deadline_s=5.0))
    driven(one, Script(Delayed(6.0, "42")))
    with pytest.raises(CallFailed, match="deadline_s"):
        one.result()


@anyhow
def test_a_request_that_takes_too_long_has_failed_and_the_model_is_asked_again(driven: Driver):
    script = Script(Delayed(4.0, function_call("add", a=1, b=2)), Delayed(6.0, "never"), Delayed(4.0, "42"))
    one = seed(limits=Limits(request_s=5.0, deadline_s=60.0))
    driven(one, script)
    assert (one.result().output, len(script.requests), one.record.recalls) == (42, 3, 1)
    (failure,) = one.result().failures
    assert failure.report.kind == "TimedOut"


@anyhow
def test_the_shorter_of_the_limits_of_a_request_and_of_the_call_counts(driven: Driver):
    one = seed(limits=Limits(request_s=5.0, deadline_s=3.0))
    driven(one, Script(Delayed(4.0, "42")))
    assert one.record.ending.reason is Reason.EXPIRED
    one = seed(limits=Limits(request_s=5.0, recalls=0))
    driven(one, Script(Delayed(6.0, "42")))
    assert one.record.ending.reason is Reason.MODEL_FAILED


@anyhow
def test_a_deadline_of_zero_asks_no_model(driven: Driver):
    script = Script()
    one = seed(limits=Limits(deadline_s=0))
    driven(one, script)
    assert (one.record.ending.reason, script.requests) == (Reason.EXPIRED, [])


# Letting go


def test_an_interrupt_in_a_function_leaves_a_call_that_another_driver_finishes():
    interrupted = []

    def once() -> str:
        """Be interrupted once."""
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        return "fine"

    script = Script(function_call("once"), "done")
    one = seed(Prompt("x", functions=(once,)))
    with pytest.raises(KeyboardInterrupt):
        run(one, environment(script))
    assert (one.state, [e.key for e in one.effects]) == (State.TOOL_INTERRUPT, ["run:2.0"])
    asyncio.run(arun(one, environment(script)))
    assert one.record.function_calls[0].result == "fine"


def test_an_interrupt_while_others_run_ends_the_children():
    began, ended = threading.Event(), threading.Event()

    async def stuck() -> None:
        """Wait until cancelled."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def interrupt() -> None:
        """Interrupt the driver."""
        assert began.wait(20)
        raise KeyboardInterrupt

    one = seed(Prompt("x", functions=(stuck, interrupt)))
    with pytest.raises(KeyboardInterrupt):
        run(one, environment(Script([function_call("stuck"), function_call("interrupt")])))
    assert ended.wait(20)
    assert [e.key for e in one.effects] == ["run:2.0", "run:2.1"]


class TestStoppedFunctions:
    """A function whose wait ends with its driver has no outcome yet: the next driver runs it again."""

    @pytest.mark.parametrize("kind", ["plain", "coroutine"])
    def test_between_two_attempts_under_asyncio(self, kind: str):
        waits = threading.Event()
        one, clock = self.call_that_waits(kind, waits)

        async def main() -> None:
            task = asyncio.create_task(arun(one, environment(Script(function_call("work")), clock=clock)))
            assert await asyncio.to_thread(waits.wait, 20)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        asyncio.run(main())
        self.goes_on(one)

    @pytest.mark.system
    @pytest.mark.parametrize("kind", ["plain", "coroutine"])
    def test_between_two_attempts_by_an_interrupt(self, kind: str):
        waits = threading.Event()
        one, clock = self.call_that_waits(kind, waits)

        def interrupt() -> None:
            assert waits.wait(20)
            time.sleep(0.1)  # CPython may miss a signal in the moment between giving up its lock and waiting
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            run(one, environment(Script(function_call("work")), clock=clock))
        self.goes_on(one)

    def call_that_waits(self, kind: str, waits: threading.Event) -> tuple[AgentCall, SystemClock]:
        class Clock(SystemClock):
            def sleep(self, delay_s: float) -> None:
                waits.set()
                super().sleep(60.0)

            async def asleep(self, delay_s: float) -> None:
                waits.set()
                await asyncio.Event().wait()

        runs = list[int]()

        def busy_once() -> str:
            """Work."""
            runs.append(1)
            if len(runs) == 1:
                raise ConnectionError("busy")
            return "fine"

        async def waiting() -> str:
            """Work."""
            return busy_once()

        work = Function.of(busy_once if kind == "plain" else waiting, name="work", retries=Retries(), timeout_s=60)
        return seed(Prompt("x", functions=(work,))), Clock()

    def goes_on(self, one: AgentCall) -> None:
        assert [effect.key for effect in one.effects] == ["run:2.0"]
        run(one, environment(Script("done")))
        assert one.record.function_calls[0].result == "fine"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stream_runs_ahead_of_a_slow_listener_only_so_far_and_ends_with_its_driver(is_async: bool):
    made, is_far_ahead, closed = 0, threading.Event(), list[bool]()

    class Endless(Script):
        async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
            nonlocal made
            try:
                while True:
                    made += 1
                    if made == MAX_BACKLOG:
                        is_far_ahead.set()
                    yield TextDelta("x")
            finally:
                closed.append(True)

    async def main() -> None:
        async with aclosing(adrive(seed(), Environment(client=Endless()))) as events:
            while not isinstance(await anext(events), TextDelta):
                pass
            for _ in range(4 * MAX_BACKLOG):
                await asyncio.sleep(0)  # long enough for more than it may do
            for _ in range(MAX_BACKLOG):
                assert await anext(events) == TextDelta("x")

    with rest():
        if is_async:
            asyncio.run(main())
        else:
            with closing(drive(seed(), Environment(client=Endless()))) as events:
                while not isinstance(next(events), TextDelta):
                    pass
                assert is_far_ahead.wait(20)
                for _ in range(MAX_BACKLOG):
                    assert next(events) == TextDelta("x")
    assert made <= 2 * MAX_BACKLOG + 4
    assert closed == [True], "it lets go of the model"


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
            """Return when the driver is blocked."""
            go.wait(10)
            return "late"

        one = seed(Prompt("x", functions=(quick, late)))
        within = environment(Script([function_call("quick"), function_call("late")]))

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

    def test_what_it_raises_when_it_is_stopped_is_not_kept(self):
        """It says nothing of the function, which is run again."""
        begun = asyncio.Queue[None]()

        async def disturbed() -> None:
            begun.put_nowait(None)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("disturbed") from None

        functions = tuple([Function.of(disturbed, name=name) for name in ("one", "two")])
        one = seed(Prompt("x", functions=functions))
        script = Script([function_call("one"), function_call("two")])

        async def main() -> None:
            driving = asyncio.create_task(arun(one, environment(script)))
            for _ in functions:
                await begun.get()
            driving.cancel()
            with suppress(asyncio.CancelledError):
                await driving

        asyncio.run(main())
        assert [f.is_settled for f in one.record.round] == [False, False]


@everywhere
@pytest.mark.parametrize("is_cut", [False, True])
def test_long_streams_beside_each_other_end_although_one_is_cut(is_cut: bool, driven: Driver):
    """Streams that wait for room continue when others have gone, whatever happened to their events."""
    text = " ".join(["x"] * 3 * MAX_BACKLOG)

    class Cut(Script):
        """Its request takes too long when it has said so much."""

        async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
            if len(self.requests) == 0 and is_cut:
                self.requests.append(request)
                for _ in range(2 * MAX_BACKLOG):
                    yield TextDelta("x")
                await asyncio.Event().wait()
            async for item in super().astream(request):
                yield item

    limits = Limits(request_s=0.1) if is_cut else Limits()
    members = {
        "cut": Solo(
            prompt=Prompt("x"), limits=limits, environment=Environment.of(Cut(text), backoff=tenacity.wait_none())
        ),
        **{name: Solo(prompt=Prompt("x"), environment=Environment.of(Script(text))) for name in ("one", "other")},
    }
    team = Team(TeamRecord(), members)
    events = driven(team, Script())
    assert team.record.state is Stage.DONE
    said = [event.path for event in events if isinstance(event, Inside) and isinstance(event.event, TextDelta)]
    assert said.count("one") == said.count("other") == 3 * MAX_BACKLOG


# What a listener does


def cut(driven: str, script: Script, one: AgentCall, at: int) -> None:
    """Drive until the event number ``at``, and stop in one of the ways that people stop."""

    def sink(event: Any) -> None:
        sink.seen += 1
        if sink.seen == at:
            raise LookupError

    async def main(way: str) -> None:
        agen = adrive(one, environment(script))
        for _ in range(at):
            await anext(agen, None)
        await agen.aclose()

    sink.seen = 0
    if driven == "close":
        events = drive(one, environment(script))
        for _ in range(at):
            next(events, None)
        events.close()
    elif driven == "aclose":
        asyncio.run(main(driven))
    elif driven == "sink":
        with suppress(LookupError):
            run(one, environment(script), sink)
    else:
        with suppress(LookupError):
            asyncio.run(arun(one, environment(script), sink))


@pytest.mark.parametrize("driven", ["close", "sink", "aclose", "asink"])
def test_stopped_at_any_event_nothing_is_asked_twice_and_the_end_is_the_same(driven: str):
    said = {
        2: function_call("note", n=1),
        4: [function_call("note", n=2), function_call("anote", n=3)],
        7: "bad",
        9: "42",
    }

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
        run(one, environment(script, threads=0))
        assert one.record == whole.record
        was_cut = at > 1 and isinstance(events[at - 1], Delta)
        assert len(script.requests) == 4 + was_cut, f"stopped at {at}, {events[at - 1]}"
        assert sorted(set(ran)) == [1, 2, 3]
        assert ran.count(1) == 1


@everywhere
def test_a_listener_may_call_it_off_at_any_event(driven: Driver):
    for at in range(1, 14):
        script = Script(
            ["so so", function_call("add", a=1, b=2)],
            [function_call("add", a=2, b=2), function_call("add", a=3, b=2)],
            "one two",
        )
        one, seen = seed(Prompt("x", functions=PROMPT.functions)), list[Any]()

        def listen(event: Any, one: AgentCall = one, seen: list[Any] = seen, at: int = at) -> None:
            seen.append(event)
            if len(seen) == at:
                one.advance("", Cancelled(reason="enough"))

        heard(driven, one, script, listen)
        assert one.record.ending.reason is Reason.CANCELLED
        assert isinstance(seen[-1], Done)
        assert_sendable(one.record.dialog)


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
    script = Script([function_call("work", n=n) for n in range(3)], "42")
    heard(driven, one, script, listen)
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
    heard(driven, one, script, listen)
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

    heard(driven, one, Script("one two three four 5"), listen)
    assert [type(event) for event in seen] == [Stepped, RequestStarted, TextDelta, Done]


@anyhow
def test_a_wait_that_is_over_when_the_call_is_taken_up_again_takes_no_time(driven: Driver):
    one, script = seed(), Script(RateLimited("slow down", status=429, retry_after_s=7.0), "42")
    asked = drive(one, environment(script))
    while one.state is not State.BACKOFF:
        next(asked)
    asked.close()
    script.clock.advance(100.0)
    driven(restore(snapshot(one), PROMPT), script)
    assert script.clock.sleeps == [0.0]


@anyhow
def test_an_approver_who_cannot_say_is_asked_once(driven: Driver):
    asked: list[str] = []

    def approve(f: Any) -> bool | None:
        asked.append(f.arguments["path"])
        return None if f.arguments["path"] == "b" else True

    one = seed()
    driven(one, Script([function_call("erase", path=p) for p in "abc"]), approve=approve)
    assert asked == ["a", "b", "c"]
    assert [effect.key for effect in one.effects] == ["ask:2.1"]


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
    driven(one, Script([function_call("work", n=n) for n in range(4)], "done"), approve=approve)
    assert log == ["approve 0", "approve 1", "approve 2", "approve 3", "work 0", "work 20"]
    told = [(m.parts[0].text, m.parts[0].is_error) for m in one.record.dialog[3:7]]
    assert [is_error for _, is_error in told] == [False, True, False, True]
    assert told[0][0] == "worked 0"
    assert told[1][0].startswith("The call was not allowed:")
    assert told[2][0] == '(The arguments were changed before the function ran: {"n": 20})\nworked 20'
    assert "\nThe arguments of work are not valid:" in told[3][0]


@anyhow
def test_an_approver_that_fails_ends_the_driver_before_anything_is_run(driven: Driver):
    ran: list[int] = []

    def approve(f: Any) -> Any:
        raise LookupError("no such user")

    one = seed(Prompt("x", functions=(Function.of(ran.append, name="work", needs_approval=True),)))
    with pytest.raises(LookupError, match="no such user"):
        driven(one, Script(function_call("work", object=1)), approve=approve)
    assert (ran, one.state) == ([], State.TOOL_INTERRUPT)


def test_an_approver_that_times_out_by_itself_is_no_deadline():
    async def approve(f: Any) -> bool:
        raise TimeoutError("the form was not sent")

    with pytest.raises(TimeoutError, match="the form"):
        by_arun(seed(), Script(function_call("erase", path="x")), approve=approve)


async def wait_for_what_was_cancelled(*_: Any, **__: Any) -> Any:
    form = asyncio.get_running_loop().create_future()
    form.cancel()
    return await form


class Cancelling(Script):
    acomplete = wait_for_what_was_cancelled

    async def astream(self, *args: Any, **kwargs: Any):
        yield await wait_for_what_was_cancelled()


@anyhow
@pytest.mark.parametrize("who", ["ask", "model"])
def test_a_cancellation_that_nobody_asked_for_is_an_error_and_none_of_the_task(driven: Driver, who: str):
    one = seed()
    script = Cancelling("never") if who == "model" else Script(function_call("erase", path="x"))
    with pytest.raises(RuntimeError, match=f"'{who}:"):
        driven(one, script, approve=wait_for_what_was_cancelled)
    assert one.driver is None


def test_every_request_is_announced_with_its_number_and_size():
    script = Script(function_call("add", a=1, b=2), Overloaded("busy"), "3")
    events = list(Agent(script, system="You add.", functions=[add]).stream("1 + 2?"))
    started = [event for event in events if isinstance(event, RequestStarted)]
    assert [(event.number, event.messages) for event in started] == [(1, 2), (2, 4), (3, 4)]
    assert isinstance(events[events.index(started[0]) + 1], FunctionCallStarted)

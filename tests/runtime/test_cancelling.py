"""Can a call be called off from outside while it waits?"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import tenacity
from support.agent_calls import assert_sendable
from support.drivers import (
    DRIVERS,
    Driver,
    anyhow,
    busy_threads,
    by_arun_unheard,
    by_run_unheard,
    until_threads_rest,
    world,
)

from fsm_agent.agents import Agent
from fsm_agent.errors import CallFailed, RateLimited, UsageError
from fsm_agent.flows import Flow, end, execute
from fsm_agent.functions import Function, Retries, function
from fsm_agent.lifecycle import AgentCall, Cancelled, Limits, Reason, Request, State
from fsm_agent.messages import FunctionCall, Reply, TextDelta
from fsm_agent.prompts import Dialog, Prompt
from fsm_agent.runtime import SystemClock, adrive, arun, drive, run
from fsm_agent.store.memory import MemoryStore
from fsm_agent.testing import Script, call

PROMPT_S = 5.0  # ends well within this, though what is waited for takes LONG_S
LONG_S = 30.0


class Waiting(Script):
    """A model that takes its time for the request number ``at``."""

    def __init__(self, *entries: Any, at: int = 1) -> None:
        super().__init__(*entries)
        self.at = at
        self.begun, self.free = threading.Event(), threading.Event()

    def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        reply = super().complete(request)
        if len(self.requests) == self.at:
            self.begun.set()
            self.free.wait(LONG_S)
        return reply

    def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[Any]:
        for item in super().stream(request):
            yield item
            if len(self.requests) == self.at and not self.begun.is_set():
                self.begun.set()
                self.free.wait(LONG_S)

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        reply = super().complete(request)
        if len(self.requests) == self.at:
            self.begun.set()
            await asyncio.sleep(LONG_S)
        return reply

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
        for item in super().stream(request):
            yield item
            if len(self.requests) == self.at and not self.begun.is_set():
                self.begun.set()
                await asyncio.sleep(LONG_S)


def request_pending() -> tuple[Waiting, AgentCall, dict[str, Any]]:
    return Waiting("Too late."), seeded(), {}


def functions_pending(kind: str, count: int, **policy: Any) -> tuple[Waiting, AgentCall, dict[str, Any]]:
    script = Waiting([call("work", n=n) for n in range(count)], "never", at=0)
    return script, seeded(waiting_function(kind, script, **policy)), {}


def waiting_function(kind: str, script: Waiting, **policy: Any) -> Function:
    def plain(n: int) -> str:
        """Work."""
        script.begun.set()
        script.free.wait(LONG_S)
        return "late"

    async def waiting(n: int) -> str:
        """Work."""
        script.begun.set()
        await asyncio.sleep(LONG_S)
        return "late"

    return Function.of(plain if kind == "plain" else waiting, name="work", **policy)


def sleep_pending() -> tuple[Waiting, AgentCall, dict[str, Any]]:
    """Waits before the model is asked again."""
    script = Waiting(RateLimited("slow down", status=429, retry_after_s=LONG_S), "never", at=0)
    return script, seeded(), {"clock": noting_clock(script)}


def attempt_pending() -> tuple[Waiting, AgentCall, dict[str, Any]]:
    """Waits between two attempts at a function that says that it does not block."""
    script = Waiting(call("work"), "never", at=0)

    def busy() -> None:
        raise ConnectionError("busy")

    again = Retries(delay_s=LONG_S, max_delay_s=LONG_S, jitter=0.0)
    work = Function(name="work", call=busy, blocking=False, retries=again)
    return script, seeded(work), {"clock": noting_clock(script)}


def noting_clock(script: Waiting) -> SystemClock:
    class Clock(SystemClock):
        def sleep(self, delay_s: float) -> None:
            script.begun.set()
            super().sleep(delay_s)

        async def asleep(self, delay_s: float) -> None:
            script.begun.set()
            await super().asleep(delay_s)

    return Clock()


def approval_pending(kind: str) -> tuple[Waiting, AgentCall, dict[str, Any]]:
    script = Waiting(call("erase"), "never", at=0)

    def plain(f: FunctionCall) -> bool:
        script.begun.set()
        return script.free.wait(LONG_S)

    async def waiting(f: FunctionCall) -> bool:
        script.begun.set()
        await asyncio.sleep(LONG_S)
        return True

    erase = Function(name="erase", call=lambda: "erased", needs_approval=True)
    return script, seeded(erase), {"approve": plain if kind == "plain" else waiting}


PENDING: dict[str, Any] = {
    "a request": request_pending,
    "a coroutine": lambda: functions_pending("waiting", 1),
    "a coroutine that does not block": lambda: functions_pending("waiting", 1, blocking=False),
    "another attempt": attempt_pending,
    "coroutines": lambda: functions_pending("waiting", 3),
    "a plain function": lambda: functions_pending("plain", 1),
    "plain functions": lambda: functions_pending("plain", 3),
    "a moment": sleep_pending,
    "an approval": lambda: approval_pending("plain"),
    "an approval in a coroutine": lambda: approval_pending("waiting"),
}
WAYS = [*DRIVERS, by_run_unheard, by_arun_unheard]


@pytest.mark.system
@pytest.mark.spec(
    "4.30: while functions run beside each other",
    "4.30: while the model is waited for, under asyncio",
    "4.30: while the model is waited for, under the sync driver",
    "4.30: while an approver is waited for",
    "4.30: while it waits before the model is asked again",
    "4.30: every pending call still gets its result",
)
@pytest.mark.parametrize("driven", WAYS)
@pytest.mark.parametrize("pending", PENDING)
def test_whatever_is_waited_for_ends_at_once_whoever_drives_and_listens(pending: str, driven: Driver):
    off = ended_while_waiting(pending, driven, AgentCall.cancel)
    assert (off.state, off.record.ending.reason) == (State.FAILED, Reason.CANCELLED)


@pytest.mark.system
@pytest.mark.spec("1.30: a stop from outside completes the call with its reason")
@pytest.mark.parametrize("driven", WAYS)
@pytest.mark.parametrize("pending", PENDING)
def test_a_stop_ends_it_well_at_once_whoever_drives_and_listens(pending: str, driven: Driver):
    off = ended_while_waiting(pending, driven, AgentCall.stop)
    result = off.result()
    assert (result.state, result.ending.reason, result.output) == (State.COMPLETED, Reason.STOPPED, None)
    assert result.record.reply is not None or result.text == ""
    told = {m.text for m in result.dialog if m.role == "tool"}
    assert told <= {"Not run: the call was stopped."}
    assert bool(told) == (pending not in ("a request", "a moment"))


def ended_while_waiting(pending: str, driven: Driver, end: Callable[[AgentCall, str], None]) -> AgentCall:
    """Return a call that was ended from another thread while something was pending; it has ended at once."""
    script, off, options = PENDING[pending]()
    failures: list[BaseException] = []
    busy = busy_threads()

    def drive() -> None:
        try:
            driven(off, script, **options)
        except BaseException as error:
            failures.append(error)

    driver = threading.Thread(target=drive)
    driver.start()
    try:
        assert script.begun.wait(10)
        began = time.monotonic()
        end(off, "no longer needed")
        driver.join(10)
        took_s = time.monotonic() - began
    finally:
        script.free.set()
        driver.join(10)
    ended = off.record
    assert failures == []
    assert ended.ending.detail == "no longer needed"
    assert took_s < PROMPT_S
    assert_sendable(ended.dialog)
    until_threads_rest(busy)
    assert off.record is ended, "nothing that comes later counts"
    assert off.driver is None
    return off


class TestItsOwnThread:
    """A lone plain function runs in the thread of `call` only where nothing could end the wait for it."""

    @pytest.mark.parametrize("threads", [0, 16])
    def test_a_call_that_is_made_and_driven_at_once_is_its_callers_alone(self, threads: int):
        agent, ran_in = self.agent(world={"threads": threads})
        agent.call("Go.")
        flow, ran_in_flow = self.flow()
        flow.call(1)
        assert ran_in + ran_in_flow == [threading.get_ident()] * 2

    @pytest.mark.parametrize("threads", [0, 16])
    @pytest.mark.parametrize(
        "drive",
        [
            lambda agent: agent.run(agent.seed("Go.")),
            lambda agent: list(agent.stream("Go.")),
            lambda agent: asyncio.run(agent.acall("Go.")),
            lambda agent: agent.changed(limits=Limits(deadline_s=LONG_S)).call("Go."),
            lambda agent: agent.changed(name="kept", store=MemoryStore()).call("Go."),
        ],
        ids=["run", "stream", "acall", "deadline", "store"],
    )
    def test_wherever_something_may_end_it_it_has_a_thread(self, drive: Callable[[Any], Any], threads: int):
        agent, ran_in = self.agent(world={"threads": threads})
        drive(agent)
        assert ran_in != [threading.get_ident()]

    @pytest.mark.parametrize(
        "drive",
        [
            lambda flow: flow.run(flow.seed(1)),
            lambda flow: list(flow.stream(1)),
            lambda flow: replace(flow, store=MemoryStore()).call(1),
        ],
        ids=["run", "stream", "store"],
    )
    def test_so_it_is_with_the_functions_of_flows(self, drive: Callable[[Any], Any]):
        flow, ran_in = self.flow()
        drive(flow)
        assert ran_in != [threading.get_ident()]

    @pytest.mark.system
    @pytest.mark.parametrize("kind", ["plain", "waiting"])
    def test_a_call_inside_of_a_function_that_is_left_behind_ends(self, kind: str):
        """The function inside does not hold up the thread of the one around it."""
        script, _, _ = functions_pending(kind, 1)
        inside = Agent(script, functions=[waiting_function(kind, script)], name="inside")
        ended = threading.Event()

        def outer() -> str:
            """Ask another agent."""
            try:
                return str(inside.call("Go.").output)
            finally:
                ended.set()

        off = seeded(outer)
        driver = threading.Thread(target=run, args=(off, world(Script(call("outer")))))
        driver.start()
        try:
            assert script.begun.wait(10)
            off.cancel("no longer needed")
            driver.join(10)
            assert ended.wait(10)
        finally:
            script.free.set()
        assert off.record.ending.reason is Reason.CANCELLED

    def agent(self, **options: Any) -> tuple[Agent, list[int]]:
        ran_in = list[int]()
        script = Script(call("work"), "fine")
        return Agent(script, functions=[Function(name="work", call=partial(note_thread, ran_in))], **options), ran_in

    def flow(self) -> tuple[Flow[int], list[int]]:
        ran_in = list[int]()

        @execute
        def work(n: int) -> str:
            return note_thread(ran_in)

        return Flow("f", int, start=work, rows=[work.done(end("over"))]), ran_in


def note_thread(ran_in: list[int]) -> str:
    ran_in.append(threading.get_ident())
    return "fine"


@pytest.mark.system
@pytest.mark.spec(
    "1.12: it ends the wait for the model",
    "1.12: it ends the wait for functions",
    "1.12: it ends the wait for an approver",
    "4.30: a time limit for the call",
)
@anyhow
@pytest.mark.parametrize("pending", ["a request", "an approval", "an approval in a coroutine", "plain functions"])
def test_the_deadline_ends_whatever_is_waited_for(pending: str, driven: Driver):
    script, one, options = PENDING[pending]()
    one.record = one.record.changed(limits=Limits(deadline_s=0.2))
    began = time.monotonic()
    try:
        driven(one, script, clock=SystemClock(), **options)
        took_s = time.monotonic() - began
    finally:
        script.free.set()
    assert one.record.ending.reason is Reason.EXPIRED
    assert 0.2 <= took_s < 0.2 + PROMPT_S
    assert_sendable(one.record.dialog)


class Deaf(Script):
    """A model that takes no notice of a timeout at its first request: it waits, or says something without an end."""

    def __init__(self, *entries: Any, says: str = "") -> None:
        super().__init__(*entries)
        self.says = says
        self.asked = 0
        self.free = threading.Event()

    def is_first(self) -> bool:
        self.asked += 1
        return self.asked == 1

    def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        if self.is_first():
            self.free.wait(LONG_S)
        return super().complete(request)

    def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[Any]:
        if self.is_first():
            while self.says and not self.free.is_set():
                yield TextDelta(self.says)
            self.free.wait(LONG_S)
        yield from super().stream(request)

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        if self.is_first():
            await asyncio.sleep(LONG_S)
        return super().complete(request)

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
        if self.is_first():
            while self.says:
                yield TextDelta(self.says)
                await asyncio.sleep(0)
            await asyncio.sleep(LONG_S)
        for item in super().stream(request):
            yield item


def listen_slowly(agent: Agent[Any, Any]) -> None:
    for event in agent.stream("Go."):
        if isinstance(event, TextDelta):
            time.sleep(0.001)


async def alisten_slowly(agent: Agent[Any, Any]) -> None:
    async for event in agent.astream("Go."):
        if isinstance(event, TextDelta):
            await asyncio.sleep(0.001)


def in_loop(work: Any) -> None:
    asyncio.run(work)


VERBS: dict[str, Callable[[Agent[Any, Any]], Any]] = {
    "call": lambda agent: agent.call("Go."),
    "stream": lambda agent: list(agent.stream("Go.")),
    "stream, slowly": listen_slowly,
    "acall": lambda agent: in_loop(agent.acall("Go.")),
    "astream, slowly": lambda agent: in_loop(alisten_slowly(agent)),
}
at_once = {"clock": SystemClock(), "backoff": tenacity.wait_none()}


@pytest.mark.system
@pytest.mark.spec("4.30: a time limit for a step")
@pytest.mark.parametrize("says", ["", "more and "])
@pytest.mark.parametrize("verb", VERBS)
def test_a_request_to_a_model_that_is_deaf_is_given_up_and_made_again(verb: str, says: str):
    model = Deaf("fine", says=says)
    agent = Agent(model, limits=Limits(request_s=0.3, recalls=1), world=at_once)
    took_s = driven_in_time(lambda: VERBS[verb](agent), model.free)
    assert 0.3 <= took_s < PROMPT_S
    assert model.asked == 2


@pytest.mark.system
@pytest.mark.parametrize("says", ["", "more and "])
@pytest.mark.parametrize("verb", VERBS)
def test_the_deadline_ends_a_request_to_a_model_that_is_deaf(verb: str, says: str):
    model = Deaf("fine", says=says)
    agent = Agent(model, limits=Limits(deadline_s=0.3), world=at_once)
    took_s = driven_in_time(lambda: VERBS[verb](agent), model.free)
    assert 0.3 <= took_s < PROMPT_S
    assert model.asked == 1


def driven_in_time(drive: Callable[[], Any], free: threading.Event) -> float:
    """Return how many seconds a drive takes that ends by itself."""

    def quietly() -> None:
        with suppress(CallFailed):
            drive()

    driver, began = threading.Thread(target=quietly, daemon=True), time.monotonic()
    driver.start()
    driver.join(LONG_S / 2)
    has_ended, took_s = not driver.is_alive(), time.monotonic() - began
    free.set()
    driver.join(5)
    assert has_ended
    return took_s


@pytest.mark.system
@pytest.mark.parametrize("what", ["timeout", "deadline", "deadline around"])
def test_a_lone_plain_function_of_a_call_ends_in_time(what: str):
    """`call` would run it in its own thread, if it had no limit."""
    free = threading.Event()
    limits = Limits(deadline_s=0.3) if what == "deadline" else Limits()
    work = Function(name="work", call=lambda: free.wait(LONG_S), timeout_s=0.3 if what == "timeout" else None)
    agent: Agent[Any, Any] = Agent(Script(call("work"), "fine"), functions=[work], limits=limits, world=at_once)
    if what == "deadline around":
        inner = agent.changed(name="inner")
        agent = Agent(Script(call("inner", task="x")), functions=[inner], limits=Limits(deadline_s=0.3), world=at_once)
    took_s = driven_in_time(lambda: agent.call("Go."), free)
    assert 0.3 <= took_s < PROMPT_S


@pytest.mark.system
@pytest.mark.parametrize("end", [AgentCall.cancel, AgentCall.stop])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_lone_plain_function_ends_with_a_call_that_others_have(is_streamed: bool, end: Callable[..., None]):
    free, begun = threading.Event(), threading.Event()

    def work() -> None:
        """Work."""
        begun.set()
        free.wait(LONG_S)

    agent = Agent(Script(call("work"), "never"), functions=[work])
    one = agent.seed("Go.")
    threading.Thread(target=lambda: begun.wait(10) and end(one, "off"), daemon=True).start()
    took_s = driven_in_time(lambda: list(agent.stream(one)) if is_streamed else agent.run(one), free)
    assert took_s < PROMPT_S
    assert one.record.ending.detail == "off"


@anyhow
def test_a_second_driver_is_refused(driven: Driver):
    script, one, _ = request_pending()
    first = threading.Thread(target=by_run_unheard, args=(one, script))
    first.start()
    try:
        assert script.begun.wait(10)
        with pytest.raises(UsageError, match=r"the agent call 'call-1' is being driven already"):
            driven(one, script)
    finally:
        script.free.set()
        first.join(10)
    assert one.result().output == "Too late."
    assert len(script.requests) == 1


def test_a_driver_that_was_forgotten_holds_nothing():
    one = seeded()
    events = drive(one, world(Script("fine")))
    next(events)
    del events
    assert run(one, world(Script("fine"))).result().output == "fine"


def seeded(*functions: object) -> AgentCall:
    return AgentCall.seed(Dialog().put("Go."), Prompt("{{ task }}", functions=functions))


@pytest.mark.spec("4.30: in every live state")
@anyhow
def test_a_call_that_was_called_off_is_ended_by_its_driver_before_it_asks(driven):
    script, off = Script("never"), seeded()
    off.cancel("too late")
    driven(off, script)
    assert (off.state, off.record.ending.reason, off.record.ending.detail) == (
        State.FAILED,
        Reason.CANCELLED,
        "too late",
    )
    assert script.requests == []


@pytest.mark.spec("4.30: while functions run beside each other", "4.30: every pending call still gets its result")
def test_functions_that_block_in_threads_do_not_hold_it_up():
    begun, free = threading.Barrier(3), threading.Event()

    def wait(n: int) -> str:
        """Wait."""
        begun.wait(10)
        free.wait(10)
        return "late"

    blocked = seeded(wait)
    script = Script([call("wait", n=1), call("wait", n=2)], "never")
    driver = threading.Thread(target=run, args=(blocked, world(script)))
    driver.start()
    begun.wait(10)
    blocked.cancel("no longer needed")
    driver.join(10)
    free.set()
    assert not driver.is_alive()
    assert blocked.record.ending.reason is Reason.CANCELLED
    assert [m.text for m in blocked.record.dialog if m.role == "tool"] == ["Not run: no longer needed"] * 2
    assert_sendable(blocked.record.dialog)


@pytest.mark.spec("4.30: while functions run beside each other")
@pytest.mark.parametrize("many", [1, 2])
@pytest.mark.parametrize("heard", [False, True])
def test_coroutines_are_cancelled_with_it_from_another_thread(many, heard):
    ended = []

    async def main() -> AgentCall:
        begun = asyncio.Semaphore(0)

        async def wait(n: int) -> str:
            """Wait."""
            begun.release()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(n)
            return "never"

        waiting = seeded(wait)
        asked = world(Script([call("wait", n=n) for n in range(many)], "never"))

        async def drive() -> None:
            if heard:
                async for _ in adrive(waiting, asked):
                    pass
            else:
                await arun(waiting, asked)

        driver = asyncio.create_task(drive())
        for _ in range(many):
            await begun.acquire()
        await asyncio.to_thread(waiting.cancel, "enough")
        await asyncio.wait_for(driver, 10)
        assert not driver.cancelled()
        return waiting

    off = asyncio.run(main())
    assert off.record.ending.reason is Reason.CANCELLED
    assert sorted(ended) == list(range(many))
    assert_sendable(off.record.dialog)


@pytest.mark.spec("4.30: while the model is waited for, under asyncio")
def test_a_request_that_waits_is_given_up_and_its_task_lives_on():
    class Silent(Script):
        async def acomplete(self, request, *, timeout_s=None):
            asked.set()
            await asyncio.Event().wait()

    async def main() -> None:
        agent = Agent(Silent())
        waiting = agent.seed("Go.")
        driver = asyncio.create_task(arun(waiting, world(Silent())))
        await asyncio.wait_for(asked.wait(), 10)
        waiting.cancel("enough")
        assert (await asyncio.wait_for(driver, 10)).record.ending.reason is Reason.CANCELLED
        assert not driver.cancelling()

    asked = asyncio.Event()
    asyncio.run(main())


@pytest.mark.spec("4.30: while the model is waited for, under asyncio")
def test_what_comes_too_late_to_wake_the_driver_does_nothing_to_its_task():
    class Hasty(Script):
        async def acomplete(self, request, *, timeout_s=None):
            hurried.cancel("never mind")
            return await super().acomplete(request, timeout_s=timeout_s)

    async def main() -> None:
        problems = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        await arun(hurried, world(Hasty(call("wait"), "never")))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not asyncio.current_task().cancelling()
        assert problems == []

    def wait() -> str:
        """Wait."""
        return "never"

    hurried = seeded(wait)
    asyncio.run(main())
    assert hurried.record.ending.reason is Reason.CANCELLED


@pytest.mark.spec("4.30: while the model is waited for, under asyncio")
def test_a_call_that_is_ended_while_the_model_is_asked_stays_ended():
    class Ending(Script):
        async def acomplete(self, request, *, timeout_s=None):
            ended.advance("", Cancelled(reason="by hand"))
            return await super().acomplete(request, timeout_s=timeout_s)

    ended = seeded()
    asyncio.run(arun(ended, world(Ending("too late"))))
    assert (ended.record.ending.reason, ended.record.ending.detail) == (Reason.CANCELLED, "by hand")


@pytest.mark.spec("4.30: a driver that is cancelled leaves the call at rest")
def test_a_cancellation_of_the_driver_is_none_of_the_call():
    async def main() -> AgentCall:
        begun = asyncio.Event()

        async def wait() -> str:
            """Wait."""
            begun.set()
            await asyncio.Event().wait()
            return "never"

        resting = seeded(wait)
        driver = asyncio.create_task(arun(resting, world(Script(call("wait"), "never"))))
        await begun.wait()
        driver.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driver
        return resting

    resting = asyncio.run(main())
    assert (resting.state, resting.record.ending, resting.driver) == (State.TOOL_INTERRUPT, None, None)


@pytest.mark.spec("4.30: by a function of the call")
@anyhow
def test_a_function_can_call_off_the_call_that_it_is_part_of(driven):
    @function(blocking=False)
    def stop() -> str:
        """Stop."""
        off.cancel("the function said so")
        return "stopped"

    off = seeded(stop)
    driven(off, Script(call("stop"), "never"))
    assert off.record.ending.reason is Reason.CANCELLED
    assert off.record.function_calls[0].result in ("stopped", None)


@pytest.mark.spec("1.30: a stop from outside completes the call with its reason")
@anyhow
def test_a_function_can_stop_the_call_that_it_is_part_of(driven: Driver):
    @function(blocking=False)
    def found() -> str:
        """Say that it was found."""
        one.stop("it was found")
        return "noted"

    one = seeded(found)
    driven(one, Script(["Here it is.", call("found")], "never"))
    result = one.result()
    assert (result.ending.reason, result.ending.detail, result.text) == (Reason.STOPPED, "it was found", "Here it is.")


@anyhow
def test_the_latest_request_to_end_it_counts(driven: Driver):
    one = seeded()
    one.stop("enough")
    one.cancel("at once")
    driven(one, Script("never"))
    assert (one.record.ending.reason, one.end_request) == (Reason.CANCELLED, None)


@pytest.mark.system
@pytest.mark.spec("4.30: an agent call inside of a function ends with it")
@anyhow
def test_an_agent_call_inside_of_a_function_ends_with_it(driven: Driver):
    script, inner, _ = request_pending()
    outer_script = Script(call("ask"), "never")

    def ask() -> str:
        """Ask another model."""
        return str(run(inner, world(script)).result().output)

    outer = seeded(Function.of(ask, timeout_s=LONG_S))
    driver = threading.Thread(target=driven, args=(outer, outer_script))
    driver.start()
    try:
        assert script.begun.wait(10)
        busy = busy_threads()
        outer.cancel("enough")
        driver.join(10)
        until_threads_rest(busy - 1)
        assert inner.record.ending.reason is Reason.CANCELLED
    finally:
        script.free.set()


def test_a_call_that_rests_when_its_function_is_left_behind_goes_on_later():
    """Only a driver that is at work inside of the function is ended."""
    rested, free = threading.Event(), threading.Event()
    inner = seeded(Function(name="erase", call=lambda: "erased", needs_approval=True))

    def ask() -> str:
        """Ask another model, and then wait."""
        run(inner, world(Script(call("erase"))))
        rested.set()
        free.wait(10)
        return "late"

    outer = seeded(ask)
    driver = threading.Thread(target=by_run_unheard, args=(outer, Script(call("ask"))))
    driver.start()
    try:
        assert rested.wait(10)
        outer.cancel("enough")
        driver.join(10)
    finally:
        free.set()
    assert outer.record.ending.reason is Reason.CANCELLED
    assert (inner.state, inner.end_request) == (State.TOOL_INTERRUPT, None)

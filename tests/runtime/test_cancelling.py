"""Does a call end at once when it is cancelled, stopped or out of time, in every wait and under every driver?

"At once" is an order here: the driver has ended before its awaited work is released.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable
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
    Wait,
    anyhow,
    by_arun,
    by_arun_unheard,
    by_run_unheard,
    by_threads,
    ended_before,
    environment,
    rest,
)

from fsm_agent.agents import Agent
from fsm_agent.call import AgentCall, CallFailed, Cancelled, Limits, Reason, Request, State
from fsm_agent.errors import RateLimited, UsageError
from fsm_agent.flows import Flow, end, execute
from fsm_agent.functions import Function, Retries, function
from fsm_agent.messages import FunctionCall, Reply, TextDelta
from fsm_agent.prompts import Dialog, Prompt
from fsm_agent.runtime import SystemClock, arun, drive, run
from fsm_agent.store import MemoryStore
from fsm_agent.testing import Script, function_call

LONG_S = 60.0  # what is waited for is set free long before


class Slow(Script):
    """A model whose first reply takes long, under `stream` after its first word."""

    def __init__(self, wait: Wait, *entries: Any) -> None:
        super().__init__(*entries)
        self.wait = wait

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        reply = await super().acomplete(request)
        if len(self.requests) == 1:
            await self.wait.await_()
        return reply

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
        async for item in super().astream(request):
            yield item
            if len(self.requests) == 1 and not self.wait.begun.is_set():
                await self.wait.await_()


class Pause(SystemClock):
    """A clock on which every delay lasts until it is given up."""

    def __init__(self, wait: Wait) -> None:
        self.wait = wait

    def sleep(self, delay_s: float) -> None:
        self.wait.begun.set()
        super().sleep(LONG_S)

    async def asleep(self, delay_s: float) -> None:
        await self.wait.await_()


Pending = tuple[AgentCall, Script, dict[str, Any]]


def seeded(*functions: object) -> AgentCall:
    return AgentCall.seed(Dialog().put("Go."), Prompt("{{ task }}", functions=functions))


def a_request(wait: Wait) -> Pending:
    return seeded(), Slow(wait, "Too late."), {}


def functions(wait: Wait, kind: str, count: int, **policy: Any) -> Pending:
    work = Function(
        name="work",
        call=wait.wait if kind == "plain" else wait.await_,
        parameters={"type": "object", "properties": {"n": {"type": "integer"}}},
        **{"is_async": kind != "plain", **policy},
    )
    return seeded(work), Script([function_call("work", n=n) for n in range(count)], "never"), {}


def a_moment(wait: Wait) -> Pending:
    """Waits before the model is asked again."""
    return seeded(), Script(RateLimited("slow down", status=429), "never"), {"clock": Pause(wait)}


def another_attempt(wait: Wait) -> Pending:
    """Waits between two attempts at a function that says that it does not block."""

    def busy() -> None:
        raise ConnectionError("busy")

    work = Function(name="work", call=busy, blocking=False, retries=Retries(delay_s=9.0, max_delay_s=9.0))
    return seeded(work), Script(function_call("work"), "never"), {"clock": Pause(wait)}


def an_approval(wait: Wait, kind: str) -> Pending:
    erase = Function(name="erase", call=lambda: "erased", needs_approval=True)

    async def approve(f: FunctionCall) -> bool:
        return bool(await wait.await_())

    return (
        seeded(erase),
        Script(function_call("erase"), "never"),
        {"approve": wait.wait if kind == "plain" else approve},
    )


PENDING: dict[str, Callable[[Wait], Pending]] = {
    "a request": a_request,
    "a coroutine": lambda wait: functions(wait, "waiting", 1),
    "a coroutine that does not block": lambda wait: functions(wait, "waiting", 1, blocking=False),
    "a coroutine that is not said to be one": lambda wait: functions(
        wait, "waiting", 1, blocking=False, is_async=False
    ),
    "coroutines": lambda wait: functions(wait, "waiting", 3),
    "a plain function": lambda wait: functions(wait, "plain", 1),
    "plain functions": lambda wait: functions(wait, "plain", 3),
    "another attempt": another_attempt,
    "a moment": a_moment,
    "an approval": lambda wait: an_approval(wait, "plain"),
    "an approval in a coroutine": lambda wait: an_approval(wait, "waiting"),
}


def ended_while_waiting(pending: str, driven: Driver, end: Callable[[AgentCall, str], None]) -> AgentCall:
    """Return a call that was ended from another thread while something was pending, before that was set free."""
    wait = Wait()
    one, script, options = PENDING[pending](wait)
    with rest():
        with ended_before(lambda: driven(one, script, **options), wait.free):
            assert wait.begun.wait(20)
            end(one, "no longer needed")
        ended = one.record
    assert one.record is ended, "nothing that comes later counts"
    assert one.driver is None
    assert ended.ending.detail == "no longer needed"
    assert_sendable(ended.dialog)
    return one


@pytest.mark.parametrize("driven", [by_threads, by_arun])
@pytest.mark.parametrize("pending", PENDING)
def test_whatever_is_waited_for_ends_at_once(pending: str, driven: Driver):
    off = ended_while_waiting(pending, driven, AgentCall.cancel)
    assert (off.state, off.record.ending.reason) == (State.FAILED, Reason.CANCELLED)


@pytest.mark.parametrize("driven", [*DRIVERS, by_run_unheard, by_arun_unheard])
@pytest.mark.parametrize("pending", ["a request", "a plain function"])
def test_so_it_is_whoever_drives_and_listens(pending: str, driven: Driver):
    assert ended_while_waiting(pending, driven, AgentCall.cancel).record.ending.reason is Reason.CANCELLED


@anyhow
@pytest.mark.parametrize("pending", ["a request", "a plain function", "coroutines", "a moment", "an approval"])
def test_a_stop_ends_it_well_at_once(pending: str, driven: Driver):
    result = ended_while_waiting(pending, driven, AgentCall.stop).result()
    assert (result.state, result.ending.reason, result.output) == (State.COMPLETED, Reason.STOPPED, None)
    told = [m for m in result.dialog if m.role == "tool"]
    assert bool(told) == (pending not in ("a request", "a moment"))


@anyhow
@pytest.mark.parametrize("pending", ["a request", "an approval", "an approval in a coroutine", "plain functions"])
def test_the_deadline_ends_whatever_is_waited_for(pending: str, driven: Driver):
    wait = Wait()
    one, script, options = PENDING[pending](wait)
    one.record = one.record.changed(limits=Limits(deadline_s=0.05))
    with ended_before(lambda: driven(one, script, **options), wait.free):
        pass
    assert one.record.ending.reason is Reason.EXPIRED
    assert_sendable(one.record.dialog)


class Deaf(Script):
    """A model that takes no notice of a timeout at its first request: it waits, or says something without an end."""

    def __init__(self, *entries: Any, says: str = "") -> None:
        super().__init__(*entries)
        self.says = says
        self.asked = 0
        self.wait = Wait()

    def is_first(self) -> bool:
        self.asked += 1
        return self.asked == 1

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        if self.is_first():
            await self.wait.await_()
        return await super().acomplete(request)

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
        if self.is_first():
            while self.says:
                yield TextDelta(self.says)
                await asyncio.sleep(0)
            await self.wait.await_()
        async for item in super().astream(request):
            yield item


async def listen(agent: Agent[Any, Any]) -> None:
    async for _ in agent.astream("Go."):
        pass


VERBS: dict[str, Callable[[Agent[Any, Any]], Any]] = {
    "call": lambda agent: agent.call("Go."),
    "stream": lambda agent: list(agent.stream("Go.")),
    "acall": lambda agent: asyncio.run(agent.acall("Go.")),
    "astream": lambda agent: asyncio.run(listen(agent)),
}
verbs = pytest.mark.parametrize(
    ("verb", "says"), [*((verb, "") for verb in VERBS), ("stream", "more and "), ("astream", "more and ")]
)


@verbs
def test_a_request_to_a_model_that_is_deaf_is_given_up_and_made_again(verb: str, says: str):
    model = Deaf("fine", says=says)
    limits = Limits(request_s=0.05, recalls=1)
    agent = Agent(model, limits=limits, environment={"clock": SystemClock(), "backoff": tenacity.wait_none()})
    with ended_before(lambda: VERBS[verb](agent), model.wait.free):
        pass
    assert model.asked == 2


@verbs
def test_the_deadline_ends_a_request_to_a_model_that_is_deaf(verb: str, says: str):
    for deadline_s in (0.05, 1.0, 20.0):  # on a busy machine, a short one may pass before the request
        model = Deaf("fine", says=says)
        agent = Agent(model, limits=Limits(deadline_s=deadline_s), environment={"clock": SystemClock()})
        with ended_before(partial(expires, agent, verb), model.wait.free):
            pass
        if model.asked:
            break
    assert model.asked == 1


def expires(agent: Agent[Any, Any], verb: str) -> None:
    with pytest.raises(CallFailed, match="deadline_s"):
        VERBS[verb](agent)


class TestALonePlainFunction:
    """The sync driver runs it in the thread of `call` only where nothing could end the wait for it."""

    @pytest.mark.parametrize("what", ["timeout", "deadline", "deadline around"])
    def test_it_ends_in_time(self, what: str):
        wait = Wait()
        limits = Limits(deadline_s=0.05) if what == "deadline" else Limits()
        work = Function(name="work", call=wait.wait, timeout_s=0.05 if what == "timeout" else None)
        at_once = {"clock": SystemClock()}
        agent: Agent[Any, Any] = Agent(
            Script(function_call("work"), "fine"), functions=[work], limits=limits, environment=at_once
        )
        if what == "deadline around":
            inner, limits = agent.changed(name="inner"), Limits(deadline_s=0.05)
            agent = Agent(
                Script(function_call("inner", task="x")), functions=[inner], limits=limits, environment=at_once
            )

        def drive() -> None:
            with suppress(CallFailed):
                agent.call("Go.")

        with ended_before(drive, wait.free):
            pass

    @pytest.mark.parametrize("kind", ["plain", "waiting"])
    def test_inside_of_a_function_that_is_left_behind_it_ends(self, kind: str):
        wait, ended = Wait(), threading.Event()
        work = Function(name="work", call=wait.wait if kind == "plain" else wait.await_, is_async=kind != "plain")
        inside = Agent(Script(function_call("work"), "never"), functions=[work], name="inside")

        def outer() -> str:
            """Ask another agent."""
            try:
                return str(inside.call("Go.").output)
            finally:
                ended.set()

        off = seeded(outer)
        with ended_before(lambda: run(off, environment(Script(function_call("outer")))), wait.free):
            assert wait.begun.wait(20)
            off.cancel("no longer needed")
            assert ended.wait(20)
        assert off.record.ending.reason is Reason.CANCELLED

    def test_a_call_that_is_made_and_driven_at_once_is_its_callers_alone(self):
        agent, ran_in = self.agent()
        agent.call("Go.")
        flow, ran_in_flow = self.flow()
        flow.call(1)
        assert ran_in + ran_in_flow == [threading.get_ident()] * 2

    @pytest.mark.parametrize(
        "drive",
        [
            lambda agent, flow: agent.run(agent.prepare("Go.")),
            lambda agent, flow: list(agent.stream("Go.")),
            lambda agent, flow: asyncio.run(agent.acall("Go.")),
            lambda agent, flow: agent.changed(limits=Limits(deadline_s=LONG_S)).call("Go."),
            lambda agent, flow: agent.changed(name="kept", store=MemoryStore()).call("Go."),
            lambda agent, flow: flow.run(flow.prepare(1)),
            lambda agent, flow: list(flow.stream(1)),
            lambda agent, flow: replace(flow, store=MemoryStore()).call(1),
        ],
        ids=["run", "stream", "acall", "deadline", "store", "flow run", "flow stream", "flow store"],
    )
    def test_wherever_something_may_end_it_it_has_a_thread(self, drive: Callable[..., Any]):
        (agent, ran_in), (flow, ran_in_flow) = self.agent(), self.flow()
        drive(agent, flow)
        (ident,) = ran_in + ran_in_flow
        assert ident != threading.get_ident()

    def agent(self) -> tuple[Agent, list[int]]:
        ran_in = list[int]()
        work = Function(name="work", call=partial(self.note_thread, ran_in))
        return Agent(Script(function_call("work"), "fine"), functions=[work]), ran_in

    def flow(self) -> tuple[Flow[int], list[int]]:
        ran_in = list[int]()

        @execute
        def work(n: int) -> str:
            return self.note_thread(ran_in)

        return Flow("f", int, start=work, rows=[work.done(end("over"))]), ran_in

    @staticmethod
    def note_thread(ran_in: list[int]) -> str:
        ran_in.append(threading.get_ident())
        return "fine"


@anyhow
def test_a_second_driver_is_refused(driven: Driver):
    wait = Wait()
    one, script, _ = a_request(wait)
    first = threading.Thread(target=by_run_unheard, args=(one, script), daemon=True)
    first.start()
    try:
        assert wait.begun.wait(20)
        with pytest.raises(UsageError, match="call-1"):
            driven(one, script)
    finally:
        wait.free.set()
        first.join(20)
    assert one.result().output == "Too late."
    assert len(script.requests) == 1


def test_a_driver_that_was_forgotten_holds_nothing():
    one = seeded()
    events = drive(one, environment(Script("fine")))
    next(events)
    del events
    assert run(one, environment(Script("fine"))).result().output == "fine"


@anyhow
def test_a_call_that_was_called_off_is_ended_by_its_driver_before_it_asks(driven: Driver):
    script, off = Script("never"), seeded()
    off.cancel("too late")
    driven(off, script)
    assert (off.record.ending.reason, off.record.ending.detail) == (Reason.CANCELLED, "too late")
    assert script.requests == []


@anyhow
def test_the_latest_request_to_end_it_counts(driven: Driver):
    one = seeded()
    one.stop("enough")
    one.cancel("at once")
    driven(one, Script("never"))
    assert (one.record.ending.reason, one.end_request) == (Reason.CANCELLED, None)


@pytest.mark.parametrize("many", [1, 2])
def test_coroutines_are_cancelled_with_it_from_another_thread(many: int):
    ended: list[int] = []

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
        asked = environment(Script([function_call("wait", n=n) for n in range(many)], "never"))

        driver = asyncio.create_task(arun(waiting, asked))
        for _ in range(many):
            await begun.acquire()
        await asyncio.to_thread(waiting.cancel, "enough")
        await asyncio.wait_for(driver, 20)
        assert not driver.cancelled()
        assert not driver.cancelling()
        return waiting

    off = asyncio.run(main())
    assert off.record.ending.reason is Reason.CANCELLED
    assert sorted(ended) == list(range(many))


def test_what_comes_too_late_to_wake_the_driver_does_nothing_to_its_task():
    class Hasty(Script):
        async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
            hurried.cancel("never mind")
            return await super().acomplete(request, timeout_s=timeout_s)

    async def main() -> None:
        problems: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        await arun(hurried, environment(Hasty(function_call("work"), "never")))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not asyncio.current_task().cancelling()
        assert problems == []

    hurried = seeded(Function(name="work", call=lambda: "never"))
    asyncio.run(main())
    assert hurried.record.ending.reason is Reason.CANCELLED


def test_a_call_that_is_ended_while_the_model_is_asked_stays_ended():
    class Ending(Script):
        async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
            ended.advance("", Cancelled(reason="by hand"))
            return await super().acomplete(request, timeout_s=timeout_s)

    ended = seeded()
    asyncio.run(arun(ended, environment(Ending("too late"))))
    assert (ended.record.ending.reason, ended.record.ending.detail) == (Reason.CANCELLED, "by hand")


async def stubborn(began: asyncio.Event) -> str:
    began.set()
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return "too late"


@pytest.mark.parametrize("count", [1, 2])
def test_a_cancelled_task_ends_even_if_its_functions_swallow_that(count: int):
    async def main() -> None:
        began = asyncio.Event()

        async def work(n: int) -> str:
            """Work."""
            return await stubborn(began)

        script = Script([function_call("work", n=n) for n in range(count)])
        task = asyncio.create_task(arun(seeded(work), environment(script)))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_function_that_swallows_the_end_of_its_call_cancels_no_task():
    async def main() -> AgentCall:
        began = asyncio.Event()

        async def work() -> str:
            """Work."""
            return await stubborn(began)

        one = seeded(work)
        task = asyncio.create_task(arun(one, environment(Script(function_call("work")))))
        await began.wait()
        await asyncio.to_thread(one.cancel, "enough")
        await task
        assert not task.cancelling()
        return one

    assert asyncio.run(main()).record.ending.reason is Reason.CANCELLED


def test_a_task_ends_even_if_its_function_swallows_the_end_of_its_call_and_the_task():
    async def main() -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async def work() -> str:
            """Work."""
            await stubborn(began)
            return await stubborn(ended)

        one = seeded(work)
        task = asyncio.create_task(arun(one, environment(Script(function_call("work")))))
        await began.wait()
        one.cancel("enough")
        await ended.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 3])
def test_a_cancelled_task_ends_its_children_and_leaves_a_call_that_another_driver_finishes(count: int):
    ended: list[int] = []

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
                await asyncio.Event().wait()
            finally:
                ended.append(n)
            return "never"

        script = Script([function_call("work", n=n) for n in range(count)], "done")
        one = seeded(work)
        task = asyncio.create_task(arun(one, environment(script)))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(ended) == len(one.effects) == count
        assert (one.state, one.record.ending, one.driver) == (State.TOOL_INTERRUPT, None, None)
        return await arun(one, environment(script))

    assert [f.result for f in asyncio.run(main()).record.function_calls] == ["fine"] * count


@anyhow
def test_a_function_can_end_the_call_that_it_is_part_of(driven: Driver):
    @function(blocking=False)
    def leave(well: bool) -> str:
        """Leave."""
        (one.stop if well else one.cancel)("the function said so")
        return "left"

    one = seeded(leave)
    driven(one, Script(["Here it is.", function_call("leave", well=True)], "never"))
    result = one.result()
    assert (result.ending.reason, result.ending.detail, result.text) == (
        Reason.STOPPED,
        "the function said so",
        "Here it is.",
    )
    one = seeded(leave)
    driven(one, Script(function_call("leave", well=False), "never"))
    assert one.record.ending.reason is Reason.CANCELLED
    assert one.record.function_calls[0].result in ("left", None)


@anyhow
def test_an_agent_call_inside_of_a_function_ends_with_it(driven: Driver):
    wait, ended = Wait(), threading.Event()
    inner, script, _ = a_request(wait)

    def ask() -> str:
        """Ask another model."""
        try:
            return str(run(inner, environment(script)).result().output)
        finally:
            ended.set()

    outer = seeded(Function.of(ask, timeout_s=LONG_S))
    with ended_before(lambda: driven(outer, Script(function_call("ask"), "never")), wait.free):
        assert wait.begun.wait(20)
        outer.cancel("enough")
        assert ended.wait(20)
        assert inner.record.ending.reason is Reason.CANCELLED


def test_a_call_that_rests_when_its_function_is_left_behind_goes_on_later():
    """Only a driver that is at work inside of the function is ended."""
    wait = Wait()
    inner = seeded(Function(name="erase", call=lambda: "erased", needs_approval=True))

    def ask() -> str:
        """Ask another model, and then wait."""
        run(inner, environment(Script(function_call("erase"))))
        return wait.wait()

    outer = seeded(ask)
    with ended_before(lambda: by_run_unheard(outer, Script(function_call("ask"))), wait.free):
        assert wait.begun.wait(20)
        outer.cancel("enough")
    assert outer.record.ending.reason is Reason.CANCELLED
    assert (inner.state, inner.end_request) == (State.TOOL_INTERRUPT, None)


HANGS = """if True:
    import threading
    from fsm_agent import Agent, CallFailed, Limits, function
    from fsm_agent.runtime import SystemClock
    from fsm_agent.testing import Script, function_call

    @function
    def hang() -> str:
        "Hang."
        threading.Event().wait()

    limits, environment = Limits(deadline_s=0.1), {"clock": SystemClock()}
    agent = Agent(Script(function_call("hang")), functions=[hang], limits=limits, environment=environment)
    try:
        agent.call("Go.")
    except CallFailed:
        print("over")
"""
FORKS = """if True:
    import os
    from fsm_agent import Agent
    from fsm_agent.functions import Function
    from fsm_agent.testing import Script, function_call

    def asked() -> str:
        work = Function(name="work", call=lambda: "worked", timeout_s=60)
        asked = [function_call("work"), function_call("work")]
        return Agent(Script(asked, "fine"), functions=[work]).call("Go.").output

    asked()
    if not (child := os.fork()):
        os._exit(42 if asked() == "fine" else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def printed(code: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.system
@pytest.mark.parametrize(
    ("code", "said"), [(HANGS, "over\n"), (FORKS, "42\n")], ids=["hanging threads", "threads of a parent"]
)
def test_threads_that_are_left_behind_do_not_hold_up_a_process(code: str, said: str):
    assert printed(code) == said


LATE = """if True:
    import threading
    from fsm_agent import Agent
    from fsm_agent.testing import Script, function_call

    async def work() -> str:
        "Work."
        return "worked"

    def late():
        threading.main_thread().join()
        print(Agent(Script(function_call("work"), "fine"), functions=[work]).call("Go.").output)

    threading.Thread(target=late).start()
"""


@pytest.mark.system
def test_a_call_may_begin_when_the_main_thread_has_ended():
    assert printed(LATE) == "fine\n"

"""Can a call be called off from outside while it waits?"""

from __future__ import annotations

import asyncio
import threading

import pytest
from driving import anyhow, world
from walking import assert_sendable

from fsm_agent.agents import Agent
from fsm_agent.call import AgentCall
from fsm_agent.dialogs import Dialog
from fsm_agent.drivers import adrive, arun, run
from fsm_agent.functions import function
from fsm_agent.outcomes import Cancelled
from fsm_agent.prompts import Prompt
from fsm_agent.record import Reason, State
from fsm_agent.testing import Script, call


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
    assert (resting.state, resting.record.ending, resting.wake) == (State.TOOL_INTERRUPT, None, None)


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

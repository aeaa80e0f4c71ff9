"""Does a request that failed become the right outcome, and is the right time waited for?"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import httpx
import pytest
import tenacity
from support.agent_calls import PROMPT
from support.drivers import Driver, anyhow, by_arun, by_run, everywhere, seed
from support.views import View

from fsm_agent.call import AgentCall, Limits, Reason, Request, State
from fsm_agent.context import Budget, ContextPlan, summarize
from fsm_agent.errors import Overloaded, ProviderError, RateLimited, TimedOut, UsageError
from fsm_agent.messages import Message, Reply, RequestStarted, Summarized, TextDelta, Usage
from fsm_agent.prompts import Dialog, Prompt
from fsm_agent.runtime import SystemClock
from fsm_agent.testing import FakeClock, Script, function_call

LIMITED, BUSY, LATE, CUT = (
    RateLimited("slow"),
    Overloaded("busy"),
    TimedOut("late"),
    ProviderError("cut", retryable=True),
)


def waits(*errors: Exception, driven: Driver = by_run, chance: float = 1.0, **environment: object) -> list[float]:
    """Return how long the waits after these failures were, one after another."""
    clock = FakeClock()
    one = seed(Prompt("x"), limits=Limits(recalls=len(errors), wait_s=None))
    driven(
        one,
        Script(*errors, "fine", clock=clock),
        clock=clock,
        **{"backoff": None, "random": lambda: chance, **environment},
    )
    assert one.result().output == "fine"
    return clock.sleeps


@pytest.mark.parametrize("chance", [1.0, 0.5, 0.0])
def test_by_default_waits_are_a_part_of_the_longest(chance: float):
    for error in (LIMITED, BUSY, LATE, CUT):
        assert waits(*[error] * 8, chance=chance) == [s * chance for s in (1, 2, 4, 8, 16, 32, 60, 60)]


def test_very_many_failures_are_waited_for_as_long():
    assert waits(*[LIMITED] * 1100)[-1] == 60


@anyhow
def test_failures_of_any_kind_are_counted_together(driven: Driver):
    found = waits(LIMITED, BUSY, LATE, CUT, LIMITED, driven=driven, chance=0.5)
    assert found == [0.5, 1, 2, 4, 8]


@pytest.mark.parametrize("kind", [RateLimited, Overloaded, TimedOut])
def test_what_the_server_says_goes_before_the_default_and_without_jitter(kind: type[ProviderError]):
    assert waits(*[kind("slow", retry_after_s=s) for s in (90.0, 0.0, 7.5)], chance=0.5) == [90, 0, 7.5]


def test_by_default_two_waits_differ():
    clock = FakeClock()
    for _ in range(9):
        one = seed(Prompt("x"), limits=Limits(recalls=1))
        by_run(one, Script(BUSY, "fine", clock=clock), clock=clock, backoff=None, random=random.random)
    assert len(set(clock.sleeps)) > 1


def test_a_wait_of_ones_own_sees_the_failure():
    def wait(state: tenacity.RetryCallState) -> float:
        return 5.0 if isinstance(state.outcome.exception(), TimedOut) else float(state.attempt_number)

    assert waits(BUSY, LATE, BUSY, backoff=wait) == [1, 5, 3]


@pytest.mark.system
@pytest.mark.parametrize("sleep", [SystemClock.sleep, lambda clock, s: asyncio.run(clock.asleep(s))])
def test_the_clock_of_the_system_waits_as_long_as_it_is_told_to(sleep: Callable[[SystemClock, float], None]):
    clock, began = SystemClock(), time.monotonic()
    sleep(clock, 0.05)
    assert time.monotonic() - began >= 0.049
    assert clock.now() == pytest.approx(time.time(), abs=30)


class Raising(Script):
    """A client whose requests fail before the third is answered."""

    def __init__(self, error: Exception, failures: int = 2) -> None:
        super().__init__()
        self.left = [error] * failures

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        if self.left:
            raise self.left.pop()
        return Reply.of("42")

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[TextDelta | Reply]:
        yield TextDelta("4")
        yield await self.acomplete(request)


@pytest.mark.parametrize(
    ("error", "kind", "names"),
    [
        (ConnectionResetError("peer"), "ProviderError", "ConnectionResetError: peer"),
        (OSError(), "ProviderError", "OSError"),
        (TimeoutError("30 s"), "TimedOut", "TimeoutError: 30 s"),
        (httpx.ConnectError("no route"), "ProviderError", "ConnectError: no route"),
        (httpx.ReadTimeout("late"), "TimedOut", "ReadTimeout: late"),
        (OSError(f"no sk-{'a' * 40}"), "ProviderError", "OSError: no sk-a***"),
        (OSError("x" * 999), "ProviderError", f"OSError: {'x' * 200}"),
        (Overloaded("busy"), "Overloaded", "busy"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_failure_of_the_transport_is_one_whatever_raises_it(error: Exception, kind: str, names: str):
    one = seed()
    by_arun(one, Raising(error))
    assert one.result().output == 42
    assert [step.to for step in one.record.trace if step.to != "Calling"] == ["Backoff", "Backoff", "Completed"]
    over = seed(limits=Limits(recalls=0))
    by_arun(over, Raising(error))
    report = over.record.ending.error
    assert (report.kind, report.retryable) == (kind, True)
    assert report.message.endswith(names)


def test_a_stream_that_breaks_behind_the_reply_has_answered():
    class BreaksLate(Raising):
        async def astream(
            self, request: Request, *, timeout_s: float | None = None
        ) -> AsyncGenerator[TextDelta | Reply]:
            async for item in super().astream(request):
                yield item
            raise ConnectionResetError("peer")

    one = seed()
    by_arun(one, BreaksLate(OSError(), failures=0))
    assert (one.result().output, one.result().failures) == (42, ())


@everywhere
@pytest.mark.parametrize(
    ("reply", "wrong"),
    [
        ("fine", "a Reply"),
        (None, "a Reply"),
        (Reply(message=Message.of("user", "fine")), "the role 'assistant'"),
        (Reply.of("fine").changed(usage=Usage(input_tokens=-(10**9), output_tokens=5)), "input_tokens"),
        (Reply.of("fine").changed(usage=Usage(output_tokens=-1)), "output_tokens"),
        (Reply.of("fine").changed(usage=Usage(cost_pico_usd=-1)), "cost_pico_usd"),
        (Reply.of("fine").changed(usage=Usage(input_tokens=cast("Any", 1.5))), "input_tokens"),
        (Reply.of("fine").changed(usage=Usage(output_tokens=cast("Any", True))), "output_tokens"),
        (Reply.of("fine").changed(usage=Usage(input_tokens=2**63)), "input_tokens"),
    ],
    ids=repr,
)
def test_what_is_no_reply_is_the_mistake_of_its_client(driven: Driver, reply: Any, wrong: str):
    class Odd(Script):
        async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Any:
            return reply

        async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
            yield TextDelta("so so") if reply is None else reply

    one = seed()
    with pytest.raises(UsageError, match=f"'mine'(?s:.*){wrong}"):
        driven(one, Odd(name="mine"))
    assert (one.state, one.record.usage) == (State.CALLING, Usage()), "no budget is reckoned with it"


@anyhow
def test_a_summary_is_told_where_it_was_made(driven: Driver):
    def summed_up(summary: str) -> list[Any]:
        view = View(ContextPlan((summarize(keep=1, step=1),), Budget()))
        one = AgentCall.seed(Dialog().put("17 + 25?"), PROMPT, view=view)
        heard = driven(one, Script(function_call("tick"), function_call("tick"), summary, "42"))
        assert one.result().output == 42
        return heard

    heard = summed_up("They count.")
    told = [event for event in heard if type(event) in (Summarized, RequestStarted)]
    assert [type(event) for event in told] == [RequestStarted, RequestStarted, Summarized, RequestStarted]
    assert told[2].before > told[2].after > 0
    assert not [event for event in summed_up(" ") if type(event) is Summarized], "an empty one is not used"


def test_a_long_stream_of_a_client_is_read_by_plain_code():
    """It waits for its reader, and is closed with it."""
    closed, given = threading.Event(), list[int]()

    class Long(Raising):
        async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
            try:
                for n in range(999):
                    given.append(n)
                    yield TextDelta(str(n))
                yield Reply.of("end")
            finally:
                closed.set()

    items = Long(OSError()).stream(Request(messages=()))
    assert [next(items).text for _ in range(3)] == ["0", "1", "2"]
    items.close()
    assert closed.wait(20)
    assert len(given) < 999
    *heard, end = Long(OSError()).stream(Request(messages=()))
    assert (heard, end) == ([TextDelta(str(n)) for n in range(999)], Reply.of("end"))


@anyhow
@pytest.mark.parametrize("error", [ValueError("x"), httpx.InvalidURL("x"), StopAsyncIteration()], ids=repr)
def test_a_bug_of_a_client_goes_through_and_leaves_the_call_at_rest(driven: Driver, error: Exception):
    one = seed()
    with pytest.raises((type(error), RuntimeError)):  # the latter: no coroutine lets a StopIteration through
        driven(one, Raising(error, failures=1))
    assert (one.state, one.record.turn) == (State.CALLING, 0)
    by_arun(one, Raising(error, failures=0))
    assert one.result().output == 42


def test_a_failure_of_the_transport_behind_the_deadline_is_the_deadlines():
    clock = FakeClock()

    class Slow(Raising):
        async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
            clock.advance(9)
            return await super().acomplete(request)

    one = seed(limits=Limits(deadline_s=5.0))
    by_arun(one, Slow(TimeoutError()), clock=clock)
    assert one.record.ending.reason is Reason.EXPIRED

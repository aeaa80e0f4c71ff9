"""Does an effect become the right outcome?"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator

import httpx
import pytest
from support.agent_calls import add, seeded
from support.drivers import Driver, anyhow, seed

from fsm_agent.errors import Overloaded, ProviderError, RateLimited, TimedOut
from fsm_agent.functions import Function
from fsm_agent.lifecycle import CallModel, Limits, Reason, Request, RunFunction, State
from fsm_agent.messages import FunctionCall, Message, Reply, TextDelta
from fsm_agent.prompts import Prompt
from fsm_agent.runtime import SystemClock, World
from fsm_agent.runtime.call_activities import begin
from fsm_agent.runtime.model_request import model_failed
from fsm_agent.runtime.run_function import FunctionExecution, run_function
from fsm_agent.runtime.thread_task import ThreadTask
from fsm_agent.testing import FakeClock, Script


def failed(error, attempt=1, world=None):
    effect = CallModel("model:0", Request(messages=[Message.of("user", "?")]), attempt)
    return model_failed(effect, error, world or World.of(Script()))


@pytest.mark.spec("2.38: what the server says goes first", "3.10: what the server says is waited for")
def test_the_provider_says_how_long_to_wait():
    outcome = failed(RateLimited("slow down", status=429, retry_after_s=7.5))
    assert (outcome.delay_s, outcome.error.kind, outcome.error.status) == (7.5, "RateLimited", 429)


def test_the_wait_of_a_script_has_no_jitter():
    assert [failed(Overloaded("busy"), n).delay_s for n in (1, 2, 3, 4, 20)] == [1, 2, 4, 8, 60]


LIMITED, BUSY, LATE, CUT = (
    RateLimited("slow"),
    Overloaded("busy"),
    TimedOut("late"),
    ProviderError("cut", retryable=True),
)


@pytest.mark.spec(
    "2.38: waits grow exponentially to a cap",
    "2.38: waits have jitter",
    "3.10: exponential backoff",
    "4.19: waits grow and are bounded",
)
@pytest.mark.parametrize("chance", [1.0, 0.5])
@pytest.mark.parametrize(
    ("error", "longest_s"),
    [
        (LIMITED, {1: 1, 2: 2, 3: 4, 4: 8, 6: 32, 7: 60, 20: 60, 5000: 60}),
        *[(error, {1: 1, 2: 2, 3: 3, 4: 4, 30: 30, 31: 30, 5000: 30}) for error in (BUSY, LATE, CUT)],
    ],
    ids=lambda value: getattr(value, "message", ""),
)
def test_by_default_waits_are_a_part_of_the_longest(error, longest_s, chance):
    world = World(client=Script(), random=lambda: chance)
    assert {n: failed(error, n, world).delay_s for n in longest_s} == {n: s * chance for n, s in longest_s.items()}


@pytest.mark.spec("3.10: exponential backoff")
@anyhow
def test_an_agent_waits_so_by_default(driven: Driver):
    clock = FakeClock()
    model = Script(LIMITED, LIMITED, LIMITED, BUSY, BUSY, "fine", clock=clock)
    one = seed(Prompt("x"), limits=Limits(recalls=5))
    driven(one, model, clock=clock, backoff=None, random=lambda: 0.5)
    assert clock.sleeps == pytest.approx([0.5, 1, 2, 2, 2.5])


@pytest.mark.spec("2.38: what the server says goes first")
@pytest.mark.parametrize("kind", [RateLimited])
def test_what_the_server_says_goes_before_the_default_and_without_jitter(kind):
    world = World(client=Script(), random=lambda: 0.5)
    assert [failed(kind("slow", retry_after_s=90.0), n, world).delay_s for n in (1, 9)] == [90, 90]
    assert failed(kind("slow", retry_after_s=0.0), 9, world).delay_s == 0


@pytest.mark.spec("2.38: waits have jitter")
def test_by_default_two_waits_differ():
    world = World(client=Script())
    assert len({failed(BUSY, 3, world).delay_s for _ in range(50)}) > 1


def test_a_wait_of_ones_own_sees_the_failure():
    def wait(state):
        return 5.0 if isinstance(state.outcome.exception(), TimedOut) else float(state.attempt_number)

    world = World(client=Script(), backoff=wait)
    assert [failed(error, 2, world).delay_s for error in (LATE, BUSY)] == [5, 2]


def test_a_start_has_a_time_and_an_id_of_its_own():
    world = World(client=Script())
    one, other = begin(world), begin(world)
    assert one.id != other.id
    assert re.fullmatch(r"[0-9a-f]{16}", one.id)
    assert abs(one.at_s - SystemClock().now()) < 60


@pytest.mark.spec(
    "3.17: an exception is told to the model and the loop goes on",
    "4.5: errors are told and the loop goes on",
)
@pytest.mark.parametrize(
    ("raised", "text"),
    [(ValueError("bad"), "ValueError: bad"), (KeyError("k"), "KeyError: 'k'")],
)
def test_what_is_raised_is_told_by_type_and_text(raised, text):
    def broken() -> None:
        """Break."""
        raise raised

    effect = RunFunction("run:1.0", FunctionCall(name="broken", arguments_json="{}"), Function.of(broken))
    outcome = run_function(FunctionExecution(effect, seeded(), World.of(Script())))
    assert (outcome.text, outcome.is_error) == (text, True)


@pytest.mark.spec(
    "3.17: by default the result as text or JSON",
    "4.18: steps, passes and functions are tested alone",
)
def test_results_are_told_as_json_unless_they_are_text():
    effect = RunFunction("run:1.0", FunctionCall(name="add", arguments_json='{"a": 17, "b": 25}'), add)
    assert run_function(FunctionExecution(effect, seeded(), World.of(Script()))).text == "42"


class TestSystemClock:
    @pytest.mark.system
    @pytest.mark.parametrize("sleep", [SystemClock.sleep, lambda clock, s: asyncio.run(clock.asleep(s))])
    def test_it_waits_as_long_as_it_is_told_to(self, sleep: Callable[[SystemClock, float], None]):
        clock = SystemClock()
        began, at_s, began_late = time.monotonic(), clock.now(), time.monotonic()
        sleep(clock, 0.05)
        ended, took_s, ended_late = time.monotonic(), clock.now() - at_s, time.monotonic()
        assert 0.049 <= ended - began < 5
        assert ended - began_late - 0.02 < took_s < ended_late - began + 0.02
        assert clock.now() == pytest.approx(time.time(), abs=1)

    @pytest.mark.system
    def test_a_sleep_ends_when_its_thread_is_left_behind(self):
        task = ThreadTask[None](lambda _: SystemClock().sleep(30))
        task.start().cancel()
        began = time.monotonic()
        task.join(10)
        assert time.monotonic() - began < 5


class Raising:
    """A client of the user's own, whose requests fail before the third is answered."""

    name = "raising"

    def __init__(self, error: Exception, failures: int = 2) -> None:
        self.left = [error] * failures

    def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        if self.left:
            raise self.left.pop()
        return Reply.of("42")

    def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[TextDelta | Reply]:
        yield TextDelta("4")
        yield self.complete(request)

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        return self.complete(request)

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[TextDelta | Reply]:
        for item in self.stream(request):
            yield item

    world_defaults = Script().world_defaults


@pytest.mark.spec(
    "2.32: transient failures are tried again",
    "3.10: without recalls it fails at once",
    "3.10: a failure is a structured report",
    "4.40: transport failures of one's own client back off",
)
@pytest.mark.parametrize(
    ("error", "report"),
    [
        (ConnectionResetError("peer"), ("ProviderError", "the client failed: ConnectionResetError: peer")),
        (OSError(), ("ProviderError", "the client failed: OSError")),
        (TimeoutError("30 s"), ("TimedOut", "the client failed: TimeoutError: 30 s")),
        (TimeoutError(), ("TimedOut", "the client failed: TimeoutError")),
        (httpx.ConnectError("no route"), ("ProviderError", "the client failed: ConnectError: no route")),
        (httpx.ReadTimeout("late"), ("TimedOut", "the client failed: ReadTimeout: late")),
        (OSError(f"no sk-{'a' * 40}"), ("ProviderError", "the client failed: OSError: no sk-a***")),
        (OSError("x" * 999), ("ProviderError", f"the client failed: OSError: {'x' * 200}")),
        (Overloaded("busy"), ("Overloaded", "busy")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@anyhow
def test_a_failure_of_the_transport_is_one_whatever_raises_it(
    driven: Driver, error: Exception, report: tuple[str, str]
):
    one = seed()
    driven(one, Raising(error))
    assert one.result().output == 42
    assert [step.to for step in one.record.trace if step.to != "Calling"] == ["Backoff", "Backoff", "Completed"]
    over = seed(limits=Limits(recalls=0))
    driven(over, Raising(error))
    assert (over.record.ending.error.kind, over.record.ending.error.message) == report
    assert over.record.ending.error.retryable


@anyhow
def test_a_stream_that_breaks_behind_the_reply_has_answered(driven: Driver):
    class BreaksLate(Raising):
        def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[TextDelta | Reply]:
            yield from super().stream(request)
            raise ConnectionResetError("peer")

    one = seed()
    driven(one, BreaksLate(OSError(), failures=0))
    assert (one.result().output, one.result().failures) == (42, ())


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x")])
@anyhow
def test_a_bug_of_a_client_goes_through_and_leaves_the_call_at_rest(driven: Driver, error: Exception):
    one = seed()
    with pytest.raises((type(error), RuntimeError)):  # the latter: no coroutine lets a StopIteration through
        driven(one, Raising(error, failures=1))
    assert one.state is State.CALLING
    driven(one, Raising(error, failures=0))
    assert one.result().output == 42


@anyhow
def test_a_failure_of_the_transport_behind_the_deadline_is_the_deadlines(driven: Driver):
    clock = FakeClock()

    class Slow(Raising):
        def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
            clock.advance(9)
            return super().complete(request)

    one = seed(limits=Limits(deadline_s=5.0))
    driven(one, Slow(TimeoutError()), clock=clock)
    assert one.record.ending.reason is Reason.EXPIRED


@pytest.mark.system
def test_httpx_is_not_loaded_to_find_out():
    code = """
import sys
from fsm_agent.runtime.model_request import transport_failure
assert transport_failure(ConnectionError()) is not None and transport_failure(ValueError()) is None
assert "httpx" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("retry_after_s", [0.0, 0.5])
def test_a_provider_that_says_at_once_is_asked_at_once(retry_after_s):
    assert failed(Overloaded("busy", retry_after_s=retry_after_s), 5).delay_s == retry_after_s

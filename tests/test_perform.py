"""Does an effect become the right outcome?"""

from __future__ import annotations

import asyncio
import re

import pytest
from walking import add, seeded

from fsm_agent.effects import CallModel, Request, RunFunction
from fsm_agent.errors import Overloaded, RateLimited
from fsm_agent.functions import Function
from fsm_agent.messages import FunctionCall, Message
from fsm_agent.perform import SystemClock, World, begin, model_failed
from fsm_agent.running import Run, run_function
from fsm_agent.testing import Script


def failed(error, attempt=1, world=None):
    effect = CallModel("model:0", Request(messages=[Message.of("user", "?")]), attempt)
    return model_failed(effect, error, world or World.of(Script()))


@pytest.mark.spec("2.38: what the server says goes first", "3.10: what the server says is waited for")
def test_the_provider_says_how_long_to_wait():
    outcome = failed(RateLimited("slow down", status=429, retry_after_s=7.5))
    assert (outcome.delay_s, outcome.error.kind, outcome.error.status) == (7.5, "RateLimited", 429)


@pytest.mark.spec(
    "2.38: waits grow exponentially to a cap",
    "3.10: exponential backoff",
    "4.19: waits grow and are bounded",
)
def test_otherwise_the_wait_grows_with_the_attempts_and_is_bounded():
    assert [failed(Overloaded("busy"), n).delay_s for n in (1, 2, 3, 4, 20)] == [1, 2, 4, 8, 60]


@pytest.mark.spec("2.38: waits grow exponentially to a cap", "2.38: waits have jitter")
def test_by_default_the_wait_has_jitter_and_stays_within_its_bounds():
    world = World(client=Script())
    delays = {failed(Overloaded("busy"), 3, world).delay_s for _ in range(50)}
    assert len(delays) > 1
    assert all(2.0 <= delay_s <= 2.5 for delay_s in delays)
    assert failed(Overloaded("busy"), 50, world).delay_s <= 30.5


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
    [(ValueError("bad"), "ValueError: bad"), (KeyError("k"), "KeyError: 'k'"), (OSError(), "OSError")],
)
def test_what_is_raised_is_told_by_type_and_text(raised, text):
    def broken() -> None:
        """Break."""
        raise raised

    effect = RunFunction("run:1.0", FunctionCall(name="broken", arguments_json="{}"), Function.of(broken))
    outcome = run_function(Run(effect, seeded(), World.of(Script())))
    assert (outcome.text, outcome.is_error) == (text, True)


@pytest.mark.spec(
    "3.17: by default the result as text or JSON",
    "4.18: steps, processors and functions are tested alone",
)
def test_results_are_told_as_json_unless_they_are_text():
    effect = RunFunction("run:1.0", FunctionCall(name="add", arguments_json='{"a": 17, "b": 25}'), add)
    assert run_function(Run(effect, seeded(), World.of(Script()))).text == "42"


def test_the_systems_clock_waits():
    clock = SystemClock()
    clock.sleep(0)
    asyncio.run(clock.asleep(0))

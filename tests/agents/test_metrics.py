"""Are the numbers right under every driver, and do they add up?"""

from __future__ import annotations

import asyncio
import json
import math
import pickle
from threading import Event, Thread

import pytest
from support.agent_calls import erase, parse

from fsm_agent import Agent, Approved, CallFailed, CallSuspended, Context, Limits, Prompt, UsageError, function
from fsm_agent.agents import Metrics
from fsm_agent.call import Price
from fsm_agent.errors import Overloaded
from fsm_agent.messages import Done, Message, Reply, ReplyCompleted, Stepped, Usage
from fsm_agent.testing import Delayed, FakeClock, Script, function_call

PRICES = {
    "large": Price(input_micro_usd=3_000_000, output_micro_usd=15_000_000, cached_micro_usd=300_000),
    "*": Price(input_micro_usd=1, output_micro_usd=1),
}


def said(*content, model="large", **tokens) -> Reply:
    return Reply(message=Message.of("assistant", *content), model=model, usage=Usage(**tokens))


def worker(metrics: Metrics, **options) -> Agent:
    """An agent whose clock moves only where the script and the function say so."""
    clock = FakeClock()

    @function
    def work(context: Context, n: int) -> str:
        """Work for this number of seconds."""
        clock.advance(n)
        if n > 5:
            raise LookupError("too much")
        return "done"

    script = Script(
        Delayed(2, said(function_call("work", n=3), input_tokens=100, cached_tokens=40, output_tokens=7)),
        Delayed(1, Overloaded("busy", retry_after_s=8)),
        Delayed(4, said("forty", input_tokens=200, output_tokens=1)),
        Delayed(1, said(function_call("work", n=6), input_tokens=10, output_tokens=1, model="small")),
        Delayed(5, said("42", input_tokens=300, output_tokens=2)),
        clock=clock,
    )
    return Agent(script, functions=[work], hooks=[metrics], **options)


TASK = Prompt("Number?", parser=parse)
EXPECTED = {
    "calls": 1,
    "endings": {"answered": 1},
    "steps": {
        "begun": 1,
        "functions_asked": 2,
        "returned": 2,
        "model_failed": 1,
        "slept": 1,
        "parse_failed": 1,
        "answered": 1,
    },
    "requests": 5,
    "replies": 4,
    "usage": {
        "input_tokens": 610,
        "output_tokens": 11,
        "cached_tokens": 40,
        "cache_write_tokens": None,
        "reasoning_tokens": None,
    },
    # 60 + 200 + 300 read at $3 a million, 40 cached at $0.30, 10 written at $15; 11 tokens at next to nothing
    "cost_micro_usd": 560 * 3 + 12 + 10 * 15,
    "unpriced_tokens": 0,
    "functions": {"work": {"runs": 2, "failures": 1, "duration_s": 9.0}},
    "states": {"Calling": 12.0, "ToolInterrupt": 9.0, "Backoff": 8.0, "ParseException": 1.0},
}


def by_call(agent: Agent) -> None:
    agent.call(TASK)


def by_astream(agent: Agent) -> None:
    async def main() -> None:
        async for _ in agent.astream(TASK):
            pass

    asyncio.run(main())


@pytest.mark.parametrize("driven", [by_call, by_astream])
def test_the_numbers_of_a_call(driven):
    metrics = Metrics(PRICES)
    driven(worker(metrics))
    assert metrics.to_dict() == EXPECTED
    assert json.loads(json.dumps(metrics.to_dict())) == EXPECTED


def test_of_one_call_alone():
    of_agent, of_call = Metrics(PRICES), Metrics(PRICES)
    agent = worker(of_agent)
    agent.run(agent.prepare(TASK), of_call.on_event)
    assert of_call == of_agent
    assert of_call.calls == 1


def test_they_add_up():
    one, other, both = Metrics(PRICES), Metrics(PRICES), Metrics(PRICES)
    by_call(worker(one))
    with pytest.raises(CallFailed):
        worker(other, limits=Limits(recalls=0)).call(TASK)
    by_call(worker(both))
    with pytest.raises(CallFailed):
        worker(both, limits=Limits(recalls=0)).call(TASK)
    assert one + other == other + one == both == sum([one, other], Metrics())
    assert (both.calls, both.endings) == (2, {"answered": 1, "model failed": 1})
    assert both.to_dict()["functions"] == {"work": {"runs": 3, "failures": 1, "duration_s": 12.0}}
    assert one.to_dict() == EXPECTED, "both are left as they were"
    assert (one + other).prices == PRICES
    assert pickle.loads(pickle.dumps(both)) == both
    with pytest.raises(TypeError):
        _ = one + 1


def test_what_has_no_price_is_not_in_the_cost():
    metrics = Metrics({"large": PRICES["large"]})
    by_call(worker(metrics))
    assert (metrics.unpriced_tokens, metrics.cost_pico_usd) == (11, EXPECTED["cost_micro_usd"] * 10**6)
    assert (metrics + metrics).unpriced_tokens == sum([metrics, metrics], Metrics()).unpriced_tokens == 22
    metrics = Metrics({"*": Price(input_micro_usd=1, output_micro_usd=0)})
    for _ in range(3):
        metrics.on_event(ReplyCompleted(said("x", input_tokens=500_000)))
    assert (metrics.cost_pico_usd, metrics.cost_micro_usd) == (1_500_000, 2), "rounded once"


def test_a_step_of_an_unknown_time_costs_nothing(script):
    metrics = Metrics()
    one = script(function_call("erase", path="x"), Delayed(3, "done"))
    agent = Agent(one, functions=[erase], hooks=[metrics])
    with pytest.raises(CallSuspended) as caught:
        agent.call("go")
    assert (metrics.calls, metrics.states) == (0, {})
    caught.value.call.advance("ask:1.0", Approved())
    one.clock.advance(60)
    agent.run(caught.value.call)
    assert metrics.states == {"Calling": 3.0, "ToolInterrupt": 60.0}


@pytest.mark.parametrize(("odd_s", "waited_s"), [(90.0, 5.0), (0.0, 0.0), (math.nan, 0.0), (math.inf, 0.0)])
def test_a_clock_that_was_set_back_or_does_not_know_costs_nothing(odd_s, waited_s):
    class Result:
        trace = (
            Stepped("Seeded", "begun", "Calling", "begin", 100.0),
            Stepped("Calling", "functions_asked", "ToolInterrupt", "model:0", odd_s),
            Stepped("ToolInterrupt", "returned", "Calling", "run:2.0", 95.0),
        )
        ending = type("Ending", (), {"reason": "answered"})

    metrics = Metrics()
    metrics.on_event(Done(Result()))
    assert metrics.states == {"Calling": 0.0, "ToolInterrupt": waited_s}


def test_no_event_is_counted_in_the_middle_of_another():
    counted = Event()

    class Prices(dict):
        """A table during whose first look-up another thread has something to count."""

        def get(self, *key):
            if not other.ident:
                other.start()
                assert not counted.wait(0.05), "it has to wait"
            return super().get(*key)

    def count() -> None:
        metrics.on_event(ReplyCompleted(said("x", input_tokens=2)))
        counted.set()

    metrics, other = Metrics(Prices()), Thread(target=count)
    metrics.on_event(ReplyCompleted(said("x", input_tokens=1)))
    other.join(20)
    assert (metrics.replies, metrics.usage.input_tokens) == (2, 3)


def test_one_price_is_that_of_every_model():
    price = PRICES["*"]
    metrics = Metrics(prices=price)
    Agent(Script(said("ok", input_tokens=2)), hooks=[metrics]).call("x")
    assert metrics.cost_pico_usd == 2
    assert (metrics + Metrics(prices={"large": PRICES["large"]})).prices == PRICES
    with pytest.raises(UsageError, match="prices of Metrics"):
        Metrics(prices=3)

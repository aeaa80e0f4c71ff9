"""Does a client with a limit wait, and report the usage of its requests?"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, closing
from typing import Any

import pytest
from conformance.client_requests import REQUEST, TWO_WAYS, ask

from fsm_agent.agents import Agent
from fsm_agent.call import Request
from fsm_agent.clients import FallbackClient, RateLimit, RateLimitedClient
from fsm_agent.errors import ConfigError, Overloaded, TimedOut
from fsm_agent.functions import Function
from fsm_agent.messages import FunctionResult, Image, Message, Reasoning, Reply, TextDelta, Usage
from fsm_agent.testing import Delayed, FakeClock, Script, function_call


def took(tokens: int | None, text: str = "hello") -> Reply:
    usage = Usage() if tokens is None else Usage(input_tokens=tokens - 1, output_tokens=1)
    return Reply(message=Message.of("assistant", text), usage=usage)


def asking(text: str) -> Request:
    return Request(messages=(Message.of("user", text),))


@pytest.mark.parametrize("way", TWO_WAYS)
def test_requests_wait_for_their_minute(way: str) -> None:
    clock = FakeClock()
    script = Script("one", "two", "three", clock=clock)
    client = RateLimitedClient(script, RateLimit(requests_per_minute=1, clock=clock))
    assert [ask(client, way)[-1].message.text for _ in range(3)] == ["one", "two", "three"]
    assert clock.sleeps == pytest.approx([60, 60])
    assert script.requests == [REQUEST] * 3


@pytest.mark.parametrize("way", TWO_WAYS)
@pytest.mark.parametrize(
    ("reply", "wait_s"),
    [(took(100), 60), (took(99), 0), (took(None, "x" * 364), 60), (took(None, "x" * 360), 0)],
    ids=["full", "room for one", "unsaid and full", "unsaid and room for one"],
)
def test_tokens_are_charged_as_reported_or_by_the_length_of_the_reply(way: str, reply: Reply, wait_s: float) -> None:
    clock = FakeClock()
    limit = RateLimit(tokens_per_minute=100, clock=clock)
    client = RateLimitedClient(Script(reply, clock=clock), limit)
    ask(client, way, request=asking("four"))

    async def begin_another() -> None:
        async with limit.reserve(1):
            assert sum(clock.sleeps) == pytest.approx(wait_s)

    asyncio.run(begin_another())


def test_all_that_is_sent_is_estimated() -> None:
    class Noting(RateLimit):
        def reserve(self, tokens: int = 0, **options: Any) -> Any:
            estimated.append(tokens)
            return super().reserve(tokens, **options)

    estimated: list[int] = []
    client = RateLimitedClient(Script("a", "b", "c"), Noting(tokens_per_minute=10_000))
    function = Function(name="abcd", description="efgh", parameters={"type": "object"})
    messages = (
        Message.of("user", "12345678", Image.of("https://example.com/a.png")),
        Message.of("assistant", Reasoning(text="1234"), function_call("abcd", a=1)),
        Message.of("tool", FunctionResult(id="1", name="abcd", text="123")),
    )
    of_texts = 2 + 1 + 1 + 2 + 1  # a token for each four characters, or fewer, of each text
    of_function = -(-len('abcd efgh {"type":"object"}') // 4)
    for request in (Request(messages=messages, functions=(function,)), asking(""), asking("a")):
        client.complete(request)
    assert estimated == [of_texts + 1_000 + of_function + 3 * 4, 4, 5]  # 1,000 an image, 4 a message


@pytest.mark.parametrize("way", TWO_WAYS)
def test_the_time_counts_from_the_beginning_of_the_wait(way: str) -> None:
    clock = FakeClock()
    script = Script("one", Delayed(31, "two"), clock=clock)
    client = RateLimitedClient(script, RateLimit(requests_per_minute=1, clock=clock))
    ask(client, way)
    with pytest.raises(TimedOut, match="30"):
        ask(client, way, 90)
    with pytest.raises(TimedOut, match="RateLimit"):
        ask(client, way, 20)
    assert len(script.requests) == 2


@pytest.mark.parametrize("way", TWO_WAYS)
def test_a_failure_frees_the_place(way: str) -> None:
    limit = RateLimit(max_concurrent=1)
    client = RateLimitedClient(Script(Overloaded("busy"), "hello"), limit)
    with pytest.raises(Overloaded):
        ask(client, way)
    assert ask(client, way, 0)[-1].message.text == "hello"
    assert limit.under_way == 0


def test_a_stream_has_its_turn_until_it_is_closed() -> None:
    limit = RateLimit(max_concurrent=1)
    long = "one " * 200  # so that it does not end before it is heard
    client = RateLimitedClient(Script(long, long), limit)
    with closing(client.stream(REQUEST)) as items:
        assert next(items) == TextDelta("one")
        assert limit.under_way == 1
    assert limit.under_way == 0

    async def main() -> None:
        async with aclosing(client.astream(REQUEST)) as items:
            assert await anext(items) == TextDelta("one")
            assert limit.under_way == 1
        assert limit.under_way == 0

    asyncio.run(main())


def test_an_agent_waits_on_the_clock_of_its_double() -> None:
    clock = FakeClock()
    script = Script(function_call("add", a=1, b=2), "3", clock=clock)
    agent = Agent(RateLimitedClient(script, RateLimit(requests_per_minute=1, clock=clock)), functions=[add])
    assert agent.call("1 + 2?").output == "3"
    assert clock.sleeps == pytest.approx([60])


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_no_turn_in_time_is_a_reason_to_ask_another() -> None:
    clock = FakeClock()
    limited = RateLimitedClient(Script("from a", name="a", clock=clock), RateLimit(requests_per_minute=1, clock=clock))
    client = FallbackClient([limited, Script("from b", name="b", clock=clock)], try_timeout_s=5)
    assert [client.complete(REQUEST).served_by for _ in range(2)] == ["a", "b"]


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^RateLimitedClient: expected a client.*, got 7"):
        RateLimitedClient(7, RateLimit(max_concurrent=1))  # type: ignore[arg-type]

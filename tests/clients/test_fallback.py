"""Is the next client asked when one fails, and only then, with everything said and nothing given out twice?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from conformance.client_requests import REQUEST, STREAMED, TWO_WAYS, ask

from fsm_agent.agents import Agent
from fsm_agent.call import Limits, Request, snapshot
from fsm_agent.clients import FallbackClient, RateLimit, RateLimitedClient, register_client
from fsm_agent.errors import (
    AuthFailed,
    BadReply,
    ConfigError,
    Overloaded,
    ProviderError,
    RateLimited,
    TimedOut,
    UsageError,
)
from fsm_agent.messages import Delta, Reply, TextDelta, Usage, UsageReported
from fsm_agent.testing import Delayed, FakeClock, Script, registries


class Breaking(Script):
    """Breaks off after its first deltas."""

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        self.requests.append(request)
        yield TextDelta("hal")
        raise Overloaded("gone in the middle")


class Closing(Script):
    """Notes that it was closed, and fails to close if told to."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        if self.fails:
            raise OSError("cannot be closed")

    async def aclose(self) -> None:
        self.close()


def failing(error: ProviderError, name: str = "a") -> Script:
    return Script(error, name=name)


def fails(client: Any, way: str, timeout_s: float | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ask(client, way, timeout_s)
    return caught.value


@pytest.mark.parametrize("way", TWO_WAYS)
def test_the_first_that_answers_is_the_only_one_asked(way: str) -> None:
    a, b = Script("from a", name="a"), Script("from b", name="b")
    reply = ask(FallbackClient([a, b]), way)[-1]
    assert (reply.message.text, reply.served_by) == ("from a", "a")
    assert b.requests == []


@pytest.mark.parametrize("way", TWO_WAYS)
def test_the_next_is_asked_the_same_and_the_reply_names_it(way: str) -> None:
    a, b = failing(Overloaded("busy", status=529)), Script("from b", name="b")
    items = ask(FallbackClient([a, b]), way)
    assert (items[-1].message.text, items[-1].served_by) == ("from b", "b")
    assert items[:-1] == ([TextDelta("from"), TextDelta(" b")] if way in STREAMED else [])
    assert a.requests == b.requests == [REQUEST]


@pytest.mark.parametrize("way", STREAMED)
def test_a_stream_that_told_only_what_it_costs_has_not_begun(way: str) -> None:
    class Paid(Script):
        async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
            yield UsageReported(Usage(input_tokens=7))
            raise Overloaded("gone before a word")

    *_, reply = ask(FallbackClient([Paid(), Script("b")]), way)
    assert reply.message.text == "b"


@pytest.mark.parametrize("way", STREAMED)
def test_a_second_stream_that_breaks_says_what_went_before(way: str) -> None:
    c = Script("from c")
    error = fails(FallbackClient([failing(AuthFailed("no such key")), Breaking(name="b"), c]), way)
    assert type(error) is Overloaded
    assert "'b': gone in the middle" in error.message
    assert "no such key" in error.message
    assert c.requests == []


@pytest.mark.parametrize(
    ("error", "moves_on"),
    [
        (Overloaded("busy", status=503), True),
        (RateLimited("no money", status=429, retryable=False), True),
        (AuthFailed("no such key", status=401), True),
        (BadReply("the model wrote nonsense", status=400, code="tool_use_failed", retryable=False), True),
        (ProviderError("cannot be sent", retryable=False), True),
        (ProviderError("no", status=200, code="not_found_error", retryable=False), True),
        (ProviderError("a lock", status=409), True),
        (ProviderError("wrong", status=400), False),
        (ProviderError("too large", status=413), False),
        (ProviderError("wrong", status=200, code="invalid_request_error", retryable=False), False),
        (ProviderError("filtered", status=400, code="content_filter"), False),
        (ProviderError("wrong, but later perhaps not", status=400, retryable=True), True),
    ],
    ids=repr,
)
def test_only_the_requests_own_fault_is_not_asked_again(error: ProviderError, moves_on: bool) -> None:
    b = Script("from b")
    client = FallbackClient([failing(error), b])
    if moves_on:
        assert client.complete(REQUEST).message.text == "from b"
    else:
        with pytest.raises(ProviderError) as caught:
            client.complete(REQUEST)
        assert caught.value is error
        assert b.requests == []


@pytest.mark.parametrize("way", TWO_WAYS)
def test_the_policy_is_the_callers(way: str) -> None:
    seen: list[ProviderError] = []
    b = Script("from b")
    wrong = ProviderError("wrong", status=400)
    assert ask(FallbackClient([failing(wrong), b], moves_on=lambda e: not seen.append(e)), way)[-1].served_by
    assert seen == [wrong]
    assert fails(FallbackClient([failing(Overloaded("busy")), b], moves_on=lambda _: False), way).message == "busy"


@pytest.mark.parametrize("way", TWO_WAYS)
def test_when_all_fail_the_last_error_names_the_others(way: str) -> None:
    last = AuthFailed("who are you", status=401, code="k", request_id="r-7")
    a = failing(RateLimited("slow down", status=429, retry_after_s=7))
    error = fails(FallbackClient([a, failing(last, "b")]), way)
    assert type(error) is AuthFailed
    assert (error.status, error.code, error.request_id) == (401, "k", "r-7")
    for named in ("'b': who are you", "'a': RateLimited: slow down"):
        assert named in error.message
    assert (error.retryable, error.retry_after_s) == (True, 7)
    assert error.__cause__ is last
    assert not last.retryable


@pytest.mark.parametrize(
    ("first", "second", "delay_s", "retryable"),
    [
        (RateLimited("x", retry_after_s=7), RateLimited("x", retry_after_s=3), 3, True),
        (RateLimited("x", retry_after_s=7), Overloaded("x"), None, True),
        (AuthFailed("x", retry_after_s=1), RateLimited("x", retry_after_s=3), 3, True),
        (AuthFailed("a"), AuthFailed("b"), None, False),
    ],
)
def test_the_wait_is_that_of_whoever_is_ready_first(
    first: Any, second: Any, delay_s: float | None, retryable: bool
) -> None:
    error = fails(FallbackClient([failing(first), failing(second)]), "complete")
    assert (error.retryable, error.retry_after_s) == (retryable, delay_s)


def test_what_it_names_is_bounded() -> None:
    clients = [failing(Overloaded("x" * 10_000), f"c{n}") for n in range(20)]
    error = fails(FallbackClient([*clients, failing(Overloaded("end"), "z")]), "complete")
    assert len(error.message) < 2000


@pytest.mark.parametrize("way", TWO_WAYS)
def test_the_time_is_for_all_together(way: str) -> None:
    clock = FakeClock()
    a = Script(Delayed(6, Overloaded("busy")), name="a", clock=clock)
    b = Script(Delayed(5, "late"), name="b", clock=clock)
    c = Script("from c", name="c", clock=clock)
    started_s = clock.now()
    error = fails(FallbackClient([a, b, c]), way, 10)
    assert type(error) is TimedOut
    assert "'c'" in error.message
    assert clock.now() - started_s == 10
    assert c.requests == []


@pytest.mark.parametrize("way", TWO_WAYS)
def test_each_has_its_own_time_too(way: str) -> None:
    clock = FakeClock()
    a = Script(Delayed(100, "late"), name="a", clock=clock)
    b = Script(Delayed(2, "from b"), name="b", clock=clock)
    started_s = clock.now()
    assert ask(FallbackClient([a, b], try_timeout_s=3), way, 10)[-1].served_by == "b"
    assert clock.now() - started_s == 5


class Raising(Script):
    """Raises what its library does."""

    def __init__(self, error: Exception) -> None:
        super().__init__(name="a")
        self._error = error

    def _next(self, *_: Any) -> Any:
        raise self._error


@pytest.mark.parametrize("way", TWO_WAYS)
@pytest.mark.parametrize("error", [UsageError("this model takes no images"), ZeroDivisionError("a bug")], ids=repr)
def test_a_mistake_ends_it(error: Exception, way: str) -> None:
    b = Script("from b")
    with pytest.raises(type(error), match=str(error)):
        ask(FallbackClient([Raising(error), b]), way)
    assert b.requests == []


@pytest.mark.parametrize("way", TWO_WAYS)
@pytest.mark.parametrize("error", [ConnectionResetError("gone"), httpx.ConnectError("refused")], ids=repr)
def test_an_error_of_the_transport_is_a_failure_too(error: Exception, way: str) -> None:
    assert ask(FallbackClient([Raising(error), Script("from b", name="b")]), way)[-1].served_by == "b"
    last = fails(FallbackClient([Raising(error), Raising(TimeoutError())]), way)
    assert isinstance(last, TimedOut)
    assert last.retryable
    assert f"{type(error).__name__}: {error}" in last.message


@pytest.mark.parametrize("way", TWO_WAYS)
def test_they_nest_and_the_innermost_is_named(way: str) -> None:
    inner = FallbackClient([failing(Overloaded("b is busy"), "b"), Script("from c", name="c")])
    client = FallbackClient([failing(Overloaded("a is busy")), inner])
    assert client.name == "fallback(a, fallback(b, c))"
    assert ask(client, way)[-1].served_by == "c"


@pytest.mark.parametrize(
    ("clients", "named"),
    [([], "client"), ("openai:gpt-5-mini", "clients"), (["gpt-5-mini"], "gpt-5-mini"), ([7], "FallbackClient.*7")],
)
def test_what_makes_no_sense_is_refused(clients: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        FallbackClient(clients)


def test_members_may_be_clients_that_are_registered() -> None:
    with registries():
        register_client("house", lambda model: Script("Hi.", name=f"house:{model}"))
        limited = RateLimitedClient("house:large", RateLimit(max_concurrent=1))
        client = FallbackClient(["house:small", limited])
        assert client.name == "fallback(house:small, house:large)"
        assert Agent(client).call("Hello?").output == "Hi."


def test_it_takes_what_one_takes_and_reports_what_all_report() -> None:
    class Blind(Script):
        takes_images = reports_logprobs = False

        def check_available(self) -> None:
            raise ConfigError(self.name)

    for members, takes_images, reports_logprobs in (
        ([Script(), Script()], True, True),
        ([Script(), Blind()], True, False),
        ([Blind(), Script()], True, False),
        ([Blind(name="a"), Blind(name="b")], False, False),
    ):
        client = FallbackClient(members)
        assert (client.takes_images, client.reports_logprobs) == (takes_images, reports_logprobs)
        if takes_images:
            client.check_available()
    with pytest.raises(ConfigError, match=r"^a$"):
        client.check_available()


@pytest.mark.parametrize("is_async", [False, True])
def test_all_are_closed(is_async: bool) -> None:
    members = [Closing(), Closing(fails=True), Closing()]
    with pytest.raises(OSError, match="cannot be closed"):
        asyncio.run(FallbackClient(members).aclose()) if is_async else FallbackClient(members).close()
    assert [member.is_closed for member in members] == [True] * 3


def test_an_agent_asks_again_from_the_first() -> None:
    clock = FakeClock()
    a = Script(Overloaded("busy", retry_after_s=7), "from a", name="a", clock=clock)
    b = Script(Overloaded("busy", retry_after_s=3), name="b", clock=clock)
    agent = Agent(FallbackClient([a, b]), limits=Limits(recalls=1))
    result = agent.call("hi")
    assert result.output == "from a"
    assert clock.sleeps == [3]
    assert result.call.record.reply is not None
    assert result.call.record.reply.served_by == "a"
    restored = agent.restore(snapshot(result.call)).record
    assert restored == result.call.record

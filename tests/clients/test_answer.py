"""Is all that a stream told given out before what went wrong with it, however it came?"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conformance.client_requests import REQUEST, STREAMED
from conformance.streams import framed
from conformance.turns import Turn, TurnPart
from support.dialects import AnthropicDialect, ChatDialect, GeminiDialect, ResponsesDialect
from support.fault_server import CLOSE, END_OF_CHUNKS, SSE_HEAD, STALL, FaultServer, Step, chunk
from support.http_clients import KEY, ROOMY

from fsm_agent.agents import Agent
from fsm_agent.clients import HttpClient, Network
from fsm_agent.errors import BadReply, ProviderError
from fsm_agent.messages import Delta, Done, Reply, Settings, TextDelta
from fsm_agent.providers import OpenAIChatCodec, Profile, Provider

DIALECTS: dict[str, Any] = {
    "openai-chat": ChatDialect(),
    "openai": ResponsesDialect(),
    "anthropic": AnthropicDialect(),
    "google": GeminiDialect(),
}
TURN = Turn([TurnPart("text", ["hel", "lo", ", you"])])


def asked(
    server: FaultServer, way: str, provider: str = "openai-chat", network: Network = ROOMY
) -> tuple[list[Delta], Reply | ProviderError]:
    """The deltas that a listener receives, and what follows them."""
    client = HttpClient(provider, "m", base_url=server.base_url, api_key=KEY, network=network)
    deltas = list[Delta]()

    async def listen() -> Reply:
        async for item in client.astream(REQUEST):
            if isinstance(item, Reply):
                return item
            deltas.append(item)
        raise AssertionError("no reply came, and no error")

    def hear() -> Reply:
        for item in client.stream(REQUEST):
            if isinstance(item, Reply):
                return item
            deltas.append(item)
        raise AssertionError("no reply came, and no error")

    try:
        return deltas, asyncio.run(listen()) if way == "astream" else hear()
    except ProviderError as error:
        return deltas, error
    finally:
        client.close()


def told(deltas: list[Delta]) -> str:
    return "".join([delta.text for delta in deltas if isinstance(delta, TextDelta)])


def sent(body: bytes, size: int) -> list[Step]:
    """Return the response with this body, in chunks of this many bytes."""
    chunks = [chunk(body[start : start + size]) for start in range(0, len(body), size)]
    return [SSE_HEAD, *chunks]


@pytest.mark.parametrize("provider", DIALECTS)
def test_an_error_in_the_stream_comes_behind_what_was_told(provider: str) -> None:
    dialect = DIALECTS[provider]
    body = framed([*dialect.events(TURN)[:5], dialect.error_event("no, never")])
    found = []
    for size, way in zip((len(body), 7), STREAMED, strict=True):
        with FaultServer([*sent(body, size), STALL]) as server:  # which leaves the connection open
            found.append(asked(server, way, provider))
    (whole, error), (pieces, other) = found
    assert whole == pieces
    assert told(whole).startswith("hel")
    assert isinstance(error, ProviderError)
    assert isinstance(other, ProviderError)
    assert error.report() == other.report()
    assert "no, never" in error.message


@pytest.mark.parametrize("way", STREAMED)
def test_what_the_bound_leaves_of_a_stream_is_told(way: str) -> None:
    events = DIALECTS["openai-chat"].events(TURN)
    body = framed(events)
    bound = Network(max_reply_bytes=len(framed(events[:3])))
    for size in (len(body), 7):
        with FaultServer([*sent(body, size), END_OF_CHUNKS]) as server:
            deltas, error = asked(server, way, network=bound)
        assert told(deltas) == "hello"
        assert isinstance(error, BadReply)


def test_a_reply_whose_usage_never_came_says_so_in_the_trace() -> None:
    events = DIALECTS["openai-chat"].events(TURN)
    provider = Provider(name="p", codec=OpenAIChatCodec(), profile=Profile(temperature=False), key_is_optional=True)
    with FaultServer([*sent(framed(events[:-2]), 7), CLOSE]) as server:
        client = HttpClient(provider, "m", base_url=server.base_url)
        *_, done = Agent(client, settings=Settings(temperature=0.5)).stream("Hello?")
        client.close()
    assert isinstance(done, Done)
    assert done.result.text == "hello, you"
    details = [step.detail for step in done.result.trace if step.trigger == "answered"]
    (detail,) = details
    assert "temperature=0.5" in detail
    assert "usage" in detail


@pytest.mark.parametrize("way", STREAMED)
@pytest.mark.parametrize("last", [END_OF_CHUNKS, CLOSE])
def test_what_the_end_adds_is_told(last: Any, way: str) -> None:
    body = framed(DIALECTS["google"].events(Turn([TurnPart("text", ["hel", "lo\ud83d"])]))).rstrip()
    with FaultServer([*sent(body, 7), last]) as server:
        deltas, reply = asked(server, way, "google")
    assert told(deltas) == "hello\ufffd"
    assert isinstance(reply, Reply)
    assert reply.message.text == "hello\ufffd"

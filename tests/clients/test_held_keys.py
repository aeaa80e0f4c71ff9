"""Does the key of a client stay out of messages that quote it?"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from conformance.streams import framed
from conformance.turns import Turn, TurnPart
from support.dialects import AnthropicDialect, ChatDialect, GeminiDialect, ResponsesDialect
from support.http_clients import over_transport

from fsm_agent import Agent, FunctionCall, Retry
from fsm_agent.call import Request
from fsm_agent.clients import HttpClient
from fsm_agent.messages import FunctionCallStarted, Message
from fsm_agent.testing import Script

LIKELY = "sk-abcdefghijklmnopqrstuvwx"
HELD = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"  # no format of a known service


@pytest.mark.parametrize("kind", [KeyError, ValueError, Retry])
@pytest.mark.parametrize("key", [LIKELY, HELD])
def test_the_error_of_a_function_quotes_none(key: str, kind: type[Exception]) -> None:
    HttpClient("openai-compatible", "m", base_url="https://api.example.org/v1", api_key=HELD).check_available()

    def look() -> None:
        """Look."""
        raise kind(f"401 for https://api.example.org/v1?key={key}")

    def agent() -> Agent[Any, Any]:
        return Agent(Script(FunctionCall(name="look", arguments_json="{}"), "done"), functions=[look])

    for result in (agent().call("task"), asyncio.run(agent().acall("task"))):
        text = "".join([message.text for message in result.dialog])
        assert key not in text
        assert f"{key[:4]}***" in text


WIRES: dict[str, tuple[Any, dict[str, Any]]] = {  # by provider: the dialect, and where replies are identified
    "openai-compatible": (ChatDialect(), {"id": HELD, "model": HELD}),
    "openai": (ResponsesDialect(), {"id": HELD, "model": HELD}),
    "anthropic": (AnthropicDialect(), {"id": HELD, "model": HELD, "stop_reason": HELD}),
    "google": (GeminiDialect(), {"responseId": HELD, "modelVersion": HELD}),
}


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("provider", WIRES)
def test_a_reply_that_is_named_after_the_key_does_not_hold_it(provider: str, is_stream: bool) -> None:
    dialect, named = WIRES[provider]
    turn = Turn([TurnPart("text", ["Rome"]), TurnPart("call", ['{"a": "b"}'], name=f"look-{HELD}", id=HELD)])

    def answer(request: httpx.Request) -> httpx.Response:
        if is_stream:
            head = {"content-type": "text/event-stream", "x-request-id": HELD}
            return httpx.Response(200, headers=head, content=framed(dialect.events(turn)))
        body = {**json.loads(dialect.response(turn)), **named}
        return httpx.Response(200, headers={"x-request-id": HELD}, json=body)

    network = over_transport(httpx.MockTransport(answer))
    request = Request(messages=[Message.of("user", "Where?")])
    with HttpClient(provider, "m", base_url="https://api.example.org/v1", api_key=HELD, network=network) as client:
        items = [*client.stream(request)] if is_stream else [client.complete(request)]
    shown = repr(items)
    assert "Rome" in shown
    assert "look-" in shown
    assert HELD not in shown


def test_the_last_pieces_of_a_stream_do_not_hold_it_either() -> None:
    call = {"functionCall": {"name": f"look-{HELD}", "id": HELD, "args": {}}}
    second = {"index": 1, "content": {"parts": [call]}, "finishReason": "STOP"}  # the first may still follow
    content = f"data: {json.dumps({'candidates': [second]})}\n\n".encode()
    head = {"content-type": "text/event-stream"}
    network = over_transport(httpx.MockTransport(lambda request: httpx.Response(200, headers=head, content=content)))
    request = Request(messages=[Message.of("user", "Where?")])
    with HttpClient("google", "m", base_url="https://api.example.org/v1", api_key=HELD, network=network) as client:
        items = [*client.stream(request)]
    assert isinstance(items[0], FunctionCallStarted)
    assert items[0].name.startswith("look-")
    assert HELD not in repr(items)


def test_a_short_secret_does_not_change_the_names_of_functions() -> None:
    turn = Turn([TurnPart("call", ['{"a": "b"}'], name="weather", id="c1")])
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=ChatDialect().response(turn)))
    options: dict[str, Any] = {"api_key": HELD, "headers": {"x-project": "weather"}}
    url, network = "https://api.example.org/v1", over_transport(transport)
    with HttpClient("openai-compatible", "m", base_url=url, network=network, **options) as client:
        reply = client.complete(Request(messages=[Message.of("user", "Where?")]))
    assert [call.name for call in reply.message.function_calls] == ["weather"]

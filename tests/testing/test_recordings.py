"""Do cassettes of vcrpy replay what was recorded on every wire, and keep no secret?"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import vcr
from conformance.client_requests import ASYNC, REQUEST, ask
from conformance.streams import framed
from conformance.turns import Turn, TurnPart
from support.dialects import AnthropicDialect, ChatDialect, GeminiDialect, ResponsesDialect
from support.fault_server import END_OF_CHUNKS, SSE_HEAD, FaultServer, chunk, http

from fsm_agent.call import Request
from fsm_agent.clients import HttpClient, Network
from fsm_agent.errors import RateLimited
from fsm_agent.messages import Message
from fsm_agent.testing import vcr_config

KEY = "the.key that/nobody-may:see"
WIRES: dict[str, Any] = {
    "openai-chat": ChatDialect(),
    "openai": ResponsesDialect(),
    "anthropic": AnthropicDialect(),
    "google": GeminiDialect(),
}


def turn_of(text: str) -> Turn:
    return Turn([TurnPart("text", [text])])


def recorded(path: Path) -> Any:
    return vcr.VCR(**vcr_config()).use_cassette(str(path), record_mode="once")


def replayed(path: Path) -> Any:
    return vcr.VCR(**vcr_config()).use_cassette(str(path), record_mode="none")


@pytest.mark.system
@pytest.mark.parametrize("way", ASYNC)
@pytest.mark.parametrize("provider", WIRES)
def test_each_wire_is_recorded_and_replayed(provider: str, way: str, tmp_path: Path) -> None:
    dialect, said = WIRES[provider], turn_of(f"hello {KEY}")
    whole = [http(dialect.response(said))]
    streamed = [SSE_HEAD, chunk(framed(dialect.events(said))), END_OF_CHUNKS]
    with FaultServer(streamed if way == "astream" else whole) as server, recorded(tmp_path / "tape.yaml"):
        base_url = server.base_url
        with HttpClient(provider, "m", api_key=KEY, base_url=base_url) as client:
            *_, reply = ask(client, way)
    with (
        replayed(tmp_path / "tape.yaml") as tape,
        HttpClient(provider, "m", api_key="none", base_url=base_url) as client,
    ):
        *deltas, again = ask(client, way)
    assert reply.message.text == f"hello {KEY}"
    assert again.message.text == "hello ***"
    assert bool(deltas) == (way == "astream")
    assert tape.all_played
    assert KEY not in (tmp_path / "tape.yaml").read_text()


def client_of(answer: Callable[[httpx.Request], httpx.Response], key: str = KEY, query: str = "") -> HttpClient:
    network = Network(client=lambda: httpx.AsyncClient(transport=httpx.MockTransport(answer)))
    return HttpClient("openai-chat", "m", api_key=key, base_url=f"http://api.invalid/v1{query}", network=network)


def saying(text: str, **headers: str) -> Callable[[httpx.Request], httpx.Response]:
    body = ChatDialect().response(turn_of(text))
    return lambda request: httpx.Response(200, content=body, headers={"content-type": "application/json", **headers})


def nobody(request: httpx.Request) -> httpx.Response:
    raise AssertionError("nothing is sent at a replay")


def asking(text: str) -> Request:
    return Request(messages=(Message.of("user", text),))


def test_what_differs_is_named(tmp_path: Path) -> None:
    with recorded(tmp_path / "tape.yaml"):
        ask(client_of(saying("Hi.")), "acomplete")
    with replayed(tmp_path / "tape.yaml") as tape:
        with pytest.raises(Exception, match="differ in body"):
            ask(client_of(nobody), "acomplete", request=asking("Other?"))
        assert not tape.all_played


def test_a_failure_is_replayed_with_its_delay(tmp_path: Path) -> None:
    busy = lambda request: httpx.Response(429, json={"error": {"message": "slow"}}, headers={"retry-after": "7"})  # noqa: E731
    for cassette, answer in ((recorded, busy), (replayed, nobody)):
        with cassette(tmp_path / "tape.yaml"), pytest.raises(RateLimited) as caught:
            ask(client_of(answer), "acomplete")
        assert caught.value.retry_after_s == 7


@pytest.mark.parametrize("spelled", [KEY, json.dumps(KEY), "the.key%20that%2Fnobody-may%3Asee", "sk-" + "a1" * 12])
def test_no_spelling_of_a_key_is_kept(spelled: str, tmp_path: Path) -> None:
    with recorded(tmp_path / "tape.yaml"):
        answer = saying(f"You said {spelled}", **{"x-request-id": spelled, "set-cookie": f"session={spelled}"})

        def quoting(request: httpx.Request) -> httpx.Response:
            response = answer(request)
            response.extensions["reason_phrase"] = spelled.encode()
            return response

        ask(client_of(quoting, query=f"?key={KEY}"), "acomplete", request=asking(f"My key is {spelled}."))
    kept = (tmp_path / "tape.yaml").read_text()
    assert spelled not in kept
    assert "nobody-may" not in kept
    assert "***" in kept


def test_a_reply_that_was_packed_is_kept_as_text(tmp_path: Path) -> None:
    def packed(request: httpx.Request) -> httpx.Response:
        body = gzip.compress(ChatDialect().response(turn_of(f"packed {KEY}")))
        return httpx.Response(
            200, content=body, headers={"content-type": "application/json", "content-encoding": "gzip"}
        )

    with recorded(tmp_path / "tape.yaml"):
        ask(client_of(packed), "acomplete")
    assert "packed ***" in (tmp_path / "tape.yaml").read_text()
    with replayed(tmp_path / "tape.yaml"):
        assert ask(client_of(nobody, "none"), "acomplete")[-1].message.text == "packed ***"


def test_equal_requests_are_played_in_the_order_of_their_recording(tmp_path: Path) -> None:
    answers = iter(["one", "two"])
    with recorded(tmp_path / "tape.yaml"):
        client = client_of(lambda request: saying(next(answers))(request))
        [ask(client, "acomplete", request=REQUEST) for _ in range(2)]
    with replayed(tmp_path / "tape.yaml"):
        client = client_of(nobody)
        assert [ask(client, "acomplete")[-1].message.text for _ in range(2)] == ["one", "two"]

"""Clients over HTTP for tests, and the responses that a server gives them."""

from __future__ import annotations

import ssl
import threading
from typing import Any

import httpx
from conformance.client_requests import STREAMED

from fsm_agent.clients import HttpClient, Network
from fsm_agent.messages import Reply
from support.fault_server import END_OF_CHUNKS, SSE_HEAD, FaultServer, Step, chunk, events, head, http

KEY = "the.key.that.nobody.may.see.4711"
OF_REQUESTS = ("connect_s", "read_s", "write_s", "pool_s", "idle_s", "linger_s", "max_reply_bytes")
ROOMY = Network(max_reply_bytes=100_000)


def completion(text: str = "hello") -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice]}


def delta(text: str | None = None, finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish_reason}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


JSON_HEAD = head(content_type="application/json", content_length="1000")
PIECES = events(delta("hel"), delta("lo"), delta(finish_reason="stop"))
FIRST_PIECE = events(delta("hel"), done=False)
WHOLE: list[Step] = [http(completion())]
STREAM: list[Step] = [SSE_HEAD, chunk(PIECES), END_OF_CHUNKS]


def good(way: str) -> list[Step]:
    return STREAM if way in STREAMED else WHOLE


chosen: list[Any] = []  # what the fixture `over` says that clients shall send over


def client_of(server: FaultServer | str, network: Network = ROOMY, **options: Any) -> HttpClient:
    base_url = server if isinstance(server, str) else server.base_url
    if chosen and chosen[-1] == "httpx" and network.client is None:
        network = over_httpx(network, base_url)
    options = {"api_key": KEY, **options}
    return HttpClient("openai-compatible", "m", base_url=base_url, network=network, **options)


def over_httpx(network: Network, base_url: str) -> Network:
    """The same network, over clients of a user, which stand on httpx's own transport."""
    trust = ssl.create_default_context(cafile=network.verify) if isinstance(network.verify, str) else network.verify
    options: dict[str, Any] = {
        "verify": trust,
        "limits": httpx.Limits(max_connections=network.max_connections),
        "proxy": network.proxy,
        "trust_env": "//127.0.0.1:" not in base_url,
    }
    others = {name: getattr(network, name) for name in OF_REQUESTS}
    return Network(client=lambda: httpx.AsyncClient(**options), **others)


def over_transport(transport: Any, **options: Any) -> Network:
    """A network over a client of a user with this transport."""
    return Network(client=lambda: httpx.AsyncClient(transport=transport), **options)


def text(reply: Any) -> str:
    """What a reply says."""
    assert isinstance(reply, Reply), reply
    return reply.message.text


def refused(status: int, **headers: str) -> list[Step]:
    return [http({"error": {"message": "No, and not later", "type": "t", "code": "c"}}, status=status, **headers)]


def in_threads(number: int, function: Any) -> list[Any]:
    """What ``number`` threads return that begin together."""
    results: list[Any] = []
    start = threading.Barrier(number)

    def work() -> None:
        start.wait(5)
        results.append(function())

    threads = [threading.Thread(target=work) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return results

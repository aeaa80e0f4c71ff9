"""Clients over HTTP for tests, and the responses that a server gives them."""

from __future__ import annotations

from typing import Any

from fsm_agent.clients.client import HttpClient, Network
from fsm_agent.messages.reply import Reply
from fsm_agent.testing.client_requests import STREAMED
from support.copies import replace
from support.fault_server import END_OF_CHUNKS, SSE_HEAD, FaultServer, Step, chunk, events, head, http

KEY = "the.key.that.nobody.may.see.4711"
TINY = Network(connect_s=0.5, read_s=0.1, max_reply_bytes=100_000)
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
trusted: list[str] = []  # whom it says that they shall trust


def client_of(server: FaultServer | str, network: Network = ROOMY, **options: Any) -> HttpClient:
    if chosen and network.transport is None and network.async_transport is None:
        network = replace(network, transport=chosen[-1], async_transport=chosen[-1])
    if trusted and network.verify is True:
        network = replace(network, verify=trusted[-1])
    base_url = server if isinstance(server, str) else server.base_url
    options = {"api_key": KEY, **options}
    return HttpClient("openai-compatible", "m", base_url=base_url, network=network, **options)


def text(reply: Any) -> str:
    """What a reply says."""
    assert isinstance(reply, Reply), reply
    return reply.message.text


def refused(status: int, **headers: str) -> list[Step]:
    return [http({"error": {"message": "No, and not later", "type": "t", "code": "c"}}, status=status, **headers)]

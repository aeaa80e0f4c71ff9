"""How is a client asked, in each of the four ways, and what can be seen of a failure?"""

from __future__ import annotations

import asyncio
import pickle
import traceback
from dataclasses import replace
from typing import Any

from fsm_agent.clients.client import Client, HttpClient, Network
from fsm_agent.errors import ProviderError
from fsm_agent.lifecycle.effects import Request
from fsm_agent.messages.message import Message
from fsm_agent.messages.reply import Reply
from support.fault_server import END_OF_CHUNKS, SSE_HEAD, FaultServer, Step, chunk, events, head, http

KEY = "the.key.that.nobody.may.see.4711"
REQUEST = Request(messages=(Message.of("user", "Hello?"),))
WAYS = ("complete", "stream", "acomplete", "astream")
STREAMED = ("stream", "astream")
ASYNC = ("acomplete", "astream")
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


def ask(client: Client, way: str, timeout_s: float | None = None, request: Request = REQUEST) -> list[Any]:
    """The deltas and the reply, or the reply alone."""
    if way == "complete":
        return [client.complete(request, timeout_s=timeout_s)]
    if way == "stream":
        return list(client.stream(request, timeout_s=timeout_s))
    return asyncio.run(aask(client, way, timeout_s, request))


async def aask(client: Client, way: str, timeout_s: float | None = None, request: Request = REQUEST) -> list[Any]:
    """`ask` in a loop that runs."""
    if way == "acomplete":
        return [await client.acomplete(request, timeout_s=timeout_s)]
    return [item async for item in client.astream(request, timeout_s=timeout_s)]


def outcomes(client: Client, way: str, *timeouts_s: float | None) -> list[Reply | ProviderError]:
    """What becomes of one request after the other; of async ones, in one loop."""

    async def main() -> list[Reply | ProviderError]:
        replies: list[Reply | ProviderError] = []
        for timeout_s in timeouts_s:
            try:
                items = await aask(client, way, timeout_s) if way in ASYNC else ask(client, way, timeout_s)
                replies.append(items[-1])
            except ProviderError as error:
                replies.append(error)
        return replies

    return asyncio.run(main())


def text(reply: Any) -> str:
    """What a reply says."""
    assert isinstance(reply, Reply), reply
    return reply.message.text


def everything_said_by(error: BaseException) -> str:
    """All that anybody could print of an exception and of those behind it."""
    said = ["".join(traceback.format_exception(error))]
    waiting, known = [error], set()
    while waiting:
        this = waiting.pop()
        known.add(id(this))
        said += [str(this), repr(this), repr(this.args)]
        said += [repr(vars(this))] if isinstance(this, ProviderError) else []
        waiting += [e for e in (this.__cause__, this.__context__) if e is not None and id(e) not in known]
    if isinstance(error, ProviderError):
        said += [repr(error.report()), repr(pickle.dumps(error))]
    return "\n".join(said)


def refused(status: int, **headers: str) -> list[Step]:
    return [http({"error": {"message": "No, and not later", "type": "t", "code": "c"}}, status=status, **headers)]

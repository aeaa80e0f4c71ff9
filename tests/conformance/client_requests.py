"""Requests to a client in each of its ways, and all that can be seen of a failure."""

from __future__ import annotations

import asyncio
import pickle
import traceback
from typing import Any

from fsm_agent.call import Request
from fsm_agent.clients import Client
from fsm_agent.errors import ProviderError
from fsm_agent.messages import Message, Reply

REQUEST = Request(messages=(Message.of("user", "Hello?"),))
WAYS = ("complete", "stream", "acomplete", "astream")
TWO_WAYS = ("complete", "astream")  # of threads and of asyncio, whole and in pieces
STREAMED = ("stream", "astream")
ASYNC = ("acomplete", "astream")


def ask(client: Any, way: str, timeout_s: float | None = None, request: Request = REQUEST) -> list[Any]:
    """Return the deltas and the reply, or the reply alone."""
    if way == "complete":
        return [client.complete(request, timeout_s=timeout_s)]
    if way == "stream":
        return list(client.stream(request, timeout_s=timeout_s))
    return asyncio.run(aask(client, way, timeout_s, request))


async def aask(client: Client, way: str, timeout_s: float | None = None, request: Request = REQUEST) -> list[Any]:
    """`ask` in the running loop."""
    if way == "acomplete":
        return [await client.acomplete(request, timeout_s=timeout_s)]
    return [item async for item in client.astream(request, timeout_s=timeout_s)]


def outcomes(client: Client, way: str, *timeouts_s: float | None) -> list[Reply | ProviderError]:
    """Return the outcomes of one request after the other.  Async requests run in one loop."""
    if way in ASYNC:
        return asyncio.run(_aoutcomes(client, way, *timeouts_s))
    found: list[Reply | ProviderError] = []
    for timeout_s in timeouts_s:
        try:
            found.append(ask(client, way, timeout_s)[-1])
        except ProviderError as error:
            found.append(error)
    return found


async def _aoutcomes(client: Client, way: str, *timeouts_s: float | None) -> list[Reply | ProviderError]:
    found: list[Reply | ProviderError] = []
    for timeout_s in timeouts_s:
        try:
            found.append((await aask(client, way, timeout_s))[-1])
        except ProviderError as error:
            found.append(error)
    return found


def shown_by(error: BaseException) -> str:
    """Return everything that can be printed of an exception and its causes."""
    shown = ["".join(traceback.format_exception(error))]
    waiting, known = [error], set()
    while waiting:
        this = waiting.pop()
        known.add(id(this))
        shown += [str(this), repr(this), repr(this.args)]
        shown += [repr(vars(this))] if isinstance(this, ProviderError) else []
        waiting += [e for e in (this.__cause__, this.__context__) if e is not None and id(e) not in known]
    if isinstance(error, ProviderError):
        shown += [repr(error.report()), repr(pickle.dumps(error))]
    return "\n".join(shown)

"""A client whose requests wait for their turn under a rate limit."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fsm_agent.call.effects import Request
from fsm_agent.clients.rate_limit import RateLimit, Reservation
from fsm_agent.clients.registered import named_client
from fsm_agent.clients.sync_verbs import SyncVerbs
from fsm_agent.messages.events import Delta
from fsm_agent.messages.message import FunctionCall, FunctionResult, Message, Reasoning, Text
from fsm_agent.messages.reply import Reply
from fsm_agent.runtime.price_list import models_of
from fsm_agent.runtime.world import Client

CHARS_PER_TOKEN = 4  # roughly, of English: https://platform.openai.com/tokenizer (November 2026)


class RateLimitedClient(SyncVerbs):
    """A client whose requests wait for their turn under a limit.

    ``timeout_s`` of a request includes its wait; without a turn in time it fails with `TimedOut`, which is retryable.
    The tokens of a request are estimated from its characters (images count nothing), and corrected by the usage that
    its reply reports.

    Args:
        client: The client to limit, or a model as ``provider:model``.  It is closed with this one.
        limit: For this client alone, or shared by all clients of one account.

    Examples:
        >>> limit = RateLimit(requests_per_minute=60)
        >>> Agent(RateLimitedClient(Script("Hi."), limit)).call("Hello").output
        'Hi.'
    """

    def __init__(self, client: Client | str, limit: RateLimit) -> None:
        self._client: Client = named_client(client) if isinstance(client, str) else client
        self._limit = limit

    @property
    def name(self) -> str:
        """The name of the client behind the limit."""
        return self._client.name

    @property
    def models(self) -> tuple[str, ...]:
        """The models that may reply."""
        return models_of(self._client)

    def __repr__(self) -> str:
        return f"<RateLimitedClient {self.name!r} {self._limit!r}>"

    @property
    def world_defaults(self) -> dict[str, Any]:
        """The defaults of the client behind the limit: a test double brings its own clock."""
        return getattr(self._client, "world_defaults", {})

    @property
    def takes_images(self) -> bool:
        """True if the client behind the limit takes images."""
        return getattr(self._client, "takes_images", True)

    @property
    def reports_logprobs(self) -> bool:
        """True if the model of the client behind the limit can be asked for log probabilities."""
        return getattr(self._client, "reports_logprobs", True)

    def check_available(self) -> None:
        """Check that the client behind the limit has what it needs, without sending a request.

        Raises:
            ConfigError: Something is missing; the error names it.
        """
        if (check := getattr(self._client, "check_available", None)) is not None:
            check()

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return the reply to ``request``, sent when its turn has come.

        Raises:
            ProviderError: The request failed, or had no turn in time.
        """
        async with self._limit.reserve(self._estimate(request), timeout_s=timeout_s) as reservation:
            return self._charge(reservation, await self._client.acomplete(request, timeout_s=reservation.time_left()))

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """Yield the reply as it arrives, when its turn has come."""
        async with (
            self._limit.reserve(self._estimate(request), timeout_s=timeout_s) as reservation,
            aclosing(self._client.astream(request, timeout_s=reservation.time_left())) as items,
        ):
            async for item in items:
                yield self._charge(reservation, item) if isinstance(item, Reply) else item

    def _estimate(self, request: Request) -> int:
        return estimated_tokens(request) if self._limit.counts_tokens else 0

    def _charge(self, reservation: Reservation, reply: Reply) -> Reply:
        reported = reply.usage.total_tokens
        self._limit.charge(reservation, reported or reservation.tokens + _tokens(_chars(reply.message)))
        return reply

    def close(self) -> None:
        """Close the client behind the limit."""
        self._client.close()

    async def aclose(self) -> None:
        """`close` for asyncio."""
        await self._client.aclose()


def estimated_tokens(request: Request) -> int:
    """Return a rough estimate of the input tokens of ``request``: a quarter of its characters."""
    described = [len(f.name) + len(f.description) + len(json.dumps(f.parameters)) for f in request.functions]
    return _tokens(sum(map(_chars, request.messages)) + sum(described))


def _tokens(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)


def _chars(message: Message) -> int:
    total = 0
    for part in message.parts:
        match part:
            case Text() | Reasoning() | FunctionResult():
                total += len(part.text)
            case FunctionCall():
                total += len(part.name) + len(part.arguments_json)
    return total

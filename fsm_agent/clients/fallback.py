"""Who is asked when a model does not answer?

`FallbackClient` asks one client after the other, once each.  To ask the same one again, later, stays the machine's to
say: a recall begins with the first again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing, closing
from dataclasses import replace
from typing import Any, Self

from fsm_agent.clients.client import Client, client_for
from fsm_agent.errors import ConfigError, ProviderError
from fsm_agent.lifecycle.effects import Request
from fsm_agent.messages.event import Delta, UsageReported
from fsm_agent.messages.reply import Reply
from fsm_agent.providers.error_codes import status_of

MAX_SHOWN_CHARS = 200  # of what each of the others said
MAX_SHOWN_ERRORS = 5

# What says that the request itself is wrong, whoever is asked: RFC 9110, sections 15.5.1, 15.5.14 and 15.5.21.
_REQUEST_IS_WRONG = frozenset({400, 413, 422})


def is_not_the_requests_fault(error: ProviderError) -> bool:
    """Whether somebody else may answer what failed with ``error``.

    False for what is refused as it stands (400, 413, 422, a content filter): the next one would most likely refuse it
    too, and whoever made the request should hear of it.  True for all the rest, also where asking the same one again
    would not help: a key or an account that is no longer good, a model that is gone (404), a reply that makes no
    sense, and a dialog that is too long for this model, because the next may have more room.
    """
    if error.retryable or type(error) is not ProviderError:  # a kind of its own says more than its status
        return True
    meant = (status_of([error.code or ""]) or 200) if error.status == 200 else error.status
    return meant not in _REQUEST_IS_WRONG


class FallbackClient:
    """A client that asks the first of several, and the next when that one fails.

    A reply says in ``served_by`` who gave it.  A stream moves on only while nothing of it was given out.  When nobody
    answers, the error is the last one's; its message names the others, and it is retryable if one of them was.
    Mistakes of the caller (`UsageError`: a missing key, a request that a model cannot be told) end it at once.

    Args:
        clients: Whom to ask, in this order: clients, or models as ``provider:model``.  They are closed with this one.
        moves_on: Whether an error is a reason to ask the next.
        try_timeout_s: How long each of them may take; ``timeout_s`` of a request is for all of them together.

    Raises:
        ConfigError: There is nobody to ask, or one is neither a client nor a model.
    """

    def __init__(
        self,
        clients: Iterable[Client | str],
        *,
        moves_on: Callable[[ProviderError], bool] = is_not_the_requests_fault,
        try_timeout_s: float | None = None,
    ) -> None:
        if isinstance(clients, str):
            raise ConfigError(f"clients {clients!r} is one model: a list of them would be right")
        self._clients = tuple([_client(given) for given in clients])
        if not self._clients:
            raise ConfigError("clients is empty: there is nobody to ask")
        self._moves_on = moves_on
        self._try_timeout_s = try_timeout_s

    @property
    def name(self) -> str:
        """Who is asked, in order: ``fallback(a, b)``."""
        return f"fallback({', '.join([client.name for client in self._clients])})"

    def __repr__(self) -> str:
        return f"<FallbackClient {self.name!r}>"

    @property
    def world_defaults(self) -> dict[str, Any]:
        """Those of the first client that has some: a double for tests brings its own clock."""
        found = (getattr(client, "world_defaults", None) for client in self._clients)
        return next((defaults for defaults in found if defaults), {})

    def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """The first reply that somebody gives.

        Raises:
            ProviderError: Nobody gave one.
        """
        for client, left_s in (tries := self._tries(timeout_s)):
            try:
                return tries.served(client.complete(request, timeout_s=left_s))
            except ProviderError as error:
                tries.failed(error)
        raise tries.failure()

    def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[Delta | Reply]:
        """The reply as it comes: deltas of one client, then its `Reply`.  Errors are those of `complete`."""
        for client, left_s in (tries := self._tries(timeout_s)):
            try:
                with closing(client.stream(request, timeout_s=left_s)) as items:
                    for item in items:
                        yield tries.given(item)
                return
            except ProviderError as error:
                tries.failed(error)
        raise tries.failure()

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """`complete` for asyncio."""
        for client, left_s in (tries := self._tries(timeout_s)):
            try:
                return tries.served(await client.acomplete(request, timeout_s=left_s))
            except ProviderError as error:
                tries.failed(error)
        raise tries.failure()

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """`stream` for asyncio."""
        for client, left_s in (tries := self._tries(timeout_s)):
            try:
                async with aclosing(client.astream(request, timeout_s=left_s)) as items:
                    async for item in items:
                        yield tries.given(item)
                return
            except ProviderError as error:
                tries.failed(error)
        raise tries.failure()

    def _tries(self, timeout_s: float | None) -> _Tries:
        clock = self.world_defaults.get("clock")
        return _Tries(
            self._clients,
            moves_on=self._moves_on,
            now=clock.now if clock else time.monotonic,
            timeout_s=timeout_s,
            try_timeout_s=self._try_timeout_s,
        )

    def close(self) -> None:
        """Close all clients, also when one of them fails to."""
        with ExitStack() as stack:
            for client in self._clients:
                stack.callback(client.close)

    async def aclose(self) -> None:
        """`close` for asyncio."""
        async with AsyncExitStack() as stack:
            for client in self._clients:
                stack.push_async_callback(client.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Tries:
    """One request on its way from client to client; threads and asyncio share every decision.

    Iterating gives whom to ask now, and for how long.
    """

    def __init__(
        self,
        clients: tuple[Client, ...],
        *,
        moves_on: Callable[[ProviderError], bool],
        now: Callable[[], float],
        timeout_s: float | None,
        try_timeout_s: float | None,
    ) -> None:
        self._clients = clients
        self._moves_on = moves_on
        self._now = now
        self._timeout_s = timeout_s
        self._try_timeout_s = try_timeout_s
        self._started_at_s = now()
        self._errors: list[ProviderError] = []
        self._has_begun = False  # something of the present client's reply was given out
        self._is_over = False

    def __iter__(self) -> Iterator[tuple[Client, float | None]]:
        for client in self._clients:
            left_s = self._left_s()
            if self._is_over or (self._errors and left_s is not None and left_s <= 0):
                return
            bounds_s = [bound_s for bound_s in (left_s, self._try_timeout_s) if bound_s is not None]
            yield client, min(bounds_s, default=None)

    def _left_s(self) -> float | None:
        return None if self._timeout_s is None else self._timeout_s - (self._now() - self._started_at_s)

    def served(self, reply: Reply) -> Reply:
        """``reply`` with the name of who gave it: of the innermost client, when clients are nested."""
        return replace(reply, served_by=reply.served_by or self._clients[len(self._errors)].name)

    def given(self, item: Delta | Reply) -> Delta | Reply:
        """Return what is given out for ``item``; once it says something the present client's word counts."""
        self._has_begun = self._has_begun or not isinstance(item, UsageReported)
        return self.served(item) if isinstance(item, Reply) else item

    def failed(self, error: ProviderError) -> None:
        """Take it that the present client failed."""
        self._is_over = self._has_begun or not self._moves_on(error)
        self._errors.append(error)

    def failure(self) -> ProviderError:
        """What to raise in the end: the last error, with what went before it."""
        *others, last = self._errors
        unasked = self._clients[len(self._errors) :]
        if not others and (self._is_over or not unasked):
            return last
        said = [
            f"{client.name!r}: {type(error).__name__}: {str(error)[:MAX_SHOWN_CHARS]}"
            for client, error in zip(self._clients, others, strict=False)
        ]
        more = [f"and {len(said) - MAX_SHOWN_ERRORS} more"] if len(said) > MAX_SHOWN_ERRORS else []
        told = [f"before it failed {'; '.join([*said[:MAX_SHOWN_ERRORS], *more])}"] if said else []
        if unasked and not self._is_over:
            told.append(f"no time was left to ask {unasked[0].name!r}")
        worth_waiting = [error for error in self._errors if error.retryable]
        report = replace(
            last.report(),
            message=f"{self._clients[len(others)].name!r}: {last.message} ({'; '.join(told)})",
            retryable=bool(worth_waiting),
            retry_after_s=_soonest(worth_waiting) if worth_waiting else last.retry_after_s,
        )
        failure = report.exception()
        failure.__cause__ = last
        return failure


def _soonest(errors: list[ProviderError]) -> float | None:
    """The shortest wait that one of them asked for; None when one did not say."""
    delays_s = [error.retry_after_s for error in errors]
    known_s = [delay_s for delay_s in delays_s if delay_s is not None]
    return min(known_s) if len(known_s) == len(delays_s) else None


def _client(given: Client | str) -> Client:
    if isinstance(given, str):
        return client_for(given)
    if not hasattr(given, "acomplete"):
        raise ConfigError(f"{given!r:.200} is no client: one, or a model as 'provider:model', would be right")
    return given

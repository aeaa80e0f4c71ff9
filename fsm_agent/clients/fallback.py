"""`FallbackClient`: a client that falls back to other models when one fails."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing

from fsm_agent._internal.structs import is_finite
from fsm_agent.call.effects import Request
from fsm_agent.clients.client_group import ClientGroup
from fsm_agent.errors import ConfigError, ProviderError
from fsm_agent.functions.policy import is_plain
from fsm_agent.messages.events import Delta, UsageReported
from fsm_agent.messages.reply import Reply
from fsm_agent.providers.failures import status_of
from fsm_agent.runtime.call_activities import transport_failure
from fsm_agent.runtime.environment import Client
from fsm_agent.validation import require

MAX_SHOWN_CHARS = 200  # how much of another client's error is shown
MAX_SHOWN_ERRORS = 5

# The request itself is wrong, whatever the provider: RFC 9110, sections 15.5.1, 15.5.14 and 15.5.21.
_REQUEST_IS_WRONG = frozenset({400, 413, 422})


def is_not_the_requests_fault(error: ProviderError) -> bool:
    """Return True if another client may succeed after one has failed with ``error``.

    The result is False if the request itself is at fault (400, 413, 422, a content filter).  It is True for all other
    errors, even those for which retrying the same client would not help: an invalid key, a model that no longer exists
    (404), a malformed reply, or a dialog that is too long for this model.
    """
    if error.retryable or type(error) is not ProviderError:  # its type is more specific than its status
        return True
    meant = (status_of([error.code or ""]) or 200) if error.status == 200 else error.status
    return meant not in _REQUEST_IS_WRONG


class FallbackClient(ClientGroup):
    """A client that tries several other clients in order, once each, until one of them replies.

    A reply's ``served_by`` names the client that it came from.  A stream can fall back only before its first delta.  A
    later error is raised, and if the agent call sends the request again, the first client is asked first, even if its
    streams always break off.  An `OSError` or `httpx.TransportError` counts as a `ProviderError`.  A `UsageError`, such
    as a missing key, is raised at once.  If all clients fail, the last error is raised; its message names the others,
    and it is retryable if any of them was.

    Args:
        clients: The clients, or models as ``provider:model``, in order.  They are closed when this client is closed.
        moves_on: A function that takes an error and returns True if the next client should be tried.
        try_timeout_s: The timeout for each try, in seconds.  A request's ``timeout_s`` limits all tries together.

    Raises:
        ConfigError: If there are no clients, or one is neither a client nor a model.

    Examples:
        >>> first = Script(RateLimited("busy", retryable=False))
        >>> Agent(FallbackClient([first, Script("Hi.")])).call("Hello").output
        'Hi.'
    """

    def __init__(
        self,
        clients: Iterable[Client | str],
        *,
        moves_on: Callable[[ProviderError], bool] = is_not_the_requests_fault,
        try_timeout_s: float | None = None,
    ) -> None:
        if isinstance(clients, str) or not isinstance(clients, Iterable):
            raise ConfigError(f"clients: expected a list of models or clients, got {clients!r:.80}")
        super().__init__(clients)
        if not self._clients:
            raise ConfigError("clients: expected one client or more, got an empty list")
        require("moves_on", moves_on, is_plain(moves_on), "a plain function of the error", ConfigError)
        is_time = try_timeout_s is None or (is_finite(try_timeout_s) and try_timeout_s > 0)
        require("try_timeout_s", try_timeout_s, is_time, "a number of seconds above 0, or None", ConfigError)
        self._moves_on = moves_on
        self._try_timeout_s = try_timeout_s

    @property
    def name(self) -> str:
        """The names of the clients, in order: ``fallback(a, b)``."""
        return f"fallback({', '.join([client.name for client in self._clients])})"

    def __repr__(self) -> str:
        return f"<FallbackClient {self.name!r}>"

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return the reply from the first client that gives one.

        Raises:
            ProviderError: If all clients failed.
        """

        async def ask(client: Client, left_s: float | None) -> AsyncGenerator[Reply]:
            yield await client.acomplete(request, timeout_s=left_s)

        async with aclosing(self._tried(ask, timeout_s)) as items:
            return [item async for item in items if isinstance(item, Reply)][-1]

    def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """Yield the reply as it arrives: deltas from one client, then its `Reply`.

        Raises the same errors as `acomplete`.
        """
        return self._tried(lambda client, left_s: client.astream(request, timeout_s=left_s), timeout_s)

    async def _tried(
        self, ask: Callable[[Client, float | None], AsyncGenerator[Delta | Reply]], timeout_s: float | None
    ) -> AsyncGenerator[Delta | Reply]:
        """Ask the clients in order, and yield the items from one of them.

        After its first delta, there is no fallback.
        """
        clock = self.environment_defaults.get("clock")
        now = clock.now if clock else time.monotonic
        started_s, errors, is_over = now(), list[ProviderError](), False
        for client in self._clients:
            left_s = None if timeout_s is None else timeout_s - (now() - started_s)
            if is_over or (errors and left_s is not None and left_s <= 0):
                break
            has_begun = False
            bounds_s = [bound_s for bound_s in (left_s, self._try_timeout_s) if bound_s is not None]
            try:
                async with aclosing(ask(client, min(bounds_s, default=None))) as items:
                    async for item in items:
                        has_begun = has_begun or not isinstance(item, UsageReported)
                        yield _served(item, client) if isinstance(item, Reply) else item
                return
            except Exception as error:
                failure = transport_failure(error)
                if failure is None:
                    raise
                is_over = has_begun or not self._moves_on(failure)
                errors.append(failure)
        raise self._failure(errors, is_over=is_over)

    def _failure(self, errors: list[ProviderError], *, is_over: bool) -> ProviderError:
        *others, last = errors
        untried = () if is_over else self._clients[len(errors) :]
        if not others and not untried:
            return last
        summaries = [
            f"{client.name!r}: {type(error).__name__}: {str(error)[:MAX_SHOWN_CHARS]}"
            for client, error in zip(self._clients, others, strict=False)
        ]
        more = [f"and {len(summaries) - MAX_SHOWN_ERRORS} more"] if len(summaries) > MAX_SHOWN_ERRORS else []
        notes = [f"before it failed {'; '.join([*summaries[:MAX_SHOWN_ERRORS], *more])}"] if summaries else []
        notes += [f"no time was left to ask {client.name!r}" for client in untried[:1]]
        retryable_errors = [error for error in errors if error.retryable]
        report = last.report().changed(
            message=f"{self._clients[len(others)].name!r}: {last.message} ({'; '.join(notes)})",
            retryable=bool(retryable_errors),
            retry_after_s=_soonest(retryable_errors) if retryable_errors else last.retry_after_s,
        )
        failure = report.exception()
        failure.__cause__ = last
        return failure


def _served(reply: Reply, client: Client) -> Reply:
    """Return the reply with the name of the client that it came from, the innermost one if clients are nested."""
    return reply.changed(served_by=reply.served_by or client.name)


def _soonest(errors: list[ProviderError]) -> float | None:
    """Return the shortest ``retry_after_s`` among the errors, or None if any of them lacks one."""
    delays_s = [error.retry_after_s for error in errors]
    stated_s = [delay_s for delay_s in delays_s if delay_s is not None]
    return min(stated_s) if len(stated_s) == len(delays_s) else None

"""Client-side rate limits: requests and tokens per minute, and concurrency.

pyrate-limiter is not suitable: it cannot correct an estimate, does not limit concurrency, lets small requests overtake
large ones from another loop, refuses requests that exceed a minute's tokens, and does not accept another clock.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import Future, InvalidStateError
from contextlib import aclosing, asynccontextmanager, suppress

from fsm_agent._internal.structs import is_whole
from fsm_agent._internal.system import at_fork
from fsm_agent.call.effects import Request
from fsm_agent.clients.client_group import ClientGroup
from fsm_agent.context.tokens import TextTokenizer, estimated_tokens
from fsm_agent.errors import ConfigError, TimedOut
from fsm_agent.messages.events import Delta
from fsm_agent.messages.reply import Reply
from fsm_agent.runtime.environment import Client, Clock, SystemClock

PERIOD_S = 60.0
_GRAIN_S = 0.25  # requests within this time are counted together, so that a window has at most 240 entries
_MIN_NAP_S = 1e-6  # the resolution of a float of Unix time


class SteadyClock(SystemClock):
    """The system's monotonic clock.  Only differences between readings are meaningful."""

    def now(self) -> float:
        return time.monotonic()


class RateLimit:
    """A limit on requests and tokens in any 60 seconds, and on concurrent requests, in this OS process.

    Requests wait their turn in order of arrival, across event loops.  Small requests do not overtake large ones.  A
    request's tokens are estimated when it begins, and corrected once they are known.

    Args:
        requests_per_minute: The maximum number of requests that begin in any 60 seconds.
        tokens_per_minute: The maximum number of input and output tokens in any 60 seconds.  A request with a larger
            estimate waits until no tokens have been used for a minute.
        max_concurrent: The maximum number of concurrent requests; a stream counts until it is exhausted or closed.
        clock: The source of time and delays.

    Raises:
        ConfigError: If a limit is not a positive integer, or no limit is set.

    Examples:
        >>> limit = RateLimit(requests_per_minute=60, max_concurrent=4)
        >>> Agent(RateLimitedClient(Script("Hi."), limit)).call("Hello").output
        'Hi.'
    """

    def __init__(
        self,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        max_concurrent: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        limits = {
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
            "max_concurrent": max_concurrent,
        }
        self._limits = {name: limit for name, limit in limits.items() if limit is not None}
        if not self._limits:
            raise ConfigError(f"RateLimit: expected {' or '.join(limits)}, got none of them; pass one")
        for what, limit in self._limits.items():
            if not is_whole(limit, 1):
                raise ConfigError(f"{what} of RateLimit: expected a whole number of at least 1, got {limit!r:.80}")
        self._clock = clock or SteadyClock()
        self._requests = _Window(requests_per_minute) if requests_per_minute else None
        self._tokens = _Window(tokens_per_minute) if tokens_per_minute else None
        self._max_concurrent = max_concurrent
        # Reentrant, because garbage collection may close a stream, and end its reservation, while the lock is held.
        self._lock = threading.RLock()
        self._waiting = deque[Reservation]()
        self._under_way = set[Reservation]()
        _known.add(self)

    def _enter_process(self) -> None:
        """After a fork, forget the parent's requests."""
        self._lock = threading.RLock()
        self._waiting.clear()
        self._under_way.clear()

    def __repr__(self) -> str:
        return f"RateLimit({', '.join([f'{name}={limit}' for name, limit in self._limits.items()])})"

    @property
    def counts_tokens(self) -> bool:
        """True if tokens are limited, so that `charge` has an effect."""
        return self._tokens is not None

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""
        return len(self._waiting)

    @property
    def under_way(self) -> int:
        """The number of requests in progress."""
        return len(self._under_way)

    @asynccontextmanager
    async def reserve(self, tokens: int = 0, *, timeout_s: float | None = None) -> AsyncIterator[Reservation]:
        """Wait for a turn, and hold the reservation for the duration of the block.

        Args:
            tokens: The request's estimated tokens.
            timeout_s: The longest wait in seconds.  `Reservation.time_left` gives the time that is left.

        Raises:
            TimedOut: If the turn does not come in time.  The error is raised as soon as this is certain.
        """
        reservation = Reservation(tokens, timeout_s, self._clock)
        try:
            with self._lock:
                self._waiting.append(reservation)
                self._call_next()
            if not reservation.is_next.done():
                await asyncio.wait([asyncio.wrap_future(reservation.is_next)], timeout=reservation.time_left())
            while (delay_s := self._begin(reservation)) > 0:
                await self._clock.asleep(delay_s)
            yield reservation
        finally:
            with self._lock:
                self._under_way.discard(reservation)
                with suppress(ValueError):
                    self._waiting.remove(reservation)
                self._call_next()

    def _call_next(self) -> None:
        """Wake the first request in the queue if nothing but time can still delay it.

        The caller must hold the lock.
        """
        while self._waiting and self._waiting[0].is_dead:
            self._waiting.popleft()
        if self._waiting and (self._max_concurrent is None or len(self._under_way) < self._max_concurrent):
            with suppress(IndexError, InvalidStateError):  # gone, or awake already
                self._waiting[0].is_next.set_result(None)

    def _begin(self, reservation: Reservation) -> float:
        """Begin ``reservation`` and return 0 if it may begin, else return the seconds to wait before the next try."""
        with self._lock:
            if not reservation.is_next.done():
                raise self._late(reservation, None)
            now_s = self._clock.now()
            delays_s = [0.0]
            if self._requests is not None:
                delays_s.append(self._requests.delay_s(1, now_s))
            if self._tokens is not None:
                delays_s.append(self._tokens.delay_s(reservation.tokens, now_s))
            if (delay_s := max(delays_s)) > _MIN_NAP_S:
                left_s = reservation.time_left()
                if left_s is not None and delay_s > left_s:
                    raise self._late(reservation, delay_s)
                return delay_s
            if self._requests is not None:
                self._requests.add(1, now_s)
            if self._tokens is not None:
                reservation.entry = self._tokens.add(reservation.tokens, now_s)
            self._under_way.add(reservation)
            self._waiting.remove(reservation)
            self._call_next()
        return 0.0

    def _late(self, reservation: Reservation, delay_s: float | None) -> TimedOut:
        when = "" if delay_s is None else f"; the next one is allowed in {delay_s:g} s"
        return TimedOut(f"{self!r} allowed no request within {reservation.timeout_s:g} s{when}", retry_after_s=delay_s)

    def charge(self, reservation: Reservation, tokens: int) -> None:
        """Replace the estimate of ``reservation`` with the tokens that its request has used."""
        with self._lock:
            if self._tokens is not None and reservation.entry is not None:
                self._tokens.correct(reservation.entry, tokens - reservation.tokens, self._clock.now())
                reservation.tokens = tokens


class Reservation:
    """A request's place in a `RateLimit`'s queue and, once the request has begun, its share of the limit."""

    __slots__ = ("_clock", "_loop", "_started_at_s", "entry", "is_next", "timeout_s", "tokens")

    def __init__(self, tokens: int, timeout_s: float | None, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._started_at_s = clock.now()
        self.tokens = tokens
        self.timeout_s = timeout_s
        self.is_next = Future[None]()  # thread-safe, since another thread may free the turn
        self.entry: _Entry | None = None

    @property
    def is_dead(self) -> bool:
        """True if its event loop is closed, so that the request can never begin."""
        return self._loop.is_closed()

    def time_left(self) -> float | None:
        return None if self.timeout_s is None else self.timeout_s - (self._clock.now() - self._started_at_s)


class _Entry:
    """The amount that was begun within one period of `_GRAIN_S` seconds."""

    __slots__ = ("amount", "first_s", "last_s")

    def __init__(self, amount: int, at_s: float) -> None:
        self.amount = amount
        self.first_s = self.last_s = at_s


class _Window:
    """Counts the amount begun in the last 60 seconds, using bounded memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries = deque[_Entry]()
        self._total = 0

    def delay_s(self, amount: int, now_s: float) -> float:
        """Return the seconds until ``amount`` fits, or until the window is empty if it exceeds the limit."""
        self._forget(now_s)
        excess = self._total + amount - self._limit
        delay_s = 0.0
        for entry in self._entries:
            if excess <= 0:
                break
            excess -= entry.amount
            delay_s = entry.last_s + PERIOD_S - now_s
        return delay_s

    def add(self, amount: int, now_s: float) -> _Entry:
        newest = self._entries[-1] if self._entries else None
        if newest is None or now_s - newest.first_s >= _GRAIN_S:
            newest = _Entry(0, now_s)
            self._entries.append(newest)
        newest.amount += amount
        newest.last_s = max(newest.last_s, now_s)
        self._total += amount
        return newest

    def correct(self, entry: _Entry, change: int, now_s: float) -> None:
        """Correct ``entry`` by ``change``.

        An excess counts from now on, whereas unused tokens are subtracted from ``entry``.
        """
        self._forget(now_s)
        if change > 0:
            self.add(change, now_s)
        elif entry in self._entries:
            entry.amount += change
            self._total += change

    def _forget(self, now_s: float) -> None:
        while self._entries and self._entries[0].last_s + PERIOD_S - now_s <= _MIN_NAP_S:
            self._total -= self._entries.popleft().amount


def _enter_process() -> None:
    for limit in list(_known):
        limit._enter_process()


_known: weakref.WeakSet[RateLimit] = weakref.WeakSet()

at_fork(after_in_child=_enter_process)

_TOKENIZER = TextTokenizer(estimated_tokens)  # faster than the default tokenizer of `Budget`


class RateLimitedClient(ClientGroup):
    """A client whose requests wait their turn under a rate limit.

    A request's ``timeout_s`` includes the wait.  A request that does not get its turn in time fails with `TimedOut`,
    which is retryable.  A request's tokens are first estimated, at one token per four characters and 1,000 per image,
    and then corrected by the usage in the reply.

    Args:
        client: The client to limit, or a model as ``provider:model``.  It is closed when this client is closed.
        limit: The limit, which can be shared by clients for the same account.

    Examples:
        >>> limit = RateLimit(requests_per_minute=60)
        >>> Agent(RateLimitedClient(Script("Hi."), limit)).call("Hello").output
        'Hi.'
    """

    def __init__(self, client: Client | str, limit: RateLimit) -> None:
        super().__init__([client])
        (self._client,) = self._clients
        self._limit = limit

    @property
    def name(self) -> str:
        """The name of the limited client."""
        return self._client.name

    def __repr__(self) -> str:
        return f"<RateLimitedClient {self.name!r} {self._limit!r}>"

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Wait for a turn, and return the reply to ``request``.

        Raises:
            ProviderError: If the request failed, or did not get its turn in time.
        """
        async with self._limit.reserve(self._estimate(request), timeout_s=timeout_s) as reservation:
            return self._charge(reservation, await self._client.acomplete(request, timeout_s=reservation.time_left()))

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """Wait for a turn, and yield the reply as it arrives."""
        async with (
            self._limit.reserve(self._estimate(request), timeout_s=timeout_s) as reservation,
            aclosing(self._client.astream(request, timeout_s=reservation.time_left())) as items,
        ):
            async for item in items:
                yield self._charge(reservation, item) if isinstance(item, Reply) else item

    def _estimate(self, request: Request) -> int:
        return _TOKENIZER.count(request) if self._limit.counts_tokens else 0

    def _charge(self, reservation: Reservation, reply: Reply) -> Reply:
        used = reply.usage.total_tokens or reservation.tokens + _TOKENIZER.count(Request(messages=(reply.message,)))
        self._limit.charge(reservation, used)
        return reply

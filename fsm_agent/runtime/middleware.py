"""Middleware for functions: a rate limit and a cache.

Middleware is any callable ``(call, next) -> result``.  It may inspect or change the call, withhold it, or change the
result.  For a coroutine function, the middleware's ``acall`` is used if it has one, and ``next`` must be awaited.
Functions that share a middleware object share its state.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from threading import Lock
from typing import Any

from fsm_agent._internal.structs import is_amount, is_whole
from fsm_agent.call.rounds import fingerprint
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import FunctionCall
from fsm_agent.runtime.environment import Clock, SystemClock
from fsm_agent.runtime.run_function import current_run

_CLOCK = SystemClock()
_NOTHING = object()


class Throttle:
    """Middleware that starts at most ``calls`` calls in any ``per_s`` seconds.  Other calls wait their turn.

    Args:
        calls: The maximum number of calls that start in any period of ``per_s`` seconds.
        per_s: The length of the period, in seconds.

    Raises:
        UsageError: If an argument is not a number above 0.

    Examples:
        >>> @function(middleware=(Throttle(calls=5, per_s=1.0),))
        ... def look() -> str:
        ...     "Look."
        ...     return "found"
        >>> Agent(Script(function_call("look"), "Found."), functions=[look]).call("Look.").output
        'Found.'
    """

    def __init__(self, calls: int, per_s: float = 1.0) -> None:
        if not is_whole(calls, 1) or not is_amount(per_s) or per_s <= 0:
            given = f"Throttle({calls!r:.80}, per_s={per_s!r:.80})"
            raise UsageError(f"Throttle: expected one call or more, and seconds above 0, got {given}")
        self.per_s = per_s
        self._begins: deque[float] = deque(maxlen=calls)
        self._lock = Lock()

    def __call__(self, call: FunctionCall, following: Callable[[FunctionCall], Any]) -> Any:
        clock = _clock()
        if delay_s := self._delay_s(clock):
            clock.sleep(delay_s)
        return following(call)

    async def acall(self, call: FunctionCall, following: Callable[[FunctionCall], Awaitable[Any]]) -> Any:
        """Call a coroutine function under the limit."""
        clock = _clock()
        if delay_s := self._delay_s(clock):
            await clock.asleep(delay_s)
        return await following(call)

    def _delay_s(self, clock: Clock) -> float:
        """Reserve the next turn, and return the seconds until it."""
        with self._lock:
            now = begin = clock.now()
            if len(self._begins) == self._begins.maxlen:
                begin = max(now, self._begins[0] + self.per_s)
            self._begins.append(begin)
        return begin - now


class Cache:
    """Middleware that caches results: an identical call within ``ttl_s`` seconds gets the cached result.

    Exceptions are not cached.

    Args:
        ttl_s: How long a result is valid, in seconds.
        size: The maximum number of results to keep; the least recently used is dropped first.

    Raises:
        UsageError: If an argument is not a number above 0.

    Examples:
        >>> calls = []
        >>> @function(middleware=(Cache(ttl_s=60),), repeatable=True)
        ... def stock(item: str) -> int:
        ...     "How many there are."
        ...     calls.append(item)
        ...     return 3
        >>> asked = function_call("stock", item="lamp")
        >>> agent = Agent(Script(asked, "3", asked, "3"), functions=[stock])
        >>> agent.call("How many?").output, agent.call("How many?").output, len(calls)
        ('3', '3', 1)
    """

    def __init__(self, ttl_s: float, *, size: int = 1000) -> None:
        if not is_amount(ttl_s) or ttl_s <= 0 or not is_whole(size, 1):
            given = f"Cache({ttl_s!r:.80}, size={size!r:.80})"
            raise UsageError(f"Cache: expected seconds above 0, and one result or more, got {given}")
        self.ttl_s = ttl_s
        self.size = size
        self._results: OrderedDict[str, tuple[float, Any]] = OrderedDict()
        self._lock = Lock()

    def __call__(self, call: FunctionCall, following: Callable[[FunctionCall], Any]) -> Any:
        value = self._find_result(call)
        if value is not _NOTHING:
            return value
        value = following(call)
        return self._store_awaited(call, value) if inspect.isawaitable(value) else self._store_result(call, value)

    async def acall(self, call: FunctionCall, following: Callable[[FunctionCall], Awaitable[Any]]) -> Any:
        """Call a coroutine function, or return its cached result."""
        value = self._find_result(call)
        return await self._store_awaited(call, following(call)) if value is _NOTHING else value

    async def _store_awaited(self, call: FunctionCall, value: Awaitable[Any]) -> Any:
        return self._store_result(call, await value)

    def _find_result(self, call: FunctionCall) -> Any:
        mark = fingerprint(call)  # not the execution's fingerprint: outer middleware may have changed the call
        with self._lock:
            until_s, value = self._results.get(mark, (0.0, _NOTHING))
            if value is _NOTHING or until_s <= _clock().now():
                return _NOTHING
            self._results.move_to_end(mark)
        if run := current_run():
            run.is_cached = True
        return value

    def _store_result(self, call: FunctionCall, value: Any) -> Any:
        mark = fingerprint(call)
        with self._lock:
            self._results[mark] = _clock().now() + self.ttl_s, value
            self._results.move_to_end(mark)
            if len(self._results) > self.size:
                self._results.popitem(last=False)
        return value


def _clock() -> Clock:
    run = current_run()
    return run.environment.clock if run else _CLOCK

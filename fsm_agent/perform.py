"""How does an effect become an outcome?"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from fsm_agent.deferred import deferred
from fsm_agent.effects import CallModel
from fsm_agent.errors import ProviderError, TimedOut, UsageError
from fsm_agent.key_patterns import KEY_LIKE
from fsm_agent.messages import FunctionCall
from fsm_agent.outcomes import Approved, Begun, Denied, ModelFailed, Modified
from fsm_agent.reading import error_text
from fsm_agent.result_pipeline import ResultPipeline
from fsm_agent.values import frozen, maker

if TYPE_CHECKING:  # httpx is loaded when a client is made
    import asyncio
    import random

    import tenacity
    from tenacity.wait import wait_base

    from fsm_agent.client import Client
else:
    asyncio, random, tenacity = deferred("asyncio"), deferred("random"), deferred("tenacity")

MAX_SHOWN_CHARS = 200  # of what others said

Verdict: TypeAlias = bool | Approved | Modified | Denied | None  # None: nobody here can say
Approve: TypeAlias = Callable[[FunctionCall], Verdict | Awaitable[Verdict]]


class Clock(Protocol):
    """Where the time comes from; tests have one of their own."""

    def now(self) -> float:
        """Unix time in seconds."""

    def sleep(self, delay_s: float) -> None:
        """Wait in this thread."""

    async def asleep(self, delay_s: float) -> None:
        """Wait in this task."""


class SystemClock:
    """The machine's own."""

    now = staticmethod(time.time)
    sleep = staticmethod(time.sleep)

    async def asleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


def _new_id() -> str:
    return os.urandom(8).hex()


def _backoff() -> wait_base:
    return tenacity.wait_exponential(multiplier=0.5, max=30) + tenacity.wait_random(0, 0.5)


@frozen(kw_only=True, slots=False)
class World:
    """What performs the effects of a call.

    Args:
        client: Asks the model.
        clock: Tells the time and waits.
        approve: Says whether a function that needs approval may be called; without one, or when it returns
            None, the call is suspended.  May be a coroutine function under the asyncio driver.
        backoff: How long to wait before a recall, when the provider does not say: a `tenacity` wait.
        threads: How many plain functions run at once, each in a thread; 0: one after another, under the sync
            driver in its own thread.  One that is alone in its round runs there too, unless there is a deadline.
        new_id: Names a call.
        random: Numbers from 0 to 1, for the jitter of waits.
        results: What is done to what functions return before the model is told.
    """

    client: Client
    clock: Clock = field(default_factory=SystemClock)
    approve: Approve | None = None
    backoff: wait_base = field(default_factory=_backoff)
    threads: int = 16
    new_id: Callable[[], str] = _new_id
    random: Callable[[], float] = field(default_factory=lambda: random.random)
    results: ResultPipeline | None = None

    @classmethod
    def of(cls, client: Client, **changes: Any) -> World:
        """A world with this client; one that is a double for tests brings its own clock."""
        return cls(client=client, **{**getattr(client, "world_defaults", {}), **changes})


_make_begun = maker(Begun)


def begin(world: World) -> Begun:
    """Name the call and tell it the time."""
    return _make_begun(at_s=world.clock.now(), id=world.new_id())


def transport_failure(error: Exception) -> ProviderError | None:
    """Return what an exception of a client means for the call; None: it is a bug, and nothing that waiting cures.

    A client of the user's own raises what its library does: `OSError`, whose kinds are `ConnectionError` and
    `TimeoutError` (asyncio's, too), or an `httpx.TransportError`.  Both may be gone the next time.
    """
    if isinstance(error, ProviderError):
        return error
    httpx = sys.modules.get("httpx")  # what is not loaded has raised nothing
    if not isinstance(error, (OSError, getattr(httpx, "TransportError", OSError))):
        return None
    is_late = isinstance(error, (TimeoutError, getattr(httpx, "TimeoutException", TimeoutError)))
    text = KEY_LIKE.sub("***", error_text(error))[:MAX_SHOWN_CHARS]
    what = ": ".join(filter(None, ["the client failed", type(error).__name__, text]))
    failure = (TimedOut if is_late else ProviderError)(what, retryable=True)
    failure.__cause__ = error
    return failure


def model_failed(effect: CallModel, error: ProviderError, world: World) -> ModelFailed:
    """What a failed request means: the error, and how long to wait before the next."""
    delay_s = error.retry_after_s
    if delay_s is None:
        state = tenacity.RetryCallState(cast("Any", None), None, (), {})
        state.attempt_number = effect.attempt
        delay_s = world.backoff(state)
    return ModelFailed(error=error.report(), delay_s=delay_s, at_s=world.clock.now())


def decided(verdict: Any, call: FunctionCall, world: World) -> Approved | Modified | Denied | None:
    """What an approver's verdict means; None: the call is suspended."""
    if verdict is None or isinstance(verdict, Approved | Modified | Denied):
        return verdict
    if isinstance(verdict, bool):
        return Approved(at_s=world.clock.now()) if verdict else Denied(at_s=world.clock.now())
    raise UsageError(f"approve({call.name}) returned {verdict!r}: True, False, Approved(), Denied(…) or None is right")

"""How does an effect become an outcome?"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, closing
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from fsm_agent.approval import context_of
from fsm_agent.call import AgentCall
from fsm_agent.contexts import Context, accepts_context
from fsm_agent.deferred import deferred
from fsm_agent.effects import AskApproval, CallModel
from fsm_agent.errors import ProviderError, TimedOut, UsageError
from fsm_agent.events import Delta
from fsm_agent.messages import FunctionCall
from fsm_agent.outcomes import Approved, Begun, Denied, ModelFailed, Modified, Replied
from fsm_agent.reading import error_text
from fsm_agent.redaction import mask_keys
from fsm_agent.replies import Reply
from fsm_agent.result_pipeline import ResultPipeline
from fsm_agent.threads import on_abandon
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
Approve: TypeAlias = (
    Callable[[FunctionCall], Verdict | Awaitable[Verdict]]
    | Callable[[FunctionCall, Context[Any]], Verdict | Awaitable[Verdict]]
)


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

    def sleep(self, delay_s: float) -> None:
        """Wait in this thread, unless it is left behind."""
        is_abandoned = threading.Event()
        with on_abandon(is_abandoned.set):
            is_abandoned.wait(delay_s)

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
        approve: The approver: called with each function call that waits for approval, and with its `Context` when
            it takes one; may be a coroutine function.  Without one, or when it returns None, the call is suspended.
            It is asked about every function of the calls that are made with ``has_approver=True``, as an `Agent`
            makes them; of others, only about the functions that require approval.
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
    asks_with_context: bool = field(init=False, repr=False)  # the approver takes one

    def __post_init__(self) -> None:
        asks_with = self.approve is not None and accepts_context(self.approve, "approve")
        object.__setattr__(self, "asks_with_context", asks_with)

    @classmethod
    def of(cls, client: Client, **changes: Any) -> World:
        """A world with this client; one that is a double for tests brings its own clock."""
        return cls(client=client, **{**getattr(client, "world_defaults", {}), **changes})


_make_begun, _make_replied = maker(Begun), maker(Replied)


def begin(world: World) -> Begun:
    """Name the call and tell it the time."""
    return _make_begun(at_s=world.clock.now(), id=world.new_id())


def ask_model(effect: CallModel, world: World, timeout_s: float | None) -> Replied | ModelFailed:
    """Ask the model in this thread."""
    try:
        reply = world.client.complete(effect.request, timeout_s=timeout_s)
    except Exception as error:
        return _failed(effect, error, world)
    return _replied(reply, "complete", world)


async def ask_model_async(effect: CallModel, world: World, timeout_s: float | None) -> Replied | ModelFailed:
    """Ask the model in this task."""
    try:
        reply = await world.client.acomplete(effect.request, timeout_s=timeout_s)
    except Exception as error:
        return _failed(effect, error, world)
    return _replied(reply, "acomplete", world)


def stream_model(
    effect: CallModel, world: World, timeout_s: float | None
) -> Generator[Delta, None, Replied | ModelFailed]:
    """Ask the model in this thread; yield its deltas and return what came of it."""
    reply: Reply | None = None
    try:
        with closing(world.client.stream(effect.request, timeout_s=timeout_s)) as items:
            for item in items:
                if isinstance(item, Reply):
                    reply = item
                else:
                    yield item
    except Exception as error:
        return _failed(effect, error, world)
    return _replied(reply, "stream", world)


async def stream_model_async(
    effect: CallModel, world: World, timeout_s: float | None
) -> AsyncGenerator[Delta | Replied | ModelFailed]:
    """Ask the model in this task; yield its deltas, and last what came of it."""
    reply: Reply | None = None
    try:
        async with aclosing(world.client.astream(effect.request, timeout_s=timeout_s)) as items:
            async for item in items:
                if isinstance(item, Reply):
                    reply = item
                else:
                    yield item
    except Exception as error:
        yield _failed(effect, error, world)
        return
    yield _replied(reply, "astream", world)


def _failed(effect: CallModel, error: Exception, world: World) -> ModelFailed:
    """Return what it means for the call that the client raised; raise what has to go through."""
    if (failure := transport_failure(error)) is None:
        raise error
    return model_failed(effect, failure, world)


def _replied(reply: Any, method: str, world: World) -> Replied:
    if type(reply) is not Reply:
        what = f"{method}() of the client {getattr(world.client, 'name', world.client)!r} ended with {reply!r:.80}"
        raise UsageError(f"{what}: a Reply would be right")
    return _make_replied(reply=reply, at_s=world.clock.now())


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
    text = mask_keys(error_text(error))[:MAX_SHOWN_CHARS]
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
    report = error.report()
    report = replace(report, model=report.model or world.client.name)
    return ModelFailed(error=report, delay_s=delay_s, at_s=world.clock.now())


def consulted(call: AgentCall, ask: AskApproval, world: World) -> Any:
    """Return what the approver says of a function call, or an awaitable of that; None when there is no approver."""
    approve: Callable[..., Any] | None = world.approve
    if approve is None:
        return None
    if world.asks_with_context:
        return approve(ask.call, context_of(ask.call, call.record, call.deps))
    return approve(ask.call)


def decided(verdict: Any, call: FunctionCall, world: World) -> Approved | Modified | Denied | None:
    """Return what an approver's verdict means; None: the call is suspended.

    Raises:
        UsageError: It means nothing.
    """
    if verdict is None or isinstance(verdict, Approved | Modified | Denied):
        return verdict
    if isinstance(verdict, bool):
        return Approved(at_s=world.clock.now()) if verdict else Denied(at_s=world.clock.now())
    raise UsageError(f"approve({call.name}) returned {verdict!r}: True, False, Approved(), Denied(…) or None is right")

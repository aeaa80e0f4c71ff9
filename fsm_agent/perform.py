"""How does an effect become an outcome?"""

from __future__ import annotations

import asyncio
import inspect
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from tenacity import RetryCallState, wait_exponential, wait_random
from tenacity.wait import wait_base

from fsm_agent.effects import CallModel, RunFunction
from fsm_agent.errors import ProviderError, UsageError
from fsm_agent.functions import result_text
from fsm_agent.messages import FunctionCall
from fsm_agent.outcomes import Approved, Begun, Denied, ModelFailed, Returned
from fsm_agent.threads import Child, run_coroutine

if TYPE_CHECKING:  # httpx is loaded when a client is made
    from fsm_agent.client import Client

Verdict: TypeAlias = bool | Approved | Denied | None  # None: nobody here can say
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

    def now(self) -> float:
        return time.time()

    def sleep(self, delay_s: float) -> None:
        time.sleep(delay_s)

    async def asleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


def _new_id() -> str:
    return secrets.token_hex(8)


@dataclass(frozen=True, kw_only=True)
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
    """

    client: Client
    clock: Clock = field(default_factory=SystemClock)
    approve: Approve | None = None
    backoff: wait_base = field(default_factory=lambda: wait_exponential(multiplier=0.5, max=30) + wait_random(0, 0.5))
    threads: int = 16
    new_id: Callable[[], str] = _new_id

    @classmethod
    def of(cls, client: Client, **changes: Any) -> World:
        """A world with this client; one that is a double for tests brings its own clock."""
        return cls(client=client, **{**getattr(client, "world_defaults", {}), **changes})


_depth: ContextVar[int] = ContextVar("fsm_agent_depth", default=0)


def current_depth() -> int:
    """How many agent calls the running code is inside of."""
    return _depth.get()


@contextmanager
def _inside(depth: int) -> Iterator[None]:
    token = _depth.set(depth)
    try:
        yield
    finally:
        _depth.reset(token)


def begin(world: World) -> Begun:
    """Name the call and tell it the time."""
    return Begun(at_s=world.clock.now(), id=world.new_id())


def model_failed(effect: CallModel, error: ProviderError, world: World) -> ModelFailed:
    """What a failed request means: the error, and how long to wait before the next."""
    delay_s = error.retry_after_s
    if delay_s is None:
        state = RetryCallState(cast("Any", None), None, (), {})
        state.attempt_number = effect.attempt
        delay_s = world.backoff(state)
    return ModelFailed(error=error.report(), delay_s=delay_s, at_s=world.clock.now())


def run_function(effect: RunFunction, depth: int, world: World, child: Child[Any] | None = None) -> Returned:
    """Run a function here and now; a coroutine function in a loop of its own.

    What it raises is told to the model; `KeyboardInterrupt` and its like go on to the driver.
    """
    with _inside(depth):
        try:
            value = effect.function.run(effect.call.arguments_json)
            if inspect.isawaitable(value):
                waiting = _awaited(value)
                value = child.run_coroutine(waiting) if child else run_coroutine(waiting)
            return Returned(text=result_text(value), at_s=world.clock.now())
        except Exception as error:
            return raised(error, world)


async def arun_function(effect: RunFunction, depth: int, world: World) -> Returned:
    """Run a function in this task; a plain one in a thread, unless it says that it does not block."""
    function = effect.function
    if function.blocking and not function.is_async:  # answered in the thread: no future can hold a StopIteration
        return await asyncio.wrap_future(Child[Returned](partial(run_function, effect, depth, world)).future)
    with _inside(depth):
        try:
            value = function.run(effect.call.arguments_json)
            if inspect.isawaitable(value):
                value = await _awaited(value)
            return Returned(text=result_text(value), at_s=world.clock.now())
        except Exception as error:
            return raised(error, world)


async def _awaited(value: Awaitable[Any]) -> Any:
    """What comes of it; a cancellation that nobody here asked for is an error of the function."""
    try:
        return await value
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) and task.cancelling():
            raise
        raise RuntimeError("what the function waited for was cancelled") from error


def raised(error: Exception, world: World) -> Returned:
    """What the model is told of an exception: its type and text, not where it came from."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Returned(text=text, is_error=True, at_s=world.clock.now())


def decided(verdict: Any, call: FunctionCall, world: World) -> Approved | Denied | None:
    """What an approver's verdict means; None: the call is suspended."""
    if verdict is None or isinstance(verdict, Approved | Denied):
        return verdict
    if isinstance(verdict, bool):
        return Approved(at_s=world.clock.now()) if verdict else Denied(at_s=world.clock.now())
    raise UsageError(f"approve({call.name}) returned {verdict!r}: True, False, Approved(), Denied(…) or None is right")

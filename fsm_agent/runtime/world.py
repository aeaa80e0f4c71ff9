"""The world of an agent call: its client, clock, approver and source of ids."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from msgspec import field
from typing_extensions import TypeVar

from fsm_agent._internal.values import Value
from fsm_agent.call.budget import Prices
from fsm_agent.call.effects import Request
from fsm_agent.call.outcomes import Approved, Denied, Modified
from fsm_agent.errors import ProviderError
from fsm_agent.functions.context import Context, accepts_context
from fsm_agent.messages.events import Delta
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import Reply
from fsm_agent.runtime.abort import abort_in_force
from fsm_agent.runtime.price_list import PriceList, models_of
from fsm_agent.runtime.result_pipeline import ResultPipeline

if TYPE_CHECKING:
    from tenacity import RetryCallState
    from tenacity.wait import wait_base


Deps = TypeVar("Deps", default=Any)
Verdict: TypeAlias = bool | Approved | Modified | Denied | None  # None: no decision here, so the call is suspended
Approve: TypeAlias = (
    Callable[[FunctionCall], Verdict | Awaitable[Verdict]]
    | Callable[[FunctionCall, Context[Deps]], Verdict | Awaitable[Verdict]]
)

Out = TypeVar("Out", default=Any)
# Judges an answer: returns the output, or raises `Retry`; see `Agent`.
Check: TypeAlias = Callable[[Out], Out | Awaitable[Out]] | Callable[[Out, Context[Deps]], Out | Awaitable[Out]]


class Client(Protocol):
    """A client of one model: what agents ask.  Every failure of a request is a `ProviderError`.

    Those of this package are `SyncVerbs`, too, and have `complete` and `stream` for plain code.  ``timeout_s`` bounds
    the request as a whole.  A client may have two more attributes: ``takes_images = False`` if its model takes no
    images, and ``reports_logprobs = False`` if it cannot report log probabilities.

    Examples:
        >>> client: Client = client_for("openai:gpt-5-mini", api_key="sk-example")
        >>> client.name
        'openai:gpt-5-mini'
    """

    @property
    def name(self) -> str:
        """The model, as ``provider:model``."""

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return the reply to ``request``."""

    def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """Yield the reply as it arrives: deltas, then exactly one `Reply`, last.  Close it to stop early."""

    def close(self) -> None:
        """Close all connections."""

    async def aclose(self) -> None:
        """`close` for asyncio."""


class Clock(Protocol):
    """The source of time; tests pass their own.

    Examples:
        >>> from fsm_agent.testing import FakeClock
        >>> clock: Clock = FakeClock()
        >>> clock.sleep(60)
        >>> clock.sleeps
        [60]
    """

    def now(self) -> float:
        """Return Unix time in seconds."""

    def sleep(self, delay_s: float) -> None:
        """Wait in this thread."""

    async def asleep(self, delay_s: float) -> None:
        """Wait in this task."""


def lasting(clock: Clock) -> Clock:
    """Return the clock for a run that outlives the OS process: this one, or what a clock of tests gives way to.

    Raises:
        UsageError: A test has asked for its clock, and no other.
    """
    give_way: Callable[[], Clock] | None = getattr(clock, "give_way", None)
    return clock if give_way is None else give_way()


class SystemClock:
    """The system's clock.

    Examples:
        >>> SystemClock().now() > 1_700_000_000
        True
    """

    now = staticmethod(time.time)

    def sleep(self, delay_s: float) -> None:
        """Wait in this thread, at most until it is left behind."""
        if (abort := abort_in_force()) is None:
            time.sleep(delay_s)
            return
        is_over = threading.Event()
        abort.add(is_over.set)
        try:
            is_over.wait(delay_s)
        finally:
            abort.discard(is_over.set)

    async def asleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


def _new_id() -> str:
    return os.urandom(8).hex()


class World(Value, frozen=True, kw_only=True, dict=True):
    """The resources with which the effects of a call are performed.

    Args:
        client: Sends requests to the model.
        clock: Returns the time and waits.
        approve: The approver: called with each function call that waits for approval, and with its `Context` when
            it takes one; may be a coroutine function.  Without one, or when it returns None, the call is suspended.
            It is asked about every function of the calls that are made with ``has_approver=True``, as an `Agent`
            makes them; of others, only about the functions that require approval.
        backoff: How long to wait before a recall when the provider does not specify it: a wait of `tenacity`.  None:
            ``wait_exponential(max=60)``, multiplied by a number of ``random``.
        threads: How many plain functions run at once, each in a thread; 0: one after another.  Under the sync driver, a
            lone function runs without a thread if nothing could end the wait for it.
        new_id: Returns the id of a new call.
        random: Returns numbers from 0 to 1, for the jitter of waits.
        prices: The price of tokens: a `Price`, or a mapping of prices by the model's name in a reply or by the client's
            name, with ``"*"`` for all others.  Replies then have their cost in their `Usage`.  None: only replies of
            calls with a budget in dollars have, by the known prices.
        results: The pipeline that results of functions pass before the model sees them.
        name: The name of the agent or flow, for observers that measure what it does.

    Examples:
        >>> world = World(client=Script("Hi."))
        >>> asked = AgentCall.seed(Dialog().put("Hello"), Prompt("{{ task }}"))
        >>> run(asked, world).state
        <State.COMPLETED: 'Completed'>
    """

    client: Client
    clock: Clock = field(default_factory=SystemClock)
    approve: Approve | None = None
    backoff: wait_base | None = None
    threads: int = 16
    new_id: Callable[[], str] = _new_id
    random: Callable[[], float] = field(default_factory=lambda: random.random)
    results: ResultPipeline | None = None
    prices: Prices | None = None
    name: str = ""

    def __post_init__(self) -> None:
        _ = self.asks_with_context  # raises for an approver with other parameters

    @cached_property
    def asks_with_context(self) -> bool:
        """True if the approver takes a `Context`."""
        return self.approve is not None and accepts_context(self.approve, "approve")

    @cached_property
    def price_list(self) -> PriceList:
        """The prices of the client's models."""
        return PriceList(self.prices, models_of(self.client))

    def delay_s(self, attempt: int, error: ProviderError) -> float:
        """Return the delay before the next attempt at the model, if the provider does not specify it.

        Args:
            attempt: The number of the attempt that failed, from 1.
            error: Its failure.
        """
        if self.backoff is None:
            return doubled_s(1, 60, attempt) * self.random()  # full jitter: callers do not return at the same time
        return delay_s(self.backoff, attempt, error)

    @classmethod
    def of(cls, client: Client, **changes: Any) -> World:
        """Return a world with this client; a test double brings its own clock."""
        return cls(client=client, **{**getattr(client, "world_defaults", {}), **changes})


def doubled_s(first_s: float, most_s: float, attempt: int) -> float:
    """Return the delay after the failure of an attempt, counted from 1: it doubles up to a maximum."""
    return min(first_s * 2.0 ** min(attempt - 1, 1000), most_s)


def delay_s(wait: Callable[[RetryCallState], float], attempt: int, error: Exception) -> float:
    """Return the delay of a wait of `tenacity` after the failure of an attempt, counted from 1."""
    from tenacity import RetryCallState

    state = RetryCallState(cast("Any", None), None, (), {})
    state.attempt_number = attempt
    state.set_exception((type(error), error, None))
    return float(wait(state))

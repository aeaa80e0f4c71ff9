"""The resources for a call (such as its client, clock and approver), and the protocol for its recorder."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import field
from typing_extensions import TypeVar

from fsm_agent._internal.structs import Value
from fsm_agent.call.effects import Request
from fsm_agent.call.outcomes import Approved, Denied, Modified
from fsm_agent.call.prices import PriceList, Prices
from fsm_agent.call.process import SEPARATOR, EffectValue
from fsm_agent.errors import OutcomeError
from fsm_agent.functions.context import Context, accepts_context
from fsm_agent.messages.events import Delta, Question
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import Reply
from fsm_agent.runtime.portal import abort_in_force
from fsm_agent.runtime.result_pipeline import ResultPipeline

if TYPE_CHECKING:
    from fsm_agent.runtime.drive_loop import Driver


def models_of(client: Any) -> tuple[str, ...]:
    """Return the names of the models that a client may ask.  A client with fallbacks may ask several."""
    models: tuple[str, ...] | None = getattr(client, "models", None)
    return (str(getattr(client, "name", client)),) if models is None else models


class PostedOutcome(Value, frozen=True):
    """An outcome that someone has posted to a run, for its driver to take."""

    id: int
    key: str
    document: str  # the outcome as JSON, for `Process.decode`
    by: str  # who posted it, for display


class Recorder(Protocol):
    """Writes the journal during one drive of a process.

    Attributes:
        run: The name of the run.
        lost: The error to raise because another holder has claimed the run, or None if it has not been lost.
        patience_s: The longest wait in seconds.  Before a longer wait, the run is released.  None means no limit.
        rests_for_people: True to release the run as soon as it waits for a person, so that others see the question.
        is_lasting: True if the run outlives the OS process, and therefore must not use a test's clock.
        is_instant: True if `write` never blocks.
        redact: A function that returns an outcome without its secrets, or None to store outcomes unchanged.
        signals: Posted outcomes for the driver to take.  Any thread may add to them.
        unread: The number of posts that the driver leaves to a later driver.  They do not make the run due.
    """

    @property
    def run(self) -> str: ...

    @property
    def lost(self) -> Exception | None: ...

    patience_s: float | None
    rests_for_people: bool
    is_lasting: bool
    is_instant: bool
    redact: Callable[[Any], Any] | None
    signals: deque[PostedOutcome]
    unread: int

    @property
    def is_behind(self) -> bool:
        """True if the driver has to write before it continues, or if the run was lost."""

    def attach(self, driver: Driver) -> None:
        """Start renewing the lease and waking the driver for posts."""

    def detach(self) -> None:
        """Undo `attach`."""

    def ask(self, questions: Sequence[Question]) -> None:
        """From the next write on, show these questions to others while the run is being driven."""

    def mark_taken(self, post: PostedOutcome, error: Exception | None = None) -> None:
        """Record that a post was taken, or that it was refused with an error, which is logged."""

    def mark_used(self, posts: Iterable[int]) -> None:
        """Remove the posts with these ids in the next write."""

    def keep(self, key: str, outcome: Any) -> None:
        """Keep an outcome for the next driver, because a guard or an action raised an exception when handling it."""

    def report_later(self, key: str, future: Any) -> None:
        """Post a function's outcome once its future is done, even though the run has been lost."""

    def finish(self, *, is_stopped: bool, raised: object = None) -> None:
        """Release the run with the next write, unless it has already been released.

        Args:
            is_stopped: True if the driver was stopped.  The run is then due at once.
            raised: The exception that ended the drive.
        """

    def write(self) -> None:
        """Write the new entries to disk.

        Raises:
            StoreError: If the lease was lost, or the store failed.
        """

    def submit(self) -> Future[Any] | None:
        """Begin a write without blocking.

        Return a future to pass to `complete_write`, or None if the write is done.
        """

    def complete_write(self, future: Future[Any]) -> Future[Any] | None:
        """Take the result of a future from `submit`.  Return another future, or None if there is nothing more to write.

        Raises:
            StoreError: If the lease was lost, or the store failed.
        """


class PostsInside:
    """The posted outcomes for runs that functions have begun.  Each is kept until its run has taken it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._posts: list[PostedOutcome] = []

    def keep(self, post: PostedOutcome, effects: Iterable[EffectValue]) -> str | None:
        """Keep a post if it is for a run that one of these effects has begun.

        Return the key of that effect, or None if there is no such run.
        """
        if SEPARATOR not in post.key:
            return None
        function = next((effect.key for effect in effects if post.key.startswith(f"{effect.key}{SEPARATOR}")), None)
        if function is not None:
            self._posts.append(post)
        return function

    def of(self, function: str) -> list[PostedOutcome]:
        """Return the posts for runs that the function with this key has begun."""
        return [post for post in self._posts if post.key.startswith(f"{function}{SEPARATOR}")]

    def remove(self, posts: Collection[PostedOutcome]) -> None:
        """Remove posts that runs have taken or will never take."""
        if posts:
            self._posts = [post for post in self._posts if post not in posts]
            self._recorder.mark_used([post.id for post in posts])

    def refuse(self) -> None:
        """Reject all remaining posts, because the drive has ended."""
        for post in self._posts:
            self._recorder.mark_taken(post, OutcomeError(f"no nested run asks {post.key!r} any longer"))


Deps = TypeVar("Deps", default=Any)
Verdict: TypeAlias = bool | Approved | Modified | Denied | None  # None: no decision here, so the call is suspended
Approve: TypeAlias = (
    Callable[[FunctionCall], Verdict | Awaitable[Verdict]]
    | Callable[[FunctionCall, Context[Deps]], Verdict | Awaitable[Verdict]]
)

Out = TypeVar("Out", default=Any)
# Judges an answer: returns the output or raises `Retry`; see `Agent`.
Check: TypeAlias = Callable[[Out], Out | Awaitable[Out]] | Callable[[Out, Context[Deps]], Out | Awaitable[Out]]


class Client(Protocol):
    """A client for one model.  Every failed request raises a `ProviderError`.

    ``timeout_s`` limits the whole request.  Two attributes are optional: ``takes_images = False`` if the model accepts
    no images, and ``reports_logprobs = False`` if it cannot report log probabilities.  This package's clients also have
    the sync methods of `SyncVerbs`.

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
        """Yield the reply as it arrives: deltas, then exactly one `Reply`.  Close the generator to stop early."""

    def close(self) -> None:
        """Close all connections."""

    async def aclose(self) -> None:
        """The async version of `close`."""


class Clock(Protocol):
    """The source of time.  Tests pass their own.

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


S = TypeVar("S")


def lasting(source: S) -> S:
    """Return the clock, or the function that makes ids, for a run that outlives the OS process.

    The system's clock replaces a test's default clock, and random ids replace a test's numbers.

    Raises:
        UsageError: If a test has set the clock itself.
    """
    give_way: Callable[[], S] | None = getattr(source, "give_way", None)
    return source if give_way is None else give_way()


class SystemClock:
    """The system's clock.

    Examples:
        >>> SystemClock().now() > 1_700_000_000
        True
    """

    now = staticmethod(time.time)

    def sleep(self, delay_s: float) -> None:
        """Wait in this thread until the delay is over or the thread is abandoned."""
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


def random_id() -> str:
    """Return a random id."""
    return os.urandom(8).hex()


class Environment(Value, frozen=True, kw_only=True, dict=True):
    """The resources for the effects of a call.

    Args:
        client: The client that sends requests to the model.
        clock: The source of time, which is also used for waiting.
        approve: A plain or coroutine function that decides on each function call that is waiting for approval.  It is
            called with the function call and, if it takes a second argument, a `Context`.  If there is no approver or
            it returns None, the call is suspended.  Calls with ``has_approver=True``, such as those of an `Agent` with
            an approver, ask about every function.  Other calls ask only about functions that require approval.
        backoff: The delay before a retry, as a `tenacity` wait, if the provider specifies none.  By default, it is
            ``wait_exponential(max=60)``, multiplied by a number from ``random``.
        threads: The number of plain functions that may run at once, each in a thread; with 0, they run one after
            another.
        new_id: A function that returns the id for a new call.
        random: A function that returns a number from 0 to 1, for the jitter in waits.
        prices: The prices of tokens: a `Price`, or a mapping from model names (as in replies) or client names to
            prices, with ``"*"`` for all others.  A reply's `Usage` then includes the cost.  By default, only calls with
            a budget in dollars have costs, which are computed from the known prices.
        results: The pipeline that changes function results before the model sees them.
        name: The name of the agent or flow, for observers.

    Examples:
        >>> environment = Environment(client=Script("Hi."))
        >>> asked = AgentCall.seed(Dialog().put("Hello"), Prompt("{{ task }}"))
        >>> run(asked, environment).state
        <State.COMPLETED: 'Completed'>
    """

    client: Client
    clock: Clock = field(default_factory=SystemClock)
    approve: Approve | None = None
    backoff: Callable[[Any], float] | None = None
    threads: int = 16
    new_id: Callable[[], str] = random_id
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
        """The prices for the client's models."""
        return PriceList(self.prices, models_of(self.client))

    @classmethod
    def of(cls, client: Client, **changes: Any) -> Environment:
        """Return an environment with this client and its defaults, such as a test double's clock."""
        return cls(client=client, **{**getattr(client, "environment_defaults", {}), **changes})

"""The resources of a call: client, clock, approver, ids, prices and delays; the protocol of its recorder."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import field
from typing_extensions import TypeVar

from fsm_agent._internal.structs import Value
from fsm_agent.call.budget import ANY_MODEL, Prices, Tariff
from fsm_agent.call.effects import Request
from fsm_agent.call.outcomes import Approved, Denied, Modified
from fsm_agent.errors import ConfigError, ProviderError, UsageError
from fsm_agent.functions.context import Context, accepts_context
from fsm_agent.messages.events import Delta, Question
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import UNUSED, Reply, Usage
from fsm_agent.runtime.results import ResultPipeline
from fsm_agent.runtime.retry_delay import delay_s, doubled_s
from fsm_agent.runtime.threads import abort_in_force
from fsm_agent.validation import invalid, require, safe_repr

if TYPE_CHECKING:
    from fsm_agent.runtime.driver import Driver

_RIGHT = "a Price, or Prices by model such as {'gpt-5-mini': Price(…), '*': Price(…)}"
# Our names of providers, where the package has others (https://github.com/pydantic/genai-prices, 2026-11).
_THEIRS = {
    "azure-responses": "azure",
    "moonshot": "moonshotai",
    "openai-chat": "openai",
    "vertex": "google",
    "xai": "x-ai",
    "xai-responses": "x-ai",
}


def models_of(client: Any) -> tuple[str, ...]:
    """Return the names of the models that a client may ask; more than one for a client with fallbacks."""
    models: tuple[str, ...] | None = getattr(client, "models", None)
    return (str(getattr(client, "name", client)),) if models is None else models


class PriceList:
    """The prices of some models.

    Args:
        prices: The prices of the user; see `Environment`.
        models: The names of the models, as ``provider:model``.

    Raises:
        UsageError: If ``prices`` holds anything but prices.
    """

    def __init__(self, prices: Prices | None, models: tuple[str, ...]) -> None:
        tariffs: Mapping[str, Tariff] = prices if isinstance(prices, Mapping) else {}
        if prices is not None and not isinstance(prices, Mapping):
            tariffs = {ANY_MODEL: prices}
        for model, price in tariffs.items():
            if not isinstance(model, str) or not callable(getattr(price, "cost_pico_usd", None)):
                raise invalid("prices", prices, _RIGHT)
        self._tariffs = tariffs
        self._models = models
        self._known: dict[str, Tariff] = {}

    def check(self) -> None:
        """Refuse models without a known price.

        Raises:
            UsageError: If a model has no known price.
        """
        for model in self._models:
            self._price((model,))

    def priced(self, reply: Reply) -> Reply:
        """Return a reply with its cost; return it unchanged if it has a cost or reports no tokens.

        Raises:
            UsageError: If the model has no known price.
        """
        if reply.usage.cost_pico_usd is not None or reply.usage == UNUSED:
            return reply
        asked = reply.served_by or next(iter(self._models), "a command that did not report its cost")
        price = self._price(tuple(filter(None, (reply.model, asked))))
        return reply.changed(usage=reply.usage.changed(cost_pico_usd=price.cost_pico_usd(reply.usage)))

    def _price(self, names: tuple[str, ...]) -> Tariff:
        """Return the price of a model.

        Args:
            names: The model's name in the reply, if there is one, and the name that was asked, ``provider:model``.
        """
        asked = names[-1]
        for name in (*names, asked.partition(":")[2], ANY_MODEL):
            if name in self._tariffs:
                return self._tariffs[name]
        if asked not in self._known:
            try:
                self._known[asked] = known_price(asked)
            except ConfigError as error:
                raise UsageError(
                    f"{error}; pass prices={{{safe_repr(asked)}: Price(input_micro_usd=…, output_micro_usd=…)}} to the"
                    " agent"
                ) from None
        return self._known[asked]


class KnownPrice:
    """The price of a model as the package knows it, which may depend on the length of the request and the time of day.

    Args:
        model: The model, as ``provider:model``.
        found: The package's provider and model.
    """

    __slots__ = ("_found", "model")

    def __init__(self, model: str, found: tuple[Any, Any]) -> None:
        self.model = model
        self._found = found

    def __repr__(self) -> str:
        return f"known_price({self.model!r})"

    def cost_pico_usd(self, usage: Usage) -> int:
        """Return the cost of the tokens of one reply, in millionths of a millionth of a dollar.

        For the sum of several replies the cost is too high if long requests cost more per token.
        """
        import genai_prices

        read = min(usage.cached_tokens or 0, usage.input_tokens or 0)
        written = min(usage.cache_write_tokens or 0, (usage.input_tokens or 0) - read)
        reasoned = min(usage.reasoning_tokens or 0, usage.output_tokens or 0)
        tokens = genai_prices.Usage(
            input_tokens=usage.input_tokens or 0,
            output_tokens=usage.output_tokens or 0,
            cache_read_tokens=read or None,
            cache_write_tokens=written or None,
            output_reasoning_tokens=reasoned or None,
        )
        provider, model = self._found
        return int(model.calc_price(tokens, provider).total_price.scaleb(12).to_integral_value())


def known_price(model: str) -> KnownPrice:
    """Return the price of a model, for ``prices`` of an agent, `max_cost_usd`, `Metrics` or `rounds_of`.

    Needs the extra ``prices``: ``pip install 'fsm-agent[prices]'``.

    Args:
        model: The model, as ``provider:model``.

    Raises:
        ConfigError: If the package is not installed, or does not know the model at this provider.

    Examples:
        >>> Agent(Script("Hi."), prices={"script": known_price("openai:gpt-5-mini")}).call("Hello").output
        'Hi.'
    """
    require("model", model, isinstance(model, str), "'provider:model'", ConfigError)
    prefix, _, name = model.partition(":")
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        raise ConfigError(
            f"the price of {model!r} is looked up in genai-prices, which is not installed;"
            " pip install 'fsm-agent[prices]'"
        ) from None
    snapshot, theirs = get_snapshot(), _THEIRS.get(prefix, prefix)
    provider = next((one for one in snapshot.providers if one.id == theirs), None)
    if provider is None or not name:
        raise ConfigError(f"the price of {model!r} is unknown: genai-prices has no provider {prefix!r}")
    try:
        return KnownPrice(model, snapshot.find_provider_model(name, provider, None, None))
    except LookupError:
        raise ConfigError(f"the price of {model!r} is unknown: genai-prices has no such model") from None


class PostedOutcome(Value, frozen=True):
    """An outcome that was posted to the run of a process."""

    id: int
    key: str
    document: str  # the outcome as JSON, as `Process.decode` reads it
    by: str  # who posted it, for people


class Recorder(Protocol):
    """The journal of one drive of one process.

    Attributes:
        run: The name of the run.
        lost: The error if another holder has claimed the run, or None.
        patience_s: The longest time that the driver waits for a time alone; for more, it gives the run back.  None: no
            limit.
        rests_for_people: A run that waits for a person is given back at once, however little time the person has, so
            that others hear of the question.
        is_lasting: True if the run outlives the OS process, so that the clock of a test must not time it.
        is_instant: True if `write` never blocks, so the driver may call it between two steps.
        redact: Returns an outcome without its secrets; None stores outcomes unchanged.
        signals: Posted outcomes for the driver to take; filled from any thread.
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

    @property
    def is_behind(self) -> bool:
        """True if the driver has to write before it continues, or the run was lost."""

    def flush_now(self) -> None:
        """Require a write before the driver continues, even where it could wait for more entries."""

    def attach(self, driver: Driver) -> None:
        """Begin to renew the lease, and to wake the driver for posts."""

    def detach(self) -> None:
        """Undo `attach`."""

    def ask(self, questions: Sequence[Question]) -> None:
        """Let others answer these questions while the run is driven, from the next write on."""

    def mark_taken(self, post: PostedOutcome, error: Exception | None = None) -> None:
        """Note that a post was taken, or refused with an error, which is logged."""

    def mark_used(self, posts: Iterable[int]) -> None:
        """Remove these posts, by their ids, with the next write."""

    def keep(self, key: str, outcome: Any) -> None:
        """Keep an outcome that no row could take, since a guard or an action raised, for the next driver."""

    def report_later(self, key: str, future: Any) -> None:
        """Post the outcome of a function when its future is done, if it is still running after the run was lost."""

    def finish(self, *, is_stopped: bool) -> None:
        """Give the run back with the next write, unless it was given back.

        Args:
            is_stopped: Whether the driver was stopped, so that the run is due at once; otherwise the process rests or
                has ended.
        """

    def write(self) -> None:
        """Write the new entries; return when they are on disk.

        Raises:
            StoreError: If the lease was lost, or the store failed.
        """

    def submit(self) -> Future[Any] | None:
        """Begin to write without blocking; return a future for `complete_write`, or None if it is done."""

    def complete_write(self, future: Future[Any]) -> Future[Any] | None:
        """Take the result of a future of `submit`; return a future of more work that would block, or None.

        Raises:
            StoreError: If the lease was lost, or the store failed.
        """


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
    """A client of one model, which agents ask.  Every failure of a request is a `ProviderError`.

    The clients of this package are `SyncVerbs`, too, and have `complete` and `stream` for plain code.  ``timeout_s``
    bounds the request as a whole.  A client may have two more attributes: ``takes_images = False`` if its model takes
    no images, and ``reports_logprobs = False`` if it cannot report log probabilities.

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
    """Return the clock for a run that outlives the OS process: this one, or the clock that replaces a test's clock.

    Raises:
        UsageError: If a test has asked for its own clock.
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


def random_id() -> str:
    """Return an id that no other has."""
    return os.urandom(8).hex()


class Environment(Value, frozen=True, kw_only=True, dict=True):
    """The resources with which the effects of a call are performed.

    Args:
        client: Sends requests to the model.
        clock: Returns the time and waits.
        approve: The approver: called with each function call that waits for approval, and with its `Context` when
            it takes one; may be a coroutine function.  Without one, or when it returns None, the call is suspended.
            It is asked about every function of the calls that are made with ``has_approver=True``, as an `Agent`
            makes them; of others, only about the functions that require approval.
        backoff: How long to wait before a recall if the provider does not specify it: a wait of `tenacity`.  By default
            it is ``wait_exponential(max=60)``, multiplied by a number of ``random``.
        threads: How many plain functions run at once, each in a thread; with 0 they run one after another.  Under the
            sync driver, a lone function runs without a thread if nothing could end the wait for it.
        new_id: Returns the id of a new call.
        random: Returns numbers from 0 to 1, for the jitter of waits.
        prices: The price of tokens: a `Price`, or a mapping of prices by the model's name in a reply or by the client's
            name, with ``"*"`` for all others.  Replies then have their cost in their `Usage`.  By default only replies
            of calls with a budget in dollars have a cost, by the known prices.
        results: The pipeline that results of functions pass before the model sees them.
        name: The name of the agent or flow, for observers that measure what it does.

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
    def of(cls, client: Client, **changes: Any) -> Environment:
        """Return an environment with this client; a test double brings its own clock."""
        return cls(client=client, **{**getattr(client, "environment_defaults", {}), **changes})

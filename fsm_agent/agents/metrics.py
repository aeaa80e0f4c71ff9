"""Metrics of agents: counts, times and costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any

import msgspec

from fsm_agent._internal.values import field_names
from fsm_agent.call.budget import ANY_MODEL, Tariff
from fsm_agent.messages.events import (
    Done,
    Event,
    FunctionEnded,
    FunctionStarted,
    ReplyCompleted,
    RequestStarted,
    Stepped,
)
from fsm_agent.messages.reply import UNUSED, Reply, Usage
from fsm_agent.validation import check

_TOKENS = frozenset([name for name in field_names(Usage) if name.endswith("_tokens")])
_LOCK = Lock()  # events arrive from all threads that use the agent


@dataclass(slots=True)
class FunctionMetrics:
    """The runs of a function: their number, failures and total time."""

    runs: int = 0
    failures: int = 0
    duration_s: float = 0.0

    def __add__(self, other: FunctionMetrics) -> FunctionMetrics:
        return FunctionMetrics(
            self.runs + other.runs, self.failures + other.failures, self.duration_s + other.duration_s
        )


@dataclass
class Metrics:
    """Counts what an agent does: a hook, ``Agent(…, hooks=[metrics])``.

    For one call alone, give ``metrics.on_event`` to `Agent.run` as its sink.  ``one + other`` is a third, and so is
    ``sum(many, Metrics())``.  A call that ends counts all its states, also those that it was driven through
    elsewhere; replies and functions count where they happen.  Safe to use from many threads.

    Attributes:
        prices: By what a reply names as its model; ``"*"`` is for every other.  Without one, a reply costs what its
            `Usage` says, which an agent with ``prices`` or a budget in dollars has found out.
        calls: How many ended.
        endings: How many ended so, by `Reason`.
        steps: Rows that were taken, by trigger: ``steps["parse_failed"]`` counts answers that could not be parsed.
        requests: How many were sent to models, including failed ones.
        replies: How many came from models, including pruned ones.
        usage: Their tokens.
        cost_pico_usd: What they cost, in millionths of a millionth of a dollar.
        unpriced_tokens: Tokens of replies without a known price; the cost does not include them.
        functions: The functions that were run, by name.
        states: Seconds in each state, over calls that ended.

    Examples:
        >>> metrics = Metrics()
        >>> Agent(Script("Hi."), hooks=[metrics]).call("Hello").output
        'Hi.'
        >>> metrics.calls, metrics.requests
        (1, 1)
    """

    prices: Mapping[str, Tariff] = field(default_factory=dict, repr=False, compare=False)
    calls: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    replies: int = 0
    usage: Usage = UNUSED
    cost_pico_usd: int = 0
    unpriced_tokens: int = 0
    functions: dict[str, FunctionMetrics] = field(default_factory=dict)
    states: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        right = "prices by model, such as {'gpt-5-mini': Price(…)}"
        check("prices of Metrics", self.prices, isinstance(self.prices, Mapping), right)

    @property
    def cost_micro_usd(self) -> int:
        """The cost of the replies in millionths of a dollar, rounded once and only here."""
        return (self.cost_pico_usd + 500_000) // 1_000_000

    def on_event(self, event: Event) -> None:
        """Take note of an event."""
        with _LOCK:
            match event:
                case RequestStarted():
                    self.requests += 1
                case ReplyCompleted():
                    self._add_reply(event.reply)
                case Stepped():
                    self.steps[event.trigger] += 1
                case FunctionStarted():
                    self._add_function(event.name, FunctionMetrics(runs=1))
                case FunctionEnded():
                    self._add_function(event.name, FunctionMetrics(0, int(event.is_error), event.duration_s))
                case Done():
                    self.calls += 1
                    if (ending := event.result.ending) is not None:
                        self.endings[str(ending.reason)] += 1
                    self.states = _summed(self.states, _stays(event.result.trace))

    def _add_reply(self, reply: Reply) -> None:
        self.replies += 1
        self.usage += reply.usage
        price = self.prices.get(reply.model or ANY_MODEL) or self.prices.get(ANY_MODEL)
        cost = reply.usage.cost_pico_usd if price is None else price.cost_pico_usd(reply.usage)
        if cost is None:
            self.unpriced_tokens += reply.usage.total_tokens
        else:
            self.cost_pico_usd += cost

    def _add_function(self, name: str, more: FunctionMetrics) -> None:
        self.functions[name] = self.functions.get(name, FunctionMetrics()) + more

    def __add__(self, other: Metrics) -> Metrics:
        if not isinstance(other, Metrics):
            return NotImplemented
        with _LOCK:
            functions = dict(self.functions)
            for name, more in other.functions.items():
                functions[name] = functions.get(name, FunctionMetrics()) + more
            return Metrics(
                prices={**other.prices, **self.prices},
                calls=self.calls + other.calls,
                endings=self.endings + other.endings,
                steps=self.steps + other.steps,
                requests=self.requests + other.requests,
                replies=self.replies + other.replies,
                usage=self.usage + other.usage,
                cost_pico_usd=self.cost_pico_usd + other.cost_pico_usd,
                unpriced_tokens=self.unpriced_tokens + other.unpriced_tokens,
                functions=functions,
                states=_summed(self.states, other.states),
            )

    def to_dict(self) -> dict[str, Any]:
        """All counts as plain data for JSON; times in seconds, money in millionths of a dollar."""
        with _LOCK:
            return {
                "calls": self.calls,
                "endings": dict(self.endings),
                "steps": dict(self.steps),
                "requests": self.requests,
                "replies": self.replies,
                "usage": {name: n for name, n in msgspec.structs.asdict(self.usage).items() if name in _TOKENS},
                "cost_micro_usd": self.cost_micro_usd,
                "unpriced_tokens": self.unpriced_tokens,
                "functions": {name: asdict(function) for name, function in self.functions.items()},
                "states": dict(self.states),
            }


def _summed(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}


def _stays(trace: Iterable[Stepped]) -> dict[str, float]:
    """Seconds in each state.  A step whose time is not known, and a clock that was set back, cost nothing."""
    stays: dict[str, float] = {}
    before_s = 0.0
    for step in trace:
        now_s = step.at_s if 0 < step.at_s < math.inf else before_s
        if before_s:
            stays[step.source] = stays.get(step.source, 0.0) + max(0.0, now_s - before_s)
        before_s = now_s
    return stays

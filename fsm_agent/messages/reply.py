"""A model's reply: its message, its usage, its finish reason, its log probabilities."""

from __future__ import annotations

from typing import Literal

from fsm_agent._internal.values import Value
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.validation import shown

# Why a model stopped, in one vocabulary for all providers; None: not reported.
Finish = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "pause", "pending", "error"]

# How a model is asked for a typed answer: the request's own form, a function that takes the answer, or words.
OutputMode = Literal["native", "function", "prompted"]


def _sum(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


class Usage(Value, frozen=True, kw_only=True):
    """Tokens and their cost, as reported with one reply, or summed over many.  None: never reported.

    `cached_tokens` and `cache_write_tokens` are part of `input_tokens`, `reasoning_tokens` of
    `output_tokens`, however the provider counts.

    Examples:
        >>> usage = Usage(input_tokens=10, output_tokens=2) + Usage(input_tokens=5)
        >>> usage.input_tokens, usage.total_tokens
        (15, 17)
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_pico_usd: int | None = None  # in 1e-12 dollars; None: costs are not tracked

    def __add__(self, other: Usage) -> Usage:
        if self is UNUSED:
            return other
        cached, written, reasoning = other.cached_tokens, other.cache_write_tokens, other.reasoning_tokens
        cost = other.cost_pico_usd
        return Usage(
            input_tokens=_sum(self.input_tokens, other.input_tokens),
            output_tokens=_sum(self.output_tokens, other.output_tokens),
            cached_tokens=self.cached_tokens if cached is None else _sum(self.cached_tokens, cached),
            cache_write_tokens=self.cache_write_tokens if written is None else _sum(self.cache_write_tokens, written),
            reasoning_tokens=self.reasoning_tokens if reasoning is None else _sum(self.reasoning_tokens, reasoning),
            cost_pico_usd=self.cost_pico_usd if cost is None else _sum(self.cost_pico_usd, cost),
        )

    def problem(self) -> str | None:
        """Return the problem with impossible counts, which must not be charged to budgets; None if all are possible."""
        counts = (
            (self.input_tokens, "input_tokens"),
            (self.output_tokens, "output_tokens"),
            (self.cached_tokens, "cached_tokens"),
            (self.cache_write_tokens, "cache_write_tokens"),
            (self.reasoning_tokens, "reasoning_tokens"),
            (self.cost_pico_usd, "cost_pico_usd"),
        )
        for count, name in counts:
            if count is not None and not (type(count) is int and 0 <= count <= MOST):
                return f"Usage.{name}: expected a whole number from 0 to {MOST}, or None, got {shown(count)}"
        return None

    @property
    def total_tokens(self) -> int:
        """Input and output together; what was not reported counts as 0."""
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    @property
    def cost_usd(self) -> float | None:
        """The cost in US dollars; None unless `Limits.cost_usd` or ``prices`` of the agent is set."""
        return None if self.cost_pico_usd is None else self.cost_pico_usd / 10**12


UNUSED = Usage()
MOST_TOKENS = 10**12  # the largest plausible count of one reply
MOST = 10**18  # the largest valid value of any field: a million dollars in pico-dollars


class TokenLogprob(Value, frozen=True):
    """One generated token, its log probability (natural), and the likeliest tokens in its place.

    Examples:
        >>> TokenLogprob("yes", -0.1, top=(("yes", -0.1), ("no", -2.4))).top[1]
        ('no', -2.4)
    """

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


class Reply(Value, frozen=True, kw_only=True):
    """A model's answer to one request.

    Examples:
        >>> reply = Reply.of("Hello.")
        >>> reply.message.text, reply.usage.total_tokens
        ('Hello.', 0)
    """

    message: Message  # of the assistant
    usage: Usage = UNUSED
    finish: Finish | None = None
    finish_raw: str | None = None  # as the provider spells it
    refusal: str | None = None  # the model's text when it declined
    logprobs: tuple[TokenLogprob, ...] = ()
    model: str | None = None  # the one that answered
    response_id: str | None = None
    request_id: str | None = None  # for enquiries to the provider
    # Notes: options of the request that this model lacks, with their substitutes, and missing fields of the reply.
    adapted: tuple[str, ...] = ()
    served_by: str | None = None  # name of the client that answered, when one was chosen out of several
    output_mode: OutputMode | None = None  # how the output was asked for; None: it is text, or the client does not say

    @classmethod
    def of(cls, *content: str | FunctionCall) -> Reply:
        """Return a plain reply of texts and function calls."""
        return cls(message=Message.of("assistant", *content))

"""A model's reply: its message, usage, finish reason and log probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fsm_agent._internal.structs import Value, is_finite, is_whole
from fsm_agent.errors import UsageError
from fsm_agent.foreign_names import remedy
from fsm_agent.messages.hosted_tools import HostedTool, check_hosted_tools
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.validation import Rules, or_none, require, safe_repr

# Why a model stopped, in one vocabulary for all providers.
Finish = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "pause", "pending", "error"]

# How a typed answer is requested: by a field in the request, by a function that takes the answer, or in words.
OutputMode = Literal["native", "function", "prompted"]


def _sum(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


def _difference(a: int | None, b: int | None) -> int | None:
    return None if a is None else a - (b or 0)


class Usage(Value, frozen=True, kw_only=True):
    """The tokens and the cost of one or several replies.  None means that the provider did not report a number.

    `input_tokens` includes `cached_tokens` and `cache_write_tokens`, and `output_tokens` includes `reasoning_tokens`,
    even if the provider counts differently.

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
    cost_pico_usd: int | None = None  # in 1e-12 dollars, or None if costs are not tracked

    def __add__(self, other: Usage) -> Usage:
        if self is UNUSED:
            return other
        return Usage(**{name: _sum(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__})

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            **{name: _difference(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__}
        )

    def problem(self) -> str | None:
        """Return the reason why the counts are impossible and must not be charged to budgets, or None."""
        for name in self.__struct_fields__:
            count = getattr(self, name)
            if count is not None and not (type(count) is int and 0 <= count <= MOST):
                return f"Usage.{name}: expected a whole number from 0 to {MOST}, or None, got {safe_repr(count)}"
        return None

    @property
    def total_tokens(self) -> int:
        """The number of input and output tokens together.  Unreported tokens count as 0."""
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    @property
    def cost_usd(self) -> float | None:
        """The cost in US dollars, or None if neither the agent's ``prices`` nor `Limits.cost_usd` is set."""
        return None if self.cost_pico_usd is None else self.cost_pico_usd / 10**12


UNUSED = Usage()
MOST_TOKENS = 10**12  # the largest plausible count of one reply
MOST = 10**18  # the largest valid value of any field: a million dollars in pico-dollars


class TokenLogprob(Value, frozen=True):
    """A generated token, with its natural log probability and its likeliest alternatives.

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

    message: Message  # the assistant's message
    usage: Usage = UNUSED
    finish: Finish | None = None
    finish_raw: str | None = None  # the provider's own word for it
    refusal: str | None = None  # the text with which the model declined
    logprobs: tuple[TokenLogprob, ...] = ()
    model: str | None = None  # the model that answered
    response_id: str | None = None
    request_id: str | None = None  # for enquiries to the provider
    # Notes on options in the request that this model lacks, with their substitutes, and on fields missing from the
    # reply.
    adapted: tuple[str, ...] = ()
    served_by: str | None = None  # the name of the client that answered, if one was chosen from several
    output_mode: OutputMode | None = None  # how the output was requested; None if it is text, or unknown

    @property
    def is_cut_off(self) -> bool:
        """True if the reply was cut off at the token limit."""
        return self.finish == "length"

    @classmethod
    def of(cls, *content: str | FunctionCall) -> Reply:
        """Return a reply with this text and these function calls."""
        return cls(message=Message.of("assistant", *content))


class Settings(Value, frozen=True, kw_only=True):
    """Options for a request to the model.  None means the provider's default.

    ``cache`` sets how long Anthropic caches the beginning of a request for later ones.  If it is not set, Anthropic
    caches nothing.  OpenAI and Gemini cache automatically and have no such option.  OpenAI's own options belong in
    ``extra_body``: ``prompt_cache_key`` and, for GPT-5.6 and later, ``prompt_cache_options``, with lifetimes of 30
    minutes or 12 hours (according to the types in its SDK as of November 2026).

    Examples:
        >>> agent = Agent(Script("Hi."), settings=Settings(temperature=0, max_tokens=100))
        >>> agent.call("Hello").output
        'Hi.'
        >>> agent.settings.top_p is None      # the provider's default
        True
    """

    temperature: float | None = None  # 0 always takes the likeliest token
    top_p: float | None = None
    max_tokens: int | None = None  # the maximum number of tokens in the answer
    stop: tuple[str, ...] = ()  # sequences that end the answer
    seed: int | None = None
    tool_choice: str = "auto"  # or "required" (the first request of a call only), "none", or a function's name
    parallel_function_calls: bool | None = None
    reasoning_effort: str | None = None
    top_logprobs: int | None = None  # how many alternatives to report for each token; 0 for the token alone
    cache: Literal["5m", "1h"] | None = None
    hosted_tools: tuple[HostedTool, ...] = ()  # tools that the provider runs itself
    extra_body: Mapping[str, Any] = {}  # merged into the request; objects are merged key by key

    def __post_init__(self) -> None:
        for name, is_right, right in _RIGHTS:
            value = getattr(self, name)
            require(f"settings.{name}", value, is_right(value), right)
        check_hosted_tools(self.hosted_tools)

    def override(self, changes: Mapping[str, Any]) -> Settings:
        """Return these settings with the given changes.

        Raises:
            UsageError: If there is no such setting.
        """
        if not changes:
            return self
        names = self.__struct_fields__
        for name in changes:
            if name not in names:
                raise UsageError(f"unknown setting {name!r}{remedy(name, names)}")
        return self.changed(**changes)


def _are_texts(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(item, str) for item in value)


_NUMBER = (or_none(is_finite), "a number, or None")
_WHOLE = (or_none(is_whole), "a whole number, or None")
_RIGHTS: Rules = (  # types only: the provider decides which numbers are valid
    ("temperature", *_NUMBER),
    ("top_p", *_NUMBER),
    ("max_tokens", *_WHOLE),
    ("stop", _are_texts, "a tuple of strings, such as ('END',)"),
    ("seed", *_WHOLE),
    ("tool_choice", lambda value: isinstance(value, str), "'auto', 'required', 'none' or the name of a function"),
    ("parallel_function_calls", lambda value: isinstance(value, bool | None), "True, False or None"),
    ("reasoning_effort", lambda value: isinstance(value, str | None), "a string such as 'low', or None"),
    ("top_logprobs", *_WHOLE),
    ("cache", lambda value: value in ("5m", "1h", None), "'5m', '1h' or None"),
    ("extra_body", lambda value: isinstance(value, Mapping), "a mapping"),
)

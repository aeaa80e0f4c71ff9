"""Prices of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from fsm_agent._internal.field_checks import is_whole
from fsm_agent._internal.values import Value
from fsm_agent.errors import UsageError
from fsm_agent.foreign_names import OptionsType
from fsm_agent.messages.reply import Usage

ANY_MODEL = "*"  # in a table of prices: all models that it does not name


class Tariff(Protocol):
    """An object that knows the cost of tokens: a `Price`, or the result of `known_price`."""

    def cost_pico_usd(self, usage: Usage) -> int:
        """Return the cost of the tokens of one reply, in millionths of a millionth of a dollar."""


Prices: TypeAlias = Tariff | Mapping[str, Tariff]  # a mapping is by the name of a model; "*" is for every other


class Price(Value, frozen=True, kw_only=True, metaclass=OptionsType):
    """The price of a million tokens, in millionths of a dollar: 1_250_000 are $1.25.

    All amounts of money are whole numbers, so sums are exact in any order.

    Attributes:
        input_micro_usd: For tokens of the request.
        output_micro_usd: For tokens of the reply, reasoning included.
        cached_micro_usd: For tokens that were read from a cache; None: the same as others.
        cache_write_micro_usd: For writing tokens to a cache, on top.

    Examples:
        >>> price = Price(input_micro_usd=250_000, output_micro_usd=2_000_000)
        >>> agent = Agent(Script("Hi."), prices={"script": price}, limits=Limits(cost_usd=0.01))
        >>> agent.call("Hello").output
        'Hi.'
    """

    input_micro_usd: int
    output_micro_usd: int
    cached_micro_usd: int | None = None
    cache_write_micro_usd: int = 0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None and name == "cached_micro_usd":
                continue
            if not is_whole(value, 0):
                right = "a whole number from 0 on, in millionths of a dollar for a million tokens"
                raise UsageError(f"{name} of Price: expected {right}, got {value!r:.80}")

    def cost_pico_usd(self, usage: Usage) -> int:
        """Return the cost of these tokens, in millionths of a millionth of a dollar; unreported ones are free."""
        cached = usage.cached_tokens or 0
        cached_price = self.input_micro_usd if self.cached_micro_usd is None else self.cached_micro_usd
        return (
            max(0, (usage.input_tokens or 0) - cached) * self.input_micro_usd
            + cached * cached_price
            + (usage.cache_write_tokens or 0) * self.cache_write_micro_usd
            + (usage.output_tokens or 0) * self.output_micro_usd
        )

"""Token prices, set in the program or read from `genai-prices`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from fsm_agent._internal.structs import Value, is_whole
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.messages.reply import UNUSED, Reply, Usage
from fsm_agent.validation import invalid, require, safe_repr

ANY_MODEL = "*"  # the key for all other models in a table of prices
_RIGHT = "a Price, or Prices by model such as {'gpt-5-mini': Price(…), '*': Price(…)}"
# Providers whose names differ in genai-prices (https://github.com/pydantic/genai-prices, 2026-11).
_THEIRS = {
    "azure-responses": "azure",
    "moonshot": "moonshotai",
    "openai-chat": "openai",
    "vertex": "google",
    "xai": "x-ai",
    "xai-responses": "x-ai",
}


class Tariff(Protocol):
    """An object that knows the cost of tokens: a `Price`, or the result of `known_price`."""

    def cost_pico_usd(self, usage: Usage) -> int:
        """Return the cost of one reply's tokens, in trillionths of a dollar."""


Prices: TypeAlias = Tariff | Mapping[str, Tariff]  # a mapping has the names of models as keys, and "*" for all others


class Price(Value, frozen=True, kw_only=True):
    """The price of a million tokens, in millionths of a dollar: ``1_250_000`` is $1.25.

    Amounts of money are whole numbers, so sums are exact in any order.

    Attributes:
        input_micro_usd: The price of tokens in requests.
        output_micro_usd: The price of tokens in replies, including reasoning.
        cached_micro_usd: The price of tokens that were read from a cache; by default, ``input_micro_usd``.
        cache_write_micro_usd: The additional price of tokens that were written to a cache.

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
            is_right = is_whole(value, 0) or (value is None and name == "cached_micro_usd")
            right = "a whole number of at least 0, in millionths of a dollar for a million tokens"
            require(f"{name} of Price", value, is_right, right)

    def cost_pico_usd(self, usage: Usage) -> int:
        """Return the cost of these tokens, in trillionths of a dollar.  Unreported tokens count as 0."""
        cached = usage.cached_tokens or 0
        cached_price = self.input_micro_usd if self.cached_micro_usd is None else self.cached_micro_usd
        return (
            max(0, (usage.input_tokens or 0) - cached) * self.input_micro_usd
            + cached * cached_price
            + (usage.cache_write_tokens or 0) * self.cache_write_micro_usd
            + (usage.output_tokens or 0) * self.output_micro_usd
        )


_EMBEDDED = "local:"  # the embedded models, which run on this machine
_FREE = Price(input_micro_usd=0, output_micro_usd=0)


def tariffs_of(prices: Prices | None, what: str = "prices") -> Mapping[str, Tariff]:
    """Return prices by model.  Raise a `UsageError` about ``what`` if any of the values is not a price."""
    tariffs = prices if isinstance(prices, Mapping) else {} if prices is None else {ANY_MODEL: prices}
    for model, price in tariffs.items():
        if not isinstance(model, str) or not callable(getattr(price, "cost_pico_usd", None)):
            raise invalid(what, prices, _RIGHT)
    return tariffs


class PriceList:
    """The prices of models, given as ``provider:model``; see `Environment` for ``prices``.

    Raises:
        UsageError: If ``prices`` holds anything but prices.
    """

    def __init__(self, prices: Prices | None, models: tuple[str, ...]) -> None:
        self._tariffs = tariffs_of(prices)
        self._models = models
        self._known: dict[str, Tariff] = {}

    def check(self, agent: str = "") -> None:
        """Raise a `UsageError` if a model has no known price.  The error names the agent, if given."""
        for model in self._models:
            self._price((model,), agent)

    def priced(self, reply: Reply) -> Reply:
        """Return a reply with its cost.  The reply is unchanged if it already has a cost or reports no tokens.

        Raises:
            UsageError: If the model has no known price.
        """
        if reply.usage.cost_pico_usd is not None or reply.usage == UNUSED:
            return reply
        asked = reply.served_by or next(iter(self._models), "a command that did not report its cost")
        price = self._price(tuple(filter(None, (reply.model, asked))))
        return reply.changed(usage=reply.usage.changed(cost_pico_usd=price.cost_pico_usd(reply.usage)))

    def _price(self, names: tuple[str, ...], agent: str = "") -> Tariff:
        """Return a model's price.  ``names`` are its name in the reply, if any, and the requested name."""
        asked = names[-1]
        for name in (*names, asked.partition(":")[2], ANY_MODEL):
            if name in self._tariffs:
                return self._tariffs[name]
        if asked.startswith(_EMBEDDED):
            return _FREE
        if asked not in self._known:
            try:
                self._known[asked] = known_price(asked)
            except ConfigError as error:
                raise UsageError(
                    f"{error}; pass prices={{{safe_repr(asked)}: Price(input_micro_usd=…, output_micro_usd=…)}} to the"
                    f" agent{agent and ' '}{agent and repr(agent)}"
                ) from None
        return self._known[asked]


class KnownPrice:
    """A model's price according to `genai-prices`, which may depend on the request's length and the time of day."""

    def __init__(self, model: str, found: tuple[Any, Any]) -> None:
        self.model = model
        self._found = found

    def __repr__(self) -> str:
        return f"known_price({self.model!r})"

    def cost_pico_usd(self, usage: Usage) -> int:
        """Return the cost of one reply's tokens, in trillionths of a dollar.

        If the tokens are the sum from several replies, the cost is too high for models that charge more per token for
        long requests.
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
    """Return the price of a model from `genai-prices`.

    Use it for an agent's ``prices``, `max_cost_usd`, `Metrics` or `rounds_of`.  This function requires the extra
    ``prices``: ``pip install 'fsm-agent[prices]'``.

    Args:
        model: The model, as ``provider:model``.

    Raises:
        ConfigError: If `genai-prices` is not installed, or does not know the model at this provider.

    Examples:
        >>> Agent(Script("Hi."), prices={"script": known_price("openai:gpt-5-mini")}).call("Hello").output
        'Hi.'
    """
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

"""The prices of the models that a client may ask: those of the user, or those of the package genai-prices.

The package contains its data; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsm_agent.call.budget import ANY_MODEL, Prices, Tariff
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.messages.reply import UNUSED, Reply, Usage
from fsm_agent.validation import check, shown, wrong

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
        prices: The prices of the user; see `World`.
        models: The names of the models, as ``provider:model``.

    Raises:
        UsageError: ``prices`` holds something else than prices.
    """

    def __init__(self, prices: Prices | None, models: tuple[str, ...]) -> None:
        tariffs: Mapping[str, Tariff] = prices if isinstance(prices, Mapping) else {}
        if prices is not None and not isinstance(prices, Mapping):
            tariffs = {ANY_MODEL: prices}
        for model, price in tariffs.items():
            if not isinstance(model, str) or not callable(getattr(price, "cost_pico_usd", None)):
                raise wrong("prices", prices, _RIGHT)
        self._tariffs = tariffs
        self._models = models
        self._known: dict[str, Tariff] = {}

    def check(self) -> None:
        """Refuse models without a known price.

        Raises:
            UsageError: A model has no known price.
        """
        for model in self._models:
            self._price((model,))

    def priced(self, reply: Reply) -> Reply:
        """Return a reply with its cost; return it unchanged if it has a cost or reports no tokens.

        Raises:
            UsageError: The model has no known price.
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
                    f"{error}; pass prices={{{shown(asked)}: Price(input_micro_usd=…, output_micro_usd=…)}} to the"
                    " agent"
                ) from None
        return self._known[asked]


class KnownPrice:
    """The price of a model as the package knows it: if need be by the length of the request and the time of the day.

    Args:
        model: As ``provider:model``.
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

        Of a sum over several replies it is too much where long requests cost more by the token.
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
        model: As ``provider:model``.

    Raises:
        ConfigError: The package is not installed, or does not know the model at this provider.

    Examples:
        >>> Agent(Script("Hi."), prices={"script": known_price("openai:gpt-5-mini")}).call("Hello").output
        'Hi.'
    """
    check("model", model, isinstance(model, str), "'provider:model'", ConfigError)
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

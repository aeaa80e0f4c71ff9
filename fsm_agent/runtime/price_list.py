"""The prices of the models that a client may ask: those of the user, or the known ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.lifecycle.prices import ANY_MODEL, Prices, Tariff
from fsm_agent.messages.reply import UNUSED, Reply
from fsm_agent.mistakes import shown, wrong
from fsm_agent.runtime.known_prices import known_price

_RIGHT = "a Price, or Prices by model such as {'gpt-5-mini': Price(…), '*': Price(…)},"


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
        asked = reply.served_by or next(iter(self._models), "a command that has not said its cost")
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
                    f"{error}; prices={{{shown(asked)}: Price(input_micro_usd=…, output_micro_usd=…)}} of the agent"
                    " gives it one"
                ) from None
        return self._known[asked]

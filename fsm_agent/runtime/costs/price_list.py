"""The prices of the models that a client may ask: the user's, else those that are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.lifecycle.prices import ANY_MODEL, Prices, Tariff
from fsm_agent.messages.reply import UNUSED, Reply
from fsm_agent.mistakes import shown, wrong
from fsm_agent.runtime.costs.known_prices import known_price

_RIGHT = "a Price, or Prices by model such as {'gpt-5-mini': Price(…), '*': Price(…)},"


def models_of(client: Any) -> tuple[str, ...]:
    """Return the names of the models that a client may ask; more than one if it chooses out of several."""
    models: tuple[str, ...] | None = getattr(client, "models", None)
    return (str(getattr(client, "name", client)),) if models is None else models


class PriceList:
    """The prices of some models.

    Args:
        prices: The user's; see `World`.
        models: As ``provider:model``.

    Raises:
        UsageError: ``prices`` is none.
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
        """Refuse a model whose price nobody knows.

        Raises:
            UsageError: It names the model.
        """
        for model in self._models:
            self._price((model,))

    def priced(self, reply: Reply) -> Reply:
        """Return a reply with its cost; as it is, if it has one or no tokens were reported.

        Raises:
            UsageError: Nobody knows the price.
        """
        if reply.usage.cost_pico_usd is not None or reply.usage == UNUSED:
            return reply
        asked = reply.served_by or next(iter(self._models), "a command that has not said its cost")
        price = self._price(tuple(filter(None, (reply.model, asked))))
        return reply.changed(usage=reply.usage.changed(cost_pico_usd=price.cost_pico_usd(reply.usage)))

    def _price(self, names: tuple[str, ...]) -> Tariff:
        """Return the price of a model.

        Args:
            names: What the reply names, if it has come, and ``provider:model`` as it was asked.
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

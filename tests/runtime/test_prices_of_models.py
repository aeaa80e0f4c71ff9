"""Are tokens priced by the user's prices, then by those that are known, and is no model silently free?"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from fsm_agent.clients import FallbackClient, RateLimit, RateLimitedClient
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.lifecycle import Price
from fsm_agent.messages import Reply, Usage
from fsm_agent.messages.reply import UNUSED
from fsm_agent.runtime import known_price
from fsm_agent.runtime.price_list import PriceList, models_of
from fsm_agent.testing import Script

pytest.importorskip("genai_prices", reason="it comes with the [prices] extra")

CHEAP, DEAR = (Price(input_micro_usd=n, output_micro_usd=n) for n in (1, 100))
TEN = Usage(input_tokens=9, output_tokens=1)


def cost(prices: Any, *, model: str | None = None, served_by: str | None = None, asked: str = "house:m") -> int | None:
    reply = Reply.of("42").changed(usage=TEN, model=model, served_by=served_by)
    return PriceList(prices, (asked,)).priced(reply).usage.cost_pico_usd


def test_a_price_is_found_by_what_the_reply_names_then_by_what_was_asked_then_for_any():
    assert cost(CHEAP) == 10
    assert cost({"m-2026": DEAR, "*": CHEAP}, model="m-2026") == 1000
    assert cost({"house:m": DEAR, "*": CHEAP}, model="m-2026") == 1000
    assert cost({"m": DEAR, "*": CHEAP}, model="m-2026") == 1000
    assert cost({"other": DEAR, "*": CHEAP}, model="m-2026") == 10
    assert cost({"b:n": DEAR, "*": CHEAP}, served_by="b:n") == 1000


def test_a_reply_that_has_a_cost_or_no_tokens_is_left_as_it_is():
    prices = PriceList(CHEAP, ("house:m",))
    for usage in (UNUSED, TEN.changed(cost_pico_usd=7)):
        reply = Reply.of("42").changed(usage=usage)
        assert prices.priced(reply) is reply


@pytest.mark.parametrize("prices", [3, {"m": 3}])
def test_what_is_no_price_is_refused(prices: Any):
    with pytest.raises(UsageError, match=r"^prices is .*: a Price, or Prices by model such as"):
        PriceList(prices, ("house:m",))


def test_a_client_that_chooses_names_all_its_models():
    both = FallbackClient([Script("a"), "openai:gpt-5-mini"])
    assert models_of(both) == ("script", "openai:gpt-5-mini")
    assert models_of(RateLimitedClient(both, RateLimit(requests_per_minute=9))) == ("script", "openai:gpt-5-mini")
    with pytest.raises(UsageError, match="the price of 'script' is not known"):
        PriceList(None, models_of(both)).check()
    PriceList({"script": CHEAP}, models_of(both)).check()


@pytest.mark.parametrize(
    ("model", "usage", "usd"),
    [  # by the lists of the makers, 2026-11
        ("openai:gpt-5-mini", Usage(input_tokens=10**6), 0.25),
        (
            "openai-chat:gpt-5-mini",
            Usage(input_tokens=10**6, cached_tokens=10**6),
            0.025,
        ),  # a provider that reports nonsense
    ],
)
def test_known_prices_tell_cached_written_and_reasoning_tokens_apart(model: str, usage: Usage, usd: float):
    assert known_price(model).cost_pico_usd(usage) == round(usd * 10**12)
    assert repr(known_price(model)) == f"known_price({model!r})"


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("openai:no-such", "genai-prices has no such model"),
        ("openai-compatible:gpt-5-mini", "has no provider 'openai-compatible'"),  # it may be anybody's
        (3, "'provider:model' would be right"),
    ],
)
def test_a_model_that_is_not_known_has_no_price(model: Any, why: str):
    with pytest.raises(ConfigError, match=why):
        known_price(model)


@pytest.mark.system
def test_the_package_is_loaded_when_a_cost_is_asked_for_and_no_sooner():
    code = """if True:
        import sys
        from fsm_agent import Agent, Limits, Price
        from fsm_agent.testing import Script
        Agent(Script("42"), limits=Limits(tokens=9)).call("x")
        Agent(Script("42"), prices=Price(input_micro_usd=1, output_micro_usd=1), limits=Limits(cost_usd=1)).call("x")
        assert "genai_prices" not in sys.modules
        Agent("openai:gpt-5-mini", limits=Limits(cost_usd=1))
        assert "genai_prices" in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)
    with pytest.raises(ConfigError, match=r"genai-prices, which is not installed: pip install 'fsm-agent\[prices\]'"):
        known_price("openai:gpt-5-mini")

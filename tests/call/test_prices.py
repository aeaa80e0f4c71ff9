"""Is money counted exactly, by the user's prices, then by those that are known, and is no model silently free?"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.agents import Agent
from fsm_agent.call import Limits, Price
from fsm_agent.clients import FallbackClient, RateLimit, RateLimitedClient
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.messages import Reply, Usage
from fsm_agent.runtime import known_price
from fsm_agent.testing import Script

PRICE = Price(input_micro_usd=3_000_000, output_micro_usd=15_000_000, cached_micro_usd=300_000, cache_write_micro_usd=7)
COUNTS = st.integers(0, 10**9)
CHEAP, DEAR = (Price(input_micro_usd=n, output_micro_usd=n) for n in (1, 100))
TEN = Usage(input_tokens=9, output_tokens=1)

needs_known_prices = pytest.mark.skipif(find_spec("genai_prices") is None, reason="it needs the extra prices")


@pytest.mark.parametrize(
    ("usage", "pico_usd"),
    [
        (Usage(), 0),
        (Usage(input_tokens=1_000_000), 3 * 10**12),
        (Usage(input_tokens=10, cached_tokens=4), 6 * 3_000_000 + 4 * 300_000),
        (Usage(input_tokens=10, cache_write_tokens=4), 10 * 3_000_000 + 4 * 7),
        (Usage(output_tokens=2, reasoning_tokens=1), 2 * 15_000_000),
        (Usage(cached_tokens=4), 4 * 300_000),
    ],
)
def test_what_tokens_cost(usage, pico_usd):
    assert PRICE.cost_pico_usd(usage) == pico_usd


def test_cached_tokens_cost_what_others_do_unless_said():
    price = Price(input_micro_usd=5, output_micro_usd=0)
    assert price.cost_pico_usd(Usage(input_tokens=10, cached_tokens=4)) == 50


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_the_parts_cost_what_the_whole_does(first, second, cached, out):
    one = Usage(input_tokens=first + cached, cached_tokens=cached, output_tokens=out)
    other = Usage(input_tokens=second, output_tokens=1)
    assert PRICE.cost_pico_usd(one) + PRICE.cost_pico_usd(other) == PRICE.cost_pico_usd(one + other)


@pytest.mark.parametrize("value", [-1, True, 2.5, "3"])
def test_a_price_is_a_whole_number(value):
    with pytest.raises(UsageError, match="cached_micro_usd"):
        Price(input_micro_usd=1, output_micro_usd=1, cached_micro_usd=value)


def cost(prices: Any, *, model: str | None = None, served_by: str | None = None, asked: str = "house:m") -> int | None:
    reply = Reply.of("42").changed(usage=TEN, model=model, served_by=served_by)
    return Agent(Script(reply, name=asked), prices=prices).call("x").usage.cost_pico_usd


def test_a_price_is_found_by_what_the_reply_names_then_by_what_was_asked_then_for_any():
    assert cost(CHEAP) == 10
    assert cost({"m-2026": DEAR, "*": CHEAP}, model="m-2026") == 1000
    assert cost({"house:m": DEAR, "*": CHEAP}, model="m-2026") == 1000
    assert cost({"m": DEAR, "*": CHEAP}, model="m-2026") == 1000
    assert cost({"other": DEAR, "*": CHEAP}, model="m-2026") == 10
    assert cost({"b:n": DEAR, "*": CHEAP}, served_by="b:n") == 1000


def test_a_reply_that_has_a_cost_is_left_as_it_is():
    reply = Reply.of("42").changed(usage=TEN.changed(cost_pico_usd=7))
    assert Agent(Script(reply), prices=CHEAP).call("x").usage.cost_pico_usd == 7


@pytest.mark.parametrize("prices", [3, {"m": 3}, {3: CHEAP}])
def test_what_is_no_price_is_refused(prices: Any):
    with pytest.raises(UsageError, match="prices"):
        Agent(Script(), prices=prices).call("x")


@needs_known_prices
def test_a_client_that_chooses_names_all_its_models():
    both = FallbackClient([Script("a", "a"), "openai:gpt-5-mini"])
    for client in (both, RateLimitedClient(both, RateLimit(requests_per_minute=9))):
        with pytest.raises(UsageError, match="'script'"):
            Agent(client, limits=Limits(cost_usd=1)).call("x")
        assert Agent(client, limits=Limits(cost_usd=1), prices={"script": CHEAP}).call("x").output == "a"


@needs_known_prices
@pytest.mark.parametrize(
    ("model", "usage", "usd"),
    [  # by the lists of the makers, 2026-11
        ("openai:gpt-5-mini", Usage(input_tokens=10**6), 0.25),
        ("openai:gpt-5-mini", Usage(output_tokens=10**6, reasoning_tokens=10**6), 2.0),
        ("anthropic:claude-sonnet-4-5", Usage(input_tokens=1000, cached_tokens=400, cache_write_tokens=300), 0.002145),
        ("google:gemini-2.5-pro", Usage(input_tokens=300_000), 0.75),  # long requests cost more by the token
        ("vertex:gemini-2.5-pro", Usage(input_tokens=100_000), 0.125),
        ("openai:gpt-5-mini", Usage(input_tokens=10, cached_tokens=10**6), 2.5e-7),  # a provider that reports nonsense
    ],
)
def test_known_prices_tell_cached_written_and_reasoning_tokens_apart(model: str, usage: Usage, usd: float):
    assert known_price(model).cost_pico_usd(usage) == round(usd * 10**12)


def test_an_embedded_model_costs_nothing_unless_said():
    model, reply = "local:smollm2-135m", Reply.of("42").changed(usage=TEN)
    agent = Agent(Script(reply, reply, name=model), limits=Limits(cost_usd=0.01))
    assert agent.call("x").usage.cost_pico_usd == 0
    assert agent.changed(prices={model: CHEAP}).call("x").usage.cost_pico_usd == 10


@needs_known_prices
@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("openai:no-such", "no-such"),
        ("openai-compatible:gpt-5-mini", "'openai-compatible'"),  # it may be anybody's
    ],
)
def test_a_model_that_is_not_known_has_no_price(model: Any, why: str):
    with pytest.raises(ConfigError, match=why):
        known_price(model)


@needs_known_prices
@pytest.mark.system
def test_the_package_is_loaded_when_a_cost_is_asked_for_and_no_sooner():
    code = """if True:
        import sys
        from fsm_agent import Agent, Limits
        from fsm_agent.call import Price
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
    with pytest.raises(ConfigError, match=r"fsm-agent\[prices\]"):
        known_price("openai:gpt-5-mini")

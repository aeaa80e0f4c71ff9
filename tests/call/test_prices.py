"""Is money counted exactly?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.call import Price
from fsm_agent.errors import UsageError
from fsm_agent.messages import Usage

PRICE = Price(input_micro_usd=3_000_000, output_micro_usd=15_000_000, cached_micro_usd=300_000, cache_write_micro_usd=7)
COUNTS = st.integers(0, 10**9)


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

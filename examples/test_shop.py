"""Tests of an agent with pytest: a script contains the model's replies, and records the requests.

Run them with ``pytest examples/test_shop.py``.
"""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fsm_agent import Agent, CallFailed, Limits
from fsm_agent.testing import Script, function_call

PRICES = {"lamp": 30, "chair": 80}


def price(item: str) -> int:
    """Look up a price in EUR."""
    return PRICES[item]


def shop(model: Script) -> Agent[Any, int]:
    """The agent under test; in production, its model is 'openai:gpt-5-mini'."""
    return Agent(model, functions=[price], output=int, name="shop", limits=Limits(parse_retries=1))


@pytest.fixture
def model() -> Iterator[Script]:
    with Script(function_call("price", item="lamp"), "30") as script:
        yield script  # at the end it checks that each reply was asked for


def test_it_looks_the_price_up(model: Script) -> None:
    result = shop(model).call("What is the lamp?")
    assert result.output == 30
    assert [called.name for called in result.function_calls] == ["price"]


def test_the_model_sees_what_the_function_returned(model: Script) -> None:
    shop(model).call("What is the lamp?")
    assert "30" in str(model.requests[-1].messages[-1])


@pytest.mark.parametrize("answer", ["cheap", "", "thirty"])
def test_an_answer_without_a_number_is_asked_for_again_once(answer: str) -> None:
    with Script(answer, "30") as model:
        assert shop(model).call("What is the lamp?").output == 30
    with Script(answer, answer) as model, pytest.raises(CallFailed):
        shop(model).call("What is the lamp?")


if __name__ == "__main__":
    sys.exit(__doc__)

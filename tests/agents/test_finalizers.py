"""Can the output be made of everything that the functions returned?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fsm_agent import Agent, FunctionCall, Prompt, function, snapshot
from fsm_agent.prompts import ParserInput, parser
from fsm_agent.testing import Script, call


@function
def price(item: str) -> int:
    """Look a price up."""
    if item == "moon":
        raise LookupError("not for sale")
    return len(item)


@parser
def receipt(given: ParserInput) -> dict[str, object]:
    """Return the text, and what each function said."""
    return {"text": given.text, "said": told(given.function_calls)}


def told(calls: Sequence[FunctionCall]) -> list[tuple[object, str | None]]:
    return [(f.arguments["item"], f.result or f.error) for f in calls]


TASK = Prompt("What does it cost?", functions=[price], parser=receipt)
EXPECTED = {"text": "Done.", "said": [("tea", "3"), ("moon", "LookupError: not for sale"), ("bread", "5")]}


def script() -> Script:
    return Script([call("price", item="tea"), call("price", item="moon")], call("price", item="bread"), "Done.")


@pytest.mark.spec("0.12: a finalizer gets all function calls in order", "0.12: what a finalizer returns is the output")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_parser_makes_the_output_of_all_function_calls(asynchronous: bool):
    agent = Agent(script())
    result = asyncio.run(agent.acall(TASK)) if asynchronous else agent.call(TASK)
    assert result.output == EXPECTED


def test_a_restored_call_makes_the_same_output():
    agent = Agent(script())
    document = snapshot(agent.call(TASK).call)
    assert agent.restore(document, TASK).result().output == EXPECTED

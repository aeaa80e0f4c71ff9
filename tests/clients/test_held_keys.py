"""Does the key of a client stay out of messages that quote it?"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fsm_agent import Agent, FunctionCall, Retry
from fsm_agent.clients import HttpClient
from fsm_agent.testing import Script

LIKELY = "sk-abcdefghijklmnopqrstuvwx"
HELD = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"  # no format of a known service


@pytest.mark.parametrize("kind", [KeyError, ValueError, Retry])
@pytest.mark.parametrize("key", [LIKELY, HELD])
def test_the_error_of_a_function_quotes_none(key: str, kind: type[Exception]) -> None:
    HttpClient("openai-compatible", "m", base_url="https://api.example.org/v1", api_key=HELD).check_available()

    def look() -> None:
        """Look."""
        raise kind(f"401 for https://api.example.org/v1?key={key}")

    def agent() -> Agent[Any, Any]:
        return Agent(Script(FunctionCall(name="look", arguments_json="{}"), "done"), functions=[look])

    for result in (agent().call("task"), asyncio.run(agent().acall("task"))):
        text = "".join([message.text for message in result.dialog])
        assert key not in text
        assert f"{key[:4]}***" in text

"""What is a model told of a function that returned nothing, on each wire?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fsm_agent import Agent, function
from fsm_agent.lifecycle import Request
from fsm_agent.messages import Message
from fsm_agent.providers import (
    Anthropic,
    AnthropicProfile,
    Codec,
    Gemini,
    GeminiProfile,
    OpenAIChat,
    OpenAIResponses,
    Profile,
)
from fsm_agent.providers.encoding import Once, as_json
from fsm_agent.testing import Script, call

Body = Mapping[str, Any]


def in_chat(body: Body) -> list[Any]:
    return [entry["content"] for entry in body["messages"] if entry["role"] == "tool"]


def in_responses(body: Body) -> list[Any]:
    return [entry["output"] for entry in body["input"] if entry.get("type") == "function_call_output"]


def in_messages(body: Body) -> list[Any]:
    blocks = [block for entry in body["messages"] if isinstance(entry["content"], list) for block in entry["content"]]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


def in_contents(body: Body) -> list[Any]:
    parts = [part for entry in body["contents"] for part in entry["parts"]]
    return [part["functionResponse"]["response"]["output"] for part in parts if "functionResponse" in part]


WIRES = {
    "chat completions": (OpenAIChat(), Profile(), in_chat, "{}"),
    "responses": (OpenAIResponses(), Profile(), in_responses, "{}"),
    "anthropic": (Anthropic(), AnthropicProfile(), in_messages, "{}"),
    "gemini": (Gemini(), GeminiProfile(), in_contents, ""),  # it is inside of an object already
}


@function
def plain() -> None:
    """Do it."""


@function
async def waiting() -> None:
    """Do it."""


@function
def either() -> str | None:
    """Find it."""
    return None


@function
def silent() -> str:
    """Say nothing."""
    return ""


FUNCTIONS = [plain, waiting, either, silent]


def dialog(is_async: bool) -> Sequence[Message]:
    """The dialog after a round of all functions."""
    agent = Agent(Script([call(f.name) for f in FUNCTIONS], "Done."), functions=FUNCTIONS)
    result = asyncio.run(agent.acall("Go.")) if is_async else agent.call("Go.")
    return result.dialog


@pytest.mark.spec("4.16: none goes out as null", "4.16: an empty text goes out as braces")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_none_is_told_as_null_and_an_empty_text_as_it_always_was(wire: str, is_async: bool):
    codec: Codec
    codec, profile, results, empty = WIRES[wire]
    request = Request(messages=dialog(is_async), functions=tuple(FUNCTIONS))
    encoded = codec.encode(request, model="m", profile=profile, stream=False, encoding=Once("us"))
    assert results(json.loads(as_json(encoded))) == ["null", "null", "null", empty]

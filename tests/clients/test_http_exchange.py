"""Does a provider get back its own content, and nothing opaque from another provider?"""

from __future__ import annotations

from typing import Any

import pytest
from support.fault_server import FaultServer, http
from support.http_clients import KEY

from fsm_agent.call import Request
from fsm_agent.clients import HttpClient, client_for
from fsm_agent.functions import Function
from fsm_agent.messages import FunctionResult, Message, Opaque, Reasoning, Text
from fsm_agent.providers import AnthropicCodec, GeminiCodec
from fsm_agent.testing import as_json

USER = Message.of("user", "hi")
RESPONSE = {
    "status": "completed",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "locked"},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Well."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": "{}"},
    ],
}
DETAILS = [{"type": "reasoning.encrypted", "data": "locked", "index": 0}]
COMPLETION = {"choices": [{"message": {"content": "Well.", "reasoning_details": DETAILS}, "finish_reason": "stop"}]}


def client(provider: str, server: FaultServer) -> HttpClient:
    model = "gpt-5-mini" if provider == "openai" else "m"  # which encrypts its reasoning
    return client_for(f"{provider}:{model}", api_key=KEY, base_url=server.base_url)


def asked_after(reply: dict[str, Any], first: str, second: str) -> Any:
    """What ``second`` is sent of what ``first`` replied."""
    with FaultServer([http(reply)]) as server:
        with client(first, server) as one:
            message = one.complete(Request(messages=(USER,))).message
        results = [
            FunctionResult(id=c.id, name=c.name, text="1", provider_id=c.provider_id) for c in message.function_calls
        ]
        dialog = (USER, message, *([Message.of("tool", *results)] if results else []))
        with client(second, server) as other:
            other.complete(Request(messages=dialog))
    return server.requests[1].json


def test_encrypted_reasoning_goes_back_to_who_can_read_it() -> None:
    own = asked_after(RESPONSE, "openai", "openai")["input"]
    assert [item.get("type", "message") for item in own[1:]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert own[1]["encrypted_content"] == "locked"
    foreign = asked_after(RESPONSE, "openai", "xai-responses")["input"]
    assert foreign[1:] == [
        {"role": "assistant", "content": "Well."},
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "1"},
    ]


def test_details_of_reasoning_go_back_to_who_gave_them() -> None:
    assert asked_after(COMPLETION, "openrouter", "openrouter")["messages"][1]["reasoning_details"] == DETAILS
    assert "locked" not in str(asked_after(COMPLETION, "vllm", "openrouter"))


def test_what_a_caller_made_goes_to_anybody_of_its_wire() -> None:
    item = {"type": "item_reference", "id": "x"}
    message = Message.of("user", Opaque(wire="openai-responses", data=item), "hi")
    for provider in ("openai", "xai-responses"):
        with FaultServer([http(RESPONSE)]) as server, client(provider, server) as one:
            one.complete(Request(messages=(message,)))
        assert item in server.requests[0].json["input"]


def test_whose_it_is_is_no_part_of_what_is_said() -> None:
    part = Opaque(wire="w", data={"a": 1})
    mine = part.changed(provider="openai")
    assert (part, hash(part)) == (mine, hash(mine))
    assert "openai" not in repr(mine)
    message = Message.of("assistant", mine, "x")
    assert "openai" in str(as_json(message))


@pytest.mark.parametrize("provider", ["anthropic", "google"])
def test_a_dialog_whose_opaque_parts_are_all_foreign_can_be_told(provider: str) -> None:
    codec = AnthropicCodec() if provider == "anthropic" else GeminiCodec()
    foreign = Opaque(wire=codec.name, data={"type": "x"}, provider="somebody")
    assistant = Message(role="assistant", parts=(foreign, Reasoning(text="hm"), Text("Well."), foreign))
    said = {
        "anthropic": {"type": "message", "content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn"},
        "google": {"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}]},
    }
    functions = (Function(name="add"),)
    with FaultServer([http(said[provider])]) as server, client(provider, server) as one:
        one.complete(Request(messages=(USER, assistant, USER), functions=functions))
    body = str(server.requests[0].json)
    assert "Well." in body
    assert "'x'" not in body

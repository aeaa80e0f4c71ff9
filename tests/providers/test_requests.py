"""Do all wires keep what requests promise: is what changes named, and is the same told in the form of each?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from support.copies import replace
from support.http_clients import KEY, completion, over_transport

from fsm_agent import Agent, AgentBase, function
from fsm_agent.call import Request
from fsm_agent.clients import client_for
from fsm_agent.functions import Function
from fsm_agent.messages import FunctionCall, FunctionResult, Message, Settings
from fsm_agent.prompts import Output
from fsm_agent.providers import (
    AnthropicCodec,
    AnthropicProfile,
    Codec,
    GeminiCodec,
    GeminiProfile,
    OpenAIChatCodec,
    OpenAIResponsesCodec,
    Profile,
    providers,
)
from fsm_agent.testing import Script, function_call

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


CODECS: dict[str, tuple[Codec, Profile, Callable[[Body], list[Any]]]] = {
    "chat": (OpenAIChatCodec(), Profile(), in_chat),
    "responses": (OpenAIResponsesCodec(), Profile(), in_responses),
    "anthropic": (AnthropicCodec(), AnthropicProfile(), in_messages),
    "gemini": (GeminiCodec(), GeminiProfile(), in_contents),
}
wires = pytest.mark.parametrize("wire", CODECS)
ADD, WAIT = Function(name="add"), Function(name="wait")
USER = Message.of("user", "hi")


class City(BaseModel):
    name: str


class Loose(BaseModel):
    facts: dict[str, Any]


def adapted(wire: str, changes: dict[str, Any] | None = None, **request: Any) -> tuple[tuple[str, ...], str]:
    """Return what is named, and what is sent."""
    codec, profile, _ = CODECS[wire]
    profile = replace(profile, **changes or {})
    asked = Request(messages=(USER,), **request)
    body = json.loads(codec.encode(asked, model="m", profile=profile, stream=False))
    return codec.adapted(asked, profile), json.dumps(body)


def texts(value: Any) -> Iterator[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(inner)


@wires
def test_a_schema_in_words_is_named_and_what_is_said_as_asked_is_not(wire: str) -> None:
    notes, body = adapted(wire, functions=(ADD, WAIT), tool_choice="add", output=Output(City))
    assert (notes, "IMPORTANT: Respond" in body) == ((), False)
    unknown: dict[str, Any] = {"native_schema": False}
    beside: dict[str, Any] = {"schema_with_functions": False}
    for changes, functions, ends in (
        (unknown, (), "does not accept this schema"),
        (beside, (ADD,), "together with functions"),
        (beside, (), None),
    ):
        notes, body = adapted(wire, changes, functions=functions, output=Output(City))
        assert [note.endswith(ends or "-") for note in notes] == ([True] if ends else [])
        assert ("IMPORTANT: Respond" in body) is bool(ends)
        assert adapted(wire, changes, functions=functions)[0] == ()


@wires
def test_a_schema_in_words_stands_at_the_end_of_the_system_prompt(wire: str) -> None:
    codec, profile, _ = CODECS[wire]
    profile = replace(profile, native_schema=False)
    for functions in ((), (ADD,)):
        request = Request(messages=(Message.of("system", "Be terse."), USER), functions=functions, output=Output(City))
        said = [*texts(json.loads(codec.encode(request, model="m", profile=profile, stream=False)))]
        (words,) = [text for text in said if text.startswith("Be terse.\n\nIMPORTANT")]
        assert ("Call functions" in words) is bool(functions)


def test_a_schema_that_anthropic_cannot_enforce_is_told() -> None:
    notes, body = adapted("anthropic", output=Output(Loose))
    assert len(notes) == 1
    assert "IMPORTANT: Respond" in body


@wires
def test_settings_that_are_left_out_are_named(wire: str) -> None:
    settings = Settings(temperature=0.25, top_p=0.75, seed=4711)
    for takes in (True, False):
        notes, body = adapted(wire, {"temperature": takes}, settings=settings)
        named = {note.partition(" ")[0] for note in notes}
        for name, value in (("temperature", "0.25"), ("top_p", "0.75"), ("seed", "4711")):
            assert (f"{name}={value}" in named) is (value not in body), name
        assert adapted(wire, {"temperature": takes})[0] == ()


def test_who_thinks_at_anthropics_takes_no_temperature() -> None:
    notes, body = adapted("anthropic", settings=Settings(temperature=0.25, reasoning_effort="high"))
    assert [note.partition(" ")[0] for note in notes] == ["temperature=0.25"]
    assert "0.25" not in body


@wires
def test_choices_that_a_model_does_not_take_are_named(wire: str) -> None:
    alone, free = "'wait' was the only function offered", "tool_choice={!r} became 'auto'"
    changes: dict[str, Any] = {"named_tool_choice": False}
    only = adapted(wire, functions=(WAIT,), tool_choice="required")[1]
    assert adapted(wire, changes, functions=(ADD, WAIT), tool_choice="wait")[1] == only
    for named, required, choice, notes in (
        (True, False, "wait", []),
        (False, True, "wait", [alone]),
        (False, False, "wait", [alone, free.format("wait")]),
        (False, False, "required", [free.format("required")]),
        (False, False, "auto", []),
        (False, False, "none", []),
    ):
        changes = {"named_tool_choice": named, "required_tool_choice": required}
        found, body = adapted(wire, changes, functions=(ADD, WAIT), tool_choice=choice)
        assert [note.partition(":")[0] for note in found] == notes
        assert ('"add"' in body) is (alone not in notes)
        if choice == "required":
            assert body == adapted(wire, changes, functions=(ADD, WAIT), tool_choice="auto")[1]


def test_a_model_that_takes_no_user_behind_results_is_given_a_word_of_its_own_between() -> None:
    codec, profile = OpenAIChatCodec(), providers()["mistral"].profile
    asked = FunctionCall(name="add", arguments_json="{}", id="1.0")
    done = FunctionResult(id="1.0", name="add", text="3")
    messages = [USER, Message.of("assistant", asked), Message.of("tool", done)]
    stop = Message.of("user", "That is enough.")
    for dialog, roles, count in (
        (messages, "user assistant tool", 0),
        ([*messages, stop], "user assistant tool assistant user", 1),
        ([*messages, Message.of("assistant", "3"), stop], "user assistant tool assistant user", 0),
        ([*messages, Message.of("assistant", ""), stop], "user assistant tool assistant user", 0),
        ([USER, Message.of("assistant", ""), stop], "user user", 0),
    ):
        request = Request(messages=dialog, functions=(ADD,))
        body = json.loads(codec.encode(request, model="m", profile=profile, stream=False))
        assert [entry["role"] for entry in body["messages"]] == roles.split()
        assert all(entry.get("content") or entry.get("tool_calls") for entry in body["messages"])
        assert len(codec.adapted(request, profile)) == count
        assert codec.adapted(request, Profile()) == ()


def test_models_that_refuse_to_be_made_to_call() -> None:
    for model, takes_required in [
        ("moonshot:kimi-k2.6", False),
        ("moonshotai:kimi-k2-thinking", False),
        ("moonshot:kimi-k3", True),
        ("zai:glm-5.1", False),
        ("deepseek:deepseek-chat", True),
        ("deepseek:deepseek-reasoner", False),
        ("alibaba:qwen3.5-plus", False),
        ("alibaba:qwen-max", True),
        ("anthropic:claude-opus-5", True),
        ("anthropic:claude-opus-5-5", False),
    ]:
        provider, _, name = model.partition(":")
        profile = providers()[provider].profile_of(name)
        assert profile.required_tool_choice is takes_required
        assert takes_required or not profile.named_tool_choice


def served(answer: Any, seen: list[Any], model: str) -> Any:
    """A client of a server in memory that gives one answer to every request."""

    def answered(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return httpx.Response(200, json=answer)

    return client_for(model, api_key=KEY, network=over_transport(httpx.MockTransport(answered)))


def test_the_reply_names_it() -> None:
    asked = Request(messages=(USER,), functions=(ADD,), tool_choice="required", output=Output(City))
    seen: list[Any] = []
    with served(completion("{}"), seen, "zai:glm-5.1") as client:
        for reply in (client.complete(asked), list(client.stream(asked))[-1]):
            assert [note.partition(":")[0] for note in reply.adapted] == [
                "the schema was described in words",
                "tool_choice='required' became 'auto'",
            ]
        assert client.complete(Request(messages=(USER,))).adapted == ()
    assert [body.get("tool_choice") for body in seen] == ["auto", "auto", None]


@pytest.mark.parametrize("way", ["complete", "astream"])
def test_a_preset_that_the_model_cannot_have_is_warned_of_once(way: str, caplog: pytest.LogCaptureFixture) -> None:
    class Editor(AgentBase[str], register=False):
        expertise = "You edit."

    async def streamed(agent: Agent) -> Any:
        return [event async for event in agent.astream("hi")][-1].result

    seen: list[Any] = []
    with caplog.at_level("WARNING", "fsm_agent"), served(completion("ho"), seen, "openai-chat:o3") as client:
        (agent,) = Editor(client=client, profile="deterministic").agents.values()
        for _ in range(2):
            result = agent.call("hi") if way == "complete" else asyncio.run(streamed(agent))
            assert [note.partition(" ")[0] for note in result.record.reply.adapted] == ["temperature=0.0"]
    (record,) = caplog.records
    assert "openai-chat:o3" in record.getMessage()
    assert "temperature=0.0" in record.getMessage()
    assert all("temperature" not in body and body["seed"] == 1 for body in seen)


@wires
def test_only_anthropic_is_told_what_to_keep(wire: str) -> None:
    codec, profile, _ = CODECS[wire]
    bodies = [
        codec.encode(Request(messages=[USER], settings=Settings(cache=cache)), model="m", profile=profile, stream=False)
        for cache in (None, "5m", "1h")
    ]
    assert (bodies[0] == bodies[1] == bodies[2]) is (wire != "anthropic")


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


@wires
def test_none_is_told_as_null_and_an_empty_text_as_it_always_was(wire: str) -> None:
    agent = Agent(Script([function_call(f.name) for f in FUNCTIONS], "Done."), functions=FUNCTIONS)
    codec, profile, results = CODECS[wire]
    request = Request(messages=agent.call("Go.").dialog, functions=tuple(FUNCTIONS))
    body = json.loads(codec.encode(request, model="m", profile=profile, stream=False))
    empty = "" if wire == "gemini" else "{}"  # there it is inside of an object already
    assert results(body) == ["null", "null", "null", empty]

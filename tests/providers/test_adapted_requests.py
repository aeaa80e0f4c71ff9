"""Does a reply name all that was said otherwise than asked, and only that?"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel
from support.copies import replace
from support.fault_server import FaultServer, http
from support.http_clients import KEY, completion

from fsm_agent import Agent, AgentBase
from fsm_agent._internal.vector import Vector
from fsm_agent.clients import client_for
from fsm_agent.errors import UsageError
from fsm_agent.functions import Function
from fsm_agent.lifecycle import Request, Settings
from fsm_agent.lifecycle.effects import TEXT
from fsm_agent.messages import FunctionCall, FunctionResult, Message
from fsm_agent.prompts import Output
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
from fsm_agent.providers.catalog import PROVIDERS, split_model
from fsm_agent.providers.codec import offered_functions
from fsm_agent.providers.encoding import Once, as_json

ADD, WAIT = Function(name="add"), Function(name="wait")
USER = Message.of("user", "hi")
CODECS: dict[str, tuple[Codec, Profile]] = {
    "chat": (OpenAIChat(), Profile()),
    "responses": (OpenAIResponses(), Profile()),
    "anthropic": (Anthropic(), AnthropicProfile()),
    "gemini": (Gemini(), GeminiProfile()),
}


class City(BaseModel):
    name: str


class Loose(BaseModel):
    facts: dict[str, Any]


def adapted(wire: str, changes: dict[str, Any] | None = None, **request: Any) -> tuple[tuple[str, ...], str]:
    """What is named, and what is sent."""
    codec, profile = CODECS[wire]
    profile = replace(profile, **changes or {})
    asked = Request(messages=(USER,), **request)
    body = codec.encode(asked, model="m", profile=profile, stream=False)
    return codec.adapted(asked, profile), json.dumps(body)


@pytest.mark.parametrize("wire", CODECS)
def test_what_is_said_as_asked_is_not_named(wire: str) -> None:
    notes, body = adapted(wire, functions=(ADD, WAIT), tool_choice="add", output=Output(City))
    assert notes == ()
    assert "IMPORTANT: Respond" not in body


@pytest.mark.parametrize("wire", CODECS)
@pytest.mark.parametrize(
    ("changes", "functions", "note"),
    [
        ({"native_schema": False}, (), "the schema was told in words: the model does not take it"),
        (
            {"schema_with_functions": False},
            (ADD,),
            "the schema was told in words: the model does not take it beside functions",
        ),
        ({"schema_with_functions": False}, (), None),
    ],
)
def test_a_schema_in_words(wire: str, changes: dict[str, Any], functions: Any, note: str | None) -> None:
    notes, body = adapted(wire, changes, functions=functions, output=Output(City))
    assert notes == ((note,) if note else ())
    assert ("IMPORTANT: Respond" in body) is bool(note)
    assert adapted(wire, changes, functions=functions)[0] == ()


def test_a_schema_that_anthropic_cannot_enforce_is_told() -> None:
    notes, body = adapted("anthropic", output=Output(Loose))
    assert notes == ("the schema was told in words: the model does not take it",)
    assert "IMPORTANT: Respond" in body


@pytest.mark.parametrize("wire", CODECS)
@pytest.mark.parametrize("takes", [True, False])
def test_settings_that_are_left_out(wire: str, takes: bool) -> None:
    settings = Settings(temperature=0.25, top_p=0.75, seed=4711)
    notes, body = adapted(wire, {"temperature": takes}, settings=settings)
    named = {note.partition("=")[0] for note in notes}
    for name, value in (("temperature", "0.25"), ("top_p", "0.75"), ("seed", "4711")):
        assert (name in named) is (value not in body), name
    if wire == "chat" and not takes:
        assert notes[0] == "temperature=0.25 was left out: the model does not take it here"
    assert adapted(wire, {"temperature": takes})[0] == ()


def test_a_model_that_takes_no_user_behind_results_is_given_a_word_of_its_own_between() -> None:
    codec, profile = OpenAIChat(), PROVIDERS["mistral"].profile
    asked = FunctionCall(name="add", arguments_json="{}", id="1.0")
    done = FunctionResult(id="1.0", name="add", text="3")
    messages = [USER, Message.of("assistant", asked), Message.of("tool", done)]
    stop = Message.of("user", "That is enough.")
    once = Once()
    for dialog, roles, count in (
        (messages, "user assistant tool", 0),
        ([*messages, stop], "user assistant tool assistant user", 1),
        ([*messages, Message.of("assistant", "3"), stop], "user assistant tool assistant user", 0),
    ):
        request = Request(messages=Vector(dialog), functions=(ADD,))
        body = codec.encode(request, model="m", profile=profile, stream=False)
        assert [entry["role"] for entry in body["messages"]] == roles.split()
        assert all(entry.get("content") or entry.get("tool_calls") for entry in body["messages"])
        assert len(codec.adapted(request, profile)) == count
        assert codec.adapted(request, Profile()) == ()
        grown = codec.encode(request, model="m", profile=profile, stream=False, encoding=once)
        assert json.loads(as_json(grown)) == body


def test_who_thinks_at_anthropics_takes_no_temperature() -> None:
    settings = Settings(temperature=0.25, reasoning_effort="high")
    notes, body = adapted("anthropic", settings=settings)
    assert notes == ("temperature=0.25 was left out: the model does not take it here",)
    assert "0.25" not in body


ALONE = "'wait' was the only function offered: the model takes no function's name"


@pytest.mark.parametrize("wire", CODECS)
@pytest.mark.parametrize(
    ("named", "required", "choice", "notes"),
    [
        (True, False, "wait", ()),
        (False, True, "wait", (ALONE,)),
        (False, False, "wait", (ALONE, "tool_choice='wait' became 'auto': the model cannot be made to call")),
        (False, False, "required", ("tool_choice='required' became 'auto': the model cannot be made to call",)),
        (False, False, "auto", ()),
        (False, False, "none", ()),
    ],
)
@pytest.mark.spec("1.38: a model that takes no name is offered that one alone")
def test_choices_that_a_model_does_not_take(
    wire: str, named: bool, required: bool, choice: str, notes: tuple[str, ...]
) -> None:
    changes = {"named_tool_choice": named, "required_tool_choice": required}
    found, body = adapted(wire, changes, functions=(ADD, WAIT), tool_choice=choice)
    assert found == notes
    assert ('"add"' in body) is (ALONE not in notes)
    if choice == "required":
        auto = adapted(wire, changes, functions=(ADD, WAIT), tool_choice="auto")[1]
        assert body == auto


@pytest.mark.parametrize("choice", ["auto", "required", "none", "wait"])
def test_choice_among_functions(choice: str) -> None:
    request = Request(messages=(USER,), functions=(ADD, WAIT), tool_choice=choice)
    assert offered_functions(request, Profile()) == ((ADD, WAIT), choice)
    alone = ((WAIT,), "required") if choice == "wait" else ((ADD, WAIT), choice)
    assert offered_functions(request, Profile(named_tool_choice=False)) == alone
    free = Profile(named_tool_choice=False, required_tool_choice=False)
    assert offered_functions(request, free)[1] == {"required": "auto", "wait": "auto"}.get(choice, choice)


def test_choice_of_an_unknown_function_is_refused() -> None:
    request = Request(messages=(USER,), functions=(ADD, WAIT), tool_choice="subtract")
    with pytest.raises(UsageError, match=r"tool_choice is 'subtract': .* one of 'add', 'wait' would be right"):
        offered_functions(request, Profile())


@pytest.mark.parametrize(
    ("model", "takes_required"),
    [
        ("moonshot:kimi-k2.6", False),
        ("moonshotai:kimi-k2-thinking", False),
        ("moonshot:kimi-k3", True),
        ("zai:glm-5.1", False),
        ("deepseek:deepseek-chat", True),
        ("deepseek:deepseek-reasoner", False),
        ("deepseek:deepseek-v4-pro", False),
        ("alibaba:qwen3.5-plus", False),
        ("alibaba:qwen3-235b-a22b-thinking-2507", False),
        ("alibaba:qwen-max", True),
        ("anthropic:claude-opus-5", True),
        ("anthropic:claude-opus-5-5", False),
        ("anthropic:claude-fable-5-1", False),
    ],
)
def test_models_that_refuse_to_be_made_to_call(model: str, takes_required: bool) -> None:
    entry, name = split_model(model)
    assert entry.profile_of(name).required_tool_choice is takes_required
    if not takes_required:
        assert not entry.profile_of(name).named_tool_choice


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_provider_names_what_it_changes(name: str) -> None:
    entry = PROVIDERS[name]
    asked = Request(messages=(USER,), functions=(ADD,), output=TEXT)
    assert entry.codec.adapted(asked, entry.profile_of("m")) == ()


@pytest.mark.system
@pytest.mark.parametrize("way", ["complete", "stream"])
def test_the_reply_names_it(way: str) -> None:
    asked = Request(messages=(USER,), functions=(ADD,), tool_choice="required", output=Output(City))
    with FaultServer([http(completion("{}"))]) as server:
        client = client_for("zai:glm-5.1", api_key=KEY, base_url=server.base_url)
        with client:
            reply = client.complete(asked) if way == "complete" else list(client.stream(asked))[-1]
            plain = client.complete(Request(messages=(USER,)))
    assert reply.adapted == (
        "the schema was told in words: the model does not take it",
        "tool_choice='required' became 'auto': the model cannot be made to call",
    )
    assert server.requests[0].json["tool_choice"] == "auto"
    assert plain.adapted == ()


@pytest.mark.system
@pytest.mark.spec("2.36: a backend that cannot tune warns")
@pytest.mark.parametrize("way", ["complete", "stream", "acomplete", "astream"])
def test_a_preset_that_the_model_cannot_have_is_warned_of_once(way: str, caplog: pytest.LogCaptureFixture) -> None:
    class Editor(AgentBase[str], register=False):
        expertise = "You edit."

    def ask(agent: Agent) -> Any:
        match way:
            case "complete":
                return agent.call("hi")
            case "stream":
                return list(agent.stream("hi"))[-1].result
            case "acomplete":
                return asyncio.run(agent.acall("hi"))
        return asyncio.run(streamed(agent))

    async def streamed(agent: Agent) -> Any:
        return [event async for event in agent.astream("hi")][-1].result

    with (
        FaultServer([http(completion("ho"))]) as server,
        caplog.at_level("WARNING", "fsm_agent"),
        client_for("openai-chat:o3", api_key=KEY, base_url=server.base_url) as client,
    ):
        (agent,) = Editor(client=client, profile="deterministic").agents.values()
        note = "temperature=0.0 was left out: the model does not take it here"
        assert [ask(agent).record.reply.adapted for _ in range(2)] == [(note,), (note,)]
    assert [record.getMessage() for record in caplog.records] == [f"openai-chat:o3: {note}"]
    assert all("temperature" not in request.json and request.json["seed"] == 1 for request in server.requests)

"""Does the codec of Anthropic's messages say what a request means, and know where an answer ends?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, create_model
from support.messages_bodies import CODEC, message, whole
from support.wire_samples import ADD, PNG, STRICT_ADD, USER, WAIT, City, Loose, adapter, consumed

from fsm_agent.call import Request
from fsm_agent.errors import UsageError
from fsm_agent.functions import Function
from fsm_agent.messages import Document, FunctionCall, FunctionResult, Image, Message, Opaque, Settings
from fsm_agent.prompts import Output
from fsm_agent.providers import AnthropicProfile, Profile, providers


class Tree(BaseModel):
    children: list[Tree]


Wide = create_model("Wide", **{f"a{i}": (int, 0) for i in range(25)})  # type: ignore[call-overload]


def encoded(*messages: Message, profile: Profile | None = None, stream: bool = False, **request: Any) -> dict[str, Any]:
    asked = Request(messages=messages or (USER,), **request)
    return json.loads(CODEC.encode(asked, model="m1", profile=profile or AnthropicProfile(), stream=stream))


def set_to(profile: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    """What settings add to a request."""
    body = encoded(settings=Settings(**settings), profile=AnthropicProfile(**profile or {}))
    return {key: value for key, value in body.items() if key not in ("model", "messages")}


def test_the_shortest_request_states_a_limit_of_tokens() -> None:
    assert encoded() == {"model": "m1", "max_tokens": 16_000, "messages": [{"role": "user", "content": "hi"}]}
    assert encoded(stream=True) == {**encoded(profile=Profile()), "stream": True}
    assert CODEC.path("m1", stream=True) == "/messages"
    assert CODEC.headers("k1") == {"x-api-key": "k1", "anthropic-version": "2023-06-01"}
    assert CODEC.headers(None) == {"anthropic-version": "2023-06-01"}


def test_system_prompt_and_container_have_their_keys() -> None:
    container = Opaque(wire="anthropic", data={"adds_to": "request", "container": "c1"})
    body = encoded(Message.of("system", "Be terse."), USER, Message.of("assistant", "hi", container))
    assert (body["system"], body["container"]) == ("Be terse.", "c1")
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant"]


def test_functions_are_strict_only_where_they_can_be() -> None:
    first, second = encoded(functions=(ADD, WAIT))["tools"]
    assert first == {
        "name": "add",
        "description": "Add two numbers.",
        "input_schema": STRICT_ADD,
        "strict": True,
    }
    assert second == {"name": "wait", "description": "Wait.", "input_schema": WAIT.parameters}
    (loose,) = encoded(functions=(ADD,), profile=AnthropicProfile(strict_functions=False))["tools"]
    assert loose == {"name": "add", "description": "Add two numbers.", "input_schema": ADD.parameters}
    (bare,) = encoded(functions=(Function(name="now"),))["tools"]
    assert "description" not in bare


def test_choice_of_functions() -> None:
    choices = {"auto": "auto", "required": "any", "none": "none", "wait": "tool"}
    for choice, type_ in choices.items():
        said = {"type": type_, **({"name": "wait"} if choice == "wait" else {})}
        for parallel in (None, True, False):
            settings = Settings(parallel_function_calls=parallel)
            body = encoded(functions=(ADD, WAIT), tool_choice=choice, settings=settings)
            only = {"disable_parallel_tool_use": True} if parallel is False and choice != "none" else {}
            assert body["tool_choice"] == {**said, **only}
            assert len(body["tools"]) == 2


def test_model_can_be_made_to_call_where_it_does_not_think_first() -> None:
    for reasoning, effort in (("adaptive", "low"), ("budget", "none"), ("budget", None)):
        how: dict[str, Any] = {"settings": Settings(reasoning_effort=effort), "tool_choice": "required"}
        body = encoded(functions=(ADD,), profile=AnthropicProfile(reasoning=reasoning), **how)
        assert body["tool_choice"] == {"type": "any"}


def test_functions_that_were_withdrawn_are_still_declared() -> None:
    call = FunctionCall(id="1.0", name="add", arguments_json="{}")
    dialog = [USER, Message.of("assistant", call), Message.of("tool", FunctionResult(id="1.0", name="add", text="2"))]
    body = encoded(*dialog)
    assert body["tools"] == [{"name": "add", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}
    assert [tool["name"] for tool in encoded(*dialog, functions=(WAIT,))["tools"]] == ["wait"]
    assert not encoded().keys() & {"tools", "tool_choice"}


def test_schema_goes_out_natively() -> None:
    closed = {**City.model_json_schema(), "additionalProperties": False}
    form = {"type": "json_schema", "schema": closed}
    assert encoded(output=Output(City))["output_config"] == {"format": form}
    both = encoded(output=Output(City), functions=(ADD,), settings=Settings(reasoning_effort="low"))
    assert both["output_config"] == {"format": form, "effort": "low"}
    assert "required" not in encoded(output=Output(Loose))["output_config"]["format"]["schema"]
    assert not encoded(output=Output(City)).keys() & {"system", "output_format"}


@pytest.mark.parametrize("output", [Tree, dict[str, int], Wide])
def test_schema_is_told_in_words_where_it_cannot_be_enforced(output: Any) -> None:
    body = encoded(output=Output(output))
    assert "output_config" not in body
    assert body["system"].startswith("IMPORTANT")


def test_effort_is_a_budget_for_models_that_want_one() -> None:
    for effort, max_tokens, budget in [
        ("minimal", 16_000, 1_024),
        ("low", 16_000, 3_200),
        ("max", 16_000, 12_800),
        ("low", 1_025, 1_024),
    ]:
        said = set_to(
            {"reasoning": "budget"}, reasoning_effort=effort, max_tokens=max_tokens, temperature=0.5, top_p=0.5
        )
        assert said == {"max_tokens": max_tokens, "thinking": {"type": "enabled", "budget_tokens": budget}}


THOUGHT = Opaque(wire="anthropic", data={"type": "thinking", "thinking": "hm", "signature": "x"})
CALL = FunctionCall(id="1.0", name="add", arguments_json="{}")
AGAIN = FunctionCall(id="3.0", name="add", arguments_json="{}")
RESULT = Message.of("tool", FunctionResult(id="1.0", name="add", text="2"))
RESULTS = Message.of("tool", FunctionResult(id="3.0", name="add", text="2"))


@pytest.mark.parametrize(
    ("dialog", "reasons"),
    [
        ([Message.of("assistant", CALL), RESULT], False),
        ([Message.of("assistant", CALL), RESULT, Message.of("user", "Hurry.")], False),
        ([Message.of("assistant", CALL), RESULT, Message.of("assistant", "It is 2."), USER], True),
        ([Message.of("assistant", THOUGHT, CALL), RESULT], True),
        ([Message.of("assistant", THOUGHT, CALL), RESULT, Message.of("assistant", AGAIN), RESULTS], True),
    ],
)
def test_calls_that_another_model_began_with_are_continued_without_a_budget(
    dialog: list[Message], reasons: bool
) -> None:
    settings = Settings(reasoning_effort="low")
    body = encoded(USER, *dialog, settings=settings, profile=AnthropicProfile(reasoning="budget"))
    assert ("thinking" in body) == reasons
    assert "thinking" in encoded(USER, *dialog, settings=settings)  # models that adapt do not mind


def test_calls_that_began_with_reasoning_are_continued_without_it_once_it_is_off() -> None:
    begun = [USER, Message.of("assistant", THOUGHT, CALL), RESULT]
    for profile, effort, kept in [
        (AnthropicProfile(), "none", ["tool_use"]),
        (AnthropicProfile(reasoning="budget"), None, ["tool_use"]),
        (AnthropicProfile(), None, ["thinking", "tool_use"]),
        (AnthropicProfile(reasoning_off="between_tools"), "none", ["thinking", "tool_use"]),
    ]:
        body = encoded(*begun, profile=profile, settings=Settings(reasoning_effort=effort))
        assert [block["type"] for block in body["messages"][1]["content"]] == kept
    ended = encoded(*begun, Message.of("assistant", "2."), USER, settings=Settings(reasoning_effort="none"))
    assert ended["messages"][1]["content"][0] == THOUGHT.data, "in an earlier turn, the service ignores it"


def test_effort_is_a_level_for_models_that_adapt() -> None:
    for effort, level in (("minimal", "low"), ("low", "low"), ("max", "max")):
        said = set_to(reasoning_effort=effort, temperature=0.5)
        assert said == {"max_tokens": 16_000, "thinking": {"type": "adaptive"}, "output_config": {"effort": level}}


def test_reasoning_that_is_bound_to_an_earlier_request_is_dropped_and_no_error() -> None:
    bound = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    header = {"anthropic-beta": "thinking-binding-controls-2026-08-01"}
    for model, effort, thinking, betas in [
        ("claude-fable-5-1", None, bound, header),
        ("claude-opus-5-5", "low", bound, header),
        ("claude-sonnet-5-5", "none", {"type": "between_tools"}, header),
        ("claude-opus-4-5-20251101", None, None, {}),
        ("claude-opus-5", "low", {"type": "adaptive"}, {}),
    ]:
        request = Request(messages=(USER,), settings=Settings(reasoning_effort=effort))
        profile = providers()["anthropic"].profile_of(model)
        body = json.loads(CODEC.encode(request, model=model, profile=profile, stream=False))
        assert (body.get("thinking"), CODEC.request_headers(request, profile)) == (thinking, betas)


def test_model_is_told_not_to_reason() -> None:
    assert set_to(reasoning_effort="none", temperature=0.5) == {
        "max_tokens": 16_000,
        "thinking": {"type": "disabled"},
        "temperature": 0.5,
    }
    assert set_to({"reasoning_off": "between_tools"}, reasoning_effort="none")["thinking"] == {"type": "between_tools"}
    assert "thinking" not in set_to({"reasoning": None}, reasoning_effort="none")


@pytest.mark.parametrize(
    ("profile", "settings", "name"),
    [
        ({"reasoning": None}, {"reasoning_effort": "low"}, "reasoning_effort: .*'low'"),
        ({"reasoning_off": None}, {"reasoning_effort": "none"}, "reasoning_effort: .*'none'"),
        ({"reasoning": "budget"}, {"reasoning_effort": "huge"}, "reasoning_effort: .*'huge'"),
        ({"reasoning": "budget"}, {"reasoning_effort": "low", "max_tokens": 1_024}, "max_tokens: .*1024"),
        ({}, {"top_logprobs": 0}, "top_logprobs: .*0"),
    ],
)
def test_what_the_model_cannot_do_is_refused_before_it_is_sent(
    profile: dict[str, Any], settings: dict[str, Any], name: str
) -> None:
    with pytest.raises(UsageError, match=name):
        set_to(profile, **settings)


def test_choice_that_cannot_be_is_refused() -> None:
    asked = {"tool_choice": "required", "settings": Settings(reasoning_effort="low")}
    with pytest.raises(UsageError, match="tool_choice='required'"):
        encoded(functions=(ADD,), profile=AnthropicProfile(reasoning="budget"), **asked)


def test_settings_have_their_names() -> None:
    said = set_to(temperature=0.0, top_p=0.5, max_tokens=7, stop=("x", "y"), seed=1)
    assert said == {"max_tokens": 7, "temperature": 0.0, "stop_sequences": ["x", "y"]}
    assert set_to(top_p=0.5) == {"max_tokens": 16_000, "top_p": 0.5}
    assert set_to({"default_max_tokens": 5}) == {"max_tokens": 5}
    both = set_to({"temperature_with_top_p": True}, temperature=0.0, top_p=0.5)
    assert (both["temperature"], both["top_p"]) == (0.0, 0.5)
    assert set_to({"temperature": False}, temperature=0.0, top_p=0.5) == {"max_tokens": 16_000}


DOCUMENTS = (Document.of(b"%PDF-"), Document.of(b"# Hi", name="a.md"), Document.of("https://x/y.pdf"))
SHOWN = (Image.of(PNG), *DOCUMENTS)
ANSWER = [
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "redacted_thinking", "data": "x"},
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
    {"type": "text", "text": "Well."},
    {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": 2}},
]


@pytest.mark.nightly
@pytest.mark.parametrize("reasoning", ["adaptive", "budget"])
@pytest.mark.parametrize("output", [str, City])
def test_requests_are_what_the_official_sdk_takes(output: Any, reasoning: Any) -> None:
    params = pytest.importorskip("anthropic.types.message_create_params", reason="the SDK is not installed")
    body = encoded(
        Message.of("system", "Be terse."),
        Message.of("user", "look", *SHOWN, Image(url="https://x/y.png"), "again"),
        whole(message(*ANSWER)).message,
        Message.of("tool", FunctionResult(id="", name="add", text="", provider_id="t1", is_error=True)),
        Message.of("tool", FunctionResult(id="", name="add", text="2", provider_id="t1", attachments=SHOWN)),
        Message.of("user", Opaque(wire="anthropic", data={"type": "document", "source": {"type": "url", "url": "u"}})),
        functions=(ADD, WAIT),
        output=Output(output),
        settings=Settings(
            max_tokens=4_000, stop=("x",), reasoning_effort="medium", parallel_function_calls=False, cache="1h"
        ),
        profile=AnthropicProfile(reasoning=reasoning),
    )
    assert json.dumps(body)
    assert known(consumed(adapter(params.MessageCreateParamsNonStreaming).validate_python(body))) == known(body)
    assert body["messages"][1]["content"] == ANSWER


def known(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request without its functions' schemas, of which the SDK names only three keys."""
    return {**body, "tools": [{**tool, "input_schema": tool["input_schema"]["type"]} for tool in body["tools"]]}

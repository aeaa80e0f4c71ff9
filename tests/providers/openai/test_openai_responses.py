"""Does the codec of the Responses API say what a request means, and know where an answer ends?"""

from __future__ import annotations

import re
from typing import Any, Literal

import pytest
from support.response_bodies import (
    CODEC,
    body,
    called,
    encoded,
    said,
    thought,
    whole,
)
from support.wire_samples import ADD, PNG, STRICT_ADD, USER, WAIT, City, Loose, adapter, consumed

from fsm_agent.errors import UsageError
from fsm_agent.functions import Function
from fsm_agent.messages import Document, FunctionCall, FunctionResult, Image, Message, Settings
from fsm_agent.prompts import Output
from fsm_agent.providers import Profile, providers


def test_the_shortest_request_asks_not_to_be_stored() -> None:
    assert encoded() == {"model": "m1", "input": [{"role": "user", "content": "hi"}], "store": False}
    assert encoded(stream=True) == {**encoded(), "stream": True}
    assert CODEC.path("m1", stream=True) == "/responses"
    assert CODEC.headers("k1") == {"authorization": "Bearer k1"}
    assert CODEC.headers(None) == {}


def test_functions_are_strict_only_where_they_can_be_and_never_by_default() -> None:
    first, second = encoded(functions=(ADD, WAIT))["tools"]
    assert first == {
        "type": "function",
        "name": "add",
        "description": "Add two numbers.",
        "parameters": STRICT_ADD,
        "strict": True,
    }
    assert second == {
        "type": "function",
        "name": "wait",
        "description": "Wait.",
        "parameters": WAIT.parameters,
        "strict": False,
    }
    (loose,) = encoded(functions=(ADD,), profile=Profile(strict_functions=False))["tools"]
    assert (loose["parameters"], loose["strict"]) == (ADD.parameters, False)
    (bare,) = encoded(functions=(Function(name="now"),))["tools"]
    assert "description" not in bare


def test_choice_of_functions() -> None:
    one = {"type": "function", "name": "wait"}
    for choice, told in (("auto", "auto"), ("required", "required"), ("none", "none"), ("wait", one)):
        request = encoded(functions=(ADD, WAIT), tool_choice=choice)
        assert request["tool_choice"] == told
        assert len(request["tools"]) == 2


def test_schema_goes_out_natively() -> None:
    closed = {"additionalProperties": False}
    form = encoded(output=Output(City))["text"]["format"]
    assert (form["type"], form["name"], form["strict"]) == ("json_schema", "City", True)
    assert form["schema"]["additionalProperties"] is False
    loose = encoded(output=Output(Loose))["text"]["format"]
    assert loose == {"type": "json_schema", "name": "Loose", "schema": {**Loose.model_json_schema(), **closed}}
    plain = encoded(output=Output(City), profile=Profile(strict_functions=False))["text"]["format"]
    assert plain == {"type": "json_schema", "name": "City", "schema": {**City.model_json_schema(), **closed}}
    assert "text" not in encoded()


def test_schema_has_a_name_that_the_wire_takes() -> None:
    for output in [list[int], Literal["a", "b"]]:
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", encoded(output=Output(output))["text"]["format"]["name"])


def test_settings_have_their_names() -> None:
    settings = Settings(
        temperature=0.0,
        top_p=0.5,
        max_tokens=7,
        seed=0,
        parallel_function_calls=False,
        reasoning_effort="low",
        top_logprobs=2,
    )
    request = encoded(settings=settings, functions=(ADD,))
    for key in ("tools", "tool_choice", "model", "input", "store"):
        del request[key]
    assert request == {
        "temperature": 0.0,
        "top_p": 0.5,
        "max_output_tokens": 7,
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low"},
        "top_logprobs": 2,
        "include": ["message.output_text.logprobs"],
    }
    other = encoded(settings=settings, profile=Profile(max_tokens_name="max_completion_tokens", temperature=False))
    assert other["max_output_tokens"] == 7
    assert not other.keys() & {"max_completion_tokens", "temperature", "top_p"}


def test_a_limit_below_the_least_is_raised_to_it():
    """OpenAI refuses less than 16."""
    assert encoded(settings=Settings(max_tokens=1), profile=Profile(least_max_tokens=16))["max_output_tokens"] == 16
    assert providers()["openai"].profile_of("gpt-4o").least_max_tokens == 16


def test_encrypted_reasoning_is_asked_for_where_the_model_has_some() -> None:
    profile = Profile(reasoning_name="encrypted_content")
    assert encoded(profile=profile)["include"] == ["reasoning.encrypted_content"]
    request = encoded(profile=profile, settings=Settings(top_logprobs=0))
    assert request["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert "top_logprobs" not in request
    assert "include" not in encoded()


@pytest.mark.parametrize("keeper", ["settings", "profile"])
def test_reasoning_goes_back_by_its_id_alone_where_the_provider_keeps_it(keeper: str) -> None:
    replied = whole(body({**thought("hm"), "encrypted_content": None}, said("hi"))).message
    extra = {"store": True}
    kept = {"settings": Settings(extra_body=extra)} if keeper == "settings" else {"profile": Profile(extra_body=extra)}
    assert [item["type"] for item in encoded(replied, **kept)["input"]] == ["reasoning", "message"]  # type: ignore[arg-type]
    assert [item["type"] for item in encoded(replied)["input"]] == ["message"]


def test_what_cannot_be_said_is_refused_before_it_is_sent() -> None:
    with pytest.raises(UsageError, match=r"stop: .*\('x',\)"):
        encoded(settings=Settings(stop=("x",)))


CALLS = (
    FunctionCall(id="3.0", name="add", arguments_json='{"a": 1}', provider_id="call_x"),
    FunctionCall(id="3.1", name="add", arguments_json=""),
)
DOCUMENTS = (Document.of(b"%PDF-"), Document.of(b"# Hi", name="a.md"), Document.of("https://x/y.pdf"))
SHOWN = (Image.of(PNG), *DOCUMENTS)
OWN = whole(body(thought("hm"), said("Well.", phase="commentary"), called("add"))).message


@pytest.mark.nightly
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("output", [str, City])
def test_requests_are_what_the_official_sdk_takes(output: Any, stream: bool) -> None:
    params = pytest.importorskip("openai.types.responses.response_create_params", reason="the SDK is not installed")
    kind = params.ResponseCreateParamsStreaming if stream else params.ResponseCreateParamsNonStreaming
    settings = Settings(temperature=0.0, max_tokens=7, seed=1, top_logprobs=2, reasoning_effort="low")
    request = encoded(
        Message.of("system", "Be terse."),
        Message.of("user", "look", *SHOWN, "again"),
        Message.of("assistant", "Well.", *CALLS),
        Message.of("tool", *[FunctionResult(id=call.id, name="add", text="2", attachments=SHOWN) for call in CALLS]),
        Message.of("assistant"),
        USER,
        OWN,
        Message.of("tool", FunctionResult(id="", name="add", text="3", provider_id="call_fc_1")),
        functions=(ADD, WAIT),
        tool_choice="add",
        output=Output(output),
        settings=settings,
        stream=stream,
        profile=Profile(reasoning_name="encrypted_content"),
    )
    assert consumed(adapter(kind).validate_python(request)) == request  # what it does not know would be missing

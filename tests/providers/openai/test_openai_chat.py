"""Does the codec of chat completions say what a request means, and know where an answer ends?"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import pytest
from support.chat_bodies import CODEC
from support.time_growth import growth
from support.wire_samples import ADD, PNG, STRICT_ADD, USER, WAIT, City, Loose, adapter, consumed

from fsm_agent.call import Request
from fsm_agent.errors import UsageError
from fsm_agent.functions import Function
from fsm_agent.messages import Document, FunctionCall, FunctionResult, Image, Message, Opaque, Reasoning, Settings
from fsm_agent.prompts import Output
from fsm_agent.providers import Profile, providers


def encoded(*messages: Message, profile: Profile | None = None, stream: bool = False, **request: Any) -> dict[str, Any]:
    asked = Request(messages=messages or (USER,), **request)
    return json.loads(CODEC.encode(asked, model="m1", profile=profile or Profile(), stream=stream))


def entries(*messages: Message, **profile: Any) -> list[Any]:
    said: list[Any] = encoded(*messages, profile=Profile(**profile))["messages"]
    return said


def test_the_shortest_request_has_model_and_messages() -> None:
    assert encoded() == {"model": "m1", "messages": [{"role": "user", "content": "hi"}]}
    assert CODEC.path("m1", stream=True) == "/chat/completions"
    assert CODEC.headers("k1") == {"authorization": "Bearer k1"}
    assert CODEC.headers(None) == {}


def test_system_message_has_the_role_of_the_model() -> None:
    system = Message.of("system", "Be ", "terse.")
    for role in ("system", "developer", "user"):
        assert entries(system, USER, system_role=role)[0] == {"role": role, "content": "Be terse."}
    part = {"type": "text", "text": "Be terse.", "cache_control": {"type": "ephemeral"}}
    cached = Message.of("system", Opaque(wire="openai-chat", data=part))
    assert entries(cached) == [{"role": "system", "content": [part]}]


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        ((), ""),
        (("hi",), "hi"),
        (("a", "b"), [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        (
            ("a", Image.of(PNG)),
            [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAAAAAAAAAA=="}},
            ],
        ),
        ((Image(url="http://x/y.png"),), [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]),
        ((Opaque(wire="openai-chat", data={"type": "file"}), Opaque(wire="gemini", data={})), [{"type": "file"}]),
    ],
)
def test_user_message_has_its_parts(parts: tuple[Any, ...], content: Any) -> None:
    assert entries(Message.of("user", *parts)) == [{"role": "user", "content": content}]


CALLS = (
    FunctionCall(id="3.0", name="add", arguments_json='{"a": 1}', provider_id="call_x"),
    FunctionCall(id="3.1", name="add", arguments_json=""),
    FunctionCall(id="3.2", name="add", arguments_json='{"a": '),
    FunctionCall(id="3.3", name="add", arguments_json="[1]", provider_id=""),
)


def test_calls_and_results_have_one_id() -> None:
    results = [
        FunctionResult(id="3.0", name="add", text="2", provider_id="call_x"),
        FunctionResult(id="3.1", name="add", text=""),
        FunctionResult(id="3.2", name="add", text="no", provider_id="", is_error=True),
        FunctionResult(id="3.3", name="add", text="no"),
    ]
    said = entries(USER, Message.of("assistant", "Well.", *CALLS), Message.of("tool", *results))
    assert said[1]["content"] == "Well."
    assert [call["id"] for call in said[1]["tool_calls"]] == ["call_x", "call_3_1", "call_3_2", "call_3_3"]
    assert [entry["tool_call_id"] for entry in said[2:]] == ["call_x", "call_3_1", "call_3_2", "call_3_3"]
    assert [entry["content"] for entry in said[2:]] == ["2", "{}", "no", "no"]
    assert {entry["role"] for entry in said[2:]} == {"tool"}


def test_arguments_that_went_out_can_always_be_parsed() -> None:
    calls = entries(USER, Message.of("assistant", *CALLS))[1]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == [
        '{"a": 1}',
        "{}",
        '{"invalid_arguments":"{\\"a\\": "}',
        '{"invalid_arguments":"[1]"}',
    ]
    assert {call["type"] for call in calls} == {"function"}


def test_assistant_content_is_never_missing() -> None:
    for parts in ((), (CALLS[0],), (Reasoning(text="hm"),)):
        assert entries(Message(role="assistant", parts=parts))[0]["content"] == ""


def test_results_in_a_users_message_go_before_what_else_it_says() -> None:
    result = FunctionResult(id="3.0", name="add", text="2")
    assert entries(Message.of("user", "and now?", result)) == [
        {"role": "tool", "tool_call_id": "call_3_0", "content": "2"},
        {"role": "user", "content": [{"type": "text", "text": "and now?"}]},
    ]
    assert entries(Message.of("user", result)) == [{"role": "tool", "tool_call_id": "call_3_0", "content": "2"}]


def test_a_part_of_this_wire_among_results_is_refused() -> None:
    part = Opaque(wire="openai-chat", data={"type": "file"})
    with pytest.raises(UsageError, match="'tool'"):
        entries(Message.of("tool", FunctionResult(id="c", name="f", text="2"), part))


DETAILS = Opaque(wire="openai-chat", data={"reasoning_details": [{"type": "reasoning.text", "signature": "s"}]})
OTHER = Opaque(wire="anthropic", data={"type": "thinking"})
THOUGHT = Message.of("assistant", Reasoning(text="hm"), DETAILS, OTHER, "hi")


@pytest.mark.parametrize(
    ("name", "message", "more"),
    [
        (None, THOUGHT, {"content": "hi"}),
        ("reasoning_content", THOUGHT, {"content": "hi", "reasoning_content": "hm"}),
        ("reasoning_content", Message.of("assistant", "hi"), {"content": "hi"}),
        ("reasoning_content", Message.of("assistant", CALLS[0]), {"content": "", "reasoning_content": ""}),
        ("reasoning", THOUGHT, {"content": "hi", "reasoning": "hm"}),
        ("reasoning_details", THOUGHT, {"content": "hi", **DETAILS.data}),
        ("reasoning_details", Message.of("assistant", Reasoning(text="hm")), {"content": "", "reasoning": "hm"}),
        (
            "thinking",
            THOUGHT,
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                    {"type": "text", "text": "hi"},
                ]
            },
        ),
        ("thinking", Message.of("assistant", "hi"), {"content": "hi"}),
    ],
)
def test_reasoning_goes_back_as_the_model_takes_it(name: Any, message: Message, more: dict[str, Any]) -> None:
    (said,) = entries(message, reasoning_name=name)
    said.pop("tool_calls", None)
    assert said == {"role": "assistant", **more}


def test_functions_are_strict_only_where_they_can_be() -> None:
    first, second = encoded(functions=(ADD, WAIT))["tools"]
    assert first == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": STRICT_ADD,
            "strict": True,
        },
    }
    assert "strict" not in second["function"]
    assert second["function"]["parameters"] == WAIT.parameters
    (loose,) = encoded(functions=(ADD,), profile=Profile(strict_functions=False))["tools"]
    assert loose["function"] == {"name": "add", "description": "Add two numbers.", "parameters": ADD.parameters}
    (bare,) = encoded(functions=(Function(name="now"),))["tools"]
    assert "description" not in bare["function"]


def test_choice_of_functions() -> None:
    one = {"type": "function", "function": {"name": "wait"}}
    for choice, said in (("auto", "auto"), ("required", "required"), ("none", "none"), ("wait", one)):
        body = encoded(functions=(ADD, WAIT), tool_choice=choice)
        assert body["tool_choice"] == said
        assert len(body["tools"]) == 2


def test_schema_goes_out_natively() -> None:
    form = encoded(output=Output(City))["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["name"] == "City"
    assert form["json_schema"]["strict"] is True
    assert form["json_schema"]["schema"]["additionalProperties"] is False
    loose = encoded(output=Output(Loose))["response_format"]["json_schema"]
    assert loose == {"name": "Loose", "schema": {**Loose.model_json_schema(), "additionalProperties": False}}
    plain = encoded(output=Output(City), profile=Profile(strict_functions=False))["response_format"]["json_schema"]
    assert plain == {"name": "City", "schema": {**City.model_json_schema(), "additionalProperties": False}}
    assert "response_format" not in encoded()


def test_schema_has_a_name_that_the_wire_takes() -> None:
    for output in [list[int], Literal["a", "b"]]:
        said = encoded(output=Output(output))["response_format"]["json_schema"]["name"]
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", said)


@pytest.mark.parametrize(
    ("messages", "begins", "kind"),
    [
        ((USER,), "", str),
        ((Message.of("system", "Be terse."), USER), "Be terse.\n\n", str),
        ((Message.of("system", ""), USER), "", str),
        ((Message.of("system"), USER), "", str),
        ((Message.of("system", Opaque(wire="openai-chat", data={"type": "text", "text": "x"})), USER), "x", list),
    ],
)
def test_schema_is_told_in_words(messages: tuple[Message, ...], begins: str, kind: type) -> None:
    body = encoded(*messages, output=Output(City), profile=Profile(native_schema=False))
    assert "response_format" not in body
    first, second = body["messages"]
    assert (first["role"], second) == ("system", {"role": "user", "content": "hi"})
    content = first["content"]
    text = content if isinstance(content, str) else "".join([part["text"] for part in content])
    assert type(content) is kind
    assert text.startswith(f"{begins}IMPORTANT")
    assert all(name in text for name in City.model_fields)


def test_settings_have_their_names() -> None:
    settings = Settings(
        temperature=0.0,
        top_p=0.5,
        max_tokens=7,
        stop=("x",),
        seed=0,
        parallel_function_calls=False,
        reasoning_effort="low",
        top_logprobs=2,
    )
    body = encoded(settings=settings, functions=(ADD,))
    del body["tools"], body["tool_choice"], body["model"], body["messages"]
    assert body == {
        "temperature": 0.0,
        "top_p": 0.5,
        "max_tokens": 7,
        "stop": ["x"],
        "seed": 0,
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
        "logprobs": True,
        "top_logprobs": 2,
    }
    names = Profile(max_tokens_name="max_completion_tokens", seed_name="random_seed", temperature=False)
    other = encoded(settings=settings, profile=names)
    assert (other["max_completion_tokens"], other["random_seed"]) == (7, 0)
    assert not other.keys() & {"max_tokens", "seed", "temperature", "top_p", "parallel_tool_calls"}


def test_logprobs_without_alternatives() -> None:
    body = encoded(settings=Settings(top_logprobs=0))
    assert (body["logprobs"], "top_logprobs" in body) == (True, False)


def test_streams_ask_for_usage_where_it_is_understood() -> None:
    asked = {**encoded(), "stream": True}
    assert encoded(stream=True) == {**asked, "stream_options": {"include_usage": True}}
    assert encoded(stream=True, profile=Profile(stream_usage=False)) == asked


def test_what_was_answered_can_be_sent_back() -> None:
    message = {
        "role": "assistant",
        "content": "Well.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}],
        "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s"}],
    }
    reply = CODEC.decode(200, {}, json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode())
    assert entries(reply.message, reasoning_name="reasoning_details") == [message]


DOCUMENTS = (Document.of(b"%PDF-"), Document.of(b"# Hi", name="a.md"))
SHOWN = (Image.of(PNG), *DOCUMENTS)


def call(id: str = "", theirs: str | None = None) -> FunctionCall:
    return FunctionCall(name="f", arguments_json="{}", id=id, provider_id=theirs)


def ids(
    *asked: tuple[tuple[str, str | None], ...], order: int = 1, **profile: Any
) -> list[tuple[list[str], list[str]]]:
    """The ids of the calls of each round, and of their results, in this order."""
    messages, found = [USER], []
    for calls in asked:
        results = [FunctionResult(name="f", text="", id=id, provider_id=theirs) for id, theirs in calls[::order]]
        messages += [Message.of("assistant", *[call(*one) for one in calls]), Message.of("tool", *results)]
    said = entries(*messages, **profile)
    for place, entry in enumerate(said):
        if "tool_calls" in entry:
            count = len(entry["tool_calls"])
            results_of = [result["tool_call_id"] for result in said[place + 1 : place + 1 + count]]
            found.append(([one["id"] for one in entry["tool_calls"]], results_of[::order]))
    return found


def test_ids_that_fit_are_kept_and_others_are_told_apart() -> None:
    for order in (1, -1):
        (fitting,) = ids((("1.0", "a"), ("1.1", None), ("1.2", "")), order=order)
        assert fitting == (["a", "call_1_1", "call_1_2"],) * 2
        one, two = ids((("1.0", "x"), ("1.1", "x")), (("3.0", "x"), ("3.1", "y")), order=order)
        assert (one[0], two[0]) == (one[1], two[1])
        assert len({*one[0], *two[0]}) == 4
        assert one[0][0] == "x"


def test_without_ids_of_ours_results_come_in_the_order_of_the_calls() -> None:
    for theirs in (None, "x"):
        one, two = ids((("", theirs), ("", theirs)), (("", theirs),))
        assert (one[0], two[0]) == (one[1], two[1])
        assert len({*one[0], *two[0]}) == 3
    alone = entries(USER, Message.of("tool", FunctionResult(name="f", text="", id="9.0", provider_id="elsewhere")))
    assert alone[1]["tool_call_id"] == "elsewhere"


def test_ids_have_just_so_many_letters_and_digits_where_that_is_wanted() -> None:
    chars = providers()["mistral"].profile_of("m").call_id_chars
    for theirs in ["call_0fypS1hVX", "call_1234", "abc", "ü" * 9, "a" * 10, None]:
        ((asked, answered),) = ids((("1.0", "D681PevKs"), ("1.1", theirs)), call_id_chars=chars)
        assert asked == answered == ["D681PevKs", "call00001"]


@pytest.mark.nightly
@pytest.mark.parametrize("order", [1, -1], ids=["in order", "reversed"])
def test_many_calls_of_one_id_take_linear_time(order: int) -> None:
    def matched(numbers: tuple[str, ...]) -> None:
        ((asked, answered),) = ids(tuple([(number, "x") for number in numbers]), order=order)
        assert asked == answered

    assert growth(lambda size: tuple([str(number) for number in range(size)]), matched, 5000) < 3


@pytest.mark.nightly
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("output", [str, City])
def test_requests_are_what_the_official_sdk_takes(output: Any, stream: bool) -> None:
    params = pytest.importorskip("openai.types.chat.completion_create_params", reason="the SDK is not installed")
    kind = params.CompletionCreateParamsStreaming if stream else params.CompletionCreateParamsNonStreaming
    settings = Settings(temperature=0.0, max_tokens=7, stop=("x",), seed=1, top_logprobs=2, reasoning_effort="low")
    body = encoded(
        Message.of("system", "Be terse."),
        Message.of("user", "look", Image.of(PNG), *DOCUMENTS, "again"),
        Message.of("assistant", "Well.", *CALLS),
        Message.of("tool", *[FunctionResult(id=call.id, name="add", text="", attachments=SHOWN) for call in CALLS]),
        Message.of("assistant"),
        functions=(ADD, WAIT),
        tool_choice="add",
        output=Output(output),
        settings=settings,
        stream=stream,
        profile=Profile(max_tokens_name="max_completion_tokens"),
    )
    assert consumed(adapter(kind).validate_python(body)) == body  # what it does not know would be missing

"""Is a dialog written in turns that Anthropic's wire format accepts, whoever spoke in it?"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.chat_bodies import CODEC as CHAT
from support.messages_bodies import CODEC, message, whole

from fsm_agent.call import Request
from fsm_agent.errors import UsageError
from fsm_agent.messages import FunctionCall, FunctionResult, Image, Message, Opaque, Part, Reasoning, Text
from fsm_agent.prompts import Output
from fsm_agent.providers import AnthropicProfile, Profile

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 8
USER = Message.of("user", "hi")


def encoded(*messages: Message, output: type = str, model: str = "m1", **profile: Any) -> dict[str, Any]:
    request = Request(messages=messages, output=Output(output))
    return json.loads(CODEC.encode(request, model=model, profile=AnthropicProfile(**profile), stream=False))


def turns(*messages: Message, **profile: Any) -> list[Any]:
    said: list[Any] = encoded(*messages, **profile)["messages"]
    return said


def said(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def ours(**data: Any) -> Opaque:
    return Opaque(wire="anthropic", data=data)


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        (("hi",), "hi"),
        (("a", "b"), [said("a"), said("b")]),
        (("a", "", " \n"), "a"),
        (
            ("a", Image.of(PNG)),
            [
                said("a"),
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgoAAAAAAAAAAA=="},
                },
            ],
        ),
        (
            (Image(url="http://x/y.png"),),
            [{"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}],
        ),
        ((ours(type="document", source={}), Opaque(wire="gemini", data={})), [{"type": "document", "source": {}}]),
    ],
)
def test_user_turn_has_its_parts(parts: tuple[Any, ...], content: Any) -> None:
    assert turns(Message.of("user", *parts)) == [{"role": "user", "content": content}]


def test_neighbours_of_one_role_are_one_turn() -> None:
    messages = [
        Message.of("user", "a"),
        Message.of("user", "b"),
        Message.of("assistant", "c"),
        Message.of("assistant", "d"),
        Message.of("assistant", " "),
        Message.of("user", "e"),
    ]
    assert turns(*messages) == [
        {"role": "user", "content": [said("a"), said("b")]},
        {"role": "assistant", "content": [said("c"), said("d")]},
        {"role": "user", "content": "e"},
    ]


def test_message_of_nothing_is_left_out() -> None:
    messages = [USER, Message.of("assistant", Reasoning(text="hm"), ""), Message.of("user", "?")]
    assert turns(*messages) == [{"role": "user", "content": [said("hi"), said("?")]}]


def test_blank_text_which_the_service_refuses_does_not_go_back() -> None:
    blank, call = Text("\n\n"), FunctionCall(name="now", arguments_json="{}", provider_id="c")
    assert turns(USER, Message.of("assistant", "a", blank, "", "b"))[1]["content"] == [said("a"), said("b")]
    assert [block["type"] for block in turns(USER, Message.of("assistant", blank, call))[1]["content"]] == ["tool_use"]
    assert turns(USER, Message.of("assistant", blank, blank)) == turns(USER)


def test_last_words_of_the_model_end_without_blanks_which_the_service_refuses() -> None:
    assert turns(USER, Message.of("assistant", "Well: \n"))[1:] == [{"role": "assistant", "content": "Well:"}]
    ends = [Message.of("assistant", "a ", "b\t"), USER, Message.of("assistant", "c ", "d ")]
    contents = [turn["content"] for turn in turns(USER, *ends)]
    assert contents == ["hi", [said("a "), said("b\t")], "hi", [said("c "), said("d")]]


def test_reasoning_that_nothing_follows_does_not_go_back() -> None:
    signed = (ours(adds_to="thinking", signature="S"), Reasoning(text="hm"))
    thought, hidden = {"type": "thinking", "thinking": "hm", "signature": "S"}, ours(type="redacted_thinking", data="R")
    again = Message.of("user", "again")
    assert turns(USER, Message.of("assistant", *signed, hidden), again) == [
        {"role": "user", "content": [said("hi"), said("again")]}
    ]
    assert turns(USER, Message.of("assistant", *signed, "a ", hidden), again)[1]["content"] == [thought, said("a ")]
    apart = Message.of("assistant", *signed), Message.of("assistant", "a")
    assert turns(USER, *apart, again)[1]["content"] == [thought, said("a")]
    assert turns(USER, Message.of("assistant", *signed)) == turns(USER)
    with pytest.raises(UsageError):
        turns(Message.of("assistant", *signed))


def test_dialog_of_nothing_is_refused() -> None:
    for messages in [(), (Message.of("system", "Be terse."),), (Message.of("user", ""),)]:
        with pytest.raises(UsageError):
            encoded(*messages)


CACHED = ours(type="text", text="Be terse.", cache_control={"type": "ephemeral"})


@pytest.mark.parametrize(
    ("prompts", "system"),
    [
        ((), None),
        ((("",),), None),
        ((("Be ", "terse."),), "Be terse."),
        ((("Be terse.",), ("Be kind.",)), "Be terse.\n\nBe kind."),
        (((CACHED, "x"), ("y",)), [CACHED.data, said("x"), said("y")]),
    ],
)
def test_system_prompt_stands_apart(prompts: tuple[Any, ...], system: Any) -> None:
    messages = [*[Message.of("system", *parts) for parts in prompts], USER]
    assert encoded(*messages).get("system") == system
    assert turns(*messages) == [{"role": "user", "content": "hi"}]
    words = encoded(*messages, output=int, native_schema=False)["system"]
    if isinstance(system, list):
        assert [block for block in words if "IMPORTANT" not in block["text"]] == system
    else:
        first, *others = (system or "").split("\n\n")
        assert words.startswith(f"{first}\n\nIMPORTANT" if first else "IMPORTANT")
        assert words.endswith("".join([f"\n\n{other}" for other in others]))


def test_later_system_message_stands_where_the_model_takes_it() -> None:
    messages = [Message.of("system", "a"), USER, Message.of("system", "b"), Message.of("user", "?")]
    assert encoded(*messages)["system"] == "a\n\nb"
    assert turns(*messages) == [{"role": "user", "content": [said("hi"), said("?")]}]
    there = turns(*messages, system_in_dialog=True)
    assert encoded(*messages, system_in_dialog=True)["system"] == "a"
    assert [turn["role"] for turn in there] == ["user", "system", "user"]
    assert there[1]["content"] == "b"


def call(id: str, provider_id: str | None = None, name: str = "add", arguments: str = "{}") -> FunctionCall:
    return FunctionCall(id=id, name=name, arguments_json=arguments, provider_id=provider_id)


def result(id: str, text: str = "2", provider_id: str | None = None, is_error: bool = False) -> FunctionResult:
    return FunctionResult(id=id, name="add", text=text, provider_id=provider_id, is_error=is_error)


def test_results_are_one_turn_directly_behind_their_calls() -> None:
    found = turns(
        USER,
        Message.of("assistant", "Well.", call("1.0", "t1", arguments='{"a": 1}'), call("1.1", "t2", arguments="")),
        Message.of("user", "wait"),
        Message.of("tool", result("1.0")),
        Message.of("tool", result("1.1", "", is_error=True)),
        Message.of("user", "and?"),
    )
    assert found[1:] == [
        {
            "role": "assistant",
            "content": [
                said("Well."),
                {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
                {"type": "tool_use", "id": "t2", "name": "add", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "2"},
                {"type": "tool_result", "tool_use_id": "t2", "content": "{}", "is_error": True},
                said("wait"),
                said("and?"),
            ],
        },
    ]


def test_result_that_only_this_wire_knows_stands_first_too() -> None:
    reference = ours(type="tool_result", tool_use_id="t1", content=[{"type": "tool_reference", "tool_name": "f"}])
    found = turns(USER, Message.of("assistant", call("1.0", "t1")), Message.of("user", "so?", reference))
    assert found[2]["content"] == [reference.data, said("so?")]


def paired(*calls: FunctionCall) -> list[str]:
    """Return the ids of the calls, after checking the ids of the results."""
    results = [result(part.id, provider_id=part.provider_id) for part in calls]
    messages = [USER]
    for part, answer in zip(calls, results, strict=True):
        messages += [Message.of("assistant", part), Message.of("tool", answer)]
    found = turns(*messages)
    ids = [turn["content"][0]["id"] for turn in found[1::2]]
    assert ids == [turn["content"][0]["tool_use_id"] for turn in found[2::2]]
    assert all(re.fullmatch("[a-zA-Z0-9_-]+", id) for id in ids)
    assert len(set(ids)) == len(ids)
    return ids


def test_ids_are_unique_and_of_the_characters_that_are_taken() -> None:
    assert paired(call("1.0", "t1"), call("3.0", "t2")) == ["t1", "t2"]
    assert paired(call("1.0"), call("3.0", "")) == ["call_1_0", "call_3_0"]
    assert paired(call("1.0", "functions.add:0"), call("3.0", "functions.add:1"))[0] == "functions_add_0"
    assert paired(call("1.0", "x"), call("3.0", "x"), call("5.0", "x"), call("7.0", "x_1"))[0] == "x"
    assert paired(call("1.0", "a.b"), call("3.0", "a:b"), call("5.0", "a_b_1"))[0] == "a_b"
    assert len(paired(call("", "x"), call("", "x"), call(""), call(""))) == 4


def test_result_without_a_call_keeps_its_id() -> None:
    assert turns(Message.of("tool", result("9.9", provider_id="a.b")))[0]["content"][0]["tool_use_id"] == "a_b"


def test_name_that_another_model_made_up_is_one_that_is_taken() -> None:
    for name, wire_name in [("add", "add"), ("a.b c", "a_b_c"), ("", "_"), ("x" * 99, "x" * 64)]:
        messages = (USER, Message.of("assistant", call("1.0", name=name)))
        assert turns(*messages)[1]["content"][0]["name"] == wire_name
        assert [tool["name"] for tool in encoded(*messages)["tools"]] == [wire_name]


CODE = {"type": "code_execution_20260120", "tool_id": "s1"}
CITED = [{"type": "page_location", "cited_text": "x"}]
ANSWER: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "thinking", "thinking": "", "signature": "t"},
    {"type": "redacted_thinking", "data": "x"},
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result", "title": "x"}]},
    {"type": "text", "text": "hi", "citations": CITED},
    {"type": "text", "text": " there"},
    {"type": "compaction", "content": "x", "signature": "u"},
    {"type": "hologram", "rays": [1]},
    {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}, "caller": CODE},
    {"type": "tool_use", "id": "t2", "name": "add", "input": {}},
]


def test_what_was_answered_goes_back_unchanged() -> None:
    messages = (USER, whole(message(*ANSWER, container={"id": "c1"})).message)
    assert turns(*messages)[1] == {"role": "assistant", "content": ANSWER}
    assert encoded(*messages)["container"] == "c1"


@pytest.mark.parametrize("signature", [{}, {"signature": ""}])
def test_unsigned_thinking_goes_back_to_all_but_claude(signature: dict[str, Any]) -> None:
    """DeepSeek and others sign nothing and want it back; Claude refuses what it has not signed."""
    thought, call = {"type": "thinking", "thinking": "hm", **signature}, ANSWER[-1]
    messages = (USER, whole(message(thought, call)).message)
    for model, blocks in (("deepseek-v4-pro", [{**thought, "signature": ""}, call]), ("claude-opus-4-5", [call])):
        assert encoded(*messages, model=model)["messages"][1]["content"] == blocks


def test_of_several_containers_the_newest_is_named() -> None:
    answers = [whole(message(ANSWER[5], container=c)).message for c in ({"id": "c1"}, {"id": "c2"}, None)]
    assert encoded(USER, *answers)["container"] == "c2"


def test_another_wire_gets_what_it_understands() -> None:
    request = Request(messages=[USER, whole(message(*ANSWER, container={"id": "c1"})).message])
    (_, entry) = json.loads(
        CHAT.encode(request, model="m1", profile=Profile(reasoning_name="reasoning"), stream=False)
    )["messages"]
    assert (entry["role"], entry["content"], entry["reasoning"]) == ("assistant", "hi there", "hm")
    assert [called["id"] for called in entry["tool_calls"]] == ["t1", "t2"]
    assert entry.keys() == {"role", "content", "reasoning", "tool_calls"}


FOREIGN: tuple[Part, ...] = (
    Opaque(wire="openai-chat", data={"reasoning_details": []}),
    Reasoning(text="hm", signature="s", id="rs_1"),
    Text("hi", signature="g"),
    FunctionCall(id="1.0", name="add", arguments_json="{}", provider_id="call_x", signature="g"),
)


def test_what_another_wire_said_is_told_without_what_only_it_understands() -> None:
    found = turns(USER, Message.of("assistant", *FOREIGN), Message.of("tool", result("1.0", provider_id="call_x")))
    assert found[1]["content"] == [said("hi"), {"type": "tool_use", "id": "call_x", "name": "add", "input": {}}]
    assert found[2]["content"][0]["tool_use_id"] == "call_x"


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        ((ours(adds_to="thinking", signature="s"), "hi"), "hi"),
        ((ours(adds_to="text", citations=CITED), "", "hi"), "hi"),
        ((ours(adds_to="text", citations=CITED), Opaque(wire="x", data={}), "hi"), "hi"),
        ((Opaque(wire="x", data={"adds_to": "text", "y": 1}), "hi"), "hi"),
        ((Opaque(wire="anthropic", data=[1]), "hi"), "hi"),
        (
            (Reasoning(text="hm"), ours(adds_to="thinking", signature="s"), Reasoning(text=""), "hi"),
            [{"type": "thinking", "thinking": "", "signature": "s"}, said("hi")],
        ),
    ],
)
def test_what_a_block_has_beside_is_given_to_no_other(parts: tuple[Any, ...], content: Any) -> None:
    assert turns(USER, Message.of("assistant", *parts))[1]["content"] == content


def test_calls_and_results_in_strange_places_are_left_out() -> None:
    assert turns(Message.of("user", "hi", call("1.0"))) == [{"role": "user", "content": "hi"}]
    assert turns(USER, Message.of("assistant", "a", result("1.0")))[1]["content"] == "a"

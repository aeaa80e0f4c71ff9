"""Does a dialog become the items that were meant, and does what a service said go back to it, and only to it?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.response_bodies import body, called, items, said, thought, whole

from fsm_agent.call import Request
from fsm_agent.errors import UsageError
from fsm_agent.messages import FunctionCall, FunctionResult, Image, Message, Opaque, Part, Reasoning, Text
from fsm_agent.prompts import Dialog
from fsm_agent.providers import OpenAIChatCodec, Profile

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 8
PICTURE = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw0KGgoAAAAAAAAAAA=="}
FILE = {"type": "input_file", "file_url": "https://x/y.pdf"}
TOOLS = {"type": "additional_tools", "role": "developer", "tools": []}
OTHER = Opaque(wire="anthropic", data={"type": "thinking"})
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}


def own(data: Any) -> Opaque:
    return Opaque(wire="openai-responses", data=data)


def test_system_message_has_the_role_of_the_model() -> None:
    system, user = Message.of("system", "Be ", "terse."), Message.of("user", "hi")
    for role in ("system", "developer", "user"):
        told = items(system, user, system_role=role)
        assert told == [{"role": role, "content": "Be terse."}, {"role": "user", "content": "hi"}]
    part = {"type": "input_text", "text": "Be terse.", "prompt_cache_breakpoint": {"mode": "explicit"}}
    assert items(Message.of("system", own(part))) == [{"role": "system", "content": [part]}]


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        ((), ""),
        (("hi",), "hi"),
        (("a", "b"), [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]),
        (("a", Image.of(PNG)), [{"type": "input_text", "text": "a"}, PICTURE]),
        ((Image(url="http://x/y.png"),), [{**PICTURE, "image_url": "http://x/y.png"}]),
        ((own(FILE), OTHER, "a"), [FILE, {"type": "input_text", "text": "a"}]),
        ((OTHER, Reasoning(text="hm"), "a"), "a"),
    ],
)
def test_user_message_has_its_parts(parts: tuple[Any, ...], content: Any) -> None:
    assert items(Message.of("user", *parts)) == [{"role": "user", "content": content}]


def test_items_of_ones_own_stand_where_they_are_put() -> None:
    approval = {"type": "mcp_approval_response", "approval_request_id": "r1", "approve": True}
    output = {"type": "shell_call_output", "call_id": "c1", "output": []}
    assert items(Message.of("user", "yes", own(approval))) == [{"role": "user", "content": "yes"}, approval]
    assert items(Message.of("system", own(TOOLS)), Message.of("tool", own(output), OTHER)) == [TOOLS, output]
    assert items(Message.of("system", "Be terse.", own(TOOLS))) == [{"role": "system", "content": "Be terse."}, TOOLS]
    assert items(Message.of("user", OTHER), Message.of("tool"), Message.of("assistant", OTHER)) == []


def test_a_file_of_this_wire_among_results_is_refused() -> None:
    with pytest.raises(UsageError, match="'tool'"):
        items(Message.of("tool", own(FILE)))


def call(id: str, provider_id: str | None = None, name: str = "f", arguments: str = "{}") -> FunctionCall:
    return FunctionCall(id=id, name=name, arguments_json=arguments, provider_id=provider_id)


def result(id: str, provider_id: str | None = None, text: str = "ok") -> FunctionResult:
    return FunctionResult(id=id, name="f", text=text, provider_id=provider_id)


def ids(told: list[Any]) -> list[tuple[str, str]]:
    return [(item["type"], item["call_id"]) for item in told if "call_id" in item]


def test_calls_and_results_have_one_id() -> None:
    told = items(
        Message.of("assistant", "Well.", call("3.0", "call_x"), call("3.1"), call("3.2", "")),
        Message.of("tool", result("3.0", "call_x"), result("3.1", text=""), result("3.2", "")),
    )
    assert told[0] == {"role": "assistant", "content": "Well."}
    assert told[1] == {"type": "function_call", "call_id": "call_x", "name": "f", "arguments": "{}"}
    assert ids(told) == [
        *[("function_call", id) for id in ("call_x", "call_3_1", "call_3_2")],
        *[("function_call_output", id) for id in ("call_x", "call_3_1", "call_3_2")],
    ]
    assert [item["output"] for item in told[4:]] == ["ok", "{}", "ok"]


def test_ids_that_a_service_uses_again_are_told_apart() -> None:
    told = items(
        Message.of("assistant", call("1.0", "call_0"), call("1.1", "call_0")),
        Message.of("tool", result("1.0", "call_0"), result("1.1", "call_0")),
        Message.of("assistant", call("", "call_0")),
        Message.of("tool", result("", "call_0")),
        Message.of("assistant", call("5.0", "call_2")),
        Message.of("tool", result("5.0", "call_2"), result("9.9", "call_9")),
    )
    used = [id for _, id in ids(told)]
    assert used[:2] == used[2:4]
    assert used[4] == used[5]
    assert used[6] == used[7]
    assert (used[0], used[8]) == ("call_0", "call_9")
    assert len(set(used)) == 5
    calls = [call("1.0", "call_1"), call("1.1", "call_1"), call("1.2", "call_1")]
    assert [id for _, id in ids(items(Message.of("assistant", *calls)))] == ["call_1", "call_2", "call_3"]


def test_ids_that_are_too_long_are_replaced() -> None:
    told = items(Message.of("assistant", call("1.0", "x" * 65)), Message.of("tool", result("1.0", "x" * 65)))
    assert ids(told) == [("function_call", "call_0"), ("function_call_output", "call_0")]
    assert ids(items(Message.of("assistant", call("1.0", "x" * 64)))) == [("function_call", "x" * 64)]


def test_message_from_elsewhere_stands_before_its_calls_and_thinks_nothing() -> None:
    foreign: tuple[Any, ...] = (
        Reasoning(text="hm", signature="s"),
        Text("a", signature="s"),
        call("1.0", "toolu_1"),
        OTHER,
        "b",
        call("1.1", "toolu_2"),
    )
    told = items(Message.of("assistant", *foreign))
    assert told[0] == {"role": "assistant", "content": "ab"}
    assert ids(told) == [("function_call", "toolu_1"), ("function_call", "toolu_2")]
    assert len(told) == 3


def test_results_in_a_users_message_go_before_what_else_it_says() -> None:
    told = items(Message.of("user", "and now?", result("1.0")))
    assert [item.get("type", item.get("role")) for item in told] == ["function_call_output", "user"]
    assert ids(items(Message.of("user", result("1.0")))) == [("function_call_output", "call_1_0")]


CITED = [{"type": "url_citation", "url": "https://x", "title": "x", "start_index": 0, "end_index": 1}]
RICH = said("h", "", "i", phase="commentary")
RICH["content"][0]["annotations"] = CITED
RICH["content"].append({"type": "refusal", "refusal": "no"})
WORDS = {**thought("h", "m"), "content": [{"type": "reasoning_text", "text": "hm"}], "format": "x"}
CUSTOM = {"type": "custom_tool_call", "id": "ct_1", "call_id": "c1", "name": "sql", "input": "SELECT 1"}
COMPACTION = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}

ECHOES: dict[str, list[Any]] = {
    "a message": [RICH],
    "two messages": [said("h", phase="commentary"), said("i", id="msg_2", phase="final_answer")],
    "reasoning and its message": [thought("h", "m"), said("hi")],
    "hidden reasoning and its call": [thought(), called("f", '{"a":1}', namespace="n")],
    "reasoning in words": [WORDS, said("hi")],
    "several steps": [thought("a", id="rs_1"), called(), thought("b", id="rs_2"), said("hi"), called(id="fc_2")],
    "a custom call": [CUSTOM],
    "what the service ran": [{"type": "mcp_list_tools", "id": "m1", "tools": []}, thought(), SEARCH, said("hi")],
    "no words of ours": [COMPACTION],
}


def without_status(item: Any) -> Any:
    if item["type"] not in ("reasoning", "function_call"):
        return item
    return {key: value for key, value in item.items() if key != "status"}


@pytest.mark.parametrize("name", ECHOES)
def test_what_was_answered_goes_back_unchanged(name: str) -> None:
    output = ECHOES[name]
    message = whole(body(*output)).message
    assert items(message) == [without_status(item) for item in output]
    (stored,) = Dialog.from_json(Dialog([message]).to_json())
    assert items(stored) == items(message)


@pytest.mark.parametrize("name", ECHOES)
def test_another_wire_gets_only_what_everybody_understands(name: str) -> None:
    message = whole(body(*ECHOES[name])).message
    request = Request(messages=[message])
    told = json.loads(
        OpenAIChatCodec().encode(request, model="m1", profile=Profile(reasoning_name="reasoning"), stream=False)
    )
    assert not {"gAAA", "rs_1", "fc_1", "msg_1", "phase", "annotations"} & set(json.dumps(told).split('"'))
    (entry,) = told["messages"]
    assert (entry["role"], entry["content"]) == ("assistant", message.text)
    assert [tool["id"] for tool in entry.get("tool_calls", ())] == [c.provider_id for c in message.function_calls]


def test_custom_calls_are_answered_as_such() -> None:
    replied = whole(body(CUSTOM, called())).message
    told = items(replied, Message.of("tool", result("", "c1"), result("", "call_fc_1")))
    assert ids(told) == [
        ("custom_tool_call", "c1"),
        ("function_call", "call_fc_1"),
        ("custom_tool_call_output", "c1"),
        ("function_call_output", "call_fc_1"),
    ]


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({**thought("hm"), "status": "completed", "content": []}, thought("hm")),
        (
            {**SEARCH, "action": {"type": "search", "query": "q", "sources": [{"url": "https://x"}]}},
            SEARCH,
        ),
        ({**SEARCH, "action": None}, {**SEARCH, "action": None}),
        *[({**item, "item_id": "x", "output_index": 0}, item) for item in (CUSTOM, said("h"))],
        (
            {"type": "image_generation_call", "id": "ig_1", "result": "iVBO", "action": "generate", "size": "auto"},
            {"type": "image_generation_call", "id": "ig_1", "result": "iVBO"},
        ),
    ],
)
def test_what_a_service_gives_but_does_not_take_is_left_out(given: Any, taken: Any) -> None:
    assert items(whole(body(given, said("hi"))).message)[0] == taken


FORGOTTEN = {**thought("hm"), "encrypted_content": None}


@pytest.mark.parametrize(
    ("output", "kinds"),
    [
        ([thought("hm")], []),
        ([said("hi"), thought("a"), thought("b")], ["message"]),
        ([FORGOTTEN, said("hi")], ["message"]),
        ([WORDS | {"encrypted_content": None}, said("hi")], ["message"]),
        ([thought("a"), FORGOTTEN, called()], ["reasoning", "function_call"]),
    ],
)
def test_reasoning_that_would_be_refused_is_left_out(output: list[Any], kinds: list[str]) -> None:
    assert [item["type"] for item in items(whole(body(*output)).message)] == kinds


@pytest.mark.parametrize(
    ("reasoning", "name", "extra", "kinds"),
    [
        (WORDS | {"encrypted_content": None}, None, {}, ["reasoning", "function_call"]),
        (WORDS | {"encrypted_content": None}, "encrypted_content", {"store": True}, ["reasoning", "function_call"]),
        (thought("hm"), None, {}, ["function_call"]),  # for a model that does not reason
        (thought("hm"), None, {"include": ["reasoning.encrypted_content"]}, ["reasoning", "function_call"]),
    ],
)
def test_reasoning_goes_back_in_the_form_that_the_service_takes(
    reasoning: Any, name: Any, extra: dict[str, Any], kinds: list[str]
) -> None:
    message = whole(body(reasoning, called())).message
    assert [item["type"] for item in items(message, reasoning_name=name, extra_body=extra)] == kinds


def changed(output: list[Any], *parts: Part | str) -> list[Any]:
    """Return what is sent back after other parts were put behind the opaque ones."""
    message = whole(body(*output)).message
    kept = [part for part in message.parts if isinstance(part, Opaque)]
    return items(Message.of("assistant", *kept, *parts))


def test_what_somebody_has_changed_goes_back_changed() -> None:
    (told,) = changed([RICH], "all new")
    assert [(part["type"], part.get("text"), part.get("annotations")) for part in told["content"]] == [
        ("output_text", "all new", []),
        ("output_text", "", []),
        ("refusal", None, None),
    ]
    assert (told["id"], told["phase"]) == ("msg_1", "commentary")
    assert changed([said("hi")]) == []
    assert changed([thought("a", "b"), SEARCH], Reasoning(text="x"))[0] == thought()
    assert changed([WORDS, SEARCH])[0] == {**thought(), "format": "x"}
    assert changed([called()]) == []
    told = changed([called()], "hi", call("1.0", "call_fc_1", arguments='{"b":2}'), call("1.1"))
    assert [item.get("arguments") for item in told] == ['{"b":2}', None, "{}"]
    assert (told[0]["id"], told[1]) == ("fc_1", {"role": "assistant", "content": "hi"})
    assert "id" not in told[2]


def test_opaque_parts_of_any_shape_go_out_as_they_are() -> None:
    for data in [None, 7, [1], {"type": ["message"]}]:
        told = items(Message.of("assistant", own(data), "hi"), Message.of("user", own(data)))
        assert told == [*([] if data is None else [data]), {"role": "assistant", "content": "hi"}, data]


def test_calls_carry_our_ids_after_they_were_read() -> None:
    message = whole(body(called(id="fc_1", call_id="call_0"), called(id="fc_2", call_id="call_0"))).message
    calls = [part.changed(id=f"1.{index}") for index, part in enumerate(message.function_calls)]
    heads = [part for part in message.parts if isinstance(part, Opaque)]
    read = Message.of("assistant", heads[0], calls[0], heads[1], calls[1])
    told = items(read, Message.of("tool", *[result(part.id, part.provider_id) for part in calls]))
    assert [id for _, id in ids(told)] == ["call_0", "call_1"] * 2
    assert [item["id"] for item in told[:2]] == ["fc_1", "fc_2"]

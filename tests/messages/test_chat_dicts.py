"""Do dictionaries as OpenAI has them become messages, and are mistakes in them named with their place?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.long_dialogs import torn

from fsm_agent import Agent, Dialog, Document, Image, Message, UsageError
from fsm_agent.messages import FunctionCall, FunctionResult, Reasoning, Text
from fsm_agent.testing import Script

PNG = "data:image/png;base64,iVBORw0KGgo="
ASKS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_a", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}},
        {"id": "call_b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
    ],
}
HISTORY: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be terse."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Look."},
            {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}},
        ],
    },
    {**ASKS, "refusal": None, "annotations": [], "audio": None, "function_call": None},
    {"role": "tool", "tool_call_id": "call_b", "content": "noon"},
    {"role": "tool", "tool_call_id": "call_a", "content": [{"type": "text", "text": "3"}], "name": "add"},
    {"role": "assistant", "content": "3, at noon.", "tool_calls": None},
    {"role": "user", "content": "Thanks."},
]


def test_every_role_and_every_part():
    dialog = Dialog(HISTORY)
    assert [message.role for message in dialog] == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    assert dialog[1] == Message.of(
        "user",
        "Look.",
        Image.of(PNG),
        Image.of("https://example.com/a.png"),
        Document(data=b"hi", media_type="text/plain", name="a.txt"),
    )
    assert dialog[2].function_calls == (
        FunctionCall(name="add", arguments_json='{"a": 1, "b": 2}', id="2.0", provider_id="call_a"),
        FunctionCall(name="now", arguments_json="{}", id="2.1", provider_id="call_b"),
    )
    assert dialog[3].parts == (FunctionResult(id="2.1", name="now", text="noon", provider_id="call_b"),)
    assert dialog[4].parts == (FunctionResult(id="2.0", name="add", text="3", provider_id="call_a"),)
    assert torn(dialog) == ""
    assert Dialog.from_json(dialog.to_json()) == dialog


def test_they_are_a_dialog_wherever_a_dialog_is():
    script = Script(*"abcd")
    agent = Agent(script)
    agent.call(HISTORY)
    agent.call("And now?", after=HISTORY)
    agent.call(Dialog().append(*HISTORY))
    agent.call([Message.of("system", "Be terse."), *HISTORY[1:]])
    sent = [[message.text for message in request.messages] for request in script.requests]
    assert sent[0] == sent[2] == sent[3] == [message.text for message in Dialog(HISTORY)]
    assert sent[1] == [*sent[0], "And now?"]


def test_what_a_model_thought_and_what_it_declined():
    thought, declined = Dialog(
        [
            {"role": "assistant", "content": "42", "reasoning_content": "six by seven"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        ]
    )
    assert thought.parts == (Reasoning(text="six by seven"), Text("42"))
    assert declined.text == "No."
    assert Dialog([{"role": "assistant", "content": None, "refusal": "No."}])[0].text == "No."


def user(content: Any) -> list[Any]:
    return [{"role": "user", "content": "?"}, {"role": "user", "content": content}]


def asks(**call: Any) -> list[Any]:
    return [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}, **call}]}]


def calls(*made: Any) -> list[Any]:
    return [{"role": "assistant", "tool_calls": [*made]}]


def image(url: Any) -> list[Any]:
    return user([{"type": "image_url", "image_url": url}])


TOOL = {"role": "tool", "content": "x"}
WRONG: list[tuple[Any, str]] = [  # and the place that is named
    ([{"content": "hi"}], "messages[0].role"),
    ([{"role": "usr", "content": "x"}], "messages[0].role"),
    ([{"role": 5, "content": "x"}], "messages[0].role"),
    ([{"role": "function", "name": "f", "content": "x"}], "messages[0].role"),
    ([{"role": "user"}], "messages[0].content"),
    (user([]), "messages[1].content"),
    ([{"role": "assistant", "content": None}], "messages[0].content"),
    (user(5), "messages[1].content"),
    ([{"role": "user", "contnt": "x"}], "'contnt'"),
    ([{"role": "user", "content": "x", 5: 1}], "messages[0]"),
    ([{"role": "user", "content": "x", "name": "Ada"}], "messages[0].name"),
    ([{"role": "user", "content": "x", "tool_calls": [1]}], "'tool_calls'"),
    (user(["hi"]), "messages[1].content[0]"),
    (user([{"type": "input_audio"}]), "messages[1].content[0].type"),
    (user([{"type": ["text"]}]), "messages[1].content[0].type"),
    (user([{"type": "text", "text": 5}]), "messages[1].content[0].text"),
    (image({"url": "/etc/passwd"}), "content[0].image_url.url"),
    (image("file:///a"), "content[0].image_url"),
    (image({"url": "data:a;base64,aGk="}), "content[0].image_url.url: "),
    (image({"url": "data:image/png,x"}), "content[0].image_url.url: "),
    (user([{"type": "file", "file": {"file_data": "/etc/passwd"}}]), "file.file_data"),
    (user([{"type": "file", "file": "x"}]), "messages[1].content[0].file"),
    ([{"role": "assistant", "tool_calls": {}}], "messages[0].tool_calls"),
    (calls("f"), "messages[0].tool_calls[0]"),
    (asks(type="custom"), "messages[0].tool_calls[0].type"),
    (asks(id=None), "messages[0].tool_calls[0].id"),
    (asks(function=None), "messages[0].tool_calls[0].function"),
    (asks(function={"arguments": "{}"}), "messages[0].tool_calls[0].function.name"),
    (asks(function={"name": "f", "arguments": {}}), ".function.arguments"),
    (calls(*ASKS["tool_calls"], ASKS["tool_calls"][0]), "[2].id"),
    ([{**TOOL, "tool_call_id": "a"}], "tool_call_id"),
    ([ASKS, {**TOOL, "tool_call_id": "z"}], "'call_a' or 'call_b'"),
    ([ASKS, HISTORY[3], HISTORY[3]], "messages[2].tool_call_id"),
    ([ASKS, HISTORY[6]], "messages[1]"),
    ([ASKS, HISTORY[3]], "'call_a'"),
    ([5], "5"),
    ("hi", "'hi'"),
    ({"role": "user", "content": "hi"}, "a list"),
]


def test_a_mistake_is_named_with_its_place():
    for items, place in WRONG:
        with pytest.raises(UsageError) as caught:
            Dialog(items)
        assert place in str(caught.value)


characters = st.characters(exclude_categories=["Cs"])
plain = st.none() | st.booleans() | st.integers() | st.text(characters, max_size=5)
keys = st.sampled_from(
    ["role", "content", "type", "text", "tool_calls", "id", "function", "image_url", "url", "x"],
)
anything = st.recursive(
    plain | st.sampled_from(["text", "user", "tool", PNG]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)


@examples(200)
@given(st.lists(anything, max_size=4))
def test_whatever_comes_is_taken_or_refused(items):
    problem = ""
    try:
        dialog = Dialog(items)
    except UsageError as error:
        problem, dialog = str(error), Dialog()
    assert len(problem) < 500
    assert Dialog.from_json(dialog.to_json()).messages == dialog.messages

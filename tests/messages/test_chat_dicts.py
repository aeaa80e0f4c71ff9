"""Do dictionaries as OpenAI has them become messages, and are mistakes in them named with their place?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from fsm_agent import Agent, Dialog, Document, Image, Message, UsageError
from fsm_agent.context.rounds import broken_round
from fsm_agent.messages import FunctionCall, FunctionResult, Reasoning, Text
from fsm_agent.messages.chat_dicts import messages_of
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
    assert broken_round(dialog) == ""
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
    thought, declined = messages_of(
        [
            {"role": "assistant", "content": "42", "reasoning_content": "six by seven"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        ]
    )
    assert thought.parts == (Reasoning(text="six by seven"), Text("42"))
    assert declined.text == "No."
    assert messages_of([{"role": "assistant", "content": None, "refusal": "No."}])[0].text == "No."


def user(content: Any) -> list[Any]:
    return [{"role": "user", "content": "?"}, {"role": "user", "content": content}]


def asks(**call: Any) -> list[Any]:
    return [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}, **call}]}]


WRONG: dict[str, tuple[Any, str]] = {
    "no role": ([{"content": "hi"}], r"messages[0].role is None; there are: system, developer, user, assistant, tool"),
    "role": ([{"role": "usr", "content": "x"}], "messages[0].role is 'usr': did you mean 'user'?"),
    "role of numbers": ([{"role": 5, "content": "x"}], "messages[0].role is 5; there are: system, "),
    "old role": ([{"role": "function", "name": "f", "content": "x"}], "messages[0].role is 'function': 'tool' with a"),
    "no content": ([{"role": "user"}], "messages[0].content is None: a text or a list of parts would be right"),
    "no parts": (user([]), "messages[1].content is []: a text or a list of parts would be right"),
    "content 5": (user(5), "messages[1].content is 5: a text or a list of parts would be right"),
    "key": ([{"role": "user", "contnt": "x"}], "messages[0] has the key 'contnt', which a message of role 'user' does"),
    "key 5": ([{"role": "user", "content": "x", 5: 1}], "messages[0] has the key 5"),
    "a name": ([{"role": "user", "content": "x", "name": "Ada"}], "messages[0].name is 'Ada': no name"),
    "calls of a user": ([{"role": "user", "content": "x", "tool_calls": [1]}], "messages[0] has the key 'tool_calls'"),
    "part": (user(["hi"]), "messages[1].content[0] is 'hi': a part such as {'type': 'text', 'text': '…'} would be"),
    "part type": (user([{"type": "input_audio"}]), "messages[1].content[0].type is 'input_audio': one of 'text', "),
    "part list": (user([{"type": ["text"]}]), "messages[1].content[0].type is ['text']: one of 'text', 'image_url'"),
    "part text": (user([{"type": "text", "text": 5}]), "messages[1].content[0].text is 5: a text would be right"),
    "path": (
        user([{"type": "image_url", "image_url": {"url": "/etc/passwd"}}]),
        "content[0].image_url.url is '/etc/pa",
    ),
    "path as text": (
        user([{"type": "image_url", "image_url": "file:///a"}]),
        "content[0].image_url is 'file:///a': an",
    ),
    "no picture": (user([{"type": "image_url", "image_url": {"url": "data:a;base64,aGk="}}]), ".url: these 2 bytes"),
    "no base64": (user([{"type": "image_url", "image_url": {"url": "data:image/png,x"}}]), ".url: the data URL"),
    "file path": (user([{"type": "file", "file": {"file_data": "/etc/passwd"}}]), "file.file_data is '/etc/passwd'"),
    "file": (user([{"type": "file", "file": "x"}]), "messages[1].content[0].file is 'x': {'file_data': 'data:"),
    "calls": ([{"role": "assistant", "tool_calls": {}}], "messages[0].tool_calls is {}: a list of calls"),
    "call": ([{"role": "assistant", "tool_calls": ["f"]}], "messages[0].tool_calls[0] is 'f': {'id': 'call_1', "),
    "custom call": (asks(type="custom"), "messages[0].tool_calls[0].type is 'custom': 'function' would be right"),
    "call without id": (asks(id=None), "messages[0].tool_calls[0].id is None: a text of its own would be right"),
    "function": (asks(function=None), "messages[0].tool_calls[0].function is None: {'name': …, 'arguments': '{…}'}"),
    "name": (asks(function={"arguments": "{}"}), "messages[0].tool_calls[0].function.name is None: the name of a"),
    "arguments": (asks(function={"name": "f", "arguments": {}}), ".function.arguments is {}: JSON as a text"),
    "ids twice": (
        [{"role": "assistant", "tool_calls": [*ASKS["tool_calls"], ASKS["tool_calls"][0]]}],
        "[2].id is 'call_a'",
    ),
    "result of nothing": (
        [{"role": "tool", "tool_call_id": "a", "content": "x"}],
        "tool_call_id is 'a': one behind the",
    ),
    "result of another": (
        [ASKS, {"role": "tool", "tool_call_id": "z", "content": "x"}],
        "'call_a' or 'call_b' would be",
    ),
    "result twice": ([ASKS, HISTORY[3], HISTORY[3]], "messages[2].tool_call_id is 'call_b': 'call_a' would be right"),
    "no result": (
        [ASKS, HISTORY[6]],
        "messages[1] is a message of role 'user', and the call 'call_a' before it has no",
    ),
    "half a round": ([ASKS, HISTORY[3]], "the messages end before the call 'call_a' has its result"),
    "number": ([5], "a message of a dialog is 5: Message.of('user', '…') or {'role': 'user', 'content': '…'} as mess"),
    "text": ("hi", "messages is 'hi': a list of messages would be right"),
    "one dictionary": ({"role": "user", "content": "hi"}, "a list of messages would be right"),
}


@pytest.mark.parametrize(("items", "says"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_named_with_its_place(items, says):
    with pytest.raises(UsageError) as caught:
        messages_of(items)
    assert says in str(caught.value)


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


@examples(300)
@given(st.lists(anything, max_size=4))
def test_whatever_comes_is_taken_or_refused(items):
    problem = ""
    try:
        dialog = Dialog(items)
    except UsageError as error:
        problem, dialog = str(error), Dialog()
    assert len(problem) < 500
    assert Dialog.from_json(dialog.to_json()).messages == dialog.messages

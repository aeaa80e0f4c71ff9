"""Are small things said and read alike in OpenAI's two wires?"""

from __future__ import annotations

from typing import Any

import pytest

from fsm_agent.functions import Function
from fsm_agent.messages import FunctionCall, FunctionResult, Message, Opaque, Text
from fsm_agent.providers.openai_parts import (
    arguments_object,
    call_id,
    first_count,
    text_or_none,
    token_logprobs,
    told,
)
from fsm_agent.replies import TokenLogprob

ADD, WAIT = Function(name="add"), Function(name="wait")
USER = Message.of("user", "hi")


def test_call_and_result_have_one_id() -> None:
    assert call_id(FunctionCall(id="3.0", name="f", arguments_json="", provider_id="x")) == "x"
    assert call_id(FunctionCall(id="3.0", name="f", arguments_json="", provider_id="")) == "call_3_0"
    assert call_id(FunctionResult(id="3.0", name="f", text="")) == "call_3_0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "{}"),
        ('{"a": 1}', '{"a": 1}'),
        ("[1]", '{"invalid_arguments":"[1]"}'),
        ('{"a', '{"invalid_arguments":"{\\"a"}'),
    ],
)
def test_arguments_are_an_object(text: str, said: str) -> None:
    assert arguments_object(text) == said


OPAQUE = Opaque(wire="w", data={})


@pytest.mark.parametrize(
    ("messages", "first"),
    [
        ((), Message.of("system", "x")),
        ((USER,), Message.of("system", "x")),
        ((Message.of("system"), USER), Message.of("system", "x")),
        ((Message.of("system", ""), USER), Message.of("system", "", "x")),
        ((Message.of("system", "Be terse."), USER), Message.of("system", "Be terse.", "\n\nx")),
        ((Message.of("system", OPAQUE), USER), Message.of("system", OPAQUE, Text("\n\nx"))),
    ],
)
def test_words_stand_at_the_end_of_the_system_message(messages: tuple[Message, ...], first: Message) -> None:
    after = [message for message in messages if message.role != "system"]
    assert told(messages, "x") == [first, *after]


def test_texts_and_counts_are_what_they_should_be() -> None:
    assert [text_or_none(value) for value in ("x", "", None, 7)] == ["x", None, None, None]
    assert first_count(None, True, -1, "3", 2.0, 4, 5) == 4
    assert first_count() is None


@pytest.mark.parametrize("entries", [None, {}, "x", [7, None, {}], [{"token": 1, "logprob": 1}], [{"token": "x"}]])
def test_what_is_no_logprob_is_passed_over(entries: Any) -> None:
    assert list(token_logprobs(entries)) == []


def test_logprobs_are_read() -> None:
    top = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1}, 7]
    entries = [{"token": "a", "logprob": -0.5, "top_logprobs": top}, {"token": "", "logprob": 0, "top_logprobs": 7}]
    assert list(token_logprobs(entries)) == [
        TokenLogprob("a", -0.5, (("a", -0.5), ("b", -1.0))),
        TokenLogprob("", 0.0),
    ]
    assert list(token_logprobs([{"token": "a", "logprob": -(10**400)}])) == []

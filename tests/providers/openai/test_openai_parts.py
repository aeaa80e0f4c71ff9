"""Are small things said and read alike in OpenAI's two wires?"""

from __future__ import annotations

from typing import Any

import pytest
from support.time_growth import growth

from fsm_agent.functions import Function
from fsm_agent.messages import FunctionCall, FunctionResult, Message, Opaque, Text, TokenLogprob
from fsm_agent.providers.openai.parts import (
    CallIds,
    arguments_object,
    call_id,
    first_count,
    text_or_none,
    token_logprobs,
    with_system_text,
)

ADD, WAIT = Function(name="add"), Function(name="wait")
USER = Message.of("user", "hi")


def test_call_and_result_have_one_id() -> None:
    assert call_id(FunctionCall(id="3.0", name="f", arguments_json="", provider_id="x")) == "x"
    assert call_id(FunctionCall(id="3.0", name="f", arguments_json="", provider_id="")) == "call_3_0"
    assert call_id(FunctionResult(id="3.0", name="f", text="")) == "call_3_0"


def call(id: str = "", theirs: str | None = None) -> FunctionCall:
    return FunctionCall(name="f", arguments_json="", id=id, provider_id=theirs)


def result(id: str = "", theirs: str | None = None) -> FunctionResult:
    return FunctionResult(name="f", text="", id=id, provider_id=theirs)


class TestCallIds:
    @pytest.mark.system
    @pytest.mark.parametrize("order", [1, -1], ids=["in order", "reversed"])
    def test_many_calls_of_one_id_take_linear_time(self, order: int) -> None:
        def matched(numbers: list[str]) -> None:
            ids = CallIds()
            calls = [ids.of_call(call(number, "x")) for number in numbers]
            assert [ids.of_result(result(number, "x")) for number in numbers[::order]] == calls[::order]

        assert growth(lambda size: [str(number) for number in range(size)], matched, 2000) < 3

    def test_those_that_fit_are_kept(self) -> None:
        ids = CallIds()
        assert [ids.of_call(call("1.0", "a")), ids.of_call(call("1.1"))] == ["a", "call_1_1"]
        assert [ids.of_result(result("1.1")), ids.of_result(result("1.0", "a"))] == ["call_1_1", "a"]
        assert ids.of_result(result("9.0", "elsewhere")) == "elsewhere"

    def test_no_two_are_alike_in_a_reply_or_in_a_dialog(self) -> None:
        ids = CallIds()
        first = [ids.of_call(call("1.0", "x")), ids.of_call(call("1.1", "x"))]
        assert len(set(first)) == 2
        assert [ids.of_result(result("1.1", "x")), ids.of_result(result("1.0", "x"))] == first[::-1]
        again = ids.of_call(call("3.0", "x"))
        assert again not in first
        assert ids.of_result(result("3.0", "x")) == again

    def test_without_ids_of_ours_results_come_in_the_order_of_the_calls(self) -> None:
        ids = CallIds()
        for _ in range(2):
            asked = [ids.of_call(call()), ids.of_call(call())]
            assert [ids.of_result(result()), ids.of_result(result())] == asked
        assert ids.of_result(result()) == asked[1]

    def test_a_result_without_an_id_of_ours_is_of_a_call_that_has_none_yet(self) -> None:
        ids = CallIds()
        old = ids.of_call(call("1.0", "x"))
        assert ids.of_result(result("1.0", "x")) == old
        new = ids.of_call(call("3.0", "x"))
        assert ids.of_result(result("", "x")) == new

    def test_one_that_is_too_long_is_replaced(self) -> None:
        ids = CallIds(most=3)
        assert [ids.of_call(call("1.0", "abc")), ids.of_call(call("1.1", "abcd"))] == ["abc", "call_1"]

    @pytest.mark.parametrize("theirs", ["call_0fypS1hVX", "call_1234", "abc", "ü" * 9, "a" * 10, None])
    def test_just_so_many_letters_and_digits(self, theirs: str | None) -> None:
        ids = CallIds(exactly=9)
        assert ids.of_call(call("1.0", "D681PevKs")) == "D681PevKs"
        made = ids.of_call(call("1.1", theirs))
        assert made == "call00001"
        assert ids.of_result(result("1.1", theirs)) == made


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
    assert with_system_text(messages, "x") == [first, *after]


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

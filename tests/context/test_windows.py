"""Does a window send the newest messages, what is pinned, and only whole rounds?"""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.long_dialogs import PICTURE, SYSTEM, TASK, asks, dialogs, rounds, told, torn

from fsm_agent._internal.vector import Vector
from fsm_agent.context.masking import Masker, Masking
from fsm_agent.context.window import KeepLastN, TokenWindow, applied, broken_round, message_tokens
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import Document, FunctionCall, Message, Opaque, Reasoning

CHAT = [SYSTEM, TASK, *[Message.of(role, f"{role} {n}") for n in range(4) for role in ("assistant", "user")]]
MORE = Message.of("user", "More.")


class TestKeepLastN:
    @pytest.mark.spec(
        "0.11: at most n messages are sent",
        "0.11: the dialog keeps them all",
        "0.11: the system prompt and the first user message stay",
        "4.8: the last n",
        "4.8: the system prompt and the first user message stay",
    )
    def test_three_of_ten(self):
        dialog = Vector(CHAT)
        assert len(dialog) == 10
        assert list(KeepLastN(3)(dialog)) == [SYSTEM, TASK, *CHAT[-3:]]
        assert list(dialog) == CHAT

    @pytest.mark.spec("0.11: no result is sent without its call", "4.8: whole groups only")
    def test_a_round_is_sent_whole_or_not_at_all(self):
        messages = [SYSTEM, TASK, *rounds("a", "b", "c", "d")]
        assert list(KeepLastN(3)(messages)) == [SYSTEM, TASK, *messages[-2:]]
        assert list(KeepLastN(4)(messages)) == [SYSTEM, TASK, *messages[-4:]]

    def test_what_is_left_out_leaves_no_gap(self):
        wide = [asks("1.0", "1.1", "1.2"), *[told(f"1.{i}") for i in range(3)]]
        messages = [SYSTEM, TASK, *rounds("a"), *wide, *rounds("c", first=2)]
        assert list(KeepLastN(5)(messages)) == [SYSTEM, TASK, *messages[-2:]]

    def test_the_newest_round_is_always_sent(self):
        messages = [SYSTEM, TASK, asks("1.0", "1.1", "1.2"), *[told(f"1.{i}") for i in range(3)]]
        assert list(KeepLastN(1)(messages)) == messages

    @pytest.mark.parametrize("n", [8, 9, 100])
    def test_what_fits_is_sent_as_it_is(self, n):
        assert KeepLastN(n)(CHAT) is CHAT

    def test_pinned_messages_do_not_count(self):
        assert list(KeepLastN(1)([SYSTEM, SYSTEM, TASK, MORE, MORE])) == [SYSTEM, SYSTEM, TASK, MORE]
        assert KeepLastN(1)([SYSTEM, TASK, MORE]) == [SYSTEM, TASK, MORE]

    def test_only_system_messages_at_the_beginning_are_pinned(self):
        warning = Message.of("system", "You repeat yourself.")
        assert list(KeepLastN(1)([SYSTEM, TASK, warning, MORE, MORE])) == [SYSTEM, TASK, MORE]
        assert list(KeepLastN(1)([Message.of("assistant", "Hello?"), warning, TASK, MORE, MORE])) == [TASK, MORE]

    def test_without_system_or_user(self):
        assert list(KeepLastN(1)([TASK, MORE, MORE])) == [TASK, MORE]
        assert list(KeepLastN(2)(rounds("a", "b"))) == rounds("a", "b")[2:]
        assert KeepLastN(1)([]) == []

    def test_the_user_may_come_late(self):
        hello = Message.of("assistant", "Hello?")
        assert list(KeepLastN(1)([hello, hello, TASK, MORE, MORE])) == [TASK, MORE]
        assert list(KeepLastN(2)([SYSTEM, hello, hello, TASK, MORE])) == [SYSTEM, hello, TASK, MORE]

    def test_the_task_of_the_rounds_goes_with_them(self):
        messages = [SYSTEM, TASK, Message.of("assistant", "Done."), MORE, *rounds("a", "b", "c")]
        assert list(KeepLastN(2)(messages)) == [SYSTEM, TASK, MORE, *messages[-2:]]
        assert list(KeepLastN(7)(messages)) == [SYSTEM, TASK, MORE, *messages[-6:]]


class TestTokenWindow:
    def test_the_newest_that_fit(self):
        messages = [SYSTEM, TASK, *rounds("x" * 40, "x" * 40, "x" * 40)]
        size = 10 + 3  # the result; name and arguments of the call
        assert [message_tokens(message) for message in messages[-2:]] == [3, 10]
        assert list(TokenWindow(2 * size)(messages)) == [SYSTEM, TASK, *messages[-4:]]
        assert list(TokenWindow(2 * size - 1)(messages)) == [SYSTEM, TASK, *messages[-2:]]
        assert TokenWindow(3 * size)(messages) is messages

    @pytest.mark.spec(
        "4.14: over budget it is shortened, and never fails", "1.37: a context window protects what is recent"
    )
    def test_the_newest_round_is_always_sent(self):
        messages = [SYSTEM, TASK, *rounds("x" * 4000, "x" * 4000)]
        assert list(TokenWindow(1)(messages)) == [SYSTEM, TASK, *messages[-2:]]

    @pytest.mark.parametrize(
        ("message", "tokens"),
        [
            (Message.of("user", "x" * 5, "x"), 3),
            (Message.of("user", "x", PICTURE), 1001),
            (Message.of("user", Document(url="https://example.org/a.pdf")), 1000),
            (Message.of("assistant", Reasoning(text="x" * 8)), 2),
            (Message.of("assistant", FunctionCall(name="abcd", arguments_json='{"a": 1}')), 3),
            (told("1.0", "x" * 9, images=2), 2003),
            (Message.of("assistant", Opaque(wire="w", data="x" * 400)), 0),
        ],
    )
    def test_how_large_a_message_is(self, message, tokens):
        assert message_tokens(message) == tokens


@pytest.mark.spec("4.18: long dialogs are shortened in no time")
def test_a_long_dialog_is_shortened_in_no_time():
    messages = Vector([SYSTEM, TASK, *rounds(*["x" * 4000] * 5000)])
    began_s = time.process_time()
    view = applied([mask, KeepLastN(50), TokenWindow(10_000)], messages)
    assert time.process_time() - began_s < 1.0
    assert 2 < len(view) < 60


@pytest.mark.parametrize("value", [0, -1, True, "3", 2.5])
def test_nonsense_is_named(value):
    with pytest.raises(UsageError, match=rf"KeepLastN\(n={value!r}\): a whole number from 1 on"):
        KeepLastN(value)
    with pytest.raises(UsageError, match=rf"TokenWindow\(max_tokens={value!r}\): a whole number from 1 on"):
        TokenWindow(value)


def mask(messages):
    return Masker(Masking(keep_rounds=1, min_tokens=5)).view(messages, {2}).messages


WINDOWS = st.one_of(st.builds(KeepLastN, st.integers(1, 12)), st.builds(TokenWindow, st.integers(1, 3000)))


@pytest.mark.spec(
    "0.11: no result is sent without its call",
    "1.17: calls and results keep their structure",
    "3.31: the dialog is never changed",
    "4.8: whole groups only",
)
@given(dialogs(), st.lists(st.one_of(WINDOWS, st.just(mask)), max_size=3))
def test_no_view_tears_a_round(messages, processors):
    before = list(messages)
    view = applied(processors, messages)
    assert torn(view) == ""
    assert messages == before
    assert bool(view) is bool(messages)


@pytest.mark.spec(
    "0.11: at most n messages are sent",
    "0.11: the system prompt and the first user message stay",
    "4.8: the last n",
    "4.8: the system prompt and the first user message stay",
)
@given(dialogs(), WINDOWS)
def test_a_view_is_a_part_in_the_same_order(messages, window):
    numbered = [Message(role=m.role, parts=m.parts) for m in messages]  # no two are one object
    places = [next(i for i, m in enumerate(numbered) if m is seen) for seen in window(numbered)]
    assert places == sorted(set(places))
    users = [i for i, m in enumerate(numbered) if m.role == "user"]
    leading = next((i for i, m in enumerate(numbered) if m.role != "system"), len(numbered))
    assert {*range(leading), *users[:1]} <= set(places)
    assert not numbered or places[-1] == len(numbered) - 1
    newest = next((k for k, m in enumerate(reversed(numbered), 1) if m.role != "tool"), 0)
    if isinstance(window, KeepLastN):  # one more: the task of the rounds
        assert len({*places} - {*range(leading), *users[:1]}) <= max(window.n, newest) + 1


class TestProcessorsOfTheUser:
    @pytest.mark.spec(
        "4.7: processors are applied in order",
        "4.17: a processor of one's own",
        "4.18: steps, processors and functions are tested alone",
    )
    def test_they_are_applied_in_order(self):
        drop = lambda messages: [m for m in messages if m.role != "system"]  # noqa: E731
        assert list(applied([drop, KeepLastN(1)], CHAT)) == [TASK, CHAT[-1]]
        assert applied([], CHAT) is CHAT

    @pytest.mark.parametrize(
        ("cut", "problem"),
        [
            (slice(-1, None), "left the result '2.0' of 'search' without the message that asks for it"),
            (slice(0, -1), "left the call '2.0' of 'search' without its result"),
            (slice(0, 0), "left no message"),
        ],
    )
    def test_one_that_tears_a_round_is_named(self, cut, problem):
        def tearing(messages):
            return messages[cut]

        with pytest.raises(UsageError, match=r"the processor <function .*tearing") as caught:
            applied([tearing], [TASK, *rounds("a", "b")])
        assert problem in str(caught.value)

    def test_a_generator_is_none(self):
        with pytest.raises(UsageError, match=r"returned <generator .*: a list or tuple would be right"):
            applied([lambda messages: (m for m in messages)], CHAT)

    def test_it_is_not_blamed_for_what_was_torn_before(self):
        assert applied([lambda messages: messages[1:]], [SYSTEM, told("0.0")]) == [told("0.0")]

    @pytest.mark.parametrize(
        ("messages", "problem"),
        [
            ([asks("1.0", "1.1"), told("1.0"), MORE, told("1.1")], "left the call '1.1'"),
            ([asks("1.0"), told("1.0"), told("1.0")], "left the result '1.0'"),
            ([asks("1.0"), asks("2.0"), told("2.0")], "left the call '1.0'"),
            ([asks("1.0"), MORE], "left the call '1.0'"),
            ([TASK, asks("1.1", "1.0"), told("1.0"), told("1.1"), MORE], ""),
        ],
    )
    def test_what_a_torn_round_is(self, messages, problem):
        assert broken_round(messages).startswith(problem)
        assert bool(problem) is bool(torn(messages)) is bool(broken_round(messages))

    @given(dialogs(), st.data())
    def test_it_finds_what_the_plain_check_finds(self, messages, data):
        kept = data.draw(st.lists(st.sampled_from(range(len(messages))), unique=True) if messages else st.just([]))
        part = [messages[i] for i in sorted(kept)]
        assert bool(broken_round(part)) is (bool(torn(part)) or not part)

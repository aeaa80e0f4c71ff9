"""Does a request show just the results that are new, short or wrong, and does the dialog stay whole?"""

from __future__ import annotations

import pytest
from fsm_agent.context.masking import CONTEXT_RELEASE, NOTHING_MASKED, Masker, Masking, estimated_tokens
from hypothesis import given
from hypothesis import strategies as st
from support.long_dialogs import SYSTEM, TASK, asks, dialogs, rounds, told, torn

from fsm_agent._internal.vector import Vector
from fsm_agent.errors import UsageError
from fsm_agent.messages.event import ObservationsMasked
from fsm_agent.messages.message import FunctionResult, Message

DEFAULT = Masking()
LARGE = "x" * 2004  # 501 tokens
NOTE = "[Masked — {} result from iteration {}, {} tokens. Use result_cache tool if available, or re-invoke tool.]"


def shown(messages, released=frozenset(), *, seeded_with=2, masking=DEFAULT) -> list[str]:
    """What a first request shows of each result."""
    view = Masker(masking, seeded_with).view(messages, released)
    return [message.text for message in view.messages if message.role == "tool"]


def is_masked(messages, released=frozenset(), **options) -> list[bool]:
    return [text.startswith("[Masked — ") for text in shown(messages, released, **options)]


@pytest.mark.spec("1.16: four characters are a token, rounded up")
@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("x" * 13, 4), ("é" * 4, 1), ("x" * 2000, 500)]
)
def test_a_token_has_four_characters(text, tokens):
    assert estimated_tokens(text) == tokens


class TestMasking:
    @pytest.mark.spec("1.1: the defaults, one by one", "1.17: 2 rounds and 500 tokens by default")
    def test_the_defaults(self):
        assert Masking() == Masking(keep_rounds=2, min_tokens=500)

    @pytest.mark.parametrize("value", [-1, "3", True, 2.0, None])
    @pytest.mark.parametrize("name", ["keep_rounds", "min_tokens"])
    def test_nonsense_is_named(self, name, value):
        with pytest.raises(UsageError, match=f"masking.{name} is {value!r}: a whole number from"):
            Masking(**{name: value})

    def test_the_newest_round_is_always_kept(self):
        with pytest.raises(UsageError, match=r"masking\.keep_rounds is 0: a whole number from 1 on"):
            Masking(keep_rounds=0)
        assert Masking(min_tokens=0).min_tokens == 0


class TestWhatIsMasked:
    @pytest.mark.spec("1.17: results of older rounds are masked", "1.17: the dialog stays complete")
    def test_iteration_5_shows_3_and_4_in_full(self):
        messages = [SYSTEM, TASK, *rounds(LARGE, LARGE, LARGE, LARGE)]
        before = list(messages)
        assert is_masked(messages) == [True, True, False, False]
        assert messages == before

    @pytest.mark.spec("1.17: results of older rounds are masked")
    @pytest.mark.parametrize(
        ("keep", "expected"),
        [(1, [True, True, True, False]), (3, [True, False, False, False]), (4, [False] * 4), (9, [False] * 4)],
    )
    def test_so_many_rounds_are_kept(self, keep, expected):
        messages = [SYSTEM, TASK, *rounds(LARGE, LARGE, LARGE, LARGE)]
        assert is_masked(messages, masking=Masking(keep_rounds=keep)) == expected

    @pytest.mark.spec("1.17: only results larger than the least size")
    def test_a_result_of_just_the_size_is_kept(self):
        assert is_masked([SYSTEM, TASK, *rounds("x" * 2000, LARGE, "", "")]) == [False, True, False, False]

    @pytest.mark.spec("1.17: errors are never masked", "1.20: small results and errors stay exempt")
    def test_an_error_is_kept(self):
        messages = [SYSTEM, TASK, asks("2.0"), told("2.0", LARGE, is_error=True), *rounds("", "", first=3)]
        assert not any(is_masked(messages))
        assert not any(is_masked(messages, {1}))

    def test_a_round_of_several_calls_is_one(self):
        together = [asks("1.0", "1.1"), told("1.0", LARGE), told("1.1", LARGE)]
        messages = [SYSTEM, TASK, *together, *rounds(LARGE, LARGE, first=2)]
        assert is_masked(messages) == [True, True, False, False]

    def test_several_results_in_one_message_are_masked_one_by_one(self):
        parts = [told(f"1.{i}", text).parts[0] for i, text in enumerate([LARGE, "small", LARGE])]
        messages = [asks("1.0", "1.1", "1.2"), Message.of("tool", *parts), *rounds("", "", first=2)]
        view = Masker(Masking()).view(messages)
        assert [part.text[:5] for part in view.messages[1].parts] == ["[Mask", "small", "[Mask"]
        assert (view.calls, view.masked.count) == ({"1.0", "1.2"}, 2)

    def test_what_was_there_before_the_call_is_of_no_round(self):
        earlier = [SYSTEM, TASK, *rounds(LARGE, LARGE, LARGE)]
        messages = [*earlier, Message.of("user", "More."), *rounds(LARGE, LARGE, LARGE, first=9)]
        expected = [False] * 3 + [True, False, False]
        assert is_masked(messages, seeded_with=len(earlier) + 1) == expected
        assert is_masked(messages, {1}, seeded_with=len(earlier) + 1) == expected
        assert is_masked([told("0.0", LARGE), *rounds("", "", "")], {0}, seeded_with=0)[0] is False

    def test_messages_without_calls_are_no_rounds(self):
        pause = Message.of("assistant", "Let me think.")
        messages = [SYSTEM, TASK, pause, *rounds(LARGE, LARGE), pause, Message.of("user", "Go on."), pause]
        assert is_masked(messages) == [False, False]

    @pytest.mark.spec("1.20: a released round is masked whatever its age", "1.20: small results and errors stay exempt")
    def test_a_released_round_is_masked_whatever_its_age(self):
        messages = [SYSTEM, TASK, *rounds(LARGE)]
        assert is_masked(messages) == [False]
        assert is_masked(messages, {1}) == [True]
        assert is_masked([SYSTEM, TASK, *rounds("x" * 2000)], {1}) == [False]
        assert is_masked([SYSTEM, TASK, *rounds(LARGE, LARGE, LARGE, LARGE)], {4, 99}) == [True, True, False, True]

    def test_the_model_is_told_what_a_round_is(self):
        assert "round 1" in CONTEXT_RELEASE


class TestTheNote:
    @pytest.mark.spec("1.18: the exact text, with function, round and tokens")
    def test_its_text(self):
        result = FunctionResult(id="2.0", name="read_file", text=LARGE, provider_id="call_7")
        messages = [SYSTEM, TASK, asks("2.0"), Message.of("tool", result), *rounds("", "", first=3)]
        (masked,) = Masker(Masking(), 2).view(messages).messages[3].parts
        text = (
            "[Masked — read_file result from iteration 1, 501 tokens. "
            "Use result_cache tool if available, or re-invoke tool.]"
        )
        assert masked == FunctionResult(id="2.0", name="read_file", text=text, provider_id="call_7")

    def test_what_was_attached_is_gone_too(self):
        messages = [asks("1.0"), told("1.0", LARGE, images=2), *rounds("", "", first=2)]
        view = Masker(Masking()).view(messages)
        assert view.messages[1].parts[0].attachments == ()
        assert len(messages[1].parts[0].attachments) == 2

    def test_a_name_is_no_template(self):
        messages = [asks("1.0"), told("1.0", LARGE, name="{tokens}"), *rounds("", "", first=2)]
        assert shown(messages, seeded_with=0)[0] == NOTE.format("{tokens}", 1, 501)


class TestWhatIsNew:
    @pytest.mark.spec("1.19: count and tokens of what a pass masked", "1.19: a second pass does not count it again")
    def test_each_pass_counts_what_it_adds(self):
        messages = [SYSTEM, TASK, *rounds(LARGE, LARGE, LARGE)]
        masker, saved = Masker(Masking(), 2), 501 - estimated_tokens(NOTE.format("search", 1, 501))
        first = masker.view(messages)
        assert first.since() == ObservationsMasked(count=1, tokens_saved=saved)
        assert masker.view(messages).since(first.masked) is None
        second = masker.view([*messages, *rounds(LARGE, first=4)])
        assert second.since(first.masked) == ObservationsMasked(count=1, tokens_saved=saved)
        assert second.masked == ObservationsMasked(count=2, tokens_saved=2 * saved)
        assert second.calls == {"1.0", "2.0"}

    def test_nothing_masked_is_the_dialog_itself(self):
        messages = Vector([SYSTEM, TASK, *rounds(LARGE)])
        view = Masker(Masking(), 2).view(messages)
        assert view.messages is messages
        assert (view.masked, view.calls, view.since()) == (NOTHING_MASKED, frozenset(), None)


class TestMemory:
    def test_a_masked_message_is_one_object_in_all_requests(self):
        messages, masker = Vector([SYSTEM, TASK, *rounds(LARGE, LARGE, LARGE)]), Masker(Masking(), 2)
        first = masker.view(messages).messages
        second = masker.view(messages.append(*rounds(LARGE, LARGE, first=4)), {5}).messages
        assert second[3] is first[3] is not messages[3]
        assert all(one is other for one, other in zip(second[:4], first, strict=False))

    @pytest.mark.parametrize(
        ("then", "released"),
        [
            ([SYSTEM, TASK, *rounds(LARGE)], set()),
            ([SYSTEM, TASK, *rounds("other", LARGE, LARGE, LARGE)], {3}),
            ([SYSTEM, TASK, *rounds(LARGE, LARGE, LARGE)], {2}),
            ([], set()),
        ],
        ids=["shorter", "another", "less released", "empty"],
    )
    def test_it_may_go_back(self, then, released):
        masker = Masker(Masking(), 2)
        masker.view([SYSTEM, TASK, *rounds(LARGE, LARGE, LARGE)], {3})
        assert masker.view(then, released) == Masker(Masking(), 2).view(then, released)

    @given(dialogs(), st.lists(st.tuples(st.integers(0, 30), st.frozensets(st.integers(1, 6))), max_size=6))
    def test_a_view_depends_on_its_arguments_alone(self, messages, passes):
        masking = Masking(keep_rounds=1, min_tokens=5)
        masker = Masker(masking, 2)
        for length, released in passes:
            fresh = Masker(masking, 2).view(messages[:length], released)
            assert masker.view(messages[:length], released) == fresh

    @given(dialogs(), st.integers(0, 6), st.frozensets(st.integers(1, 6)))
    @pytest.mark.spec("1.17: calls and results keep their structure")
    def test_the_shape_stays(self, messages, seeded_with, released):
        view = Masker(Masking(keep_rounds=1, min_tokens=5), seeded_with).view(messages, released)
        assert torn(view.messages) == torn(messages) == ""
        for seen, said in zip(view.messages, messages, strict=True):
            assert seen == said or (seen.role, seen.parts[0].id) == ("tool", said.parts[0].id)

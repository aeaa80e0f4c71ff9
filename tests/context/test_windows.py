"""Does a window show the newest or the most relevant rounds, what every request has, and only whole rounds?"""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.long_dialogs import SYSTEM, TASK, asks, dialogs, rounds, told, torn

from fsm_agent import Agent, Limits, Message, UsageError, function
from fsm_agent._internal.vector import Vector
from fsm_agent.context import compress, keep_last, mask, once, relevant, shorten
from fsm_agent.context.passes import apply_passes
from fsm_agent.context.rounds import EARLIER, broken_round, pinned, round_starts
from fsm_agent.testing import Script, call

CHAT = [SYSTEM, TASK, *[Message.of(role, f"{role} {n}") for n in range(4) for role in ("assistant", "user")]]
MORE = Message.of("user", "More.")


@function(repeatable=True)
def read(n: int) -> str:
    """Read a page."""
    return f"page {n}"


class TestRounds:
    def test_a_round_begins_with_what_the_user_says_before_it(self):
        assert round_starts(CHAT) == [0, 3, 5, 7]
        assert round_starts([SYSTEM, TASK, *rounds("a", "b"), MORE]) == [0, 4]
        assert round_starts([]) == []

    @pytest.mark.parametrize(
        ("messages", "problem"),
        [
            ([], "left no message"),
            ([asks("1.0", "1.1"), told("1.0"), MORE, told("1.1")], "left the call '1.1'"),
            ([asks("1.0"), told("1.0"), told("1.0")], "left the result '1.0'"),
            ([asks("1.0"), asks("2.0"), told("2.0")], "left the call '1.0'"),
            ([asks("1.0"), MORE], "left the call '1.0'"),
            ([TASK, asks("1.1", "1.0"), told("1.0"), told("1.1"), MORE], ""),
        ],
    )
    def test_what_a_torn_round_is(self, messages, problem):
        assert broken_round(messages).startswith(problem)
        assert bool(problem) is bool(broken_round(messages))
        assert bool(torn(messages)) is bool(problem and messages)

    @given(dialogs(), st.data())
    def test_it_finds_what_the_plain_check_finds(self, messages, data):
        kept = data.draw(st.lists(st.sampled_from(range(len(messages))), unique=True) if messages else st.just([]))
        part = [messages[i] for i in sorted(kept)]
        assert bool(broken_round(part)) is (bool(torn(part)) or not part)


class TestKeepLast:
    @pytest.mark.spec(
        "0.11: at most n messages are sent",
        "0.11: the dialog keeps them all",
        "0.11: the system prompt and the first user message stay",
        "0.11: no result is sent without its call",
        "4.8: the last n",
        "4.8: the system prompt and the first user message stay",
        "4.8: whole groups only",
    )
    def test_the_newest_rounds_and_what_every_request_has(self):
        messages = Vector([SYSTEM, TASK, *rounds("a", "b", "c", "d")])
        assert list(keep_last(1)(messages)) == [SYSTEM, TASK, *messages[-2:]]
        assert list(keep_last(3)(messages)) == [SYSTEM, TASK, *messages[-6:]]
        assert len(messages) == 10
        assert keep_last(4)(messages) is messages

    def test_a_round_of_several_calls_is_one(self):
        wide = [asks("1.0", "1.1", "1.2"), *[told(f"1.{i}") for i in range(3)]]
        messages = [SYSTEM, TASK, *rounds("a"), *wide]
        assert list(keep_last(1)(messages)) == [SYSTEM, TASK, *wide]

    def test_the_first_message_of_a_user_and_the_task_are_shown(self):
        messages = [SYSTEM, TASK, Message.of("assistant", "Done."), MORE, *rounds("a", "b", "c")]
        assert list(keep_last(1)(messages)) == [SYSTEM, TASK, MORE, *messages[-2:]]
        assert list(keep_last(1)([*CHAT[:4], *CHAT[4:], MORE]))[-1] is MORE

    def test_what_nobody_has_answered_is_shown(self):
        messages = [SYSTEM, TASK, *rounds("a", "b"), MORE, Message.of("system", "You repeat yourself."), MORE]
        assert list(keep_last(1)(messages)) == [SYSTEM, TASK, *messages[4:]]

    def test_only_system_messages_at_the_beginning_are_the_system_prompt(self):
        warning = Message.of("system", "You repeat yourself.")
        messages = [SYSTEM, TASK, *rounds("a"), warning, *rounds("b", "c", first=2)]
        assert list(keep_last(1)(messages)) == [SYSTEM, TASK, *messages[-2:]]

    def test_without_system_or_user(self):
        assert list(keep_last(1)(rounds("a", "b"))) == rounds("a", "b")[2:]
        assert keep_last(1)([]) == []

    @pytest.mark.parametrize("window", range(2, 21))
    def test_it_moves_in_steps_so_that_most_requests_extend_the_one_before(self, window):
        """Each request of 60 rounds, as a provider's cache sees it."""
        messages, before, extending, shown_rounds = [SYSTEM, TASK], [], 0, []
        for n in range(1, 61):
            messages += rounds(f"{n}", first=n)
            shown = list(keep_last(window)(messages))
            extending += shown[: len(before)] == before
            shown_rounds.append(len(round_starts(shown)))
            before = shown
        assert max(shown_rounds) == window
        assert min(shown_rounds[window:]) >= window - window // 2
        assert extending / 60 >= 1 - 1 / max(1, window // 2), "once for each half of the window it is another beginning"

    @pytest.mark.parametrize("window", [4, 12])
    def test_the_record_has_the_share_of_requests_that_extend_the_one_before(self, window):
        script = Script(*[call("read", n=n) for n in range(60)], "done")
        agent = Agent(script, functions=[read], context=keep_last(window), limits=Limits(rounds=None))
        uses = agent.call("?").record.requests
        sent = [request.messages for request in script.requests]
        extends = [tuple(b[: len(a)]) == tuple(a) for a, b in pairwise(sent)]
        assert [use.extends for use in uses] == [False, *extends]
        assert [use.messages for use in uses] == list(map(len, sent))
        assert sum(extends) / 60 >= 1 - 2 / window

    @pytest.mark.system
    @pytest.mark.spec("4.18: long dialogs are shortened in no time")
    def test_a_long_dialog_is_cut_in_no_time(self):
        messages = Vector([SYSTEM, TASK, *rounds(*["x" * 4000] * 5000)])
        began_s = time.process_time()
        view = apply_passes([once(), shorten(500), compress(100), mask(50, 5), keep_last(50)], messages)
        assert time.process_time() - began_s < 2.0
        assert 2 < len(view) < 110


def shared_words(query: str, message: Message) -> float:
    return len({*query.lower().split()} & {*message.text.lower().split()})


QUESTION = Message.of("user", "cats and dogs")
MESSAGES = [
    SYSTEM,
    TASK,
    *rounds("cats sleep", "the sea", "dogs and cats"),
    Message.of("assistant", "Of the sea."),
    QUESTION,
    *rounds("newest", first=9),
]


class TestRelevant:
    @pytest.mark.spec("4.28: relevance drops whole groups")
    def test_the_least_relevant_rounds_are_left_out_whole_and_the_others_stay_in_order(self):
        for count, kept in ((1, (6, 7)), (2, (2, 3, 6, 7))):
            shown = relevant(count, shared_words)(MESSAGES)
            assert list(shown) == [MESSAGES[i] for i in (0, 1, *kept, 9, 10, 11)]
            assert torn(shown) == ""

    def test_of_equally_relevant_ones_the_newest_are_shown(self):
        messages = [TASK, *[Message.of("assistant", f"{n}") for n in range(5)]]
        shown = relevant(2, lambda query, message: 0)(messages)
        assert [m.text for m in shown] == ["Find out.", "2", "3", "4"]

    def test_what_fits_is_shown_as_it_is(self):
        assert relevant(9, shared_words)(MESSAGES) is MESSAGES
        assert list(relevant(1, shared_words)([])) == []

    def test_an_agent_is_shown_what_matters_for_its_task(self):
        script = Script("Both.")
        before = [
            Message.of("user", "Hello."),
            *[Message.of("assistant", text) for text in ("Hello.", "The sea.", "cats purr", "Goodbye.")],
        ]
        result = Agent(script, context=relevant(1, shared_words)).call("cats and dogs", after=before)
        assert [m.text for m in script.requests[0].messages] == ["Hello.", "cats purr", "Goodbye.", "cats and dogs"]
        assert len(result.dialog.messages) == 7

    def test_each_message_is_scored_once_in_a_call(self):
        scored = list[int]()

        def score(query: str, message: Message) -> float:
            scored.append(id(message))
            return 1.0

        script = Script(*[call("read", n=n) for n in range(40)], "done")
        Agent(script, functions=[read], context=relevant(3, score), limits=Limits(rounds=None)).call("?")
        assert len(scored) == len(set(scored)) <= 80

    @pytest.mark.parametrize(
        ("n", "score"), [(0, shared_words), (True, shared_words), (1.5, shared_words), (1, "cats")]
    )
    def test_nonsense_is_named(self, n, score):
        with pytest.raises(UsageError, match=r"relevant\("):
            relevant(n, score)

    @pytest.mark.parametrize("score", [None, "high", float("nan")])
    def test_a_score_that_is_no_number_is_named(self, score):
        with pytest.raises(UsageError, match=r"score of relevant\(…\) returned .*: a number"):
            relevant(1, lambda query, message: score)(MESSAGES)


@pytest.mark.parametrize("value", [0, -1, True, "3", 2.5, None])
@pytest.mark.parametrize(("make", "name"), [(keep_last, "rounds"), (compress, "keep")])
def test_a_size_that_is_none_is_named(make, name, value):
    with pytest.raises(UsageError, match=rf"{make.__name__}\({name}={value!r}\): a whole number from 1 on"):
        make(value)


WINDOWS = st.one_of(
    st.builds(keep_last, st.integers(1, 12)),
    st.builds(relevant, st.integers(1, 5), st.just(lambda query, message: len(message.text) % 7)),
)
PASSES = st.one_of(
    WINDOWS,
    st.builds(compress, st.integers(1, 4)),
    st.builds(shorten, st.integers(50, 60)),
    st.builds(mask, st.integers(1, 4), st.integers(0, 9)),
    st.builds(once),
)


@pytest.mark.spec(
    "0.11: no result is sent without its call",
    "1.17: calls and results keep their structure",
    "3.31: the dialog is never changed",
    "4.8: whole groups only",
    "4.26: the system prompt is never dropped",
)
@given(dialogs(), st.lists(PASSES, max_size=4))
def test_no_pass_tears_a_round_or_loses_what_every_request_has(messages, passes):
    before = list(messages)
    shown = apply_passes(passes, messages)
    assert messages == before
    assert torn(shown) == ""
    leading = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    assert list(shown[:leading]) == messages[:leading]
    users = [m for m in messages if m.role == "user"]
    assert not users or (users[0] in shown and users[-1] in shown)
    assert not messages or messages[-1].role == "tool" or shown[-1].text == messages[-1].text
    assert apply_passes(passes, messages) == shown, "it is pure"


def test_lines_of_earlier_calls_are_not_taken_for_the_task() -> None:
    """Once a round is lines of text, the message before them is still the newest of a user."""
    tasks = [Message.of("user", "Who are you?"), Message.of("user", "Count the cats.")]
    dialog = [*tasks, Message.of("assistant", "I look."), *rounds("a", "b")]
    shown = apply_passes([compress(1), keep_last(1)], dialog)
    assert [m.text for m in shown[:3]] == [*[task.text for task in tasks], EARLIER + "search({}) → a"]


def test_a_task_that_reads_like_lines_of_earlier_calls_is_the_task() -> None:
    task = EARLIER + "search({}) → a: what does that mean?"
    script = Script("Hello.", *[call("read", n=n) for n in range(4)], "done")
    agent = Agent(script, functions=[read], context=[keep_last(1)])
    agent.call(task, after=agent.call("Hello?"))
    assert all(task in [m.text for m in request.messages] for request in script.requests[1:])


@given(dialogs(), WINDOWS)
def test_a_window_is_a_part_in_the_same_order(messages, window):
    numbered = [Message(role=m.role, parts=m.parts) for m in messages]  # no two are one object
    places = [next(i for i, m in enumerate(numbered) if m is seen) for seen in window(numbered)]
    assert places == sorted(set(places))
    assert pinned(numbered, None) <= set(places)
    assert not numbered or places[-1] == len(numbered) - 1

"""Does a window show the newest or the most relevant rounds, what every request has, and only whole rounds?"""

from __future__ import annotations

import time
from functools import reduce
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.long_dialogs import SYSTEM, TASK, asks, dialogs, rounds, told, torn
from support.views import view

from fsm_agent import Agent, Dialog, Limits, Message, UsageError, function
from fsm_agent.call import CallRecord, Request
from fsm_agent.context import compress, keep_last, mask, once, relevant, shorten
from fsm_agent.testing import Script, function_call

CHAT = [SYSTEM, TASK, *[Message.of(role, f"{role} {n}") for n in range(4) for role in ("assistant", "user")]]
MORE = Message.of("user", "More.")


@function(repeatable=True)
def read(n: int) -> str:
    """Read a page."""
    return f"page {n}"


def applied(passes, messages):
    return reduce(lambda shown, one: one(shown), passes, messages)


@given(dialogs(), st.data())
def test_a_pass_that_tears_a_round_is_refused_and_one_that_drops_a_whole_one_is_not(messages, data):
    dropped = data.draw(st.sets(st.sampled_from(range(len(messages))), max_size=4) if messages else st.just(set()))
    needed = [m for n, m in enumerate(messages) if m.role in ("system", "user") or n == len(messages) - 1]
    part = [m for n, m in enumerate(messages) if n not in dropped or any(m is one for one in needed)]
    shown = view(lambda shown: [m for m in shown if any(m is one for one in part)])
    record = CallRecord.of(Dialog(messages).messages)
    if torn(part):
        with pytest.raises(UsageError):
            shown.show(record, Request(messages=()))
    else:
        assert list(shown.show(record, Request(messages=())).request.messages) == part


class TestKeepLast:
    def test_the_newest_rounds_and_what_every_request_has(self):
        messages = [SYSTEM, TASK, *rounds("a", "b", "c", "d")]
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

    @pytest.mark.parametrize("window", [2, 3, 4, 7, 20])
    def test_it_moves_in_steps_so_that_most_requests_extend_the_one_before(self, window):
        """Each request of 60 rounds, as a provider's cache sees it."""
        messages, before, extending, shown_rounds = [SYSTEM, TASK], [], 0, []
        for n in range(1, 61):
            messages += rounds(f"{n}", first=n)
            shown = list(keep_last(window)(messages))
            extending += shown[: len(before)] == before
            shown_rounds.append(sum(bool(message.function_calls) for message in shown))
            before = shown
        assert max(shown_rounds) == window
        assert min(shown_rounds[window:]) >= window - window // 2
        assert extending / 60 >= 1 - 1 / max(1, window // 2), "once for each half of the window it is another beginning"

    def test_the_record_has_the_share_of_requests_that_extend_the_one_before(self):
        window = 4
        script = Script(*[function_call("read", n=n) for n in range(60)], "done")
        agent = Agent(script, functions=[read], context=keep_last(window), limits=Limits(rounds=None))
        uses = agent.call("?").record.requests
        sent = [request.messages for request in script.requests]
        extends = [tuple(b[: len(a)]) == tuple(a) for a, b in pairwise(sent)]
        assert [use.extends for use in uses] == [False, *extends]
        assert [use.messages for use in uses] == list(map(len, sent))
        assert sum(extends) / 60 >= 1 - 2 / window

    @pytest.mark.nightly
    def test_a_long_dialog_is_cut_in_no_time(self):
        messages = [SYSTEM, TASK, *rounds(*["x" * 4000] * 5000)]
        began_s = time.process_time()
        view = applied([once(), shorten(500), compress(100), mask(50, 5), keep_last(50)], messages)
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
    def test_the_least_relevant_rounds_are_left_out_whole_and_the_others_stay_in_order(self):
        for count, kept in ((1, (6, 7)), (2, (2, 3, 6, 7))):
            shown = relevant(count, shared_words)(MESSAGES)
            assert list(shown) == [MESSAGES[i] for i in (0, 1, *kept, 9, 10, 11)]
            assert torn(shown) == ""

    def test_of_equally_relevant_ones_the_newest_are_shown(self):
        messages = [TASK, *[Message.of("assistant", f"{n}") for n in range(5)]]
        shown = relevant(2, lambda query, message: 0)(messages)
        assert [m.text for m in shown] == ["Find out.", "2", "3", "4"]

    def test_an_agent_is_shown_what_matters_for_its_task(self):
        script = Script("Both.")
        before = [
            Message.of("user", "Hello."),
            *[Message.of("assistant", text) for text in ("Hello.", "The sea.", "cats purr", "Goodbye.")],
        ]
        result = Agent(script, context=relevant(1, shared_words)).call("cats and dogs", after=before)
        assert [m.text for m in script.requests[0].messages] == ["Hello.", "cats purr", "Goodbye.", "cats and dogs"]
        assert len(result.dialog.messages) == 7

    def test_nonsense_is_named(self):
        for n, score in ((0, shared_words), (True, shared_words), (1.5, shared_words), (1, "cats")):
            with pytest.raises(UsageError, match=r"of relevant"):
                relevant(n, score)
        for score in (None, "high", float("nan")):
            with pytest.raises(UsageError, match="score of relevant"):
                relevant(1, lambda query, message, score=score: score)(MESSAGES)


def test_a_size_that_is_none_is_named():
    for make, name in ((keep_last, "rounds"), (compress, "keep")):
        for value in (0, True, "3", 2.5):
            with pytest.raises(UsageError, match=f"{name} of {make.__name__}: .*{value!r}"):
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


@given(dialogs(), st.lists(PASSES, max_size=4))
def test_no_pass_tears_a_round_or_loses_what_every_request_has(messages, passes):
    before = list(messages)
    shown = applied(passes, messages)
    assert messages == before
    assert torn(shown) == ""
    leading = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    assert list(shown[:leading]) == messages[:leading]
    users = [m for m in messages if m.role == "user"]
    assert not users or (users[0] in shown and users[-1] in shown)
    assert not messages or messages[-1].role == "tool" or shown[-1].text == messages[-1].text
    assert applied(passes, messages) == shown, "it is pure"


def test_lines_of_earlier_calls_are_not_taken_for_the_task() -> None:
    """Once a round is lines of text, the message before them is still the newest of a user."""
    tasks = [Message.of("user", "Who are you?"), Message.of("user", "Count the cats.")]
    dialog = [*tasks, Message.of("assistant", "I look."), *rounds("a", "b")]
    shown = applied([compress(1), keep_last(1)], dialog)
    assert [m.text for m in shown[:2]] == [task.text for task in tasks]
    assert shown[2].text.endswith("\nsearch({}) → a")


def test_a_task_that_reads_like_lines_of_earlier_calls_is_the_task() -> None:
    task = compress(1)([TASK, *rounds("a", "b")])[1].text + ": what does that mean?"
    script = Script("Hello.", *[function_call("read", n=n) for n in range(4)], "done")
    agent = Agent(script, functions=[read], context=[keep_last(1)])
    agent.call(task, after=agent.call("Hello?"))
    assert all(task in [m.text for m in request.messages] for request in script.requests[1:])


@given(dialogs(), WINDOWS)
def test_a_window_is_a_part_in_the_same_order(messages, window):
    numbered = [Message(role=m.role, parts=m.parts) for m in messages]  # no two are one object
    places = [next(i for i, m in enumerate(numbered) if m is seen) for seen in window(numbered)]
    assert places == sorted(set(places))
    assert not numbered or places[-1] == len(numbered) - 1

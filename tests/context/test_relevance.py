"""Are the most relevant messages shown, in whole groups and in their order?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.long_dialogs import SYSTEM, TASK, dialogs, rounds, torn

from fsm_agent import Agent, Message, UsageError
from fsm_agent.context import KeepRelevant
from fsm_agent.context.window import pinned
from fsm_agent.testing import Script


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


@pytest.mark.spec("4.28: relevance drops whole groups")
def test_the_least_relevant_groups_are_left_out_whole_and_the_others_stay_in_order():
    for n, kept in ((1, (6, 7)), (2, (2, 3, 6, 7))):
        shown = KeepRelevant(n, shared_words)(MESSAGES)
        assert list(shown) == [MESSAGES[i] for i in (0, 1, *kept, 9, 10, 11)]
        assert torn(shown) == ""


def test_of_equally_relevant_ones_the_newest_are_shown():
    messages = [TASK, *[Message.of("assistant", f"{n}") for n in range(5)]]
    assert [m.text for m in KeepRelevant(2, lambda query, message: 0)(messages)] == ["Find out.", "2", "3", "4"]


def test_what_fits_is_sent_as_it_is():
    assert KeepRelevant(9, shared_words)(MESSAGES) is MESSAGES
    assert list(KeepRelevant(1, shared_words)([])) == []


def test_an_agent_is_shown_what_matters_for_its_task():
    script = Script("Both.")
    before = [Message.of("user", "Hello."), Message.of("assistant", "The sea."), Message.of("assistant", "cats purr")]
    before.append(Message.of("assistant", "Goodbye."))
    result = Agent(script, processors=[KeepRelevant(1, shared_words)]).call("cats and dogs", after=before)
    assert [m.text for m in script.requests[0].messages] == ["Hello.", "cats purr", "cats and dogs"]
    assert len(result.dialog.messages) == 6


@given(dialogs(), st.integers(1, 5))
def test_no_round_is_torn_and_what_is_pinned_stays(messages, n):
    shown = KeepRelevant(n, lambda query, message: len(message.text) % 7)(messages)
    assert torn(shown) == ""
    assert all(any(m is messages[i] for m in shown) for i in pinned(messages))
    assert not messages or shown[-1] is messages[-1]


@pytest.mark.parametrize(("n", "score"), [(0, shared_words), (True, shared_words), (1.5, shared_words), (1, "cats")])
def test_nonsense_is_named(n, score):
    with pytest.raises(UsageError, match=r"KeepRelevant\("):
        KeepRelevant(n, score)


@pytest.mark.parametrize("score", [None, "high", float("nan")])
def test_a_score_that_is_no_number_is_named(score):
    with pytest.raises(UsageError, match=r"score of KeepRelevant returned .*: a number"):
        KeepRelevant(1, lambda query, message: score)(MESSAGES)

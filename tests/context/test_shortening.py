"""Are results shortened in requests alone, and told from one another?"""

from __future__ import annotations

import pytest
from hypothesis import given
from support.drivers import Driver, anyhow, seed
from support.long_dialogs import SYSTEM, TASK, asks, dialogs, rounds, told, torn

from fsm_agent import Message, Prompt, UsageError, function
from fsm_agent.context import SendOnce, TruncateResults
from fsm_agent.context.shortening import REPEATED
from fsm_agent.context.view import View
from fsm_agent.testing import Script, call

LONG = "".join(f"line {n}\n" for n in range(40))


def results(messages) -> list[str]:
    return [message.text for message in messages if message.role == "tool"]


class TestTruncated:
    @pytest.mark.spec("4.9: the dialog keeps the whole text")
    @anyhow
    def test_a_request_shows_head_and_tail_and_the_dialog_the_whole(self, driven: Driver):
        @function
        def read() -> str:
            """Read."""
            return LONG

        one = seed(Prompt("x", functions=(read,)), view=View(None, (TruncateResults(100),)))
        script = Script(call("read"), "done")
        driven(one, script)
        (shown,) = results(script.requests[-1].messages)
        assert len(shown) == 100
        assert (shown[:7], shown[-8:]) == ("line 0\n", "line 39\n")
        assert "characters left out" in shown
        assert results(one.record.dialog) == [LONG]
        assert one.result().function_calls[0].result == LONG

    def test_only_results_are_shortened_and_nothing_is_copied_without_need(self):
        messages = [SYSTEM, Message.of("user", LONG), *rounds("short"), Message.of("assistant", LONG)]
        assert TruncateResults(100)(messages) is messages

    def test_each_result_of_a_message_by_itself(self):
        both = Message.of("tool", *told("1.0", LONG, images=1).parts, *told("1.1", "short").parts)
        (shown,) = TruncateResults(100)([both])
        assert [len(part.text) for part in shown.parts] == [100, 5]
        assert shown.parts[0].attachments == both.parts[0].attachments

    @pytest.mark.parametrize("value", [49, 0, -1, True, 60.0, "60"])
    def test_nonsense_is_named(self, value):
        with pytest.raises(UsageError, match=f"max_chars is {value!r}: a whole number from 50 on"):
            TruncateResults(value)


class TestSentOnce:
    @pytest.mark.spec("4.28: equal results are sent once")
    def test_a_later_equal_result_is_a_note(self):
        messages = [SYSTEM, TASK, *rounds(LONG, "other", LONG, LONG + "!")]
        shown = SendOnce()(messages)
        note = REPEATED.format(name="search", start=LONG[:60])
        assert results(shown) == [LONG, "other", note, LONG + "!"]
        assert results(messages) == [LONG, "other", LONG, LONG + "!"]
        assert torn(shown) == ""

    def test_of_the_same_function_and_kind(self):
        calls = Message.of("assistant", *asks("1.0").parts, *asks("1.1", name="find").parts, *asks("1.2").parts)
        messages = [calls, told("1.0", LONG), told("1.1", LONG, name="find"), told("1.2", LONG, is_error=True)]
        assert SendOnce()(messages) is messages

    def test_not_where_a_note_would_be_longer_or_a_picture_be_lost(self):
        pictures = [[asks(id), told(id, LONG, images=1)] for id in ("9.0", "9.1")]
        messages = [*rounds("same", "same"), *pictures[0], *pictures[1]]
        assert SendOnce()(messages) is messages

    def test_what_is_shown_stays_the_same_as_the_dialog_grows(self):
        messages = [TASK, *rounds(LONG, LONG, LONG, LONG)]
        whole = SendOnce()(messages)
        assert [list(SendOnce()(messages[:end])) for end in range(len(messages))] == [
            list(whole[:end]) for end in range(len(messages))
        ]


@given(dialogs())
def test_messages_and_calls_stay_in_place(messages):
    for processor in (TruncateResults(50), SendOnce()):
        shown = processor(messages)
        assert torn(shown) == ""
        assert [(m.role, m.function_calls) for m in shown] == [(m.role, m.function_calls) for m in messages]
        assert all(len(new.text) <= len(old.text) for new, old in zip(shown, messages, strict=True))

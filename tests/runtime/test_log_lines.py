"""Is every line of the log short, on one line, and fit to be written anywhere?"""

from __future__ import annotations

import pytest

from fsm_agent.errors import ErrorReport
from fsm_agent.lifecycle import Begun, CallRecord, ModelFailed, Replied
from fsm_agent.messages import FunctionCall, Inside, Reply, Stepped, Usage
from fsm_agent.prompts import Dialog
from fsm_agent.runtime.log import MAX_FRAMES, MAX_TRACEBACK, MAX_WORDS, step_line, traceback_text, words

KEY = "sk-abcdefghijklmnopqrstuvwx"
RECORD = CallRecord.of(Dialog().put("x").messages).changed(id="c1")


class TestWords:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("a\nb\t c\r\n", "a b c"),
            ("half \ud800 a pair", "half a pair"),
            ("\x1b[31mred\x00", "[31mred"),
            (f"key {KEY}!", "key sk-a***!"),
            ("", ""),
        ],
    )
    def test_they_are_one_plain_line_without_keys(self, text: str, said: str) -> None:
        assert words(text) == said

    def test_they_are_short_and_a_key_at_the_cut_is_hidden_too(self) -> None:
        text = words("x" * (MAX_WORDS - 12) + f" {KEY}" + "y" * 10_000)
        assert len(text) <= MAX_WORDS
        assert KEY[:8] not in text


class TestSteps:
    def test_a_plain_one(self) -> None:
        step = Stepped("Seeded", "begun", "Calling", "begin", 1.0)
        assert step_line(RECORD, step, Begun(at_s=1.0)) == "call c1: Seeded -> Calling: begun (begin)"

    def test_one_of_a_child_has_its_path(self) -> None:
        step = Stepped("Calling", "answered", "Completed", "model:0", 1.0, usage=Usage(input_tokens=7))
        reply = Replied(reply=Reply.of("42"))
        line = "call c1/deep/one: Calling -> Completed: answered (model:0); 7 + 0 tokens"
        assert step_line(RECORD, Inside("deep/one", step), reply) == line

    def test_a_failed_request_has_the_facts_and_the_delay(self) -> None:
        step = Stepped("Calling", "model_failed", "Backoff", "model:0", 1.0, "may_recall", "slow")
        report = ErrorReport(kind="RateLimited", message="slow", status=429, request_id="r1", retryable=True)
        line = step_line(RECORD, step, ModelFailed(error=report, delay_s=2.0))
        facts = "RateLimited: slow [status=429, request_id=r1]; again in 2 s"
        assert line == f"call c1: Calling -> Backoff: model_failed [may_recall] (model:0): {facts}"

    def test_functions_are_named_and_their_arguments_are_not(self) -> None:
        step = Stepped("Calling", "functions_asked", "ToolInterrupt", "model:0", 1.0)
        asked = Replied(reply=Reply.of(FunctionCall(name="look", arguments_json='{"secret": 1}')))
        assert step_line(RECORD, step, asked).endswith("functions_asked (model:0): look")

    def test_a_process_without_an_id_has_a_line_too(self) -> None:
        step = Stepped("A", "went", "B", "", 1.0)
        assert step_line(object(), step, None) == "call ?: A -> B: went"


class Odd(Exception):
    def __str__(self) -> str:
        raise LookupError


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def endless(n: int) -> None:
    endless(n + 1)


class TestTracebacks:
    def test_it_begins_with_the_code_of_the_user(self) -> None:
        text = traceback_text(raised(KeyError("x")))
        assert "in raised\n" in text
        assert text.endswith("KeyError: 'x'")

    def test_an_exception_that_cannot_say_what_is_wrong(self) -> None:
        assert "Odd" in traceback_text(raised(Odd()))

    def test_keys_and_halves_of_surrogate_pairs_are_hidden(self) -> None:
        text = traceback_text(raised(ValueError(f"{KEY} \ud800")))
        assert KEY not in text
        assert text.encode()

    def test_it_is_bounded(self) -> None:
        with pytest.raises(RecursionError) as caught:
            endless(0)
        assert traceback_text(caught.value).count("File ") <= MAX_FRAMES
        assert len(traceback_text(raised(ValueError("x" * 10**6)))) <= MAX_TRACEBACK

    def test_one_that_was_never_raised(self) -> None:
        assert traceback_text(ValueError("no")) == "ValueError: no"

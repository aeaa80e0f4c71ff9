"""Is what stands in a question read off it as a person would?"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Literal, TypeVar

import pytest

from fsm_agent.clients.local.functions import fields as reading
from fsm_agent.clients.local.functions.filling import filled
from fsm_agent.clients.local.functions.question import Question
from fsm_agent.functions import Function
from fsm_agent.messages import Reply

T = TypeVar("T")


def finished(steps: Generator[Any, Reply, T], *texts: str) -> T:
    """Return the result of the steps when the model answers with all of these texts."""
    replies = iter(texts)
    try:
        next(steps)
        while True:
            steps.send(Reply.of(next(replies)))
    except StopIteration as end:
        assert next(replies, None) is None, "the model was asked less often"
        return end.value


def function(required: list[str], **properties: dict[str, Any]) -> Function:
    parameters = {"type": "object", "properties": properties, "required": required}
    return Function(name="f", description="Do it.", parameters=parameters)


class TestQuestion:
    @pytest.mark.parametrize(
        ("text", "values"),
        [
            ("What is 17 + 25?", ["17", "25"]),
            ("b=-7, 3 - 4 and -2.50", ["-7", "3", "4", "-2.5"]),
            ("1,200.50 of 12,24,36", ["1200.5", "12", "24", "36"]),
            ("2 million, 3k and twenty-five", ["2000000", "3000", "25"]),
            ("order A-1043 on the 18th", ["18"]),
            ("请把17加25", ["17", "25"]),
            ("the one which costs one dollar", ["1"]),
            ("١٢ of them", ["12"]),
            ("1e999, 1e5 and " + "9" * 500, ["100000"]),
            ("12345678901234567890", ["12345678901234567890"]),
        ],
    )
    def test_numbers(self, text: str, values: list[str]):
        assert [number.value for number in Question(text).numbers] == values

    def test_lists_of_numbers_on_both_sides_of_an_and(self):
        runs = Question("Compare 12, 24, 36 and 15, 30, 45.").runs
        assert [[number.value for number in run] for run in runs[:2]] == [["12", "24", "36"], ["15", "30", "45"]]

    def test_a_quotation_is_one_phrase(self):
        phrases = Question("Send 'a note of mine' to the new bank in London.").phrases
        assert phrases == ("a note of mine", "new bank", "London")

    def test_a_value_is_mentioned_by_its_words_or_their_stems(self):
        question = Question("two tickets for a Rock concert, scenic route")
        assert question.mentioned(["rock", "jazz", "Scenic", 2, "A", "ticket"]) == [2, "ticket", "rock", "Scenic"]


class TestFields:
    def test_references_and_unions_are_resolved(self):
        parameters = {
            "$defs": {"U": {"enum": ["a", "b"], "type": "string"}, "Loop": {"$ref": "#/$defs/Loop"}},
            "properties": {
                "u": {"$ref": "#/$defs/U"},
                "n": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
                "s": {"type": ["null", "string"]},
                "c": {"const": 3},
                "loop": {"$ref": "#/$defs/Loop"},
                "lost": {"$ref": "#/nowhere"},
            },
        }
        fields = {field.name: field for field in reading.fields_of(Function(name="f", parameters=parameters))}
        assert fields["u"].enum == ["a", "b"]
        assert [fields[name].kind for name in ("n", "s", "loop", "lost")] == ["integer", "string", "string", "string"]
        assert fields["c"].enum == [3]


def travel(origin: str, destination: str, seats: int = 1, mode: Literal["bus", "train"] = "bus") -> None:
    """Find a way between two places."""


def loan(principal: float, rate: float, years: int) -> None:
    """Calculate the interest of a loan."""


class TestFilling:
    def test_what_code_can_read_costs_no_request(self):
        question = Question("Is there a train with 3 seats?")
        wanted = function(["seats", "mode"], seats={"type": "integer"}, mode={"enum": ["bus", "train"]})
        assert finished(filled(question, wanted)) == {"seats": 3, "mode": "train"}

    def test_optional_arguments_that_are_not_stated_are_left_out(self):
        question = Question("How do I get from Oslo to Bergen?")
        wanted = {"origin": "Oslo", "destination": "Bergen"}
        assert finished(filled(question, Function.of(travel)), ' "Oslo"', ' "Bergen"') == wanted

    def test_an_optional_number_is_taken_if_it_can_be_of_no_other_argument(self):
        rolled = function(["sides"], sides={"type": "integer"}, count={"type": "integer"})
        assert finished(filled(Question("Roll 3 dice with 20 sides."), rolled), " 20") == {
            "sides": 20,
            "count": 3,
        }
        two = function(["sides"], sides={"type": "integer"}, count={"type": "integer"}, bonus={"type": "integer"})
        assert finished(filled(Question("Roll 3 dice with 20 sides."), two), " 20") == {"sides": 20}

    def test_of_several_numbers_the_model_chooses(self):
        question = Question("What is the interest at a rate of 4.5 over 10 years on a principal of 900?")
        assert finished(filled(question, Function.of(loan)), " 900", " 4.5") == {
            "principal": 900,
            "rate": 4.5,
            "years": 10,
        }

    def test_the_model_copies_what_is_left(self):
        wanted = function(["item"], item={"type": "string"})
        assert finished(filled(Question("Is there any milk left?"), wanted), ' "milk"') == {"item": "milk"}

    def test_what_one_argument_has_used_is_not_offered_to_the_next(self):
        wanted = function(["first", "second"], first={"type": "string"}, second={"type": "string"})
        steps = filled(Question("Compare Oslo and Rome."), wanted)
        next(steps)
        step = steps.send(Reply.of(' "Oslo"'))
        grammar = step.request.settings.extra_body["grammar"]
        assert "Rome" in grammar
        assert "Oslo" not in grammar

    def test_what_may_be_copied_is_whole_and_json(self):
        wanted = function(["text"], text={"type": "string"})
        for text, copied in (
            (r"Delete C:\temp\x.txt", r"C:\\\\temp\\\\x.txt"),
            ("Is it in New York City?", '"New York City"'),
        ):
            step = next(filled(Question(text), wanted))
            assert copied in step.request.settings.extra_body["grammar"]

    def test_a_list_that_was_cut_off_is_kept_so_far(self):
        wanted = function(["names"], names={"type": "array", "items": {"type": "string"}})
        assert finished(filled(Question("Ask Ann or Bob"), wanted), ' ["Ann", "Bob", "An') == {"names": ["Ann", "Bob"]}

    def test_a_flag_that_is_named_and_one_that_is_denied(self):
        flags = function([], include_owner={"type": "boolean"}, symbols={"type": "boolean"})
        question = Question("Include the owner, without symbols.")
        assert finished(filled(question, flags)) == {"include_owner": True, "symbols": False}

    def test_a_quotation_is_kept_to_its_last_sign(self):
        wanted = function(["text"], text={"type": "string"})
        question = Question("Translate 'Where is it?'")
        assert finished(filled(question, wanted), ' "Where is it"') == {"text": "Where is it?"}

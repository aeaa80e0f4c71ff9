"""Is what stands in a question read off it as a person would?"""

from __future__ import annotations

from collections.abc import Generator
from datetime import date
from typing import Any, Literal, TypeVar

import pytest

from fsm_agent.clients.local.functions.fields import fields_of
from fsm_agent.clients.local.functions.filling import filled
from fsm_agent.clients.local.functions.grammar import Grammar
from fsm_agent.clients.local.functions.question import Question
from fsm_agent.clients.local.functions.wire import Step
from fsm_agent.functions.function import Function
from fsm_agent.messages.reply import Reply

T = TypeVar("T")


def finished(steps: Generator[Step, Reply, T], *texts: str) -> T:
    """Return what the steps return when the model answers with these texts, all of them."""
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
        assert [number.values[0] for number in Question(text).numbers] == values

    def test_a_percentage_has_two_values(self):
        assert Question("5% of it").numbers[0].values == ("5", "0.05")

    def test_lists_of_numbers_on_both_sides_of_an_and(self):
        runs = Question("Compare 12, 24, 36 and 15, 30, 45.").runs
        assert [[number.values[0] for number in run] for run in runs[:2]] == [["12", "24", "36"], ["15", "30", "45"]]

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("from April 3rd to April 5th 2023", [date(2023, 4, 3), date(2023, 4, 5)]),
            ("on the 5th of march 2023", [date(2023, 3, 5)]),
            ("2023-10-15 or 2023.10.1", [date(2023, 10, 15), date(2023, 10, 1)]),
            ("on May 3", []),
            ("on February 30th 2023", []),
        ],
    )
    def test_dates(self, text: str, found: list[date]):
        assert [day for _, day in Question(text).dates] == found

    def test_times(self):
        assert [time for _, time in Question("at 4:30 PM, 12 am, 09:15 or 25:00").times] == ["16:30", "00:00", "09:15"]

    def test_phrases_keep_names_and_quotations_whole(self):
        phrases = Question("Send 'a note of mine' to the Bank of England in London.").phrases
        assert {"a note of mine", "Bank of England", "London"} <= set(phrases)

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
        fields = {field.name: field for field in fields_of(Function(name="f", parameters=parameters))}
        assert fields["u"].enum == ["a", "b"]
        assert [fields[name].kind for name in ("n", "s", "loop", "lost")] == ["integer", "string", "string", "string"]
        assert fields["c"].enum == [3]

    def test_values_named_by_a_description(self):
        described = "The unit, 'metric' or 'imperial'. Default is 'kelvin'."
        field = fields_of(function([], unit={"type": "string", "description": described}))[0]
        assert field.examples == ["metric", "imperial"]


class TestGrammar:
    def test_what_is_used_is_left_out_while_there_is_more(self):
        question = Question("What is 17 + 25?")
        grammar = Grammar(question, question.phrases, ["17"])
        assert '"17"' not in grammar.of({"type": "integer"})
        assert '"25"' in grammar.of({"type": "integer"})
        assert '"17"' in Grammar(question, question.phrases, ["17", "25"]).of({"type": "integer"})

    def test_what_is_copied_is_json(self):
        question = Question(r"Delete C:\temp\x.txt")
        assert r"C:\\\\temp\\\\x.txt" in Grammar(question, question.phrases, ()).of({"type": "string"})

    def test_names_of_several_words_are_copied_whole(self):
        question = Question("Weather in New York City?")
        assert '"New York City"' in Grammar(question, question.phrases, ()).of({"type": "string"})


def travel(origin: str, destination: str, seats: int = 1, mode: Literal["bus", "train"] = "bus") -> None:
    """Find a way between two places."""


def loan(principal: float, rate: float, years: int) -> None:
    """Calculate the interest of a loan."""


class TestFilling:
    def test_what_code_can_read_costs_no_request(self):
        question = Question("Is there a train from Oslo to Bergen with 3 seats?")
        wanted = {"origin": "Oslo", "destination": "Bergen", "seats": 3, "mode": "train"}
        assert finished(filled(question, Function.of(travel))) == wanted

    def test_optional_arguments_that_are_not_stated_are_left_out(self):
        question = Question("How do I get from Oslo to Bergen?")
        assert finished(filled(question, Function.of(travel))) == {"origin": "Oslo", "destination": "Bergen"}

    def test_numbers_go_to_the_arguments_whose_words_are_beside_them(self):
        question = Question("What is the interest at a rate of 4.5 over 10 years on a principal of 900?")
        assert finished(filled(question, Function.of(loan))) == {"principal": 900, "rate": 4.5, "years": 10}

    def test_the_model_copies_what_is_left(self):
        wanted = function(["item"], item={"type": "string"})
        assert finished(filled(Question("Is there any milk left?"), wanted), ' "milk"') == {"item": "milk"}

    def test_a_number_whose_words_are_rather_anothers_is_left_to_the_model(self):
        priced = {"type": "integer", "description": "Price of the apples."}
        wanted = function(["total", "apples"], total=priced, apples={"type": "integer"})
        question = Question("Give me 5 apples for 20 dollars.")
        assert finished(filled(question, wanted), " 20") == {"total": 20, "apples": 5}

    def test_what_one_argument_has_used_is_not_offered_to_the_next(self):
        wanted = function(["first", "second"], first={"type": "string"}, second={"type": "string"})
        steps = filled(Question("Compare Oslo and Rome."), wanted)
        next(steps)
        step = steps.send(Reply.of(' "Oslo"'))
        grammar = step.request.settings.extra_body["grammar"]
        assert "Rome" in grammar
        assert "Oslo" not in grammar

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

    @pytest.mark.parametrize(
        ("description", "value"),
        [("As YYYY-MM-DD.", "2023-03-05"), ("In the form DD/MM/YYYY", "05/03/2023"), ("HH:MM", "16:30")],
    )
    def test_moments_have_the_form_that_is_described(self, description: str, value: str):
        wanted = function(["at"], at={"type": "string", "description": description})
        assert finished(filled(Question("On March 5th 2023 at 4:30 pm"), wanted)) == {"at": value}

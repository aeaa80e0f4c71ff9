"""Is what stands in a question read off it as a person would?"""

from __future__ import annotations

import json
import re
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
            ("1" * 30 + " or " + "1" * 31, ["1" * 30]),
            ("3 K, the One of 4thousandths, one That", ["3000", "4"]),
            ("Five thousand and eleven of the 3 million; one of them", ["5000", "11", "3000000"]),
            ("ninety-nine, zero", ["99", "0"]),
        ],
    )
    def test_numbers(self, text: str, values: list[str]):
        assert [number.value for number in Question(text).numbers] == values

    @pytest.mark.parametrize(
        ("text", "runs"),
        [
            ("Compare 12, 24, 36 and 15, 30.", ["12 24 36", "15 30", "12 24 36 15 30"]),
            ("The mean of 1, 2, and 3", ["1 2 3"]),
            ("1; 2 or 3 4", ["1 2", "3 4"]),
            ("5 of 6", []),
        ],
    )
    def test_lists_of_numbers_on_both_sides_of_an_and(self, text: str, runs: list[str]):
        assert [" ".join([number.value for number in run]) for run in Question(text).runs] == runs

    @pytest.mark.parametrize(
        ("text", "phrases"),
        [
            ("Send 'a note of mine' to the new bank in London.", ["a note of mine", "new bank", "London"]),
            ("please book Paris, then rome", ["Paris", "rome"]),
            ("find paris, london and rome", ["paris, london", "rome"]),
            ("Find Ann's red (old) car; - 5.5 !", ["Ann", "red (old) car", "- 5.5"]),
        ],
    )
    def test_a_quotation_is_one_phrase(self, text: str, phrases: list[str]):
        assert Question(text).phrases == tuple(phrases)

    @pytest.mark.parametrize(
        ("text", "values", "mentioned"),
        [
            (
                "two tickets for a Rock concert, scenic route",
                ["rock", "jazz", "Scenic", 2, "A", "ticket"],
                [2, "ticket", "rock", "Scenic"],
            ),
            ("Can I use B or c?", ["A", "B", "C", "c", "I", "", "?"], ["B", "c"]),
            ("from New York", ["york new", "new york", "newYork"], ["york new", "new york", "newYork"]),
            ("nach Zürich und 上海市", ["zürich", "上海", "北京"], ["zürich", "上海"]),
            (
                "the organization of meetings",
                ["organize", "meet", "meeting", True],
                ["organize", "meet", "meeting"],
            ),
        ],
    )
    def test_a_value_is_mentioned_by_its_words_or_their_stems(self, text: str, values: list[Any], mentioned: list[Any]):
        assert Question(text).mentioned(values) == mentioned


class TestFields:
    def test_references_and_unions_are_resolved(self):
        tree = {"properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}
        parameters = {
            "$defs": {"U": {"enum": ["a", "b"], "type": "string"}, "Loop": {"$ref": "#/$defs/Loop"}, "Tree": tree},
            "properties": {
                "u": {"$ref": "#/$defs/U"},
                "n": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
                "s": {"type": ["null", "string"]},
                "c": {"const": 3},
                "loop": {"$ref": "#/$defs/Loop"},
                "lost": {"$ref": "#/nowhere"},
                "tree": {"$ref": "#/$defs/Tree"},
            },
        }
        fields = {field.name: field for field in reading.fields_of(Function(name="f", parameters=parameters))}
        assert fields["u"].enum == ["a", "b"]
        assert [fields[name].kind for name in ("n", "s", "loop", "lost")] == ["integer", "string", "string", "string"]
        assert fields["c"].enum == [3]
        assert (fields["tree"].kind, fields["tree"].schema["properties"]["kids"]["items"]["type"]) == ("object",) * 2


def travel(origin: str, destination: str, seats: int = 1, mode: Literal["bus", "train"] = "bus") -> None:
    """Find a way between two places."""


def loan(principal: float, rate: float, years: int) -> None:
    """Calculate the interest of a loan."""


TEXT, WHOLE, FLAG, COLOUR = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"enum": ["red", "blue"]}


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


FILLED: list[tuple[str, Function, list[str], dict[str, Any]]] = [  # question, function, answers of the model, arguments
    ("Is it red or blue?", function(["x"], x=list_of(COLOUR)), [], {"x": ["red", "blue"]}),
    ("Is it red or blue?", function(["x"], x=COLOUR), [' "blue"'], {"x": "blue"}),
    ("Is it red?", function([], x={**COLOUR, "default": "red"}, y={**COLOUR, "default": "blue"}), [], {"y": "red"}),
    ("A blue train with 3 seats", function(["n", "x"], n=WHOLE, x=COLOUR), [], {"n": 3, "x": "blue"}),
    (
        "How do I get from Oslo to Bergen?",
        Function.of(travel),
        [' "Oslo"', ' "Bergen"'],
        {"origin": "Oslo", "destination": "Bergen"},
    ),
    (
        "Interest at a rate of 4.5 over 10 years on 900?",
        Function.of(loan),
        [" 900", " 4.5"],
        {"principal": 900, "rate": 4.5, "years": 10},
    ),
    ("Is there any milk left?", function(["item"], item=TEXT), [' "milk"'], {"item": "milk"}),
    ("Book for the customer Ann", function([], customer_name=TEXT, value=TEXT), [' "Ann"'], {"customer_name": "Ann"}),
    ("Two rooms, 3 nights", function(["nights"], nights=WHOLE, rooms=WHOLE), [" 3"], {"nights": 3}),
    (
        "Show '12 monkeys' for 3",
        function(["film", "n"], film=TEXT, n=WHOLE),
        [' "12 monkeys"'],
        {"film": "12 monkeys", "n": 3},
    ),
    ("Ask Ann or Bob", function(["x"], x=list_of(TEXT)), [' ["Ann.", "Bob", "Ann", "An'], {"x": ["Ann", "Bob"]}),
    ("Say 'a b' and 'c d'", function(["x"], x=list_of(TEXT)), [], {"x": ["a b", "c d"]}),
    ("Say 'a b'", function(["x"], x=list_of(TEXT)), [' ["a b"]'], {"x": ["a b"]}),
    (
        "Add 1, 2 and 3, 4.5",
        function(["x", "y"], x=list_of(WHOLE), y=list_of({"type": "number"})),
        [],
        {"x": [1, 2], "y": [3, 4.5]},
    ),
    ("Is it on", function(["x"], x=TEXT), [' "(it.'], {"x": "it"}),
    ("Is it on", function(["x"], x=TEXT), [" it on"], {"x": "it on"}),
    ("Is it on", function(["x"], x=TEXT), [' "."'], {"x": "."}),
    ("Translate 'Where is it?'", function(["x"], x=TEXT), [' "Where is it"'], {"x": "Where is it?"}),
    (
        "Include the owner, without new symbols.",
        function([], include_owner=FLAG, symbols=FLAG, old=FLAG),
        [],
        {"include_owner": True, "symbols": False},
    ),
    ("No such long or old owner", function([], old=FLAG, owner=FLAG), [], {"old": True, "owner": True}),
]


class TestFilling:
    @pytest.mark.parametrize(("text", "wanted", "answers", "arguments"), FILLED)
    def test_arguments_are_read_off_or_copied(
        self, text: str, wanted: Function, answers: list[str], arguments: dict[str, Any]
    ):
        assert finished(filled(Question(text), wanted), *answers) == arguments

    def test_an_optional_number_is_taken_if_it_can_be_of_no_other_argument(self):
        rolled = function(["sides"], sides={"type": "integer"}, count={"type": "integer"})
        assert finished(filled(Question("Roll 3 dice with 20 sides."), rolled), " 20") == {
            "sides": 20,
            "count": 3,
        }
        two = function(["sides"], sides={"type": "integer"}, count={"type": "integer"}, bonus={"type": "integer"})
        assert finished(filled(Question("Roll 3 dice with 20 sides."), two), " 20") == {"sides": 20}

    @pytest.mark.parametrize(
        ("text", "schema", "answers", "offered"),
        [
            ("Compare Oslo and Rome.", TEXT, [' "Oslo"'], {"Compare", "Rome"}),
            ("Oslo", TEXT, [' "Oslo"'], {"Oslo"}),
            ("Compare 7, 8.5 and 9.", {"type": "number"}, [" 8.5"], {"7", "9"}),
            (
                "Compare red and blue Oslo.",
                {"enum": ["red", "blue"]},
                [' "red"', ' "blue"'],
                {"Compare", "red", "blue", "Oslo"},
            ),
        ],
    )
    def test_what_one_argument_has_used_is_not_offered_to_the_next(
        self, text: str, schema: dict[str, Any], answers: list[str], offered: set[str]
    ):
        steps = filled(Question(text), function(["first", "second", "third"], first=schema, second=schema, third=TEXT))
        step = next(steps)
        for answer in answers:
            step = steps.send(Reply.of(answer))
        grammar = step.request.settings.extra_body["grammar"]
        words = re.findall(r"[\w.]*\w", text)
        assert {word for word in words if f'"{word}' in grammar} == offered

    @pytest.mark.parametrize(
        ("text", "chunks"),
        [
            (r"Delete C:\temp\x.txt", [[r"C:\\temp\\x.txt"]]),
            ("Is it in New York City?", [["New York City"]]),
            ("Ann Lee met Bo Li today, then Cy", [["Ann", " ", "Lee", " ", "met", " ", "Bo Li", " ", "today"], ["Cy"]]),
            ("北京", [["北京"]]),
            ("on 东京 tower-2 in o'clock", [["东", "京", " ", "tower-2"], ["o'clock"]]),
            ("is it?", [["is", " ", "it", "?"]]),
        ],
    )
    def test_what_may_be_copied_is_whole_and_json(self, text: str, chunks: list[list[str]]):
        step = next(filled(Question(text), function(["text"], text={"type": "string"})))
        start, *regexes, whole = step.request.settings.extra_body["grammar"].splitlines()[1:]
        assert [json.loads(line.partition("%regex ")[2]) for line in regexes] == [
            {"substring_chunks": pieces} for pieces in chunks
        ]
        names = " | ".join([line.partition(":")[0] for line in regexes])
        assert (start, whole) == (
            f'start: " " "\\"" T{len(chunks)} "\\""',
            f"T{len(chunks)}: ({names}) & /[^ ](.*[^ ])?/",
        )

    @pytest.mark.parametrize(
        ("schema", "hint", "rules"),
        [
            (
                {"type": "boolean", "description": "Is it on? Or off."},
                "(boolean): Is it on? Or off.",
                ['"true" | "false"'],
            ),
            ({"enum": ["a", 4, 'é"']}, '(one of a, 4, é")', [r'''"\"a\"" | "4" | "\"é\\\"\""''']),
            ({"type": "integer"}, "(integer)", ['"1" | "3"']),
            ({"type": ["null", "number"]}, "(number)", ['"1" | "2.5" | "3"']),
            (
                {"type": "array", "items": {"type": "integer"}},
                "(list of integers)",
                ['"1" | "3"', '"[" r0 (", " r0){0,6} "]"'],
            ),
            (
                {"type": "object", "properties": {"n": {"type": "integer"}, "b": {"type": "boolean"}}},
                "(object)",
                ['"1" | "3"', '"true" | "false"', r'''"{" "\"n\": " r0 ", " "\"b\": " r1 "}"'''],
            ),
            (
                {"type": "object", "properties": {"n": {"type": "integer"}, "s": {}}, "required": ["n"]},
                "(object)",
                ['"1" | "3"', r'''"{" "\"n\": " r0 "}"'''],
            ),
        ],
    )
    def test_what_may_be_filled_in_is_what_the_schema_and_the_question_allow(
        self, schema: dict[str, Any], hint: str, rules: list[str]
    ):
        step = next(filled(Question("Is it 1 or 2.5 or 3?"), function(["x"], x=schema)))
        assert f"\nArguments:\n- x {hint}" in step.request.messages[0].text
        last = len(rules) - 1
        assert step.request.settings.extra_body["grammar"].splitlines() == [
            "%llguidance {}",
            f'start: " " r{last}',
            *[f"r{number}: {rule}" for number, rule in enumerate(rules)],
        ]

    @pytest.mark.parametrize(
        ("schema", "start"),
        [
            ({"type": "integer"}, "/-?[0-9]{1,9}/"),
            ({"type": "number"}, r"/-?[0-9]{1,9}(\.[0-9]{1,6})?/"),
            ({"type": "object"}, '"{}"'),
        ],
    )
    def test_a_number_that_the_question_lacks_is_made_up(self, schema: dict[str, Any], start: str):
        step = next(filled(Question("How many are there?"), function(["x"], x=schema)))
        assert step.request.settings.extra_body["grammar"] == f'%llguidance {{}}\nstart: " " {start}'

"""Does a model's text become exactly its value, in bounded time, or an error that names the mistake?"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional, Union
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from support.examples import examples
from typing_extensions import TypedDict

from fsm_agent import Prompt
from fsm_agent.errors import ParseError, PromptError
from fsm_agent.prompts import Output, extract_json


class Color(enum.Enum):
    RED = "red"
    DARK_BLUE = "dark blue"
    ONE = 1


class Review(BaseModel):
    title: str
    stars: int = Field(ge=1, le=5)
    tags: list[str] = []


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Valued(BaseModel):
    value: int


class Measured(BaseModel):
    metres: float


class Paid(BaseModel):
    amount: Decimal
    parts: list[Paid] = []


class Unbounded(Measured):
    model_config = ConfigDict(allow_inf_nan=True)


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Typed(TypedDict):
    a: int


REVIEW = Output(Review)


class Plain:
    """A class that pydantic does not know."""


class TestSchema:
    def test_text_has_none(self):
        assert Output().schema is None
        assert Output(str).name == "str"
        assert not Output(str).is_wrapped

    def test_an_object_goes_as_it_is(self):
        assert Output(Review).schema == TypeAdapter(Review).json_schema()
        assert not Output(Review).is_wrapped
        for kind in (Point, Typed, dict[str, int]):
            assert not Output(kind).is_wrapped

    def test_descriptions_are_part_of_it(self):
        class Place(BaseModel):
            """Somewhere."""

            city: str = Field(description="Its name.")

        schema = Output(Place).schema
        assert (schema["description"], schema["properties"]["city"]["description"]) == ("Somewhere.", "Its name.")

    def test_anything_else_is_wrapped(self):
        for kind in [int, list[int], int | str, Color, Node, Any, Review | None]:
            output = Output(kind)
            assert output.is_wrapped
            assert output.schema["type"] == "object"
            assert output.schema["required"] == ["value"]
            bare = {key: value for key, value in TypeAdapter(kind).json_schema().items() if key != "$defs"}
            assert output.schema["properties"] == {"value": bare}

    def test_definitions_stay_at_the_root(self):
        schema = Output(list[Review]).schema
        assert schema["$defs"].keys() == {"Review"}
        assert schema["properties"]["value"] == {"type": "array", "items": {"$ref": "#/$defs/Review"}}

    def test_the_name_is_one_that_providers_take(self):
        for kind, name in [
            (Review, "Review"),
            (list[int], "list"),
            (int | str, "answer"),
            (Optional[int], "answer"),  # noqa: UP045 - as others write it
            (type("R\u00e9sum\u00e9 2", (BaseModel,), {}), "R_sum_2"),
            (type("A" * 80, (BaseModel,), {}), "A" * 64),
        ]:
            assert Output(kind).name == name

    def test_values_in_place_of_a_type_are_told_with_a_literal(self):
        for values in (["a", "b"], {"a"}):
            with pytest.raises(PromptError, match="Literal"):
                Prompt("x", output=values)

    def test_a_plain_class_is_told_with_what_can_be_done(self):
        for kind in (Plain, list[Plain], Plain | None):
            with pytest.raises(PromptError, match=r"Plain.*parser=") as caught:
                Output(kind)
            assert "arbitrary_types" not in str(caught.value)

    def test_what_has_no_schema_is_told(self):
        planets = enum.Enum("Planets", {"EARTH": (5.97, 6.37)})  # a document has a list and no tuple
        for kind in [object(), Callable[[], int], "no_such_name", planets, dict[str, list[planets]], planets | Review]:
            with pytest.raises(PromptError, match="output"):
                Output(kind)


class TestText:
    def test_it_is_taken_as_it_is(self):
        for text in ("hello", '{"a": 1}', " padded\n", "```\ncode\n```", "{{ x }}", "\ud800"):
            assert Output(str).parse(text) == text

    def test_half_of_it_is_an_error(self):
        for text in ["hello", ""]:
            with pytest.raises(ParseError, match="cut off"):
                Output(str).parse(text, is_cut=True)

    def test_none_is_an_error(self):
        for text in ["", " \n\t"]:
            with pytest.raises(ParseError, match="empty"):
                Output(str).parse(text)


SAID = '{"title": "A } in ] a \\"string\\" {", "stars": 5}'
MEANT = Review(title='A } in ] a "string" {', stars=5)


class TestWhereJsonStands:
    def test_it_is_found(self):
        for text in [
            SAID,
            f"\ufeff  {SAID}\n",
            f"```json\n{SAID}\n```",
            f"```json\n{SAID}",
            f"<answer>{SAID}</answer>",
            f"```python\nx = {{1: 2}}\n```\nand\n```json\n{SAID}\n```",
            f"<think>maybe {{...}} or [ ] or {{}}</think>{SAID}",
            f"see [1]: {SAID}",
            f"see [1, p. 5]: {SAID}",
            f"open {{ and [ in prose, {SAID}",
            f'{{"title": "no stars"}} or rather {SAID}',
        ]:
            assert REVIEW.parse(text) == MEANT
            assert REVIEW.parse(text, is_cut=True) == MEANT

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ).filter(lambda value: isinstance(value, dict | list)),
        st.text(alphabet="ab \"'\n.:,}]"),
        st.text(alphabet="ab \"'\n.:,{}[]"),
    )
    @examples(60)
    def test_any_document_is_found_in_prose_and_never_altered(self, value, before, after):
        document = json.dumps(value, ensure_ascii=False)
        text = f"So {before}{document}{after}"
        assert extract_json(text) == value
        assert Output(type(value)).parse(text) == value

    def test_extract_json(self):
        for text, value in (
            ("5", 5),
            ("null", None),
            (" [1, 2] ", [1, 2]),
            ("```json\n{}\n```", {}),
            ("an [empty] one: {} or [5]", {}),
            ('{"a": {"b": 1}} {"c": 2}', {"a": {"b": 1}}),
        ):
            assert extract_json(text) == value

    def test_what_is_expected_is_found_behind_other_json(self):
        for text, expect, value in [
            ('see [1]: {"k":1}', dict, {"k": 1}),
            ('see {"k":1}: [1]', list, [1]),
            ('a 5" pipe: {"k":1}', dict, {"k": 1}),
            (f"[1] {{}} {SAID}", Review, MEANT),
            ('"a"', str, "a"),
            ("[1]", Any, [1]),
        ]:
            assert extract_json(text, expect=expect) == value

    def test_what_is_found_instead_is_listed(self):
        with pytest.raises(ParseError) as caught:
            extract_json('See [1] and {"title": "t"}', expect=Review)
        first, *strategies = str(caught.value).splitlines()
        assert "Review" in first
        assert [line.partition(":")[0] for line in strategies] == [
            "the whole text",
            "<answer>",
            "a block of JSON",
            "JSON anywhere",
            "JSON anywhere",
        ]
        assert "stars" in strategies[-1]
        with pytest.raises(ParseError) as caught:
            extract_json("[1] " * 9, expect=dict)
        assert len(str(caught.value).splitlines()) == 10

    def test_a_tagged_answer_goes_first(self):
        assert extract_json('{"b": 3} <answer>{"a": 2}</answer> {"c": 4}') == {"a": 2}
        assert extract_json('In <answer> tags: <answer id="1"> {"a": 2} </answer>') == {"a": 2}
        assert extract_json('{"b": 3} <answer>none</answer>') == {"b": 3}, "what does not parse is passed over"

    def test_extract_json_mends_nothing(self):
        for text in ("", "no", "{a: 1}", '{"a": {"b": 1}', "\ud800", "[" * 1000):
            with pytest.raises(ParseError):
                extract_json(text)


class TestTypes:
    def test_plain_text_is_a_value_of_the_only_type_that_it_fits(self):
        for kind in (str | Review, list[str] | Review | str, Annotated[str, Field(max_length=20)]):
            assert Output(kind).parse("Which book?") == "Which book?"
        for kind, text in [
            (str | Review, ""),
            (str | Review, "Of {title}."),  # perhaps a broken object
            (str | None, "None"),
            (int | str, "It is 42."),
            (bool | str, "True"),
            (Color | str, "Red, I think"),
            (Literal["a"] | Review, "b"),
            (Annotated[str, Field(max_length=3)], "Which book?"),
        ]:
            with pytest.raises(ParseError):
                Output(kind).parse(text)
        with pytest.raises(ParseError):
            Output(str | Review).parse("Which bo", is_cut=True)

    def test_a_value_of_the_type(self):
        for kind, text, value in [
            (int, "42", 42),
            (int, "So:\n```\n42\n```", 42),
            (int, '{"value": 42}', 42),
            (list[int], 'So: {"value": [1, 2]}.', [1, 2]),
            (int | str, '{"value": "a"}', "a"),
            (Union[Point, Review], '{"title": "t", "stars": 1}', Review(title="t", stars=1)),  # noqa: UP007
            (Review | None, '{"value": null}', None),
            (Any, '{"value": {"a": 1}}', {"a": 1}),
            (Any, '{"a": 1}', {"a": 1}),
            (dict[str, int] | list[int], '{"value": [1]}', [1]),
            (dict[str, int] | list[int], '{"value": 1}', {"value": 1}),
            (dict[str, int], '{"value": 1}', {"value": 1}),
            (Valued, '{"value": 1}', Valued(value=1)),
            (Valued | None, '{"value": 1}', Valued(value=1)),
            (Valued | None, '{"value": {"value": 1}}', Valued(value=1)),
            (Node, '{"value": 1, "children": [{"value": 2}]}', Node(value=1, children=[Node(value=2)])),
            (Node, '{"value": {"value": 1}}', Node(value=1)),
            (Point, '{"x": "3"}', Point(3)),
        ]:
            parsed = Output(kind).parse(text)
            assert parsed == value
            assert type(parsed) is type(value)

    def test_numbers_that_json_does_not_have_are_refused(self):
        for kind, form in [
            (float, "{}"),
            (float, '{{"value": {}}}'),
            (float | None, "{}"),
            (list[float], "[1, {}]"),
            (dict[str, float], '{{"a": {}}}'),
            (Measured, '{{"metres": {}}}'),
            (list[Measured], '[{{"metres": {}}}]'),
            (Measured | Review, '{{"metres": {}}}'),
        ]:
            for number in ("NaN", "-Infinity", "1e400", '"nan"', '"Infinity"'):
                with pytest.raises(ParseError):
                    Output(kind).parse(form.format(number))
            assert "1.5" in repr(Output(kind).parse(form.format(1.5)))

    def test_a_decimal_that_would_lose_digits_is_refused_unless_it_is_in_quotes(self):
        digits = "-1234567890.123456789012345678901"
        for kind, form, value in [
            (Decimal, "{}", Decimal(digits)),
            (list[Decimal], "So: [0.1, {}].", [Decimal("0.1"), Decimal(digits)]),
            (dict[str, Decimal] | None, '{{"a": {}}}', {"a": Decimal(digits)}),
            (Paid | Review, '{{"amount": {}}}', Paid(amount=Decimal(digits))),
            (Paid, '{{"amount": 1, "parts": [{{"amount": {}}}]}}', Paid(amount=1, parts=[Paid(amount=digits)])),
        ]:
            assert Output(kind).parse(form.format(f'"{digits}"')) == value
            with pytest.raises(ParseError, match=r"expected at most 15 digits; write a longer number in quotes"):
                Output(kind).parse(form.format(digits))
        assert Output(float).parse(digits) == float(digits)
        assert Output(Decimal).parse(f"1e-{'9' * 20}") == 0

    def test_they_are_read_if_the_type_allows_them(self):
        assert math.isnan(Output(Annotated[float, Field(allow_inf_nan=True)]).parse("NaN"))
        assert Output(Unbounded).parse('{"metres": Infinity}').metres == math.inf

    def test_a_date_needs_no_quotes_unless_more_of_it_may_come(self):
        assert Output(date).parse(" 2024-01-31\n") == date(2024, 1, 31)
        assert Output(UUID).parse(str(UUID(int=5))) == UUID(int=5)
        for kind, text, is_cut in [
            (date, "On 2024-01-31.", False),
            (date, "I cannot", False),
            (date, "2024-01-31", True),
        ]:
            with pytest.raises(ParseError):
                Output(kind).parse(text, is_cut=is_cut)

    def test_a_word_of_an_enum(self):
        for text, color in [
            ('"red"', Color.RED),
            ('{"value": "dark blue"}', Color.DARK_BLUE),
            ("red", Color.RED),
            ("**Dark Blue.**", Color.DARK_BLUE),
            ('"DARK_BLUE"', Color.DARK_BLUE),
            ("1", Color.ONE),
            ('```json\n{"value": 1}\n```', Color.ONE),
        ]:
            assert Output(Color).parse(text) is color
            assert Output(Color).parse(text, is_cut=True) is color

    def test_an_exact_word_goes_over_a_similar_one(self):
        class Case(enum.Enum):
            LOWER = "a"
            UPPER = "A"
            B = "c"
            C = "b"
            STOP = "!"

        read = Output(Case).parse
        assert [read(text) for text in ("A", "a", '"A"', "'A'")] == [Case.UPPER, Case.LOWER, Case.UPPER, Case.UPPER]
        assert [read(text) for text in ("b", "c", "B", "!")] == [Case.C, Case.B, Case.B, Case.STOP]

    def test_another_word_is_told_the_right_ones(self):
        for text in ("maybe", "red or blue", "", "reddish"):
            with pytest.raises(ParseError, match=r"Color .*'red', 'dark blue', 1"):
                Output(Color).parse(text)


class TestMending:
    def test_nearly_json_is_understood(self):
        for text in [
            '{"title": "t", "stars": 5,}',
            "{'title': 't', 'stars': 5}",
            '{"title": "t", "stars": 5',
            'Here: {"title": "t", "stars": 5,} as asked.',
            "see [1]: {'title': 't', 'stars': 5}",
            "{'title': 't', 'stars': 5} and {more: 2}",
            "```json\n{'title': 't', 'stars': 5,}\n```\nSo {that} is it.",
            '```json\n{"title": "t", "stars": 5,\n',
            "```python\nprint('{}')\n```\nThe answer: {'title': 't', 'stars': 5}",
        ]:
            assert REVIEW.parse(text) == Review(title="t", stars=5)

    def test_a_part_is_not_taken_for_the_whole(self):
        assert Output(dict).parse('{"a": 1, "b": {"c": 2}') == {"a": 1, "b": {"c": 2}}
        assert Output(list).parse('[[1], [2], {"a": [3]') == [[1], [2], {"a": [3]}]
        for text in ('{"a": 1, "b": {"c": 2}', '[{"a": 1}, {"b": 2}', "{'a': {\"b\": 1}"):
            with pytest.raises(ParseError, match="cut off"):
                Output(dict).parse(text, is_cut=True)

    def test_what_is_too_long_to_be_mended_is_no_part_either(self):
        for text in ('{"a": {"b": 1}, ' + '"x": 1, ' * 100_000, '["a", [1], ' + '{"x": 1}, ' * 50_000):
            with pytest.raises(ParseError):
                Output(dict | list).parse(text)

    def test_prose_is_not_mended_into_json(self):
        for text in ("I like {this} a lot", "as in {a, b}", "{ to open", "{{ name }}", "f(x) {"):
            with pytest.raises(ParseError, match="dict"):
                Output(dict).parse(text)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        )
    )
    @examples(50)
    def test_sound_json_of_the_wrong_type_is_not_mended_into_the_right_one(self, value):
        with pytest.raises(ParseError):
            Output(Sealed).parse(json.dumps(value))

    def test_sound_json_is_never_altered(self):
        for text in ['{"a": "x\\n"}', 'It is {"a": "x\\n"}.', '```\n{"a": "x\\n"}\n``` {b: 1}']:

            class Short(BaseModel):
                a: str = Field(max_length=1)

            with pytest.raises(ParseError, match=r"\ba: "):
                Output(Short).parse(text)


class Sealed(BaseModel):
    """Nothing that a random document could be."""

    a_name_that_nobody_guesses: int


class TestErrors:
    def test_each_field_is_told(self):
        with pytest.raises(ParseError) as caught:
            REVIEW.parse('{"stars": 9, "tags": ["a", 5]}')
        first, *fields = str(caught.value).splitlines()
        assert "Review" in first
        assert [re.sub(r": .+ \(", ": … (", field) for field in fields] == [
            "title: … (given: {'stars': 9, 'tags': ['a', 5]})",
            "stars: … (given: 9)",
            "tags.1: … (given: 5)",
        ]

    def test_the_cause_is_what_pydantic_said(self):
        with pytest.raises(ParseError) as caught:
            REVIEW.parse('So {"title": "t", "stars": 9}')
        assert isinstance(caught.value.__cause__, ValidationError)
        assert [error["loc"] for error in caught.value.__cause__.errors()] == [("stars",)]

    def test_a_wrapped_value_is_told_where_it_stands(self):
        for text, place in (
            ('{"value": ["x"]}', "value.0: "),
            ('["x"]', r"^0: "),
            ('{"values": [1]}', "input: "),
            ('{"value": [1], "note": 2}', "input: "),
        ):
            with pytest.raises(ParseError, match=f"(?m){place}"):
                Output(list[int]).parse(text)

    def test_no_json_at_all(self):
        for text in ("", "no", "}{", "5" * 5000):
            with pytest.raises(ParseError, match="Review"):
                REVIEW.parse(text)

    def test_it_is_bounded(self):
        with pytest.raises(ParseError) as caught:
            REVIEW.parse(json.dumps({"title": ["x" * 10**6], "stars": 5, "tags": [0] * 10_000}))
        assert len(str(caught.value)) < 5000


HOSTILE = {
    "braces": "{",
    "closers": "}",
    "brackets": "[",
    "quotes": '"',
    "open quotes": '{"',
    "keys": '{"a":',
    "fences": "```json\n",
    "lines of fences": "\n```\n",
    "objects": "{}",
    "broken objects": "{a}",
    "single quotes": "{'a':",
    "mixed": "{\u00e9[\u201d.,",
    "misplaced quotes": '*"',
    "backslashes": "\\",
    "comments": "{//",
    "parentheses": "(",
    "strings": '{"a":"',
    "half a pair": "\ud800",
}


class TestHostileText:
    def test_one_sign_for_ever_is_refused(self):
        for unit in HOSTILE.values():
            with pytest.raises(ParseError) as caught:
                REVIEW.parse(unit * (3000 // len(unit)))
            assert len(str(caught.value)) < 5000

    @pytest.mark.nightly
    @pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
    def test_nor_is_a_megabyte_of_it(self, unit):
        with pytest.raises(ParseError):
            REVIEW.parse(unit * (10**6 // len(unit)))

    def test_what_sends_the_repairer_astray(self):
        for text in (
            *("{]{\u201c*'" * 500, '["' + "{]11 " * 600, "[-}{11}" * 500, '{"a": [' + "9" * 5000),
            *('{"```json\\{"a":"```json', '{\'```json{"a":```json\u201d'),
        ):
            with pytest.raises(ParseError):
                REVIEW.parse(text)

    @given(st.text(alphabet="{}[]\"'\\,:a1 \n/*#()`\u201c\u201d\ud800-."))
    @examples(60)
    def test_it_is_parsed_or_refused(self, text):
        for kind in (dict, list, Review, Color, list[int], Any):
            with suppress(ParseError):
                Output(kind).parse(text)

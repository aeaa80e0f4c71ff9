"""Is a type printed as a model has to write it?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from enum import Enum, IntEnum
from typing import Annotated, Any, Generic, Literal, NewType, NotRequired, Optional, TypeVar

import pytest
from pydantic import BaseModel, Field, RootModel, create_model
from typing_extensions import TypeAliasType, TypedDict

from fsm_agent import PromptError
from fsm_agent.prompts import PromptChoice, PromptField, prompt_schema

T = TypeVar("T")
Id = NewType("Id", int)


class Mood(Enum):
    """A mood."""

    GOOD = PromptChoice("good", "In high spirits")
    HIDDEN = PromptChoice("hidden", skip=True)
    BAD = "bad"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Inner(BaseModel):
    """Told of a member of a union."""

    x: int


class Box(BaseModel, Generic[T]):
    value: T


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


class Forest(BaseModel):
    best: Annotated[Tree, Field(description="The best")]
    trees: list[Tree]


class Numbers(RootModel[list[int]]):
    pass


class Json(RootModel["int | list[Json]"]):
    pass


class Keys(TypedDict):
    a: Annotated[int, Field(description="First")]
    b: NotRequired[str]


Ids = TypeAliasType("Ids", list[int])


def test_each_type_is_printed_as_a_model_writes_it():
    for kind, printed in [
        (str, '"string"'),
        (int, '"number"'),
        (bool, '"boolean"'),
        (date, '"string (date)"'),
        (Any, '"any"'),
        (None, '"null"'),
        (Id, '"number"'),
        (T, '"any"'),
        (list, '"any[]"'),
        (Sequence[str], '"string[]"'),
        (tuple[int, ...], '"number[]"'),
        (tuple[int, str], '"[number, string]"'),
        (list[list[int]], '"number[][]"'),
        (Optional[str], '"string | null"'),  # noqa: UP045
        (list[int | None], '"(number | null)[]"'),
        (int | float, '"number"'),
        (dict[str, int], '"Record<string, number>"'),
        (dict, '"Record<string, any>"'),
        (Literal["a", "it's", 1, True, None], '''"'a' | 'it\\\\'s' | 1 | true | null"'''),
        (Mood, "\"'good' | 'bad'\""),
        (Level, '"1 | 2"'),
        (Numbers, '"number[]"'),
        (Ids, '"number[]"'),
        (Json, '"number | Json[]"'),
        (Inner, '{\n    "x": "number"\n  }'),
        (list[Inner], '[\n    {\n      "x": "number"\n    }\n  ]'),
        (dict[str, Inner], '{\n    "[key: string]": {\n      "x": "number"\n    }\n  }'),
        (Inner | None, '{\n    "x": "number"\n  } | null'),
        (
            Inner | Keys | str,
            '{ // Inner: Told of a member of a union.\n    "x": "number"\n  } | {'
            ' // Keys\n    "a": "number", // First\n    "b": "string"\n'
            '  } | "string"',
        ),
        (tuple[int, Inner], '[\n    "number",\n    {\n      "x": "number"\n    }\n  ]'),
    ]:
        model = create_model("M", field=(Annotated[kind, Field(description="It")], ...), last=(int, ...))
        schema = prompt_schema(model).partition("\n\n")[0]
        assert schema == f'### Schema for `M`\n{{\n  "field": {printed}, // It\n  "last": "number"\n}}'


def test_types_alone():
    for kind, printed in [
        (list[Inner], '### Schema for `Inner[]`\n[\n  {\n    "x": "number"\n  }\n]'),
        (Inner | None, '### Schema for `Inner | null`\n{\n  "x": "number"\n} | null'),
        (list[int], "### Schema for `number[]`\nnumber[]"),
        (Keys, '### Schema for `Keys`\n{\n  "a": "number", // First\n  "b": "string"\n}'),
        (Box[int], '### Schema for `Box[int]`\n{\n  "value": "number"\n}'),
    ]:
        assert prompt_schema(kind) == printed


class TestEnumerations:
    def test_name_description_and_values(self):
        assert prompt_schema(Mood) == "Mood: A mood.\n\nPossible values:\n- good: In high spirits\n- bad"

    def test_without_a_description(self):
        class Size(Enum):
            SMALL = "s"

        assert prompt_schema(Size) == "Size:\n\nPossible values:\n- s"
        assert prompt_schema(Level) == "Level:\n\nPossible values:\n- LOW (1)\n- HIGH (2)"

    def test_their_meanings_follow_the_structure_in_which_they_occur(self):
        schema = prompt_schema(create_model("M", mood=(Mood, ...), other=(list[Mood], ...), level=(Level, ...)))
        _, meanings = schema.split("\n\n", 1)
        assert meanings == "Mood: A mood.\n\nPossible values:\n- good: In high spirits\n- bad"


class TestStructures:
    def test_to_any_depth(self):
        class C(BaseModel):
            """Leaks nowhere."""

            x: int

        class B(BaseModel):
            c: list[C] = Field(description="Some")
            d: int

        class A(BaseModel):
            b: list[B]
            e: int

        assert (
            prompt_schema(A)
            == """### Schema for `A`
{
  "b": [
    {
      "c": [
        {
          "x": "number"
        }
      ], // Some
      "d": "number"
    }
  ],
  "e": "number"
}"""
        )

    def test_what_is_skipped(self):
        class Marked(BaseModel):
            a: int
            secret: Annotated[int, PromptField(skip=True)] = 0
            type_name: str = Field("Marked", alias="__type")

        assert prompt_schema(Marked) == '### Schema for `Marked`\n{\n  "a": "number"\n}'

    def test_names_are_those_that_pydantic_reads(self):
        class Named(BaseModel):
            a: int = Field(alias="anAlias")
            b: Annotated[int, PromptField(rename="not here")] = Field(validation_alias="read", serialization_alias="w")

        assert prompt_schema(Named) == '### Schema for `Named`\n{\n  "anAlias": "number",\n  "read": "number"\n}'

    def test_one_that_contains_itself_is_named(self):
        assert prompt_schema(Tree) == '### Schema for `Tree`\n{\n  "name": "string",\n  "children": "Tree[]"\n}'
        printed = '{ // Tree\n    "name": "string",\n    "children": "Tree[]"\n  }'
        assert prompt_schema(Forest) == (
            f'### Schema for `Forest`\n{{\n  "best": {printed}, // The best\n  "trees": [\n    '
            + printed.replace("\n", "\n  ")
            + "\n  ]\n}"
        )

    def test_it_is_made_once(self):
        assert prompt_schema(Tree) is prompt_schema(Tree)

    def test_the_length_is_bounded(self):
        kinds: list[Any] = [Inner]
        for level in range(1, 31):
            kinds.append(create_model(f"M{level}", left=(kinds[-1], ...), right=(kinds[-1], ...)))
        assert 2_500 < prompt_schema(kinds[9]).count("\n") < 5_000
        for level in (10, 30):
            with pytest.raises(PromptError, match=rf"the schema of M{level} has more than 5000 lines"):
                prompt_schema(kinds[level])

    def test_what_has_no_schema_is_named(self):
        class Odd:
            pass

        with pytest.raises(PromptError, match=r"the type <class '.*Odd'> cannot be described to a model"):
            prompt_schema(list[Odd])

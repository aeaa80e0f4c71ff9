"""Does Gemini get a schema that it knows, with nothing lost that can be said?"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter
from support.gemini_bodies import CODEC

from fsm_agent.call import Request
from fsm_agent.errors import UsageError
from fsm_agent.functions import Function
from fsm_agent.messages import Message
from fsm_agent.prompts import Output
from fsm_agent.providers import GeminiProfile

KNOWN = {
    *("type", "description", "enum", "required", "minItems", "maxItems", "minimum", "maximum", "format", "$ref"),
    *("properties", "items", "prefixItems", "anyOf", "additionalProperties", "$defs"),
}


def gemini_schema(schema: dict[str, Any]) -> Any:
    """What is said of a function with such parameters."""
    request = Request(messages=(Message.of("user", "hi"),), functions=(Function(name="f", parameters=schema),))
    body = json.loads(CODEC.encode(request, model="m1", profile=GeminiProfile(), stream=False))
    return body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"]


def translated(node: dict[str, Any], **beside: Any) -> Any:
    """What one property becomes."""
    said = gemini_schema({"type": "object", "properties": {"p": node}, **beside})
    return said["properties"]["p"]


NODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "what is known": (
        {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 9}, "minItems": 1, "maxItems": 2},
        {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 9}, "minItems": 1, "maxItems": 2},
    ),
    "annotations": (
        {"type": "string", "title": "T", "examples": ["x"], "$comment": "c", "deprecated": True, "x-order": 1},
        {"type": "string"},
    ),
    "constraints": (
        {"type": "string", "minLength": 2, "pattern": "^a", "description": "A word."},
        {"type": "string", "description": "A word. (minLength: 2, pattern: ^a)"},
    ),
    "exclusive bounds of integers": (
        {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10},
        {"type": "integer", "minimum": 1, "maximum": 9},
    ),
    "both bounds": (
        {"type": "integer", "exclusiveMinimum": 0, "minimum": 5},
        {"type": "integer", "minimum": 5, "description": "(exclusiveMinimum: 0)"},
    ),
    "a default": ({"type": "integer", "default": 5}, {"type": "integer", "description": "(default: 5)"}),
    "another format": ({"type": "string", "format": "uuid"}, {"type": "string", "description": "(format: uuid)"}),
    "conditions": (
        {"type": "object", "if": {"required": ["a"]}, "not": {}},
        {"type": "object", "description": '(if: {"required":["a"]}, not: {})'},
    ),
    "a constant": ({"const": "a"}, {"type": "string", "enum": ["a"]}),
    "a constant number": ({"const": 3, "type": "number"}, {"type": "number", "enum": [3]}),
    "a constant boolean": ({"const": True}, {"type": "boolean", "description": "(enum: [true])"}),
    "a constant null": ({"const": None}, {"type": "null"}),
    "both booleans": ({"enum": [True, False]}, {"type": "boolean"}),
    "values of several types": (
        {"enum": ["a", 1, None], "description": "d"},
        {
            "anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "enum": [1]}, {"type": "null"}],
            "description": "d",
        },
    ),
    "whole and other numbers": ({"type": "number", "enum": [1, 1.5]}, {"type": "number", "enum": [1, 1.5]}),
    "several types": (
        {"type": ["string", "null"], "minLength": 1, "description": "d"},
        {"anyOf": [{"type": "string", "description": "(minLength: 1)"}, {"type": "null"}], "description": "d"},
    ),
    "OpenAPI's types": ({"type": "ARRAY", "items": {"type": "STRING"}}, {"type": "array", "items": {"type": "string"}}),
    "OpenAPI's null": (
        {"type": "string", "nullable": True, "description": "d"},
        {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "d"},
    ),
    "OpenAPI's null of several": (
        {"anyOf": [{"type": "string"}, {"type": "integer"}], "nullable": True},
        {"anyOf": [{"anyOf": [{"type": "string"}, {"type": "integer"}]}, {"type": "null"}]},
    ),
    "a type that is meant": ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
    "an array that is meant": ({"items": {"type": "string"}}, {"type": "array", "items": {"type": "string"}}),
    "one and any of several": (
        {"oneOf": [{"type": "string"}], "anyOf": [{"type": "integer"}]},
        {"anyOf": [{"type": "integer"}], "description": '(oneOf: [{"type":"string"}])'},
    ),
    "a tuple": (
        {"type": "array", "prefixItems": [{"type": "string"}, True], "items": False},
        {"type": "array", "prefixItems": [{"type": "string"}, {}], "items": False},
    ),
    "an old tuple": ({"items": [{"type": "string"}]}, {"type": "array", "prefixItems": [{"type": "string"}]}),
    "a map": (
        {"type": "object", "additionalProperties": {"const": 1}},
        {"type": "object", "additionalProperties": {"type": "integer", "enum": [1]}},
    ),
    "properties that are named as keywords": (
        {"type": "object", "properties": {"title": {"type": "string"}, "default": {}}, "required": ["title"]},
        {"type": "object", "properties": {"title": {"type": "string"}, "default": {}}, "required": ["title"]},
    ),
    "required but unknown": (
        {"type": "object", "properties": {"a": {}}, "required": ["b", "a", 7]},
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
    ),
    "all of one": (
        {"allOf": [{"type": "string", "title": "T"}], "description": "d"},
        {"type": "string", "description": "d"},
    ),
    "all of several": (
        {
            "allOf": [
                {"properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"allOf": [{"properties": {"b": {"type": "integer"}}, "required": ["b", "a"]}]},
                True,
            ]
        },
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    ),
    "all of what goes into no one node": (
        {
            "description": "d",
            "minimum": 1,
            "allOf": [
                {"minimum": 2, "description": "e", "type": "integer", "anyOf": [{"maximum": 5}, {"maximum": 9}]},
                {"type": "integer", "minimum": 3, "allOf": [{"anyOf": [{"const": 4}]}]},
            ],
        },
        {
            "type": "integer",
            "minimum": 1,
            "anyOf": [{"maximum": 5}, {"maximum": 9}],
            "description": 'd (allOf: [{"minimum":2},{"minimum":3},{"anyOf":[{"const":4}]}])',
        },
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_keywords_are_kept_said_differently_or_told(name: str) -> None:
    node, said = NODES[name]
    before = json.dumps(node)
    got = translated(node)
    assert {**got, "required": sorted(got.get("required", []))} == {
        **said,
        "required": sorted(said.get("required", [])),
    }
    assert json.dumps(node) == before


@pytest.mark.parametrize(
    ("root", "said"),
    [
        ({"properties": {}}, {"type": "object", "properties": {}}),
        ({"type": "OBJECT"}, {"type": "object"}),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "title": "A"}}}, {"type": "object"}),
        ({"$ref": "#"}, {"type": "object"}),
    ],
)
def test_root_is_an_object(root: dict[str, Any], said: dict[str, Any]) -> None:
    assert gemini_schema(root) == said


NAME = {"type": "string", "description": "A name."}
DEFINED = {
    "$defs": {"A": {"type": "string", "title": "A", "description": "A name."}, "a/b c~": {"type": "integer"}},
    "definitions": {"B": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
}


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"$ref": "#/$defs/A"}, NAME),
        ({"$ref": "#/$defs/A", "description": "Its name."}, {"type": "string", "description": "Its name."}),
        ({"$ref": "#/definitions/B"}, {"type": "array", "items": NAME}),
        ({"$ref": "#/$defs/a~1b%20c~0"}, {"type": "integer"}),
        ({"allOf": [{"$ref": "#/$defs/A"}], "default": "x"}, {"type": "string", "description": "A name. (default: x)"}),
        ({"$ref": "#/$defs/A", "nullable": True}, {"anyOf": [NAME, {"type": "null"}]}),
        ({"$ref": "#/properties/q/anyOf/0"}, {"type": "boolean"}),
        ({"$ref": "#/properties/q/anyOf/7"}, {}),
        ({"$ref": "https://example.com/schema"}, {}),
    ],
)
def test_references_are_replaced_by_what_they_refer_to(node: dict[str, Any], said: dict[str, Any]) -> None:
    schema = {"properties": {"p": node, "q": {"anyOf": [{"type": "boolean"}]}}, **DEFINED}
    got = gemini_schema(schema)
    assert got["properties"]["p"] == said
    assert "$defs" not in got


class Tree(BaseModel):
    name: str
    children: list[Tree]


class Owner(BaseModel):
    """Has pets."""

    pet: Pet


class Pet(BaseModel):
    owner: Annotated[Owner | None, Field(description="Who feeds it.")]
    name: str


def test_recursion_stays_and_is_not_required() -> None:
    said = gemini_schema(Output(Tree).schema or {})
    assert said["properties"] == {"value": {"$ref": "#/$defs/Tree"}}
    assert said["required"] == ["value"]
    assert said["$defs"]["Tree"] == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
        },
        "required": ["name"],
        "description": "(required: children)",
    }


def test_recursion_through_others_is_not_required() -> None:
    said = gemini_schema(
        {"properties": {"o": {"$ref": "#/$defs/Owner"}}, "$defs": TypeAdapter(Owner).json_schema()["$defs"]}
    )
    assert said["properties"]["o"] == {"$ref": "#/$defs/Owner"}
    owner, pet = said["$defs"]["Owner"], said["$defs"]["Pet"]
    assert "required" not in owner
    assert owner["description"] == "Has pets. (required: pet)"
    assert pet["required"] == ["name"]
    assert pet["properties"]["owner"]["description"] == "Who feeds it."
    assert {"$ref": "#/$defs/Owner"} in pet["properties"]["owner"]["anyOf"]


def test_nothing_stands_beside_a_reference() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/N", "description": "d"}}, "required": ["next"]}
    said = gemini_schema({"properties": {"p": {"$ref": "#/$defs/N"}}, "$defs": {"N": node}})
    assert said["$defs"]["N"]["properties"]["next"] == {"anyOf": [{"$ref": "#/$defs/N"}], "description": "d"}


@pytest.mark.parametrize(
    ("beside", "said"),
    [
        ({"nullable": True}, {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}),
        ({"type": "object"}, {"anyOf": [{"$ref": "#/$defs/N"}], "type": "object"}),
        (
            {"description": "d", "anyOf": [{"minItems": 1}]},
            {"anyOf": [{"$ref": "#/$defs/N"}], "description": 'd (anyOf: [{"minItems":1}])'},
        ),
        ({"allOf": [{"oneOf": [{}]}]}, {"anyOf": [{"$ref": "#/$defs/N"}], "description": "(anyOf: [{}])"}),
        ({"anyOf": None}, {"$ref": "#/$defs/N"}),
    ],
)
def test_a_reference_is_kept_beside_other_choices(beside: dict[str, Any], said: dict[str, Any]) -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/N", **beside}}}
    whole = gemini_schema({"properties": {"p": {"$ref": "#/$defs/N"}}, "$defs": {"N": node}})
    assert whole["$defs"]["N"]["properties"]["next"] == said
    assert gemini_schema(whole) == whole


def test_recursion_to_the_root_and_names_that_clash() -> None:
    node = {"properties": {"up": {"$ref": "#"}, "a": {"$ref": "#/x/N"}, "b": {"$ref": "#/y/N"}}}
    loop = {"properties": {"n": {"$ref": "#/x/N"}}}
    other = {"properties": {"n": {"$ref": "#/y/N"}}}
    said = gemini_schema({**node, "x": {"N": loop}, "y": {"N": other}})
    assert said["properties"] == {
        "up": {"$ref": "#/$defs/root"},
        "a": {"$ref": "#/$defs/N"},
        "b": {"$ref": "#/$defs/N_"},
    }
    assert said["$defs"]["N_"]["properties"] == {"n": {"$ref": "#/$defs/N_"}}
    assert said["$defs"]["root"]["properties"].keys() == {"up", "a", "b"}


def test_inner_property_that_is_not_required_is_enough() -> None:
    inner = {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}}
    node = {"type": "object", "properties": {"inner": inner}, "required": ["inner"], "additionalProperties": False}
    said = gemini_schema({"properties": {"p": {"$ref": "#/$defs/N"}}, "$defs": {"N": node}})
    assert said["$defs"]["N"]["required"] == ["inner"]


def fans(depth: int) -> dict[str, Any]:
    """Each definition refers twice to the next: written out, there are 2 to the power of ``depth``."""
    names = [{"properties": {side: {"$ref": f"#/$defs/D{level + 1}"} for side in "ab"}} for level in range(depth)]
    definitions = {f"D{level}": node for level, node in enumerate(names)}
    return {"properties": {"p": {"$ref": "#/$defs/D0"}}, "$defs": {**definitions, f"D{depth}": {"type": "string"}}}


def test_what_would_grow_too_large_is_referred_to() -> None:
    assert "$defs" not in gemini_schema(fans(5))
    large = gemini_schema(fans(40))
    assert len(json.dumps(large)) < 200_000
    assert list(keys(large)) != []
    assert "$defs" in large


def test_size_and_depth_are_bounded() -> None:
    deep: dict[str, Any] = {}
    for _ in range(70):
        deep = {"type": "array", "items": deep}
    with pytest.raises(UsageError, match="64"):
        translated(deep)
    loops = {"A": {"allOf": [{"$ref": "#/$defs/B"}] * 3}, "B": {"allOf": [{"$ref": "#/$defs/A"}] * 3}}
    assert translated({"$ref": "#/$defs/A"}, **{"$defs": loops}) is not None


def test_number_of_parts_is_bounded() -> None:
    with pytest.raises(UsageError, match="50000"):
        translated({"anyOf": [{}] * 50_001})


@pytest.mark.nightly
def test_number_of_parts_that_are_referred_to_is_bounded() -> None:
    branches = {f"D{n}": {"allOf": [{"$ref": f"#/$defs/D{n + 1}"}] * 2} for n in range(40)}
    with pytest.raises(UsageError, match="50000"):
        translated({"$ref": "#/$defs/D0"}, **{"$defs": branches})


class Colour(Enum):
    RED = "red"
    BLUE = 2


class Everything(BaseModel):
    """All that pydantic says of types."""

    literal: Literal["a", 1, None, True]
    colour: Colour = Field(description="Of the paint.")
    count: int = Field(gt=0, le=10, default=1)
    ratio: float = Field(ge=0, lt=1)
    word: str = Field(min_length=2, pattern="^a")
    when: datetime.datetime | None = None
    pair: tuple[int, str]
    names: dict[str, list[int]]
    either: Annotated[Tree | Colour, Field(description="One of them.")]
    anything: Any
    unique: set[str]


def keys(schema: Any) -> Iterator[str]:
    """All keywords of a schema."""
    if isinstance(schema, list):
        for item in schema:
            yield from keys(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            yield key
            for inner in value.values() if key in ("properties", "$defs") else [value]:
                yield from keys(inner)


def test_models_of_pydantic_are_said_with_what_is_known() -> None:
    said = gemini_schema(Everything.model_json_schema())
    assert set(keys(said)) <= KNOWN
    assert said["required"] == [
        *("literal", "colour", "ratio", "word", "pair", "names", "either", "anything", "unique"),
    ]
    assert said["properties"]["count"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 10,
        "description": "(default: 1)",
    }
    assert gemini_schema(said) == said


def test_an_all_of_that_is_no_list_means_nothing() -> None:
    for odd in [{"default": False}, "a", True]:
        entries = [{"$ref": {"a": 1}, "allOf": odd}, {"$ref": {"a": 2}}, {"minimum": 1}]
        assert gemini_schema({"allOf": entries})["minimum"] == 1


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
WORDS = st.sampled_from(
    ["string", "object", "array", "null", "INTEGER", "#", "#/$defs/a", "#/properties/a", "a", "date"]
)
KEYWORDS = st.sampled_from(
    [
        *("type", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "$defs", "required", "enum", "const", "a"),
        *("nullable", "description", "additionalProperties", "prefixItems", "minimum", "exclusiveMinimum", "format"),
        *("default", "not", "title"),
    ]
)
ANYTHING = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4),
    max_leaves=12,
)


@example({"type": [""]})
@example({"type": None, "properties": None, "items": {"$ref": "#", "anyOf": None}})
@given(st.dictionaries(KEYWORDS, ANYTHING, max_size=5))
def test_any_schema_is_said_or_refused(schema: dict[str, Any]) -> None:
    try:
        said = gemini_schema(schema)
    except UsageError:
        return
    assert json.loads(json.dumps(said)) == said
    assert gemini_schema(said) == said, "what has been said once is said again as it is"

"""Does Claude learn what a JSON Schema says, as far as it can follow one?"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from fsm_agent.providers.anthropic.schemas import ClosedSchema, SchemaLimits, closed_schema

TEXT = {"type": "string"}


def obj(**properties: Any) -> dict[str, Any]:
    """An object that requires all its properties."""
    return {"type": "object", "properties": properties, "required": [*properties]}


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    found = closed_schema(schema)
    assert found is not None
    return found.schema


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (obj(a=TEXT), {**obj(a=TEXT), "additionalProperties": False}),
        ({**obj(a=TEXT), "additionalProperties": False}, {**obj(a=TEXT), "additionalProperties": False}),
        ({"type": "object", "properties": {}}, {"type": "object", "properties": {}, "additionalProperties": False}),
        (
            {"type": "array", "items": obj(a=TEXT)},
            {"type": "array", "items": {**obj(a=TEXT), "additionalProperties": False}},
        ),
        ({"oneOf": [TEXT, {"type": "null"}]}, {"anyOf": [TEXT, {"type": "null"}]}),
        ({"allOf": [TEXT], "description": "x"}, {"type": "string", "description": "x"}),
        ({"enum": ["a", 1, True, None]}, {"enum": ["a", 1, True, None]}),
        ({"const": 7, "title": "A", "default": 7}, {"const": 7, "title": "A", "default": 7}),
        ({**TEXT, "examples": ["x"], "$comment": "y", "deprecated": True}, TEXT),
        ({**TEXT, "format": "uri"}, {**TEXT, "format": "uri"}),
        ({**TEXT, "format": "binary"}, {**TEXT, "description": "(format: binary)"}),
        ({"type": "array", "items": TEXT, "minItems": 1}, {"type": "array", "items": TEXT, "minItems": 1}),
        (
            {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 3},
            {"type": "array", "items": TEXT, "description": "(minItems: 2, maxItems: 3)"},
        ),
        (
            {"type": "integer", "minimum": 1, "multipleOf": 2, "description": "even"},
            {"type": "integer", "description": "even (minimum: 1, multipleOf: 2)"},
        ),
        (
            {**TEXT, "pattern": "^a$", "minLength": 1, "maxLength": 2},
            {**TEXT, "description": "(pattern: ^a$, minLength: 1, maxLength: 2)"},
        ),
    ],
)
def test_schema_is_closed_and_what_is_not_known_is_told(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert closed(schema) == expected


DEFS = {"$defs": {"T": TEXT, "O": obj(t={"$ref": "#/$defs/T"})}}


def test_references_stay_where_they_stand_alone() -> None:
    schema = {**obj(o={"$ref": "#/$defs/O"}), **DEFS}
    inner = {**obj(t={"$ref": "#/$defs/T"}), "additionalProperties": False}
    expected = {**obj(o={"$ref": "#/$defs/O"}), "$defs": {"T": TEXT, "O": inner}, "additionalProperties": False}
    assert closed(schema) == expected
    assert closed({"$ref": "#/$defs/O", **DEFS}) == {"$ref": "#/$defs/O", "$defs": {"T": TEXT, "O": inner}}


@pytest.mark.parametrize("wrap", [lambda r: {**r, "description": "x"}, lambda r: {"allOf": [r], "description": "x"}])
def test_reference_with_something_beside_it_is_replaced(wrap: Any) -> None:
    schema = {**obj(o=wrap({"$ref": "#/definitions/T"})), "definitions": {"T": TEXT}}
    assert closed(schema)["properties"]["o"] == {**TEXT, "description": "x"}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"description": "anything"},
        obj(a=True),
        obj(a={}),
        {"type": "array"},
        {"type": "array", "items": {}},
        {"type": "array", "items": TEXT, "prefixItems": [TEXT]},
        {"type": "object"},
        {"type": "object", "additionalProperties": TEXT},
        {**obj(a=TEXT), "additionalProperties": True},
        {**obj(a=TEXT), "patternProperties": {"x": TEXT}},
        {"properties": {"a": TEXT}, "additionalProperties": TEXT},
        {"enum": [{"a": 1}]},
        {"const": [[1]]},
        {"allOf": [obj(a=TEXT), obj(b=TEXT)]},
        {"not": TEXT, "type": "string"},
        obj(a={"$ref": "https://example.com/x.json"}),
        obj(a={"$ref": "#"}),
        obj(a={"$ref": "#/$defs/missing"}),
        {**obj(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"anyOf": [TEXT, {"$ref": "#/$defs/missing"}]}}},
    ],
)
def test_what_would_not_say_the_same_is_not_closed(schema: dict[str, Any]) -> None:
    assert closed_schema(schema) is None


@pytest.mark.parametrize(
    "definitions",
    [
        {"A": obj(a={"$ref": "#/$defs/A"})},
        {"A": obj(b={"$ref": "#/$defs/B"}), "B": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
        {"T": TEXT, "A": obj(t={"$ref": "#/$defs/T"}, b={"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]})},
    ],
)
def test_recursion_is_not_closed(definitions: dict[str, Any]) -> None:
    assert closed_schema({**obj(a={"$ref": "#/$defs/A"}), "$defs": definitions}) is None


class Colour(Enum):
    RED = "red"


class Leaf(BaseModel):
    colour: Colour
    size: Annotated[int, Field(ge=1, le=9)]


class Tree(BaseModel):
    kind: Literal["tree"] = "tree"
    leaf: Leaf = Field(description="The first.")
    leaves: list[Leaf]
    name: str | None = None


def test_schema_of_pydantic_is_closed_and_counted() -> None:
    found = closed_schema(TypeAdapter(Tree).json_schema())
    assert found is not None
    assert (found.optional, found.unions) == (2, 1)
    assert found.schema["properties"]["leaf"]["description"] == "The first."
    assert found.schema["properties"]["leaf"]["additionalProperties"] is False
    assert found.schema["$defs"]["Leaf"]["properties"]["size"]["description"] == "(maximum: 9, minimum: 1)"
    assert closed_schema(found.schema) == found


@pytest.mark.parametrize("model", [dict[str, int], Any, tuple[int, str]])
def test_open_types_of_pydantic_are_not_closed(model: Any) -> None:
    assert closed_schema(TypeAdapter(model).json_schema()) is None


def test_unions_are_counted() -> None:
    found = closed_schema({**obj(a={"type": ["string", "null"]}, b={"anyOf": [TEXT]}, c={"type": ["string"]})})
    assert found is not None
    assert (found.optional, found.unions) == (0, 2)


def test_request_has_room_for_so_much() -> None:
    limits = SchemaLimits()
    assert not limits.take(ClosedSchema({}, 25, 0), of_function=False)
    assert not limits.take(ClosedSchema({}, 0, 17), of_function=False)
    assert limits.take(ClosedSchema({}, 24, 15), of_function=False)
    assert not limits.take(ClosedSchema({}, 1, 0), of_function=True)
    assert [limits.take(ClosedSchema({}, 0, 0), of_function=True) for _ in range(21)] == [True] * 20 + [False]
    assert limits.take(ClosedSchema({}, 0, 1), of_function=False)
    assert not limits.take(ClosedSchema({}, 0, 1), of_function=False)

"""Does Claude learn what a JSON Schema says, as far as it can follow one?"""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter, WithJsonSchema
from support.messages_bodies import CODEC

from fsm_agent.call import Request
from fsm_agent.functions import Function
from fsm_agent.messages import Message
from fsm_agent.prompts import Output
from fsm_agent.providers import AnthropicProfile

TEXT = {"type": "string"}
USER = Message.of("user", "hi")


def obj(**properties: Any) -> dict[str, Any]:
    """An object that requires all its properties."""
    return {"type": "object", "properties": properties, "required": [*properties]}


def enforced(*schemas: Any, output: Any = None) -> list[Any]:
    """Return the enforced part of each schema of a function and of the output, or None if nothing is enforced."""
    functions = [Function(name=f"f{n}", parameters=schema) for n, schema in enumerate(schemas)]
    kind: Any = Annotated[Any, WithJsonSchema(output)] if isinstance(output, dict) else output or str
    request = Request(messages=(USER,), functions=tuple(functions), output=Output(kind))
    body = json.loads(CODEC.encode(request, model="m1", profile=AnthropicProfile(), stream=False))
    found = [tool["input_schema"] if tool.get("strict") else None for tool in body.get("tools", ())]
    if output is not None:
        found.append(body["output_config"]["format"]["schema"] if "output_config" in body else None)
    return found


def closed_schema(schema: dict[str, Any]) -> Any:
    """Return a schema as the schema of a property, with its definitions."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    (said,) = enforced({**obj(p=inner), **{key: schema[key] for key in schema if key == "$defs"}})
    return said and said["properties"]["p"]


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    (said,) = enforced(schema)
    assert said is not None
    return said


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (obj(a=TEXT), {**obj(a=TEXT), "additionalProperties": False}),
        (
            {"type": "array", "items": obj(a=TEXT)},
            {"type": "array", "items": {**obj(a=TEXT), "additionalProperties": False}},
        ),
        ({"oneOf": [TEXT, {"type": "null"}]}, {"anyOf": [TEXT, {"type": "null"}]}),
        ({"allOf": [TEXT], "description": "x"}, {"type": "string", "description": "x"}),
        ({"enum": ["a", 1, True, None]}, {"enum": ["a", 1, True, None]}),
        ({"const": 7, "title": "A", "default": 7}, {"const": 7, "title": "A", "default": 7}),
        ({**TEXT, "examples": ["x"], "$comment": "y", "deprecated": True}, TEXT),
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
        {"description": "anything"},
        obj(a=True),
        {"type": "array"},
        {"type": "array", "items": TEXT, "prefixItems": [TEXT]},
        {"type": "object"},
        {**obj(a=TEXT), "additionalProperties": True},
        {"properties": {"a": TEXT}, "additionalProperties": TEXT},
        {"enum": [{"a": 1}]},
        {"const": [[1]]},
        {"allOf": [obj(a=TEXT), obj(b=TEXT)]},
        obj(a={"$ref": "https://example.com/x.json"}),
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


def test_schema_of_pydantic_is_closed() -> None:
    (said,) = enforced(output=Tree)
    assert said["properties"]["leaf"]["description"] == "The first."
    assert said["properties"]["leaf"]["additionalProperties"] is False
    assert said["$defs"]["Leaf"]["properties"]["size"]["description"] == "(maximum: 9, minimum: 1)"
    assert enforced(TypeAdapter(Tree).json_schema()) == [None], "it has optional properties"


def test_request_has_room_for_so_much() -> None:
    def optional(count: int) -> dict[str, Any]:
        return {"type": "object", "properties": {f"p{n}": TEXT for n in range(count)}}

    assert enforced(output=optional(25)) == [None]
    assert enforced(output=optional(24)) != [None]
    assert [bool(said) for said in enforced(*[obj(a=TEXT)] * 21)] == [True] * 20 + [False]


def test_unions_are_counted() -> None:
    """Over all schemas of a request together, beginning with the schemas of the output."""
    union, listed, single = {"anyOf": [TEXT]}, {"type": ["string", "null"]}, {"type": ["string"]}
    functions = [obj(a=union), obj(a=single), obj(a=listed), obj(a=union), obj(a=single)]
    many = obj(**{f"p{n}": union for n in range(14)})
    assert [bool(said) for said in enforced(*functions, output=many)] == [True, True, True, False, True, True]
    assert enforced(output=obj(**{f"p{n}": union for n in range(17)})) == [None]

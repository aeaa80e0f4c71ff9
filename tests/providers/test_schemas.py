"""Is strict mode used just where it says the same as the schema, and is an output told in words?"""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter, create_model
from pydantic_core import core_schema

from fsm_agent.call import Request
from fsm_agent.functions import Function
from fsm_agent.messages import Message
from fsm_agent.prompts import Output
from fsm_agent.providers import AnthropicCodec, Codec, GeminiCodec, OpenAIChatCodec, OpenAIResponsesCodec, Profile

CODEC = OpenAIChatCodec()
USER = Message.of("user", "hi")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: float
    y: float


class Node(BaseModel):
    name: str
    children: list[Node]


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Drawing(BaseModel):
    points: list[Point]
    colour: Colour = Field(description="of the line")
    label: str | None
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class WithDefault(BaseModel):
    x: int = 3


class WithExtra(BaseModel, extra="allow"):
    x: int


class Deep(BaseModel):
    inner: list[WithDefault]


def strict_schema(parameters: Any) -> dict[str, Any] | None:
    """The schema of a function's parameters, if it goes out in strict mode."""
    request = Request(messages=(USER,), functions=(Function(name="f", parameters=parameters),))
    (tool,) = json.loads(CODEC.encode(request, model="m", profile=Profile(), stream=False))["tools"]
    schema: dict[str, Any] = tool["function"]["parameters"]
    assert tool["function"].get("strict") or schema == parameters
    return schema if tool["function"].get("strict") else None


def strict(type: Any) -> dict[str, Any] | None:
    return strict_schema(TypeAdapter(type).json_schema())


def output_in_words(output: Output, with_functions: bool = False) -> str:
    """What the system prompt says of an output that the model cannot be made to write."""
    functions = (Function(name="f"),) if with_functions else ()
    request = Request(messages=(USER,), output=output, functions=functions)
    words, _ = json.loads(CODEC.encode(request, model="m", profile=Profile(native_schema=False), stream=False))[
        "messages"
    ]
    assert words["role"] == "system"
    text: str = words["content"]
    return text


def objects(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [found for item in schema for found in objects(item)]
    if not isinstance(schema, dict):
        return []
    here = [schema] if schema.get("type") == "object" else []
    return here + [found for value in schema.values() for found in objects(value)]


def test_complete_objects_are_strict() -> None:
    schema = strict(Drawing)
    assert schema is not None
    assert len(objects(schema)) == 4
    for found in objects(schema):
        assert found["additionalProperties"] is False
        assert found["required"] == list(found["properties"])
    text = json.dumps(schema)
    assert "oneOf" not in text
    assert "discriminator" not in text
    assert [len(pet) for pet in schema["properties"]["pet"]["anyOf"]] == [1, 1]
    assert schema["properties"]["colour"] == {"description": "of the line", "anyOf": [{"$ref": "#/$defs/Colour"}]}
    assert schema["properties"]["label"]["anyOf"] == [{"type": "string"}, {"type": "null"}]


@pytest.mark.parametrize("type", [WithDefault, WithExtra, Deep, list[int], Cat | Dog])
def test_what_strict_mode_cannot_say_is_not_strict(type: Any) -> None:
    assert strict(type) is None


def test_recursive_objects_are_strict() -> None:
    schema = strict_schema({**Node.model_json_schema()["$defs"]["Node"], "$defs": Node.model_json_schema()["$defs"]})
    assert schema is not None
    assert schema["$defs"]["Node"]["additionalProperties"] is False


def test_functions_without_parameters_are_strict() -> None:
    expected = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert strict_schema(Function(name="now").parameters) == expected


def test_constraints_it_does_not_know_are_told_in_the_description() -> None:
    class Person(BaseModel):
        name: str = Field(min_length=1, description="in full")
        code: Annotated[str, Field(json_schema_extra={"pattern": "^(?!x)"})]
        id: str = Field(pattern="^[a-z]+$")
        site: Annotated[str, Field(json_schema_extra={"format": "uri"})]
        age: int = Field(ge=0, le=150)

    schema = strict(Person)
    assert schema is not None
    properties = schema["properties"]
    assert properties["name"] == {"description": "in full (minLength: 1)", "title": "Name", "type": "string"}
    assert properties["code"]["description"] == "(pattern: ^(?!x))"
    assert "pattern" not in properties["code"]
    assert properties["id"]["pattern"] == "^[a-z]+$"
    assert properties["site"]["description"] == "(format: uri)"
    assert (properties["age"]["minimum"], properties["age"]["maximum"]) == (0, 150)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"allOf": [{"type": "string"}], "default": "x"}, {"type": "string"}),
        ({"type": ["string", "null"], "examples": ["x"]}, {"type": ["string", "null"]}),
        ({"const": 1}, {"const": 1}),
        ({"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        ({"type": "array"}, None),
        ({"type": ["object", "null"]}, None),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, None),
        ({"type": "string", "not": {"const": "x"}}, None),
        (True, None),
        ({"description": "anything"}, None),
    ],
)
def test_each_property_is_cleaned_or_not_strict(schema: Any, expected: Any) -> None:
    whole = strict_schema({"type": "object", "properties": {"a": schema}, "required": ["a"]})
    if expected is None:
        assert whole is None
    else:
        assert whole is not None
        assert whole["properties"]["a"] == expected


def test_the_callers_schema_is_left_as_it_was() -> None:
    schema = Drawing.model_json_schema()
    before = json.dumps(schema)
    strict_schema(schema)
    assert json.dumps(schema) == before


class Review(BaseModel):
    quality_score: int = Field(description="Overall quality score from 0 to 100")
    issues: list[str] = Field(description="List of identified issues")
    recommendations: list[str]


class Celsius:
    """A temperature whose JSON only its code knows."""

    def __init__(self, degrees: float) -> None:
        self.degrees = degrees

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(lambda data: cls(float(data)))


def test_an_output_in_words() -> None:
    said = output_in_words(Output(Review))
    assert said.endswith(
        """:

### Schema for `Review`
{
  "quality_score": "number", // Overall quality score from 0 to 100
  "issues": "string[]", // List of identified issues
  "recommendations": "string[]"
}"""
    )
    assert "JSON" in said.splitlines()[0]


def test_an_output_in_words_leaves_room_for_functions() -> None:
    alone, beside = output_in_words(Output(int)), output_in_words(Output(int), with_functions=True)
    assert alone.endswith("### Schema for `number`\nnumber")
    assert beside.startswith(f"{alone}\n\n")
    assert "functions" in beside.removeprefix(alone)


def test_a_type_without_a_schema_is_named() -> None:
    output = Output(Celsius)
    assert output.schema is None
    assert output.parse("21.5").degrees == 21.5
    assert "Celsius" in output_in_words(output)
    assert "JSON" in output_in_words(output)


def test_a_type_that_would_be_too_long_is_told_as_json_schema() -> None:
    kind: Any = int
    for _ in range(12):  # each holds the one before twice
        kind = create_model("Pair", left=(kind, ...), right=(kind, ...))
    output = Output(kind)
    _, _, schema = output_in_words(output).partition(":\n\n")
    assert json.loads(schema) == output.schema


class Inner(BaseModel):
    size: int = 0


class Outer(BaseModel):
    inner: Inner | None = None
    items: list[Inner] = []
    by_name: dict[str, int] = {}


class Open(BaseModel, extra="allow"):
    size: int = 0


def sent(output: Any) -> Any:
    """The schema that a service without strict mode is sent."""
    request = Request(messages=(USER,), output=Output(output))
    body = json.loads(CODEC.encode(request, model="m", profile=Profile(strict_functions=False), stream=False))
    return body["response_format"]["json_schema"]["schema"]


def test_objects_of_an_output_take_no_other_properties_without_strict_mode_too() -> None:
    schema = sent(Outer)
    assert (schema["additionalProperties"], schema["$defs"]["Inner"]["additionalProperties"]) == (False, False)
    assert schema["properties"]["by_name"]["additionalProperties"] == {"type": "integer"}


class Composed(BaseModel):
    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        parts = [{"type": "object", "properties": {name: {"type": "integer"}}} for name in ("a", "b")]
        return {"type": "object", "allOf": parts}


class Either(BaseModel):
    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        parts = [{"properties": {name: {"type": "integer"}}} for name in ("a", "b")]
        return {"type": "object", "properties": {"c": {"type": "integer"}}, "anyOf": parts}


@pytest.mark.parametrize("output", [Open, Composed, Either])
def test_objects_that_take_more_stay_open(output: Any) -> None:
    assert sent(output) == Output(output).schema


@pytest.mark.parametrize(
    "codec", [OpenAIChatCodec(), OpenAIResponsesCodec(), AnthropicCodec(), GeminiCodec()], ids=lambda codec: codec.name
)
def test_a_constraint_in_a_lone_all_of_is_told_beside_the_description(codec: Codec) -> None:
    """No wire format enforces it, so all of them describe it in words, wherever the description stands."""
    inner = {"type": "string", "minLength": 9}
    for town in ({"allOf": [inner], "description": "Where"}, {"description": "Where", "allOf": [inner]}):
        parameters = {"type": "object", "properties": {"town": town}, "required": ["town"]}
        request = Request(messages=(USER,), functions=(Function(name="f", parameters=parameters),))
        sent = codec.encode(request, model="m", profile=Profile(), stream=False).decode()
        assert "minLength: 9" in sent
        assert "Where" in sent

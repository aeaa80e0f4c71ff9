"""Is an example what its author said, of the right types, and valid?"""

from __future__ import annotations

import json
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter, create_model, model_validator

from fsm_agent import PromptError
from fsm_agent.prompts import PromptChoice, PromptField, PromptModel, examples_section, prompt_example, prompt_guide


class Mood(Enum):
    HIDDEN = PromptChoice("hidden", skip=True)
    GOOD = PromptChoice("good", "In high spirits")


class Inner(BaseModel):
    x: Annotated[int, PromptField(example=7)]


class Everything(BaseModel):
    said: Annotated[int, PromptField(example=42)] = 1
    pydantics: int = Field(2, examples=[3, 4])
    default: int = 5
    made: list[int] = Field(default_factory=lambda: [6])
    own: str
    nothing: str | None
    member: Mood
    choice: Literal["a", "b"]
    inner: Inner
    inners: list[Inner]
    day: Annotated[date, PromptField(example="2026-01-31")]
    price: Annotated[float, PromptField(example=5)]
    record: Annotated[Inner, PromptField(example=Inner(x=1))]
    alias: Annotated[str, PromptField(example="ä")] = Field(alias="anAlias")
    either: int | Inner
    secret: Annotated[str, PromptField(skip=True)] = ""
    type_name: str = Field("Everything", alias="__type")


def test_each_field_has_the_first_of_what_is_known():
    value = Everything.model_construct(own="mine", said=0, default=0, member=Mood.GOOD, nothing="set")
    assert json.loads(prompt_example(value)) == {
        "said": 42,
        "pydantics": 3,
        "default": 5,
        "made": [6],
        "own": "mine",
        "nothing": "set",
        "member": "good",
        "choice": "a",
        "inner": {"x": 7},
        "inners": [{"x": 7}],
        "day": "2026-01-31",
        "price": 5,
        "record": {"x": 1},
        "anAlias": "ä",
        "either": {"x": 7},
    }
    assert '"ä"' in prompt_example(value)


def test_example_then_default_then_value():
    class Three(BaseModel):
        a: Annotated[str, PromptField(example="said")] = "default"
        b: str = "default"
        c: str

    example = prompt_example(Three(a="own", b="own", c="own"))
    assert example == '{\n  "a": "said",\n  "b": "default",\n  "c": "own"\n}'
    with pytest.raises(PromptError, match=r"Three\.c: "):
        prompt_example(Three)


def test_an_example_keeps_its_type():
    for kind, example, written in (
        *((int, 5, "5"), (float, 0.5, "0.5"), (bool, True, "true"), (str, "5", '"5"')),
        (list[int], [1], "[\n    1\n  ]"),
    ):
        model = create_model("M", x=(Annotated[kind, PromptField(example=example)], ...))
        assert prompt_example(model) == f'{{\n  "x": {written}\n}}'


@pytest.mark.parametrize(("kind", "example"), [(int, "5"), (bool, 1), (Annotated[int, Field(ge=9)], 5), (Mood, "sad")])
def test_an_example_of_another_type_is_refused(kind, example):
    model = create_model("M", x=(Annotated[kind, PromptField(example=example)], ...))
    with pytest.raises(PromptError, match=rf"{example!r} of M\.x"):
        prompt_example(model)


def test_what_it_says_is_valid():
    assert TypeAdapter(Everything).validate_json(
        prompt_example(Everything.model_construct(own="mine", nothing=None))
    ).alias == "ä"  # fmt: skip

    class Checked(BaseModel):
        low: Annotated[int, PromptField(example=3)]
        high: Annotated[int, PromptField(example=2)]

        @model_validator(mode="after")
        def _in_order(self) -> Any:
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

    with pytest.raises(PromptError, match=r"the example of Checked is not valid: .*low is above high"):
        prompt_example(Checked)


def test_the_example_of_a_strict_model_is_valid_by_its_own_rules():
    class Strict(BaseModel, strict=True):
        n: int

    with pytest.raises(PromptError, match=r"the example of Strict is not valid: n: .*valid integer"):
        prompt_example(Strict.model_construct(n="5"))


class Tool(PromptModel):
    """A tool."""

    name: Annotated[str, Field(description="Its name."), PromptField(example="x")]


SCHEMA = '### Schema for `Tool`\nA tool.\n{\n  "name": "string" // Its name.\n}'
EXAMPLE = '{\n  "name": "x"\n}'
FULL = f"{SCHEMA}\n\n### Example\nHere is an example of a valid `Tool` object:\n{EXAMPLE}"


def test_modes_of_types_and_values():
    for kind in (Tool, Tool(name="y")):
        assert prompt_guide(kind, "schema_only") == SCHEMA
        assert prompt_guide(kind, "example_only") == EXAMPLE
        assert prompt_guide(kind) == prompt_guide(kind, "full") == FULL
    tool = Tool(name="y")
    assert tool.to_prompt(mode="full") == FULL
    assert (Tool.prompt_schema(), Tool.prompt_example()) == (SCHEMA, EXAMPLE)


def test_examples_of_several_types():
    assert examples_section(Tool, Inner) == (
        "### Examples\n\nHere are examples of the data structures you should use.\n\n"
        f'---\n#### `Tool`\n{EXAMPLE}\n---\n#### `Inner`\n{{\n  "x": 7\n}}\n---'
    )


def test_an_unknown_mode_is_refused():
    wrong: Any = "exmaple_only"
    with pytest.raises(PromptError, match="'example_only'"):
        Tool(name="y").to_prompt(mode=wrong)

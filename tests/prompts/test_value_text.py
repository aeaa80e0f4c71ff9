"""Is a value printed whole, in order, and as data?"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import date
from enum import Enum, IntEnum
from functools import cached_property
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel

from fsm_agent import PromptError
from fsm_agent.prompts import Prompt, PromptChoice, PromptEnum, PromptField, PromptModel, prompt_text


class Model(BaseModel):
    id: Annotated[int, Field(description="The number")]
    name: Annotated[str, Field(description="Not the key"), PromptField(rename="full_name")]
    secret: Annotated[str, PromptField(skip=True)] = "s3cret"
    hidden: str = Field("s3cret", exclude=True)
    code: Annotated[int, PromptField(format_with=hex)] = 255


@dataclass
class Plain:
    id: Annotated[int, Field(description="The number")]
    name: Annotated[str, Field(description="Not the key"), PromptField(rename="full_name")]
    secret: Annotated[str, PromptField(skip=True)] = "s3cret"
    hidden: str = dataclasses.field(default="s3cret", metadata={"exclude": True})
    code: Annotated[int, PromptField(format_with=hex)] = 255


class Level(IntEnum):
    LOW = 1


class Mood(Enum):
    GOOD = PromptChoice("good", "In high spirits")
    BAD = PromptChoice("bad", "Out of sorts", skip=True)


class Documented(Enum):
    def __new__(cls, value: str, doc: str = "") -> Documented:
        member = object.__new__(cls)
        member._value_ = value
        member.__doc__ = doc
        return member

    YES = ("yes", "In full\n agreement")
    MAYBE = PromptChoice("maybe", "Not sure")


@dataclass
class Item:
    name: str
    price: float = 0.5


@dataclass
class Money:
    cents: int

    def __str__(self) -> str:
        return f"€{self.cents / 100:.2f}"


@dataclass
class Order:
    items: list[Item]
    first: Item
    tags: list[str]
    levels: dict[str, Any]
    due: date
    mood: Mood
    total: Money
    note: str | None = None
    paid: bool = True
    scan: bytes = b"abc"
    by_name: dict[str, Item] = dataclasses.field(default_factory=dict)


ORDER = """items:
  - name: tea
    price: 1.5
  - name: cups
    price: 0.5
first:
  name: tea
  price: 1.5
tags: ["a, b", "c"]
levels:
  x: 1
  y: null
  mood: good: In high spirits
due: 2026-01-31
mood: good: In high spirits
total: €1.50
note: null
paid: true
scan: <3 bytes>
by_name:
  tea:
    name: tea
    price: 1.5"""


class Refund(BaseModel):
    """Money goes back."""

    type: Literal["Refund"] = "Refund"
    amount: Annotated[int, Field(description="In cents")]


class NeedsRevision(BaseModel):
    type: Literal["NeedsRevision"] = "NeedsRevision"
    reasons: list[str]


class Titled(PromptModel):
    __prompt_template__ = "{{ label }}: {{ name }} {{ mood }}"

    model_config = ConfigDict(frozen=True)
    name: str
    mood: Mood = Mood.GOOD

    @property
    def kind(self) -> str:
        return "T"

    @cached_property
    def label(self) -> str:
        return f"<{self.kind}>"


class Node(BaseModel):
    name: str
    parent: Any = None
    children: list[Any] = []


class Echo(PromptModel):
    __prompt_template__ = "({{ inner }})"

    inner: Any = None


def render(template: str, values: dict[str, Any]) -> str:
    return Prompt(template).render(**values).text


@pytest.mark.parametrize("kind", [Model, Plain])
def test_nobody_has_to_inherit(kind):
    text = prompt_text(kind(id=1, name="Mai"))
    assert text.replace("hidden: s3cret\n", "" if kind is Plain else "?") == "The number: 1\nfull_name: Mai\ncode: 0xff"


def test_everything_inside_is_printed_in_order():
    tea = Item("tea", 1.5)
    levels = {"x": 1, "y": None, "mood": Mood.GOOD}
    order = Order([tea, Item("cups")], tea, ["a, b", "c"], levels, date(2026, 1, 31), Mood.GOOD, Money(150))
    order.by_name = {"tea": tea}
    assert prompt_text(order) == ORDER


def test_any_value_has_a_text():
    for value, text in [
        ("a\nb", "a\nb"),
        (1.5, "1.5"),
        (None, "null"),
        (False, "false"),
        (["a", 1, None, True], '["a", 1, null, true]'),
        ({3, 1, 2}, "[1, 2, 3]"),
        ([], "[]"),
        ({}, "{}"),
        ([[1], [2]], "- [1]\n- [2]"),
        ([Item("a", 1), Mood.GOOD], "- name: a\n  price: 1\n- good: In high spirits"),
        ((Mood.GOOD, 1), "- good: In high spirits\n- 1"),
        ({"a": [Mood.GOOD]}, "a: - good: In high spirits"),
        ([Mood.BAD, Level.LOW], '["bad", "LOW"]'),
        ({"a\nb": Item("a", 1)}, "a\n  b:\n  name: a\n  price: 1"),
        ({Mood.GOOD: Item("a", 1)}, "good:\n  name: a\n  price: 1"),
        (Documented.YES, "yes: In full agreement"),
        (Documented.MAYBE, "maybe: Not sure"),
        (RootModel[list[int]]([1, 2]), "[1, 2]"),
        (Money(5), "€0.05"),
        (date(2026, 1, 31), "2026-01-31"),
        (
            Node(name="a", children=[Node(name="b")]),
            "name: a\nparent: null\nchildren:\n  - name: b\n    parent: null\n    children: []",
        ),
    ]:
        assert prompt_text(value) == text


class Own(PromptModel):
    name: str

    def to_prompt(self, mode=None):
        return f"<{super().to_prompt(mode)}>"


def test_a_prompt_of_its_own_is_its_text_wherever_it_stands():
    own, text = Own(name="a"), "<name: a>"
    assert prompt_text(own) == own.to_prompt() == text
    assert prompt_text([own, (own,)]) == f"- {text}\n- - {text}"
    assert prompt_text({"x": own}) == f"x: {text}"
    assert prompt_text(Node(name="n", parent=own)) == f"name: n\nparent: {text}\nchildren: []"
    assert render("{{ x }} {{ xs }}", {"x": own, "xs": {"y": [own]}}) == f"{text} y: - {text}"


def test_a_member_is_its_name_with_its_description():
    class Act(PromptEnum):
        """What to do."""

        CREATE = PromptChoice("Create", "User wants a new document")
        DEBUG = PromptChoice("Debug", "Secret", skip=True)
        DELETE = "Delete"

    assert [act.to_prompt() for act in Act] == ["Create: User wants a new document", "Debug", "Delete"]
    Documented.MAYBE.__doc__ = "Overridden"
    assert prompt_text(Documented.MAYBE) == "maybe: Not sure"


def test_a_variant_is_introduced():
    assert prompt_text(Refund(amount=5)) == "Refund: Money goes back.\nIn cents: 5"
    assert prompt_text(NeedsRevision(reasons=["long"])) == 'NeedsRevision\nreasons: ["long"]'
    assert prompt_text([Refund(amount=5)]) == "- Refund: Money goes back.\n  In cents: 5"


class TestInTemplates:
    def test_values_are_printed_and_their_fields_read(self):
        item = Item("tea", 1.5)
        assert render("{{ item }}", {"item": item}) == "name: tea\nprice: 1.5"
        assert render("{{ item.name }} {{ item }}", {"item": item}) == "tea name: tea\nprice: 1.5"
        assert render("{% for i in xs %}{{ i }};{% endfor %}", {"xs": [item, Mood.GOOD]}) == (
            "name: tea\nprice: 1.5;good: In high spirits;"
        )
        assert render("{{ xs }}", {"xs": [item]}) == "- name: tea\n  price: 1.5"
        assert render("{{ x }} {{ y }} {{ z }}", {"x": True, "y": None, "z": ["a"]}) == "True None ['a']"

    def test_properties_are_variables_too(self):
        assert prompt_text(Titled(name="x")) == "<T>: x good: In high spirits"

    def test_one_inside_another(self):
        assert prompt_text(Echo(inner=Echo(inner=Mood.GOOD))) == "((good: In high spirits))"
        assert prompt_text(Node(name="a", parent=Echo(inner=1))) == "name: a\nparent: (1)\nchildren: []"

    @settings(deadline=None)
    @given(st.text() | st.text(alphabet="{}%#x _'\"\n"))
    def test_what_a_value_says_is_never_a_template(self, said):
        assert prompt_text(Echo(inner=said)) == f"({said})"
        assert render("{{ x }}", {"x": Item(said, 1)}) == prompt_text(Item(said, 1))
        assert said.replace("\n", "\n  ") in prompt_text(Item(said, 1))


@given(st.text(alphabet="ab:\n- "), st.text(alphabet="ab:\n- "))
def test_no_value_looks_like_another_field(name, note):
    text = prompt_text(Node(name=name, children=[Item(note)]))
    assert [line.partition(":")[0] for line in text.split("\n") if not line.startswith(" ")] == [
        "name", "parent", "children"
    ]  # fmt: skip


class TestBounds:
    def test_a_value_that_contains_itself_is_named(self):
        node = Node(name="a")
        node.children.append(Node(name="b", parent=node))
        with pytest.raises(PromptError, match=r"^Node\.children\[0\]\.parent "):
            prompt_text(node)
        loop: list[Any] = [[]]
        loop[0].append(loop)
        with pytest.raises(PromptError, match=r"^list\[0\]\[0\] "):
            prompt_text(loop)

    @pytest.mark.parametrize("wrap", [lambda inner: Node(name="n", parent=inner), lambda inner: [inner],
                                      lambda inner: Echo(inner=inner)])  # fmt: skip
    def test_depth_is_bounded(self, wrap):
        value: Any = 1
        for _ in range(48):
            value = wrap(value)
        prompt_text(value)
        for _ in range(5_000):
            value = wrap(value)
        with pytest.raises(PromptError, match="50") as caught:
            prompt_text(value)
        assert len(str(caught.value)) < 400

"""Is an answer that may be of several types read as the one that it was written as, and never as another?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, create_model, field_validator
from support.examples import examples
from typing_extensions import TypedDict

from fsm_agent import Agent, ParseError, Prompt, PromptError
from fsm_agent.call import Request
from fsm_agent.messages import Done, Message, PartialOutput
from fsm_agent.prompts import Output, ParserInput, first_of, json_anywhere, tagged
from fsm_agent.prompts.unions import tags_of
from fsm_agent.providers import OpenAIChatCodec, Profile
from fsm_agent.testing import Script, function_call


class Flight(BaseModel):
    """A flight that can be booked."""

    number: str
    price: int

    @field_validator("price")
    @classmethod
    def is_affordable(cls, price: int, info: ValidationInfo) -> int:
        if price > (info.context or {}).get("budget", 1000):
            raise ValueError("too dear")
        return price


class NoFlightFound(BaseModel):
    """When no valid flight is found."""


class Failed(BaseModel):
    """When the search broke down."""

    reason: str = ""


@dataclass(frozen=True)
class Approve:
    """It can go out."""

    by: str


@dataclass(frozen=True)
class Reject:
    by: str
    reason: str = ""


class Note(TypedDict, total=False):
    text: str


class Cat(BaseModel):
    kind: Literal["feline"]
    name: str


class Dog(BaseModel):
    kind: Literal["canine"]
    name: str


PET = Annotated[Cat | Dog, Field(discriminator="kind")]


class Plan(BaseModel):
    """A plan."""

    steps: list[Flight | NoFlightFound]
    then: Plan | None = None


def read(kind: Any, text: str) -> Any:
    return Output(kind).parse(text)


def answer(mode: str, *documents: str) -> list[Any]:
    """Return what a model says in a mode."""
    if mode == "function":
        return [function_call("give_final_answer", value=json.loads(document)) for document in documents]
    return [*["I think."] * (mode == "two_stage"), *documents]


class TestAnAnswerOfNothing:
    @pytest.mark.parametrize("mode", ["native", "function", "prompted", "two_stage"])
    def test_it_does_not_swallow_a_wrong_answer(self, mode: Any) -> None:
        for nothing in (NoFlightFound, Failed):
            wrong, right = '{"number": "AK1", "price": "about 350"}', '{"number": "AK1", "price": 350}'
            model = Script(*answer(mode, wrong), *answer(mode, right)[-1:])
            result = Agent(model).call(Prompt("Find a flight.", output=Flight | nothing, mode=mode))
            assert result.output == Flight(number="AK1", price=350)
            assert "Flight.price: " in model.requests[-1].messages[-1].text

    def test_nor_one_that_a_validator_refuses(self) -> None:
        model = Script('{"number": "AK1", "price": 900}', '{"NoFlightFound": {}}')
        prompt = Prompt("Find a flight.", output=Flight | NoFlightFound)
        result = Agent(model).call(prompt, parser_args={"budget": 500})
        assert (result.output, len(model.requests)) == (NoFlightFound(), 2)
        assert "too dear" in model.requests[1].messages[-1].text

    def test_what_does_not_say_which_it_is_is_refused(self) -> None:
        for document in ["{}", '{"value": {}}', '{"numbr": "AK1"}', '{"Flght": {}, "x": 1}', "[]"]:
            with pytest.raises(ParseError):
                read(Flight | NoFlightFound, document)

    def test_a_tag_does_not_excuse_the_fields_of_another(self) -> None:
        with pytest.raises(ParseError, match=r"NoFlightFound\.price: "):
            read(Flight | NoFlightFound, '{"NoFlightFound": {"price": 3}}')


@pytest.mark.parametrize(
    ("kind", "named"),
    [(int | None, r"int \| None"), (Cat | Dog, r"Cat \| Dog"), (list[PET] | None, r"list\[Cat \| Dog\] \| None")],
)
def test_what_is_no_member_is_told_the_members(kind: Any, named: str) -> None:
    for text in ("I do not know.", '{"wings": 2}'):
        with pytest.raises(ParseError, match=named):
            Output(kind).parse(text)


def test_a_union_within_a_union_is_named_by_its_members() -> None:
    with pytest.raises(ParseError, match="give the fields of Cat_or_Dog or of Flight"):
        Output(PET | Flight).parse('{"kind": "feline", "price": 1}')


class TestARefusalIsNoApproval:
    def test_without_its_reason(self) -> None:
        for kind in (Approve | Reject, Reject | Approve):
            for document in ('{"by": "ann"}', '{"by": "ann", "raisons": "no"}', '{"by": "ann", "x": 1}'):
                with pytest.raises(ParseError):
                    read(kind, document)

    def test_its_own_field_or_a_tag_says_what_it_is(self) -> None:
        assert read(Approve | Reject, '{"by": "ann", "reason": "no"}') == Reject("ann", "no")
        assert read(Approve | Reject, '{"by": "ann", "raeson": "no"}') == Reject("ann", "no")
        assert read(Approve | Reject, '{"Reject": {"by": "ann"}}') == Reject("ann")
        assert read(Approve | Reject, '{"Approve": {"by": "ann"}}') == Approve("ann")

    def test_first_of_reads_as_an_agent_does(self) -> None:
        parser = first_of(tagged("answer"), json_anywhere, expect=Approve | Reject)
        assert parser('<answer>{"Reject": {"by": "ann"}}</answer>') == Reject("ann")
        with pytest.raises(ParseError):
            parser('<answer>{"by": "ann"}</answer>')


class TestWhereUnionsStand:
    def test_a_tag_is_read(self) -> None:
        for kind, document, value in [
            (list[Approve | Reject], '[{"Reject": {"by": "a"}}]', [Reject("a")]),
            (dict[str, Approve | Reject], '{"x": {"Approve": {"by": "a"}}}', {"x": Approve("a")}),
            (tuple[Approve | Reject, int], '[{"Reject": {"by": "a"}}, 1]', (Reject("a"), 1)),
            (Approve | Reject | None, "null", None),
            (Approve | Reject | str, '{"value": "so so"}', "so so"),
            (Approve | list[int], "[1]", [1]),
            (Flight | dict[str, int], '{"dict": {"number": 1}}', {"number": 1}),
            (Note | NoFlightFound, '{"Note": {"text": "x"}}', {"text": "x"}),
            (list[Flight] | list[NoFlightFound], '{"list_2": [{}]}', [NoFlightFound()]),
            (Annotated[Approve | Reject, Field(description="It")], '{"Reject": {"by": "a"}}', Reject("a")),
        ]:
            assert read(kind, document) == value

    def test_an_item_is_not_guessed(self) -> None:
        for kind in [list[Approve | Reject], tuple[Approve | Reject, ...]]:
            with pytest.raises(ParseError, match=r"0: "):
                read(kind, '[{"by": "ann"}]')

    def test_a_field_of_a_model_that_contains_itself(self) -> None:
        document = '{"steps": [{"NoFlightFound": {}}], "then": {"steps": [{"number": "A", "price": 1}]}}'
        then = Plan(steps=[Flight(number="A", price=1)])
        assert read(Plan, document) == Plan(steps=[NoFlightFound()], then=then)
        with pytest.raises(ParseError, match=r"then\.steps\.0: "):
            read(Plan, '{"steps": [], "then": {"steps": [{}]}}')

    def test_a_class_that_would_read_it_itself_is_refused(self) -> None:
        class Own(BaseModel):
            verdict: Approve | Reject

            def __init__(self, **data: Any) -> None:
                super().__init__(**data)

        with pytest.raises(PromptError, match=r"Own.*__init__"):
            Output(Own)


class TestWhatJsonTellsApart:
    def test_it_stays_as_it_is(self) -> None:
        for kinds in [
            (Cat, Dog),
            (Flight, Reject),
            (Flight, str),
            (Flight, list[Flight]),
            (Flight, None),
            (list[int], list[str]),
            (create_model("A", kind=(Literal["a"], "a"), x=(int, 0)), create_model("B", kind=(Literal["b"], "b"))),
        ]:
            assert not any(tags_of(kinds))

    def test_a_constant_that_is_left_out_is_not_guessed(self) -> None:
        wait = create_model("Wait", kind=(Literal["wait"], "wait"), x=(int, 0))
        click = create_model("Click", kind=(Literal["click"], "click"), x=(int, 0))
        assert read(wait | click, '{"kind": "click"}') == click()
        with pytest.raises(ParseError, match=r"kind|which"):
            read(wait | click, '{"x": 1}')

    def test_what_says_it_may_be_nearly_right(self) -> None:
        for kind in (Cat | Dog, Annotated[Cat | Dog, Field(discriminator="kind")]):
            for document, wrong in (
                ('{"kind": "felime", "name": "Tom"}', "'felime'"),
                ('{"kidn": "feline", "name": "Tom"}', "'kidn'"),
            ):
                found = Output(kind).read(ParserInput(text=document))
                assert found.value == Cat(kind="feline", name="Tom")
                (repair,) = found.repairs
                assert wrong in repair

    def test_a_class_that_takes_any_field_has_to_be_named(self) -> None:
        loose = create_model("Loose", __config__=ConfigDict(extra="allow"), text=(str, ...))
        assert tags_of([loose, Flight]) == ["Loose", "Flight"]
        assert read(loose | Flight, '{"Loose": {"text": "x", "more": 1}}').more == 1


def sent(kind: Any, mode: Any) -> str:
    asked = Request(messages=(Message.of("user", "hi"),), output=Output(kind), mode=mode)
    return OpenAIChatCodec().encode(asked, model="m", profile=Profile(), stream=False).decode()


def test_a_model_is_shown_the_names_and_the_docstrings() -> None:
    for mode in ("native", "function", "prompted"):
        for kind in (Flight | NoFlightFound, Plan):
            for word in ("Flight", "NoFlightFound", "A flight that can be booked.", "When no valid flight is found."):
                assert word in sent(kind, mode)
    assert '"strict":true' in sent(Flight | NoFlightFound, "native"), "a strict service enforces the tags"


def test_partial_outputs_lead_to_the_same_output() -> None:
    text = '{"value": {"Reject": {"by": "ann", "reason": "too long"}}}'
    script = Script(text, text)
    agent = Agent(script, output=Approve | Reject)
    events = list(agent.stream("?"))
    parts = [event.data for event in events if isinstance(event, PartialOutput)]
    (done,) = [event for event in events if isinstance(event, Done)]
    assert parts[-1] == {"Reject": {"by": "ann", "reason": "too long"}}
    assert done.result.output == agent.call("?").output == Reject("ann", "too long")


NAMES = ["by", "wish", "reason", "note", "notes", "comment"]


@st.composite
def unions(draw: st.DrawFn) -> list[type[BaseModel]]:
    """Draw classes whose fields have names of a few, and so overlap."""
    made = []
    for number in range(draw(st.integers(2, 3))):
        fields: dict[str, Any] = {}
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3)):
            kind = draw(st.sampled_from([str, int, list[int]]))
            fields[name] = (kind, ...) if draw(st.booleans()) else (kind | None, None)
        if draw(st.booleans()):
            constant = Literal[f"kind{number}"]  # type: ignore[valid-type]
            fields["kind"] = (constant, ...) if draw(st.booleans()) else (constant, f"kind{number}")
        made.append(create_model(f"Class{'ABC'[number]}", **fields))
    return made


VALUES = {str: st.text(max_size=3), int: st.integers(0, 9), list[int]: st.lists(st.integers(0, 9), max_size=2)}


def written(draw: st.DrawFn, kind: type[BaseModel]) -> dict[str, Any]:
    document = {}
    for name, field in kind.model_fields.items():
        if name == "kind":
            document[name] = f"kind{'ABC'.index(kind.__name__[-1])}"
            continue
        plain = next(one for one in VALUES if field.annotation in (one, one | None))
        if field.is_required() or draw(st.booleans()):
            document[name] = draw(VALUES[plain])
    return document


@given(st.data())
@examples(60)
def test_a_damaged_answer_is_never_read_as_another(data: st.DataObject) -> None:
    classes = data.draw(unions())
    meant = data.draw(st.sampled_from(classes))
    union: Any = classes[0] | classes[1] if len(classes) == 2 else classes[0] | classes[1] | classes[2]
    output = Output(union)
    fields = data.draw(st.composite(lambda draw: written(draw, meant))())
    (tag,) = [tag for kind, tag in zip(classes, tags_of(classes), strict=True) if kind is meant]
    whole = json.dumps(fields if tag is None else {tag: fields})
    assert isinstance(output.parse(whole), meant) or (tag is None and "kind" not in fields)

    for name in data.draw(st.lists(st.sampled_from([*fields]), unique=True)) if fields else []:
        damage = data.draw(st.sampled_from(["left out", "misspelt", "changed"]))
        value = fields.pop(name)
        if damage == "misspelt":
            at = data.draw(st.integers(1, len(name)))
            slip = name[:at] + data.draw(st.sampled_from("qxz")) + name[at:]
            fields[slip] = value
        elif damage == "changed" and name != "kind":
            fields[name] = data.draw(st.sampled_from(["?", 1, [1], None, {}]))
    damaged = fields if tag is None or data.draw(st.booleans()) else {tag: fields}
    try:
        value = output.parse(json.dumps(damaged))
    except ParseError:
        return
    assert isinstance(value, meant), (damaged, value)

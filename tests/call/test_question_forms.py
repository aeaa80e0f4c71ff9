"""Does each question have a form, for every type, and does the filled form become the outcome?"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, create_model

from fsm_agent.call import Approved, Cancelled, Denied, FunctionFailed, Modified, Returned, RunAgain
from fsm_agent.call import question_forms as forms
from fsm_agent.errors import OutcomeError
from fsm_agent.flows import Flow, FlowRun, FlowSuspended, end, wait
from fsm_agent.messages import Question
from fsm_agent.store import MemoryStore, Runs


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Order(BaseModel):
    name: str = Field(min_length=2, description="Of the customer")
    size: Size
    count: int = Field(ge=1, le=9)
    price: float | None = None
    is_gift: bool = False
    tags: list[str] = []
    kind: Literal["new", "old"] = "new"


@dataclass(frozen=True)
class Approve:
    by: str


@dataclass(frozen=True)
class Reject:
    by: str
    reason: str = ""


@dataclass(frozen=True)
class Count:
    n: int
    unit: str = ""


@dataclass(frozen=True)
class Name:
    n: str
    title: str = ""


@dataclass(frozen=True)
class Yes:
    by: str = ""
    kind: Literal["yes"] = "yes"


@dataclass(frozen=True)
class No:
    by: str = ""
    kind: Literal["no"] = "no"


class Open(BaseModel):
    model_config = ConfigDict(extra="allow", title="What it is for")
    by: str


Value = TypeVar("Value")


class Box(BaseModel, Generic[Value]):
    value: Value
    by: str


Row = create_model("Row", **{f"column_{n}": (int, 0) for n in range(20)})
Page = create_model("Page", **{f"row_{n}": (Row, Row()) for n in range(20)})
Book = create_model("Book", **{f"page_{n}": (Page, Page()) for n in range(20)})  # larger than a schema is read


def waiting(runs: Runs, *types: Any) -> FlowRun[str]:
    """A run, stored as "r", of a flow that waits for one of these."""

    @wait(*types)
    def ask(data: str) -> str:
        return "What?"

    over = end("over")
    rows = [ask.done(over, of=kind) for kind in types] if len(types) > 1 else [ask.done(over)]
    flow = Flow("f", str, start=ask, rows=rows, store=runs)
    with pytest.raises(FlowSuspended) as suspended:
        flow.call("x", run_id="r")
    return suspended.value.run


def asked(*types: Any) -> Question:
    """The question of a flow that waits for one of these."""
    runs = Runs(MemoryStore())
    waiting(runs, *types)
    (question,) = runs.store.get("r").waits
    return question


def is_taken(answer: Callable[[], object]) -> bool:
    try:
        answer()
    except OutcomeError:
        return False
    return True


def answered(question: Question, values: dict[str, str], type: str = "") -> Any:
    form = forms.question_form(question)
    fields = [field for choice in form.choices if choice.name == type for field in choice.fields]
    given = {field.name: values[field.label] for field in fields if field.label in values}
    given |= {"type": type} if type else {}
    outcome = forms.outcome_from_form(question, {"kind": "returned", **given})
    assert isinstance(outcome, Returned)
    return json.loads(outcome.text)


def wrong_fields(act: Callable[[], Any]) -> set[str]:
    """The names of the fields that a form is refused for."""
    try:
        act()
    except ValueError as error:
        return {*getattr(error, "errors")}  # noqa: B009
    return set()


class TestAnswersWithoutTheirCode:
    """A store takes what the state reads, and nothing else: what its driver refuses, the poster never hears of."""

    @pytest.mark.parametrize(
        ("types", "text", "right"),
        [
            ((Approve, Reject), '{"Approve": {"by": "ann"}}', True),
            ((Approve, Reject), '["Approve", {"by": "ann"}]', True),
            ((Approve, Reject), '{"by": "ann", "reason": "dear"}', True),
            ((Approve, Reject), '{"by": "ann"}', False),
            ((Approve, Reject), '{"Approve": {"by": 3}}', False),
            ((Approve, Reject), '{"Approve": {"by": "ann"}, "Reject": {"by": "ann"}}', False),
            ((Approve, Reject), '{"Reject": {"by": "ann", "reason": null}}', False),
            ((Reject,), '{"by": "ann", "reason": null}', False),
            ((Count, Name, bool), '{"n": 3}', False),
            ((Count, Name, bool), '{"n": 3, "unit": "m"}', True),
            ((Count, Name, bool), "true", True),
            ((Count, Name, bool), '"3 m"', False),
            ((Yes, No), '{"kind": "no"}', True),
            ((Yes, No), '{"by": "ann"}', False),
            ((Open, Count), '{"by": "ann", "more": 1}', True),
            ((Open, Count), '{"Open": {"by": "ann", "n": 1}}', True),
            ((Box[int], Reject), '{"Box_int": {"value": 1, "by": "ann"}}', True),
            ((Approve, Book), '{"by": "ann"}', True),
            ((Annotated[Yes | No, Field(discriminator="kind")],), '{"kind": "no", "more": 1}', True),
            ((Annotated[Yes | No, Field(discriminator="kind")],), '{"kind": "maybe"}', False),
        ],
    )  # fmt: skip
    def test_are_taken_if_the_state_takes_them(self, types, text, right):
        runs = Runs(MemoryStore())
        run = waiting(runs, *types)
        (question,) = runs.store.get("r").waits
        answer = Returned(text=text)
        posted = is_taken(lambda: runs.answer("r", {question.key: answer}))
        assert (posted, is_taken(lambda: run.advance(question.key, answer))) == (right, right)

    @pytest.mark.parametrize(
        ("types", "text", "path"),
        [
            ((Reject,), '{"by": 3}', "by"),
            ((Approve, Reject), '{"Approve": {"by": 3}}', "Approve.by"),
            ((Approve, Reject), "3", "input"),
        ],
    )
    def test_a_value_that_does_not_fit_is_named_by_its_path(self, types, text, path):
        assert [at for at, _ in forms.misfit(asked(*types), Returned(text=text))] == [path]


class TestFormsBySchema:
    def test_a_model(self):
        question = asked(Order)
        kinds = {field.label: field.kind for field in forms.question_form(question).choices[0].fields}
        assert kinds == {"name": "string", "size": "choice", "count": "integer", "price": "number",
                         "is_gift": "boolean", "tags": "json", "kind": "choice"}  # fmt: skip
        values = {"name": "Ada", "size": '"small"', "count": "2", "price": "", "is_gift": "true", "tags": '["a"]'}
        right = {"name": "Ada", "size": "small", "count": 2, "is_gift": True, "tags": ["a"]}
        assert answered(question, values) == right
        assert answered(question, {**values, "price": "1.5", "kind": '"old"'}) == {**right, "price": 1.5, "kind": "old"}

    def test_a_field_of_json_has_its_description_or_says_what_json_it_takes(self):
        texts = {"type": "array", "items": {"type": "string"}}
        schema = {"properties": {"to": {**texts, "description": "The guests"}, "cc": texts}}
        about = json.dumps({"function": "f", "arguments": "{}"})
        question = Question("ask:1.0", "approval", about, ("approved", "modified"), json.dumps(schema))
        to, cc = forms.question_form(question).choices[0].fields
        assert (to.kind, to.hint, cc.kind, cc.hint) == ("json", "The guests", "json", "JSON: a list, each string")

    @pytest.mark.parametrize(
        ("wrong", "field"),
        [
            ({"name": "A"}, "name"), ({"count": "0"}, "count"), ({"count": "10"}, "count"), ({"count": "x"}, "count"),
            ({"size": '"huge"'}, "size"), ({"tags": "[1]"}, "tags"), ({"tags": "[[[["}, "tags"), ({"size": ""}, "size"),
            ({"price": "NaN"}, "price"), ({"price": "true"}, "price"), ({"is_gift": "perhaps"}, "is_gift"),
            ({"tags": "[" * 100_000}, "tags"), ({"count": "9" * 5_000}, "count"),
        ],
    )  # fmt: skip
    def test_what_is_wrong_is_told_of_its_field(self, wrong, field):
        question = asked(Order)
        values = {"name": "Ada", "size": '"small"', "count": "2", **wrong}
        names = {one.label: one.name for one in forms.question_form(question).choices[0].fields}
        assert wrong_fields(lambda: answered(question, values)) == {names[field]}

    @pytest.mark.parametrize("kind", [int, float, bool, Size, list[int]])
    def test_an_error_quotes_nothing_that_was_typed(self, kind):
        question = asked(kind)
        (field,) = forms.question_form(question).choices[0].fields
        with pytest.raises(OutcomeError) as caught:
            answered(question, {field.label: "hunter22"})
        assert "hunter22" not in str(caught.value)

    @pytest.mark.parametrize(
        ("kind", "text", "right"),
        [(str, "two\r\nlines", "two\nlines"), (int, "-3", -3), (float, "1e3", 1000.0), (bool, "false", False),
         (Size, '"large"', "large"), (list[int], "[1, 2]", [1, 2]), (dict[str, int], '{"a": 1}', {"a": 1})],
    )  # fmt: skip
    def test_one_value(self, kind, text, right):
        question = asked(kind)
        (field,) = forms.question_form(question).choices[0].fields
        assert answered(question, {field.label: text}) == right

    @pytest.mark.parametrize(
        "kind",
        [str | None, int | None, Size | None, list[int] | None, int | str | None, Approve | None, None,
         Annotated[str | None, Field(title="X")]],
    )  # fmt: skip
    def test_a_field_that_is_left_empty_is_null_if_it_may_be(self, kind):
        """The state needs a value for the field, because a missing field would be refused."""
        runs = Runs(MemoryStore())
        run = waiting(runs, create_model("Holder", held=(kind, ...), note=(str | None, None)))
        (question,) = runs.store.get("r").waits
        held, note = forms.question_form(question).choices[0].fields
        assert not held.is_needed
        outcome = forms.outcome_from_form(question, {"kind": "returned", held.name: "", note.name: ""})
        assert outcome == Returned(text='{"held": null}')
        runs.answer("r", {question.key: outcome})
        run.advance(question.key, outcome)

    @pytest.mark.parametrize(
        ("given", "rows"), [("x", 1), ("x\ny\nz", 3), ("x\r\ny", 2), ("x" * 999, 2), ("x\n" * 99, 12), ([], 2), (7, 1)]
    )
    def test_a_field_has_as_many_lines_as_its_value(self, given, rows):
        kinds = {str: {"type": "string"}, int: {"type": "integer"}, list: {"type": "array"}}
        about = json.dumps({"function": "f", "arguments": json.dumps({"a": given})})
        schema = json.dumps({"properties": {"a": kinds[type(given)]}})
        (field,) = forms.question_form(Question("ask:1.0", "approval", about, (), schema)).choices[0].fields
        assert field.rows == rows

    def test_several_types(self):
        question = asked(int, Order, bool)
        assert [choice.name for choice in forms.question_form(question).choices] == ["int", "Order", "bool"]
        buttons = [forms.question_form(one).has_button_each for one in (question, asked(int, bool), asked(bool))]
        assert buttons == [False, True, False]
        assert answered(question, {"int": "4"}, "int") == ["int", 4]
        assert answered(question, {"bool": "true"}, "bool") == ["bool", True]

    def test_a_damaged_question_has_a_form(self):
        schemas = ["", "{", "[]", "null", '{"properties": 3}', '{"properties": {"a": 7, "b": null}}', '{"anyOf": []}',
         '{"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}', '{"type": "object", "properties": {"a": '
         '{"$ref": "https://evil.example/x"}}}', '{"enum": [[[]]], "type": 7}', "[" * 100_000]  # fmt: skip
        for schema in schemas:
            for about in ("", "{", '{"types": 7}', '{"types": ["A", "B"]}', '{"question": 7}', "[]"):
                for kind, answers in (
                    ("answer", ("returned",)),
                    ("approval", ("approved", "denied")),
                    ("doubt", ()),
                    ("x", ()),
                ):
                    form = forms.question_form(Question("k", kind, about, answers, schema))
                    assert form.key == "k"
                    assert form.choices

    def test_arguments_that_fit_no_schema_are_written_as_json(self):
        about = json.dumps({"function": "f", "arguments": '{"a": 1, "b": [2]}'})
        question = Question("ask:1.0", "approval", about, ("approved", "modified", "denied"), "")
        (field,) = forms.question_form(question).choices[0].fields
        assert (field.kind, field.is_needed) == ("json", True)
        assert forms.outcome_from_form(question, {"kind": "approved", field.name: field.value}) == Approved()
        changed = forms.outcome_from_form(question, {"kind": "approved", field.name: '{"a": 2}'})
        assert changed == Modified('{"a": 2}')
        assert wrong_fields(lambda: forms.outcome_from_form(question, {"kind": "approved", field.name: "[1]"})) == {
            field.name
        }
        assert forms.outcome_from_form(question, {"kind": "denied", "reason": "no"}) == Denied("no")

    def test_an_untouched_field_changes_nothing_whatever_the_browser_sends_of_it(self):
        given = {"to": ["Ann\u202e", "Bob", "x" * 30_000], "text": "1\r\n2\r3\n", "n": 1}
        texts = {"type": "array", "items": {"type": "string"}}
        schema = {"properties": {"to": texts, "text": {"type": "string"}, "n": {"type": "integer"}}}
        about = json.dumps({"function": "f", "arguments": json.dumps(given)})
        question = Question("ask:1.0", "approval", about, ("approved", "modified"), json.dumps(schema))
        to, text, n = forms.question_form(question).choices[0].fields
        assert "\u202e" not in to.value
        assert text.rows > 1  # a line would lose its ends of lines
        sent = {field.name: "\r\n".join(field.value.splitlines()) for field in (to, n)}
        sent |= {"kind": "approved", text.name: "1\r\n2\r\n3\r\n"}
        assert forms.outcome_from_form(question, sent) == Approved()
        changed = forms.outcome_from_form(question, {**sent, n.name: "2"})
        assert json.loads(changed.arguments_json) == {**given, "n": 2}
        left_out = forms.outcome_from_form(question, {**sent, n.name: ""})
        assert json.loads(left_out.arguments_json) == {"to": given["to"], "text": given["text"]}

    @pytest.mark.parametrize("unseen", ["\u202e", "\u200b", "\U000e0041", "\u200c\u200d", "\x00"])
    def test_a_text_with_hidden_characters_is_shown_with_escapes(self, unseen):
        """Otherwise, a person would approve a text other than the one they read."""
        about = json.dumps({"function": "f", "arguments": json.dumps({"order": f"A-17{unseen}71-B"})})
        schema = json.dumps({"properties": {"order": {"type": "string"}}})
        question = Question("ask:1.0", "approval", about, ("approved", "modified"), schema)
        (field,) = forms.question_form(question).choices[0].fields
        assert (field.kind, field.value) == ("json", json.dumps(f"A-17{unseen}71-B"))
        sent = {"kind": "approved", field.name: field.value}
        assert forms.outcome_from_form(question, sent) == Approved()
        changed = forms.outcome_from_form(question, {**sent, field.name: field.value.replace("A", "B")})
        assert json.loads(changed.arguments_json) == {"order": f"B-17{unseen}71-B"}

    def test_joiners_in_words_and_emojis_are_shown_as_they_are(self):
        about = json.dumps(
            {"function": "f", "arguments": json.dumps({"to": "म\u094d\u200dष 👩\u200d💻 ❤\ufe0f\u200d🔥"})}
        )
        question = Question("ask:1.0", "approval", about, ("approved",), '{"properties":{"to":{"type":"string"}}}')
        (field,) = forms.question_form(question).choices[0].fields
        assert (field.kind, field.value) == ("string", "म\u094d\u200dष 👩\u200d💻 ❤\ufe0f\u200d🔥")

    def test_arguments_have_to_fit_their_schema(self):
        schema = {"properties": {"n": {"type": "integer", "maximum": 5}, "s": {"type": "string"}}, "required": ["n"]}
        about = json.dumps({"function": "f", "arguments": '{"n": 1}'})
        question = Question("ask:1.0", "approval", about, ("approved", "modified", "denied"), json.dumps(schema))
        n, s = forms.question_form(question).choices[0].fields
        assert forms.outcome_from_form(question, {"kind": "approved", n.name: "5", s.name: ""}) == Modified('{"n": 5}')
        assert wrong_fields(lambda: forms.outcome_from_form(question, {"kind": "approved", n.name: "6"})) == {n.name}

    def test_a_doubt_of_a_flow_is_answered_in_its_type(self):
        about = json.dumps({"function": "pay", "arguments": "{}", "types": ["int"]})
        doubt = Question("reconcile:pay#1", "doubt", about, ("returned", "run_again"), '{"type":"integer"}')
        (field,) = forms.question_form(doubt).choices[0].fields
        assert field.kind == "integer"
        assert forms.outcome_from_form(doubt, {"kind": "returned", field.name: "3"}) == Returned(text="3")


ARGUMENTS = {"n": 1, "to": "Ann", "api_key": "sk-abcdefghijklmnopqrstuvwx"}


class TestValues:
    """Answers that a client gives as JSON, without a form."""

    ALL = ("approved", "modified", "denied", "returned", "function_failed", "run_again", "cancelled")

    def question(self, kind: str = "approval", answers: tuple[str, ...] = ALL) -> Question:
        about = json.dumps({"function": "f", "arguments": json.dumps(ARGUMENTS)})
        return Question("ask:1.0", kind, about, answers, '{"properties": {"n": {"type": "integer"}}}')

    @pytest.mark.parametrize(
        ("changed", "became"),
        [
            (None, None),
            ({}, None),
            ({"api_key": "***"}, None),
            ({"n": 2}, {"n": 2}),
            ({"n": True}, {"n": True}),  # equal in Python
            ({"n": 2, "api_key": "***"}, {"n": 2}),
            ({"api_key": "other"}, {"api_key": "other"}),
        ],
    )
    @pytest.mark.parametrize("kind", ["approved", "modified"])
    def test_arguments_in_any_order_are_kept_where_they_are_masked_or_the_same(
        self, kind: str, changed: dict[str, Any] | None, became: dict[str, Any] | None
    ) -> None:
        masked = None if changed is None else dict(reversed([*{**ARGUMENTS, **changed}.items()]))
        outcome = forms.outcome_of(self.question(), kind, masked)
        if became is None:
            assert outcome == Approved()
        else:
            assert repr(json.loads(outcome.arguments_json)) == repr(dict(reversed([*{**ARGUMENTS, **became}.items()])))

    @pytest.mark.parametrize(
        ("kind", "value", "reason", "outcome"),
        [
            ("denied", None, "no", Denied("no")),
            ("returned", "a text", "", Returned(text="a text")),
            ("returned", {"a": "ä"}, "", Returned(text='{"a": "ä"}')),
            ("function_failed", None, "gone", FunctionFailed(text="gone")),
            ("run_again", None, "", RunAgain()),
            ("cancelled", None, "late", Cancelled(reason="late")),
        ],
    )
    def test_a_kind_becomes_its_outcome_if_the_question_takes_it(
        self, kind: str, value: Any, reason: str, outcome: Any
    ) -> None:
        assert forms.outcome_of(self.question("doubt"), kind, value, reason=reason) == outcome
        with pytest.raises(OutcomeError, match=kind):
            forms.outcome_of(self.question("doubt", tuple(set(self.ALL) - {kind})), kind, value, reason=reason)

    @pytest.mark.parametrize("value", [[1], "text", {"n": "many"}, {"n": 1.5}])
    def test_arguments_that_are_no_object_or_do_not_fit_are_refused(self, value: Any) -> None:
        with pytest.raises(OutcomeError):
            forms.outcome_of(self.question(), "approved", value)

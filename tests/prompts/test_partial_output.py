"""Is the output in a reply that is arriving valid as far as it goes, never withdrawn, and read in linear time?"""

from __future__ import annotations

import enum
import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, create_model, field_validator, model_validator
from support.examples import examples
from support.time_growth import growth

from fsm_agent import Agent, Prompt
from fsm_agent.messages import Done, PartialOutput
from fsm_agent.prompts import Output, first_of, json_anywhere, json_block, tagged, verbatim
from fsm_agent.prompts.partial_output import PartialReader
from fsm_agent.prompts.unions import tags_of
from fsm_agent.testing import Script


class Mood(enum.Enum):
    GOOD = "good"
    GOODISH = "goodish"


class Step(BaseModel):
    name: str
    minutes: int = 0


class Plan(BaseModel):
    title: str
    mood: Mood | None = None
    steps: list[Step] = []
    at: date | None = None


def arrived(reader: PartialReader, pieces: Sequence[str]) -> list[Any]:
    """Return the values that are given while the pieces of a text arrive, as they were then."""
    found: list[Any] = []
    for piece in pieces:
        with suppress(LookupError):  # of a validator that cannot take a part
            found.append(reader.feed(piece))
    return [json.loads(json.dumps(one[0])) for one in found if one is not None]


def letters(text: str, kind: Any = Plan, **options: Any) -> list[Any]:
    return arrived(PartialReader(Output(kind), **options), [*text])


def last(text: str, kind: Any = Plan, **options: Any) -> Any:
    found = letters(text, kind, **options)
    return found[-1] if found else None


class TestWhatIsGiven:
    def test_fields_items_and_texts_as_they_come(self):
        text = '{"title": "Tea", "mood": "goodish", "steps": [{"name": "boil", "minutes": 12}, {"name": "p'
        assert letters(text) == [
            {"title": ""},
            {"title": "T"},
            {"title": "Te"},
            {"title": "Tea"},
            {"title": "Tea", "mood": "goodish"},
            {"title": "Tea", "mood": "goodish", "steps": []},
            {"title": "Tea", "mood": "goodish", "steps": [{}]},
            *[{"title": "Tea", "mood": "goodish", "steps": [{"name": "boil"[:n]}]} for n in range(5)],
            {"title": "Tea", "mood": "goodish", "steps": [{"name": "boil", "minutes": 12}]},
            {"title": "Tea", "mood": "goodish", "steps": [{"name": "boil", "minutes": 12}, {}]},
            {"title": "Tea", "mood": "goodish", "steps": [{"name": "boil", "minutes": 12}, {"name": ""}]},
            {"title": "Tea", "mood": "goodish", "steps": [{"name": "boil", "minutes": 12}, {"name": "p"}]},
        ]

    def test_numbers_words_and_members_are_given_when_they_are_complete(self):
        for kind, text, value in [
            (list[int], "[1, 12", [1]),
            (list[int], "[1, 12,", [1, 12]),
            (list[bool | None], "[true, null", [True, None]),
            (list[str], '["a", "b\\u00', ["a", "b"]),
            (list[str], '["\\ud83d', [""]),
            (list[str], '["\\ud83d\\ude00', ["\U0001f600"]),
            (list[str], '["a\\', ["a"]),
            (list[str], '["a\\"]", "\\\\", "b', ['a"]', "\\", "b"]),
            (list[Mood], '["good', None),
            (list[Mood], '["good"', ["good"]),
            (list[Literal["a", "ab"]], '["ab", "a', ["ab"]),
            (list[Literal["x"] | str], '["y', ["y"]),
            (dict[str, int], '{"a": 1, "b', {"a": 1}),
            (dict[str, list[str]], '{"a": ["x', {"a": ["x"]}),
            (tuple[int, str], '[1, "a', [1, "a"]),
            (Any, '{"a": [{"b": "c', {"a": [{"b": "c"}]}),
            (list[Annotated[str, Field(pattern="^a+$")]], '["aa", "a', ["aa"]),
            (list[Annotated[str, Field(max_length=3)]], '["a", "bcde', ["a", "bc"]),
        ]:
            assert last(text, kind) == value
        assert repr(last('[NaN, {"a": 1, "b', Any)) == "[nan, {'a': 1}]"

    def test_an_escape_may_arrive_in_two_pieces(self):
        text = 'So [see {"title": "say \\"}\\" twice"}'
        for cut in range(1, len(text)):
            found = arrived(PartialReader(Output(Plan)), [text[:cut], text[cut:]])
            assert found[-1] == {"title": 'say "}" twice'}

    def test_wrapped_values_are_given_bare(self):
        for kind, text, value in [
            (int, '{"value": 12', None),
            (int, '{"value": 12}', 12),
            (Mood, '{"value": "good', None),
            (Mood, '{"value": "good"', "good"),
            (list[Step], '{"value": [{"name": "b', [{"name": "b"}]),
            (list[Step], '[{"name": "b', [{"name": "b"}]),
            (int | str, '{"value": "ab', "ab"),
            (Step | list[int], '{"value": [1, 2,', [1, 2]),
            (Step | list[int], '{"name": "x', {"name": "x"}),
        ]:
            assert last(text, kind) == value

    def test_a_value_that_may_be_wrapped_or_not_waits_until_that_is_clear(self):
        class Reading(BaseModel):
            value: int
            unit: str = ""

        assert last('{"value": {"value": 5, "unit": "m"}', Reading | Step) is None
        assert last('{"value": {"value": 5, "unit": "m"}}', Reading | Step) == {"value": 5, "unit": "m"}
        assert last('{"value": 5, "unit": "m"}', Reading | Step) == {"value": 5, "unit": "m"}
        assert last('{"value": 5, "un', Reading) == {"value": 5}


class TestWhatIsWrong:
    def test_nothing_more_is_given_once_something_is_wrong(self):
        for text, value in [
            ('{"title": "Tea", "mood": "bad", "steps": [', {"title": "Tea"}),
            ('{"title": "Tea", "steps": [{"minutes": 5}, {"name": "x', {"title": "Tea", "steps": [{}]}),
            ('{"title": "Tea" "mood": "good"}', {"title": "Tea"}),
            ('{"title": "Tea", "title": "Coffee"}', {"title": "Tea"}),
            ('{"title": 5, "steps": []', None),
            ("[[1, 2], [3", None),
        ]:
            assert last(text) == value

    def test_unknown_names_are_wrong_where_the_type_says_so(self):
        class Strict(BaseModel):
            model_config = ConfigDict(extra="forbid")
            a: int

        class Open(BaseModel):
            a: int

        assert letters('{"a": 1, "b": 2, "c": 3}', Strict) == [{"a": 1}]
        assert last('{"a": 1, "b": 2}', Open) == {"a": 1, "b": 2}

    def test_unions_need_one_member_that_fits(self):
        class Cat(BaseModel):
            kind: Literal["cat"]
            meows: bool

        class Dog(BaseModel):
            kind: Literal["dog"]
            name: str

        assert last('{"kind": "dog", "name": "Re', Cat | Dog) == {"kind": "dog", "name": "Re"}
        assert last('{"kind": "cow", "name": "Re', Cat | Dog) is None
        assert last('{"kind": "dog", "meows": true}', Cat | Dog) == {"kind": "dog"}
        assert last('[{"kind": "cat", "meows": true}, {"kind": "dog", "na', list[Cat | Dog]) == [
            {"kind": "cat", "meows": True},
            {"kind": "dog"},
        ]
        assert last('[{"kind": "cat"}, {"kind": "dog", "na', list[Cat | Dog]) == [{"kind": "cat"}]
        tagged_union = create_model("Pet", pet=(Cat | Dog, Field(discriminator="kind")))
        assert last('{"pet": {"name": "Rex", "kind": "dog"', tagged_union) == {"pet": {"name": "Rex", "kind": "dog"}}
        assert last('{"pet": {"name": "Rex", "kind": "cow"', tagged_union) == {"pet": {"name": "Rex"}}

    def test_checks_of_values_that_are_not_complete_wait(self):
        class Span(BaseModel):
            low: int
            high: int
            words: list[str] = Field(min_length=2, default=[])

            @field_validator("low")
            @classmethod
            def is_above(cls, low: int, info: ValidationInfo) -> int:
                if low < (info.context or {}).get("least", 0):
                    raise ValueError("too low")
                return low

            @model_validator(mode="after")
            def is_ordered(self) -> Span:
                assert self.low <= self.high
                return self

        assert last('{"low": 1, "high": 2, "words": ["a', Span) == {"low": 1, "high": 2, "words": ["a"]}
        assert last('{"low": 1, "high": 2, "words": ["a"], ', Span) == {"low": 1, "high": 2, "words": ["a"]}
        assert last('{"low": 1, "high": 2', Span, context={"least": 2}) is None
        assert letters('{"low": 3, "high": 2}', Span)[-1] == {"low": 3}

    def test_a_validator_that_cannot_take_a_part_is_asked_at_the_end(self):
        class Rough(BaseModel):
            a: int
            b: int

            @model_validator(mode="before")
            @classmethod
            def has_all(cls, data: Any) -> Any:
                return {"a": data["a"], "b": data["b"]}

        assert letters('{"a": 1, "b": 2}', Rough) == [{"a": 1, "b": 2}]


class TestParsers:
    def test_the_first_strategy_says_where_the_answer_begins(self):
        block = first_of(json_block, expect=Step)
        for parser, text, value in (
            (first_of(json_anywhere, expect=Step), 'So {"name": "x', {"name": "x"}),
            (
                first_of(tagged("answer"), json_anywhere, expect=Step),
                '{"name": "no"} <answer> {"name": "x',
                {"name": "x"},
            ),
            (first_of(tagged("answer"), expect=Step), '<answer id="a">so {"name": "x', None),
            (block, '{"name": "no"}\n```json\n{"name": "x', {"name": "x"}),
            (block, '```python\n{"name": "x', None),
        ):
            found = arrived(parser.arriving({}), [*text])
            assert (found[-1] if found else None) == value

    def test_others_are_read_at_the_end_alone(self):
        for parser in (first_of(tagged("answer")), first_of(verbatim, expect=Step), json_anywhere):
            assert parser.arriving({}) is None


class Typed(NamedTuple):
    """A type, its values as JSON data, and the beginnings of these that may be given."""

    type: Any
    values: st.SearchStrategy[Any]
    begins: Callable[[Any, Any], bool]  # whether the first may be given while the second is arriving


def _same(part: Any, whole: Any) -> bool:
    return type(part) is type(whole) and part == whole


def _text_begins(part: Any, whole: Any) -> bool:
    return isinstance(part, str) and isinstance(whole, str) and whole.startswith(part)


def _list_of(inner: Typed) -> Typed:
    def begins(part: Any, whole: Any) -> bool:
        return (
            isinstance(part, list)
            and len(part) <= len(whole)
            and all(inner.begins(x, y) for x, y in zip(part, whole, strict=False))
            and part[:-1] == whole[: len(part) - 1][: len(part[:-1])]
        )

    return Typed(list[inner.type], st.lists(inner.values, max_size=4), begins)


def _dict_of(inner: Typed) -> Typed:
    def begins(part: Any, whole: Any) -> bool:
        return isinstance(part, dict) and all(
            name in whole and inner.begins(item, whole[name]) for name, item in part.items()
        )

    return Typed(dict[str, inner.type], st.dictionaries(st.text(max_size=5), inner.values, max_size=4), begins)


def _model_of(fields: list[Typed], *, is_open: bool) -> Typed:
    named = {f"f{n}": field for n, field in enumerate(fields)}
    config = ConfigDict(extra="ignore" if is_open else "forbid")
    made = create_model(
        f"Made{next(NUMBERS)}", __config__=config, **{name: (field.type, ...) for name, field in named.items()}
    )

    def begins(part: Any, whole: Any) -> bool:
        return isinstance(part, dict) and all(
            name in named and name in whole and named[name].begins(item, whole[name]) for name, item in part.items()
        )

    return Typed(made, st.fixed_dictionaries({name: field.values for name, field in named.items()}), begins)


def _either(one: Typed, other: Typed) -> Typed:
    return Typed(
        one.type | other.type,
        one.values | other.values,
        lambda part, whole: one.begins(part, whole) or other.begins(part, whole),
    )


def _have_no_tags(pair: tuple[Typed, Typed]) -> bool:
    one, other = pair
    return one.type is not other.type and not any(tags_of([one.type, other.type]))


NUMBERS = itertools.count()
SCALARS = [
    Typed(str, st.text(max_size=8), _text_begins),
    Typed(int, st.integers(-(10**12), 10**12), _same),
    Typed(float, st.floats(allow_nan=False, allow_infinity=False), _same),
    Typed(bool, st.booleans(), _same),
    Typed(type(None), st.none(), _same),
    Typed(Mood, st.sampled_from(["good", "goodish"]), _same),
    Typed(Literal["a", "ab", 1], st.sampled_from(["a", "ab", 1]), _same),
    Typed(date, st.dates().map(str), _same),
]
TYPES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        inner.map(_list_of),
        inner.map(_dict_of),
        st.builds(_model_of, st.lists(inner, min_size=1, max_size=3), is_open=st.booleans()),
        st.tuples(inner, inner).filter(_have_no_tags).map(lambda pair: _either(*pair)),
    ),
    max_leaves=6,
)
AROUND = ["%s", "Here: %s Bye.", "```json\n%s\n```", "<answer>%s</answer>", "a {b} c, see [x]: %s"]


def cut(data: st.DataObject, text: str) -> list[str]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=40)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(st.data())
@examples(100)
def test_what_is_given_only_grows_into_the_answer(data):
    kind = data.draw(TYPES.filter(lambda kind: kind.type is not str))  # whose answers are no JSON
    value = data.draw(kind.values)
    is_wrapped = not isinstance(value, dict | list) or (Output(kind.type).is_wrapped and data.draw(st.booleans()))
    document = json.dumps(
        {"value": value} if is_wrapped else value,
        ensure_ascii=data.draw(st.booleans()),
        indent=data.draw(st.sampled_from([None, 1])),
    )
    around = data.draw(st.sampled_from(AROUND))
    text = around % document
    output = Output(kind.type)
    found = arrived(PartialReader(output), cut(data, text))
    for before, after in itertools.pairwise(found):
        assert grows(before, after)
        assert before != after
    for part in found:
        assert kind.begins(part, value), (part, value)
    if value not in ([], {}):
        assert found, "the whole is given at least"
        assert found[-1] == value
        assert output.parse(json.dumps(found[-1])) == output.parse(text)


def grows(before: Any, after: Any) -> bool:
    """Return whether nothing is withdrawn; told apart from the code by writing both as lists of leaves."""
    return all(
        any(
            path == p and (kind_of(x) == kind_of(y)) and (y.startswith(x) if isinstance(x, str) else x == y or x != x)
            for p, y in leaves(after)
        )
        for path, x in leaves(before)
    )


def kind_of(value: Any) -> type:
    return type(value)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict):
        return [(path, "{"), *[leaf for name, item in value.items() for leaf in leaves(item, (*path, name))]]
    if isinstance(value, list):
        return [(path, "["), *[leaf for n, item in enumerate(value) for leaf in leaves(item, (*path, n))]]
    return [(path, value)]


JUNK = st.lists(
    st.sampled_from(
        [
            *("{", "}", "[", "]", '"', "\\", ",", ":", " ", "1", "12", "true", "nul", "NaN", "-", "\\u00", "e9"),
            *('"title"', '"title": "a"', '{"title": "', '"mood": "good"', '"steps": [', '{"name": "b"}'),
            *("```json\n", "<answer>", "</answer>"),
        ]
    ),
    max_size=40,
).map("".join)


@given(st.data(), JUNK, st.sampled_from([Plan, list[Plan], list[Any], dict[str, Any], Plan | Step, int | Plan, Any]))
@examples(120)
def test_nothing_is_withdrawn_whatever_comes(data, text, kind):
    for opening in ("", "<answer>"):
        found = arrived(PartialReader(Output(kind), opening), cut(data, text))
        assert all(map(grows, found, found[1:]))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "unit",
    [
        '{"name": "abcdefghi", "minutes": 5}, ',
        *("[", '"', "{", "\\", '{"name": "', "[]", "{}", '[{"a', "1", "\n```json\n"),
    ],
)
@pytest.mark.parametrize("opening", ["", "<answer>", json_block.opening])
def test_the_time_is_linear_in_the_reply(unit, opening):
    def fed(text: str) -> None:
        reader = PartialReader(Output(list[Step]), opening)
        for at in range(0, len(text), 10):
            reader.feed(text[at : at + 10])

    assert growth(lambda size: "[" + unit * (size // len(unit)), fed, 3000) < 3


def steps_of(size: int) -> str:
    return "[" + '{"name": "abcdefghi", "minutes": 5}, ' * (size // 37) + '{"name": "last", "minutes": 1}]'


def test_a_call_and_a_stream_refuse_what_is_too_long_alike():
    def agent() -> Agent[Any, Any]:
        return Agent(Script(steps_of(5_000), "[]"))

    prompt = Prompt("?", output=list[Step], max_length=1000)
    events = list(agent().stream(prompt))
    assert any(isinstance(event, PartialOutput) for event in events)
    (done,) = [event for event in events if isinstance(event, Done)]
    assert done.result.record == agent().call(prompt).record

"""Are arguments checked against the supported part of a JSON Schema?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.time_growth import growth

from fsm_agent.functions import Function

STRING, INTEGER = {"type": "string"}, {"type": "integer"}
DEFINITIONS = {
    "$defs": {
        "Point": {"type": "object", "properties": {"x": INTEGER}, "required": ["x"]},
        "Tree": {"type": "object", "properties": {"next": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}},
    },
    "definitions": {"a/b~c": INTEGER},
}
ANY_SCHEMA = st.recursive(
    st.sampled_from([STRING, INTEGER, {}, True, None, 5, "x", [], {"$ref": "#/$defs/A"}, {"$ref": "#"}, {"enum": [1]}]),
    lambda inner: (
        st.dictionaries(
            st.sampled_from(["anyOf", "allOf", "oneOf", "type", "enum", "required", "pattern", "minLength", "const"]),
            st.lists(inner, max_size=3) | inner,
            max_size=3,
        )
        | st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("abc"), inner)}
        )
        | st.fixed_dictionaries({"type": st.just("object"), "additionalProperties": inner})
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
    ),
    max_leaves=8,
)


DRAFTS: list[tuple[Any, Any]] = [  # a property's schema of another draft, and the current draft of it
    ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, {"type": "number", "exclusiveMinimum": 0}),
    ({"type": "number", "maximum": 9, "exclusiveMaximum": False}, {"type": "number", "maximum": 9}),
    ({"exclusiveMinimum": True}, {}),
    ({"type": "object", "properties": None, "required": None, "$defs": None}, {"type": "object"}),
    ({"type": "string", "enum": None, "description": None, "anyOf": None}, STRING),
    ({"type": "array", "items": {"anyOf": [{"type": None}]}}, {"type": "array", "items": {"anyOf": [{}]}}),
    ({"type": "array", "items": [{"title": None}, STRING]}, {"type": "array", "items": [{}, STRING]}),
    *[(values, values) for values in ({"const": None}, {"default": None}, {"enum": [None]}, {"default": {"a": None}})],
    ({"x-a": None, "x-b": {"c": None}}, {"x-a": None, "x-b": {"c": None}}),
]


@pytest.mark.parametrize(("given", "current"), DRAFTS)
def test_a_schema_of_another_draft_is_sent_in_the_current_one(given: Any, current: Any) -> None:
    whole = {"type": "object", "properties": {"a": given}, "title": None}
    kept = json.dumps(whole)
    assert Function(name="f", parameters=whole).parameters == {"type": "object", "properties": {"a": current}}
    assert json.dumps(whole) == kept


CHECKED: list[tuple[Any, list[Any], list[Any]]] = [  # a schema, what it allows, and what it does not
    (STRING, ["", "a"], [1, None, ["a"], {}]),
    (INTEGER, [1, -1, 10**30, 2.0, "5"], [1.5, "a", [1]]),
    ({"type": "number"}, [0, 1.5], ["a", {}, float("nan"), float("inf"), "Infinity"]),
    ({"type": "boolean"}, [True, "false"], ["perhaps", 5, []]),
    ({"type": "null"}, [None], [0, ""]),
    ({"type": ["string", "null"]}, ["a", None], [1]),
    ({"enum": ["a", 1, None]}, ["a", 1, None], ["b", 2]),
    ({"type": "string", "enum": ["a"]}, ["a"], ["A", 1]),
    ({"enum": [{"a": 1}, [2], 1.5]}, [{"a": 1}, [2], 1.5], [{"a": 2}, [], 1]),
    ({"const": "a"}, ["a"], ["b", 1, None]),
    ({"type": "string", "nullable": True}, ["a", None], [1]),
    ({"type": "integer", "default": "any"}, [1, "any"], ["some"]),
    ({"type": "array", "items": INTEGER}, [[], [1, 2]], [1, "1", ["a"], {}]),
    ({"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 2}, [[1], [1, 2]], [[], [1, 2, 3]]),
    ({"anyOf": [STRING, {"type": "array", "items": STRING}]}, ["a", ["b"]], [1, [1]]),
    ({"oneOf": [INTEGER, {"type": "null"}]}, [1, None], ["a"]),
    ({"allOf": [STRING, {"type": "string", "maxLength": 1}]}, ["a"], ["ab", 1]),
    ({"type": "object"}, [{}, {"a": 1}], [1, []]),
    ({"type": "object", "properties": {"b": INTEGER}}, [{}, {"b": 1}, {"b": None}, {"c": 1}], [{"b": "x"}]),
    ({"type": "object", "properties": {"b": INTEGER}, "required": ["b", "c"]}, [{"b": 1, "c": 2}], [{"b": 1}]),
    ({"type": "object", "additionalProperties": False}, [{}], [{"a": 1}]),
    ({"type": "object", "additionalProperties": INTEGER}, [{}, {"a": 1}], [{"a": "x"}, 5]),
    ({"type": "integer", "minimum": 2, "exclusiveMaximum": 5}, [2, 4], [1, 5]),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 1.5}, [1.5, 1], [0, 2, 1.6]),
    ({"type": "integer", "minimum": 1.5, "maximum": 2.5}, [2], [1, 3]),
    ({"type": "integer", "exclusiveMinimum": 1.5, "exclusiveMaximum": 3.5}, [2, 3], [1, 4]),
    ({"type": "string", "minLength": 1, "maxLength": 2}, ["a", "ab"], ["", "abc"]),
    ({"type": "string", "minLength": 0, "maxLength": 0}, [""], ["a"]),
    ({"type": "string", "pattern": "^a+$"}, ["a", "aa"], ["b", "ab"]),
    ({"$ref": "#/$defs/Point"}, [{"x": 1}], [{"x": "a"}, {}, 5]),
    ({"$ref": "#/definitions/a~1b~0c"}, [1], ["x"]),
    ({"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]}, [None, {"x": 1}], [{}, 5]),
    ({"$ref": "#/$defs/Tree"}, [{"next": [{"next": []}]}, {}], [{"next": [{"next": 5}]}, {"next": [1]}]),
    ({"$ref": "#"}, [{"a": {"a": 1}}], [5]),
    # what is not read, or makes no sense, is not checked
    *[(schema, [1, None, {}], []) for schema in ({}, True)],
    *[({"$ref": ref}, [1, None, {}], []) for ref in ("#/$defs/Unread", "#/required/1", "https://else/where")],
    *[({"type": kind, name: wrong}, [right], []) for kind, name, wrong, right in (
        ("string", "pattern", "(?=a)b", "c"), ("string", "maxLength", -1, "abc"), ("integer", "minimum", "x", 1),
        ("number", "minimum", float("inf"), 1), ("array", "minItems", -1, []), ("array", "maxItems", "x", [1]),
        ("object", "required", [5], {}), ("object", "properties", 5, {}), ("array", "items", 5, [1]),
    )],
]  # fmt: skip


class TestSchemaOnly:
    def test_what_the_schema_says_is_checked(self):
        for schema, right, wrong in CHECKED:
            parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"], **DEFINITIONS}
            made = Function(name="f", parameters=parameters)
            for value in right:
                assert made.refusal(json.dumps({"a": value})) is None, schema
            for value in wrong:
                assert made.refusal(json.dumps({"a": value})).startswith("a"), schema
            assert made.refusal("{}").startswith("a: ")
            assert made.parameters is parameters

    def test_the_bounds_of_draft_4_are_checked(self):
        for is_exclusive, least in ((True, 1), (False, 0)):
            bounded = {"type": "integer", "minimum": 0, "exclusiveMinimum": is_exclusive}
            made = Function(name="f", parameters={"type": "object", "properties": {"a": bounded}})
            assert made.refusal(json.dumps({"a": least})) is None
            assert made.refusal(json.dumps({"a": least - 1})).startswith("a")

    def test_a_wrong_number_is_one_problem_of_its_field(self):
        for number in ({"type": "number"}, {"anyOf": [{"type": "number"}, {"type": "null"}]}):
            made = Function(name="f", parameters={"type": "object", "properties": {"a": number}})
            assert [line[:3] for line in made.refusal('{"a": "x"}').splitlines()] == ["a: "], number

    def test_what_is_not_required_may_be_null(self):
        made = Function(name="f", parameters={"properties": {"a": INTEGER}, "additionalProperties": False})
        assert made.refusal('{"a": null}') is None
        assert made.refusal("{}") is None
        assert [line[:3] for line in made.refusal('{"a": "x", "b": 1}').splitlines()] == ["a: ", "b: "]

    def test_a_schema_that_makes_no_sense_checks_for_an_object(self):
        for schema in ({"enum": []}, {"enum": [{"a": 1}]}, {"anyOf": []}, {"anyOf": 5}, {"type": []}, {"type": 5}):
            made = Function(name="f", parameters={"type": "object", "properties": {"a": schema}})
            assert made.refusal("{}") is None
            assert made.refusal("[]").startswith("input: ")

    @pytest.mark.parametrize(
        ("wrap", "nest"),
        [
            (lambda schema: {"type": ["array"], "items": schema}, lambda value: [value]),
            (lambda schema: {"anyOf": [schema]}, lambda value: value),
            (lambda schema: {"type": "object", "properties": {"b": schema}}, lambda value: {"b": value}),
        ],
        ids=["array", "anyOf", "object"],
    )
    def test_schemas_are_read_to_some_depth(self, wrap, nest):
        schema, wrong = INTEGER, "x"
        for depth in range(5000):
            schema = wrap(schema)
            if depth < 3:
                wrong = nest(wrong)
                made = Function(name="f", parameters={"properties": {"a": schema}})
                assert "integer" in made.refusal(json.dumps({"a": wrong}))
        made = Function(name="f", parameters={"properties": {"a": schema}})
        wrong = "x"
        for _ in range(40):
            wrong = nest(wrong)
        assert made.refusal(json.dumps({"a": wrong})) is None


def many(definition: Any) -> dict[str, Any]:
    """A schema that refers to one definition again and again."""
    return {"properties": {f"p{n}": {"$ref": "#/$defs/A"} for n in range(4_000)}, "$defs": {"A": definition}}


def patterned(n: int, pattern: str) -> dict[str, Any]:
    return patterned_with(*[pattern % (i + 1) for i in range(n)])


def patterned_with(*patterns: str) -> dict[str, Any]:
    return {"properties": {f"p{n}": {"type": "string", "pattern": pattern} for n, pattern in enumerate(patterns)}}


def named(n: int) -> list[str]:
    return [f"p{i}" for i in range(n)]


# What may grow in a schema that means harm.
SHAPES: dict[str, Callable[[int], dict[str, Any]]] = {
    "required": lambda n: {"required": named(n)},
    "required and properties": lambda n: {"required": named(n), "properties": dict.fromkeys(named(n), INTEGER)},
    "required of a definition": lambda n: many({"type": "object", "required": named(n)}),
    "required that are no names": lambda n: many({"type": "object", "required": [5] * n}),
    "properties of a definition": lambda n: many({"type": "object", "properties": {key: {} for key in named(n)}}),
    "enum": lambda n: many({"enum": named(n)}),
    "anyOf": lambda n: many({"anyOf": [INTEGER] * n}),
    "allOf": lambda n: many({"allOf": [INTEGER] * n}),
    "types": lambda n: many({"type": ["string"] * n}),
    "types of what says much": lambda n: many({"type": ["object", "string"], **dict.fromkeys(named(n), 1)}),
    "a long reference": lambda n: many({"$ref": "#/$defs" + "/x" * n}),
    "definitions that double": lambda n: {
        "properties": {"a": {"$ref": "#/$defs/A0"}},
        "$defs": {f"A{i}": {"anyOf": [{"$ref": f"#/$defs/A{i + 1}"}] * 2} for i in range(n)},
    },
    "patterns": lambda n: patterned(n, r"\w{190}x{%d}"),
    "patterns in patterns": lambda n: patterned(n, r"(((\w{9}){9}){9}){9}x{%d}"),
    "patterns of patterns": lambda n: patterned(n, r"\w{9}{9}{9}{9}x{%d}"),
    "a long pattern": lambda n: patterned(1, r"\w" * n + "{%d}"),
    "small patterns": lambda n: patterned(n, "^[a-z]{%d}$"),
}


class TestHostileSchemas:
    """A schema may come from a stranger: an MCP server, a file."""

    def test_one_of_any_shape_is_read(self):
        for shape in SHAPES.values():
            assert isinstance(Function(name="f", parameters=shape(20)).refusal("{}"), str | None)

    @pytest.mark.nightly
    @pytest.mark.parametrize("size", [10_000, 40_000])
    @pytest.mark.parametrize("shape", SHAPES)
    def test_one_is_read_in_bounded_time(self, shape, size):
        """Never in more than a second or two, and not in longer for four times the size."""
        parameters = json.loads(json.dumps(SHAPES[shape](size)))  # no part is another
        started_s = time.thread_time()
        Function(name="f", parameters=parameters).refusal("{}")
        assert time.thread_time() - started_s < 2

    def test_patterns_are_checked_as_long_as_they_cost_little(self):
        checked = [
            r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
            r"^\d{4}-\d{2}-\d{2}$",
            "^(a{9}){9}$",
        ]
        costly = [r"^\w{300}$", r"^(\w{10}){20}$", r"^\w{10}{20}$"]
        made = Function(name="f", parameters=patterned_with(*checked, *costly, "^a$"))
        refusals = [made.refusal(json.dumps({f"p{n}": "-"})) for n in range(7)]
        assert [n for n, refusal in enumerate(refusals) if refusal is None] == [3, 4, 5]
        assert refusals[6].startswith("p6: ")
        many = Function(name="f", parameters=patterned_with(*[rf"^\w{{{150 + n}}}$" for n in range(9)]))
        refusals = [many.refusal(json.dumps({f"p{n}": "-"})) is not None for n in range(9)]
        assert (refusals[0], refusals[-1]) == (True, False), "all of a schema together may cost so much"

    def test_what_is_not_read_may_be_anything(self):
        parameters = {"required": named(3), "properties": dict.fromkeys(named(20_000), INTEGER)}
        made = Function(name="f", parameters={**parameters, "additionalProperties": False})
        assert made.refusal('{"p0": 1, "p1": 1}').startswith("p2: ")
        assert made.refusal('{"p0": 1, "p1": 1, "p2": 1, "p19999": "x", "y": 1}') is None
        made = Function(name="f", parameters={"properties": {"a": {"enum": named(6_000)}, "b": INTEGER}})
        assert made.refusal('{"a": "p5999"}') is None
        made = Function(name="f", parameters={"properties": {"a": {"anyOf": [INTEGER] * 6_000}}})
        assert made.refusal('{"a": "x"}') is None

    @examples(60)
    @given(ANY_SCHEMA, ANY_SCHEMA, st.sampled_from(['{"a": 1}', '{"a": {"a": "x"}}', '{"a": [[]]}', "{}", "[1]"]))
    def test_any_schema_makes_a_function(self, schema, other, arguments):
        parameters = {"type": "object", "properties": {"a": schema}, "$defs": {"A": other}}
        refusal = Function(name="f", parameters=parameters).refusal(arguments)
        assert refusal is None or refusal

    SELVES: ClassVar = {
        "itself": {"$ref": "#/$defs/A"},
        "either": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]},
        "both": {"allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]},
        "others": {"type": "object", "additionalProperties": {"$ref": "#/$defs/A"}},
        "wide": {"type": "object", "properties": {key: {"$ref": "#/$defs/A"} for key in "abcdefghij"}},
        "branching": {
            "anyOf": [{"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "title": t} for t in "abc"]
        },
    }

    @staticmethod
    def deep(size: int) -> str:
        flat = ",".join(['{"a":{"a":{"a":1}}}'] * (size // 20))
        return '{"a":' * 60 + f"[{flat}]" + "}" * 60

    def test_what_refers_to_itself_is_read(self):
        for definition in self.SELVES.values():
            parameters = {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": definition}}
            made = Function(name="f", parameters=parameters)
            assert made.refusal('{"a": {}}') is None
            assert isinstance(made.refusal(self.deep(100)), str | None)

    @pytest.mark.nightly
    @pytest.mark.parametrize("shape", SELVES)
    def test_what_refers_to_itself_is_checked_in_linear_time(self, shape):
        parameters = {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": self.SELVES[shape]}}
        assert growth(self.deep, Function(name="f", parameters=parameters).refusal, 5_000) < 3

    def test_definitions_that_double_each_other_are_read_to_some_size(self):
        definitions = {f"A{n}": {"anyOf": [{"$ref": f"#/$defs/A{n + 1}"}] * 2} for n in range(50)}
        made = Function(name="f", parameters={"properties": {"a": {"$ref": "#/$defs/A0"}}, "$defs": definitions})
        assert made.refusal('{"a": 1}') is None

    def test_what_cannot_be_encoded_leaves_just_the_object_to_check(self):
        for schema in ({"enum": ["\ud800"]}, {"type": "object", "properties": {"\ud800": {}}}):
            made = Function(name="f", parameters={"properties": {"a": schema, "b": INTEGER}})
            assert made.refusal('{"a": 1, "b": "x"}') is None
            assert made.refusal("[]").startswith("input: ")

"""Is a Python callable described correctly to a model?"""

from __future__ import annotations

import functools
import json
import sys
import typing
from collections.abc import Callable
from datetime import date
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, Optional, Required, TypeVar

import pytest
from argument_types import Color, Opaque, Point, Query
from pydantic import BaseModel, Field
from typing_extensions import Doc, TypedDict, Unpack

from fsm_agent.call import Request
from fsm_agent.errors import ParseError, UsageError
from fsm_agent.functions import Function, function
from fsm_agent.messages import Message
from fsm_agent.providers import OpenAIChatCodec, Profile

if typing.TYPE_CHECKING:
    from nowhere import Unknown

T = TypeVar("T")


class Filters(TypedDict, total=False):
    limit: Required[int]
    kind: Annotated[str, Field(description="Of what kind")]


def properties(call: Any, **options: Any) -> dict[str, Any]:
    return dict(Function.of(call, **options).parameters["properties"])


def schema(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties, all required."""
    return {
        "type": "object",
        "properties": {name: {"title": name.title(), **given} for name, given in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


class TestSchema:
    def test_a_typical_function(self):
        def weather(city: str, days: int = 3, unit: Literal["C", "F"] = "C") -> str:
            """Tell the weather.

            It is a forecast.

            Args:
                city: Where, with
                    its country.
                days: How many.
            """

        made = Function.of(weather)
        assert made.name == "weather"
        assert made.description == "Tell the weather.\n\nIt is a forecast."
        assert made.parameters == {
            "type": "object",
            "properties": {
                "city": {"title": "City", "type": "string", "description": "Where, with\nits country."},
                "days": {"title": "Days", "type": "integer", "description": "How many.", "default": 3},
                "unit": {"title": "Unit", "type": "string", "enum": ["C", "F"], "default": "C"},
            },
            "required": ["city"],
            "additionalProperties": False,
        }
        assert (made.is_async, made.blocking, made.needs_approval, made.repeatable) == (False, True, None, False)

    def test_every_kind_of_annotation(self):
        def f(
            plain,
            number: Annotated[float, Field(ge=0, description="Not negative.")],
            kind: Literal["a", 1, None],
            color: Color,
            perhaps: Optional[int],  # noqa: UP045
            query: Query,
            points: list[Point],
            free: T,
        ): ...

        made = Function.of(f).parameters
        assert made["properties"] == {
            "plain": {"title": "Plain"},
            "number": {"title": "Number", "type": "number", "minimum": 0, "description": "Not negative."},
            "kind": {"title": "Kind", "enum": ["a", 1, None]},
            "color": {"$ref": "#/$defs/Color"},
            "perhaps": {"title": "Perhaps", "anyOf": [{"type": "integer"}, {"type": "null"}]},
            "query": {"$ref": "#/$defs/Query"},
            "points": {"title": "Points", "type": "array", "items": {"$ref": "#/$defs/Point"}},
            "free": {"title": "Free"},
        }
        assert set(made["$defs"]) == {"Color", "Point", "Query"}
        assert made["required"] == list(made["properties"])

    def test_defaults_are_in_the_schema_as_json(self):
        def f(
            a=None,
            b: int = 2,
            c: Color = Color.BLUE,
            d: Point = Point(x=1),  # noqa: B008
            e: set[int] = frozenset({1}),
            f: Path = Path("a"),
            unsayable: Any = object(),  # noqa: B008
            infinite: float = float("inf"),
            undefined: float = float("nan"),
            raw: bytes = b"\xff",
            broken: str = "\ud800",
        ):
            return locals()

        made = Function.of(f)
        said = {key: value["default"] for key, value in made.parameters["properties"].items() if "default" in value}
        assert said == {"b": 2, "c": "blue", "d": {"x": 1, "y": 0}, "e": [1], "f": "a"}
        assert "required" not in made.parameters
        json.dumps(made.parameters, allow_nan=False)
        assert made.run("{}") == f()

    def test_a_default_in_the_signature_wins_over_one_in_the_annotation(self):
        def f(
            a: Annotated[int, Field(default=5, ge=0)] = 7,
            b: Annotated[list[int] | None, Field(default_factory=list)] = None,
            c: Annotated[int, Field(default=5)] = Field(default=8),
        ):
            return a, b

        made = Function.of(f)
        said = {key: value.get("default") for key, value in made.parameters["properties"].items()}
        assert said == {"a": 7, "b": None, "c": 8}
        assert made.run("{}") == f() == (7, None)
        assert made.refusal('{"a": -1}').startswith("a: ")

    def test_a_default_that_is_a_pydantic_field(self):
        def f(
            a: int = Field(default=5, ge=0, description="From the field."),
            b: str = Field(min_length=1),
            c: list[int] = Field(default_factory=list),  # noqa: B008
            *,
            d: int = Field(default=1, alias="the-d"),
        ):
            """Do.

            Args:
                a: From the docstring.
            """
            return a, b, c, d

        made = Function.of(f)
        assert made.parameters["required"] == ["b"]
        expected = {"title": "A", "type": "integer", "minimum": 0, "description": "From the field.", "default": 5}
        assert made.parameters["properties"]["a"] == expected
        assert made.run('{"b": "x"}') == (5, "x", [], 1)
        assert made.run('{"b": "x", "the-d": 7, "c": ["1"]}') == (5, "x", [1], 7)
        assert [line[:3] for line in made.refusal('{"a": -1, "b": ""}').splitlines()] == ["a: ", "b: "]

    def test_what_an_annotation_says_goes_over_the_docstring(self):
        def f(
            a: Annotated[int, Field(description="annotated")],
            b: Annotated[int, Field(gt=1)],
            c: Annotated[int, "How many."],
            d: Annotated[str, Doc("Which.")],
            e: Annotated[int, "Not this.", Field(description="But this.")],
            f: Annotated[Point, "Where."],
        ):
            """Do.

            Args:
                a: documented
                b: documented
                c: documented
            """

        assert [given["description"] for given in properties(f).values()] == [
            *("annotated", "documented", "How many.", "Which.", "But this.", "Where.")
        ]
        assert properties(f)["b"]["exclusiveMinimum"] == 1
        assert properties(f)["f"]["$ref"] == "#/$defs/Point"

    def test_each_style_of_docstring_describes_the_parameters(self):
        for docstring in (
            "Do it.\n\nArgs:\n    a (int): First.\n    b: Second:\n        of two.\n\nReturns:\n    No.\n",
            "Do it.\n\nParameters\n----------\na : int\n    First.\nb\n    Second:\n    of two.\n\nReturns\n-------\n",
            "Do it.\n\n:param int a: First.\n:param b: Second:\n    of two.\n:returns: No.\n",
        ):

            def f(a, b): ...

            f.__doc__ = docstring
            made = Function.of(f)
            assert made.description == "Do it."
            assert made.parameters["properties"]["a"]["description"] == "First."
            assert made.parameters["properties"]["b"]["description"] == "Second:\nof two."

    def test_text_beneath_the_sections_is_part_of_the_description(self):
        for docstring in (
            "Sum.\n\nArgs:\n    a: First.\n\nNever twice.\n\nNote:\n    Only in May.\n",
            "Sum.\n\nArgs:\n    a: First.\nReturns:\n    The sum.\n\nNever twice.\n\nNote:\n    Only in May.\n",
            "Sum.\n\n:param a: First.\n:returns: The sum.\n\nNever twice.\n\nNote:\n    Only in May.\n",
            "Sum.\n\n    Args:\n        a: First.\n\n    Never twice.\n\n    Note:\n        Only in May.\n    ",
        ):

            def f(a: int): ...

            f.__doc__ = docstring
            made = Function.of(f)
            assert made.description == "Sum.\n\nNever twice.\n\nNote:\n    Only in May.", docstring
            assert made.parameters["properties"]["a"]["description"] == "First.", docstring

    def test_notes_in_the_style_of_numpy_are_part_of_the_description(self):
        def f(a: int): ...

        parts = ["Sum.", "Parameters\n----------\na : int\n    First.", "Returns\n-------\nint\n    The sum."]
        parts += ["Warnings\n--------\nNever twice.", "Notes\n-----\nOnly in May.\n\nNot on Sundays."]
        f.__doc__ = "\n\n".join([*parts, "Examples\n--------\n>>> f(1)\n"])
        made = Function.of(f)
        assert made.description == "Sum.\n\nNever twice.\n\nOnly in May.\n\nNot on Sundays."
        assert made.parameters["properties"]["a"]["description"] == "First."

    def test_a_docstring_may_describe_the_parameters_alone(self):
        for docstring in (
            "Args:\n        a: First.\n        b: Second:\n            of two.\n    ",
            "\n    Arguments:\n\n        a: First.\n        b: Second:\n            of two.\n    ",
            "Parameters\n    ----------\n    a : int\n        First.\n    b\n        Second:\n        of two.\n    ",
            ":param int a: First.\n    :param b: Second:\n        of two.\n    ",
        ):

            def f(a, b): ...

            f.__doc__ = docstring
            described = [given["description"] for given in properties(f).values()]
            assert described == ["First.", "Second:\nof two."], docstring

    def test_arguments_are_numbers_that_json_has(self):
        def f(x: float, more: list[float] | None = None): ...

        for arguments in ('{"x": NaN}', '{"x": -Infinity}', '{"x": 1e400}', '{"x": "nan"}', '{"x": 1, "more": [NaN]}'):
            assert "finite" in (Function.of(f).refusal(arguments) or ""), arguments

    def test_any_parameter_name_will_do(self):
        for name in ("self", "cls", "call", "args", "kwargs", "name", "model_config", "schema", "json"):
            scope: dict[str, Any] = {}
            exec(f"def f({name}: int): return {name}", scope)
            made = Function.of(scope["f"])
            assert list(made.parameters["properties"]) == [name]
            assert made.run(json.dumps({name: 5})) == 5
            assert made(**{name: 6}) == 6


def test_strict_mode_is_used_where_it_can_say_the_schema():
    def required(a: int, b: str | None, c: list[Literal["x"]]): ...
    def optional(a: int, b: str | None = None): ...
    def rest(a: int, **more: Any): ...
    def nested(a: Point): ...
    def anything(a): ...
    def table(a: dict[str, int]): ...

    def is_strict(call: Any) -> bool:
        asked = Request(messages=[Message.of("user", "hi")], functions=(Function.of(call),))
        body = json.loads(OpenAIChatCodec().encode(asked, model="m", profile=Profile(), stream=False))
        return body["tools"][0]["function"].get("strict", False)

    assert is_strict(required)
    assert not any(map(is_strict, (optional, rest, nested, anything, table)))


class TestKinds:
    def test_keyword_only_and_positional_only(self):
        def f(a, b=2, c=3, /, d=4, *, e, g=6):
            return a, b, c, d, e, g

        made = Function.of(f)
        assert made.parameters["required"] == ["a", "e"]
        assert made.run('{"a": 1, "e": 5}') == (1, 2, 3, 4, 5, 6)
        assert made.run('{"c": 30, "e": 50, "a": 10}') == (10, 2, 30, 4, 50, 6)
        assert made.run('{"a": 1, "b": 0, "c": 0, "d": 0, "e": 0, "g": 0}') == (1, 0, 0, 0, 0, 0)

    def test_a_function_that_dispatches_on_its_first_argument(self):
        @functools.singledispatch
        def shown(value: int | str, end: str = "") -> str:
            """Show it."""
            return f"number {value}{end}"

        @shown.register
        def _(value: str, end: str = "") -> str:
            return f"text {value}{end}"

        made = Function.of(shown)
        assert made.run('{"value": 1, "end": "!"}') == "number 1!"
        assert made.run('{"value": "a"}') == "text a"

    def test_any_further_positions_are_refused(self):
        def f(a, *rest): ...

        with pytest.raises(UsageError, match=r"'f': .*'\*rest'"):
            Function.of(f)

    def test_methods_are_functions_without_their_object(self):
        class Shop:
            """A shop."""

            def buy(self, item: str) -> Any:
                """Buy it."""
                return self, item

            @classmethod
            def found(cls, name: str) -> Any:
                return cls, name

            @staticmethod
            def price(item: str) -> Any:
                return item

        shop = Shop()
        for call, name, expected in [
            (shop.buy, "item", (shop, "x")),
            (Shop.found, "name", (Shop, "x")),
            (shop.found, "name", (Shop, "x")),
            (Shop.price, "item", "x"),
            (Shop.__dict__["price"], "item", "x"),
        ]:
            made = Function.of(call)
            assert made.parameters == schema(**{name: {"type": "string"}})
            assert made.run(json.dumps({name: "x"})) == expected
        assert Function.of(shop.buy).name == "buy"
        assert Function.of(shop.buy).description == "Buy it."

    def test_a_partial(self):
        def f(a: int, b: int, c: int = 3, *, d: int = 4) -> Any:
            """Do."""
            return a, b, c, d

        made = Function.of(functools.partial(f, 1, c=30))
        assert (made.name, made.description) == ("f", "Do.")
        assert list(made.parameters["properties"]) == ["b", "d"]
        assert made.parameters["required"] == ["b"]
        assert made.run('{"b": 2}') == (1, 2, 30, 4)
        assert "c: " in made.refusal('{"b": 2, "c": 3}')

    def test_keyword_arguments_have_their_declared_types(self):
        def rest(x: int, **counts: int): ...
        def items(x: int, **filters: Unpack[Filters]): ...
        def same_items(x: int, **filters: typing.Unpack[Filters]): ...

        assert Function.of(same_items).parameters == Function.of(items).parameters
        made = Function.of(rest)
        assert made.bind('{"x": 1, "a": 2}') == {"x": 1, "a": 2}
        assert made.refusal('{"x": 1, "a": null}').startswith("a: ")
        made = Function.of(items)
        assert made.parameters["required"] == ["x", "limit"]
        assert made.parameters["properties"]["kind"]["description"] == "Of what kind"
        assert made.bind('{"x": 1, "limit": 2, "kind": "a"}') == {"x": 1, "limit": 2, "kind": "a"}
        for refused, name in (('{"x": 1, "limit": "a"}', "limit"), ('{"x": 1, "limit": 1, "kin": "a"}', "kin")):
            assert made.refusal(refused).startswith(f"{name}: ")

    def test_what_a_partial_gives_is_out_of_reach(self):
        def search(query: str, user: str, **filters: Any) -> Any:
            return query, user, filters

        made = Function.of(functools.partial(search, user="me"))
        assert list(made.parameters["properties"]) == ["query"]
        assert made.run('{"query": "q", "x": 1}') == ("q", "me", {"x": 1})
        assert made.refusal('{"query": "q", "user": "you"}').startswith("user: ")
        with pytest.raises(ParseError, match="user: "):
            made.run('{"query": "q", "user": "you"}')

    def test_a_wrapper_has_the_signature_of_what_it_wraps(self):
        def logged(call):
            @functools.wraps(call)
            def wrapper(*args, **kwargs):
                return call(*args, **kwargs)

            return wrapper

        @logged
        def f(a: int, *, b: Color) -> Any:
            """Do."""
            return a, b

        assert Function.of(f).description == "Do."
        assert Function.of(f).run('{"a": 1, "b": "red"}') == (1, Color.RED)
        assert Function.of(functools.lru_cache(f)).run('{"a": 1, "b": "red"}') == (1, Color.RED)

    def test_a_method_needs_its_object(self):
        class Shop:
            def buy(self, item: str) -> None: ...

        with pytest.raises(UsageError, match="'buy' is a method"):
            Function.of(Shop.buy)
        with pytest.raises(UsageError, match="'buy' is a method"):

            class Decorated:
                @function
                def buy(self, item: str) -> None: ...

    def test_a_builtin_without_one(self):
        for call in (getattr, min, int, range, type):
            with pytest.raises(UsageError, match=f"'{call.__name__}'"):
                Function.of(call)

    def test_a_lambda_needs_a_name(self):
        with pytest.raises(UsageError, match="'<lambda>'"):
            Function.of(lambda a: a)
        assert Function.of(lambda a: a, name="identity").run('{"a": 1}') == 1


class TestAnnotations:
    def test_types_defined_beside_the_function(self):
        class Local(BaseModel):
            a: int

        @function
        def f(x: Local) -> Local:
            return x

        assert f.run('{"x": {"a": 1}}') == Local(a=1)

        def g(x: Local): ...

        assert Function.of(g, namespace=locals()).parameters["$defs"].keys() == {"Local"}
        assert function(g).parameters["$defs"].keys() == {"Local"}
        assert function(needs_approval=True)(g).needs_approval

    def test_a_name_that_is_nowhere(self):
        def f(a: Unknown): ...

        with pytest.raises(UsageError, match=r"'f' .*'Unknown'"):
            Function.of(f)

    def test_an_annotation_that_is_no_type_is_refused(self):
        def f(a): ...

        for annotation in ("a b", "typing.Nothing", "len(5)", "1 +"):
            f.__annotations__["a"] = annotation
            with pytest.raises(UsageError, match="annotation of function 'f'"):
                Function.of(f)

    @pytest.mark.parametrize(
        "annotation",
        [
            Opaque,
            Callable[[int], int],
            5,
            typing.Never,
            Annotated[str, Field(pattern="(")],
            Annotated[int, Field(gt="x")],
            Enum("Day", {"first": date(2026, 1, 1)}),
            list[Enum("Planet", {"EARTH": (5.97, 6.37)})],
            Enum("Size", {"endless": float("inf")}),
            Literal[b"x"],
        ],
        ids=str,
    )
    def test_types_without_schema(self, annotation):
        def f(a): ...

        f.__annotations__["a"] = annotation
        with pytest.raises(UsageError, match="'f' have no"):
            Function.of(f)


def test_a_function_whose_docstring_python_has_removed_is_no_secret(monkeypatch: pytest.MonkeyPatch):
    """The model would not know its purpose, and nothing else would say so."""

    def add(a: int, b: int) -> int:
        return a + b

    assert Function.of(add).description == ""
    monkeypatch.setattr(sys, "flags", SimpleNamespace(optimize=2))
    with pytest.warns(UserWarning, match="-OO"):
        Function.of(add)
    assert Function.of(add, description="Add two numbers.").description == "Add two numbers."

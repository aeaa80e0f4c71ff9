"""Is a Python callable described to a model as it is?"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import inspect
import json
import sys
import typing
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypeVar

import pytest
from argument_types import Box, Color, Opaque, Pair, Point, Query
from pydantic import BaseModel, Field
from typing_extensions import Doc, TypedDict

from fsm_agent.errors import ParseError, UsageError
from fsm_agent.functions import Function, function
from fsm_agent.functions.signature import Passing, passing
from fsm_agent.providers.schemas import strict_schema

if typing.TYPE_CHECKING:
    from nowhere import Unknown

T = TypeVar("T")


def properties(call: Any, **options: Any) -> dict[str, Any]:
    return dict(Function.of(call, **options).parameters["properties"])


def schema(**properties: Any) -> dict[str, Any]:
    """Of an object with these properties, all of them required."""
    return {
        "type": "object",
        "properties": {name: {"title": name.title(), **given} for name, given in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


class TestSchema:
    @pytest.mark.spec("3.16: a schema from a signature")
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
            anything: Any,
            text: str,
            number: Annotated[float, Field(ge=0, description="Not negative.")],
            kind: Literal["a", 1, None],
            color: Color,
            either: int | str,
            perhaps: Optional[int],  # noqa: UP045
            point: Point,
            box: Box,
            query: Query,
            pair: Pair,
            points: list[Point],
            table: dict[str, int],
            day: datetime.date,
            free: T,
        ): ...

        made = Function.of(f).parameters
        assert made["properties"] == {
            "plain": {"title": "Plain"},
            "anything": {"title": "Anything"},
            "text": {"title": "Text", "type": "string"},
            "number": {"title": "Number", "type": "number", "minimum": 0, "description": "Not negative."},
            "kind": {"title": "Kind", "enum": ["a", 1, None]},
            "color": {"$ref": "#/$defs/Color"},
            "either": {"title": "Either", "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "perhaps": {"title": "Perhaps", "anyOf": [{"type": "integer"}, {"type": "null"}]},
            "point": {"$ref": "#/$defs/Point"},
            "box": {"$ref": "#/$defs/Box"},
            "query": {"$ref": "#/$defs/Query"},
            "pair": {"$ref": "#/$defs/Pair"},
            "points": {"title": "Points", "type": "array", "items": {"$ref": "#/$defs/Point"}},
            "table": {"title": "Table", "type": "object", "additionalProperties": {"type": "integer"}},
            "day": {"title": "Day", "type": "string", "format": "date"},
            "free": {"title": "Free"},
        }
        assert set(made["$defs"]) == {"Color", "Point", "Box", "Query", "Pair"}
        assert made["required"] == list(made["properties"])

    def test_values_arrive_as_annotated(self):
        def f(color: Color, point: Point, box: Box, query: Query, pair: Pair, day: datetime.date) -> Any:
            return color, point, box, query, pair, day

        arguments = {
            "color": "red",
            "point": {"x": 1},
            "box": {"at": {"x": 2, "y": 3}},
            "query": {"text": "q"},
            "pair": [1],
            "day": "2026-01-02",
        }
        assert Function.of(f).run(json.dumps(arguments)) == (
            Color.RED,
            Point(x=1),
            Box(Point(x=2, y=3)),
            {"text": "q"},
            Pair(1),
            datetime.date(2026, 1, 2),
        )

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
        assert made.refusal('{"a": -1, "b": ""}') == (
            "a: Input should be greater than or equal to 0 (given: -1)\n"
            "b: String should have at least 1 character (given: '')"
        )

    def test_what_an_annotation_says_goes_over_the_docstring(self):
        def f(a: Annotated[int, Field(description="annotated")], b: Annotated[int, Field(gt=1)]):
            """Do.

            Args:
                a: documented
                b: documented
            """

        assert properties(f)["a"]["description"] == "annotated"
        assert properties(f)["b"] == {
            "title": "B",
            "type": "integer",
            "exclusiveMinimum": 1,
            "description": "documented",
        }

    @pytest.mark.parametrize(
        "docstring",
        [
            "Do it.\n\nArgs:\n    a (int): First.\n    b: Second:\n        of two.\n\nReturns:\n    No.\n",
            "Do it.\n\nParameters\n----------\na : int\n    First.\nb\n    Second:\n    of two.\n\nReturns\n-------\n",
            "Do it.\n\n:param int a: First.\n:param b: Second:\n    of two.\n:returns: No.\n",
        ],
        ids=["Google", "NumPy", "Sphinx"],
    )
    def test_each_style_of_docstring_describes_the_parameters(self, docstring):
        def f(a, b): ...

        f.__doc__ = docstring
        made = Function.of(f)
        assert made.description == "Do it."
        assert made.parameters["properties"]["a"]["description"] == "First."
        assert made.parameters["properties"]["b"]["description"] == "Second:\nof two."

    @pytest.mark.parametrize(
        "name", ["self", "cls", "call", "args", "kwargs", "name", "model_config", "schema", "json"]
    )
    def test_any_parameter_name_will_do(self, name):
        scope: dict[str, Any] = {}
        exec(f"def f({name}: int): return {name}", scope)
        made = Function.of(scope["f"])
        assert list(made.parameters["properties"]) == [name]
        assert made.run(json.dumps({name: 5})) == 5
        assert made(**{name: 6}) == 6


class Unit(enum.Enum):
    """Of a length."""

    METRE = "m"
    FOOT = "ft"


class Told(BaseModel):
    """A place."""

    city: str = Field(description="Its name.")
    unit: Annotated[Unit, Field(description="Of distances.")] = Unit.METRE


@dataclasses.dataclass
class ToldData:
    city: Annotated[str, Field(description="Its name.")]


class ToldDict(TypedDict):
    city: Annotated[str, Field(description="Its name.")]


class ToldTuple(NamedTuple):
    city: Annotated[str, Field(description="Its name.")]


class Page(BaseModel, Generic[T]):
    items: list[T]
    after: T | None = None


CITY = {"title": "City", "type": "string", "description": "Its name."}


class TestDescriptions:
    @pytest.mark.spec("3.16: descriptions of parameters are in it")
    def test_a_plain_string_describes(self):
        def f(
            a: Annotated[int, "How many."],
            b: Annotated[str, Doc("Which.")],
            c: Annotated[int, Field(gt=1), "More than one."],
            d: Annotated[int, "Not this.", Field(description="But this.")],
            e: Annotated[Told, "Where."],
            f: Annotated[int | None, "Perhaps."] = None,
        ):
            """Do.

            Args:
                a: Not this.
            """

        assert properties(f) == {
            "a": {"title": "A", "type": "integer", "description": "How many."},
            "b": {"title": "B", "type": "string", "description": "Which."},
            "c": {"title": "C", "type": "integer", "exclusiveMinimum": 1, "description": "More than one."},
            "d": {"title": "D", "type": "integer", "description": "But this."},
            "e": {"$ref": "#/$defs/Told", "description": "Where."},
            "f": {"title": "F", "anyOf": [{"type": "integer"}, {"type": "null"}], "description": "Perhaps."},
        }

    @pytest.mark.spec("3.16: descriptions of parameters are in it")
    def test_fields_of_nested_types_keep_theirs(self):
        def f(a: Told, b: ToldData, c: ToldDict, d: ToldTuple, e: list[Told]): ...

        definitions = Function.of(f).parameters["$defs"]
        assert definitions["Told"] == {
            "title": "Told",
            "description": "A place.",
            "type": "object",
            "properties": {
                "city": CITY,
                "unit": {"$ref": "#/$defs/Unit", "description": "Of distances.", "default": "m"},
            },
            "required": ["city"],
        }
        assert definitions["Unit"] == {
            "title": "Unit",
            "description": "Of a length.",
            "type": "string",
            "enum": ["m", "ft"],
        }
        assert definitions["ToldData"]["properties"] == {"city": CITY}
        assert definitions["ToldDict"]["properties"] == {"city": CITY}
        assert definitions["ToldTuple"]["prefixItems"] == [CITY]


class TestStandardTypes:
    VALUES: typing.ClassVar = {
        "at": ("2026-01-02T03:04:05Z", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)),
        "day": ("2026-01-02", datetime.date(2026, 1, 2)),
        "time": ("03:04:05", datetime.time(3, 4, 5)),
        "span": ("PT90S", datetime.timedelta(seconds=90)),
        "key": ("12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
        "price": ("1.10", decimal.Decimal("1.10")),
        "path": ("a/b", Path("a/b")),
        "names": (["a", "a"], {"a"}),
        "pair": ([1, "b"], (1, "b")),
        "many": ([1, 2], (1, 2)),
        "table": ({"1": ["m"]}, {1: [Unit.METRE]}),
        "page": ({"items": [1, "2"]}, Page[int](items=[1, 2])),
        "kind": ("b", "b"),
        "either": ({"city": "x"}, Told(city="x")),
        "raw": ("ab", b"ab"),
        "data": ({"city": "x"}, ToldData("x")),
    }

    @staticmethod
    def f(
        at: datetime.datetime,
        day: datetime.date,
        time: datetime.time,
        span: datetime.timedelta,
        key: uuid.UUID,
        price: decimal.Decimal,
        path: Path,
        names: set[str],
        pair: tuple[int, str],
        many: tuple[int, ...],
        table: dict[int, list[Unit]],
        page: Page[int],
        kind: Literal["a", "b"],
        either: int | Told,
        raw: bytes,
        data: ToldData,
    ) -> Any:
        return locals()

    @pytest.mark.spec("3.16: a schema from a signature")
    def test_standard_types_have_the_schemas_of_their_json(self):
        said = properties(self.f)
        for given in said.values():
            given.pop("title", None)
        said["price"]["anyOf"][1].pop("pattern", None)  # some versions of pydantic have one
        assert said == {
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "time": {"type": "string", "format": "time"},
            "span": {"type": "string", "format": "duration"},
            "key": {"type": "string", "format": "uuid"},
            "price": {"anyOf": [{"type": "number"}, {"type": "string"}]},
            "path": {"type": "string", "format": "path"},
            "names": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "pair": {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
            "many": {"type": "array", "items": {"type": "integer"}},
            "table": {"type": "object", "additionalProperties": {"type": "array", "items": {"$ref": "#/$defs/Unit"}}},
            "page": {"$ref": "#/$defs/Page_int_"},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "either": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/Told"}]},
            "raw": {"type": "string", "format": "binary"},
            "data": {"$ref": "#/$defs/ToldData"},
        }


class TestStrict:
    """Strict mode can say a schema when all properties are required and no others are allowed."""

    @pytest.mark.spec("3.16: strict only where all properties are required")
    def test_what_it_can_say(self):
        def required(a: int, b: str | None, c: list[Literal["x"]]): ...
        def optional(a: int, b: str | None = None): ...
        def rest(a: int, **more: Any): ...
        def nested(a: Told): ...
        def anything(a): ...
        def table(a: dict[str, int]): ...

        assert strict_schema(Function.of(required).parameters)["required"] == ["a", "b", "c"]
        for call in (optional, rest, nested, anything, table):
            assert strict_schema(Function.of(call).parameters) is None


class TestKinds:
    def test_keyword_only_and_positional_only(self):
        def f(a, b=2, c=3, /, d=4, *, e, g=6):
            return a, b, c, d, e, g

        made = Function.of(f)
        assert made.parameters["required"] == ["a", "e"]
        assert made.run('{"a": 1, "e": 5}') == (1, 2, 3, 4, 5, 6)
        assert made.run('{"c": 30, "e": 50, "a": 10}') == (10, 2, 30, 4, 50, 6)
        assert made.run('{"a": 1, "b": 0, "c": 0, "d": 0, "e": 0, "g": 0}') == (1, 0, 0, 0, 0, 0)

    def test_any_further_positions_are_refused(self):
        def f(a, *rest): ...

        with pytest.raises(UsageError, match=r"function 'f' takes '\*rest': a model can only give arguments by name"):
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
        assert "c: Extra inputs are not permitted" in made.refusal('{"b": 2, "c": 3}')

    def test_what_a_partial_gives_is_out_of_reach(self):
        def search(query: str, user: str, **filters: Any) -> Any:
            return query, user, filters

        made = Function.of(functools.partial(search, user="me"))
        assert list(made.parameters["properties"]) == ["query"]
        assert made.run('{"query": "q", "x": 1}') == ("q", "me", {"x": 1})
        assert made.refusal('{"query": "q", "user": "you"}') == (
            "user: Value error, it is given already (given: 'you')"
        )
        with pytest.raises(ParseError, match="user: Value error, it is given already"):
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

        with pytest.raises(UsageError, match=r"'buy' is a method without its object: Function.of\(an_object.buy\)"):
            Function.of(Shop.buy)
        with pytest.raises(UsageError, match="is a method without its object"):

            class Decorated:
                @function
                def buy(self, item: str) -> None: ...

    @pytest.mark.parametrize("call", [getattr, min, int, range, type])
    def test_a_builtin_without_one(self, call):
        with pytest.raises(UsageError, match=rf"function '{call.__name__}' does not tell its parameters"):
            Function.of(call)

    def test_a_lambda_needs_a_name(self):
        with pytest.raises(UsageError, match="'<lambda>' will be refused by providers"):
            Function.of(lambda a: a)
        assert Function.of(lambda a: a, name="identity").run('{"a": 1}') == 1


class TestPassing:
    SCHEMA: typing.ClassVar = {"properties": {"q": {}, "n": {}}, "required": ["q"]}

    def test_how_it_takes_its_arguments(self):
        async def f(q, n=1, /): ...

        assert passing(f, "f", self.SCHEMA) == Passing(
            is_async=True, positional=(("q", inspect.Parameter.empty), ("n", 1))
        )
        assert passing(lambda **rest: rest, "f", self.SCHEMA) == Passing()
        assert passing(lambda: 0, "f", {}) == Passing()

    @pytest.mark.parametrize(
        ("call", "problem"),
        [
            (lambda q: q, "what is linked to function 'f' does not take 'n', which the schema offers"),
            (functools.partial(lambda q, n: n, n=1), "does not take 'n', which the schema offers"),
            (lambda q, n: n, "what is linked to function 'f' needs 'n', which the schema does not require"),
        ],
    )
    def test_what_does_not_fit_the_schema(self, call, problem):
        with pytest.raises(UsageError, match=problem):
            passing(call, "f", self.SCHEMA)


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

        with pytest.raises(UsageError, match="an annotation of function 'f' cannot be resolved: name 'Unknown'"):
            Function.of(f)

    @pytest.mark.parametrize("annotation", ["a b", "typing.Nothing", "len(5)", "1 +"])
    def test_an_annotation_that_is_no_type_is_refused(self, annotation):
        def f(a): ...

        f.__annotations__["a"] = annotation
        with pytest.raises(UsageError, match="an annotation of function 'f' cannot be resolved"):
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
        ],
        ids=str,
    )
    def test_types_without_schema(self, annotation):
        def f(a): ...

        f.__annotations__["a"] = annotation
        with pytest.raises(UsageError, match="the parameters of function 'f' have no JSON schema"):
            Function.of(f)


def test_a_function_whose_docstring_python_has_removed_is_no_secret(monkeypatch: pytest.MonkeyPatch):
    """No model is told what it is for, and nothing else would say so."""

    def add(a: int, b: int) -> int:
        return a + b

    assert Function.of(add).description == ""
    monkeypatch.setattr(sys, "flags", SimpleNamespace(optimize=2))
    with pytest.warns(UserWarning, match=r"python -OO removes docstrings.*: -O, or a description= of each"):
        Function.of(add)
    assert Function.of(add, description="Add two numbers.").description == "Add two numbers."

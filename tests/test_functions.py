"""Is a Python function described as it is, and are a model's arguments taken or refused in words?"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import enum
import functools
import json
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypeVar

import pytest
from growing import growth
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from fsm_agent.errors import UsageError
from fsm_agent.functions import Function, described_errors, function, result_text

if typing.TYPE_CHECKING:
    from nowhere import Unknown

T = TypeVar("T")
CASES = Path(__file__).resolve().parents[2] / "shared" / "cases" / "bfcl.jsonl"


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


@dataclasses.dataclass
class Box:
    at: Point
    size: float = 1.0


class Query(TypedDict):
    text: str


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Opaque:
    """Nothing that pydantic knows."""


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
        assert (made.is_async, made.blocking, made.needs_approval, made.repeatable) == (False, True, False, False)

    def test_without_parameters(self):
        def now() -> str:
            return "noon"

        assert Function.of(now).parameters == {"type": "object", "properties": {}, "additionalProperties": False}
        assert Function.of(now).run("") == "noon"
        assert Function.of(now).description == ""

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

    def test_defaults(self):
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

    def test_a_default_that_compares_oddly(self):
        class Array:
            def __eq__(self, other):
                raise ValueError("the truth value of an array is ambiguous")

            __hash__ = None

        array = Array()
        assert "default" not in properties(lambda a=array: a, name="f")["a"]

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

    def test_an_alias_in_the_annotation(self):
        def f(plain: Annotated[int, Field(alias="the-number")] = 3):
            return plain

        made = Function.of(f)
        assert list(made.parameters["properties"]) == ["the-number"]
        assert made.run('{"the-number": 4}') == 4
        assert made.run("{}") == 3

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
    def test_docstrings(self, docstring):
        def f(a, b): ...

        f.__doc__ = docstring
        made = Function.of(f)
        assert made.description == "Do it."
        assert made.parameters["properties"]["a"]["description"] == "First."
        assert made.parameters["properties"]["b"]["description"] == "Second:\nof two."

    def test_one_description_for_several_parameters(self):
        def f(a, b):
            """Do.

            Parameters
            ----------
            a, b : int
                Both.
            """

        assert [given["description"] for given in properties(f).values()] == ["Both.", "Both."]

    @pytest.mark.parametrize(
        "docstring", ["Args:", ":param", "Args:\nx: y", "{{ a }} :", "\0", "x\n---", "Raises:\n x"]
    )
    def test_odd_docstrings_do_no_harm(self, docstring):
        def f(a): ...

        f.__doc__ = docstring
        assert Function.of(f).name == "f"

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

    def test_a_parameter_type_called_like_the_function(self):
        def Point(p: Point) -> Any:
            return p

        made = Function.of(Point, namespace={})
        assert made.run('{"p": {"x": 1}}').x == 1


class TestKinds:
    def test_keyword_only_and_positional_only(self):
        def f(a, b=2, c=3, /, d=4, *, e, g=6):
            return a, b, c, d, e, g

        made = Function.of(f)
        assert made.parameters["required"] == ["a", "e"]
        assert made.run('{"a": 1, "e": 5}') == (1, 2, 3, 4, 5, 6)
        assert made.run('{"c": 30, "e": 50, "a": 10}') == (10, 2, 30, 4, 50, 6)
        assert made.run('{"a": 1, "b": 0, "c": 0, "d": 0, "e": 0, "g": 0}') == (1, 0, 0, 0, 0, 0)

    def test_any_further_keywords(self):
        def f(a: int, **rest: Any):
            return a, rest

        made = Function.of(f)
        assert made.parameters["additionalProperties"] is True
        assert made.run('{"a": "1", "b": [2], "self": 3}') == (1, {"b": [2], "self": 3})

    def test_any_further_positions_are_refused(self):
        def f(a, *rest): ...

        with pytest.raises(UsageError, match=r"function 'f' takes '\*rest': a model can only give arguments by name"):
            Function.of(f)

    def test_methods(self):
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

    def test_a_callable_object(self):
        class Adder:
            """Adds."""

            def __call__(self, a: int) -> int:
                return a + 1

        class Documented(Adder):
            async def __call__(self, a: int) -> int:
                """Add later."""
                return a + 1

        made = Function.of(Adder())
        assert (made.name, made.description, made.is_async) == ("Adder", "Adds.", False)
        assert made.parameters == schema(a={"type": "integer"})
        assert made.run('{"a": 1}') == 2
        made = Function.of(Documented())
        assert (made.name, made.description, made.is_async) == ("Documented", "Add later.", True)

    def test_a_class(self):
        made = Function.of(Box)
        assert made.name == "Box"
        assert made.parameters["required"] == ["at"]
        assert made.run('{"at": {"x": 1}}') == Box(Point(x=1))
        made = Function.of(Point)
        assert made.description == ""
        assert made.run('{"x": "1"}') == Point(x=1)

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
        with pytest.raises(ValidationError):
            made.run('{"query": "q", "user": "you"}')

    def test_a_partial_of_a_method_and_of_an_object(self):
        class Adder:
            """Adds."""

            async def __call__(self, a: int, b: int) -> int:
                return a + b

            def add(self, a: int, b: int) -> int:
                return a + b

        assert Function.of(functools.partial(Adder().add, b=2)).run('{"a": 1}') == 3
        made = Function.of(functools.partial(Adder(), b=2))
        assert (made.name, made.is_async) == ("Adder", True)

    def test_wrappers(self):
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

    def test_async(self):
        async def f(a: int) -> int:
            return a

        made = Function.of(f)
        assert made.is_async
        assert asyncio.run(made.run('{"a": "1"}')) == 1
        assert Function.of(functools.partial(f, a=1)).is_async

    def test_a_builtin_with_a_signature(self):
        assert Function.of(len).run('{"obj": [1, 2]}') == 2

    @pytest.mark.parametrize("call", [getattr, min, int, range, type])
    def test_a_builtin_without_one(self, call):
        with pytest.raises(UsageError, match=rf"function '{call.__name__}' does not tell its parameters"):
            Function.of(call)

    @pytest.mark.parametrize("call", [5, None, "f", classmethod(lambda cls: cls)])
    def test_what_cannot_be_called(self, call):
        with pytest.raises(UsageError, match="cannot be called"):
            Function.of(call)

    def test_a_lambda_needs_a_name(self):
        with pytest.raises(UsageError, match="'<lambda>' will be refused by providers"):
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

    def test_names_of_another_module_are_its_own(self):
        scope: dict[str, Any] = {"Point": int}
        exec("def f(p: 'Point'): return p", scope)
        Point = str  # noqa: F841
        assert function(scope["f"]).parameters == schema(p={"type": "integer"})

    def test_a_name_that_is_nowhere(self):
        def f(a: Unknown): ...

        with pytest.raises(UsageError, match="an annotation of function 'f' cannot be resolved: name 'Unknown'"):
            Function.of(f)

    def test_what_is_returned_need_not_be_known(self):
        def f(a: int) -> Unknown: ...

        assert Function.of(f).parameters == schema(a={"type": "integer"})

    @pytest.mark.parametrize("annotation", ["a b", "typing.Nothing", "len(5)", "1 +"])
    def test_nonsense(self, annotation):
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

    def test_a_signature_that_is_no_signature(self):
        def f(a): ...

        f.__signature__ = 5
        with pytest.raises(UsageError, match="does not tell its parameters"):
            Function.of(f)


class TestDefinition:
    @pytest.mark.parametrize("name", ["f", "get_weather-2", "A" * 64])
    def test_a_good_name(self, name):
        made = Function(name=name)
        assert (made.name, made.is_async, made.blocking) == (name, False, True)

    @pytest.mark.parametrize("name", ["", "a b", "a.b", "A" * 65, "caf\u00e9", "a\n", "\u0661"])
    def test_a_name_that_providers_refuse(self, name):
        with pytest.raises(UsageError, match="will be refused by providers: use letters, digits"):
            Function(name=name)

    def test_of_a_function_is_itself(self):
        made = Function.of(len)
        assert Function.of(made) is made

    def test_of_a_function_with_changes(self):
        made = Function.of(len)
        changed = Function.of(made, name="size", needs_approval=True)
        assert (changed.name, changed.needs_approval, changed.description) == ("size", True, made.description)
        assert (made.name, made.needs_approval) == ("len", False)
        assert changed.run('{"obj": []}') == 0

    def test_policy(self):
        @function(name="roll", description="Roll.", repeatable=True, needs_approval=True, blocking=False)
        def f() -> int:
            """Not this."""
            return 4

        assert (f.name, f.description, f.repeatable, f.needs_approval, f.blocking) == (
            "roll",
            "Roll.",
            True,
            True,
            False,
        )
        assert f() == 4
        assert function(len, needs_approval=True).needs_approval
        with pytest.raises(TypeError, match="aproval"):
            function(aproval=True)(len)

    def test_without_a_callable(self):
        made = Function(name="ask", parameters={"type": "object", "properties": {"q": {"type": "string"}}})
        assert made.refusal('{"q": "?"}') is None
        assert made.refusal("") is None
        for wrong in ("[1]", "null", "5", "{", '{"a": 1} x', '{"a":"\ud800"}'):
            assert made.refusal(wrong).startswith("input: ")
        with pytest.raises(UsageError, match="function 'ask' has no callable"):
            made.run('{"q": "?"}')

    def test_with_a_schema_and_a_callable(self):
        made = Function(name="ask", parameters={"type": "object"}, call=lambda **given: given)
        assert made.run('{"q": 1, "self": 2}') == {"q": 1, "self": 2}

    def test_its_repr_shows_no_callable(self):
        made = Function.of(functools.partial(lambda key: key, key="secret"), name="f")
        assert "secret" not in repr(made)
        assert "secret" not in json.dumps(made.parameters)


def add(a: int, b: int = 2, c: list[int] | None = None) -> int:
    return a + b


ADD = Function.of(add)
OPEN = Function.of(lambda **given: given, name="open")
DEEP = "[" * 10_000 + "]" * 10_000


class TestArguments:
    def test_each_bad_field_is_told(self):
        assert ADD.refusal('{"a": "x", "c": [1, "2", null], "d": 4}') == (
            "a: Input should be a valid integer, unable to parse string as an integer (given: 'x')\n"
            "c.2: Input should be a valid integer (given: None)\n"
            "d: Extra inputs are not permitted (given: 4)"
        )
        assert ADD.refusal("{}") == "a: Field required (given: {})"

    def test_good_ones_are_taken(self):
        assert ADD.refusal('{"a": 1}') is None
        assert ADD.run('{"a": 1, "b": "3"}') == 4

    @pytest.mark.parametrize(
        "arguments_json",
        [
            pytest.param('{"a": NaN}', id="NaN"),
            pytest.param('{"a": 1e999}', id="infinite"),
            pytest.param('{"a": ' + "9" * 5000 + "}", id="huge integer"),
            pytest.param('{"a": "' + "x" * 10**6 + '"}', id="long string"),
            pytest.param('{"' + "k" * 10**6 + '": 1, "a": 1}', id="long key"),
            pytest.param(json.dumps({str(i): i for i in range(10_000)}), id="many keys"),
            pytest.param('{"a": 1, "c": [' + '"x",' * 10_000 + "0]}", id="many errors"),
            pytest.param('{"a": ' + DEEP + "}", id="deep list"),
            pytest.param('{"a": ' * 10_000 + "1" + "}" * 10_000, id="deep object"),
            pytest.param("[" * 10_000, id="openers"),
            pytest.param('{"a": "\\ud800"}', id="escaped half of a pair"),
            pytest.param('{"a": "\ud800"}', id="half of a pair"),
            pytest.param("\ud800", id="only half of a pair"),
            pytest.param('{"a": 1, "a": "x"}', id="duplicate key"),
            pytest.param("[1]", id="list"),
            pytest.param('"{}"', id="string"),
            pytest.param("null", id="null"),
            pytest.param(" ", id="blank"),
            pytest.param('{"a": 1} x', id="trailing text"),
            pytest.param('{"a": 1}\0', id="trailing NUL"),
            pytest.param('\ufeff{"a": 1}', id="byte order mark"),
            pytest.param("{'a': 1}", id="single quotes"),
            pytest.param('{"a": 1,}', id="trailing comma"),
        ],
    )
    def test_hostile_ones_are_refused_in_few_words(self, arguments_json):
        refusal = ADD.refusal(arguments_json)
        assert 0 < len(refusal) < 5000
        refusal.encode()
        with pytest.raises(ValidationError):
            ADD.run(arguments_json)

    def test_what_is_legal_is_taken_whatever_its_size(self):
        many = {str(i): "x" * 100 for i in range(10_000)}
        assert OPEN.refusal(json.dumps(many)) is None
        assert OPEN.run(json.dumps(many)) == many
        assert ADD.run('{"a": ' + "9" * 4000 + ', "b": 0}') == int("9" * 4000)
        assert ADD.run('{"a": 1, "a": 2, "b": 0}') == 2

    @settings(deadline=None)
    @given(st.text(alphabet='{}[]",:\\abc10ue.- \n\0\ud800\ufeff'))
    def test_any_text_is_taken_or_refused(self, arguments_json):
        for made in (ADD, OPEN, Function(name="f")):
            refusal = made.refusal(arguments_json)
            assert refusal is None or 0 < len(refusal) < 5000

    @settings(max_examples=40, deadline=None)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
        )
    )
    def test_any_json_is_taken_or_refused(self, arguments):
        refusal = ADD.refusal(json.dumps(arguments))
        assert refusal is None or refusal.splitlines()

    @pytest.mark.parametrize(
        "text",
        [
            lambda n: '{"a": "' + "x" * n + '"}',
            lambda n: "{" + ",".join(f'"{i}":0' for i in range(n // 10)) + "}",
            lambda n: '{"c": [' + '"x",' * (n // 4) + "0]}",
            lambda n: "[" * n,
        ],
        ids=["string", "keys", "errors", "openers"],
    )
    def test_refusing_takes_linear_time(self, text):
        assert growth(text, ADD.refusal, 25_000) < 3


class TestDescribedErrors:
    def test_what_a_validator_says_is_bounded(self):
        def refuse(value: Any) -> Any:
            raise ValueError(value)

        with pytest.raises(ValidationError) as caught:
            TypeAdapter(Annotated[str, AfterValidator(refuse)]).validate_python("x" * 10**6)
        assert len(described_errors(caught.value)) < 2000

    def test_more_than_twenty_are_counted(self):
        with pytest.raises(ValidationError) as caught:
            TypeAdapter(list[int]).validate_python(["x"] * 50)
        lines = described_errors(caught.value).splitlines()
        assert len(lines) == 21
        assert lines[-1] == "… and 30 more"
        with pytest.raises(ValidationError) as caught:
            TypeAdapter(list[int]).validate_python(["x"] * 20)
        assert len(described_errors(caught.value).splitlines()) == 20


class Unshowable:
    def __repr__(self):
        raise RuntimeError("no")


class TestResultText:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("plain {text} \u00e9", "plain {text} \u00e9"),
            ("", ""),
            ("a file's name \udcff", "a file's name ?"),
            (None, "null"),
            (True, "true"),
            (1, "1"),
            (0.5, "0.5"),
            (float("nan"), '"NaN"'),
            (float("-inf"), '"-Infinity"'),
            (b"bytes", '"bytes"'),
            (b"\xff\x00", r"b'\xff\x00'"),
            ({"a": b"\xff"}, r"{'a': b'\xff'}"),
            ({"a": "\ud800"}, r"{'a': '\ud800'}"),
            (Point(x=1), '{"x":1,"y":0}'),
            (Box(Point(x=1)), '{"at":{"x":1,"y":0},"size":1.0}'),
            (Color.RED, '"red"'),
            ({1}, "[1]"),
            ((1, "a"), '[1,"a"]'),
            (Pair(1), '[1,"r"]'),
            ({1: 2, None: 3, (4, 5): 6}, '{"1":2,"None":3,"4,5":6}'),
            (datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), '"2026-01-02T03:04:05Z"'),
            (decimal.Decimal("1.10"), '"1.10"'),
            (Path("a/b"), '"a/b"'),
            (ValueError("wrong"), '"wrong"'),
            ([Unshowable()], '["<Unserializable Unshowable object>"]'),
            ((i for i in range(3)), "[0,1,2]"),
            (10**5000, "1" + "0" * 5000),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_as_the_model_is_told(self, value, text):
        assert result_text(value) == text

    def test_an_object_of_no_kind(self):
        assert result_text(Opaque()).startswith('"<')

    def test_what_holds_itself(self):
        loop: list[Any] = []
        loop.append(loop)
        assert result_text(loop) == '["..."]'

    def test_what_is_deep(self):
        deep: list[Any] = []
        for _ in range(10_000):
            deep = [deep]
        assert result_text(deep).startswith("[[[[")

    @settings(max_examples=40, deadline=None)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.decimals(),
            lambda s: st.lists(s) | st.dictionaries(st.text(), s) | st.tuples(s),
        )
    )
    def test_anything_can_be_told(self, value):
        assert isinstance(result_text(value), str)


STRING, INTEGER = {"type": "string"}, {"type": "integer"}


class TestSchemaOnly:
    @pytest.mark.parametrize(
        ("schema", "right", "wrong"),
        [
            (STRING, ["", "a"], [1, None, ["a"], {}]),
            (INTEGER, [1, -1, 10**30, 2.0, "5"], [1.5, "a", [1]]),
            ({"type": "number"}, [1, 1.5], ["a", {}]),
            ({"type": "boolean"}, [True, "false"], ["perhaps", 5, []]),
            ({"type": "null"}, [None], [0, ""]),
            ({"type": ["string", "null"]}, ["a", None], [1]),
            ({"enum": ["a", 1, None]}, ["a", 1, None], ["b", 2]),
            ({"type": "string", "enum": ["a"]}, ["a"], ["A", 1]),
            ({"type": "array", "items": INTEGER}, [[], [1, 2]], [1, "1", ["a"], {}]),
            ({"type": "array"}, [[], [1, "a"]], [1, {}]),
            ({"anyOf": [STRING, {"type": "array", "items": STRING}]}, ["a", ["b"]], [1, [1]]),
            ({"oneOf": [INTEGER, {"type": "null"}]}, [1, None], ["a"]),
            ({"type": "object"}, [{}, {"a": 1}], [1, []]),
            ({"type": "object", "properties": {"b": INTEGER}}, [{}, {"b": 1}, {"b": None}, {"c": 1}], [{"b": "x"}]),
            ({"type": "object", "properties": {"b": INTEGER}, "required": ["b", "c"]}, [{"b": 1, "c": 2}], [{"b": 1}]),
            ({"type": "object", "additionalProperties": False}, [{}], [{"a": 1}]),
            ({"type": "integer", "default": "any"}, [1, "any"], ["some"]),
            ({}, [1, None, {}], []),
            (True, [1, None, {}], []),
            ({"$ref": "#/$defs/Unread"}, [1, None, {}], []),
            ({"type": "file"}, [1], []),
        ],
    )
    def test_what_the_schema_says_is_checked(self, schema, right, wrong):
        parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
        made = Function(name="f", parameters=parameters)
        for value in right:
            assert made.refusal(json.dumps({"a": value})) is None
        for value in wrong:
            assert made.refusal(json.dumps({"a": value})).startswith("a")
        assert made.refusal("{}") == "a: Field required (given: {})"
        assert made.parameters is parameters

    def test_what_is_not_required_may_be_null(self):
        made = Function(name="f", parameters={"properties": {"a": INTEGER}, "additionalProperties": False})
        assert made.refusal('{"a": null}') is None
        assert made.refusal("{}") is None
        assert made.refusal('{"a": "x", "b": 1}') == (
            "a: Input should be a valid integer, unable to parse string as an integer (given: 'x')\n"
            "b: Extra inputs are not permitted (given: 1)"
        )

    @pytest.mark.parametrize(
        "schema",
        [
            {"enum": []},
            {"enum": [{"a": 1}]},
            {"enum": [1.5]},
            {"anyOf": []},
            {"anyOf": 5},
            {"type": []},
            {"type": 5},
            {"type": "object", "properties": 5, "required": 5},
            {"type": "object", "required": [5]},
            {"type": "array", "items": 5},
        ],
    )
    def test_a_schema_that_makes_no_sense_checks_for_an_object(self, schema):
        made = Function(name="f", parameters={"type": "object", "properties": {"a": schema}})
        assert made.refusal("{}") is None
        assert made.refusal("[]").startswith("input: ")

    @pytest.mark.parametrize(
        ("wrap", "nest"),
        [
            (lambda schema: {"type": "array", "items": schema}, lambda value: [value]),
            (lambda schema: {"type": ["array"], "items": schema}, lambda value: [value]),
            (lambda schema: {"anyOf": [schema]}, lambda value: value),
            (lambda schema: {"type": "object", "properties": {"b": schema}}, lambda value: {"b": value}),
        ],
        ids=["array", "list of types", "anyOf", "object"],
    )
    def test_schemas_are_read_to_some_depth(self, wrap, nest):
        schema, wrong = INTEGER, "x"
        for depth in range(5000):
            schema = wrap(schema)
            if depth < 3:
                wrong = nest(wrong)
                made = Function(name="f", parameters={"properties": {"a": schema}})
                assert "Input should be a valid integer" in made.refusal(json.dumps({"a": wrong}))
        made = Function(name="f", parameters={"properties": {"a": schema}})
        wrong = "x"
        for _ in range(40):
            wrong = nest(wrong)
        assert made.refusal(json.dumps({"a": wrong})) is None


def cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CASES.read_text().splitlines()] if CASES.exists() else []


def accepted(values: list[Any]) -> Any:
    """The first of the accepted values; those in an object are lists of accepted values in turn."""
    value = values[0] if values else None
    if isinstance(value, dict):
        return {key: accepted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [accepted([inner]) if isinstance(inner, dict) else inner for inner in value]
    return value


class TestRecordedCases:
    """Function definitions of the Berkeley Function Calling Leaderboard, and calls that are right."""

    def test_they_are_there(self):
        if not CASES.exists():
            pytest.skip(f"no recorded cases at {CASES}")
        assert len(cases()) == 60

    @pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
    def test_right_calls_are_taken_and_others_refused(self, case):
        made = {given["name"]: Function(**given) for given in case["functions"]}
        for expected in case["expected_calls"]:
            function = made[expected["name"]]
            for is_whole in (False, True):
                arguments = {
                    name: accepted(given["accept"])
                    for name, given in expected["arguments"].items()
                    if is_whole or not given["optional"]
                }
                assert function.refusal(json.dumps(arguments)) is None
            assert function.refusal(json.dumps([arguments])) is not None
            for name in function.parameters.get("required", []):
                without = {key: value for key, value in arguments.items() if key != name}
                assert function.refusal(json.dumps(without)).startswith(f"{name}: Field required")
                if function.parameters["properties"][name]["type"] not in ("object", "any"):
                    wrong = json.dumps({**arguments, name: {"no": "such thing"}})
                    assert function.refusal(wrong).startswith(name)

"""Is a Python function described correctly, and are a model's arguments accepted, or refused in words?"""

from __future__ import annotations

import asyncio
import copy
import datetime
import decimal
import functools
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import pytest
from argument_types import Box, Color, Pair, Point
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field
from support.examples import examples
from support.time_growth import growth

from fsm_agent.agents import Agent
from fsm_agent.call import Request
from fsm_agent.errors import ParseError, UsageError
from fsm_agent.functions import Context, Function, function
from fsm_agent.messages import FunctionCall, Message
from fsm_agent.providers import OpenAIChatCodec, Profile
from fsm_agent.testing import Script, function_call


class TestDefinition:
    def test_a_name_is_one_that_providers_take(self):
        made = Function(name="A" * 60 + "_1-b")
        assert (made.name, made.is_async, made.blocking) == ("A" * 60 + "_1-b", False, True)
        for name in ("", "a b", "a.b", "A" * 65, "caf\u00e9", "a\n", "\u0661"):
            with pytest.raises(UsageError, match="name of a function"):
                Function(name=name)

    def test_what_cannot_be_called(self):
        with pytest.raises(UsageError, match="5"):
            Function.of(5)

    def test_of_a_function_with_changes(self):
        made = Function.of(len)
        changed = Function.of(made, name="size", needs_approval=True)
        assert (changed.name, changed.needs_approval, changed.description) == ("size", True, made.description)
        assert (made.name, made.needs_approval) == ("len", None)
        assert changed.run('{"obj": []}') == 0

    def test_the_decorator_takes_every_policy(self):
        @function(name="roll", description="Roll.", repeatable=True, needs_approval=True, blocking=False)
        def f() -> int:
            """Not this."""
            return 4

        assert (f.name, f.description) == ("roll", "Roll.")
        assert (f.repeatable, f.needs_approval, f.blocking) == (True, True, False)
        assert f() == 4
        assert function(len, needs_approval=True).needs_approval

    def test_without_a_callable(self):
        made = Function(name="ask", parameters={"type": "object", "properties": {"q": {"type": "string"}}})
        assert made.refusal('{"q": "?"}') is None
        assert made.refusal("") is None
        for wrong in ("[1]", "5", "{", '{"a": 1} x', '{"a":"\ud800"}'):
            assert made.refusal(wrong).startswith("input: ")
        with pytest.raises(UsageError, match="'ask'"):
            made.run('{"q": "?"}')

    def test_its_repr_leaves_out_the_defaults(self):
        assert repr(Function(name="roll", once=True)) == "Function(once=True, name='roll')"

    def test_its_repr_shows_no_callable(self):
        made = Function.of(functools.partial(lambda key: key, key="secret"), name="f")
        assert "secret" not in repr(made)
        assert "secret" not in json.dumps(made.parameters)


def add(a: int, b: int = 2, c: list[int] | None = None) -> int:
    return a + b


ADD = Function.of(add)
OPEN = Function.of(lambda **given: given, name="open")
DEEP = "[" * 10_000 + "]" * 10_000


class TestBinding:
    def test_validated_once_and_run_with_that(self):
        def f(a: int, b: list[int], /, c: Color = Color.RED) -> Any:
            b.append(a)
            return a, b, c

        made = Function.of(f)
        arguments = made.bind('{"a": "1", "b": [2], "c": "blue"}')
        assert arguments == {"a": 1, "b": [2], "c": Color.BLUE}
        assert made.run(arguments) == (1, [2, 1], Color.BLUE)
        assert list(arguments) == ["a", "b", "c"]

    def test_each_run_has_its_own(self):
        given = '{"a": 1, "c": [5]}'
        first, second = ADD.bind(given), ADD.bind(given)
        first["c"].append(6)
        assert second == {"a": 1, "c": [5]}
        assert ADD.bind(given) == second

    def test_what_cannot_be_taken_is_the_models_fault(self):
        with pytest.raises(ParseError, match=r"^a: ") as caught:
            ADD.bind("{}")
        assert str(caught.value) == ADD.refusal("{}")

    @pytest.mark.parametrize("raised", [KeyError("x"), RecursionError("deep")])
    def test_what_a_validator_of_the_user_raises_is_told(self, raised):
        def check(value: str) -> str:
            raise raised

        def f(a: Annotated[str, AfterValidator(check)]): ...

        refusal = Function.of(f, namespace=locals()).refusal('{"a": "x"}')
        assert refusal == f"input: {type(raised).__name__}: {raised}"

    def test_what_the_caller_did_wrong_is_not_told_to_the_model(self):
        def f(a: Annotated[str, BeforeValidator(misused)]): ...

        with pytest.raises(PermissionError, match="no table"):
            Function.of(f).refusal('{"a": "x"}')


def misused(value: Any) -> Any:
    raise PermissionError("no table")


@function
def held(a: int) -> int:
    return a


@function
def replaced(a: int) -> int:
    return a


before_it_was_replaced = replaced


@function
def replaced(a: int) -> int:  # type: ignore[no-redef]
    return -a


class TestCopies:
    def test_a_copy_does_the_same_and_is_another(self):
        made = Function.of(add, needs_approval=True, depends_on=["look"])
        for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            assert again is not made
            assert (again.name, again.needs_approval, again.depends_on) == ("add", True, ("look",))
            assert again.parameters == made.parameters
            assert again.run('{"a": 1}') == 3
            assert again.refusal("{}") == made.refusal("{}")
        assert copy.deepcopy(made).validator is made.validator, "it is large, and never changes"

    def test_what_no_other_process_could_find_is_refused(self):
        def here(a: int) -> int:
            return a

        with pytest.raises(UsageError, match="'here'"):
            pickle.dumps(Function.of(here))
        with pytest.raises(UsageError, match="'replaced'"):
            pickle.dumps(before_it_was_replaced)


class TestTwins:
    def test_under_asyncio_the_twin_is_called(self):
        def f(a: int) -> str:
            return f"plain {a}"

        async def twin(a: int) -> str:
            return f"awaited {a}"

        made = Function.of(f, acall=twin)
        assert made.run('{"a": "1"}') == "plain 1"
        assert asyncio.run(made.arun('{"a": "1"}')) == "awaited 1"
        assert made(2) == "plain 2"
        assert made.is_async is False

    def test_who_takes_a_context_is_not_run_without(self):
        def f(ctx: Context, a: int) -> Any: ...

        for run in (Function.of(f).run, Function.of(f).arun):
            with pytest.raises(UsageError, match="'f'"):
                run('{"a": 1}')

    def test_the_twin_is_given_the_context_too(self):
        def f(ctx: Context, a: int) -> Any: ...

        async def twin(ctx: Context, a: int) -> Any:
            return ctx, a

        context = Context(deps=None)
        made = function(acall=twin)(f)
        assert asyncio.run(made.arun('{"a": 1}', context)) == (context, 1)


class TestLinking:
    BARE = Function(
        name="ask",
        description="Ask.",
        parameters={
            "type": "object",
            "properties": {"q": {"type": "string"}, "n": {"type": "integer"}},
            "required": ["q"],
        },
        needs_approval=True,
    )

    def test_a_bound_copy(self):
        linked = self.BARE.link(lambda q, n=1: q * (n or 1))
        assert linked.run('{"q": "a", "n": 3}') == "aaa"
        assert linked.run('{"q": "a", "n": null}') == "a"
        assert linked("b", n=2) == "bb"
        assert (linked.name, linked.description, linked.needs_approval) == ("ask", "Ask.", True)
        assert linked.parameters is self.BARE.parameters
        assert self.BARE.call is None
        with pytest.raises(UsageError, match="'ask'"):
            self.BARE.run('{"q": "a"}')
        assert linked.refusal('{"n": 1}') == self.BARE.refusal('{"n": 1}')
        assert linked.refusal('{"n": 1}').startswith("q: ")

    def test_a_decorated_function_is_taken_for_its_callable(self):
        @function
        def f(q: str, n: int = 0) -> str:
            return q * n

        assert self.BARE.link(f).run('{"q": "a", "n": 3}') == "aaa"

    @pytest.mark.parametrize(
        ("call", "name"),
        [
            (lambda q: q, "'n'"),
            (lambda question, n: n, "'q'"),
            (functools.partial(lambda q, n: n, n=1), "'n'"),
            (lambda q, n: n, "'n'"),
            (lambda q, user, n=1: n, "'user'"),
            (5, "5"),
            (getattr, "'ask'"),
        ],
    )
    def test_what_does_not_fit(self, call, name):
        with pytest.raises(UsageError, match=name):
            self.BARE.link(call)

    def test_a_coroutine_that_takes_positions_alone(self):
        async def f(q, n=1, /):
            return q * n

        linked = self.BARE.link(f)
        assert linked.is_async
        assert asyncio.run(linked.run('{"q": "a", "n": 2}')) == "aa"
        assert asyncio.run(linked.run('{"q": "a"}')) == "a"
        assert self.BARE.link(lambda **rest: rest).run('{"q": "a", "n": 2}') == {"q": "a", "n": 2}


class TestOffered:
    """Functions in the wire formats and in an agent call."""

    def test_each_is_there_with_its_schema_and_without_any_there_is_no_key(self):
        def sent(*functions: Function) -> dict[str, Any]:
            asked = Request(messages=[Message.of("user", "hi")], functions=functions)
            return json.loads(OpenAIChatCodec().encode(asked, model="m", profile=Profile(), stream=False))

        assert not {"tools", "tool_choice"} & set(sent())
        made = Function.of(ADD, description="Add.")
        told = {"name": "add", "description": "Add.", "parameters": ADD.parameters}
        assert sent(made)["tools"] == [{"type": "function", "function": told}]

    def test_what_the_model_did_wrong_is_told_and_the_call_goes_on(self):
        script = Script(function_call("ad", a=1), function_call("add", a="x"), function_call("add", a=1), "3")
        result = Agent(script, functions=[ADD]).call("1 + 2?")
        assert result.output == "3"
        told = [part for message in result.dialog if message.role == "tool" for part in message.parts]
        assert [part.is_error for part in told] == [True, True, False]
        assert "'ad'" in told[0].text
        assert told[1].text.endswith("\n" + ADD.refusal('{"a": "x"}'))
        assert told[2].text == "3"


class Unshowable:
    def __repr__(self):
        raise RuntimeError("no")


class TestTold:
    CALL = FunctionCall(name="add", arguments_json='{"a": 1}', id="3.0")

    def test_what_the_format_says(self):
        made = Function.of(add, format=lambda value, call: f"{call.name}({call.arguments['a']}) = {value}")
        assert made.format_result(3, self.CALL) == "add(1) = 3"
        assert Function.of(add, format=lambda value, call: "half \ud800").format_result(3, self.CALL) == "half ?"
        with pytest.raises(UsageError, match="format of function 'add'"):
            Function.of(add, format=lambda value, call: value).format_result(3, self.CALL)

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("plain {text} \u00e9", "plain {text} \u00e9"),
            ("a file's name \udcff", "a file's name ?"),
            (None, "null"),
            (float("nan"), '"NaN"'),
            (b"\xff\x00", r"b'\xff\x00'"),
            ({"a": "\ud800"}, r"{'a': '\ud800'}"),
            (Box(Point(x=1)), '{"at":{"x":1,"y":0},"size":1.0}'),
            (Color.RED, '"red"'),
            (Pair(1), '[1,"r"]'),
            ({1: 2, None: 3, (4, 5): 6}, '{"1":2,"None":3,"4,5":6}'),
            ([Unshowable()], '["<Unserializable Unshowable object>"]'),
            ((i for i in range(3)), "[0,1,2]"),
            (MappingProxyType({"a": Point(x=1)}), '{"a":{"x":1,"y":0}}'),
            (10**5000, "1" + "0" * 5000),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_without_one_it_is_told_as_json(self, value, text):
        assert ADD.format_result(value, self.CALL) == text

    def test_what_holds_itself_or_is_deep(self):
        loop: list[Any] = []
        loop.append(loop)
        assert ADD.format_result(loop, self.CALL) == '["..."]'
        deep: list[Any] = []
        for _ in range(10_000):
            deep = [deep]
        assert ADD.format_result(deep, self.CALL).startswith("[[[[")


class Filter(BaseModel):
    field: Annotated[str, Field(max_length=10)]
    below: list[Filter] = []


def everything(
    count: Annotated[int, Field(ge=0, multiple_of=3)] = 0,
    price: decimal.Decimal = decimal.Decimal(0),
    day: datetime.date | None = None,
    at: datetime.datetime | None = None,
    span: datetime.timedelta | None = None,
    names: set[Any] = frozenset(),
    table: dict[int, float] | None = None,
    color: Color = Color.RED,
    kind: Literal["a", 1, None] = None,
    path: Path | None = None,
    filter: Filter | None = None,
    raw: bytes = b"",
    **rest: Any,
) -> Any:
    return names


TYPED = Function.of(everything)
BY_SCHEMA = Function(name="everything", parameters=TYPED.parameters)
KEYS = st.sampled_from([*TYPED.parameters["properties"], "field", "below", "other", ""])
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**4000), 2**63, 1e308])
WORDS = st.text() | st.sampled_from(["1e999999999", "NaN", "-Infinity", "P9999999999D", "9999-99-99", "\0", "9" * 5000])
ODD_JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(), inner, max_size=6),
    max_leaves=12,
)


LARGE: dict[str, Callable[[int], str]] = {
    "text": lambda n: '{"path": "' + "x" * n + '"}',
    "too long": lambda n: '{"filter": {"field": "' + "x" * n + '"}}',
    "keys": lambda n: "{" + ",".join(f'"{i}":0' for i in range(n // 8)) + "}",
    "unhashable": lambda n: '{"names": [' + "[1]," * (n // 4) + "0]}",
    "table": lambda n: '{"table": {' + ",".join(f'"{i}":"x"' for i in range(n // 8)) + "}}",
    "nested": lambda n: '{"filter": {"field": "x", "below": [' + '{"field": 1},' * (n // 13) + "0]}}",
    "digits": lambda n: '{"count": ' + "9" * n + "}",
    "price": lambda n: '{"price": "' + "9" * n + '"}',
    "decimals": lambda n: '{"table": {' + ",".join(f'"{i}":{i}.{"1" * 30}' for i in range(n // 40)) + "}}",
    "duplicates": lambda n: "{" + '"count": 1,' * (n // 11) + '"count": 2}',
    "openers": lambda n: '{"x": ' * (n // 6),
    "lists": lambda n: "[" * n,
}


class TestHostileValues:
    @examples(40)
    @given(st.dictionaries(KEYS, ODD_JSON, max_size=8))
    def test_any_value_of_any_parameter_is_taken_or_refused(self, arguments):
        given = json.dumps(arguments)
        for made in (TYPED, BY_SCHEMA):
            refusal = made.refusal(given)
            if refusal is None:
                made.bind(given)
            else:
                assert 0 < len(refusal) < 40_000
                refusal.encode()

    def test_large_ones_are_taken_or_refused_in_few_words(self):
        for text in LARGE.values():
            for made in (TYPED, BY_SCHEMA):
                assert len(made.refusal(text(2000)) or "") < 5000

    @pytest.mark.nightly
    @pytest.mark.parametrize("made", [TYPED, BY_SCHEMA], ids=["typed", "schema"])
    @pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
    def test_time_is_linear(self, made, text):
        assert growth(text, made.refusal, 20_000) < 3

    def test_a_model_that_holds_itself_is_read_to_where_json_ends(self):
        deep = '{"field": "x", "below": [' * 90 + "]}" * 90
        assert TYPED.refusal('{"filter": ' + deep + "}") is None
        deep = '{"field": "x", "below": [' * 5000 + "]}" * 5000
        assert TYPED.refusal('{"filter": ' + deep + "}").startswith("input: ")


class Sought(BaseModel):
    field: str
    limit: int = 10


@dataclass
class Line:
    name: str
    tags: list[str]


@dataclass
class Point:
    x: int
    y: int = 1


# Each is refused, in few words.
HOSTILE = (
    '{"a": NaN}',
    '{"a": 1e999}',
    '{"a": ' + "9" * 5000 + "}",
    '{"a": "' + "x" * 10**6 + '"}',
    '{"' + "k" * 10**6 + '": 1, "a": 1}',
    json.dumps({str(i): i for i in range(10_000)}),
    '{"a": 1, "c": [' + '"x",' * 10_000 + "0]}",
    '{"a": ' + DEEP + "}",
    '{"a": ' * 10_000 + "1" + "}" * 10_000,
    "[" * 10_000,
    '{"a": "\\ud800"}',
    '{"a": "\ud800"}',
    "\ud800",
    '{"a": 1, "a": "x"}',
    *("[1]", '"{}"', "null", " ", '{"a": 1} x', '{"a": 1}\0', '\ufeff{"a": 1}', "{'a': 1}", '{"a": 1,}'),
)


class TestArguments:
    def test_null_is_left_out_where_the_default_is_no_null(self):
        def find(
            text: str,
            count: int = 3,
            kind: Literal["a", "b"] = "a",
            either: int | str = "x",
            maybe: int | None = 5,
            by: Sought | None = None,
            tags: list[str] = [],  # noqa: B006
        ): ...

        for asked, value in [
            ({"count": None, "kind": None, "either": None, "tags": None}, {}),
            ({"maybe": None}, {"maybe": None}),
            ({"by": {"field": "f", "limit": None}}, {"by": Sought(field="f")}),
        ]:
            assert Function.of(find).bind(json.dumps({"text": "t", **asked})) == {"text": "t", **value}
        for wrong in ({"text": None}, {"text": "t", "by": {"field": None}}, {"text": "t", "tags": ["a", None]}):
            assert Function.of(find).refusal(json.dumps(wrong)), wrong
        assert Function.of(find).refusal('{"text": "t", "tags": [null], "maybe": NaN}')

    @pytest.mark.parametrize(
        ("taken", "given", "path"),
        [
            (dict[str, int], {"a": 1, "b": None}, "b"),
            (dict[str, Sought], {"k": None}, "k"),
            (dict[str, list[int]] | None, {"a": None}, "a"),
            (dict[str, int] | list[int], {"a": None}, "dict[str,int].a"),
            (dict[str, int] | Point, {"a": None}, "dict[str,int].a"),
            (list[dict[str, int]], [{"a": None}], "0.a"),
        ],
    )
    def test_null_stays_where_any_key_is_taken(self, taken, given, path):
        def save(it): ...

        save.__annotations__["it"] = taken
        for made in (Function.of(save), Function(name="save", parameters=Function.of(save).parameters)):
            refusal = made.refusal(json.dumps({"it": given})) or ""
            assert path.rpartition(".")[2] in refusal.partition(":")[0].split("."), refusal

    def test_null_is_left_out_under_every_name_of_a_field(self):
        class Item(BaseModel):
            model_config = ConfigDict(populate_by_name=True)
            unit_price: int = Field(default=1, alias="unitPrice")
            size: int = Field(default=2, validation_alias=AliasChoices("large", "big"))

        def order(it): ...

        order.__annotations__["it"] = Item
        for name in ("unitPrice", "unit_price", "large", "big", "size"):
            assert Function.of(order).bind(f'{{"it": {{"{name}": null}}}}')["it"] == Item(), name

    def test_null_is_left_out_for_a_parameter_beside_any_others(self):
        def label(name: str = "it", **labels: str) -> str:
            return f"{name}: {labels}"

        kinds = {"properties": {"name": {"type": "string"}}, "additionalProperties": {"type": "string"}}
        foreign = Function(name="label", parameters={"type": "object", **kinds}, call=label)
        for made in (Function.of(label), foreign):
            assert made.run('{"name": null, "size": "L"}') == "it: {'size': 'L'}"
            assert made.refusal('{"name": null, "size": null}')

        nested = {"type": "object", "properties": {"it": {"type": "object", **kinds}}}
        made = Function(name="label", parameters=nested, call=label)
        assert made.bind('{"it": {"name": null, "size": "L"}}') == {"it": {"size": "L"}}
        assert made.refusal('{"it": {"name": null, "size": null}}').startswith("it.size: ")

    def test_a_schema_that_contains_itself_is_followed_once(self):
        either = {"anyOf": [{"$ref": "#/$defs/it"}, {"properties": {"n": {"type": "integer"}}, "type": "object"}]}
        made = Function(name="f", parameters={"properties": {"it": {"$ref": "#/$defs/it"}}, "$defs": {"it": either}})
        assert made.refusal('{"it": {"n": null}}') is None

    @pytest.mark.parametrize(
        ("taken", "wrap"),
        [
            (Point, lambda point: point),
            (Sought | Point, lambda point: point),
            (list[Point], lambda point: [point, point]),
            (tuple[int, Point], lambda point: (7, point)),
            (dict[str, Point], lambda point: {"k": point}),
            (dict[Annotated[str, Field(pattern="^k")], Point], lambda point: {"k": point}),
        ],
    )
    def test_null_is_left_out_for_a_field_of_a_dataclass(self, taken, wrap):
        def save(it): ...

        save.__annotations__["it"] = taken
        told = json.dumps({"it": wrap({"x": 2, "y": None})})
        assert Function.of(save).bind(told) == {"it": wrap(Point(2))}

    def test_a_decimal_that_would_lose_digits_is_refused_unless_it_is_in_quotes(self):
        def pay(amount: decimal.Decimal, note: str = "", **rest: decimal.Decimal): ...

        digits = "1234567890.123456789012345678901"
        with pytest.raises(ParseError, match=r"input: 1234567890.\S+: expected at most 15 digits; .* in quotes"):
            Function.of(pay).bind(f'{{"amount": {digits}, "note": null}}')
        exact = decimal.Decimal(digits)
        assert Function.of(pay).bind(f'{{"amount": "{digits}", "note": null, "tax": 0.1}}') == {
            "amount": exact,
            "tax": decimal.Decimal("0.1"),
        }

    def test_a_float_beside_a_decimal_may_have_any_digits(self):
        def pay(amount: decimal.Decimal, weight: float, parts: tuple[decimal.Decimal | float, ...] = ()): ...

        digits = "0.10000000000000001"
        paid = {"amount": decimal.Decimal("1.5"), "weight": 0.1}
        assert Function.of(pay).bind(f'{{"amount": 1.5, "weight": {digits}}}') == paid
        for lossy in (f'"amount": {digits}, "weight": {digits}', f'"amount": 1, "weight": 1, "parts": [{digits}]'):
            with pytest.raises(ParseError, match="in quotes"):
                Function.of(pay).bind(f"{{{lossy}}}")

    def test_lists_and_objects_may_be_written_as_texts(self):
        def order(
            items: list[Line],
            counts: dict[str, int] | None = None,
            one: Line | None = None,
            pair: tuple[int, int] = (0, 0),
            note: str = "",
            either: list[int] | str = "",
        ): ...

        line, quoted = {"name": "lamp", "tags": ["a"]}, json.dumps
        lamp = Line("lamp", ["a"])
        for asked, value in [
            ({"items": quoted([line])}, {"items": [lamp]}),
            ({"items": [quoted(line), line]}, {"items": [lamp, lamp]}),
            ({"items": quoted([{"name": "lamp", "tags": quoted(["a"])}])}, {"items": [lamp]}),
            (
                {"items": [], "counts": quoted({"a": 1}), "one": f" {quoted(line)}", "pair": "[1, 2]"},
                {"items": [], "counts": {"a": 1}, "one": lamp, "pair": (1, 2)},
            ),
            ({"items": [], "note": "[1]", "either": "[1]"}, {"items": [], "note": "[1]", "either": "[1]"}),
        ]:
            assert Function.of(order).bind(json.dumps(asked)) == value, asked
        declared = Function(name="f", parameters=Function.of(order).parameters)
        assert declared.bind(json.dumps({"items": quoted([line])})) == {"items": [line]}
        for wrong in ("[1", "{'name': 'lamp'}", '{"name": "lamp"}', '"[]"', "lamp", '[{"name": 1}]'):
            assert (Function.of(order).refusal(json.dumps({"items": wrong})) or "").startswith("items"), wrong

    def test_each_bad_field_is_told(self):
        told = ADD.refusal('{"a": "x", "c": [1, "2", null], "d": 4}').splitlines()
        assert [line.partition(": ")[0] for line in told] == ["a", "c.2", "d"]
        assert [line.rpartition(" (given: ")[2] for line in told] == ["'x')", "None)", "4)"]
        assert ADD.refusal("{}").startswith("a: ")

    def test_hostile_ones_are_refused_in_few_words(self):
        for text in HOSTILE:
            refusal = ADD.refusal(text)
            assert 0 < len(refusal) < 5000
            refusal.encode()
            with pytest.raises(ParseError):
                ADD.run(text)

    @settings(deadline=None)
    @given(st.text(alphabet='{}[]",:\\abc10ue.- \n\0\ud800\ufeff'))
    def test_any_text_is_taken_or_refused(self, arguments_json):
        for made in (ADD, OPEN, Function(name="f")):
            refusal = made.refusal(arguments_json)
            assert refusal is None or 0 < len(refusal) < 5000

    def test_what_a_validator_says_is_bounded(self):
        def f(a: Annotated[str, AfterValidator(refuse)]): ...

        assert 100 < len(Function.of(f).refusal(json.dumps({"a": "x" * 10**6}))) < 2000

    def test_more_than_twenty_are_counted(self):
        def told(count: int) -> list[str]:
            return ADD.refusal(json.dumps({"a": 1, "c": ["x"] * count})).splitlines()

        assert len(told(20)) == 20
        *lines, last = told(50)
        assert len(lines) == 20
        assert "30" in last


def refuse(value: Any) -> Any:
    raise ValueError(value)

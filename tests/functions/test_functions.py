"""Is a Python function described as it is, and are a model's arguments taken or refused in words?"""

from __future__ import annotations

import asyncio
import datetime
import decimal
import functools
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from argument_types import Box, Color, Pair, Point
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError
from support.examples import examples
from support.time_growth import growth

from fsm_agent.agents import Agent
from fsm_agent.errors import ParseError, UsageError
from fsm_agent.functions import Context, Function, function
from fsm_agent.functions.arguments import described_errors
from fsm_agent.functions.function import result_text
from fsm_agent.lifecycle import Request
from fsm_agent.messages import FunctionCall, Message
from fsm_agent.providers import OpenAIChat, Profile
from fsm_agent.providers.catalog import PROVIDERS
from fsm_agent.testing import Script, call


class TestDefinition:
    @pytest.mark.parametrize("name", ["f", "get_weather-2", "A" * 64])
    def test_a_good_name(self, name):
        made = Function(name=name)
        assert (made.name, made.is_async, made.blocking) == (name, False, True)

    @pytest.mark.parametrize("name", ["", "a b", "a.b", "A" * 65, "caf\u00e9", "a\n", "\u0661"])
    def test_a_name_that_providers_refuse(self, name):
        with pytest.raises(UsageError, match="will be refused by providers: use letters, digits"):
            Function(name=name)

    @pytest.mark.parametrize("call", [5, None, "f"])
    def test_what_cannot_be_called(self, call):
        with pytest.raises(UsageError, match="cannot be called: a function, method, partial or object"):
            Function.of(call)

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

        assert (f.name, f.description, f.repeatable, f.needs_approval, f.blocking) == (
            "roll",
            "Roll.",
            True,
            True,
            False,
        )
        assert f() == 4
        assert function(len, needs_approval=True).needs_approval
        with pytest.raises(UsageError, match=r"no policy 'aproval' of functions: did you mean 'needs_approval'\?"):
            function(aproval=True)

    def test_without_a_callable(self):
        made = Function(name="ask", parameters={"type": "object", "properties": {"q": {"type": "string"}}})
        assert made.refusal('{"q": "?"}') is None
        assert made.refusal("") is None
        for wrong in ("[1]", "null", "5", "{", '{"a": 1} x', '{"a":"\ud800"}'):
            assert made.refusal(wrong).startswith("input: ")
        with pytest.raises(UsageError, match="function 'ask' has no callable"):
            made.run('{"q": "?"}')

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
        with pytest.raises(ParseError, match="a: Field required") as caught:
            ADD.bind("{}")
        assert str(caught.value) == ADD.refusal("{}")

    @pytest.mark.parametrize("raised", [KeyError("x"), ZeroDivisionError(), TypeError("no"), RecursionError("deep")])
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
            with pytest.raises(UsageError, match="function 'f' takes a Context"):
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

    @pytest.mark.spec("3.16: a schema alone, linked to a callable later")
    def test_a_bound_copy(self):
        linked = self.BARE.link(lambda q, n=1: q * (n or 1))
        assert linked.run('{"q": "a", "n": 3}') == "aaa"
        assert linked.run('{"q": "a", "n": null}') == "a"
        assert linked("b", n=2) == "bb"
        assert (linked.name, linked.description, linked.needs_approval) == ("ask", "Ask.", True)
        assert linked.parameters is self.BARE.parameters
        assert self.BARE.call is None
        with pytest.raises(UsageError, match="function 'ask' has no callable"):
            self.BARE.run('{"q": "a"}')
        assert linked.refusal('{"n": 1}') == self.BARE.refusal('{"n": 1}') == "q: Field required (given: {'n': 1})"

    def test_a_decorated_function_is_taken_for_its_callable(self):
        @function
        def f(q: str, n: int = 0) -> str:
            return q * n

        assert self.BARE.link(f).run('{"q": "a", "n": 3}') == "aaa"

    @pytest.mark.parametrize(
        ("call", "problem"),
        [
            (lambda q: q, "does not take 'n', which the schema offers"),
            (lambda question, n: n, "does not take 'q', which the schema offers"),
            (functools.partial(lambda q, n: n, n=1), "does not take 'n', which the schema offers"),
            (lambda q, n: n, "needs 'n', which the schema does not require"),
            (lambda q, user, n=1: n, "needs 'user', which the schema does not require"),
            (5, "5 cannot be linked to function 'ask': it cannot be called"),
            (getattr, "function 'ask' does not tell its parameters"),
        ],
    )
    def test_what_does_not_fit(self, call, problem):
        with pytest.raises(UsageError, match=problem):
            self.BARE.link(call)


class TestOffered:
    """What becomes of functions on the wires and in an agent call."""

    @pytest.mark.spec("0.4: without functions there is no key for them")
    @pytest.mark.parametrize("name", ["openai-chat", "openai", "anthropic", "google"])
    def test_without_functions_no_request_has_a_key_for_them(self, name):
        bare, provider = Request(messages=[Message.of("user", "hi")]), PROVIDERS[name]
        body = provider.codec.encode(bare, model="m", profile=provider.profile, stream=False)
        assert not {"tools", "tool_choice", "toolConfig"} & set(body)

    @pytest.mark.spec("0.4: each function goes out with its name, description and schema")
    def test_with_functions_each_is_there_with_its_schema(self):
        asked = Request(messages=[Message.of("user", "hi")], functions=(ADD,))
        body = OpenAIChat().encode(asked, model="m", profile=Profile(), stream=False)
        assert body["tools"] == [{"type": "function", "function": {"name": "add", "parameters": ADD.parameters}}]

    @pytest.mark.spec(
        "1.28: an unknown function is an error result",
        "1.28: invalid arguments are an error result",
        "1.28: the call goes on",
    )
    def test_what_the_model_did_wrong_is_told_and_the_call_goes_on(self):
        script = Script(call("ad", a=1), call("add", a="x"), call("add", a=1), "3")
        result = Agent(script, functions=[ADD]).call("1 + 2?")
        assert result.output == "3"
        told = [message.text for message in result.dialog.messages if message.role == "tool"]
        assert told == [
            "There is no function 'ad'. There are: add.",
            "The arguments of add are not valid:\n"
            "a: Input should be a valid integer, unable to parse string as an integer (given: 'x')",
            "3",
        ]


class TestTold:
    CALL = FunctionCall(name="add", arguments_json='{"a": 1}', id="3.0")

    @pytest.mark.spec("3.17: a function has its own format")
    def test_what_the_format_says(self):
        made = Function.of(add, format=lambda value, call: f"{call.name}({call.arguments['a']}) = {value}")
        assert made.format_result(3, self.CALL) == "add(1) = 3"
        assert ADD.format_result({"a": 3}, self.CALL) == '{"a":3}'
        assert Function.of(add, format=lambda value, call: "half \ud800").format_result(3, self.CALL) == "half ?"

    @pytest.mark.spec("3.17: a function has its own format")
    def test_a_format_that_gives_no_text(self):
        with pytest.raises(UsageError, match="format of function 'add' returned 3: a text would be right"):
            Function.of(add, format=lambda value, call: value).format_result(3, self.CALL)


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


class TestHostileValues:
    @examples(150)
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

    @pytest.mark.system
    @pytest.mark.parametrize("made", [TYPED, BY_SCHEMA], ids=["typed", "schema"])
    @pytest.mark.parametrize(
        "text",
        [
            lambda n: '{"path": "' + "x" * n + '"}',
            lambda n: '{"filter": {"field": "' + "x" * n + '"}}',
            lambda n: "{" + ",".join(f'"{i}":0' for i in range(n // 8)) + "}",
            lambda n: '{"names": [' + "[1]," * (n // 4) + "0]}",
            lambda n: '{"table": {' + ",".join(f'"{i}":"x"' for i in range(n // 8)) + "}}",
            lambda n: '{"filter": {"field": "x", "below": [' + '{"field": 1},' * (n // 13) + "0]}}",
            lambda n: '{"count": ' + "9" * n + "}",
            lambda n: '{"price": "' + "9" * n + '"}',
            lambda n: "{" + '"count": 1,' * (n // 11) + '"count": 2}',
            lambda n: '{"x": ' * (n // 6),
        ],
        ids=["text", "too long", "keys", "unhashable", "table", "nested", "digits", "price", "duplicates", "openers"],
    )
    def test_time_is_linear(self, made, text):
        assert growth(text, made.refusal, 20_000) < 3

    def test_a_model_that_holds_itself_is_read_to_where_json_ends(self):
        deep = '{"field": "x", "below": [' * 90 + "]}" * 90
        assert TYPED.refusal('{"filter": ' + deep + "}") is None
        deep = '{"field": "x", "below": [' * 5000 + "]}" * 5000
        assert TYPED.refusal('{"filter": ' + deep + "}").startswith("input: Invalid JSON: recursion limit exceeded")


class TestArguments:
    @pytest.mark.spec("4.29: wrong, missing, extra and nested arguments are named")
    def test_each_bad_field_is_told(self):
        assert ADD.refusal('{"a": "x", "c": [1, "2", null], "d": 4}') == (
            "a: Input should be a valid integer, unable to parse string as an integer (given: 'x')\n"
            "c.2: Input should be a valid integer (given: None)\n"
            "d: Extra inputs are not permitted (given: 4)"
        )
        assert ADD.refusal("{}") == "a: Field required (given: {})"

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
        with pytest.raises(ParseError):
            ADD.run(arguments_json)

    @settings(deadline=None)
    @given(st.text(alphabet='{}[]",:\\abc10ue.- \n\0\ud800\ufeff'))
    def test_any_text_is_taken_or_refused(self, arguments_json):
        for made in (ADD, OPEN, Function(name="f")):
            refusal = made.refusal(arguments_json)
            assert refusal is None or 0 < len(refusal) < 5000

    @pytest.mark.system
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

    def test_a_number_that_python_does_not_write_out(self):
        for value in (10**5000, [10**5000], {"a": {"b": -(10**5000)}}):
            with pytest.raises(ValidationError) as caught:
                TypeAdapter(str).validate_python(value)
            assert described_errors(caught.value).startswith("input: Input should be a valid string")

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

    def test_what_holds_itself(self):
        loop: list[Any] = []
        loop.append(loop)
        assert result_text(loop) == '["..."]'

    def test_what_is_deep(self):
        deep: list[Any] = []
        for _ in range(10_000):
            deep = [deep]
        assert result_text(deep).startswith("[[[[")

"""Is a context given to a function that wants one, and hidden from every model?"""

from __future__ import annotations

import asyncio
import functools
import json
import typing
from typing import Annotated, Any, TypeAlias

import pytest
from typing_extensions import TypeAliasType

import fsm_agent
from fsm_agent.agents import Agent
from fsm_agent.errors import UsageError
from fsm_agent.functions import Context, Function
from fsm_agent.messages import FunctionCall
from fsm_agent.testing import Script, function_call

if typing.TYPE_CHECKING:
    from nowhere import Database

Short: TypeAlias = Context[dict]
Named = TypeAliasType("Named", Context[dict])
CALL = FunctionCall(name="f", arguments_json='{"a": 1}', id="3.0")
CONTEXT = Context(deps={"user": "ann"}, function_call=CALL, agent_call_id="c1", depth=2, attempt=3)
A_SCHEMA = {
    "type": "object",
    "properties": {"a": {"title": "A", "type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


class TestInjection:
    def test_a_first_parameter_annotated_so_is_not_in_the_schema(self):
        for annotation in (
            *(Context, Context[dict], Annotated[Context[dict], "the context"], Short, Named, "Context"),
            *("Context[dict]",),
            *("Context[Database]", "fsm_agent.Context[Database]", "Annotated[Context[dict], 'the context']"),
        ):

            def f(ctx, a: int) -> Any:
                return ctx, a

            f.__annotations__["ctx"] = annotation
            made = Function.of(f, namespace={"fsm_agent": fsm_agent})
            assert made.takes_context
            assert made.parameters == A_SCHEMA
            assert made.run('{"a": 1}', CONTEXT) == (CONTEXT, 1)
            assert made.refusal('{"a": 1, "ctx": {}}').startswith("ctx: ")

    def test_methods_objects_coroutines_and_partials_take_it_too(self):
        class Shop:
            def buy(self, ctx: Context, a: int) -> Any:
                return ctx, a

            def __call__(self, ctx: Context, a: int) -> Any:
                return ctx, a

        async def later(ctx: Context, a: int) -> Any:
            return ctx, a

        def three(ctx: Context, a: int, b: int) -> Any:
            return ctx, a

        for made in (Shop().buy, Shop(), functools.partial(three, b=2)):
            assert Function.of(made).parameters == A_SCHEMA
            assert Function.of(made).run('{"a": 1}', CONTEXT) == (CONTEXT, 1)
        assert asyncio.run(Function.of(later).run('{"a": 1}', CONTEXT)) == (CONTEXT, 1)

    def test_one_that_a_partial_gives_is_not_given_again(self):
        def f(ctx: Context, *, a: int) -> Any:
            return ctx, a

        for given in (functools.partial(f, CONTEXT), functools.partial(f, ctx=CONTEXT)):
            made = Function.of(given)
            assert not made.takes_context
            assert made.run('{"a": 1}') == (CONTEXT, 1)

    def test_a_linked_callable_takes_it_too(self):
        async def f(ctx: Context, a: int) -> Any:
            return ctx, a

        bare = Function(name="f", parameters=A_SCHEMA)
        linked = bare.link(f)
        assert (linked.takes_context, linked.is_async, bare.takes_context) == (True, True, False)
        assert asyncio.run(linked.run('{"a": 1}', CONTEXT)) == (CONTEXT, 1)

    def test_it_is_given_always_or_not_at_all(self):
        def f(ctx, a: int): ...

        for annotation in (Context | None, list[Context[dict]]):
            f.__annotations__["ctx"] = annotation
            with pytest.raises(UsageError, match="'ctx' of function 'f'"):
                Function.of(f)

    def test_it_is_given_first_and_by_position(self):
        def second(a: int, ctx: Context): ...
        def by_name(*, ctx: Context): ...
        def rest(**ctx: Context): ...

        for wrong in (second, by_name, rest):
            with pytest.raises(UsageError, match="'ctx'"):
                Function.of(wrong)

    def test_another_first_parameter_that_is_known_to_checkers_only_is_an_error(self):
        def f(a: list[Database]): ...

        with pytest.raises(UsageError, match="'Database'"):
            Function.of(f)


class TestContext:
    def test_the_key_is_the_same_in_every_attempt_and_of_no_other_call(self):
        assert CONTEXT.idempotency_key == "c1/3.0"
        assert CONTEXT.changed(attempt=4).idempotency_key == "c1/3.0"
        other = CALL.changed(id="3.1")
        assert CONTEXT.changed(function_call=other).idempotency_key == "c1/3.1"

    def test_by_hand_just_the_deps_will_do(self):
        context = Context(deps=5)
        assert context.emit("nobody") is None
        assert context.release([1]) is None
        assert context.is_cancelled() is False
        assert (context.depth, context.attempt) == (0, 1)

    def test_it_is_a_value_that_shows_no_deps(self):
        with pytest.raises(AttributeError, match="immutable"):
            CONTEXT.attempt = 5
        assert "secret" not in repr(Context(deps={"key": "secret"}))
        assert json.loads(CONTEXT.function_call.arguments_json) == {"a": 1}

    def test_what_is_no_agent_is_named(self):
        for wrong in (5, str):
            with pytest.raises(UsageError, match=r"context.call"):
                Context(deps=None).call(wrong, "?")
            with pytest.raises(UsageError, match=r"context.acall"):
                asyncio.run(Context(deps=None).acall(wrong, "?"))


class TestDecisions:
    """What decides about a call may take its context, too."""

    @pytest.mark.parametrize(
        "approve",
        [
            lambda call: call.name == "read",
            lambda call, context: context.deps == "ann" and call.name == "read",
            lambda call, why="no": why == "no" and call.name == "read",
            lambda call, context=None: context.deps == "ann" and call.name == "read",
        ],
        ids=["the call", "both", "a default", "a context with a default"],
    )
    def test_it_is_given_what_it_takes(self, approve):
        def read() -> str:
            return "a page"

        def buy() -> str:
            raise AssertionError("not approved")

        functions = [Function.of(f, needs_approval=True) for f in (read, buy)]
        script = Script(function_call("read"), function_call("buy"), "done")
        result = Agent(script, functions=functions, approve=approve).call("?", deps="ann")
        assert [made.succeeded for made in result.function_calls] == [True, False]

    def test_what_takes_something_else_is_no_decision(self):
        for wrong in (lambda: True, lambda a, b, c: True, lambda *, call: True, bool):
            with pytest.raises(UsageError, match="approve"):
                Agent(Script(), approve=wrong)


@pytest.mark.parametrize("annotation", [Context[dict | None], Context[Any], Context[object], "Context[dict | None]"])
def test_deps_that_may_be_none_are_not_needed(annotation: Any):
    def look(context: Any) -> str:
        return "fine"

    look.__annotations__["context"] = annotation
    made = Function.of(look)
    assert made.takes_context
    assert (made.deps_type, made.deps_class) == ("", None)

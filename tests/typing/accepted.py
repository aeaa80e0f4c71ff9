"""What type checkers take, and what they make of it; never run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, assert_type

from pydantic import BaseModel

from fsm_agent import (
    Agent,
    CallFailed,
    CallResult,
    Context,
    Dialog,
    Function,
    Message,
    Prompt,
    Toolset,
    function,
)
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.record import Reason
from fsm_agent.messages.event import Done, Stepped


class Person(BaseModel):
    name: str


class Shop:
    def price(self, article: str) -> float:
        return len(article)


@function
def add(x: int, y: str) -> float:
    return x + len(y)


@function(name="price", timeout_s=10, needs_approval=True, depends_on=("add",))
def price_of(ctx: Context[Shop], article: str) -> float:
    return ctx.deps.price(article)


@function(retries=None, on_error="fail")
async def later(x: int) -> str:
    return str(x)


def number(text: str) -> int:
    return int(text)


def functions() -> None:
    assert_type(add(1, "x"), float)
    assert_type(add(x=1, y="x"), float)
    assert_type(price_of(Context(deps=Shop()), "bread"), float)
    assert_type(Function.of(number)("1"), int)
    assert_type(Function.of(number, name="parsed", max_calls=1)(text="1"), int)
    assert_type(Function.of(add, blocking=False)(1, "x"), float)
    assert_type(Function(name="open").link(number)("1"), int)
    assert_type(Agent("openai:gpt-5", output=Person).as_function(), Function[[Context, str], Person])
    of_any_kind: list[Function] = [add, later, price_of]
    Agent("openai:gpt-5", functions=[*of_any_kind, number, Toolset(of_any_kind)])


async def in_asyncio() -> None:
    assert_type(await later(1), str)
    assert_type((await Agent("openai:gpt-5", output=Person).acall("Who?")).output, Person)
    assert_type((await Agent("openai:gpt-5").acall(Prompt("{{ x }}", output=Person), x=1)).output, Person)
    async for event in Agent("openai:gpt-5").astream("Who?", deps=1):
        if isinstance(event, Done):
            assert_type(event.result, CallResult[Any])


def prompts() -> None:
    assert_type(Prompt("x"), Prompt[str])
    assert_type(Prompt("x", path="root/x", output=Person), Prompt[Person])
    assert_type(Prompt("x", output=list[int]), Prompt[list[int]])
    assert_type(Prompt("x", parser=number), Prompt[int])
    assert_type(Prompt("x", output=Person, parser=number), Prompt[int])
    assert_type(Prompt("x", output=Person).parse("{}"), Person)
    assert_type(Prompt("x", output=Person).extend(template="y", two_stage=True), Prompt[Person])
    assert_type(Prompt("x").extend(output=Person), Prompt[Person])
    assert_type(Prompt("x").extend(parser=number), Prompt[int])


def agents(somebody: Agent, some_prompt: Prompt, models: list[Agent[BaseModel]]) -> None:
    plain = Agent("openai:gpt-5", system="You are terse.")
    typed = Agent("openai:gpt-5", output=Person)
    assert_type(plain, Agent[str])
    assert_type(typed, Agent[Person])
    assert_type(replace(typed, model="openai:gpt-5-mini"), Agent[Person])
    assert_type(plain.call("Who?").output, str)
    assert_type(plain.call(Message.of("user", "Who?"), args={"temperature": 0}).output, str)
    assert_type(typed.call("Who?", deps=1), CallResult[Person])
    assert_type(typed.call(Prompt("{{ x }}"), x=1).output, Person)
    assert_type(typed.call(Prompt("{{ x }}", output=int), x=1, deps=2).output, int)
    assert_type(plain.call(Prompt("{{ x }}", output=Person), x=1).output, Person)
    assert_type(plain.call(Prompt("{{ x }}", parser=number), x=1).output, int)
    assert_type(plain.call(Dialog().put(Prompt("x", output=Person))).output, Any)
    assert_type(somebody.call("Who?").output, Any)
    assert_type(typed.seed(Prompt("{{ x }}"), x=1), AgentCall)
    models.append(typed)
    somebody.call(some_prompt)
    agents(typed, Prompt("x", output=Person), [typed])


def no_types(agent: Agent[int | str], letter: Prompt[Literal["a", "b"]]) -> None:
    """What is no `type` may be any; who knows better says it."""
    Agent("openai:gpt-5", output=Literal["a", "b"]).call("Which?").output.upper()
    stated: Agent[int | str] = Agent("openai:gpt-5", output=int | str)
    assert_type(stated.call("How many?").output, int | str)
    no_types(stated, Prompt("Which?", output=Literal["a", "b"]))


def failures() -> None:
    try:
        Agent("openai:gpt-5").call("Who?")
    except CallFailed as failed:
        assert_type(failed.call, AgentCall)
        assert_type(failed.reason, Reason)
        assert_type(failed.result, CallResult[Any])
        for step in failed.trace:
            assert_type(step, Stepped)

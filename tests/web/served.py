"""Agents and flows that the tests of front ends serve: what a person says decides what the model does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from fsm_agent import Agent, Context, Message, function
from fsm_agent.errors import AuthFailed
from fsm_agent.flows import Flow, end, execute, wait
from fsm_agent.flows import ask as asking
from fsm_agent.testing import Pieces, Script, function_call

MANY = 20_000


@function
async def weather(city: str) -> str:
    "Tell the weather."
    await asyncio.sleep(0)
    return f'{{"city": "{city}", "c": 11}}'


@function(needs_approval=True)
def refund(order: str, euros: int) -> str:
    "Refund an order."
    return f"refunded {euros} for {order}"


@function
def broken() -> str:
    "Raise an error."
    raise KeyError("attic")


@function
def copy(context: Context[Any]) -> str:
    "Copy."
    context.emit({"percent": 50})
    return "copied"


def reply_to(request: Any) -> Any:
    """Return what the model says: the last message of the person names the function."""
    last: Message = request.messages[-1]
    asked = [message.text for message in request.messages if message.role == "user"][-1]
    if last.role == "tool":
        return Pieces("It is ", "so: ", last.text or "nothing")
    for word, reply in (
        ("weather", function_call("weather", city="Berlin")),
        ("refund", function_call("refund", order="A-17", euros=20)),
        ("broken", function_call("broken")),
        ("copy", function_call("copy")),
        ("nothing", function_call("unknown")),
        ("translate", function_call("translator", task="Good day")),
        ("fail", AuthFailed("no key")),
    ):
        if word in asked:
            return reply
    return Pieces("Hel", "lo ", "there")


def desk(store: Any = None, **options: Any) -> Agent[Any, str]:
    translator = Agent(Script(*["Guten Tag"] * MANY), name="translator")
    functions: list[Any] = [weather, refund, broken, copy, translator]
    return Agent(Script(*[reply_to] * MANY), name="desk", functions=functions, store=store, **options)


@dataclass(frozen=True)
class Letter:
    about: str
    text: str = ""
    verdict: str = ""


def letters(store: Any = None) -> Flow[Letter]:
    writer = Agent(Script(*[Pieces("Dear ", "reader")] * MANY), name="writer")

    @asking(writer, str)
    def writing(letter: Letter) -> str:
        return letter.about

    @wait(str)
    def review(letter: Letter) -> str:
        return letter.text

    rows = [
        writing.done(review, do=lambda letter, text: replace(letter, text=text)),
        review.done(end("sent"), do=lambda letter, verdict: replace(letter, verdict=verdict)),
    ]
    return Flow("letters", Letter, start=writing, rows=rows, store=store)


def sums(store: Any = None) -> Flow[int]:
    """Return a flow whose states are functions."""

    @execute
    def double(n: int) -> int:
        return 2 * n

    @execute
    def add(n: int) -> int:
        return n + 1

    def new(n: int, found: int) -> int:
        return found

    return Flow("sums", int, start=double, rows=[double.done(add, do=new), add.done(end("over"), do=new)], store=store)

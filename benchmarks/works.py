"""The works of which a call is measured, and the same by hand.

By hand means: with dicts and JSON and nothing else, as in a script for one wire without other requirements.  Nothing in
Python can do the same faster.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from fsm_agent.agents import Agent
from fsm_agent.call import Limits, Request
from fsm_agent.clients import SyncVerbs
from fsm_agent.functions import Function
from fsm_agent.messages import Delta, FunctionCall, Message, Reply, TextDelta, Usage

AT_ONCE = 16
SYSTEM = "You are a careful assistant. Use the functions you are given."
TASK = "Please add up the numbers and tell me the total."
PIECE = "token "
DELTAS = 1000


class ScriptedTurn(NamedTuple):
    """One turn of a model."""

    text: str = ""
    calls: tuple[str, ...] = ()  # the arguments of each call of `add`, as JSON


def turns(rounds: int, at_once: int = 1) -> list[ScriptedTurn]:
    """Return rounds of function calls, no two alike, then the answer."""
    arguments = [tuple([json.dumps({"a": i, "b": 1000 * n}) for i in range(at_once)]) for n in range(rounds)]
    return [
        *[ScriptedTurn(calls=calls) for calls in arguments],
        ScriptedTurn(f"The total of {rounds} additions is ready."),
    ]


async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


class Item(BaseModel):
    """A line of an order."""

    sku: str
    name: str
    quantity: int = Field(ge=1)
    price: float
    tags: list[str]


class Order(BaseModel):
    """A customer's order: an answer with a type."""

    order_id: str
    customer: str
    email: str
    currency: Literal["EUR", "USD"]
    total: float
    paid: bool
    notes: str | None
    items: list[Item]


def order_json(quantity: object = 8) -> str:
    """Return an order of 20 items, one of them in this quantity."""
    item = {"name": "Widget", "price": 9.5, "tags": ["new", "blue"]}
    items = [{**item, "sku": f"SKU-{i:04d}", "quantity": quantity if i == 7 else i + 1} for i in range(20)]
    head = {"order_id": "o-2041", "customer": "Ada Lovelace", "email": "ada@example.com", "currency": "EUR"}
    return json.dumps({**head, "total": 1234.5, "paid": True, "notes": None, "items": items})


def message_of(turn: ScriptedTurn) -> dict[str, Any]:
    """Return a turn in the format of chat completions."""
    if not turn.calls:
        return {"role": "assistant", "content": turn.text}
    functions = [{"name": "add", "arguments": arguments} for arguments in turn.calls]
    calls = [{"id": f"c{i}", "type": "function", "function": named} for i, named in enumerate(functions)]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def opening() -> list[dict[str, Any]]:
    """Return the messages of a call that has not begun."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]


async def _complete(turn: Callable[[], ScriptedTurn], messages: list[dict[str, Any]]) -> dict[str, Any]:
    return message_of(turn())


async def _called(call: dict[str, Any]) -> int:
    named = call["function"]
    return await {"add": add}[named["name"]](**json.loads(named["arguments"]))


async def answer(turn: Callable[[], ScriptedTurn]) -> str:
    """Send requests and run the functions that are requested, until there is an answer."""
    messages = opening()
    while True:
        message = await _complete(turn, messages)
        messages.append(message)
        calls = message.get("tool_calls")
        if not calls:
            return str(message["content"])
        if len(calls) == 1:
            results = [await _called(calls[0])]
        else:
            results = await asyncio.gather(*[_called(call) for call in calls])
        for call, result in zip(calls, results, strict=True):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})


async def typed_answer(turn: Callable[[], ScriptedTurn]) -> Order:
    """Send requests until the answer is an order."""
    messages = opening()
    while True:
        message = await _complete(turn, messages)
        messages.append(message)
        try:
            return Order.model_validate_json(message["content"])
        except ValidationError as error:
            wrong = json.dumps(error.errors(include_url=False, include_context=False))
            messages.append({"role": "user", "content": f"Invalid: {wrong}. Fix it."})


async def _chunks() -> AsyncGenerator[dict[str, Any]]:
    for _ in range(DELTAS):
        yield {"choices": [{"index": 0, "delta": {"content": PIECE}}]}


async def streamed() -> str:
    """Join the deltas of a stream."""
    texts = list[str]()
    async for chunk in _chunks():
        texts.append(chunk["choices"][0]["delta"]["content"])
    return "".join(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A work that is done in both ways."""

    name: str
    ours: Callable[[], Awaitable[Any]]
    by_hand: Callable[[], Awaitable[Any]]
    units: int = 1  # how many units of the reported cost are in it


class InProcess(SyncVerbs):
    """A model that replays fixed turns instantly."""

    name = "in-process"

    def __init__(self, script: Sequence[ScriptedTurn]) -> None:
        self._turn = cycle(script).__next__

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        text, requests = self._turn()
        calls = [FunctionCall(name="add", arguments_json=arguments, provider_id="c") for arguments in requests]
        message = Message.of("assistant", *([text] if text else ()), *calls)
        return Reply(message=message, usage=Usage(input_tokens=50, output_tokens=10))

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        for _ in range(DELTAS):
            yield TextDelta(PIECE)
        yield Reply.of(PIECE * DELTAS)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def works() -> dict[str, Work]:
    """Return the works, by name; the long calls are those of `long_work`."""
    wrong, right = ScriptedTurn(order_json("several")), ScriptedTurn(order_json())
    made = (
        _rounds("one turn", turns(0)),
        _rounds("three rounds", turns(3)),
        _rounds("three rounds, sync", turns(3), is_sync=True),
        _rounds(f"{AT_ONCE} functions at once", turns(1, AT_ONCE)),
        _typed("typed output", [right]),
        _typed("typed output, one retry", [wrong, right]),
        _stream("a delta of a stream"),
    )
    return {work.name: work for work in made}


def long_work(rounds: int) -> Work:
    """Return one call of many rounds."""
    return _rounds(f"{rounds} rounds", turns(rounds))


def agent_of(script: Sequence[ScriptedTurn], call: Callable[[int, int], Any] = add, **policy: Any) -> Agent:
    """Return an agent whose model replays these turns, with a function that adds."""
    adding = Function.of(call, name="add", description=add.__doc__, **policy)
    limits = Limits(rounds=len(script))
    return Agent(InProcess(script), name="adder", system=SYSTEM, functions=[adding], limits=limits)


def _plain_add(a: int, b: int) -> int:
    return a + b


def _rounds(name: str, script: Sequence[ScriptedTurn], *, is_sync: bool = False) -> Work:
    agent, turn = agent_of(script, _plain_add if is_sync else add), cycle(script).__next__

    async def ours() -> Any:
        return (await agent.acall(TASK)).output

    async def ours_sync() -> Any:
        return agent.call(TASK).output

    return Work(name=name, ours=ours_sync if is_sync else ours, by_hand=lambda: answer(turn))


def _typed(name: str, script: Sequence[ScriptedTurn]) -> Work:
    agent, turn = Agent(InProcess(script), system=SYSTEM, output=Order), cycle(script).__next__

    async def ours() -> Any:
        return (await agent.acall(TASK)).output

    return Work(name=name, ours=ours, by_hand=lambda: typed_answer(turn))


def _stream(name: str) -> Work:
    agent = Agent(InProcess(()), system=SYSTEM)

    async def ours() -> str:
        texts = list[str]()
        async for event in agent.astream(TASK):
            if isinstance(event, TextDelta):
                texts.append(event.text)
        return "".join(texts)

    return Work(name=name, ours=ours, by_hand=streamed, units=DELTAS)

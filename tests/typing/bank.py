"""A program as a user writes it, with planted mistakes; never run.

Each mistake has what mypy and pyright say of its line; a checker that is not named there does not see it.  They find no
fault with the rest.  What neither can see is refused at run time (`tests/test_mistakes.py`): variables of a prompt that
its template lacks, ``deps`` that are left out, methods of hooks that no event is called like.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date
from typing import Literal, assert_type

from pydantic import BaseModel

from fsm_agent import (
    Agent,
    AgentBase,
    Approved,
    CallFailed,
    CallResult,
    CallSuspended,
    Context,
    Denied,
    Dialog,
    Done,
    FunctionCall,
    Limits,
    Message,
    Prompt,
    Retries,
    Runs,
    Settings,
    Stepped,
    Toolset,
    Worker,
    build_agent,
    function,
)
from fsm_agent.context import keep_last
from fsm_agent.lifecycle import StopContext
from fsm_agent.testing import Script

MODEL = "openai:gpt-5-mini"

# What the program is about


@dataclass
class Database:
    balances: dict[int, float]

    def balance(self, customer: int) -> float:
        return self.balances[customer]


@dataclass
class Bank:
    customer: int
    database: Database


@dataclass
class Weather:
    city: str


class Advice(BaseModel):
    text: str
    block_card: bool
    risk: int


class Summary(BaseModel):
    topic: Literal["card", "loan"]
    day: date


# Functions, and the deps that they need


@function
def balance(ctx: Context[Bank], with_pending: bool = False) -> float:
    """Return the balance of the customer.

    Args:
        with_pending: What is not booked yet, too.
    """
    return ctx.deps.database.balance(ctx.deps.customer) + with_pending


@function(needs_approval=True, timeout_s=10, retries=Retries(attempts=2))
def transfer(ctx: Context[Bank], to: str, amount: float) -> str:
    """Transfer money."""
    assert_type(ctx.deps, Bank)
    return f"{amount:.2f} from {ctx.deps.client} to {to}"  # mypy: attr-defined; pyright: reportAttributeAccessIssue


@function
async def rate(currency: str) -> float:
    """Return the rate of a currency."""
    await asyncio.sleep(0)
    return float(len(currency))


@function(timeout="10s")  # mypy: call-overload, untyped-decorator; pyright: reportCallIssue
def slow() -> str:
    """Take time."""
    return "done"


@function(on_error="ignore")  # mypy: call-overload, untyped-decorator; pyright: reportArgumentType
def careless() -> str:
    """Fail at times."""
    return "done"


@function
def forecast(ctx: Context[Weather]) -> str:
    """Tell the weather."""
    return ctx.deps.city


def calls_of_functions(ctx: Context[Bank]) -> None:
    assert_type(balance(ctx), float)
    balance(ctx, with_pending="yes")  # mypy: arg-type; pyright: reportArgumentType
    balance(with_pending=True)  # mypy: call-arg; pyright: reportCallIssue
    transfer(ctx, to="Ann", ammount=5.0)  # mypy: call-arg; pyright: reportCallIssue
    transfer(ctx, "Ann", 5.0).amount()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    rate("EUR") + 1.0  # mypy: operator; pyright: reportOperatorIssue


# Agents


def greeting(bank: Bank) -> str:
    return f"You are a clerk. The customer is {bank.customer}."


def weather_greeting(weather: Weather) -> str:
    return f"You are in {weather.city}."


def may_transfer(call: FunctionCall, context: Context[Bank]) -> bool | Approved | Denied:
    return context.deps.customer > 0 or Denied("nobody is here")


def may_transfer_by_name(name: str) -> bool:
    return name == "transfer"


async def is_within_reach(advice: Advice, context: Context[Bank]) -> Advice:
    return advice if context.deps.customer > 0 else Advice(text="", block_card=True, risk=9)


def is_short(text: str) -> str:
    return text[:80]


def says_enough(context: StopContext) -> bool:
    return context.function_calls > 3


support = Agent[Bank, Advice](
    MODEL,
    system=greeting,
    functions=[balance, transfer, rate],
    output=Advice,
    approve=may_transfer,
    limits=Limits(rounds=3, deadline_s=60.0),
    settings=Settings(temperature=0.0),
    stop_when=says_enough,
    check=is_within_reach,
    context=[keep_last(20)],
)
summarizer = Agent(MODEL, output=Summary, name="summarizer")
manager = Agent[Bank, str](MODEL, functions=[support, summarizer, Toolset([balance])])

Agent[Bank, Advice](MODEL, system=weather_greeting)  # mypy: arg-type; pyright: reportArgumentType
Agent[Bank, str](MODEL, functions=[forecast])  # mypy: list-item; pyright: reportArgumentType
Agent[Weather, str](MODEL, functions=[support])  # mypy: list-item; pyright: reportArgumentType
Agent[Bank, str](MODEL, approve=may_transfer_by_name)  # mypy: arg-type; pyright: reportArgumentType
Agent(MODEL, output=Advice(text="", block_card=False, risk=1))  # mypy: arg-type; pyright: reportArgumentType
Agent(MODEL, limits={"rounds": 3})  # mypy: arg-type; pyright: reportArgumentType
Agent(MODEL, limits=Limits(rounds="3"))  # mypy: arg-type; pyright: reportArgumentType
Agent(MODEL, limits=Limits(max_turns=3))  # mypy: call-arg; pyright: reportCallIssue
Agent(MODEL, settings=Settings(temperature="hot"))  # mypy: arg-type; pyright: reportArgumentType
Agent(MODEL, tools=[rate])  # mypy: call-arg; pyright: reportCallIssue
Agent(MODEL, "You are a clerk.")  # mypy: call-arg; pyright: reportCallIssue
Agent(MODEL, functions=rate)  # mypy: arg-type; pyright: reportArgumentType
Agent[Bank, Advice](MODEL, output=Advice, check=is_short)  # mypy: arg-type; pyright: reportArgumentType
Agent[Weather, Advice](MODEL, output=Advice, check=is_within_reach)  # mypy: arg-type; pyright: reportArgumentType
assert_type(Agent(MODEL, check=is_short).call("Hello").output, str)
assert_type(Agent(MODEL, output=Advice, check=lambda advice: advice).call("Hello").output, Advice)
Agent(MODEL, stop_when=lambda context: context.calls == 3)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
Agent(Script).call("Hello")  # mypy: arg-type; pyright: reportArgumentType

# Calls and their results

bank = Bank(17, Database({17: 100.0}))


def answers() -> None:
    result = support.call("Is it safe?", deps=bank)
    assert_type(result, CallResult[Advice])
    assert_type(result.output.risk, int)
    print(result.output.block_crad)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    result.output.risk.upper()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    print(result.final_output)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    print(result.output["risk"])  # mypy: index; pyright: reportIndexIssue
    support.call("Safe?", deps=Weather("Rome"))  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
    support.call("Is it safe?", deps=Bank)  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
    support.call("Is it safe?", dpes=bank)  # mypy: call-overload; pyright: reportCallIssue
    support.call(17, deps=bank)  # mypy: call-overload; pyright: reportCallIssue, reportArgumentType
    support.run_sync("Is it safe?", deps=bank)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    support.run("Is it safe?")  # mypy: arg-type; pyright: reportArgumentType
    again = support.call("And now?", deps=bank, after=result)
    assert_type(again.dialog, Dialog)
    support.call("?", deps=bank, after=summarizer)  # mypy: call-overload; pyright: reportCallIssue, reportArgumentType
    text: str = again.output  # mypy: assignment; pyright: reportAssignmentType
    print(text)
    for event in support.stream("Is it safe?", deps=bank):
        if isinstance(event, Done):
            assert_type(event.result.output, Advice)
            print(event.result.output.block_crad)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
        elif isinstance(event, Stepped):
            print(event.form)  # mypy: attr-defined; pyright: reportAttributeAccessIssue


async def answers_async() -> None:
    result = await support.acall("Is it safe?", deps=bank)
    assert_type(result.output, Advice)
    print(support.acall("Is it safe?", deps=bank).output)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    await support.call("Is it safe?", deps=bank)  # mypy: misc; pyright: reportGeneralTypeIssues
    await support.acall("Is it safe?", deps=3)  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
    for event in support.astream("Is it safe?", deps=bank):  # mypy: attr-defined; pyright: reportGeneralTypeIssues
        print(event)
    async for event in support.stream("Is it safe?", deps=bank):  # mypy: attr-defined; pyright: reportGeneralTypeIssues
        print(event)


# Prompts and parsers


def risk_of(text: str) -> int:
    return len(text)


def risk_of_bytes(text: bytes) -> int:
    return len(text)


classify = Prompt("{{ text }}", parser=risk_of, path="bank/risk")
summarize = Prompt("{{ text }}: {{ day }}", output=Summary, functions=[rate], settings={"temperature": 0})

Prompt("{{ text }}", parser=risk_of_bytes)  # mypy: arg-type; pyright: reportArgumentType, reportCallIssue
Prompt("{{ text }}", output=Summary, mode="json")  # mypy: call-overload; pyright: reportArgumentType
Prompt(b"{{ text }}")  # mypy: call-overload; pyright: reportArgumentType
Prompt("{{ text }}", max_length="long")  # mypy: call-overload; pyright: reportArgumentType


def prompts() -> None:
    assert_type(support.call(classify(text="Hello"), deps=bank).output, int)
    summed = support.call(summarize(text="Hello", day=date(2026, 11, 23)), deps=bank)
    assert_type(summed.output, Summary)
    print(support.call(classify(text="")).output.topic)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    summed.output.topic = "x"  # mypy: assignment; pyright: reportAttributeAccessIssue
    support.call(summarize, deps=bank, args="cold")  # mypy: call-overload; pyright: reportCallIssue, reportArgumentType
    classify.render("Hello")  # mypy: call-arg; pyright: reportCallIssue
    classify.parse(5)  # mypy: arg-type; pyright: reportArgumentType
    Dialog().put(5)  # mypy: arg-type; pyright: reportArgumentType
    Dialog(["Hello"])  # mypy: list-item; pyright: reportArgumentType
    Message.of("usr", "Hello")  # mypy: arg-type; pyright: reportArgumentType
    Message(role="usr")  # mypy: arg-type; pyright: reportArgumentType
    Message(role="user", content="Hello")  # mypy: call-arg; pyright: reportCallIssue


# Agents of one's own


class Branch(AgentBase[Advice]):
    agent_type = "branch"
    agent_group = ("clerk", "boss")

    def answer(self, task: str) -> Advice:
        first = self.agents["clerk"].call(task)
        print(first.outptu)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
        print(self.agents.clerk)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
        advice = support.call(task, deps=bank).output
        return advice.text  # mypy: return-value; pyright: reportReturnType


class Night(AgentBase[Advice]):
    output = Advice
    expertise = 5  # mypy: assignment; pyright: reportAssignmentType

    async def answer(self, task: str) -> Advice:
        return await support.acall(task, deps=bank)  # mypy: return-value; pyright: reportReturnType


def branches() -> None:
    branch = build_agent(Branch, {"model": MODEL})
    assert_type(branch.call("Hello").output, Advice)
    print(branch.call("Hello").output.txet)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    print(branch.map(["Hello"]).outputs[0].txet)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    build_agent(Branch, {}, modle=MODEL)  # mypy: call-overload; pyright: reportCallIssue
    Branch(client=MODEL)  # mypy: arg-type; pyright: reportArgumentType
    support.as_function("ask", needs_approval="yes")  # mypy: arg-type; pyright: reportArgumentType
    support.as_function("ask", max_cals=3)  # mypy: call-arg; pyright: reportCallIssue
    Worker([Branch], "runs.db")  # mypy: list-item; pyright: reportArgumentType


# Hooks, endings and runs


class Log:
    def on_stepped(self, event: Stepped) -> None:
        print(event.source, event.to)
        print(event.trigger.name)  # mypy: attr-defined; pyright: reportAttributeAccessIssue


def endings() -> None:
    try:
        Agent(MODEL, hooks=[Log()], name="clerk", store=Runs("runs.db")).call("Hello", run_id="one")
        support.call("Hello", deps=bank, run_id=17)  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
    except CallFailed as failed:
        print(failed.result.outptu)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
        print(failed.reason.vlaue)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    except CallSuspended as suspended:
        suspended.call.advance("ask:1.0", True)  # mypy: arg-type; pyright: reportArgumentType
        support.resume("one", {"ask:1.0": True})  # mypy: dict-item; pyright: reportArgumentType
        support.resume("one", Approved())  # mypy: arg-type; pyright: reportArgumentType
        support.resume("one", {"ask:1.0": Approved()}, deps=3)  # mypy: arg-type; pyright: reportArgumentType

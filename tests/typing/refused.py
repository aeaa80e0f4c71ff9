"""Mistakes, each with what mypy and pyright say of its line; never run."""

from __future__ import annotations

from pydantic import BaseModel

from fsm_agent import (
    Agent,
    AgentBase,
    CallFailed,
    CallSuspended,
    Context,
    Dialog,
    Function,
    FunctionCall,
    Limits,
    Message,
    Prompt,
    Toolset,
    Worker,
    build_agent,
    function,
)
from fsm_agent import Agnet as Agnet  # mypy: attr-defined; pyright: reportAttributeAccessIssue
from fsm_agent.call import Price
from fsm_agent.clients import Network
from fsm_agent.context import Budget
from fsm_agent.prompts import Action, Attribute, IntentFrame, PromptEnum, intent
from fsm_agent.runtime import ResultPipeline


class Person(BaseModel):
    name: str


@function
def add(x: int, y: str) -> float:
    return x + len(y)


@function(tiemout_s=10)  # mypy: call-overload, untyped-decorator; pyright: reportCallIssue
def waits(x: int) -> None: ...


@function(retries=3)  # mypy: call-overload, untyped-decorator; pyright: reportArgumentType
def tries(x: int) -> None: ...


@function
def price(ctx: Context[Person], article: str) -> float:
    return len(article + ctx.deps.name)


def person_of(agent: str, extra: object) -> Person:
    return Person(name=agent)


class Extractor(AgentBase[Person]):
    def answer(self, task: str) -> Person:
        return Person(name=task)


class Told(AgentBase[Person]):
    output = Person


class Later(AgentBase[Person]):
    def call(self, task: str, **kw: object) -> int:  # mypy: override; pyright: reportIncompatibleMethodOverride
        return len(task)


class Misled(AgentBase[Person]):
    expertise = 5  # mypy: assignment; pyright: reportAssignmentType

    def answer(self, task: str) -> Person:
        print(self.agents.clerk)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
        return self.agents["clerk"].call(task)  # mypy: return-value; pyright: reportReturnType


def approve(call: FunctionCall, context: Context[int]) -> bool:
    return context.deps > 0


def greet(count: int) -> str:
    return "Hello. " * count


async def known(person: Person, context: Context[int]) -> Person:
    return person if context.deps > 0 else Person(name="")


plain = Agent("openai:gpt-5")
typed = Agent("openai:gpt-5", output=Person)
asked = Prompt("{{ x }}", output=Person)

Agent[Person, str]("openai:gpt-5", system=greet)  # mypy: arg-type; pyright: reportArgumentType
plain.call("x", after=5)  # mypy: call-overload; pyright: reportCallIssue, reportArgumentType
plain.call("x", model=5)  # mypy: call-overload; pyright: reportCallIssue, reportArgumentType
plain.changed(modle="x")  # mypy: call-overload; pyright: reportCallIssue
plain.changed(limits=3)  # mypy: call-overload; pyright: reportArgumentType
add(1, 2)  # mypy: arg-type; pyright: reportArgumentType
add("x", y="x")  # mypy: arg-type; pyright: reportArgumentType
add(x=3)  # mypy: call-arg; pyright: reportCallIssue
add(1, "x", nope=3)  # mypy: call-arg; pyright: reportCallIssue
add(1, "x").upper()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
Function.of(add, max_cals=3)  # mypy: call-arg; pyright: reportCallIssue
typed.as_function(max_cals=3)  # mypy: call-arg; pyright: reportCallIssue
typed.as_function()("Who?")  # mypy: call-arg, arg-type; pyright: reportCallIssue
Agent("openai:gpt-5", outputs=Person)  # mypy: call-arg; pyright: reportCallIssue
Agent("openai:gpt-5", limits=3)  # mypy: arg-type; pyright: reportArgumentType
Prompt("x", on_finl="x")  # mypy: call-overload; pyright: reportCallIssue
asked.extend(on_finl="x")  # mypy: call-overload; pyright: reportCallIssue
plain.call("Who?").output.name()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
typed.call("Who?").output.nme()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
plain.call(asked(x=1)).output.nme()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
plain.call("Who?", depz=3)  # mypy: call-overload; pyright: reportCallIssue
plain.prepare("Who?", depz=3)  # mypy: call-overload; pyright: reportCallIssue
plain.stream("Who?", depz=3)  # mypy: call-overload; pyright: reportCallIssue
plain.astream("Who?", depz=3)  # mypy: call-overload; pyright: reportCallIssue
plain.call(asked, args=5)  # mypy: call-overload; pyright: reportCallIssue, reportArgumentType
plain.call(5)  # mypy: call-overload; pyright: reportCallIssue, reportArgumentType
keeper = Agent[Person, str]("openai:gpt-5", functions=[add, price])
keeper.call("Who?", deps=5)  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
keeper.call(asked(x=1), deps=5)  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
keeper.prepare("Who?", deps=5)  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
keeper.stream("Who?", deps=5)  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
keeper.astream("Who?", deps=5)  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
plain.call(asked, x=1)  # mypy: call-overload; pyright: reportCallIssue
plain.map([asked(x=1)], run_id=5)  # mypy: call-overload; pyright: reportCallIssue, reportArgumentType
plain.runs.resume("r", on_chnge="error")  # mypy: call-arg; pyright: reportCallIssue
plain.call("Who?", extra=5)  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
plain.restore("{}", extra={})  # mypy: call-overload; pyright: reportCallIssue
keeper.restore("{}", deps=5)  # mypy: call-overload; pyright: reportArgumentType
inferred = Agent("openai:gpt-5", functions=[price])
inferred.call("Who?", deps=5)  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
inferred.call("Who?", deps=person_of)  # mypy: arg-type; pyright: reportArgumentType, reportCallIssue
Agent[int, str]("openai:gpt-5", functions=[add, price])  # mypy: list-item; pyright: reportArgumentType
Agent[str, str]("openai:gpt-5", approve=approve)  # mypy: arg-type; pyright: reportArgumentType
Agent[int, str]("openai:gpt-5", functions=[keeper])  # mypy: list-item; pyright: reportArgumentType
Agent[int, str]("openai:gpt-5", functions=[Toolset[Person]([price])])  # mypy: list-item; pyright: reportArgumentType
Toolset[int]([price])  # mypy: list-item; pyright: reportArgumentType
Agent("openai:gpt-5", "You are terse.")  # mypy: call-arg; pyright: reportCallIssue
Agent("openai:gpt-5", limits=Limits(rounds="3"))  # mypy: arg-type; pyright: reportArgumentType
Agent[str, Person]("openai:gpt-5", output=Person, check=known)  # mypy: arg-type; pyright: reportArgumentType
Agent("openai:gpt-5", stop_when=lambda c: c.calls == 3)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
Agent("openai:gpt-5", output=5)  # mypy: arg-type; pyright: reportArgumentType
build_agent(Extractor, {}, clint=None)  # mypy: call-overload; pyright: reportCallIssue
build_agent(Extractor, {}).call("Who?").output.nme()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
build_agent({}).clos()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
build_agent(Told, {}).call("Who?").output.nme()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
build_agent(Told, {}, profil="creative")  # mypy: call-overload; pyright: reportCallIssue
Told(modle="openai:gpt-5")  # mypy: call-arg; pyright: reportCallIssue
Told(limits=3)  # mypy: arg-type; pyright: reportArgumentType
Told().map(["Who?"], concurrency="x")  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
Told().map(["Who?"]).outputs[0].nme()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
build_agent(Person, {})  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
Worker([Told], "runs.db")  # mypy: list-item; pyright: reportArgumentType
Prompt("{{ x }}", output=Person, mode="json")  # mypy: call-overload; pyright: reportArgumentType
asked.render("x")  # mypy: call-arg; pyright: reportCallIssue
asked.parse(5)  # mypy: arg-type; pyright: reportArgumentType
Dialog(["Hello"])  # mypy: list-item; pyright: reportArgumentType
Message.of("usr", "Hello")  # mypy: arg-type; pyright: reportArgumentType
typed.run("Who?")  # mypy: arg-type; pyright: reportArgumentType
message, dialog, calls = plain.call("Who?")
message.txt()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
dialog.putt()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
calls[0].nme()  # mypy: attr-defined; pyright: reportAttributeAccessIssue


async def in_asyncio() -> None:
    await plain.acall("Who?", depz=3)  # mypy: call-overload; pyright: reportCallIssue
    await plain.call("Who?")  # mypy: misc; pyright: reportGeneralTypeIssues
    print(plain.acall("Who?").output)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    for event in plain.astream("Who?"):  # mypy: attr-defined; pyright: reportGeneralTypeIssues
        print(event)
    async for event in plain.stream("Who?"):  # mypy: attr-defined; pyright: reportGeneralTypeIssues
        print(event)


def somebody(agent: Agent, ctx: Context[Person]) -> None:
    somebody(typed, ctx)  # mypy: arg-type; pyright: reportArgumentType
    ctx.deps.nme()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    try:
        agent.call("Who?")
    except CallFailed as failed:
        failed.call.recrod()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
        failed.reason.upper(1)  # mypy: call-arg; pyright: reportCallIssue
    except CallSuspended as suspended:
        suspended.call.advance("ask:1.0", True)  # mypy: arg-type; pyright: reportArgumentType
        plain.runs.resume("r", {"ask:1.0": True})  # mypy: dict-item; pyright: reportArgumentType
        plain.runs.resume("r", True)  # mypy: arg-type; pyright: reportArgumentType
        plain.runs.submit("Who?", delay=5)  # mypy: call-overload; pyright: reportCallIssue


@intent(prompt="{{ intents_doc }}")
class Wish(PromptEnum):
    BUY = "buy"


class Buy(Action):
    article: str = Attribute()


def intents() -> None:
    Wish.extract("").nme()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    plain.call(Wish.prompt).output.nme()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    IntentFrame("q", "intent", Wish).extract_intent("").nme()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    Buy()  # mypy: call-arg
    intent(prompt="x", tagg="y")  # mypy: call-arg; pyright: reportCallIssue


def classifications() -> None:
    plain.classify("x", Wish).label.nme()  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    plain.classify("x", Wish, treshold=0.7)  # mypy: call-arg; pyright: reportCallIssue


def values_that_users_make() -> None:
    Network(read_s="3")  # mypy: arg-type; pyright: reportArgumentType
    Network(raed_s=3)  # mypy: call-arg; pyright: reportCallIssue
    Budget(hard="3")  # mypy: arg-type; pyright: reportArgumentType
    Price(input_micro_usd=1, output_micro_usd=1.5)  # mypy: arg-type; pyright: reportArgumentType
    ResultPipeline(max_chras=3)  # mypy: call-arg; pyright: reportCallIssue

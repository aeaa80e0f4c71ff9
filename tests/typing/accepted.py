"""Code that type checkers accept, with the types that they infer; never run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, assert_type

from pydantic import BaseModel

from fsm_agent import (
    Agent,
    AgentBase,
    AgentCall,
    AgentConfig,
    Approved,
    CallFailed,
    CallResult,
    CallSuspended,
    Context,
    Conversation,
    Dialog,
    Function,
    FunctionCall,
    Limits,
    Message,
    Prompt,
    RunHandle,
    Settings,
    Toolset,
    Worker,
    build_agent,
    function,
)
from fsm_agent.agents import Classification, TaskResult
from fsm_agent.call import Reason, restore
from fsm_agent.clients import register_client
from fsm_agent.context import keep_last
from fsm_agent.flows import (
    Failure,
    Flow,
    FlowResult,
    any_state,
    cancelled,
    each,
    end,
    execute,
    expired,
    gather,
    into,
    pause,
    race,
    subflow,
    wait,
)
from fsm_agent.flows import ask as ask
from fsm_agent.flows import states as of
from fsm_agent.flows import transition_table as any_states
from fsm_agent.flows.orchestrator import GiveUp, Job, OrchestrationResult, Orchestrator, Remedy, Supply
from fsm_agent.functions import register_function
from fsm_agent.messages import Done, Stepped
from fsm_agent.prompts import (
    Action,
    ActionSet,
    Attribute,
    InnerText,
    IntentExtractor,
    IntentFrame,
    Parsed,
    Parser,
    ParserInput,
    PromptEnum,
    Task,
    first_of,
    intent,
    json_anywhere,
    keyword,
    parser,
    tagged,
)
from fsm_agent.testing import Explored, Script, explore


class Person(BaseModel):
    name: str


class Shop:
    def price(self, article: str) -> float:
        return len(article)


class CornerShop(Shop): ...


@function
def add(x: int, y: str) -> float:
    return x + len(y)


@function(name="price", timeout_s=10, needs_approval=True, depends_on=("add",))
def price_of(ctx: Context[Shop], article: str) -> float:
    return ctx.deps.price(article)


@function
def stock_of(ctx: Context[Shop], article: str, least: int = 0) -> int:
    return least


@function
def perhaps_of(ctx: Context[Shop | None], article: str) -> str:
    return article


def by_hand(ctx: Context[Shop], article: str, pieces: int) -> float:
    return ctx.deps.price(article) * pieces


@function
def of_a_corner_shop(ctx: Context[CornerShop], *, article: str) -> dict[str, float]:
    return {article: ctx.deps.price(article)}


@function
def identify(context: Context, x: int) -> str:
    return context.idempotency_key * x


@function
def store(value: object, place: int = 0) -> str:
    return f"{value} is in {place}"


@function(retries=None, on_error="fail")
async def later(x: int) -> str:
    return str(x)


def number(text: str) -> int:
    return int(text)


def approve(call: FunctionCall, context: Context[Shop]) -> bool:
    return context.deps.price(call.name) < 10


def functions() -> None:
    assert_type(add(1, "x"), float)
    assert_type(add(x=1, y="x"), float)
    assert_type(price_of(Context(deps=Shop()), "bread"), float)
    assert_type(of_a_corner_shop(Context(deps=CornerShop()), article="bread"), dict[str, float])
    assert_type(identify(Context(deps=1), x=1), str)
    assert_type(store("x", place=1), str)
    assert_type(store(value=add), str)
    assert_type(Function.of(number)("1"), int)
    assert_type(Function.of(number, name="parsed", max_calls=1)(text="1"), int)
    assert_type(Function.of(add, blocking=False)(1, "x"), float)
    assert_type(Function(name="open").link(number)("1"), int)
    assert_type(Agent("openai:gpt-5", output=Person).as_function(), Function[[Context[Any], str], Person, Any])
    of_any_kind: list[Function] = [add, later, price_of]
    Agent("openai:gpt-5", functions=[*of_any_kind, number, Toolset(of_any_kind)])
    Agent("openai:gpt-5", functions=[number, partial(number, "1"), lambda: "x", Shop().price, Agent("openai:gpt-5")])


def dependencies(shops: Toolset[Shop]) -> None:
    Agent("openai:gpt-5", functions=[add, number, identify]).call("Who?")
    assert_type(Agent("openai:gpt-5", functions=[price_of]), Agent[Shop, str])
    Agent("openai:gpt-5", functions=[price_of, stock_of]).call("Who?", deps=Shop())
    Agent("openai:gpt-5", functions=[price_of, add]).call("Who?", deps=Shop())
    Agent("openai:gpt-5", functions=[price_of, number]).call("Who?", deps=Shop())
    Agent("openai:gpt-5", functions=[price_of, perhaps_of, identify]).call("Who?", deps=Shop())
    Agent("openai:gpt-5", functions=[by_hand, number, lambda x: x]).call("Who?", deps=Shop())
    Agent[Shop, str]("openai:gpt-5", functions=[price_of, stock_of, add, number, perhaps_of, by_hand])
    agent = Agent[Shop, str](
        "openai:gpt-5", functions=[price_of], name="shop", store="runs.db", system=lambda: "Be terse."
    )
    agent.call("Who?", deps=lambda name, extra, user: Shop(), by="ada")
    agent.runs.submit("Who?", by="ada")
    agent.conversation("c").call("Who?", deps=lambda name, extra, user: Shop())
    Worker([agent], "runs.db", deps=Shop())
    Worker([agent], "runs.db", deps=lambda name, extra, user: Shop())
    Agent("openai:gpt-5", functions=[of_a_corner_shop]).call("Who?", deps=CornerShop())
    keeper = Agent[Shop, str]("openai:gpt-5", functions=[price_of, add, identify, number, shops], approve=approve)
    assert_type(keeper.call("What is bread?", deps=Shop()).output, str)
    assert_type(keeper.call(Prompt("{{ x }}", output=int)(x=1), deps=CornerShop()).output, int)
    declared: Agent[CornerShop, Person] = Agent("openai:gpt-5", functions=[add, of_a_corner_shop], output=Person)
    needs_none: Agent[Shop, str] = Agent("openai:gpt-5")
    corner = Agent[CornerShop, str]("openai:gpt-5", functions=[declared.as_function(), needs_none, keeper, add])
    assert_type(corner.call("Who?", deps=CornerShop()).output, str)
    Agent("openai:gpt-5").call("Who?", deps="nothing reads it")
    keeper.call("Who?", deps=Shop(), extra={"ticket": 17})
    keeper.prepare(Prompt("{{ x }}", output=int)(x=1), deps=Shop(), extra=None)
    assert_type(shops.only("price").functions, tuple[Function[..., Any, Shop], ...])
    shops.filtered(lambda function, shop: shop.price(function.name) > 0)


class Extractor(AgentBase[Person]):
    agent_type = "extractor"

    def __init__(self, config: AgentConfig, *, client: Script | None = None, depth: int = 1) -> None:
        super().__init__(config, client=client)
        self.depth = depth

    def answer(self, task: str, context: Context[Shop]) -> Person:
        return self.agents["extractor"].call(Prompt("{{ task }}", output=Person)(task=task), deps=context.deps).output


class Told(AgentBase[Person]):
    agent_type = "told"
    output = Person
    functions = (number,)
    prompt = Prompt("Who is {{ task }}?")


class ToldLater(AgentBase[Person]):
    output = Person
    agent_group = {"solo": {"limits": Limits(rounds=1), "functions": [number], "system": "You tell."}}  # noqa: RUF012


class Shouter(AgentBase[str]):
    def answer(self, task: str) -> str:
        return task.upper()


class Later(AgentBase[int]):
    async def answer(self, task: str) -> int:
        return (await self.agents["later"].acall(Prompt("{{ task }}", output=int)(task=task))).output


async def simple() -> None:
    assert_type(Told(model="openai:gpt-5").call("Who?").output, Person)
    assert_type(Told(model="openai:gpt-5")("Who?"), Person)
    assert_type(Told().agents["told"].call("Who?").output, Any)
    assert_type(Told(client=Script())("Who?", deps=Shop()), Person)
    assert_type(build_agent(Told, {}, profile="deterministic", limits={"rounds": 1}), Told)
    assert_type(build_agent(Told, "told.toml", client=Script())("Who?"), Person)
    assert_type(Told().map(["Who?"], concurrency=2, progress=True).outputs, list[Person])
    assert_type((await Told().amap(["Who?"]))[0], TaskResult[Person])
    assert_type((await ToldLater().acall("Who?")).output, Person)
    assert_type((await Later().acall("Who?")).output, int)
    assert_type((await Later().amap(["Who?"], fail_fast=True)).outputs, list[int])
    assert_type(register_function(number), Function)
    register_client("house", lambda model: Script(model))


def built(config: dict[str, Any]) -> None:
    agent = build_agent(Extractor, config, client=Script(), depth=2)
    assert_type(agent, Extractor)
    assert_type(agent.call("Who?").output, Person)
    assert_type(build_agent(config), AgentBase[Any])
    assert_type(build_agent("a.toml", "extractor", client=Script(), depth=2), AgentBase)


async def in_asyncio() -> None:
    agent = Agent("openai:gpt-5", output=Person)
    assert_type(await later(1), str)
    assert_type((await agent.acall("Who?")).output, Person)
    assert_type((await agent.arun(agent.prepare("Who?"))).output, Person)
    assert_type((await Agent("openai:gpt-5").acall(Prompt("{{ x }}", output=Person)(x=1))).output, Person)
    async for event in agent.astream("Who?", deps=1):
        if isinstance(event, Done):
            assert_type(event.result, CallResult[Person])


def prompts() -> None:
    assert_type(Prompt("x"), Prompt[str])
    assert_type(Prompt("x", path="root/x", output=Person), Prompt[Person])
    assert_type(Prompt("x", output=list[int]), Prompt[list[int]])
    assert_type(Prompt("x", output=int | str), Prompt[int | str])
    assert_type(Prompt("x", parser=number), Prompt[int])
    assert_type(Prompt("x", output=Person, parser=number), Prompt[int])
    assert_type(Prompt("x", output=Person).parse("{}"), Person)
    assert_type(Prompt("x", output=Person).extend(template="y", mode="two_stage"), Prompt[Person])
    assert_type(Prompt("x").extend(output=Person), Prompt[Person])
    assert_type(Prompt("x").extend(parser=number), Prompt[int])


def agents(somebody: Agent[Any, Any], some_prompt: Prompt, models: list[Agent[Any, BaseModel]]) -> None:
    plain = Agent("openai:gpt-5", system="You are terse.")
    typed = Agent("openai:gpt-5", output=Person)
    assert_type(plain, Agent[Any, str])
    assert_type(plain, Agent)
    assert_type(typed, Agent[Any, Person])
    assert_type(replace(typed, model="openai:gpt-5-mini"), Agent[Any, Person])
    assert_type(typed.changed(model="openai:gpt-5-mini", name="other"), Agent[Any, Person])
    assert_type(typed.changed(output=int, functions=[]), Agent[Any, int])
    assert_type(Agent[Person, str]("openai:gpt-5").changed(output=int), Agent[Person, int])
    assert_type(typed.call("Who?", model="openai:gpt-5-mini").output, Person)
    assert_type(typed.call(Prompt("{{ x }}", output=int)(x=1), model="openai:gpt-5-mini").output, int)
    assert_type(plain.call("Who?").output, str)
    assert_type(plain.call(Message.of("user", "Who?"), args={"temperature": 0}).output, str)
    assert_type(typed.call("Who?", deps=1), CallResult[Person])
    assert_type(typed.call(Prompt("{{ x }}")(x=1)).output, Person)
    assert_type(plain.map(Prompt("{{ x }}", output=int)(x=x) for x in "ab").outputs, list[int])
    assert_type(typed.map(["a", "b"], concurrency=2).outputs, list[Person])
    assert_type(Prompt("{{ model }}", output=int)(model="any name", after=1), Task[int])
    assert_type(typed.runs.resume("r", by="ann").output, Person)
    assert_type(typed.runs.resume("r", Approved()).output, Person)
    assert_type(typed.runs.submit("Who?", delay_s=5, priority=1, after="r"), RunHandle[CallResult[Person]])
    assert_type(plain.runs.submit(Prompt("{{ x }}", output=int)(x=1)).result(timeout_s=9).output, int)
    assert_type(plain.runs.submit("Who?", after=["r", "s"]).result().output, str)
    assert_type(plain.runs.submit("Who?", after=typed.runs.get("r")).run_id, str)
    assert_type(plain.runs.submit("Who?", after=plain.call("I am Ann.")).run_id, str)
    assert_type(typed.run(typed.prepare("Who?")).output, Person)
    assert_type(typed.call(Prompt("{{ x }}", output=int)(x=1), deps=2).output, int)
    assert_type(plain.call(Prompt("{{ x }}", output=Person)(x=1)).output, Person)
    assert_type(plain.call(Prompt("{{ x }}", parser=number)(x=1)).output, int)
    assert_type(plain.call(Dialog().put(Prompt("x", output=Person))).output, Any)
    assert_type(somebody.call("Who?").output, Any)
    assert_type(typed.call("Who?", after=plain.call("I am Ada.")), CallResult[Person])
    assert_type(typed.call([{"role": "user", "content": "Who?"}]).output, Any)
    assert_type(typed.call("Who?", after=[{"role": "user", "content": "I am Ada."}], keep_system=True).output, Person)
    assert_type(typed.conversation("c"), Conversation[Any, Person])
    assert_type(typed.conversation("c", keep=keep_last(40)).call("Who?").output, Person)
    assert_type(typed.conversation("c").call(Prompt("{{ x }}", output=int)(x=1)).output, int)
    assert_type(typed.conversation("c").read(), Dialog)
    greeting = Agent[Person, str]("openai:gpt-5", system=lambda person: f"You talk to {person.name}.")
    assert_type(greeting.call("Hi.", deps=Person(name="Ada")).output, str)
    models.append(typed)
    somebody.call(some_prompt)
    agents(typed, Prompt("x", output=Person), [typed])


def calls(document: str) -> None:
    agent = Agent("openai:gpt-5", output=Person)
    seeded = agent.prepare(Prompt("{{ x }}")(x=1))
    assert_type(seeded, AgentCall[Person])
    assert_type(seeded.result(), CallResult[Person])
    assert_type(agent.run(seeded).output, Person)
    assert_type(agent.prepare(Prompt("{{ x }}", output=int)(x=1)), AgentCall[int])
    assert_type(agent.run(agent.restore(document, signing_key="x" * 32)).output, Person)
    assert_type(agent.restore(document, Prompt("{{ x }}", output=int)), AgentCall[int])
    for event in agent.stream(seeded):
        if isinstance(event, Done):
            assert_type(event.result.output, Person)
    by_hand = AgentCall.seed(
        Dialog(), Prompt("x", output=int), settings=Settings(), stop_when=None, view=None, has_approver=True, deps=1
    )
    assert_type(by_hand, AgentCall[int])
    assert_type(restore(document, Prompt("x", output=int), has_approver=True), AgentCall[int])
    message, dialog, function_calls = agent.run(seeded)
    assert_type(message, Message)
    assert_type(dialog, Dialog)
    assert_type(function_calls, tuple[FunctionCall, ...])


def no_classes(agent: Agent[object, int | str]) -> None:
    """Outputs that are no classes."""
    chosen = Agent("openai:gpt-5", output=Literal["a", "b"]).call("Which?").output
    assert_type(chosen, Literal["a", "b"])
    assert_type(Agent("openai:gpt-5", output=int | str).call("How many?").output, int | str)
    assert_type(Agent("openai:gpt-5", output=Person | None).call("Who?").output, Person | None)
    no_classes(Agent("openai:gpt-5", output=int | str))


def failures() -> None:
    try:
        Agent("openai:gpt-5").call("Who?")
    except CallFailed as failed:
        assert_type(failed.call, AgentCall[Any])
        assert_type(failed.reason, Reason)
        assert_type(failed.result, CallResult[Any])
        for step in failed.trace:
            assert_type(step, Stepped)
    except CallSuspended as suspended:
        assert_type(suspended.call, AgentCall[Any])


@parser
def measured(given: ParserInput) -> Parsed[float]:
    return Parsed(float(given.text), ("measured",))


def parsers() -> None:
    assert_type(measured, Parser[float])
    assert_type(measured("5"), float)
    assert_type(Prompt("x", parser=measured), Prompt[float])
    assert_type(first_of(tagged("answer"), json_anywhere, expect=Person), Parser[Person])
    assert_type(Prompt("x", parser=first_of(tagged("answer"), expect=list[int])), Prompt[list[int]])
    assert_type(first_of(tagged("answer"), keyword("yes", "no")), Parser[str])
    assert_type(Agent(Script()).call(Prompt("x", parser=measured)).output, float)
    assert_type(Agent(Script()).call("x").repairs, tuple[str, ...])


@intent(prompt="{{ intents_doc }} {{ request }}", tag="intent", path="shop/intent")
class UserIntent(PromptEnum):
    SEARCH = "search"
    BUY = "buy"


class Buy(Action, tag="buy"):
    article: str = Attribute("What to buy")
    number: int = Attribute(default=1)
    note: str = InnerText(default="")


class Leave(Action): ...


def intents() -> None:
    assert_type(UserIntent.prompt, Prompt[UserIntent])
    assert_type(UserIntent.extract("<intent>buy</intent>"), UserIntent)
    assert_type(UserIntent.build_prompt(request="bread"), str)
    assert_type(UserIntent.extractor, Parser[UserIntent])
    assert_type(Agent("openai:gpt-5").call(UserIntent.prompt(request="bread")).output, UserIntent)
    frame = IntentFrame("query", "intent", UserIntent)
    assert_type(frame, IntentFrame[UserIntent])
    assert_type(frame.extract_intent(frame.wrap("bread")), UserIntent)
    assert_type(frame.extractor, IntentExtractor[UserIntent])
    assert_type(IntentFrame("query", "intent"), IntentFrame[str])
    assert_type(Prompt("x", parser=frame.extractor), Prompt[UserIntent])
    chosen: Literal["yes", "no"] = IntentExtractor("answer", Literal["yes", "no"]).extract_intent("")
    assert_type(chosen, Literal["yes", "no"])


def actions() -> None:
    assert_type(ActionSet(Buy).extract_actions(""), list[Buy])
    both = ActionSet[Buy | Leave](Buy, Leave, prompt="{{ actions_doc }}", strict=False)
    assert_type(both.prompt, Prompt[list[Buy | Leave]])
    assert_type(both.transform_actions("", lambda action: action.action_tag), str)
    assert_type(Agent("openai:gpt-5").call(both.prompt).output, list[Buy | Leave])
    assert_type(Buy(article="bread").number, int)


def classifications() -> None:
    agent = Agent("openai:gpt-4o")
    assert_type(agent.classify("x", [1, 2], on_missing="error").label, int)
    assert_type(agent.classify(Dialog().put("x"), UserIntent), Classification[UserIntent])
    assert_type(agent.binary_classify("x"), float)


async def classifications_under_asyncio() -> None:
    agent = Agent("openai:gpt-4o")
    assert_type((await agent.aclassify("x", ["a", "b"])).label, str)


# Flows as functions of agents, and roles


@dataclass(frozen=True)
class Draft:
    topic: str
    text: str = ""


@ask("editor", str)
def editing(d: Draft) -> str:
    return d.topic


drafts = Flow("drafts", Draft, start=editing, rows=[editing.done(end("over"), do=lambda d, a: Draft(a))])


def begun(topic: str) -> Draft:
    return Draft(topic)


bound = drafts.bound(editor=Agent("openai:gpt-5-mini"))
assert_type(bound, Flow[Draft])
assert_type(bound.as_function(), Function[..., Draft])
answers, possible, scripts = {editing: "Rain."}, {editing: ["Rain.", "Snow."]}, {editing: Script("Rain.")}
assert_type(explore(bound, Draft("rain"), possible), Explored)
assert_type(bound.runs.resume("r", answers, clients=scripts), FlowResult[Draft])
assert_type(bound.as_function(start=begun, returns=lambda d: len(d.text))("rain"), int)


# States of more types, and members, than are told apart: what comes first is typed, and the rest is no error


@execute
def counting(d: Draft) -> int:
    return len(d.text)


@execute
def naming(d: Draft) -> str:
    return d.topic


def chosen_agent(d: Draft) -> Agent[Any, Any]:
    return Agent("openai:gpt-5-mini")


members = gather("members", counting, naming, counting, naming, counting, naming)
assert_type(members, of.GatherState[Draft, tuple[Any, ...]])
assert_type(race("first", counting, naming, counting), of.GatherState[Draft, int | str])
assert_type(race("first", counting, naming, counting, naming, counting), of.GatherState[Draft, Any])
members.done(end("over"), do=lambda d, a: Draft(d.topic, a[1]))


@wait(Draft, str, early=True, within_s=60)
def early_wait(d: Draft) -> str:
    return "?"


assert_type(early_wait, of.WaitState[Draft, Draft | str])
assert_type(gather("two", counting, naming, enough=1), of.GatherState[Draft, tuple[int | str, ...]])
assert_type(gather("two", counting, naming, counting, enough=0.5), of.GatherState[Draft, tuple[Any, ...]])
assert_type(gather("two", counting, naming, counting, naming, naming, enough=2), of.GatherState[Draft, tuple[Any, ...]])
assert_type(each("some", counting, lambda d: [d], enough=0.5), of.EachState[Draft, tuple[int, ...]])


@wait(int, str, bytes, Draft, list, tuple)
def several(d: Draft) -> str:
    return d.topic


assert_type(several, of.WaitState[Draft, Any])


# What options of all states do to the types: nothing; those of combined states know the data


@wait(str, name="asked", within_s=60)
def asked_in_time(d: Draft) -> str:
    return d.topic


@execute(name="counted", within_s=60, timeout_s=3)
def counted(d: Draft) -> int:
    return len(d.text)


assert_type(asked_in_time, of.WaitState[Draft, str])
assert_type(counted, of.FunctionState[Draft, int])
assert_type(gather("both", counting, naming, within_s=None), of.GatherState[Draft, tuple[int, str]])
assert_type(race("either", counting, naming, within_s=60), of.GatherState[Draft, int | str])
assert_type(gather("late", counting, naming, within_s=lambda d: len(d.text)), of.GatherState[Draft, tuple[int, str]])


def due(d: Draft) -> datetime | None:
    return None


def delay_s(d: Draft) -> float:
    return 3.0


@wait(str, until=due, restart=False)
def asked_until(d: Draft) -> str:
    return d.topic


assert_type(asked_until, of.WaitState[Draft, str])
assert_type(pause("nap", 3), of.PauseState[Any])
assert_type(pause("nap", delay_s, restart=False), of.PauseState[Draft])
assert_type(pause("nap", until=datetime.now(UTC)), of.PauseState[Any])
assert_type(subflow("of_drafts", drafts, begun, until=lambda topic: 3.0 * len(topic)), of.SubflowState[str, Draft])


# Rows for ends: each action is given a failure, and after the time of a flow inside its data


def keep_reason(d: Draft, why: Failure) -> Draft:
    return Draft(why.detail)


assert_type(asked_until.cancelled(end("over"), do=lambda d, why: Draft(why.detail)), of.Row[Draft])
asked_until.expired(end("over"), do=keep_reason)
asked_until.elapsed(end("over"), when=lambda d: not d.text, do=lambda d, none: d)
in_time = subflow("in_time", drafts, begun, within_s=60)
in_time.elapsed(end("over"), when=lambda topic, draft: not draft.text, do=lambda topic, draft: draft.text)
in_time.failed(end("over"), do=lambda topic, why: why.data.text)
in_time.cancelled(end("over"), do=lambda topic, why: why.detail)
kept: Failure[Draft | None] = Failure("late", data=Draft("rain"))
assert_type(kept.data, Draft | None)
ends = [cancelled(end("over"), do=keep_reason), expired(end("over"), do=keep_reason)]
Flow("ended", Draft, start=counting, rows=[counting.done(end("over")), *ends])
any_state(counting, naming).cancelled(end("over"), do=keep_reason)


@ask(chosen_agent, int, str, Draft)
def ask_several(d: Draft) -> str:
    return d.topic


assert_type(ask_several, of.CallState[Draft, int | str | Draft])


# Guards of the data and the answer, and of the data alone


def is_long(d: Draft) -> bool:
    return len(d.text) > 9


def is_more(d: Draft, a: int) -> bool:
    return a > 9


def is_known(d: Draft, a: Failure) -> bool:
    return a.reason == "wrong type"


def counts(d: Draft, a: CallResult[int]) -> bool:
    return a.output > 9


counting.done(end("over"), when=is_long, do=lambda d, a: Draft(d.topic[:a]))
counting.done(end("over"), when=is_more)
counting.failed(end("lost"), when=is_long, do=lambda d, why: Draft(why.detail))
counting.failed(end("lost"), when=is_known)


@wait(int, str)
def either(d: Draft) -> str:
    return d.topic


either.done(end("over"), of=int, when=is_long, do=lambda d, a: Draft(d.topic[:a]))
either.done(end("over"), of=int, when=is_more)


naming.done(end("over"), do=into("text"))
naming.done(end("over"), when=is_long, do=into("text"))
naming.failed(end("lost"), do=into("text"))
either.done(end("over"), of=str, do=into("text"))
any_state(counting, naming).failed(end("lost"), do=into("text"))
assert_type(into("text")(Draft("rain"), "It rains."), Draft)
some_states = any_state(counting, naming, either)
assert_type(some_states, any_states.AnyState[Draft])
excuses = any_state(counting, naming).failed(end("lost"), when=is_long, do=lambda d, why: Draft(why.detail))
assert_type(excuses, tuple[of.Row[Draft], ...])
Flow("shared", Draft, start=counting, rows=[counting.done(naming), *any_state(naming).done(end("over")), *excuses])


# Items and starts: of named functions, which say what the data are, and of lambdas, which do not


@execute
def measuring(text: str) -> int:
    return len(text)


def words(d: Draft) -> list[str]:
    return d.text.split()


over_words = each("over_words", measuring, words)
assert_type(over_words, of.EachState[Draft, tuple[int, ...]])
assert_type(
    each("settled", measuring, words, settled=True, parallel=None), of.EachState[Draft, tuple[int | Failure, ...]]
)
assert_type(each("late", measuring, words, within_s=lambda d: len(d.text)), of.EachState[Draft, tuple[int, ...]])
assert_type(subflow("of_drafts", drafts, lambda d: Draft("rain")), of.SubflowState[Any, Draft])
assert_type(subflow("of_a_topic", drafts, begun), of.SubflowState[str, Draft])
over_words.done(end("over"), do=lambda d, a: Draft(d.topic, str(sum(a))))
each("by_lambda", measuring, lambda d: ["rain"]).done(end("over"), do=lambda d, a: Draft(d.topic, str(sum(a))))


# Who is asked, and what it gives: an agent, one of its own class, a role, or one that the data choose


@ask(Agent("openai:gpt-5-mini", output=Person))
def ask_person(d: Draft) -> str:
    return d.topic


@ask(Told(), Person, whole=False)
def ask_told(d: Draft) -> str:
    return d.topic


@ask(Shouter(), str)
def ask_shouter(d: Draft) -> str:
    return d.topic


@ask("editor", int, str, within_s=60)
def ask_role(d: Draft) -> str:
    return d.topic


@ask(chosen_agent, int, str, bytes, Draft, Person, name="asked")
def ask_chosen(d: Draft) -> str:
    return d.topic


@ask(lambda d: "editor", int)
def ask_by_lambda(d: Draft) -> str:
    return d.topic


@ask(Agent("openai:gpt-5-mini", output=Person), whole=True)
def whole_person(d: Draft) -> str:
    return d.topic


@ask(Shouter(), str, whole=True)
def whole_shouter(d: Draft) -> str:
    return d.topic


@ask("editor", int, str, Draft, whole=True, within_s=60)
def whole_role(d: Draft) -> str:
    return d.topic


@ask(chosen_agent, int, str, whole=True)
def whole_chosen(d: Draft) -> str:
    return d.topic


@ask(chosen_agent, int, str, bytes, Draft, Person, whole=True)
def whole_of_many(d: Draft) -> str:
    return d.topic


assert_type(ask_person, of.CallState[Draft, Person])
assert_type(ask_told, of.CallState[Draft, Person])
assert_type(ask_shouter, of.CallState[Draft, str])
assert_type(ask_role, of.CallState[Draft, int | str])
assert_type(ask_chosen, of.CallState[Draft, Any])
assert_type(ask_by_lambda, of.CallState[Draft, int])
assert_type(whole_person, of.WholeCallState[Draft, Person])
assert_type(whole_shouter, of.WholeCallState[Draft, str])
assert_type(whole_role, of.WholeCallState[Draft, Any])
assert_type(whole_chosen, of.WholeCallState[Draft, int | str])
assert_type(whole_of_many, of.WholeCallState[Draft, Any])
whole_role.done(end("over"), of=int, when=is_long)
whole_role.done(end("over"), of=int, when=counts)
whole_role.done(end("over"), of=int, do=lambda d, a: Draft(d.topic[: a.output]))
Agent("openai:gpt-5-mini", functions=[bound, bound.as_function(returns=lambda d: d.text)])


# An orchestrator, and rows of one's own

team = Orchestrator([Agent("openai:gpt-5-mini", name="worker")], prompts={"deciding": "{{ failed }}"})
assert_type(team.call("the task"), OrchestrationResult)
assert_type(team.run(team.prepare("the task")), OrchestrationResult)
assert_type(team.runs.resume("r", {team.asking: Supply("mine")}), OrchestrationResult)
assert_type(team.runs.submit("the task", after="r", priority=1).result(), OrchestrationResult)
assert_type(team.extended([team.deciding.done(team.given_up, of=Remedy.FULL)]), Orchestrator)
team.deciding.done(team.planning, of=Remedy.FULL, do=Job.cleared)
team.deciding.done(team.planning, do=lambda j, remedy: j.cleared() if remedy is Remedy.FULL else j)
team.asking.done(team.given_up, of=GiveUp, do=lambda j, answer: replace(j, error=answer.because))
team.executing.done(team.completed, when=Job.is_last, do=Job.noted)

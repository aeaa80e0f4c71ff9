"""Are the typical mistakes of a new user answered at once, with the thing, its value and what would be right?

Each is what somebody writes who comes from another library or has not read on; each is run.  Where Python itself
answers, because nothing of ours is called, its words are in the table too: no mistake may be silent.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from fsm_agent import (
    Agent,
    AgentBase,
    Approved,
    CallSuspended,
    Context,
    Dialog,
    FallbackClient,
    Function,
    Image,
    Limits,
    MCPServer,
    MemoryStore,
    Message,
    Price,
    Prompt,
    Retries,
    Runs,
    Settings,
    Worker,
    build_agent,
    client_for,
    function,
    snapshot,
)
from fsm_agent.agents import Metrics
from fsm_agent.agents.registry import AGENTS
from fsm_agent.clients import Network
from fsm_agent.context import KeepLastN, Masking
from fsm_agent.diagrams import trace_diagram
from fsm_agent.flows import (
    Flow,
    FlowLimits,
    FlowResult,
    FlowSuspended,
    end,
    execute,
    flow_diagram,
    gather,
    pause,
    run_diagram,
    subflow,
    wait,
)
from fsm_agent.flows.orchestrator import Orchestrator
from fsm_agent.foreign_names import (
    FLOW_RESULT_WORDS,
    FUNCTION_CALL_WORDS,
    IMPORT_WORDS,
    LIMIT_WORDS,
    MESSAGE_WORDS,
    RESULT_WORDS,
    USAGE_WORDS,
)
from fsm_agent.lifecycle import Injected, Returned, any_of, rounds_of, spans_of
from fsm_agent.lifecycle.call_result import CallResult
from fsm_agent.messages import WebSearch
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import Reply, Usage
from fsm_agent.prompts import register_prompt
from fsm_agent.runtime import Cache, Throttle
from fsm_agent.testing import Delayed, Script, call, explore, token_reply


class Person(BaseModel):
    name: str


@dataclass
class Shop:
    name: str


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def price(context: Context[Shop]) -> str:
    """Return the price."""
    return context.deps.name


def count_up(to: int) -> Iterator[int]:
    """Count."""
    yield from range(to)


async def count_up_async(to: int) -> Any:
    """Count."""
    for n in range(to):
        yield n


class Misspelt:
    def on_dnoe(self, event: Any) -> None: ...


class Awaited:
    async def on_done(self, event: Any) -> None: ...


class Deaf:
    def on_done(self) -> None: ...


class Log:
    def on_done(self, event: Any) -> None: ...


def agent(*replies: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*replies or ("ok",)), **{"name": "clerk"} | options)


def result() -> Any:
    return agent().call("hi")


def asked() -> Agent[Any, Any]:
    """An agent whose run 'r1' waits for an approval."""
    adder = Function.of(add, needs_approval=True)
    made = agent(call("add", a=1, b=2), "3", functions=[adder], store=MemoryStore())
    with pytest.raises(CallSuspended):
        made.call("1 + 2?", run_id="r1")
    return made


def asked_by_hand() -> Any:
    made = agent(call("add", a=1, b=2), functions=[Function.of(add, needs_approval=True)])
    with pytest.raises(CallSuspended) as suspended:
        made.call("1 + 2?")
    return suspended.value.call


def defined(**attributes: Any) -> Any:
    """A class of agents with these attributes, made and asked."""
    kind: Any = type("Mine", (AgentBase,), attributes)
    return kind(client=Script("ok")).call("hi")


def registered_twice() -> None:
    for name in ("One", "Two"):
        type(name, (AgentBase,), {"agent_type": "clerk", "expertise": name})


@wait(int)
def number(n: int) -> str:
    return "How many?"


def flow(**options: Any) -> Flow[int]:
    return Flow("numbers", int, start=number, rows=[number.done(end("over"))], **options)


def flow_result() -> Any:
    run = flow().seed(1)
    with pytest.raises(FlowSuspended):
        flow().run(run)
    run.give(number, 2)
    return flow().run(run)


def without_super() -> Any:
    class Mine(AgentBase):
        expertise = "You are a clerk."

        def __init__(self, shop: str) -> None:
            self.shop = shop

    return Mine("corner").call("hi")


def forgotten_await() -> Any:
    waiting: Any = agent().acall("hi")
    try:
        return waiting.output
    finally:
        waiting.close()


def awaited_call() -> None:
    async def main() -> None:
        await agent().call("hi")

    asyncio.run(main())


def iterated_astream() -> None:
    for _ in agent().astream("hi"):
        pass


def wrong_role_of_a_client() -> None:
    agent(Reply(message=Message.of("user", "hi"))).call("hi")


def injected() -> None:
    suspended = agent(call("add", a=1, b=2), functions=[Function.of(add, needs_approval=True)]).seed("x")
    suspended.advance("", Injected((Message(role="usr"),)))


IS_3_14 = sys.version_info >= (3, 14)
AWAITED = "'CallResult' object can't be awaited" if IS_3_14 else "object CallResult can't be used in 'await' expression"
MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    # models and keys
    "a model alone": (
        lambda: Agent("gpt-5-mini"),
        "ConfigError: 'gpt-5-mini' names no provider: did you mean 'openai:gpt-5-mini'?",
    ),
    "a provider misspelt": (
        lambda: Agent("opnai:gpt-5-mini").call("hi"),
        "ConfigError: no provider 'opnai' is registered: did you mean '",
    ),
    "a provider alone": (
        lambda: Agent("openai:").call("hi"),
        "ConfigError: 'openai:' names no model: 'openai:…' would",
    ),
    "no key": (
        lambda: Agent("openai:gpt-5-mini").call("hi"),
        "ConfigError: provider 'openai' needs a key: set OPENAI_API_KEY, or give api_key",
    ),
    "an address without a scheme": (
        lambda: client_for("openai:gpt-5", base_url="localhost:8000", api_key="x"),
        "ConfigError: base_url 'localhost:8000' is no base URL: one like 'https://host/v1' is",
    ),
    "no model": (lambda: Agent(), "TypeError: .*missing 1 required positional argument: 'model'"),
    "a double that is a class": (lambda: Agent(Script), "UsageError: model of an agent is <class .*Script'>: .*client"),
    "the system prompt by position": (
        lambda: Agent("openai:gpt-5-mini", "Be kind."),
        "TypeError: Agent takes only model by position: the others are given by name, system=…, functions=…",
    ),
    # sync and asyncio
    "await forgotten": (forgotten_await, "AttributeError: 'coroutine' object has no attribute 'output'"),
    "await of a call": (awaited_call, f"TypeError: {AWAITED}"),
    "for over astream": (iterated_astream, "TypeError: 'async_generator' object is not iterable"),
    # functions
    "a lambda": (
        lambda: agent(functions=[lambda x: x]),
        "UsageError: the function name '<lambda>' will be refused by providers: Function.of(lambda …, name='double')",
    ),
    "a generator": (
        lambda: agent(functions=[count_up]),
        "UsageError: function 'count_up' is a generator, .* returns a list .* Context.emit(…), would be right",
    ),
    "a generator for asyncio": (
        lambda: function(count_up_async),
        "UsageError: function 'count_up_async' is a generator, .*: one that returns a list",
    ),
    "a function that was called": (
        lambda: agent(functions=[add(1, 2)]),
        "UsageError: 3 cannot be called: a function, method, partial or object with __call__ can",
    ),
    "a method without its object": (
        lambda: agent(functions=[Log.on_done]),
        "UsageError: function 'on_done' is a method without its object: Function.of(an_object.on_done) is right",
    ),
    "the name of a function": (lambda: function("add"), "UsageError: 'add' cannot be called: a function, method"),
    "one function twice": (lambda: agent(functions=[add, add]), "PromptError: two functions .* have one name: add"),
    "retries as a number": (
        lambda: Function.of(add, retries=3),
        "UsageError: retries of function 'add' is 3: None or Retries(attempts=3) would be right",
    ),
    "a policy of another library": (
        lambda: Function.of(add, timeout=3),
        "UsageError: there is no policy 'timeout' of functions: did you mean 'timeout_s'?",
    ),
    "no deps": (
        lambda: agent(functions=[price]).call("hi"),
        "UsageError: deps is None, and function 'price' takes Context[Shop]: deps=… of call gives it one",
    ),
    "deps that are a class": (
        lambda: agent(functions=[price]).call("hi", deps=Shop),
        "UsageError: deps is <class .*Shop'>, a class, and function 'price' takes Context[Shop]: .*Shop(…), would be",
    ),
    # outputs
    "an instance as output": (
        lambda: agent(output=Person(name="Ann")),
        "PromptError: the output of a prompt is Person(name='Ann'), which .*: its type, Person, would be right",
    ),
    "the name of a type": (
        lambda: agent(output="Person"),
        "PromptError: the output of a prompt is 'Person', .*: the type itself, Person, would be right",
    ),
    "a list of one type": (lambda: agent(output=[Person]), "PromptError: .*output .* list[Person] would be right"),
    "a list of types": (
        lambda: agent(output=(int, str)),
        "PromptError: .*output .* a union, int | str, would be right",
    ),
    "a number as output": (
        lambda: agent(output=5),
        "PromptError: .*output of a prompt is 5, .* a type such as int would",
    ),
    "fields as output": (
        lambda: agent(output={"name": str}),
        "PromptError: the output of a prompt is {'name': …}, .*: a model of pydantic, a dataclass or a TypedDict",
    ),
    "a function as output": (
        lambda: agent(output=len),
        "PromptError: .* Prompt(…, parser=…) for a function of the text",
    ),
    "a type as parser": (
        lambda: Prompt("x", parser=Person),
        "UsageError: the parser of a prompt is <class .*Person'>: output=Person, as it is a type, would be right",
    ),
    # templates
    "a variable that is missing": (
        lambda: agent().call(Prompt("{{ a }} {{ b }}")(a=1)),
        "PromptError: the template '{{ a }} {{ b }}' needs the variable(s) b; given: a",
    ),
    "a variable too many": (
        lambda: agent().call(Prompt("{{ a }}")(a=1, city=2)),
        "PromptError: the template '{{ a }}' uses no variable 'city'; there are: a",
    ),
    "{task}": (
        lambda: agent().call(Prompt("Do {task}")(task="it")),
        "PromptError: the template 'Do {task}' uses no variable 'task': {{ task }} is right for '{task}'",
    ),
    "${task}": (
        lambda: agent().call(Prompt("Do ${task}")(task="it")),
        "PromptError: .* uses no variable 'task': {{ task }} is right for '${task}'",
    ),
    "$task": (lambda: agent().call(Prompt("Do $task")(task="it")), "PromptError: .*{{ task }} is right for '$task'"),
    "%(task)s": (
        lambda: agent().call(Prompt("Do %(task)s")(task="it")),
        "PromptError: .*{{ task }} is right for '%(task)s'",
    ),
    "a template that is cut": (
        lambda: Prompt("{{ task "),
        "PromptError: the template '{{ task ' is wrong in line 1: unexpected end of template",
    ),
    "variables for a text": (
        lambda: agent().call("Do {{ task }}", task="it"),
        "UsageError: the variables task are for a Prompt, not for 'Do {{ task }}'",
    ),
    "variables of the system prompt": (
        lambda: agent(system=Prompt("You are {{ name }}.")).call("hi"),
        "PromptError: system of the agent 'clerk': .* needs the variable(s) name; .*: system_args={…} of call",
    ),
    # dialogs and messages
    "a list of texts": (
        lambda: agent().call(["hi", "there"]),
        "UsageError: a message of a dialog is 'hi': Message.of('user', '…') or {'role': 'user', 'content': '…'} as",
    ),
    "pairs": (
        lambda: agent().call([("user", "hi")]),
        "UsageError: a message of a dialog is ('user', 'hi'): Message.of(",
    ),
    "a dictionary as the task": (
        lambda: agent().call({"messages": []}),
        "UsageError: the task is {'messages': []}: text, a Payload, a Prompt, a Message or a Dialog would be right",
    ),
    "a role of another library": (
        lambda: agent().call([{"role": "human", "content": "hi"}]),
        "UsageError: messages[0].role is 'human': here that is 'user'",
    ),
    "a role misspelt": (
        lambda: Message.of("usr", "hi"),
        "UsageError: the role of a message is 'usr': did you mean 'user'?",
    ),
    "a message by hand": (
        lambda: agent().call(Message(role="usr")),
        "UsageError: messages[0].role is 'usr': did you mean 'user'?",
    ),
    "a message by hand for a store": (
        lambda: agent(store=MemoryStore()).call([Message.of("user", "hi"), Message(role="asistant")]),
        "UsageError: messages[1].role is 'asistant': did you mean 'assistant'?",
    ),
    "a message by hand in a dialog": (
        lambda: Dialog().append(Message(role="ai")),
        "UsageError: messages[0].role is 'ai': here that is 'assistant'",
    ),
    "a message by hand while it runs": (
        injected,
        "OutcomeError: Injected: messages[0].role is 'usr': did you mean 'user'?",
    ),
    "a message by hand after another": (
        lambda: agent().call("hi", after=[Message(role="usr")]),
        "UsageError: messages[0].role is 'usr': did you mean 'user'?",
    ),
    "a text as parts": (
        lambda: Dialog([Message(role="user", parts="hi")]),
        "UsageError: messages[0].parts is 'hi': a tuple of parts, as Message.of('user', 'a text', Image.of(…)) makes",
    ),
    "texts as parts": (
        lambda: Dialog([Message(role="user", parts=("hi",))]),
        "UsageError: a part of messages[0] is 'hi': one such as Text(…), as Message.of('user', 'a text', Image.of(…))",
    ),
    "a reply in the user's role": (
        wrong_role_of_a_client,
        "UsageError: .*client 'script' ended with .* role 'assistant'",
    ),
    "a picture that is not there": (
        lambda: Image.of("no.png"),
        "UsageError: no image can be read from 'no.png': No such file or directory",
    ),
    "a class among the processors": (
        lambda: agent(processors=[KeepLastN]),
        "UsageError: processors of an agent is .*KeepLastN.*: a list of functions of messages, [KeepLastN(20)], say,",
    ),
    "a setting for a call": (
        lambda: agent().call("hi", max_tokens=3),
        "UsageError: a call has no option 'max_tokens': here that is settings=Settings(max_tokens=…) of the Agent, or",
    ),
    "a price in dollars": (
        lambda: Price(input=0.25),
        "TypeError: Price has no argument 'input': here that is input_micro_usd=…, in millionths of a dollar for a",
    ),
    "a word for a conversation": (
        lambda: agent(store=MemoryStore()).conversation("c").send("hi"),
        "AttributeError: 'Conversation' object has no attribute 'send': here that is call",
    ),
    "no task": (
        lambda: agent().call(None),
        "UsageError: the task is None: text, a Payload, a Prompt, a Message or a Dialog would",
    ),
    "an empty task": (lambda: agent().call(""), "UsageError: the task is '': a text that asks for something would be"),
    # runs
    "a run that is not there": (lambda: agent(store=MemoryStore()).resume("r9"), "RunUnknown: there is no run 'r9'"),
    "no store": (
        lambda: agent().resume("r1"),
        "UsageError: the agent 'clerk' has no store: store='runs.db' gives it one",
    ),
    "a run without a store": (
        lambda: agent().call("hi", run_id="r1"),
        "UsageError: run_id 'r1' names a run in a store, and the agent has none: store='runs.db'",
    ),
    "an answer of the wrong kind": (
        lambda: asked().resume("r1", {"ask:1.0": Returned(text="3")}),
        "UsageError: Returned answers no 'ask:1.0' of the run 'r1', which stays open: Approved or Modified or Denied",
    ),
    "an answer that is True": (
        lambda: asked().resume("r1", {"ask:1.0": True}),
        "UsageError: the answer to 'ask:1.0' is True: an outcome such as Approved() is right",
    ),
    "an answer without its key": (
        lambda: asked().resume("r1", Approved()),
        "UsageError: answers is Approved(): outcomes by the keys of the questions, such as {'ask:2.0': Approved()}",
    ),
    "an answer to another question": (
        lambda: asked().resume("r1", {"ask:2.0": Approved()}),
        "NotAsked: the run 'r1' asks no question 'ask:2.0': did you mean 'ask:1.0'?",
    ),
    "a name that is taken": (
        lambda: asked().call("2 + 3?", run_id="r1"),
        "RunExists: there is a run 'r1' already, .* another task: another run_id would be right, or resume('r1')",
    ),
    "an approval that never comes": (
        lambda: agent(call("add", a=1, b=2), functions=[Function.of(add, needs_approval=True)]).call("?"),
        'CallSuspended: .*(approval of add({"a": 1, "b": 2})): .* error.call.advance(\'ask:1.0\', Approved())',
    ),
    "a store that is a class": (
        lambda: agent(store=MemoryStore).call("hi"),
        "UsageError: store is <class .*MemoryStore'>: the path of a file such as 'runs.db'",
    ),
    "a store in no folder": (
        lambda: Runs("no/such/runs.db"),
        "StoreError: .*no/such/runs.db' cannot be opened: No such",
    ),
    # agents
    "a name that two agents have": (
        registered_twice,
        "ConfigError: agent_type 'clerk' .* is taken by .*One: take another",
    ),
    "an agent without a prompt": (defined, "TypeError: .*Mine is abstract: it has no call, and none of .*prompt"),
    "an attribute misspelt": (
        lambda: defined(promt=Prompt("{{ task }}")),
        "ConfigError: .*Mine has no use for 'promt': did you mean 'prompt'?",
    ),
    "an attribute of another library": (
        lambda: defined(expertise="You add.", tools=[add]),
        "ConfigError: .*Mine has no use for 'tools': here that is functions",
    ),
    "a client as an attribute": (
        lambda: defined(expertise="You add.", client=Script()),
        "ConfigError: .*Mine has no use for 'client': here that is model = 'provider:model', or a client",
    ),
    "a template as a path": (
        lambda: defined(prompt="Do {{ task }}"),
        "ConfigError: .*'Do {{ task }}' is a template, and a path is wanted: prompt=Prompt('Do {{ task }}') would be",
    ),
    "super forgotten": (
        without_super,
        "AttributeError: 'Mine' object has no attribute 'agents': .*super().__init__(…)",
    ),
    "an unknown kind": (
        lambda: build_agent({"agent_type": "clrk"}),
        "ConfigError: .*agent_type: no agent_type 'clrk' is registered",
    ),
    "a key of a configuration misspelt": (
        lambda: build_agent({"modell": "openai:gpt-5-mini"}),
        "ConfigError: .*modell: 'modell' is unknown: did you mean 'model'?",
    ),
    "a hook that is a class": (
        lambda: agent(hooks=[Log]),
        "UsageError: the hook <class .*Log'> is a class: an object of it, Log(), would be right",
    ),
    "a hook misspelt": (lambda: agent(hooks=[Misspelt()]), "UsageError: .* has 'on_dnoe', .*: did you mean 'on_done'?"),
    "a hook that is awaited": (
        lambda: agent(hooks=[Awaited()]),
        "UsageError: on_done of the hook .*Awaited.* is a coroutine function, and hooks are not awaited: a plain def",
    ),
    "a hook without its event": (
        lambda: agent(hooks=[Deaf()]),
        "UsageError: on_done of the hook .*Deaf.* cannot be called with an event: def on_done(self, event)",
    ),
    "an approver that is True": (lambda: agent(approve=True), "UsageError: approve is True: a callable of (call)"),
    "a verdict that is a text": (
        lambda: agent(call("add", a=1, b=2), functions=[add], approve=lambda call: "yes").call("?"),
        "UsageError: approve(add) returned 'yes': True, False, Approved(), Denied(…) or None is right",
    ),
    # limits and settings
    "negative rounds": (
        lambda: Limits(rounds=-1),
        "UsageError: limits.rounds is -1: a whole number from 0 on would be right, or None: unlimited",
    ),
    "rounds as a text": (lambda: Limits(rounds="3"), "UsageError: limits.rounds is '3': a whole number from 0 on"),
    "a limit of another library": (
        lambda: Limits(max_turns=3),
        "TypeError: Limits has no argument 'max_turns': here that is rounds=…",
    ),
    "a limit misspelt": (
        lambda: Limits(deadlines=3),
        "TypeError: Limits has no argument 'deadlines': did you mean 'deadline_s'?",
    ),
    "a limit by position": (
        lambda: Limits(3),
        "TypeError: Limits takes no arguments by position: .* by name, rounds=…",
    ),
    "a consequence of another library": (
        lambda: Limits(on_limit="raise"),
        "UsageError: limits.on_limit is 'raise': one of 'final_prompt', 'stop', 'fail' would be right",
    ),
    "a setting misspelt": (
        lambda: Settings(temprature=0),
        "TypeError: Settings has no argument 'temprature': did you mean 'temperature'?",
    ),
    "an option of masking": (
        lambda: Masking(keep=3),
        "TypeError: Masking has no argument 'keep': here that is keep_rounds=…",
    ),
    # testing and more
    "a script that is too short": (
        lambda: agent(call("add", a=1, b=2), functions=[add]).call("1 + 2?"),
        r"ScriptError: request 2 has no reply in the script; .*; Script(…) has 1: one more would be right",
    ),
    "a script of numbers": (
        lambda: agent(5).call("hi"),
        "UsageError: a script cannot reply 5: a text, call('name', …), a list of both, a Reply, a ProviderError",
    ),
    "a prompt that is a text": (
        lambda: register_prompt("Do it"),
        "UsageError: what is registered is 'Do it': a Prompt('…', path='root/name') would be right",
    ),
    "an MCP server that is a command": (
        lambda: MCPServer("npx"),
        "UsageError: transport of an MCP server is 'npx': MCPServer.stdio('command', …) or MCPServer.http(",
    ),
    "a conversation without a store": (
        lambda: agent().conversation("anna"),
        "UsageError: the agent 'clerk' has no store: store='runs.db' gives it one",
    ),
    "after that is a text": (
        lambda: agent().call("hi", after="before"),
        "UsageError: after is 'before': the result of a call, a Dialog, or a list of messages would be right",
    ),
    # arguments of options
    "retries misspelt": (
        lambda: Retries(attempt=3),
        "TypeError: Retries has no argument 'attempt': did you mean 'attempts'?",
    ),
    "retries by position": (lambda: Retries(3), "TypeError: Retries takes no arguments by position: .* attempts=…"),
    "a budget of a flow misspelt": (
        lambda: FlowLimits(deadline=3),
        "TypeError: FlowLimits has no argument 'deadline': did you mean 'deadline_s'?",
    ),
    "a price by position": (lambda: Price(0.25, 2), "TypeError: Price takes no arguments by position: "),
    "a network misspelt": (
        lambda: Network(read=3),
        "TypeError: Network has no argument 'read': did you mean 'read_s'?",
    ),
    "a hosted tool misspelt": (
        lambda: WebSearch(max_use=3),
        "TypeError: WebSearch has no argument 'max_use': did you mean 'max_uses'?",
    ),
    # flows
    "Flow(checkpointer=)": (lambda: flow(checkpointer=1), "TypeError: Flow has no argument 'checkpointer': .*store=…"),
    "an argument of a flow misspelt": (
        lambda: flow(stor="runs.db"),
        "TypeError: Flow has no argument 'stor': did you mean 'store'?",
    ),
    "flow.invoke": (lambda: flow().invoke(1), "AttributeError: 'Flow' .* 'invoke': here that is call"),
    "flow.compile": (lambda: flow().compile(), "AttributeError: 'Flow' .*: here that is call: a flow is checked when"),
    "result.output of a flow": (
        lambda: flow_result().output,
        "AttributeError: 'FlowResult' object has no attribute 'output': here that is data",
    ),
    # diagrams and reports
    "a diagram of a result": (
        lambda: trace_diagram(result()),
        "UsageError: the trace is CallResult(.*: the steps of an agent call, such as result.trace, would be right",
    ),
    "a diagram of the trace of a flow": (
        lambda: trace_diagram(flow_result().trace),
        "UsageError: the trace goes from Seeded to 'number', as no agent call does: run_diagram(result.run) draws",
    ),
    "a diagram of an agent": (lambda: flow_diagram(agent()), "UsageError: the flow is Agent(.*: a Flow would be right"),
    "a run that is a result": (
        lambda: run_diagram(flow_result()),
        "UsageError: the run is FlowResult(over, 1): a FlowRun, such as result.run or the run of FlowSuspended, would",
    ),
    "the spans of a result": (
        lambda: spans_of(result()),
        "UsageError: the record is CallResult(.*: that of a call, such as result.record, would be right",
    ),
    "the rounds of a result": (
        lambda: rounds_of(result()),
        "UsageError: the record is CallResult(.*: that of a call, such as result.record, would be right",
    ),
    "an exception as the predicate of retries": (
        lambda: Retries(retry_if=ValueError),
        "UsageError: retry_if of Retries is <class 'ValueError'>: None or a plain predicate of the exception, lambda",
    ),
    "middleware that is a class": (
        lambda: Function.of(add, middleware=[Cache]),
        "UsageError: middleware of function 'add' is (<class .*Cache'>,): a tuple of callables of (call, next)",
    ),
    "a description that is no text": (
        lambda: Function.of(add, description=3),
        "UsageError: description of a function is 3: a text would be right",
    ),
    "a name that is no text": (lambda: Function.of(add, name=4), "UsageError: name of a function is 4: a text would"),
    "a throttle of a text": (lambda: Throttle("a"), "UsageError: Throttle('a', per_s=1.0): one call or more per some"),
    "a cache of a text": (lambda: Cache("60"), "UsageError: Cache('60', size=1000): some seconds, and one result"),
    # classes of agents
    "an expertise that is no text": (
        lambda: defined(expertise=3),
        "ConfigError: expertise of Mine is 3: a text would be right",
    ),
    "capabilities that are a text": (
        lambda: defined(expertise="You add.", capabilities="sums"),
        "ConfigError: capabilities of Mine is 'sums': a list of texts would be right",
    ),
    "a sub-agent twice": (
        lambda: defined(agent_group=["writer", "writer"], call=lambda self, task: ""),
        "ConfigError: agent_group of Mine is ['writer', 'writer']: a list of names, each once, would be right",
    ),
    "a prompt without its task": (
        lambda: defined(prompt=Prompt("Do {{ job }}")),
        "ConfigError: .*prompt: the prompt 'Do {{ job }}' must say {{ task }}",
    ),
    "a client as the model of a class": (
        lambda: type("Mine", (AgentBase,), {"expertise": "You add."})(model=Script()),
        "ConfigError: .*model: it is <.*Script object at .*>, and a name is wanted: client=… would be right",
    ),
    "an upgrade of the newest version": (
        lambda: flow(upgrades={1: dict}),
        "FlowError: a version in upgrades of the flow 'numbers' is 1: a version before 1, version= of the flow, would",
    ),
    "a guard that is no function": (
        lambda: Flow("f", int, start=number, rows=[number.done(end("over"), when=3)]),
        "FlowError: flow 'f': the guard of number --done [3]--> over is 3: a function would be right",
    ),
    "exploring what is no flow": (lambda: explore(3, 0, {}), "UsageError: the flow is 3: a Flow would be right"),
    "exploring with one answer": (
        lambda: explore(flow(), 0, {number: 2}),
        "UsageError: answers[number] is 2: a list such as [2] would be right",
    ),
    "exploring with names": (
        lambda: explore(flow(), 0, {"number": [2]}),
        "UsageError: a state in answers is 'number': a state of the flow 'numbers' itself would be right",
    ),
    "flow.run of data": (
        lambda: flow().run(1),
        "UsageError: run drives a run of the flow 'numbers', and 1 is none: call(…), or run(flow.seed(…)), would be",
    ),
    "an option of a function of a flow": (
        lambda: execute(timeout=3),
        "TypeError: execute has no argument 'timeout': did you mean 'timeout_s'?",
    ),
    "a fork by name": (lambda: Dialog().put("a").fork("critic"), "UsageError: last_n is 'critic': a whole number"),
    # one thing in place of several
    "a worker of one agent": (
        lambda: Worker(agent(), MemoryStore()),
        "UsageError: agents is Agent(.*: a list of Agents and Flows would be right",
    ),
    "a fallback to one client": (
        lambda: FallbackClient(Script()),
        "ConfigError: clients <.*Script object at .*> is one model: a list of them would be right",
    ),
    "an age as a text": (
        lambda: Runs(MemoryStore()).prune(max_age_s="30d"),
        "UsageError: max_age_s is '30d': 0 or more would be right",
    ),
    "a condition that is a number": (
        lambda: any_of(3),
        "UsageError: any_of(3): functions of a StopContext, such as stop_on('report'), are right",
    ),
    # orchestrators
    "an orchestrator of one agent": (
        lambda: Orchestrator(agent()),
        "FlowError: agents is Agent(.*: a list of Agents would be right",
    ),
    "a planner by the name of its model": (
        lambda: Orchestrator([agent()], planner="openai:gpt-5"),
        "FlowError: planner is 'openai:gpt-5': Agent('provider:model', name='planner') would be right",
    ),
    "a strategy that is a dictionary": (
        lambda: Orchestrator([agent()], strategy={"goal": "it"}),
        "FlowError: strategy is {'goal': …}: a Strategy, or None, would be right",
    ),
    "a task that is a number": (
        lambda: Orchestrator([agent()]).call(3),
        "FlowError: the task is 3: a text or a Payload would be right",
    ),
    "agent.system = …": (
        lambda: setattr(agent(), "system", "x"),
        "FrozenInstanceError: cannot assign to field 'system' of Agent: changed(system=…) returns one that differs",
    ),
    # calls by hand
    "an outcome that is a class": (
        lambda: asked_by_hand().advance("ask:1.0", Approved),
        "OutcomeError: the outcome for 'ask:1.0' is the class Approved: an object of it would be right",
    ),
    "an outcome before its key": (
        lambda: asked_by_hand().advance(Approved(), "ask:1.0"),
        "OutcomeError: the key is Approved(): that of an effect, such as 'ask:2.0', and then its outcome, would be",
    ),
    "a snapshot of a result": (
        lambda: snapshot(result()),
        "UsageError: what is kept is CallResult(.*: an AgentCall, such as the call of CallSuspended, would be right",
    ),
    "metrics with one price": (
        lambda: Metrics(Price(input_micro_usd=1, output_micro_usd=1)),
        "UsageError: prices of Metrics is Price(.*: prices by model, such as {'gpt-5-mini': Price(…)}, would be right",
    ),
    "a delay behind its reply": (
        lambda: Delayed("ok", 3),
        "UsageError: delay_s of Delayed is 'ok': a number of seconds, and then the reply, would be right",
    ),
    "a token without probabilities": (
        lambda: token_reply("yes"),
        "UsageError: a token is 'yes': its probabilities, such as {'yes': 0.7}, would be right",
    ),
    "members without a name": (
        lambda: gather(number, pause("nap", 1)),
        "FlowError: the first argument of gather is <WaitState number>: the name of the state would be right",
    ),
    "a subflow before its name": (
        lambda: subflow(flow(), "inner", int),
        "FlowError: the first argument of subflow is Flow('numbers', 1 states, 1 rows): the name of the state would",
    ),
    "acall of a class of agents": (
        lambda: type("Mine", (AgentBase,), {"expertise": "x"})(client=Script()).acall("hi"),
        "AttributeError: 'Mine' object has no attribute 'acall': here that is agents['…'].acall of a sub-agent",
    ),
    "ainvoke of a class of agents": (
        lambda: type("Mine", (AgentBase,), {"expertise": "x"})(client=Script()).ainvoke("hi"),
        "AttributeError: 'Mine' object has no attribute 'ainvoke': here that is agents['…'].acall of a sub-agent",
    ),
    "an agent without a name": (
        lambda: agent(name=""),
        "UsageError: name of an agent is '': a text such as 'shop' would be right",
    ),
    # names of other libraries
    "result.data": (
        lambda: result().data,
        "AttributeError: 'CallResult' object has no attribute 'data': here that is output",
    ),
    "result.final_output": (lambda: result().final_output, "AttributeError: .*'final_output': here that is output"),
    "result['messages']": (lambda: result()["messages"], "AttributeError: .*'messages': here that is dialog"),
    "result.all_messages()": (lambda: result().all_messages(), "AttributeError: .*'all_messages': here that is dialog"),
    "result.usage()": (lambda: result().usage(), "TypeError: 'Usage' object is not callable"),
    "usage.prompt_tokens": (
        lambda: result().usage.prompt_tokens,
        "AttributeError: 'Usage' .*: here that is input_tokens",
    ),
    "message.content": (lambda: result().message.content, "AttributeError: 'Message' .* 'content': here that is text"),
    "@agent.tool": (lambda: agent().tool(add), "AttributeError: 'Agent' .* 'tool': here that is @function, and Agent("),
    "agent.run_sync": (lambda: agent().run_sync("hi"), "AttributeError: 'Agent' .* 'run_sync': here that is call"),
    "run_sync of a class": (
        lambda: type("Mine", (AgentBase,), {"expertise": "x"})(client=Script()).run_sync("hi"),
        "AttributeError: 'Mine' object has no attribute 'run_sync': here that is call",
    ),
    "agent.run of a text": (
        lambda: agent().run("hi"),
        "UsageError: run drives an AgentCall, and 'hi' is none: call('hi')",
    ),
    "Agent(checkpointer=)": (
        lambda: agent(checkpointer=1),
        "TypeError: Agent has no argument 'checkpointer': .*store=…",
    ),
    "call(thread_id=)": (
        lambda: agent().call("hi", thread_id="1"),
        "UsageError: a call has no option 'thread_id': here that is agent.conversation('…').call",
    ),
    "call(message_history=)": (
        lambda: agent().call("hi", message_history=[]),
        "UsageError: .*'message_history': .*after=",
    ),
}


@pytest.mark.parametrize(("make", "said"), MISTAKES.values(), ids=MISTAKES)
def test_it_is_answered_at_once(
    make: Callable[[], object], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(Exception) as caught, AGENTS.scoped():  # noqa: PT011 - its kind is in the table
        make()
    text = " ".join(f"{caught.type.__name__}: {caught.value}".split())
    assert re.match(".*".join(map(re.escape, said.split(".*"))), text), text


def test_there_are_more_than_forty() -> None:
    assert len(MISTAKES) > 100


def test_a_sync_call_within_a_running_loop_is_no_mistake() -> None:
    async def main() -> str:
        return agent("fine").call("hi").text

    assert asyncio.run(main()) == "fine"


def test_nothing_was_stored_of_a_message_that_is_none() -> None:
    one = agent(store=MemoryStore())
    with pytest.raises(ValueError, match="'usr'"):
        one.call(Message(role="usr"), run_id="r1")
    assert one.runs.store.list() == []


class TestImports:
    @pytest.mark.parametrize(
        ("line", "said"),
        [
            (
                "from fsm_agent import RunContext",
                "cannot import name 'RunContext' from 'fsm_agent': here that is Context",
            ),
            ("from fsm_agent import Tool", "cannot import name 'Tool' from 'fsm_agent': here that is Function"),
            ("from fsm_agent import Runner", "here that is a method, Agent(…).call(…)"),
            ("from fsm_agent import Script", "Script is in fsm_agent.testing"),
            ("from fsm_agent import Agnet", "did you mean 'Agent'?"),
            ("from fsm_agent import explore", "explore is in fsm_agent.testing"),
            ("from fsm_agent import render", "render is in fsm_agent.diagrams"),
            ("from fsm_agent import Orchestrator", "Orchestrator is in fsm_agent.flows.orchestrator"),
            ("from fsm_agent.flows import StateGraph", "from 'fsm_agent.flows': here that is Flow"),
            ("from fsm_agent.flows import Orchestrator", "Orchestrator is in fsm_agent.flows.orchestrator"),
            ("from fsm_agent.flows import excute", "did you mean 'execute'?"),
            ("from fsm_agent.testing import Cassette", "Cassette is in fsm_agent.clients"),
            ("from fsm_agent.testing import TestModel", "from 'fsm_agent.testing': here that is Script"),
            ("from fsm_agent.testing import Scrip", "did you mean 'Script'?"),
            ("from fsm_agent import xyzzy", "cannot import name 'xyzzy' from 'fsm_agent'"),
        ],
    )
    def test_a_name_that_is_not_there(self, line: str, said: str) -> None:
        with pytest.raises(ImportError) as caught:
            exec(line)
        assert said in str(caught.value)

    def test_who_asks_for_an_attribute_is_told_as_python_does(self) -> None:
        import fsm_agent

        assert not hasattr(fsm_agent, "RunContext")
        with pytest.raises(
            AttributeError, match="module 'fsm_agent' has no attribute 'RunContext': here that is Context"
        ):
            _ = fsm_agent.RunContext

    def test_a_module_is_found_where_no_name_is(self) -> None:
        code = "from fsm_agent import messages, store; import sys; print(store.__name__, 'difflib' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == "fsm_agent.store False\n", "no name is looked for that is nearly the module's"


class TestWords:
    @pytest.mark.parametrize(
        ("words", "kind"),
        [
            (RESULT_WORDS, CallResult),
            (USAGE_WORDS, Usage),
            (MESSAGE_WORDS, Message),
            (FUNCTION_CALL_WORDS, FunctionCall),
            (FLOW_RESULT_WORDS, FlowResult),
        ],
        ids=lambda item: getattr(item, "__name__", ""),
    )
    def test_none_is_ours_and_what_is_named_is_there(self, words: dict[str, str], kind: Any) -> None:
        for word, right in words.items():
            assert not hasattr(kind, word)
            named = re.match(r"[a-z_]+", right)
            assert right.startswith(("result.", "Price(")) or (named is not None and hasattr(kind, named[0])), right

    def test_imports(self) -> None:
        import fsm_agent

        assert not IMPORT_WORDS.keys() & set(fsm_agent.__all__)
        for right in IMPORT_WORDS.values():
            name = re.match(r"[A-Z]\w+|function\b", right)
            assert name is None or hasattr(fsm_agent, name[0]), right

    def test_limits(self) -> None:
        for word, right in LIMIT_WORDS.items():
            assert word not in Limits.__struct_fields__
            assert all(name in Limits.__struct_fields__ for name in re.findall(r"(\w+)=", right))

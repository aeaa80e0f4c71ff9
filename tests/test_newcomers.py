"""Are the typical mistakes of a new user answered at once, with the thing, its value and what would be right?

Each is what somebody writes who has not read on; each is run.
"""

from __future__ import annotations

import asyncio
import re
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
    Limits,
    MCPServer,
    MemoryStore,
    Message,
    Price,
    Prompt,
    Runs,
    Worker,
    build_agent,
    client_for,
    function,
    snapshot,
)
from fsm_agent.agents import Metrics
from fsm_agent.agents.registry import AGENTS
from fsm_agent.context import Budget
from fsm_agent.diagrams import trace_diagram
from fsm_agent.flows import (
    Flow,
    FlowSuspended,
    end,
    flow_diagram,
    gather,
    pause,
    run_diagram,
    subflow,
    wait,
)
from fsm_agent.flows.orchestrator import Orchestrator
from fsm_agent.lifecycle import Injected, any_of, rounds_of, spans_of
from fsm_agent.messages.reply import Reply
from fsm_agent.prompts import register_prompt
from fsm_agent.runtime import Cache
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


def wrong_role_of_a_client() -> None:
    agent(Reply(message=Message.of("user", "hi"))).call("hi")


def injected() -> None:
    suspended = agent(call("add", a=1, b=2), functions=[Function.of(add, needs_approval=True)]).seed("x")
    suspended.advance("", Injected((Message(role="usr"),)))


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    # models and keys
    "an address without a scheme": (
        lambda: client_for("openai:gpt-5", base_url="localhost:8000", api_key="x"),
        "ConfigError: base_url 'localhost:8000' is no base URL: one like 'https://host/v1' is",
    ),
    # functions
    "a generator": (
        lambda: agent(functions=[count_up]),
        "UsageError: function 'count_up' is a generator, .* returns a list .* Context.emit(…), would be right",
    ),
    "a generator for asyncio": (
        lambda: function(count_up_async),
        "UsageError: function 'count_up_async' is a generator, .*: one that returns a list",
    ),
    "one function twice": (lambda: agent(functions=[add, add]), "PromptError: two functions .* have one name: add"),
    "retries as a number": (
        lambda: Function.of(add, retries=3),
        "UsageError: retries of function 'add' is 3: None or Retries(attempts=3) would be right",
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
    "variables of the system prompt": (
        lambda: agent(system=Prompt("You are {{ name }}.")).call("hi"),
        "PromptError: system of the agent 'clerk': .* needs the variable(s) name; .*: system_args={…} of call",
    ),
    # dialogs and messages
    "a role of another library": (
        lambda: agent().call([{"role": "human", "content": "hi"}]),
        "UsageError: messages[0].role is 'human': here that is 'user'",
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
    "a class among the passes": (
        lambda: agent(context=[Budget]),
        "UsageError: context has <class .*Budget'>: a function of messages, keep_last(8), say, would be right",
    ),
    # runs
    "a run that is not there": (lambda: agent(store=MemoryStore()).resume("r9"), "RunUnknown: there is no run 'r9'"),
    "an answer to another question": (
        lambda: asked().resume("r1", {"ask:2.0": Approved()}),
        "NotAsked: the run 'r1' asks no question 'ask:2.0': did you mean 'ask:1.0'?",
    ),
    "an approval that never comes": (
        lambda: agent(call("add", a=1, b=2), functions=[Function.of(add, needs_approval=True)]).call("?"),
        'CallSuspended: .*(approval of add({"a": 1, "b": 2})): .* error.call.advance(\'ask:1.0\', Approved())',
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
    "an agent without a prompt": (
        defined,
        "TypeError: .*Mine is abstract: it has no method answer, and none of .*prompt",
    ),
    "a template as a path": (
        lambda: defined(prompt="Do {{ task }}"),
        "ConfigError: .*'Do {{ task }}' is a template, and a path is wanted: prompt=Prompt('Do {{ task }}') would be",
    ),
    "an unknown kind": (
        lambda: build_agent({"agent_type": "clrk"}),
        "ConfigError: .*agent_type: no agent_type 'clrk' is registered",
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
    # limits and settings
    "rounds as a text": (lambda: Limits(rounds="3"), "UsageError: limits.rounds is '3': a whole number from 0 on"),
    "a consequence of another library": (
        lambda: Limits(on_limit="raise"),
        "UsageError: limits.on_limit is 'raise': one of 'final_prompt', 'stop', 'fail' would be right",
    ),
    # testing and more
    "a prompt that is a text": (
        lambda: register_prompt("Do it"),
        "UsageError: what is registered is 'Do it': a Prompt('…', path='root/name') would be right",
    ),
    "an MCP server that is a command": (
        lambda: MCPServer("npx"),
        "UsageError: transport of an MCP server is 'npx': MCPServer.stdio('command', …) or MCPServer.http(",
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
    "middleware that is a class": (
        lambda: Function.of(add, middleware=[Cache]),
        "UsageError: middleware of function 'add' is (<class .*Cache'>,): a tuple of callables of (call, next)",
    ),
    "a description that is no text": (
        lambda: Function.of(add, description=3),
        "UsageError: description of a function is 3: a text would be right",
    ),
    "a name that is no text": (lambda: Function.of(add, name=4), "UsageError: name of a function is 4: a text would"),
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
    "an agent without a name": (
        lambda: agent(name=""),
        "UsageError: name of an agent is '': a text such as 'shop' would be right",
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


def test_a_sync_call_within_a_running_loop_is_no_mistake() -> None:
    async def main() -> str:
        return agent("fine").call("hi").text

    assert asyncio.run(main()) == "fine"


def test_nothing_was_stored_of_a_message_that_is_none() -> None:
    one = agent(store=MemoryStore())
    with pytest.raises(ValueError, match="'usr'"):
        one.call(Message(role="usr"), run_id="r1")
    assert one.runs.store.list() == []

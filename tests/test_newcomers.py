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
    Image,
    Limits,
    MCPServer,
    MemoryStore,
    Message,
    Price,
    Prompt,
    Runs,
    Settings,
    Worker,
    build_agent,
    client_for,
    snapshot,
)
from fsm_agent.agents import Metrics
from fsm_agent.agents.registry import AGENTS
from fsm_agent.context import KeepLastN
from fsm_agent.diagrams import trace_diagram
from fsm_agent.flows import (
    Flow,
    FlowResult,
    FlowSuspended,
    end,
    execute,
    gather,
    pause,
    wait,
)
from fsm_agent.foreign_names import (
    FLOW_RESULT_WORDS,
    FUNCTION_CALL_WORDS,
    IMPORT_WORDS,
    LIMIT_WORDS,
    MESSAGE_WORDS,
    RESULT_WORDS,
    USAGE_WORDS,
)
from fsm_agent.lifecycle import Injected, Returned
from fsm_agent.lifecycle.call_result import CallResult
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import Reply, Usage
from fsm_agent.prompts import register_prompt
from fsm_agent.testing import Script, call


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


def awaited_call() -> None:
    async def main() -> None:
        await agent().call("hi")

    asyncio.run(main())


def wrong_role_of_a_client() -> None:
    agent(Reply(message=Message.of("user", "hi"))).call("hi")


def injected() -> None:
    suspended = agent(call("add", a=1, b=2), functions=[Function.of(add, needs_approval=True)]).seed("x")
    suspended.advance("", Injected((Message(role="usr"),)))


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    # models and keys
    "a provider misspelt": (
        lambda: Agent("opnai:gpt-5-mini").call("hi"),
        "ConfigError: no provider 'opnai' is registered: did you mean '",
    ),
    "no key": (
        lambda: Agent("openai:gpt-5-mini").call("hi"),
        "ConfigError: provider 'openai' needs a key: set OPENAI_API_KEY, or give api_key",
    ),
    "an address without a scheme": (
        lambda: client_for("openai:gpt-5", base_url="localhost:8000", api_key="x"),
        "ConfigError: base_url 'localhost:8000' is no base URL: one like 'https://host/v1' is",
    ),
    "the system prompt by position": (
        lambda: Agent("openai:gpt-5-mini", "Be kind."),
        "TypeError: Agent takes only model by position: the others are given by name, system=…, functions=…",
    ),
    # sync and asyncio
    "await of a call": (awaited_call, f"TypeError: {AWAITED}"),
    # functions
    "a generator": (
        lambda: agent(functions=[count_up]),
        "UsageError: function 'count_up' is a generator, .* returns a list .* Context.emit(…), would be right",
    ),
    "a function that was called": (
        lambda: agent(functions=[add(1, 2)]),
        "UsageError: 3 cannot be called: a function, method, partial or object with __call__ can",
    ),
    "a method without its object": (
        lambda: agent(functions=[Log.on_done]),
        "UsageError: function 'on_done' is a method without its object: Function.of(an_object.on_done) is right",
    ),
    "one function twice": (lambda: agent(functions=[add, add]), "PromptError: two functions .* have one name: add"),
    "retries as a number": (
        lambda: Function.of(add, retries=3),
        "UsageError: retries of function 'add' is 3: None or Retries(attempts=3) would be right",
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
    "a message by hand while it runs": (
        injected,
        "OutcomeError: Injected: messages[0].role is 'usr': did you mean 'user'?",
    ),
    "a text as parts": (
        lambda: Dialog([Message(role="user", parts="hi")]),
        "UsageError: messages[0].parts is 'hi': a tuple of parts, as Message.of('user', 'a text', Image.of(…)) makes",
    ),
    "a reply in the user's role": (
        wrong_role_of_a_client,
        "UsageError: .*client 'script' ended with .* role 'assistant'",
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
    "no task": (
        lambda: agent().call(None),
        "UsageError: the task is None: text, a Payload, a Prompt, a Message or a Dialog would",
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
    "an agent without a prompt": (defined, "TypeError: .*Mine is abstract: it has no call, and none of .*prompt"),
    "a template as a path": (
        lambda: defined(prompt="Do {{ task }}"),
        "ConfigError: .*'Do {{ task }}' is a template, and a path is wanted: prompt=Prompt('Do {{ task }}') would be",
    ),
    "an unknown kind": (
        lambda: build_agent({"agent_type": "clrk"}),
        "ConfigError: .*agent_type: no agent_type 'clrk' is registered",
    ),
    "a key of a configuration misspelt": (
        lambda: build_agent({"modell": "openai:gpt-5-mini"}),
        "ConfigError: .*modell: 'modell' is unknown: did you mean 'model'?",
    ),
    "a hook misspelt": (lambda: agent(hooks=[Misspelt()]), "UsageError: .* has 'on_dnoe', .*: did you mean 'on_done'?"),
    "a hook that is awaited": (
        lambda: agent(hooks=[Awaited()]),
        "UsageError: on_done of the hook .*Awaited.* is a coroutine function, which nobody awaits: a plain def",
    ),
    "a hook without its event": (
        lambda: agent(hooks=[Deaf()]),
        "UsageError: on_done of the hook .*Deaf.* cannot be called with an event: def on_done(self, event)",
    ),
    "an approver that is True": (lambda: agent(approve=True), "UsageError: approve is True: a callable of (call)"),
    # limits and settings
    "negative rounds": (
        lambda: Limits(rounds=-1),
        "UsageError: limits.rounds is -1: a whole number from 0 on would be right, or None: unlimited",
    ),
    "a limit of another library": (
        lambda: Limits(max_turns=3),
        "TypeError: Limits has no argument 'max_turns': here that is rounds=…",
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
    # testing and more
    "a prompt that is a text": (
        lambda: register_prompt("Do it"),
        "UsageError: what is registered is 'Do it': a Prompt('…', path='root/name') would be right",
    ),
    "an MCP server that is a command": (
        lambda: MCPServer("npx"),
        "UsageError: transport of an MCP server is 'npx': MCPServer.stdio('command', …) or MCPServer.http(",
    ),
    "after that is a text": (
        lambda: agent().call("hi", after="before"),
        "UsageError: after is 'before': the result of a call, a Dialog, or a list of messages would be right",
    ),
    # arguments of options
    # flows
    "an argument of a flow misspelt": (
        lambda: flow(stor="runs.db"),
        "TypeError: Flow has no argument 'stor': did you mean 'store'?",
    ),
    # diagrams and reports
    "a diagram of the trace of a flow": (
        lambda: trace_diagram(flow_result().trace),
        "UsageError: the trace goes from Seeded to 'number', as no agent call does: run_diagram(result.run) draws",
    ),
    # classes of agents
    "a guard that is no function": (
        lambda: Flow("f", int, start=number, rows=[number.done(end("over"), when=3)]),
        "FlowError: flow 'f': the guard of number --done [3]--> over is 3: a function would be right",
    ),
    "flow.run of data": (
        lambda: flow().run(1),
        "UsageError: run drives a run of the flow 'numbers', and 1 is none: call(…), or run(flow.seed(…)), would be",
    ),
    "an option of a function of a flow": (
        lambda: execute(timeout=3),
        "TypeError: execute has no argument 'timeout': did you mean 'timeout_s'?",
    ),
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
    # orchestrators
    # calls by hand
    "an outcome that is a class": (
        lambda: asked_by_hand().advance("ask:1.0", Approved),
        "OutcomeError: the outcome for 'ask:1.0' is the class Approved: an object of it would be right",
    ),
    "a snapshot of a result": (
        lambda: snapshot(result()),
        "UsageError: what is kept is CallResult(.*: an AgentCall, such as the call of CallSuspended, would be right",
    ),
    "metrics with one price": (
        lambda: Metrics(Price(input_micro_usd=1, output_micro_usd=1)),
        "UsageError: prices of Metrics is Price(.*: prices by model, such as {'gpt-5-mini': Price(…)}, would be right",
    ),
    "members without a name": (
        lambda: gather(number, pause("nap", 1)),
        "FlowError: the first argument of gather is <WaitState number>: the name of the state would be right",
    ),
    # names of other libraries
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


class TestImports:
    @pytest.mark.parametrize(
        ("line", "said"),
        [
            (
                "from fsm_agent import RunContext",
                "cannot import name 'RunContext' from 'fsm_agent': here that is Context",
            ),
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

"""Is a mistake named at once, with its value and with the right one?

Each case is what a new user might write, and each is run.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel
from transitions import Machine

from fsm_agent import (
    Agent,
    AgentBase,
    Approved,
    CallFailed,
    CallSuspended,
    Context,
    Dialog,
    FallbackClient,
    Function,
    Limits,
    MCPServer,
    MemoryStore,
    Message,
    Prompt,
    PromptError,
    Toolset,
    UsageError,
    Worker,
    build_agent,
    function,
)
from fsm_agent.agents import Metrics
from fsm_agent.call import Injected, rounds_of, snapshot
from fsm_agent.clients import CommandClient, HttpClient, Network, client_for
from fsm_agent.context import Budget, keep_last
from fsm_agent.diagrams import render, trace_diagram
from fsm_agent.errors import Overloaded
from fsm_agent.flows import Flow, FlowSuspended, end, flow_diagram, gather, pause, run_diagram, subflow, wait
from fsm_agent.flows.orchestrator import Orchestrator
from fsm_agent.messages import Reply
from fsm_agent.prompts import register_prompt
from fsm_agent.runtime import Cache, spans_of
from fsm_agent.store import Runs
from fsm_agent.testing import Delayed, Script, explore, function_call, registries, token_reply
from fsm_agent.validation import safe_repr
from fsm_agent.web import RunFollower, inspector_app

if TYPE_CHECKING:
    from elsewhere import Ledger


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


class Log:
    def on_done(self, event: Any) -> None: ...


def agent(*replies: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*replies or ("ok",)), **{"name": "clerk"} | options)


def result() -> Any:
    return agent().call("hi")


def asked() -> Agent[Any, Any]:
    """An agent whose run 'r1' waits for an approval."""
    adder = Function.of(add, needs_approval=True)
    made = agent(function_call("add", a=1, b=2), "3", functions=[adder], store=MemoryStore())
    with pytest.raises(CallSuspended):
        made.call("1 + 2?", run_id="r1")
    return made


def asked_by_hand() -> Any:
    made = agent(function_call("add", a=1, b=2), functions=[Function.of(add, needs_approval=True)])
    with pytest.raises(CallSuspended) as suspended:
        made.call("1 + 2?")
    return suspended.value.call


def defined(**attributes: Any) -> Any:
    """A class of agents with these attributes, made and asked."""
    kind: Any = type("Mine", (AgentBase,), attributes)
    return kind(client=Script("ok")).call("hi")


@wait(int)
def number(n: int) -> str:
    return "How many?"


def flow(**options: Any) -> Flow[int]:
    return Flow("numbers", int, start=number, rows=[number.done(end("over"))], **options)


def flow_result() -> Any:
    run = flow().prepare(1)
    with pytest.raises(FlowSuspended):
        flow().run(run)
    run.give(number, 2)
    return flow().run(run)


def wrong_role_of_a_client() -> None:
    agent(Reply(message=Message.of("user", "hi"))).call("hi")


def injected() -> None:
    suspended = agent(function_call("add", a=1, b=2), functions=[Function.of(add, needs_approval=True)]).prepare("x")
    suspended.advance("", Injected((Message(role="usr"),)))


class Echo(AgentBase, register=False):
    agent_group = ("one", "two")

    def call(self, task: Any, **kwargs: Any) -> Any:
        return [self.agents[name].call(task).text for name in ("one", "two")]


def no_annotation(ctx, x: int) -> None: ...


MISTAKES: dict[str, tuple[Callable[[], object], str, str]] = {  # what is done, the error, the name at fault
    "an address without a scheme": (
        lambda: client_for("openai:gpt-5", base_url="localhost:8000", api_key="x"),
        "ConfigError",
        "localhost:8000",
    ),
    "a generator": (lambda: agent(functions=[count_up]), "UsageError", "count_up"),
    "an instance as output": (lambda: agent(output=Person(name="Ann")), "PromptError", "Ann"),
    "the name of a type": (lambda: agent(output="Person"), "PromptError", "Person"),
    "a list of one type": (lambda: agent(output=[Person]), "PromptError", "output"),
    "a list of types": (lambda: agent(output=(int, str)), "PromptError", "output"),
    "fields as output": (lambda: agent(output={"name": str}), "PromptError", "name"),
    "a function as output": (lambda: agent(output=len), "PromptError", "Prompt("),
    "a type as parser": (lambda: Prompt("x", parser=Person), "UsageError", "prompt"),
    "a variable too many": (lambda: agent().call(Prompt("{{ a }}")(a=1, city=2)), "PromptError", "{{ a }}"),
    "{task}": (lambda: agent().call(Prompt("Do {task}")(task="it")), "PromptError", "Do {task}"),
    "${task}": (lambda: agent().call(Prompt("Do ${task}")(task="it")), "PromptError", "task"),
    "$task": (lambda: agent().call(Prompt("Do $task")(task="it")), "PromptError", "$task"),
    "%(task)s": (lambda: agent().call(Prompt("Do %(task)s")(task="it")), "PromptError", "%(task)s"),
    "a role of another library": (
        lambda: agent().call([{"role": "human", "content": "hi"}]),
        "UsageError",
        "messages[0].role",
    ),
    "a message by hand for a store": (
        lambda: agent(store=MemoryStore()).call([Message.of("user", "hi"), Message(role="asistant")]),
        "UsageError",
        "messages[1].role",
    ),
    "a message by hand while it runs": (injected, "OutcomeError", "messages[0].role"),
    "a text as parts": (lambda: Dialog([Message(role="user", parts="hi")]), "UsageError", "messages[0].parts"),
    "texts as parts": (lambda: Dialog([Message(role="user", parts=("hi",))]), "UsageError", "messages[0]"),
    "a reply in the user's role": (wrong_role_of_a_client, "UsageError", "script"),
    "a run that is not there": (lambda: agent(store=MemoryStore()).runs.resume("r9"), "RunUnknown", "r9"),
    "an answer to another question": (lambda: asked().runs.resume("r1", {"ask:2.0": Approved()}), "NotAsked", "r1"),
    "a store in no folder": (lambda: Runs("no/such/runs.db"), "StoreError", "no/such/runs.db"),
    "a template as a path": (lambda: defined(prompt="Do {{ task }}"), "ConfigError", "Do {{ task }}"),
    "a hook that is a class": (lambda: agent(hooks=[Log]), "UsageError", "the"),
    "an approver that is True": (lambda: agent(approve=True), "UsageError", "approve"),
    "a prompt that is a text": (lambda: register_prompt("Do it"), "UsageError", "Do it"),
    "an MCP server that is a command": (lambda: MCPServer("npx"), "UsageError", "server"),
    "a diagram of a result": (lambda: trace_diagram(result()), "UsageError", "trace"),
    "a diagram of the trace of a flow": (lambda: trace_diagram(flow_result().trace), "UsageError", "number"),
    "a diagram of an agent": (lambda: flow_diagram(agent()), "UsageError", "flow"),
    "a run that is a result": (lambda: run_diagram(flow_result()), "UsageError", "run"),
    "the spans of a result": (lambda: spans_of(result()), "UsageError", "record"),
    "the rounds of a result": (lambda: rounds_of(result()), "UsageError", "record"),
    "middleware that is a class": (lambda: Function.of(add, middleware=[Cache]), "UsageError", "add"),
    "capabilities that are a text": (lambda: defined(expertise="You add.", capabilities="sums"), "ConfigError", "Mine"),
    "a sub-agent twice": (
        lambda: defined(agent_group=["writer", "writer"], call=lambda self, task: ""),
        "ConfigError",
        "Mine",
    ),
    "a client as the model of a class": (
        lambda: type("Mine", (AgentBase,), {"expertise": "You add."})(model=Script()),
        "ConfigError",
        "it",
    ),
    "an upgrade of the newest version": (lambda: flow(upgrades={1: dict}), "FlowError", "numbers"),
    "a guard that is no function": (
        lambda: Flow("f", int, start=number, rows=[number.done(end("over"), when=3)]),
        "FlowError",
        "over",
    ),
    "exploring with one answer": (lambda: explore(flow(), 0, {number: 2}), "UsageError", "answers[number]"),
    "exploring with names": (lambda: explore(flow(), 0, {"number": [2]}), "UsageError", "answers"),
    "a fork by name": (lambda: Dialog().put("a").fork("critic"), "UsageError", "last_n"),
    "a worker of one agent": (lambda: Worker(agent(), MemoryStore()), "UsageError", "agents"),
    "a fallback to one client": (lambda: FallbackClient(Script()), "ConfigError", "clients"),
    "an age as a text": (lambda: Runs(MemoryStore()).prune(max_age_s="30d"), "UsageError", "max_age_s"),
    "an orchestrator of one agent": (lambda: Orchestrator(agent()), "FlowError", "agents"),
    "a planner by the name of its model": (
        lambda: Orchestrator([agent()], planner="openai:gpt-5"),
        "FlowError",
        "planner",
    ),
    "a task that is a number": (lambda: Orchestrator([agent()]).call(3), "FlowError", "task"),
    "an outcome that is a class": (lambda: asked_by_hand().advance("ask:1.0", Approved), "OutcomeError", "ask:1.0"),
    "an outcome before its key": (lambda: asked_by_hand().advance(Approved(), "ask:1.0"), "OutcomeError", "key"),
    "a snapshot of a result": (lambda: snapshot(result()), "UsageError", "call: "),
    "metrics with no prices": (
        lambda: Metrics(3),  # type: ignore[arg-type]
        "UsageError",
        "Metrics",
    ),
    "a delay behind its reply": (lambda: Delayed("ok", 3), "UsageError", "Delayed"),
    "a token without probabilities": (lambda: token_reply("yes"), "UsageError", "token"),
    "members without a name": (lambda: gather(number, pause("nap", 1)), "FlowError", "gather"),
    "a subflow before its name": (lambda: subflow(flow(), "inner", int), "FlowError", "subflow"),
    "class as model": (lambda: Agent(Script), "UsageError", "Script"),
    "dict as model": (lambda: Agent({"a": "secret"}), "UsageError", "a"),
    "system 5": (lambda: agent(system=5), "UsageError", "agent"),
    "settings dict": (lambda: agent(settings={"temperature": 0}), "UsageError", "temperature"),
    "check True": (lambda: agent(check=True), "UsageError", "check"),
    "context maker": (lambda: agent(context=keep_last), "UsageError", "makes"),
    "results True": (lambda: agent(results=True), "UsageError", "agent"),
    "hook alone": (lambda: agent(hooks=Log()), "UsageError", "hooks"),
    "environment cloc": (lambda: agent(environment={"cloc": 1}), "UsageError", "cloc"),
    "environment 5": (lambda: agent(environment=5), "UsageError", "agent"),
    "function alone": (lambda: agent(functions=add), "UsageError", "functions"),
    "agent class": (lambda: agent(functions=[Agent]), "UsageError", "Agent"),
    "bare ctx": (lambda: Function.of(no_annotation), "UsageError", "ctx"),
    "run a text": (lambda: agent().run("x"), "UsageError", "x"),
    "a blank prompt": (lambda: agent().call(Prompt("{{ x }}")(x="")), "UsageError", "task"),
    "put 5": (lambda: Dialog().put(5), "UsageError", "dialog"),
    "args hot": (lambda: agent().call("x", args={"temperature": "hot"}), "UsageError", "hot"),
    "depz of a stream": (lambda: [*agent().stream("x", depz=5)], "UsageError", "deps"),
    "deps of a call that is streamed": (lambda: [*agent().stream(agent().prepare("x"), deps=5)], "UsageError", "deps"),
    "unused in the system": (
        lambda: agent(system=Prompt("{{ name }}")).init_dialog(name="J", nam="K"),
        "PromptError",
        "nam",
    ),
    "role human": (lambda: Message.of("human", "x"), "UsageError", "human"),
    "part 5": (lambda: Message.of("user", 5), "UsageError", "part"),
    "top_prompt text": (lambda: Dialog(top_prompt="x"), "UsageError", "top_prompt"),
    "parser 5": (lambda: Prompt("x", parser=5), "UsageError", "prompt"),
    "mode tool": (lambda: Prompt("x", mode="tool"), "UsageError", "tool"),
    "template 5": (lambda: Prompt(5), "UsageError", "prompt"),
    "path 5": (lambda: Prompt("x", path=5), "UsageError", "prompt"),
    "client_for 5": (lambda: client_for(5), "ConfigError", "model"),
    "provider 5": (lambda: HttpClient(5, "x"), "ConfigError", "provider"),
    "model None": (lambda: HttpClient("openai", None), "ConfigError", "model"),
    "headers 5": (lambda: client_for("openai:x", headers=5), "ConfigError", "headers"),
    "base_url 5": (lambda: client_for("openai:x", base_url=5), "ConfigError", "base_url"),
    "api_key 5": (lambda: client_for("openai:x", api_key=5), "ConfigError", "api_key"),
    "header 5": (lambda: client_for("openai:x", headers={"x": 5}), "ConfigError", "x"),
    "network dict": (lambda: client_for("openai:x", network={"read_s": 5}), "ConfigError", "read_s"),
    "bytes True": (lambda: Network(max_reply_bytes=True), "ConfigError", "max_reply_bytes"),
    "configuration 5": (lambda: Echo(5), "ConfigError", "configuration"),
    "unknown client": (lambda: Echo({}, client={"one": Script(), "tow": Script()}), "ConfigError", "client"),
    "client 5": (lambda: Echo({"model": "x:y"}, client=5), "ConfigError", "agent"),
    "machine": (lambda: render(Machine(model=None, states=["a"], initial="a"), "mermaid"), "UsageError", "Machine"),
    # more of each
    "model alone": (lambda: Agent("gpt-5-mini"), "ConfigError", "gpt-5-mini"),
    "model of a router": (lambda: Agent("openai/gpt-5"), "ConfigError", "openai/gpt-5"),
    "limits dict": (lambda: agent(limits={"rounds": 3}), "UsageError", "rounds"),
    "context text": (lambda: agent(context=["keep_last"]), "UsageError", "context"),
    "context budget": (lambda: agent(context=[Budget(hard=9), len]), "UsageError", "before"),
    "environment client": (lambda: agent(environment={"client": Script()}), "UsageError", "client"),
    "a blank task": (lambda: agent(system=Prompt("x")).call(" \n"), "UsageError", " \\n"),
    "variables of a system text": (lambda: agent(system="x").init_dialog(name="J"), "UsageError", "name"),
    "parts list": (lambda: Message.of("user", ["x"]), "UsageError", "x"),
    "dialog 5": (lambda: Dialog(5), "UsageError", "messages"),
    "connections 1.5": (lambda: Network(max_connections=1.5), "ConfigError", "max_connections"),
    "no file": (lambda: build_agent("no/such.toml"), "ConfigError", "no/such.toml"),
    "a generator for asyncio": (lambda: function(count_up_async), "UsageError", "count_up_async"),
    "one function twice": (lambda: agent(functions=[add, add]), "PromptError", "add"),
    "a number as output": (lambda: agent(output=5), "PromptError", "prompt"),
    "a template that is cut": (lambda: Prompt("{{ task "), "PromptError", "{{ task "),
    "variables of the system prompt": (
        lambda: agent(system=Prompt("You are {{ name }}.")).call("hi"),
        "PromptError",
        "clerk",
    ),
    "a message by hand in a dialog": (lambda: Dialog().append(Message(role="ai")), "UsageError", "messages[0].role"),
    "a message by hand after another": (
        lambda: agent().call("hi", after=[Message(role="usr")]),
        "UsageError",
        "messages[0].role",
    ),
    "an agent without a name": (lambda: agent(name=""), "UsageError", "agent"),
}


@pytest.mark.parametrize(("make", "kind", "name"), MISTAKES.values(), ids=MISTAKES)
def test_it_is_answered_at_once(
    make: Callable[[], object], kind: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(Exception) as caught, registries():  # noqa: PT011 - its kind is in the table
        make()
    assert caught.type.__name__ == kind
    assert name in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_sync_call_within_a_running_loop_is_no_mistake() -> None:
    async def main() -> str:
        return agent("fine").call("hi").text

    assert asyncio.run(main()) == "fine"


def test_nothing_was_stored_of_a_message_that_is_none() -> None:
    one = agent(store=MemoryStore())
    with pytest.raises(ValueError, match="'usr'"):
        one.call(Message(role="usr"), run_id="r1")
    assert one.runs.all.store.list() == []


class TestShown:
    def test_of_a_mapping_only_numbers(self) -> None:
        assert safe_repr({"rounds": 3, "on": True, "key": "secret", "in": {"key": 5}}) == (
            "{'rounds': 3, 'on': True, 'key': …, 'in': …}"
        )

    def test_what_looks_like_a_key_is_not(self) -> None:
        assert safe_repr("sk-abcdefghijklmnop") == "'sk-a***'"

    def test_it_is_short(self) -> None:
        assert safe_repr("x" * 1000) == f"'{'x' * 79}…"


class TestDeps:
    @function
    @staticmethod
    def price(context: Context[Shop]) -> str:
        return context.deps.name

    def ask(self, used: Any, deps: Any = None) -> str:
        script = Script(function_call(Function.of(used).name), "ok")
        return Agent(script, functions=[used]).call("x", deps=deps).function_calls[0].result or ""

    def test_who_forgot_them_is_told_and_not_the_model(self) -> None:
        with pytest.raises(UsageError, match=r"function 'price' takes Context\[Shop\].*Context\[Shop \| None\]"):
            self.ask(self.price)
        assert self.ask(self.price, Shop("corner")) == "corner"

    def test_also_on_the_way_back_from_a_snapshot(self) -> None:
        shop = Agent(Script(), functions=[self.price])
        document = snapshot(shop.prepare("x", deps=Shop("corner")))
        with pytest.raises(UsageError, match="'price'"):
            shop.restore(document)
        assert shop.restore(document, deps=Shop("x")).effects

    def test_who_knows_them_only_while_checking_types_is_told_too(self) -> None:
        def owed(context: Context[Ledger]) -> str: ...

        def maybe(context: Context[Ledger | None]) -> str:
            return "fine"

        assert Function.of(owed).deps_type == "Ledger"
        assert self.ask(maybe) == "fine"

    def test_also_when_it_is_an_agent_that_asks_for_them(self) -> None:
        with pytest.raises(UsageError, match=r"function 'guide' takes Context\[Shop\]"):
            self.ask(Agent(Script(), name="guide", functions=[self.price]).as_function())

    def test_what_is_linked_is_asked(self) -> None:
        linked = Function(name="price").link(self.price)
        with pytest.raises(UsageError, match="function 'price' takes"):
            self.ask(linked)


@pytest.mark.parametrize(
    "braces",
    [
        '{"task": 1}',
        "{ 'task' }",
        "{{ '{task}' }}{% if task %}{% endif %}",
        "{tasks}",
        "{% raw %}{{ task }}{% endraw %}",
    ],
)
def test_braces_that_are_meant_are_left_alone(braces: str) -> None:
    prompt = Prompt(braces)
    values = {"task": "x"} if "task" in prompt.variables else {}
    assert "{" in prompt.render(**values).text
    if not values:
        with pytest.raises(PromptError) as caught:
            prompt.render(task="x")
        assert "{{ task }} is right" not in str(caught.value)


def test_an_agent_among_functions_is_one() -> None:
    inner = Script("Paris")
    guide = Agent(inner, name="guide")
    outer = Script(function_call("guide", task="Capital of France?"), "It is Paris.")
    assert Agent(outer, functions=[add, guide]).call("?").output == "It is Paris."
    assert inner.requests[0].messages[-1].text == "Capital of France?"
    assert [f.name for f in Prompt("x", functions=[guide]).offers] == ["guide"]
    assert [f.name for f in Toolset(guide).functions] == ["guide"]
    assert [f.name for f in Agent(Script(), functions=guide).functions] == ["guide"]


def test_a_dialog_without_a_system_prompt_is_given_the_agents() -> None:
    script = Script("one", "two", "three")
    one = Agent(script, system="Be terse.")
    result = one.call(Dialog().put("hi"))
    assert [m.role for m in script.requests[0].messages] == ["system", "user"]
    assert [m.text for m in result.new_messages] == ["one"]
    one.call(result.dialog.put("again"))
    assert [m.role for m in script.requests[1].messages] == ["system", "user", "assistant", "user"]
    one.call(Dialog([Message.of("system", "Be kind.")]).put("hi"), keep_system=True)
    assert script.requests[2].messages[0].text == "Be kind."


def test_a_saved_conversation_goes_on_under_the_agent_that_is_called() -> None:
    script = Script("hello", "3")
    saved = Agent(script, functions=[add]).call("hi").dialog.to_json()
    assert Agent(script, output=int).call(Dialog.from_json(saved).put("1 + 2?")).output == 3
    assert script.requests[1].functions == ()


def test_each_sub_agent_has_its_client() -> None:
    agents = Echo({}, client={"one": Script("1"), "two": Script("2")})
    assert agents("x") == ["1", "2"]


def test_a_failed_request_names_model_and_status() -> None:
    script = Script(Overloaded("bad gateway", status=502))
    with pytest.raises(CallFailed) as caught:
        Agent(script, limits=Limits(recalls=0)).call("x")
    assert str(caught.value).startswith("model failed: bad gateway [model=script, status=502] (in Calling")
    assert caught.value.__cause__.model == "script"


class Plain:
    """A class, where an object is expected."""


async def coroutine(*given: Any) -> None: ...


COMMAND, URL = ["cat"], "https://mcp.example.com/mcp"
NO_TEXTS = (Plain, 1, b"x")


@pytest.mark.parametrize(
    ("name", "make", "values"),
    [
        ("stop_when", lambda value: Agent(Script(), stop_when=value), (Plain, coroutine, lambda: True)),
        ("by", lambda value: Agent(Script("ok")).call("hi", by=value), (0, [], Plain)),
        ("setting", lambda value: Agent(Script("ok")).call("hi", args=value), ({17: 1}, {None: 1})),
        ("parser_args", lambda value: Agent(Script("ok")).call("hi", parser_args=value), (0, "", {1: 1})),
        ("output", lambda value: Agent(Script(), output=value), (None, 0, "")),
        ("output", lambda value: Prompt("go", output=value), (None, 0, "")),
        ("context", lambda value: Agent(Script(), context=value), (Plain, coroutine)),
        ("moves_on", lambda value: FallbackClient([Script()], moves_on=value), (None, "", Plain, coroutine)),
        ("try_timeout_s", lambda value: FallbackClient([Script()], try_timeout_s=value), (0, -1, "1", math.nan, True)),
        ("name", lambda value: CommandClient(COMMAND, name=value), NO_TEXTS),
        ("env", lambda value: CommandClient(COMMAND, env=value), (Plain, 1, "A=1")),
        ("cwd", lambda value: CommandClient(COMMAND, cwd=value), (Plain, 1, [])),
        ("hosted_tools", lambda value: Prompt("go", hosted_tools=value), (None, 0, "", {})),
        ("name", lambda value: MCPServer.http(URL, name=value), (None, *NO_TEXTS)),
        ("prefix", lambda value: MCPServer.http(URL, prefix=value), (None, *NO_TEXTS)),
        ("timeout_s", lambda value: MCPServer.http(URL, timeout_s=value), (None, 0, "1", math.inf)),
        ("adapt", lambda value: MCPServer.http(URL, adapt=value), (1, Plain, coroutine)),
        ("headers", lambda value: MCPServer.http(URL, headers=value), (Plain, 1, "A: b", {"A": 1})),
        ("env", lambda value: MCPServer.stdio("cat", env=value), (Plain, 1, "A=1", {"A": 1})),
        *[
            ("prompts", make, (None, 0, "x", {1: 1}, Plain, b"x"))
            for make in (
                lambda value: RunFollower(agent(store=MemoryStore()), prompts=value),
                lambda value: Worker([agent()], MemoryStore(), prompts=value),
            )
        ],
        ("agents", lambda value: inspector_app(MemoryStore(), agents=value), (None, 1, Plain, b"x")),
    ],
)
def test_an_option_of_the_wrong_type_is_named_where_it_is_given(
    name: str, make: Callable[[Any], Any], values: tuple[Any, ...]
) -> None:
    for value in values:
        with pytest.raises(UsageError, match=name):
            make(value)

"""Is a mistake named at once, with its value and with what would be right?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from transitions import Machine

from fsm_agent import (
    Agent,
    AgentBase,
    CallFailed,
    ConfigError,
    Context,
    Dialog,
    Function,
    Limits,
    Message,
    Prompt,
    PromptError,
    Settings,
    Toolset,
    UsageError,
    build_agent,
    client_for,
    function,
    snapshot,
)
from fsm_agent.agents.registry import AGENTS
from fsm_agent.clients import Network
from fsm_agent.clients.http_client import HttpClient
from fsm_agent.context import Budget, keep_last
from fsm_agent.diagrams.diagram import render
from fsm_agent.errors import Overloaded
from fsm_agent.mistakes import shown
from fsm_agent.testing import Script, call

if TYPE_CHECKING:
    from elsewhere import Ledger

Make = Callable[[], object]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Hook:
    def on_done(self, event: Any) -> None: ...


@dataclass
class Shop:
    name: str


def agent(**options: Any) -> Agent:
    return Agent(Script("ok"), **options)


class Echo(AgentBase, register=False):
    agent_group = ("one", "two")

    def call(self, task: Any, **kwargs: Any) -> Any:
        return [self.agents[name].call(task).text for name in ("one", "two")]


def no_annotation(ctx, x: int) -> None: ...


MISTAKES: dict[str, tuple[Make, type[Exception], tuple[str, ...]]] = {
    # an agent
    "no model": (lambda: Agent(None), UsageError, ("model of an agent is None", "'openai:gpt-5-mini'")),
    "prompt as model": (lambda: Agent(Prompt("x")), UsageError, ("is Prompt(template='x'", "or a client")),
    "class as model": (lambda: Agent(Script), UsageError, ("Script", "or a client")),
    "dict as model": (lambda: Agent({"a": "secret"}), UsageError, ("{'a': …}", "or a client")),
    "model alone": (lambda: Agent("gpt-5-mini"), ConfigError, ("'gpt-5-mini'", "'openai:gpt-5-mini'")),
    "model of a router": (lambda: Agent("openai/gpt-5"), ConfigError, ("'openai/gpt-5'", "'openai:gpt-5'")),
    "system 5": (lambda: agent(system=5), UsageError, ("system of an agent is 5", "a text or a Prompt")),
    "system bytes": (lambda: agent(system=b"hi"), UsageError, ("is b'hi'", "a text or a Prompt")),
    "name 5": (lambda: agent(name=5), UsageError, ("name of an agent is 5", "a text")),
    "limits 5": (lambda: agent(limits=5), UsageError, ("limits of an agent is 5", "Limits(rounds=3)")),
    "limits dict": (lambda: agent(limits={"rounds": 3}), UsageError, ("is {'rounds': 3}", "Limits(rounds=3)")),
    "settings dict": (lambda: agent(settings={"temperature": 0}), UsageError, ("{'temperature': 0}", "Settings(")),
    "stop_when True": (lambda: agent(stop_when=True), UsageError, ("stop_when of an agent is True", "a function of")),
    "check True": (lambda: agent(check=True), UsageError, ("check is True", "a callable of (output)")),
    "context True": (lambda: agent(context=True), UsageError, ("context has True", "keep_last(8)")),
    "context maker": (lambda: agent(context=keep_last), UsageError, ("makes a pass", "keep_last(…)")),
    "context text": (lambda: agent(context=["keep_last"]), UsageError, ("context has 'keep_last'", "keep_last(8)")),
    "context budget": (lambda: agent(context=[Budget(hard=9), len]), UsageError, ("before other passes", "at the end")),
    "results True": (lambda: agent(results=True), UsageError, ("results of an agent is True", "a ResultPipeline")),
    "hook class": (lambda: agent(hooks=[Hook]), UsageError, ("Hook'> is a class", "Hook()")),
    "hook alone": (lambda: agent(hooks=Hook()), UsageError, ("hooks is <", "a list of objects")),
    "world foo": (lambda: agent(world={"foo": 1}), UsageError, ("has no 'foo'", "clock")),
    "world cloc": (lambda: agent(world={"cloc": 1}), UsageError, ("has no 'cloc'", "did you mean 'clock'?")),
    "world 5": (lambda: agent(world=5), UsageError, ("world of an agent is 5", "a mapping")),
    "world client": (lambda: agent(world={"client": Script()}), UsageError, ("has no 'client'", "clock")),
    # its functions
    "function alone": (lambda: agent(functions=add), UsageError, ("functions is 'add' itself", "[add]")),
    "Function alone": (lambda: agent(functions=Function.of(add)), UsageError, ("functions is 'add'", "[add]")),
    "functions text": (lambda: agent(functions="add"), UsageError, ("functions is 'add'", "a list of functions")),
    "functions None": (lambda: agent(functions=None), UsageError, ("functions is None", "a list of functions")),
    "functions dict": (lambda: Prompt("x", functions={"add": add}), UsageError, ("{'add': …}", "a list of functions")),
    "agent class": (lambda: agent(functions=[Agent]), UsageError, ("fsm_agent.agents.agent.Agent'>", "not its class")),
    "bare ctx": (lambda: Function.of(no_annotation), UsageError, ("'ctx' of function 'no_annotation'", "Context")),
    # names of other libraries
    # a call
    "run a text": (lambda: agent().run("x"), UsageError, ("'x'", "call('x')")),
    "arun a text": (lambda: asyncio.run(agent().arun("x")), UsageError, ("'x'", "acall('x')")),
    "an empty task": (lambda: agent().call(""), UsageError, ("the task is ''", "a text that asks")),
    "a blank task": (lambda: agent(system=Prompt("x")).call(" \n"), UsageError, ("the task is ' \\n'", "a text")),
    "a blank prompt": (lambda: agent().call(Prompt("{{ x }}")(x="")), UsageError, ("the task is ''", "a text that")),
    "put 5": (lambda: Dialog().put(5), UsageError, ("is 5", "a text or a Prompt")),
    "args 5": (lambda: agent().call("x", args=5), UsageError, ("args is 5", "{'temperature': 0}")),
    "args hot": (lambda: agent().call("x", args={"temperature": "hot"}), UsageError, ("'hot'", "a number")),
    "parser_args 5": (lambda: agent().call(Prompt("x", parser=int), parser_args=5), UsageError, ("parser_args is 5",)),
    "dpes of a text": (lambda: agent().call("x", dpes=5), UsageError, ("dpes", "did you mean 'deps'?")),
    "dpes of a prompt": (lambda: agent().call(Prompt("x"), dpes=5), UsageError, ("'dpes'", "did you mean 'deps'?")),
    "depz of a stream": (lambda: [*agent().stream("x", depz=5)], UsageError, ("depz", "did you mean 'deps'?")),
    "deps of a call that is streamed": (
        lambda: [*agent().stream(agent().seed("x"), deps=5)],
        UsageError,
        ("deps is given with an AgentCall, which has its own", "seed(…, deps=…) is right"),
    ),
    # variables
    "unused in put": (lambda: Dialog().put(Prompt("hi")(name="x")), PromptError, ("'hi'", "no variable 'name'")),
    "unused in the system": (
        lambda: agent(system=Prompt("{{ name }}")).init_dialog(name="J", nam="K"),
        PromptError,
        ("no variable 'nam'", "did you mean 'name'?"),
    ),
    "variables of a system text": (lambda: agent(system="x").init_dialog(name="J"), UsageError, ("name", "a Prompt")),
    # values
    "role human": (lambda: Message.of("human", "x"), UsageError, ("'human'", "'user'")),
    "part 5": (lambda: Message.of("user", 5), UsageError, ("is 5", "a text, or a part")),
    "parts list": (lambda: Message.of("user", ["x"]), UsageError, ("is ['x']", "a text, or a part")),
    "dialog 5": (lambda: Dialog(5), UsageError, ("messages is 5", "a list of messages")),
    "top_prompt text": (lambda: Dialog(top_prompt="x"), UsageError, ("top_prompt is 'x'", "a Prompt")),
    "temperature hot": (lambda: Settings(temperature="hot"), UsageError, ("temperature is 'hot'", "a number")),
    "temperature nan": (lambda: Settings(temperature=float("nan")), UsageError, ("is nan", "a number, or None,")),
    "top_p half": (lambda: Settings(top_p="half"), UsageError, ("settings.top_p is 'half'", "a number")),
    "max_tokens 1.5": (lambda: Settings(max_tokens=1.5), UsageError, ("max_tokens is 1.5", "a whole number")),
    "seed 1.5": (lambda: Settings(seed=1.5), UsageError, ("seed is 1.5", "a whole number")),
    "stop 5": (lambda: Settings(stop=(5,)), UsageError, ("stop is (5,)", "a tuple of texts")),
    "tool_choice None": (lambda: Settings(tool_choice=None), UsageError, ("tool_choice is None", "'auto'")),
    "parallel 1": (lambda: Settings(parallel_function_calls=1), UsageError, ("_calls is 1", "True, False")),
    "effort 5": (lambda: Settings(reasoning_effort=5), UsageError, ("effort is 5", "'low'")),
    "top_logprobs 1.5": (lambda: Settings(top_logprobs=1.5), UsageError, ("top_logprobs is 1.5", "a whole number")),
    "extra_body 5": (lambda: Settings(extra_body=5), UsageError, ("extra_body is 5", "a mapping")),
    "parser 5": (lambda: Prompt("x", parser=5), UsageError, ("the parser of a prompt is 5", "a function of the text")),
    "mode tool": (lambda: Prompt("x", mode="tool"), UsageError, ("the mode of a prompt is 'tool'", "'native', 'fun")),
    "template 5": (lambda: Prompt(5), UsageError, ("the template of a prompt is 5", "a text")),
    "path 5": (lambda: Prompt("x", path=5), UsageError, ("the path of a prompt is 5", "a text")),
    # clients
    "client_for 5": (lambda: client_for(5), ConfigError, ("model is 5", "'provider:model'")),
    "provider 5": (lambda: HttpClient(5, "x"), ConfigError, ("provider is 5", "'openai', or a Provider")),
    "model None": (lambda: HttpClient("openai", None), ConfigError, ("model is None", "the name that the provider")),
    "headers 5": (lambda: client_for("openai:x", headers=5), ConfigError, ("headers is 5", "a mapping of texts")),
    "base_url 5": (lambda: client_for("openai:x", base_url=5), ConfigError, ("base_url is 5", "'https://host/v1'")),
    "api_key 5": (lambda: client_for("openai:x", api_key=5), ConfigError, ("api_key is of type int", "a text")),
    "header 5": (lambda: client_for("openai:x", headers={"x": 5}), ConfigError, ("'x' is of type int", "texts")),
    "network dict": (lambda: client_for("openai:x", network={"read_s": 5}), ConfigError, ("{'read_s': 5}", "Network(")),
    "connections 1.5": (lambda: Network(max_connections=1.5), ConfigError, ("max_connections is 1.5", "1 or more")),
    "bytes True": (lambda: Network(max_reply_bytes=True), ConfigError, ("max_reply_bytes is True", "1 or more")),
    # agents of one's own
    "configuration 5": (lambda: Echo(5), ConfigError, ("configuration is 5", "a mapping")),
    "configuration in INI": (lambda: build_agent("a.ini"), ConfigError, ("'a.ini'", "'.toml'", "read(text)")),
    "no file": (lambda: build_agent("no/such.toml"), ConfigError, ("'no/such.toml'", "No such file")),
    "unknown client": (
        lambda: Echo({}, client={"one": Script(), "tow": Script()}),
        ConfigError,
        ("client names 'tow'", "'one', 'two'"),
    ),
    "client 5": (lambda: Echo({"model": "x:y"}, client=5), UsageError, ("model of an agent is 5", "or a client")),
    "machine": (
        lambda: render(Machine(model=None, states=["a"], initial="a"), "mermaid"),
        UsageError,
        ("Machine", "a Diagram"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "kind", "says"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_what_would_be_right(make: Make, kind: type[Exception], says: tuple[str, ...]) -> None:
    with pytest.raises(kind) as caught, AGENTS.scoped():
        make()
    for part in says:
        assert part in str(caught.value)
    assert "secret" not in str(caught.value)


class TestShown:
    def test_of_a_mapping_only_numbers(self) -> None:
        assert shown({"rounds": 3, "on": True, "key": "secret", "in": {"key": 5}}) == (
            "{'rounds': 3, 'on': True, 'key': …, 'in': …}"
        )

    def test_what_looks_like_a_key_is_not(self) -> None:
        assert shown("sk-abcdefghijklmnop") == "'sk-a***'"

    def test_it_is_short(self) -> None:
        assert shown("x" * 1000) == f"'{'x' * 79}…"


class TestDeps:
    @function
    @staticmethod
    def price(context: Context[Shop]) -> str:
        return context.deps.name

    def ask(self, used: Any, deps: Any = None) -> str:
        script = Script(call(Function.of(used).name), "ok")
        return Agent(script, functions=[used]).call("x", deps=deps).function_calls[0].result or ""

    def test_who_forgot_them_is_told_and_not_the_model(self) -> None:
        with pytest.raises(UsageError, match=r"function 'price' takes Context\[Shop\].*Context\[Shop \| None\]"):
            self.ask(self.price)
        assert self.ask(self.price, Shop("corner")) == "corner"

    def test_also_on_the_way_back_from_a_snapshot(self) -> None:
        shop = Agent(Script(), functions=[self.price])
        document = snapshot(shop.seed("x", deps=Shop("corner")))
        with pytest.raises(UsageError, match="deps is None"):
            shop.restore(document)
        assert shop.restore(document, deps=Shop("x")).effects

    def test_who_knows_them_only_while_checking_types_is_told_too(self) -> None:
        def owed(context: Context[Ledger]) -> str: ...

        def maybe(context: Context[Ledger | None]) -> str:
            return "fine"

        assert Function.of(owed).deps_type == "Ledger"
        assert self.ask(maybe) == "fine"

    def test_what_can_do_without_does(self) -> None:
        def bare(context: Context) -> str:
            return "fine"

        def none(context: Context[None]) -> str:
            return "fine"

        def optional(context: Context[Shop | None]) -> str:
            return "fine"

        def anything(context: Context[Any]) -> str:
            return "fine"

        for used in (bare, none, optional, anything):
            assert self.ask(used) == "fine"

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
    outer = Script(call("guide", task="Capital of France?"), "It is Paris.")
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


@pytest.mark.spec("4.20: it names the model that failed, and the status")
def test_a_failed_request_names_model_and_status() -> None:
    script = Script(Overloaded("bad gateway", status=502))
    with pytest.raises(CallFailed) as caught:
        Agent(script, limits=Limits(recalls=0)).call("x")
    assert str(caught.value).startswith("model failed: bad gateway [model=script, status=502] (in Calling")
    assert caught.value.__cause__.model == "script"

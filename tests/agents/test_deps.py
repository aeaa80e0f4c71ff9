"""Are deps, and functions of (agent, extra, user) that make deps, used correctly wherever they are given?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from fsm_agent import Agent, Context, MemoryStore, Message, Toolset, UsageError, Worker, function
from fsm_agent.flows import Flow, end, execute
from fsm_agent.flows import ask as asking
from fsm_agent.mcp import serve as mcp_serve
from fsm_agent.testing import Script, function_call
from fsm_agent.web import ClientRequest, RunFollower, serve


@dataclass
class Shop:
    name: str


@function
def look(context: Context[Shop]) -> str:
    """Look."""
    return context.deps.name


@function
def ask(context: Context[Shop]) -> str:
    """Ask another agent."""
    return context.call(CLERK, "?").output


CLERK = Agent[Shop, str](
    Script(*[lambda request: request.messages[0].text] * 100), system=lambda shop: f"For {shop.name}.", name="clerk"
)


def system_and_result(request: Any) -> str:
    return f"{request.messages[0].text} {request.messages[-1].text}"


def shop(*, system: Any = lambda deps: f"You work for {deps.name}.", **options: Any) -> Agent[Shop, str]:
    turns = [function_call("look"), system_and_result] * 20
    own: dict[str, Any] = {"functions": [look], "name": "shop", "store": MemoryStore()}
    return Agent[Shop, str](Script(*turns), system=system, **{**own, **options})


def shops_flow(store: Any = None) -> Flow[str]:
    @asking(shop(store=None), str)
    def told(data: str) -> str:
        return data

    return Flow("shops", str, start=told, rows=[told.done(end("over"), do=lambda data, text: text)], store=store)


def by_call(deps: Any) -> str:
    return shop().call("?", deps=deps, by="ada").output


def by_acall(deps: Any) -> str:
    return asyncio.run(shop().acall("?", deps=deps, by="ada")).output


def by_turn(deps: Any) -> str:
    conversation = shop().conversation("c")
    conversation.call("?", deps=Shop("other"))
    return conversation.call("?", deps=deps, by="ada").output


def by_submit(deps: Any, of: Callable[[Any], Any] = lambda agent: agent) -> str:
    agent = shop()
    run = of(agent).runs.submit("?", by="ada")
    Worker([agent], agent.store, deps=deps).run(once=True)
    return str(run.result().output)


def by_submitted_turn(deps: Any) -> str:
    agent = shop()
    agent.conversation("c").call("?", deps=Shop("other"))
    run = agent.conversation("c").runs.submit("?", by="ada")
    Worker([agent], agent.store, deps=deps).run(once=True)
    assert [message.role for message in agent.conversation("c").read()][:2] == ["system", "user"]
    return str(run.result().output)


def by_resume(deps: Any) -> str:
    agent = shop()
    agent.runs.submit("?", run_id="r", by="ada")
    return agent.runs.resume("r", deps=deps).output


def by_live(deps: Any) -> str:
    async def main() -> str:
        async with RunFollower(shop(store=None), deps=deps) as live:
            run = await live.begin("?", by="ada")
            return [event async for _, event in live.follow(run)][-1].result.output

    return asyncio.run(main())


def by_post(deps: Any) -> str:
    async def main() -> str:
        async with RunFollower(shop(store=None), deps=deps) as live:
            run, after = await live.take(ClientRequest("c", "1", Message.of("user", "?"), {}), by="ada")
            return [event async for _, event in live.follow(run, after=after)][-1].result.output

    return asyncio.run(main())


def by_flow(deps: Any) -> str:
    return shops_flow().call("?", deps=deps, by="ada").output


def by_submitted_flow(deps: Any) -> str:
    flow = shops_flow(MemoryStore())
    run = flow.runs.submit("?", by="ada")
    Worker([flow], flow.store, deps=deps).run(once=True)
    return str(run.result().output)


DRIVEN = [
    by_call,
    by_acall,
    by_turn,
    by_submit,
    by_submitted_turn,
    by_resume,
    by_live,
    by_post,
    by_flow,
    by_submitted_flow,
]
TAKERS: dict[str, Callable[[Any], Any]] = {
    "call": lambda deps: shop().call("?", deps=deps),
    "conversation.call": lambda deps: shop().conversation("c").call("?", deps=deps),
    "resume": lambda deps: shop().runs.resume("none", deps=deps),
    "worker": lambda deps: Worker([shop()], MemoryStore(), deps=deps),
    "live": lambda deps: RunFollower(shop(), deps=deps),
    "serve": lambda deps: serve(shop(), deps=deps),
    "flow.call": lambda deps: shops_flow().call("?", deps=deps),
    "worker of a flow": lambda deps: Worker([shops_flow(MemoryStore())], MemoryStore(), deps=deps),
    "live of a flow": lambda deps: RunFollower(shops_flow(), deps=deps),
    "mcp": lambda deps: mcp_serve("tools", [look], deps=deps),
}


class CallableShop(Shop):
    """A value that can be called."""

    def __call__(self) -> None:
        raise AssertionError("it is a value")


class TestShape:
    @pytest.mark.parametrize("way", DRIVEN)
    def test_they_are_a_value(self, way):
        assert way(Shop("corner")) == "You work for corner. corner"

    @pytest.mark.parametrize("way", DRIVEN)
    def test_or_are_made_for_each_run_and_know_who_asks(self, way):
        asked: list[Any] = []

        def made(agent: str, extra: Any, user: str) -> Shop:
            asked.append((agent, dict(extra), user))
            return Shop(user)

        assert way(made) == "You work for ada. ada"
        assert {(name in ("shop", "shops"), who) for name, _, who in asked} == {(True, "ada")}

    @pytest.mark.parametrize("way", [by_call, by_submit, by_flow])
    def test_an_object_that_can_be_called_is_a_value(self, way):
        assert way(CallableShop("corner")) == "You work for corner. corner"

    def test_a_function_that_is_the_value_comes_from_one_and_reaches_functions_of_functions(self):
        @function
        def price(context: Context[Callable[[str], int]]) -> int:
            """Tell a price."""
            return context.deps("lamp")

        inner = Agent(Script(function_call("price"), "told"), functions=[price], name="inner")
        outer = Agent(Script(function_call("inner", task="?"), "over"), functions=[inner], name="outer")
        result = outer.call("?", deps=lambda agent, extra, user: len)
        assert result.output == "over"
        assert inner.model.requests[-1].messages[-1].text == "4"

    def test_a_call_inside_a_function_has_the_same(self):
        agent = Agent[Shop, str](
            Script(function_call("ask"), lambda request: request.messages[-1].text), functions=[ask]
        )
        assert agent.call("?", deps=lambda agent, extra, user: Shop(user), by="ada").output == "For ada."

    @pytest.mark.parametrize("taker", TAKERS)
    @pytest.mark.parametrize(
        "deps",
        [
            Shop,
            lambda: Shop("corner"),
            lambda agent, extra: Shop("corner"),
            partial(lambda agent, extra: Shop("corner")),
            {"shop": Shop("corner")},
            "corner",
            None,
        ],
    )
    def test_anything_else_is_refused_where_it_is_given(self, taker, deps):
        with pytest.raises(UsageError, match="deps"):
            TAKERS[taker](deps)

    def test_what_a_function_of_them_returns_is_looked_at_too(self):
        with pytest.raises(UsageError, match="look"):
            shop(system="").call("?", deps=lambda agent, extra, user: None)

    def test_no_secret_of_a_value_is_told(self):
        with pytest.raises(UsageError) as refused:
            shop().call("?", deps={"key": "hunter2"})
        assert "hunter2" not in str(refused.value)

    def test_a_double_may_stand_for_the_class(self):
        class Double:
            name = "double"

        assert by_call(Double()) == "You work for double. double"


class TestSystemOfDeps:
    def test_it_is_never_made_without_any(self):
        told = Agent(Script("Hi."), system=lambda shop: f"You work for {shop}.", name="told", store=MemoryStore())
        told.runs.submit("?", run_id="r")
        for refused in (
            lambda: told.call("?"),
            lambda: told.runs.resume("r"),
            lambda: Worker([told], told.store),
            lambda: RunFollower(told),
        ):
            with pytest.raises(UsageError, match="deps"):
                refused()
        assert told.model.requests == []

    def test_it_may_be_a_function_of_nothing_or_have_a_default(self):
        for system in (lambda: "Be terse.", lambda shop=None: "Be terse."):
            agent = Agent(Script("Hi.", "Hi."), system=system, name="told", store=MemoryStore())
            agent.call("?")
            agent.runs.submit("?")
            Worker([agent], agent.store).run(once=True)
            assert [request.messages[0].text for request in agent.model.requests] == ["Be terse."] * 2

    def test_deps_of_submit_make_it_there(self):
        agent = shop()
        run = agent.runs.submit("?", deps=Shop("corner"))
        Worker([agent], agent.store, deps=Shop("other")).run(once=True)
        assert run.result().output == "You work for corner. other"

    def test_it_is_in_the_journal_so_that_who_reads_needs_no_deps(self):
        agent = shop()
        agent.runs.submit("?", run_id="r")
        assert agent.runs.at("r").record.dialog[0].text == ""
        Worker([agent], agent.store, deps=Shop("corner")).run(once=True)
        for other in (agent, shop(store=agent.store)):
            assert other.runs.replay("r").record.dialog[0].text == "You work for corner."
            assert other.runs.get("r").result().output == "You work for corner. corner"
            assert other.runs.fork("r", 2, new_run_id=f"fork-{id(other)}")
            assert [type(event).__name__ for event in other.runs.get("r").stream()][-1] == "Done"

    def test_an_empty_one_is_none_for_the_model(self):
        agent = shop(system=lambda shop: "")
        run = agent.runs.submit("?")
        Worker([agent], agent.store, deps=Shop("corner")).run(once=True)
        assert run.result().output.strip() == "corner"

    def test_a_repeated_submission_is_the_same_run_and_another_user_has_another(self):
        agent = shop()
        assert (
            agent.runs.submit("?", run_id="r", by="ada").run_id == agent.runs.submit("?", run_id="r", by="ada").run_id
        )
        with pytest.raises(Exception, match="by") as other:
            agent.runs.submit("?", run_id="r", by="bob")
        assert type(other.value).__name__ == "RunExists"


class TestReading:
    def test_who_follows_what_workers_drive_needs_none(self):
        agent = shop()

        async def main() -> str:
            async with RunFollower(agent, drives=False) as live:
                run = await live.begin("?", by="ada")
                await asyncio.to_thread(
                    Worker([agent], agent.store, deps=lambda name, extra, user: Shop(user)).run, once=True
                )
                return [event async for _, event in live.follow(run)][-1].result.output

        assert asyncio.run(main()) == "You work for ada. ada"

    @pytest.mark.parametrize("options", [{"on_change": "stop"}, {"on_change": "rest"}, {"only_known": True}])
    def test_a_toolset_that_depends_on_them_is_decided_by_the_driver(self, options):
        tools = Toolset([look, ask]).filtered(lambda function, shop: function.name == shop.name)
        agent = shop(functions=tools)
        run = agent.runs.submit("?")
        Worker([agent], agent.store, deps=Shop("look"), **options).run(once=True)
        assert run.result().output == "You work for look. look"
        assert run.result().prompt_change is None


def test_a_state_of_a_flow_needs_what_its_function_says():
    @execute
    def name(data: str, context: Context[Shop]) -> str:
        return context.deps.name

    names = Flow("names", str, start=name, rows=[name.done(end("over"), do=lambda data, text: text)])
    for wrong in (None, {"name": "corner"}, lambda agent, extra, user: None):
        with pytest.raises(UsageError, match="'name'"):
            names.call("?", deps=wrong)
    assert names.call("?", deps=lambda agent, extra, user: Shop(f"{agent} {extra} {user}"), by="ada").output == (
        "names {} ada"
    )


def test_a_state_without_a_context_needs_none():
    @execute
    def greet(name: str) -> str:
        return f"Hello, {name}."

    hello = Flow("hello", str, start=greet, rows=[greet.done(end("said"), do=lambda name, text: text)])
    assert hello.call("Ada").output == "Hello, Ada."

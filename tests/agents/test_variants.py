"""Does a variant of an agent, or a call with another model, differ in what was asked for and in nothing else?"""

from __future__ import annotations

import asyncio
import json
import pickle
from dataclasses import fields
from typing import Any

import pytest
from pydantic import BaseModel

from fsm_agent import (
    Agent,
    AgentBase,
    CallSuspended,
    ConfigError,
    Limits,
    MemoryStore,
    Prompt,
    Settings,
    UsageError,
    function,
)
from fsm_agent.call import Approved, snapshot
from fsm_agent.clients import register_client
from fsm_agent.errors import Overloaded
from fsm_agent.store import RunExists
from fsm_agent.testing import Script, function_call, registries
from fsm_agent.workers import Worker


class City(BaseModel):
    name: str


@function(needs_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


@pytest.fixture
def houses():
    """The scripts of models that have names, such as ``house:m1``."""
    made: dict[str, Script] = {}

    def make(model: str) -> Script:
        return made.setdefault(model, Script(*"abcdefgh", name=f"house:{model}"))

    with registries():
        register_client("house", make)
        yield made


class TestChanged:
    def test_it_differs_in_what_is_given_and_the_agent_stays(self):
        agent = Agent(Script(), name="clerk", system="Be terse.", functions=[refund], limits=Limits(rounds=3))
        before = repr(agent)
        variant = agent.changed(system="Be kind.", settings=Settings(temperature=0))
        assert (variant.system, variant.settings.temperature) == ("Be kind.", 0)
        changed = {item.name for item in fields(Agent) if getattr(variant, item.name) != getattr(agent, item.name)}
        assert changed == {"system", "settings", "prompt"}
        assert repr(agent) == before

    def test_its_calls_are_asked_of_its_model_for_its_output(self):
        one, other = Script("Paris"), Script('{"name": "Rome"}')
        agent = Agent(one)
        assert agent.changed(model=other, output=City).call("Where?").output == City(name="Rome")
        assert agent.call("Where?").output == "Paris"
        assert (len(one.requests), len(other.requests)) == (1, 1)

    def test_a_client_that_was_made_of_a_name_is_not_shared(self):
        agent = Agent("openai:gpt-5")
        variant = agent.changed(name="variant")
        clients = agent.client, variant.client
        agent.close()
        assert ["closed" in repr(client) for client in clients] == [True, False]
        variant.close()


class TestChangedClass:
    @pytest.fixture
    def clerk(self):
        class Clerk(AgentBase[str], register=False):
            agent_type = "clerk"
            expertise = "You are terse."

            def __init__(self, *args: Any, desk: int = 1, **options: Any) -> None:
                super().__init__(*args, **options)
                self.desk = desk

        return Clerk(client=Script("a", "b"), model="openai:gpt-5", desk=7)

    def test_it_differs_in_these_keys_alone(self, clerk):
        variant = clerk.changed(system="You are kind.", limits={"rounds": 2})
        (agent,), (changed,) = clerk.agents.values(), variant.agents.values()
        assert (agent.system, changed.system, changed.limits.rounds) == ("You are terse.", "You are kind.", 2)
        assert changed.model is agent.model
        assert (type(variant), variant.desk, variant("?"), clerk("?")) == (type(clerk), 7, "a", "b")

    def test_a_model_takes_the_place_of_the_client(self, clerk):
        assert [agent.model for agent in clerk.changed(model="openai:gpt-5-mini").agents.values()] == [
            "openai:gpt-5-mini"
        ]
        assert clerk.changed(client=Script("c"))("?") == "c"

    def test_an_unknown_key_is_answered_with_the_nearest(self, clerk):
        with pytest.raises(ConfigError, match="limits"):
            clerk.changed(limit={})


WAYS = {
    "call": lambda agent, task, **o: agent.call(task, **o),
    "acall": lambda agent, task, **o: asyncio.run(agent.acall(task, **o)),
    "astream": lambda agent, task, **o: asyncio.run(streamed(agent, task, **o)),
}


async def streamed(agent: Agent, task: Any, **options: Any) -> Any:
    return [event async for event in agent.astream(task, **options)][-1].result


class TestOneCall:
    @pytest.mark.parametrize(
        ("way", "task"), [("call", "?"), ("acall", "?"), ("call", Prompt("{{ x }}")(x="?")), ("astream", "?")]
    )
    def test_it_is_asked_of_that_model(self, way, task):
        one, other = Script("one", name="one"), Script("other", name="other")
        agent = Agent(one, system="Be terse.")
        result = WAYS[way](agent, task, model=other)
        assert (result.output, result.record.model) == ("other", "other")
        assert [m.text for m in other.requests[0].messages] == ["Be terse.", "?"]
        after = WAYS[way](agent, task)
        assert (after.output, after.record.model, agent.model) == ("one", "", one)

    def test_a_model_may_be_named(self, houses):
        agent = Agent(Script("mine"))
        assert [agent.call("?", model="house:m1").output for _ in range(2)] == ["a", "b"]
        assert agent.call("?").output == "mine"
        assert [*houses] == ["m1"]

    def test_the_agent_closes_the_clients_that_it_made(self, houses):
        closed = []
        with Agent("house:m1") as agent:
            agent.call("?")
            agent.call("?", model="house:m2")
            given = Script("x", name="given")
            agent.call("?", model=given)
            for script in (*houses.values(), given):
                script.close = lambda name=script.name: closed.append(name)
        assert closed == ["house:m1", "house:m2"]

    def test_every_request_of_the_call_is_of_that_model(self):
        other = Script("no json", Overloaded("busy", retryable=True), '{"name": "Rome"}', name="other")
        result = Agent(Script(), output=City).call("Where?", model=other)
        assert result.output == City(name="Rome")
        assert [failure.report.model for failure in result.failures] == ["other"]
        assert other.clock.sleeps  # its environment is that of a double: nothing waits

    def test_a_fork_goes_on_with_it(self):
        agent, other = Agent(Script()), Script("first", "second")
        one = agent.prepare("?", model=other).journaled()
        agent.run(one)
        assert agent.run(one.fork(0)).output == "second"

    @pytest.mark.parametrize(
        ("model", "name"),
        [("gpt-5", "gpt-5"), ("", "model"), ("open-ai:gpt-5", "openai"), (Script, "model")],
    )
    def test_what_is_no_model_is_refused_before_anything_is_asked(self, model, name):
        store = MemoryStore()
        with pytest.raises(UsageError, match=name):
            Agent(Script(), name="clerk", store=store).call("?", model=model)
        assert store.list() == []

    def test_it_is_no_option_beside_a_call(self):
        agent = Agent(Script())
        with pytest.raises(UsageError, match="model"):
            list(agent.stream(agent.prepare("?"), model=Script()))

    def test_a_received_call_is_asked_of_the_model_of_its_name(self, houses):
        agent = Agent("house:m1")
        sent = pickle.loads(pickle.dumps(agent.prepare("?", model="house:m2")))
        agent.run(sent)
        assert len(houses["m2"].requests) == 1
        assert "m1" not in houses


class TestKept:
    """Does a run go on with the model that it began with?"""

    @pytest.fixture
    def agent(self):
        return Agent("house:m1", functions=[refund], name="clerk", store=MemoryStore())

    def begun(self, agent: Agent, houses: dict[str, Script], **options: Any) -> None:
        houses["m2"] = Script(function_call("refund", order=1), "done", name="house:m2")
        with pytest.raises(CallSuspended):
            agent.call("?", run_id="r", model="house:m2", **options)

    def test_its_replay_says_which(self, agent, houses):
        self.begun(agent, houses)
        folded = agent.runs.replay("r")
        assert folded.record.model == "house:m2"

    @pytest.mark.parametrize("way", ["resume", "aresume", "worker", "call"])
    def test_it_goes_on_with_that(self, agent, houses, way):
        self.begun(agent, houses)
        later = agent.changed(name=agent.name)  # as in another process
        answers = {"ask:1.0": Approved()}
        if way == "resume":
            result = later.runs.resume("r", answers)
        elif way == "aresume":
            result = asyncio.run(later.runs.aresume("r", answers))
        else:
            later.runs.all.answer("r", answers)
            if way == "worker":
                Worker([later], agent.store).run(once=True)
            result = later.call("?", run_id="r", model="house:m2")
        assert (result.output, result.record.model) == ("done", "house:m2")
        assert "m1" not in houses or houses["m1"].requests == []

    def test_another_may_be_given(self, agent, houses):
        self.begun(agent, houses)
        result = agent.runs.resume("r", {"ask:1.0": Approved()}, model=Script("third", name="third"))
        assert (result.output, result.record.model) == ("third", "third")

    def test_the_same_run_of_another_model_is_another_request(self, agent, houses):
        self.begun(agent, houses)
        with pytest.raises(RunExists, match="'r'"):
            agent.call("?", run_id="r", model="house:m3")

    def test_one_that_no_name_makes_has_to_be_given_again(self):
        agent = Agent(Script(), functions=[refund], name="clerk", store=MemoryStore())
        with pytest.raises(CallSuspended):
            agent.call("?", run_id="r", model=Script(function_call("refund", order=1), name="mine"))
        answers = {"ask:1.0": Approved()}
        with pytest.raises(UsageError, match="mine"):
            agent.runs.resume("r", answers)
        assert agent.runs.resume("r", model=Script("done", name="mine")).output == "done"  # nobody holds it
        assert agent.runs.resume("r").output == "done"  # it has ended: nothing is asked any more

    def test_a_snapshot_says_which(self, houses):
        agent, houses["m2"] = Agent("house:m1"), Script("second")
        document = snapshot(agent.prepare("?", model="house:m2"))
        assert json.loads(document)["record"]["model"] == "house:m2"
        assert agent.run(agent.restore(document)).output == "second"
        assert agent.run(agent.restore(document, model=Script("third"))).output == "third"

    @pytest.mark.parametrize("way", ["call", "acall"])
    def test_a_turn_of_a_conversation(self, houses, way):
        agent = Agent(Script("one", "three"), name="clerk", store=MemoryStore())
        chat = agent.conversation("c")
        chat.call("1")
        result = WAYS[way](chat, "2", model="house:m2", run_id="turn-2")
        again = WAYS[way](chat, "2", model="house:m2", run_id="turn-2")
        assert (result.output, again.output, result.record.model) == ("a", "a", "house:m2")
        chat.call("3")
        assert [message.text for message in chat.read()] == ["1", "one", "2", "a", "3", "three"]

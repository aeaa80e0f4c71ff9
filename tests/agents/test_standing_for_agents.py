"""Does an agent of a class do what its class says wherever an agent may stand?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from fsm_agent import (
    Agent,
    AgentBase,
    Approved,
    CallFailed,
    CallSuspended,
    Image,
    MemoryStore,
    Payload,
    Prompt,
    Toolset,
    UsageError,
    Worker,
    function,
    handoff,
)
from fsm_agent.agents import AsyncAgentBase
from fsm_agent.flows import Flow, end
from fsm_agent.flows import ask as asks
from fsm_agent.testing import Script, function_call


@function(needs_approval=True)
def measure(city: str) -> float:
    """Measure the temperature of a city."""
    return 11.5


class Teller(AgentBase[str], register=False):
    expertise = "You tell the weather."
    prompt = Prompt("The weather in {{ task }}, in Celsius?")
    functions = (measure,)


class Upper(AgentBase[str], register=False):
    expertise = "You shout."

    def call(self, task: Any, **kwargs: Any) -> str:
        return self.agents["it"].call(task).output.upper()


class AsyncUpper(AsyncAgentBase[str], register=False):
    expertise = "You shout."

    async def call(self, task: Any, **kwargs: Any) -> str:
        return (await self.agents["it"].acall(task)).output.upper()


class Report(BaseModel):
    degrees: float


class Pair(AgentBase, register=False):
    agent_group = ("one", "other")

    def call(self, task: Any, **kwargs: Any) -> Report:
        return Report(degrees=sum(float(agent.call(task).output) for agent in self.agents.values()))


@dataclass(frozen=True)
class Data:
    text: str = ""


def upper_of(d: Data) -> Any:
    return Upper(client=Script("quiet"), name="it")


def flow_of(agent: Any, word: str) -> Flow[Data]:
    """A flow whose one state asks the agent, in each way in which one is named."""
    name = "asking"
    ways = {
        "call": lambda: asks(agent, name=name),
        "call, whole": lambda: asks(agent, name=name, whole=True),
        "call, chosen": lambda: asks(upper_of, str, name=name),
        "a role": lambda: asks("shouter", str, name=name),
    }
    state = ways[word]()(lambda d: "hi")
    output = (lambda d, result: Data(result.output)) if word == "call, whole" else (lambda d, text: Data(text))
    flow = Flow("asked", Data, start=state, rows=[state.done(end("done"), do=output)])
    return flow.bound(shouter=agent) if word == "a role" else flow


@pytest.mark.parametrize(("kind", "under_asyncio"), [(Upper, True), (AsyncUpper, False)])
class TestACallOfItsOwnIsWhatRuns:
    def output_of(self, agent: Agent[Any, Any], task: str, under_asyncio: bool) -> Any:
        return asyncio.run(agent.acall(task)).output if under_asyncio else agent.call(task).output

    @pytest.mark.parametrize("source", [list, Toolset, lambda listed: [listed[0].as_function()]])
    def test_as_a_function(self, kind, under_asyncio, source):
        host = Script(function_call("it", task="hi"), "It shouts.")
        agent = Agent(host, functions=source([kind(client=Script("quiet"), name="it")]))
        assert self.output_of(agent, "Shout.", under_asyncio) == "It shouts."
        assert [f.name for f in host.requests[0].functions] == ["it"]
        assert host.requests[0].functions[0].description == "You shout."
        assert host.requests[1].messages[-1].parts[0].text == "QUIET"

    @pytest.mark.parametrize("late", [False, True])
    def test_after_a_handoff(self, kind, under_asyncio, late):
        shouter = kind(client=Script("quiet"), name="it")
        other = handoff(lambda: shouter, name="transfer_to_it") if late else handoff(shouter)
        agent = Agent(Script(function_call("transfer_to_it")), functions=[other])
        assert self.output_of(agent, "Shout.", under_asyncio) == "QUIET"

    @pytest.mark.parametrize("word", ["call", "call, whole", "call, chosen", "a role"])
    def test_in_a_flow(self, kind, under_asyncio, word):
        flow = flow_of(kind(client=Script("quiet"), name="it"), word)
        run = asyncio.run(flow.acall(Data())) if under_asyncio else flow.call(Data())
        assert run.output == Data("QUIET")

    def test_what_it_raises_fails_the_call_and_it_is_not_asked_again(self, kind, under_asyncio):
        script = Script(ValueError("no such city"))
        with pytest.raises(CallFailed, match="no such city") as caught:
            self.output_of(kind(client=script, name="it"), "hi", under_asyncio)
        assert len(script.requests) == 1
        causes = [caught.value]
        while (cause := causes[-1].__cause__) is not None:
            causes.append(cause)
        assert isinstance(causes[-1], ValueError)


def test_of_several_agents_its_output_is_of_the_type_that_its_call_returns():
    host = Script(function_call("Pair", task="Berlin"), "Eight.")
    assert Agent(host, functions=[Pair(client=Script("3", "5"))]).call("How warm?").output == "Eight."
    assert host.requests[1].messages[-1].parts[0].text == '{"degrees":8.0}'
    assert Pair(client=Script("3", "5")).call("Berlin").output == Report(degrees=8)


def test_what_it_returns_is_checked():
    class Wrong(Pair, register=False):
        def call(self, task: Any, **kwargs: Any) -> str:
            return 3  # type: ignore[return-value]

    with pytest.raises(CallFailed, match="Wrong"):
        Wrong(client=Script()).call("?")


def test_a_call_that_wants_more_than_a_task_is_refused():
    class Wanting(AgentBase[str], register=False):
        expertise = "You add."

        def call(self, task: Any, unit: str) -> str:  # type: ignore[override]
            return unit

    with pytest.raises(UsageError, match="Wanting"):
        Wanting(client=Script())


def test_a_picture_reaches_it():
    seen: list[Any] = []

    class Looking(AgentBase[str], register=False):
        expertise = "You look."

        def call(self, task: Any, **kwargs: Any) -> str:
            seen.append(task)
            return "seen"

    picture = Payload.text("What is it?").with_image("https://example.org/cat.png")
    assert Looking(client=Script()).call(picture).output == "seen"
    assert seen[0].to_text() == "What is it?"
    assert [type(part) for part in seen[0].parts][1:] == [Image]


class TestWithoutACallItIsItsAgent:
    def test_with_its_prompt_and_what_its_functions_wait_for(self):
        inner = Script(function_call("measure", city="Berlin"), "Mild.")
        agent = Agent(
            Script(function_call("it", task="Berlin"), "Take a coat."), functions=[Teller(client=inner, name="it")]
        )
        outer = agent.prepare("What shall I wear?")
        with pytest.raises(CallSuspended):
            agent.run(outer)
        assert [effect.key for effect in outer.effects] == ["run:1.0/ask:2.0"]
        outer.advance("run:1.0/ask:2.0", Approved())
        assert agent.run(outer).output == "Take a coat."
        assert [message.text for message in inner.requests[0].messages] == [
            "You tell the weather.",
            "The weather in Berlin, in Celsius?",
        ]

    def test_a_worker_drives_the_runs_of_sub_agents(self):
        class Stored(Pair, register=False):
            store = MemoryStore()
            functions = (measure,)

        pair = Stored(client=Script(function_call("measure", city="Berlin"), "3"), name="pair")
        with pytest.raises(CallSuspended):
            pair.agents["one"].call("Berlin", run_id="r1")
        runs = pair.agents["one"].runs.all
        runs.answer("r1", {"ask:1.0": Approved()})
        assert Worker([pair], runs).run(once=True) == 1
        assert pair.agents["one"].runs.resume("r1").output == "3"

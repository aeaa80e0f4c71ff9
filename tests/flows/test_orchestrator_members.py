"""Can every agent, function, flow or object take part in an orchestrator, and do its work?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flow_runs import Driver, in_both_worlds
from orchestrations import FAIL, PASS, as_json, ended, step, strategy
from support.wire_samples import PNG

from fsm_agent import Agent, AgentBase, Approved, function
from fsm_agent.agents import AsyncAgentBase
from fsm_agent.flows import Flow, FlowError, FlowSuspended, end, execute
from fsm_agent.flows.orchestrator import Orchestrator, OrchestratorConfig
from fsm_agent.messages import Image, Payload
from fsm_agent.testing import Script

ONE = strategy(step("a", "{{ task }}"))


class Upper(AgentBase):
    expertise = "You shout."

    def call(self, task: Any, **kwargs: Any) -> str:
        return str(self.agents["upper"].call(task).output.upper())


class Pair(AsyncAgentBase):
    agent_group = ("one", "two")
    description = "Asks two"

    async def call(self, task: Any, **kwargs: Any) -> str:
        first = (await self.agents["one"].acall(task)).output
        return str((await self.agents["two"].acall(first)).output)


def count_words(task: str) -> int:
    """Counts words."""
    return len(task.split())


async def reverse(task: str) -> str:
    """Reverses texts."""
    return task[::-1]


class Echo:
    """A user's agent, of a class that we do not know."""

    name = "echo"

    def expertise(self) -> str:
        return "Repeats"

    async def execute(self, task: str) -> str:
        return f"{task}, {task}"


@dataclass(frozen=True)
class Trip:
    text: str
    is_booked: bool = False


def _booking() -> Flow[Trip]:
    @execute
    def book(trip: Trip) -> str:
        if trip.text == "nowhere":
            raise ValueError("no such place")
        return f"booked {trip.text}"

    done, broken = end("done"), end("broken", failed="it could not be booked")
    return Flow(
        "booking",
        Trip,
        start=book,
        rows=[book.done(done, do=lambda trip, text: replace(trip, text=text)), book.failed(broken)],
    )


def _to(text: str) -> Trip:
    return Trip(text)


def _text(trip: Trip) -> str:
    return trip.text


MEMBERS: list[tuple[Any, str, Any]] = [
    (lambda: Upper(client=Script("quiet"), name="upper"), "You shout.", "QUIET"),
    (lambda: Pair(client={"one": Script("x"), "two": Script("y")}, name="pair"), "Asks two", "y"),
    (lambda: count_words, "Counts words.", 3),
    (lambda: reverse, "Reverses texts.", "mrow eht si"),
    (Echo, "Repeats", "is the worm, is the worm"),
    (lambda: _booking().as_function("trips", "Books", start=_to, returns=_text), "Books", "booked is the worm"),
]


@in_both_worlds
@pytest.mark.parametrize(("member", "can", "output"), MEMBERS, ids=range(len(MEMBERS)))
def test_any_member_does_what_it_says(driven: Driver, member: Any, can: str, output: Any) -> None:
    o = Orchestrator([member()], strategy=ONE, planner=Agent(Script(), name="planner"))
    (listed,) = o.team.can.values()
    assert listed == can
    run = o.prepare("is the worm")
    driven(o.flow, run)
    result = run.result_so_far
    assert (result.state, result.output) == ("completed", output)
    assert o.flow.restore(run.snapshot()).record == run.record


def test_what_a_member_raises_is_a_failure_of_its_step() -> None:
    def broken(task: str) -> str:
        raise ValueError("no such file")

    trips = _booking().as_function("trips", "Books", start=_to, returns=_text)
    for member, why in [(broken, "ValueError: no such file"), (trips, "it could not be booked")]:
        config = OrchestratorConfig(max_step_remediations=1)
        o = Orchestrator([member], strategy=ONE, planner=Agent(Script()), config=config)
        result = ended(partial(o.call, "nowhere"))
        assert result.state == "step_spent"
        assert why in result.error


def test_a_function_that_needs_approval_is_asked_about(tmp_path: Path) -> None:
    sent: list[str] = []

    @function(needs_approval=True)
    def send(text: str) -> str:
        """Send a text."""
        sent.append(text)
        return "sent"

    o = Orchestrator([send], strategy=ONE, planner=Agent(Script()), store=str(tmp_path / "runs.db"))
    with pytest.raises(FlowSuspended) as waiting:
        o.call("hello", run_id="r")
    assert not sent
    (effect,) = waiting.value.run.effects
    assert o.runs.resume("r", {effect.key: Approved()}).output == "sent"
    assert sent == ["hello"]


def test_what_cannot_take_part_is_refused() -> None:
    def two(a: str, b: str) -> str:
        return a + b

    @function
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    planner = Agent(Script())
    for member, why in [
        ("writer", "'writer'"),
        (two, "two"),
        (add, "'add'"),
        (Echo, "Echo"),
    ]:
        with pytest.raises(FlowError, match=why):
            Orchestrator([member], planner=planner)
    with pytest.raises(FlowError, match="count_words"):
        Orchestrator([count_words])


@pytest.mark.parametrize("code", [count_words, function(count_words), Echo()])
def test_the_planner_has_the_first_model_and_never_the_stand_in_of_code(code: Any) -> None:
    model = Script()
    assert Orchestrator([code, Agent(model, name="writer")]).planner.model is model
    with pytest.raises(FlowError, match="planner"):
        Orchestrator([code])


def test_the_planner_and_the_validator_may_be_any_agent() -> None:
    class Judge(AgentBase):
        expertise = "You judge."

        def call(self, task: Any, **kwargs: Any) -> str:
            return PASS if "Output:\n  fine" in str(task) else FAIL

    plan = strategy(step("a", requires_validation=True))
    worker = Agent(Script("dull", "fine"), name="worker")
    planner = Agent(Script("RETRY"), name="planner")
    result = Orchestrator([worker], strategy=plan, planner=planner, validator=Judge(client=Script())).call("x")
    assert (result.state, result.output) == ("completed", "fine")


# A task with pictures


@in_both_worlds
def test_pictures_go_with_the_task(driven: Driver) -> None:
    plan = strategy(step("a", "Look: {{ task }}"), step("b", "Use {{ a }}", requires_validation=True))
    worker, planner, validator = Script("A", "B"), Script(as_json(plan)), Script(PASS)
    o = Orchestrator(
        [Agent(worker, name="worker")], planner=Agent(planner), validator=Agent(validator, name="validator")
    )
    run = o.prepare(Payload.text("the cat").with_image_data(PNG))
    driven(o.flow, run)
    assert run.result_so_far.is_success
    assert worker.requests[0].messages[-1].text == "Look: the cat"

    def pictures(model: Script) -> list[int]:
        return [sum(isinstance(p, Image) for p in r.messages[-1].parts) for r in model.requests]

    assert pictures(worker) == [1, 0], "where the intent quotes the task"
    assert pictures(planner) == pictures(validator) == [1]
    assert o.flow.restore(run.snapshot()).record == run.record


def test_a_payload_needs_words() -> None:
    o = Orchestrator([Agent(Script())])
    for task in (Payload().with_image_data(PNG), "", "  ", Payload.text(" "), 5):
        with pytest.raises(FlowError, match="the task"):
            o.call(task)  # type: ignore[arg-type]

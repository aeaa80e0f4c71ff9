"""Do the runs of an orchestrator end equally under every driver, through snapshots and as folds of their journals?"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from flow_runs import Driver, everywhere, steps_of
from orchestrations import FAIL, PASS, NewSteps, Ones, StepWork, as_json, new_steps, step, strategy, written

from fsm_agent import Agent, Function
from fsm_agent.errors import UsageError
from fsm_agent.flows import FlowError, FlowSuspended
from fsm_agent.flows.orchestrator import (
    Accept,
    GiveUp,
    Job,
    Loop,
    Orchestrator,
    OrchestratorConfig,
    Reject,
    Remedy,
    Supply,
)
from fsm_agent.testing import Script, explore, function_call

ONE = strategy(step("a"), loops=(Loop(("a",), 2),))


def _everything(**options: Any) -> tuple[Ones, list[str]]:
    """A run with a plan, a function that runs once, a refusal, each remedy, and a person at both places."""
    sent: list[str] = []

    def send(text: str) -> str:
        """Send a text."""
        sent.append(text)
        return "sent"

    plan = strategy(
        step("a", "Begin: {{ task }}"),
        step("b", "Use {{ a }}", requires_validation=True),
        step("c", "End {{ b }}", requires_approval=True),
    )
    again = new_steps(step("d", "Now {{ a }}", requires_validation=True), step("e", "{{ d }}", requires_approval=True))
    send_it = function_call("send", text="hello")
    ones = Ones(
        *[send_it, "A", "B", "B2", "D", "E", "E2"],
        planner=[as_json(plan), "RETRY", "TACTICAL", again, "RETRY"],
        validator=[FAIL, FAIL, PASS],
        strategy=None,
        functions=[Function.of(send, once=True)],
        answer=_people([Reject("no"), Accept("edited")]),
        **options,
    )
    return ones, sent


def _people(said: list[Any]) -> Any:
    return lambda question: said.pop(0)


@everywhere
def test_all_drivers_end_equally(driven: Driver) -> None:
    ones, sent = _everything()
    run = ones.orchestrator.prepare("x")
    driven(ones.orchestrator.flow, run)
    result = run.result_so_far
    assert (result.state, result.redesigns, result.steps_executed) == ("completed", 3, 3)
    assert result.context == {"a": "A", "d": "D", "e": "edited"}
    assert sent == ["hello"]
    again = ones.orchestrator.flow.restore(run.snapshot())
    assert again.record == run.record
    assert steps_of(again) == steps_of(run)


def test_the_record_is_the_fold_of_the_journal(tmp_path: Path) -> None:
    ones, _ = _everything(store=str(tmp_path / "runs.db"))
    run = ones.orchestrator.prepare("x", run_id="r")
    flow = ones.orchestrator.flow
    flow.run(run)
    assert flow.runs.replay("r").record == run.record


# Clients in place of the agents' own


def _unasked() -> Orchestrator:
    never = Script()
    team = [Agent(never, name="one"), Agent(never, name="two")]
    planner, validator = Agent(never, name="planner"), Agent(never, name="validator")
    plan = strategy(
        step("a", assigned_agent="one", requires_validation=True), step("b", "{{ a }}", assigned_agent="two")
    )
    return Orchestrator(team, strategy=plan, planner=planner, validator=validator)


def _clients() -> dict[Any, Any]:
    return {
        "one": Script("A", "A2"),
        "two": Script("B"),
        "planner": Script("RETRY"),
        "validator": Script(FAIL, PASS),
    }


def test_clients_by_the_names_of_agents() -> None:
    expected = {"a": "A2", "b": "B"}
    assert _unasked().call("x", clients=_clients()).context == expected
    assert asyncio.run(_unasked().acall("x", clients=_clients())).context == expected


def test_clients_by_state_and_what_is_neither() -> None:
    o = _unasked()
    clients = _clients()
    clients[o.flow.states["deciding"]] = clients.pop("planner")
    assert o.call("x", clients=clients).is_success
    with pytest.raises(FlowError, match="'tow'"):
        o.call("x", clients={"tow": Script()})
    with pytest.raises(UsageError, match="clients"):
        list(o.stream(o.prepare("x"), clients={}))


@pytest.mark.parametrize("is_state_first", [False, True])
def test_a_client_of_a_state_precedes_the_client_of_its_agents_name(is_state_first: bool) -> None:
    """Also if the planner is a member, whose name stands for both."""
    boss = Agent(Script(), name="boss")
    o = Orchestrator([boss], planner=boss, validator=Agent(Script(PASS), name="validator"))
    clients: dict[Any, Any] = {"boss": Script("A"), o.planning: Script(as_json(strategy(step("a"))))}
    result = o.call("x", clients=dict(sorted(clients.items(), key=lambda one: (one[0] == "boss") is is_state_first)))
    assert result.output == "A"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_run_is_resumed_with_other_clients(tmp_path: Path, is_async: bool) -> None:
    plan = strategy(step("a", requires_approval=True), step("b", "{{ a }}"))
    o = Ones(strategy=plan, store=str(tmp_path / "runs.db")).orchestrator
    with pytest.raises(FlowSuspended):
        o.call("x", run_id="r", clients={"worker": Script("A")})
    answers, clients = {o.reviewing: Accept("edited")}, {"worker": Script("B")}
    if is_async:
        result = asyncio.run(o.runs.aresume("r", answers, clients=clients))
    else:
        result = o.runs.resume("r", answers, clients=clients)
    assert result.context == {"a": "edited", "b": "B"}


# Every way through the table


@pytest.mark.parametrize("escalate", [False, True])
def test_every_way_of_the_table(escalate: bool) -> None:
    config = OrchestratorConfig(max_step_remediations=2, max_total_redesigns=1, escalate=escalate)
    team = [Agent(Script(), name="one"), Agent(Script(), name="two")]
    o = Orchestrator(team, config=config)
    (a,) = ONE.steps

    def work(agent: str, **options: Any) -> tuple[StepWork]:
        return (StepWork(a, agent, "x", (), {}, "error", **options),)

    answers: dict[str, list[Any]] = {
        "planning": [ONE],
        "planning_simply": [ONE],
        "executing": [
            work("one", output=written("A")),
            work("one", error="dull"),
            work("two", error="dull"),
            work("one", error="late", is_transient=True),
        ],
        "deciding": list(Remedy),
        "redesigning": [NewSteps((a,)), NewSteps(())],
        "asking": [Supply("mine"), ONE, GiveUp("no")],
    }

    def is_bounded(state: str, j: Job) -> bool:
        return escalate or (j.redesigns <= 2 and all(count <= 2 for count in j.failures.values()))

    states: Any = {o.flow.states[name]: given for name, given in answers.items()}
    found = explore(o.flow, Job("x", config), states, holds=is_bounded, limit=1_000)
    assert found.is_whole is not escalate, "people may begin anew without end"
    assert found.missed == ()
    assert {"completed", "unrecoverable", "given_up"} <= set(found.ends)
    assert ({"step_spent", "total_spent"} <= set(found.ends)) is not escalate


def test_hooks_of_the_agents_of_the_team_are_told() -> None:
    told: list[str] = []

    class Hook:
        def on_stepped(self, event: Any) -> None:
            told.append(event.to)

    team = [Agent(Script("A", "B"), name="worker", hooks=[Hook()])]
    assert Orchestrator(team, strategy=strategy(step("a"), step("b"))).call("x").is_success
    assert told == ["Calling", "Completed"] * 2

"""Can the table of an orchestrator be extended, and is it still an orchestrator?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flow_runs import Driver, in_both_worlds
from orchestrations import FAIL, Ones, as_json, ended, step, strategy

from fsm_agent import Agent
from fsm_agent.flows import FlowError, FlowSuspended, ask, cancelled, end, execute, wait
from fsm_agent.flows.orchestrator import Job, OrchestrationResult, Orchestrator, OrchestratorConfig, Remedy
from fsm_agent.testing import Script

REFUSED = strategy(step("a", requires_validation=True))
ANEW = as_json(strategy(step("z")))


@dataclass(frozen=True)
class Agreed:
    by: str


@dataclass(frozen=True)
class Kept:
    why: str


@wait(Agreed, Kept)
def confirming(j: Job) -> str:
    return f"Forget {len(j.outputs)} outputs, and begin anew?"


def careful(team: Orchestrator) -> Orchestrator:
    """Return an orchestrator that asks a person before a full redesign."""
    return team.extended(
        [
            team.deciding.done(confirming, of=Remedy.FULL),
            confirming.done(team.planning, of=Agreed, do=Job.cleared),
            confirming.done(team.given_up, of=Kept),
        ]
    )


def made(*said: str, **options: Any) -> Ones:
    planner = options.pop("planner", ["FULL", ANEW])
    return Ones(*said, validator=[FAIL], planner=planner, strategy=REFUSED, **options)


# Rows of one's own


@in_both_worlds
@pytest.mark.parametrize(("answer", "end"), [(Agreed("ann"), "completed"), (Kept("too dear"), "given_up")])
def test_a_person_is_asked_before_a_full_redesign(driven: Driver, answer: Any, end: str) -> None:
    ones = made("A", "Z")
    team = careful(ones.orchestrator)
    run = team.prepare("x")
    driven(team.flow, run)
    assert run.state == "confirming"
    assert "Forget 0 outputs" in str(run.effects[0].question)
    run.give(confirming, answer)
    driven(team.flow, run)
    assert (run.result_so_far.state, run.result_so_far.redesigns) == (end, end == "completed")
    assert isinstance(run.result_so_far, OrchestrationResult)
    assert [asked for asked in ones.decided if "Make a strategy" in asked] == ones.decided[1:]


def test_the_row_that_another_leaves_nothing_to_is_replaced_and_the_rest_stays() -> None:
    plain = Orchestrator([Agent(Script(), name="worker")])
    own = careful(plain)
    names = {*own.flow.row_names} - {*plain.flow.row_names}
    assert {name for name in names if own.flow.row_names[name]} == {
        "deciding --done FULL--> confirming",
        "confirming --done Agreed--> planning",
        "confirming --done Kept--> given_up",
    }
    assert {*plain.flow.row_names} - {*own.flow.row_names} == {"deciding --done FULL--> planning"}
    assert "confirming" not in plain.flow.states, "a value: the other is as it was"


def test_a_guard_goes_before_the_row_that_it_leaves() -> None:
    def has_tried_enough(j: Job, works: Any) -> bool:
        return len(j.journal) + len(works) >= 2

    ones = Ones(*"AAA", validator=[FAIL] * 3, planner=["RETRY"] * 3, strategy=REFUSED)
    too_dear = end("too_dear", failed="two attempts are paid for")
    team = ones.orchestrator
    team = team.extended([team.executing.done(too_dear, when=has_tried_enough, do=Job.noted)])
    result: Any = ended(lambda: team.call("x"))
    assert (result.state, len(result.journal), result.failed_step) == ("too_dear", 2, "a")
    assert "dull" in result.error
    assert all(entry.at_s > 0 for entry in result.journal)


def test_an_end_of_ones_own_is_a_success() -> None:
    ones = Ones("A", "B")
    team = ones.orchestrator
    published = end("published")

    @ask(Agent(ones.other, name="press"), str)
    def publishing(j: Job) -> str:
        return f"Publish {[*j.outputs]}"

    team = team.extended(
        [
            team.executing.done(publishing, when=Job.is_last, do=Job.noted),
            publishing.done(published),
            publishing.failed(team.unrecoverable),
        ]
    )
    result = team.call("x", clients={"worker": Script("A"), "press": Script("done")})
    assert (result.state, result.is_success, result.output) == ("published", True, "A")
    assert team.call("y", clients={"worker": Script("B"), publishing: Script("done")}).is_success


def test_rows_are_added_in_turn() -> None:
    team = careful(made().orchestrator)
    twice = team.extended([team.deciding.done(team.given_up, of=Remedy.FULL)])
    assert "confirming" not in twice.flow.states, "the last goes first, and leaves nothing to the others"
    assert "confirming" not in twice.changed(name="other").flow.states
    asks = team.extended([team.deciding.done(team.given_up, of=Remedy.TACTICAL)])
    assert {"deciding --done FULL--> confirming", "deciding --done TACTICAL--> given_up"} < {*asks.flow.row_names}


def test_a_row_for_every_state_stays_when_others_are_added() -> None:
    @execute
    def undoing(j: Job) -> str:
        return "undone"

    team = made("A").orchestrator
    first = team.extended([cancelled(undoing), undoing.done(end("undone"))])
    second = first.extended([team.deciding.done(team.asking, of=Remedy.FULL)])
    for one in (first, second, second.changed(name="other")):
        assert {row.to.name for row in one.flow.own_rows if row.trigger == "cancelled" and not row.is_default} == {
            "undoing"
        }


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda t: [3], "3"),
        (lambda t: [confirming.done(t.planning)], "confirming"),
        (lambda t: [t.deciding.done(t.asking), t.deciding.done(t.asking)], "deciding --done--> asking"),
        (lambda t: [t.deciding.done(end("completed", failed=True))], "'completed'"),
    ],
)
def test_mistakes_are_those_of_a_flow(rows: Any, message: str) -> None:
    team = Orchestrator([Agent(Script(), name="worker")])
    with pytest.raises(FlowError, match=message):
        team.extended(rows(team))


# It is still an orchestrator


def test_what_is_changed_keeps_the_rows() -> None:
    ones = made("A", "Z")
    team = careful(ones.orchestrator).changed(config=OrchestratorConfig(min_step_interval_s=5.0), name="other")
    assert team.name == team.flow.name == "other"
    assert {"deciding --done FULL--> confirming", "confirming --done Agreed--> planning"} < {*team.flow.row_names}
    assert "resting --elapsed--> executing" in team.flow.row_names
    assert team.flow.states["deciding"] is team.deciding
    with pytest.raises(FlowSuspended) as waiting:
        team.call("x")
    assert waiting.value.run.state == "confirming"


def test_it_is_kept_resumed_replayed_and_restored(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    with pytest.raises(FlowSuspended) as waiting:
        careful(made("A", store=store).orchestrator).call("x", run_id="r")
    document = waiting.value.run.snapshot()
    ones = made("Z", planner=[ANEW], store=store)
    team = careful(ones.orchestrator)
    result = team.runs.resume("r", {confirming: Agreed("ann")})
    assert (result.is_success, result.output, ones.asked) == (True, "Z", ["do it"])
    assert team.runs.replay("r").record == result.run.record
    again = made("Z", planner=[ANEW])
    run = careful(again.orchestrator).restore(document)
    run.give(confirming, Agreed("ann"))
    assert careful(again.orchestrator).run(run).output == "Z"

"""Planning: the states that ask the planner for a strategy, or for other steps, and what becomes of its answers.

The requests are worded in `fsm_agent.flows.orchestrator.requests`; `Team.checked` refuses what cannot be done.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, NamedTuple

from fsm_agent._internal.lazy_import import pydantic
from fsm_agent.agents.agent import Agent
from fsm_agent.flows.definition.declare import call
from fsm_agent.flows.definition.states import CallState
from fsm_agent.flows.orchestrator import requests
from fsm_agent.flows.orchestrator.job import Job, counted
from fsm_agent.flows.orchestrator.strategy import Blueprint, NewSteps, OrchestratorConfig, Strategy
from fsm_agent.flows.orchestrator.team import Team


class PlanningStates(NamedTuple):
    """The states that plan, and the type of the strategies that the team can do."""

    planning: CallState[Job, Any]
    planning_simply: CallState[Job, Any]
    redesigning: CallState[Job, Any]
    possible: Any


def planning_states(
    team: Team, blueprint: Blueprint, config: OrchestratorConfig, planner: Agent[Any, Any]
) -> PlanningStates:
    """Return the states of an orchestrator that ask for a strategy, or for steps in place of those that are left."""
    guide = f"{blueprint}\n\nAgents:\n{team.listed}"
    possible: Any = Annotated[Strategy, pydantic.AfterValidator(partial(team.checked, config=config))]
    possible_steps: Any = Annotated[NewSteps, pydantic.AfterValidator(partial(team.checked, config=config))]

    @call(planner, possible)
    def planning(j: Job) -> Any:
        return requests.with_pictures(requests.planning(j, guide), j.seen)

    @call(planner, possible)
    def planning_simply(j: Job) -> Any:
        return requests.with_pictures(requests.planning_simply(j, team.listed), j.seen)

    @call(planner, possible_steps)
    def redesigning(j: Job) -> Any:
        return requests.with_pictures(requests.redesigning(j, guide), j.seen)

    return PlanningStates(planning, planning_simply, redesigning, possible)


# Guards and actions


def planned(j: Job, strategy: Strategy) -> Job:
    return replace(j, strategy=strategy, begun=len(j.journal))


def cleared(j: Job, _: Any = None) -> Job:
    """Forget all outputs and counts: a new strategy starts from nothing."""
    return counted(
        replace(j, done=(), outputs={}, failures={}, agents={}, iterations={}, is_over=False),
    )


def imposed(j: Job, strategy: Strategy) -> Job:
    return planned(cleared(j), strategy)


def fits(j: Job, new: NewSteps) -> bool:
    """Return True if the new steps and the kept ones make a strategy."""
    try:
        redesigned(j, new)
    except ValueError:
        return False
    return True


def redesigned(j: Job, new: NewSteps) -> Job:
    """Replace the remaining steps; the first new one inherits the failures of the failed step."""
    at = j.index(j.failed)
    kept = [s for n, s in enumerate(j.plan.steps) if s.step_id in j.done]
    names = {s.step_id for s in kept}
    loops = tuple([loop for loop in j.plan.loops if set(loop.step_ids) <= names])
    counts = {len(kept): j.failures.get(at, 0)}
    plan = replace(j.plan, steps=(*kept, *new.steps), loops=loops)
    outputs = {name: output for name, output in j.outputs.items() if name in names}
    return counted(replace(j, strategy=plan, outputs=outputs, failures=counts, agents={}, iterations={}))

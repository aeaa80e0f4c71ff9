"""The tables of an orchestrator: one of its own, and one of each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fsm_agent.agents.agent import Agent
from fsm_agent.flows.definition.answer_types import ANY, AnswerTypes, check_resolved
from fsm_agent.flows.definition.declare import call, each, end, execute, failure, pause, subflow, wait
from fsm_agent.flows.definition.states import CallState, End, Row, State
from fsm_agent.flows.flow import Flow
from fsm_agent.flows.orchestrator import job as of
from fsm_agent.flows.orchestrator import requests
from fsm_agent.flows.orchestrator import work as at
from fsm_agent.flows.orchestrator.job import Job
from fsm_agent.flows.orchestrator.planning import cleared, fits, imposed, planned, planning_states, redesigned
from fsm_agent.flows.orchestrator.result import OrchestrationResult
from fsm_agent.flows.orchestrator.strategy import (
    Accept,
    Blueprint,
    GiveUp,
    Matches,
    OrchestratorConfig,
    Reject,
    Remedy,
    Supply,
    Verdict,
)
from fsm_agent.flows.orchestrator.team import Team
from fsm_agent.flows.orchestrator.work import Intent, StepWork
from fsm_agent.flows.process.flow_process import CallChild, child_of
from fsm_agent.flows.process.flow_run import FlowRun
from fsm_agent.flows.process.record import FlowLimits

STEPS = 100_000  # far above what the limits of the orchestrator allow


class TeamState(CallState[StepWork, Any]):
    """A call of an agent of the team, which is asked for its own output.

    Args:
        task: Returns what it is asked.
        team: The agents.
        within_s: See `CallState`.
    """

    def __init__(self, task: Callable[[StepWork], Any], team: Team, within_s: float | None) -> None:
        super().__init__(task, lambda w: team.agents[w.agent], (), "working", within_s=within_s)
        self.answer_types = _Outputs("working", list(dict.fromkeys(agent.output for agent in team.agents.values())))
        self.keys_by_agent = {name: End(name) for name in team.agents}  # by which ``clients`` name their models
        self._agents = team.agents

    def prompt_for(self, agent: Agent[Any, Any], task: Any) -> Any:
        return agent.prompt

    def client_key(self, agent: Agent[Any, Any]) -> State[Any]:
        return next(self.keys_by_agent[name] for name, one in self._agents.items() if one is agent)

    @property
    def client_keys(self) -> Sequence[State[Any]]:
        return (self, *self.keys_by_agent.values())


child_of(TeamState)(CallChild)


class _Outputs(AnswerTypes):
    """The types of the outputs of a team: each output is kept with its agent, so types may have the same shape."""

    @property
    def cases(self) -> tuple[Any, ...]:
        return (ANY,)

    def check(self, where: str) -> None:
        for kind in self.types:
            check_resolved(where, kind)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TeamFlow(Flow[Job]):
    """The flow of an orchestrator, with results that know the types of the team's outputs."""

    team: Team

    def make_result(self, run: FlowRun[Job]) -> OrchestrationResult:
        return OrchestrationResult(run, self.team)


def step_flow(
    team: Team, planner: Agent[Any, Any], validator: Agent[Any, Any], config: OrchestratorConfig
) -> Flow[StepWork]:
    """Return the flow of one step: fill in what is asked, ask, validate, let a person look."""

    @execute
    def preparing(w: StepWork) -> Intent:
        return at.filled(w)

    @call(planner, Matches)
    def matching(w: StepWork) -> str:
        return requests.matching(w)

    @call(planner, str)
    def wording(w: StepWork) -> Any:
        return requests.with_pictures(requests.wording(w, team.can[w.agent]), requests.seen_by_agent(w))

    def work(w: StepWork) -> Any:
        return requests.with_pictures(
            requests.working(w, team.agents[w.agent].output is str), requests.seen_by_agent(w)
        )

    team.check_abandonment(config.step_timeout_s)
    working = TeamState(work, team, config.step_timeout_s)

    @call(validator, Verdict)
    def validating(w: StepWork) -> Any:
        return requests.with_pictures(requests.validating(w), w.seen)

    @wait(Accept, Reject)
    def reviewing(w: StepWork) -> str:
        return w.output.text if w.output is not None else ""

    def drafted(w: StepWork, value: Any) -> StepWork:
        return replace(w, output=team.output_of(w.agent, value))

    done, failed = end("ended"), end("broken")
    names: list[Row[StepWork]] = []
    intents = [preparing.done(working, do=at.asked)]
    if config.llm_intents:
        intents = [
            preparing.done(wording, do=at.asked),
            wording.done(working, do=at.reworded),
            wording.failed(failed, do=at.broke),
        ]
    if config.llm_names:
        names = [
            preparing.done(matching, when=at.may_match),
            matching.done(preparing, do=at.matched),
            matching.failed(preparing, do=at.not_matched),
        ]
    elapsed = [working.elapsed(failed, do=at.timed_out)] if config.step_timeout_s else []
    return Flow(
        "step",
        StepWork,
        start=preparing,
        rows=[
            *names,
            preparing.done(failed, when=at.is_unmatched, do=at.unmatched),
            preparing.done(failed, when=at.is_empty, do=at.empty),
            *intents,
            preparing.failed(failed, do=at.broke),
            working.done(validating, when=at.must_validate, do=drafted),
            working.done(reviewing, when=at.must_approve, do=drafted),
            working.done(done, do=drafted),
            working.failed(failed, do=at.broke),
            *elapsed,
            validating.done(failed, when=at.is_refused, do=at.refused),
            validating.done(reviewing, when=at.must_approve),
            validating.done(done),
            validating.failed(failed, do=at.broke),
            reviewing.done(done, of=Accept, do=at.accepted),
            reviewing.done(failed, of=Reject, do=at.rejected),
        ],
    )


def orchestrator_flow(
    team: Team,
    blueprint: Blueprint,
    config: OrchestratorConfig,
    planner: Agent[Any, Any],
    validator: Agent[Any, Any],
    has_strategy: bool,
    *,
    name: str,
    **options: Any,
) -> Flow[Job]:
    """Return the flow of an orchestrator."""
    planning, planning_simply, redesigning, possible = planning_states(team, blueprint, config, planner)
    step = subflow("step", step_flow(team, planner, validator, config), lambda w: w)

    def wave(j: Job) -> list[StepWork]:
        steps = {step.step_id: (number, step) for number, step in enumerate(j.plan.steps, 1)}
        earlier = tuple([steps[name][1] for name in j.outputs])  # the most recent last
        numbered = {f"step_{steps[name][0]}_output": output.text for name, output in j.outputs.items()}
        texts = {**numbered, **{name: output.text for name, output in j.outputs.items()}}
        ready = j.ready[:1] if j.config.min_step_interval_s else j.ready
        until = {loop.step_ids[-1]: loop.until for loop in j.plan.loops}
        return [
            StepWork(
                s, team.fit_for(j, s), j.task, earlier, texts, j.config.unmatched, until.get(s.step_id, ""), j.seen
            )
            for s in ready
        ]

    executing = each("executing", step, wave, parallel=config.parallel)

    @call(planner, Remedy)
    def deciding(j: Job) -> Any:
        return requests.with_pictures(requests.deciding(j, team.listed), j.seen)

    @wait(Supply, possible, GiveUp)
    def asking(j: Job) -> str:
        return f"The step {j.failed!r} failed: {j.error}{of.spent(j)}"

    def has_another(j: Job, answer: Any) -> bool:
        return bool(team.others_for(j))

    completed = end("completed")
    step_spent: Any = failure("step_spent", of.STEP_SPENT)
    total_spent: Any = failure("total_spent", of.TOTAL_SPENT)
    if config.escalate:
        step_spent = total_spent = asking
    unrecoverable = failure("unrecoverable", "no strategy could be made")
    abandoned = failure("given_up", "a person ended it")
    following: Any = executing
    rest: list[Row[Job]] = []
    if config.min_step_interval_s:
        following = pause("resting", config.min_step_interval_s)
        rest = [
            planning.done(following, when=of.has_begun, do=planned),
            planning_simply.done(following, when=of.has_begun, do=planned),
            following.elapsed(executing),
        ]
    return TeamFlow(
        name,
        Job,
        team=team,
        start=executing if has_strategy else planning,
        limits=FlowLimits(steps=STEPS, deadline_s=config.deadline_s),
        rows=[
            *rest,
            planning.done(executing, do=planned),
            planning.failed(planning_simply),
            planning_simply.done(executing, do=planned),
            planning_simply.failed(unrecoverable),
            executing.done(step_spent, when=of.is_step_spent, do=of.noted),
            executing.done(total_spent, when=of.is_total_spent, do=of.noted),
            executing.done(following, when=of.is_transient, do=of.retried_at_once),
            executing.done(deciding, when=of.has_failed, do=of.noted),
            executing.done(completed, when=of.is_last, do=of.noted),
            executing.done(following, do=of.noted),
            deciding.done(following, of=Remedy.RETRY, do=of.retried),
            deciding.done(redesigning, of=Remedy.TACTICAL),
            deciding.done(planning, of=Remedy.FULL, do=cleared),
            deciding.done(following, of=Remedy.ANOTHER_AGENT, when=has_another, do=team.reassigned),
            deciding.done(planning, of=Remedy.ANOTHER_AGENT, do=cleared),
            deciding.done(asking, of=Remedy.ASK),
            deciding.failed(planning, do=cleared),
            redesigning.done(following, when=fits, do=redesigned),
            redesigning.done(planning, do=cleared),
            redesigning.failed(planning, do=cleared),
            asking.done(completed, of=Supply, when=of.is_last_supplied, do=of.supplied),
            asking.done(following, of=Supply, do=of.supplied),
            asking.done(following, of=possible, do=imposed),
            asking.done(abandoned, of=GiveUp, do=of.abandon),
        ],
        **options,
    )

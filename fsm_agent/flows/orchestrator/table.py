"""The tables of an orchestrator: one of its own, and one of each step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fsm_agent.agents.agent import Agent
from fsm_agent.flows.definition.declaring import call, each, end, execute, failure, pause, subflow, wait
from fsm_agent.flows.definition.kinds import Kinds
from fsm_agent.flows.definition.states import CallState, Row
from fsm_agent.flows.flow import Flow
from fsm_agent.flows.orchestrator import job as of
from fsm_agent.flows.orchestrator.job import Job, Output, Work
from fsm_agent.flows.orchestrator.mapping import filled
from fsm_agent.flows.orchestrator.strategy import (
    Accept,
    Blueprint,
    GiveUp,
    NewSteps,
    OrchestratorConfig,
    Reject,
    Remedy,
    Strategy,
    Supply,
    Verdict,
)
from fsm_agent.flows.orchestrator.team import Team
from fsm_agent.flows.process.record import FlowLimits

STEPS = 100_000  # states of a run at most: what bounds it are the limits of the orchestrator


class _OwnOutput(CallState[Work, Any]):
    """A call of an agent that is asked for its own output."""

    def prompt_for(self, agent: Agent[Any, Any]) -> Any:
        return agent.prompt


def step_flow(team: Team, validator: Agent[Any, Any], config: OrchestratorConfig) -> Flow[Work]:
    """Return the flow of one step: fill in what is asked, ask, validate, let a person look."""

    @execute
    def preparing(w: Work) -> str:
        return filled(w.step, w.task, w.earlier, w.texts, w.unmatched)

    def work(w: Work) -> str:
        expected = f"\nExpected: {w.step.expected_output}" if w.step.expected_output else ""
        return f"{w.intent}{expected}"

    outputs = list(dict.fromkeys(agent.output for agent in team.agents.values()))
    working = _OwnOutput(work, lambda w: team.agents[w.agent], outputs, "working", config.step_timeout_s)

    @call(validator, Verdict)
    def validating(w: Work) -> str:
        assert w.output is not None
        return (
            f"Step: {w.step.description}\nExpected: {w.step.expected_output}\nOutput:\n{w.output.text}\nPASS or FAIL?"
        )

    @wait(Accept, Reject)
    def reviewing(w: Work) -> str:
        return w.output.text if w.output is not None else ""

    def drafted(w: Work, value: Any) -> Work:
        return replace(w, output=output_of(working.kinds, value))

    done, failed = end("ended"), end("broken")
    elapsed = [working.elapsed(failed, do=of.timed_out)] if config.step_timeout_s else []
    return Flow(
        "step",
        Work,
        start=preparing,
        rows=[
            preparing.done(working, do=of.asked),
            preparing.failed(failed, do=of.broke),
            working.done(validating, when=of.must_validate, do=drafted),
            working.done(reviewing, when=of.must_approve, do=drafted),
            working.done(done, do=drafted),
            working.failed(failed, do=of.broke),
            *elapsed,
            validating.done(failed, when=of.is_refused, do=of.refused),
            validating.done(reviewing, when=of.must_approve),
            validating.done(done),
            validating.failed(failed, do=of.broke),
            reviewing.done(done, of=Accept, do=of.accepted),
            reviewing.done(failed, of=Reject, do=of.rejected),
        ],
    )


def output_of(kinds: Kinds, value: Any) -> Output:
    """Return a value as it is kept: strings and models with a prompt of their own as readable text, others as JSON."""
    text = kinds.dump(value)
    kind = kinds.names[kinds._index(value)]
    if isinstance(value, str):
        return Output(kind, text, str(value))
    shown = value.to_prompt() if hasattr(value, "to_prompt") else Kinds(kinds.state, [type(value)]).dump(value)
    return Output(kind, text, shown)


def orchestrator_flow(
    team: Team,
    blueprint: Blueprint,
    config: OrchestratorConfig,
    planner: Agent[Any, Any],
    validator: Agent[Any, Any],
    has_strategy: bool,
    **options: Any,
) -> Flow[Job]:
    """Return the flow of an orchestrator."""
    guide = f"{blueprint}\n\nAgents:\n{team.listed}"

    @call(planner, Strategy)
    def planning(j: Job) -> str:
        done = "; ".join(f"{e.step_id}: {e.output}" for e in j.journal if e.status == "completed")
        again = f"\nThe strategy before failed in {j.failed!r}: {j.error}\nDone by it: {done}" if j.failed else ""
        return f"Make a strategy for this task.\nTask: {j.task}\n\nGuide: {guide}{again}"

    @call(planner, Strategy)
    def planning_simply(j: Job) -> str:
        return f"A strategy as JSON, and nothing else. Task: {j.task}\nAgents: {team}"

    step = subflow("step", step_flow(team, validator, config), lambda w: w)

    def wave(j: Job) -> list[Work]:
        earlier = tuple([j.plan.step(name) for name in j.outputs])  # the most recent last
        numbered = {f"step_{j.index(name) + 1}_output": output.text for name, output in j.outputs.items()}
        texts = {**numbered, **{name: output.text for name, output in j.outputs.items()}}
        return [Work(s, team.fit_for(j, s), j.task, earlier, texts, j.config.unmatched) for s in j.ready]

    executing = each("executing", step, wave, parallel=config.parallel)

    @call(planner, Remedy)
    def deciding(j: Job) -> str:
        return (
            f"The step {j.failed!r} failed: {j.error}\nDecide: RETRY it, TACTICAL (replace the steps that are left),"
            " FULL (a new strategy), ANOTHER_AGENT (the same step by another), or ASK a person."
        )

    @call(planner, NewSteps)
    def redesigning(j: Job) -> str:
        return (
            f"Task: {j.task}\nThe step {j.failed!r} failed: {j.error}\nReplace it and what follows.\n\nGuide: {guide}"
        )

    @wait(Supply, Strategy, GiveUp)
    def asking(j: Job) -> str:
        return f"The step {j.failed!r} failed: {j.error}"

    def has_another(j: Job, answer: Any) -> bool:
        return bool(team.others_for(j))

    completed = end("completed")
    step_spent = failure("step_spent", "max_step_remediations are used up")
    total_spent = failure("total_spent", "max_total_redesigns are used up")
    unrecoverable = failure("unrecoverable", "no strategy could be made")
    given_up = failure("given_up", "a person ended it")
    following: Any = executing
    rest: list[Row[Job]] = []
    if config.min_step_interval_s:
        following = pause("resting", config.min_step_interval_s)
        rest = [following.elapsed(executing)]
    return Flow(
        "orchestrator",
        Job,
        start=executing if has_strategy else planning,
        limits=FlowLimits(steps=STEPS, deadline_s=config.deadline_s),
        rows=[
            planning.done(executing, do=of.planned),
            planning.failed(planning_simply),
            planning_simply.done(executing, do=of.planned),
            planning_simply.failed(unrecoverable),
            executing.done(step_spent, when=of.is_step_spent, do=of.noted),
            executing.done(total_spent, when=of.is_total_spent, do=of.noted),
            executing.done(following, when=of.is_transient, do=of.retried_at_once),
            executing.done(deciding, when=of.has_failed, do=of.noted),
            executing.done(completed, when=of.is_last, do=of.noted),
            executing.done(following, do=of.noted),
            *rest,
            deciding.done(executing, of=Remedy.RETRY, do=of.retried),
            deciding.done(redesigning, of=Remedy.TACTICAL),
            deciding.done(planning, of=Remedy.FULL, do=of.cleared),
            deciding.done(executing, of=Remedy.ANOTHER_AGENT, when=has_another, do=team.reassigned),
            deciding.done(planning, of=Remedy.ANOTHER_AGENT, do=of.cleared),
            deciding.done(asking, of=Remedy.ASK),
            deciding.failed(planning, do=of.cleared),
            redesigning.done(executing, when=of.fits, do=of.redesigned),
            redesigning.done(planning, do=of.cleared),
            redesigning.failed(planning, do=of.cleared),
            asking.done(completed, of=Supply, when=of.is_last_supplied, do=of.supplied),
            asking.done(executing, of=Supply, do=of.supplied),
            asking.done(executing, of=Strategy, do=of.imposed),
            asking.done(given_up, of=GiveUp, do=of.gave_up),
        ],
        **options,
    )

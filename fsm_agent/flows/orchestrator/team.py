"""The agents of an orchestrator: their names, what each can do, and which one fits a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from fsm_agent.agents.agent import Agent
from fsm_agent.flows.definition.abandonment import once_of, refused
from fsm_agent.flows.errors import FlowError
from fsm_agent.flows.orchestrator.job import Job
from fsm_agent.flows.orchestrator.mapping import Texts
from fsm_agent.flows.orchestrator.member import agent_and_skill, models_of
from fsm_agent.flows.orchestrator.strategy import NewSteps, OrchestratorConfig, Step, Strategy
from fsm_agent.flows.orchestrator.work import Output, StepWork
from fsm_agent.flows.values import AnswerTypes
from fsm_agent.prompts.rendering.text import is_worded, prompt_text
from fsm_agent.validation import check, wrong

if TYPE_CHECKING:
    from fsm_agent.clients.client import Client

P = TypeVar("P", Strategy, NewSteps)


class Team:
    """Agents by name, with descriptions.

    Args:
        members: Agents, and what `agent_and_skill` takes for one.
        descriptions: What they can do, by name, in place of their expertise or system prompts.
    """

    def __init__(self, members: Iterable[Any], descriptions: Mapping[str, str]) -> None:
        self.agents: dict[str, Agent[Any, Any]] = {}
        self.can: dict[str, str] = {}
        self._models: list[Client | str] = []
        self.answer_types: dict[str, AnswerTypes] = {}  # by agent, since types of several may have the same shape
        check("agents", members, isinstance(members, Iterable), "a list of Agents", FlowError)
        for member in members:
            agent, can = agent_and_skill(member)
            if agent.name in self.agents:
                raise FlowError(f"agents: expected different names, got {agent.name!r} twice; pass name=… to one")
            self.agents[agent.name] = agent
            self._models += models_of(member)
            self.answer_types[agent.name] = AnswerTypes(agent.name, [agent.output])
            self.can[agent.name] = descriptions.get(agent.name, can)
        if not self.agents:
            raise FlowError("agents: expected one or more, got none; write Orchestrator([Agent(…, name='writer')])")
        if unknown := descriptions.keys() - self.agents.keys():
            raise FlowError(f"descriptions: expected names of agents ({self}), got {sorted(unknown)[0]!r}")

    def __str__(self) -> str:
        return ", ".join(map(repr, self.agents))

    @property
    def model(self) -> Client | str:
        """The first model of an agent.

        Raises:
            FlowError: No agent has a model.
        """
        if not self._models:
            raise FlowError(f"planner: expected a model, got none from {self}; pass planner=Agent('provider:model')")
        return self._models[0]

    @property
    def listed(self) -> str:
        """Their names and descriptions, a line each."""
        return "\n".join([f"- {name}: {can}" for name, can in self.can.items()])

    def checked(self, plan: P, config: OrchestratorConfig) -> P:
        """Return a plan that this team can do within the limits.

        Raises:
            FlowError: A step is assigned to an unknown agent, or a loop exceeds the limit of all loops.
        """
        for step in plan.steps:
            if step.assigned_agent and step.assigned_agent not in self.agents:
                right = f"an agent ({self}), or '' for the one that fits best"
                what = f"assigned_agent of the step {step.step_id!r}"
                raise FlowError(f"{what}: expected {right}, got {step.assigned_agent!r}")
        for loop in plan.loops if isinstance(plan, Strategy) else ():
            if loop.max_iterations > config.max_loop_iterations:
                right = f"{config.max_loop_iterations} (max_loop_iterations) or fewer"
                raise wrong(f"max_iterations of the loop of {loop}", loop.max_iterations, right, FlowError)
        return plan

    def check_abandonment(self, timeout_s: float | None) -> None:
        """Refuse a time limit of steps if an agent has a function that must not run twice.

        Raises:
            FlowError: It names the agent and the function.
        """
        for name, agent in self.agents.items() if timeout_s is not None else ():
            for what in once_of(agent.functions, (agent,)):
                here = f"step_timeout_s={timeout_s:g}: a step of {name!r}"
                raise refused(here, what, "remove the limit, or use an agent without that function")

    def output_of(self, name: str, value: Any) -> Output:
        """Return the output of an agent in the form that is stored, with its text for later steps."""
        answer_types = self.answer_types[name]
        written = answer_types.dump(value)
        plain = value if type(value) is str else written
        return Output(repr(answer_types), written, prompt_text(value) if is_worded(value) else plain, name)

    def value_of(self, output: Output) -> Any:
        """Return the value of an output."""
        return self.answer_types[output.agent].load(output.value) if output.agent else output.text

    def wave(self, j: Job) -> list[StepWork]:
        """Return the steps that may begin now, each with all that it needs."""
        steps = {step.step_id: (number, step) for number, step in enumerate(j.plan.steps, 1)}
        earlier = tuple([steps[name][1] for name in j.outputs])  # the most recent last
        numbered = {f"step_{steps[name][0]}_output": output.text for name, output in j.outputs.items()}
        texts = {**numbered, **{name: output.text for name, output in j.outputs.items()}}
        until = {loop.step_ids[-1]: loop.until for loop in j.plan.loops}
        ready = j.ready[:1] if j.config.min_step_interval_s else j.ready
        return [
            StepWork(
                s, self.fit_for(j, s), j.task, earlier, texts, j.config.unmatched, until.get(s.step_id, ""), j.seen
            )
            for s in ready
        ]

    def fit_for(self, j: Job, step: Step) -> str:
        """Return the agent for a step: its replacement, the assigned agent, or the one with most of its words."""
        name = j.agents.get(step.step_id, step.assigned_agent)
        return name if name in self.agents else self._fittest(step, list(self.agents))

    def others_for(self, j: Job) -> list[str]:
        """Return the agents that have not tried the step that failed last."""
        tried = {entry.agent for entry in j.entries if entry.step_id == j.failed}
        return [name for name in self.agents if name not in tried]

    def has_another(self, j: Job) -> bool:
        """Return True if an agent has not tried the step that failed last."""
        return bool(self.others_for(j))

    def reassigned(self, j: Job, _: Any) -> Job:
        """Give the step that failed last to another agent."""
        fittest = self._fittest(j.plan.step(j.failed), self.others_for(j))
        return replace(j, agents={**j.agents, j.failed: fittest}).retried()

    def _fittest(self, step: Step, names: list[str]) -> str:
        wanted = f"{step.assigned_agent} {step.description} {step.expected_output}"
        about = Texts([(name, f"{name} {self.can[name]}") for name in reversed(names)])
        return about.best(wanted) or names[0]

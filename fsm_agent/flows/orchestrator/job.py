"""The data, the team and the result of an orchestrator.

The table's guards and actions are pure methods of `Job` and `Team`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from fsm_agent.agents.agent import Agent
from fsm_agent.agents.agent_base import AgentBase
from fsm_agent.agents.program import Program, agent_of
from fsm_agent.agents.runnable import Runnable
from fsm_agent.call.effects import Request
from fsm_agent.call.limits import Limits
from fsm_agent.clients.sync_verbs import SyncVerbs
from fsm_agent.errors import FlowError, ProviderError, UsageError
from fsm_agent.flows.checks import once_of, refused
from fsm_agent.flows.orchestrator.plan import (
    GiveUp,
    Loop,
    NewSteps,
    OrchestratorConfig,
    Output,
    Step,
    StepWork,
    Strategy,
    Supply,
    closest,
    words,
    written,
)
from fsm_agent.flows.run import FlowResult, FlowRun
from fsm_agent.flows.values import AnswerTypes, case_name
from fsm_agent.functions.function import Function
from fsm_agent.messages.message import FunctionCall, FunctionResult, Message
from fsm_agent.messages.reply import Reply
from fsm_agent.prompts.values import is_worded, prompt_text
from fsm_agent.runtime.environment import Client
from fsm_agent.validation import invalid, require, safe_repr

T = TypeVar("T")
P = TypeVar("P", Strategy, NewSteps)
STEP_SPENT, TOTAL_SPENT = "max_step_remediations are used up", "max_total_redesigns are used up"
_RIGHT = (
    "an Agent, an AgentBase, a function of the task, a Function of one argument (of a flow, flow.as_function(…)),"
    " or an object with an expertise and an execute(task)"
)


@dataclass(frozen=True)
class Attempt:
    """An attempt to carry out a step, as listed in `OrchestrationResult.journal`.

    Examples:
        >>> Attempt("facts", "find facts", "research", "completed", output="3 facts").status
        'completed'
    """

    step_id: str
    title: str
    agent: str
    status: Literal["completed", "failed", "pending"]
    output: str = ""
    error: str = ""
    at_s: float = 0.0  # when it ended (Unix time)
    wave: int = 0


@dataclass(frozen=True)
class Job:
    """The data of an orchestrator's flow: the task, the strategy, and the progress so far.

    Methods that take an answer are guards or actions for rows, as in ``executing.done(enough, when=…, do=Job.noted)``.

    Attributes:
        task: The task.
        config: The limits.
        strategy: The strategy, or None before there is one.
        done: The names of the finished steps, in the order in which they ended.
        outputs: The steps' outputs by step name, in the order in which the steps ended.
        failures: How often each step has failed, by the step's number in the strategy.
        agents: Agents that replace the assigned agents, by step.
        iterations: How often each loop has run, by the loop's number in the strategy.
        looped: The total number of repetitions of loops.
        redesigns: The number of retries and redesigns.
        executed: The number of steps that succeeded, counting each repetition.
        failed: The step that failed last, or an empty string if the last step succeeded.
        error: The reason for the failure.
        loop: The number of the loop that failed last, or None if it was a single step.
        is_over: Whether a step said that the task is done.
        waves: The number of waves so far, where a wave is a group of steps that run at once.
        journal: The attempts to carry out steps.
        begun: The number of attempts that were made before this strategy.
        seen: The images and documents of the task.

    Examples:
        >>> Job("Write an article.").task
        'Write an article.'
    """

    task: str
    config: OrchestratorConfig = field(default_factory=OrchestratorConfig)
    strategy: Strategy | None = None
    done: tuple[str, ...] = ()
    outputs: Mapping[str, Output] = field(default_factory=dict)
    failures: Mapping[int, int] = field(default_factory=dict)
    agents: Mapping[str, str] = field(default_factory=dict)
    iterations: Mapping[int, int] = field(default_factory=dict)
    looped: int = 0
    redesigns: int = 0
    executed: int = 0
    failed: str = ""
    error: str = ""
    loop: int | None = None
    is_over: bool = False
    waves: int = 0
    journal: tuple[Attempt, ...] = ()
    begun: int = 0
    seen: Message | None = None

    @property
    def plan(self) -> Strategy:
        """The strategy, which must exist already."""
        assert self.strategy is not None
        return self.strategy

    @property
    def entries(self) -> tuple[Attempt, ...]:
        """The attempts to carry out steps of this strategy."""
        return self.journal[self.begun :]

    def index(self, step_id: str) -> int:
        """Return the number of a step in the strategy."""
        return [step.step_id for step in self.plan.steps].index(step_id)

    @property
    def ready(self) -> list[Step]:
        """The steps that may begin now."""
        done = set(self.done)
        return [s for s in self.plan.steps if s.step_id not in done and not self.plan.before(s.step_id) - done]

    @property
    def is_finished(self) -> bool:
        """Whether all steps are done, or a step said that the task is done."""
        return self.is_over or len(self.done) == len(self.plan.steps)

    @property
    def spent(self) -> str:
        """The limit that the failures have reached, in words, or an empty string."""
        if max(self.failures.values(), default=0) >= self.config.max_step_remediations:
            return STEP_SPENT
        return TOTAL_SPENT if self.redesigns >= self.config.max_total_redesigns else ""

    # Guards, for the results of a wave of steps

    def has_begun(self) -> bool:
        """Return whether any step has run yet."""
        return self.waves > 0

    def has_failed(self, works: Sequence[StepWork]) -> bool:
        """Return whether one of these steps, or a loop, has failed."""
        return bool(self.noted(works).failed)

    def is_step_spent(self, works: Sequence[StepWork]) -> bool:
        """Return whether a step has failed as often as the limit allows."""
        now = self.noted(works)
        return bool(now.failed) and now.failures[now.index(now.failed)] >= now.config.max_step_remediations

    def is_total_spent(self, works: Sequence[StepWork]) -> bool:
        """Return whether a step has failed and no redesign is left."""
        return self.has_failed(works) and self.redesigns >= self.config.max_total_redesigns

    def is_transient(self, works: Sequence[StepWork]) -> bool:
        """Return whether the failed steps might succeed if they were tried again at once."""
        now = self.noted(works)
        return bool(now.failed) and now.loop is None and all(w.is_transient for w in works if w.error)

    def is_last(self, works: Sequence[StepWork]) -> bool:
        """Return whether the task is finished once these steps are done."""
        return self.noted(works).is_finished

    def is_last_supplied(self, answer: Supply) -> bool:
        """Return whether the task is finished once a person has supplied an output."""
        return self.supplied(answer).is_finished

    def fits(self, new: NewSteps) -> bool:
        """Return whether the kept steps and the new steps form a valid strategy."""
        try:
            self.redesigned(new)
        except ValueError:
            return False
        return True

    # Actions

    def planned(self, strategy: Strategy) -> Job:
        """Begin a strategy."""
        return replace(self, strategy=strategy, begun=len(self.journal))

    def cleared(self, _: Any = None) -> Job:
        """Count a redesign and forget all outputs and other counts, because a new strategy starts from scratch."""
        return replace(
            self._count_redesign(), done=(), outputs={}, failures={}, agents={}, iterations={}, is_over=False
        )

    def imposed(self, strategy: Strategy) -> Job:
        """Begin a person's strategy, and forget earlier outputs."""
        return self.cleared().planned(strategy)

    def noted(self, works: Sequence[StepWork]) -> Job:
        """Record the results of a wave of steps, and repeat the loops that are not over."""
        return self._note(works, -1)

    def supplied(self, answer: Supply) -> Job:
        """Record a person's output for the failed step.  This also ends a failed loop."""
        step = self.plan.step(self.failed)
        work = StepWork(step, "a person", self.task, (), {}, "", output=written(answer.output))
        return self._note([work], -1 if self.loop is None else self.loop)

    def retried(self, _: Any = None) -> Job:
        """Count a retry of the failed step.  If a loop failed, it runs once more than its limit allows."""
        return (self if self.loop is None else self._repeat(self.loop))._count_redesign()

    def retried_at_once(self, works: Sequence[StepWork]) -> Job:
        """Record the results of a wave of steps, and count a retry of the failed steps."""
        return self.noted(works)._count_redesign()

    def redesigned(self, new: NewSteps) -> Job:
        """Replace the remaining steps.  The failed step's failures count as failures of the first new step."""
        kept = [step for step in self.plan.steps if step.step_id in self.done]
        names = {step.step_id for step in kept}
        loops = tuple([loop for loop in self.plan.loops if set(loop.step_ids) <= names])
        counts = {len(kept): self.failures.get(self.index(self.failed), 0)}
        plan = replace(self.plan, steps=(*kept, *new.steps), loops=loops)
        outputs = {name: output for name, output in self.outputs.items() if name in names}
        return replace(
            self._count_redesign(), strategy=plan, outputs=outputs, failures=counts, agents={}, iterations={}
        )

    def abandon(self, answer: GiveUp) -> Job:
        """Record why a person ended the task."""
        return replace(self, error=f"{self.error}; given up: {answer.because}")

    def _count_redesign(self) -> Job:
        return replace(self, redesigns=self.redesigns + 1)

    def _note(self, works: Sequence[StepWork], closed: int) -> Job:
        """Record the results of steps.  The loop whose number is ``closed`` is over."""
        given = {w.step.step_id: w.output for w in works if w.output is not None and not w.error}
        j = replace(
            self,
            failed="",
            error="",
            loop=None,
            done=(*self.done, *given),
            outputs={**{name: output for name, output in self.outputs.items() if name not in given}, **given},
            journal=(*self.journal, *[_attempt(w, self.waves) for w in works]),
            executed=self.executed + len(given),
            is_over=self.is_over or any(given[w.step.step_id].says(w.step.ends_if) for w in works if not w.error),
        )
        for w in works:
            if w.error:
                j = j._count_failure(w.step.step_id, w.error)
        for number, loop in enumerate(self.plan.loops):
            is_touched = number != closed and not given.keys().isdisjoint(loop.step_ids)
            if is_touched and not j.is_over and set(loop.step_ids) <= set(j.done):
                j = j._close_or_repeat(number, loop)
        return replace(j, waves=self.waves + 1)

    def _count_failure(self, step_id: str, error: str, loop: int | None = None) -> Job:
        """Count a failure of a step.  The step is reported unless another failed step has failed at least as often."""
        at = self.index(step_id)
        most = self.failures[self.index(self.failed)] if self.failed else 0
        j = replace(self, failures={**self.failures, at: self.failures.get(at, 0) + 1})
        return replace(j, failed=step_id, error=error, loop=loop) if j.failures[at] > most else j

    def _close_or_repeat(self, number: int, loop: Loop) -> Job:
        """Repeat a loop that is not over, or make its last step fail if a limit is reached."""
        last, times = loop.step_ids[-1], self.iterations.get(number, 1)
        output, is_short = self.outputs[last], times < loop.max_iterations
        if output.says(loop.until) or not (loop.until or is_short):
            return self
        if is_short and self.looped < self.config.max_loop_iterations:
            return self._repeat(number)
        why = f"its last output, {output.text!r:.200}, does not say {loop.until!r}" if loop.until else ""
        limit = f"max_loop_iterations={self.config.max_loop_iterations} of all loops are used up" if is_short else ""
        how_often = "once" if times == 1 else f"{times} times"
        error = "; ".join(filter(None, [f"the loop of {loop} was done {how_often}", limit, why]))
        entry = Attempt(last, self.plan.step(last).description, output.agent, "failed", error=error, wave=self.waves)
        done = tuple([name for name in self.done if name != last])
        return replace(self, done=done, journal=(*self.journal, entry))._count_failure(last, error, number)

    def _repeat(self, number: int) -> Job:
        steps = self.plan.loops[number].step_ids
        counts = {**self.iterations, number: self.iterations.get(number, 1) + 1}
        done = tuple([name for name in self.done if name not in steps])
        return replace(self, done=done, iterations=counts, looped=self.looped + 1)


def _attempt(w: StepWork, wave: int) -> Attempt:
    text = "" if w.error or w.output is None else w.output.text
    status: Any = "failed" if w.error else "completed"
    return Attempt(w.step.step_id, w.step.description, w.agent, status, text, w.error, wave=wave)


# The members of a team: agents, functions, flows, objects with an expertise


def agent_and_skill(member: Any) -> tuple[Agent[Any, Any], str]:
    """Return the agent that carries out a team member's steps, and a description of what the member can do."""
    try:
        if isinstance(member, AgentBase):
            return member, type(member).description or type(member).expertise
        if isinstance(member, Agent):
            return member, member.system if isinstance(member.system, str) else ""
        if isinstance(member, Runnable):  # a flow, or another orchestrator
            member = member.as_function()  # type: ignore[attr-defined]
        if isinstance(member, Function):
            return _calling(member), member.description
        if inspect.isroutine(member):
            return agent_of(member.__name__, member, str), inspect.getdoc(member) or ""
        execute = getattr(member, "execute", None)
        if not isinstance(member, type) and callable(execute) and hasattr(member, "expertise"):
            name = getattr(member, "name", type(member).__name__)
            expertise = member.expertise() if callable(member.expertise) else member.expertise
            return agent_of(name, execute, getattr(member, "output", str)), str(expertise)
    except UsageError as error:
        raise FlowError(f"agents: expected members that can do a step, got {safe_repr(member)}: {error}") from error
    raise FlowError(f"agents: expected {_RIGHT}, got {safe_repr(member)}")


def _calling(function: Function) -> Agent[Any, Any]:
    """Return an agent that calls a function with its task and answers with the function's result."""
    properties = function.parameters.get("properties", {})
    needed = function.parameters.get("required", [])
    name = next(iter(needed or properties), "")
    if len(needed) > 1 or properties.get(name, {}).get("type") != "string":
        raise FlowError(f"agents: expected functions that take one string, got {function.name!r}, with other arguments")
    client = _Caller(function.name, name)
    return Agent(client, name=function.name, functions=[function], limits=Limits(recalls=0, parse_retries=0))


class _Caller(SyncVerbs):
    """A client that requests a call to one function, with the task as its argument, and answers with its result."""

    takes_images = False
    reports_logprobs = False

    def __init__(self, name: str, argument: str) -> None:
        self.name = f"function:{name}"
        self._function, self._argument = name, argument

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return a request to call the function, or the function's result once there is one."""
        message = request.messages[-1]
        results = [part for part in message.parts if isinstance(part, FunctionResult)]
        if not results:
            arguments = json.dumps({self._argument: message.text})
            return Reply.of(FunctionCall(name=self._function, arguments_json=arguments))
        if results[0].is_error:
            raise ProviderError(f"the function {self._function!r} failed: {results[0].text}", retryable=False)
        return Reply.of(results[0].text)


class OrchestrationResult(FlowResult[Job]):
    """The result of an orchestrator's run.  A `FlowFailed` also holds one.

    ``state`` is "completed", "step_spent", "total_spent", "unrecoverable", "given_up", one of the ends in your own
    rows, or one of the ends that every flow has.

    Examples:
        >>> plan = Strategy("an article", (Step("facts", "find facts", "{{ task }}", "research"),))
        >>> team = Orchestrator([Agent(Script("3 facts"), name="research")], strategy=plan)
        >>> result = team.call("The sky.")
        >>> result.output, str(result.state)
        ('3 facts', 'completed')
    """

    __slots__ = ("_team",)

    def __init__(self, run: FlowRun[Job], team: Team) -> None:
        super().__init__(run)
        self._team = team

    def __repr__(self) -> str:
        return f"OrchestrationResult({self.state}, {self.steps_executed} steps, {self.redesigns} redesigns)"

    @property
    def _job(self) -> Job:
        return self.run.data

    @property
    def is_success(self) -> bool:
        """Whether the task is done."""
        return self.ending is not None and not self.ending.is_failure

    @property
    def output(self) -> Any:
        """The output of the step that ended last, or None if no step has ended."""
        return self.step_output(list(self._job.outputs)[-1]) if self._job.outputs else None

    @property
    def error(self) -> str:
        """The reason for the failure, for people, or an empty string if the run did not fail."""
        ending = self.run.record.ending
        if ending is None or not ending.is_failure:
            return ""
        where = f"step {self._job.failed!r}: {self._job.error}" if self._job.failed else ""
        return "; ".join(filter(None, [ending.detail, where]))

    @property
    def steps_executed(self) -> int:
        """The number of steps that succeeded, counting each repetition."""
        return self._job.executed

    @property
    def redesigns(self) -> int:
        """The number of retries and redesigns."""
        return self._job.redesigns

    @property
    def failed_step(self) -> str:
        """The step that failed last, or an empty string if a later step succeeded."""
        return self._job.failed

    @property
    def strategy(self) -> Any:
        """The current strategy."""
        return self._job.strategy

    @property
    def context(self) -> Mapping[str, str]:
        """The outputs as text, by step and by output key."""
        found = {name: output.text for name, output in self._job.outputs.items()}
        steps = self._job.strategy.steps if self._job.strategy else ()
        keys = {s.output_key: found[s.step_id] for s in steps if s.output_key and s.step_id in found}
        return {**found, **keys}

    @property
    def journal(self) -> list[Attempt]:
        """All attempts to carry out steps, with their times, followed by the steps that are left."""
        own = {"executing": "done", "asking": "done Supply"}  # the steps in which attempts are noted
        ends = [step.at_s for step in self.run.record.trace if own.get(step.source) == step.trigger]
        made = [replace(e, at_s=ends[e.wave]) if e.wave < len(ends) else e for e in self._job.journal]
        steps = self._job.strategy.steps if self._job.strategy else ()
        left = [s for s in steps if s.step_id not in self._job.outputs and s.step_id != self._job.failed]
        return made + [Attempt(s.step_id, s.description, s.assigned_agent, "pending") for s in left]

    def step_output(self, step_id: str) -> Any:
        """Return the output of a step.

        Raises:
            LookupError: If the step has no output.  The message names the steps that have outputs.
        """
        if step_id not in self._job.outputs:
            known = ", ".join(map(repr, self._job.outputs)) or "none yet"
            raise LookupError(f"expected a step with an output ({known}), got {step_id!r}")
        return self._team.value_of(self._job.outputs[step_id])

    def outputs_of(self, kind: type[T]) -> list[T]:
        """Return all outputs of a given type, in the order in which their steps ended."""
        found = [self.step_output(name) for name in self._job.outputs]
        return [value for value in found if isinstance(value, kind)]

    def output_of(self, kind: type[T]) -> T:
        """Return the last output of a given type.

        Raises:
            LookupError: If no output has the type; the message names the types of the outputs.
        """
        if found := self.outputs_of(kind):
            return found[-1]
        known = ", ".join(dict.fromkeys(output.kind for output in self._job.outputs.values())) or "none"
        raise LookupError(f"expected an output of the type {case_name(kind)}, got none (types of the outputs: {known})")


class Team:
    """Agents by name, with descriptions."""

    def __init__(self, members: Iterable[Any], descriptions: Mapping[str, str]) -> None:
        self.agents: dict[str, Agent[Any, Any]] = {}
        self.can: dict[str, str] = {}
        self.answer_types: dict[str, AnswerTypes] = {}  # by agent: two agents may have types of the same shape
        require("agents", members, isinstance(members, Iterable), "a list of Agents", FlowError)
        for member in members:
            agent, can = agent_and_skill(member)
            if agent.name in self.agents:
                raise FlowError(f"agents: expected different names, got {agent.name!r} twice; pass name=… to one")
            self.agents[agent.name] = agent
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
        """The model of the first agent that has a model.

        Raises:
            FlowError: If no agent has a model.
        """
        agents = [one for agent in self.agents.values() for one in (agent, *getattr(agent, "agents", {}).values())]
        models: list[Client | str] = [agent.model for agent in agents if not isinstance(agent.model, Program | _Caller)]
        if not models:
            raise FlowError(f"planner: expected a model, got none from {self}; pass planner=Agent('provider:model')")
        return models[0]

    @property
    def listed(self) -> str:
        return "\n".join([f"- {name}: {can}" for name, can in self.can.items()])

    def checked(self, plan: P, config: OrchestratorConfig) -> P:
        """Return the plan after checking that this team can carry it out within the limits."""
        for step in plan.steps:
            if step.assigned_agent and step.assigned_agent not in self.agents:
                right = f"an agent ({self}), or '' for the one that fits best"
                what = f"assigned_agent of the step {step.step_id!r}"
                raise FlowError(f"{what}: expected {right}, got {step.assigned_agent!r}")
        for loop in plan.loops if isinstance(plan, Strategy) else ():
            if loop.max_iterations > config.max_loop_iterations:
                right = f"{config.max_loop_iterations} (max_loop_iterations) or fewer"
                raise invalid(f"max_iterations of the loop of {loop}", loop.max_iterations, right, FlowError)
        return plan

    def check_abandonment(self, timeout_s: float | None) -> None:
        """Refuse a time limit for steps if an agent has a function that must not run twice."""
        for name, agent in self.agents.items() if timeout_s is not None else ():
            for what in once_of(agent.functions, (agent,)):
                here = f"step_timeout_s={timeout_s:g}: a step of {name!r}"
                raise refused(here, what, "remove the limit, or use an agent without that function")

    def output_of(self, name: str, value: Any) -> Output:
        """Return an agent's output in its stored form, with its text for later steps."""
        answer_types = self.answer_types[name]
        written = answer_types.dump(value)
        plain = value if type(value) is str else written
        return Output(repr(answer_types), written, prompt_text(value) if is_worded(value) else plain, name)

    def value_of(self, output: Output) -> Any:
        return self.answer_types[output.agent].load(output.value) if output.agent else output.text

    def wave(self, j: Job) -> list[StepWork]:
        """Return the steps that may begin now, each with everything that it needs."""
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
        """Return the agent for a step: its replacement, the assigned agent, or the one that fits best."""
        name = j.agents.get(step.step_id, step.assigned_agent)
        return name if name in self.agents else self._fittest(step, list(self.agents))

    def others_for(self, j: Job) -> list[str]:
        """Return the agents that have not tried the step that failed last."""
        tried = {entry.agent for entry in j.entries if entry.step_id == j.failed}
        return [name for name in self.agents if name not in tried]

    def has_another(self, j: Job) -> bool:
        """Return whether there is an agent that has not tried the step that failed last."""
        return bool(self.others_for(j))

    def reassigned(self, j: Job, _: Any) -> Job:
        """Give the step that failed last to another agent."""
        fittest = self._fittest(j.plan.step(j.failed), self.others_for(j))
        return replace(j, agents={**j.agents, j.failed: fittest}).retried()

    def _fittest(self, step: Step, names: list[str]) -> str:
        wanted = f"{step.assigned_agent} {step.description} {step.expected_output}"
        skills = [(name, words(f"{name} {self.can[name]}")) for name in reversed(names)]
        return closest(skills, wanted) or names[0]

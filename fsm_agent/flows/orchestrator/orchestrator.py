"""An orchestrator: a flow whose plan comes from a model, and whose steps a team of agents does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from fsm_agent._internal.with_options_shown import with_options_shown
from fsm_agent.agents.agent import Agent
from fsm_agent.agents.runnable import Answers, Runnable, Sink
from fsm_agent.flows.definition.declare import end
from fsm_agent.flows.definition.states import Row, State, SubflowState
from fsm_agent.flows.errors import FlowError, FlowFailed
from fsm_agent.flows.flow import Flow
from fsm_agent.flows.orchestrator.job import Job
from fsm_agent.flows.orchestrator.result import OrchestrationResult
from fsm_agent.flows.orchestrator.strategy import Blueprint, OrchestratorConfig, Strategy
from fsm_agent.flows.orchestrator.table import TeamState, orchestrator_flow
from fsm_agent.flows.orchestrator.team import Team
from fsm_agent.flows.process.flow_run import FlowRun
from fsm_agent.flows.verbs import FlowMapOptions, FlowOptions, FlowResumeOptions, UnstoredFlowOptions, map_options
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import PYTHONS_OWN, Policy
from fsm_agent.lifecycle.outcomes import Outcome
from fsm_agent.messages.event import Event
from fsm_agent.messages.message import Message, Text
from fsm_agent.messages.payload import Payload
from fsm_agent.mistakes import check, wrong

if TYPE_CHECKING:
    from os import PathLike
    from typing import Unpack

    from fsm_agent.agents.agent_base import AgentBase
    from fsm_agent.agents.many import TaskResults
    from fsm_agent.clients.client import Client
    from fsm_agent.flows.verbs import Clients
    from fsm_agent.functions.options import AgentPolicy
    from fsm_agent.runtime.inner_calls import InnerCalls
    from fsm_agent.runtime.world import World
    from fsm_agent.store.claiming import Definition
    from fsm_agent.store.runs import Runs
    from fsm_agent.store.store import Store

VALIDATOR = "validator"
_VALIDATES = "You validate the output of a step: does it do what the step is for?"


class Orchestrator(Runnable):
    """A team of agents, and a table that plans, executes, validates, retries and redesigns.

    Args:
        agents: Who does the steps, each with a name of its own: `Agent`s and `AgentBase`s; functions of the task, plain
            or coroutine functions; a `Function` of one text, as ``flow.as_function(…)`` makes of a flow; objects with
            an ``expertise`` and ``execute(task)``.
        blueprint: A guide for whoever plans, as a text or `Blueprint`.
        strategy: A strategy in place of one that a model makes.
        config: The limits.
        planner: Makes strategies and decisions; by default an agent of the first model in the team.
        validator: Says PASS or FAIL of outputs; by default an agent of the planner's model.
        descriptions: What the agents can do, by name, in place of their expertise or system prompts.
        name: The name in its runs; orchestrators that share a store need different names.
        store: Where its runs are kept; see `Flow`.
        approve: See `Flow`.
        answer: See `Flow`.
        hooks: See `Flow`.
        world: See `Flow`.

    Raises:
        FlowError: There are no agents, two have the same name, or the strategy names an unknown one.
    """

    process_type: ClassVar[type[Any]] = FlowRun

    def __init__(
        self,
        agents: Sequence[Any],
        blueprint: Blueprint | str = "",
        *,
        strategy: Strategy | None = None,
        config: OrchestratorConfig | None = None,
        planner: Agent[Any, Any] | AgentBase | None = None,
        validator: Agent[Any, Any] | AgentBase | None = None,
        descriptions: Mapping[str, str] | None = None,
        name: str = "orchestrator",
        store: Runs | Store | str | PathLike[str] | None = None,
        approve: Any = None,
        answer: Callable[[Any], Any] | None = None,
        hooks: Sequence[Any] = (),
        world: Mapping[str, Any] | None = None,
    ) -> None:
        self._arguments = {
            "agents": agents,
            "blueprint": blueprint,
            "strategy": strategy,
            "config": config,
            "planner": planner,
            "validator": validator,
            "descriptions": descriptions,
            "name": name,
            "store": store,
            "approve": approve,
            "answer": answer,
            "hooks": hooks,
            "world": world,
        }
        self.name = name
        self.config = config or OrchestratorConfig()
        if not isinstance(self.config, OrchestratorConfig):
            raise wrong("config", config, "OrchestratorConfig(max_step_remediations=3)", FlowError)
        check("blueprint", blueprint, isinstance(blueprint, Blueprint | str), "a text or a Blueprint", FlowError)
        check("strategy", strategy, isinstance(strategy, Strategy | None), "a Strategy, or None,", FlowError)
        for role, agent in (("planner", planner), (VALIDATOR, validator)):
            check(
                role,
                agent,
                isinstance(agent, Agent | None),
                f"Agent('provider:model', name='{role}')",
                FlowError,
            )
        self.blueprint = blueprint if isinstance(blueprint, Blueprint) else Blueprint(blueprint)
        self.team = Team(agents, descriptions or {})
        self.strategy = strategy
        if strategy is not None:
            self.team.checked(strategy, self.config)
        self.planner: Agent[Any, Any] = planner or Agent(self.team.model, name="planner")
        self.validator = validator or Agent(self.planner.model, name=VALIDATOR, system=_VALIDATES)
        self.flow: Flow[Job] = orchestrator_flow(
            self.team,
            self.blueprint,
            self.config,
            self.planner,
            self.validator,
            strategy is not None,
            name=name,
            store=store,
            approve=approve,
            answer=answer,
            hooks=tuple(hooks),
            world=dict(world or {}),
        )

    def __repr__(self) -> str:
        return f"Orchestrator({self.team})"

    @property
    def agents(self) -> list[str]:
        """The names of its agents, the validator included."""
        return [*self.team.agents, self.validator.name]

    @with_options_shown(FlowOptions)
    def seed(self, task: str | Payload, /, **options: Unpack[FlowOptions]) -> FlowRun[Job]:
        """Return a run that has not begun.

        Args:
            task: What is to be done: a text, or a `Payload`, whose pictures and documents go along with the task.
            options: Those of `FlowOptions`; ``clients`` may name models by agent's name, too.

        Raises:
            FlowError: The task is empty, or ``clients`` names an unknown agent.
        """
        job = self.job(task, self.strategy)
        return self.flow.seed(job, **self._by_state(options))

    def seed_inside(self, task: str | Payload, options: Mapping[str, Any], around: InnerCalls) -> FlowRun[Job]:
        return self.flow.seed_inside(self.job(task, self.strategy), self._by_state(options), around)

    @with_options_shown(FlowOptions)
    def call(self, task: str | Payload, /, **options: Unpack[FlowOptions]) -> OrchestrationResult:
        """Do a task, with the options of `FlowOptions`; ``result.output`` is what the last step gave.

        Raises:
            FlowFailed: The task was not done; ``error.result`` says what was.
            FlowSuspended: It waits for a person who is not here.
        """
        result: OrchestrationResult = self._drive(self.seed(task, **options), None, is_shared=False)
        return result

    @with_options_shown(FlowOptions)
    async def acall(self, task: str | Payload, /, **options: Unpack[FlowOptions]) -> OrchestrationResult:
        """`call` for asyncio."""
        return await self.arun(self.seed(task, **options))

    @with_options_shown(FlowOptions)
    def stream(self, one: str | Payload | FlowRun[Job], /, **options: Unpack[FlowOptions]) -> Generator[Event]:
        """Do a task, or continue a run, and yield its events; see `Flow.stream`.

        Raises:
            FlowFailed: The task was not done.
        """
        return self._stream(one, options)

    @with_options_shown(FlowOptions)
    def astream(self, one: str | Payload | FlowRun[Job], /, **options: Unpack[FlowOptions]) -> AsyncGenerator[Event]:
        """`stream` for asyncio."""
        return self._astream(one, options)

    @with_options_shown(FlowMapOptions)
    def map(self, tasks: Iterable[str | Payload], **options: Unpack[FlowMapOptions]) -> TaskResults[Any]:
        """Do many tasks, in threads; see `Agent.map`."""
        return self._map(tasks, **map_options(options))

    @with_options_shown(FlowMapOptions)
    async def amap(self, tasks: Iterable[str | Payload], **options: Unpack[FlowMapOptions]) -> TaskResults[Any]:
        """`map` for asyncio."""
        return await self._amap(tasks, **map_options(options))

    @with_options_shown(FlowResumeOptions)
    def resume(
        self, run_id: str, answers: Answers | None = None, **options: Unpack[FlowResumeOptions]
    ) -> OrchestrationResult:
        """Continue a run of the store; see `Flow.resume`."""
        result: OrchestrationResult = self._resume(run_id, answers, options)
        return result

    @with_options_shown(FlowResumeOptions)
    async def aresume(
        self, run_id: str, answers: Answers | None = None, **options: Unpack[FlowResumeOptions]
    ) -> OrchestrationResult:
        """`resume` for asyncio."""
        result: OrchestrationResult = await self._aresume(run_id, answers, options)
        return result

    @with_options_shown(FlowResumeOptions, without=("by", "sink"))
    def replay(self, run_id: str, **options: Unpack[FlowResumeOptions]) -> FlowRun[Job]:
        """Return a stored run, rebuilt from its whole journal; see `Flow.replay`."""
        run: FlowRun[Job] = self.flow.replay(run_id, **self._by_state(options))
        return run

    @with_options_shown(UnstoredFlowOptions)
    def at(self, run_id: str, step: int | str | None = None, **options: Unpack[UnstoredFlowOptions]) -> FlowRun[Job]:
        """Return a stored run as it was after a step, to be read; see `Flow.at`."""
        run: FlowRun[Job] = self.flow.at(run_id, step, **self._by_state(options))
        return run

    @with_options_shown(UnstoredFlowOptions)
    def fork(
        self,
        run_id: str,
        step: int | str | None = None,
        *,
        data: Job | None = None,
        new_run_id: str | None = None,
        by: str = "",
        **options: Unpack[UnstoredFlowOptions],
    ) -> str:
        """Make another run that continues from a step of a stored run; see `Flow.fork`."""
        return self.flow.fork(run_id, step, data=data, new_run_id=new_run_id, by=by, **self._by_state(options))

    if TYPE_CHECKING:

        def run(self, process: FlowRun[Job], sink: Sink | None = None) -> OrchestrationResult: ...
        async def arun(self, process: FlowRun[Job], sink: Sink | None = None) -> OrchestrationResult: ...

    def restore(
        self,
        document: str | bytes,
        *,
        deps: Any = None,
        clients: Clients | None = None,
        signing_key: str | bytes | None = None,
    ) -> FlowRun[Job]:
        """Return a run from its `FlowRun.snapshot`; see `Flow.restore`."""
        options = self._by_state({"clients": clients})
        return self.flow.restore(document, deps=deps, signing_key=signing_key, **options)

    def changed(self, **arguments: Any) -> Orchestrator:
        """Return an orchestrator that differs in these arguments of the class."""
        return type(self)(**{**self._arguments, **arguments})

    @with_options_shown(Policy, without=PYTHONS_OWN)
    def as_function(
        self, name: str | None = None, description: str | None = None, **policy: Unpack[AgentPolicy]
    ) -> Function[[str], Any]:
        """This orchestrator as a function of an agent: it is given a task, and the last step's output is the result.

        See `Flow.as_function`.

        Args:
            name: What the model calls it; the orchestrator's name by default.
            description: What its team is good at, for the model.
            policy: As of `Flow.as_function`.
        """

        def start(task: str) -> Job:
            return self.job(task, self.strategy)

        def returns(job: Job) -> Any:
            return self.team.value_of([*job.outputs.values()][-1]) if job.outputs else None

        described = description or f"Have a team do a task: {', '.join(self.team.agents)}."
        return self.flow.as_function(name, described, start=start, returns=returns, **policy)

    # What `Runnable` asks, of its flow

    def check_options(self, options: Mapping[str, Any], task: Any = None, others: Collection[str] = ()) -> None:
        self.flow.check_options(options, task, others)

    @property
    def runs(self) -> Runs:
        """The runs in its store.

        Raises:
            UsageError: It has no store.
        """
        return self.flow.runs

    def world_of(self, process: FlowRun[Job]) -> World:
        return self.flow.world_of(process)

    def listener_to(self, process: FlowRun[Job]) -> Sink | None:
        return self.flow.listener_to(process)

    @with_options_shown(UnstoredFlowOptions)
    def definition(self, **options: Any) -> Definition:
        return self.flow.definition(**self._by_state(options))

    def definition_of(self, process: FlowRun[Job]) -> Definition:
        return self.flow.definition_of(process)

    def outcomes(self, run_id: str, answers: Answers, definition: Definition) -> Mapping[str, Outcome]:
        return self.flow.outcomes(run_id, answers, definition)

    def check_process(self, process: Any, verb: str) -> None:
        self.flow.check_process(process, verb)

    def plan(self, task: str | Payload) -> Strategy:
        """Return the strategy that a model makes for a task, without executing it.

        Raises:
            FlowError: No strategy could be made.
        """
        rows = [row for row in self.flow.rows if row.source.name.startswith("planning")]
        over = end("planned")
        preview = Flow(
            "planning",
            Job,
            start=self.flow.states["planning"],  # type: ignore[arg-type]
            rows=[
                Row(r.source, r.trigger, over if r.to.name == "executing" else r.to, r.guard, r.action) for r in rows
            ],
            world=self.flow.world,
        )
        try:
            made: Job = preview.call(self.job(task)).output
        except FlowFailed as failed:
            raise FlowError(f"no strategy was made for {task!r:.80}: {failed}") from failed
        return made.plan

    def job(self, task: str | Payload, strategy: Strategy | None = None) -> Job:
        """Return the data with which a run of its flow begins.

        Raises:
            FlowError: The task is empty.
        """
        check("the task", task, isinstance(task, str | Payload) and bool(task), "a text or a Payload", FlowError)
        if isinstance(task, str):
            return Job(task, self.config, strategy)
        text, rest = task.to_text(), tuple([part for part in task.parts if not isinstance(part, Text)])
        check("the task", task, bool(text.strip()), "a Payload with a text that asks for something", FlowError)
        return Job(text, self.config, strategy, seen=Message(role="user", parts=rest) if rest else None)

    def _by_state(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options with clients by state, where they were given by the names of agents."""
        clients = options.get("clients")
        if not isinstance(clients, Mapping):
            return {**options}
        found: dict[Any, Client] = {}
        for whom, client in clients.items():
            keys = self._client_keys.get(whom) if isinstance(whom, str) else [whom]
            if keys is None:
                known = ", ".join(map(repr, self._client_keys))
                raise FlowError(f"clients names {whom!r}, which is no agent: {known} would be right")
            found.update(dict.fromkeys(keys, client))
        return {**options, "clients": found}

    @cached_property
    def _client_keys(self) -> dict[str, list[State[Any]]]:
        """The states that ask an agent, by its name; the planner or validator may be one of the team."""
        found: dict[str, list[State[Any]]] = {}
        for state in (*self._step.live, *self.flow.live):
            if isinstance(state, TeamState):
                found.update({name: [key] for name, key in state.keys_by_agent.items()})
        for state in (*self._step.live, *self.flow.live):
            agent = getattr(state, "agent", None)
            if isinstance(agent, Agent):
                found.setdefault(agent.name, []).append(state)
        return found

    @cached_property
    def _step(self) -> Flow[Any]:
        (member,) = self.flow.states["executing"].members  # type: ignore[attr-defined]
        assert isinstance(member, SubflowState)
        return member.flow

    @property
    def reviewing(self) -> Any:
        """The state that waits for a person to look at an output: a key of ``answers``."""
        return self._step.states["reviewing"]

    @property
    def asking(self) -> Any:
        """The state that waits for a person after a failure: a key of ``answers``."""
        return self.flow.states["asking"]


with_options_shown(Orchestrator, is_change=True)(Orchestrator.changed)

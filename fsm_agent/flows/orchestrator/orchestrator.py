"""An orchestrator: a flow whose plan a model makes, and whose steps are done by a team of agents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fsm_agent.agents.agent import Agent, as_agent
from fsm_agent.errors import UsageError
from fsm_agent.flows.definition.declaring import end
from fsm_agent.flows.definition.states import Row, State, SubflowState
from fsm_agent.flows.errors import FlowError, FlowFailed
from fsm_agent.flows.flow import Flow
from fsm_agent.flows.orchestrator.job import Job
from fsm_agent.flows.orchestrator.result import OrchestrationResult
from fsm_agent.flows.orchestrator.strategy import Blueprint, OrchestratorConfig, Strategy
from fsm_agent.flows.orchestrator.table import WorkingState, orchestrator_flow
from fsm_agent.flows.orchestrator.team import Team
from fsm_agent.flows.process.flow_run import FlowRun
from fsm_agent.messages.event import Event
from fsm_agent.messages.message import Message, Text
from fsm_agent.messages.payload import Payload
from fsm_agent.mistakes import check, wrong

if TYPE_CHECKING:
    from os import PathLike

    from fsm_agent.agents.agent_base import AgentBase
    from fsm_agent.clients.client import Client
    from fsm_agent.flows.driving import Clients
    from fsm_agent.store.runs import Runs
    from fsm_agent.store.store import Store

VALIDATOR = "validator"
_VALIDATES = "You validate the output of a step: does it do what the step is for?"


class Orchestrator:
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
        store: Where its runs are kept; see `Flow`.
        approve: See `Flow`.
        answer: See `Flow`.
        hooks: See `Flow`.
        world: See `Flow`.

    Raises:
        FlowError: There are no agents, two have one name, or the strategy names one that is not there.
    """

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
        store: Runs | Store | str | PathLike[str] | None = None,
        approve: Any = None,
        answer: Callable[[Any], Any] | None = None,
        hooks: Sequence[Any] = (),
        world: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = config or OrchestratorConfig()
        if not isinstance(self.config, OrchestratorConfig):
            raise wrong("config", config, "OrchestratorConfig(max_step_remediations=3)", FlowError)
        check("blueprint", blueprint, isinstance(blueprint, Blueprint | str), "a text or a Blueprint", FlowError)
        check("strategy", strategy, isinstance(strategy, Strategy | None), "a Strategy, or None,", FlowError)
        for role, agent in (("planner", planner), (VALIDATOR, validator)):
            check(
                role,
                agent,
                isinstance(as_agent(agent), Agent | None),
                f"Agent('provider:model', name='{role}')",
                FlowError,
            )
        self.blueprint = blueprint if isinstance(blueprint, Blueprint) else Blueprint(blueprint)
        self.team = Team(agents, descriptions or {})
        self.strategy = strategy
        if strategy is not None:
            self.team.checked(strategy, self.config)
        self.planner: Agent[Any, Any] = as_agent(planner) or Agent(self.team.model, name="planner")
        self.validator = as_agent(validator) or Agent(self.planner.model, name=VALIDATOR, system=_VALIDATES)
        self.flow: Flow[Job] = orchestrator_flow(
            self.team,
            self.blueprint,
            self.config,
            self.planner,
            self.validator,
            strategy is not None,
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

    def seed(
        self, task: str | Payload, *, run_id: str | None = None, deps: Any = None, clients: Clients | None = None
    ) -> FlowRun[Job]:
        """Return a run that has not begun; see `Flow.seed`.

        Args:
            task: What is to be done: a text, or a `Payload`, whose pictures and documents go along with the task.
            run_id: See `Flow.seed`.
            deps: See `Flow.seed`.
            clients: Models by agent's name or by state, in place of those of the agents; for tests, a `Script` each.

        Raises:
            FlowError: The task asks for nothing, or a name of ``clients`` is that of no agent.
        """
        job = self._job(task, self.strategy)
        return self.flow.seed(job, run_id=run_id, deps=deps, clients=self._by_state(clients))

    def call(
        self, task: str | Payload, *, run_id: str | None = None, deps: Any = None, clients: Clients | None = None
    ) -> OrchestrationResult:
        """Do a task, with the arguments of `seed`; a failure is a result as well.

        Raises:
            FlowSuspended: It waits for somebody who is not here.
        """
        return self.run(self.seed(task, run_id=run_id, deps=deps, clients=clients))

    async def acall(
        self, task: str | Payload, *, run_id: str | None = None, deps: Any = None, clients: Clients | None = None
    ) -> OrchestrationResult:
        """`call` for asyncio."""
        return await self.arun(self.seed(task, run_id=run_id, deps=deps, clients=clients))

    def run(self, one: FlowRun[Job], sink: Callable[[Event], Any] | None = None) -> OrchestrationResult:
        """Drive a run from wherever it stands; see `Flow.run`."""
        try:
            return self.result(self.flow.run(one, sink).run)
        except FlowFailed as failed:
            return self.result(failed.run)

    async def arun(self, one: FlowRun[Job], sink: Callable[[Event], Any] | None = None) -> OrchestrationResult:
        """`run` for asyncio."""
        try:
            return self.result((await self.flow.arun(one, sink)).run)
        except FlowFailed as failed:
            return self.result(failed.run)

    def stream(self, one: str | Payload | FlowRun[Job], *, clients: Clients | None = None) -> Generator[Event]:
        """Do a task, or go on with a run, and yield its events; the result is `result` of the run.

        Raises:
            FlowFailed: It ended in a failure.
            UsageError: A run is given with ``clients``, which belong to its `seed`.
        """
        yield from self.flow.stream(self._run_in(one, clients))

    async def astream(
        self, one: str | Payload | FlowRun[Job], *, clients: Clients | None = None
    ) -> AsyncGenerator[Event]:
        """`stream` for asyncio."""
        async for event in self.flow.astream(self._run_in(one, clients)):
            yield event

    def resume(
        self,
        run_id: str,
        answers: Mapping[Any, Any] | None = None,
        *,
        deps: Any = None,
        clients: Clients | None = None,
        by: str = "",
        sink: Callable[[Event], Any] | None = None,
    ) -> OrchestrationResult:
        """Go on with a run of the store; see `Flow.resume`."""
        known = self._by_state(clients)
        try:
            return self.result(self.flow.resume(run_id, answers, deps=deps, clients=known, by=by, sink=sink).run)
        except FlowFailed as failed:
            return self.result(failed.run)

    async def aresume(
        self,
        run_id: str,
        answers: Mapping[Any, Any] | None = None,
        *,
        deps: Any = None,
        clients: Clients | None = None,
        by: str = "",
        sink: Callable[[Event], Any] | None = None,
    ) -> OrchestrationResult:
        """`resume` for asyncio."""
        known = self._by_state(clients)
        try:
            one = await self.flow.aresume(run_id, answers, deps=deps, clients=known, by=by, sink=sink)
            return self.result(one.run)
        except FlowFailed as failed:
            return self.result(failed.run)

    def result(self, run: FlowRun[Job]) -> OrchestrationResult:
        """Return the result of a run, of one that goes on as well."""
        return OrchestrationResult(run, self.team)

    def plan(self, task: str | Payload) -> Strategy:
        """Return the strategy that a model makes for a task, and do nothing of it.

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
            made: Job = preview.call(self._job(task)).data
        except FlowFailed as failed:
            raise FlowError(f"no strategy was made for {task!r:.80}: {failed}") from failed
        return made.plan

    def _job(self, task: str | Payload, strategy: Strategy | None = None) -> Job:
        check("the task", task, isinstance(task, str | Payload) and bool(task), "a text or a Payload", FlowError)
        if isinstance(task, str):
            return Job(task, self.config, strategy)
        text, rest = task.to_text(), tuple([part for part in task.parts if not isinstance(part, Text)])
        check("the task", task, bool(text.strip()), "a Payload with a text that asks for something", FlowError)
        return Job(text, self.config, strategy, seen=Message(role="user", parts=rest) if rest else None)

    def _run_in(self, one: str | Payload | FlowRun[Job], clients: Clients | None) -> FlowRun[Job]:
        if isinstance(one, str | Payload):
            return self.seed(one, clients=clients)
        if clients is not None:
            raise UsageError("clients is given with a FlowRun, which has its own: seed(…, clients=…) is right")
        return one

    def _by_state(self, clients: Clients | None) -> Clients | None:
        """Return clients that are given by the names of agents by the states that ask these."""
        if not isinstance(clients, Mapping):
            return clients
        found: dict[Any, Client] = {}
        for whom, client in clients.items():
            keys = self._client_keys.get(whom) if isinstance(whom, str) else [whom]
            if keys is None:
                known = ", ".join(map(repr, self._client_keys))
                raise FlowError(f"clients names {whom!r}, which is no agent: {known} would be right")
            found.update(dict.fromkeys(keys, client))
        return found

    @cached_property
    def _client_keys(self) -> dict[str, list[State[Any]]]:
        """The states that ask an agent, by its name; the planner or validator may be one of the team."""
        found: dict[str, list[State[Any]]] = {}
        for state in (*self._step.live, *self.flow.live):
            if isinstance(state, WorkingState):
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

"""The orchestrator, its states and its table.  Its data and its result are in `fsm_agent.flows.orchestrator.job`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import Annotated, Any, TypeAlias

import pydantic
from typing_extensions import Unpack

from fsm_agent.agents.agent import Agent
from fsm_agent.agents.agent_base import AgentBase
from fsm_agent.errors import FlowError
from fsm_agent.flows.declare import ask, each, end, execute, pause, subflow, wait
from fsm_agent.flows.flow import Flow, FlowVerbs
from fsm_agent.flows.orchestrator import plan as at
from fsm_agent.flows.orchestrator.job import STEP_SPENT, TOTAL_SPENT, Job, OrchestrationResult, Team
from fsm_agent.flows.orchestrator.plan import (
    Accept,
    Blueprint,
    GiveUp,
    Matches,
    NewSteps,
    OrchestratorConfig,
    Reject,
    Remedy,
    StepWork,
    Strategy,
    Supply,
    Verdict,
)
from fsm_agent.flows.orchestrator.prompts import Requests, templates_of
from fsm_agent.flows.process import RunContext
from fsm_agent.flows.record import FlowLimits
from fsm_agent.flows.run import FlowFailed, FlowRun
from fsm_agent.flows.states import CallState, EachState, LiveState, Row, State, WaitState, event_name
from fsm_agent.flows.stored_runs import Clients
from fsm_agent.flows.transition_table import EVERY, cases_of, reached_from
from fsm_agent.flows.values import ANY, AnswerTypes, check_resolved
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import AgentPolicy
from fsm_agent.messages.message import Message, Payload, Text
from fsm_agent.prompts.library import Prompts
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.environment import Client
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Store
from fsm_agent.validation import require, safe_repr

AnyJob: TypeAlias = str | Payload | Job

VALIDATOR = "validator"
STEPS = 100_000  # the maximum number of states in a run, far above what the limits of the orchestrator allow


class TeamState(CallState[StepWork, Any]):
    """A state that asks one of the team's agents and accepts an output of that agent's type."""

    def __init__(self, task: Callable[[StepWork], Any], team: Team, within_s: float | None) -> None:
        super().__init__(task, lambda w: team.agents[w.agent], (), "working", within_s=within_s)
        self.answer_types = _Outputs("working", list(dict.fromkeys(agent.output for agent in team.agents.values())))
        self.agents = team.agents

    def prompt_for(self, agent: Agent[Any, Any], task: Any) -> Any:
        return agent.prompt

    @property
    def client_keys(self) -> Sequence[object]:
        return (self, *self.agents.values())


class _Outputs(AnswerTypes):
    """The output types of a team.  They may look the same in JSON, because each output is stored with its agent."""

    @property
    def cases(self) -> tuple[Any, ...]:
        return (ANY,)

    def check(self, where: str) -> None:
        for kind in self.types:
            check_resolved(where, kind)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TeamFlow(Flow[Job]):
    """An orchestrator's flow.  Its results know the team's output types."""

    team: Team

    def make_result(self, run: FlowRun[Job]) -> OrchestrationResult:
        return OrchestrationResult(run, self.team)


def step_flow(
    team: Team, requests: Requests, planner: Agent[Any, Any], validator: Agent[Any, Any], config: OrchestratorConfig
) -> tuple[Flow[StepWork], WaitState[StepWork, Accept | Reject]]:
    """Return the flow of one step, and the state in which a person reviews the output.

    The flow fills in the intent, asks the agent, validates the output, and lets a person review it.
    """

    def drafted(w: StepWork, value: Any) -> StepWork:
        return replace(w, output=team.output_of(w.agent, value))

    preparing = execute(name="preparing")(at.intent_of)
    matching = ask(planner, Matches, name="matching")(requests.matching)
    wording = ask(planner, str, name="wording")(requests.wording)
    working = TeamState(requests.working, team, config.step_timeout_s)
    validating = ask(validator, Verdict, name="validating")(requests.validating)
    reviewing: WaitState[StepWork, Accept | Reject] = wait(Accept, Reject, name="reviewing")(at.output_text)
    ended, broken = end("ended"), end("broken")
    rows: list[Row[StepWork]] = []
    if config.llm_names:
        rows += [
            preparing.done(matching, when=at.may_match),
            matching.done(preparing, do=at.matched),
            matching.failed(preparing, do=at.not_matched),
        ]
    rows += [
        preparing.done(broken, when=at.is_unmatched, do=at.unmatched),
        preparing.done(broken, when=at.is_empty, do=at.empty),
        preparing.done(wording if config.llm_intents else working, do=at.asked),
        preparing.failed(broken, do=at.broke),
        working.done(validating, when=at.must_validate, do=drafted),
        working.done(reviewing, when=at.must_approve, do=drafted),
        working.done(ended, do=drafted),
        working.failed(broken, do=at.broke),
        validating.done(broken, when=at.is_refused, do=at.refused),
        validating.done(reviewing, when=at.must_approve),
        validating.done(ended),
        validating.failed(broken, do=at.broke),
        reviewing.done(ended, of=Accept, do=at.accepted),
        reviewing.done(broken, of=Reject, do=at.rejected),
    ]
    if config.llm_intents:
        rows += [wording.done(working, do=at.reworded), wording.failed(broken, do=at.broke)]
    if config.step_timeout_s:
        rows.append(working.elapsed(broken, do=at.timed_out))
    return Flow("step", StepWork, start=preparing, rows=rows), reviewing


def _asked(j: Job) -> str:
    return "; ".join(filter(None, [f"The step {j.failed!r} failed: {j.error}", j.spent]))


def extended_rows(own: Sequence[Row[Job]], rows: Sequence[Row[Job]], start: LiveState[Job, Any]) -> list[Row[Job]]:
    """Return the user's rows followed by the rows of another table, except those that could then never be taken."""
    taken = {(event, row.guard) for row in own for event in _events(row)}
    left = [row for row in rows if not all(taken & {(event, None), (event, row.guard)} for event in _events(row))]
    reached = reached_from([start, EVERY], [*own, *left])
    return [*own, *[row for row in left if row.source.name in reached]]


def _events(row: Row[Any]) -> set[tuple[State[Any], str]]:
    """Return a row's state paired with each of the row's triggers."""
    return {(row.source, event_name(row.trigger, case)) for case in cases_of(row)}


class Orchestrator(FlowVerbs[AnyJob, Job, Any, OrchestrationResult]):
    """A team of agents, and a table that has them plan, execute, validate, retry and redesign.

    ``flow`` is the orchestrator's flow.  The flow's states are attributes of the orchestrator; you can answer them, and
    add rows to them with `extended`.

    Args:
        agents: The agents that carry out the steps, with different names.  An agent may be an `Agent`, an `AgentBase`,
            a plain or coroutine function that takes the task, a `Function` that takes one string, such as
            ``flow.as_function(…)``, or an object with an ``expertise`` and ``execute(task)``.  Agents, flows and a
            `Function` are part of the run.  Other code is called again when the run is resumed, unless it had already
            returned.
        blueprint: A guide for the planner, as text or a `Blueprint`.
        strategy: A strategy, or None to let the planner make one.
        config: The limits.
        planner: The agent that makes strategies and decisions; by default, an agent with the first model in the team.
        validator: The agent that answers PASS or FAIL for an output; by default, an agent with the planner's model.
        descriptions: What the agents can do, by name.  These texts replace the agents' expertise or system prompts.
        prompts: Prompts that replace some of the package's ``prompts/orchestrator``: ``Prompts("my_team")`` for your
            files, or a mapping such as ``{"deciding": "…"}``.  Each is a template with the same variables as the prompt
            that it replaces.  The planner gets ``planning``, ``planning_simply`` (if it gave no plan), ``deciding``
            (after a failure) and ``redesigning``.  It also gets ``matching`` with ``llm_names``, and ``wording`` with
            ``llm_intents``.  The agent of a step gets ``working``, and the validator gets ``validating``.  ``rules``
            says how to write steps, and ``validator`` is the validator's system prompt.
        name: The orchestrator's name in its runs.  Orchestrators that share a store need different names.
        store: The store that keeps the runs; see `Flow`.
        approve: See `Flow`.
        answer: See `Flow`.
        hooks: See `Flow`.
        environment: See `Flow`.

    Raises:
        FlowError: If agents are missing or share a name, the strategy names an unknown agent, or a prompt is wrong.

    Examples:
        >>> plan = Strategy("an article", (Step("facts", "find facts", "{{ task }}", "research"),))
        >>> team = Orchestrator([Agent(Script("3 facts"), name="research")], strategy=plan)
        >>> team.call("The sky.").output
        '3 facts'
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
        prompts: Prompts | Mapping[str, Prompt[Any] | str] | None = None,
        name: str = "orchestrator",
        store: Runs | Store | str | PathLike[str] | None = None,
        approve: Any = None,
        answer: Callable[[Any], Any] | None = None,
        hooks: Sequence[Any] = (),
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        self._arguments = {**locals()}  # for `changed`
        del self._arguments["self"]
        self.name = name
        self.config = OrchestratorConfig() if config is None else config
        right = "an OrchestratorConfig such as OrchestratorConfig(max_step_remediations=3)"
        require("config", config, isinstance(self.config, OrchestratorConfig), right, FlowError)
        for role, agent in (("planner", planner), (VALIDATOR, validator)):
            require(role, agent, isinstance(agent, Agent | None), f"Agent('provider:model', name='{role}')", FlowError)
        self.blueprint = blueprint if isinstance(blueprint, Blueprint) else Blueprint(blueprint)
        self.team = Team(agents, {} if descriptions is None else descriptions)
        self.strategy = strategy
        if strategy is not None:
            self.team.checked(strategy, self.config)
        self.team.check_abandonment(self.config.step_timeout_s)
        templates = templates_of({} if prompts is None else prompts)
        self.planner: Agent[Any, Any] = planner or Agent(self.team.model, name="planner")
        self.validator = validator or Agent(self.planner.model, name=VALIDATOR, system=templates[VALIDATOR])
        requests = Requests(templates, self.blueprint, self.team)
        self._step, self.reviewing = step_flow(self.team, requests, self.planner, self.validator, self.config)
        self._rows = tuple[Row[Job], ...]()
        self._make_states(requests)
        self.flow: Flow[Job] = TeamFlow(
            name,
            Job,
            team=self.team,
            start=self.planning if strategy is None else self.executing,
            rows=self._own_rows(),
            limits=FlowLimits(steps=STEPS, deadline_s=self.config.deadline_s),
            store=store,
            approve=approve,
            answer=answer,
            hooks=hooks,
            environment={} if environment is None else environment,
        )

    def _make_states(self, requests: Requests) -> None:
        config = self.config
        check = pydantic.AfterValidator(partial(self.team.checked, config=config))
        possible: Any = Annotated[Strategy, check]
        possible_steps: Any = Annotated[NewSteps, check]
        self._possible = possible
        self.planning: CallState[Job, Strategy] = ask(self.planner, possible, name="planning")(requests.planning)
        self.planning_simply: CallState[Job, Strategy] = ask(self.planner, possible, name="planning_simply")(
            requests.planning_simply
        )
        one = subflow("step", self._step, lambda w: w)
        self.executing: EachState[Job, Any] = each("executing", one, self.team.wave, parallel=config.parallel)
        rests = config.min_step_interval_s > 0
        self._following: LiveState[Job, Any] = pause("resting", config.min_step_interval_s) if rests else self.executing
        self.deciding = ask(self.planner, Remedy, name="deciding")(requests.deciding)
        self.redesigning: CallState[Job, NewSteps] = ask(self.planner, possible_steps, name="redesigning")(
            requests.redesigning
        )
        self.asking: WaitState[Job, Supply | Strategy | GiveUp] = wait(Supply, possible, GiveUp, name="asking")(_asked)
        self.completed = end("completed")
        self.step_spent, self.total_spent = end("step_spent", failed=STEP_SPENT), end("total_spent", failed=TOTAL_SPENT)
        self.unrecoverable = end("unrecoverable", failed="no strategy could be made")
        self.given_up = end("given_up", failed="a person ended it")

    def _own_rows(self) -> list[Row[Job]]:
        planning, executing, following = self.planning, self.executing, self._following
        deciding, redesigning, asking, team = self.deciding, self.redesigning, self.asking, self.team
        is_escalated = self.config.escalate
        rests: list[Row[Job]] = []
        if following is not executing:
            rests = [
                planning.done(following, when=Job.has_begun, do=Job.planned),
                self.planning_simply.done(following, when=Job.has_begun, do=Job.planned),
                following.elapsed(executing),
            ]
        return [
            *rests,
            *self._rows_of_planning(executing),
            executing.done(asking if is_escalated else self.step_spent, when=Job.is_step_spent, do=Job.noted),
            executing.done(asking if is_escalated else self.total_spent, when=Job.is_total_spent, do=Job.noted),
            executing.done(following, when=Job.is_transient, do=Job.retried_at_once),
            executing.done(deciding, when=Job.has_failed, do=Job.noted),
            executing.done(self.completed, when=Job.is_last, do=Job.noted),
            executing.done(following, do=Job.noted),
            deciding.done(following, of=Remedy.RETRY, do=Job.retried),
            deciding.done(redesigning, of=Remedy.TACTICAL),
            deciding.done(planning, of=Remedy.FULL, do=Job.cleared),
            deciding.done(following, of=Remedy.ANOTHER_AGENT, when=team.has_another, do=team.reassigned),
            deciding.done(planning, of=Remedy.ANOTHER_AGENT, do=Job.cleared),
            deciding.done(asking, of=Remedy.ASK),
            deciding.failed(planning, do=Job.cleared),
            redesigning.done(following, when=Job.fits, do=Job.redesigned),
            redesigning.done(planning, do=Job.cleared),
            redesigning.failed(planning, do=Job.cleared),
            asking.done(self.completed, of=Supply, when=Job.is_last_supplied, do=Job.supplied),
            asking.done(following, of=Supply, do=Job.supplied),
            asking.done(following, of=self._possible, do=Job.imposed),
            asking.done(self.given_up, of=GiveUp, do=Job.abandon),
        ]

    def _rows_of_planning(self, planned: State[Job]) -> list[Row[Job]]:
        """Return the rows that are taken until there is a strategy."""
        return [
            self.planning.done(planned, do=Job.planned),
            self.planning.failed(self.planning_simply),
            self.planning_simply.done(planned, do=Job.planned),
            self.planning_simply.failed(self.unrecoverable),
        ]

    def __repr__(self) -> str:
        return f"Orchestrator({self.team})"

    @property
    def agents(self) -> list[str]:
        """The names of the agents, including the validator."""
        return [*self.team.agents, self.validator.name]

    def changed(self, **arguments: Any) -> Orchestrator:
        """Return a copy with other arguments, and with the rows that you added."""
        made = type(self)(**{**self._arguments, **arguments})
        if not self._rows:
            return made
        states = {
            state: getattr(made, name, state)
            for name, state in vars(self).items()
            if name[0] != "_" and isinstance(state, State)
        }
        rows = [copy(row) for row in self._rows]
        for row in rows:
            row.source, row.to = states.get(row.source, row.source), states.get(row.to, row.to)
        return made.extended(rows)

    def extended(self, rows: Sequence[Row[Job]]) -> Orchestrator:
        """Return an orchestrator with your rows, which are tried before its own rows.

        If one of your rows has no guard, or the same guard as the orchestrator's row for the same case, it replaces
        that row.  States that can no longer be reached are left out.  The data is a `Job`, whose methods are actions.

        Args:
            rows: Rows from the orchestrator's states and from your states, such as
                ``team.deciding.done(team.asking, of=Remedy.FULL)``.

        Raises:
            FlowError: If the table is wrong; see `Flow`.
        """
        for row in rows:
            require(
                "a row", row, isinstance(row, Row), "a row that a state makes, such as state.done(target)", FlowError
            )
        table = extended_rows(rows, self.flow.rows, self.flow.start)
        made = copy(self)
        made._rows = tuple([row for row in (*rows, *self._rows) if row in table])
        made.flow = replace(self.flow, rows=table)
        return made

    def plan(self, task: str | Payload) -> Strategy:
        """Have the planner make a strategy for a task, and return it without executing it.

        Raises:
            FlowError: If no strategy could be made.
        """
        rows = self._rows_of_planning(end("planned"))
        preview = Flow("planning", Job, start=self.planning, rows=rows, environment=self.flow.environment)
        try:
            made: Job = preview.call(self.job(task)).output
        except FlowFailed as failed:
            raise FlowError(f"no strategy was made for {safe_repr(task)}: {failed}") from failed
        return made.plan

    def job(self, task: str | Payload, strategy: Strategy | None = None) -> Job:
        """Return the data for a new run.

        Raises:
            FlowError: If the task is empty.
        """
        text, parts = (task.to_text(), task.parts) if isinstance(task, Payload) else (task, ())
        is_something = isinstance(text, str) and bool(text.strip())
        require("the task", task, is_something, "text that asks for something, or a Payload with it", FlowError)
        rest = tuple([part for part in parts if not isinstance(part, Text)])
        return Job(text, self.config, strategy, seen=Message(role="user", parts=rest) if rest else None)

    def as_function(
        self, name: str | None = None, description: str | None = None, **policy: Unpack[AgentPolicy]
    ) -> Function[[str], Any]:
        """Return this orchestrator as a function for an agent.  It takes a task and returns the last step's output.

        See `Flow.as_function`.

        Args:
            name: The name of the function for the model; by default, the name of the orchestrator.
            description: What the team is good at, for the model.
            policy: See `Flow.as_function`.
        """

        def start(task: str) -> Job:
            return self.job(task, self.strategy)

        def returns(job: Job) -> Any:
            return self.team.value_of([*job.outputs.values()][-1]) if job.outputs else None

        described = description or f"Have a team do a task: {', '.join(self.team.agents)}."
        return self.flow.as_function(name, described, start=start, returns=returns, **policy)

    @property
    def _flow(self) -> Flow[Job]:
        return self.flow

    @property
    def store(self) -> Any:
        return None if self.flow.store is None else self.flow.runs.all

    def _unstored(self, data: AnyJob, options: Mapping[str, Any]) -> FlowRun[Job]:
        return super()._unstored(data if isinstance(data, Job) else self.job(data, self.strategy), options)

    def _run_context(self, deps: Any = None, clients: Clients | None = None) -> RunContext:
        return self.flow._run_context(deps, self._by_object(clients) if isinstance(clients, Mapping) else clients)

    def _by_object(self, clients: Clients) -> dict[Any, Client]:
        """Return clients by state or member.

        An agent's name stands for the member and for the states that ask it, except states with clients of their own.
        """
        named = self._named()
        names = [whom for whom in clients if isinstance(whom, str)]
        if unknown := [name for name in names if name not in named]:
            known = ", ".join(map(repr, named))
            raise FlowError(f"clients: expected names of agents ({known}), got {safe_repr(unknown[0])}")
        found = {whom: clients[name] for name in names for whom in named[name]}
        return found | {whom: client for whom, client in clients.items() if not isinstance(whom, str)}

    def _named(self) -> dict[str, list[Any]]:
        """Return members and states that ask agents, by agent name.  The planner or validator may be a member."""
        found: dict[str, list[Any]] = {name: [agent] for name, agent in self.team.agents.items()}
        for state in (*self._step.live, *self.flow.live):
            if isinstance(agent := getattr(state, "agent", None), Agent):
                found.setdefault(agent.name, []).append(state)
        return found

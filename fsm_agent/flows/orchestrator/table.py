"""The states of an orchestrator and their table, and those of each of its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

from fsm_agent._internal.lazy_import import pydantic
from fsm_agent.agents.agent import Agent
from fsm_agent.flows.definition.declare import call, each, end, execute, failure, pause, subflow, wait
from fsm_agent.flows.definition.states import CallState, EachState, End, LiveState, Row, State, WaitState, event_name
from fsm_agent.flows.definition.table import cases_of
from fsm_agent.flows.flow import Flow
from fsm_agent.flows.orchestrator import work as at
from fsm_agent.flows.orchestrator.job import STEP_SPENT, TOTAL_SPENT, Job
from fsm_agent.flows.orchestrator.requests import Requests
from fsm_agent.flows.orchestrator.result import OrchestrationResult
from fsm_agent.flows.orchestrator.strategy import (
    Accept,
    GiveUp,
    Matches,
    NewSteps,
    OrchestratorConfig,
    Reject,
    Remedy,
    Strategy,
    Supply,
    Verdict,
)
from fsm_agent.flows.orchestrator.team import Team
from fsm_agent.flows.orchestrator.work import StepWork
from fsm_agent.flows.process.flow_process import CallChild, child_of
from fsm_agent.flows.process.flow_run import FlowRun
from fsm_agent.flows.values import ANY, AnswerTypes, check_resolved


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


class StepStates:
    """The states of one step: fill in what is asked, ask, validate, let a person look.

    Args:
        team: The agents.
        requests: What models are asked.
        planner: Matches names and words intents.
        validator: Validates outputs.
        config: The limits.
    """

    def __init__(
        self,
        team: Team,
        requests: Requests,
        planner: Agent[Any, Any],
        validator: Agent[Any, Any],
        config: OrchestratorConfig,
    ) -> None:
        self._team, self._config = team, config
        self.preparing = execute(name="preparing")(at.filled)
        self.matching = call(planner, Matches, name="matching")(requests.matching)
        self.wording = call(planner, str, name="wording")(requests.wording)
        self.working = TeamState(requests.working, team, config.step_timeout_s)
        self.validating = call(validator, Verdict, name="validating")(requests.validating)
        self.reviewing: WaitState[StepWork, Accept | Reject] = wait(Accept, Reject, name="reviewing")(at.output_text)
        self.ended, self.broken = end("ended"), end("broken")

    def flow(self) -> Flow[StepWork]:
        """Return the flow of one step."""
        preparing, working, ended, broken = self.preparing, self.working, self.ended, self.broken
        rows: list[Row[StepWork]] = [
            *self._rows_of_names(),
            preparing.done(broken, when=at.is_unmatched, do=at.unmatched),
            preparing.done(broken, when=at.is_empty, do=at.empty),
            *self._rows_of_intents(),
            preparing.failed(broken, do=at.broke),
            working.done(self.validating, when=at.must_validate, do=self._drafted),
            working.done(self.reviewing, when=at.must_approve, do=self._drafted),
            working.done(ended, do=self._drafted),
            working.failed(broken, do=at.broke),
            *([working.elapsed(broken, do=at.timed_out)] if self._config.step_timeout_s else []),
            self.validating.done(broken, when=at.is_refused, do=at.refused),
            self.validating.done(self.reviewing, when=at.must_approve),
            self.validating.done(ended),
            self.validating.failed(broken, do=at.broke),
            self.reviewing.done(ended, of=Accept, do=at.accepted),
            self.reviewing.done(broken, of=Reject, do=at.rejected),
        ]
        return Flow("step", StepWork, start=preparing, rows=rows)

    def _rows_of_names(self) -> list[Row[StepWork]]:
        """Return the rows of the model that is asked what a placeholder means."""
        if not self._config.llm_names:
            return []
        return [
            self.preparing.done(self.matching, when=at.may_match),
            self.matching.done(self.preparing, do=at.matched),
            self.matching.failed(self.preparing, do=at.not_matched),
        ]

    def _rows_of_intents(self) -> list[Row[StepWork]]:
        """Return the rows from the filled intent to the agent."""
        if not self._config.llm_intents:
            return [self.preparing.done(self.working, do=at.asked)]
        return [
            self.preparing.done(self.wording, do=at.asked),
            self.wording.done(self.working, do=at.reworded),
            self.wording.failed(self.broken, do=at.broke),
        ]

    def _drafted(self, w: StepWork, value: Any) -> StepWork:
        return replace(w, output=self._team.output_of(w.agent, value))


class JobStates:
    """The states of an orchestrator, and the rows between them.

    Args:
        team: The agents.
        requests: What models are asked.
        planner: Plans and decides.
        step: The flow of one step.
        config: The limits.
    """

    def __init__(
        self,
        team: Team,
        requests: Requests,
        planner: Agent[Any, Any],
        step: Flow[StepWork],
        config: OrchestratorConfig,
    ) -> None:
        self._team, self._config = team, config
        check = pydantic.AfterValidator(partial(team.checked, config=config))
        possible: Any = Annotated[Strategy, check]
        possible_steps: Any = Annotated[NewSteps, check]
        self._possible = possible
        self.planning: CallState[Job, Strategy] = call(planner, possible, name="planning")(requests.planning)
        self.planning_simply: CallState[Job, Strategy] = call(planner, possible, name="planning_simply")(
            requests.planning_simply
        )
        one = subflow("step", step, lambda w: w)
        self.executing: EachState[Job, Any] = each("executing", one, team.wave, parallel=config.parallel)
        rests = config.min_step_interval_s > 0
        self.following: LiveState[Job, Any] = pause("resting", config.min_step_interval_s) if rests else self.executing
        self.deciding = call(planner, Remedy, name="deciding")(requests.deciding)
        self.redesigning: CallState[Job, NewSteps] = call(planner, possible_steps, name="redesigning")(
            requests.redesigning
        )
        self.asking: WaitState[Job, Supply | Strategy | GiveUp] = wait(Supply, possible, GiveUp, name="asking")(_asked)
        self.completed = end("completed")
        self.step_spent, self.total_spent = failure("step_spent", STEP_SPENT), failure("total_spent", TOTAL_SPENT)
        self.unrecoverable = failure("unrecoverable", "no strategy could be made")
        self.given_up = failure("given_up", "a person ended it")

    @property
    def by_name(self) -> dict[str, State[Any]]:
        """The states by name."""
        return {state.name: state for state in vars(self).values() if isinstance(state, State)}

    def rows(self) -> list[Row[Job]]:
        """Return the table."""
        return [
            *self._rows_of_rest(),
            *self.rows_of_planning(self.executing),
            *self._rows_of_steps(),
            *self._rows_of_remedies(),
            *self._rows_of_people(),
        ]

    def rows_of_planning(self, planned: State[Job]) -> list[Row[Job]]:
        """Return the rows that lead to a strategy."""
        return [
            self.planning.done(planned, do=Job.planned),
            self.planning.failed(self.planning_simply),
            self.planning_simply.done(planned, do=Job.planned),
            self.planning_simply.failed(self.unrecoverable),
        ]

    def _rows_of_rest(self) -> list[Row[Job]]:
        """Return the rows of the time between steps."""
        if self.following is self.executing:
            return []
        return [
            self.planning.done(self.following, when=Job.has_begun, do=Job.planned),
            self.planning_simply.done(self.following, when=Job.has_begun, do=Job.planned),
            self.following.elapsed(self.executing),
        ]

    def _rows_of_steps(self) -> list[Row[Job]]:
        """Return the rows after steps: what failed first, then what is left."""
        executing, is_escalated = self.executing, self._config.escalate
        return [
            executing.done(self.asking if is_escalated else self.step_spent, when=Job.is_step_spent, do=Job.noted),
            executing.done(self.asking if is_escalated else self.total_spent, when=Job.is_total_spent, do=Job.noted),
            executing.done(self.following, when=Job.is_transient, do=Job.retried_at_once),
            executing.done(self.deciding, when=Job.has_failed, do=Job.noted),
            executing.done(self.completed, when=Job.is_last, do=Job.noted),
            executing.done(self.following, do=Job.noted),
        ]

    def _rows_of_remedies(self) -> list[Row[Job]]:
        """Return the rows of a decision about a step that failed."""
        deciding, redesigning, planning = self.deciding, self.redesigning, self.planning
        return [
            deciding.done(self.following, of=Remedy.RETRY, do=Job.retried),
            deciding.done(redesigning, of=Remedy.TACTICAL),
            deciding.done(planning, of=Remedy.FULL, do=Job.cleared),
            deciding.done(
                self.following, of=Remedy.ANOTHER_AGENT, when=self._team.has_another, do=self._team.reassigned
            ),
            deciding.done(planning, of=Remedy.ANOTHER_AGENT, do=Job.cleared),
            deciding.done(self.asking, of=Remedy.ASK),
            deciding.failed(planning, do=Job.cleared),
            redesigning.done(self.following, when=Job.fits, do=Job.redesigned),
            redesigning.done(planning, do=Job.cleared),
            redesigning.failed(planning, do=Job.cleared),
        ]

    def _rows_of_people(self) -> list[Row[Job]]:
        """Return the rows of a person's answer."""
        return [
            self.asking.done(self.completed, of=Supply, when=Job.is_last_supplied, do=Job.supplied),
            self.asking.done(self.following, of=Supply, do=Job.supplied),
            self.asking.done(self.following, of=self._possible, do=Job.imposed),
            self.asking.done(self.given_up, of=GiveUp, do=Job.abandon),
        ]


def _asked(j: Job) -> str:
    return "; ".join(filter(None, [f"The step {j.failed!r} failed: {j.error}", j.spent]))


def extended_rows(own: Sequence[Row[Job]], rows: Sequence[Row[Job]], start: LiveState[Job, Any]) -> list[Row[Job]]:
    """Return a table with rows before those of another, without what then is never taken.

    Args:
        own: The rows that are tried first.
        rows: The other table.
        start: The first state.
    """
    taken = {(event, row.guard) for row in own for event in _events(row)}
    left = [row for row in rows if not all(taken & {(event, None), (event, row.guard)} for event in _events(row))]
    reached: set[State[Any]] = set()
    waiting: list[State[Any]] = [start]
    while waiting:
        if (state := waiting.pop()) not in reached:
            reached.add(state)
            waiting += [row.to for row in (*own, *left) if row.source is state]
    return [*own, *[row for row in left if row.source in reached]]


def _events(row: Row[Any]) -> set[tuple[State[Any], str]]:
    """Return the state of a row with each of the triggers that the row is for."""
    return {(row.source, event_name(row.trigger, case)) for case in cases_of(row)}

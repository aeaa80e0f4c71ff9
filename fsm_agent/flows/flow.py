"""The `Flow` class: a state machine whose states wait for agents, functions, people, time and other flows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from os import PathLike
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

from typing_extensions import ParamSpec, TypedDict, Unpack

from fsm_agent.agents import batch
from fsm_agent.agents.agent import Agent
from fsm_agent.agents.batch import CONCURRENCY, Progress, TaskResults
from fsm_agent.agents.handoffs import check_policy
from fsm_agent.agents.hooks import Listener
from fsm_agent.agents.runnable import (
    Result,
    Runnable,
    Sink,
    abegin,
    aclaim_process,
    arun,
    astream,
    begin,
    check_process,
    check_sink,
    claim,
    run,
    stream,
)
from fsm_agent.agents.stored_runs import run_name
from fsm_agent.agents.task_messages import check_needs
from fsm_agent.call.outcomes import Outcome
from fsm_agent.call.snapshots import lost_approval
from fsm_agent.errors import SnapshotError, UsageError, hint
from fsm_agent.flows import (
    activities,  # noqa: F401  # registers the activities of flows
    parallel,  # noqa: F401  # registers the members of states
)
from fsm_agent.flows.as_function import function_of
from fsm_agent.flows.checks import NO_AGENTS, Agents, check_agents, check_names
from fsm_agent.flows.definition import FlowDefinition, Upgrade, agents_of, check_clients, functions_of
from fsm_agent.flows.process import RunContext
from fsm_agent.flows.record import FlowLimits
from fsm_agent.flows.run import FlowResult, FlowRun, restore
from fsm_agent.flows.states import D, LiveState, Row
from fsm_agent.flows.stored_runs import Answers, Clients, FlowRuns, Task, attach_journal, factory_of, outcomes_of
from fsm_agent.foreign_names import KnownArguments
from fsm_agent.functions.context import LATER, GivenDeps, Made, check_deps, is_maker
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import AgentPolicy
from fsm_agent.messages.events import Event
from fsm_agent.runtime.environment import Approve, Client, Environment
from fsm_agent.runtime.run_function import InnerCalls, current_depth
from fsm_agent.store.checks import ended_run
from fsm_agent.store.claiming import ProcessFactory
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Store

P = ParamSpec("P", default=...)  # any arguments if they are the fields of the data
R = TypeVar("R")
Output = TypeVar("Output", covariant=True)


class FlowChanges(TypedDict, Generic[D], total=False):
    """The arguments of `Flow.changed`, which are those of `Flow`."""

    name: str
    data: type[D]
    start: LiveState[D, Any]
    rows: Sequence[Row[D]]
    limits: FlowLimits
    version: int
    upgrades: Mapping[int, Upgrade | Sequence[Upgrade]]
    store: Runs | Store | str | PathLike[str] | None
    approve: Approve[Any] | None
    answer: Callable[[Any], Any] | None
    hooks: Sequence[Any]
    agents: Agents
    environment: Mapping[str, Any]


class FlowVerbs(Runnable[Result], Generic[Task, D, Output, Result]):
    """The methods that run a flow or an orchestrator.  The type parameters are the task, data, output and result."""

    hooks: Sequence[Any]
    store: Any
    approve: Any
    answer: Any
    environment: Mapping[str, Any]
    _process_type: ClassVar[type[Any]] = FlowRun

    @property
    def _flow(self) -> Flow[D]:
        return cast("Flow[D]", self)

    def prepare(
        self,
        data: Task,
        /,
        *,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
    ) -> FlowRun[D]:
        """Return a run that has not begun.  You can drive it with `run`, or step by step.

        Args:
            data: The data that the run begins with.  For an orchestrator, this is the task.
            deps: See `call`.
            clients: See `call`.
            extra: See `call`.
            by: See `call`.
            run_id: See `call`.

        Raises:
            FlowError: If the data has the wrong type.
        """
        return self._prepare(data, {"deps": deps, "clients": clients, "extra": extra, "by": by, "run_id": run_id})

    def call(
        self,
        data: Task,
        /,
        *,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
    ) -> Result:
        """Run the flow and return its result.

        ``result.output`` is the flow's final data, or an orchestrator's last output.

        Args:
            data: The data that the run begins with.  For an orchestrator, this is the task: text, or a `Payload` with
                images and documents.
            deps: The value that functions find in their `Context`, or a function of ``(agent, extra, user)`` that
                makes it.
            clients: Models by state, which replace the models of the agents.  In tests, pass a `Script` for each state.
            extra: Your own JSON data.  It is saved in the record.
            by: The name of the user who starts the run, as provided by your login.  It is saved in the record and
                passed to a ``deps`` function.
            run_id: The name of the run in the flow's store, or None for a new name.  If the store has a run with this
                name and the same data, that run is continued.

        Raises:
            FlowError: If the data has the wrong type.
            FlowFailed: If the run failed; ``error.result`` is the result so far.
            FlowSuspended: If the run waits for a person, or until a distant time; see ``error.run``.
        """
        options = {"deps": deps, "clients": clients, "extra": extra, "by": by, "run_id": run_id}
        return run(self, claim(self, self._prepare(data, options)), is_shared=False)

    async def acall(
        self,
        data: Task,
        /,
        *,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
    ) -> Result:
        """The async version of `call`."""
        options = {"deps": deps, "clients": clients, "extra": extra, "by": by, "run_id": run_id}
        return await arun(self, await aclaim_process(self, self._prepare(data, options)))

    def stream(
        self,
        data: Task | FlowRun[D],
        /,
        *,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
    ) -> Generator[Event]:
        """Run the flow and yield its events as they happen.  Events of inner agent calls are wrapped in `Inside`.

        The last event is always a `Done` or a `Suspended`.

        Args:
            data: The data, as for `call`, or a prepared or restored run, which already has its options.
            deps: See `call`.
            clients: See `call`.
            extra: See `call`.
            by: See `call`.
            run_id: See `call`.

        Raises:
            FlowFailed: If the run failed.
        """
        options = {"deps": deps, "clients": clients, "extra": extra, "by": by, "run_id": run_id}
        return stream(self, lambda: begin(self, data, options))

    def astream(
        self,
        data: Task | FlowRun[D],
        /,
        *,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
    ) -> AsyncGenerator[Event]:
        """The async version of `stream`."""
        options = {"deps": deps, "clients": clients, "extra": extra, "by": by, "run_id": run_id}
        return astream(self, lambda: abegin(self, data, options))

    def map(
        self,
        data: Iterable[Task],
        *,
        concurrency: int = CONCURRENCY,
        progress: Progress = False,
        fail_fast: bool = False,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
    ) -> TaskResults[Output]:
        """Run the flow for many inputs, in threads; see `Agent.map`."""
        options = {"deps": deps, "clients": clients, "extra": extra, "by": by, "run_id": run_id}
        return batch.map_calls(self, data, concurrency, progress, fail_fast, options)

    async def amap(
        self,
        data: Iterable[Task],
        *,
        concurrency: int = CONCURRENCY,
        progress: Progress = False,
        fail_fast: bool = False,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
    ) -> TaskResults[Output]:
        """The async version of `map`."""
        options = {"deps": deps, "clients": clients, "extra": extra, "by": by, "run_id": run_id}
        return await batch.amap_calls(self, data, concurrency, progress, fail_fast, options)

    def run(self, process: FlowRun[D], sink: Sink | None = None) -> Result:
        """Drive a prepared or restored run from its current state.  The sink receives every event.

        Raises:
            UsageError: If the run belongs to another flow, or is already being driven.
        """
        self._check_process(process, "run")
        check_sink(sink)
        return run(self, claim(self, process), sink)

    async def arun(self, process: FlowRun[D], sink: Sink | None = None) -> Result:
        """The async version of `run`."""
        self._check_process(process, "arun")
        check_sink(sink)
        return await arun(self, await aclaim_process(self, process), sink)

    @cached_property
    def runs(self) -> FlowRuns[Task, D, Result]:
        """The runs of this flow in its store.  You can submit, follow, resume, read and fork them."""
        return FlowRuns(self)

    def restore(
        self,
        document: str | bytes,
        *,
        deps: Any = None,
        clients: Clients | None = None,
        signing_key: str | bytes | None = None,
    ) -> FlowRun[D]:
        """Return a run of this flow from its `FlowRun.snapshot`.

        Raises:
            SnapshotError: If the document is damaged or belongs to another flow, its state no longer exists, or it
                approves a function that no longer exists or now has other parameters.
        """
        run = restore(document, self._flow, self._run_context(deps, clients), signing_key=signing_key)
        if (problem := lost_approval(run)) is not None:
            raise SnapshotError(f"the run cannot continue from this snapshot: {problem}")
        return run

    # The methods that `Runnable` requires

    def _prepare(self, task: Any, options: Mapping[str, Any]) -> FlowRun[D]:
        return self._kept_in_store(self._unstored(task, options), options)

    def _unstored(self, data: Any, options: Mapping[str, Any]) -> FlowRun[D]:
        """Return a run that has not begun and is not in a store."""
        flow = self._flow
        by = options.get("by")
        record = flow.record_of(data, current_depth(), options.get("extra"), "" if by is None else by)
        deps = options.get("deps")
        if deps is not LATER:
            self._check_deps(deps)
        return FlowRun(flow, record, self._run_context(deps, options.get("clients")))

    def _prepare_inside(self, data: D, options: Mapping[str, Any], around: InnerCalls) -> FlowRun[D]:
        known = ("deps", "clients", "extra", "by", "run_id")
        if unknown := [name for name in options if name not in known]:
            raise UsageError(f"a flow has no option {unknown[0]!r}{hint(unknown[0], known)}")
        made = self._unstored(data, options)
        made.run_context.join(around)
        run = FlowRun(made.flow, around.inner_record(made.record), made.run_context)
        if around.recorder is None:
            return self._kept_in_store(run, options)
        attach_journal(run, run_name(options) or around.next_name())
        return run

    def _kept_in_store(self, run: FlowRun[D], options: Mapping[str, Any]) -> FlowRun[D]:
        """Return the run, with a journal if the flow has a store."""
        if self._flow.store is not None:
            attach_journal(run, run_name(options))
        elif (run_id := options.get("run_id")) is not None:
            raise UsageError(
                f"run_id {run_id!r}: expected a flow with a store, got {self.name!r}, which has none;"
                " pass store='runs.db' to it"
            )
        return run

    def _environment_of(self, process: FlowRun[D]) -> Environment:
        return process.run_context.own_environment

    def _listener_to(self, process: FlowRun[D]) -> Sink | None:
        return Listener(self._flow.hooks, process, self.name) if self._flow.has_listener else None

    def _definition(self, options: Mapping[str, Any]) -> ProcessFactory:
        return factory_of(self._flow, self._run_context(options.get("deps"), options.get("clients")))

    def _definition_of(self, process: FlowRun[D]) -> ProcessFactory:
        return factory_of(self._flow, process.run_context)

    def _check_deps(self, deps: Any) -> None:
        check_deps(deps)
        for agent in agents_of(self._flow):
            agent._check_deps(deps)
        if not is_maker(deps):
            check_needs(deps.value if isinstance(deps, Made) else deps, functions_of(self._flow))

    def _fingerprints(self, prompts: Sequence[Any]) -> set[str]:
        return {self._flow.fingerprint}

    def _outcomes(self, run_id: str, answers: Answers, factory: ProcessFactory) -> Mapping[str, Outcome]:
        runs = self.runs.all
        row = runs.store.get(run_id)
        if row.is_ended and answers:
            raise ended_run(run_id)
        return outcomes_of(self._flow, answers, row, partial(runs.look_at, run_id, factory))

    def _check_process(self, process: Any, verb: str) -> None:
        check_process(self, process, verb)
        if process.flow.name != self.name:
            what = f"a run of the flow {self.name!r}, got {process}"
            raise UsageError(f"{verb}: expected {what}; use call(…), or {verb}(flow.prepare(…))")

    def _run_context(self, deps: Any = None, clients: Clients | None = None) -> RunContext:
        """Return the context of a run: everything that it needs besides its record."""
        models = {} if clients is None else clients
        if models:
            check_clients(self._flow, models)
        check_agents(self._flow, self._flow.agents)
        environment = self._environment_with(tuple(models.values())) if models else self._own_environment
        return RunContext(self._flow, deps, models, environment)

    @cached_property
    def _own_environment(self) -> Environment:
        return self._environment_with(())

    def _environment_with(self, clients: Sequence[Client]) -> Environment:
        """Return the environment of the flow.  If a model is a test double, the environment uses the double's clock."""
        models: list[Any] = [*clients, *[agent.model for agent in agents_of(self._flow)]]
        double = next((model for model in models if hasattr(model, "environment_defaults")), cast("Client", None))
        return Environment.of(double, **{"approve": self.approve, **self.environment, "name": self.name})


@dataclass(frozen=True, eq=False, repr=False)
class Flow(KnownArguments, FlowVerbs[D, D, D, FlowResult[D]], FlowDefinition[D]):
    """A state machine that you define with a start state and a table of rows.

    The table is checked when the flow is made.  The states read immutable data of one type, and the rows' actions
    return new data.  Flows are immutable: ``flow.changed(store="runs.db")`` returns a variant.

    Args:
        name: The name of the flow in runs, snapshots and diagrams.
        data: The type of the data: a frozen dataclass or pydantic model, a NamedTuple, or a plain type.
        start: The first state.
        rows: The table.  Rows are tried from the top.  By default, a flow ends in `Failed` after a failure or when a
            state's time is up, in `Cancelled` after a cancellation, and in `Expired` at the deadline.  `cancelled` and
            `expired` make rows for every state.
        limits: Limits on how many states a run enters and how long it takes.
        version: The version of the table and the data.  ``upgrades`` converts waiting runs from older versions.
        upgrades: Functions by version.  The function for n turns a run's JSON record from version n into one for
            version n+1.  `renamed` and `reshaped` make these functions.  A version may also have a list of functions,
            which are applied in order.
        store: The store that keeps the runs; see `Agent`.
        approve: The approver for agents that have none of their own; see `Agent`.
        answer: A function that answers the questions from `wait` states, for example by asking in the terminal.  It is
            called with an `AwaitAnswer` and returns the answer, or None to leave the question open.
        hooks: Objects whose methods are called with events; see `fsm_agent.agents.hooks`.
        agents: The agents by role, for states that name roles; see `bound`.
        environment: Options for the `Environment`, such as ``clock``, ``threads`` or ``new_id``.

    Raises:
        FlowError: If the table is wrong; the message names the row or the state.

    Examples:
        >>> @execute
        ... def greet(name: str) -> str:
        ...     return f"Hello, {name}."
        >>> hello = Flow("hello", str, start=greet, rows=[greet.done(end("said"), do=lambda name, text: text)])
        >>> hello.call("Ada").output
        'Hello, Ada.'
    """

    def make_result(self, run: FlowRun[D]) -> FlowResult[D]:
        """Return the result of a run of this flow."""
        return FlowResult(run)

    def changed(self, **options: Unpack[FlowChanges[D]]) -> Flow[D]:
        """Return a copy of this flow with some arguments changed, such as ``store``, ``hooks`` or ``limits``.

        Both flows share the objects that were passed to this one, such as an open store.  A variant with the same name
        and store can continue the flow's runs.

        Raises:
            TypeError: If an argument is unknown.
            FlowError: If a value is wrong.
        """
        return replace(self, **options)

    def bound(self, agents: Agents = NO_AGENTS, /, **by_role: Agent[Any, Any]) -> Flow[D]:
        """Return this flow with agents for its roles.  A role is a name that stands for an agent.

        Write ``flow.bound(researcher=one, editor=another)``, or ``flow.bound(base.agents)`` for the sub-agents that the
        configuration of an `AgentBase` names.  An inner flow that is already bound keeps its agents.

        Args:
            agents: Agents by role.  Roles that no state names are allowed, because a function passed to `ask` may
                choose them.
            by_role: Agents by role, which take precedence over ``agents``.

        Raises:
            FlowError: If a role has no agent, an agent has the wrong output type, or a role does not exist.
        """
        check_names(self, by_role)
        bound = {**self.agents, **agents, **by_role}
        check_agents(self, bound)
        return replace(self, agents=bound)

    @overload
    def as_function(
        self,
        name: str | None = ...,
        description: str | None = ...,
        *,
        start: Callable[P, D] | None = ...,
        returns: Callable[[D], R],
        **policy: Unpack[AgentPolicy],
    ) -> Function[P, R]: ...
    @overload
    def as_function(
        self,
        name: str | None = ...,
        description: str | None = ...,
        *,
        start: Callable[P, D] | None = ...,
        returns: None = ...,
        **policy: Unpack[AgentPolicy],
    ) -> Function[P, D]: ...
    def as_function(
        self,
        name: str | None = None,
        description: str | None = None,
        *,
        start: Callable[..., D] | None = None,
        returns: Callable[[D], Any] | None = None,
        **policy: Unpack[AgentPolicy],
    ) -> Function[..., Any]:
        """Return this flow as a function for an agent, as in ``Agent(…, functions=[letters.as_function(…)])``.

        The run is part of the agent call that requests it, and shares the call's tokens, deps, budgets and store.  The
        call waits for the same answers and times as the run, under a key like ``run:2.0/answer:review#3``, and yields
        the run's events wrapped in `Inside`.  If the run fails, the model receives the reason.

        Args:
            name: The name of the function for the model; by default, the name of the flow.
            description: The description for the model; by default, the docstring of ``start`` or of the data type.
            start: A pure function that returns the initial data; its parameters are the arguments.  By default, the
                fields of the data are the arguments.  If the data is not a JSON object, ``data`` is the only argument.
            returns: A pure function that takes the last data and returns the result for the model; by default, the
                data.
            policy: The options of `Function.of` that apply to a flow; ``timeout_s`` is the deadline of each run.

        Raises:
            UsageError: If an option does not apply to a flow, or if ``start`` is a coroutine function or takes a
                `Context`.
        """
        check_policy("flow", name or self.name, policy)
        return function_of(self, name, description, start, returns, {**policy})

"""The verbs of a flow, with the types of its data, options and results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Generator, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypedDict, cast, overload

from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.with_options_shown import with_options_shown
from fsm_agent.agents.options import CALL_OPTIONS, CONCURRENCY, Progress, StartOptions
from fsm_agent.agents.persistence import run_name, runs_of
from fsm_agent.agents.prompt_resolution import check_needs
from fsm_agent.agents.runnable import MAP_OPTIONS, RESUMED, Answers, Runnable, Sink
from fsm_agent.call.lost_approvals import lost_approval
from fsm_agent.call.outcomes import Outcome
from fsm_agent.errors import SnapshotError, UsageError, hint
from fsm_agent.flows import activities  # noqa: F401  # registers how effects of flows are performed
from fsm_agent.flows import branches as members  # noqa: F401  # registers the members of states
from fsm_agent.flows.checks import check_agents
from fsm_agent.flows.paths import agents_of, check_clients, functions_of, listener_of, outcomes_of
from fsm_agent.flows.persistence import attach_journal, definition_of
from fsm_agent.flows.process import RunContext
from fsm_agent.flows.record import FlowResult
from fsm_agent.flows.run import FlowRun, restore
from fsm_agent.flows.states import D, State
from fsm_agent.functions.context import LATER, GivenDeps, Made, check_deps, is_maker
from fsm_agent.messages.events import Event
from fsm_agent.runtime.run_function import current_depth
from fsm_agent.runtime.world import World
from fsm_agent.store.checks import ended_run
from fsm_agent.validation import check

if TYPE_CHECKING:
    from typing import Unpack

    from fsm_agent.agents import run_handle
    from fsm_agent.agents.many import TaskResults
    from fsm_agent.agents.run_handle import Before, RunHandle
    from fsm_agent.clients.client import Client
    from fsm_agent.flows import run as forking
    from fsm_agent.flows.flow import Flow
    from fsm_agent.runtime.inner_calls import InnerCalls
    from fsm_agent.store.claiming import Definition
    from fsm_agent.store.runs import Runs
else:
    run_handle = deferred("fsm_agent.agents.run_handle")
    forking = deferred("fsm_agent.flows.run")

Clients: TypeAlias = "Mapping[Any, Client]"  # by state; mappings are invariant in their keys


class UnstoredFlowOptions(TypedDict, total=False):
    """The options of a run that is in no store."""

    deps: GivenDeps[Any]
    clients: Clients | None


class FlowOptions(UnstoredFlowOptions, total=False):
    """The options of a run of a flow or an orchestrator, whatever its verb; this list is the only one.

    Attributes:
        run_id: The name of its run in the flow's store; None: a new one.  If the store has a run of
            this name with the same data, that run is continued.
        deps: What functions find in their `Context`: a value, or a function of (agent, extra, user) that makes it.
        extra: Data of yours that JSON can hold, kept in the record.
        by: Who asks, by your login: kept in the record, and the ``user`` of a function of deps.
        clients: Models by state, in place of those of their agents; for tests, a `Script` each.
    """

    run_id: str | None
    extra: Mapping[str, Any] | None
    by: str


class FlowSubmitOptions(FlowOptions, StartOptions, total=False):
    """The options of `submit`: those of `FlowOptions` and `StartOptions`.

    Attributes:
        after: The runs that have to end before, as names or handles; in whatever way they end.
    """

    after: Before | None


class FlowResumeOptions(UnstoredFlowOptions, total=False):
    """The options of `resume`, beside the answers.

    Attributes:
        by: Who answers, for people.
        post_id: An id of the one answer: given again under it, as after `RunBusy`, it counts once.
        sink: Receives every event.
    """

    by: str
    post_id: str
    sink: Sink | None


class FlowMapOptions(FlowOptions, total=False):
    """The options of many runs; see `Agent.map`."""

    concurrency: int
    progress: Progress
    fail_fast: bool


FLOW_OPTIONS = FlowOptions.__optional_keys__
UNSTORED_OPTIONS = UnstoredFlowOptions.__optional_keys__


def check_options(
    options: Mapping[str, Any], known: frozenset[str] = FLOW_OPTIONS, others: Collection[str] = ()
) -> None:
    """Refuse options that a run of a flow does not have.

    Args:
        options: The options.
        known: Those that there are.
        others: Options that the verb has besides, and that are not among these options.

    Raises:
        UsageError: It names the first such option, and what was probably meant.
    """
    for name in options:
        if name not in known:
            agents = "; it is an option of an agent's call" if name in CALL_OPTIONS else ""
            raise UsageError(f"a flow has no option {name!r}{hint(name, known.union(others)) or agents}")


class FlowVerbs(Runnable, Generic[D]):
    """The verbs of a `Flow`."""

    process_type: ClassVar[type[Any]] = FlowRun

    if TYPE_CHECKING:
        name: str
        hooks: Sequence[Any]
        store: Any
        approve: Any
        answer: Any
        world: Mapping[str, Any]

    @property
    def _flow(self) -> Flow[D]:
        return cast("Flow[D]", self)

    @with_options_shown(FlowOptions)
    def seed(self, data: D, /, **options: Unpack[FlowOptions]) -> FlowRun[D]:
        """Return a run that has not begun.

        Args:
            data: What it works on.
            options: Those of `FlowOptions`.

        Raises:
            FlowError: The data have another type.
        """
        return self._kept_in_store(self._unstored(data, options), options)

    def _unstored(self, data: D, options: Mapping[str, Any]) -> FlowRun[D]:
        """Return a run that has not begun, and is in no store."""
        self.check_options(options)
        flow = self._flow
        record = flow.record_of(data, current_depth(), options.get("extra"), options.get("by") or "")
        deps = options.get("deps")
        if deps is not LATER:
            self.check_deps(deps)
        return FlowRun(flow, record, self.run_context(deps, options.get("clients")))

    def seed_inside(self, data: D, options: Mapping[str, Any], around: InnerCalls) -> FlowRun[D]:
        made = self._unstored(data, options)
        made.run_context.join(around)
        run = FlowRun(made.flow, around.lent(made.record), made.run_context)
        if around.recorder is None:
            return self._kept_in_store(run, options)
        attach_journal(run, run_name(options) or around.next_name())
        return run

    def _kept_in_store(self, run: FlowRun[D], options: Mapping[str, Any]) -> FlowRun[D]:
        """Give a run that has not begun a journal if the flow has a store; return the run.

        Raises:
            UsageError: It has none, and the options name a run.
        """
        if self._flow.store is not None:
            attach_journal(run, run_name(options))
        elif (run_id := options.get("run_id")) is not None:
            raise UsageError(
                f"run_id {run_id!r}: expected a flow with a store, got {self.name!r}, which has none;"
                " pass store='runs.db' to it"
            )
        return run

    @with_options_shown(FlowOptions)
    def call(self, data: D, /, **options: Unpack[FlowOptions]) -> FlowResult[D]:
        """Run the flow, with the options of `FlowOptions`; ``result.output`` is the data that it ended with.

        Raises:
            FlowFailed: It ended in a failure.
            FlowSuspended: It waits for a person who is not here, or for a time far ahead; see its ``run``.
        """
        result: FlowResult[D] = self._drive(self.seed(data, **options), None, is_shared=False)
        return result

    @with_options_shown(FlowOptions)
    async def acall(self, data: D, /, **options: Unpack[FlowOptions]) -> FlowResult[D]:
        """`call` for asyncio."""
        return await self.arun(self.seed(data, **options))

    @overload
    def stream(self, one: D | FlowRun[D], /, **options: Unpack[FlowOptions]) -> Generator[Event]: ...
    @overload
    def stream(
        self,
        /,
        *,
        run_id: str,
        answers: Answers | Any = None,
        by: str = "",
        post_id: str = "",
        **options: Unpack[UnstoredFlowOptions],
    ) -> Generator[Event]: ...
    @with_options_shown(FlowOptions)
    def stream(self, one: Any = RESUMED, /, **options: Any) -> Generator[Event]:
        """Run the flow, and yield its events as they happen; those of agent calls are wrapped in `Inside`.

        The last is exactly one `Done` or one `Suspended`.  Takes a run that was seeded, or data with the options of
        `FlowOptions`.  With ``run_id`` and no data, a run of the store is continued, with the ``answers`` and options
        of `resume`, and raises what `resume` does.

        Raises:
            FlowFailed: It ended in a failure.
        """
        return self._stream(one, options)

    @overload
    def astream(self, one: D | FlowRun[D], /, **options: Unpack[FlowOptions]) -> AsyncGenerator[Event]: ...
    @overload
    def astream(
        self,
        /,
        *,
        run_id: str,
        answers: Answers | Any = None,
        by: str = "",
        post_id: str = "",
        **options: Unpack[UnstoredFlowOptions],
    ) -> AsyncGenerator[Event]: ...
    @with_options_shown(FlowOptions)
    def astream(self, one: Any = RESUMED, /, **options: Any) -> AsyncGenerator[Event]:
        """`stream` for asyncio."""
        return self._astream(one, options)

    @with_options_shown(FlowSubmitOptions)
    def submit(self, data: D, /, **options: Unpack[FlowSubmitOptions]) -> RunHandle[FlowResult[D]]:
        """Put a run into the store, for a `Worker` to drive, and return its handle; see `Agent.submit`.

        Args:
            data: What it works on.
            options: Those of `FlowSubmitOptions`.

        Raises:
            UsageError: The flow has no store, or an option is one that no store keeps.
            RunExists: Another run has this ``run_id``.
            RunUnknown: A run of ``after`` does not exist.
        """
        return self._submit(data, *_split_after(options))

    @with_options_shown(FlowSubmitOptions)
    async def asubmit(self, data: D, /, **options: Unpack[FlowSubmitOptions]) -> RunHandle[FlowResult[D]]:
        """`submit` for asyncio."""
        return await self._asubmit(data, *_split_after(options))

    @with_options_shown(UnstoredFlowOptions)
    def handle(self, run_id: str, **options: Unpack[UnstoredFlowOptions]) -> RunHandle[FlowResult[D]]:
        """Return the handle of a run of the store; see `Agent.handle`.

        Args:
            run_id: The run.
            options: ``deps`` and ``clients``.

        Raises:
            RunUnknown: There is no such run.
            UsageError: It is one of another flow.
        """
        return self._handle(run_id, options)

    @with_options_shown(FlowMapOptions)
    def map(self, data: Iterable[D], **options: Unpack[FlowMapOptions]) -> TaskResults[D]:
        """Run the flow for many data, in threads; see `Agent.map`."""
        return self._map(data, **map_options(options))

    @with_options_shown(FlowMapOptions)
    async def amap(self, data: Iterable[D], **options: Unpack[FlowMapOptions]) -> TaskResults[D]:
        """`map` for asyncio."""
        return await self._amap(data, **map_options(options))

    @with_options_shown(FlowResumeOptions)
    def resume(self, run_id: str, answers: Answers | Any = None, **options: Unpack[FlowResumeOptions]) -> FlowResult[D]:
        """Continue a run of the store from its last rest; return the result of one that has ended.

        Args:
            run_id: The run.
            answers: The answers to its questions, by state or key: ``{review: Approve("ann")}`` for one of `wait`,
                ``{"triage#1/ask:2.0": Approved()}`` for one of an agent call inside.  What is no mapping is the one
                answer to the only open question.
            options: Those of `FlowResumeOptions`.

        Raises:
            RunUnknown: There is no such run.
            RunBusy: Another holder drives it; the answers reach it all the same.
            NotAsked: The run asks no such question.
            AlreadyAnswered: Another answer came first.
            OutcomeError: An answer has none of the types of its question, or several are open and one has no key.
            ReplayError: The code has changed, and decides otherwise than it did since the last rest.
            FlowFailed: It ended in a failure.
            FlowSuspended: It waits for an answer again.
        """
        result: FlowResult[D] = self._resume(run_id, answers, options)
        return result

    @with_options_shown(FlowResumeOptions)
    async def aresume(
        self, run_id: str, answers: Answers | Any = None, **options: Unpack[FlowResumeOptions]
    ) -> FlowResult[D]:
        """`resume` for asyncio."""
        result: FlowResult[D] = await self._aresume(run_id, answers, options)
        return result

    @with_options_shown(FlowResumeOptions, without=("by", "post_id", "sink"))
    def replay(self, run_id: str, **options: Unpack[FlowResumeOptions]) -> FlowRun[D]:
        """Return a stored run, rebuilt from its whole journal. Each entry is verified.

        Args:
            run_id: The run.
            options: Those of `FlowResumeOptions`, but for ``by``, ``post_id`` and ``sink``.

        Raises:
            JournalError: The journal is damaged, foreign or forged.
            ReplayError: The code has changed, and decides otherwise.
        """
        run: FlowRun[D] = self.runs.replay(run_id, self._to_read(options))
        return run

    @with_options_shown(UnstoredFlowOptions)
    def at(self, run_id: str, step: int | str | None = None, **options: Unpack[UnstoredFlowOptions]) -> FlowRun[D]:
        """Return a stored run as it was after a step, to be read: its ``data``, ``state``, ``record``, ``outcome``.

        The run is left alone, and another driver may continue it meanwhile.  What is returned takes no step: `forked`
        makes a run of it that does, in no store, and `fork` one in the store.

        Args:
            run_id: The run.
            step: The number of an entry of its journal, as ``fsm-agent runs show`` counts them; 0: before the first.
                Or the name of a step, such as ``"review#3"``: as it was when this state had been entered.  None: as the
                store has it.
            options: ``deps`` and ``clients``.

        Raises:
            RunUnknown: There is no such run.
            UsageError: It has no such step.
            JournalError: The journal is damaged, foreign or forged.
            ReplayError: The code has changed, and decides otherwise up to this step.
        """
        run: FlowRun[D] = self.runs.at(run_id, step, self._to_read(options))
        return run

    @with_options_shown(UnstoredFlowOptions)
    def fork(
        self,
        run_id: str,
        step: int | str | None = None,
        *,
        data: D | None = None,
        new_run_id: str | None = None,
        by: str = "",
        **options: Unpack[UnstoredFlowOptions],
    ) -> str:
        """Make another run that continues from a step of a stored run; return its name.

        Nothing is driven: ``resume(name)`` does that.  The fork rests as its run did at this step: a worker takes it up
        when a question of it is answered, or when a time of it has come.  What lies before the step is not done again;
        what comes after it is, in earnest.

        Args:
            run_id: The run, which stays as it is.
            step: As of `at`.
            data: Other data, with which the state is entered anew; see `FlowRun.forked`.  None: the same.
            new_run_id: The name of the fork; None: a new one.  To make the same fork again changes nothing.
            by: Who forks it and changes the data, for people.
            options: ``deps`` and ``clients``.

        Raises:
            RunUnknown: There is no such run.
            RunExists: Another run has the name of the fork.
            FlowError: The data are of another type.
            UsageError: It has no such step, or no state there that could be entered anew with ``data``; or it is in the
                midst of a function that must not run twice.
            JournalError: The journal is damaged, foreign or forged.
            ReplayError: The code has changed, and decides otherwise up to this step.
        """
        definition = self._to_read(options)
        run: FlowRun[D] = self.runs.at(run_id, step, definition)
        assert run.journal is not None
        edit = "" if data is None else forking.edit_json(run, data, by)
        return self.runs.fork(run_id, run.journal.n, new_run_id, definition, by=by, edit=edit)

    if TYPE_CHECKING:

        def run(self, process: FlowRun[D], sink: Sink | None = None) -> FlowResult[D]: ...
        async def arun(self, process: FlowRun[D], sink: Sink | None = None) -> FlowResult[D]: ...

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
            SnapshotError: The document is damaged, of another flow, or its state no longer exists; or it
                holds the approval of a function that no longer exists or has other parameters.
        """
        run = restore(document, self._flow, self.run_context(deps, clients), signing_key=signing_key)
        if (problem := lost_approval(run)) is not None:
            raise SnapshotError(f"the run cannot continue from this snapshot: {problem}")
        return run

    @cached_property
    def runs(self) -> Runs:
        """The runs in its store.

        Raises:
            UsageError: The flow has no store.
        """
        if self.store is None:
            raise UsageError(f"flow {self.name!r}: expected a store, got none; pass store='runs.db' to it")
        return runs_of(self.store)

    # What `Runnable` asks

    def check_options(self, options: Mapping[str, Any], task: Any = None, others: Collection[str] = ()) -> None:
        check_options(options, others=others)

    def world_of(self, process: FlowRun[D]) -> World:
        world: World = process.run_context.own_world
        return world

    def listener_to(self, process: FlowRun[D]) -> Sink | None:
        return listener_of(self._flow, process)

    @with_options_shown(UnstoredFlowOptions)
    def definition(self, **options: Any) -> Definition:
        check_options(options, UNSTORED_OPTIONS)
        return definition_of(self._flow, self.run_context(options.get("deps"), options.get("clients")))

    def definition_of(self, process: FlowRun[D]) -> Definition:
        return definition_of(self._flow, process.run_context)

    def check_deps(self, deps: Any) -> None:
        check_deps(deps)
        for agent in agents_of(self._flow):
            agent.check_deps(deps)
        if not is_maker(deps):
            check_needs(deps.value if isinstance(deps, Made) else deps, functions_of(self._flow))

    def fingerprints(self, prompts: Sequence[Any]) -> set[str]:
        return {self._flow.fingerprint}

    def outcomes(self, run_id: str, answers: Answers, definition: Definition) -> Mapping[str, Outcome]:
        row = self.runs.store.get(run_id)
        if row.is_ended and answers:
            raise ended_run(run_id)
        asked = [question.key for question in row.waits]
        return outcomes_of(self._flow, answers, asked, partial(self.runs.look_at, run_id, definition))

    def check_process(self, process: Any, verb: str) -> None:
        super().check_process(process, verb)
        if process.flow.name != self.name:
            raise UsageError(
                f"{verb}: expected a run of the flow {self.name!r}, got {process}; use call(…), or {verb}(flow.seed(…))"
            )

    def run_context(self, deps: Any = None, clients: Clients | None = None) -> RunContext:
        """Return what a run has besides its record.

        Raises:
            UsageError: ``clients`` names a state that asks no agent, or a role has no agent.
        """
        right = "a mapping of states to clients, such as {triage: Script('…')}"
        models = clients or {}
        check("clients", clients, isinstance(models, Mapping) and all(isinstance(s, State) for s in models), right)
        if models:
            check_clients(self._flow, models)
        check_agents(self._flow, self._flow.agents)
        world = self._world_with(tuple(models.values())) if models else self.own_world
        return RunContext(deps, models, self.answer, self.approve, self._flow.agents, world)

    @cached_property
    def own_world(self) -> World:
        """The world of its runs without clients of their own."""
        return self._world_with(())

    def _world_with(self, clients: Sequence[Client]) -> World:
        """Return the world of the flow itself; a test double among its models brings its own clock."""
        models: list[Any] = [*clients, *[agent.model for agent in agents_of(self._flow)]]
        double = next((model for model in models if hasattr(model, "world_defaults")), cast("Client", None))
        return World.of(double, **{"approve": self.approve, **self.world, "name": self.name})


def _split_after(options: Mapping[str, Any]) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """Return the runs that ``after`` names, and the other options.

    Raises:
        UsageError: It names no runs.
    """
    after, rest = options.get("after"), {name: value for name, value in options.items() if name != "after"}
    before = () if after is None else run_handle.runs_named(after)
    check("after", after, before is not None, "the name or the handle of a run, or a list of them")
    return before or (), rest


def map_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `map` as arguments for its implementation."""
    return {
        "concurrency": options.get("concurrency", CONCURRENCY),
        "progress": options.get("progress", False),
        "fail_fast": options.get("fail_fast", False),
        "options": {name: value for name, value in options.items() if name not in MAP_OPTIONS},
    }

"""The ways in which the runs of a flow are driven: to their end or event by event, sync or under asyncio."""

from __future__ import annotations

from abc import ABC
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast

from fsm_agent.agents.hooks import both
from fsm_agent.agents.keeping import aheld, runs_of
from fsm_agent.agents.worker import Keeper
from fsm_agent.errors import SnapshotError, UsageError
from fsm_agent.flows import activities  # noqa: F401  # registers how effects of flows are performed
from fsm_agent.flows.definition.roles import Agents, check_agents
from fsm_agent.flows.definition.states import D, State
from fsm_agent.flows.keeping import definition_of, keep
from fsm_agent.flows.paths import agents_of, check_clients, listener, outcomes_of
from fsm_agent.flows.process import members  # noqa: F401  # registers the members of states
from fsm_agent.flows.process.flow_result import FlowResult
from fsm_agent.flows.process.flow_run import FlowRun
from fsm_agent.flows.process.snapshot import restore
from fsm_agent.flows.process.surroundings import Surroundings
from fsm_agent.lifecycle.reports.lost_approvals import lost_approval
from fsm_agent.messages.event import Event
from fsm_agent.mistakes import check, shown
from fsm_agent.runtime.drivers import adrive, arun, drive, run
from fsm_agent.runtime.run_function import current_depth
from fsm_agent.runtime.world import World

if TYPE_CHECKING:
    from fsm_agent.clients.client import Client
    from fsm_agent.flows.flow import Flow
    from fsm_agent.store.runs import Held, Runs

Clients: TypeAlias = "Mapping[Any, Client]"  # by state; mappings are invariant in their keys
Sink: TypeAlias = Callable[[Event], Any]


class FlowDriving(ABC, Generic[D]):
    """The methods of a `Flow` that drive its runs."""

    if TYPE_CHECKING:
        name: str
        hooks: Sequence[Any]
        store: Any
        approve: Any
        answer: Any
        agents: Agents
        world: Mapping[str, Any]

    @property
    def _flow(self) -> Flow[D]:
        return cast("Flow[D]", self)

    def seed(
        self,
        data: D,
        /,
        *,
        run_id: str | None = None,
        deps: Any = None,
        extra: Mapping[str, Any] | None = None,
        clients: Clients | None = None,
    ) -> FlowRun[D]:
        """Return a run that has not begun.

        Args:
            data: What it works on.
            run_id: The name of its run in the flow's store; None: a new one.  With the name and the data of a run that
                is there already, that one is gone on with.
            deps: What functions find in their `Context`.
            extra: Data of yours that JSON can hold, kept in the record.
            clients: Models by state, in place of those of their agents; for tests, a `Script` each.

        Raises:
            FlowError: The data are of another type.
        """
        flow = self._flow
        made = FlowRun(flow, flow.record_of(data, current_depth(), extra), self._around(deps, clients))
        if self.store is not None:
            keep(made, run_id)
        elif run_id is not None:
            raise UsageError(
                f"run_id {run_id!r} names a run in a store, and the flow {self.name!r} has none: store='runs.db'"
            )
        return made

    def restore(
        self,
        document: str | bytes,
        *,
        deps: Any = None,
        clients: Clients | None = None,
        signing_key: str | bytes | None = None,
    ) -> FlowRun[D]:
        """Return a run of this flow from its `snapshot`.

        Raises:
            SnapshotError: The document is damaged, of another flow, stands in a state that is gone, or holds the
                approval of a function that is gone, or takes other arguments by now.
        """
        run = restore(document, self._flow, self._around(deps, clients), signing_key=signing_key)
        if (problem := lost_approval(run)) is not None:
            raise SnapshotError(f"the snapshot cannot be gone on with: {problem}")
        return run

    def call(
        self,
        data: D,
        /,
        *,
        run_id: str | None = None,
        deps: Any = None,
        extra: Mapping[str, Any] | None = None,
        clients: Clients | None = None,
    ) -> FlowResult[D]:
        """Run the flow; the same arguments as `seed`.

        Raises:
            FlowFailed: It ended in a failure.
            FlowSuspended: It waits for somebody who is not here, or for a moment far away; see its ``run``.
        """
        one = self.seed(data, run_id=run_id, deps=deps, extra=extra, clients=clients)
        return self._run(one, None, is_shared=False)

    async def acall(
        self,
        data: D,
        /,
        *,
        run_id: str | None = None,
        deps: Any = None,
        extra: Mapping[str, Any] | None = None,
        clients: Clients | None = None,
    ) -> FlowResult[D]:
        """`call` for asyncio."""
        return await self.arun(self.seed(data, run_id=run_id, deps=deps, extra=extra, clients=clients))

    def run(self, one: FlowRun[D], sink: Sink | None = None) -> FlowResult[D]:
        """Drive a run from wherever it stands; with a sink, every event is given to it.

        Raises:
            FlowFailed: As `call` does.
            FlowSuspended: As `call` does.
        """
        return self._run(one, sink)

    def _run(self, one: FlowRun[D], sink: Sink | None, *, is_shared: bool = True) -> FlowResult[D]:
        one, recorder = self._held(one)
        run(one, self._world(one.surroundings), self._with_hooks(one, sink), recorder, is_shared=is_shared)
        return one.result()

    async def arun(self, one: FlowRun[D], sink: Sink | None = None) -> FlowResult[D]:
        """`run` for asyncio."""
        one, recorder = await self._aheld(one)
        await arun(one, self._world(one.surroundings), self._with_hooks(one, sink), recorder)
        return one.result()

    def stream(
        self,
        one: D | FlowRun[D],
        /,
        *,
        run_id: str | None = None,
        deps: Any = None,
        extra: Mapping[str, Any] | None = None,
        clients: Clients | None = None,
    ) -> Generator[Event]:
        """Run the flow, and yield its events as they happen; those of agent calls are `Inside`, with their path.

        The last is exactly one `Done` or one `Suspended`.  Takes a run, or the arguments of `seed`.

        Raises:
            FlowFailed: It ended in a failure.
        """
        run, recorder = self._held(self._run_in(one, run_id=run_id, deps=deps, extra=extra, clients=clients))
        tell = listener(self._flow, run)
        with closing(drive(run, self._world(run.surroundings), recorder=recorder)) as events:
            for event in events:
                if tell is not None:
                    tell(event)
                yield event
        if not run.effects:
            run.result()

    async def astream(
        self,
        one: D | FlowRun[D],
        /,
        *,
        run_id: str | None = None,
        deps: Any = None,
        extra: Mapping[str, Any] | None = None,
        clients: Clients | None = None,
    ) -> AsyncGenerator[Event]:
        """`stream` for asyncio."""
        run, recorder = await self._aheld(self._run_in(one, run_id=run_id, deps=deps, extra=extra, clients=clients))
        tell = listener(self._flow, run)
        async with aclosing(adrive(run, self._world(run.surroundings), recorder=recorder)) as events:
            async for event in events:
                if tell is not None:
                    tell(event)
                yield event
        if not run.effects:
            run.result()

    def resume(
        self,
        run_id: str,
        answers: Mapping[Any, Any] | None = None,
        *,
        deps: Any = None,
        clients: Clients | None = None,
        by: str = "",
        sink: Sink | None = None,
    ) -> FlowResult[D]:
        """Go on with a run of the flow's store, from its last rest on; return the result of one that has ended.

        Args:
            run_id: The run.
            answers: What its questions are answered, by state or key: ``{review: Approve("ann")}`` for one of `wait`,
                ``{"triage#1/ask:2.0": Approved()}`` for one of an agent call inside.
            deps: What functions find in their `Context`; they are in no store.
            clients: See `seed`.
            by: Who answers, for people.
            sink: Receives every event.

        Raises:
            RunUnknown: There is no such run.
            RunBusy: Somebody else drives it; the answers reach it all the same.
            NotAsked: The run asks no such question.
            AlreadyAnswered: Somebody was first.
            OutcomeError: An answer is of another type than the question's.
            ReplayError: The code has changed, and would have gone on otherwise since the last rest.
            FlowFailed: It ended in a failure.
            FlowSuspended: It waits for somebody again.
        """
        one, recorder = self._resumed(run_id, answers, by, self._around(deps, clients))
        run(one, self._world(one.surroundings), self._with_hooks(one, sink), recorder)
        result: FlowResult[D] = one.result()
        return result

    async def aresume(
        self,
        run_id: str,
        answers: Mapping[Any, Any] | None = None,
        *,
        deps: Any = None,
        clients: Clients | None = None,
        by: str = "",
        sink: Sink | None = None,
    ) -> FlowResult[D]:
        """`resume` for asyncio."""
        around = self._around(deps, clients)
        one, recorder = await aheld(partial(self._resumed, run_id, answers, by, around))
        await arun(one, self._world(one.surroundings), self._with_hooks(one, sink), recorder)
        result: FlowResult[D] = one.result()
        return result

    def replay(self, run_id: str) -> FlowRun[D]:
        """Return a run of the flow's store, made of its whole journal, each entry of which is verified.

        Raises:
            JournalError: The journal is damaged, foreign or forged.
            ReplayError: The code has changed, and decides otherwise.
        """
        around = self._around(None, None)
        made: FlowRun[D] = self.runs.replay(run_id, definition_of(self._flow, around, self._world(around)))
        return made

    def keeper(self, deps: Any = None) -> Keeper:
        """Return the parts with which a `Worker` drives its runs."""
        around = self._around(deps, None)
        world = self._world(around)
        return Keeper(definition_of(self._flow, around, world), lambda _: world, lambda run: listener(self._flow, run))

    @cached_property
    def runs(self) -> Runs:
        """The runs in its store.

        Raises:
            UsageError: The flow has no store.
        """
        if self.store is None:
            raise UsageError(f"the flow {self.name!r} has no store: store='runs.db' gives it one")
        return runs_of(self.store)

    # The parts of it

    def _around(self, deps: Any, clients: Clients | None) -> Surroundings:
        right = "clients by state, such as {triage: Script('…')}"
        models = clients or {}
        check("clients", clients, isinstance(models, Mapping) and all(isinstance(s, State) for s in models), right)
        if models:
            check_clients(self._flow, models)
        check_agents(self._flow, self.agents)
        return Surroundings(deps, models, self.answer, self.approve, self.agents)

    def _world(self, around: Surroundings) -> World:
        """Return the world of the flow itself; doubles for tests among its models bring their own clock."""
        models = [*around.clients.values(), *[agent.model for agent in agents_of(self._flow)]]
        double = next((model for model in models if hasattr(model, "world_defaults")), cast("Client", None))
        return World.of(double, **{"approve": self.approve, **self.world})

    def _run_in(self, one: Any, **options: Any) -> FlowRun[D]:
        if not isinstance(one, FlowRun):
            return self.seed(one, **options)
        if (name := next((name for name, value in options.items() if value is not None), None)) is not None:
            raise UsageError(f"{name} is given with a FlowRun, which has its own: seed(…, {name}=…) is right")
        return one

    def _with_hooks(self, one: FlowRun[D], sink: Sink | None) -> Sink | None:
        return both(listener(self._flow, one), sink)

    def _held(self, one: FlowRun[D]) -> Held:
        """Return a run and what records it; of one that has begun before, as it is in the store."""
        if not isinstance(one, FlowRun) or one.flow.name != self.name:
            what = f"run drives a run of the flow {self.name!r}, and {shown(one)} is none"
            raise UsageError(f"{what}: call(…), or run(flow.seed(…)), would be right")
        if one.journal is None or not one.journal.header:
            return one, None
        around = one.surroundings
        return self.runs.begin(one, definition_of(self._flow, around, self._world(around)))

    async def _aheld(self, one: FlowRun[D]) -> Held:
        """Do the same as `_held` under asyncio."""
        if one.journal is None or self.runs.store.is_volatile:
            return self._held(one)
        return await aheld(partial(self._held, one))

    def _resumed(self, run_id: str, answers: Mapping[Any, Any] | None, by: str, around: Surroundings) -> Held:
        """Claim a run, after its answers were posted, and return it and what records it."""
        definition = definition_of(self._flow, around, self._world(around))
        right = "answers by state or key, such as {review: Approve('ann')},"
        check("answers", answers, answers is None or isinstance(answers, Mapping), right)
        if answers:
            asked = [question.key for question in self.runs.store.load(run_id).run.waits]
            made = partial(self.runs.look_at, run_id, definition)
            self.runs.answer(run_id, outcomes_of(self._flow, answers, asked, made), by=by, at_s=definition.now())
        return self.runs.resume(run_id, definition)

"""The runs that a flow or an orchestrator has in its store, and the answers to their questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from functools import cache
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from fsm_agent._internal.structs import Value, from_json, to_json
from fsm_agent._internal.text import guess
from fsm_agent.agents.run_handle import Before, RunHandle, runs_named
from fsm_agent.agents.runnable import Result, Sink, arun, astream, check_sink, run, stream
from fsm_agent.agents.stored_runs import BoundRuns
from fsm_agent.call.journal import VERSION, Header, Journal, kept_lines
from fsm_agent.call.limits import Limits
from fsm_agent.call.outcomes import Outcome, Returned
from fsm_agent.call.process import INBOX, SEPARATOR, prefix_of
from fsm_agent.errors import JournalError, OutcomeError, SnapshotError, UsageError
from fsm_agent.flows.data_json import describe_json_error
from fsm_agent.flows.definition import FlowDefinition, flows_inside
from fsm_agent.flows.process import RunContext, name_in, outcome_of
from fsm_agent.flows.record import step_name
from fsm_agent.flows.run import FlowRun, edit_of, restore
from fsm_agent.flows.snapshot import record_of_seed
from fsm_agent.flows.states import D, LiveState, ParallelState, State, SubflowState, WaitState
from fsm_agent.flows.transition_table import NOTES
from fsm_agent.functions.context import GivenDeps
from fsm_agent.messages.events import Event
from fsm_agent.runtime.environment import Client
from fsm_agent.store.claiming import ProcessFactory, aclaim
from fsm_agent.store.store import Run
from fsm_agent.validation import require, safe_repr

SHOWN_STEPS = 10  # how many steps an error lists


class FlowSeed(Value, frozen=True, kw_only=True):
    """Everything that a run of a flow began with, except code."""

    version: int  # of the flow
    data: msgspec.Raw
    depth: int = 0
    budget_left: Limits | None = None  # the rest of the outer call's budgets


def attach_journal(run: FlowRun[Any], name: str) -> None:
    """Attach a journal to a run that has not begun, so that the run is stored when it is driven."""
    r, flow = run.record, run.flow
    seed = FlowSeed(
        version=flow.version,
        data=msgspec.Raw(flow.data_json(r.data).encode()),
        depth=r.depth,
        budget_left=r.budget_left,
    )
    format: Literal[1] = VERSION
    header = Header(
        version=format,
        agent=flow.name,
        fingerprint=run.fingerprint,
        seed=msgspec.Raw(to_json(seed).encode()),
        extra=r.extra,
        by=r.by,
    )
    if flow.tables_json:
        header = header.changed(tables=msgspec.Raw(flow.tables_json))
    run.journal = Journal(run.record, name, to_json(header))


def factory_of(flow: FlowDefinition[Any], run_context: RunContext) -> ProcessFactory:
    """Return the factory that rebuilds runs of a flow from a store."""
    environment = run_context.own_environment

    def make(header: Header, document: str | None, earlier: Sequence[Any] = ()) -> FlowRun[Any]:
        if document is None:
            return FlowRun(flow, _seeded(flow, header), run_context)
        return restore(document, flow, run_context)

    return ProcessFactory(
        flow.name, make, FlowRun.snapshot, environment.new_id, request_differences, environment.clock, entry_of=entry_of
    )


def entry_of(run: FlowRun[Any], lines: Sequence[str], step: str) -> int:
    """Return the number of the journal entry in which a run entered a state."""
    entered = [n for n, taken in enumerate(run.record.trace) if taken.trigger not in NOTES]
    names = {step_name(run.record.trace[n].to, number): n for number, n in enumerate(entered, 1)}
    if step not in names:
        known = ", ".join([*names][-SHOWN_STEPS:]) or "none"
        raise UsageError(f"{run}: expected a step that it has entered ({known}), got {step!r}{guess(step, names)}")
    own = 0
    for line in kept_lines(lines):  # an entry may hold several steps of the run, or none
        number = line.n
        own += sum([not path for path, _ in line.steps])
        if own <= names[step]:
            continue
        if any(names[step] < n < own for n in entered):
            raise UsageError(
                f"{run}: expected a step that ends with an entry, got {step!r}, which the run left in the same entry;"
                f" pass step {number}, which is that entry"
            )
        return number
    raise JournalError(f"journal of {run}: expected the steps of its trace, got fewer")


def _seeded(flow: FlowDefinition[Any], header: Header) -> Any:
    try:
        seed: FlowSeed = from_json(bytes(header.seed), FlowSeed)
    except ValueError as error:
        what = f"header of the journal: expected a run of the flow {flow.name!r}, got another"
        raise JournalError(f"{what}: {describe_json_error(error)}") from None
    fields = {"depth": seed.depth, "extra": header.extra, "by": header.by, "budget_left": seed.budget_left}
    try:
        return record_of_seed(flow, seed.version, seed.data, **fields)
    except SnapshotError as error:
        raise JournalError(f"journal: {error}") from error


def request_differences(one: Header, other: Header) -> list[str]:
    """Return the names of the parts in which the requests for two runs differ."""
    seeds = [{**from_json(bytes(header.seed), Any), "budget_left": None} for header in (one, other)]
    compared: dict[str, list[Any]] = {
        "data": seeds,
        "extra": [one.extra, other.extra],
        "by": [one.by, other.by],
        "agent": [one.agent, other.agent],
        "run that it is a fork of": [one.forked, other.forked],
    }
    return [name for name, (ours, theirs) in compared.items() if ours != theirs]


Clients: TypeAlias = Mapping[Any, Client]  # by state; mappings are invariant in their keys

Answers: TypeAlias = Mapping[Any, Any]

Task = TypeVar("Task", contravariant=True)


class FlowRuns(BoundRuns[Result], Generic[Task, D, Result]):
    """The runs of a flow or an orchestrator in its store, as ``flow.runs``.

    Attributes:
        all: The runs of the whole store, as `Runs`.

    Examples:
        >>> @execute
        ... def greet(name: str) -> str:
        ...     return f"Hello, {name}."
        >>> rows = [greet.done(end("said"), do=lambda name, text: text)]
        >>> hello = Flow("hello", str, start=greet, rows=rows, store=MemoryStore())
        >>> run = hello.runs.submit("Ada", run_id="ada")
        >>> hello.runs.resume("ada").output
        'Hello, Ada.'
    """

    def submit(
        self,
        data: Task,
        /,
        *,
        deps: GivenDeps[Any] = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
        after: Before | None = None,
        delay_s: float = 0.0,
        priority: int = 0,
        service: str = "",
    ) -> RunHandle[Result]:
        """Put a run into the store for a `Worker` to drive, and return its handle.

        Args:
            data: The data that the run begins with; see `Flow.call`.
            deps: See `Flow.call`.
            extra: See `Flow.call`.
            by: See `Flow.call`.
            run_id: See `Flow.call`.
            after: The runs that must end first, whether they succeed or fail, as names or handles.
            delay_s: The seconds until the run starts, by this machine's clock.  Signals do not start it earlier, but a
                cancellation ends it at once.
            priority: A number from -100 to 100.  Workers pick up the due run with the highest priority.
            service: The name of the `RunFollower` that drives the run.  If it is empty, workers drive the run.

        Raises:
            UsageError: If the flow has no store, or an option cannot be stored.
            RunExists: If another run has this ``run_id``.
            RunUnknown: If a run in ``after`` does not exist.
        """
        options = {"deps": deps, "extra": extra, "by": by, "run_id": run_id}
        return self._submit(data, _names(after), (delay_s, priority, service), options)

    async def asubmit(
        self,
        data: Task,
        /,
        *,
        deps: GivenDeps[Any] = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
        after: Before | None = None,
        delay_s: float = 0.0,
        priority: int = 0,
        service: str = "",
    ) -> RunHandle[Result]:
        """The async version of `submit`."""
        options = {"deps": deps, "extra": extra, "by": by, "run_id": run_id}
        return await self._asubmit(data, _names(after), (delay_s, priority, service), options)

    def get(self, run_id: str, *, deps: GivenDeps[Any] = None) -> RunHandle[Result]:
        """Return the handle of a run, to wait for it, follow it, answer it or cancel it from any process.

        Args:
            run_id: The name of the run.
            deps: See `Flow.call`.

        Raises:
            RunUnknown: If no run has this name.
            UsageError: If the run belongs to another flow.
        """
        return self._get(run_id, {"deps": deps})

    async def aget(self, run_id: str, *, deps: GivenDeps[Any] = None) -> RunHandle[Result]:
        """The async version of `get`."""
        return await asyncio.to_thread(self._get, run_id, {"deps": deps})

    def resume(
        self,
        run_id: str,
        answers: Answers | Any = None,
        *,
        by: str = "",
        signal_id: str = "",
        sink: Sink | None = None,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
    ) -> Result:
        """Continue a stored run, unless it has ended, and return its result.

        Args:
            run_id: The name of the run.
            answers: Answers by state or key: ``{review: Approve("ann")}`` for a question from a `wait` state,
                ``{"triage#1/ask:2.0": Approved()}`` for a question from an inner agent call.  A value that is not a
                mapping answers the only open question.
            by: The name of the person who answers, for display.
            signal_id: An id for a single answer.  Giving the answer again with the same id, for example after
                `RunBusy`, has no effect.
            sink: Receives every event.
            deps: See `Flow.call`.
            clients: See `Flow.call`.

        Raises:
            RunUnknown: If no run has this name.
            RunBusy: If the run is being driven elsewhere.  The answers still reach that run.
            NotAsked: If the run is not asking this question.
            AlreadyAnswered: If another answer came first.
            OutcomeError: If an answer has the wrong type, or has no key although several questions are open.
            ReplayError: If the code has changed since the run last stopped and now makes different decisions.
            FlowFailed: If the run failed.
            FlowSuspended: If the run is waiting for another answer.
        """
        check_sink(sink)
        claimer = self._claimer(run_id, answers, by, signal_id, {"deps": deps, "clients": clients})
        return run(self._runnable, claimer(), sink)

    async def aresume(
        self,
        run_id: str,
        answers: Answers | Any = None,
        *,
        by: str = "",
        signal_id: str = "",
        sink: Sink | None = None,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
    ) -> Result:
        """The async version of `resume`."""
        check_sink(sink)
        claimer = self._claimer(run_id, answers, by, signal_id, {"deps": deps, "clients": clients})
        return await arun(self._runnable, await aclaim(claimer), sink)

    def stream(
        self,
        run_id: str,
        answers: Answers | Any = None,
        *,
        by: str = "",
        signal_id: str = "",
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
    ) -> Generator[Event]:
        """Continue a stored run and yield its events as they happen; see `resume` and `Flow.stream`."""
        options = {"deps": deps, "clients": clients}
        return stream(self._runnable, lambda: self._claimer(run_id, answers, by, signal_id, options)())

    def astream(
        self,
        run_id: str,
        answers: Answers | Any = None,
        *,
        by: str = "",
        signal_id: str = "",
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
    ) -> AsyncGenerator[Event]:
        """The async version of `stream`."""
        options = {"deps": deps, "clients": clients}
        return astream(self._runnable, lambda: aclaim(self._claimer(run_id, answers, by, signal_id, options)))

    def replay(self, run_id: str, *, deps: GivenDeps[Any] = None) -> FlowRun[D]:
        """Rebuild a stored run from its whole journal, verify each entry, and return the run.

        Args:
            run_id: The name of the run.
            deps: See `Flow.call`.

        Raises:
            JournalError: If the journal is damaged or forged, or belongs to another flow.
            ReplayError: If the code has changed and now makes different decisions.
        """
        run: FlowRun[D] = self.all.replay(run_id, self._to_read({"deps": deps}))
        return run

    def at(self, run_id: str, step: int | str | None = None, *, deps: GivenDeps[Any] = None) -> FlowRun[D]:
        """Return a stored run as it was after a step.

        You can read the returned run's ``data``, ``state``, ``record`` and ``result_so_far``.  You cannot drive it,
        because another process may be driving the stored run.  To continue from it, use `fork` (in the store) or
        `FlowRun.forked` (without a store).

        Args:
            run_id: The name of the run.
            step: The number of a journal entry, as in ``fsm-agent runs show``, or 0 for the run before its first entry;
                or the name of a step that the run had just entered, such as ``"review#3"``; or None for the run as it
                is now.
            deps: See `Flow.call`.

        Raises:
            RunUnknown: If no run has this name.
            UsageError: If the run has no such step.
            JournalError: If the journal is damaged or forged, or belongs to another flow.
            ReplayError: If the code has changed and now makes different decisions up to this step.
        """
        run: FlowRun[D] = self.all.at(run_id, step, self._to_read({"deps": deps}))
        return run

    def fork(
        self,
        run_id: str,
        step: int | str | None = None,
        *,
        data: D | None = None,
        new_run_id: str | None = None,
        by: str = "",
        deps: GivenDeps[Any] = None,
    ) -> str:
        """Create a new run that continues from a step of a stored run, and return the new run's name.

        The fork waits for what the run was waiting for at this step.  ``resume(name)`` continues it, as does a worker
        once a question is answered or a timer ends.  Earlier steps are not repeated.  Later steps are run again, with
        new idempotency keys.

        Args:
            run_id: The name of the run, which stays unchanged.
            step: The step; see `at`.
            data: New data, or None to keep the data.  With new data, the state is entered again; see `FlowRun.forked`.
            new_run_id: The name of the fork, or None for a new name.  Creating the same fork again has no effect.
            by: The name of the person who forks the run and changes the data, for display.
            deps: See `Flow.call`.

        Raises:
            RunUnknown: If no run has this name.
            RunExists: If another run has the name of the fork.
            FlowError: If the data has the wrong type.
            UsageError: If the run has no such step, if its state there cannot be entered again with ``data``, or if the
                run is in the middle of a function that must not run twice.
            JournalError: If the journal is damaged or forged, or belongs to another flow.
            ReplayError: If the code has changed and now makes different decisions up to this step.
        """
        factory = self._to_read({"deps": deps})
        run: FlowRun[D] = self.all.at(run_id, step, factory)
        assert run.journal is not None
        edit = "" if data is None else to_json(edit_of(run, data, by))
        return self.all.fork(run_id, run.journal.n, new_run_id, factory, by=by, edit=edit)


def _names(after: Any) -> tuple[str, ...]:
    before = () if after is None else runs_named(after)
    require("after", after, before is not None, "the name or the handle of a run, or a list of them")
    return before or ()


# The answers to the questions of a run


def state_at(flow: FlowDefinition[Any], path: str) -> tuple[State[Any] | None, str]:
    """Return the state at a path of names, or None, and the part of the path that follows the state."""
    name, _, rest = path.partition(SEPARATOR)
    state = flow.states.get(name_in(name).partition("#")[0])
    while rest and isinstance(state, ParallelState):
        name, _, rest = rest.partition(SEPARATOR)
        known = {member.name: member for member in state.members}
        state = known.get(name_in(name), state.members[0])
    if rest and isinstance(state, SubflowState):
        return state_at(state.flow, rest)
    return state, rest


def outcomes_of(
    flow: FlowDefinition[Any], answers: Mapping[Any, Any], row: Run, made: Callable[[], FlowRun[Any]]
) -> dict[str, Outcome]:
    """Return the answers as outcomes by key.

    ``answers`` are values or outcomes by state or by key.  ``made`` returns the run, upgraded to the flow's current
    version.
    """
    made = cache(made)
    keys = {question.key: question.key for question in row.waits}  # as they are asked, by their current names
    if any(one.upgrades for one in (flow, *flows_inside(flow))):
        keys = {made().present_key(key): key for key in keys}
    found: dict[str, Outcome] = {}
    for whom, value in answers.items():
        key = _key_of(flow, whom, keys, made)
        state, rest = state_at(flow, key) if isinstance(key, str) else (None, "")
        live = state if isinstance(state, LiveState) else None
        if not isinstance(value, Outcome):
            if live is None:
                known = ", ".join(map(repr, keys)) or "nothing"
                right = f"expected the key of a state that asks (asked now: {known})"
                raise OutcomeError(
                    f"the answer {safe_repr(value)} to the run {row.id!r}: {right}, got {safe_repr(key)}"
                )
            value = outcome_of(live, value)
        elif live is not None and not rest and key in keys and isinstance(value, Returned) and not value.is_error:
            live.answer_types.load(value.text)  # or the driver would refuse it, and the sender would not know
        if isinstance(key, str) and prefix_of(key) == INBOX:
            process: Any = made().owner(key).process
            process.check_unasked(key.rpartition(SEPARATOR)[2], value)
        found[keys.get(key, key)] = value
    return found


def _key_of(flow: FlowDefinition[Any], whom: Any, keys: Mapping[str, str], made: Callable[[], FlowRun[Any]]) -> Any:
    """Return the key that a state, the name of a state that asks, or a key stands for."""
    if isinstance(whom, str) and whom.isidentifier():
        asking = [state for key in keys if (state := state_at(flow, key)[0]) is not None]
        whom = next((state for state in asking if state.name == whom), whom)
    if not isinstance(whom, State):
        return next((now for now, before in keys.items() if before == whom), whom)
    if isinstance(whom, WaitState) and whom.is_early:
        what, own = "inbox", made().inboxes_of(whom)
        known = "a flow inside has one while it runs"
    else:
        what, own = "open question", [key for key in keys if state_at(flow, key)[0] is whom]
        if not own and isinstance(whom, WaitState):
            own = made().keys_of(whom)  # of an answer that is not taken yet; the store says whose it is
        known = f"asked now: {', '.join(map(repr, keys)) or 'nothing'}"
    if len(own) != 1:
        got = f"several; answer by key: {', '.join(map(repr, own))}" if own else f"none ({known})"
        raise OutcomeError(f"the state {whom.name!r}: expected one {what}, got {got}")
    return own[0]

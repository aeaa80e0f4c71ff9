"""The runs of an agent or a flow in its store: operations that need both the store and the code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, Generic, TypeAlias, TypeVar, overload

from typing_extensions import Unpack

from fsm_agent._internal.structs import New
from fsm_agent.agents.options import (
    After,
    Asked,
    AsyncStream,
    Deps,
    Messages,
    Out,
    RunAnswers,
    Stream,
    SubmitOptions,
    Typed,
    call_options,
    check_known,
)
from fsm_agent.agents.run_handle import Before, RunHandle, post_answers, runs_named, start_of
from fsm_agent.agents.runnable import Runnable, Sink, arun, astream, check_sink, run, stream
from fsm_agent.call.call import AgentCall
from fsm_agent.call.journal import header_of
from fsm_agent.call.result import CallResult
from fsm_agent.call.snapshots import OnChange
from fsm_agent.errors import UsageError
from fsm_agent.functions.context import LATER, GivenDeps
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.environment import Client
from fsm_agent.store.claiming import Claimed, ProcessFactory, aclaim
from fsm_agent.store.errors import RunBusy
from fsm_agent.store.runs import Runs, opened
from fsm_agent.validation import safe_repr

Answers: TypeAlias = Mapping[Any, Any]
Result = TypeVar("Result", covariant=True)


class BoundRuns:
    """The runs of an agent, a flow or an orchestrator.  Each kind adds the types of its tasks and results."""

    def __init__(self, runnable: Any) -> None:
        self._runnable: Runnable = runnable

    def __repr__(self) -> str:
        return f"<the runs of {self._runnable.name!r}>"

    @cached_property
    def all(self) -> Runs:
        """All runs of the store, of every agent and flow.  You can list, answer, cancel, retry, export and delete them.

        Raises:
            UsageError: If the agent or flow has no store.
        """
        return runs_of(self._runnable)

    def _submit(self, task: Any, after: tuple[str, ...], start: tuple[float, int, str], options: Any) -> RunHandle[Any]:
        """Put a task into the store, with the names of the runs before it, its start and the options of `prepare`."""
        for name in ("clients", "model"):
            if (value := options.get(name)) is not None and not isinstance(value, str):
                raise UsageError(
                    f"{name}: expected a name, since a store keeps no objects, got {safe_repr(value)}; leave it out,"
                    " and the worker uses that of its agent"
                )
        runs = self.all
        process = self._runnable.prepare(task, **_without_deps(options))
        definition = self._runnable._definition_of(process)
        name = runs.claims.submit(process, definition, start_of(after, *start))
        return RunHandle(self._runnable, name, definition)

    async def _asubmit(self, *arguments: Any) -> RunHandle[Any]:
        if self.all.store.is_volatile:
            return self._submit(*arguments)
        return await asyncio.to_thread(self._submit, *arguments)

    def _get(self, run_id: str, options: Mapping[str, Any]) -> RunHandle[Any]:
        definition = self._to_read(options)
        run = self.all.store.get(run_id)
        if run.agent != definition.agent:
            raise UsageError(f"the run {run_id!r}: expected one of {definition.agent!r}, got one of {run.agent!r}")
        return RunHandle(self._runnable, run_id, definition)

    def _to_read(self, options: Mapping[str, Any]) -> ProcessFactory:
        """Return the factory that rebuilds processes for reading, which needs no deps."""
        return self._runnable._definition(_without_deps(options))

    def _claimer(
        self, run_id: str, answers: Any, by: str, signal_id: str, options: Mapping[str, Any]
    ) -> Callable[[], Claimed]:
        """Return a function that posts answers to a run and claims the run."""
        self._runnable._check_deps(options.get("deps"))
        definition = self._runnable._definition(options)
        return partial(self._reclaim, run_id, answers, by, definition, signal_id)

    def _reclaim(self, run_id: str, answers: Any, by: str, definition: ProcessFactory, signal_id: str) -> Claimed:
        if definition.check is not None:
            header = header_of(self.all.store.load(run_id, after=None).header)
            definition.check(definition.process_of(header, None))
        if answers is not None:
            post_answers(self._runnable, run_id, answers, by, definition, signal_id)
        try:
            return self._runnable._check_resumed(self.all.claims.resume(run_id, definition))
        except RunBusy as error:
            error.is_answered = answers is not None
            raise


async def aclaim_run(runnable: Runnable, run_id: str, options: Mapping[str, Any]) -> Claimed:
    """Claim a stored run, to be driven with `adrive_claimed`."""
    claimer = BoundRuns(runnable)._claimer(run_id, None, "", "", options)
    return await aclaim(claimer)


def _without_deps(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return options in which missing deps are left to the driver of the run."""
    return options if options.get("deps") is not None else {**options, "deps": LATER}


class AgentRuns(BoundRuns, Generic[Deps, Out]):
    """The runs of an agent or a conversation in its store, as ``agent.runs``.

    A run is a call that the store keeps, step by step.  Any OS process can follow it, answer it and continue it.

    Attributes:
        all: The runs of the whole store, as `Runs`.

    Examples:
        >>> clerk = Agent(Script("Sorted."), name="clerk", store=MemoryStore())
        >>> run = clerk.runs.submit("Sort the inbox.", run_id="inbox-17")
        >>> clerk.runs.resume("inbox-17").output
        'Sorted.'
    """

    @overload
    def submit(self, task: Asked, /, **options: Unpack[SubmitOptions[Deps]]) -> RunHandle[CallResult[Out]]: ...
    @overload
    def submit(self, task: Typed[New], /, **options: Unpack[SubmitOptions[Deps]]) -> RunHandle[CallResult[New]]: ...
    @overload
    def submit(self, task: Messages, /, **options: Unpack[SubmitOptions[Deps]]) -> RunHandle[CallResult[Any]]: ...
    def submit(
        self,
        task: Any,
        /,
        *,
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
        system_args: Mapping[str, Any] | None = None,
        keep_system: bool = False,
        after: Before | After = None,
        delay_s: float = 0.0,
        priority: int = 0,
        service: str = "",
        **unknown: Any,
    ) -> RunHandle[CallResult[Any]]:
        """Put the task into the store for a `Worker` to do, and return the handle of its run.

        If the store has a run with this ``run_id`` and the same task, that run is returned unchanged.  A worker makes
        its own ``deps``, and finds a prompt of the task by its path.  The ``deps`` given here are only for a function
        that makes the system prompt, and are not stored.

        Args:
            task: The task; see `Agent.call`.
            after: The runs that have to end (in success or failure) or be deleted first, as names or handles.  Or, as
                for a call, the result, dialog or messages that the task continues.
            delay_s: The seconds until the run starts, by the clock of this machine.  Signals do not start it earlier.
                A cancellation ends it at once.
            priority: From -100 to 100.  Workers take a due run with the highest priority first.
            service: The name of the `RunFollower` that drives the run, or empty for workers.
            args: See `Agent.call`.
            parser_args: See `Agent.call`.
            deps: See `Agent.call`.
            model: See `Agent.call`.
            extra: See `Agent.call`.
            by: See `Agent.call`.
            run_id: The name of the run in the agent's store, or None for a new name.
            system_args: See `Agent.call`.
            keep_system: See `Agent.call`.
            unknown: Unknown options, which are refused with a suggestion.

        Raises:
            UsageError: If the agent has no store, or a store cannot keep one of the options.
            RunExists: If another run has this ``run_id``.
            RunUnknown: If a run of ``after`` does not exist.
        """
        check_known(unknown, task, SubmitOptions.__optional_keys__)
        before, dialog = _split_after(after)
        options = call_options(
            task, args, parser_args, deps, model, extra, by, run_id, system_args, keep_system, dialog
        )
        return self._submit(task, before, (delay_s, priority, service), options)

    @overload
    async def asubmit(self, task: Asked, /, **options: Unpack[SubmitOptions[Deps]]) -> RunHandle[CallResult[Out]]: ...
    @overload
    async def asubmit(
        self, task: Typed[New], /, **options: Unpack[SubmitOptions[Deps]]
    ) -> RunHandle[CallResult[New]]: ...
    @overload
    async def asubmit(
        self, task: Messages, /, **options: Unpack[SubmitOptions[Deps]]
    ) -> RunHandle[CallResult[Any]]: ...
    async def asubmit(
        self,
        task: Any,
        /,
        *,
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
        system_args: Mapping[str, Any] | None = None,
        keep_system: bool = False,
        after: Before | After = None,
        delay_s: float = 0.0,
        priority: int = 0,
        service: str = "",
        **unknown: Any,
    ) -> RunHandle[CallResult[Any]]:
        """`submit` for asyncio."""
        check_known(unknown, task, SubmitOptions.__optional_keys__)
        before, dialog = _split_after(after)
        options = call_options(
            task, args, parser_args, deps, model, extra, by, run_id, system_args, keep_system, dialog
        )
        return await self._asubmit(task, before, (delay_s, priority, service), options)

    def get(
        self,
        run_id: str,
        *,
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        prompt: Prompt[Any] | None = None,
        on_change: OnChange = "report",
    ) -> RunHandle[CallResult[Out]]:
        """Return the handle of a run, in any OS process.  It can wait for the run, follow it, answer it or cancel it.

        Args:
            run_id: The name of the run.
            args: See `resume`.
            parser_args: See `resume`.
            deps: See `resume`.
            model: See `resume`.
            prompt: See `resume`.
            on_change: See `resume`.

        Raises:
            RunUnknown: If no run has this name.
            UsageError: If the run belongs to another agent.
        """
        return self._get(run_id, read_options(args, parser_args, deps, model, prompt, on_change))

    async def aget(
        self,
        run_id: str,
        *,
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        prompt: Prompt[Any] | None = None,
        on_change: OnChange = "report",
    ) -> RunHandle[CallResult[Out]]:
        """`get` for asyncio."""
        return await asyncio.to_thread(
            self._get, run_id, read_options(args, parser_args, deps, model, prompt, on_change)
        )

    def resume(
        self,
        run_id: str,
        answers: RunAnswers = None,
        *,
        by: str = "",
        signal_id: str = "",
        sink: Sink | None = None,
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        prompt: Prompt[Any] | None = None,
        on_change: OnChange = "report",
    ) -> CallResult[Out]:
        """Continue a stored run and return its result.  If the run has ended, just return the result.

        Args:
            run_id: The name of the run.
            answers: Outcomes for the open questions by key, such as ``{"ask:2.0": Approved()}``; or a single outcome,
                such as ``Approved()``, if one question is open.
            by: The person who answers; shown to people.
            signal_id: An id for a single answer, which then counts once even if it is sent again, for example after
                `RunBusy`.
            sink: Receives every event.
            args: The settings of the call.  For this and the next options, None keeps what the run began with.
            parser_args: See `Agent.call`.
            deps: See `Agent.call`.
            model: See `Agent.call`.
            prompt: The prompt of the task, if it had its own.
            on_change: The reaction to a changed prompt.  ``"report"`` logs the change and sets the result's
                ``prompt_change``.  ``"error"`` raises an error and leaves the run unchanged.

        Raises:
            PromptChanged: If the prompt has changed and ``on_change`` is ``"error"``.
            RunUnknown: If no run has this name.
            RunBusy: If the run is being driven elsewhere.  The answers reach it nevertheless.
            NotAsked: If the run does not ask this question.
            OutcomeError: If the run asks several questions and a single outcome was given; the error lists their keys.
            AlreadyAnswered: If another answer came first.
            ReplayError: If the code has changed and decides differently after the run's last rest.
            CallFailed: If the call ended without an output.
            CallSuspended: If the call waits for an answer again.
        """
        check_sink(sink)
        options = read_options(args, parser_args, deps, model, prompt, on_change)
        result: CallResult[Out] = run(self._runnable, self._claimer(run_id, answers, by, signal_id, options)(), sink)
        return result

    async def aresume(
        self,
        run_id: str,
        answers: RunAnswers = None,
        *,
        by: str = "",
        signal_id: str = "",
        sink: Sink | None = None,
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        prompt: Prompt[Any] | None = None,
        on_change: OnChange = "report",
    ) -> CallResult[Out]:
        """`resume` for asyncio."""
        check_sink(sink)
        options = read_options(args, parser_args, deps, model, prompt, on_change)
        claimed = await aclaim(self._claimer(run_id, answers, by, signal_id, options))
        result: CallResult[Out] = await arun(self._runnable, claimed, sink)
        return result

    def stream(
        self,
        run_id: str,
        answers: RunAnswers = None,
        *,
        by: str = "",
        signal_id: str = "",
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        prompt: Prompt[Any] | None = None,
        on_change: OnChange = "report",
    ) -> Stream[Out]:
        """Continue a stored run and yield its events as they happen; see `resume` and `Agent.stream`."""
        options = read_options(args, parser_args, deps, model, prompt, on_change)
        return stream(self._runnable, lambda: self._claimer(run_id, answers, by, signal_id, options)())

    def astream(
        self,
        run_id: str,
        answers: RunAnswers = None,
        *,
        by: str = "",
        signal_id: str = "",
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        prompt: Prompt[Any] | None = None,
        on_change: OnChange = "report",
    ) -> AsyncStream[Out]:
        """`stream` for asyncio."""
        options = read_options(args, parser_args, deps, model, prompt, on_change)
        return astream(self._runnable, lambda: aclaim(self._claimer(run_id, answers, by, signal_id, options)))

    def replay(
        self,
        run_id: str,
        *,
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        prompt: Prompt[Any] | None = None,
        on_change: OnChange = "report",
    ) -> AgentCall[Out]:
        """Rebuild the call of a stored run from its whole journal, verify each entry, and return the call.

        Args:
            run_id: The name of the run.
            args: See `resume`.
            parser_args: See `resume`.
            deps: See `resume`.
            model: See `resume`.
            prompt: See `resume`.
            on_change: See `resume`.

        Raises:
            JournalError: If the journal is damaged or forged, or belongs to another agent.
            ReplayError: If the code has changed and decides differently.
        """
        call: AgentCall[Out] = self.all.replay(
            run_id, self._to_read(read_options(args, parser_args, deps, model, prompt, on_change))
        )
        return call

    def at(
        self,
        run_id: str,
        step: int | None = None,
        *,
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        prompt: Prompt[Any] | None = None,
        on_change: OnChange = "report",
    ) -> AgentCall[Out]:
        """Return the call of a stored run as it was after a step, to read its ``state``, ``record`` or ``outcome``.

        Another process may drive the run meanwhile.  The returned call takes no steps.  To continue from it, use
        `fork`.

        Args:
            run_id: The name of the run.
            step: The number of a journal entry, as in ``fsm-agent runs show``, with 0 before the first; or None for the
                run as it is stored.
            args: See `resume`.
            parser_args: See `resume`.
            deps: See `resume`.
            model: See `resume`.
            prompt: See `resume`.
            on_change: See `resume`.

        Raises:
            RunUnknown: If no run has this name.
            UsageError: If the run has no such step.
            JournalError: If the journal is damaged or forged, or belongs to another agent.
            ReplayError: If the code has changed and decides differently up to this step.
        """
        call: AgentCall[Out] = self.all.at(
            run_id, step, self._to_read(read_options(args, parser_args, deps, model, prompt, on_change))
        )
        return call

    def fork(
        self,
        run_id: str,
        step: int | None = None,
        *,
        new_run_id: str | None = None,
        by: str = "",
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        prompt: Prompt[Any] | None = None,
        on_change: OnChange = "report",
    ) -> str:
        """Make another run that continues from a step of a stored run, and return its name.

        ``resume(name)`` drives the fork.  Another agent of the same name may drive it, with another model or other
        functions. Earlier steps are not repeated; later steps are.  The fork of a turn belongs to no conversation.

        Args:
            run_id: The name of the run, which stays unchanged.
            step: The step; see `at`.
            new_run_id: The name of the fork, or None for a new name.  Making the same fork again changes nothing.
            by: The person who forks the run; shown to people.
            args: See `resume`.
            parser_args: See `resume`.
            deps: See `resume`.
            model: See `resume`.
            prompt: See `resume`.
            on_change: See `resume`.

        Raises:
            RunUnknown: If no run has this name.
            RunExists: If another run has the name of the fork.
            UsageError: If the run has no such step, or is in the middle of a function that must not run twice.
            JournalError: If the journal is damaged or forged, or belongs to another agent.
            ReplayError: If the code has changed and decides differently up to this step.
        """
        options = read_options(args, parser_args, deps, model, prompt, on_change)
        return self.all.fork(run_id, step, new_run_id, self._to_read(options), by=by)


def read_options(
    args: Mapping[str, Any] | None,
    parser_args: Mapping[str, Any] | None,
    deps: GivenDeps[Any],
    model: str | Client | None,
    prompt: Prompt[Any] | None,
    on_change: OnChange,
) -> dict[str, Any]:
    """Return the options for rebuilding the call of a run."""
    named = {"args": args, "parser_args": parser_args, "deps": deps, "model": model, "prompt": prompt}
    return {**named, "on_change": on_change}


def _split_after(after: Any) -> tuple[tuple[str, ...], Any]:
    """Return the runs that ``after`` names, and what the task continues.  At most one of them is given."""
    before = runs_named(after)
    return ((), after) if before is None else (before, None)


def runs_of(runnable: Any) -> Runs:
    """Return the runs in the store of an agent or a flow."""
    store = runnable.store
    if store is None:
        raise UsageError(f"{runnable.name!r}: expected a store, got none; pass store='runs.db'")
    return opened(store)

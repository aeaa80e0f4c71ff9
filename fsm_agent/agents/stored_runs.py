"""The stored runs of an agent or a flow: the operations that need both the store and the run's code.

An agent writes the headers of its runs' journals here, and makes its calls from them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, overload

from typing_extensions import Unpack

from fsm_agent._internal.structs import New
from fsm_agent.agents.options import (
    MODEL,
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
    check_known,
    is_model,
    plan_of_model,
)
from fsm_agent.agents.run_handle import Before, RunHandle, runs_named, start_of
from fsm_agent.agents.runnable import Result, Runnable, Sink, arun, astream, check_sink, run, stream
from fsm_agent.agents.system_prompt import SystemPrompt
from fsm_agent.call.call import AgentCall
from fsm_agent.call.header import ConversationTurn, call_of, header_of_call, seed_of, turn_snapshot
from fsm_agent.call.journal import Header, Journal, header_of
from fsm_agent.call.result import CallResult
from fsm_agent.call.snapshots import OnChange, check_change, check_on_change
from fsm_agent.context.fitting import View
from fsm_agent.context.passes import AnyPass
from fsm_agent.errors import UsageError
from fsm_agent.functions.context import LATER, GivenDeps, deps_for
from fsm_agent.functions.toolset import Toolset
from fsm_agent.messages.message import Message
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.environment import Client
from fsm_agent.runtime.log import LOG
from fsm_agent.store.checks import not_own
from fsm_agent.store.claiming import Claimed, ProcessFactory, aclaim, give_back
from fsm_agent.store.errors import RunBusy
from fsm_agent.store.runs import Runs, opened
from fsm_agent.store.store import Run
from fsm_agent.validation import require, safe_repr

if TYPE_CHECKING:
    from fsm_agent.agents.agent import Agent


class BoundRuns(Generic[Result]):
    """The runs of an agent, a flow or an orchestrator.  Subclasses add the types of tasks and results."""

    def __init__(self, runnable: Any) -> None:
        self._runnable: Runnable[Result] = runnable

    def __repr__(self) -> str:
        return f"<the runs of {self._runnable.name!r}>"

    @cached_property
    def all(self) -> Runs:
        """All runs in the store, whichever agent or flow they belong to.

        Use it to list, answer, cancel, retry, export and delete runs.

        Raises:
            UsageError: If the agent or flow has no store.
        """
        runnable: Any = self._runnable
        if runnable.store is None:
            raise UsageError(f"{runnable.name!r}: expected a store, got none; pass store='runs.db'")
        return opened(runnable.store)

    def _submit(self, task: Any, after: tuple[str, ...], start: tuple[float, int, str], options: Any) -> RunHandle[Any]:
        """Put a task into the store.

        ``start`` holds the delay in seconds, the priority and the service.
        """
        if not isinstance(model := options.get("model"), str | None):
            raise UsageError(
                f"model: expected a name, since a store keeps no objects, got {safe_repr(model)}; leave it out, and the"
                " worker uses that of its agent"
            )
        runs = self.all
        process = self._runnable._prepare(task, _without_deps(options))
        definition = self._runnable._definition_of(process)
        has_clock = getattr(runs.store, "has_own_clock", False)  # a test's clock, which the run shares
        now_s = runs.claims.clock_of(definition).now() if has_clock else time.time()
        name = runs.claims.submit(process, definition, start_of(after, *start, now_s))
        return RunHandle(self._runnable, name, definition)

    async def _asubmit(self, *arguments: Any) -> RunHandle[Any]:
        if self.all.store.is_volatile:
            return self._submit(*arguments)
        return await asyncio.to_thread(self._submit, *arguments)

    def _get(self, run_id: str, options: Mapping[str, Any]) -> RunHandle[Any]:
        definition = self._to_read(options)
        self._check_own(self.all.store.get(run_id), definition)
        return RunHandle(self._runnable, run_id, definition)

    def _check_own(self, run: Run, definition: ProcessFactory) -> None:
        """Reject a run of another agent, before anything is posted to it."""
        if run.agent != definition.agent:
            raise not_own(run.id, definition.agent, run.agent)

    def _to_read(self, options: Mapping[str, Any]) -> ProcessFactory:
        """Return the definition for rebuilding processes only to read them.  This needs no deps."""
        return self._runnable._definition(_without_deps(options))

    def _claimer(
        self, run_id: str, answers: Any, by: str, signal_id: str, options: Mapping[str, Any]
    ) -> Callable[[], Claimed]:
        """Return a function that posts answers to a run and claims it, so that the run can continue."""
        self._runnable._check_deps(options.get("deps"))
        definition = self._runnable._definition(options)
        return partial(self._reclaim, run_id, answers, by, definition, signal_id)

    def _reclaim(self, run_id: str, answers: Any, by: str, definition: ProcessFactory, signal_id: str) -> Claimed:
        row = self.all.store.get(run_id)
        self._check_own(row, definition)
        check = definition.check if answers is None else definition.check_answered
        if check is not None:
            check(header_of(self.all.store.load(run_id, after=row.n).header))
        if answers is not None:
            RunHandle(self._runnable, run_id, definition).answer(answers, by=by, signal_id=signal_id)
        try:
            return self._runnable._check_resumed(self.all.claims.resume(run_id, definition))
        except RunBusy as error:
            error.is_answered = answers is not None
            raise


async def aclaim_run(runnable: Runnable, run_id: str, options: Mapping[str, Any]) -> Claimed:
    """Claim a run in a runnable's store, to drive it with `adrive_claimed`."""
    claimer = BoundRuns(runnable)._claimer(run_id, None, "", "", options)
    return await aclaim(claimer)


def _without_deps(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options, leaving missing deps for the run's driver to make."""
    return options if options.get("deps") is not None else {**options, "deps": LATER}


class AgentRuns(BoundRuns[CallResult[Out]], Generic[Deps, Out]):
    """The runs of an agent or a conversation in its store, available as ``agent.runs``.

    A run is a call that the store saves step by step.  Any process can follow, answer and continue it.

    Attributes:
        all: All runs in the store, as `Runs`.

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
        """Put a task into the store for a `Worker`, and return the handle for its run.

        If the store has a run with this ``run_id`` and the same task, the handle for that run is returned.  A worker
        creates its own ``deps`` and finds a prompt by its path.  The ``deps`` passed here are used only by a function
        that makes the system prompt, and are not stored.

        Args:
            task: See `Agent.call`.
            after: The runs that must end or be deleted first, as names or handles, or what the task continues: a call's
                result, a dialog or messages.
            delay_s: The seconds until the run starts, by the clock of this machine.  Signals do not start it earlier,
                but a cancellation ends it at once.
            priority: A number from -100 to 100.  Workers pick up the due run with the highest priority.  The priority
                applies until the run ends.
            service: The name of the `RunFollower` that drives the run, or "" for workers.
            args: See `Agent.call`.
            parser_args: See `Agent.call`.
            deps: See `Agent.call`.
            model: See `Agent.call`.  It must be a name.
            extra: See `Agent.call`.
            by: See `Agent.call`.
            run_id: The name of the run, or None for a new name.
            system_args: See `Agent.call`.
            keep_system: See `Agent.call`.
            unknown: Unknown options, which are rejected with a suggestion.

        Raises:
            UsageError: If the agent has no store, or an option cannot be stored.
            RunExists: If another run has this ``run_id``.
            RunUnknown: If a run in ``after`` does not exist.
        """
        check_known(unknown, task, SubmitOptions.__optional_keys__)
        before, dialog = _split_after(after)
        options = {"args": args, "parser_args": parser_args, "deps": deps, "model": model, "extra": extra, "by": by}
        options |= {"run_id": run_id, "system_args": system_args, "keep_system": keep_system, "after": dialog}
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
        """The async version of `submit`."""
        check_known(unknown, task, SubmitOptions.__optional_keys__)
        before, dialog = _split_after(after)
        options = {"args": args, "parser_args": parser_args, "deps": deps, "model": model, "extra": extra, "by": by}
        options |= {"run_id": run_id, "system_args": system_args, "keep_system": keep_system, "after": dialog}
        return await self._asubmit(task, before, (delay_s, priority, service), options)

    def get(
        self, run_id: str, *, deps: GivenDeps[Any] = None, prompt: Prompt[Any] | None = None
    ) -> RunHandle[CallResult[Out]]:
        """Return a run's handle, which any process can use to wait for, follow, answer or cancel the run.

        For ``deps`` and ``prompt``, see `resume`.

        Raises:
            RunUnknown: If no run has this name.
            UsageError: If the run belongs to another agent.
        """
        return self._get(run_id, {"deps": deps, "prompt": prompt})

    async def aget(
        self, run_id: str, *, deps: GivenDeps[Any] = None, prompt: Prompt[Any] | None = None
    ) -> RunHandle[CallResult[Out]]:
        """The async version of `get`."""
        return await asyncio.to_thread(self._get, run_id, {"deps": deps, "prompt": prompt})

    def resume(
        self,
        run_id: str,
        answers: RunAnswers = None,
        *,
        by: str = "",
        signal_id: str = "",
        sink: Sink | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        prompt: Prompt[Any] | None = None,
        on_change: OnChange = "report",
    ) -> CallResult[Out]:
        """Continue a stored run from where it last stopped, and return its result.

        If the run has already ended, only its result is returned.

        Args:
            run_id: The name of the run.
            answers: Outcomes for the open questions by key, such as ``{"ask:2.0": Approved()}``, or a single outcome,
                such as ``Approved()``, if one question is open.
            by: The name of the person who answers, for display.
            signal_id: An id for a single answer.  Giving the answer again with the same id, for example after
                `RunBusy`, has no effect.
            sink: Receives every event.
            deps: See `Agent.call`.
            model: See `Agent.call`.  None keeps the run's model.
            prompt: The task's prompt, if the task has one of its own.
            on_change: What to do if the prompt has changed since the run began.  ``"report"`` logs the change and sets
                the result's ``prompt_change``.  ``"error"`` raises an error and leaves the run unchanged.

        Raises:
            PromptChanged: If the prompt has changed and ``on_change`` is ``"error"``.
            RunUnknown: If no run has this name.
            RunBusy: If another holder is driving the run.  That holder still receives the answers.
            NotAsked: If the run is not asking this question.
            OutcomeError: If the run is asking several questions and a single outcome was given.  The error lists the
                keys.
            AlreadyAnswered: If another answer came first.
            ReplayError: If the code has changed since the run last stopped and now makes different decisions.
            CallFailed: If the call ended without an output.
            CallSuspended: If the call is waiting for another answer.
        """
        check_sink(sink)
        options = {"deps": deps, "model": model, "prompt": prompt, "on_change": on_change}
        return run(self._runnable, self._claimer(run_id, answers, by, signal_id, options)(), sink)

    async def aresume(
        self,
        run_id: str,
        answers: RunAnswers = None,
        *,
        by: str = "",
        signal_id: str = "",
        sink: Sink | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        prompt: Prompt[Any] | None = None,
        on_change: OnChange = "report",
    ) -> CallResult[Out]:
        """The async version of `resume`."""
        check_sink(sink)
        options = {"deps": deps, "model": model, "prompt": prompt, "on_change": on_change}
        claimed = await aclaim(self._claimer(run_id, answers, by, signal_id, options))
        return await arun(self._runnable, claimed, sink)

    def stream(
        self,
        run_id: str,
        answers: RunAnswers = None,
        *,
        by: str = "",
        signal_id: str = "",
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        prompt: Prompt[Any] | None = None,
        on_change: OnChange = "report",
    ) -> Stream[Out]:
        """Continue a stored run and yield its events as they happen; see `resume` and `Agent.stream`."""
        options = {"deps": deps, "model": model, "prompt": prompt, "on_change": on_change}
        return stream(self._runnable, lambda: self._claimer(run_id, answers, by, signal_id, options)())

    def astream(
        self,
        run_id: str,
        answers: RunAnswers = None,
        *,
        by: str = "",
        signal_id: str = "",
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        prompt: Prompt[Any] | None = None,
        on_change: OnChange = "report",
    ) -> AsyncStream[Out]:
        """The async version of `stream`."""
        options = {"deps": deps, "model": model, "prompt": prompt, "on_change": on_change}
        return astream(self._runnable, lambda: aclaim(self._claimer(run_id, answers, by, signal_id, options)))

    def replay(self, run_id: str, *, deps: GivenDeps[Any] = None, prompt: Prompt[Any] | None = None) -> AgentCall[Out]:
        """Rebuild a stored run's call from its whole journal, verifying every entry, and return the call.

        For ``deps`` and ``prompt``, see `resume`.

        Raises:
            JournalError: If the journal is damaged or forged, or belongs to another run.
            ReplayError: If the code has changed and now makes different decisions.
        """
        call: AgentCall[Out] = self.all.replay(run_id, self._to_read({"deps": deps, "prompt": prompt}))
        return call

    def at(
        self,
        run_id: str,
        step: int | None = None,
        *,
        deps: GivenDeps[Any] = None,
        prompt: Prompt[Any] | None = None,
    ) -> AgentCall[Out]:
        """Return a stored run's call as it was after a step.

        Use this to read the ``state``, ``record`` or ``result_so_far`` at that step.

        ``step`` is the number of a journal entry, as ``fsm-agent runs show`` counts entries, or 0 for the state before
        the first entry.  Without ``step``, the whole run is read.  For ``deps`` and ``prompt``, see
        `resume`.

        The run does not change, and another driver may continue it at the same time.  The returned call takes no steps;
        use `fork` to continue from it.

        Raises:
            RunUnknown: If no run has this name.
            UsageError: If the run has no such step.
            JournalError: If the journal is damaged or forged, or belongs to another run.
            ReplayError: If the code has changed and now makes different decisions up to this step.
        """
        call: AgentCall[Out] = self.all.at(run_id, step, self._to_read({"deps": deps, "prompt": prompt}))
        return call

    def fork(
        self,
        run_id: str,
        step: int | None = None,
        *,
        new_run_id: str | None = None,
        by: str = "",
        deps: GivenDeps[Any] = None,
        prompt: Prompt[Any] | None = None,
    ) -> str:
        """Create a new run that continues from a step of a stored run, and return the new run's name.

        ``resume(name)`` drives the fork.  The agent that does this must have the same name, but may have another model
        or other functions.  Earlier steps are not repeated, but later steps are run again.  A fork of a turn does not
        belong to a conversation.

        ``new_run_id`` names the fork; creating the same fork again has no effect.  ``by`` names the person who forks
        the run.  For ``step``, see `at`; for ``deps`` and ``prompt``, see `resume`.

        Raises:
            RunUnknown: If no run has this name.
            RunExists: If another run has the fork's name.
            UsageError: If the run has no such step, or the step is inside a function that must not run twice.
            JournalError: If the journal is damaged or forged, or belongs to another run.
            ReplayError: If the code has changed and now makes different decisions up to this step.
        """
        return self.all.fork(run_id, step, new_run_id, self._to_read({"deps": deps, "prompt": prompt}), by=by)


def _split_after(after: Any) -> tuple[tuple[str, ...], Any]:
    before = runs_named(after)
    return ((), after) if before is None else (before, None)


def attach_journal(
    agent: Agent[Any, Any], call: AgentCall[Any], options: Mapping[str, Any], turn: ConversationTurn | None = None
) -> None:
    """Attach a journal to a new call, so that its run is saved when the call is driven."""
    is_offer_late = call.deps is LATER and decides_per_call(agent)
    header = header_of_call(call, agent.name, options.get("args"), turn, is_offer_late=is_offer_late)
    call.journal = Journal(call.record, run_name(options), header)
    if turn is not None:
        call.journal.earlier = turn.earlier(call.record.dialog) if turn.is_continued else range(0)


def decides_per_call(agent: Agent[Any, Any]) -> bool:
    """Return whether a call's deps may affect which functions an agent offers."""
    return any(isinstance(item, Toolset) and item.decides_per_call for item in agent.functions)


def opening_of(agent: Agent[Any, Any], deps: Any) -> Callable[[], str]:
    """Return a function that makes the system prompt for a call that was submitted without one."""
    return SystemPrompt(agent.system, agent.name, deps=deps).text


def run_name(options: Mapping[str, Any]) -> str:
    """Return the run name from ``run_id``, or "" if a new name is needed."""
    name = options.get("run_id")
    if name is not None and (not isinstance(name, str) or not name):
        raise UsageError(f"run_id: expected a string such as 'order-17', or None for a new one, got {name!r:.80}")
    return name or ""


def warned_of_change(call: AgentCall[Out]) -> AgentCall[Out]:
    """Log a warning if a call's prompt has changed since the call was made, and return the call."""
    if call.prompt_change is not None:
        LOG.warning("%s: %s", call, call.prompt_change)
    return call


def definition_of(
    agent: Agent[Any, Any], options: Mapping[str, Any], keep: Sequence[AnyPass] | None = None
) -> ProcessFactory:
    """Return the definition with which the agent rebuilds the calls of its runs.

    The options, which are those of `AgentRuns.resume`, override the header.  If ``keep`` is None, the agent's passes
    apply.
    """
    prompt: Prompt | None = options.get("prompt")
    model = options.get("model")
    on_change: OnChange = options.get("on_change", "report")
    check_on_change(on_change)
    require("prompt", prompt, prompt is None or isinstance(prompt, Prompt), "the Prompt of the run's task, or None")

    def make(header: Header, document: str | None, earlier: Sequence[Message] = ()) -> AgentCall[Any]:
        seed = seed_of(header)
        check_prompt(header)
        deps = deps_for(options.get("deps"), agent.name, header.extra, header.by)
        resolved = agent._resolve_prompt(prompt, deps)
        parts = agent._call_parts(resolved, seed.args or None, deps, keep)
        parts["has_approver"] = parts["has_approver"] or seed.is_attended
        call = warned_of_change(call_of(header, seed, document, resolved, earlier, **parts))
        if seed.is_system_own:
            call.system_args = None
        if seed.is_system_late:
            call.opening = opening_of(agent, deps)
        return call if model is None else with_model(agent, call, model)

    def check_prompt(header: Header) -> None:
        path = seed_of(header).prompt
        if path == (prompt or agent.prompt).path:
            return
        actual = "the agent's own" if prompt is None else repr(prompt.path or prompt)
        began = f"{path!r}, with which the run began" if path else "the prompt with which the run began"
        raise UsageError(f"prompt: expected {began}, got {actual}; pass prompt=…, or Worker(prompts=[…]) to a worker")

    def check_change_too(header: Header) -> None:
        check_change(make(header, None), on_change)  # this checks the path first

    environment = agent._environment_with_model(model)
    check = check_change_too if on_change == "error" else None
    return ProcessFactory(
        *(agent.name, make, turn_snapshot, environment.new_id),
        clock=environment.clock,
        check=check,
        check_answered=check or check_prompt,
    )


def with_model(agent: Agent[Any, Any], call: AgentCall[Any], model: Any) -> AgentCall[Any]:
    """Return a call that has not been driven, with another model (a name or a client).

    If the agent has a budget in dollars, the model's price must be known.
    """
    require("model of a call", model, is_model(model), MODEL)
    name = model if isinstance(model, str) else model.name
    require("name of the model of a call", name, isinstance(name, str) and bool(name), "a string such as 'house:m1'")
    call.client = agent._client_of(model)
    call.record = call.record.changed(model=name)
    if call.view is not None:
        call.view = View(plan_of_model(call.view.plan, model, agent.name))
    if agent.limits.cost_usd is not None:
        agent._environment_of(call).price_list.check()
    return call


def check_drivable(agent: Agent[Any, Any], claimed: Claimed) -> Claimed:
    """Return a claimed run, or release it and raise an error if it cannot be driven here."""
    call, recorder = claimed
    if recorder is None:
        return claimed
    if call.record.is_checked and call.check is None and call.record.ending is None:
        give_back(claimed)
        raise UsageError(
            f"check of the agent {agent.name!r}: expected one, since the answers of {call} are checked, got none;"
            " pass check=…"
        )
    try:
        agent._environment_of(call)
    except UsageError as error:
        give_back(claimed)
        if not call.record.model:
            raise
        raise UsageError(
            f"the run continues with the model that it began with: {error}; pass model=… to continue with another"
        ) from error
    return claimed

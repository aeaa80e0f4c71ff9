"""The methods that give tasks to agents and conversations, and the types of these methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, overload

from typing_extensions import Unpack

from fsm_agent._internal.structs import New
from fsm_agent.agents import batch
from fsm_agent.agents.batch import CONCURRENCY, Progress, TaskResults
from fsm_agent.agents.hooks import Listener, are_heard
from fsm_agent.agents.options import (
    After,
    AnyTask,
    Asked,
    AsyncStream,
    CallOptions,
    Deps,
    MapOptions,
    Messages,
    Out,
    Stream,
    Typed,
    check_known,
)
from fsm_agent.agents.runnable import (
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
from fsm_agent.agents.stored_runs import AgentRuns
from fsm_agent.call.call import AgentCall
from fsm_agent.call.outcomes import Outcome
from fsm_agent.call.process import SEPARATOR
from fsm_agent.call.result import CallResult
from fsm_agent.errors import UsageError
from fsm_agent.functions.context import GivenDeps
from fsm_agent.runtime.environment import Approve, Client
from fsm_agent.store.claiming import ProcessFactory


class CallVerbs(Runnable[CallResult[Any]], Generic[Deps, Out]):
    """The methods that give tasks to agents and conversations.

    In the overloads, a prompt with text output takes the agent's output type, and every other prompt has its own.  A
    dialog's type does not say which prompt governs it.
    """

    approve: Approve[Deps] | None
    hooks: Sequence[Any]
    _process_type: ClassVar[type[Any]] = AgentCall

    @overload
    def prepare(self, task: Asked, /, **options: Unpack[CallOptions[Deps]]) -> AgentCall[Out]: ...
    @overload
    def prepare(self, task: Typed[New], /, **options: Unpack[CallOptions[Deps]]) -> AgentCall[New]: ...
    @overload
    def prepare(self, task: Messages, /, **options: Unpack[CallOptions[Deps]]) -> AgentCall[Any]: ...
    def prepare(
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
        after: After = None,
        **unknown: Any,
    ) -> AgentCall[Any]:
        """Return a new call without starting it.  You can drive it with `run`, or step by step.

        It takes the same arguments as `call`.

        Raises:
            UsageError: If a variable is missing, an option or setting is unknown, or a dialog has nothing to answer.
            Conflict: If the newest turn of the conversation has not ended.
        """
        check_known(unknown, task)
        options = {"args": args, "parser_args": parser_args, "deps": deps, "model": model, "extra": extra, "by": by}
        options |= {"run_id": run_id, "system_args": system_args, "keep_system": keep_system, "after": after}
        call: AgentCall[Any] = self._prepare(task, options)
        return call

    @overload
    def call(self, task: Asked, /, **options: Unpack[CallOptions[Deps]]) -> CallResult[Out]: ...
    @overload
    def call(self, task: Typed[New], /, **options: Unpack[CallOptions[Deps]]) -> CallResult[New]: ...
    @overload
    def call(self, task: Messages, /, **options: Unpack[CallOptions[Deps]]) -> CallResult[Any]: ...
    def call(
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
        after: After = None,
        **unknown: Any,
    ) -> CallResult[Any]:
        """Perform the task and return the result.  This also works inside a running event loop.

        Args:
            task: Text, a `Payload` with text and images, a prompt, a prompt with values for its variables
                (``order(letter="…")``), a user message, or a dialog that waits for an answer (a `Dialog` or a list of
                messages).  For a conversation, the task is the next turn.
            args: Settings for this call, which override the agent's settings: ``{"temperature": 0}``.
            parser_args: Keyword arguments for the prompt's parser, or the context for its output's validators.  They
                are saved in the record, so they must be JSON-compatible.
            deps: The ``deps`` for the functions' `Context`: a value, or a function of (agent, extra, user) that returns
                one.
            model: The model for this call, as ``"provider:model"`` or a client, instead of the agent's model.
            extra: Your own JSON-compatible data, such as a ticket number.  It appears in ``result.extra``, in
                snapshots, and in the messages that the call adds to the dialog.  The model does not see it.
            by: The name of the user who makes the call, as your login provides it.  It is saved in the record and
                passed to a ``deps`` function.
            run_id: The name of the run in the agent's store, or None for a new name.  If a run with this name and the
                same task exists, the call continues it or returns its result.
            system_args: The values for the variables of the agent's system prompt, or None to use the earlier dialog's
                values.
            keep_system: Whether to keep the dialog's system message instead of the agent's.
            after: What the task continues: the result of a call, a dialog, or messages.
            unknown: Unknown options, which are rejected with a suggestion.

        Raises:
            CallFailed: If the call ended without an output.
            CallSuspended: If the call waits for a person; see ``error.call``.
        """
        check_known(unknown, task)
        options = {"args": args, "parser_args": parser_args, "deps": deps, "model": model, "extra": extra, "by": by}
        options |= {"run_id": run_id, "system_args": system_args, "keep_system": keep_system, "after": after}
        return run(self, claim(self, self._prepare(task, options)), is_shared=False)

    @overload
    async def acall(self, task: Asked, /, **options: Unpack[CallOptions[Deps]]) -> CallResult[Out]: ...
    @overload
    async def acall(self, task: Typed[New], /, **options: Unpack[CallOptions[Deps]]) -> CallResult[New]: ...
    @overload
    async def acall(self, task: Messages, /, **options: Unpack[CallOptions[Deps]]) -> CallResult[Any]: ...
    async def acall(
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
        after: After = None,
        **unknown: Any,
    ) -> CallResult[Any]:
        """The async version of `call`."""
        check_known(unknown, task)
        options = {"args": args, "parser_args": parser_args, "deps": deps, "model": model, "extra": extra, "by": by}
        options |= {"run_id": run_id, "system_args": system_args, "keep_system": keep_system, "after": after}
        return await arun(self, await abegin(self, task, options))

    @overload
    def stream(self, task: AgentCall[New], /) -> Stream[New]: ...
    @overload
    def stream(self, task: Asked, /, **options: Unpack[CallOptions[Deps]]) -> Stream[Out]: ...
    @overload
    def stream(self, task: Typed[New], /, **options: Unpack[CallOptions[Deps]]) -> Stream[New]: ...
    @overload
    def stream(self, task: Messages, /, **options: Unpack[CallOptions[Deps]]) -> Stream[Any]: ...
    def stream(
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
        after: After = None,
        **unknown: Any,
    ) -> Stream[Any]:
        """Yield the events of a call as they happen: deltas and steps in order, and finally `Done` or `Suspended`.

        This takes the same arguments as `call`.  The task may also be a prepared or restored call, which already has
        its options.

        Raises:
            CallFailed: If the call failed.  It is raised after `Done`.
        """
        check_known(unknown, task)
        options = {"args": args, "parser_args": parser_args, "deps": deps, "model": model, "extra": extra, "by": by}
        options |= {"run_id": run_id, "system_args": system_args, "keep_system": keep_system, "after": after}
        return stream(self, lambda: begin(self, task, options))

    @overload
    def astream(self, task: AgentCall[New], /) -> AsyncStream[New]: ...
    @overload
    def astream(self, task: Asked, /, **options: Unpack[CallOptions[Deps]]) -> AsyncStream[Out]: ...
    @overload
    def astream(self, task: Typed[New], /, **options: Unpack[CallOptions[Deps]]) -> AsyncStream[New]: ...
    @overload
    def astream(self, task: Messages, /, **options: Unpack[CallOptions[Deps]]) -> AsyncStream[Any]: ...
    def astream(
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
        after: After = None,
        **unknown: Any,
    ) -> AsyncStream[Any]:
        """The async version of `stream`."""
        check_known(unknown, task)
        options = {"args": args, "parser_args": parser_args, "deps": deps, "model": model, "extra": extra, "by": by}
        options |= {"run_id": run_id, "system_args": system_args, "keep_system": keep_system, "after": after}
        return astream(self, lambda: abegin(self, task, options))

    @overload
    def map(self, tasks: Iterable[Asked], **options: Unpack[MapOptions[Deps]]) -> TaskResults[Out]: ...
    @overload
    def map(self, tasks: Iterable[Typed[New]], **options: Unpack[MapOptions[Deps]]) -> TaskResults[New]: ...
    @overload
    def map(self, tasks: Iterable[AnyTask], **options: Unpack[MapOptions[Deps]]) -> TaskResults[Any]: ...
    def map(
        self,
        tasks: Iterable[Any],
        *,
        concurrency: int = CONCURRENCY,
        progress: Progress = False,
        fail_fast: bool = False,
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
        system_args: Mapping[str, Any] | None = None,
        keep_system: bool = False,
        after: After = None,
        **unknown: Any,
    ) -> TaskResults[Any]:
        """Perform many tasks in threads, and return their outputs and errors in the order of the tasks.

        Args:
            tasks: The tasks, which are taken from the iterable one at a time, as they begin.
            concurrency: The maximum number of tasks that run at a time.
            progress: True for a bar on stderr, or a function of (done, total), called after each task.  ``total`` is
                None if it is unknown.
            fail_fast: Whether to raise the first error, so that no further task begins and the others are interrupted.
            args: See `call`.
            parser_args: See `call`.
            deps: See `call`.
            model: See `call`.
            extra: See `call`.
            by: See `call`.
            run_id: Must be None, because each task has its own run.
            system_args: See `call`.
            keep_system: See `call`.
            after: See `call`.
            unknown: Unknown options, which are rejected with a suggestion.
        """
        check_known(unknown, tasks, MapOptions.__optional_keys__)
        options = {"args": args, "parser_args": parser_args, "deps": deps, "model": model, "extra": extra, "by": by}
        options |= {"run_id": run_id, "system_args": system_args, "keep_system": keep_system, "after": after}
        return batch.map_calls(self, tasks, concurrency, progress, fail_fast, options)

    @overload
    async def amap(self, tasks: Iterable[Asked], **options: Unpack[MapOptions[Deps]]) -> TaskResults[Out]: ...
    @overload
    async def amap(self, tasks: Iterable[Typed[New]], **options: Unpack[MapOptions[Deps]]) -> TaskResults[New]: ...
    @overload
    async def amap(self, tasks: Iterable[AnyTask], **options: Unpack[MapOptions[Deps]]) -> TaskResults[Any]: ...
    async def amap(
        self,
        tasks: Iterable[Any],
        *,
        concurrency: int = CONCURRENCY,
        progress: Progress = False,
        fail_fast: bool = False,
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
        system_args: Mapping[str, Any] | None = None,
        keep_system: bool = False,
        after: After = None,
        **unknown: Any,
    ) -> TaskResults[Any]:
        """The async version of `map`."""
        check_known(unknown, tasks, MapOptions.__optional_keys__)
        options = {"args": args, "parser_args": parser_args, "deps": deps, "model": model, "extra": extra, "by": by}
        options |= {"run_id": run_id, "system_args": system_args, "keep_system": keep_system, "after": after}
        return await batch.amap_calls(self, tasks, concurrency, progress, fail_fast, options)

    def run(self, process: AgentCall[New], sink: Sink | None = None) -> CallResult[New]:
        """Drive a prepared or restored call from its current state.  The sink receives every event.

        Raises:
            UsageError: If the argument is not an agent call, or the call is already being driven.
        """
        self._check_process(process, "run")
        check_sink(sink)
        return run(self, claim(self, process), sink)

    async def arun(self, process: AgentCall[New], sink: Sink | None = None) -> CallResult[New]:
        """The async version of `run`."""
        self._check_process(process, "arun")
        check_sink(sink)
        return await arun(self, await aclaim_process(self, process), sink)

    @cached_property
    def runs(self) -> AgentRuns[Deps, Out]:
        """The runs of this agent in its store.  You can submit, follow, resume, read and fork them."""
        return AgentRuns(self)

    # The methods that `Runnable` needs

    def _listener_to(self, process: AgentCall[Any]) -> Sink | None:
        return Listener(self.hooks, process, self.name) if are_heard(self.hooks, process.prompt) else None

    def _outcomes(self, run_id: str, answers: Mapping[Any, Any], definition: ProcessFactory) -> Mapping[str, Outcome]:
        """Return the answers by the keys under which they are asked, which may be from before a flow was upgraded."""
        runs = self.runs.all
        asked = [question.key for question in runs.store.get(run_id).waits]
        inside = [key for key in answers if isinstance(key, str) and SEPARATOR in key and key not in asked]
        if not inside or not asked:
            return answers
        process = runs.look_at(run_id, definition)
        before = {process.present_key(key): key for key in asked}
        return {before.get(key, key): outcome for key, outcome in answers.items()}

    def _check_process(self, process: Any, verb: str) -> None:
        """Reject a process of another kind, and a call whose functions would bypass this agent's approver."""
        check_process(self, process, verb)
        if self.approve is not None and not process.has_approver and process.effects:
            what = f"the agent call {process.record.id!r}: expected one with an approver, since the agent has approve=…"
            raise UsageError(f"{what}; make it with this agent's prepare() or restore(), or with has_approver=True")

"""The verbs of agents and conversations, with the types of their tasks, options and results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, overload

from typing_extensions import TypeVar

from fsm_agent._internal.generics import New
from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.with_options_shown import with_options_shown
from fsm_agent.agents.arguments import unknown_option
from fsm_agent.agents.hooks import listener_of
from fsm_agent.agents.options import (
    CALL_OPTIONS,
    CONCURRENCY,
    CallOptions,
    MapOptions,
    Progress,
    ReadOptions,
    ResumeOptions,
    StreamedResumeOptions,
    SubmitOptions,
)
from fsm_agent.agents.runnable import RESUMED, Runnable, Sink
from fsm_agent.call.call import AgentCall
from fsm_agent.call.outcomes import Outcome
from fsm_agent.call.result import CallResult
from fsm_agent.errors import UsageError
from fsm_agent.messages.events import Done, InterimEvent
from fsm_agent.messages.message import ChatDict, Message
from fsm_agent.prompts.prompt import Prompt, Task
from fsm_agent.runtime.world import Approve

if TYPE_CHECKING:
    from typing import Unpack

    from fsm_agent.agents import run_handle
    from fsm_agent.agents.many import TaskResults
    from fsm_agent.agents.run_handle import RunHandle
    from fsm_agent.messages.payload import Payload
else:
    run_handle = deferred("fsm_agent.agents.run_handle")

Deps = TypeVar("Deps", default=Any, contravariant=True)
Out = TypeVar("Out", default=str, covariant=True)
Messages: TypeAlias = Sequence[Message | ChatDict]  # as a Dialog is, or dictionaries as OpenAI has them
# What is asked for the agent's own output: words, and prompts of texts.
Asked: TypeAlias = "str | Message | Payload | Prompt[str] | Task[str]"
Typed: TypeAlias = "Prompt[New] | Task[New]"  # what is asked for its own
AnyTask: TypeAlias = "Asked | Typed[Any] | Messages"
RunAnswers: TypeAlias = Mapping[str, Outcome] | Outcome | None
After: TypeAlias = CallResult[Any] | Messages | None
Stream: TypeAlias = Generator[InterimEvent | Done[CallResult[New]]]
AsyncStream: TypeAlias = AsyncGenerator[InterimEvent | Done[CallResult[New]]]


class CallVerbs(Runnable, Generic[Deps, Out]):
    """The verbs of agents and conversations.

    In the overloads, a prompt of texts gives the agent's output, and any other prompt its own.  The type of a dialog
    does not tell which prompt governs it.
    """

    approve: Approve[Deps] | None
    hooks: Sequence[Any]
    process_type: ClassVar[type[Any]] = AgentCall

    @overload
    def call(self, task: Asked, /, **options: Unpack[CallOptions[Deps]]) -> CallResult[Out]: ...
    @overload
    def call(self, task: Typed[New], /, **options: Unpack[CallOptions[Deps]]) -> CallResult[New]: ...
    @overload
    def call(self, task: Messages, /, **options: Unpack[CallOptions[Deps]]) -> CallResult[Any]: ...
    @with_options_shown(CallOptions)
    def call(self, task: Any, /, **options: Any) -> CallResult[Any]:
        """Do the task, with the options of `CallOptions`.  Works inside a running event loop, too.

        Raises:
            CallFailed: The call ended without an output.
            CallSuspended: It waits for a person who is not here; see its ``call``.
        """
        result: CallResult[Any] = self._drive(self.seed(task, **options), None, is_shared=False)
        return result

    @overload
    async def acall(self, task: Asked, /, **options: Unpack[CallOptions[Deps]]) -> CallResult[Out]: ...
    @overload
    async def acall(self, task: Typed[New], /, **options: Unpack[CallOptions[Deps]]) -> CallResult[New]: ...
    @overload
    async def acall(self, task: Messages, /, **options: Unpack[CallOptions[Deps]]) -> CallResult[Any]: ...
    @with_options_shown(CallOptions)
    async def acall(self, task: Any, /, **options: Any) -> CallResult[Any]:
        """`call` for asyncio."""
        result: CallResult[Any] = await self._adrive(await self._aseed(task, options), None)
        return result

    @overload
    def stream(self, task: AgentCall[New], /) -> Stream[New]: ...
    @overload
    def stream(
        self, /, *, run_id: str, answers: RunAnswers = None, **options: Unpack[StreamedResumeOptions[Deps]]
    ) -> Stream[Out]: ...
    @overload
    def stream(self, task: Asked, /, **options: Unpack[CallOptions[Deps]]) -> Stream[Out]: ...
    @overload
    def stream(self, task: Typed[New], /, **options: Unpack[CallOptions[Deps]]) -> Stream[New]: ...
    @overload
    def stream(self, task: Messages, /, **options: Unpack[CallOptions[Deps]]) -> Stream[Any]: ...
    @with_options_shown(CallOptions)
    def stream(self, task: Any = RESUMED, /, **options: Any) -> Stream[Any]:
        """Yield the events of a call as they happen: deltas and steps in one order, `Done` (or `Suspended`) last.

        Takes a call that was seeded, or a task with the options of `CallOptions`.  With ``run_id`` and no task, a run
        of the store is continued, with the ``answers`` and options of `resume`, and raises what `resume` does.

        Raises:
            CallFailed: After `Done`, when the call failed.
        """
        return self._stream(task, options)

    @overload
    def astream(self, task: AgentCall[New], /) -> AsyncStream[New]: ...
    @overload
    def astream(
        self, /, *, run_id: str, answers: RunAnswers = None, **options: Unpack[StreamedResumeOptions[Deps]]
    ) -> AsyncStream[Out]: ...
    @overload
    def astream(self, task: Asked, /, **options: Unpack[CallOptions[Deps]]) -> AsyncStream[Out]: ...
    @overload
    def astream(self, task: Typed[New], /, **options: Unpack[CallOptions[Deps]]) -> AsyncStream[New]: ...
    @overload
    def astream(self, task: Messages, /, **options: Unpack[CallOptions[Deps]]) -> AsyncStream[Any]: ...
    @with_options_shown(CallOptions)
    def astream(self, task: Any = RESUMED, /, **options: Any) -> AsyncStream[Any]:
        """`stream` for asyncio."""
        return self._astream(task, options)

    @overload
    def submit(self, task: Asked, /, **options: Unpack[SubmitOptions[Deps]]) -> RunHandle[CallResult[Out]]: ...
    @overload
    def submit(self, task: Typed[New], /, **options: Unpack[SubmitOptions[Deps]]) -> RunHandle[CallResult[New]]: ...
    @overload
    def submit(self, task: Messages, /, **options: Unpack[SubmitOptions[Deps]]) -> RunHandle[CallResult[Any]]: ...
    @with_options_shown(SubmitOptions)
    def submit(self, task: Any, /, **options: Any) -> RunHandle[CallResult[Any]]:
        """Put the task into the store, for a `Worker` to do, and return the handle of its run.

        A run of this ``run_id`` with the same task is the same run, and stays as it is.  A worker makes ``deps`` of its
        own, and finds a prompt of the task by its path.  ``deps=`` here are for a system prompt that is made of them;
        no store keeps them.

        Args:
            task: As of `call`.
            options: Those of `SubmitOptions`: those of a call, and when the run starts.

        Raises:
            UsageError: The agent has no store, or an option is one that no store keeps.
            RunExists: Another run has this ``run_id``.
            RunUnknown: A run of ``after`` does not exist.
        """
        return self._submit(task, *_split_after(options))

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
    @with_options_shown(SubmitOptions)
    async def asubmit(self, task: Any, /, **options: Any) -> RunHandle[CallResult[Any]]:
        """`submit` for asyncio."""
        return await self._asubmit(task, *_split_after(options))

    @with_options_shown(ReadOptions)
    def handle(self, run_id: str, **options: Unpack[ReadOptions[Deps]]) -> RunHandle[CallResult[Out]]:
        """Return the handle of a run of the store, in any OS process: to wait for it, follow, answer or cancel it.

        Args:
            run_id: The run.
            options: Those of `ReadOptions`.

        Raises:
            RunUnknown: There is no such run.
            UsageError: It is one of another agent.
        """
        return self._handle(run_id, options)

    @overload
    def map(self, tasks: Iterable[Asked], **options: Unpack[MapOptions[Deps]]) -> TaskResults[Out]: ...
    @overload
    def map(self, tasks: Iterable[Typed[New]], **options: Unpack[MapOptions[Deps]]) -> TaskResults[New]: ...
    @overload
    def map(self, tasks: Iterable[AnyTask], **options: Unpack[MapOptions[Deps]]) -> TaskResults[Any]: ...
    @with_options_shown(CallOptions)
    def map(
        self,
        tasks: Iterable[Any],
        *,
        concurrency: int = CONCURRENCY,
        progress: Progress = False,
        fail_fast: bool = False,
        **options: Any,
    ) -> TaskResults[Any]:
        """Do many tasks in threads, and return their ends in the order of the tasks: outputs and errors.

        Args:
            tasks: The tasks; they are read as they begin.
            concurrency: How many are done at a time.
            progress: True shows a bar on stderr; a function is called with the number of finished tasks and of all
                tasks.
            fail_fast: Raise the first error; begin no further task, and interrupt the others.
            options: For each call: those of `CallOptions`, but for ``run_id``.
        """
        return self._map(tasks, concurrency, progress, fail_fast, options)

    @overload
    async def amap(self, tasks: Iterable[Asked], **options: Unpack[MapOptions[Deps]]) -> TaskResults[Out]: ...
    @overload
    async def amap(self, tasks: Iterable[Typed[New]], **options: Unpack[MapOptions[Deps]]) -> TaskResults[New]: ...
    @overload
    async def amap(self, tasks: Iterable[AnyTask], **options: Unpack[MapOptions[Deps]]) -> TaskResults[Any]: ...
    @with_options_shown(CallOptions)
    async def amap(
        self,
        tasks: Iterable[Any],
        *,
        concurrency: int = CONCURRENCY,
        progress: Progress = False,
        fail_fast: bool = False,
        **options: Any,
    ) -> TaskResults[Any]:
        """`map` for asyncio."""
        return await self._amap(tasks, concurrency, progress, fail_fast, options)

    @with_options_shown(ResumeOptions)
    def resume(
        self,
        run_id: str,
        answers: RunAnswers = None,
        **options: Unpack[ResumeOptions[Deps]],
    ) -> CallResult[Out]:
        """Continue a run of the store from its last rest; return the result of one that has ended.

        Args:
            run_id: The run.
            answers: Outcomes for the questions that it waits for, by key: ``{"ask:2.0": Approved()}``; or one outcome,
                ``Approved()``, if one question is open.
            options: Those of `ResumeOptions`.

        Raises:
            PromptChanged: The prompt has changed, and ``on_change`` is ``"error"``.
            RunUnknown: There is no such run.
            RunBusy: Another holder drives it; the answers reach it all the same.
            NotAsked: The run asks no such question.
            OutcomeError: The run asks several questions, and one outcome was given; the error lists their keys.
            AlreadyAnswered: Another answer came first.
            ReplayError: The code has changed, and decides otherwise than it did since the last rest.
            CallFailed: The call ended without an output.
            CallSuspended: It waits for an answer again.
        """
        result: CallResult[Out] = self._resume(run_id, answers, options)
        return result

    @with_options_shown(ResumeOptions)
    async def aresume(
        self,
        run_id: str,
        answers: RunAnswers = None,
        **options: Unpack[ResumeOptions[Deps]],
    ) -> CallResult[Out]:
        """`resume` for asyncio."""
        result: CallResult[Out] = await self._aresume(run_id, answers, options)
        return result

    @with_options_shown(ReadOptions)
    def replay(self, run_id: str, **options: Unpack[ReadOptions[Deps]]) -> AgentCall[Out]:
        """Return the call of a stored run, rebuilt from its whole journal. Each entry is verified.

        Args:
            run_id: The run.
            options: Those of `ReadOptions`.

        Raises:
            JournalError: The journal is damaged, foreign or forged.
            ReplayError: The code has changed, and decides otherwise.
        """
        call: AgentCall[Out] = self.runs.replay(run_id, self._to_read(options))
        return call

    @with_options_shown(ReadOptions)
    def at(self, run_id: str, step: int | None = None, **options: Unpack[ReadOptions[Deps]]) -> AgentCall[Out]:
        """Return the call of a stored run as it was after a step, to be read: its ``state``, ``record``, ``outcome``.

        The run is left alone, and another driver may continue it meanwhile.  The call takes no step: `fork` makes a run
        that does.

        Args:
            run_id: The run.
            step: The number of an entry of its journal, as ``fsm-agent runs show`` counts them; 0: before the first;
                None: as the store has it.
            options: Those of `ReadOptions`.

        Raises:
            RunUnknown: There is no such run.
            UsageError: It has no such step.
            JournalError: The journal is damaged, foreign or forged.
            ReplayError: The code has changed, and decides otherwise up to this step.
        """
        call: AgentCall[Out] = self.runs.at(run_id, step, self._to_read(options))
        return call

    @with_options_shown(ReadOptions)
    def fork(
        self,
        run_id: str,
        step: int | None = None,
        *,
        new_run_id: str | None = None,
        by: str = "",
        **options: Unpack[ReadOptions[Deps]],
    ) -> str:
        """Make another run that continues from a step of a stored run; return its name.

        Nothing is driven: ``resume(name)`` does that, also of another agent of this name, with another model or other
        functions.  What lies before the step is not done again; what comes after it is, in earnest.

        Args:
            run_id: The run, which stays as it is.
            step: As of `at`.
            new_run_id: The name of the fork; None: a new one.  To make the same fork again changes nothing.
            by: Who forks it, for people.
            options: Those of `ReadOptions`.

        Raises:
            RunUnknown: There is no such run.
            RunExists: Another run has the name of the fork.
            UsageError: It has no such step, or is in the midst of a function that must not run twice.
            JournalError: The journal is damaged, foreign or forged.
            ReplayError: The code has changed, and decides otherwise up to this step.
        """
        return self.runs.fork(run_id, step, new_run_id, self._to_read(options), by=by)

    if TYPE_CHECKING:

        def run(self, process: AgentCall[New], sink: Sink | None = None) -> CallResult[New]: ...
        async def arun(self, process: AgentCall[New], sink: Sink | None = None) -> CallResult[New]: ...

    def check_options(self, options: Mapping[str, Any], task: Any = None, others: Collection[str] = ()) -> None:
        if not options.keys() <= CALL_OPTIONS:
            raise unknown_option(options, task, CALL_OPTIONS.union(others))

    def listener_to(self, process: AgentCall[Any]) -> Callable[[Any], Any] | None:
        return listener_of(self.hooks, process, self.name) if self.hooks or process.prompt.delegates else None

    def check_process(self, process: Any, verb: str) -> None:
        """Refuse anything but an agent call, and a call whose functions would bypass this agent's approver.

        Raises:
            UsageError: It names what was expected.
        """
        super().check_process(process, verb)
        if self.approve is not None and not process.has_approver and process.effects:
            what = f"the agent call {process.record.id!r}: expected one with an approver, since the agent has approve=…"
            raise UsageError(f"{what}; make it with this agent's seed() or restore(), or with has_approver=True")


def _split_after(options: Mapping[str, Any]) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """Return the runs that ``after`` names, and the other options; what the task follows is one of these."""
    before = run_handle.runs_named(options.get("after"))
    return ((), options) if before is None else (before, {**options, "after": None})

"""The ways in which the calls of an agent are driven."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast, overload

from msgspec.structs import asdict
from typing_extensions import TypeVar

from fsm_agent._internal.generics import New
from fsm_agent._internal.lazy_import import deferred
from fsm_agent.agents.arguments import check_call
from fsm_agent.agents.hooks import both, listener
from fsm_agent.agents.keeping import Options, aheld, check_askable, check_unchanged
from fsm_agent.errors import UsageError
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.call_result import CallResult
from fsm_agent.lifecycle.outcomes import Outcome
from fsm_agent.lifecycle.snapshots import check_on_change
from fsm_agent.messages.event import Done, Event, InterimEvent
from fsm_agent.messages.message import ChatDict, Message
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.drivers import adrive, arun, drive, run
from fsm_agent.runtime.world import Approve, World

if TYPE_CHECKING:
    import asyncio
    from typing import Unpack

    from fsm_agent.agents.options import CallOptions
    from fsm_agent.clients.client import Client
    from fsm_agent.lifecycle.snapshots import OnChange
    from fsm_agent.messages.payload import Payload
    from fsm_agent.store.recorder import StoreRecorder
    from fsm_agent.store.runs import Definition, Held, Runs
else:
    asyncio = deferred("asyncio")

Deps = TypeVar("Deps", default=object, contravariant=True)
Out = TypeVar("Out", default=str, covariant=True)
OptionalMapping: TypeAlias = Mapping[str, Any] | None
Messages: TypeAlias = Sequence[Message | ChatDict]  # as a Dialog is, or dictionaries as OpenAI has them
Asked: TypeAlias = "str | Message | Payload"  # answered with what the agent answers with
Task: TypeAlias = "Asked | Prompt | Messages"
After: TypeAlias = CallResult[Any] | Messages | None
Stream: TypeAlias = Generator[InterimEvent | Done[New]]
AsyncStream: TypeAlias = AsyncGenerator[InterimEvent | Done[New]]


class Driving(ABC, Generic[Deps, Out]):
    """The methods of an `Agent` that drive its calls: to their end or event by event, sync or under asyncio.

    In the overloads, a prompt of texts is asked for the agent's output, any other for its own; whose a dialog's is, no
    type says.
    """

    approve: Approve[Deps] | None
    hooks: Sequence[Any]
    _waits_for_disk = False  # when it seeds a call

    @abstractmethod
    def _world_of(self, call: AgentCall[Any]) -> World:
        """Return the world in which the effects of a call are performed."""

    @abstractmethod
    def _seeded(self, task: Task, values: Mapping[str, Any], options: Options) -> AgentCall[Any]:
        """Return a call that has not begun."""

    async def _aseeded(self, task: Any, values: Mapping[str, Any], options: Options) -> AgentCall[Any]:
        """Do the same as `_seeded` in another thread."""
        return await asyncio.to_thread(self._seeded, task, values, options)

    @property
    @abstractmethod
    def runs(self) -> Runs:
        """The runs in the agent's store."""

    @abstractmethod
    def _definition(self, prompt: Prompt | None, options: Options) -> Definition:
        """Return the way in which calls of runs are made."""

    @overload
    def call(self, task: Asked, /, **options: Unpack[CallOptions[Deps]]) -> CallResult[Out]: ...
    @overload
    def call(
        self,
        task: Prompt[str],
        /,
        *,
        args: OptionalMapping = ...,
        parser_args: OptionalMapping = ...,
        extra: OptionalMapping = ...,
        run_id: str | None = ...,
        deps: Deps = ...,
        model: str | Client | None = ...,
        after: After = ...,
        system_args: OptionalMapping = ...,
        keep_system: bool = ...,
        **values: object,
    ) -> CallResult[Out]: ...
    @overload
    def call(
        self,
        task: Prompt[New],
        /,
        *,
        args: OptionalMapping = ...,
        parser_args: OptionalMapping = ...,
        extra: OptionalMapping = ...,
        run_id: str | None = ...,
        deps: Deps = ...,
        model: str | Client | None = ...,
        after: After = ...,
        system_args: OptionalMapping = ...,
        keep_system: bool = ...,
        **values: object,
    ) -> CallResult[New]: ...
    @overload
    def call(self, task: Messages, /, **options: Unpack[CallOptions[Deps]]) -> CallResult: ...
    def call(
        self,
        task: Task,
        /,
        *,
        args: OptionalMapping = None,
        parser_args: OptionalMapping = None,
        extra: OptionalMapping = None,
        run_id: str | None = None,
        deps: Any = None,
        model: str | Client | None = None,
        after: After = None,
        system_args: OptionalMapping = None,
        keep_system: bool = False,
        **values: Any,
    ) -> CallResult[Any]:
        """Have the task done; the same arguments as `seed`.  Works inside a running event loop, too.

        Raises:
            CallFailed: The call ended without an output.
            CallSuspended: It waits for somebody who is not here; see its ``call``.
        """
        options = Options(args, parser_args, extra, run_id, deps, after, system_args, keep_system, model)
        return self._run(self._seeded(task, values, options), None, is_shared=False)

    @overload
    async def acall(self, task: Asked, /, **options: Unpack[CallOptions[Deps]]) -> CallResult[Out]: ...
    @overload
    async def acall(
        self,
        task: Prompt[str],
        /,
        *,
        args: OptionalMapping = ...,
        parser_args: OptionalMapping = ...,
        extra: OptionalMapping = ...,
        run_id: str | None = ...,
        deps: Deps = ...,
        model: str | Client | None = ...,
        after: After = ...,
        system_args: OptionalMapping = ...,
        keep_system: bool = ...,
        **values: object,
    ) -> CallResult[Out]: ...
    @overload
    async def acall(
        self,
        task: Prompt[New],
        /,
        *,
        args: OptionalMapping = ...,
        parser_args: OptionalMapping = ...,
        extra: OptionalMapping = ...,
        run_id: str | None = ...,
        deps: Deps = ...,
        model: str | Client | None = ...,
        after: After = ...,
        system_args: OptionalMapping = ...,
        keep_system: bool = ...,
        **values: object,
    ) -> CallResult[New]: ...
    @overload
    async def acall(self, task: Messages, /, **options: Unpack[CallOptions[Deps]]) -> CallResult: ...
    async def acall(
        self,
        task: Task,
        /,
        *,
        args: OptionalMapping = None,
        parser_args: OptionalMapping = None,
        extra: OptionalMapping = None,
        run_id: str | None = None,
        deps: Any = None,
        model: str | Client | None = None,
        after: After = None,
        system_args: OptionalMapping = None,
        keep_system: bool = False,
        **values: Any,
    ) -> CallResult[Any]:
        """`call` for asyncio."""
        options = Options(args, parser_args, extra, run_id, deps, after, system_args, keep_system, model)
        if self._waits_for_disk:
            return await self.arun(await self._aseeded(task, values, options))
        return await self.arun(self._seeded(task, values, options))

    def run(self, call: AgentCall[New], sink: Callable[[Event], Any] | None = None) -> CallResult[New]:
        """Drive a call from wherever it stands; with a sink, every event is given to it.

        Raises:
            UsageError: The agent has an approver, and the call was made without one; or something drives it already.
        """
        return self._run(call, sink)

    def _run(
        self, call: AgentCall[New], sink: Callable[[Event], Any] | None, *, is_shared: bool = True
    ) -> CallResult[New]:
        check_call(call, "run", "call")
        call, recorder = self._held(self._for_driving(call))
        hooked = self._with_hooks(call, sink)
        return run(call, self._world_of(call), hooked, recorder, is_shared=is_shared).result()

    async def arun(self, call: AgentCall[New], sink: Callable[[Event], Any] | None = None) -> CallResult[New]:
        """`run` for asyncio."""
        check_call(call, "arun", "acall")
        call = self._for_driving(call)
        if call.journal is None:
            return (await arun(call, self._world_of(call), self._with_hooks(call, sink))).result()
        call, recorder = await self._aheld(call)
        return (await arun(call, self._world_of(call), self._with_hooks(call, sink), recorder)).result()

    def resume(
        self,
        run_id: str,
        answers: Mapping[str, Outcome] | None = None,
        *,
        prompt: Prompt | None = None,
        args: OptionalMapping = None,
        parser_args: OptionalMapping = None,
        deps: Any = None,
        model: str | Client | None = None,
        by: str = "",
        sink: Callable[[Event], Any] | None = None,
        on_change: OnChange = "report",
    ) -> CallResult[Out]:
        """Go on with a run of the agent's store, from its last rest on; return the result of one that has ended.

        Args:
            run_id: The run.
            answers: Outcomes for the questions that it waits for, by key: ``{"ask:2.0": Approved()}``.
            prompt: That of the task, if it was one of its own.
            args: Settings over the agent's; None: those that the run began with.
            parser_args: Keyword arguments for the prompt's parser; None: those that the run began with.
            deps: What functions find in their `Context`; they are in no store.
            model: The model to go on with; None: that of the run, made anew by its name.
            by: Who answers, for people.
            sink: Receives every event.
            on_change: What comes of a prompt that has changed since the run began: that is logged and is the result's
                ``prompt_change`` (``"report"``), or the run stays as it is (``"error"``).

        Raises:
            PromptChanged: The prompt has changed, and that is to be an error.
            RunUnknown: There is no such run.
            RunBusy: Somebody else drives it; the answers reach it all the same.
            NotAsked: The run asks no such question.
            AlreadyAnswered: Somebody was first.
            ReplayError: The code has changed, and would have gone on otherwise since the last rest.
            CallFailed: The call ended without an output.
            CallSuspended: It waits for somebody again.
        """
        definition = self._definition(prompt, Options(args, parser_args, deps=deps, model=model))
        call, recorder = self._resumed(run_id, answers, by, definition, on_change)
        run(call, self._world_of(call), self._with_hooks(call, sink), recorder)
        result: CallResult[Out] = call.result()
        return result

    async def aresume(
        self,
        run_id: str,
        answers: Mapping[str, Outcome] | None = None,
        *,
        prompt: Prompt | None = None,
        args: OptionalMapping = None,
        parser_args: OptionalMapping = None,
        deps: Any = None,
        model: str | Client | None = None,
        by: str = "",
        sink: Callable[[Event], Any] | None = None,
        on_change: OnChange = "report",
    ) -> CallResult[Out]:
        """`resume` for asyncio."""
        definition = self._definition(prompt, Options(args, parser_args, deps=deps, model=model))
        call, recorder = await aheld(partial(self._resumed, run_id, answers, by, definition, on_change))
        await arun(call, self._world_of(call), self._with_hooks(call, sink), recorder)
        result: CallResult[Out] = call.result()
        return result

    def _resumed(
        self, run_id: str, answers: Mapping[str, Outcome] | None, by: str, definition: Definition, on_change: OnChange
    ) -> Held:
        """Claim a run, after its answers were posted, and return its call and what records it."""
        check_on_change(on_change)
        if on_change == "error":
            check_unchanged(self.runs, run_id, definition)
        if answers:
            self.runs.answer(run_id, answers, by=by, at_s=definition.now())
        return check_askable(self._world_of, self.runs.resume(run_id, definition))

    def _held(self, call: AgentCall[New]) -> tuple[AgentCall[New], StoreRecorder | None]:
        """Return a call and what records it; of a run that has begun before, the call as it is there."""
        if call.journal is None or not call.journal.header:
            return call, None
        return self.runs.begin(call, self._definition(call.prompt, Options(deps=call.deps, model=call.client)))

    async def _aheld(self, call: AgentCall[New]) -> tuple[AgentCall[New], StoreRecorder | None]:
        """Do the same as `_held` under asyncio."""
        if call.journal is None or not call.journal.header or self.runs.store.is_volatile:
            return self._held(call)
        return await aheld(partial(self._held, call))

    @overload
    def stream(self, task: Asked, /, **options: Unpack[CallOptions[Deps]]) -> Stream[Out]: ...
    @overload
    def stream(
        self,
        task: Prompt[str],
        /,
        *,
        args: OptionalMapping = ...,
        parser_args: OptionalMapping = ...,
        extra: OptionalMapping = ...,
        run_id: str | None = ...,
        deps: Deps = ...,
        model: str | Client | None = ...,
        after: After = ...,
        system_args: OptionalMapping = ...,
        keep_system: bool = ...,
        **values: object,
    ) -> Stream[Out]: ...
    @overload
    def stream(
        self,
        task: Prompt[New],
        /,
        *,
        args: OptionalMapping = ...,
        parser_args: OptionalMapping = ...,
        extra: OptionalMapping = ...,
        run_id: str | None = ...,
        deps: Deps = ...,
        model: str | Client | None = ...,
        after: After = ...,
        system_args: OptionalMapping = ...,
        keep_system: bool = ...,
        **values: object,
    ) -> Stream[New]: ...
    @overload
    def stream(self, task: Messages, /, **options: Unpack[CallOptions[Deps]]) -> Stream[Any]: ...
    @overload
    def stream(self, task: AgentCall[New], /) -> Stream[New]: ...
    def stream(
        self,
        task: Task | AgentCall,
        /,
        *,
        args: OptionalMapping = None,
        parser_args: OptionalMapping = None,
        extra: OptionalMapping = None,
        run_id: str | None = None,
        deps: Any = None,
        model: str | Client | None = None,
        after: After = None,
        system_args: OptionalMapping = None,
        keep_system: bool = False,
        **values: Any,
    ) -> Stream[Any]:
        """Yield the events of a call as they happen: deltas and steps in one order, `Done` (or `Suspended`) last.

        Raises:
            CallFailed: After `Done`, when the call failed.
        """
        options = Options(args, parser_args, extra, run_id, deps, after, system_args, keep_system, model)
        call_to_drive = self._call_in(task, values, options)
        call, recorder = self._held(call_to_drive or self._seeded(cast("Task", task), values, options))
        tell = listener(self.hooks, call)
        with closing(drive(call, self._world_of(call), recorder=recorder)) as events:
            for event in events:
                if tell is not None:
                    tell(event)
                yield event
        if not call.effects:
            call.result()

    @overload
    def astream(self, task: Asked, /, **options: Unpack[CallOptions[Deps]]) -> AsyncStream[Out]: ...
    @overload
    def astream(
        self,
        task: Prompt[str],
        /,
        *,
        args: OptionalMapping = ...,
        parser_args: OptionalMapping = ...,
        extra: OptionalMapping = ...,
        run_id: str | None = ...,
        deps: Deps = ...,
        model: str | Client | None = ...,
        after: After = ...,
        system_args: OptionalMapping = ...,
        keep_system: bool = ...,
        **values: object,
    ) -> AsyncStream[Out]: ...
    @overload
    def astream(
        self,
        task: Prompt[New],
        /,
        *,
        args: OptionalMapping = ...,
        parser_args: OptionalMapping = ...,
        extra: OptionalMapping = ...,
        run_id: str | None = ...,
        deps: Deps = ...,
        model: str | Client | None = ...,
        after: After = ...,
        system_args: OptionalMapping = ...,
        keep_system: bool = ...,
        **values: object,
    ) -> AsyncStream[New]: ...
    @overload
    def astream(self, task: Messages, /, **options: Unpack[CallOptions[Deps]]) -> AsyncStream[Any]: ...
    @overload
    def astream(self, task: AgentCall[New], /) -> AsyncStream[New]: ...
    async def astream(
        self,
        task: Task | AgentCall,
        /,
        *,
        args: OptionalMapping = None,
        parser_args: OptionalMapping = None,
        extra: OptionalMapping = None,
        run_id: str | None = None,
        deps: Any = None,
        model: str | Client | None = None,
        after: After = None,
        system_args: OptionalMapping = None,
        keep_system: bool = False,
        **values: Any,
    ) -> AsyncStream[Any]:
        """`stream` for asyncio."""
        options = Options(args, parser_args, extra, run_id, deps, after, system_args, keep_system, model)
        call_to_drive = self._call_in(task, values, options)
        if call_to_drive is None and self._waits_for_disk:
            call_to_drive = await self._aseeded(task, values, options)
        call, recorder = await self._aheld(call_to_drive or self._seeded(cast("Task", task), values, options))
        tell = listener(self.hooks, call)
        async with aclosing(adrive(call, self._world_of(call), recorder=recorder)) as events:
            async for event in events:
                if tell is not None:
                    tell(event)
                yield event
        if not call.effects:
            call.result()

    def _call_in(self, task: Task | AgentCall, values: Mapping[str, Any], options: Options) -> AgentCall[Any] | None:
        """Return the task if it is an agent call."""
        if not isinstance(task, AgentCall):
            return None
        named = {**values, **asdict(options)}
        if name := next((name for name, value in named.items() if value is not None and value is not False), None):
            raise UsageError(f"{name} is given with an AgentCall, which has its own: seed(…, {name}=…) is right")
        return self._for_driving(task)

    def _for_driving(self, call: AgentCall[New]) -> AgentCall[New]:
        """Return ``call``, unless functions would be run of which this agent's approver never hears."""
        if self.approve is not None and not call.has_approver and call.effects:
            what = f"approve is given, and the agent call {call.record.id!r} was made without an approver"
            raise UsageError(f"{what}: one of this agent's seed() or restore() would be right, or has_approver=True")
        return call

    def _with_hooks(self, call: AgentCall[Any], sink: Callable[[Event], Any] | None) -> Callable[[Event], Any] | None:
        if not self.hooks and not call.prompt.delegates:
            return sink
        return both(listener(self.hooks, call), sink)

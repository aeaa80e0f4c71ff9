"""The base of everything that can be called, and the functions that drive it.

An agent, a conversation, a flow and an orchestrator are each a `Runnable`.  Their methods use the functions of this
module: `begin` makes a process and claims its run, `run` and `stream` drive it in this thread, `arun` and `astream`
under asyncio.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import closing
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar, Protocol, TypeAlias

from fsm_agent.call.call import AgentCall
from fsm_agent.call.journal import Header
from fsm_agent.call.outcomes import Outcome
from fsm_agent.call.record import Limits
from fsm_agent.context.passes import AnyPass
from fsm_agent.errors import UsageError
from fsm_agent.messages.events import Event
from fsm_agent.messages.message import Message
from fsm_agent.messages.reply import Usage
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime import drivers
from fsm_agent.runtime.drivers import AsyncDriver
from fsm_agent.runtime.environment import Client, Environment
from fsm_agent.runtime.run_function import InnerCalls
from fsm_agent.store.claiming import Claimed, ProcessFactory, aclaim
from fsm_agent.store.runs import Runs
from fsm_agent.validation import require, safe_repr

Sink: TypeAlias = Callable[[Event], Any]
# The usage of processes that a program drives, for the call of the program.
USED_INSIDE: ContextVar[list[Usage] | None] = ContextVar("fsm_agent_used_inside", default=None)


class _BoundRuns(Protocol):
    @property
    def all(self) -> Runs: ...


class AnyAgent(Protocol):
    """The parts of an agent that its calls use."""

    @property
    def name(self) -> str: ...

    @property
    def system(self) -> Any: ...

    @property
    def functions(self) -> Any: ...

    @property
    def output(self) -> Any: ...

    @property
    def prompt(self) -> Prompt[Any]: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def check(self) -> Any: ...

    @property
    def results(self) -> Any: ...

    @property
    def hooks(self) -> Sequence[Any]: ...

    @property
    def _own_environment(self) -> Environment: ...

    def _environment_of(self, process: AgentCall[Any]) -> Environment: ...

    def _environment_with_model(self, model: str | Client | None) -> Environment: ...

    def _client_of(self, model: str | Client | None) -> Client: ...

    @property
    def _keep(self) -> tuple[AnyPass, ...]: ...

    @property
    def _system_messages(self) -> tuple[Message, ...]: ...

    @property
    def _blind(self) -> set[str]: ...

    def _resolve_prompt(self, prompt: Prompt[Any] | None, options: Mapping[str, Any]) -> Prompt[Any]: ...

    def _call_parts(
        self, prompt: Prompt[Any], args: Mapping[str, Any] | None, deps: Any, keep: Sequence[AnyPass] | None = None
    ) -> dict[str, Any]: ...


class Runnable(ABC):
    """An agent, a conversation, a flow or an orchestrator, as its drivers see it.

    Attributes:
        name: The name under which its runs are found in a store.
        _process_type: The class of its processes.
        _reads_store: Whether `prepare` reads the store, as for a conversation.
    """

    name: str
    _process_type: ClassVar[type[Any]]
    _reads_store: ClassVar[bool] = False

    @property
    @abstractmethod
    def runs(self) -> _BoundRuns: ...

    @property
    def _sub_runnables(self) -> Sequence[Runnable]:
        """This runnable, and inner runnables that may have their own runs in a store."""
        return (self,)

    @abstractmethod
    def prepare(self, *args: Any, **options: Any) -> Any:
        """Return a process that has not begun."""

    @abstractmethod
    def _prepare_inside(self, task: Any, options: Mapping[str, Any], around: InnerCalls) -> Any:
        """Return a process that has not begun, for a function of the outer process."""

    @abstractmethod
    def _environment_of(self, process: Any) -> Environment:
        """Return the environment in which a process performs its effects."""

    @abstractmethod
    def _listener_to(self, process: Any) -> Sink | None:
        """Return a callback that passes the events of a process to the hooks, or None without hooks."""

    @abstractmethod
    def _definition(self, options: Mapping[str, Any]) -> ProcessFactory:
        """Return the factory that rebuilds processes from a store, with these options of `resume`."""

    @abstractmethod
    def _definition_of(self, process: Any) -> ProcessFactory:
        """Return the factory that rebuilds a process from a store, with the options of its `prepare`."""

    @abstractmethod
    def _definition_of_run(self, header: Header, deps: Any, prompts: Mapping[str, Any]) -> ProcessFactory:
        """Return the factory by which a `Worker` makes the process of a run.

        ``prompts`` are prompts of tasks, by path.
        """

    @abstractmethod
    def _fingerprints(self, prompts: Sequence[Any]) -> set[str]:
        """Return the fingerprints of runs that can begin here, with the own prompt or one of these."""

    @abstractmethod
    def _check_deps(self, deps: Any) -> None:
        """Refuse deps that the runs cannot use.

        Args:
            deps: A value, or a function of (agent, extra, user) that makes it, which is not called here.
        """

    @abstractmethod
    def _check_process(self, process: Any, verb: str) -> None:
        """Refuse to drive a process of another kind, or of another flow."""

    @abstractmethod
    def _check_resumed(self, claimed: Claimed) -> Claimed:
        """Return a claimed run, or release it and raise an error if it cannot be driven here."""

    @abstractmethod
    def _outcomes(self, run_id: str, answers: Mapping[Any, Any], definition: ProcessFactory) -> Mapping[str, Outcome]:
        """Return answers to the questions of a run as outcomes by key."""


# The four functions that drive


def run(runnable: Runnable, claimed: Claimed, sink: Sink | None = None, *, is_shared: bool = True) -> Any:
    """Drive a process in this thread until it ends or waits.  Return its result, or raise its failure."""
    process, recorder = claimed
    tell = _both(runnable._listener_to(process), sink)
    drivers.run(process, runnable._environment_of(process), tell, recorder, is_shared=is_shared)
    return result_of(process)


async def arun(runnable: Runnable, claimed: Claimed, sink: Sink | None = None) -> Any:
    """`run` for asyncio."""
    await adrive_claimed(runnable, claimed, sink)
    return result_of(claimed[0])


def stream(runnable: Runnable, begun: Callable[[], Claimed]) -> Generator[Any]:
    """Yield the events of a process, and raise its failure after the last event.

    The process is claimed when the first event is requested.
    """
    process, recorder = begun()
    tell = runnable._listener_to(process)
    with closing(drivers.drive(process, runnable._environment_of(process), recorder=recorder)) as events:
        for event in events:
            if tell is not None:
                tell(event)
            yield event
    if not process.effects:
        result_of(process)


async def astream(runnable: Runnable, begun: Callable[[], Awaitable[Claimed]]) -> AsyncGenerator[Any]:
    """`stream` for asyncio."""
    process, recorder = await begun()
    tell = runnable._listener_to(process)
    # A loop that ends closes all async generators at once, so this one could be closed before `adrive`.
    async with AsyncDriver(process, runnable._environment_of(process), is_streamed=True, recorder=recorder) as driver:
        for event in driver.events():
            reported = event or await driver.wait()
            if reported is not None:
                if tell is not None:
                    tell(reported)
                yield reported
    last = drivers.last_event(process)
    if tell is not None:
        tell(last)
    yield last
    if not process.effects:
        result_of(process)


def adrive_claimed(runnable: Runnable, claimed: Claimed, sink: Sink | None) -> Awaitable[Any]:
    """Drive a process until it ends or waits, and raise no failure."""
    process, recorder = claimed
    return drivers.arun(
        process, runnable._environment_of(process), _both(runnable._listener_to(process), sink), recorder
    )


def result_of(process: Any) -> Any:
    """Return the result of a process that was driven, or raise its failure or suspension."""
    if (used := USED_INSIDE.get()) is not None:
        used.append(process.record.total_usage)
    return process.result()


# How a process begins


def begin(runnable: Runnable, task: Any, options: Mapping[str, Any]) -> Claimed:
    """Make the process of a task, unless the task is a process, and claim its run."""
    return claim(runnable, _process_in(runnable, task, options) or runnable.prepare(task, **options))


async def abegin(runnable: Runnable, task: Any, options: Mapping[str, Any]) -> Claimed:
    """`begin` for asyncio.  Steps that may wait for a disk run in a thread."""
    process = _process_in(runnable, task, options)
    if process is None and _reads_disk(runnable):
        process = await asyncio.to_thread(partial(runnable.prepare, task, **options))
    elif process is None:
        process = runnable.prepare(task, **options)
    return await aclaim_process(runnable, process)


def claim(runnable: Runnable, process: Any) -> Claimed:
    """Return a process and its recorder.  If its run has begun before, the process comes from the store."""
    if process.journal is None or not process.journal.header:
        return process, None
    return runnable.runs.all.claims.begin(process, runnable._definition_of(process))


async def aclaim_process(runnable: Runnable, process: Any) -> Claimed:
    """`claim` for asyncio."""
    if process.journal is None or not process.journal.header:
        return process, None
    claims, definition = runnable.runs.all.claims, runnable._definition_of(process)
    if claims.is_instant(process, definition):
        return claims.begin(process, definition)
    return await aclaim(partial(claims.begin, process, definition))


def _reads_disk(runnable: Runnable) -> bool:
    return runnable._reads_store and not runnable.runs.all.store.is_volatile


def _process_in(runnable: Runnable, task: Any, options: Mapping[str, Any]) -> Any:
    if not isinstance(task, runnable._process_type):
        return None
    runnable._check_process(task, "run")
    for name, value in options.items():
        if value is not None and value is not False and value != "":
            raise UsageError(
                f"{name}: expected none beside {_a_process(runnable)}, which has its own; pass prepare(…, {name}=…)"
            )
    return task


def check_process(runnable: Runnable, process: Any, verb: str) -> None:
    """Refuse everything but a process of this kind."""
    if not isinstance(process, runnable._process_type):
        right = f"{'call' if verb == 'run' else 'acall'}({safe_repr(process)})"
        raise UsageError(f"{verb}: expected {_a_process(runnable)}, got {safe_repr(process)}; use {right}")


def check_sink(sink: Any) -> None:
    """Refuse a sink that cannot be called with each event, before a run is claimed for it.

    Raises:
        UsageError: The sink is not callable, or it is a coroutine function, which is not awaited.
    """
    is_right = sink is None or (callable(sink) and not inspect.iscoroutinefunction(sink))
    require("sink", sink, is_right, "a plain function of an event, such as print")


def _a_process(runnable: Runnable) -> str:
    kind = runnable._process_type.__name__
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"


def _both(tell: Sink | None, sink: Sink | None) -> Sink | None:
    if tell is None or sink is None:
        return tell or sink

    def tell_both(event: Event) -> None:
        tell(event)
        sink(event)

    return tell_both

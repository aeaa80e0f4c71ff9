"""`Runnable`, the interface of agents, conversations, flows and orchestrators, and the functions that drive them.

Their public methods, such as `call`, are thin wrappers around these functions.  `begin` makes a process and claims its
run; `run` and `stream` drive the process in this thread, and `arun` and `astream` drive it with asyncio.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import closing
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeAlias

from typing_extensions import TypeVar

from fsm_agent.agents.nested_calls import acall_inside, call_inside
from fsm_agent.call.derived_events import last_event
from fsm_agent.call.journal import Header
from fsm_agent.call.outcomes import Outcome
from fsm_agent.errors import UsageError
from fsm_agent.messages.events import Event
from fsm_agent.messages.reply import Usage
from fsm_agent.runtime import drivers
from fsm_agent.runtime.drivers import AsyncDriver
from fsm_agent.runtime.environment import Environment
from fsm_agent.runtime.run_function import InnerCalls
from fsm_agent.store.claiming import Claimed, ProcessFactory, aclaim
from fsm_agent.store.runs import Runs
from fsm_agent.validation import require, safe_repr

Sink: TypeAlias = Callable[[Event], Any]
Result = TypeVar("Result", default=Any, covariant=True)
# The usage of processes that a program drives, for the call of the program.
USED_INSIDE: ContextVar[list[Usage] | None] = ContextVar("fsm_agent_used_inside", default=None)


class _BoundRuns(Protocol):
    @property
    def all(self) -> Runs: ...


class Runnable(ABC, Generic[Result]):
    """An agent, a conversation, a flow or an orchestrator, as drivers, workers and pages see it.

    Attributes:
        name: The name by which stored runs find the runnable.
        _process_type: The class of the runnable's processes.
        _reads_store: Whether `_prepare` reads the store, as it does for a conversation.
    """

    name: str
    _process_type: ClassVar[type[Any]]
    _reads_store: ClassVar[bool] = False

    @property
    @abstractmethod
    def runs(self) -> _BoundRuns: ...

    @property
    def _sub_runnables(self) -> Sequence[Runnable]:
        """This runnable, and the inner runnables that may have separate runs in a store."""
        return (self,)

    @abstractmethod
    def _prepare(self, task: Any, options: Mapping[str, Any]) -> Any:
        """Return a new process.  ``options`` holds the options of `prepare` by name."""

    @abstractmethod
    def _prepare_inside(self, task: Any, options: Mapping[str, Any], around: InnerCalls) -> Any:
        """Return a new process that performs a function for the outer process."""

    @abstractmethod
    def _environment_of(self, process: Any) -> Environment:
        """Return the environment that performs a process's effects."""

    @abstractmethod
    def _listener_to(self, process: Any) -> Sink | None:
        """Return a callback that forwards a process's events to the hooks, or None if there are no hooks."""

    @abstractmethod
    def _definition(self, options: Mapping[str, Any]) -> ProcessFactory:
        """Return the definition for rebuilding processes from a store, with these options (see `resume`)."""

    @abstractmethod
    def _definition_of(self, process: Any) -> ProcessFactory:
        """Return the definition for rebuilding a process from a store with the options that it was prepared with."""

    def _definition_of_run(self, header: Header, deps: Any, prompts: Mapping[str, Any]) -> ProcessFactory:
        """Return the definition with which a `Worker` rebuilds a run's process."""
        return self._definition({"deps": deps})

    @abstractmethod
    def _fingerprints(self, prompts: Sequence[Any]) -> set[str]:
        """Return the fingerprints of the runs that this runnable can begin, with its own prompt or one of these."""

    @abstractmethod
    def _check_deps(self, deps: Any) -> None:
        """Reject deps that cannot be used to drive runs.

        A function that makes deps is not called here.
        """

    @abstractmethod
    def _check_process(self, process: Any, verb: str) -> None:
        """Refuse to drive a process of another kind or one that belongs to another flow."""

    def _check_resumed(self, claimed: Claimed) -> Claimed:
        """Return a claimed run, or release it and raise an error if it cannot be driven here."""
        return claimed

    @abstractmethod
    def _outcomes(self, run_id: str, answers: Mapping[Any, Any], definition: ProcessFactory) -> Mapping[str, Outcome]:
        """Return answers to a run's questions as outcomes by key."""

    _call_inside, _acall_inside = call_inside, acall_inside  # which `Context.call` and `acall` ask for


# Driving a process


def run(runnable: Runnable[Result], claimed: Claimed, sink: Sink | None = None, *, is_shared: bool = True) -> Result:
    """Drive a process in this thread as far as possible, and return its result or raise its error.

    The sink receives every event, after the hooks.  ``is_shared`` is False if no other code has a reference to the
    process.
    """
    process, recorder = claimed
    tell = _both(runnable._listener_to(process), sink)
    drivers.run(process, runnable._environment_of(process), tell, recorder, is_shared=is_shared)
    result: Result = result_of(process)
    return result


async def arun(runnable: Runnable[Result], claimed: Claimed, sink: Sink | None = None) -> Result:
    """The async version of `run`."""
    await adrive_claimed(runnable, claimed, sink)
    result: Result = result_of(claimed[0])
    return result


def stream(runnable: Runnable, begun: Callable[[], Claimed]) -> Generator[Any]:
    """Yield a process's events, and finally raise its error if it has failed.

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
    """The async version of `stream`."""
    process, recorder = await begun()
    tell = runnable._listener_to(process)
    # A loop that ends closes all async generators at once, so this one could be closed before `adrive`.
    async with AsyncDriver(process, runnable._environment_of(process), recorder=recorder) as driver:
        for event in driver.events():
            reported = event or await driver.wait()
            if reported is not None:
                if tell is not None:
                    tell(reported)
                yield reported
    last = last_event(process)
    if tell is not None:
        tell(last)
    yield last
    if not process.effects:
        result_of(process)


def adrive_claimed(runnable: Runnable, claimed: Claimed, sink: Sink | None) -> Awaitable[Any]:
    """Drive a process as far as possible, and ignore its result."""
    process, recorder = claimed
    return drivers.arun(
        process, runnable._environment_of(process), _both(runnable._listener_to(process), sink), recorder
    )


def result_of(process: Any) -> Any:
    """Return the result of a driven process.  If it failed or waits, raise an error."""
    if (used := USED_INSIDE.get()) is not None:
        used.append(process.record.total_usage)
    return process.result()


# Starting a process


def begin(runnable: Runnable, task: Any, options: Mapping[str, Any]) -> Claimed:
    """Return the process for a task, or the task itself if it is a process already, and claim its run."""
    return claim(runnable, _process_in(runnable, task, options) or runnable._prepare(task, options))


async def abegin(runnable: Runnable, task: Any, options: Mapping[str, Any]) -> Claimed:
    """The async version of `begin`.  Disk access happens in a thread."""
    process = _process_in(runnable, task, options)
    if process is None and _reads_disk(runnable):
        process = await asyncio.to_thread(runnable._prepare, task, options)
    elif process is None:
        process = runnable._prepare(task, options)
    return await aclaim_process(runnable, process)


def claim(runnable: Runnable, process: Any) -> Claimed:
    """Return a process and its recorder, or the stored process if its run has already begun."""
    if process.journal is None or not process.journal.header:
        return process, None
    return runnable.runs.all.claims.begin(process, runnable._definition_of(process))


async def aclaim_process(runnable: Runnable, process: Any) -> Claimed:
    """The async version of `claim`."""
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
                f"{name}: expected none for {_a_process(runnable)}, which already has its own; pass prepare(…,"
                f" {name}=…)"
            )
    return task


def check_process(runnable: Runnable, process: Any, verb: str) -> None:
    """Refuse to drive anything other than a process of this kind."""
    if not isinstance(process, runnable._process_type):
        right = f"{'call' if verb == 'run' else 'acall'}({safe_repr(process)})"
        raise UsageError(f"{verb}: expected {_a_process(runnable)}, got {safe_repr(process)}; use {right}")


def check_sink(sink: Any) -> None:
    """Reject a sink that is async or cannot be called with an event, before a run is claimed."""
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

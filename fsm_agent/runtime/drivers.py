"""Drive a process: two drivers, sync and asyncio, over one loop (`fsm_agent.runtime.reconciler`).

`run` is `drive` with nobody listening, and `arun` is `adrive` with nobody listening: who listens changes nothing.  A
driver holds nothing: stopped at any moment (Ctrl-C, a cancelled task, a generator that is closed) it ends its children
and leaves a process at rest that any driver goes on with.

Every wait (for a request, a stream, a moment, an approval, functions) ends at once when the process is cancelled or its
deadline passes.  A plain function cannot be ended, and is left behind in its thread.  One with ``blocking=False`` needs
none, and is waited for.  Under the sync driver a function that is alone in its round has none either where nothing
could end the wait: the caller alone has the process, without a deadline or timeout.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeAlias, TypeVar

from fsm_agent.machine.process import Process, wakes_at_s
from fsm_agent.messages.event import Done, Event, Suspended
from fsm_agent.runtime.async_driver import AsyncDriver
from fsm_agent.runtime.recorder import Recorder
from fsm_agent.runtime.sync_driver import SyncDriver
from fsm_agent.runtime.world import World

P = TypeVar("P", bound=Process)

Events: TypeAlias = Generator[Event, None, None]
AsyncEvents: TypeAlias = AsyncGenerator[Event, None]


def run(
    process: P,
    world: World,
    sink: Callable[[Event], Any] | None = None,
    recorder: Recorder | None = None,
    *,
    is_shared: bool = True,
) -> P:
    """Drive a process, such as an agent call, to its end, or to where nobody here can give the answer it waits for.

    Args:
        process: The process.
        world: Performs its effects.
        sink: Receives every event; the model's reply is then streamed.
        recorder: Writes the journal of the process, and gives the run back in the end.
        is_shared: Others than the caller have the process, or will have while it runs, and may cancel it.

    Raises:
        UsageError: The process is being driven already.
    """
    with SyncDriver(process, world, has_listener=sink is not None, recorder=recorder, is_shared=is_shared) as driver:
        for event in driver.events():
            if event is None:
                driver.wait()
            elif sink is not None:
                sink(event)
    if sink is not None:
        sink(_last(process))
    return process


async def arun(
    process: P, world: World, sink: Callable[[Event], Any] | None = None, recorder: Recorder | None = None
) -> P:
    """Do the same as `run` under asyncio."""
    async with AsyncDriver(process, world, has_listener=sink is not None, recorder=recorder) as driver:
        for event in driver.events():
            reported = event or await driver.wait()
            if reported is not None and sink is not None:
                sink(reported)
    if sink is not None:
        sink(_last(process))
    return process


def drive(process: Process, world: World, *, streaming: bool = True, recorder: Recorder | None = None) -> Events:
    """Drive a process and yield its events as they happen; the last is exactly one `Done` or one `Suspended`."""
    with SyncDriver(process, world, is_streamed=streaming, recorder=recorder) as driver:
        for event in driver.events():
            if event is None:
                driver.wait()
            else:
                yield event
    yield _last(process)


async def adrive(
    process: Process, world: World, *, streaming: bool = True, recorder: Recorder | None = None
) -> AsyncEvents:
    """Do the same as `drive` under asyncio: coroutine functions run as tasks, plain ones in threads."""
    async with AsyncDriver(process, world, is_streamed=streaming, recorder=recorder) as driver:
        for event in driver.events():
            reported = event or await driver.wait()
            if reported is not None:
                yield reported
    yield _last(process)


def _last(process: Process) -> Event:
    if process.effects:
        return Suspended(tuple([effect.key for effect in process.effects]), wakes_at_s(process))
    return Done(process.outcome)

"""Drive a process: two drivers, sync and asyncio, over one loop (`fsm_agent.runtime.reconciler`).

`run` and `arun` are `drive` and `adrive` without a consumer of events; listening changes nothing else.  A driver has no
state of its own.  When it is stopped at any moment (Ctrl-C, a cancelled task, a closed generator), it ends its
threads and tasks, and leaves a process that any driver can continue.

Under the sync driver the steps are taken in the caller's thread, and what waits runs in the one loop of
`fsm_agent.runtime.portal`: validators, guards and the like may look into a database that blocks.

Every wait (for a request, a stream, a time, an approval, a function) ends at once when the process is cancelled or its
deadline passes.  A plain function cannot be interrupted, and is left behind in its thread.  A function with
``blocking=False`` runs without a thread, and the driver waits for it.  Under the sync driver, the lone function of a
round also runs without a thread if nothing could end the wait: only the caller has the process, and there is no
deadline or timeout.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeAlias, TypeVar

from fsm_agent.call.process import Process, open_effects, questions_of, wakes_at_s
from fsm_agent.messages.events import Done, Event, Suspended
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
    may_rest: Callable[[], bool] | None = None,
) -> P:
    """Drive a process, such as an agent call, to its end, or until it waits for an answer that the driver cannot give.

    Args:
        process: The process.
        world: Performs its effects.
        sink: Receives every event; the model's reply is then streamed.
        recorder: Writes the journal of the process, and gives the run back at the end.
        is_shared: Whether code other than the caller has the process, or gets it while it runs, and may cancel it.
        may_rest: See `SyncDriver`.

    Raises:
        UsageError: The process is being driven already.

    Examples:
        >>> asked = AgentCall.seed(Dialog().put("Hello"), Prompt("{{ task }}"))
        >>> run(asked, World(client=Script("Hi."))).state
        <State.COMPLETED: 'Completed'>
    """
    with SyncDriver(
        process, world, sink is not None, recorder=recorder, is_shared=is_shared, may_rest=may_rest
    ) as driver:
        for event in driver.events():
            if event is None:
                driver.wait()
            elif sink is not None:
                sink(event)
    if sink is not None:
        sink(last_event(process))
    return process


async def arun(
    process: P, world: World, sink: Callable[[Event], Any] | None = None, recorder: Recorder | None = None
) -> P:
    """Drive a process to its end under asyncio, as `run` does.

    Examples:
        >>> import asyncio
        >>> asked = AgentCall.seed(Dialog().put("Hello"), Prompt("{{ task }}"))
        >>> asyncio.run(arun(asked, World(client=Script("Hi.")))).state
        <State.COMPLETED: 'Completed'>
    """
    async with AsyncDriver(process, world, has_listener=sink is not None, recorder=recorder) as driver:
        for event in driver.events():
            reported = event or await driver.wait()
            if reported is not None and sink is not None:
                sink(reported)
    if sink is not None:
        sink(last_event(process))
    return process


def drive(process: Process, world: World, *, streaming: bool = True, recorder: Recorder | None = None) -> Events:
    """Drive a process and yield its events as they happen; the last is exactly one `Done` or one `Suspended`.

    Examples:
        >>> asked = AgentCall.seed(Dialog().put("Hello"), Prompt("{{ task }}"))
        >>> [type(event).__name__ for event in drive(asked, World(client=Script("Hi.")))][-1]
        'Done'
    """
    with SyncDriver(process, world, is_streamed=streaming, recorder=recorder) as driver:
        for event in driver.events():
            if event is None:
                driver.wait()
            else:
                yield event
    yield last_event(process)


async def adrive(
    process: Process, world: World, *, streaming: bool = True, recorder: Recorder | None = None
) -> AsyncEvents:
    """Drive a process and yield its events under asyncio: coroutine functions run in tasks, plain ones in threads.

    Examples:
        >>> import asyncio
        >>> async def main():
        ...     asked = AgentCall.seed(Dialog().put("Hello"), Prompt("{{ task }}"))
        ...     return [type(event).__name__ async for event in adrive(asked, World(client=Script("Hi.")))][-1]
        >>> asyncio.run(main())
        'Done'
    """
    async with AsyncDriver(process, world, is_streamed=streaming, recorder=recorder) as driver:
        for event in driver.events():
            reported = event or await driver.wait()
            if reported is not None:
                yield reported
    yield last_event(process)


def last_event(process: Process) -> Event:
    """Return the event after which no other comes: `Done`, or `Suspended` with the open questions."""
    if process.effects:
        keys = [effect.key for effect in open_effects(process)]
        return Suspended(tuple(keys), wakes_at_s(process), questions_of(process))
    return Done(process.result_so_far)

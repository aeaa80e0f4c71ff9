"""The sync and asyncio drivers, and the functions that drive a process with them."""

from __future__ import annotations

import asyncio
import math
import queue
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from types import AsyncGeneratorType
from typing import Any, Self, TypeAlias, TypeVar

from fsm_agent.call.derived_events import last_event
from fsm_agent.call.process import Process
from fsm_agent.messages.events import Event, Inside
from fsm_agent.runtime import portal
from fsm_agent.runtime.activity import Activity, cancelled_inside, perform, raise_own_cancellation
from fsm_agent.runtime.drive_loop import GRACE_S, Driver
from fsm_agent.runtime.environment import Environment, Recorder
from fsm_agent.runtime.portal import Aborted, Place, abort_in_force
from fsm_agent.runtime.probes import MeasuredDrive

_left: set[asyncio.Task[Any]] = set()  # cancelled tasks that have not ended; the loop references them only weakly


class AsyncDriver(Driver):
    """The asyncio driver.  Activities run in tasks, except that a lone activity may run in the driver's own task."""

    _loop: asyncio.AbstractEventLoop  # in which it drives
    _bell: asyncio.Future[None] | None = None  # ends the driver's wait
    _waiting_task: asyncio.Task[Any] | None = None  # the driver's own task, while it performs a lone activity
    _is_interrupted: bool = False
    _alone: Activity | None = None  # performed in the driver's own task

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self.claim()
        return self

    async def __aexit__(self, kind: object, raised: object, traceback: object) -> None:
        if raised is None:
            await self._close(raised)
        elif self.ends_elsewhere(partial(self._end_without_loop, raised)):
            pass
        elif not self._loop.is_running():
            self._end_without_loop(raised)
        else:
            with _one_cancellation():
                await self._close(raised)

    async def _close(self, raised: object) -> None:
        try:
            try:
                if self._alone is not None:
                    await self._close_alone()
                if self.active:
                    for activity in self.active.values():
                        self.leave(activity)
                if self.left_behind:
                    await asyncio.wait(self.left_behind, timeout=GRACE_S)
            finally:  # even if the task is cancelled again
                if self.active:
                    self.keep_results()
                if self.recorder is not None:
                    await self._give_back(self.recorder, raised)
        except Exception as error:
            self.add_cleanup_error(raised, error)
        finally:
            while self.left_behind:
                _forget(self.left_behind.pop())
            self.release(raised)

    def _end_without_loop(self, raised: object) -> None:
        try:
            self.keep_and_give_back(raised)
        finally:
            self.release(raised)

    async def _give_back(self, recorder: Recorder, raised: object) -> None:
        recorder.finish(is_stopped=True, raised=raised)
        try:
            while recorder.is_behind:
                await self._write(recorder)
        except asyncio.CancelledError:  # again, so the rest is written without this task
            portal.ThreadTask(partial(_write_rest, recorder)).start()
            raise

    def wait(self) -> Awaitable[Event | None]:
        """Write the journal, or wait up to `patience_s` seconds until something happens.

        Returns:
            An awaitable that yields an event from a lone activity, or None.
        """
        if self.is_to_write and self.recorder is not None:
            self.is_to_write = False
            return self._write(self.recorder)
        alone = self._alone
        if alone is not None and not alone.is_dropped:
            return self._wait_alone(alone)
        return self._wait_for_others()

    async def _write(self, recorder: Recorder) -> None:
        future = recorder.submit()
        while future is not None:
            bell = self._loop.create_future()  # awaited in place of the write, which a cancellation must not end
            future.add_done_callback(partial(self._soon, _ring, bell))
            await bell
            future = recorder.complete_write(future)

    async def _wait_for_others(self) -> None:
        bell = self._bell = self._loop.create_future()  # before anything is awaited, so that no ring is missed
        try:
            await self._close_alone()
            if self.inbox:
                return
            patience_s = self.patience_s()
            async with asyncio.timeout(patience_s) if patience_s is not None else nullcontext():
                await bell
        except TimeoutError:
            self.handle_limit()
        finally:
            self._bell = None

    async def _wait_alone(self, alone: Activity) -> Event | None:
        task = self._waiting_task = asyncio.current_task(self._loop)
        assert task is not None
        cancellations = task.cancelling()
        limit: asyncio.Timeout | None = None
        try:
            if self.is_timed:
                async with asyncio.timeout(self.patience_s()) as limit:
                    item = await (_next_of(alone) if self.probe is None else _next_inside(alone, self.probe))
            else:
                item = await (_next_of(alone) if self.probe is None else _next_inside(alone, self.probe))
            if alone.stream is not None and type(item) not in alone.effect.outcomes:
                return self._report_alone(alone, item)
            self._raise_swallowed(task, cancellations)
            if self.probe is not None:
                self.probe.end(alone, item)
            self.inbox.append((alone, None, item))
        except asyncio.CancelledError as error:
            if not self._is_interrupted or task.uncancel() > cancellations:
                raise_own_cancellation(error)
                raise cancelled_inside(alone) from error
            self._begin_again(alone)
        except TimeoutError:
            if limit is None or not limit.expired():
                raise
            self.handle_limit()
            self._begin_again(alone)
        finally:
            self._waiting_task, self._is_interrupted = None, False
        self._alone = None
        if alone.stream is not None:
            await alone.stream.aclose()
        return None

    def _raise_swallowed(self, task: asyncio.Task[Any], cancellations: int) -> None:
        """Raise a cancellation that the activity has swallowed, unless it is the driver's own interruption."""
        if (swallowed := task.cancelling() - cancellations) > self._is_interrupted:
            raise asyncio.CancelledError
        if swallowed:
            task.uncancel()

    def _begin_again(self, alone: Activity) -> None:
        """Drop an interrupted activity.  It is started again if the process still waits for its effect."""
        self._record = None
        self.drop(alone.key)

    def _report_alone(self, alone: Activity, arrived: Event) -> Event | None:
        """Return the first of the events to report for an event that has arrived, and put the others into the inbox."""
        if self.process.end_request is not None:
            return None
        events = alone.events_of(arrived)
        if len(events) > 1:
            self.inbox.extend([(alone, event, None) for event in events[1:]])
        return Inside(alone.path, events[0]) if alone.path else events[0]

    async def _close_alone(self) -> None:
        alone, self._alone = self._alone, None
        if alone is not None and alone.stream is not None:
            await alone.stream.aclose()

    def wake(self) -> None:
        self._soon(self._interrupt)

    def wake_for_post(self) -> None:
        self._soon(self.ring)  # in the loop's thread, which may be making the bell now

    def _soon(self, call: Callable[..., Any], *args: Any) -> None:
        """Call a function in the loop's thread, from any thread."""
        with suppress(RuntimeError):  # the loop is closed, so nothing waits
            self._loop.call_soon_threadsafe(call, *args)

    def _interrupt(self) -> None:
        if self._waiting_task is not None and not self._is_interrupted:  # otherwise it is ending already
            self._is_interrupted = True
            self._waiting_task.cancel()
        self.ring()

    def start(self, activity: Activity) -> None:
        is_alone = self._alone is None and not self.active and not self.waiting
        self.active[activity.key] = activity
        if is_alone and self._may_be_alone(activity):
            self._alone = activity
            return
        create = partial(self._loop.create_task, perform(activity), name=activity.key)
        activity.handle = create() if self.probe is None else self.begin_measured(activity, create)
        activity.handle.add_done_callback(partial(self.put, activity, None))

    def _may_be_alone(self, activity: Activity) -> bool:
        """Return whether the driver's own task may perform an activity.

        While the driver performs an activity itself, it takes no posts, and a limit on the wait ends the activity.
        """
        if self._open:  # others may answer meanwhile
            return False
        if not activity.is_abortable:
            return self._may_run_inline and not self.is_timed
        if self.is_timed and not self.ends_with_deadline(activity):
            return False
        if self.recorder is None:
            return True
        # Posts to a store in memory are rare, except for answers to a question.
        return self.recorder.is_instant and activity.effect.question is None

    def ring(self) -> None:
        if (bell := self._bell) is not None:
            self._bell = None  # one ring ends the wait
            _ring(bell)

    def report(self, key: str, event: Event) -> None:
        if (activity := self.active.get(key)) is not None:
            self._soon(self.put, activity, event)


def _next_of(alone: Activity) -> Awaitable[Any]:
    """Return an awaitable for an activity's outcome or, if it streams, for the next item."""
    if alone.stream is None:
        work: Any = alone.perform()
        if not isinstance(work, AsyncGeneratorType):
            return work  # type: ignore[no-any-return]
        alone.stream = work
    return anext(alone.stream)


async def _next_inside(alone: Activity, probe: MeasuredDrive) -> Any:
    """Return the result of `_next_of`, awaited while the activity's measurement is the current one.

    A stream yields its items between two calls, so the consumer never runs inside that measurement.
    """
    try:
        with probe.inside(alone):
            return await _next_of(alone)
    except Exception as error:
        probe.end(alone, error)
        raise


def _one_cancellation() -> AbstractContextManager[Any]:
    """Return a context manager that protects a cleanup from repeated cancellations by anyio.

    asyncio cancels a task once.  anyio's cancel scopes, which Starlette and FastAPI put around each response, cancel
    the task again at each await, so a run could not be released.
    """
    if "anyio" not in sys.modules:  # then no scope of anyio can exist
        return nullcontext()
    import anyio

    return anyio.CancelScope(shield=True)


def _write_rest(recorder: Recorder) -> None:
    while recorder.is_behind:
        recorder.write()


def _ring(bell: asyncio.Future[None], _: object = None) -> None:
    if not bell.done():
        bell.set_result(None)


def _forget(task: asyncio.Task[Any]) -> None:
    """Leave a cancelled task behind, and discard its result."""
    _left.add(task)

    def forget(task: asyncio.Task[Any]) -> None:
        _left.discard(task)
        if not task.cancelled():
            task.exception()

    task.add_done_callback(forget)


LEFT = "the function that made this agent call was abandoned"


class SyncDriver(Driver):
    """The sync driver.  Activities are tasks in the portal's event loop, so that the driver can end each wait.

    A lone plain function runs in the driver's own thread if nothing can end the wait.

    Args:
        is_shared: Whether code other than the caller may cancel the process.
        may_rest: A function that is called if the function in which this driver runs is abandoned.  It returns True to
            leave the process at rest, to be continued later, instead of cancelling it.
    """

    is_sync = True
    _loop: asyncio.AbstractEventLoop | None = None  # the loop in which it performs activities
    _is_to_rest = False

    def __init__(
        self,
        process: Process,
        environment: Environment,
        has_listener: bool = True,
        is_streamed: bool = True,
        recorder: Recorder | None = None,
        is_shared: bool = True,
        may_rest: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(process, environment, has_listener, is_streamed, recorder)
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._may_rest = may_rest
        self._around = abort_in_force()  # the `Abort` of the function that this driver runs in, if any
        self._may_be_ended = is_shared or recorder is not None or self._around is not None

    def __enter__(self) -> Self:
        self.claim()
        if self._around is not None:
            self._around.add(self._abandon)
        return self

    def __exit__(self, kind: object, raised: object, traceback: object) -> None:
        if kind is GeneratorExit and self.ends_elsewhere(lambda: self.__exit__(kind, raised, None)):
            return
        try:
            if self._around is not None:
                self._around.discard(self._abandon)
            for activity in self.active.values():
                self.leave(activity)
            if self.left_behind:
                portal.wait_for_end(self.left_behind, self._bell, GRACE_S)
            self.keep_and_give_back(raised)
        finally:
            self.left_behind.clear()
            self.release(raised)
        if raised is None and self._around is not None:
            self._around.check()  # nothing that the function does after this counts

    def _abandon(self) -> None:
        assert self._around is not None
        if self._around.is_to_rest or (self._may_rest is not None and self._may_rest()):
            self.rest()
        else:
            self.process.cancel(LEFT)

    def rest(self) -> None:
        """Stop driving and leave the process as it is.  Any thread may call this; the next wait raises `Aborted`."""
        self._is_to_rest = True
        self.wake()

    def wait(self) -> None:
        """Write the journal, or wait up to `patience_s` seconds until something happens.

        Raises:
            Aborted: If `rest` was called.
        """
        if self._is_to_rest:
            raise Aborted
        if self.is_to_write and self.recorder is not None:
            self.is_to_write = False
            self.recorder.write()
            return
        patience_s = self.patience_s()
        until_s = math.inf if patience_s is None else time.monotonic() + patience_s
        while not self.is_late:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                self.handle_limit()
                return
            with suppress(queue.Empty):
                self._bell.get(timeout=min(left_s, portal.LOOK_UP_S))
                return

    def wake(self) -> None:
        self.ring()

    def wake_for_post(self) -> None:
        self.ring()

    def start(self, activity: Activity) -> None:
        is_alone = not self.active and (not self.waiting or (self.environment.threads == 0 and not self._is_mixed))
        self.active[activity.key] = activity
        if is_alone and self._may_run_here(activity):
            activity.place = Place.HERE
            self.inbox.append((activity, None, self._perform_here(activity)))
            return
        if self._loop is None:
            self._loop = portal.loop()
        task = portal.LoopTask(self._loop, partial(perform, activity), partial(self.put, activity, None))
        activity.handle = task
        self.begin_measured(activity, task.start)

    def _may_run_here(self, activity: Activity) -> bool:
        """Return whether a lone activity is plain code that nothing interrupts, which the driver's thread may run."""
        if activity.place is not Place.THREAD or self.is_timed or not self._may_run_inline:
            return False
        return activity.is_quick or not self._may_be_ended

    def _perform_here(self, activity: Activity) -> Any:
        work: Any = activity.perform()
        if self.probe is None:
            return portal.without_waiting(work)
        try:
            with self.probe.inside(activity):
                outcome = portal.without_waiting(work)
        except BaseException as error:
            self.probe.end(activity, error)
            raise
        self.probe.end(activity, outcome)
        return outcome

    def ring(self) -> None:
        self._bell.put(None)

    def report(self, key: str, event: Event) -> None:
        if (activity := self.active.get(key)) is not None:
            self.put(activity, event)


P = TypeVar("P", bound=Process)
Events: TypeAlias = Generator[Event, None, None]
AsyncEvents: TypeAlias = AsyncGenerator[Event, None]


def run(
    process: P,
    environment: Environment,
    sink: Callable[[Event], Any] | None = None,
    recorder: Recorder | None = None,
    *,
    is_shared: bool = True,
    may_rest: Callable[[], bool] | None = None,
) -> P:
    """Drive a process until it ends or is waiting for an answer that this driver cannot give.

    Args:
        process: The process, such as an agent call.
        environment: The resources for its effects.
        sink: A function that receives every event.  With a sink, the model's reply is streamed.
        recorder: The recorder, which writes the journal and releases the run at the end.
        is_shared: Whether code other than the caller may cancel the process.
        may_rest: See `SyncDriver`.

    Raises:
        UsageError: If the process is already being driven.

    Examples:
        >>> asked = AgentCall.seed(Dialog().put("Hello"), Prompt("{{ task }}"))
        >>> run(asked, Environment(client=Script("Hi."))).state
        <State.COMPLETED: 'Completed'>
    """
    with SyncDriver(
        process, environment, sink is not None, recorder=recorder, is_shared=is_shared, may_rest=may_rest
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
    process: P, environment: Environment, sink: Callable[[Event], Any] | None = None, recorder: Recorder | None = None
) -> P:
    """The async version of `run`.

    Examples:
        >>> import asyncio
        >>> asked = AgentCall.seed(Dialog().put("Hello"), Prompt("{{ task }}"))
        >>> asyncio.run(arun(asked, Environment(client=Script("Hi.")))).state
        <State.COMPLETED: 'Completed'>
    """
    async with AsyncDriver(process, environment, has_listener=sink is not None, recorder=recorder) as driver:
        for event in driver.events():
            reported = event or await driver.wait()
            if reported is not None and sink is not None:
                sink(reported)
    if sink is not None:
        sink(last_event(process))
    return process


def drive(process: Process, environment: Environment, *, recorder: Recorder | None = None) -> Events:
    """Drive a process and yield its events as they happen.  The last event is a `Done` or a `Suspended`.

    Examples:
        >>> asked = AgentCall.seed(Dialog().put("Hello"), Prompt("{{ task }}"))
        >>> [type(event).__name__ for event in drive(asked, Environment(client=Script("Hi.")))][-1]
        'Done'
    """
    with SyncDriver(process, environment, recorder=recorder) as driver:
        for event in driver.events():
            if event is None:
                driver.wait()
            else:
                yield event
    yield last_event(process)


async def adrive(process: Process, environment: Environment, *, recorder: Recorder | None = None) -> AsyncEvents:
    """The async version of `drive`.  Coroutine functions run in tasks, and plain functions in threads.

    Examples:
        >>> import asyncio
        >>> async def main():
        ...     asked = AgentCall.seed(Dialog().put("Hello"), Prompt("{{ task }}"))
        ...     return [type(event).__name__ async for event in adrive(asked, Environment(client=Script("Hi.")))][-1]
        >>> asyncio.run(main())
        'Done'
    """
    async with AsyncDriver(process, environment, recorder=recorder) as driver:
        for event in driver.events():
            reported = event or await driver.wait()
            if reported is not None:
                yield reported
    yield last_event(process)

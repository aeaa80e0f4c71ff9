"""Drive an agent call: two drivers, sync and asyncio, over one loop (`fsm_agent.runtime.reconciler`).

`run` is `drive` with nobody listening, and `arun` is `adrive` with nobody listening: who listens changes nothing.  A
driver holds nothing: stopped at any moment (Ctrl-C, a cancelled task, a generator that is closed) it ends its children
and leaves a call at rest that any driver goes on with.

Every wait (for a request, a stream, a moment, an approval, functions) ends at once when the call is cancelled or its
deadline passes.  A plain function cannot be ended: it is left behind in its thread; one that runs in the driver's own
thread (alone in its round under the sync driver, without a timeout, a deadline or a `Context`; or with
``blocking=False`` under asyncio) is waited for.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.call_result import CallResult
from fsm_agent.lifecycle.effects import CallModel, Effect, RunFunction
from fsm_agent.lifecycle.outcomes import ModelFailed, Outcome, Replied
from fsm_agent.messages.event import Done, Event, Suspended
from fsm_agent.runtime.abort import abort_in_force
from fsm_agent.runtime.deadlines import AsyncEvents, Events
from fsm_agent.runtime.perform import Activity, aperform, perform
from fsm_agent.runtime.reconciler import MAX_BACKLOG, Reconciler
from fsm_agent.runtime.thread_task import ThreadTask
from fsm_agent.runtime.world import World

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

GRACE_S = 0.05  # how long cancelled work may take to end before it is left behind

_left: set[asyncio.Task[Any]] = set()  # cancelled and not ended yet: the loop refers to its tasks weakly


def run(call: AgentCall, world: World, sink: Callable[[Event], Any] | None = None) -> AgentCall:
    """Drive ``call`` to its end, or to where it waits for an answer that nobody here can give.

    Args:
        call: The call.
        world: Performs its effects.
        sink: Receives every event; the model's reply is then streamed.

    Raises:
        UsageError: The call is being driven already.
    """
    with Threads(call, world, is_heard=sink is not None) as threads:
        for event in threads.events():
            if event is None:
                threads.wait()
            elif sink is not None:
                sink(event)
    if sink is not None:
        sink(_last(call))
    return call


async def arun(call: AgentCall, world: World, sink: Callable[[Event], Any] | None = None) -> AgentCall:
    """Do the same as `run` under asyncio."""
    async with Tasks(call, world, is_heard=sink is not None) as tasks:
        for event in tasks.events():
            reported = event or await tasks.wait()
            if reported is not None and sink is not None:
                sink(reported)
    if sink is not None:
        sink(_last(call))
    return call


def drive(call: AgentCall, world: World, *, streaming: bool = True) -> Events:
    """Drive ``call`` and yield its events as they happen; the last is exactly one `Done` or one `Suspended`."""
    with Threads(call, world, is_streamed=streaming) as threads:
        for event in threads.events():
            if event is None:
                threads.wait()
            else:
                yield event
    yield _last(call)


async def adrive(call: AgentCall, world: World, *, streaming: bool = True) -> AsyncEvents:
    """Do the same as `drive` under asyncio: coroutine functions run as tasks, plain ones in threads."""
    async with Tasks(call, world, is_streamed=streaming) as tasks:
        for event in tasks.events():
            reported = event or await tasks.wait()
            if reported is not None:
                yield reported
    yield _last(call)


def _last(call: AgentCall) -> Event:
    if call.effects:
        return Suspended(tuple([effect.key for effect in call.effects]))
    return Done(CallResult(call))


class Threads(Reconciler):
    """The sync driver: waits run in threads, a function that is alone in the driver's own."""

    def __init__(self, call: AgentCall, world: World, **options: bool) -> None:
        super().__init__(call, world, **options)
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._room = threading.Semaphore(MAX_BACKLOG)
        self._left_behind: list[ThreadTask[Any]] = []
        self._around = abort_in_force()  # that of the function that makes this agent call

    def __enter__(self) -> Self:
        self.claim()
        if self._around is not None:
            self._around.add(self._abandon)
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            if self._around is not None:
                self._around.discard(self._abandon)
            for activity in self.active.values():
                self._leave(activity)
            until_s = time.monotonic() + GRACE_S
            for child in self._left_behind:
                child.join(max(0.0, until_s - time.monotonic()))
            self.keep()
        finally:
            self._left_behind.clear()
            self.release()

    def _abandon(self) -> None:
        self.call.cancel("the function that made this agent call was left behind")

    def wait(self) -> None:
        """Wait until something happens, for at most `patience_s` seconds."""
        try:
            self._bell.get(timeout=self.patience_s())
        except queue.Empty:
            self.is_overdue = True

    def wake(self) -> None:
        self._bell.put(None)

    def has_room(self, effect: RunFunction) -> bool:
        return len(self.active) < max(1, self.world.threads)

    def reported(self, activity: Activity) -> None:
        if type(activity.effect) is CallModel:
            self._room.release()

    def start(self, effect: Effect) -> None:
        activity = self.activity(effect, self._report)
        is_alone = not self.active and (self.world.threads == 0 or not self.waiting)
        if activity.run is not None and is_alone and self._is_brief:
            self._put(activity, None, perform(effect, activity))
            self.active[effect.key] = activity
            return
        self.active[effect.key] = activity
        activity.handle = ThreadTask[Any](partial(self._perform, activity))
        activity.handle.future.add_done_callback(lambda future: self._put(activity, None, future))
        activity.handle.start()

    def drop(self, key: str) -> None:
        self._leave(self.active.pop(key))

    def _leave(self, activity: Activity) -> None:
        activity.let_go()
        if type(activity.effect) is not RunFunction and activity.handle is not None:
            self._left_behind.append(activity.handle)
            self._room.release()  # it may wait for room

    def _put(self, activity: Activity, event: Event | None, ended: Any = None) -> None:
        self.inbox.append((activity, event, ended))
        self._bell.put(None)

    def _report(self, key: str, event: Event) -> None:
        if (activity := self.active.get(key)) is not None:
            self._put(activity, event)

    def _perform(self, activity: Activity, child: ThreadTask[Any]) -> Outcome | None:
        work: Any = perform(activity.effect, activity)
        if not isinstance(work, Generator):
            outcome: Outcome | None = work
            return outcome
        try:
            while not child.future.cancelled():
                self._put(activity, next(work))
                self._room.acquire()
        except StopIteration as end:
            outcome = end.value
        else:
            outcome = None
        finally:
            work.close()
        return outcome


class Tasks(Reconciler):
    """The asyncio driver: waits run in tasks, an activity that is alone in the driver's own."""

    def __init__(self, call: AgentCall, world: World, **options: bool) -> None:
        super().__init__(call, world, **options)
        self._loop = asyncio.get_running_loop()
        self._bell: asyncio.Future[None] | None = None  # ends the driver's wait
        self._room: asyncio.Future[None] | None = None  # ends the wait of a stream that is too far ahead
        self._waiting_task: asyncio.Task[Any] | None = None  # the driver's, while it performs a lone activity
        self._is_interrupted = False
        self._alone: Activity | None = None  # performed in the driver's own task
        self._left_behind: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self.claim()
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            if self._alone is not None:
                await self._close_alone()
            if self.active:
                for activity in self.active.values():
                    self._leave(activity)
            if self._left_behind:
                await asyncio.wait(self._left_behind, timeout=GRACE_S)
            if self.active:
                self.keep()
        finally:
            for task in self._left_behind:
                _forget(task)
            self._left_behind.clear()
            self.release()

    async def wait(self) -> Event | None:
        """Wait until something happens, for at most `patience_s` seconds; return an event that needs no step."""
        patience_s = self.patience_s() if self._has_deadline or self._is_timed else None
        if (alone := self._alone) is not None:
            if not alone.is_dropped:
                return await self._wait_alone(alone, patience_s)
            await self._close_alone()
        if self.inbox:
            return None
        self._bell = self._loop.create_future()
        try:
            async with asyncio.timeout(patience_s) if patience_s is not None else nullcontext():
                await self._bell
        except TimeoutError:
            self.is_overdue = True
        finally:
            self._bell = None
        return None

    async def _wait_alone(self, alone: Activity, patience_s: float | None) -> Event | None:
        task = self._waiting_task = asyncio.current_task()
        limit: asyncio.Timeout | None = None
        try:
            if patience_s is None:
                came = await _step_of(alone)
            else:
                async with asyncio.timeout(patience_s) as limit:
                    came = await _step_of(alone)
            kind = type(came)
            if alone.stream is not None and kind is not Replied and kind is not ModelFailed:
                delta: Event = came
                return delta if self.call.cancellation is None else None
            self.inbox.append((alone, None, came))
        except asyncio.CancelledError:
            if not self._is_interrupted or (task is not None and task.uncancel()):
                raise
        except TimeoutError:
            if limit is None or not limit.expired():
                raise
            self.is_overdue = True
        finally:
            self._waiting_task, self._is_interrupted = None, False
        await self._close_alone()
        return None

    async def _close_alone(self) -> None:
        alone, self._alone = self._alone, None
        if alone is not None and alone.stream is not None:
            await alone.stream.aclose()

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop has ended: there is no waiter
            self._loop.call_soon_threadsafe(self._interrupt)

    def _interrupt(self) -> None:
        if self._waiting_task is not None:
            self._is_interrupted = True
            self._waiting_task.cancel()
        _ring(self._bell)

    def has_room(self, effect: RunFunction) -> bool:
        if not effect.function.takes_thread:
            return True
        threads = [a for a in self.active.values() if a.run is not None and a.run.function.takes_thread]
        return len(threads) < max(1, self.world.threads)

    def reported(self, activity: Activity) -> None:
        _ring(self._room)

    def start(self, effect: Effect) -> None:
        activity = self.activity(effect, self._report)
        is_alone = activity.run is None or self._is_brief
        is_alone = is_alone and self._alone is None and not self.active and not self.waiting
        self.active[effect.key] = activity
        if is_alone:
            self._alone = activity
            return
        activity.handle = self._loop.create_task(self._perform(activity), name=effect.key)
        activity.handle.add_done_callback(lambda task: self._put(activity, None, task))

    async def _perform(self, activity: Activity) -> Outcome | None:
        work: Any = aperform(activity.effect, activity)
        if not isinstance(work, AsyncGenerator):
            outcome: Outcome | None = await work
            return outcome
        try:
            async for item in work:
                if isinstance(item, Replied | ModelFailed):
                    return item
                self._put(activity, item)
                while len(self.inbox) >= MAX_BACKLOG:
                    self._room = self._loop.create_future()
                    await self._room
        finally:
            await work.aclose()
        raise AssertionError(f"{activity.effect.key}: it ended without an outcome")

    def drop(self, key: str) -> None:
        self._leave(self.active.pop(key))

    def _leave(self, activity: Activity) -> None:
        activity.let_go()
        if activity.handle is not None:
            self._left_behind.add(activity.handle)

    def _put(self, activity: Activity, event: Event | None, ended: Any = None) -> None:
        self.inbox.append((activity, event, ended))
        _ring(self._bell)

    def _report(self, key: str, event: Event) -> None:
        if (activity := self.active.get(key)) is not None:
            with suppress(RuntimeError):  # the loop has ended: there is no listener
                self._loop.call_soon_threadsafe(self._put, activity, event)


def _step_of(alone: Activity) -> Awaitable[Any]:
    """Return an awaitable of an activity's outcome; for a stream, of its next event or its outcome."""
    if alone.stream is None:
        work = aperform(alone.effect, alone)
        if not isinstance(work, AsyncGenerator):
            return work
        alone.stream = work
    return anext(alone.stream)


def _ring(bell: asyncio.Future[None] | None) -> None:
    if bell is not None and not bell.done():
        bell.set_result(None)


def _forget(task: asyncio.Task[Any]) -> None:
    """Leave a cancelled task behind, and discard whatever comes of it."""
    _left.add(task)

    def forget(task: asyncio.Task[Any]) -> None:
        _left.discard(task)
        if not task.cancelled():
            task.exception()

    task.add_done_callback(forget)

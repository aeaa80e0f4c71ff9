"""The sync driver of processes."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import GeneratorType
from typing import Any, Self

from fsm_agent.machine.process import Process
from fsm_agent.messages.event import Event
from fsm_agent.runtime.abort import Aborted, abort_in_force
from fsm_agent.runtime.activity import Activity
from fsm_agent.runtime.probes import MeasuredDrive
from fsm_agent.runtime.reconciler import GRACE_S, MAX_BACKLOG, Reconciler
from fsm_agent.runtime.recorder import Recorder
from fsm_agent.runtime.thread_task import ThreadTask
from fsm_agent.runtime.world import World

LEFT = "the function that made this agent call was left behind"
LOOK_UP_S = 1.0  # the longest single wait: a Ctrl-C just before a wait is handled only after it


class SyncDriver(Reconciler):
    """The sync driver: activities run in threads, so that the driver can end each wait.

    If nothing can end the wait, a lone function runs in the driver's own thread.

    Args:
        is_shared: Whether code other than the caller has the process, and may cancel it.
        may_rest: Whether the process rests where it stands if the function that this driver runs in was left behind;
            otherwise it is cancelled.
    """

    def __init__(
        self,
        process: Process,
        world: World,
        has_listener: bool = True,
        is_streamed: bool = True,
        recorder: Recorder | None = None,
        is_shared: bool = True,
        may_rest: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(process, world, has_listener, is_streamed, recorder)
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._room = threading.Semaphore(MAX_BACKLOG)
        self._left_behind: list[ThreadTask[Any]] = []
        self._may_rest = may_rest
        self._is_to_rest = False
        self._around = abort_in_force()  # of the function that this driver runs in, if it runs in one
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
                self._leave(activity)
            until_s = time.monotonic() + GRACE_S
            for child in self._left_behind:
                child.join(max(0.0, until_s - time.monotonic()))
            self.keep_and_give_back(raised)
        finally:
            self._left_behind.clear()
            self.release(raised)

    def _abandon(self) -> None:
        if self._may_rest is not None and self._may_rest():
            self.rest()
        else:
            self.process.cancel(LEFT)

    def rest(self) -> None:
        """Let the process rest where it stands, from any thread: the driver's next wait raises `Aborted`."""
        self._is_to_rest = True
        self.wake()

    def wait(self) -> None:
        """Write the journal, or wait until something happens, for at most `patience_s` seconds.

        Raises:
            Aborted: The process is to rest where it stands.
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
                self._bell.get(timeout=min(left_s, LOOK_UP_S))
                return

    def wake(self) -> None:
        self._bell.put(None)

    def wake_for_post(self) -> None:
        self.wake()

    def is_bounded(self, activity: Activity) -> bool:
        return not activity.is_abortable

    def free_room(self, activity: Activity) -> None:
        self._room.release()

    def start(self, activity: Activity) -> None:
        is_alone = not self.active and (not self.waiting or (self.world.threads == 0 and not self._is_mixed))
        self.active[activity.key] = activity
        needs_thread = self.is_timed or not self._may_run_inline or (self._may_be_ended and not activity.is_quick)
        if is_alone and not needs_thread and not activity.is_abortable:
            outcome = activity.perform() if self.probe is None else _perform_inside(activity, self.probe)
            self.inbox.append((activity, None, outcome))
            return
        task: ThreadTask[Any] = ThreadTask(partial(self._perform, activity))
        task.future.add_done_callback(lambda future: self._put(activity, None, future))
        activity.handle = task
        if self.probe is None:
            task.start()
        else:
            entered = self.probe.enter(activity)  # the thread has a copy of the present context
            try:
                task.start()
            finally:
                self.probe.leave(entered)

    def drop(self, key: str) -> None:
        self._leave(self.active.pop(key))

    def _leave(self, activity: Activity) -> None:
        activity.abandon()
        if activity.is_abortable and activity.handle is not None:
            self._left_behind.append(activity.handle)
            self._room.release()  # its thread may block on the backlog

    def _put(self, activity: Activity, event: Event | None, ended: Any = None) -> None:
        if self.probe is not None and event is None:
            self.probe.end(activity, ended)
        self.inbox.append((activity, event, ended))
        self._bell.put(None)

    def report(self, key: str, event: Event) -> None:
        if (activity := self.active.get(key)) is not None:
            self._put(activity, event)

    def _perform(self, activity: Activity, child: ThreadTask[Any]) -> Any:
        work: Any = activity.perform()
        if not isinstance(work, GeneratorType):
            return work
        activity.stream = work
        outcome = None
        try:
            while True:
                event = next(work)
                self._room.acquire()
                if child.future.cancelled():
                    break
                self._put(activity, event)
        except StopIteration as end:
            outcome = end.value
        finally:
            work.close()
        return outcome


def _perform_inside(activity: Activity, probe: MeasuredDrive) -> Any:
    """Perform an activity in this thread, with its measurement as the present place; return the outcome."""
    entered = probe.enter(activity)
    try:
        outcome = activity.perform()
    except BaseException as error:
        probe.end(activity, error)
        raise
    finally:
        probe.leave(entered)
    probe.end(activity, outcome)
    return outcome

"""The sync driver of processes: it takes the steps in the caller's thread, and a loop performs what waits."""

from __future__ import annotations

import asyncio
import math
import queue
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Self

from fsm_agent.call.process import Process
from fsm_agent.messages.events import Event
from fsm_agent.runtime import portal
from fsm_agent.runtime.abort import Aborted, abort_in_force
from fsm_agent.runtime.activity import Activity
from fsm_agent.runtime.place import Place
from fsm_agent.runtime.reconciler import GRACE_S, Reconciler
from fsm_agent.runtime.recorder import Recorder
from fsm_agent.runtime.world import World

LEFT = "the function that made this agent call was left behind"


class SyncDriver(Reconciler):
    """The sync driver: activities are tasks in the loop of the portal, so that the driver can end each wait.

    If nothing can end the wait, a lone plain function runs in the driver's own thread.

    Args:
        is_shared: Whether code other than the caller has the process, and may cancel it.
        may_rest: Whether the process rests where it stands if the function that this driver runs in was left behind;
            otherwise it is cancelled.
    """

    is_sync = True
    _loop: asyncio.AbstractEventLoop | None = None  # in which it performs activities
    _is_to_rest = False

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
        self._may_rest = may_rest
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
                self.leave(activity)
            portal.wait_for_end(self.left_behind, self._bell, GRACE_S)
            self.keep_and_give_back(raised)
        finally:
            self.left_behind.clear()
            self.release(raised)
        if raised is None and self._around is not None:
            self._around.check()  # nothing that the function does from here on counts

    def _abandon(self) -> None:
        assert self._around is not None
        if self._around.is_to_rest or (self._may_rest is not None and self._may_rest()):
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
                self._bell.get(timeout=min(left_s, portal.LOOK_UP_S))
                return

    def wake(self) -> None:
        self.ring()

    def wake_for_post(self) -> None:
        self.ring()

    def start(self, activity: Activity) -> None:
        is_alone = not self.active and (not self.waiting or (self.world.threads == 0 and not self._is_mixed))
        self.active[activity.key] = activity
        if is_alone and self._may_run_here(activity):
            activity.place = Place.HERE
            self.inbox.append((activity, None, self._perform_here(activity)))
            return
        if self._loop is None:
            self._loop = portal.loop()
        task = portal.LoopTask(self._loop, partial(self.perform, activity), partial(self.put, activity, None))
        activity.handle = task
        entered = None if self.probe is None else self.probe.enter(activity)  # the task has a copy of this context
        try:
            task.start()
        finally:
            if self.probe is not None:
                self.probe.leave(entered)

    def _may_run_here(self, activity: Activity) -> bool:
        """Return whether a lone activity may run in the driver's own thread: it is plain, and nothing can end it."""
        if activity.place is not Place.THREAD or self.is_timed or not self._may_run_inline:
            return False
        return activity.is_quick or not self._may_be_ended

    def _perform_here(self, activity: Activity) -> Any:
        work: Any = activity.perform()
        if self.probe is None:
            return portal.without_waiting(work)
        entered = self.probe.enter(activity)
        try:
            outcome = portal.without_waiting(work)
        except BaseException as error:
            self.probe.end(activity, error)
            raise
        finally:
            self.probe.leave(entered)
        self.probe.end(activity, outcome)
        return outcome

    def ring(self) -> None:
        self._bell.put(None)

    def report(self, key: str, event: Event) -> None:
        if (activity := self.active.get(key)) is not None:
            self.put(activity, event)

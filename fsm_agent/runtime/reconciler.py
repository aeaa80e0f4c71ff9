"""The loop that moves an agent call, without the waiting: threads and asyncio share all of it.

Theory of operation
===================

`Reconciler.events` reads what the call wants, starts what is newly wanted, lets go of what is no longer wanted, takes
one outcome, and reads again.  It is a generator: it yields the events to be reported, in order, and None when there is
nothing to do before something happens; the driver then waits (`wait`), in its own way, and resumes it.

- *Who waits for what.*  An effect that is being performed is an `Activity`: a thread, a task, or, when it is the only
  one, the driver itself under asyncio.  Its events and its outcome go into the inbox, from any thread, and are taken
  from there one at a time, so that only the driver ever advances the call.
- *Who may cancel what.*  `AgentCall.cancel` and the deadline are checked before each effect that is started and each
  outcome that is taken: once a call has been cancelled, no later outcome counts.  What the call no longer wants is let
  go of at once: a task is cancelled, a thread is left behind and notified (`fsm_agent.runtime.abort`).  Stopping the
  *driver* (Ctrl-C, a cancelled task, a generator that is closed) lets go of everything and leaves the call at rest; the
  results that functions had returned by then are kept, since the functions would run twice otherwise.
- *In which order events are reported.*  A step is taken before it, or the outcome that it belongs to, is reported.  A
  listener may advance or cancel the call at any event; nothing is started behind its back.
- *One driver.*  A call that is being driven refuses a second driver: both would perform the same effects.
"""

from __future__ import annotations

import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, TypeAlias

from fsm_agent.errors import UsageError
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.effects import AskApproval, Begin, CallModel, Effect, RunFunction
from fsm_agent.lifecycle.outcomes import Cancelled, ModelFailed, Outcome, Replied, Returned
from fsm_agent.lifecycle.record import CallRecord
from fsm_agent.messages.event import (
    Event,
    FunctionEnded,
    FunctionProgress,
    FunctionStarted,
    LoopDetected,
    ReplyCompleted,
    RequestStarted,
)
from fsm_agent.runtime.deadlines import advance, expire, is_late, time_left
from fsm_agent.runtime.perform import Activity, begin
from fsm_agent.runtime.run_function import Run, timed_out
from fsm_agent.runtime.world import World

MAX_BACKLOG = 64  # deltas that a request may be ahead of its listener

_claiming = threading.Lock()


# What comes of an activity: an event while it goes on; without one, its outcome, or a future of it.
Item: TypeAlias = tuple[Activity, Event | None, Any]


class Reconciler(ABC):
    """One drive of one call.

    Args:
        call: The call.
        world: Performs its effects.
        is_heard: There is a listener; otherwise no events are made.
        is_streamed: The model's reply is requested in pieces.

    Raises:
        UsageError: On entering: the call has a driver already.
    """

    def __init__(self, call: AgentCall, world: World, *, is_heard: bool = True, is_streamed: bool = True) -> None:
        self.call = call
        self.world = world
        self.is_heard = is_heard
        self.is_streamed = is_streamed and is_heard
        self.active: dict[str, Activity] = {}
        self.waiting: deque[Effect] = deque()  # wanted and not started yet
        self.inbox: deque[Item] = deque()
        self.is_overdue = False  # the last wait ended at its time limit
        self._record: CallRecord | None = None  # the one from which `waiting` was read
        self._undecided: set[str] = set()  # keys of approvals that nobody here could decide
        self._has_deadline = False
        self._is_timed = False  # some function of the round has a timeout
        self._is_brief = True  # every waiting function could run in the driver's own thread or task

    # Implemented by each driver

    @abstractmethod
    def wake(self) -> None:
        """End the driver's wait, from any thread."""

    @abstractmethod
    def start(self, effect: Effect) -> None:
        """Begin to perform ``effect``."""

    @abstractmethod
    def has_room(self, effect: RunFunction) -> bool:
        """Return whether one more function may run now."""

    @abstractmethod
    def reported(self, activity: Activity) -> None:
        """Let an activity go on after one of its events was taken."""

    # Claiming the call

    def claim(self) -> None:
        """Become the call's driver."""
        with _claiming:
            if (other := self.call.driver) is not None and other() is not None:
                raise UsageError(
                    f"the agent call {self.call.record.id!r} is being driven already, and a second driver would perform"
                    " its effects twice: wait for the first, or make a call of your own with seed() or restore()"
                )
            self.call.driver = weakref.ref(self)

    def release(self) -> None:
        """Let others drive the call."""
        self.call.driver = None

    # The loop

    def events(self) -> Generator[Event | None, None, None]:
        """Move the call; yield its events, and None when there is something to wait for."""
        call = self.call
        while call.record is self._record or self._reconcile():
            late = self._has_deadline and is_late(call, self.world)
            if call.cancellation is not None:
                yield from self._step("", Cancelled(reason=call.cancellation.reason, at_s=self.world.clock.now()))
            elif self.waiting and not late and (not self.active or self._may_join(self.waiting[0])):
                yield from self._begin(self.waiting.popleft())
            elif self.inbox:  # even past the deadline: an outcome that has arrived is kept
                yield from self._take(*self.inbox.popleft())
            elif late:
                yield from expire(call, self.world)
            elif self.is_overdue:
                yield from self._overdue()
            elif self.active:
                yield None
            else:
                return

    def activity(self, effect: Effect, report: Callable[[str, FunctionProgress], object]) -> Activity:
        """Return the activity that performs ``effect``; ``report`` takes the key and an event of a running function."""
        run = None
        if type(effect) is RunFunction:
            run = Run(effect, self.call, self.world, partial(report, effect.key))
        return Activity(effect, self.call, self.world, is_streamed=self.is_streamed, run=run)

    def _reconcile(self) -> bool:
        """Take up effects newly wanted, let go of those no longer wanted; return False when the call has ended."""
        call = self.call
        effects = call.effects
        if self.active:
            wanted = {effect.key for effect in effects}
            for key in [key for key in self.active if key not in wanted]:
                self.drop(key)
        self.waiting.clear()
        self._record = call.record
        self._has_deadline = call.record.limits.deadline_s is not None
        self._is_timed, self._is_brief = False, not self._has_deadline
        for effect in effects:
            if type(effect) is RunFunction:
                self._note(effect)
            if effect.key not in self.active and self._can_perform(effect):
                self.waiting.append(effect)
        return bool(effects)

    def _note(self, effect: RunFunction) -> None:
        function = effect.function
        if function.timeout_s is not None:
            self._is_timed = True
            self._is_brief = False
        elif function.takes_context:
            self._is_brief = False

    def _can_perform(self, effect: Effect) -> bool:
        """Return False for an effect that only somebody else can answer."""
        if type(effect) is RunFunction:
            return effect.function.call is not None
        if type(effect) is AskApproval:
            return self.world.approve is not None and effect.key not in self._undecided
        return True

    def _may_join(self, effect: Effect) -> bool:
        """Return whether ``effect`` may be performed beside those in progress."""
        if type(effect) is RunFunction:
            return self.has_room(effect)
        return type(effect) is not AskApproval  # one question at a time: a denial may settle the next

    def _begin(self, effect: Effect) -> Iterable[Event]:
        if type(effect) is Begin:
            return self._step(effect.key, begin(self.world))
        if self.is_heard:
            return self._announce(effect)
        self.start(effect)
        return ()

    def _announce(self, effect: Effect) -> Generator[Event, None, None]:
        yield from self._announced(effect)
        if self.call.record is self._record and self.call.cancellation is None:  # else a listener changed the call
            self.start(effect)

    def _announced(self, effect: Effect) -> Iterable[Event]:
        if type(effect) is RunFunction:
            return (FunctionStarted(effect.call.id, effect.call.name, effect.call.arguments_json),)
        if type(effect) is not CallModel:
            return ()
        started = RequestStarted(self.call.record.turn + 1, len(effect.request.messages))
        masked = self.call.view.news() if self.call.view else None
        return (masked, started) if masked else (started,)

    def _take(self, activity: Activity, event: Event | None, ended: Any) -> Iterable[Event]:
        """Return the events of an activity; none of one that was let go of."""
        if activity.is_dropped:
            return ()
        if event is not None:
            if activity.handle is not None:
                self.reported(activity)
            return (event,)
        del self.active[activity.effect.key]
        activity.handle = None  # its callback refers to this activity
        return self._finish(activity, ended.result() if hasattr(ended, "result") else ended)

    def _finish(self, activity: Activity, outcome: Outcome | None) -> Iterable[Event]:
        """Take the step of an outcome; return it with the events that belong to it."""
        effect = activity.effect
        if type(effect) is CallModel:
            if type(outcome) is ModelFailed and is_late(self.call, self.world):  # its timeout was the time left
                return expire(self.call, self.world)
            so_far = self.call.record.identical_rounds
            stepped = self._step(effect.key, outcome)
            if type(outcome) is not Replied or not self.is_heard:
                return stepped
            return (ReplyCompleted(outcome.reply), *stepped, *self._loops(so_far))
        if type(effect) is RunFunction:
            stepped = self._step(effect.key, outcome)
            return self._ended(activity, outcome, stepped) if self.is_heard else stepped
        if outcome is None:  # nobody here can decide whether it may be called
            self._undecided.add(effect.key)
            self._record = None
            return ()
        return self._step(effect.key, outcome)

    def _step(self, key: str, outcome: Any) -> tuple[Event, ...]:
        call = self.call
        events = advance(call, key, outcome)
        if call.is_narrowed:
            self._record = call.record
        return events

    def _ended(self, activity: Activity, outcome: Any, stepped: tuple[Event, ...]) -> Iterable[Event]:
        run = activity.run
        assert run is not None
        function_call, text = run.effect.call, outcome.text if run.returned is None else run.returned
        is_error = not isinstance(outcome, Returned) or outcome.is_error
        ended = FunctionEnded(function_call.id, function_call.name, text, is_error, outcome.at_s - run.started_at_s)
        return (ended, *run.changes, *stepped)

    def _loops(self, so_far: int) -> tuple[Event, ...]:
        r = self.call.record
        if r.limits.identical_rounds is None or r.identical_rounds == so_far or not r.is_looping:
            return ()
        repeated = r.reply.message.function_calls if r.reply else ()
        return (LoopDetected(", ".join(f.name for f in repeated), r.identical_rounds, r.limits.on_loop),)

    # Letting go

    def drop(self, key: str) -> None:
        """Let go of the activity under ``key``."""
        self.active.pop(key).let_go()

    def patience_s(self) -> float | None:
        """Return how many seconds to wait for something to happen; None: for ever."""
        left_s = time_left(self.call, self.world) if self._has_deadline else None
        if not self._is_timed:
            return left_s
        waits = [left_s] if left_s is not None else []
        waits += [left for _, left in self._time_limits()]
        return max(0.0, min(waits)) if waits else None

    def _time_limits(self) -> list[tuple[Activity, float]]:
        """Return the functions with a timeout, and how many seconds each has left."""
        now = time.monotonic()
        runs = [(a, a.run.function.timeout_s) for a in self.active.values() if a.run is not None]
        return [(a, a.since_s + timeout_s - now) for a, timeout_s in runs if timeout_s is not None]

    def _overdue(self) -> Iterable[Event]:
        """Let go of functions whose time is up; if there are none, and no timeout ends sooner, the call is overdue."""
        self.is_overdue = False
        limits = self._time_limits()
        overdue = [activity for activity, left in limits if left <= 0]
        if overdue:
            return [event for activity in overdue for event in self._timed_out(activity)]
        left_s = time_left(self.call, self.world)
        if left_s is None or left_s > min([left for _, left in limits], default=left_s):
            return ()
        return expire(self.call, self.world)

    def _timed_out(self, activity: Activity) -> Iterable[Event]:
        assert activity.run is not None
        self.drop(activity.effect.key)
        return self._finish(activity, timed_out(activity.run))

    def keep(self) -> None:
        """Keep the results that functions had returned when the driver was stopped: otherwise they would run twice."""
        for key, activity in self.active.items():
            if activity.run is not None and activity.run.ended is not None:
                advance(self.call, key, activity.run.ended)
        self.active.clear()
        self.inbox.clear()

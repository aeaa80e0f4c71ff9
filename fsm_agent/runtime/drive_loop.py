"""The loop that drives a process.  The sync and asyncio drivers share it; each adds its own way of waiting.

`fsm_agent.runtime.drivers` contains both drivers.  `fsm_agent.call.rounds` decides which functions of a round may run
now, and `fsm_agent.call.transition_table` puts their results in order.

Theory of operation
===================

`Driver.events` reads the effects that the process waits for, starts the new ones, drops those that are gone, takes one
outcome, and reads again.  It is a generator: it yields the events to report, in order, and None when nothing can be
done yet.  The driver then waits (`wait`) and resumes the generator.

- *Activities.*  An effect that is being performed is an `Activity`, in a thread or a task; under asyncio, a lone
  activity may run in the driver's own task.  Its events and its outcome go into the inbox, from any thread.  The driver
  takes them one at a time, so only the driver advances the process, and only in `step`.
- *Cancellation.*  Before an effect starts and before an outcome is taken, the loop checks for a request to end the
  process and for the deadline; once there is a request, no later outcome counts.  Activities that the process no longer
  waits for are dropped at once: a task is cancelled, and a thread is notified (`fsm_agent.runtime.portal`) and left
  behind.  Stopping the *driver* (Ctrl-C, a cancelled task, a closed generator) drops all activities and leaves the
  process at rest, to be continued later.  The results that functions have returned by then are kept, because those
  functions would otherwise run twice.
- *Waits.*  A wait for the inbox ends at the deadline, the timeout of an activity, or the end of a sleep; see
  `handle_limit`.  With a fast stream or a slow listener the driver may never wait, so deadlines and timeouts are also
  checked at each event, after the outcomes that have arrived.  A sleep starts when nothing else is active, or when a
  wait has lasted until its end, because a test's clock does not move while something runs.
- *Order of events.*  A step and its outcome are taken before they are reported.  A listener may advance or cancel the
  process at any event; the loop checks for that before it starts anything.
- *One driver.*  A process that is being driven refuses a second driver, because both would perform the same effects.
- *The journal.*  With a recorder, a step's effects are started and its events reported only after its entry has been
  written.  Outcomes that arrive together are written together.  Posts are outcomes like any other.
- *Nested processes.*  Their effects have prefixed keys.  An activity knows its effect's process, key and environment,
  and wraps its events in `Inside`, so the loop treats all effects alike.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import nullcontext
from functools import cached_property
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from fsm_agent._internal.system import at_fork
from fsm_agent.call.outcomes import Cancelled, Expired, Stopped
from fsm_agent.call.process import (
    INBOX,
    NARROWED,
    SEPARATOR,
    Change,
    Deadline,
    EffectValue,
    EndRequest,
    Process,
    prefix_of,
)
from fsm_agent.errors import IllegalTrigger, InboxFull, OutcomeError, UsageError
from fsm_agent.messages.events import Event
from fsm_agent.runtime import call_activities, probes, run_function  # noqa: F401  # register who performs effects
from fsm_agent.runtime.activity import ACTIVITIES, Activity, Owners
from fsm_agent.runtime.environment import Environment, PostedOutcome, PostsInside, Recorder, lasting
from fsm_agent.runtime.log import LOG, is_debugged, log_steps
from fsm_agent.runtime.portal import Place, ThreadTask, is_collecting, open_gate
from fsm_agent.runtime.probes import TIMED_OUT

GRACE_S = 0.05  # how long a driver waits for cancelled work before it leaves it behind

T = TypeVar("T")
_ENDS: dict[str, Callable[..., Cancelled | Stopped]] = {"cancelled": Cancelled, "stopped": Stopped}


_claiming = threading.RLock()  # reentrant, because a signal handler may claim another process
at_fork(before=_claiming.acquire, after_in_parent=_claiming.release, after_in_child=_claiming.release)


# An item in the inbox: either an activity, its event, and the gate that its stream waits for, if any; or an activity,
# None, and its outcome (if the activity has a handle, a future for the outcome).
Item: TypeAlias = tuple[Activity, Event | None, Any]


class Driver(ABC):
    """Drives one process until it ends, or waits for something that this driver cannot provide.

    If nothing listens, no events are created.  Only a streamed drive reports events that precede an outcome, such as a
    reply's deltas.  A nested process may have its own environment.

    Raises:
        UsageError: If the process already has a driver when this one is entered.
    """

    _limit: Deadline | Activity | None = None  # the limit of the current wait
    _reached_deadline: Deadline | None = None  # the deadline at which a wait ended
    _record: Any = None  # the record whose effects were read; None: read the effects again
    is_to_write: bool = False  # the next wait writes the journal
    _is_last_look: bool = False  # the journal was written once more before the deadline, for late answers
    _deadline: Deadline | None = None
    _is_mixed: bool = False  # activities of several kinds are waiting
    is_timed: bool = False  # waits have a limit
    _has_timeouts: bool = False  # some activities have a timeout
    _may_run_inline: bool = True  # every activity may run in the driver's own thread or task
    probe: probes.MeasuredDrive | None = None  # while it drives, if a probe is installed

    def __init__(
        self,
        process: Process,
        environment: Environment,
        has_listener: bool = True,
        is_streamed: bool = True,
        recorder: Recorder | None = None,
    ) -> None:
        self.process = process
        if recorder is not None and recorder.is_lasting:
            environment = environment.changed(clock=lasting(environment.clock))
        self.environment = environment
        self.recorder = recorder
        self.begun: set[str] = set()  # keys of run-once functions that this driver may run
        self.has_listener = has_listener
        self.is_streamed = is_streamed and has_listener
        self.active: dict[str, Activity] = {}
        self.waiting: deque[Activity] = deque()  # activities that are not started yet
        self.inbox: deque[Item] = deque()
        self.left_behind: list[Any] = []  # handles of abandoned activities
        self._sleeps: list[tuple[float, str, Activity]] = []  # a heap of sleeps not yet started, by their ends
        self._withdrawn: set[str] = set()  # keys in `waiting` or `_sleeps` whose effects are gone
        self._unreported: list[Event] = []  # events whose entries are not on disk yet
        self._unanswered: set[str] = set()  # keys of effects that this driver could not answer
        self._open: dict[str, EffectValue] = {}  # effects that it could not answer, but others can
        self._asked: set[str] = set()  # keys of the open effects that others have been asked about
        self.posts_inside = None if recorder is None else PostsInside(recorder)
        self._no_room: dict[str, deque[PostedOutcome]] = {}  # posts for inboxes that are full, by key, in order
        self._may_have_room: deque[str] = deque()  # keys in `_no_room` whose first posts are tried again
        self._full_at: object = None  # the record for which there was no room
        self._unfit: list[PostedOutcome] = []  # posts that no inbox takes
        self._is_debugged = is_debugged()  # read once, so that a step costs nothing when it is off
        as_events: Callable[[Any, Sequence[Event]], Sequence[Event]] | None = getattr(process, "as_events", None)
        self._as_events = as_events  # adds events to the steps; None: the steps are the events

    @cached_property
    def _owners(self) -> Owners:
        return Owners(self.process, self.environment)

    is_sync = False  # True: steps are taken outside event loops, and plain functions run outside them

    # Implemented by each driver

    @abstractmethod
    def wake(self) -> None:
        """Wake the driver from any thread, and interrupt any activity that runs in the driver's own task."""

    @abstractmethod
    def wake_for_post(self) -> None:
        """Wake the driver for a post, from any thread, without interrupting an activity."""

    @abstractmethod
    def start(self, activity: Activity) -> None:
        """Start performing an activity."""

    @abstractmethod
    def ring(self) -> None:
        """End the driver's wait for the inbox.  This is called in the activities' event loop."""

    @abstractmethod
    def report(self, key: str, event: Event) -> None:
        """Put an event from an activity into the inbox, from any thread."""

    def begin_measured(self, activity: Activity, begin: Callable[[], T]) -> T:
        """Begin an activity's work in the context that measures it, which its tasks inherit."""
        if self.probe is None:
            return begin()
        with self.probe.inside(activity):
            return begin()

    def put(self, activity: Activity, event: Event | None, ended: Any = None) -> None:
        """Put an item into the inbox.  This is called in the activity's event loop."""
        if self.probe is not None and event is None:
            self.probe.end(activity, ended)
        self.inbox.append((activity, event, ended))
        self.ring()

    # Claiming the process

    def claim(self) -> None:
        """Become the driver of the process."""
        with _claiming:
            if (other := self.process.driver) is not None and other() is not None:
                raise UsageError(
                    f"{self.process} is already being driven, and a second driver would perform its effects twice;"
                    " wait for the first, or make another process with prepare() or restore()"
                )
            self.process.driver = weakref.ref(self)
        self.process.waits_inside = {}
        if self.recorder is not None:
            self.recorder.attach(self)
        if probes.installed is not None:
            self.probe = probes.measured(self)

    def ends_elsewhere(self, end: Callable[[], object]) -> bool:
        """Return whether the generator is being garbage-collected, in which case another thread ends the drive.

        The collector may run at any point while its thread holds a lock, such as the store's, and ending a drive takes
        locks.
        """
        if not is_collecting() or sys.is_finalizing():
            return False
        self.process.driver = weakref.ref(self)  # the collector has cleared the earlier reference
        ThreadTask(end).start()
        return True

    def release(self, raised: object = None) -> None:
        """Release the process for other drivers.  ``raised`` is the exception that ended the drive."""
        if self.probe is not None:
            self.probe.close(raised)
        self.process.driver = None
        if self.recorder is not None:
            self.recorder.detach()

    # The loop

    def events(self) -> Generator[Event | None, None, None]:
        """Drive the process.  Yield its events, and yield None whenever the driver has to wait."""
        process, recorder = self.process, self.recorder
        while process.record is self._record or self._reconcile():
            if recorder is not None and recorder.is_behind:
                yield from self._catch_up()
                continue
            events: Iterable[Event]
            is_late = self._deadline is not None and self.is_late
            if process.end_request is not None:
                events = self._end(process.end_request)
            elif recorder is not None and self._has_posts(recorder) and not self._is_instant_next():
                events = self._take_next_post(recorder)
            elif self.waiting and not is_late and (not self.active or self._can_join()):
                events = self._begin(self.waiting.popleft())
            elif recorder is not None and self._is_to_ask(is_late):
                yield from self._record_first()
                continue
            elif self.inbox or is_late:
                events = self._take_late() if is_late else self._take(*self.inbox.popleft())
            elif self.active or self._sleeps:
                yield from self._idle()
                continue
            else:
                break
            if recorder is not None and events and recorder.is_behind:
                self._unreported += events
            else:
                yield from events
        yield from () if recorder is None else self._come_to_rest()

    def _idle(self) -> Sequence[None]:
        if self.active:
            return (None,)
        self._wake_next()
        return ()

    def _is_to_ask(self, is_late: bool) -> bool:
        """Return whether to write before waiting because there are new questions or the deadline has passed.

        An answer that arrived in time counts, even if this driver has not seen it yet.
        """
        assert self.recorder is not None
        if is_late:
            is_first_look, self._is_last_look = bool(self._asked) and not self._is_last_look, True
            return is_first_look
        self._is_last_look = False
        if self._open.keys() == self._asked or self.inbox or not (self.active or self._sleeps):
            return False
        self._asked = {*self._open}
        self.recorder.ask([question for effect in self._open.values() if (question := effect.question) is not None])
        return True

    def _come_to_rest(self) -> Generator[Event | None, None, None]:
        assert self.recorder is not None
        assert self.posts_inside is not None
        self.posts_inside.refuse()
        self.recorder.unread = sum(map(len, (*self._no_room.values(), self._unfit)))
        self.recorder.finish(is_stopped=False)
        yield from self._record_first()

    def _catch_up(self) -> Generator[Event | None, None, None]:
        """Take the outcomes that have arrived, then write them together.

        After a request to end the process, take none.
        """
        is_ending = self.process.end_request is not None
        if self.inbox and not is_ending:
            self._unreported += self._take(*self.inbox.popleft())
        elif self._is_instant_next() and not is_ending:
            self._unreported += self._begin(self.waiting.popleft())
        else:
            yield from self._record_first()

    def _record_first(self) -> Generator[Event | None, None, None]:
        assert self.recorder is not None
        if self.recorder.is_instant:
            self.recorder.write()
        else:
            self.is_to_write = True
            yield None
        unreported, self._unreported = self._unreported, []
        yield from unreported

    def _is_instant_next(self) -> bool:
        return bool(self.waiting) and self.waiting[0].is_instant

    def _has_posts(self, recorder: Recorder) -> bool:
        """Return whether there are posts to take.  A step may have made room for posts that had none before."""
        if self._no_room and self.process.record is not self._full_at:
            self._full_at = self.process.record
            self._may_have_room = deque(sorted(self._no_room, key=lambda key: self._no_room[key][0].id))
        return bool(self._may_have_room or recorder.signals)

    def _take_next_post(self, recorder: Recorder) -> Iterable[Event]:
        """Take a post, unless its inbox is full or earlier posts wait for the same inbox.

        Each inbox has a queue of its own, of which only the first post is tried again.
        """
        if self._may_have_room:
            queue = self._no_room[self._may_have_room.popleft()]
        else:
            post = recorder.signals.popleft()
            queue = self._no_room.setdefault(post.key, deque())
            queue.append(post)
            if len(queue) > 1:
                return ()
        post = queue[0]
        try:
            events = self._take_post(post)
        except InboxFull:
            self._full_at = self.process.record
            return ()
        queue.popleft()
        if queue:
            self._may_have_room.appendleft(post.key)
        else:
            del self._no_room[post.key]
        return events

    def _take_post(self, post: PostedOutcome) -> Iterable[Event]:
        """Advance the process with a posted outcome, or refuse the post if it does not fit.

        If a guard or an action raises an exception, the drive ends and the post is left for a later driver.

        Raises:
            InboxFull: If the post is for an inbox that is full.
        """
        assert self.recorder is not None
        self._asked.discard(post.key)  # if it is refused, the question is asked again
        if self._keep_for_function(post):
            return ()
        try:
            outcome = self.process.decode(post.key, post.document)
            if self.recorder.redact is not None:
                outcome = self.recorder.redact(outcome)
            if outcome.at_s > (now_s := self.environment.clock.now()):  # the author's clock is ahead of this one
                outcome = outcome.changed(at_s=now_s)
        except Exception as error:  # of any kind: a post that stayed would end each later driver too
            return self._refuse(post, error)
        try:
            with nullcontext() if self.probe is None else self.probe.answering(post.key, outcome):
                steps = self.step(post.key, outcome, is_redacted=True)
        except InboxFull:
            raise
        except (OutcomeError, IllegalTrigger) as error:
            return self._refuse(post, error)
        self.recorder.mark_taken(post)
        self._withdraw(post.key)  # a `Change` does not list the effect that was answered
        return steps

    def _refuse(self, post: PostedOutcome, error: Exception) -> Sequence[Event]:
        """Refuse a post.  One that no inbox takes stays in the store, because newer code may have such a state."""
        assert self.recorder is not None
        if prefix_of(post.key) == INBOX and isinstance(error, OutcomeError):
            LOG.warning("run %s: the post to %r stays in the store: %s", self.recorder.run, post.key, error)
            self._unfit.append(post)
        else:
            self.recorder.mark_taken(post, error)
        return ()

    def _keep_for_function(self, post: PostedOutcome) -> bool:
        """Return whether a post is for a run that a function has begun.

        If so, keep the post and run the function again.
        """
        assert self.posts_inside is not None
        function = self.posts_inside.keep(post, self.process.effects)
        if function in self._unanswered:
            self._unanswered.discard(function)
            self.reread()
        return function is not None

    def _reconcile(self) -> bool:
        """Read all effects, queue the new ones and drop those that are gone.  Return False if there are no effects."""
        process, active = self.process, self.active
        effects = process.effects
        if active:
            wanted = {effect.key for effect in effects}
            for key in [key for key in active if key not in wanted]:
                self.drop(key)
        if not effects:
            return False
        self.waiting.clear()
        self._sleeps = []
        self._withdrawn.clear()
        self._open.clear()
        self._record = process.record
        self._deadline = process.deadline
        self._has_timeouts, self._may_run_inline, self._is_mixed = False, True, False
        self._take_up(effects)
        self.is_timed = self._deadline is not None or self._has_timeouts or self._sleeps != []
        return True

    def _follow(self, change: Change) -> None:
        """Apply a `Change` to the effects.  The time this takes does not depend on how many other effects there are."""
        if change.has_moved_deadline:
            self._deadline = self.process.deadline
        for key in change.gone:
            self._withdraw(key)
        if change.new:
            self._take_up(change.new)
        self.is_timed = self._deadline is not None or self._has_timeouts or self._sleeps != []

    def _withdraw(self, key: str) -> None:
        """Drop an effect that is gone, whether or not its activity has started."""
        self._open.pop(key, None)
        if key in self.active:
            self.drop(key)
        else:
            self._withdrawn.add(key)

    def _take_up(self, effects: Iterable[EffectValue]) -> None:
        active, waiting, instants = self.active, self.waiting, list[Activity]()
        for effect in effects:
            if effect.key in active:
                activity = active[effect.key]
            else:
                activity = ACTIVITIES.get(type(effect), Activity)(effect, self)
                if SEPARATOR in effect.key:
                    self._owners.assign(activity)
                if not activity.prepare() or effect.key in self._unanswered:
                    if self.recorder is not None and effect.question is not None:
                        self._open[effect.key] = effect
                    continue
                if activity.is_sleep:
                    heappush(self._sleeps, (activity.effect.until_s, effect.key, activity))
                    continue
                if waiting and type(waiting[0]) is not type(activity):
                    self._is_mixed = True
                (instants if activity.is_instant else waiting).append(activity)
            if activity.timeout_s is not None:
                self._has_timeouts, self._may_run_inline = True, False
            elif not activity.may_run_inline:
                self._may_run_inline = False
        self._is_mixed |= bool(instants and waiting)
        waiting.extendleft(reversed(instants))

    def _wake_next(self) -> None:
        activity = heappop(self._sleeps)[2]
        self._is_mixed |= bool(self.waiting)
        self.waiting.append(activity)

    def _can_join(self) -> bool:
        """Return whether a waiting activity may join the active ones.  If so, move it to the front of the queue."""
        waiting = self.waiting
        for index, activity in enumerate(waiting):
            if self._may_join(activity):
                if index:
                    del waiting[index]
                    waiting.appendleft(activity)
                return True
            if not self._is_mixed:  # all are of the same kind, so the others may not join either
                break
        return False

    def _may_join(self, activity: Activity) -> bool:
        if activity.is_instant:
            return True
        if activity.is_exclusive:
            return not any(other.is_exclusive for other in self.active.values())
        if activity.place is not Place.THREAD:
            return True
        return sum([other.place is Place.THREAD for other in self.active.values()]) < max(1, self.environment.threads)

    def _begin(self, activity: Activity) -> Iterable[Event]:
        if activity.key in self._withdrawn:
            return ()
        if activity.is_instant:
            return activity.finish(activity.at_once())
        if self.has_listener:
            return self._announce(activity)
        self._start(activity)
        return ()

    def _start(self, activity: Activity) -> None:
        activity.begin()
        if self.probe is not None:
            self.probe.begin(activity)
        self.start(activity)

    def _announce(self, activity: Activity) -> Generator[Event, None, None]:
        yield from activity.wrap_events(activity.announcement())
        # A listener may have advanced or ended the process at these events.
        if self.recorder is not None and self.recorder.is_behind:  # a listener has advanced it, or the run was lost
            self._record = None  # if the effect is still there, it starts after the write
            return
        is_wanted = self.process.record is self._record or self._is_wanted(activity)
        if is_wanted and self.process.end_request is None:
            self._start(activity)

    def _take_late(self) -> Iterable[Event]:
        """After the deadline, take the first item from the inbox if an outcome has arrived, or expire."""
        if all(event is not None for _, event, _ in list(self.inbox)):  # a copy, because threads append to it
            returned = next((one for one in self.active.values() if one.returned_outcome() is not None), None)
            if returned is None:
                return self._expire()
            returned.is_dropped = True  # its outcome is taken before it arrives in the inbox
            del self.active[returned.key]
            return returned.finish(returned.returned_outcome())
        return self._take(*self.inbox.popleft())

    def _take(self, activity: Activity, event: Event | None, ended: Any) -> Iterable[Event]:
        """Process an item from the inbox, and return its events, or none if the activity was dropped."""
        if activity.is_dropped:
            return ()
        if event is not None:
            if ended is not None:
                open_gate(ended)
            self._check_timeout(activity)
            return activity.wrap_events(activity.events_of(event))
        if ended is TIMED_OUT:
            return self._handle_timeout(activity)
        del self.active[activity.key]
        outcome = ended
        if activity.handle is not None:
            activity.handle = None  # its callback refers to this activity
            outcome = ended.result()
        if outcome is not None:
            return self._finish(activity, outcome)
        if not activity.leave_open():
            self._unanswered.add(activity.key)
        self._record = None
        return ()

    def _finish(self, activity: Activity, outcome: Any) -> Iterable[Event]:
        try:
            return activity.finish(outcome)
        except (OutcomeError, IllegalTrigger):
            raise
        except Exception:  # from a guard or an action: keep the outcome, so that the work is not repeated
            if self.recorder is not None:
                self.recorder.keep(activity.key, outcome)
            raise

    def step(self, key: str, outcome: Any, *, is_redacted: bool = False) -> Sequence[Event]:
        """Advance the process with an outcome, and return the resulting events if there is a listener."""
        if self.recorder is not None and self.recorder.redact is not None and not is_redacted:
            outcome = self.recorder.redact(outcome)
        process = self.process
        before = process.record
        process.advance(key, outcome)
        change = process.change
        if change is not None and before is self._record:  # otherwise a listener has advanced it meanwhile
            self._record = process.record
            if change is not NARROWED:
                self._follow(change)
        steps = process.steps
        if self.probe is not None:
            self.probe.stepped(steps)
        log_steps(process.record, steps, outcome, is_every=self._is_debugged)
        if not self.has_listener:
            return ()
        return steps if self._as_events is None else self._as_events(before, steps)

    # Ending early

    def _end(self, request: EndRequest) -> Iterable[Event]:
        # A flow may continue after this, so a request that comes during the step is a new one.
        self.process.end_request = None
        try:
            return self.step("", _ENDS[request.kind](reason=request.reason, at_s=self.environment.clock.now()))
        except BaseException:
            self.process.end_request = self.process.end_request or request
            raise

    def _expire(self) -> Iterable[Event]:
        assert self._deadline is not None
        key = self._deadline.key
        steps = self.step(key, Expired(at_s=self.environment.clock.now()))
        self._withdraw(key)  # it may be an effect's key, and a `Change` does not list the effect that was answered
        return steps

    def drop(self, key: str) -> None:
        self.leave(self.active.pop(key))

    def leave(self, activity: Activity) -> None:
        """Abandon an activity.  It is cancelled, but may take a while to end."""
        activity.abandon()
        if activity.handle is not None:
            self.left_behind.append(activity.handle)

    def patience_s(self) -> float | None:
        """Return how long the driver may wait, in seconds, or None if there is no limit."""
        if not self.is_timed:
            return None
        while self._sleeps and self._sleeps[0][1] in self._withdrawn:
            heappop(self._sleeps)
        limits: list[tuple[float, Deadline | Activity]] = []
        if self._deadline is not None:
            limits.append((self._time_left(self._deadline.at_s), self._deadline))
        if self._sleeps:
            limits.append((self._time_left(self._sleeps[0][0]), self._sleeps[0][2]))
        now = time.monotonic()
        limits += [
            (activity.since_s + activity.timeout_s - now, activity)
            for activity in self.active.values()
            if activity.timeout_s is not None
        ]
        if not limits:
            return None
        left_s, self._limit = min(limits, key=itemgetter(0))
        return max(0.0, left_s)

    def handle_limit(self) -> None:
        """Act on the limit that ended the wait."""
        limit = self._limit
        if isinstance(limit, Deadline):
            self._reached_deadline = limit
        elif limit is not None and limit.timeout_s is not None:
            self.inbox.append((limit, None, TIMED_OUT))
        else:
            self._wake_next()

    @property
    def deadline_s(self) -> float | None:
        """The Unix time of the earliest deadline of the process and its descendants, or None."""
        return None if self._deadline is None else self._deadline.at_s

    def ends_with_deadline(self, activity: Activity) -> bool:
        """Return whether the deadline is the only limit on the wait and ends the activity's process."""
        if self._deadline is None or self._has_timeouts or self._sleeps:
            return False
        path = self._deadline.key.rpartition(SEPARATOR)[0]
        return not path or activity.key.startswith(f"{path}{SEPARATOR}")

    def reread(self) -> None:
        """Make the loop read the effects again even if no step was taken."""
        self._record = None

    @property
    def is_late(self) -> bool:
        """True once the deadline has passed by the clock, or the driver has waited until the deadline."""
        deadline = self._deadline
        return deadline is not None and (deadline == self._reached_deadline or self._time_left(deadline.at_s) == 0.0)

    def _time_left(self, until_s: float) -> float:
        return max(0.0, until_s - self.environment.clock.now())

    def _check_timeout(self, activity: Activity) -> None:
        """Put a timeout into the inbox if the activity has exceeded its limit, because the driver might never wait."""
        limit_s = activity.timeout_s
        if limit_s is not None and time.monotonic() >= activity.since_s + limit_s:
            self.inbox.append((activity, None, TIMED_OUT))

    def _handle_timeout(self, activity: Activity) -> Iterable[Event]:
        """Drop an activity that timed out, unless its outcome has arrived."""
        if self.active.get(activity.key) is not activity:
            return ()
        if self.probe is not None:
            self.probe.end(activity, TIMED_OUT)
        self.drop(activity.key)
        return activity.finish(activity.timeout_outcome()) if self._is_wanted(activity) else ()

    def _is_wanted(self, activity: Activity) -> bool:
        return any(effect.key == activity.key for effect in self.process.effects)

    def keep_results(self) -> None:
        """Take the results that functions have already returned, so that these functions are not run again."""
        for activity in [*self.active.values()]:  # a copy, because a step may drop others
            if (outcome := activity.returned_outcome()) is not None and self._is_wanted(activity):
                self.step(activity.key, outcome)
        self.active.clear()
        self.inbox.clear()

    def keep_and_give_back(self, raised: object) -> None:
        """Keep the results that have arrived, write the last entries, and release the run so that it is due at once.

        Raises:
            Exception: If this fails, and no other exception ended the drive.
        """
        try:
            self.keep_results()
            if self.recorder is not None:
                self.recorder.finish(is_stopped=True, raised=raised)
                while self.recorder.is_behind:
                    self.recorder.write()
        except Exception as error:
            self.add_cleanup_error(raised, error)

    def add_cleanup_error(self, raised: object, error: Exception) -> None:
        """Add an error from the cleanup as a note to the exception that ended the drive, such as a Ctrl-C.

        Raises:
            Exception: The error itself, if no exception ended the drive.
        """
        if not isinstance(raised, BaseException):
            raise error
        if raised is not error:
            name = self.process if self.recorder is None else f"run {self.recorder.run}"
            what = f"{name}: outcomes that arrived before the driver was stopped could not be kept: {error}"
            raised.add_note(what)
            LOG.warning("%s", what)

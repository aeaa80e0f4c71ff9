"""The loop that moves a process, without the waiting: threads and asyncio share all of it.

Theory of operation
===================

`Reconciler.events` reads what the process wants, starts what is newly wanted, lets go of what is no longer wanted,
takes one outcome, and reads again.  It is a generator: it yields the events to be reported, in order, and None when
there is nothing to do before something happens; the driver then waits (`wait`), in its own way, and resumes it.

- *Who waits for what.*  An effect that is being performed is an `Activity`: a thread, a task, or, when it is the only
  one, the driver itself under asyncio.  Its events and its outcome go into the inbox, from any thread, and are taken
  from there one at a time, so that only the driver ever advances the process, and in one place (`step`).  What is
  particular to a kind of effect is asked of its activity.
- *Who may cancel what.*  A request to end the process and its deadline are checked before each effect that is started
  and each outcome that is taken: once a process has been cancelled or stopped, no later outcome counts.  What it no
  longer wants is let go of at once: a task is cancelled, a thread is left behind and notified
  (`fsm_agent.runtime.abort`).  Stopping the *driver* (Ctrl-C, a cancelled task, a generator that is closed) lets go of
  everything and leaves the process at rest; the results that functions had returned by then are kept, since the
  functions would run twice otherwise.
- *What ends a wait.*  A driver waits for the inbox, until the first of three limits at the latest: the deadline, the
  timeout of an activity, the moment of a *nap*, which is an activity that only waits.  The limit that a wait has
  reached is dealt with when the wait ends (`waited_out`); it says nothing of the next one.  A nap begins when nothing
  else goes on, or when a wait has lasted until its moment: the clock of a test does not move while something runs.
- *In which order events are reported.*  A step is taken before it, or the outcome that it belongs to, is reported.  A
  listener may advance or cancel the process at any event; nothing is started behind its back.
- *One driver.*  A process that is being driven refuses a second driver: both would perform the same effects.
- *Its journal.*  With a recorder, what a step has led to is performed, and reported, only after its entry was written.
  What came together is written together.  Letters that others have posted are outcomes like any other.
- *Processes inside.*  Their effects come under prefixed keys.  An activity has the process, the key and the world that
  its effect belongs to, and its events are wrapped as `Inside`; the loop makes no other difference.
"""

from __future__ import annotations

import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, TypeAlias

from fsm_agent.errors import UsageError
from fsm_agent.lifecycle.outcomes import Cancelled, Expired, Stopped
from fsm_agent.machine.process import NARROWED, SEPARATOR, AnyEffect, Change, Deadline, EndRequest, Process
from fsm_agent.messages.event import Event
from fsm_agent.runtime import call_activities  # noqa: F401  # registers how the effects of a call are performed
from fsm_agent.runtime.activity import ACTIVITIES, Activity
from fsm_agent.runtime.logs.log import LOG, any_notable, is_debugged, log_steps
from fsm_agent.runtime.recorder import PostedOutcome, Recorder
from fsm_agent.runtime.world import World

GRACE_S = 0.05  # how long cancelled work may take to end before it is left behind
MAX_BACKLOG = 64  # events of streams that wait to be taken

_ENDS: dict[str, Callable[..., Cancelled | Stopped]] = {"cancelled": Cancelled, "stopped": Stopped}

_TIMED_OUT = object()  # stands in the inbox for the outcome of an activity whose time is up

_claiming = threading.Lock()


# What comes of an activity: an event while it goes on; without one, its outcome, or a future of it if it has a handle.
Item: TypeAlias = tuple[Activity, Event | None, Any]


class Reconciler(ABC):
    """One drive of one process.

    Args:
        process: The process.
        world: Performs its effects, but those of processes inside that have worlds of their own.
        has_listener: There is a listener; otherwise no events are made.
        is_streamed: Events before an outcome, such as the deltas of a reply, are requested.
        recorder: Writes the journal of the process; None: nobody does.

    Raises:
        UsageError: On entering: the process has a driver already.
    """

    def __init__(
        self,
        process: Process,
        world: World,
        has_listener: bool = True,
        is_streamed: bool = True,
        recorder: Recorder | None = None,
    ) -> None:
        self.process = process
        self.world = world
        self.recorder = recorder
        self.begun: set[str] = set()  # keys of functions that must not run twice, whose start was noted here
        self.has_listener = has_listener
        self.is_streamed = is_streamed and has_listener
        self.active: dict[str, Activity] = {}
        self.waiting: deque[Activity] = deque()  # wanted and not started yet
        self.inbox: deque[Item] = deque()
        self._sleeps: list[tuple[float, str, Activity]] = []  # a heap of those to begin; until when, keys
        self._limit: Deadline | Activity | None = None  # what the present wait ends with at the latest
        self._waited_out: Deadline | None = None  # the deadline that a wait has lasted until
        self._record: Any = None  # the one whose effects are active, waiting, or nobody's here
        self._withdrawn: set[str] = set()  # keys of effects that are waiting, and no longer wanted
        self.is_to_write = False  # the next wait is for the journal to be written
        self._unreported: list[Event] = []  # until their entries are on disk
        self._unanswered: set[str] = set()  # keys of effects that nobody here could answer
        self._worlds: dict[tuple[int, ...], tuple[tuple[World, ...], World]] = {}  # of processes inside: given, used
        self._owner_path = ""  # the last that was asked for
        self._owner: Any = None
        self._owner_world = world
        self._deadline: Deadline | None = None
        self._is_mixed = False  # activities of several kinds are waiting
        self._is_debugged = is_debugged()  # free when it is off
        as_events: Callable[[Sequence[Event]], Sequence[Event]] | None = getattr(process, "as_events", None)
        self._as_events = as_events  # what listeners are told beside steps; None: nothing
        self.is_timed = False  # a wait may end before anything happens
        self._has_timeouts = False  # of activities
        self._may_run_inline = True  # every activity could run in the driver's own thread or task

    # Implemented by each driver

    @abstractmethod
    def wake(self) -> None:
        """End the driver's wait, from any thread."""

    @abstractmethod
    def wake_for_post(self) -> None:
        """End the driver's wait because there is a post, from any thread; what cannot be ended safely goes on."""

    @abstractmethod
    def start(self, activity: Activity) -> None:
        """Perform an activity that has begun."""

    @abstractmethod
    def is_bounded(self, activity: Activity) -> bool:
        """Return whether an activity counts against `World.threads`."""

    @abstractmethod
    def reported(self, activity: Activity) -> None:
        """Give back the room of an event that an activity had streamed."""

    @abstractmethod
    def report(self, key: str, event: Event) -> None:
        """Put an event of an activity into the inbox, from any thread."""

    # Claiming the process

    def claim(self) -> None:
        """Become the driver of the process."""
        with _claiming:
            if (other := self.process.driver) is not None and other() is not None:
                raise UsageError(
                    f"{self.process} is being driven already, and a second driver would perform its effects twice:"
                    " wait for the first, or make a process of your own with seed() or restore()"
                )
            self.process.driver = weakref.ref(self)
        if self.recorder is not None:
            self.recorder.attach(self)

    def release(self) -> None:
        """Let others drive the process."""
        self.process.driver = None
        if self.recorder is not None:
            self.recorder.detach()

    # The loop

    def events(self) -> Generator[Event | None, None, None]:
        """Move the process; yield its events, and None when there is something to wait for."""
        process, recorder = self.process, self.recorder
        while process.record is self._record or self._reconcile():
            if recorder is not None and recorder.is_behind:
                yield from self._catch_up()
                continue
            events: Iterable[Event]
            is_late = self._deadline is not None and self.is_late
            if process.end_request is not None:
                events = self._end(process.end_request)
            elif recorder is not None and recorder.posts and not self._is_instant_next():
                events = self._open(recorder.posts.popleft())
            elif self.waiting and not is_late and (not self.active or self._can_join()):
                events = self._begin(self.waiting.popleft())
            elif self.inbox or is_late:  # an outcome that has arrived is kept, even past the deadline
                events = self._take(*self.inbox.popleft()) if self.inbox else self._expire()
            elif self._sleeps and not self.active:
                self._wake_next()
                continue
            elif self.active:
                yield None
                continue
            else:
                break
            if recorder is not None and events and recorder.is_behind:
                self._unreported += events
            else:
                yield from events
        yield from self._come_to_rest()

    def _come_to_rest(self) -> Generator[Event | None, None, None]:
        """Have the last entries written, and the run given back, if there is a journal."""
        if self.recorder is not None:
            self.recorder.finish(is_stopped=False)
            yield from self._record_first()

    def _catch_up(self) -> Generator[Event | None, None, None]:
        """Take the outcomes that came together, then have them written; after a request to end, none counts."""
        is_ending = self.process.end_request is not None
        if self.inbox and not is_ending:
            self._unreported += self._take(*self.inbox.popleft())
        elif self._is_instant_next() and not is_ending:
            self._unreported += self._begin(self.waiting.popleft())
        else:
            yield from self._record_first()

    def _record_first(self) -> Generator[Event | None, None, None]:
        """Have the driver write the journal, then report the events that belong to it."""
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

    def _open(self, post: PostedOutcome) -> Iterable[Event]:
        """Take the step of an outcome that somebody posted."""
        assert self.recorder is not None
        try:
            steps = self.step(post.key, self.process.decode(post.key, post.document))
        except Exception as error:  # a `redact` that fails as well: else the post would end each driver after this
            self.recorder.mark_taken(post, error)
            return ()
        self.recorder.mark_taken(post)
        self._withdraw(post.key)  # a change tells of others alone
        return steps

    def _assign(self, activity: Activity) -> None:
        """Give an activity to the process inside that waits for it."""
        path = activity.key.rpartition(SEPARATOR)[0]
        if path != self._owner_path:  # who waits under a path stays the same
            owner = self._owner = self.process.owner(activity.key)
            self._owner_path, self._owner_world = path, self._world_of(owner.worlds)
        activity.assign(self._owner, self._owner_world)

    def _world_of(self, worlds: tuple[World, ...]) -> World:
        """Return the first world, on the clock of the driver's: deadlines are compared with its time.

        Where it has no approver, that of the nearest world around it is asked.
        """
        if not worlds:
            return self.world
        key = tuple(map(id, worlds))
        if key not in self._worlds:
            approve = next((world.approve for world in worlds if world.approve), self.world.approve)
            self._worlds[key] = worlds, worlds[0].changed(clock=self.world.clock, approve=approve)
        return self._worlds[key][1]

    def _reconcile(self) -> bool:
        """Take up effects newly wanted, let go of those no longer wanted; return False when the process has ended."""
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
        self._record = process.record
        self._deadline = process.deadline
        self._has_timeouts, self._may_run_inline, self._is_mixed = False, True, False
        self._take_up(effects)
        self.is_timed = self._deadline is not None or self._has_timeouts or self._sleeps != []
        return True

    def _follow(self, change: Change) -> None:
        """Do the same where a step has told what it changed, which costs the same however many effects there are."""
        if change.has_moved_deadline:
            self._deadline = self.process.deadline
        for key in change.gone:
            self._withdraw(key)
        if change.new:
            self._take_up(change.new)
        self.is_timed = self._deadline is not None or self._has_timeouts or self._sleeps != []

    def _withdraw(self, key: str) -> None:
        """Let go of an effect that is no longer wanted: an activity, or one that waits for its turn."""
        if key in self.active:
            self.drop(key)
        else:
            self._withdrawn.add(key)

    def _take_up(self, effects: Iterable[AnyEffect]) -> None:
        """Let activities of effects wait for their turns, but of those that are active."""
        active, waiting = self.active, self.waiting
        for effect in effects:
            if effect.key in active:
                activity = active[effect.key]
            else:
                activity = ACTIVITIES.get(type(effect), Activity)(effect, self)
                if SEPARATOR in effect.key:
                    self._assign(activity)
                if not activity.prepare() or effect.key in self._unanswered:
                    continue
                if activity.is_sleep:
                    heappush(self._sleeps, (activity.effect.until_s, effect.key, activity))
                    continue
                if waiting and type(waiting[0]) is not type(activity):
                    self._is_mixed = True
                (waiting.appendleft if activity.is_instant else waiting.append)(activity)
            if activity.timeout_s is not None:
                self._has_timeouts, self._may_run_inline = True, False
            elif not activity.may_run_inline:
                self._may_run_inline = False

    def _wake_next(self) -> None:
        """Let the nap that ends first begin."""
        activity = heappop(self._sleeps)[2]
        self._is_mixed |= bool(self.waiting)
        self.waiting.append(activity)

    def _can_join(self) -> bool:
        """Bring one that may be performed beside those in progress to the front; return False if there is none."""
        waiting = self.waiting
        for index, activity in enumerate(waiting):
            if self._may_join(activity):
                if index:
                    del waiting[index]
                    waiting.appendleft(activity)
                return True
            if not self._is_mixed:  # what holds for one holds for all
                break
        return False

    def _may_join(self, activity: Activity) -> bool:
        """Return whether an activity may be performed beside those in progress."""
        if activity.is_instant:
            return True
        if activity.is_exclusive:
            return not any(other.is_exclusive for other in self.active.values())
        if not self.is_bounded(activity):
            return True
        return sum([self.is_bounded(other) for other in self.active.values()]) < max(1, self.world.threads)

    def _begin(self, activity: Activity) -> Iterable[Event]:
        if activity.key in self._withdrawn:
            return ()
        if activity.is_instant:
            return activity.finish(activity.perform())
        if self.has_listener:
            return self._announce(activity)
        activity.begin()
        self.start(activity)
        return ()

    def _announce(self, activity: Activity) -> Generator[Event, None, None]:
        yield from activity.inside(activity.announcement())
        if self.recorder is not None and self.recorder.is_behind:  # the run was lost, or a listener has advanced it
            self._record = None  # if it is wanted all the same, it begins after that was written
            return
        is_wanted = self.process.record is self._record or self._is_wanted(activity)  # a listener may have changed it
        if is_wanted and self.process.end_request is None:
            activity.begin()
            self.start(activity)

    def _take(self, activity: Activity, event: Event | None, ended: Any) -> Iterable[Event]:
        """Return the events of an activity; none of one that was let go of."""
        if event is not None and activity.stream is not None:
            self.reported(activity)  # even if it was dropped: others wait for the room
        if activity.is_dropped:
            return ()
        if event is not None:
            return activity.inside((event,))
        if ended is _TIMED_OUT:
            return self._timed_out(activity)
        del self.active[activity.key]
        outcome = ended
        if activity.handle is not None:
            activity.handle = None  # its callback refers to this activity
            outcome = ended.result()
        if outcome is not None:
            return activity.finish(outcome)
        self._unanswered.add(activity.key)  # nobody here can decide
        self._record = None
        return ()

    def step(self, key: str, outcome: Any) -> Sequence[Event]:
        """Take the step of an outcome, before it is reported; return it if somebody listens."""
        process = self.process
        if self.recorder is not None and self.recorder.redact is not None:
            outcome = self.recorder.redact(outcome)
        before = process.record
        process.advance(key, outcome)
        change = process.change
        if change is not None and before is self._record:  # otherwise somebody else has advanced it meanwhile
            self._record = process.record
            if change is not NARROWED:
                self._follow(change)
        steps = process.steps
        if self._is_debugged or any_notable(steps):
            log_steps(process.record, steps, outcome)
        if not self.has_listener:
            return ()
        return steps if self._as_events is None else self._as_events(steps)

    # Ending early

    def _end(self, request: EndRequest) -> Iterable[Event]:
        steps = self.step("", _ENDS[request.kind](reason=request.reason, at_s=self.world.clock.now()))
        self.process.end_request = None
        return steps

    def _expire(self) -> Iterable[Event]:
        assert self._deadline is not None
        key = self._deadline.key
        steps = self.step(key, Expired(at_s=self.world.clock.now()))
        self._withdraw(key)  # it may be that of a wait, and a change tells of others alone
        return steps

    def drop(self, key: str) -> None:
        """Let go of the activity under ``key``."""
        self.active.pop(key).abandon()

    def patience_s(self) -> float | None:
        """Return how many seconds to wait for something to happen; None: for ever."""
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
        left_s, self._limit = min(limits, key=_seconds)
        return max(0.0, left_s)

    def waited_out(self) -> None:
        """Deal with the limit that the wait has just reached."""
        limit = self._limit
        if isinstance(limit, Deadline):
            self._waited_out = limit
        elif limit is not None and limit.timeout_s is not None:
            self.inbox.append((limit, None, _TIMED_OUT))
        else:
            self._wake_next()

    @property
    def deadline_s(self) -> float | None:
        """Unix time of the earliest deadline of the process and those inside of it; None: there is none."""
        return None if self._deadline is None else self._deadline.at_s

    def ends_with_deadline(self, activity: Activity) -> bool:
        """Return whether the deadline is the only limit, and that of what the activity is part of."""
        if self._deadline is None or self._has_timeouts or self._sleeps:
            return False
        path = self._deadline.key.rpartition(SEPARATOR)[0]
        return not path or activity.key.startswith(f"{path}{SEPARATOR}")

    def reread(self) -> None:
        """Read anew what the process waits for, although no step was taken."""
        self._record = None

    @property
    def is_late(self) -> bool:
        """True if the deadline has passed: by the clock, or because a wait has lasted until then."""
        deadline = self._deadline
        return deadline is not None and (deadline == self._waited_out or self._time_left(deadline.at_s) == 0.0)

    def _time_left(self, until_s: float) -> float:
        return max(0.0, until_s - self.world.clock.now())

    def _timed_out(self, activity: Activity) -> Iterable[Event]:
        """Let go of an activity whose time is up, unless its outcome has come in the meantime."""
        if self.active.get(activity.key) is not activity:
            return ()
        self.drop(activity.key)
        return activity.finish(activity.timed_out()) if self._is_wanted(activity) else ()

    def _is_wanted(self, activity: Activity) -> bool:
        return any(effect.key == activity.key for effect in self.process.effects)

    def keep(self) -> None:
        """Keep what had been returned when the driver was stopped: otherwise it would be performed twice."""
        for activity in self.active.values():
            if (outcome := activity.returned()) is not None and self._is_wanted(activity):
                self.step(activity.key, outcome)
        self.active.clear()
        self.inbox.clear()

    def left_in_disorder(self, raised: object, error: Exception) -> None:
        """Note what went wrong at the very end on the error that has ended the driver, and must reach its caller.

        Raises:
            Exception: The error itself, if there is no other.
        """
        if not isinstance(raised, BaseException):
            raise error
        if raised is not error:
            name = self.process if self.recorder is None else f"run {self.recorder.run}"
            what = f"{name}: what had come when the driver was stopped could not be kept: {error}"
            raised.add_note(what)
            LOG.warning("%s", what)


def _seconds(limit: tuple[float, Deadline | Activity]) -> float:
    return limit[0]

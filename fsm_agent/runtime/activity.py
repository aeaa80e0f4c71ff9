"""Activities: effects that are being performed.

For each kind of effect, there is a subclass of `Activity`, registered with `activity_of`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import suppress
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any, TypeVar

from fsm_agent.call.process import SEPARATOR, EffectValue, Owner, Process
from fsm_agent.errors import UsageError
from fsm_agent.messages.events import Event, Inside
from fsm_agent.runtime.environment import Environment
from fsm_agent.runtime.portal import Aborted, Place

if TYPE_CHECKING:
    from fsm_agent.runtime.drive_loop import Driver

A = TypeVar("A", bound="type[Activity]")
MAX_BACKLOG = 64  # how many events of a stream may wait in the inbox before the stream pauses


class Activity:
    """An effect that is being performed.

    If the effect streams, `perform` returns an async generator that yields events and then the outcome.  An outcome of
    None means that this driver cannot answer the effect.

    Attributes:
        key: The effect's key in the driven process; ``effect.key`` is its key in the process that owns it.
        process: The process that owns the effect; it may be nested.
        path: The path of that process; "" for the driven process itself.
        environment: The environment of that process.
        handle: The thread or task that performs the effect; None if it is the driver's own.
        stream: The generator that yields the events, if the driver's own task performs a streamed effect.
        is_dropped: True if the outcome is no longer wanted.
        place: Where the user's plain code runs.  Code in threads counts against `Environment.threads`.
    """

    is_instant = False  # takes no time: the driver performs it itself, between two steps
    is_sleep = False  # only waits until `effect.until_s`; starts when nothing else is active, or at that time
    is_exclusive = False  # only one such activity may be active at a time
    is_abortable = True  # ends soon after it is cancelled, so the driver may wait for that
    may_run_inline = True  # may run in the driver's own thread or task
    is_quick = False  # ends so soon that it need not be interruptible
    timeout_s: float | None = None  # if set, the subclass also sets `since_s` and has a `timeout_outcome`
    since_s = 0.0  # monotonic time of its start
    path = ""
    handle: Any = None
    stream: Any = None
    is_dropped = False
    place = Place.LOOP

    def __init__(self, effect: EffectValue, driver: Driver) -> None:
        self.effect: Any = effect
        self.key = effect.key
        self.driver = driver
        self.process: Any = driver.process
        self.environment = driver.environment

    def assign(self, owner: Owner, environment: Environment) -> None:
        """Assign the activity to the nested process that owns the effect."""
        if owner.path and not self.path:
            self.effect = self.effect.changed(key=self.key[len(owner.path) + len(SEPARATOR) :])
        self.process, self.path = owner.process, owner.path
        self.environment = environment

    def prepare(self) -> bool:
        """Set the attributes that depend on the effect.  Return False if this driver cannot answer the effect."""
        return True

    def announcement(self) -> Sequence[Event]:
        """Return the events to report before the activity starts."""
        return ()

    def begin(self) -> None:
        """Prepare to start.  This is called just before `perform`."""

    def at_once(self) -> Any:
        """Return the outcome of an effect that takes no time; see `is_instant`."""

    def perform(self) -> Coroutine[Any, Any, Any] | AsyncGenerator[Any]:
        """Perform the effect in an event loop, and return the outcome.  At `Place.HERE`, this never waits.

        Raises:
            UsageError: If no activity is registered for this kind of effect.
        """
        kind = type(self.effect).__name__
        raise UsageError(
            f"the effect {kind} (key {self.effect.key!r}): expected an Activity that performs it, got none; register"
            f" one under activity_of({kind})"
        )

    def events_of(self, arrived: Event) -> Sequence[Event]:
        """Return the events to report for an event that has arrived.

        This is called in the driver's thread, between two steps.
        """
        return (arrived,)

    def finish(self, outcome: Any) -> Sequence[Event]:
        """Pass the outcome to the process, and return the events from the resulting step if there is a listener."""
        return self.driver.step(self.key, outcome)

    def leave_open(self) -> bool:
        """Record that this driver cannot answer the effect.  Return True if it is to try once more."""
        return False

    def timeout_outcome(self) -> Any:
        """Return the outcome of an effect that has timed out; see `timeout_s`."""

    def returned_outcome(self) -> Any:
        """Return the outcome to keep if the driver is stopped now, or None if there is no outcome yet."""
        return None

    def wrap_events(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the process's events as the driven process reports them: wrapped in `Inside` if it is nested."""
        return [Inside(self.path, event) for event in events] if self.path else events

    def abandon(self) -> None:
        self.is_dropped = True
        if self.driver.probe is not None:
            self.driver.probe.end(self)
        if self.handle is not None:
            self.handle.cancel()

    @property
    def own_key(self) -> str:
        """The key for outcomes that do not answer one of the process's effects, such as an expiry."""
        return f"{self.path}{SEPARATOR}" if self.path else ""


class UserCodeActivity(Activity):
    """One of the user's functions or checks while it runs.  Plain functions cannot be interrupted.

    Attributes:
        ended: The outcome, as soon as there is one.
        raised: The exception that makes the agent call fail, until its driver takes it.
        is_cancelled: True once the outcome is no longer wanted.
    """

    is_abortable = False
    ended: Any = None
    raised: Exception | None = None
    is_cancelled = False

    def stop_if_cancelled(self) -> None:
        """Raise `Aborted` if the outcome is no longer wanted, so that later exceptions are not blamed on the code."""
        if self.is_cancelled:
            raise Aborted

    def returned_outcome(self) -> Any:
        return self.ended

    def abandon(self) -> None:
        self.is_cancelled = True
        super().abandon()


class Owners:
    """Finds the process that owns an effect of the driven process, and the environment for performing the effect."""

    def __init__(self, process: Process, environment: Environment) -> None:
        self._process = process
        self._environment = environment
        # The owner of a path stays the same, so the last one is cached.
        self._last_path = ""
        self._last: Any = None
        self._last_environment = environment
        # Maps the ids of the environments on a path to these environments, which keeps the ids valid, and to the
        # environment that performs the effects.
        self._known: dict[tuple[int, ...], tuple[tuple[Environment, ...], Environment]] = {}

    def assign(self, activity: Activity) -> None:
        """Assign an activity to the nested process that owns its effect."""
        path = activity.key.rpartition(SEPARATOR)[0]
        if path != self._last_path:
            owner = self._last = self._process.owner(activity.key)
            self._last_path, self._last_environment = path, self._environment_of(owner.environments)
        activity.assign(self._last, self._last_environment)

    def _environment_of(self, environments: tuple[Environment, ...]) -> Environment:
        """Return the innermost of these environments, but with the driver's clock.

        If it has no approver, it gets the approver of the nearest enclosing environment that has one.
        """
        # All use one clock, because the driver compares all deadlines with its own.
        around = self._environment
        if not environments:
            return around
        key = tuple(map(id, environments))
        if key not in self._known:
            approve = next((one.approve for one in environments if one.approve), around.approve)
            self._known[key] = environments, environments[0].changed(clock=around.clock, approve=approve)
        return self._known[key][1]


async def perform(activity: Activity) -> Any:
    """Perform an activity in a task, and return its outcome.  Streamed events go to the driver's inbox."""
    work: Any = activity.perform()
    is_stream = isinstance(work, AsyncGeneratorType)
    room = MAX_BACKLOG
    try:
        if not is_stream:
            return await work
        async for item in work:
            if type(item) in activity.effect.outcomes:
                return item
            room -= 1
            if room:
                activity.driver.put(activity, item)
                continue
            room, gate = MAX_BACKLOG, asyncio.get_running_loop().create_future()
            activity.driver.put(activity, item, gate)
            await gate
    except asyncio.CancelledError as error:
        raise_own_cancellation(error)
        raise cancelled_inside(activity) from error
    finally:
        if is_stream:
            await work.aclose()
    raise AssertionError(f"{activity.key}: it ended without an outcome")


def raise_own_cancellation(error: asyncio.CancelledError) -> None:
    """Raise the error if this task itself was cancelled, rather than only something that it awaited."""
    with suppress(RuntimeError):  # no loop runs here
        if (task := asyncio.current_task()) and task.cancelling():
            raise error


def cancelled_inside(activity: Activity) -> RuntimeError:
    """Return the error for an activity that awaited a cancelled object, such as a user's future.

    A plain `CancelledError` would look like a cancellation of the surrounding task, and a task group would swallow it.
    """
    return RuntimeError(f"something that {activity.key!r} awaited was cancelled")


ACTIVITIES: dict[type, type[Activity]] = {}  # by the kind of effect; `Activity` itself is used for all others


def activity_of(effect: type) -> Callable[[A], A]:
    """Register a subclass of `Activity` for a kind of effect."""

    def register(activity: A) -> A:
        ACTIVITIES[effect] = activity
        return activity

    return register

"""An effect that is being performed: how, and what else a driver has to know of its kind.

Each kind of effect has a subclass of `Activity`, registered by `activity_of`: the only table by kind of effect.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fsm_agent.errors import UsageError
from fsm_agent.machine.process import SEPARATOR, AnyEffect, Owner
from fsm_agent.messages.event import Event, Inside
from fsm_agent.runtime.world import World

if TYPE_CHECKING:
    from fsm_agent.runtime.reconciler import Reconciler

A = TypeVar("A", bound="type[Activity]")


class Activity:
    """An effect that is being performed.

    An effect that has events to report before its outcome (a stream) is a generator of them: that of `perform` returns
    the outcome, that of `aperform` yields it last.  None is no outcome: nobody here can decide.

    Args:
        effect: The effect, as the driven process wants it.
        driver: The driver.

    Attributes:
        key: The key of the effect for the driven process.
        effect: The effect under the key that it has for its own process.
        process: Its own process: the driven one, or one inside of it.
        path: The path of its own process; "": it is the driven one.
        world: The world of its own process.
        handle: Its thread or task; None in the driver's own.
        stream: The generator of its events, once it has begun to stream; it waits for them to be taken.
        is_dropped: Its outcome is no longer wanted.
    """

    __slots__ = ("driver", "effect", "handle", "is_dropped", "key", "path", "process", "stream", "world")

    is_instant = False  # it takes no time, so the driver performs it itself
    is_sleep = False  # it only waits for `effect.until_s`: it begins when nothing else goes on, or at that moment
    is_exclusive = False  # at most one such activity at a time
    is_abortable = True  # it ends soon after it is cancelled, and so may be waited for when it is let go of
    may_run_inline = True  # it may occupy the driver's own thread or task
    is_quick = False  # it ends so soon that nothing has to end it
    takes_thread = False  # under asyncio; it then counts against `World.threads`
    timeout_s: float | None = (
        None  # how long it may take; those with a limit define `timeout_outcome`, and set the next
    )
    since_s = 0.0  # when it began, monotonic

    def __init__(self, effect: AnyEffect, driver: Reconciler) -> None:
        self.effect: Any = effect
        self.key = effect.key
        self.driver = driver
        self.process: Any = driver.process
        self.path = ""
        self.world = driver.world
        self.handle: Any = None
        self.stream: Any = None
        self.is_dropped = False

    def assign(self, owner: Owner, world: World) -> None:
        """Make this an activity of a process inside of the driven one."""
        if owner.path and not self.path:
            self.effect = self.effect.changed(key=self.key[len(owner.path) + len(SEPARATOR) :])
        self.process, self.path = owner.process, owner.path
        self.world = world

    def prepare(self) -> bool:
        """Read what there is to know of the effect; return False if nobody here can answer it."""
        return True

    def announcement(self) -> Sequence[Event]:
        """Return the events to be reported before it begins."""
        return ()

    def begin(self) -> None:
        """Prepare for being performed, which follows at once."""

    def perform(self) -> Any | Generator[Event, None, Any]:
        """Perform it in this thread, and return the outcome.

        Raises:
            UsageError: No activity is registered for this kind of effect.
        """
        raise self._unknown()

    def aperform(self) -> Awaitable[Any] | AsyncGenerator[Any]:
        """Do the same under asyncio; an instant activity has no need of it."""
        raise self._unknown()

    def _unknown(self) -> UsageError:
        kind = type(self.effect).__name__
        return UsageError(
            f"nothing performs {kind} (key {self.effect.key!r}): an Activity under activity_of({kind}) would"
        )

    def finish(self, outcome: Any) -> Sequence[Event]:
        """Have the step of the outcome taken; return it, and the events that belong to it if somebody listens."""
        return self.driver.step(self.key, outcome)

    def timeout_outcome(self) -> Any:
        """Return the outcome of an activity that exceeded its timeout."""
        raise NotImplementedError(f"{type(self).__name__} has no timeout")

    def returned_outcome(self) -> Any:
        """Return the outcome to be kept when the driver is stopped, if there is one already; None: there is not."""
        return None

    def wrap_events(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return events of its own process as the driven process reports them."""
        return [Inside(self.path, event) for event in events] if self.path else events

    def abandon(self) -> None:
        """Cancel it; its outcome is no longer wanted."""
        self.is_dropped = True
        if self.handle is not None:
            self.handle.cancel()

    @property
    def own_key(self) -> str:
        """The key under which its process takes what answers nothing, such as its expiry."""
        return f"{self.path}{SEPARATOR}" if self.path else ""


ACTIVITIES: dict[type, type[Activity]] = {}  # by the kind of effect; of others it is `Activity` itself


def activity_of(effect: type) -> Callable[[A], A]:
    """Register a subclass of `Activity` for a kind of effect."""

    def register(activity: A) -> A:
        ACTIVITIES[effect] = activity
        return activity

    return register

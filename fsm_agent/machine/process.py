"""The protocol of a process: anything that a driver can move, such as an agent call or a flow.

What a process waits for is a function of its state alone.  A driver reads its `effects`, performs them, and feeds each
outcome back by `advance`; all other members tell the driver what happened and what to heed.

Processes nest: the effects of a child are among those of its parent, each under a *path* and its own key, such as
``drafting/warm/model:3``.  A path is the names of the children that lead to an effect, from the outside, each followed
by a `SEPARATOR`.  That is a slash because neither the keys of effects (``prefix:subject``) nor the names of Python have
one, so the text before the first is a child's name, and it reads as a path.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from fsm_agent._internal.values import Value
from fsm_agent.messages.event import Event

if TYPE_CHECKING:
    from fsm_agent.machine.journal import Journal

SEPARATOR = "/"


def prefix_of(key: str) -> str:
    """Return the prefix of the effect with this key, wherever in the process it is."""
    return key.rpartition(SEPARATOR)[2].partition(":")[0]


def with_prefix(key: str, prefix: str) -> str:
    """Return the key of another effect about the same subject, of the same process."""
    path, separator, own = key.rpartition(SEPARATOR)
    return f"{path}{separator}{prefix}:{own.partition(':')[2]}"


class AnyEffect(Protocol):
    """Something that a process waits for: a value that knows how it is answered."""

    @property
    def key(self) -> str:
        """The name of the request, used once in the life of its process."""

    @property
    def prefix(self) -> str:
        """The beginning of the key, before a colon; the same for all effects of a kind."""

    @property
    def outcomes(self) -> tuple[type, ...]:
        """The kinds of outcomes that answer it."""

    @property
    def question(self) -> Question | None:
        """The question that the effect is for somebody outside; None: whoever drives the process performs it."""

    @property
    def wakes_at_s(self) -> float | None:
        """Unix time until which it only waits; None: there is more to it."""

    def changed(self, *, key: str) -> AnyEffect:
        """Return the effect under another key."""


class Question(Value, frozen=True):
    """An effect that waits for somebody's word."""

    key: str  # of the effect
    kind: str  # "approval", "result" of a function without a callable, "doubt" whether one ran, "stuck"
    about: str = ""  # JSON, for people
    answers: tuple[str, ...] = ()  # the kinds of outcomes that answer it


class EffectValue(Value, frozen=True):
    """A base for effects: one that a driver performs, and that is more than a wait."""

    prefix: ClassVar[str]
    outcomes: ClassVar[tuple[type, ...]]

    @property
    def question(self) -> Question | None:
        """The question that the effect is for somebody outside."""
        return None

    @property
    def wakes_at_s(self) -> float | None:
        """Unix time until which it only waits."""
        return None


class Owner(Value, frozen=True):
    """The process that waits for an effect, and where it is."""

    process: Process
    path: str  # without the last separator; "" for the process that was asked
    worlds: tuple[Any, ...]  # its own, where its effects are performed, and those around it; the driver's is left out


class Deadline(NamedTuple):
    """The moment when a process, or a child of it, expires."""

    at_s: float  # Unix time
    key: str  # under which its expiry is passed to `Process.advance`: "" for the process itself, a path for a child


class Change(Value, frozen=True):
    """The changes that an `advance` makes in the effects of a process, beside removing the one that is answered."""

    gone: tuple[str, ...] = ()  # keys of others that are no longer wanted
    new: tuple[AnyEffect, ...] = ()  # in the order in which they are to begin
    has_moved_deadline: bool = False  # the deadline may be another one


NARROWED = Change()  # nothing else has changed


class EndRequest(Value, frozen=True):
    """A request from outside to end a process."""

    kind: str  # of the outcome that its driver passes on: "cancelled" or "stopped"
    reason: str


class Process(Protocol):
    """Anything with effects that is advanced by their outcomes.

    Attributes:
        driver: The driver that has claimed the process, if there is one; its method `wake` has it look again.
        end_request: The latest request to end it that the driver has not taken yet; None: there is none.
        journal: Where each `advance` adds an entry, for the outermost process alone; None: nothing is kept.
    """

    driver: weakref.ref[Any] | None
    end_request: EndRequest | None
    journal: Journal | None

    @property
    def record(self) -> Any:
        """The whole state: a frozen value, another one after each step."""

    @property
    def effects(self) -> Sequence[AnyEffect]:
        """The effects that the process waits for now; empty once it has ended."""

    @property
    def steps(self) -> Sequence[Event]:
        """The steps of the last `advance`, in order: `Stepped`, and `Inside` with the path for those of children."""

    @property
    def change(self) -> Change | None:
        """The changes that the last `advance` has made in the effects; None: not known, so all have to be read."""

    @property
    def deadline(self) -> Deadline | None:
        """The earliest deadline of the process and its children."""

    @property
    def outcome(self) -> Any:
        """The result so far, which `Done` carries to listeners at the end."""

    def advance(self, key: str, outcome: Any) -> None:
        """Take the outcome of one effect.  All or nothing, synchronous, pure.

        Args:
            key: The effect's key; ``""`` for an outcome that answers nothing, such as a cancellation.  A path,
                ``"warm/"``, stands for the ``""`` of that child.
            outcome: The outcome.
        """

    def cancel(self, reason: str = "") -> None:
        """Have the process ended by its driver, from any thread."""

    def return_to(self, record: Any) -> None:
        """Be in the state of this record, which is one of its own; what followed it never happened."""

    def owner(self, key: str) -> Owner:
        """Return the process, this one or one inside of it, that waits for the effect with this key."""

    # Its journal

    @property
    def definition(self) -> str:
        """A fingerprint of what decides its steps, as far as it can be told; changes with the code's deployment."""

    def encode(self, key: str, outcome: Any) -> str:
        """Return an outcome for ``key`` as JSON, before it is taken.

        Raises:
            ValueError: It holds something that could not be read again.
        """

    def decode(self, key: str, document: bytes | str) -> Any:
        """Return the outcome for ``key`` that JSON holds, before it is taken.

        Raises:
            ValueError: It is damaged, or of no kind that there is.
        """


class Inner(Value, frozen=True):
    """A process inside of another, and its listeners."""

    process: Any
    hooks: Sequence[Any]  # of the agent or the flow that it is of
    hears_inside: bool = False  # they are told of what happens further inside, too
    world: Callable[[], Any] | None = None  # returns where its effects are performed; None: as `Owner.world`


def along(process: Any, path: str) -> Iterator[tuple[Inner, str]]:
    """Yield each process on a path, from the outside, and the rest of the path beyond it; some may have ended."""
    while path:
        name, _, path = path.partition(SEPARATOR)
        inner: Inner = process.inside_of(name)
        process = inner.process
        yield inner, path


def wakes_at_s(process: Process) -> float | None:
    """Return the moment (Unix time) at which a process goes on by itself; None: it waits for others alone."""
    moments = [moment for effect in process.effects if (moment := effect.wakes_at_s) is not None]
    if process.deadline is not None:
        moments.append(process.deadline.at_s)
    return min(moments, default=None)


class Driven:
    """The part of a process that its driver and its listeners share; a base for processes."""

    __slots__ = ("driver", "end_request", "journal")

    def __init__(self) -> None:
        self.driver: weakref.ref[Any] | None = None
        self.end_request: EndRequest | None = None
        self.journal: Journal | None = None

    def cancel(self, reason: str = "") -> None:
        """Cancel the process, from any thread; its driver, the present or the next, ends it at once."""
        self.request_end("cancelled", reason)

    def request_end(self, kind: str, reason: str) -> None:
        """Have the driver pass an outcome of this kind on to the process, before any other."""
        self.end_request = EndRequest(kind, reason)
        if self.driver is not None and (driver := self.driver()) is not None:
            driver.wake()

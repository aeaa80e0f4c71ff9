"""The protocol of a process: anything that a driver can move, such as an agent call or a flow.

The effects that a process waits for follow from its state alone.  A driver reads its `effects`, performs them, and
passes each outcome to `advance`.

Processes nest.  The effects of a child are among the effects of its parent, under the child's name and their own key,
such as ``drafting/warm/model:3``.  The *path* of an effect is the names of the children that lead to it, from the
outside.  The `SEPARATOR` is a slash because neither keys (``prefix:subject``) nor Python names contain a slash, so the
text before the first slash is always the name of a child.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from fsm_agent._internal.scope import ScopedValue
from fsm_agent._internal.structs import Value
from fsm_agent.call.journal import Journal
from fsm_agent.call.machine import Explanation, Row, explain, explain_step
from fsm_agent.errors import OutcomeError, UsageError
from fsm_agent.messages.events import Event, Inside, Question, Stepped
from fsm_agent.validation import require, safe_repr

SEPARATOR = "/"
_TIMER = "sleep"  # the prefix of effects that wait for a time
INBOX = "inbox"  # the prefix of outcomes that may come before an effect asks for them


def prefix_of(key: str) -> str:
    """Return the prefix of the effect with this key, without its path."""
    return key.rpartition(SEPARATOR)[2].partition(":")[0]


def subject_of(key: str) -> str:
    """Return the subject of the effect with this key, without its path, such as ``1.0`` for ``ask:1.0``."""
    return key.rpartition(SEPARATOR)[2].partition(":")[2]


def with_prefix(key: str, prefix: str) -> str:
    """Return a key with another prefix, but the same path and subject."""
    path, separator, own = key.rpartition(SEPARATOR)
    return f"{path}{separator}{prefix}:{own.partition(':')[2]}"


def check_given(key: object, outcome: object) -> None:
    """Check that the key is a string, and that an object without a key is an outcome."""
    if not isinstance(key, str):
        raise OutcomeError(f"key: expected the key of an effect, such as 'ask:2.0', got {safe_repr(key)}")
    if not key and not isinstance(getattr(outcome, "kind", None), str):
        raise OutcomeError(
            f"the outcome: expected one such as Cancelled(), got {safe_repr(outcome)}; to answer a question, pass its"
            " key first"
        )


class AnyEffect(Protocol):
    """A request of a process to the outside world.

    Examples:
        >>> effect: AnyEffect = Agent(Script("Hi.")).prepare("Hello").effects[0]
        >>> effect.key, effect.question
        ('begin', None)
    """

    @property
    def key(self) -> str:
        """The name of the request, used once in the life of its process."""

    @property
    def prefix(self) -> str:
        """The part of the key before the colon, which all effects of a kind share."""

    @property
    def outcomes(self) -> tuple[type, ...]:
        """The kinds of outcomes that answer the effect."""

    @property
    def question(self) -> Question | None:
        """The question for a person or another program, or None if the driver performs the effect."""

    @property
    def wakes_at_s(self) -> float | None:
        """The Unix time until which the effect waits, or None if it does not wait for a time."""

    def changed(self, *, key: str) -> AnyEffect:
        """Return the effect under another key."""


class EffectValue(Value, frozen=True):
    """A base class for effects.  By default, a driver performs the effect, and it does not wait for a time.

    Examples:
        >>> from typing import ClassVar
        >>> class Ring(EffectValue, frozen=True):
        ...     key: str
        ...     prefix: ClassVar = "ring"
        ...     outcomes: ClassVar = (str,)
        >>> Ring("ring:1").wakes_at_s is None
        True
    """

    prefix: ClassVar[str]
    outcomes: ClassVar[tuple[type, ...]]

    @property
    def question(self) -> Question | None:
        return None

    @property
    def wakes_at_s(self) -> float | None:
        return None


class Owner(Value, frozen=True):
    """The process that waits for an effect, and where it is."""

    process: Process
    path: str  # without a separator at its end; "" for the outermost process
    environments: tuple[Any, ...]  # the environments on the path, the innermost first, without the driver's


class Deadline(NamedTuple):
    """The moment when a process or one of its children expires."""

    at_s: float  # Unix time
    key: str  # for the expiry in `Process.advance`: "" for the process itself, a path for a child


class Change(Value, frozen=True):
    """The changes that an `advance` makes to the effects of a process, besides removing the answered effect."""

    gone: tuple[str, ...] = ()  # keys of other effects that were removed
    new: tuple[AnyEffect, ...] = ()  # in the order in which they are to start
    has_moved_deadline: bool = False  # the deadline may have changed


NARROWED = Change()  # only the answered effect was removed


class EndRequest(Value, frozen=True):
    """A request from outside to end a process."""

    kind: str  # of the outcome that the driver passes to the process: "cancelled" or "stopped"
    reason: str


class InsideWait(Value, frozen=True):
    """A function's wait for a run that it started, with the effects that the run waits for."""

    run: str  # its name in the store
    effects: tuple[AnyEffect, ...]  # under the keys that they have in the process of the function
    wakes_at_s: float | None = None  # Unix time at which the run continues without an answer; None if it needs one


class Process(Protocol):
    """A state with effects.  The outcomes of the effects advance it.

    Attributes:
        driver: The driver that has claimed the process, or None.  `wake` makes it check the process again.
        end_request: The latest request to end the process, until the driver handles it, or None.
        journal: The journal to which each `advance` adds an entry.  An inner process has None.
        waits_inside: The runs that functions were waiting for when the last driver left, by the keys of the functions'
            effects.

    Examples:
        >>> process: Process = Agent(Script("Hi.")).prepare("Hello")
        >>> str(process.record.state), [effect.key for effect in process.effects]
        ('Seeded', ['begin'])
    """

    driver: weakref.ref[Any] | None
    end_request: EndRequest | None
    journal: Journal | None
    waits_inside: dict[str, tuple[InsideWait, ...]]

    @property
    def record(self) -> Any:
        """The whole state: a frozen value, replaced at each step."""

    @property
    def effects(self) -> Sequence[AnyEffect]:
        """The effects that the process waits for now.  An ended process has no effects."""

    @property
    def steps(self) -> Sequence[Event]:
        """The steps of the last `advance`, in order: a `Stepped`, or for a child an `Inside` with the path."""

    @property
    def change(self) -> Change | None:
        """The changes that the last `advance` made to the effects, or None if they are unknown."""

    @property
    def deadline(self) -> Deadline | None:
        """The earliest deadline of the process and its children."""

    @property
    def own_deadline_s(self) -> float | None:
        """The Unix time at which the process itself expires, or None if it has no deadline."""

    @property
    def result_so_far(self) -> Any:
        """The result so far.  The event `Done` has the final result."""

    def advance(self, key: str, outcome: Any) -> None:
        """Take the outcome of one effect.  The step is atomic, synchronous and pure.

        Args:
            key: The effect's key, or ``""`` for an outcome that answers no effect, such as a cancellation.  The path
                ``"warm/"`` stands for the ``""`` of the child ``warm``.
            outcome: The outcome.  If it has no ``at_s``, it gets the time of the last step, which may leave later
                states of a flow no time.  `FlowRun.give` uses the current time.
        """

    def end_with(self, outcome: Any) -> None:
        """Take the outcome that ends the outer process, and end."""

    def cancel(self, reason: str = "") -> None:
        """Ask the driver to cancel the process.  Thread-safe."""

    def return_to(self, record: Any) -> None:
        """Return to the state of an earlier record of this process, and forget what followed."""

    def renew(self, at_s: float) -> None:
        """Restart the deadlines of the process and its inner processes at ``at_s``.

        A retry does this, so that a past deadline does not end the run at once.  It is not a step.
        """

    def owner(self, key: str) -> Owner:
        """Return the process that waits for the effect with this key: this process or a descendant."""

    def explain(self, event: Any, *, key: str = "") -> Explanation:
        """Return the rows of a step or of an outcome; see `BaseProcess.explain`."""

    # Its journal

    def beginning(self, name: str) -> tuple[str, str]:
        """Return the kind of the process and the data that it began with, for readers who do not have its code."""

    @property
    def fingerprint(self) -> str:
        """A fingerprint of the code that decides the steps, as far as the code can be inspected."""

    def encode(self, key: str, outcome: Any) -> str:
        """Return an outcome for ``key`` as JSON, before the process takes it.

        Raises:
            ValueError: If the outcome holds a value that cannot be read back.
        """

    def decode(self, key: str, document: bytes | str) -> Any:
        """Read an outcome for ``key`` from JSON, before the process takes it.

        Raises:
            ValueError: If the document is damaged, or the kind of outcome is unknown.
        """


class ChildHandle(Value, frozen=True):
    """An inner process and its listeners.

    Examples:
        >>> process = Agent(Script("Hi.")).prepare("Hello")
        >>> ChildHandle(process, hooks=(), name="clerk").name
        'clerk'
    """

    process: Any
    hooks: Sequence[Any]  # the hooks of its agent or flow
    hears_inside: bool = False  # True if the hooks also get the events of its inner processes
    # Returns the environment that performs its effects, or None if it shares the outer environment.
    environment: Callable[[], Any] | None = None
    name: str = ""  # of its agent or flow; empty if it has neither


def along(process: Any, path: str) -> Iterator[tuple[ChildHandle, str]]:
    """Yield each process on a path, from the outside in, with the rest of the path.  The processes may have ended."""
    while path:
        name, _, path = path.partition(SEPARATOR)
        inner: ChildHandle = process.inside_of(name)
        process = inner.process
        yield inner, path


def open_effects(process: Process) -> Sequence[AnyEffect]:
    """Return the effects of a process that no driver moves.

    If a function waits for a run, the effects of the run replace the effect of the function.
    """
    if not process.waits_inside:
        return process.effects
    return [effect for effect, _ in open_effects_of_runs(process)]


def open_effects_of_runs(process: Process) -> Iterator[tuple[AnyEffect, str]]:
    """Yield the `open_effects`, each with the name of its run, or ``""`` for the process itself."""
    for effect in process.effects:
        waits = process.waits_inside.get(effect.key)
        if waits is None:
            yield effect, ""
        else:
            yield from ((inside, wait.run) for wait in waits for inside in wait.effects)


def questions_of(process: Process) -> tuple[Question, ...]:
    """Return the open questions of a process, each with the time until which it can be answered."""
    return tuple([question for question, _ in questions_of_runs(process)])


def questions_of_runs(process: Process) -> Iterator[tuple[Question, str]]:
    """Yield the `questions_of` a process, each with the name of its run, or ``""`` for the process itself."""
    timers = {effect.key: effect.wakes_at_s for effect in process.effects}
    for effect, run in open_effects_of_runs(process):
        if (question := effect.question) is not None:
            yield question if run else question.until(_until_s(process, effect.key, timers)), run


def _until_s(process: Process, key: str, timers: Mapping[str, float | None]) -> float | None:
    """Return the earliest deadline of the processes on a path and of their current states, or None.

    ``timers`` has the time until which each effect waits.  The key of a state is like ``sleep:review#3``.
    """
    path, _, own = key.rpartition(SEPARATOR)
    around, moments = "", [process.own_deadline_s]
    for name, (inner, _) in zip([part for part in path.split(SEPARATOR) if part], along(process, path), strict=True):
        moments += [timers.get(f"{around}{_TIMER}:{name}"), inner.process.own_deadline_s]
        around += f"{name}{SEPARATOR}"
    moments.append(timers.get(f"{around}{_TIMER}:{own.partition(':')[2]}"))
    return min([moment for moment in moments if moment is not None], default=None)


def wakes_at_s(process: Process) -> float | None:
    """Return the Unix time at which a process can continue without an answer, or None if it needs one."""
    moments = [moment for effect in process.effects if (moment := effect.wakes_at_s) is not None]
    inside = [wait for effect in process.effects for wait in process.waits_inside.get(effect.key, ())]
    moments += [wait.wakes_at_s for wait in inside if wait.wakes_at_s is not None]
    if process.deadline is not None:
        moments.append(process.deadline.at_s)
    return min(moments, default=None)


class BaseProcess:
    """A base for processes: the attributes that a driver sets, and requests to end the process."""

    __slots__ = ("driver", "end_request", "journal", "traced", "waits_inside")

    def __init__(self) -> None:
        self.traced: Any = None  # what a probe keeps between two drives of the process
        self.driver: weakref.ref[Any] | None = None
        self.end_request: EndRequest | None = None
        self.journal: Journal | None = None
        self.waits_inside: dict[str, tuple[InsideWait, ...]] = {}

    def beginning(self, name: str) -> tuple[str, str]:
        """Return two empty strings.  Calls, flows and their members override this; see `Process.beginning`."""
        return "", ""

    @property
    def own_deadline_s(self) -> float | None:
        """The Unix time at which the process itself expires, or None."""
        return None

    def explain(self, event: Any, *, key: str = "") -> Explanation:
        """Explain why a step took its row, or which row an outcome would take.  The process does not change.

        Args:
            event: A step of the process or of an inner process, or an outcome that the process could take now.
            key: The key of the effect that the outcome answers.

        Returns:
            The rows of the trigger in the order in which they are tried, the result of each guard, and the row that is
            taken.  If an outcome leads to several steps, only the first one is explained.

        Raises:
            OutcomeError: If no effect has this key, or the effect does not accept this outcome.
            UsageError: If the step belongs to another table, or to an inner process that is not kept.

        Examples:
            >>> call = Agent(Script("Hi.")).call("Hello").call
            >>> print(call.explain(call.record.trace[0]))
            'begun' in Seeded:
              refused    Seeded --begun [too_deep]--> Failed
              taken      Seeded --begun--> Calling
        """
        if isinstance(event, Inside):
            try:
                *_, (inside, _) = along(self, event.path)
            except LookupError as error:
                raise UsageError(
                    "the step: expected one of a nested process that this process still holds, got one of"
                    f" {event.path!r}; a run that was read from a store holds only nested processes that have not ended"
                ) from error
            return inside.process.explain(event.event)  # type: ignore[no-any-return]
        if isinstance(event, Stepped):
            return explain_step(self.rows, event)
        check_given(key, event)
        if SEPARATOR in key:
            owner: Owner = self.owner(key)  # type: ignore[attr-defined]
            return owner.process.explain(event, key=key.removeprefix(f"{owner.path}{SEPARATOR}"))
        return explain(self.rows, *self.read_event(key, event))

    @property
    def rows(self) -> tuple[Row, ...]:
        """The table of the process."""
        return self.machine.rows  # type: ignore[attr-defined,no-any-return]

    def read_event(self, key: str, outcome: Any) -> tuple[str, Any, Any, Any]:
        """Return the trigger of an outcome, and the three arguments of the guards.  The process does not change."""
        raise NotImplementedError

    def end_with(self, outcome: Any) -> None:
        self.advance("", outcome)  # type: ignore[attr-defined]

    def cancel(self, reason: str = "") -> None:
        """Cancel the process, from any thread, through its current or next driver.

        Most processes then end.  A run of a flow continues if a row handles the cancellation.

        Raises:
            OutcomeError: If the reason is not a string.
        """
        require("Cancelled.reason", reason, isinstance(reason, str), "a string", OutcomeError)
        self.request_end("cancelled", reason)

    def request_end(self, kind: str, reason: str) -> None:
        """Ask the driver to pass an outcome of this kind to the process, before any other outcome."""
        self.end_request = EndRequest(kind, reason)
        if self.driver is not None and (driver := self.driver()) is not None:
            driver.wake()


# Watches, for tests and tools, of the steps of all processes in this OS process

Watch: TypeAlias = Callable[[Stepped], object]

TableWatch: TypeAlias = Callable[[Any, Stepped], object]

STEP_WATCHES = ScopedValue[tuple[Watch, ...]]("fsm_agent_step_watches", ())

TABLE_WATCHES = ScopedValue[tuple[TableWatch, ...]]("fsm_agent_table_watches", ())


def watched_steps(watch: Watch) -> AbstractContextManager[None]:
    """Call ``watch`` with each step inside the context, just before it is taken.  An exception prevents the step."""
    return STEP_WATCHES.set((*STEP_WATCHES.get(), watch))


def watched_tables(watch: TableWatch) -> AbstractContextManager[None]:
    """Call ``watch`` with the owner and each step of a user's table inside the context, just before it is taken."""
    return TABLE_WATCHES.set((*TABLE_WATCHES.get(), watch))

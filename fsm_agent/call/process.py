"""Processes: everything that a driver can drive, such as an agent call or a flow.

The effects that a process waits for follow from its state alone.  A driver reads the process's `effects`, performs
them, and passes each outcome to `advance`.

Processes nest.  A child's effects are among its parent's, and their keys there consist of the child's name and their
own key, as in ``drafting/warm/model:3``.  The *path* of an effect lists the names of the children that lead to it, from
the outside in.  The `SEPARATOR` is a slash because neither keys (``prefix:subject``) nor Python names contain a slash,
so the text before the first slash is always the name of a child.

A child performs one of its parent's effects, and is named after that effect's key.  Instead of that effect, the parent
waits for the child's effects.  The child's end becomes the effect's outcome.

A child's record is a value inside its parent's record, so the parent's record is the whole state.  `Process` objects
are made around the children's records on demand.  If an advance fails after a child has taken a step, the child's
object is ahead of the parent's record.  The object is reset when it is next used.

A child's last step and the parent's reaction to it happen in one `advance`, so no record contains a child that has
ended.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple, TypeAlias

from fsm_agent._internal.scope import ScopedValue
from fsm_agent._internal.structs import Value
from fsm_agent._internal.text import cut
from fsm_agent.call.journal import TASK_CHARS, Beginning, Entry, Journal, steps_json
from fsm_agent.call.machine import Explanation, Row, RowMachine, explain, explain_step, take_row
from fsm_agent.errors import IllegalTrigger, OutcomeError, UsageError
from fsm_agent.messages.events import Event, Inside, Question, Stepped, unwrapped
from fsm_agent.messages.reply import Usage
from fsm_agent.validation import require, safe_repr

SEPARATOR = "/"
_TIMER = "sleep"  # the prefix of effects that wait for a set time
INBOX = "inbox"  # the prefix of outcomes that may come before an effect asks for them
_PASSED_DOWN = ("cancelled", "stopped", "expired")  # kinds of outcomes that end the children, too


def prefix_of(key: str) -> str:
    """Return the prefix in an effect's key, without the path."""
    return key.rpartition(SEPARATOR)[2].partition(":")[0]


def subject_of(key: str) -> str:
    """Return the subject in an effect's key, without the path: ``1.0`` for ``ask:1.0``."""
    return key.rpartition(SEPARATOR)[2].partition(":")[2]


def with_prefix(key: str, prefix: str) -> str:
    """Return a key with another prefix but the same path and subject."""
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


def refusal_of(effects: Iterable[EffectValue], key: object, outcome: object, state: object) -> OutcomeError:
    """Return the error to raise for an outcome that none of the effects waits for."""
    check_given(key, outcome)
    waits = {effect.key: effect for effect in effects}
    got = f"the class {outcome.__name__}" if isinstance(outcome, type) else type(outcome).__name__
    if (effect := waits.get(key)) is None:  # type: ignore[call-overload]
        keys = ", ".join(map(repr, waits)) or "nothing, since it has ended"
        what = repr(key) if outcome is None else f"{key!r}, for {got},"
        return OutcomeError(f"no effect has the key {what} in {state}; it waits for {keys}")
    right = " or ".join([kind.__name__ for kind in effect.outcomes])
    return OutcomeError(f"the outcome for {key!r}: expected {right}, got {got}")


class EffectValue(Value, frozen=True):
    """A request from a process to the outside world.

    By default, it is performed by a driver and does not wait for any point in time.

    Attributes:
        prefix: The part of the key before the colon, which all effects of the same kind share.
        outcomes: The kinds of outcomes that are responses to the effect.

    Examples:
        >>> from typing import ClassVar
        >>> class Ring(EffectValue, frozen=True):
        ...     prefix: ClassVar = "ring"
        ...     outcomes: ClassVar = (str,)
        >>> Ring("ring:1").wakes_at_s is None
        True
    """

    prefix: ClassVar[str]
    outcomes: ClassVar[tuple[type, ...]]
    key: str  # the name of the request, used once in the life of its process

    @property
    def question(self) -> Question | None:
        """The question to a person or another program, or None if the driver performs the effect."""
        return None

    @property
    def wakes_at_s(self) -> float | None:
        """The Unix time until which the effect waits, or None if it does not wait."""
        return None


class Owner(Value, frozen=True):
    """The process that waits for an effect, and where that process is nested."""

    process: Process
    path: str  # without a separator at its end; "" for the outermost process
    environments: tuple[Any, ...]  # the environments on the path, the innermost first, without the driver's


class Deadline(NamedTuple):
    """The moment when a process or one of its children expires."""

    at_s: float  # Unix time
    key: str  # for the expiry in `Process.advance`: "" for the process itself, a path for a child


class Change(Value, frozen=True):
    """The changes that an `advance` makes to a process's effects, besides removing the answered effect."""

    gone: tuple[str, ...] = ()  # keys of other effects that were removed
    new: tuple[EffectValue, ...] = ()  # in the order in which they are to start
    has_moved_deadline: bool = False  # the deadline may have changed


NARROWED = Change()  # only the answered effect was removed


class EndRequest(Value, frozen=True):
    """A request, made from outside a process, to end it."""

    kind: str  # of the outcome that the driver passes to the process: "cancelled" or "stopped"
    reason: str


class InsideWait(Value, frozen=True):
    """A run that a function started and waits for, with the effects that the run itself waits for."""

    run: str  # its name in the store
    effects: tuple[EffectValue, ...]  # under the keys that they have in the process of the function
    wakes_at_s: float | None = None  # Unix time at which the run continues without an answer; None if it needs one


class ChildHandle(Value, frozen=True):
    """An inner process and its listeners.

    Examples:
        >>> process = Agent(Script("Hi.")).prepare("Hello")
        >>> ChildHandle(process, hooks=(), name="clerk").name
        'clerk'
    """

    process: Any
    hooks: Sequence[Any]  # the hooks of its agent or flow
    hears_inside: bool = False  # True if the hooks also receive the events of its inner processes
    # Returns the environment that performs its effects.  None: it shares the outer environment.
    environment: Callable[[], Any] | None = None
    name: str = ""  # the agent's or flow's name; empty if there is neither


def along(process: Any, path: str) -> Iterator[tuple[ChildHandle, str]]:
    """Yield each process along a path, from the outside in, with the rest of the path.

    The processes may have ended.
    """
    while path:
        name, _, path = path.partition(SEPARATOR)
        inner: ChildHandle = process.inners[name]
        process = inner.process
        yield inner, path


def process_at(process: Any, path: str) -> Any:
    """Return the process at a path, which may have ended."""
    for inner, _ in along(process, path):
        process = inner.process
    return process


def open_effects(process: Process) -> Sequence[EffectValue]:
    """Return the open effects of a process that is not being driven.

    If a function waits for a run, the run's effects replace the function's effect.
    """
    if not process.waits_inside:
        return process.effects
    return [effect for effect, _ in open_effects_of_runs(process)]


def open_effects_of_runs(process: Process) -> Iterator[tuple[EffectValue, str]]:
    """Yield the `open_effects`, each with the name of the run it belongs to, or ``""`` for the process itself."""
    for effect in process.effects:
        waits = process.waits_inside.get(effect.key)
        if waits is None:
            yield effect, ""
        else:
            yield from ((inside, wait.run) for wait in waits for inside in wait.effects)


def questions_of(process: Process) -> tuple[Question, ...]:
    """Return a process's open questions, each with the time until which it can be answered."""
    return tuple([question for question, _ in questions_of_runs(process)])


def questions_of_runs(process: Process) -> Iterator[tuple[Question, str]]:
    """Yield the `questions_of` a process, each with the name of the run that asks it, or ``""`` for the process."""
    timers = {effect.key: effect.wakes_at_s for effect in process.effects}
    for effect, run in open_effects_of_runs(process):
        if (question := effect.question) is not None:
            yield question if run else question.until(_until_s(process, effect.key, timers)), run


def _until_s(process: Process, key: str, timers: Mapping[str, float | None]) -> float | None:
    """Return the earliest deadline among the processes on a path and their current states, or None.

    ``timers`` holds the time until which each effect waits.  A state's key looks like ``sleep:review#3``.
    """
    path, _, own = key.rpartition(SEPARATOR)
    around, moments = "", [process.own_deadline_s]
    for name, (inner, _) in zip([part for part in path.split(SEPARATOR) if part], along(process, path), strict=True):
        moments += [timers.get(f"{around}{_TIMER}:{name}"), inner.process.own_deadline_s]
        around += f"{name}{SEPARATOR}"
    moments.append(timers.get(f"{around}{_TIMER}:{own.partition(':')[2]}"))
    return min([moment for moment in moments if moment is not None], default=None)


def wakes_at_s(process: Process) -> float | None:
    """Return the Unix time from which a process can continue without an answer, or None if it needs an answer."""
    moments = [moment for effect in process.effects if (moment := effect.wakes_at_s) is not None]
    inside = [wait for effect in process.effects for wait in process.waits_inside.get(effect.key, ())]
    moments += [wait.wakes_at_s for wait in inside if wait.wakes_at_s is not None]
    if process.deadline is not None:
        moments.append(process.deadline.at_s)
    return min(moments, default=None)


class ChildEffects(Value, frozen=True):
    """A child's effects and deadline, under their keys in the parent.

    This is a cache: with a thousand children, it would take too long to read all effects at each step.
    """

    # The child's record when the effects were read.  The cache is valid while the parent holds this same object.
    record: Any
    # Effects by their keys in the parent, ``name/key``.  Changing a key copies the effect, so it is done once.
    effects: Mapping[str, EffectValue]
    # None if the child has no deadline.
    deadline: Deadline | None


class Advanced(NamedTuple):
    """A process's effects after an advance, to be cached.

    They are computed before the step is committed, so that a failure to compute them leaves the process unchanged.
    """

    change: Change  # for the driver, and for the parent of this process
    own: dict[str, EffectValue]  # own effects by `slot`
    children: dict[str, ChildEffects]  # by name


class Process(ABC):
    """A state with effects, driven by a table and advanced by the outcomes of the effects.

    The guards and actions in the table's rows receive the record, the outcome and the process itself.  Triggers are the
    kinds of outcomes.  An action starts children by adding their records to the record's ``children``, the newest last,
    without reusing a name.  A child that has ended is removed before the row for its end is chosen.  A cancellation, a
    stop or the deadline first ends the children.

    Attributes:
        machine: The machine for the table; see `machine_of`.
        record: The whole state: a frozen value, replaced at each step.
        steps: The steps of the last `advance`, in order: each is a `Stepped` or, for a child's step, an `Inside` with
            the path.
        change: The changes that the last `advance` made to the effects, or None if they are unknown.
        driver: The driver that has claimed the process, or None.  The driver's `wake` makes it check the process again.
        end_request: The latest request to end the process that the driver has not yet handled, or None.
        journal: The journal to which each `advance` adds an entry; None for an inner process.
        waits_inside: The runs that functions were waiting for when the last driver left, by the keys of the functions'
            effects.
        traced: The data that a probe keeps from one drive of the process to the next.
        inners: The children with their listeners, by name.  Former children stay, for listeners to the last steps.

    Examples:
        >>> process: Process = Agent(Script("Hi.")).prepare("Hello")
        >>> str(process.record.state), [effect.key for effect in process.effects]
        ('Seeded', ['begin'])
    """

    machine: RowMachine
    traced: Any = None
    driver: weakref.ref[Any] | None = None
    end_request: EndRequest | None = None
    journal: Journal | None = None

    # The effects are cached from step to step, and a step reports its `Change`.  Without this, a step takes 14 times as
    # long with 1,000 functions at once, and three times as long with 1,000 agents.

    # The record for which the next two attributes are valid.  If it is not the current one, they are read again: at
    # first, after `undo`, after a step that may have changed anything (see `moved`), and after an interrupted step.
    _cached_for: Any = None
    # The effects of the process itself, by `slot`.
    _own_wanted: dict[str, EffectValue]
    # By name, in the order of the children, which is also the order of their effects.
    _child_effects: dict[str, ChildEffects]

    def __init__(self, record: Any) -> None:
        self.record = record
        self.waits_inside: dict[str, tuple[InsideWait, ...]] = {}
        self.steps: tuple[Event, ...] = ()
        self.change: Change | None = None
        self._effects: tuple[EffectValue, ...] | None = None  # the value of `effects`, or None if not computed yet
        self.forget_children()

    def forget_children(self) -> None:
        """Drop the children's objects and the cached effects, which are created again when they are needed."""
        # Objects are kept from step to step because they have caches.
        self.inners: dict[str, ChildHandle] = {}
        self._child_effects = {}
        self._cached_for = None

    # Defined by each kind of process

    @abstractmethod
    def own_effects(self) -> Iterable[EffectValue]:
        """Return the effects of the process itself, without its children's effects."""

    @abstractmethod
    def child(self, name: str, record: Any) -> ChildHandle:
        """Return a process made around a child's record, with its listeners."""

    @abstractmethod
    def begin(self, record: Any, name: str, child: Any) -> None:
        """Start a new child in the advance that added it.  ``record`` is the record after the step."""

    @abstractmethod
    def result_of_child(self, name: str, child: Any) -> Any:
        """Return the end of a child as an outcome for this process."""

    @property
    @abstractmethod
    def result_so_far(self) -> Any:
        """The result so far.  The event `Done` carries the final result."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A fingerprint of the code that decides the steps, as far as the code can be inspected."""

    @abstractmethod
    def encode_own(self, key: str, outcome: Any) -> str:
        """Return an outcome for the process itself as JSON; see `Process.encode`."""

    @abstractmethod
    def decode_own(self, key: str, document: bytes | str) -> Any:
        """Read an outcome for the process itself from JSON; see `Process.decode`."""

    def beginning(self, name: str) -> tuple[str, str]:
        """Return the kind of the process and its initial data, for readers without its code."""
        return "", ""

    @property
    def own_deadline_s(self) -> float | None:
        """The Unix time at which the process itself expires, or None if it has no deadline."""
        return None

    def outlasts(self, outcome: Any) -> bool:
        """Return whether the process continues after this outcome, which ends most processes."""
        return False

    def return_to(self, record: Any) -> None:
        """Return to the state in an earlier record of this process, and forget what followed."""
        self.record = record
        self.steps, self.change, self._effects = (), None, None

    def renew(self, at_s: float) -> None:
        """Restart the deadlines of the process and its inner processes at ``at_s``.

        A retry does this so that a deadline in the past does not end the run at once.  No step is taken.
        """
        children = {}
        for name in self.record.children:
            child = self.child_process(self.record, name)
            child.renew(at_s)
            children[name] = child.record
        renewed = self.renewed(at_s)
        self.return_to(renewed.changed(children={**renewed.children, **children}))

    def renewed(self, at_s: float) -> Any:
        """Return the record with the process's own deadlines counted from ``at_s``."""
        return self.record

    def charge(self, spent: Usage) -> None:
        """Set the total usage, which after a retry includes the tokens of the entries that were undone."""
        record = self.record
        self.return_to(record.changed(usage=record.usage + (spent - record.total_usage)))

    def __str__(self) -> str:
        return f"the process {type(self).__name__} in {self.record.state}"

    # The protocol

    @property
    def effects(self) -> tuple[EffectValue, ...]:
        """The current effects of the process and its children.  A process that has ended has no effects."""
        if self._effects is None:
            if self._cached_for is not self.record:
                self._read_effects()
            found = [*self._own_wanted.values()]
            for name, known in self._child_effects.items():
                child = self.child_process(self.record, name)  # for the order of the effects
                found += [known.effects[f"{name}{SEPARATOR}{effect.key}"] for effect in child.effects]
            self._effects = tuple(found)
        return self._effects

    @property
    def deadline(self) -> Deadline | None:
        """The earliest deadline of the process and its children, or None."""
        if self._cached_for is not self.record:
            self._read_effects()
        found = [child.deadline for child in self._child_effects.values() if child.deadline is not None]
        if (at_s := self.own_deadline_s) is not None:
            found.append(Deadline(at_s, ""))
        return min(found, default=None)

    def owner(self, key: str) -> Owner:
        """Return the process, this one or a descendant, that is waiting for the effect with this key."""
        inner, rest = self._inner(key)
        if inner is None:
            return Owner(self, "", ())
        owner, name = inner.owner(rest), key.partition(SEPARATOR)[0]
        environment = self.inners[name].environment
        environments = owner.environments if environment is None else (*owner.environments, environment())
        return Owner(owner.process, join_path(name, owner.path), environments)

    def advance(self, key: str, outcome: Any) -> None:
        """Take the outcome of one effect.  The step, including the children's steps, is atomic, synchronous and pure.

        Args:
            key: The effect's key, or ``""`` for an outcome that is not a response to an effect, such as a cancellation.
                The path ``"warm/"`` stands for the key ``""`` in the child ``warm``.  If the key is the name of a
                child, the child is discarded, and the outcome replaces its end.
            outcome: The outcome.  Its ``kind`` is the trigger.  An outcome without ``at_s`` gets the time of the last
                step, so later states in a flow may have no time left.  `FlowRun.give` uses the current time.

        Raises:
            OutcomeError: If no effect has this key, or the effect does not accept this outcome.
            IllegalTrigger: If the table has no row for the outcome, or the process has ended.
        """
        steps: list[Event] = []
        document = "" if self.journal is None else self.encode(key, outcome)
        record = self._settle_children(*self._advance_record(key, outcome, steps), steps)
        known = self._advanced(key, record)
        if self.journal is not None:
            self.journal.add(Entry(key, document, steps_json(steps, self._beginnings(steps)), record), self.record)
        self.change = self._effects = self._cached_for = None  # if this is interrupted, effects are read again
        self.record = record
        self.steps = tuple(steps)
        if known is not None:
            self.change, self._own_wanted, self._child_effects = known
            self._cached_for = record

    def encode(self, key: str, outcome: Any) -> str:
        """Return an outcome for ``key`` as JSON, before it is passed to the process.

        Raises:
            ValueError: If the outcome holds a value that cannot be read back.
        """
        inner, rest = self._inner(key)
        return self.encode_own(key, outcome) if inner is None else inner.encode(rest, outcome)

    def decode(self, key: str, document: bytes | str) -> Any:
        """Read an outcome for ``key`` from JSON, before it is passed to the process.

        Raises:
            ValueError: If the document is damaged, or the kind of outcome is unknown.
        """
        inner, rest = self._inner(key)
        return self.decode_own(key, document) if inner is None else inner.decode(rest, document)

    def _inner(self, key: str) -> tuple[Process | None, str]:
        """Return ``(child, rest)``: the child that a key belongs to, or None, and the rest of the key."""
        name, is_inside, rest = key.partition(SEPARATOR)
        if not is_inside:
            return None, key
        if name not in self.record.children:
            raise refusal_of(self.effects, key, None, self.record.state)
        return self.child_process(self.record, name), rest

    def explain(self, event: Any, *, key: str = "") -> Explanation:
        """Explain why a step took a certain row, or which row an outcome would take.  The process does not change.

        Args:
            event: A step taken by the process or by an inner process, or an outcome that the process could take now.
            key: The key of the effect that the outcome responds to.

        Returns:
            The rows for the trigger, in the order in which they are tried, with the result of each guard and the row
            that is taken.  If an outcome leads to several steps, only the first is explained.

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
                inside = process_at(self, event.path)
            except LookupError as error:
                raise UsageError(
                    "the step: expected one of a nested process that this process still holds, got one of"
                    f" {event.path!r}; a run that was read from a store holds only nested processes that have not ended"
                ) from error
            return inside.explain(event.event)  # type: ignore[no-any-return]
        if isinstance(event, Stepped):
            return explain_step(self.rows, event)
        check_given(key, event)
        if SEPARATOR in key:
            owner = self.owner(key)
            return owner.process.explain(event, key=key.removeprefix(f"{owner.path}{SEPARATOR}"))
        return explain(self.rows, *self.read_event(key, event))

    @property
    def rows(self) -> tuple[Row, ...]:
        """The table of the process."""
        return self.machine.rows

    def end_with(self, outcome: Any) -> None:
        """End this process with the outcome that ends the outer process."""
        self.advance("", outcome)

    def cancel(self, reason: str = "") -> None:
        """Cancel the process, from any thread, through its current or next driver.

        Most processes then end, but a flow's run continues if a row handles the cancellation.

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

    def read_event(self, key: str, outcome: Any) -> tuple[str, Any, Any, Any]:
        """Return an outcome's trigger and the three arguments for the guards.  The process does not change."""
        if key and key not in self.record.children:
            self._check(key, outcome)
        return outcome.kind, self.record, outcome, self

    # Effects

    def moved(self, key: str, record: Any) -> tuple[Sequence[str], Mapping[str, EffectValue | None]] | None:
        """Return what the step to ``record`` may have changed: children, by name, and effects of its own, by `slot`.

        An effect of None means that its slot is now empty.  Return None if other effects may have changed too.
        """
        # A child's step changes nothing else as long as the parent has taken no step of its own.
        name, is_inside, _ = key.partition(SEPARATOR)
        return ((name,), {}) if is_inside and record.trace is self.record.trace else None

    def _read_effects(self) -> None:
        record, old = self.record, self._child_effects
        wanted: dict[str, EffectValue] = {}
        children: dict[str, ChildEffects] = {}
        if record.ending is None:
            for effect in self.own_effects():
                if SEPARATOR in effect.key:
                    raise UsageError(
                        f"the key of an effect: expected no {SEPARATOR!r}, which separates children, got {effect.key!r}"
                    )
                wanted[self.slot(effect.key)] = effect
            for name, inner in record.children.items():
                known = old.get(name)
                if known is None or known.record is not inner:
                    known = self._read_child(record, name)
                children[name] = known
        self._own_wanted, self._child_effects = wanted, children
        self._cached_for = record

    def _beginnings(self, steps: Sequence[Event]) -> list[Beginning]:
        found = list[Beginning]()
        for event in steps:
            path, step = unwrapped(event)
            if path and step.trigger == "begun":
                *_, (inner, _) = along(self, path)
                kind, task = inner.process.beginning(path.rpartition(SEPARATOR)[2])
                found.append(Beginning(path, kind, inner.name, cut(task, TASK_CHARS)))
        return found

    def slot(self, key: str) -> str:
        """Return an effect's slot.  A later effect with the same slot takes its place in the order of effects."""
        return key

    def _read_child(self, record: Any, name: str) -> ChildEffects:
        child: Any = self.child_process(record, name)
        prefix = f"{name}{SEPARATOR}"
        effects = {(path := f"{prefix}{effect.key}"): effect.changed(key=path) for effect in child.effects}
        return ChildEffects(child.record, effects, _deadline_under(prefix, child.deadline))

    def _advanced(self, key: str, record: Any) -> Advanced | None:
        """Return the effects after the step to ``record``, or None if they must be read again."""
        if self._cached_for is not self.record or record.ending is not None:
            return None
        found = self.moved(key, record)
        if found is None:
            return None
        names, moved = found
        own, children, has_moved_deadline = dict(self._own_wanted), dict(self._child_effects), False
        for slot, effect in moved.items():
            if effect is None:
                own.pop(slot, None)
            else:
                own[slot] = effect
        gone: list[str] = []
        new = [effect for effect in moved.values() if effect is not None]
        for name in names:
            before, after = children.get(name), None
            if name in record.children:
                after = children[name] = self._read_again(key, record, name, before, gone, new)
            elif before is not None:
                del children[name]
                gone += [path for path in before.effects if path != key]
            if (before and before.deadline) != (after and after.deadline):
                has_moved_deadline = True
        is_more = gone or new or has_moved_deadline
        return Advanced(Change(tuple(gone), tuple(new), has_moved_deadline) if is_more else NARROWED, own, children)

    def _read_again(
        self,
        key: str,
        record: Any,
        name: str,
        before: ChildEffects | None,
        gone: list[str],
        new: list[EffectValue],
    ) -> ChildEffects:
        """Return the effects of a child that began or took steps, and add the changes to ``gone`` and ``new``."""
        prefix = f"{name}{SEPARATOR}"
        child: Any = self.child_process(record, name)
        change = child.change if before is not None and key.startswith(prefix) else None
        if before is None or change is None:
            after, was = self._read_child(record, name), {} if before is None else before.effects
            gone += [path for path in was if path not in after.effects and path != key]
            new += [effect for path, effect in after.effects.items() if path not in was]
            return after
        effects, added = dict(before.effects), [effect.changed(key=f"{prefix}{effect.key}") for effect in change.new]
        removed = [f"{prefix}{each}" for each in change.gone]
        for path in (key, *removed):
            effects.pop(path, None)
        effects.update([(effect.key, effect) for effect in added])
        gone += removed
        new += added
        deadline = _deadline_under(prefix, child.deadline) if change.has_moved_deadline else before.deadline
        return ChildEffects(child.record, effects, deadline)

    def child_process(self, record: Any, name: str) -> Process:
        """Return a child's process, in the state that its record describes."""
        inner = record.children[name]
        if name not in self.inners:
            self.inners[name] = self.child(name, inner)
        process: Process = self.inners[name].process
        if process.record is not inner:  # an advance of this process failed after the child's step
            process.return_to(inner)
        return process

    def present_key(self, key: str) -> str:
        """Return a key, possibly from before an inner flow was upgraded, with the current names of all its steps."""
        name, separator, rest = key.partition(SEPARATOR)
        if not separator or name not in self.record.children:
            return key
        return f"{name}{separator}{self.child_process(self.record, name).present_key(rest)}"

    # Steps

    def _advance_record(self, key: str, outcome: Any, steps: list[Event]) -> tuple[Any, list[str]]:
        record = self.record
        if record.ending is not None:
            raise IllegalTrigger(f"{outcome.kind!r} is not possible in {record.state}: {self} has ended")
        ended: list[str] = []
        inner, rest = self._inner(key)
        if inner is not None:
            inner.advance(rest, outcome)
            return self._replace_child(record, key.partition(SEPARATOR)[0], inner, steps, ended), ended
        if key == "" and outcome.kind in _PASSED_DOWN:
            for name in () if self.outlasts(outcome) else record.children:
                child = self.child_process(record, name)
                child.end_with(outcome)
                record = self._replace_child(record, name, child, steps, ended)
        elif key in record.children:
            record = self._remove_child(record, key)
        elif key:
            self._check(key, outcome)
        return self._own_step(record, key, outcome, steps), ended

    def _settle_children(self, record: Any, ended: list[str], steps: list[Event]) -> Any:
        known = self.record.children
        # This is a loop, since a child may end as it starts, and the step for its end may add children.
        while record.ending is None:
            for name in _new_children(record.children, known):
                record = self._begin_child(record, name, steps, ended)
            known = record.children
            if not ended:
                break
            name = ended.pop(0)
            if name in known:
                end = self.result_of_child(name, self.child_process(record, name))
                record = self._own_step(self._remove_child(record, name), name, end, steps)
        return record

    def _begin_child(self, record: Any, name: str, steps: list[Event], ended: list[str]) -> Any:
        if not name or SEPARATOR in name:
            raise UsageError(f"the name of a child: expected a string without {SEPARATOR!r}, got {name!r:.80}")
        self.inners[name] = self.child(name, record.children[name])  # anew, since after a retry a name comes again
        child: Process = self.inners[name].process
        self.begin(record, name, child)
        return self._replace_child(record, name, child, steps, ended)

    def _own_step(self, record: Any, key: str, outcome: Any, steps: list[Event]) -> Any:
        return self.take_row(record, outcome.kind, outcome, key, outcome.at_s, steps)

    def take_row(
        self, record: Any, trigger: str, answer: Any, key: str, at_s: float, steps: list[Event], detail: str = ""
    ) -> Any:
        """Take a row of the table, add its step to ``steps``, and return the resulting record."""
        cursor = take_row(self.machine, trigger, record, answer, self)
        step = Stepped(str(record.state), trigger, str(cursor.state), key, at_s, cursor.guard, detail)
        self.watch(step)
        steps.append(step)
        return cursor.after.changed(state=cursor.state, trace=record.trace.push(step))

    def watch(self, step: Stepped) -> None:
        """Pass a step to the watches just before it is taken."""
        for watch in STEP_WATCHES.get():
            watch(step)

    def _replace_child(self, record: Any, name: str, child: Process, steps: list[Event], ended: list[str]) -> Any:
        """Return the record with a child's current record in it.

        Extend ``steps`` and, if the child has ended, ``ended``.
        """
        steps += [inside(name, event) for event in child.steps]
        # A child with a `Change` has not ended, so its effects, which may be many, need not be read.
        if child.change is None and not child.effects:
            ended.append(name)
        return record.changed(children={**record.children, name: child.record})

    def _remove_child(self, record: Any, name: str) -> Any:
        children = dict(record.children)
        del children[name]
        return record.changed(children=children)

    def _check(self, key: str, outcome: Any) -> None:
        if self._cached_for is not self.record:
            self._read_effects()
        effect = self._own_wanted.get(self.slot(key))
        if effect is None or effect.key != key:
            self.check_unasked(key, outcome)
            return
        if type(outcome) not in effect.outcomes:
            raise refusal_of((effect,), key, outcome, self.record.state)

    def check_unasked(self, key: str, outcome: Any) -> None:
        """Reject an outcome that none of the process's own effects asked for.  A subclass may accept some of them."""
        raise refusal_of(self.effects, key, outcome, self.record.state)


def inside(path: str, event: Event) -> Event:
    """Return an event from a path as the outer process reports it: wrapped in a single `Inside`, at any depth."""
    if not path:
        return event
    inner, event = unwrapped(event)
    return Inside(join_path(path, inner), event)


def _new_children(children: Any, known: Mapping[str, Any]) -> list[str]:
    """Return the names of the new children, in order.  New children always come last."""
    found = []
    for name in reversed(children):
        if name in known:
            break
        found.append(name)
    return found[::-1]


def _deadline_under(prefix: str, deadline: Deadline | None) -> Deadline | None:
    return None if deadline is None else Deadline(deadline.at_s, f"{prefix}{deadline.key}")


def join_path(outer: str, path: str) -> str:
    """Return a path or key inside another path.  Either may be empty."""
    return f"{outer}{SEPARATOR}{path}" if outer and path else outer or path


# Watches on the steps of all processes in this OS process, for tests and tools

Watch: TypeAlias = Callable[[Stepped], object]

TableWatch: TypeAlias = Callable[[Any, Stepped], object]

STEP_WATCHES = ScopedValue[tuple[Watch, ...]]("fsm_agent_step_watches", ())

TABLE_WATCHES = ScopedValue[tuple[TableWatch, ...]]("fsm_agent_table_watches", ())


def watched_steps(watch: Watch) -> AbstractContextManager[None]:
    """Inside the context, call ``watch`` with each step just before it is taken.  An exception prevents the step."""
    return STEP_WATCHES.set((*STEP_WATCHES.get(), watch))


def watched_tables(watch: TableWatch) -> AbstractContextManager[None]:
    """Inside the context, call ``watch`` with the owner and each step of a user's table just before it is taken."""
    return TABLE_WATCHES.set((*TABLE_WATCHES.get(), watch))

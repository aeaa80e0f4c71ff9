"""Nested processes: the base class of all processes with children.

A child performs an effect of its parent, and its name is the key of that effect.  The parent waits for the effects of
the child, under ``name/key``, instead of that effect.  The child's end becomes the effect's outcome.

The record of a child is a value inside the record of its parent, so the parent's record is the whole state.  `Process`
objects are made around the children's records on demand.  If an advance fails after a step of a child, the child's
object is ahead of the parent's record, and returns to that record at its next use.

A child's last step and the parent's reaction to it are one `advance`, so no record shows an ended child.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from fsm_agent._internal.structs import Value
from fsm_agent._internal.vector import Vector
from fsm_agent.call.journal import TASK_CHARS, Beginning, Entry, inside_json, steps_json, why_json
from fsm_agent.call.machine import RowMachine, take_row
from fsm_agent.call.process import (
    NARROWED,
    SEPARATOR,
    STEP_WATCHES,
    AnyEffect,
    BaseProcess,
    Change,
    ChildHandle,
    Deadline,
    Owner,
    Process,
    along,
)
from fsm_agent.errors import IllegalTrigger, OutcomeError, UsageError
from fsm_agent.messages.events import Event, Inside, Stepped

_PASSED_DOWN = ("cancelled", "stopped", "expired")  # kinds of outcomes that end the children, too


class ParentRecord(Protocol):
    """The part of a parent's record that this module reads."""

    @property
    def state(self) -> Any:
        """The state, a member of an enum."""

    @property
    def children(self) -> Mapping[str, Any]:
        """The records of the children that have not ended, by name, the newest last.  Names are never reused."""

    @property
    def ending(self) -> Any:
        """How the process ended, or None if it has not ended."""

    @property
    def trace(self) -> Vector[Stepped]:
        """The steps that the process itself has taken."""


class ChildEffects(Value, frozen=True):
    """The effects and the deadline of a child, under their keys in the parent.

    This is a cache: with a thousand children, it would take too long to read all effects at each step.
    """

    # The child's record when the effects were read.  The cache is valid while the parent holds this same object.
    record: Any
    # Effects by their keys in the parent, ``name/key``.  Changing a key copies the effect, so it is done once.
    effects: Mapping[str, AnyEffect]
    # None if the child has no deadline.
    deadline: Deadline | None


class Advanced(NamedTuple):
    """The cached effects after an advance.

    They are computed before the step is committed, so that a failure leaves the process unchanged.
    """

    change: Change  # for the driver, and for the parent of this process
    own: dict[str, AnyEffect]  # own effects by `slot`
    children: dict[str, ChildEffects]  # by name


class CompositeProcess(BaseProcess, ABC):
    """A process with children, driven by a table.

    The guards and actions of its rows get the record, the outcome and the process itself.  Triggers are the kinds of
    outcomes.  An action starts children by adding their records to ``children``.  A child that has ended is removed
    before the row for its end is chosen.  A cancellation, a stop or the deadline ends the children first.

    Attributes:
        machine: The machine of the table; see `machine_of`.
        record: The state.
        steps: The steps of the last `advance`.

    Examples:
        >>> from fsm_agent.flows import Flow, ask, end
        >>> @ask(Agent(Script("Dear Ann"), name="writer"))
        ... def drafting(about: str) -> str:
        ...     return f"Write about {about}."
        >>> letters = Flow("letters", str, start=drafting, rows=[drafting.done(end("over"), do=lambda d, text: text)])
        >>> isinstance(letters.prepare("Write to Ann."), CompositeProcess)
        True
    """

    machine: RowMachine

    # The effects are cached from step to step, and a step reports its `Change`.  Without this, a step takes 14 times as
    # long with 1,000 functions at once, and three times as long with 1,000 agents.

    # The record for which the next two attributes are valid.  If it is not the current one, they are read again: at
    # first, after `undo`, after a step that may have changed anything (see `moved`), and after an interrupted step.
    _cached_for: Any = None
    # The effects of the process itself, by `slot`.
    _own_wanted: dict[str, AnyEffect]
    # By name, in the order of the children, which is also the order of their effects.
    _child_effects: dict[str, ChildEffects]

    def __init__(self, record: Any) -> None:
        super().__init__()
        self.record = record
        self.steps: tuple[Event, ...] = ()
        self.change: Change | None = None
        self._effects: tuple[AnyEffect, ...] | None = None  # the value of `effects`, or None if not computed yet
        self.forget_children()

    def forget_children(self) -> None:
        """Drop the objects and cached effects of the children.  They are made again when needed."""
        # Objects are kept from step to step because they have caches.
        self._children: dict[str, Process] = {}
        self._child_effects = {}
        self._cached_for = None

    # Defined by each kind of process

    @abstractmethod
    def own_effects(self) -> Iterable[AnyEffect]:
        """Return the effects of the process itself, without the effects of its children."""

    @abstractmethod
    def child(self, name: str, record: Any) -> Process:
        """Return a process around the record of a child."""

    @abstractmethod
    def inside_of(self, name: str) -> ChildHandle:
        """Return a child and its listeners, even if the last advance has ended it."""

    @abstractmethod
    def begin(self, record: Any, name: str, child: Any) -> None:
        """Start a new child, in the same advance that added it.  ``record`` is the record after the step."""

    @abstractmethod
    def result_of_child(self, name: str, child: Any) -> Any:
        """Return the end of a child as an outcome for this process."""

    @property
    @abstractmethod
    def result_so_far(self) -> Any:
        """The result so far."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A fingerprint of the code that decides the steps of the process."""

    @abstractmethod
    def encode_own(self, key: str, outcome: Any) -> str:
        """Return an outcome for the process itself as JSON; see `Process.encode`."""

    @abstractmethod
    def decode_own(self, key: str, document: bytes | str) -> Any:
        """Read an outcome for the process itself from JSON; see `Process.decode`."""

    def outlasts(self, outcome: Any) -> bool:
        """Return whether the process continues after this outcome, although most processes would end."""
        return False

    def environment_of(self, name: str) -> Any:
        """Return the environment of a child, or None if it shares the environment of this process."""
        return None

    def return_to(self, record: Any) -> None:
        self.record = record
        self.steps, self.change, self._effects = (), None, None

    def renew(self, at_s: float) -> None:
        children = {}
        for name in self.record.children:
            child = self.child_process(self.record, name)
            child.renew(at_s)
            children[name] = child.record
        renewed = self.renewed(at_s)
        self.return_to(renewed.changed(children={**renewed.children, **children}))

    def renewed(self, at_s: float) -> Any:
        """Return the record of the process itself, with deadlines that count from ``at_s``."""
        return self.record

    def __str__(self) -> str:
        return f"the process {type(self).__name__} in {self.record.state}"

    # The protocol

    @property
    def effects(self) -> tuple[AnyEffect, ...]:
        """The current effects of the process and its children.  An ended process has no effects."""
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
        inner, rest = self._inner(key)
        if inner is None:
            return Owner(self, "", ())
        owner, name = inner.owner(rest), key.partition(SEPARATOR)[0]
        environment = self.environment_of(name)
        environments = owner.environments if environment is None else (*owner.environments, environment)
        return Owner(owner.process, _join_path(name, owner.path), environments)

    def advance(self, key: str, outcome: Any) -> None:
        """Take the outcome of one effect.  The step, including the children's steps, is atomic, synchronous and pure.

        Args:
            key: The effect's key.  If the key is the name of a child, the child is discarded, and the outcome replaces
                its end.
            outcome: The outcome.  Its ``kind`` is the trigger.

        Raises:
            OutcomeError: If no effect has this key, or the effect does not accept this outcome.
            IllegalTrigger: If the table has no row for the outcome, or the process has ended.
        """
        steps: list[Event] = []
        document = "" if self.journal is None else self.encode(key, outcome)
        record = self._settle_children(*self._advance_record(key, outcome, steps), steps)
        known = self._advanced(key, record)
        if self.journal is not None:
            more = inside_json(steps, self._beginnings(steps)) + (why_json(steps[0]) if steps else "")
            self.journal.add(Entry(key, document, steps_json(steps), record, "", more), self.record)
        self.change = self._effects = self._cached_for = None  # if this is interrupted, effects are read again
        self.record = record
        self.steps = tuple(steps)
        if known is not None:
            self.change, self._own_wanted, self._child_effects = known
            self._cached_for = record

    def encode(self, key: str, outcome: Any) -> str:
        inner, rest = self._inner(key)
        return self.encode_own(key, outcome) if inner is None else inner.encode(rest, outcome)

    def decode(self, key: str, document: bytes | str) -> Any:
        inner, rest = self._inner(key)
        return self.decode_own(key, document) if inner is None else inner.decode(rest, document)

    def _inner(self, key: str) -> tuple[Process | None, str]:
        """Return the child that a key belongs to, or None for the process itself, and the rest of the key."""
        name, is_inside, rest = key.partition(SEPARATOR)
        if not is_inside:
            return None, key
        if name not in self.record.children:
            raise OutcomeError(self._unwanted_text(key))
        return self.child_process(self.record, name), rest

    def read_event(self, key: str, outcome: Any) -> tuple[str, Any, Any, Any]:
        if key and key not in self.record.children:
            self._check(key, outcome)
        return outcome.kind, self.record, outcome, self

    # Effects

    def moved(self, key: str, record: Any) -> tuple[Sequence[str], Mapping[str, AnyEffect | None]] | None:
        """Return the names of the children, and own effects by `slot`, that the step to ``record`` may have changed.

        An effect of None means that the slot is empty now.  Return None if other effects may have changed.
        """
        # A child's step changes nothing else as long as the parent has taken no step of its own.
        name, is_inside, _ = key.partition(SEPARATOR)
        return ((name,), {}) if is_inside and record.trace is self.record.trace else None

    def _read_effects(self) -> None:
        record, old = self.record, self._child_effects
        wanted: dict[str, AnyEffect] = {}
        children: dict[str, ChildEffects] = {}
        if record.ending is None:
            for effect in self.own_effects():
                if SEPARATOR in effect.key:
                    raise UsageError(
                        f"the key of an effect: expected no {SEPARATOR!r}, which separates children, got {effect.key!r}"
                    )
                wanted[self.slot(effect.key)] = effect
            if record.children:
                for name, inner in record.children.items():
                    known = old.get(name)
                    if known is None or known.record is not inner:
                        known = self._read_child(record, name)
                    children[name] = known
        self._own_wanted, self._child_effects = wanted, children
        self._cached_for = record

    def _beginnings(self, steps: Sequence[Event]) -> list[Beginning]:
        found = list[Beginning]()
        for step in steps:
            if type(step) is Inside and step.event.trigger == "begun":  # type: ignore[union-attr]
                *_, (inner, _) = along(self, step.path)
                kind, task = inner.process.beginning(step.path.rpartition(SEPARATOR)[2])
                cut = task if len(task) <= TASK_CHARS else f"{task[: TASK_CHARS - 1]}…"
                found.append(Beginning(step.path, kind, inner.name, cut))
        return found

    def slot(self, key: str) -> str:
        """Return the slot of an own effect.  A later effect with the same slot takes its place in the order."""
        return key

    def _read_child(self, record: ParentRecord, name: str) -> ChildEffects:
        child: Any = self.child_process(record, name)
        prefix = f"{name}{SEPARATOR}"
        effects = {(path := f"{prefix}{effect.key}"): effect.changed(key=path) for effect in child.effects}
        return ChildEffects(child.record, effects, _deadline_under(prefix, child.deadline))

    def _advanced(self, key: str, record: ParentRecord) -> Advanced | None:
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
        record: ParentRecord,
        name: str,
        before: ChildEffects | None,
        gone: list[str],
        new: list[AnyEffect],
    ) -> ChildEffects:
        """Return the effects of a child that began or moved, and add the changes to ``gone`` and ``new``."""
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

    def child_process(self, record: ParentRecord, name: str) -> Process:
        """Return the process of a child, in the state of its record."""
        process, inner = self._children.get(name), record.children[name]
        if process is None:
            process = self._children[name] = self.child(name, inner)
        elif process.record is not inner:  # an advance of this process failed after the child's step
            process.return_to(inner)
        return process

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
            raise UsageError(f"the name of a child: expected a text without {SEPARATOR!r}, got {name!r:.80}")
        child = self.child_process(record, name)
        self.begin(record, name, child)
        return self._replace_child(record, name, child, steps, ended)

    def _own_step(self, record: Any, key: str, outcome: Any, steps: list[Event]) -> Any:
        return self.take_row(record, outcome.kind, outcome, key, outcome.at_s, steps)

    def take_row(
        self, record: Any, trigger: str, answer: Any, key: str, at_s: float, steps: list[Event], detail: str = ""
    ) -> Any:
        """Take a row of the table, add its step to ``steps``, and return the record after it."""
        cursor = take_row(self.machine, trigger, record, answer, self)
        step = Stepped(str(record.state), trigger, str(cursor.state), key, at_s, cursor.guard, detail)
        self.watch(step)
        steps.append(step)
        return cursor.after.changed(state=cursor.state, trace=record.trace.push(step))

    def watch(self, step: Stepped) -> None:
        """Call the watches with a step, just before it is taken."""
        for watch in STEP_WATCHES.get():
            watch(step)

    def _replace_child(self, record: Any, name: str, child: Process, steps: list[Event], ended: list[str]) -> Any:
        """Return the record with a child's current record.  Extend ``steps`` and, if the child has ended, ``ended``."""
        steps += [inside(name, event) for event in child.steps]
        # A child with a `Change` has not ended, so its effects, which may be many, need not be read.
        if child.change is None and not child.effects:
            ended.append(name)
        return record.changed(children={**record.children, name: child.record})

    def _remove_child(self, record: Any, name: str) -> Any:
        self._children.pop(name, None)
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
            right = " or ".join([kind.__name__ for kind in effect.outcomes])
            raise OutcomeError(f"the outcome for {key!r}: expected {right}, got {type(outcome).__name__}")

    def check_unasked(self, key: str, outcome: Any) -> None:
        """Refuse an outcome that no effect of the process itself asks for.  Subclasses may accept some."""
        raise OutcomeError(self._unwanted_text(key))

    def _unwanted_text(self, key: str) -> str:
        keys = ", ".join([repr(effect.key) for effect in self.effects]) or "nothing, since it has ended"
        return f"no effect has the key {key!r} in {self.record.state}; it waits for {keys}"


def inside(name: str, event: Event) -> Inside:
    """Return an event of a child as its parent reports it: wrapped in a single `Inside`, at any depth."""
    if isinstance(event, Inside):
        return Inside(_join_path(name, event.path), event.event)
    return Inside(name, event)


def _new_children(children: Any, known: Mapping[str, Any]) -> list[str]:
    """Return the names of the new children in order.  New children are always at the end."""
    found = []
    for name in reversed(children):
        if name in known:
            break
        found.append(name)
    return found[::-1]


def _deadline_under(prefix: str, deadline: Deadline | None) -> Deadline | None:
    return None if deadline is None else Deadline(deadline.at_s, f"{prefix}{deadline.key}")


def _join_path(name: str, path: str) -> str:
    return f"{name}{SEPARATOR}{path}" if path else name

"""Processes inside of processes: what a process with children needs, whatever its table.

A child stands in for an effect of its parent.  It has the effect's key as its name, its own effects are wanted under
``name/key`` instead of that effect, and its end becomes the effect's outcome.  Its record is a value inside the record
of the parent, which therefore is the whole state.  The processes around these records, the *cells*, are made of them
when they are needed; one whose record is not the parent's, because an advance failed after its step, is made anew.

A child's last step and the row that its parent takes then are one `advance`: nobody sees a child that has ended without
what follows.

More than 300 lines, because effects, steps and deadlines of children share the cells of one class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol

from transitions import Machine, MachineError

from fsm_agent._internal.vector import Vector
from fsm_agent.errors import IllegalTrigger, OutcomeError, UsageError
from fsm_agent.machine.journal import Entry, steps_json
from fsm_agent.machine.process import SEPARATOR, AnyEffect, Deadline, Driven, Owner, Process
from fsm_agent.machine.watching import STEP_WATCHES
from fsm_agent.messages.event import Event, Inside, Stepped

_PASSED_DOWN = ("cancelled", "stopped", "expired")  # kinds of outcomes that end the children, too


class ParentRecord(Protocol):
    """The part of a parent's record that nesting reads; the record is a frozen value."""

    @property
    def state(self) -> Any:
        """The member of the enum of states that the process is in."""

    @property
    def children(self) -> Mapping[str, Any]:
        """The records of the children that have not ended, by name; no name is used twice in the life of a process."""

    @property
    def ending(self) -> Any:
        """The way in which the process ended; None: it has not."""

    @property
    def trace(self) -> Vector[Stepped]:
        """The steps that the process itself has taken."""


class _Cursor:
    """The cell that `LeanEvent.take` moves."""

    __slots__ = ("after", "guard", "record", "state")

    def __init__(self, record: ParentRecord) -> None:
        self.record: Any = record
        self.state: Enum = record.state
        self.after: Any = record
        self.guard = ""


class _Seen(NamedTuple):
    """The effects of a child, with the keys that they have in its parent."""

    record: Any  # of the child
    effects: tuple[AnyEffect, ...]
    deadline: Deadline | None


class Parent(Driven, ABC):
    """A process with children, moved by a table.

    Its rows are given the record, the outcome and the process itself as definition; triggers are the kinds of outcomes.
    An action begins children by putting their records, which have not begun, into ``children``; children that have
    ended are taken out before the row for their end is chosen.  A cancellation, a stop and the deadline end the
    children first.

    Attributes:
        machine: The machine of the table; see `machine_of`.
        record: The state.
        steps: The steps of the last `advance`.
    """

    machine: Machine

    def __init__(self, record: Any) -> None:
        super().__init__()
        self.record = record
        self.steps: tuple[Event, ...] = ()
        self.is_narrowed = False
        self._effects: tuple[AnyEffect, ...] | None = None
        self._cells: dict[str, Process] = {}
        self._looks: dict[str, _Seen] = {}

    # Defined by each kind of process

    @abstractmethod
    def own_effects(self) -> Iterable[AnyEffect]:
        """Return the effects that the process itself waits for, without those of its children."""

    @abstractmethod
    def child(self, name: str, record: Any) -> Process:
        """Return the process around the record of a child."""

    @abstractmethod
    def begin(self, record: Any, name: str, child: Any) -> None:
        """Give a child that is new its start, in the advance that made it; ``record`` is what the step led to."""

    @abstractmethod
    def end_of(self, name: str, child: Any) -> Any:
        """Return the outcome that the end of a child is."""

    @property
    @abstractmethod
    def outcome(self) -> Any:
        """The result so far."""

    @property
    @abstractmethod
    def definition(self) -> str:
        """A fingerprint of what decides its steps."""

    @abstractmethod
    def encode_own(self, key: str, outcome: Any) -> str:
        """Return an outcome for the process itself as JSON; see `Process.encode`."""

    @abstractmethod
    def decode_own(self, key: str, document: bytes | str) -> Any:
        """Return the outcome for the process itself that JSON holds; see `Process.decode`."""

    @property
    def own_deadline_s(self) -> float | None:
        """Unix time at which the process itself expires; None: never."""
        return None

    def world_of(self, name: str) -> Any:
        """Return the world of a child; None: that of the process itself."""
        return None

    def __str__(self) -> str:
        return f"the process {type(self).__name__} in {self.record.state}"

    # The protocol

    @property
    def effects(self) -> tuple[AnyEffect, ...]:
        """The effects that the process and its children wait for now; empty once it has ended."""
        if self._effects is None:
            self._effects = () if self.record.ending is not None else tuple(self._wanted())
        return self._effects

    @property
    def deadline(self) -> Deadline | None:
        """The earliest deadline of the process and its children."""
        found = [] if self.own_deadline_s is None else [Deadline(self.own_deadline_s, "")]
        for name, record in self.record.children.items():
            seen = self._looks.get(name)
            deadline = seen.deadline if seen is not None and seen.record is record else self._look_at(name).deadline
            if deadline is not None:
                found.append(deadline)
        return min(found, default=None)

    def owner(self, key: str) -> Owner:
        """Return the process, this one or one inside of it, that waits for the effect with this key."""
        name, is_inside, rest = key.partition(SEPARATOR)
        if not is_inside:
            return Owner(self, "", None)
        if name not in self.record.children:
            raise OutcomeError(self._unwanted(key))
        owner = self._cell(self.record, name).owner(rest)
        world = self.world_of(name) if owner.world is None else owner.world
        return Owner(owner.process, _joined(name, owner.path), world)

    def advance(self, key: str, outcome: Any) -> None:
        """Take the outcome of one effect.  All or nothing, children included; synchronous, pure.

        Args:
            key: The effect's key.  A child's name settles the child by somebody else's word, and lets go of it.
            outcome: The outcome; its ``kind`` is the trigger.

        Raises:
            OutcomeError: Nothing is waited for under ``key``, or not this.
            IllegalTrigger: The table has no row for it, or the process has ended.
        """
        steps: list[Event] = []
        document = "" if self.journal is None else self.encode(key, outcome)
        record = self._settled(*self._advanced(key, outcome, steps), steps)
        left = self._left(key, record)
        if self.journal is not None:
            self.journal.add(Entry(key, document, steps_json(steps), record), self.record)
        self._effects = None  # before the record: after an interruption in between they are computed anew
        self.record = record
        self.steps = tuple(steps)
        self._effects = left
        self.is_narrowed = left is not None

    def encode(self, key: str, outcome: Any) -> str:
        """Return an outcome as JSON, as the process that waits for it writes it."""
        inner, rest = self._inner(key)
        return self.encode_own(key, outcome) if inner is None else inner.encode(rest, outcome)

    def decode(self, key: str, document: bytes | str) -> Any:
        """Return the outcome that JSON holds, as the process that waits for it reads it."""
        inner, rest = self._inner(key)
        return self.decode_own(key, document) if inner is None else inner.decode(rest, document)

    def _inner(self, key: str) -> tuple[Process | None, str]:
        """Return the child that a key leads to, and the rest of the key; None: it is the process's own."""
        name, is_inside, rest = key.partition(SEPARATOR)
        if not is_inside:
            return None, key
        if name not in self.record.children:
            raise OutcomeError(self._unwanted(key))
        return self._cell(self.record, name), rest

    # Effects

    def _wanted(self) -> Iterable[AnyEffect]:
        for effect in self.own_effects():
            if SEPARATOR in effect.key:
                raise UsageError(f"the key {effect.key!r} of an effect has a {SEPARATOR!r}, which is for children")
            yield effect
        for name, record in self.record.children.items():
            seen = self._looks.get(name)
            yield from seen.effects if seen is not None and seen.record is record else self._look_at(name).effects

    def _look_at(self, name: str) -> _Seen:
        """Return what a child waits for, and keep it until the child takes its next step."""
        child: Any = self._cell(self.record, name)
        prefix = f"{name}{SEPARATOR}"
        effects = tuple([effect.changed(key=f"{prefix}{effect.key}") for effect in child.effects])
        inner = child.deadline
        deadline = None if inner is None else Deadline(inner.at_s, f"{prefix}{inner.key}")
        seen = self._looks[name] = _Seen(child.record, effects, deadline)
        return seen

    def _left(self, key: str, record: ParentRecord) -> tuple[AnyEffect, ...] | None:
        """Return the effects without ``key``, if a child's step has changed no other; None: it has."""
        name, is_inside, _ = key.partition(SEPARATOR)
        if self._effects is None or not is_inside or record.trace is not self.record.trace:
            return None
        if not self._cells[name].is_narrowed:
            return None
        return tuple([effect for effect in self._effects if effect.key != key])

    def _cell(self, record: ParentRecord, name: str) -> Process:
        """Return the process around a child's record."""
        cell = self._cells.get(name)
        if cell is None or cell.record is not record.children[name]:
            cell = self._cells[name] = self.child(name, record.children[name])
        return cell

    # Steps

    def _advanced(self, key: str, outcome: Any, steps: list[Event]) -> tuple[Any, list[str]]:
        """Return the record after the outcome, and the names of children that may have ended."""
        record = self.record
        if record.ending is not None:
            raise IllegalTrigger(f"{outcome.kind!r} is not possible in {record.state}: {self} has ended")
        name, is_inside, rest = key.partition(SEPARATOR)
        if is_inside:
            if name not in record.children:
                raise OutcomeError(self._unwanted(key))
            return self._child_step(record, name, rest, outcome, steps), [name]
        moved: list[str] = []
        if key == "" and outcome.kind in _PASSED_DOWN:
            for name in record.children:
                record = self._child_step(record, name, "", outcome, steps)
                moved.append(name)
        elif key in record.children:
            record = self._without(record, key)
        elif key:
            self._check(key, outcome)
        return self._own_step(record, key, outcome, steps), moved

    def _settled(self, record: Any, moved: list[str], steps: list[Event]) -> Any:
        """Begin children that are new, and take the ends of those that have ended."""
        begun = set(self.record.children)
        while record.ending is None:
            for name in [name for name in record.children if name not in begun]:
                record = self._begun(record, name, steps)
                begun.add(name)
                moved.append(name)
            while moved:
                name = moved.pop(0)
                if name in record.children and not (child := self._cell(record, name)).effects:
                    end = self.end_of(name, child)
                    begun.discard(name)
                    record = self._own_step(self._without(record, name), name, end, steps)
                    break
            else:
                return record
        return record

    def _begun(self, record: Any, name: str, steps: list[Event]) -> Any:
        if not name or SEPARATOR in name:
            raise UsageError(f"a child has the name {name!r}: a text without {SEPARATOR!r} would be right")
        child = self._cell(record, name)
        self.begin(record, name, child)
        return self._with(record, name, child, steps)

    def _child_step(self, record: Any, name: str, key: str, outcome: Any, steps: list[Event]) -> Any:
        child = self._cell(record, name)
        child.advance(key, outcome)
        return self._with(record, name, child, steps)

    def _own_step(self, record: Any, key: str, outcome: Any, steps: list[Event]) -> Any:
        """Take the step of an outcome."""
        return self.take_row(record, outcome.kind, outcome, key, outcome.at_s, steps)

    def take_row(
        self, record: Any, trigger: str, answer: Any, key: str, at_s: float, steps: list[Event], detail: str = ""
    ) -> Any:
        """Return the record after a row of the table, whose step is added to ``steps``."""
        cursor = _Cursor(record)
        try:
            event: Any = self.machine.events.get(trigger)
            if event is None or not event.take(cursor, answer, self):
                raise MachineError("no row takes it")
        except MachineError as error:
            legal = ", ".join(sorted(self.machine.get_triggers(record.state.name)))
            what = f"{trigger!r} (key {key!r}) is not possible in {record.state}"
            raise IllegalTrigger(f"{what}: {error.value}; possible: {legal or 'none'}") from error
        step = Stepped(str(record.state), trigger, str(cursor.state), key, at_s, cursor.guard, detail)
        self.watch(step)
        steps.append(step)
        return cursor.after.changed(state=cursor.state, trace=record.trace.push(step))

    def watch(self, step: Stepped) -> None:
        """Have those who watch see a step, just before it is taken."""
        for watch in STEP_WATCHES.get():
            watch(step)

    def _with(self, record: Any, name: str, child: Process, steps: list[Event]) -> Any:
        """Return the record with that of a child as it is now; collect the child's steps."""
        steps += [inside(name, event) for event in child.steps]
        return record.changed(children={**record.children, name: child.record})

    def _without(self, record: Any, name: str) -> Any:
        self._cells.pop(name, None)
        self._looks.pop(name, None)
        return record.changed(children={other: r for other, r in record.children.items() if other != name})

    def _check(self, key: str, outcome: Any) -> None:
        for effect in self.own_effects():
            if effect.key == key:
                if type(outcome) in effect.outcomes:
                    return
                right = " or ".join([kind.__name__ for kind in effect.outcomes])
                raise OutcomeError(f"{type(outcome).__name__} answers no {key!r}: {right} would")
        raise OutcomeError(self._unwanted(key))

    def _unwanted(self, key: str) -> str:
        keys = ", ".join([repr(effect.key) for effect in self.effects])
        return f"nothing was asked under {key!r} in {self.record.state}; waited for: {keys or 'nothing: it has ended'}"


def inside(name: str, event: Event) -> Inside:
    """Return an event of a child as its parent reports it: wrapped once, however deep it comes from."""
    if isinstance(event, Inside):
        return Inside(_joined(name, event.path), event.event)
    return Inside(name, event)


def _joined(name: str, path: str) -> str:
    return f"{name}{SEPARATOR}{path}" if path else name

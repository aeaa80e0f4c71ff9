"""Processes inside of processes: what a process with children needs, whatever its table.

A child stands in for an effect of its parent.  It has the effect's key as its name, its own effects are wanted under
``name/key`` instead of that effect, and its end becomes the effect's outcome.  Its record is a value inside the record
of the parent, which therefore is the whole state.  The processes around these records, the *cells*, are made of them
when they are needed; one whose record is not the parent's, because an advance failed after its step, returns to that.

A child's last step and the row that its parent takes then are one `advance`: nobody sees a child that has ended without
what follows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from transitions import Machine, MachineError

from fsm_agent._internal.values import Value
from fsm_agent._internal.vector import Vector
from fsm_agent.errors import IllegalTrigger, OutcomeError, UsageError
from fsm_agent.machine.journal import Entry, steps_json
from fsm_agent.machine.process import NARROWED, SEPARATOR, AnyEffect, Change, Deadline, Driven, Owner, Process
from fsm_agent.machine.rows import take_row
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
        """The records of the children that have not ended, by name, the newest last; no name is ever used twice."""

    @property
    def ending(self) -> Any:
        """The way in which the process ended; None: it has not."""

    @property
    def trace(self) -> Vector[Stepped]:
        """The steps that the process itself has taken."""


class ChildEffects(Value, frozen=True):
    """What a child waits for, as its parent passes it on."""

    # Of the child when it was read.  While the parent's record has this very one, nothing has to be read again: that
    # is how a step of one of a thousand children costs nothing for the others.
    record: Any
    # By the key that each has in the parent, ``name/key``.  A key is another value, so an effect is copied for it, and
    # that once: the driver compares effects by key.  The dict is the next one's too, changed where it stands.
    effects: dict[str, AnyEffect]
    # Under the key that it has in the parent; None: the child expires never.
    deadline: Deadline | None
    # False once effects were added: those that are new stand at the end, whatever place they have in the child.  They
    # are sorted when somebody reads all, which a driver that follows changes does not.
    is_in_order: bool = True


class ChildChanges(Value, frozen=True):
    """The changes that a step makes in what a parent and its children wait for, before it is committed."""

    change: Change  # for the driver, and for a parent around this one
    own: Mapping[str, AnyEffect | None]  # effects by `slot`; None: there is none any more
    children: list[tuple[str, ChildEffects | None]]  # that may have moved, by name; None: it has ended


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

    # What is waited for, kept from step to step.  Read anew it would cost as much as all children together at each step
    # of one of them: with 4,000 functions at once 1.6 ms a member instead of 0.13.

    # The record that the next three are of.  If it is not the present one, they are read anew: at first, behind `undo`,
    # behind a step that may have changed anything (see `moved`), and when one was interrupted before it was whole.
    _cached_for: Any = None
    # What the process itself waits for, by `slot`: an effect that follows another takes its place, not the last one.
    _own_wanted: dict[str, AnyEffect]
    # In the order of the children, which is that of the effects.
    _child_effects: dict[str, ChildEffects]
    # A heap, so that the earliest is at hand.  To find one in a heap costs as much as to read it, so those of children
    # that have ended or have another one stay until they come to the top.
    _deadlines: list[Deadline]

    def __init__(self, record: Any) -> None:
        super().__init__()
        self.record = record
        self.steps: tuple[Event, ...] = ()
        self.change: Change | None = None
        self._effects: tuple[AnyEffect, ...] | None = None  # all in one, for who asks for all; None: not asked yet
        self.forget_children()

    def forget_children(self) -> None:
        """Make the processes around its children, and what they wait for, anew when they are needed next."""
        # Made around a record at the first need, and moved on with it: they have caches of their own.
        self._children: dict[str, Process] = {}
        self._child_effects = {}
        self._cached_for = None

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
    def result_of_child(self, name: str, child: Any) -> Any:
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

    def return_to(self, record: Any) -> None:
        self.record = record
        self.steps, self.change, self._effects = (), None, None

    def __str__(self) -> str:
        return f"the process {type(self).__name__} in {self.record.state}"

    # The protocol

    @property
    def effects(self) -> tuple[AnyEffect, ...]:
        """The effects that the process and its children wait for now; empty once it has ended."""
        if self._effects is None:
            if self._cached_for is not self.record:
                self._read_effects()
            found = [*self._own_wanted.values()]
            if self._child_effects:
                for name, child in self._child_effects.items():
                    found += child.effects.values() if child.is_in_order else self._sort_effects(name, child)
            self._effects = tuple(found)
        return self._effects

    @property
    def deadline(self) -> Deadline | None:
        """The earliest deadline of the process and its children."""
        if self._cached_for is not self.record:
            self._read_effects()
        at_s = self.own_deadline_s
        own = None if at_s is None else Deadline(at_s, "")
        heap = self._deadlines
        while heap and not self._is_due(heap[0]):
            heappop(heap)
        return own if not heap else heap[0] if own is None else min(own, heap[0])

    def _is_due(self, deadline: Deadline) -> bool:
        child = self._child_effects.get(deadline.key.partition(SEPARATOR)[0])
        return child is not None and child.deadline == deadline

    def owner(self, key: str) -> Owner:
        """Return the process, this one or one inside of it, that waits for the effect with this key."""
        name, is_inside, rest = key.partition(SEPARATOR)
        if not is_inside:
            return Owner(self, "", ())
        if name not in self.record.children:
            raise OutcomeError(self._unwanted_text(key))
        owner = self._child_process(self.record, name).owner(rest)
        world = self.world_of(name)
        worlds = owner.worlds if world is None else (*owner.worlds, world)
        return Owner(owner.process, _join_path(name, owner.path), worlds)

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
        record = self._settle_children(*self._advance_record(key, outcome, steps), steps)
        changes = self._changes(key, record)
        if self.journal is not None:
            self.journal.add(Entry(key, document, steps_json(steps), record), self.record)
        # After an interruption in between, whatever was changed by then, all is read anew.
        self._cached_for, child_effects, self._child_effects = None, self._child_effects, {}
        self._effects = None
        self.record = record
        self.steps = tuple(steps)
        self.change = None if changes is None else changes.change
        if changes is not None:
            self._apply(key, changes, child_effects)
        self._child_effects = child_effects
        self._cached_for = None if changes is None else record

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
            raise OutcomeError(self._unwanted_text(key))
        return self._child_process(self.record, name), rest

    # Effects

    def moved(self, key: str, record: Any) -> tuple[Sequence[str], Mapping[str, AnyEffect | None]] | None:
        """Return the children that the step to ``record`` may have moved, begun or ended, and own effects by `slot`.

        These are the effects that are new, and None where there is none any more.  None in all: others may have
        changed, too.
        """
        name, is_inside, _ = key.partition(SEPARATOR)
        return ((name,), {}) if is_inside and record.trace is self.record.trace else None

    def _read_effects(self) -> None:
        """Read what the process and its children wait for, but of children that are as they were."""
        record, old = self.record, self._child_effects
        wanted: dict[str, AnyEffect] = {}
        children: dict[str, ChildEffects] = {}
        if record.ending is None:
            for effect in self.own_effects():
                if SEPARATOR in effect.key:
                    raise UsageError(f"the key {effect.key!r} of an effect has a {SEPARATOR!r}, which is for children")
                wanted[self.slot(effect.key)] = effect
            if record.children:
                for name, inner in record.children.items():
                    known = old.get(name)
                    if known is None or known.record is not inner:
                        known = self._read_child(record, name)
                    children[name] = known
        self._own_wanted, self._child_effects = wanted, children
        self._deadlines = [one.deadline for one in children.values() if one.deadline is not None] if children else []
        if self._deadlines:
            heapify(self._deadlines)
        self._cached_for = record

    def _sort_effects(self, name: str, child: ChildEffects) -> Iterable[AnyEffect]:
        """Return the effects of a child in their order, and keep them so."""
        prefix = f"{name}{SEPARATOR}"
        paths = [f"{prefix}{effect.key}" for effect in self._child_process(self.record, name).effects]
        ordered = {path: child.effects[path] for path in paths}
        self._child_effects[name] = child.changed(effects=ordered, is_in_order=True)
        return ordered.values()

    def slot(self, key: str) -> str:
        """Return the name under which an own effect keeps its place among the others, when another follows it."""
        return key

    def _read_child(self, record: ParentRecord, name: str) -> ChildEffects:
        """Return what a child waits for."""
        child: Any = self._child_process(record, name)
        prefix = f"{name}{SEPARATOR}"
        effects = {(path := f"{prefix}{effect.key}"): effect.changed(key=path) for effect in child.effects}
        return ChildEffects(child.record, effects, _deadline_under(prefix, child.deadline))

    def _changes(self, key: str, record: ParentRecord) -> ChildChanges | None:
        """Return what the step to ``record`` changes in what is wanted; None: it has to be read anew."""
        if self._cached_for is not self.record or record.ending is not None:
            return None
        found = self.moved(key, record)
        if found is None:
            return None
        names, own = found
        gone: list[str] = []
        new = [effect for effect in own.values() if effect is not None]
        children, has_moved_deadline = list[tuple[str, ChildEffects | None]](), False
        for name in names:
            before, after = self._child_effects.get(name), None
            if name in record.children:
                child: Any = self._child_process(record, name)
                change = None if before is None or not key.startswith(f"{name}{SEPARATOR}") else child.change
                if before is not None and change is not None:
                    after = self._update_child(name, before, child, change, gone, new)
                else:
                    after = self._read_child(record, name)
                    was = {} if before is None else before.effects
                    gone += [path for path in was if path not in after.effects and path != key]
                    new += [effect for path, effect in after.effects.items() if path not in was]
            elif before is not None:
                gone += [path for path in before.effects if path != key]
            children.append((name, after))
            if (before and before.deadline) != (after and after.deadline):
                has_moved_deadline = True
        is_more = gone or new or has_moved_deadline
        return ChildChanges(Change(tuple(gone), tuple(new), has_moved_deadline) if is_more else NARROWED, own, children)

    def _update_child(
        self, name: str, before: ChildEffects, child: Any, change: Change, gone: list[str], new: list[AnyEffect]
    ) -> ChildEffects:
        """Return what a child waits for that knows what it has changed; `_apply` brings the effects up to date."""
        prefix = f"{name}{SEPARATOR}"
        gone += [f"{prefix}{key}" for key in change.gone]
        new += [effect.changed(key=f"{prefix}{effect.key}") for effect in change.new]
        deadline = _deadline_under(prefix, child.deadline) if change.has_moved_deadline else before.deadline
        return ChildEffects(child.record, before.effects, deadline, before.is_in_order and not change.new)

    def _apply(self, key: str, changes: ChildChanges, children: dict[str, ChildEffects]) -> None:
        """Bring what is waited for up to date, the effects of ``children`` included."""
        wanted = self._own_wanted
        for slot, effect in changes.own.items():
            if effect is None:
                wanted.pop(slot, None)
            else:
                wanted[slot] = effect
        for name, after in changes.children:
            if after is None:
                children.pop(name, None)
                continue
            before = children.get(name)
            children[name] = after
            if before is not None and before.effects is after.effects:
                after.effects.pop(key, None)
                for path in changes.change.gone:
                    after.effects.pop(path, None)
                prefix = f"{name}{SEPARATOR}"
                after.effects.update([(e.key, e) for e in changes.change.new if e.key.startswith(prefix)])
            if after.deadline is not None and (before is None or before.deadline != after.deadline):
                heappush(self._deadlines, after.deadline)

    def _child_process(self, record: ParentRecord, name: str) -> Process:
        """Return the process around a child's record."""
        cell, inner = self._children.get(name), record.children[name]
        if cell is None:
            cell = self._children[name] = self.child(name, inner)
        elif cell.record is not inner:
            cell.return_to(inner)
        return cell

    # Steps

    def _advance_record(self, key: str, outcome: Any, steps: list[Event]) -> tuple[Any, list[str]]:
        """Return the record after the outcome, and the names of children that have ended."""
        record = self.record
        if record.ending is not None:
            raise IllegalTrigger(f"{outcome.kind!r} is not possible in {record.state}: {self} has ended")
        ended: list[str] = []
        name, is_inside, rest = key.partition(SEPARATOR)
        if is_inside:
            if name not in record.children:
                raise OutcomeError(self._unwanted_text(key))
            return self._child_step(record, name, rest, outcome, steps, ended), ended
        if key == "" and outcome.kind in _PASSED_DOWN:
            for name in record.children:
                record = self._child_step(record, name, "", outcome, steps, ended)
        elif key in record.children:
            record = self._remove_child(record, key)
        elif key:
            self._check(key, outcome)
        return self._own_step(record, key, outcome, steps), ended

    def _settle_children(self, record: Any, ended: list[str], steps: list[Event]) -> Any:
        """Begin children that are new, and take the ends of those that have ended."""
        known = self.record.children
        while record.ending is None:
            for name in _new_children(record.children, known):
                record = self._begin_child(record, name, steps, ended)
            known = record.children
            if not ended:
                break
            name = ended.pop(0)
            if name in known:
                end = self.result_of_child(name, self._child_process(record, name))
                record = self._own_step(self._remove_child(record, name), name, end, steps)
        return record

    def _begin_child(self, record: Any, name: str, steps: list[Event], ended: list[str]) -> Any:
        if not name or SEPARATOR in name:
            raise UsageError(f"a child has the name {name!r}: a text without {SEPARATOR!r} would be right")
        child = self._child_process(record, name)
        self.begin(record, name, child)
        return self._replace_child(record, name, child, steps, ended)

    def _child_step(self, record: Any, name: str, key: str, outcome: Any, steps: list[Event], ended: list[str]) -> Any:
        child = self._child_process(record, name)
        child.advance(key, outcome)
        return self._replace_child(record, name, child, steps, ended)

    def _own_step(self, record: Any, key: str, outcome: Any, steps: list[Event]) -> Any:
        """Take the step of an outcome."""
        return self.take_row(record, outcome.kind, outcome, key, outcome.at_s, steps)

    def take_row(
        self, record: Any, trigger: str, answer: Any, key: str, at_s: float, steps: list[Event], detail: str = ""
    ) -> Any:
        """Return the record after a row of the table, whose step is added to ``steps``."""
        try:
            cursor = take_row(self.machine, trigger, record, answer, self)
        except MachineError as error:
            legal = ", ".join(sorted(self.machine.get_triggers(str(record.state))))
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

    def _replace_child(self, record: Any, name: str, child: Process, steps: list[Event], ended: list[str]) -> Any:
        """Return the record with that of a child as it is now; collect the child's steps, and its name at its end."""
        steps += [inside(name, event) for event in child.steps]
        if child.change is None and not child.effects:  # one that knows what has changed goes on
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
            raise OutcomeError(self._unwanted_text(key))
        if type(outcome) not in effect.outcomes:
            right = " or ".join([kind.__name__ for kind in effect.outcomes])
            raise OutcomeError(f"{type(outcome).__name__} answers no {key!r}: {right} would")

    def _unwanted_text(self, key: str) -> str:
        keys = ", ".join([repr(effect.key) for effect in self.effects])
        return f"nothing was asked under {key!r} in {self.record.state}; waited for: {keys or 'nothing: it has ended'}"


def inside(name: str, event: Event) -> Inside:
    """Return an event of a child as its parent reports it: wrapped once, however deep it comes from."""
    if isinstance(event, Inside):
        return Inside(_join_path(name, event.path), event.event)
    return Inside(name, event)


def _new_children(children: dict[str, Any], known: Mapping[str, Any]) -> list[str]:
    """Return the children that are not known, which are the last of them, in their order."""
    found = []
    for name in reversed(children):
        if name in known:
            break
        found.append(name)
    return found[::-1]


def _deadline_under(prefix: str, deadline: Deadline | None) -> Deadline | None:
    """Return the deadline of a child as its parent has it."""
    return None if deadline is None else Deadline(deadline.at_s, f"{prefix}{deadline.key}")


def _join_path(name: str, path: str) -> str:
    return f"{name}{SEPARATOR}{path}" if path else name

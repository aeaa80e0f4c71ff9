"""A table of rows, and the `transitions` machine that executes it.

A row says: on this trigger, in these states, if the guard holds, the action makes the next record and the machine goes
to that state.  Rows are tried from the top.  Guards and actions are pure functions of ``(record, answer, definition)``.
The record is the present state, the answer is the input, and the definition is constant for the life of a record, such
as the prompt of an agent call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from transitions import EventData, Machine, MachineError, State, Transition
from transitions.core import Condition

Guard: TypeAlias = Callable[[Any, Any, Any], bool]
Action: TypeAlias = Callable[[Any, Any, Any], Any]
# The trigger, the source states, the next state (None: the same), a guard, an action.
Row: TypeAlias = tuple[str, Any, Any, Guard | None, Action]


def row_name(source: str, trigger: str, to: str, guard: str) -> str:
    """Return a row, or the step of one, as text.

    Examples:
        >>> row_name("Calling", "replied", "Completed", "is_answer")
        'Calling --replied [is_answer]--> Completed'
    """
    return f"{source} --{trigger}{f' [{guard}]' if guard else ''}--> {to}"


class Cursor:
    """A record during one step: the model that `transitions` moves.

    Attributes:
        state: The name of the state, a string: `transitions` reads the state several times a step, and the name of an
            enum member costs two function calls each time.
        after: The record that the row's action returned.
        guard: The name of the guard that let the row be taken; ``""`` if it has none.
    """

    __slots__ = ("after", "guard", "state")

    def __init__(self, record: Any) -> None:
        self.state: Any = str(record.state)
        self.after = record
        self.guard = ""


class _QuietState(State):
    """A state without callbacks, since only rows have actions."""

    def enter(self, event_data: EventData) -> None: ...
    def exit(self, event_data: EventData) -> None: ...


class _Guard(Condition):
    """The guard of a row, which takes the arguments of an action."""

    def check(self, event_data: EventData) -> bool:
        guard: Any = self.func
        return bool(guard(*event_data.args))


class _RowTransition(Transition):
    condition_cls = _Guard


class RowMachine(Machine):
    """The machine of a table.  It calls guards and actions with ``(record, answer, definition)``, and logs no states.

    Attributes:
        members: The members of the enum of states, by their names.

    Examples:
        >>> from enum import StrEnum
        >>> Light = StrEnum("Light", ["OFF", "ON"])
        >>> machine_of([], Light).members
        {'off': <Light.OFF: 'off'>, 'on': <Light.ON: 'on'>}
    """

    state_cls = _QuietState
    transition_cls = _RowTransition
    members: Mapping[str, StrEnum]

    def callback(self, func: Any, event_data: EventData) -> None:
        """Call the action of a row, and keep what it returns in the cursor."""
        row: Any = event_data.transition
        cursor: Any = event_data.model
        cursor.after = func(*event_data.args)
        cursor.guard = row.conditions[0].func.__name__ if row.conditions else ""


def machine_of(rows: Iterable[Row], states: type[StrEnum]) -> RowMachine:
    """Return the machine of a table, for `take_row`.

    Args:
        rows: The table.
        states: All states.

    Examples:
        >>> from enum import StrEnum
        >>> Light = StrEnum("Light", ["OFF", "ON"])
        >>> def keep(lamp, answer, definition):
        ...     return lamp
        >>> machine = machine_of([("switched", Light.OFF, Light.ON, None, keep)], Light)
        >>> list(machine.states)
        ['off', 'on']
    """
    machine = RowMachine(
        model=None,  # cursors are passed to trigger(), never registered: registering leaks and costs 24 µs each
        states=[str(state) for state in states],
        initial=None,
        auto_transitions=False,  # no to_Completed() behind the table's back
    )
    machine.members = {str(state): state for state in states}
    for trigger, source, to, guard, action in rows:
        sources: list[Any] = [str(state) for state in ((source,) if isinstance(source, str) else source)]
        machine.add_transition(trigger, sources, None if to is None else str(to), conditions=guard, before=action)
    return machine


def take_row(machine: RowMachine, trigger: str, record: Any, answer: Any, definition: Any) -> Cursor:
    """Take the first row whose guard holds; return its cursor, whose ``state`` is a member of the enum again.

    Raises:
        MachineError: No row of this trigger can be taken.

    Examples:
        >>> from enum import StrEnum
        >>> Light = StrEnum("Light", ["OFF", "ON"])
        >>> def keep(lamp, answer, definition):
        ...     return lamp
        >>> machine = machine_of([("switched", Light.OFF, Light.ON, None, keep)], Light)
        >>> from types import SimpleNamespace
        >>> take_row(machine, "switched", SimpleNamespace(state=Light.OFF), None, None).state
        <Light.ON: 'on'>
    """
    cursor = Cursor(record)
    event = machine.events.get(trigger)
    if event is None:
        raise MachineError("no row has this trigger")
    if not event.trigger(cursor, record, answer, definition):
        rows = event.transitions[cursor.state]
        guards: list[Any] = [condition.func for row in rows for condition in row.conditions]
        raise MachineError(f"the guards {', '.join([guard.__name__ for guard in guards])} refused it")
    cursor.state = machine.members[cursor.state]
    return cursor

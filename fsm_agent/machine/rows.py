"""A table of rows, and the `transitions` machine that walks it.

A row says: at this trigger, in these states, if its guard holds, the action makes the next record and the machine goes
to that state.  Rows are tried from the top.  Guards and actions are pure functions of ``(record, answer, definition)``:
the record is the present state, the answer the input, and the definition what is constant in the life of a record, such
as the prompt of an agent call or the owner of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import wraps
from typing import Any, TypeAlias

from transitions import Machine

Guard: TypeAlias = Callable[[Any, Any, Any], bool]
Action: TypeAlias = Callable[[Any, Any, Any], Any]
# The trigger, the states where it may happen, the state that follows (None: the same), a guard, an action.
Row: TypeAlias = tuple[str, Any, Any, Guard | None, Action]


def machine_of(rows: Iterable[Row], states: type[Enum]) -> Machine:
    """Return the machine of a table.

    A step is ``machine.events[trigger].trigger(cell, cell, answer, definition)``, which returns whether a row was
    taken.  A cell has a ``record``; a step sets its ``state``, the next record as ``after``, and the name of the
    guard as ``guard``.  The cell is passed twice: as the model of `transitions`, and to the callbacks.

    Args:
        rows: The table.
        states: All states.
    """
    machine = Machine(
        model=None,  # cells are passed to trigger(), never registered: registering leaks and costs 24 µs each
        states=states,
        initial=None,
        auto_transitions=False,  # no to_COMPLETED() behind the table's back
    )
    for trigger, source, to, guard, action in rows:
        conditions = _condition(guard) if guard else None
        machine.add_transition(trigger, source, to, conditions=conditions, before=_callback(action, guard))
    return machine


def _condition(guard: Guard) -> Callable[[Any, Any, Any], bool]:
    @wraps(guard)
    def condition(cell: Any, answer: Any, definition: Any) -> bool:
        return bool(guard(cell.record, answer, definition))

    return condition


def _callback(action: Action, guard: Guard | None) -> Callable[[Any, Any, Any], None]:
    allowed_by = guard.__name__ if guard else ""

    @wraps(action)
    def before(cell: Any, answer: Any, definition: Any) -> None:
        cell.after = action(cell.record, answer, definition)
        cell.guard = allowed_by

    return before


def guard_names(machine: Machine, trigger: str, state: Enum) -> str:
    """Return the names of the guards that decide on a trigger in a state, for error messages."""
    rows = machine.events[trigger].transitions[state.name]
    return ", ".join(getattr(condition.func, "__name__", "?") for row in rows for condition in row.conditions)

"""A table of rows, and the `transitions` machine that walks it.

A row says: at this trigger, in these states, if its guard holds, the action makes the next record and the machine goes
to that state.  Rows are tried from the top.  Guards and actions are pure functions of ``(record, answer, definition)``:
the record is the present state, the answer the input, and the definition what is constant in the life of a record, such
as the prompt of an agent call or the owner of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import wraps
from typing import Any, NamedTuple, TypeAlias

from transitions import Machine, MachineError
from transitions.core import Event, Transition

from fsm_agent.errors import UsageError

Guard: TypeAlias = Callable[[Any, Any, Any], bool]
Action: TypeAlias = Callable[[Any, Any, Any], Any]
# The trigger, the states where it may happen, the state that follows (None: the same), a guard, an action.
Row: TypeAlias = tuple[str, Any, Any, Guard | None, Action]


class Rule(NamedTuple):
    """A row as it is walked in one state."""

    guard: Guard | None
    action: Action
    to: Enum | None  # None: the same
    guard_name: str  # "" without a guard


class LeanEvent(Event):
    """An `Event` that can also be taken at a tenth of the cost.

    Its rows are kept as data beside the transitions that are made of them, so `take` does what `trigger` does; a test
    drives both through the same events.
    """

    def __init__(self, name: str, machine: Machine) -> None:
        super().__init__(name, machine)
        self.rules: dict[Enum, list[Rule]] = {}  # by state

    def add_transition(self, transition: Transition) -> None:
        """Add a transition that `add_row` has made of a row.

        Raises:
            UsageError: It was made elsewhere: `take` would ignore its conditions and callbacks.
        """
        rule = getattr(transition, "rule", None)
        if rule is None:
            what = f"{transition!r} for the event {self.name!r} is made by hand"
            raise UsageError(f"{what}: add_row(machine, (trigger, source, to, guard, action)) would be right")
        super().add_transition(transition)
        state: Any = self.machine.states[transition.source].value
        self.rules.setdefault(state, []).append(rule)

    def take(self, cell: Any, answer: Any, definition: Any) -> bool:
        """Take the first row whose guard allows it; return False when there is none.

        Args:
            cell: What moves: its ``record`` is read; ``state``, ``after`` (the next record) and ``guard`` are set.
            answer: The input.
            definition: Passed on to guards and actions.

        Raises:
            MachineError: There is no such event in the state of ``cell``.
        """
        record = cell.record
        rules = self.rules.get(cell.state)
        if rules is None:
            raise MachineError(f'"Can\'t trigger event {self.name} from state {cell.state.name}!"')
        for guard, action, to, guard_name in rules:
            if guard is None or guard(record, answer, definition):
                cell.after = action(record, answer, definition)
                cell.guard = guard_name
                if to is not None:
                    cell.state = to
                return True
        return False


class LeanTransition(Transition):
    """A `Transition` that keeps the rule which it stands for."""

    def __init__(self, *args: Any, rule: Rule | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.rule = rule


class LeanMachine(Machine):
    """A `Machine` of lean events."""

    event_cls = LeanEvent
    transition_cls = LeanTransition


def machine_of(rows: Iterable[Row], states: type[Enum], cls: type[Machine] = LeanMachine) -> Machine:
    """Return the machine of a table.  Its events are triggered with a cell twice, the answer and the definition.

    Args:
        rows: The table.
        states: All states.
        cls: `LeanMachine`, or that of `transitions` itself.
    """
    machine = cls(
        model=None,  # models are passed to trigger(), never registered: registering leaks and costs 24 µs each
        states=states,
        initial=None,
        auto_transitions=False,  # no to_COMPLETED() behind the table's back
    )
    for row in rows:
        add_row(machine, row)
    return machine


def add_row(machine: Machine, row: Row) -> None:
    """Add a row behind those that a machine has."""
    trigger, sources, to, guard, action = row
    lean: dict[str, Any] = {}
    if isinstance(machine, LeanMachine):
        lean["rule"] = Rule(guard, action, to, guard.__name__ if guard else "")
    for source in sources if isinstance(sources, Sequence) and not isinstance(sources, str) else (sources,):
        conditions = _condition(guard) if guard else None
        machine.add_transition(trigger, source, to, conditions=conditions, before=_callback(action, guard), **lean)


def _condition(guard: Guard) -> Callable[[Any, Any, Any], bool]:
    @wraps(guard)
    def condition(cell: Any, answer: Any, definition: Any) -> bool:
        return guard(cell.record, answer, definition)

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

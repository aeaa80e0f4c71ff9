"""How is the table driven?  By one `transitions` machine for all calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias, cast

from transitions import Machine, MachineError
from transitions.core import Event, Transition

from fsm_agent.record import State
from fsm_agent.table import ROWS, Action, Guard

# Conditions with what they must return, callbacks, the state that follows (None: the same).
_Row: TypeAlias = tuple[tuple[tuple[Callable[..., Any], bool], ...], tuple[Callable[..., Any], ...], Any]


class LeanEvent(Event):
    """An `Event` that takes the first row whose conditions hold, and does nothing else.

    It walks the same states, transitions, conditions and callbacks as its base for the part of `transitions`
    that is used here (conditions and ``before`` of unqueued, unnested machines), at a tenth of the price: a
    transition is no more than its own function calls.  A test drives both through the same triggers.
    """

    def __init__(self, name: str, machine: Machine) -> None:
        super().__init__(name, machine)
        self._rows: dict[Any, list[_Row]] = {}  # by state, read off the transitions at its first trigger

    def add_transition(self, transition: Transition) -> None:
        super().add_transition(transition)
        self._rows.clear()

    def trigger(self, model: Any, *args: Any) -> bool:
        for conditions, callbacks, to in self._rows.get(model.state) or self._read(model.state):
            for condition, target in conditions:
                if condition(*args) != target:
                    break
            else:
                for callback in callbacks:
                    callback(*args)
                if to is not None:
                    model.state = to
                return True
        return False

    def _read(self, state: Any) -> list[_Row]:
        if state.name not in self.transitions:
            raise MachineError(f'"Can\'t trigger event {self.name} from state {state.name}!"')
        rows = self._rows[state] = [
            (
                tuple([(cast("Any", c.func), c.target) for c in row.conditions]),
                tuple(cast("Any", row.before)),
                None if row.dest is None else self.machine.states[row.dest].value,
            )
            for row in self.transitions[state.name]
        ]
        return rows


class LeanMachine(Machine):
    """A `Machine` of lean events."""

    event_cls = LeanEvent


def _guard(rule: Guard) -> Callable[[Any, Any], bool]:
    @wraps(rule)
    def condition(call: Any, answer: Any) -> bool:
        return rule(call.record, answer, call.prompt)

    return condition


def _action(rule: Action, guard: Guard | None) -> Callable[[Any, Any], None]:
    allowed_by = guard.__name__ if guard else ""

    @wraps(rule)
    def before(call: Any, answer: Any) -> None:
        call.after = rule(call.record, answer, call.prompt)
        call.guard = allowed_by

    return before


MACHINE = LeanMachine(
    model=None,  # models are passed to trigger(), never registered: registering leaks and costs 24 µs each
    states=State,
    initial=None,
    auto_transitions=False,  # no to_COMPLETED() behind the table's back
    transitions=[
        {"trigger": t, "source": s, "dest": d, "conditions": _guard(g) if g else None, "before": _action(a, g)}
        for t, s, d, g, a in ROWS
    ],
)


def guards(machine: Machine, trigger: str, state: State) -> str:
    """The names of the guards that decide on a trigger in a state, for error messages."""
    rows = machine.events[trigger].transitions[state.name]
    return ", ".join(getattr(condition.func, "__name__", "?") for row in rows for condition in row.conditions)

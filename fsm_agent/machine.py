"""How is the table driven?  By one `transitions` machine for all calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeAlias, cast

from transitions import Machine, MachineError
from transitions.core import Event, Transition

from fsm_agent.record import State
from fsm_agent.table import ROWS, Action, Guard, Row

# A row as it is walked: the guard, the action, the state that follows (None: the same), the guard's name.
_Rule: TypeAlias = tuple[Guard | None, Action, Any, str]


class LeanEvent(Event):
    """An `Event` that can also be taken at a tenth of the price.

    `take` does what `trigger` does with the same states, transitions, conditions and callbacks, and nothing else:
    it calls the rules that stand behind them.  A test drives both through the same events.
    """

    def __init__(self, name: str, machine: Machine) -> None:
        super().__init__(name, machine)
        self._rules: dict[Any, list[_Rule]] = {}  # by state, read off the transitions when it is first taken

    def add_transition(self, transition: Transition) -> None:
        super().add_transition(transition)
        self._rules.clear()

    def take(self, call: Any, answer: Any) -> bool:
        """Take the first row whose guard lets it be taken; False when there is none.

        Raises:
            MachineError: There is no such event in the state of ``call``.
        """
        record, prompt = call.record, call.prompt
        for guard, action, to, name in self._rules.get(call.state) or self._read(call.state):
            if guard is None or guard(record, answer, prompt):
                call.after = action(record, answer, prompt)
                call.guard = name
                if to is not None:
                    call.state = to
                return True
        return False

    def _read(self, state: Any) -> list[_Rule]:
        if state.name not in self.transitions:
            raise MachineError(f'"Can\'t trigger event {self.name} from state {state.name}!"')
        rules = self._rules[state] = []
        for row in self.transitions[state.name]:
            guard = cast("Any", row.conditions[0].func).__wrapped__ if row.conditions else None
            to = None if row.dest is None else self.machine.states[row.dest].value
            rules.append((guard, cast("Any", row.before[0]).__wrapped__, to, guard.__name__ if guard else ""))
        return rules


class LeanMachine(Machine):
    """A `Machine` of lean events."""

    event_cls = LeanEvent


def _condition(guard: Guard) -> Callable[[Any, Any], bool]:
    @wraps(guard)
    def condition(call: Any, answer: Any) -> bool:
        return guard(call.record, answer, call.prompt)

    return condition


def _callback(action: Action, guard: Guard | None) -> Callable[[Any, Any], None]:
    allowed_by = guard.__name__ if guard else ""

    @wraps(action)
    def before(call: Any, answer: Any) -> None:
        call.after = action(call.record, answer, call.prompt)
        call.guard = allowed_by

    return before


def machine_of(rows: Iterable[Row], cls: type[Machine] = LeanMachine) -> Machine:
    """The machine of a table like `ROWS`.  Its events are given the call twice, and the answer."""
    return cls(
        model=None,  # models are passed to trigger(), never registered: registering leaks and costs 24 µs each
        states=State,
        initial=None,
        auto_transitions=False,  # no to_COMPLETED() behind the table's back
        transitions=[
            {
                "trigger": t,
                "source": s,
                "dest": d,
                "conditions": _condition(g) if g else None,
                "before": _callback(a, g),
            }
            for t, s, d, g, a in rows
        ],
    )


MACHINE = machine_of(ROWS)


def guards(machine: Machine, trigger: str, state: State) -> str:
    """The names of the guards that decide on a trigger in a state, for error messages."""
    rows = machine.events[trigger].transitions[state.name]
    return ", ".join(getattr(condition.func, "__name__", "?") for row in rows for condition in row.conditions)

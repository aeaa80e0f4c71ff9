"""A table of rows, and the `transitions` machine that executes it.

A row applies to one trigger in one or more states, provided that its guard is true.  Its action makes the next record,
and the machine goes to its target state.  Rows are tried from the top.  Guards and actions are pure functions of
``(record, event, owner)``: the current state, the input, and an object that is constant for the record, such as the
prompt of an agent call.  The rows of an agent call are in `fsm_agent.call.transition_table`; a flow has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from transitions import EventData, Machine, State, Transition
from transitions.core import Condition

from fsm_agent._internal.structs import Value
from fsm_agent.errors import IllegalTrigger, UsageError
from fsm_agent.messages.events import Stepped

Guard: TypeAlias = Callable[[Any, Any, Any], bool]
Action: TypeAlias = Callable[[Any, Any, Any], Any]
# The trigger, the source states, the next state (None: the same), a guard, an action.
Row: TypeAlias = tuple[str, Any, Any, Guard | None, Action]


def row_name(source: str, trigger: str, to: str, guard: str) -> str:
    """Return a row, or the row that a step took, as text.

    Examples:
        >>> row_name("Calling", "replied", "Completed", "is_answer")
        'Calling --replied [is_answer]--> Completed'
    """
    return f"{source} --{trigger}{f' [{guard}]' if guard else ''}--> {to}"


class SingleRow(NamedTuple):
    """A row for one of its source states."""

    trigger: str
    source: str
    to: str
    guard: Guard | None
    action: Action

    @property
    def guard_name(self) -> str:
        return self.guard.__name__ if self.guard else ""

    def __str__(self) -> str:
        return row_name(self.source, self.trigger, self.to, self.guard_name)


def single_rows(rows: Iterable[Row]) -> Iterator[SingleRow]:
    """Yield each row once for each of its sources, with the names of its states."""
    for trigger, sources, to, guard, action in rows:
        for source in (sources,) if isinstance(sources, str) else sources:
            yield SingleRow(trigger, str(source), str(to or source), guard, action)


class Cursor:
    """Holds the record during one step, as the model object that `transitions` expects."""

    __slots__ = ("after", "guard", "state")

    def __init__(self, record: Any) -> None:
        self.state: Any = str(record.state)  # a plain string, since `transitions` reads it several times a step
        self.after = record
        self.guard = ""


class _RowState(State):
    name = ""  # an attribute in place of the library's property, since it is read several times a step

    def __init__(self, name: str, *args: Any, **options: Any) -> None:
        super().__init__(name, *args, **options)
        self.name = name


class _Guard(Condition):
    def check(self, event_data: EventData) -> bool:
        guard: Any = self.func
        return bool(guard(*event_data.args))


class _RowTransition(Transition):
    condition_cls = _Guard

    def _change_state(self, event_data: EventData) -> None:
        """Set the state, skipping the library's search for callbacks, because states here have none."""
        model: Any = event_data.model
        model.state = self.dest


_NO_CALLBACKS: Any = ()


class RowMachine(Machine):
    """The machine for a table.  It calls guards and actions with ``(record, event, owner)``.

    Attributes:
        members: The members of the state enum, by name.
        rows: The table.

    Examples:
        >>> from enum import StrEnum
        >>> Light = StrEnum("Light", ["OFF", "ON"])
        >>> machine_of([], Light).members
        {'off': <Light.OFF: 'off'>, 'on': <Light.ON: 'on'>}
    """

    state_cls = _RowState
    transition_cls = _RowTransition
    members: Mapping[str, StrEnum]
    rows: tuple[Row, ...]

    # Attributes in place of the library's properties, since each is read at every step.
    has_queue = False
    prepare_event = before_state_change = after_state_change = finalize_event = _NO_CALLBACKS

    def get_model_state(self, model: Any) -> State:
        """Return the state of a cursor."""
        return self.states[model.state]

    def callbacks(self, funcs: Iterable[Any], event_data: EventData) -> None:
        """Call the row's action, if it is among the callbacks, and keep its result in the cursor."""
        for action in funcs:
            row: Any = event_data.transition
            cursor: Any = event_data.model
            cursor.after = action(*event_data.args)
            cursor.guard = row.conditions[0].func.__name__ if row.conditions else ""


def machine_of(rows: Iterable[Row], states: type[StrEnum]) -> RowMachine:
    """Return the machine for a table, to pass to `take_row`.

    Examples:
        >>> from enum import StrEnum
        >>> Light = StrEnum("Light", ["OFF", "ON"])
        >>> def keep(lamp, event, owner):
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
        prepare_event=_NO_CALLBACKS,
        before_state_change=_NO_CALLBACKS,
        after_state_change=_NO_CALLBACKS,
        finalize_event=_NO_CALLBACKS,
    )
    machine.members = {str(state): state for state in states}
    machine.rows = tuple(rows)
    for row in single_rows(machine.rows):
        next_state = None if row.to == row.source else row.to  # None: the library need not set the state
        machine.add_transition(row.trigger, row.source, next_state, conditions=row.guard, before=row.action)
    return machine


def take_row(machine: RowMachine, trigger: str, record: Any, event: Any, owner: Any) -> Cursor:
    """Take the first row whose guard is true, and return its cursor, whose ``state`` is a member of the enum.

    Raises:
        IllegalTrigger: If no row for this trigger can be taken.

    Examples:
        >>> from enum import StrEnum
        >>> Light = StrEnum("Light", ["OFF", "ON"])
        >>> def keep(lamp, event, owner):
        ...     return lamp
        >>> machine = machine_of([("switched", Light.OFF, Light.ON, None, keep)], Light)
        >>> from types import SimpleNamespace
        >>> take_row(machine, "switched", SimpleNamespace(state=Light.OFF), None, None).state
        <Light.ON: 'on'>
    """
    cursor = Cursor(record)
    known = machine.events.get(trigger)
    if known is None or cursor.state not in known.transitions or not known.trigger(cursor, record, event, owner):
        raise IllegalTrigger(_explanation(machine.rows, trigger, cursor.state, _refuse).refusal)
    cursor.state = machine.members[cursor.state]
    return cursor


class RowVerdict(Value, frozen=True):
    """One row of an `Explanation`.

    Examples:
        >>> print(RowVerdict("Calling", "replied", "Completed", guard="is_answer", action="keep", said=False))
        refused    Calling --replied [is_answer]--> Completed
    """

    source: str
    trigger: str
    to: str
    guard: str = ""  # the guard's name; empty if the row has no guard
    action: str = ""  # the action's name
    said: bool | None = None  # the guard's verdict; None if there is no guard, it raised, or it was not asked
    error: str = ""  # the type and message of the exception that the guard raised
    is_taken: bool = False

    def __str__(self) -> str:
        row = row_name(self.source, self.trigger, self.to, self.guard)
        if self.is_taken:
            return f"taken      {row}"
        if self.error:
            return f"raised     {row}: {self.error}"
        return f"{'refused' if self.said is False else 'not tried':10} {row}"


class Explanation(Value, frozen=True):
    """The rows for a trigger in a state, with the results of their guards and the row that was taken.

    Examples:
        >>> from fsm_agent.call import Cancelled
        >>> call = Agent(Script("Hi.")).call("Hello").call
        >>> print(call.explain(call.record.trace[-1]))
        'answered' in Calling:
          taken      Calling --answered--> Completed
        >>> print(call.explain(Cancelled()))
        'cancelled' is not possible in Completed: no row takes it; possible: nothing, since the process has ended
    """

    state: str
    trigger: str
    rows: tuple[RowVerdict, ...]  # the rows for the trigger in this state, in the order in which they are tried
    possible: tuple[str, ...]  # the triggers that the table has in this state

    @property
    def taken(self) -> RowVerdict | None:
        """The row that was or would be taken, or None."""
        return next((row for row in self.rows if row.is_taken), None)

    @property
    def refusal(self) -> str:
        """Text that explains why no row is taken and which triggers are possible, or ``""`` if a row is taken."""
        if self.taken is not None:
            return ""
        refused = ", ".join([row.guard for row in self.rows if row.said is False])
        why = f"the guards {refused} refused it" if refused else "no row takes it"
        errors = [f"the guard {row.guard} raised {row.error}" for row in self.rows if row.error]
        possible = ", ".join(self.possible) or "nothing, since the process has ended"
        return f"{self.trigger!r} is not possible in {self.state}: {'; '.join([why, *errors])}; possible: {possible}"

    def __str__(self) -> str:
        head = self.refusal or f"{self.trigger!r} in {self.state}:"
        return "\n".join([head, *[f"  {row}" for row in self.rows]])


def explain(rows: Iterable[Row], trigger: str, record: Any, event: Any, owner: Any) -> Explanation:
    """Return the row that a machine would take and the results of its guards, without taking a step.

    Examples:
        >>> from types import SimpleNamespace
        >>> def is_dark(lamp, event, owner):
        ...     return event > 20
        >>> def keep(lamp, event, owner):
        ...     return lamp
        >>> rows = [("turned", "off", "on", is_dark, keep), ("turned", "off", None, None, keep)]
        >>> print(explain(rows, "turned", SimpleNamespace(state="off"), 18, None))
        'turned' in off:
          refused    off --turned [is_dark]--> on
          taken      off --turned--> off
    """
    return _explanation(tuple(rows), trigger, str(record.state), lambda row: _ask(row, record, event, owner))


def explain_step(rows: Iterable[Row], step: Stepped) -> Explanation:
    """Explain why a step took its row, without calling the guards again.

    Raises:
        UsageError: If the table has no such row.

    Examples:
        >>> from fsm_agent.call import ROWS
        >>> step = Agent(Script("Hi.")).call("Hello").trace[0]
        >>> print(explain_step(ROWS, step))
        'begun' in Seeded:
          refused    Seeded --begun [too_deep]--> Failed
          taken      Seeded --begun--> Calling
    """
    source, to = str(step.source), str(step.to)

    def is_it(row: SingleRow) -> tuple[bool, str]:
        return (row.to, row.guard_name) == (to, step.guard), ""

    table = tuple(rows)
    alike = [row for row in _rows_of(table, step.trigger, source) if is_it(row)[0]]
    if len(alike) != 1:  # the trace only names the guard, which two rows may have in common
        known = "no row for it" if not alike else f"{len(alike)} rows with a guard named {step.guard!r}"
        name = row_name(source, step.trigger, to, step.guard)
        raise UsageError(f"the step: expected exactly one row of the table for {name}, got {known}")
    return _explanation(table, step.trigger, source, is_it)


def _explanation(
    rows: tuple[Row, ...], trigger: str, state: str, ask: Callable[[SingleRow], tuple[bool | None, str]]
) -> Explanation:
    found: list[RowVerdict] = []
    is_decided = False
    for row in _rows_of(rows, trigger, state):
        holds, error = (None, "") if is_decided else ask(row)
        is_decided = is_decided or holds is not False
        verdict = RowVerdict(
            state,
            trigger,
            row.to,
            guard=row.guard_name,
            action=row.action.__name__,
            said=holds if row.guard else None,
            error=error,
            is_taken=holds is True,
        )
        found.append(verdict)
    possible = {row.trigger for row in single_rows(rows) if row.source == state}
    return Explanation(state, trigger, tuple(found), tuple(sorted(possible)))


def _rows_of(rows: Iterable[Row], trigger: str, state: str) -> list[SingleRow]:
    return [row for row in single_rows(rows) if (row.trigger, row.source) == (trigger, state)]


def _refuse(row: SingleRow) -> tuple[bool, str]:
    return False, ""


def _ask(row: SingleRow, record: Any, event: Any, owner: Any) -> tuple[bool | None, str]:
    try:
        return row.guard is None or bool(row.guard(record, event, owner)), ""
    except Exception as error:  # a flow's guard is user code, and the reader wants to see its failure
        return None, f"{type(error).__name__}: {error}"

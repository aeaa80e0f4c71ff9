"""The whole table of a flow, with default rows for what the user's rows leave open, and its machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import wraps
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple

from fsm_agent.flows.definition.answer_types import ANY
from fsm_agent.flows.definition.guards import takes_answer
from fsm_agent.flows.definition.states import End, FunctionState, LiveState, Row, State, event_name
from fsm_agent.flows.errors import FlowError
from fsm_agent.machine.rows import Row as MachineRow
from fsm_agent.machine.rows import machine_of
from fsm_agent.mistakes import shown

if TYPE_CHECKING:
    from fsm_agent.flows.flow import Flow

SEEDED = "Seeded"
FAILED = End("Failed", is_failure=True)
CANCELLED = End("Cancelled", is_failure=True)
EXPIRED = End("Expired", is_failure=True)
RESERVED = (SEEDED, FAILED.name, CANCELLED.name, EXPIRED.name)
KEPT = "kept"  # an answer that came early
_NOTES = ("started", "interrupted", "run_again")


class TableEntry(NamedTuple):
    """A row, once for each of its triggers."""

    event: str  # the trigger, with its type
    source: str
    to: str  # the same as the source if the step stays there
    row: Row[Any] | None  # None: a step of every flow, such as its start

    @property
    def guard(self) -> str:
        """The name of the guard; empty: there is none."""
        return self.row.guard.__name__ if self.row is not None and self.row.guard is not None else ""

    @property
    def is_default(self) -> bool:
        """True if the user wrote no such row."""
        return self.row is None or self.row.is_default


def row_name(source: str, event: str, to: str, guard: str) -> str:
    """Return a row, or the step of one, as text."""
    return f"{source} --{event}{f' [{guard}]' if guard else ''}--> {to}"


def with_defaults(
    rows: Sequence[Row[Any]], live: Sequence[LiveState[Any, Any]], has_deadline: bool
) -> tuple[Row[Any], ...]:
    """Return the rows, with a default row for each trigger that the user's rows may not take."""
    taken = {(row.source.name, row.trigger) for row in rows if row.guard is None}
    found = list(rows)
    for state in live:
        possible = {
            "failed": ("failed" in state.triggers, FAILED),
            "elapsed": (state.within_s is not None, FAILED),
            "expired": (has_deadline, EXPIRED),
            "exhausted": (True, FAILED),
            "cancelled": (True, CANCELLED),
        }
        for trigger, (is_possible, to) in possible.items():
            if is_possible and (state.name, trigger) not in taken:
                found.append(Row(state, trigger, to, is_default=True))
    return tuple(found)


def cases_of(row: Row[Any]) -> tuple[Any, ...]:
    """Return the types, or members of an enum, that a row is for."""
    return (row.case,) if row.case is not ANY else cases_at(row.source, row.trigger)


def cases_at(state: State[Any], trigger: str) -> tuple[Any, ...]:
    """Return the types, or members of an enum, that the rows of a trigger tell apart."""
    return state.answer_types.cases if trigger == "done" and isinstance(state, LiveState) else (ANY,)


def entries_of(flow: Flow[Any]) -> Iterator[TableEntry]:
    """Yield each row once for each trigger, in the order in which they are tried."""
    yield TableEntry("begun", SEEDED, flow.start.name, None)
    yield TableEntry("cancelled", SEEDED, CANCELLED.name, None)
    for row in flow.table:
        for case in cases_of(row):
            yield TableEntry(event_name(row.trigger, case), row.source.name, row.to.name, row)
    for state in flow.live:
        if flow.early:
            yield TableEntry(KEPT, state.name, state.name, None)
        if isinstance(state, FunctionState) and state.function.once:
            for note in _NOTES:
                yield TableEntry(note, state.name, state.name, None)


def states_enum(flow: Flow[Any]) -> type[StrEnum]:
    """Return the enum of the states of a flow.

    Raises:
        FlowError: A state has a name that Python keeps for itself.
    """
    make: Any = StrEnum
    try:
        made: type[StrEnum] = make("States", {name: name for name in (SEEDED, *flow.states)})
    except ValueError as error:
        raise FlowError(f"flow {flow.name!r}: {error}: another name of the state would be right") from None
    return made


def machine_for(flow: Flow[Any]) -> Any:
    """Return the `transitions` machine of a flow."""
    members: Any = flow.state_enum
    rows: list[MachineRow] = []
    for event, source, to, row in flow.entries:
        stays = row is None and source == to
        guard = _guard(row) if row is not None and row.guard is not None else None
        rows.append((event, members[source], None if stays else members[to], guard, _action(row)))
    return machine_of(rows, members)


def _guard(row: Row[Any]) -> Any:
    user: Any = row.guard
    has_answer = takes_answer(user)

    @wraps(user)
    def guard(record: Any, answer: Any, run: Any) -> bool:
        held = user(record.data, answer) if has_answer else user(record.data)
        if held is True or held is False:
            return held
        if held is None or isawaitable(held):
            what = f"flow {run.flow.name!r}: the guard of {row!r} returned {shown(held)}"
            raise FlowError(f"{what}: True or False would be right")
        return bool(held)

    return guard


def _action(row: Row[Any] | None) -> Any:
    user = None if row is None else row.action

    def action(record: Any, answer: Any, run: Any) -> Any:
        if user is None:
            return record
        return record.changed(data=run.checked_data(user(record.data, answer), record.data, row))

    return action


def states_in(start: State[Any], rows: Sequence[Row[Any]]) -> Iterator[State[Any]]:
    """Yield the states that rows name, once for each mention."""
    yield start
    for row in rows:
        yield row.source
        yield row.to

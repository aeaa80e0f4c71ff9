"""The whole table of a flow, with default rows for what the user's rows leave open, and its machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import wraps
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple

from fsm_agent.call.machine import Row as MachineRow
from fsm_agent.call.machine import machine_of
from fsm_agent.flows.definition.guards import takes_answer
from fsm_agent.flows.definition.reactions import EVERY, STAYS, UNTIL_KNOWN
from fsm_agent.flows.definition.states import End, FunctionState, LiveState, Row, State, event_name
from fsm_agent.flows.errors import FlowError
from fsm_agent.flows.values import ANY
from fsm_agent.validation import shown

if TYPE_CHECKING:
    from fsm_agent.flows.flow import Flow

SEEDED = "Seeded"
FAILED = End("Failed", is_failure=True)
CANCELLED = End("Cancelled", is_failure=True)
EXPIRED = End("Expired", is_failure=True)
RESERVED = (SEEDED, FAILED.name, CANCELLED.name, EXPIRED.name)
EDITED = "edited"  # the trigger of a step by which a person has changed the data, in a fork
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
        if self.row is None:
            return ""
        return self.row.rule if self.row.guard is None else self.row.guard.__name__

    @property
    def is_default(self) -> bool:
        """True if the user wrote no such row."""
        return self.row is None or self.row.is_default


def with_defaults(
    rows: Sequence[Row[Any]], live: Sequence[LiveState[Any, Any]], has_deadline: bool
) -> tuple[Row[Any], ...]:
    """Return the rows, with a default row for each trigger that the user's rows may not take."""
    taken = {(row.source.name, row.trigger) for row in rows if row.guard is None and not row.rule}
    found = list(rows)
    for state in live:
        possible = {
            "failed": ("failed" in state.triggers, FAILED),
            "elapsed": (state.is_timed, FAILED),
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
        yield TableEntry(EDITED, state.name, state.name, None)
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
        raise FlowError(f"flow {flow.name!r}: {error}; rename the state") from None
    return made


def machine_for(flow: Flow[Any]) -> Any:
    """Return the `transitions` machine of a flow."""
    members: Any = flow.state_enum
    rows: list[MachineRow] = []
    for event, source, to, row in flow.entries:
        stays = source == to if row is None else row.rule in STAYS
        guard = None if row is None else _rule(row) if row.rule else _guard(row) if row.guard is not None else None
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
            what = f"flow {run.flow.name!r}: guard of the row {row!r}"
            raise FlowError(f"{what}: expected True or False, got {shown(held)}")
        return bool(held)

    return guard


def _rule(row: Row[Any]) -> Any:
    """Return the guard of a row for a cancellation or the deadline."""

    def guard(record: Any, answer: Any, run: Any) -> bool:
        return bool(run.rule_for(record, row.trigger) == row.rule)

    guard.__name__ = row.rule
    return guard


def _action(row: Row[Any] | None) -> Any:
    user = None if row is None else row.action

    def action(record: Any, answer: Any, run: Any) -> Any:
        if user is None:
            return record
        return record.changed(data=run.checked_data(user(record.data, answer), record.data, row))

    def react(record: Any, answer: Any, run: Any) -> Any:
        assert row is not None
        waits = (row.trigger, answer.detail) if row.rule == UNTIL_KNOWN else None
        reacted = (*record.reacted_to, row.trigger)
        return action(record, answer, run).changed(reacted_to=reacted, reaction=record.reaction or waits)

    return react if row is not None and row.rule else action


def states_in(start: State[Any], rows: Sequence[Row[Any]]) -> Iterator[State[Any]]:
    """Yield the states that rows name, once for each mention."""
    yield start
    for row in rows:
        if row.source is not EVERY:
            yield row.source
        yield row.to

"""Rows for a cancellation and for the deadline of a flow, in one state or in every state.

A cancellation and the deadline end a run, unless a row of the user's takes them.  Each is taken once in a run.  Such
rows have guards of the flow's own, their ``rule``:

- ``first_time``: The row of the user; it is not taken a second time.
- ``until_known``: A function is running that must not run twice.  The run stays there until its result is known, and
  takes the row of the state that follows.
- ``meanwhile``: The state is part of what a row for every state leads to, such as a compensation, which is not to begin
  anew.  The run stays there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fsm_agent.flows.definition.states import ENDS, FIRST_TIME, FunctionState, LiveState, Row, State
from fsm_agent.flows.errors import FlowError

UNTIL_KNOWN, MEANWHILE = "until_known", "meanwhile"
STAYS = (UNTIL_KNOWN, MEANWHILE)  # rules of rows that stay in their state


class _EveryState(State[Any]):
    """The source of a row for every state: a singleton, even when a flow is copied."""

    name = "every state"

    def __reduce__(self) -> str:
        return "EVERY"


EVERY = _EveryState()


def rows_in_states(where: str, start: State[Any], rows: Sequence[Row[Any]]) -> tuple[Row[Any], ...]:
    """Return rows with those for every state placed in each, and with rows that stay.

    A row for every state stands in each state that has none of its own, and that the start leads to without a
    cancellation or the deadline, and not through the row's target.

    Raises:
        FlowError: There is no such state.
    """
    found = [row for row in rows if row.source is not EVERY]
    live = {state.name: state for row in found for state in (row.source, row.to) if isinstance(state, LiveState)}
    for row in rows:
        if row.source is not EVERY:
            continue
        own = {one.source.name for one in found if one.trigger == row.trigger}
        before = _states_before(start, found, row.to)
        if not before.difference(own):
            raise FlowError(f"{where}: row {row!r}: expected a state that other rows leave to it, got none; remove it")
        for name, state in live.items():
            if name in before and name not in own:
                found.append(Row(state, row.trigger, row.to, None, row.action, rule=FIRST_TIME))
            elif name not in own:
                found.append(Row(state, row.trigger, state, is_default=True, rule=MEANWHILE))
    return (*_waits_for_results(found), *found)


def _states_before(start: State[Any], rows: Iterable[Row[Any]], target: State[Any]) -> set[str]:
    """Return the live states that the start leads to without ends of the run, and not through the target."""
    ways: dict[str, list[State[Any]]] = {}
    for row in rows:
        if row.trigger not in ENDS:
            ways.setdefault(row.source.name, []).append(row.to)
    found, waiting = set[str](), [start]
    while waiting:
        state = waiting.pop()
        if isinstance(state, LiveState) and state is not target and state.name not in found:
            found.add(state.name)
            waiting += ways.get(state.name, ())
    return found


def _waits_for_results(rows: Iterable[Row[Any]]) -> Iterator[Row[Any]]:
    for row in rows:
        state = row.source
        if row.rule == FIRST_TIME and isinstance(state, FunctionState) and state.function.once:
            yield Row(state, row.trigger, state, is_default=True, rule=UNTIL_KNOWN)

"""A flow's whole table, including default rows and rows for every state, and the table's machine.

`fsm_agent.call.machine` tries the rows from the top and takes the first one whose guard holds.

A cancellation or the deadline ends a run unless one of the user's rows handles it.  Each can be handled only once.  The
flow adds a guard, the ``rule``, to these rows:

- ``first_time``: The trigger has not been handled yet, so the user's row is taken.
- ``until_known``: A function that must not run twice is running.  The run stays in the state until the result is known,
  and then takes the next state's row for the trigger.
- ``meanwhile``: A row for every state leads to this state, for example to a compensation.  The run stays there, so that
  the compensation does not begin again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import wraps
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from fsm_agent.call.machine import Row as MachineRow
from fsm_agent.call.machine import machine_of
from fsm_agent.errors import FlowError
from fsm_agent.flows.states import (
    ENDS,
    FIRST_TIME,
    Action,
    D,
    End,
    FunctionState,
    Guard,
    LiveState,
    Row,
    State,
    event_name,
)
from fsm_agent.flows.values import ANY, Failure
from fsm_agent.validation import require, safe_repr

if TYPE_CHECKING:  # what imports this module
    from fsm_agent.flows.definition import FlowDefinition

UNTIL_KNOWN, MEANWHILE = "until_known", "meanwhile"
STAYS = (UNTIL_KNOWN, MEANWHILE)  # rules of rows that stay in their state
SEEDED = "Seeded"
FAILED = End("Failed", is_failure=True)
CANCELLED = End("Cancelled", is_failure=True)
EXPIRED = End("Expired", is_failure=True)
RESERVED = (SEEDED, FAILED.name, CANCELLED.name, EXPIRED.name)
EDITED = "edited"  # the trigger of a step in which a person changes the data of a fork
KEPT = "kept"  # the trigger of an early answer
NOTES = ("started", "interrupted", "run_again")  # events of a function that must not run twice, which stay in its state


# Guards, actions and other functions of the data


def pure(what: str, function: Any) -> Any:
    """Return a function that takes the data, and refuse coroutine functions and other objects."""
    require(what, function, callable(function) and not isinstance(function, State), "a function of the data", FlowError)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        got = f"the coroutine function {getattr(function, '__name__', 'of another object')!r}"
        raise FlowError(f"{what}: expected a plain, pure function, got {got}; do what waits in a state of @execute")
    return function


def takes_answer(guard: Callable[..., Any]) -> bool:
    """Return whether a guard takes the answer as well as the data.

    A function with ``*args`` takes both.  A second parameter with a default is refused, because the answer would
    replace a value that was meant as a constant.
    """
    name, right = getattr(guard, "__name__", repr(guard)), "the parameters (data, answer) or (data)"
    try:
        signature = inspect.signature(guard, follow_wrapped=False)  # a partial function has its own signature
        if _is_open(signature):  # probably the wrapper of a decorator, so look at the function inside
            signature = inspect.signature(guard)
    except (TypeError, ValueError):  # written in C
        raise FlowError(f"{name}: expected {right}, got a function whose parameters cannot be inspected") from None
    takes_both, takes_data = _takes(signature, 2), _takes(signature, 1)
    if takes_both and takes_data and not _is_open(signature):
        raise FlowError(f"{name}: expected {right}, got {_signature_text(signature)}, which fits both")
    if not (takes_both or takes_data):
        raise FlowError(f"{name}: expected {right}, got {_signature_text(signature)}")
    return takes_both


def check_parameters(here: str, function: Callable[..., Any], *takes: str) -> None:
    """Refuse a function that cannot be called with this number of arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C, for example
        return
    if not _takes(signature, len(takes)):
        name = getattr(function, "__name__", repr(function))
        right = f"the parameters ({', '.join(takes)})"
        raise FlowError(f"{here}: {name}: expected {right}, got {_signature_text(signature)}")


def _is_open(signature: inspect.Signature) -> bool:
    return any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _signature_text(signature: inspect.Signature) -> str:
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


# Rows for ends, in every state


class _EveryState(State[Any]):
    """The source of rows for every state.  Copying a flow does not copy this singleton."""

    name = "every state"

    def __reduce__(self) -> str:
        return "EVERY"


EVERY = _EveryState()


def rows_in_states(where: str, start: State[Any], rows: Sequence[Row[Any]]) -> tuple[Row[Any], ...]:
    """Return the rows, with each row for every state replaced by one row per state that it applies to.

    A row for every state applies to states that have no row for the trigger and that a run can enter before the row is
    taken.  The other states get a row that stays in the state.
    """
    found = [row for row in rows if row.source is not EVERY]
    live = {state.name: state for row in found for state in (row.source, row.to) if isinstance(state, LiveState)}
    for row in rows:
        if row.source is not EVERY:
            continue
        own = {one.source.name for one in found if one.trigger == row.trigger}
        ways = [one for one in found if one.trigger not in ENDS and one.source is not row.to]
        before = reached_from([start], ways) & live.keys() - {row.to.name}
        if not before.difference(own):
            raise FlowError(
                f"{where}: row {row!r}: expected a state without a row of its own for {row.trigger!r}, got none; remove"
                " it"
            )
        for name, state in live.items():
            if name in before and name not in own:
                found.append(Row(state, row.trigger, row.to, None, row.action, rule=FIRST_TIME))
            elif name not in own:
                found.append(Row(state, row.trigger, state, is_default=True, rule=MEANWHILE))
    waits = [
        Row(row.source, row.trigger, row.source, is_default=True, rule=UNTIL_KNOWN)
        for row in found
        if row.rule == FIRST_TIME and isinstance(row.source, FunctionState) and row.source.function.once
    ]
    return (*waits, *found)


def reached_from(starts: Iterable[State[Any]], rows: Iterable[Row[Any]]) -> set[str]:
    """Return the names of these states and of all states that can be reached from them."""
    ways: dict[str, list[str]] = {}
    for row in rows:
        ways.setdefault(row.source.name, []).append(row.to.name)
    found, waiting = set[str](), [state.name for state in starts]
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += ways.get(name, ())
    return found


def cancelled(to: State[D], *, do: Action[D, Failure] = None) -> Row[D]:
    """Return a row that handles a cancellation in every state without such a row; see `LiveState.cancelled`.

    A run that is already in the target or in a later state stays there, so that a compensation does not begin again.

    Args:
        to: The state that follows.
        do: The action, which receives the data and a `Failure` whose detail is the text of the cancellation.

    Examples:
        >>> @wait(bool)
        ... def review(n: int) -> str:
        ...     return "Well?"
        >>> @execute
        ... def undo(n: int) -> int:
        ...     return 0
        >>> rows = [review.done(end("over")), cancelled(undo), undo.done(end("undone"), do=lambda n, zero: zero)]
        >>> flow = Flow("trip", int, start=review, rows=rows)
        >>> try:
        ...     flow.call(1)
        ... except FlowSuspended as waiting:
        ...     waiting.run.cancel("he is ill")
        ...     print(flow.run(waiting.run).state)
        undone
    """
    return Row(EVERY, "cancelled", to, None, do)


def expired(to: State[D], *, do: Action[D, Failure] = None) -> Row[D]:
    """Return a row that handles the flow's deadline in every state without such a row; see `cancelled`.

    Examples:
        >>> @wait(bool)
        ... def review(n: int) -> str:
        ...     return "Well?"
        >>> rows = [review.done(end("over")), expired(end("late"))]
        >>> Flow("trip", int, start=review, rows=rows, limits=FlowLimits(deadline_s=0)).call(1).state
        'late'
    """
    return Row(EVERY, "expired", to, None, do)


# Rows that several states share


class AnyState(Generic[D]):
    """A group of states.  Each method returns one row for each of them."""

    def __init__(self, *states: LiveState[D, Any]) -> None:
        self.states = states

    def __repr__(self) -> str:
        return f"any_state({', '.join([state.name for state in self.states])})"

    def done(
        self, to: State[D], *, of: Any = ANY, when: Guard[D, Any] = None, do: Action[D, Any] = None
    ) -> tuple[Row[D], ...]:
        """Return one row per state, for its value.  Type checkers do not check that the values have the same type."""
        return self._rows("done", to, of=of, when=when, do=do)

    def failed(
        self, to: State[D], *, when: Guard[D, Failure] = None, do: Action[D, Failure] = None
    ) -> tuple[Row[D], ...]:
        """Return one row per state, for its `Failure`."""
        return self._rows("failed", to, when=when, do=do)

    def elapsed(self, to: State[D], *, when: Guard[D, None] = None, do: Action[D, None] = None) -> tuple[Row[D], ...]:
        """Return one row per state, for the end of its time."""
        return self._rows("elapsed", to, when=when, do=do)

    def expired(self, to: State[D], *, do: Action[D, Failure] = None) -> tuple[Row[D], ...]:
        """Return one row per state, for the deadline of the flow."""
        return self._rows("expired", to, do=do)

    def cancelled(self, to: State[D], *, do: Action[D, Failure] = None) -> tuple[Row[D], ...]:
        """Return one row per state, for a cancellation of the run."""
        return self._rows("cancelled", to, do=do)

    def _rows(self, word: str, to: State[D], **options: Any) -> tuple[Row[D], ...]:
        return tuple([getattr(state, word)(to, **options) for state in self.states])


def any_state(*states: LiveState[D, Any]) -> AnyState[D]:
    """Return an object that makes rows for several states at once.

        rows=[
            *any_state(triage, research, drafting).failed(apologising, do=keep_reason),
            ...
        ]

    Its methods ``done``, ``failed``, ``elapsed``, ``expired`` and ``cancelled`` return one row for each state, in the
    order given.  Rows are tried from the top, so put a guarded row of a single state before these rows.

    Args:
        states: States that wait.

    Raises:
        FlowError: If no state is given, or if an argument is an end or is not a state.
        AttributeError: Raised by a method of the object if a state cannot make the row.  The message names the state.

    Examples:
        >>> @execute
        ... def book(n: int) -> int:
        ...     return n
        >>> @execute
        ... def pay(n: int) -> int:
        ...     return n
        >>> rows = [book.done(pay), pay.done(end("paid")), *any_state(book, pay).failed(end("lost"))]
        >>> Flow("trip", int, start=book, rows=rows).call(1).state
        'paid'
    """
    for state in states or (None,):
        require("any_state", state, isinstance(state, LiveState), "states with rows", FlowError)
    return AnyState(*states)


# The table


class TableEntry(NamedTuple):
    """A row, together with one of its triggers."""

    event: str  # the trigger, with its type
    source: str
    to: str  # equal to the source if the step stays there
    row: Row[Any] | None  # None for a step that every flow has, such as its start

    @property
    def guard(self) -> str:
        """The guard's name, or an empty string if there is no guard."""
        if self.row is None:
            return ""
        return self.row.rule if self.row.guard is None else self.row.guard.__name__

    @property
    def is_default(self) -> bool:
        """Whether the flow added the row."""
        return self.row is None or self.row.is_default


def with_defaults(
    rows: Sequence[Row[Any]], live: Sequence[LiveState[Any, Any]], has_deadline: bool
) -> tuple[Row[Any], ...]:
    """Return the rows, followed by a default row for each trigger that the user's rows do not handle in every case."""
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
    """Return the types, or enum members, that a row takes."""
    return (row.case,) if row.case is not ANY else cases_at(row.source, row.trigger)


def cases_at(state: State[Any], trigger: str) -> tuple[Any, ...]:
    """Return the types, or enum members, that the rows for a trigger distinguish."""
    return state.answer_types.cases if trigger == "done" and isinstance(state, LiveState) else (ANY,)


def is_covered(row: Row[Any], earlier: Iterable[Row[Any]]) -> bool:
    """Return whether one of the earlier rows for the same case takes everything that a row could take."""
    return any(before.guard in (None, row.guard) and before.rule in ("", row.rule) for before in earlier)


def entries_of(flow: FlowDefinition[Any]) -> Iterator[TableEntry]:
    """Yield an entry for each trigger of each row that can take it, in the order in which rows are tried."""
    yield TableEntry("begun", SEEDED, flow.start.name, None)
    yield TableEntry("cancelled", SEEDED, CANCELLED.name, None)
    tried: dict[tuple[str, str], list[Row[Any]]] = {}
    for row in flow.table:
        for case in cases_of(row):
            event = event_name(row.trigger, case)
            earlier = tried.setdefault((row.source.name, event), [])
            if not is_covered(row, earlier):
                earlier.append(row)
                yield TableEntry(event, row.source.name, row.to.name, row)
    for state in flow.live:
        yield TableEntry(EDITED, state.name, state.name, None)
        if flow.early:
            yield TableEntry(KEPT, state.name, state.name, None)
        if isinstance(state, FunctionState) and state.function.once:
            for note in NOTES:
                yield TableEntry(note, state.name, state.name, None)


def states_enum(flow: FlowDefinition[Any]) -> type[StrEnum]:
    """Return the enum of the states of a flow."""
    make: Any = StrEnum
    try:
        made: type[StrEnum] = make("States", {name: name for name in (SEEDED, *flow.states)})
    except ValueError as error:
        raise FlowError(f"flow {flow.name!r}: {error}; rename the state") from None
    return made


def machine_for(flow: FlowDefinition[Any]) -> Any:
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
        if held is None or isawaitable(held) or (held and isinstance(held, str)):  # even "no" would be true
            what = f"flow {run.flow.name!r}: guard of the row {row!r}"
            raise FlowError(f"{what}: expected True or False, got {safe_repr(held)}")
        return bool(held)

    return guard


def _rule(row: Row[Any]) -> Any:
    def guard(record: Any, answer: Any, run: Any) -> bool:
        return bool(run.rule_for(record, row.trigger) == row.rule)

    guard.__name__ = row.rule
    return guard


def _action(row: Row[Any] | None) -> Any:
    user = None if row is None else row.action

    def taken(record: Any, answer: Any, run: Any) -> Any:
        if user is not None:
            record = record.changed(data=run.checked_data(user(record.data, answer), record.data, row))
        if row is None or not row.rule:
            return record
        waits = (row.trigger, answer.detail) if row.rule == UNTIL_KNOWN else None
        reacted = (*record.reacted_to, row.trigger)
        return record.changed(reacted_to=reacted, reaction=record.reaction or waits)

    taken.__name__ = getattr(user, "__name__", repr(user)) if user is not None else ""  # for `explain`
    return taken

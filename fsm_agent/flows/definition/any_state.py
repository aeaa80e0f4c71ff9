"""Rows that several states share."""

from __future__ import annotations

from typing import Any, Generic

from fsm_agent.flows.definition.states import Action, D, End, Guard, LiveState, Row, State
from fsm_agent.flows.errors import FlowError
from fsm_agent.flows.values import ANY, Failure
from fsm_agent.validation import shown


class AnyState(Generic[D]):
    """Several states: its methods are those of each of them, and return the rows of all.

    Args:
        states: The states.
    """

    def __init__(self, *states: LiveState[D, Any]) -> None:
        self.states = states

    def __repr__(self) -> str:
        return f"any_state({', '.join([state.name for state in self.states])})"

    def done(
        self, to: State[D], *, of: Any = ANY, when: Guard[D, Any] = None, do: Action[D, Any] = None
    ) -> tuple[Row[D], ...]:
        """Return a row of each state for what it gives; type checkers do not compare what the states give."""
        return self._rows("done", to, of=of, when=when, do=do)

    def failed(
        self, to: State[D], *, when: Guard[D, Failure] = None, do: Action[D, Failure] = None
    ) -> tuple[Row[D], ...]:
        """Return a row of each state for its `Failure`."""
        return self._rows("failed", to, when=when, do=do)

    def elapsed(self, to: State[D], *, do: Action[D, None] = None) -> tuple[Row[D], ...]:
        """Return a row of each state for the end of its time."""
        return self._rows("elapsed", to, do=do)

    def expired(self, to: State[D], *, do: Action[D, Failure] = None) -> tuple[Row[D], ...]:
        """Return a row of each state for the deadline of the flow."""
        return self._rows("expired", to, do=do)

    def cancelled(self, to: State[D], *, do: Action[D, Failure] = None) -> tuple[Row[D], ...]:
        """Return a row of each state for a cancellation of the run."""
        return self._rows("cancelled", to, do=do)

    def _rows(self, word: str, to: State[D], **options: Any) -> tuple[Row[D], ...]:
        return tuple([getattr(state, word)(to, **options) for state in self.states])


def any_state(*states: LiveState[D, Any]) -> AnyState[D]:
    """Write rows that several states share once.

        rows=[
            *any_state(triage, research, drafting).failed(apologising, do=keep_reason),
            ...
        ]

    It has the methods ``done``, ``failed``, ``elapsed``, ``expired`` and ``cancelled``, and each returns a row of every
    state, in the order given.  Rows are tried from the top: a row of one state's own, with a guard, stands before them.

    Args:
        states: States that wait, each once.

    Raises:
        FlowError: There is no state, one of them is no state or an end, or is given twice.
        AttributeError: By a method: it names the first state that makes no such row.

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
    if not states:
        raise FlowError("any_state: expected one state or more, got none; pass the states that share the rows")
    for number, state in enumerate(states):
        if isinstance(state, End):
            raise FlowError(f"any_state: expected states with rows, got the end {state.name!r}; leave it out")
        if not isinstance(state, LiveState):
            raise FlowError(f"any_state: expected states with rows, got {shown(state)}")
        if any(state is other for other in states[:number]):
            raise FlowError(f"any_state: expected each state once, got {state.name!r} twice; leave one out")
    return AnyState(*states)

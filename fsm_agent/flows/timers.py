"""The times of states: whether they are valid, and when they end.

When a run enters a state, `fsm_agent.flows.run` sets the timer to the moment from `due_at_s`.
"""

from __future__ import annotations

import inspect
from datetime import datetime
from typing import Any

from fsm_agent._internal.structs import is_amount, is_finite
from fsm_agent._internal.text import in_seconds
from fsm_agent.flows.errors import FlowError
from fsm_agent.flows.states import LiveState, PauseState
from fsm_agent.validation import safe_repr

_SECONDS = "a number of seconds above 0, a timedelta, or a function of the data that returns either"
_MOMENT = "a datetime with a time zone, Unix seconds, or a function of the data that returns either"


def check_time(here: str, state: LiveState[Any, Any]) -> None:
    """Refuse a time that no run could use."""
    within_s, until, seconds = state.within_s, state.until, _seconds_option(state)
    if within_s is not None and until is not None:
        raise FlowError(f"{here}: expected {seconds} or until, got both; leave one out")
    if isinstance(state, PauseState) and not state.is_timed:
        raise FlowError(f"{here}: expected {seconds} ({_SECONDS}) or until, got neither")
    for name, time, right in ((seconds, within_s, _SECONDS), ("until", until, _MOMENT)):
        if inspect.iscoroutinefunction(time):
            right = "a plain, pure function"
            raise FlowError(f"{here}: {name}: expected {right}, got the coroutine function {safe_repr(time)}")
        is_right = callable(time) or (moment_s(time) is not None if name == "until" else is_finite(time) and time > 0)
        if time is not None and not is_right:
            raise FlowError(f"{here}: {name}: expected {right}, got {safe_repr(time)}")
    if not isinstance(state.restart, bool):
        raise FlowError(f"{here}: restart: expected True or False, got {safe_repr(state.restart)}")
    if not (state.restart or state.is_timed):
        raise FlowError(f"{here}: expected a time limit with restart=False, got none; pass within_s=… or until=…")


def _seconds_option(state: LiveState[Any, Any]) -> str:
    return "delay_s" if isinstance(state, PauseState) else "within_s"


def moment_s(moment: Any) -> float | None:
    """Return a moment as Unix time, or None if it is not a valid moment."""
    if isinstance(moment, datetime):
        return None if moment.utcoffset() is None else moment.timestamp()
    return float(moment) if is_amount(moment) else None


def due_at_s(where: str, state: LiveState[Any, Any], data: Any, at_s: float) -> float | None:
    """Return the Unix time at which a state's time ends, or None without a limit."""
    is_moment = state.until is not None
    given = state.until if is_moment else state.within_s
    time = in_seconds(given(data)) if callable(given) else given
    if time is None and not isinstance(state, PauseState):
        return None
    due = moment_s(time) if is_moment else at_s + time if is_amount(time) else None
    if due is not None:
        return due
    name = "until" if is_moment else _seconds_option(state)
    right = (
        "a datetime with a time zone, or Unix seconds" if is_moment else "a number of seconds from 0 on, or a timedelta"
    )
    if not isinstance(state, PauseState):
        right += ", or None"
    by = f", which {getattr(given, '__name__', 'its function')} returned" if callable(given) else ""
    raise FlowError(f"{where}: {name} of {state.name}: expected {right}, got {safe_repr(time)}{by}")

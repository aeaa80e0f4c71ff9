"""The options that states share, for type checkers; these lists are the only ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar

from fsm_agent.functions.context import Context
from fsm_agent.functions.policy import Default, Retries

D = TypeVar("D")  # the data of a flow
PARALLEL = 32  # members of `each` that run at once
Seconds: TypeAlias = float | timedelta | Callable[[D], float | timedelta | None] | None
Moment: TypeAlias = datetime | float | Callable[[D], datetime | float | None] | None


class TimeOptions(TypedDict, Generic[D], total=False):
    """The options of every state that waits.

    Attributes:
        within_s: How many seconds it may take, a timedelta, or a pure function of the data that returns either; None:
            as long as it takes.  The time is fixed when the state is entered.
        until: In place of ``within_s``, the moment until which it may take: a datetime with a time zone, Unix seconds,
            or a pure function of the data that returns either; None: as long as it takes.  A moment that has passed is
            due at once.
        restart: Whether its time starts anew whenever it is entered again; False: the first moment at which it was to
            be over stands for the whole run.
    """

    within_s: Seconds[D]
    until: Moment[D]
    restart: bool


class StateOptions(TimeOptions[D], Generic[D], total=False):
    """The options of a state that a function is decorated with.

    Attributes:
        name: Its name; None: that of the function.
    """

    name: str | None


class WaitOptions(StateOptions[D], Generic[D], total=False):
    """The options of a state that waits for an answer.

    Attributes:
        early: Keep an answer that comes before the state is entered, and take it then, the oldest first; each is taken
            once.  `FlowLimits.inbox` says how many a run keeps.
    """

    early: bool


class ExecuteOptions(StateOptions[D], Generic[D], total=False):
    """The options of a function that acts: those of its state, and of its `Policy`."""

    once: bool
    reconcile: Callable[[Context[Any]], Any] | None
    timeout_s: float | None
    retries: Retries | None
    on_error: Default | None
    blocking: bool


TIME_OPTIONS, STATE_OPTIONS, WAIT_OPTIONS, EXECUTE_OPTIONS = (
    tuple(sorted(kind.__optional_keys__)) for kind in (TimeOptions, StateOptions, WaitOptions, ExecuteOptions)
)

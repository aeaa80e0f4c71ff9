"""The options that states share, for type checkers; these lists are the only ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar

from fsm_agent.functions.context import Context
from fsm_agent.functions.policy import Default, Retries

D = TypeVar("D")  # the data of a flow
PARALLEL = 32  # members of `each` that run at once
Seconds: TypeAlias = float | Callable[[D], float | None] | None


class TimeOptions(TypedDict, Generic[D], total=False):
    """The options of every state that waits.

    Attributes:
        within_s: How many seconds it may take; None: as long as it takes.
    """

    within_s: Seconds[D]


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

"""The lines of the log and their levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.lazy_import import deferred, first_use
from fsm_agent.lifecycle.record import FAILURES
from fsm_agent.messages.event import Inside
from fsm_agent.runtime.log_lines import step_line, traceback_text

if TYPE_CHECKING:
    import logging
else:
    logging = deferred("logging")

_LAST_ROUND = "at_round_limit"  # the guard of rows after which the model has to answer
LOG: logging.Logger = first_use("the logger", lambda: logging.getLogger("fsm_agent"))


def is_debugged() -> bool:
    """Return whether every step is to be logged."""
    return LOG.isEnabledFor(logging.DEBUG)


def any_notable(steps: Sequence[Any]) -> bool:
    """Return whether one of these steps may be logged at WARNING; `log_steps` decides."""
    for event in steps:
        step: Any = event.event if type(event) is Inside else event
        if step.trigger in FAILURES or step.to == "Failed" or step.guard == _LAST_ROUND:
            return True
    return False


def log_steps(record: Any, steps: Sequence[Any], outcome: Any) -> None:
    """Log steps: at WARNING those in which a request or a process failed or the rounds ran out, others at DEBUG.

    Args:
        record: The record of the process after them.
        steps: Each is `Stepped`, or `Inside` with that of a child.
        outcome: The outcome that led to them.
    """
    is_every = is_debugged()
    for event in steps:
        step: Any = event.event if type(event) is Inside else event
        has_failed = step.trigger in FAILURES or (step.to == "Failed" and step.trigger != "cancelled")
        if has_failed or step.guard == _LAST_ROUND:
            LOG.warning("%s", step_line(record, event, outcome))
        elif is_every:
            LOG.debug("%s", step_line(record, event, outcome))


def log_error(level: int, line: str, error: Exception) -> None:
    """Log the traceback of an exception of the user's code, as text."""
    if LOG.isEnabledFor(level):
        file, number, name, _ = LOG.findCaller()
        record = LOG.makeRecord(LOG.name, level, file, number, line, (), None, name)
        record.exc_text = traceback_text(error)
        LOG.handle(record)

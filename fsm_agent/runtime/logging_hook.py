"""`LoggingHook`: the events of one agent's calls in a log of the user's choice."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fsm_agent.errors import hint
from fsm_agent.messages.events import (
    Done,
    Event,
    FunctionEnded,
    FunctionStarted,
    HistoryChanged,
    Inside,
    LoopDetected,
    RequestStarted,
    Stepped,
    Suspended,
    Where,
)
from fsm_agent.runtime.log import words
from fsm_agent.validation import check

LEVELS: Mapping[str, int] = {
    "RequestStarted": logging.DEBUG,
    "Stepped": logging.DEBUG,
    "HistoryChanged": logging.DEBUG,
    "FunctionStarted": logging.INFO,
    "FunctionEnded": logging.INFO,
    "LoopDetected": logging.WARNING,
    "Suspended": logging.INFO,
    "Done": logging.INFO,
}
_WHERE = ("call", "run", "agent", "path")  # what is logged of a `Where`
_LOG = logging.getLogger("fsm_agent.hooks")


class LoggingHook:
    """A hook that logs events with `logging`: a line each, and the facts in ``extra`` as ``record.fsm_agent``.

    The log of ``fsm_agent`` has the steps of all calls; this one is of one agent, under a name and at levels of your
    own.  A line begins with the id of the call; ``extra`` has its run, agent and path, too.  Likely keys are masked; no
    line contains the dialog, arguments or results.  Errors of the hook are logged, and not raised.

    Args:
        logger: The logger, or its name.
        levels: Levels of events by their names, such as ``{"Stepped": logging.INFO}``; None: the event is not logged.

    Raises:
        UsageError: An event does not exist, or a level is not a number.

    Examples:
        >>> Agent(Script("Hi."), hooks=[LoggingHook("shop.calls")]).call("Hello").output
        'Hi.'
    """

    def __init__(
        self, logger: str | logging.Logger = "fsm_agent.calls", *, levels: Mapping[str, int | None] | None = None
    ) -> None:
        is_logger = isinstance(logger, str | logging.Logger)
        check("logger", logger, is_logger, "a logger or its name")
        for name, level in (levels or {}).items():
            check(f"levels[{name!r}]", level, name in LEVELS, f"one of {', '.join(LEVELS)}{hint(name, LEVELS)}")
            is_level = level is None or (isinstance(level, int) and not isinstance(level, bool))
            check(f"levels[{name!r}]", level, is_level, "a level such as logging.INFO, or None")
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._levels: dict[str, int | None] = {**LEVELS, **(levels or {})}

    def of_call(self, where: Where) -> _LoggedCall:
        """Return the hook that logs the events of a call, with its id."""
        return _LoggedCall(self, where)

    def on_event(self, event: Event) -> None:
        """Log an event of a call that is not known, such as a sink is given."""
        self.log(event, Where(""))

    def log(self, event: Event, where: Where) -> None:
        """Log an event of a call."""
        try:
            self._log(event, where)
        except Exception:
            _LOG.exception("a %s could not be logged", type(event).__name__)

    def _log(self, event: Any, where: Where) -> None:
        if isinstance(event, Inside):
            self._log(event.event, where if where.path else where.changed(path=event.path))
            return
        name = type(event).__name__
        level = self._levels.get(name)
        if level is None or not self._logger.isEnabledFor(level):
            return
        facts = {key: words(value) if isinstance(value, str) else value for key, value in _facts(event).items()}
        line = words(" ".join([name, *[f"{key}={value}" for key, value in facts.items() if value not in (None, "")]]))
        about = {field: value for field in _WHERE if (value := getattr(where, field))}
        whose = f"call {words(where.call, 100)}: " if where.call else f"{words(where.path)}: " if where.path else ""
        self._logger.log(level, "%s%s", whose, line, extra={"fsm_agent": {"event": name, **about, **facts}})


class _LoggedCall:
    """The hook of one call."""

    def __init__(self, hook: LoggingHook, where: Where) -> None:
        self._hook = hook
        self._where = where

    def on_event(self, event: Event) -> None:
        self._hook.log(event, self._where)


def _facts(event: Any) -> dict[str, Any]:
    match event:
        case Stepped():
            return {"source": str(event.source), "to": str(event.to), "trigger": event.trigger, "detail": event.detail}
        case HistoryChanged():
            return {"added": str(event.added), "removed": str(event.removed)}
        case FunctionStarted():
            return {"function": event.name, "id": event.id}
        case FunctionEnded():
            return {
                "function": event.name,
                "id": event.id,
                "is_error": event.is_error,
                "duration_s": round(event.duration_s, 3),
            }
        case Suspended():
            return {"keys": ", ".join(event.keys)}
        case Done():
            record = event.result.call.record
            reason = str(record.ending.reason) if record.ending else None
            return {"state": str(record.state), "reason": reason, "tokens": record.usage.total_tokens}
        case RequestStarted() | LoopDetected():
            return {}
    return {}

"""`LoggingHook`: the events of one agent's calls in a log of the user's choice."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fsm_agent.errors import hint
from fsm_agent.messages.event import (
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
)
from fsm_agent.mistakes import check
from fsm_agent.runtime.log_lines import words

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
_LOG = logging.getLogger("fsm_agent.hooks")


class LoggingHook:
    """A hook that logs events with `logging`: a line each, and the facts in ``extra`` as ``record.fsm_agent``.

    The log of ``fsm_agent`` has the steps of all calls; this one is of one agent, under a name and at levels of your
    own.  Likely keys are masked; no line contains the dialog, arguments or results.  Errors of the hook are logged, and
    not raised.

    Args:
        logger: The logger, or its name.
        levels: Levels of events by their names, such as ``{"Stepped": logging.INFO}``; None: the event is not logged.

    Raises:
        UsageError: An event does not exist, or a level is not a number.
    """

    def __init__(
        self, logger: str | logging.Logger = "fsm_agent.calls", *, levels: Mapping[str, int | None] | None = None
    ) -> None:
        is_logger = isinstance(logger, str | logging.Logger)
        check("logger", logger, is_logger, "a logger or its name")
        for name, level in (levels or {}).items():
            check(f"levels[{name!r}]", level, name in LEVELS, f"one of {', '.join(LEVELS)}{hint(name, LEVELS)}")
            is_level = level is None or (isinstance(level, int) and not isinstance(level, bool))
            check(f"levels[{name!r}]", level, is_level, "logging.INFO, say, or None,")
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._levels: dict[str, int | None] = {**LEVELS, **(levels or {})}

    def on_event(self, event: Event) -> None:
        """Log an event."""
        try:
            self._log(event, "")
        except Exception:
            _LOG.exception("a %s could not be logged", type(event).__name__)

    def _log(self, event: Any, path: str) -> None:
        if isinstance(event, Inside):
            self._log(event.event, event.path)
            return
        name = type(event).__name__
        level = self._levels.get(name)
        if level is None or not self._logger.isEnabledFor(level):
            return
        facts = {key: words(value) if isinstance(value, str) else value for key, value in _facts(event).items()}
        line = words(" ".join([name, *[f"{key}={value}" for key, value in facts.items() if value not in (None, "")]]))
        extra = {"event": name, **({"path": path} if path else {}), **facts}
        self._logger.log(level, "%s%s", f"{words(path)}: " if path else "", line, extra={"fsm_agent": extra})


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

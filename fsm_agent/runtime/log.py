"""The log of steps, and the hook that writes it.

Each line is short and has no control characters, keys, dialog, arguments or results.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from fsm_agent._internal.masking import mask_keys
from fsm_agent._internal.text import cut, plain
from fsm_agent.call.outcomes import ModelFailed, Replied, Returned
from fsm_agent.call.process import join_path, subject_of
from fsm_agent.call.record import FAILURES, CallRecord
from fsm_agent.messages.events import (
    Done,
    Event,
    FunctionEnded,
    FunctionStarted,
    HistoryChanged,
    Inside,
    Stepped,
    Suspended,
    Where,
    unwrapped,
)

MAX_WORDS = 300  # characters of a detail
MAX_TRACEBACK = 10_000  # characters
MAX_FRAMES = 30  # innermost frames of a traceback
_SLACK = 1000  # characters read beyond the cut, to recognize a key that crosses it
_LAST_ROUND = "at_round_limit"  # the guard of rows after which the model has to answer
LOG = logging.getLogger("fsm_agent")


def is_debugged() -> bool:
    """Return whether every step is logged."""
    return LOG.isEnabledFor(logging.DEBUG)


def log_steps(record: Any, steps: Sequence[Any], outcome: Any, *, is_every: bool) -> None:
    """Log the steps that an outcome led to: failures and the last round at WARNING, all others at DEBUG.

    ``record`` is the process's record after the steps.
    """
    for event in steps:
        step: Any = event.event if type(event) is Inside else event  # as `unwrapped`, without a call for every step
        has_failed = step.trigger in FAILURES or (step.to == "Failed" and step.trigger != "cancelled")
        if has_failed or step.guard == _LAST_ROUND:
            LOG.warning("%s", step_line(record, event, outcome))
        elif is_every:
            LOG.debug("%s", step_line(record, event, outcome))


def log_error(level: int, line: str, error: Exception) -> None:
    """Log an exception from the user's code, with its traceback as text."""
    if LOG.isEnabledFor(level):
        file, number, name, _ = LOG.findCaller()
        record = LOG.makeRecord(LOG.name, level, file, number, line, (), None, name)
        record.exc_text = traceback_text(error)
        LOG.handle(record)


def words(text: str, at_most: int = MAX_WORDS) -> str:
    """Return ``text`` as it may appear in a log line: masked, plain, on one line, and cut to ``at_most`` characters."""
    return cut(" ".join(_clean(text, at_most).split()), at_most)


def step_line(record: Any, event: Stepped | Inside, outcome: Any) -> str:
    """Return the log line for a step.  ``record`` is the process's record after the step."""
    path, step = unwrapped(event)
    name = join_path(getattr(record, "id", ""), path)
    line = f"{step.source} -> {step.to}: {step.trigger}"
    line += f" [{step.guard}]" if step.guard else ""
    line += f" ({step.key})" if step.key else ""
    if details := [text for text in (_subject(record, event, outcome), _detail(step, outcome)) if text]:
        line += f": {'; '.join(details)}"
    if step.usage is not None and step.usage.total_tokens:
        line += f"; {step.usage.input_tokens or 0} + {step.usage.output_tokens or 0} tokens"
    return f"call {words(name, 100) or '?'}: {line}"


def _detail(step: Stepped, outcome: Any) -> str:
    if step.trigger not in FAILURES or not isinstance(outcome, ModelFailed):
        return words(step.detail)
    report = outcome.error
    again = f"; again in {outcome.delay_s:g} s" if step.to == "Backoff" else ""
    return words(f"{report.kind}: {report.exception()}") + again


def _subject(record: Any, event: Stepped | Inside, outcome: Any) -> str:
    if isinstance(outcome, Replied):
        return words(", ".join([f.name for f in outcome.reply.message.function_calls]))
    if not isinstance(record, CallRecord) or not isinstance(event, Stepped):
        return ""
    id = subject_of(event.key)
    names = [f.name for f in (*record.round, *record.newest_round) if f.id == id]
    failed = " failed" if isinstance(outcome, Returned) and outcome.is_error else ""
    return f"{words(names[0])}{failed}" if names else ""


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an exception, starting with the first frame of the user's code."""
    start = error.__traceback__
    while start is not None and str(start.tb_frame.f_globals.get("__name__", "")).startswith("fsm_agent."):
        start = start.tb_next
    try:
        shown = traceback.TracebackException(type(error), error, start, limit=-MAX_FRAMES, compact=True)
        has_frames = start or shown.__cause__ or shown.__context__
        text = "".join(shown.format() if has_frames else shown.format_exception_only())
    except Exception:  # its class is user code too
        text = type(error).__name__
    return _clean(text, MAX_TRACEBACK)[:MAX_TRACEBACK].rstrip()


def _clean(text: str, at_most: int) -> str:
    return plain(mask_keys(text[: at_most + _SLACK]))


_LEVELS: Mapping[str, int] = {
    "RequestStarted": logging.DEBUG,
    "Stepped": logging.DEBUG,
    "HistoryChanged": logging.DEBUG,
    "FunctionStarted": logging.INFO,
    "FunctionEnded": logging.INFO,
    "LoopDetected": logging.WARNING,
    "Suspended": logging.INFO,
    "Done": logging.INFO,
}

_WHERE = ("call", "run", "agent", "path")  # the fields of a `Where` that are logged
_LOG = logging.getLogger("fsm_agent.hooks")


class LoggingHook:
    """A hook that logs events with `logging`: one line per event, with the details as ``record.fsm_agent``.

    The logger ``fsm_agent`` gets the steps of all calls; this hook logs one agent, with your own logger.  Requests,
    steps and changes to the dialog are logged at DEBUG, loops at WARNING, and everything else at INFO.
    Each line begins with the call's id; the details also name its run, agent and path.  Anything that looks like a key
    is masked, and no line contains the dialog, arguments or results.  Errors in the hook are logged, not raised.

    Args:
        logger: The logger, or its name.

    Examples:
        >>> Agent(Script("Hi."), hooks=[LoggingHook("shop.calls")]).call("Hello").output
        'Hi.'
    """

    def __init__(self, logger: str | logging.Logger = "fsm_agent.calls") -> None:
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._where = Where("")

    def of_call(self, where: Where) -> LoggingHook:
        """Return the hook that logs one call under its id."""
        hook = copy(self)
        hook._where = where
        return hook

    def on_event(self, event: Event) -> None:
        """Log an event.  If the hook is used as a sink, the event's call is unknown."""
        try:
            self._log(event)
        except Exception:
            _LOG.exception("a %s could not be logged", type(event).__name__)

    def _log(self, event: Any) -> None:
        path, event = unwrapped(event)
        where = self._where if self._where.path or not path else self._where.changed(path=path)
        name = type(event).__name__
        level = _LEVELS.get(name)
        if level is None or not self._logger.isEnabledFor(level):
            return
        facts = {key: words(value) if isinstance(value, str) else value for key, value in _facts(event).items()}
        line = words(" ".join([name, *[f"{key}={value}" for key, value in facts.items() if value not in (None, "")]]))
        about = {field: value for field in _WHERE if (value := getattr(where, field))}
        whose = f"call {words(where.call, 100)}: " if where.call else f"{words(where.path)}: " if where.path else ""
        self._logger.log(level, "%s%s", whose, line, extra={"fsm_agent": {"event": name, **about, **facts}})


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
            record = event.result.record
            reason = str(record.ending.reason) if record.ending else None
            return {"state": str(record.state), "reason": reason, "tokens": event.result.usage.total_tokens}
    return {}

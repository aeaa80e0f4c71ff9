"""Probes, which measure what drivers do.

A hook cannot measure an effect, because it is called in the driver's thread, before the effect begins.  A probe is
called in the context that performs the effect, and again when there is an outcome.  Its exceptions are logged and have
no other effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from fsm_agent.errors import UsageError
from fsm_agent.messages.events import Event
from fsm_agent.runtime.log import LOG

if TYPE_CHECKING:
    from fsm_agent.call.process import Process
    from fsm_agent.runtime.activity import Activity
    from fsm_agent.runtime.drive_loop import Driver
    from fsm_agent.runtime.tracing import DriveSpans, EffectSpan, SpanProbe


ABANDONED = object()  # the outcome of an effect that was dropped
TIMED_OUT = object()  # the outcome of an effect that exceeded its time limit


installed: SpanProbe | None = None
_failures: set[tuple[str, str]] = set()  # logged failures: the method and the exception's name


def install(probe: SpanProbe) -> None:
    """Measure all drives that begin from now on.

    Raises:
        UsageError: If a probe is installed already.
    """
    global installed
    if installed is not None:
        raise UsageError(
            "instrument(): expected one recorder of spans, got a second; stop() the first, or use that one"
        )
    installed = probe


def uninstall(probe: SpanProbe) -> None:
    """Stop measuring new drives, if this probe is the installed one."""
    global installed
    if installed is probe:
        installed = None


def traceparent_of(process: Process, name: str) -> str:
    """Return the traceparent for a run's header, or "" if nothing is traced."""
    return "" if installed is None else _try(installed.creating, process, name) or ""


def traceparent_here() -> str:
    """Return the traceparent for the header of a run that others will drive, or "" if this code is not traced."""
    return "" if installed is None else _try(installed.here) or ""


def measured(driver: Driver) -> MeasuredDrive | None:
    """Return the measurements of a drive, or None if it is not measured."""
    probe = None if installed is None else _try(installed.drive, driver)
    return None if probe is None else MeasuredDrive(probe)


class MeasuredDrive:
    """The measurements of one drive.  Exceptions from the probe do not reach the driver."""

    def __init__(self, probe: DriveSpans) -> None:
        self._probe = probe
        self._open: dict[Activity, EffectSpan] = {}  # the first caller to end one takes it, in any thread

    def begin(self, activity: Activity) -> None:
        if (measurement := _try(self._probe.performing, activity)) is not None:
            self._open[activity] = measurement

    @contextmanager
    def inside(self, activity: Activity) -> Iterator[None]:
        """Make the activity's measurement the current one inside the block."""
        measurement = self._open.get(activity)
        token = None if measurement is None else _try(measurement.enter)
        try:
            yield
        finally:
            if measurement is not None and token is not None:
                _try(measurement.leave, token)

    def end(self, activity: Activity, outcome: Any = ABANDONED) -> None:
        """End the measurement of an activity, with its outcome or a finished future."""
        measurement = self._open.pop(activity, None)
        if measurement is not None:
            _try(measurement.end, outcome if activity.handle is None else _settled(outcome))

    @contextmanager
    def answering(self, key: str, outcome: Any) -> Iterator[None]:
        """Measure a posted answer while the code in the block takes or refuses it."""
        measurement, raised = _try(self._probe.answering, key, outcome), None
        try:
            yield
        except BaseException as error:
            raised = error
            raise
        finally:
            if measurement is not None:
                _try(measurement.end, raised)

    def stepped(self, steps: Sequence[Event]) -> None:
        _try(self._probe.stepped, steps)

    def close(self, raised: object) -> None:
        """End all measurements.  Outcomes that arrive later, from abandoned threads, are not measured."""
        with suppress(KeyError):
            while True:
                _try(self._open.popitem()[1].end, raised or ABANDONED)
        _try(self._probe.close, raised)
        del self._probe  # breaks a cycle: the probe references the driver, and the driver this object


def _settled(future: Any) -> Any:
    if not hasattr(future, "add_done_callback"):
        return future
    return ABANDONED if future.cancelled() else future.exception() or future.result()


def _try(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception as error:
        _report(call, error)
        return None


def _report(call: Any, error: Exception) -> None:
    """Log a probe's failure once per kind, because a broken exporter fails on every span.

    The text of the exception is left out, because it may quote private data.
    """
    failure = (str(call.__qualname__), type(error).__name__)
    if failure not in _failures:
        _failures.add(failure)
        LOG.warning("spans may be missing: %s raised %s; the run continues", *failure)

"""Probes: measure what drivers do, where it is done.

A hook cannot measure an effect: it is called in the thread of the driver, before the effect begins.  A probe hears of
the beginning in the context in which the effect is performed, and of the end as soon as there is an outcome.  An
exception of a probe is logged, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from fsm_agent.errors import UsageError
from fsm_agent.messages.events import Event
from fsm_agent.runtime.log import LOG

if TYPE_CHECKING:
    from fsm_agent.call.process import Process
    from fsm_agent.runtime.activity import Activity
    from fsm_agent.runtime.driver import Driver


ABANDONED = object()  # stands for the outcome of an effect that was dropped
TIMED_OUT = object()  # of one that was dropped as it took longer than it may


class Measurement(Protocol):
    """The measurement of one effect."""

    def enter(self) -> Any:
        """Make it the place in which the running code is; return a token."""

    def leave(self, token: Any) -> None:
        """Undo `enter`, in the same context."""

    def end(self, outcome: Any, /) -> None:
        """Note the end, in any thread, once.

        Args:
            outcome: The outcome, None without an outcome, an exception, `ABANDONED`, or `TIMED_OUT`.
        """


class DriveProbe(Protocol):
    """The probe of one drive; all methods are called in the driver's thread."""

    def performing(self, activity: Activity) -> Measurement | None:
        """Note that an effect is about to be performed; return None if it is not measured."""

    def answering(self, key: str, outcome: Any) -> Measurement | None:
        """Note that the process is about to take a posted outcome; return None if it is not measured."""

    def stepped(self, steps: Sequence[Event]) -> None:
        """Note the steps of an advance: `Stepped`, or `Inside` with the step of a process inside."""

    def close(self, raised: object) -> None:
        """Note the end of the drive; ``raised`` is the exception that has ended it, or None."""


class Probe(Protocol):
    """Measures all drives of the OS process; its methods are called from many threads."""

    def creating(self, process: Process, name: str) -> str:
        """Note that the run of a process is about to be stored.

        Args:
            process: The process.
            name: The name of its agent or flow.

        Returns:
            Its place in a trace, as a traceparent of W3C, which the header of the run keeps, or "".
        """

    def here(self) -> str:
        """Return the place in a trace of the running code, which leaves a run to others, as a traceparent."""

    def drive(self, driver: Driver) -> DriveProbe | None:
        """Note that a driver has claimed its process; return None if the drive is not measured."""


installed: Probe | None = None
_failures: set[tuple[str, str]] = set()  # that were logged: the method and the name of the exception


def install(probe: Probe) -> None:
    """Measure the drives that begin from now on.

    Raises:
        UsageError: If a probe is installed.
    """
    global installed
    if installed is not None:
        raise UsageError(
            "instrument(): expected one recorder of spans, got a second; stop() the first, or use that one"
        )
    installed = probe


def uninstall(probe: Probe) -> None:
    """Measure no drive that begins from now on, if this probe is the installed one."""
    global installed
    if installed is probe:
        installed = None


def traceparent_of(process: Process, name: str) -> str:
    """Return the traceparent for the header of a run, or "" if nothing is traced."""
    return "" if installed is None else _try(installed.creating, process, name) or ""


def traceparent_here() -> str:
    """Return the traceparent for the header of a run that others begin, or "" if nothing is traced here."""
    return "" if installed is None else _try(installed.here) or ""


def measured(driver: Driver) -> MeasuredDrive | None:
    """Return the measurements of a drive, or None if it is not measured."""
    probe = None if installed is None else _try(installed.drive, driver)
    return None if probe is None else MeasuredDrive(probe)


class MeasuredDrive:
    """The measurements of one drive, for its driver: nothing that the probe raises gets past it."""

    __slots__ = ("_open", "_probe")

    def __init__(self, probe: DriveProbe) -> None:
        self._probe = probe
        self._open: dict[Activity, Measurement] = {}  # the first to end one takes it, from any thread

    def begin(self, activity: Activity) -> None:
        """Begin to measure an activity."""
        if (measurement := _try(self._probe.performing, activity)) is not None:
            self._open[activity] = measurement

    def enter(self, activity: Activity) -> Any:
        """Make the measurement of an activity the present place; return what `leave` needs, in the same context."""
        measurement = self._open.get(activity)
        if measurement is None:
            return None
        try:
            return measurement, measurement.enter()
        except Exception as error:
            _report(measurement.enter, error)
            return None

    def leave(self, entered: Any) -> None:
        """Undo an `enter`."""
        if entered is not None:
            measurement, token = entered
            _try(measurement.leave, token)

    def end(self, activity: Activity, outcome: Any = ABANDONED) -> None:
        """End the measurement of an activity, if it is open, with its outcome, or with a future of it that is done."""
        measurement = self._open.pop(activity, None)
        if measurement is not None:
            _try(measurement.end, outcome if activity.handle is None else _settled(outcome))

    @contextmanager
    def answering(self, key: str, outcome: Any) -> Iterator[None]:
        """Measure an answer that was posted; inside the block, the process takes it or refuses it."""
        measurement = _try(self._probe.answering, key, outcome)
        try:
            yield
        except BaseException as error:
            if measurement is not None:
                _try(measurement.end, error)
            raise
        if measurement is not None:
            _try(measurement.end, None)

    def stepped(self, steps: Sequence[Event]) -> None:
        """Pass on the steps of an advance."""
        _try(self._probe.stepped, steps)

    def close(self, raised: object) -> None:
        """End all measurements.  Outcomes that come later, of threads that were left behind, are not measured."""
        with suppress(KeyError):
            while True:
                _try(self._open.popitem()[1].end, raised or ABANDONED)
        _try(self._probe.close, raised)
        del self._probe  # which knows the driver, and the driver knows this


def _settled(future: Any) -> Any:
    """Return the outcome or the exception of a future that is done; return any other value unchanged."""
    if not hasattr(future, "add_done_callback"):
        return future
    return ABANDONED if future.cancelled() else future.exception() or future.result()


def _try(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a method of a probe; return None if it raises."""
    try:
        return call(*arguments)
    except Exception as error:
        _report(call, error)
        return None


def _report(call: Any, error: Exception) -> None:
    """Log a failure of a probe, the first of its kind: a broken exporter fails at each span.

    Its text is left out, as it may quote what the probe was given.
    """
    failure = (str(call.__qualname__), type(error).__name__)
    if failure not in _failures:
        _failures.add(failure)
        LOG.warning("spans may be missing: %s raised %s; the run continues", *failure)

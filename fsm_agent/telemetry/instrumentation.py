"""``instrument()``: what is recorded, and with whose providers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from fsm_agent._internal import __version__
from fsm_agent.call import trace_names as names
from fsm_agent.call.call import AgentCall
from fsm_agent.errors import ConfigError
from fsm_agent.runtime import probes
from fsm_agent.validation import check

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanContext, TracerProvider

    from fsm_agent.call.process import Process
    from fsm_agent.runtime.reconciler import Reconciler
    from fsm_agent.telemetry.drive import Begun, DriveSpans

Facts: TypeAlias = dict[str, Any]

# Bounds of buckets, as the conventions advise.
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_COUNTS = tuple(4**n for n in range(14))
_DIMENSIONS = (names.OPERATION, names.PROVIDER, names.MODEL, names.RESPONSE_MODEL, names.TOOL)
_TOKEN_TYPES = (("input", names.INPUT_TOKENS), ("output", names.OUTPUT_TOKENS))


def instrument(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    content: bool = False,
) -> Instrumentation:
    """Record spans and metrics of all agents and flows of this OS process that are driven from now on.

    Who records changes nothing: not the runs, nor their results.  What providers and exporters raise is logged.

    For example, ``instrument()`` at the start of a program that has set its tracer provider, and in a test
    ``with instrument(tracer_provider=provider): …``.

    Args:
        tracer_provider: Makes the spans; None: that of the program.
        meter_provider: Makes the metrics; None: that of the program.
        content: Whether what is said is recorded as well: messages, arguments and results, up to 10,000 characters
            each.  Keys of known formats are masked there; other secrets are not.

    Raises:
        UsageError: They are recorded already, or an argument is wrong.
        ConfigError: The extra ``otel`` is not installed: ``pip install 'fsm-agent[otel]'``.

    Examples:
        >>> with instrument():
        ...     print(Agent(Script("Hi.")).call("Hello").output)
        Hi.
    """
    try:
        import opentelemetry  # noqa: F401
    except ImportError:
        raise ConfigError("instrument() needs opentelemetry; pip install 'fsm-agent[otel]'") from None
    right = "a TracerProvider of opentelemetry, or None"
    check("tracer_provider", tracer_provider, tracer_provider is None or hasattr(tracer_provider, "get_tracer"), right)
    right = "a MeterProvider of opentelemetry, or None"
    check("meter_provider", meter_provider, meter_provider is None or hasattr(meter_provider, "get_meter"), right)
    check("content", content, isinstance(content, bool), "True or False")
    made = Instrumentation(tracer_provider, meter_provider, content)
    probes.install(made)
    return made


class Instrumentation:
    """What `instrument` has begun; `stop`, or the end of a ``with`` block, ends it.

    Attributes:
        content: Whether what is said is recorded.

    Examples:
        >>> recording = instrument()
        >>> recording.content
        False
        >>> recording.stop()
    """

    def __init__(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None, content: bool
    ) -> None:
        from opentelemetry import metrics, trace

        name, version = "fsm_agent", __version__
        self.content = content
        self.tracer = trace.get_tracer(name, version, tracer_provider)
        meter = metrics.get_meter(name, version, meter_provider)
        self._meter_provider = meter_provider
        self.is_metered = True  # metrics are recorded, as of the last drive that has begun
        self.durations = meter.create_histogram(
            names.DURATION, "s", "GenAI operation duration.", explicit_bucket_boundaries_advisory=_SECONDS
        )
        self.tokens = meter.create_histogram(
            names.TOKENS,
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_COUNTS,
        )
        self.retries = meter.create_counter(names.RETRIES, "{retry}", "What was tried again.")

    def stop(self) -> None:
        """Record no drive that begins from now on; those that have begun are recorded to their end."""
        probes.uninstall(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # As the probe of the drivers

    def creating(self, process: Process, name: str) -> str:
        from fsm_agent.telemetry.drive import Begun, traceparent_of

        begun: Any = getattr(process, "traced", None)
        if type(begun) is not Begun:
            begun = self.begin(process, name, begun)
            process.traced = begun  # type: ignore[attr-defined]
        return traceparent_of(begun.span)

    def here(self) -> str:
        from opentelemetry import trace

        from fsm_agent.telemetry.drive import traceparent_of

        return traceparent_of(trace.get_current_span())

    def drive(self, driver: Reconciler) -> DriveSpans | None:
        process: Any = driver.process
        if process.record.ending is not None:
            return None
        from opentelemetry import metrics

        from fsm_agent.telemetry.drive import DriveSpans

        # A program may set its providers later; and where only the interface is installed, nothing is recorded
        providing = type(self._meter_provider or metrics.get_meter_provider())
        self.is_metered = not providing.__module__.startswith(metrics.__name__)
        drive = DriveSpans(self, driver)
        process.traced = None
        return drive if self.is_metered or drive.is_placed else None

    # For the spans of a drive

    def begin(self, process: Any, name: str, before: SpanContext | None) -> Begun:
        """Begin the span of a process that is driven; ``before`` is where it was driven before."""
        from fsm_agent.telemetry.drive import Begun, parent_and_links

        parent, links = parent_and_links(before)
        return Begun(self.start(process, name, parent, {}, links), time.perf_counter())

    def start(self, process: Any, name: str, parent: Context | None, facts: Mapping[str, Any], links: Any = ()) -> Span:
        """Start the span of a process."""
        is_agent = isinstance(process, AgentCall)
        operation = names.INVOKE_AGENT if is_agent else names.INVOKE_WORKFLOW
        attributes: Facts = {names.OPERATION: operation, **facts}
        if name:
            attributes[names.AGENT if is_agent else names.WORKFLOW] = name
        return self.tracer.start_span(f"{operation} {name}".strip(), parent, attributes=attributes, links=links)

    def measure(self, facts: Facts, found: Facts, error: str, duration_s: float) -> None:
        """Record the metrics of an operation.

        Args:
            facts: The attributes with which it began; without an operation, there are none to record.
            found: Those of its outcome.
            error: The type of its error; empty: none.
            duration_s: How long it took.
        """
        if names.OPERATION not in facts:
            return
        if (attempts := found.get(names.ATTEMPTS, 1)) > 1:
            self.retries.add(attempts - 1, {names.RETRY: "function"})
        kept = {name: each[name] for name in _DIMENSIONS for each in (facts, found) if name in each}
        if error:
            kept[names.ERROR] = error
        self.durations.record(duration_s, kept)
        for token_type, name in _TOKEN_TYPES:
            if name in found:
                self.tokens.record(found[name], {**kept, names.TOKEN_TYPE: token_type})

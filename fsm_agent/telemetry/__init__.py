"""Spans and metrics of OpenTelemetry, live: ``instrument()`` once, for every agent and flow of the program.

It needs `opentelemetry-api`: ``pip install 'fsm-agent[otel]'``.  Where spans go is a matter of the program's providers.
"""

try:
    from fsm_agent.telemetry.instrumentation import Instrumentation, instrument
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "opentelemetry":
        raise
    raise ImportError("fsm_agent.telemetry needs opentelemetry; run pip install 'fsm-agent[otel]'") from error

__all__ = ["Instrumentation", "instrument"]

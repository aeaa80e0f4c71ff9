"""Spans and metrics of OpenTelemetry, live: ``instrument()`` once, for every agent and flow of the program.

It needs `opentelemetry-api`: ``pip install 'fsm-agent[otel]'``.  Where spans go is a matter of the program's providers.
"""

from fsm_agent.telemetry.instrumentation import Instrumentation, instrument

__all__ = ["Instrumentation", "instrument"]

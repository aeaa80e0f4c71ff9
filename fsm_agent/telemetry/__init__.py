"""Spans and metrics of OpenTelemetry, live: ``instrument()`` once, for every agent and flow of the program.

It needs `opentelemetry-api`: ``pip install 'fsm-agent[otel]'``.  Where spans go is a matter of the program's providers.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.telemetry.instrumentation import Instrumentation as Instrumentation
    from fsm_agent.telemetry.instrumentation import instrument as instrument
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {"instrumentation": "Instrumentation instrument"},
        needs={"opentelemetry": "'fsm-agent[otel]'"},
    )

"""Drive processes: the two drivers, the activities that perform effects, the execution of functions, and tracing.

The sync and the asyncio driver share one loop; `driver` explains it.  Nothing here decides what happens next: that is a
row of a table.
"""

from fsm_agent.runtime.drivers import adrive, arun, drive, run
from fsm_agent.runtime.environment import Clock, Environment, SystemClock, known_price
from fsm_agent.runtime.log import LoggingHook
from fsm_agent.runtime.middleware import Cache, Throttle
from fsm_agent.runtime.results import ProcessedResult, ResultCache, ResultPipeline, truncate
from fsm_agent.runtime.tracing import Instrumentation, instrument, spans_of

__all__ = [
    "Cache",
    "Clock",
    "Environment",
    "Instrumentation",
    "LoggingHook",
    "ProcessedResult",
    "ResultCache",
    "ResultPipeline",
    "SystemClock",
    "Throttle",
    "adrive",
    "arun",
    "drive",
    "instrument",
    "known_price",
    "run",
    "spans_of",
    "truncate",
]

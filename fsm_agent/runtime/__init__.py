"""Drives processes, with two drivers and with activities that perform effects.

The sync and asyncio drivers share one loop, which `drive_loop` explains.  The process's transition table decides what
happens next.
"""

import fsm_agent.context  # before its modules; see CONTRIBUTING.md
from fsm_agent.call.prices import known_price
from fsm_agent.runtime.drivers import adrive, arun, drive, run
from fsm_agent.runtime.environment import Clock, Environment, SystemClock
from fsm_agent.runtime.instrumentation import Instrumentation, instrument, spans_of
from fsm_agent.runtime.log import LoggingHook
from fsm_agent.runtime.middleware import Cache, Throttle
from fsm_agent.runtime.result_pipeline import ProcessedResult, ResultCache, ResultPipeline, truncate

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

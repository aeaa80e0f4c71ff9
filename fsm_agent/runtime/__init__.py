"""Drive processes: the two drivers, the activities that perform effects, and the execution of functions.

The sync and the asyncio driver share one loop; `reconciler` explains it.  Nothing here decides what happens next: that
is a row of a table.
"""

from fsm_agent.runtime.drivers import adrive, arun, drive, run
from fsm_agent.runtime.logging_hook import LoggingHook
from fsm_agent.runtime.middleware import Cache, Throttle
from fsm_agent.runtime.price_list import known_price
from fsm_agent.runtime.result_cache import ResultCache
from fsm_agent.runtime.result_pipeline import ProcessedResult, ResultPipeline, truncate
from fsm_agent.runtime.world import Clock, SystemClock, World

__all__ = [
    "Cache",
    "Clock",
    "LoggingHook",
    "ProcessedResult",
    "ResultCache",
    "ResultPipeline",
    "SystemClock",
    "Throttle",
    "World",
    "adrive",
    "arun",
    "drive",
    "known_price",
    "run",
    "truncate",
]

"""Drive processes: the two drivers, the activities that perform effects, and the execution of functions.

The sync and the asyncio driver share one loop; `reconciler` explains it.  Nothing here decides what happens next: that
is a row of a table.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.runtime.drivers import adrive as adrive
    from fsm_agent.runtime.drivers import arun as arun
    from fsm_agent.runtime.drivers import drive as drive
    from fsm_agent.runtime.drivers import run as run
    from fsm_agent.runtime.logging_hook import LoggingHook as LoggingHook
    from fsm_agent.runtime.middleware import Cache as Cache
    from fsm_agent.runtime.middleware import Throttle as Throttle
    from fsm_agent.runtime.price_list import known_price as known_price
    from fsm_agent.runtime.result_cache import ResultCache as ResultCache
    from fsm_agent.runtime.result_pipeline import ProcessedResult as ProcessedResult
    from fsm_agent.runtime.result_pipeline import ResultPipeline as ResultPipeline
    from fsm_agent.runtime.result_pipeline import truncate as truncate
    from fsm_agent.runtime.world import Clock as Clock
    from fsm_agent.runtime.world import SystemClock as SystemClock
    from fsm_agent.runtime.world import World as World
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "drivers": "adrive arun drive run",
            "logging_hook": "LoggingHook",
            "middleware": "Cache Throttle",
            "price_list": "known_price",
            "result_cache": "ResultCache",
            "result_pipeline": "ProcessedResult ResultPipeline truncate",
            "world": "Clock SystemClock World",
        },
    )

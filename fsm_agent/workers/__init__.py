"""Who drives the runs of a store, and when: workers, and engines that exist, DBOS and Temporal.

The store is a queue itself, and a `Worker` claims from it, which is all that most need.  Under an engine, the engine
says who drives a run when, and the run's journal in Postgres stays the truth.  Each engine needs its extra:
``pip install 'fsm-agent[dbos]'`` or ``'fsm-agent[temporal]'``.
"""

from fsm_agent.workers.engine import Engine, engine_of
from fsm_agent.workers.worker import Worker

__all__ = [
    "Engine",
    "Worker",
    "engine_of",
]

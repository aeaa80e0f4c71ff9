"""Workers and engines (DBOS and Temporal), which drive the runs in a store.

The store is a queue from which a `Worker` claims runs.  Most programs need nothing else.  An engine decides which
worker drives a run and when, but the run's journal in Postgres remains the source of truth.  Each engine needs its
extra: ``pip install 'fsm-agent[dbos]'`` or ``'fsm-agent[temporal]'``.
"""

import fsm_agent.agents  # before its modules; see CONTRIBUTING.md
from fsm_agent.workers.engine import Engine, engine_of
from fsm_agent.workers.worker import Worker

__all__ = [
    "Engine",
    "Worker",
    "engine_of",
]

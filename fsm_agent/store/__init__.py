"""Stores keep runs as journals and conversations as chains of runs, and decide who may drive a run.

A store handles lines, leases and signals, and knows nothing about agents.  `fsm_agent.call.journal` defines what a line
means.
"""

import fsm_agent.runtime  # before its modules; see CONTRIBUTING.md
from fsm_agent.store.errors import (
    AlreadyAnswered,
    Conflict,
    LeaseLost,
    NotAsked,
    ReadOnly,
    RunBusy,
    RunExists,
    RunUnknown,
    SignalExists,
    StoreClosed,
    StoreError,
)
from fsm_agent.store.runs import Runs
from fsm_agent.store.sql.postgres import PostgresStore
from fsm_agent.store.sql.sqlite import MemoryStore, SqliteStore
from fsm_agent.store.store import Head, Lease, Loaded, Page, Run, RunCount, RunsHealth, Signal, Start, Store, Suspension

__all__ = [
    "AlreadyAnswered",
    "Conflict",
    "Head",
    "Lease",
    "LeaseLost",
    "Loaded",
    "MemoryStore",
    "NotAsked",
    "Page",
    "PostgresStore",
    "ReadOnly",
    "Run",
    "RunBusy",
    "RunCount",
    "RunExists",
    "RunUnknown",
    "Runs",
    "RunsHealth",
    "Signal",
    "SignalExists",
    "SqliteStore",
    "Start",
    "Store",
    "StoreClosed",
    "StoreError",
    "Suspension",
]

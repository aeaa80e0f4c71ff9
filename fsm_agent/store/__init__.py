"""Stores: they keep runs as journals and conversations as chains of runs, and decide who may drive a run.

A store knows lines, leases and posts, but no agents.  `fsm_agent.call.journal` defines what a line means.
"""

from fsm_agent.store.errors import (
    AlreadyAnswered,
    Conflict,
    LeaseLost,
    NotAsked,
    PostExists,
    ReadOnly,
    RunBusy,
    RunExists,
    RunUnknown,
    StoreClosed,
    StoreError,
)
from fsm_agent.store.runs import Runs
from fsm_agent.store.sql.postgres import PostgresStore
from fsm_agent.store.sql.sqlite import MemoryStore, SqliteStore
from fsm_agent.store.store import Head, Lease, Loaded, Page, Post, Run, RunCount, RunsHealth, Start, Store, Suspension

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
    "Post",
    "PostExists",
    "PostgresStore",
    "ReadOnly",
    "Run",
    "RunBusy",
    "RunCount",
    "RunExists",
    "RunUnknown",
    "Runs",
    "RunsHealth",
    "SqliteStore",
    "Start",
    "Store",
    "StoreClosed",
    "StoreError",
    "Suspension",
]

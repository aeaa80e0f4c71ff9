"""Stores: they keep runs as journals and conversations as chains of runs, and decide who may drive a run.

A store knows lines, leases and posts, but no agents.  `fsm_agent.call.journal` defines what a line means.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.store.errors import AlreadyAnswered as AlreadyAnswered
    from fsm_agent.store.errors import Conflict as Conflict
    from fsm_agent.store.errors import LeaseLost as LeaseLost
    from fsm_agent.store.errors import NotAsked as NotAsked
    from fsm_agent.store.errors import PostExists as PostExists
    from fsm_agent.store.errors import ReadOnly as ReadOnly
    from fsm_agent.store.errors import RunBusy as RunBusy
    from fsm_agent.store.errors import RunExists as RunExists
    from fsm_agent.store.errors import RunUnknown as RunUnknown
    from fsm_agent.store.errors import StoreClosed as StoreClosed
    from fsm_agent.store.errors import StoreError as StoreError
    from fsm_agent.store.runs import Runs as Runs
    from fsm_agent.store.sql.postgres import PostgresStore as PostgresStore
    from fsm_agent.store.sql.sqlite import MemoryStore as MemoryStore
    from fsm_agent.store.sql.sqlite import SqliteStore as SqliteStore
    from fsm_agent.store.store import Head as Head
    from fsm_agent.store.store import Lease as Lease
    from fsm_agent.store.store import Loaded as Loaded
    from fsm_agent.store.store import Page as Page
    from fsm_agent.store.store import Post as Post
    from fsm_agent.store.store import Rest as Rest
    from fsm_agent.store.store import Run as Run
    from fsm_agent.store.store import RunCount as RunCount
    from fsm_agent.store.store import RunsHealth as RunsHealth
    from fsm_agent.store.store import Start as Start
    from fsm_agent.store.store import Store as Store
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "errors": (
                "AlreadyAnswered Conflict LeaseLost NotAsked PostExists ReadOnly RunBusy RunExists "
                "RunUnknown StoreClosed StoreError"
            ),
            "runs": "Runs",
            "sql.postgres": "PostgresStore",
            "sql.sqlite": "MemoryStore SqliteStore",
            "store": "Head Lease Loaded Page Post Rest Run RunCount RunsHealth Start Store",
        },
    )

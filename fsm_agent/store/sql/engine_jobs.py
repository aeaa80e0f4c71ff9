"""Jobs for an engine, which are written in the transaction that makes a run due.

A job is a hint that holds only the name of a run.  A surplus job finds nothing to do, and `PostgresStore.remind` makes
a new job for a run whose job was lost.  The hooks use SQL, so a client that begins or answers a run does not need the
engine's package.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from fsm_agent.store.sql.postgres_session import encode

# Takes a `psycopg.Connection`, the name of the run and its due time.  `Any`, since few programs have psycopg.
OnDue: TypeAlias = Callable[[Any, str, float], None]

QUEUE, JOB = "runs", "drive"  # one queue for all runs, because workers poll every queue
_LONGEST_S = 86_400  # after this time, DBOS gives up on a job, for example one taken by a dead worker
_MOST_NOTIFIED = 7_999  # the most bytes that a Postgres notification can hold


def dbos_schema(schema: str) -> str:
    """Return the schema of the DBOS tables, which hold only this store's jobs."""
    return f"{schema}_dbos"


def temporal_channel(schema: str) -> str:
    """Return the channel that announces jobs for Temporal to workers."""
    return f"fsm_agent_{schema}_due"


def tell_dbos(schema: str) -> OnDue:
    """Return a hook that adds a job to the DBOS queue, provided that a worker has made the DBOS tables."""
    function = f"{dbos_schema(schema)}.enqueue_workflow"
    later = f"CASE WHEN %(due_s)s > {_NOW} THEN (1000 * %(due_s)s)::bigint END"
    enqueue = (
        f"SELECT {function}('{JOB}', '{QUEUE}', ARRAY[%(run)s::json], delay_until_epoch_ms => {later},"
        f" timeout_ms => {1000 * _LONGEST_S}, priority => (-priority)::int) FROM {schema}.run WHERE id = %(id)s"
    )
    is_there = False

    def on_due(connection: Any, run: str, due_s: float) -> None:
        nonlocal is_there
        if not is_there:
            is_there = connection.execute(_FUNCTION_IS_THERE, (dbos_schema(schema),)).fetchone() == (True,)
        if is_there:
            connection.execute(enqueue, {"run": json.dumps(run), "due_s": due_s, "id": encode(run)})

    return on_due


def tell_temporal(schema: str) -> OnDue:
    """Return a hook that notifies the workers, one of which starts the workflow after the commit."""
    channel = temporal_channel(schema)

    def on_due(connection: Any, run: str, due_s: float) -> None:
        job = json.dumps([run, due_s])
        if len(job) <= _MOST_NOTIFIED:
            connection.execute("SELECT pg_notify(%s, %s)", (channel, job))

    return on_due


# Checks the parameters, since DBOS first creates an older function with this name, which takes no delay.
_FUNCTION_IS_THERE = (
    "SELECT EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace(%s) AND proname = 'enqueue_workflow'"
    " AND proargnames @> '{positional_args,delay_until_epoch_ms,timeout_ms,priority}')"
)
_NOW = "extract(epoch FROM clock_timestamp())"
HOOKS: dict[str, Callable[[str], OnDue]] = {"dbos": tell_dbos, "temporal": tell_temporal}

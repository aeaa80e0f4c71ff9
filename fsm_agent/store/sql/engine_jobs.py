"""What an engine is told in the transaction that makes a run due: a job, which becomes part of the same commit.

A job holds the name of a run and nothing else.  It is a hint: one too many finds nothing to do, and
`PostgresStore.remind` makes one for a run whose job was lost.  The hooks are SQL, so a client that begins or
answers a run needs no package of the engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from fsm_agent.store.sql.postgres_session import encode

# Of the connection, the run and its due time.  The connection is a `psycopg.Connection`; few programs have psycopg.
OnDue: TypeAlias = Callable[[Any, str, float], None]

QUEUE, JOB = "runs", "drive"  # one queue for all runs: workers poll each that there is
_LONGEST_S = 86_400  # after which DBOS gives up a job, such as one of a worker that died
_MOST_NOTIFIED = 7_999  # bytes that Postgres takes


def dbos_schema(schema: str) -> str:
    """Return the schema of the tables of DBOS, which only this store's jobs are in."""
    return f"{schema}_dbos"


def temporal_channel(schema: str) -> str:
    """Return the channel on which workers hear of jobs for Temporal."""
    return f"fsm_agent_{schema}_due"


def tell_dbos(schema: str) -> OnDue:
    """Return a hook that puts a job into the queue of DBOS; until a worker has made its tables, it does nothing."""
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
    """Return a hook that tells the workers, one of which begins the workflow when the run is committed."""
    channel = temporal_channel(schema)

    def on_due(connection: Any, run: str, due_s: float) -> None:
        job = json.dumps([run, due_s])
        if len(job) <= _MOST_NOTIFIED:
            connection.execute("SELECT pg_notify(%s, %s)", (channel, job))

    return on_due


# By its parameters: a worker that makes the tables of DBOS first makes an older function of this name, without a delay.
_FUNCTION_IS_THERE = (
    "SELECT EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace(%s) AND proname = 'enqueue_workflow'"
    " AND proargnames @> '{positional_args,delay_until_epoch_ms,timeout_ms,priority}')"
)
_NOW = "extract(epoch FROM clock_timestamp())"
HOOKS: dict[str, Callable[[str], OnDue]] = {"dbos": tell_dbos, "temporal": tell_temporal}

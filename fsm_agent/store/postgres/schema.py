"""The tables of a store in Postgres, and the migrations from older ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fsm_agent.store import checks
from fsm_agent.store.errors import StoreError

if TYPE_CHECKING:
    from psycopg import Connection

_LOCK = 0x66736D61  # "fsma"; held while a schema is created or migrated

# Columns of a run: `due` is as in `Run.due_s`.  `wake` is when a worker may claim it: the time since when the run is
# due, or from which it will be; while it has a holder, the end of its lease; null: a post wakes it.  `until` is the end
# of the lease, also after it has passed; null: the lease was given back.  `given_back` is the `n` of the append that
# did so.  `unread` counts the posts, so that a rest and a post at the same time change the same row.  `instance` is the
# session whose death ends the lease.  `asks` has the kinds of open questions, see `Group`.
#
# No index has a column that an append without a rest changes, and the pages have room, so that such an append writes
# no page of an index.  So `updated` is the time of the last rest, and `touched` that of the last entry.
#
# A `predecessor` is a run that has not ended and before which another one is not due; `due` is the time from which that
# one may be due.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE {s}.run (
            key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            id text COLLATE "C" NOT NULL UNIQUE,
            agent text COLLATE "C" NOT NULL,
            header text NOT NULL,
            n integer NOT NULL,
            state text NOT NULL,
            is_ended boolean NOT NULL,
            due double precision,
            wake double precision,
            heeds text,
            unread integer NOT NULL,
            fence integer NOT NULL,
            tries integer NOT NULL,
            holder text NOT NULL,
            instance integer NOT NULL,
            since double precision NOT NULL,
            until double precision,
            given_back integer NOT NULL,
            created double precision NOT NULL,
            updated double precision NOT NULL,
            touched double precision NOT NULL
        ) WITH (fillfactor = 70)""",
        "CREATE INDEX run_wake ON {s}.run (wake, key) WHERE wake IS NOT NULL",
        "CREATE INDEX run_wake_of_agent ON {s}.run (agent, wake, key) WHERE wake IS NOT NULL",
        "CREATE INDEX run_held ON {s}.run (instance) WHERE until IS NOT NULL",
        "CREATE INDEX run_updated ON {s}.run (updated DESC, key DESC)",
        "CREATE INDEX run_updated_of_agent ON {s}.run (agent, updated DESC, key DESC)",
        "CREATE INDEX run_open ON {s}.run (agent, updated DESC, key DESC) WHERE NOT is_ended",
        """CREATE TABLE {s}.entry (
            run bigint NOT NULL,
            n integer NOT NULL,
            line text NOT NULL,
            PRIMARY KEY (run, n)
        )""",
        """CREATE TABLE {s}.snapshot (
            run bigint PRIMARY KEY,
            n integer NOT NULL,
            record bytea NOT NULL
        )""",
        """CREATE TABLE {s}.question (
            run bigint NOT NULL,
            key text COLLATE "C" NOT NULL,
            kind text NOT NULL,
            about text NOT NULL,
            answers text NOT NULL,
            answered_by text NOT NULL,
            answered double precision,
            PRIMARY KEY (run, key)
        )""",
        "CREATE INDEX question_open ON {s}.question (run) WHERE answered IS NULL",
        """CREATE TABLE {s}.post (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            run bigint NOT NULL,
            key text COLLATE "C" NOT NULL,
            body text NOT NULL,
            posted_by text NOT NULL,
            posted double precision NOT NULL
        )""",
        "CREATE INDEX post_of_run ON {s}.post (run)",
        """CREATE TABLE {s}.conversation (
            name text COLLATE "C" PRIMARY KEY,
            version integer NOT NULL,
            run text NOT NULL
        )""",
    ),
    (  # all runs were claimed in the order in which they became due, and all were due when they were created
        "ALTER TABLE {s}.run ADD COLUMN priority smallint NOT NULL DEFAULT 0",
        "DROP INDEX {s}.run_wake_of_agent",
        "CREATE INDEX run_queue ON {s}.run (agent, priority, wake, key) WHERE wake IS NOT NULL",
        "CREATE INDEX run_new ON {s}.run (agent) WHERE fence = 0",
        """CREATE TABLE {s}.predecessor (
            before bigint NOT NULL,
            run bigint NOT NULL,
            due double precision NOT NULL,
            PRIMARY KEY (before, run)
        )""",
        "CREATE INDEX predecessor_of_run ON {s}.predecessor (run)",
    ),
    (  # runs in one state were looked for among all of their agent
        "ALTER TABLE {s}.run ADD COLUMN title text NOT NULL DEFAULT ''",
        "ALTER TABLE {s}.run ADD COLUMN is_failed boolean NOT NULL DEFAULT false",
        """ALTER TABLE {s}.run ADD COLUMN asks text COLLATE "C" NOT NULL DEFAULT ''""",
        """ALTER TABLE {s}.run ALTER COLUMN state TYPE text COLLATE "C" """,
        "ALTER TABLE {s}.question ADD COLUMN schema text NOT NULL DEFAULT ''",
        "UPDATE {s}.run SET is_failed = true WHERE is_ended AND state = 'Failed'",
        """UPDATE {s}.run SET asks = q.kinds FROM (
            SELECT run, string_agg(DISTINCT kind, E'\n') AS kinds FROM {s}.question WHERE answered IS NULL GROUP BY run
        ) AS q WHERE q.run = key""",
        "DROP INDEX {s}.run_updated, {s}.run_updated_of_agent, {s}.run_open",
        "CREATE INDEX run_group ON {s}.run (agent, is_failed, is_ended, asks, state, updated DESC, key DESC)",
    ),
    (  # what a claim may be told to choose by, and what those who share a store have spent of a shared limit
        "ALTER TABLE {s}.run ADD COLUMN definition text NOT NULL DEFAULT ''",
        "ALTER TABLE {s}.run ADD COLUMN concurrency_key text NOT NULL DEFAULT ''",
        """UPDATE {s}.run SET definition = coalesce(substring(header from '"definition":"([0-9a-z]*)"'), '')
            WHERE NOT is_ended""",
        """CREATE TABLE {s}.spent (
            name text COLLATE "C" NOT NULL,
            at double precision NOT NULL,
            amount bigint NOT NULL,
            PRIMARY KEY (name, at)
        )""",
    ),
    (  # the runs that have a holder were not counted
        "DROP INDEX {s}.run_held",
        "CREATE INDEX run_held ON {s}.run (agent, concurrency_key) WHERE until IS NOT NULL",
    ),
    (  # a post that was repeated was two
        """CREATE TABLE {s}.posted (
            run bigint NOT NULL,
            id text COLLATE "C" NOT NULL,
            content text NOT NULL,
            PRIMARY KEY (run, id)
        )""",
    ),
    (  # a service took up whatever was due, and could not tell the runs that it had begun
        """ALTER TABLE {s}.run ADD COLUMN service text COLLATE "C" NOT NULL DEFAULT ''""",
        "CREATE INDEX run_of_service ON {s}.run (service, is_ended) WHERE service <> ''",
    ),
)


def prepare(
    connection: Connection[Any], schema: str, place: str, migrations: Sequence[Sequence[str]] = MIGRATIONS
) -> None:
    """Create the schema, or migrate it to the newest version; two OS processes may do so at once.

    Args:
        connection: A connection in a transaction.
        schema: The name of the schema, which needs no quotes.
        place: The name of the store, for errors.
        migrations: The statements that lead to each version from the one before; the first from an empty schema.

    Raises:
        StoreError: The schema is of a newer version, or another program's, or the database cannot hold all texts.
    """
    (encoding,) = connection.execute("SHOW server_encoding").fetchone() or ("",)
    if encoding != "UTF8":
        raise StoreError(f"{place}: expected a database in the encoding UTF8, got {encoding}, which lacks characters")
    version = _version(connection, schema)
    if version != len(migrations):
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        version = _version(connection, schema)  # another OS process may have migrated it meanwhile
    if version > len(migrations):
        raise checks.newer_store(place, version, len(migrations))
    if not version:
        taken = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'run'"
        if connection.execute(taken, (schema,)).fetchone():
            raise StoreError(
                f"{place}: expected a schema of the store's own, got the tables of another program; pass ?schema=…"
            )
        if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone():
            connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"CREATE TABLE {schema}.fsm_agent_store (version integer NOT NULL)")
        connection.execute(f"INSERT INTO {schema}.fsm_agent_store VALUES (0)")
    for statements in migrations[version:]:
        for statement in statements:
            connection.execute(statement.replace("{s}", schema))
    if version < len(migrations):
        connection.execute(f"UPDATE {schema}.fsm_agent_store SET version = %s", (len(migrations),))


def check_schema(connection: Connection[Any], schema: str, place: str) -> None:
    """Check that a schema is a store of the newest version, without creating or changing it.

    Raises:
        StoreError: It is not there, or is of another version.
    """
    version, newest = _version(connection, schema), len(MIGRATIONS)
    if version > newest:
        raise checks.newer_store(place, version, newest)
    if not version:
        raise checks.no_store(place)
    if version < newest:
        raise checks.older_store(place, version, newest)


def _version(connection: Connection[Any], schema: str) -> int:
    """Return the version of a schema; 0: it has no store."""
    there = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'fsm_agent_store'"
    if not connection.execute(there, (schema,)).fetchone():
        return 0
    [version] = connection.execute(f"SELECT version FROM {schema}.fsm_agent_store").fetchone() or (0,)
    return int(version)

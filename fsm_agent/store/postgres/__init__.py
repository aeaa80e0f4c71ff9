"""A store in a schema of Postgres: its address, its schema and migrations, its sessions, its statements.

It needs psycopg: ``pip install 'fsm-agent[postgres]'``.  This package does not know what a line means.
"""

from fsm_agent.store.postgres.postgres_store import PostgresStore

__all__ = ["PostgresStore"]

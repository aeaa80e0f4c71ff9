"""A store in a file of SQLite: its schema and migrations, its connections, its statements.

This package does not know what a line means.
"""

from fsm_agent.store.sqlite.sqlite_store import SqliteStore

__all__ = ["SqliteStore"]

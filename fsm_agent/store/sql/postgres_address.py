"""The address of a store in Postgres: what libpq is told, the schema, and a name for it without secrets."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.errors import UsageError
from fsm_agent.validation import shown

psycopg = deferred("psycopg")
conninfo = deferred("psycopg.conninfo")

SCHEMA = "fsm_agent"
ENGINES = ("dbos", "temporal")
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")  # shorter than Postgres allows: a channel is named after it
# A server that is gone without a word is noticed after some 20 s, whether an answer is waited for (`tcp_user_timeout`)
# or not; libpq's own defaults are a quarter of an hour and two hours.
_KEEPALIVES = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "2",
    "tcp_user_timeout": "20000",
    "connect_timeout": "10",
}


class Address(NamedTuple):
    """A schema of a database.

    Attributes:
        conninfo: What libpq is told; it may hold a password.
        schema: The schema of the tables.
        is_pooled: A pooler of transactions stands between, so that no session can be had.
        engine: The engine that is told which runs are due, "dbos" or "temporal"; empty: none, since workers claim them.
        name: For messages and logs: host, port, database and schema.
    """

    conninfo: str
    schema: str
    is_pooled: bool
    engine: str
    name: str

    def __repr__(self) -> str:
        return self.name


def address_of(url: str) -> Address:
    """Return the address that a URL names.

    ``postgresql://host/db?schema=orders`` has its tables in the schema "orders", by default in "fsm_agent".  With
    ``pooled=yes``, a pooler of transactions may stand between; with ``engine=dbos`` or ``engine=temporal``, that engine
    is told which runs are due.  All else is libpq's: ``sslmode=verify-full``, ``service=``, a password file,
    ``PGPASSWORD``.

    Raises:
        UsageError: libpq cannot read the URL, the schema is not a plain name, or ``pooled`` or ``engine`` is another
            word.  The URL is not quoted, as it may hold a password.
    """
    try:
        parts = urlsplit(url)
        ours, rest = dict[str, str](), list[str]()
        for option in filter(None, parts.query.split("&")):
            name, _, value = option.partition("=")
            if name in ("schema", "pooled", "engine"):
                ours[name] = unquote(value)
            else:  # as it was written: a plus is no space to libpq
                rest.append(option)
        plain = urlunsplit(parts._replace(query="&".join(rest)))
        given = {name: str(value) for name, value in conninfo.conninfo_to_dict(plain).items() if value is not None}
    except (ValueError, psycopg.Error):
        right = "postgresql://user@host/database, with special characters as %XX"
        raise UsageError(f"the address of the store in Postgres: expected {right}, got one that is malformed") from None
    schema, pooled, engine = ours.get("schema", SCHEMA), ours.get("pooled", "no"), ours.get("engine")
    if not _NAME.fullmatch(schema):
        right = "a name of small letters, digits and underscores"
        raise UsageError(f"the schema of the store: expected {right}, got {shown(schema)}")
    if pooled not in ("yes", "no"):
        raise UsageError(f"pooled of the store: expected yes or no, got {shown(pooled)}")
    if engine not in (None, *ENGINES):
        raise UsageError(f"engine of the store: expected {' or '.join(ENGINES)}, got {shown(engine)}")
    place = f"{given.get('host') or 'the local host'}:{given.get('port') or 5432}/{given.get('dbname') or ''}"
    plain = conninfo.make_conninfo(**{**_KEEPALIVES, **given, "client_encoding": "utf8"})  # others lack characters
    return Address(plain, schema, pooled == "yes", engine or "", f"{place} (schema {schema})")

"""How a store comes to its Postgres: the address, texts as the server takes them, and the session.

The session is a connection that hears of changes, and whose death ends the leases of the store.  It holds an advisory
lock, which Postgres frees when the session ends, however the OS process dies.  Both are optimisations.  Behind a pooler
of transactions there is no session of one's own: the lock would be that of a connection that the pooler may close,
which would end the leases of a living process.  So none is begun there; leases end at their time, and a waiting thread
looks every `POLL_S` seconds.
"""

from __future__ import annotations

import re
import secrets
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from fsm_agent.errors import UsageError
from fsm_agent.validation import safe_repr

if TYPE_CHECKING:
    import psycopg

LOCKS = 0x66736D61  # "fsma": the first half of the lock of each session, and of the name of nothing else
POLL_S = 0.5  # how often the server is asked for a session when it is away, or still sees the one before
_READY_S = 5.0  # how long the first lease waits for the session

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


def encode(text: str) -> str:
    """Return a text without zero characters."""
    return text.replace("\x1a", "\x1a1").replace("\x00", "\x1a0") if "\x00" in text or "\x1a" in text else text


def decode(text: str) -> str:
    """Return the text that was encoded."""
    return text.replace("\x1a0", "\x00").replace("\x1a1", "\x1a") if "\x1a" in text else text


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
    import psycopg
    from psycopg import conninfo

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
        raise UsageError(f"the schema of the store: expected {right}, got {safe_repr(schema)}")
    if pooled not in ("yes", "no"):
        raise UsageError(f"pooled of the store: expected yes or no, got {safe_repr(pooled)}")
    if engine not in (None, *ENGINES):
        raise UsageError(f"engine of the store: expected {' or '.join(ENGINES)}, got {safe_repr(engine)}")
    place = f"{given.get('host') or 'the local host'}:{given.get('port') or 5432}/{given.get('dbname') or ''}"
    plain = conninfo.make_conninfo(**{**_KEEPALIVES, **given, "client_encoding": "utf8"})  # others lack characters
    return Address(plain, schema, pooled == "yes", engine or "", f"{place} (schema {schema})")


def channel_of(schema: str) -> str:
    """Return the channel on which it is told that runs of a schema are due."""
    return f"fsm_agent_{schema}"


def rests_channel(channel: str) -> str:
    """Return the channel on which it is told that runs were given back."""
    return f"{channel}_rest"


class Session:
    """A connection of its own with a thread that listens on it; thread-safe.

    Args:
        conninfo: What libpq is told.
        channel: Where it is told that runs are due; those that were given back are told on `rests_channel` of it.
        is_possible: False: there is a pooler of transactions; no session is begun.
    """

    def __init__(self, conninfo: str, channel: str, *, is_possible: bool = True) -> None:
        self._is_possible = is_possible
        self._conninfo = conninfo
        self._channel = channel
        self._number = secrets.randbelow(2**31 - 1) + 1
        self._changed = threading.Condition()
        self._count = 0
        self._rests = 0
        self._is_locked = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._awake, self._waker = socket.socketpair()  # ends a wait for the server

    def instance(self) -> str:
        """Return the number under which the leases of this store are taken; empty: nothing shares its life."""
        with self._changed:
            self._start()
            if self._is_possible:
                self._changed.wait_for(lambda: self._is_locked or self._is_closed, _READY_S)
            return str(self._number) if self._is_locked else ""

    def count(self) -> int:
        """Return the number of changes heard so far."""
        with self._changed:
            self._start()
            return self._count

    def add(self) -> None:
        """Do nothing: the server tells this session of its own changes, too."""

    def wait(self, count: int, timeout_s: float) -> bool:
        """Wait until the count is no longer ``count``; return False after ``timeout_s`` seconds without a change."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count != count or self._is_closed, max(0.0, timeout_s))

    def close(self) -> None:
        """End the session, and the leases that share its life; safe to repeat."""
        with self._changed:
            is_first, self._is_closed = not self._is_closed, True
            self._changed.notify_all()
            thread = self._thread
        if is_first:
            self._waker.close()
            if thread is not None:
                thread.join()
            self._awake.close()

    def _start(self) -> None:
        if self._thread is None and self._is_possible and not self._is_closed:
            self._thread = threading.Thread(target=self._run, daemon=True, name="fsm_agent postgres session")
            self._thread.start()

    def _run(self) -> None:
        import psycopg

        while not self._is_closed:
            try:
                with psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None) as connection:
                    self._listen(connection)
            except psycopg.Error:
                with self._changed:
                    self._is_locked = False
                time.sleep(0.0 if self._is_closed else POLL_S)  # the server is away

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"LISTEN {self._channel}; LISTEN {rests_channel(self._channel)}")
        self._hear()  # something may have changed before
        with selectors.DefaultSelector() as selector:
            for readable in (connection, self._awake):
                selector.register(readable, selectors.EVENT_READ)
            while not self._is_closed:
                if not self._is_locked:  # after a cut, the server may still see the session before
                    found = connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (LOCKS, self._number)).fetchone()
                    with self._changed:
                        self._is_locked = bool(found and found[0])
                        self._changed.notify_all()
                selector.select(None if self._is_locked else POLL_S)
                for told in connection.notifies(timeout=0):
                    self._hear(is_rest=told.channel != self._channel)

    def _hear(self, *, is_rest: bool = False) -> None:
        with self._changed:
            self._count += not is_rest
            self._rests += is_rest
            self._changed.notify_all()

    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        """Wait until the number of rests is no longer ``seen``, for at most ``timeout_s`` seconds; return it."""
        with self._changed:
            self._start()
            self._changed.wait_for(lambda: self._rests != seen or self._is_closed, max(0.0, timeout_s))
            return self._rests

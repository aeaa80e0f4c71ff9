"""Connects a store to Postgres: reads its address, encodes texts, and keeps a session.

The session is a connection that listens for changes.  When it ends, so do the store's leases: it holds an advisory
lock, which Postgres frees at the end of the session, however the OS process dies.  Without listening and the lock,
everything would still work, with longer delays.

Behind a transaction pooler, no store has a session.  The lock would belong to a connection of the pooler, and the
leases of a live process would end whenever the pooler closed that connection.  Leases therefore expire normally, and a
waiting thread polls every `POLL_S` seconds.
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
from fsm_agent.store.sql.sql_store import ChangeNotifier
from fsm_agent.validation import safe_repr

if TYPE_CHECKING:
    import psycopg

LOCKS = 0x66736D61  # "fsma": the first half of the number of each session's lock
POLL_S = 0.5  # how often a new session is tried while the server is down or still has the old session
_READY_S = 5.0  # how long the first lease waits for the session

SCHEMA = "fsm_agent"
ENGINES = ("dbos", "temporal")
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")  # shorter than Postgres allows, since channel names contain it
# A server that disappears silently is noticed after about 20 s, with a request in progress (`tcp_user_timeout`) or
# without.  By default, libpq needs a quarter of an hour, or two hours.
_KEEPALIVES = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "2",
    "tcp_user_timeout": "20000",
    "connect_timeout": "10",
}


def encode(text: str) -> str:
    """Return text after escaping NUL characters, which Postgres cannot store."""
    return text.replace("\x1a", "\x1a1").replace("\x00", "\x1a0") if "\x00" in text or "\x1a" in text else text


def decode(text: str) -> str:
    """Undo `encode`."""
    return text.replace("\x1a0", "\x00").replace("\x1a1", "\x1a") if "\x1a" in text else text


class Address(NamedTuple):
    """A schema of a database.

    Attributes:
        conninfo: The connection string for libpq, which may hold a password.
        schema: The schema of the tables.
        is_pooled: Whether the store is behind a transaction pooler and therefore cannot have a session.
        engine: The engine that gets a job for each due run, "dbos" or "temporal", or an empty string if workers claim
            the runs.
        name: Host, port, database and schema, for messages and logs.
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

    - ``schema=orders`` is the schema of the tables, by default "fsm_agent".
    - ``pooled=yes`` is for a database behind a transaction pooler.
    - ``engine=dbos`` or ``engine=temporal`` tells this engine which runs are due.
    - Everything else, such as ``sslmode=verify-full`` and ``service=``, goes to libpq, which also reads ``PGPASSWORD``
      and a password file.

    Raises:
        UsageError: If libpq cannot read the URL, the schema is not a plain name, or ``pooled`` or ``engine`` has
            another value.  The error does not quote the URL, which may hold a password.
    """
    from psycopg import conninfo

    if (read := _options_of(url)) is None:  # raised here, so that nothing of the error has read the password
        right = "postgresql://user@host/database, with special characters as %XX"
        raise UsageError(f"the address of the store in Postgres: expected {right}, got one that is malformed")
    given, ours = read
    schema, pooled, engine = ours.get("schema", SCHEMA), ours.get("pooled", "no"), ours.get("engine")
    if not _NAME.fullmatch(schema):
        right = "a name of small letters, digits and underscores"
        raise UsageError(f"the schema of the store: expected {right}, got {safe_repr(schema)}")
    if pooled not in ("yes", "no"):
        raise UsageError(f"pooled of the store: expected yes or no, got {safe_repr(pooled)}")
    if engine not in (None, *ENGINES):
        raise UsageError(f"engine of the store: expected {' or '.join(ENGINES)}, got {safe_repr(engine)}")
    place = f"{given.get('host') or 'the local host'}:{given.get('port') or 5432}/{given.get('dbname') or ''}"
    plain = conninfo.make_conninfo(**{**_KEEPALIVES, **given, "client_encoding": "utf8"})
    return Address(plain, schema, pooled == "yes", engine or "", f"{place} (schema {schema})")


def _options_of(url: str) -> tuple[dict[str, str], dict[str, str]] | None:
    """Return the options of a URL that are for libpq, and those that are for the store, or None if it is malformed."""
    import psycopg
    from psycopg import conninfo

    try:
        parts = urlsplit(url)
        ours, rest = dict[str, str](), list[str]()
        for option in filter(None, parts.query.split("&")):
            name, _, value = option.partition("=")
            if name in ("schema", "pooled", "engine"):
                ours[name] = unquote(value)
            else:  # unchanged, because libpq does not read a plus as a space
                rest.append(option)
        plain = urlunsplit(parts._replace(query="&".join(rest)))
        given = {name: str(value) for name, value in conninfo.conninfo_to_dict(plain).items() if value is not None}
    except (ValueError, psycopg.Error):
        return None
    return given, ours


def channel_of(schema: str) -> str:
    """Return the channel that announces due runs of a schema."""
    return f"fsm_agent_{schema}"


def rests_channel(channel: str) -> str:
    """Return the channel that announces runs that were released."""
    return f"{channel}_rest"


class Session(ChangeNotifier):
    """A connection with a thread that listens on it.  It is thread-safe.

    Args:
        conninfo: The connection string for libpq.
        channel: The channel that announces due runs.  Runs that were released are announced on its `rests_channel`.
        is_possible: False behind a transaction pooler, where no session can be started.
    """

    def __init__(self, conninfo: str, channel: str, *, is_possible: bool = True) -> None:
        super().__init__()
        self._is_possible = is_possible
        self._conninfo = conninfo
        self._channel = channel
        self._number = secrets.randbelow(2**31 - 1) + 1
        self._rests = 0
        self._is_locked = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._awake, self._waker = socket.socketpair()  # ends a wait for the server

    def instance(self) -> str:
        """Return the instance for the leases of this store, or an empty string if there is no session."""
        with self._changed:
            self._start()
            if self._is_possible:
                self._changed.wait_for(lambda: self._is_locked or self._is_closed, _READY_S)
            return str(self._number) if self._is_locked else ""

    def count(self) -> int:
        with self._changed:
            self._start()
            return self._count

    def add(self) -> None:
        """Do nothing, because the server reports this store's own changes too."""

    def wait(self, count: int, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._count != count or self._is_closed, max(0.0, timeout_s))

    def close(self) -> None:
        """End the session and the leases that depend on it.  Calling this again has no effect."""
        with self._changed:
            is_first, self._is_closed = not self._is_closed, True
            self._changed.notify_all()
            thread = self._thread
        if is_first:
            self._waker.shutdown(socket.SHUT_WR)  # closing it would not wake the thread while a fork has it open
            if thread is not None:
                thread.join()
            self._waker.close()
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
                time.sleep(0.0 if self._is_closed else POLL_S)  # the server is down

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"LISTEN {self._channel}; LISTEN {rests_channel(self._channel)}")
        self._hear()  # something may have changed before
        with selectors.DefaultSelector() as selector:
            for readable in (connection, self._awake):
                selector.register(readable, selectors.EVENT_READ)
            while not self._is_closed:
                if not self._is_locked:  # after a disconnect, the server may still have the old session
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
        with self._changed:
            self._start()
            self._changed.wait_for(lambda: self._rests != seen or self._is_closed, max(0.0, timeout_s))
            return self._rests

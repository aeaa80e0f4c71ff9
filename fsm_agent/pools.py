"""Which connections are open, to whom, and when are they closed?

One pool for all threads and one for each event loop, made at first use.  A pool of a loop ends with it: it is held by
an asynchronous generator, which `asyncio.run` and its like close before the loop.  After `os.fork` the new process
makes its own.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import weakref
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How requests travel: how long each step may take, how much may come back, over what.

    Attributes:
        connect_s: Until there is a connection.
        read_s: Until a reply begins, and between the pieces of one that is not streamed.
        write_s: Between the pieces of a request.
        pool_s: Until one of `max_connections` is free.
        idle_s: Between the pieces of a stream; comments that keep it alive count.
        linger_s: After a stream said that it is done, for its end: only who reads that can use the connection again.
        max_reply_bytes: Of one reply, decompressed.
        max_connections: At once, of each pool.
        transport: Instead of a pool of ours; closed with the client.
        async_transport: The same for asyncio.
    """

    connect_s: float = 10.0
    read_s: float = 600.0
    write_s: float = 60.0
    pool_s: float = 600.0
    idle_s: float = 300.0
    linger_s: float = 1.0
    max_reply_bytes: int = 64_000_000
    max_connections: int = 1000
    transport: httpx.BaseTransport | None = None
    async_transport: httpx.AsyncBaseTransport | None = None


def is_loopback(url: httpx.URL) -> bool:
    """Whether ``url`` is of this machine, where no proxy can reach it."""
    try:
        return ip_address(url.host).is_loopback
    except ValueError:
        return url.host == "localhost" or url.host.endswith(".localhost")


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context()


class Pools:
    """The connections of one client; thread-safe."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._sync: httpx.Client | None = None
        self._keepers = dict[asyncio.AbstractEventLoop, tuple[httpx.AsyncClient, AsyncGenerator[None]]]()

    def _enter_process(self) -> None:
        if self._pid != os.getpid():
            inherited = self._sync
            self._forget()
            if inherited is not None:
                inherited.close()

    def sync_client(self, url: httpx.URL) -> httpx.Client:
        """The pool of all threads; ``url`` is where the requests will go."""
        self._enter_process()
        with self._lock:
            if self._sync is None:
                self._sync = httpx.Client(transport=self._network.transport, **self._options(url))
                weakref.finalize(self, self._sync.close)
            return self._sync

    async def async_client(self, url: httpx.URL) -> httpx.AsyncClient:
        """The pool of the running loop."""
        self._enter_process()
        loop = asyncio.get_running_loop()
        with self._lock:
            for dead in [known for known in self._keepers if known.is_closed()]:
                del self._keepers[dead]
            if (mine := self._keepers.get(loop)) is not None:
                return mine[0]
        client = httpx.AsyncClient(transport=self._network.async_transport, **self._options(url))
        keeper = _keep(client)
        await anext(keeper)  # lets no other task of this loop run
        with self._lock:
            self._keepers[loop] = (client, keeper)
        return client

    def _options(self, url: httpx.URL) -> dict[str, Any]:
        # A context that trusts nobody: for http it is never asked, and the real one takes 20 ms to load.
        trusted = _trusted() if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        limits = httpx.Limits(
            max_connections=self._network.max_connections, max_keepalive_connections=100, keepalive_expiry=30.0
        )
        return {"verify": trusted, "limits": limits, "trust_env": not is_loopback(url)}

    def close(self) -> None:
        """Close what belongs to threads; loops close theirs, soon."""
        self._enter_process()
        with self._lock:
            sync, self._sync = self._sync, None
            running = [loop for loop in self._keepers if loop.is_running()]
            keepers = [(loop, self._keepers.pop(loop)[1]) for loop in running]
        if sync is not None:
            sync.close()
        for loop, keeper in keepers:
            asyncio.run_coroutine_threadsafe(_end(keeper), loop)

    async def aclose(self) -> None:
        """`close`, and wait for the running loop's pool to be closed."""
        with self._lock:
            mine = self._keepers.pop(asyncio.get_running_loop(), None)
        self.close()
        if mine is not None:
            await _end(mine[1])


async def _keep(client: httpx.AsyncClient) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await client.aclose()


async def _end(keeper: AsyncGenerator[None]) -> None:
    await keeper.aclose()

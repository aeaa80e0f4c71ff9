"""The transports of a client: one for all threads and one for each event loop, made at first use.

A loop's transport ends with it: an asynchronous generator holds it, which `asyncio.run` and its like close before the
loop.  After `os.fork` the child makes its own, and leaves the inherited ones alone: connections and locks are the
parent's.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.clients.http.network import Network, check_proxies_of_environment, is_loopback
from fsm_agent.clients.http.trust import HTTP1, context_for

if TYPE_CHECKING:
    import asyncio
    import ssl
    import urllib.request as urllib_request

    import httpx

    from fsm_agent.clients.http.transport import AsyncTransport, Transport
else:
    asyncio, httpx, ssl = deferred("asyncio"), deferred("httpx"), deferred("ssl")
    urllib_request = deferred("urllib.request")

KEPT_S = 30.0  # for an unused connection to stay open
KEPT = 100  # unused connections in httpx's pool


class Transports:
    """The transports of one client; thread-safe."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._inherited: list[object] = []  # referenced, because destructors would close connections of the parent
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._sync: Transport | None = None
        self._keepers: dict[asyncio.AbstractEventLoop, tuple[AsyncTransport, AsyncGenerator[None]]] = {}

    def _enter_process(self) -> None:
        if self._pid != os.getpid():
            self._inherited += [self._sync, self._keepers]
            self._begin()

    def for_threads(self, url: httpx.URL) -> Transport:
        """Return the transport of all threads; ``url`` is where its requests will go."""
        self._enter_process()
        with self._lock:
            if self._sync is None:
                self._sync = self._make_sync(url)
                weakref.finalize(self, _close, self._sync, self._pid)
            return self._sync

    def _make_sync(self, url: httpx.URL) -> Transport:
        network = self._network
        if network.transport is not None or self._needs_httpx(url):
            from fsm_agent.clients.http.httpx_adapter import HttpxTransport

            transport = None if isinstance(network.transport, str) else network.transport
            return HttpxTransport(httpx.Client(**httpx_options(network, url, transport)))
        from fsm_agent.clients.http.sync_pool import SyncPool

        context = partial(_own_context, network.verify)
        return SyncPool(context, max_connections=network.max_connections, idle_s=KEPT_S)

    @property
    def mine(self) -> AsyncTransport | None:
        """The transport of the running loop; None if it has none."""
        mine = self._keepers.get(asyncio.get_running_loop())
        return None if mine is None else mine[0]

    async def make_mine(self, url: httpx.URL) -> AsyncTransport:
        """Make the transport of the running loop; ``url`` is where its requests will go."""
        self._enter_process()
        loop = asyncio.get_running_loop()
        transport = self._make_async(url)
        keeper = _keep(transport)
        await anext(keeper)  # lets no other task of this loop run
        with self._lock:
            for dead in [loop for loop in self._keepers if loop.is_closed()]:
                del self._keepers[dead]
            self._keepers[loop] = (transport, keeper)
        return transport

    def _make_async(self, url: httpx.URL) -> AsyncTransport:
        network = self._network
        if network.async_transport is not None or self._needs_httpx(url):
            from fsm_agent.clients.http.httpx_adapter import AsyncHttpxTransport

            transport = None if isinstance(network.async_transport, str) else network.async_transport
            return AsyncHttpxTransport(httpx.AsyncClient(**httpx_options(network, url, transport)))
        from fsm_agent.clients.http.async_pool import AsyncPool

        context = partial(_own_context, network.verify)
        return AsyncPool(context, max_connections=network.max_connections, idle_s=KEPT_S)

    def _needs_httpx(self, url: httpx.URL) -> bool:
        network = self._network
        return bool(network.http2 or network.proxy or (not is_loopback(url) and urllib_request.getproxies()))

    def close(self) -> None:
        """Close the transport of threads; event loops close their own, soon after."""
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
        """`close`, and wait until the running loop's transport is closed."""
        with self._lock:
            mine = self._keepers.pop(asyncio.get_running_loop(), None)
        self.close()
        if mine is not None:
            await _end(mine[1])


def httpx_options(network: Network, url: httpx.URL, transport: object = None) -> dict[str, Any]:
    """Return the arguments of an httpx client for requests to ``url`` over this network, or a transport of the user's.

    Raises:
        ConfigError: A proxy of the environment is none.
    """
    if transport is None and network.proxy is None and not is_loopback(url):
        check_proxies_of_environment()
    limits = httpx.Limits(
        max_connections=network.max_connections, max_keepalive_connections=KEPT, keepalive_expiry=KEPT_S
    )
    verify = network.verify
    if url.scheme != "https" and network.proxy is None:
        # An empty context: http never uses it, and loading the real one takes 20 ms.
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return {
        "verify": verify if isinstance(verify, ssl.SSLContext) else context_for(verify, http2=network.http2),
        "limits": limits,
        "http2": network.http2,
        "proxy": network.proxy,
        "transport": transport,
        "trust_env": not is_loopback(url),
    }


def _own_context(verify: bool | str | ssl.SSLContext) -> ssl.SSLContext:
    """Return the TLS context of the package's own pools; it offers HTTP/1.1 only."""
    if not isinstance(verify, ssl.SSLContext):
        return context_for(verify, http2=False)
    verify.set_alpn_protocols(HTTP1)  # as httpx does with a caller's context
    return verify


def _close(transport: Transport, pid: int) -> None:
    if pid == os.getpid():
        transport.close()


async def _keep(transport: AsyncTransport) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await transport.aclose()


async def _end(keeper: AsyncGenerator[None]) -> None:
    await keeper.aclose()

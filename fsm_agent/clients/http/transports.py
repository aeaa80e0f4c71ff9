"""Which connections are open, to whom, and when are they closed?

One pool for all threads and one for each event loop, made at first use.  A pool of a loop ends with it: it is held by
an asynchronous generator, which `asyncio.run` and its like close before the loop.  After `os.fork` the new process
makes its own.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from dataclasses import field
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fsm_agent.deferred import deferred
from fsm_agent.errors import ConfigError
from fsm_agent.values import frozen

if TYPE_CHECKING:
    import asyncio
    import ipaddress
    import ssl
    import urllib.request as urllib_request

    import httpx

    from fsm_agent.clients.http import async_pool, httpx_adapter
    from fsm_agent.clients.http.async_pool import AsyncPool
    from fsm_agent.clients.http.httpx_adapter import HttpxPool
    from fsm_agent.clients.http.sync_pool import ThreadPool
else:
    asyncio, httpx, ipaddress = deferred("asyncio"), deferred("httpx"), deferred("ipaddress")
    ssl, urllib_request = deferred("ssl"), deferred("urllib.request")

KEPT_S = 30.0  # how long a connection that nobody uses stays open


Pool: TypeAlias = "AsyncPool | HttpxPool"
Body: TypeAlias = "async_pool.Body | httpx_adapter.Body"


@frozen(kw_only=True)
class Network:
    """How requests travel: how long each step may take, how much may come back, over what.

    Attributes:
        connect_s: Until there is a connection.
        read_s: Until a reply begins, and between the pieces of one that is not streamed.
        write_s: Between the pieces of a request.
        pool_s: Until one of `max_connections` is free; who waits longest is next.
        idle_s: Between the pieces of a stream; comments that keep it alive count.
        linger_s: After a stream said that it is done, for its end: only who reads that can use the connection again.
        max_reply_bytes: Of one reply, decompressed.
        max_connections: At once, of each pool: so many requests can be on their way.
        proxy: The URL of one that all requests go through, ``http://user:password@host:port``; None: those of the
            environment (``HTTPS_PROXY``, ``NO_PROXY`` …), never to this machine.  It is shown nowhere.
        verify: Whom to trust: True (whom certifi or ``SSL_CERT_FILE`` names), the path of a PEM file or of a folder
            of certificates, an `ssl.SSLContext`, or False: anybody, so for tests only.
        http2: Speak HTTP/2 where the server can; needs the extra ``http2``.
        transport: Instead of a pool of ours; closed with the client.
        async_transport: The same for asyncio, or ``"httpx"``: that library's own pool, as it always is with a proxy or
            HTTP/2.

    Raises:
        ConfigError: A part cannot be right, or its extra is not installed.
    """

    connect_s: float = 10.0
    read_s: float = 600.0
    write_s: float = 60.0
    pool_s: float = 600.0
    idle_s: float = 300.0
    linger_s: float = 1.0
    max_reply_bytes: int = 64_000_000
    max_connections: int = 1000
    proxy: str | None = field(default=None, repr=False)
    verify: bool | str | ssl.SSLContext = True
    http2: bool = False
    transport: httpx.BaseTransport | None = None
    async_transport: httpx.AsyncBaseTransport | Literal["httpx"] | None = None

    def __post_init__(self) -> None:
        if self.max_connections < 1:
            raise ConfigError(f"max_connections is {self.max_connections!r}: 1 or more would be right")
        if self.http2 and not _has("h2"):
            raise ConfigError("http2=True needs h2: pip install 'fsm-agent[http2]'")
        if isinstance(self.async_transport, str) and self.async_transport != "httpx":
            raise ConfigError(
                f"async_transport is {self.async_transport!r}: a transport, 'httpx' or None would be right"
            )
        if isinstance(self.verify, str) and not os.path.exists(self.verify):
            raise ConfigError(f"verify is {self.verify!r}, and there is no such file or folder of certificates")
        if self.proxy is not None:
            _check_proxy(self.proxy)

    @property
    def secrets(self) -> frozenset[str]:
        """What no message may show."""
        userinfo = "" if self.proxy is None else self.proxy.partition("://")[2].rpartition("@")[0]
        return frozenset(filter(None, [userinfo, userinfo.partition(":")[2]]))


def _has(module: str) -> bool:
    return find_spec(module) is not None


def _check_proxy(url: str) -> None:
    scheme, colon, rest = url.partition("://")
    shown = rest.rpartition("@")[2]
    if not colon or scheme not in ("http", "https", "socks5", "socks5h") or not shown:
        here = f" for {shown!r}" if shown else ""
        raise ConfigError(f"the URL of the proxy{here} is none: one like 'http://host:3128' would be right")
    if scheme.startswith("socks") and not _has("socksio"):
        raise ConfigError(f"the proxy '{scheme}://{shown}' needs socksio: pip install 'httpx[socks]'")


def is_loopback(url: httpx.URL) -> bool:
    """Whether ``url`` is of this machine, where no proxy can reach it."""
    try:
        return ipaddress.ip_address(url.host).is_loopback
    except ValueError:
        return url.host == "localhost" or url.host.endswith(".localhost")


@lru_cache(maxsize=16)
def _trusted(verify: bool | str) -> ssl.SSLContext:
    if isinstance(verify, bool):
        return httpx.create_ssl_context(verify=verify)
    is_folder = os.path.isdir(verify)
    try:
        return ssl.create_default_context(cafile=None if is_folder else verify, capath=verify if is_folder else None)
    except OSError as error:
        raise ConfigError(f"verify is {verify!r}, and holds no certificates in PEM: {error}") from error


def _context(network: Network, scheme: str) -> ssl.SSLContext:
    if scheme != "https" and network.proxy is None:
        # One that trusts nobody: for http it is never asked, and the real one takes 20 ms to load.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return network.verify if isinstance(network.verify, ssl.SSLContext) else _trusted(network.verify)


class Pools:
    """The connections of one client; thread-safe."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._sync: httpx.Client | ThreadPool | None = None
        self._keepers = dict[asyncio.AbstractEventLoop, tuple[Pool, AsyncGenerator[None]]]()

    def _enter_process(self) -> None:
        if self._pid != os.getpid():
            inherited = self._sync
            self._forget()
            if inherited is not None:
                inherited.close()

    def sync_sender(self, url: httpx.URL) -> Callable[[httpx.Request], httpx.Response]:
        """What sends the requests of all threads; ``url`` is where they will go."""
        self._enter_process()
        with self._lock:
            if self._sync is None:
                self._sync = self._sync_pool(url)
                weakref.finalize(self, self._sync.close)
            pool = self._sync
        return partial(pool.send, stream=True) if isinstance(pool, httpx.Client) else pool.handle_request

    def _sync_pool(self, url: httpx.URL) -> httpx.Client | ThreadPool:
        network, options = self._network, self._options(url)
        if network.transport is not None or network.http2 or self._has_proxy(url):
            return httpx.Client(transport=network.transport, **options)
        from fsm_agent.clients.http.sync_pool import ThreadPool

        context = partial(_context, network, "https")
        return ThreadPool(context, max_connections=network.max_connections, idle_s=KEPT_S)

    def _has_proxy(self, url: httpx.URL) -> bool:
        return bool(self._network.proxy or (not is_loopback(url) and urllib_request.getproxies()))

    @property
    def mine(self) -> Pool | None:
        """The pool of the running loop, if it has one."""
        mine = self._keepers.get(asyncio.get_running_loop())
        return None if mine is None else mine[0]

    async def make_mine(self, url: httpx.URL) -> Pool:
        """Make the pool of the running loop; ``url`` is where its requests will go."""
        self._enter_process()
        loop = asyncio.get_running_loop()
        pool = self._async_pool(url)
        keeper = _keep(pool)
        await anext(keeper)  # lets no other task of this loop run
        with self._lock:
            for dead in [known for known in self._keepers if known.is_closed()]:
                del self._keepers[dead]
            self._keepers[loop] = (pool, keeper)
        return pool

    def _async_pool(self, url: httpx.URL) -> Pool:
        network, options = self._network, self._options(url)
        given = network.async_transport
        if given is not None or network.http2 or self._has_proxy(url):
            return _over_httpx(transport=None if given == "httpx" else given, **options)
        from fsm_agent.clients.http.async_pool import AsyncPool

        context = partial(_context, network, "https")
        return AsyncPool(context, max_connections=network.max_connections, idle_s=KEPT_S)

    def _options(self, url: httpx.URL) -> dict[str, Any]:
        network = self._network
        limits = httpx.Limits(
            max_connections=network.max_connections, max_keepalive_connections=100, keepalive_expiry=KEPT_S
        )
        return {
            "verify": _context(network, url.scheme),
            "limits": limits,
            "http2": network.http2,
            "proxy": network.proxy,
            "trust_env": not is_loopback(url),
        }

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


def _over_httpx(**options: Any) -> HttpxPool:
    from fsm_agent.clients.http.httpx_adapter import HttpxPool

    return HttpxPool(httpx.AsyncClient(**options))


async def _keep(pool: Pool) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await pool.aclose()


async def _end(keeper: AsyncGenerator[None]) -> None:
    await keeper.aclose()

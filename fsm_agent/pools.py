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
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from fsm_agent.deferred import deferred
from fsm_agent.errors import ConfigError
from fsm_agent.field_checks import is_amount, is_whole
from fsm_agent.mistakes import check
from fsm_agent.redaction import secrets_in_url
from fsm_agent.values import frozen

if TYPE_CHECKING:
    import asyncio
    import ipaddress
    import ssl
    import urllib.request as urllib_request

    import httpx

    from fsm_agent import http_pool, httpx_pool
    from fsm_agent.http_pool import AsyncPool
    from fsm_agent.httpx_pool import HttpxPool
    from fsm_agent.thread_pool import ThreadPool
else:
    asyncio, httpx, ipaddress = deferred("asyncio"), deferred("httpx"), deferred("ipaddress")
    ssl, urllib_request = deferred("ssl"), deferred("urllib.request")

KEPT_S = 30.0  # how long a connection that nobody uses stays open


Transport: TypeAlias = Literal["fast", "stock", "httpx"]
Pool: TypeAlias = "AsyncPool | HttpxPool"
Body: TypeAlias = "http_pool.Body | httpx_pool.Body"


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
        async_transport: The same for asyncio, or which of ours: ``"fast"`` (needs the extra of that name),
            ``"stock"`` (the same on h11), ``"httpx"`` (that library's own); None: the first of these that is there.
            With a proxy or HTTP/2 it is always httpx's own.

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
    async_transport: httpx.AsyncBaseTransport | Transport | None = None

    def __post_init__(self) -> None:
        for name in ("connect_s", "read_s", "write_s", "pool_s", "idle_s", "linger_s"):
            check(name, value := getattr(self, name), is_amount(value), "a number of seconds from 0", ConfigError)
        for name in ("max_reply_bytes", "max_connections"):
            check(name, value := getattr(self, name), is_whole(value, 1), "1 or more", ConfigError)
        if self.http2 and not _has("h2"):
            raise ConfigError("http2=True needs h2: pip install 'fsm-agent[http2]'")
        if isinstance(self.async_transport, str):
            if self.async_transport not in get_args(Transport):
                known = ", ".join([repr(name) for name in get_args(Transport)])
                raise ConfigError(f"async_transport is {self.async_transport!r}: one of {known} would be right")
            if self.async_transport == "fast" and not _has("httptools"):
                raise ConfigError("async_transport='fast' needs httptools: pip install 'fsm-agent[fast]'")
        if isinstance(self.verify, str) and not os.path.exists(self.verify):
            raise ConfigError(f"verify is {self.verify!r}, and there is no such file or folder of certificates")
        if self.proxy is not None:
            _check_proxy(self.proxy)

    @property
    def secrets(self) -> frozenset[str]:
        """What no message may show."""
        return frozenset(() if self.proxy is None else secrets_in_url(self.proxy))


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


def httpx_options(network: Network, url: httpx.URL) -> dict[str, Any]:
    """Return what an httpx client takes for requests to ``url`` over this network."""
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
        return partial(
            _sent, partial(pool.send, stream=True) if isinstance(pool, httpx.Client) else pool.handle_request
        )

    def _sync_pool(self, url: httpx.URL) -> httpx.Client | ThreadPool:
        network, options = self._network, httpx_options(self._network, url)
        if network.transport is not None or network.http2 or self._has_proxy(url):
            return httpx.Client(transport=network.transport, **options)
        from fsm_agent.thread_pool import ThreadPool

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
        network, options = self._network, httpx_options(self._network, url)
        kind = network.async_transport or ("fast" if _has("httptools") else "stock")
        if kind not in ("fast", "stock"):
            given = None if kind == "httpx" else network.async_transport
            return _over_httpx(transport=cast("httpx.AsyncBaseTransport | None", given), **options)
        if network.http2 or self._has_proxy(url):
            return _over_httpx(**options)
        from fsm_agent.http1 import H11Wire, HttptoolsWire
        from fsm_agent.http_pool import AsyncPool

        return AsyncPool(
            HttptoolsWire if kind == "fast" else H11Wire,
            partial(_context, network, "https"),
            max_connections=network.max_connections,
            idle_s=KEPT_S,
        )

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


def _sent(send: Callable[[httpx.Request], httpx.Response], request: httpx.Request) -> httpx.Response:
    from fsm_agent.log_masking import masked_logs

    with masked_logs(request):
        return send(request)


def _over_httpx(**options: Any) -> HttpxPool:
    from fsm_agent.httpx_pool import HttpxPool

    return HttpxPool(httpx.AsyncClient(**options))


async def _keep(pool: Pool) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await pool.aclose()


async def _end(keeper: AsyncGenerator[None]) -> None:
    await keeper.aclose()

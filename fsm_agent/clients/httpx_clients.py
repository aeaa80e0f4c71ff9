"""The httpx clients of an `HttpClient`: one for all threads and one for each event loop, made at first use.

Each is the user's own, or a client over a pool of this package.  Requests through a proxy or over HTTP/2 take httpx's
own transport instead.  The client of a loop is closed with it: an asynchronous generator references it, and
`asyncio.run` closes all generators before the loop.  After `os.fork` the child makes new clients and does not touch the
inherited ones, whose connections and locks belong to the parent.  The user closes the user's own clients.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import urllib.request
import weakref
from collections.abc import AsyncGenerator
from typing import Any

import httpx

from fsm_agent.clients.http.async_pool import AsyncPooledTransport
from fsm_agent.clients.http.network import Network, check_proxies_of_environment, is_loopback
from fsm_agent.clients.http.sync_pool import PooledTransport
from fsm_agent.clients.http.trust import context_for
from fsm_agent.clients.http.watch import AsyncWatch, Pieces, Watch
from fsm_agent.clients.log_masking import masked_logs
from fsm_agent.clients.request_and_response import HttpExchange
from fsm_agent.errors import UsageError

KEPT_S = 30.0  # for an unused connection to stay open, in httpx's pool
KEPT = 100  # unused connections there


class _NoCookies(httpx.Cookies):
    """A cookie jar that stays empty: no provider needs cookies, and looking for them is httpx's slowest step."""

    def extract_cookies(self, response: httpx.Response) -> None:
        pass


class _PooledClient(httpx.Client):
    cookies = _NoCookies()  # type: ignore[override]


class _AsyncPooledClient(httpx.AsyncClient):
    cookies = _NoCookies()  # type: ignore[override]


class ThreadClient:
    """The client of all threads.

    Args:
        network: Of its requests.
        url: Where they will go.
    """

    def __init__(self, network: Network, url: httpx.URL) -> None:
        self._is_own = network.client is None
        self._is_pooled = self._is_own and not _needs_httpx(network, url)
        self._watches = set[Watch]()
        self._client: httpx.Client
        if network.client is not None:
            self._client = network.client
        elif self._is_pooled:
            transport = PooledTransport(verify=network.verify, max_connections=network.max_connections)
            self._client = _PooledClient(transport=transport)
        else:
            self._client = httpx.Client(**httpx_options(network, url))

    def send(self, exchange: HttpExchange) -> httpx.Response:
        """Send a request; the response must be closed.

        Raises:
            httpx.TransportError: There is no response.
            RuntimeError: The client is closed.
        """
        with masked_logs(exchange.find_secrets):
            if self._is_pooled:
                return self._client.send(_own_request(exchange), stream=True)
            watch = Watch(exchange.limits, exchange.deadline, exchange.abort, self._watches)
            try:
                request = _build_request(self._client, exchange, timeout=watch.timeouts, trace=watch.trace)
                response = self._client.send(request, stream=True, follow_redirects=False)
            except BaseException:
                watch.end()
                raise
        watch.follow(response)
        return response

    def close(self) -> None:
        """End all requests."""
        for watch in self._watches.copy():
            watch.hang_up()
        if self._is_own:
            self._client.close()


class LoopClient:
    """The client of the running event loop.

    Args:
        network: Of its requests.
        url: Where they will go.
    """

    def __init__(self, network: Network, url: httpx.URL) -> None:
        self._is_own = network.async_client is None
        self._is_pooled = self._is_own and not _needs_httpx(network, url)
        self._watch = AsyncWatch()
        self._client: httpx.AsyncClient
        if network.async_client is not None:
            self._client = network.async_client
        elif self._is_pooled:
            transport = AsyncPooledTransport(verify=network.verify, max_connections=network.max_connections)
            self._client = _AsyncPooledClient(transport=transport)
        else:
            self._client = httpx.AsyncClient(**httpx_options(network, url))

    async def send(self, exchange: HttpExchange) -> httpx.Response:
        """Send a request; the response must be closed."""
        with masked_logs(exchange.find_secrets):
            if self._is_pooled:
                return await self._client.send(_own_request(exchange), stream=True)
            request = _build_request(self._client, exchange, timeout=exchange.limits, trace=self._watch.trace)
            sending = self._client.send(request, stream=True, follow_redirects=False)
            response = await self._watch.wait(sending, exchange.deadline)
        self._watch.follow(response, exchange.deadline)
        return response

    async def aclose(self) -> None:
        """End all requests."""
        self._watch.hang_up()
        if self._is_own:
            await self._client.aclose()


def _own_request(exchange: HttpExchange) -> httpx.Request:
    """Return the request for a client of ours, which has nothing to add to it."""
    content = httpx.ByteStream(exchange.content)
    return httpx.Request(
        "POST", exchange.url, headers=exchange.headers, stream=content, extensions=exchange.extensions()
    )


def _build_request(
    client: httpx.Client | httpx.AsyncClient, exchange: HttpExchange, **extensions: Any
) -> httpx.Request:
    """Return the request with what the client adds to it."""
    request = client.build_request(
        "POST",
        exchange.url,
        headers=exchange.headers,
        content=exchange.content,
        extensions={**exchange.extensions(), **extensions},
    )
    request.stream = Pieces(exchange.content)
    return request


def _needs_httpx(network: Network, url: httpx.URL) -> bool:
    return bool(network.http2 or network.proxy or (not is_loopback(url) and urllib.request.getproxies()))


def httpx_options(network: Network, url: httpx.URL) -> dict[str, Any]:
    """Return the arguments of an httpx client for requests to ``url`` over this network.

    Raises:
        ConfigError: A proxy of the environment is none.
    """
    if network.proxy is None and not is_loopback(url):
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
        "trust_env": not is_loopback(url),
    }


class HttpxClients:
    """The clients of one `HttpClient`; thread-safe."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._inherited: list[object] = []  # referenced, because destructors would close connections of the parent
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._of_threads: ThreadClient | None = None
        self._of_loops: dict[asyncio.AbstractEventLoop, tuple[LoopClient, AsyncGenerator[None]]] = {}

    def _enter_process(self) -> None:
        if self._pid != os.getpid():
            self._inherited += [self._of_threads, self._of_loops]
            self._begin()

    def for_threads(self, url: httpx.URL) -> ThreadClient:
        """Return the client of all threads; ``url`` is where its requests will go.

        Raises:
            UsageError: The network has a client for asyncio only.
        """
        self._enter_process()
        with self._lock:
            if self._of_threads is None:
                if self._network.client is None and self._network.async_client is not None:
                    raise UsageError(
                        "network: expected client, for calls without await, got async_client alone; add it"
                    )
                self._of_threads = ThreadClient(self._network, url)
                weakref.finalize(self, _close, self._of_threads, self._pid)
            return self._of_threads

    @property
    def mine(self) -> LoopClient | None:
        """The client of the running loop; None if it has none."""
        mine = self._of_loops.get(asyncio.get_running_loop())
        return None if mine is None else mine[0]

    async def make_mine(self, url: httpx.URL) -> LoopClient:
        """Make the client of the running loop; ``url`` is where its requests will go.

        Raises:
            UsageError: The network has a client for threads only.
        """
        if self._network.async_client is None and self._network.client is not None:
            raise UsageError("network: expected async_client, for calls that are awaited, got client alone; add it")
        self._enter_process()
        loop = asyncio.get_running_loop()
        client = LoopClient(self._network, url)
        keeper = _keep(client)
        await anext(keeper)  # lets no other task of this loop run
        with self._lock:
            for dead in [loop for loop in self._of_loops if loop.is_closed()]:
                del self._of_loops[dead]
            self._of_loops[loop] = (client, keeper)
        return client

    def close(self) -> None:
        """Close the client of threads; event loops close their own, soon after."""
        self._enter_process()
        with self._lock:
            of_threads, self._of_threads = self._of_threads, None
            running = [loop for loop in self._of_loops if loop.is_running()]
            keepers = [(loop, self._of_loops.pop(loop)[1]) for loop in running]
        if of_threads is not None:
            of_threads.close()
        for loop, keeper in keepers:
            asyncio.run_coroutine_threadsafe(_end(keeper), loop)

    async def aclose(self) -> None:
        """`close`, and wait until the running loop's client is closed."""
        with self._lock:
            mine = self._of_loops.pop(asyncio.get_running_loop(), None)
        self.close()
        if mine is not None:
            await _end(mine[1])


def _close(client: ThreadClient, pid: int) -> None:
    if pid == os.getpid():
        client.close()


async def _keep(client: LoopClient) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await client.aclose()


async def _end(keeper: AsyncGenerator[None]) -> None:
    await keeper.aclose()

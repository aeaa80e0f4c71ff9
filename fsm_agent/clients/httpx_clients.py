"""The httpx clients of an `HttpClient`: one for each event loop, made on first use.

Requests through a proxy use httpx's own transport; all others use aiohttp.  A client is closed with its event loop: an
asynchronous generator holds it, and `asyncio.run` closes all such generators before it closes the loop.  After
`os.fork`, the child makes new clients and leaves the parent's connections alone.
"""

from __future__ import annotations

import asyncio
import math
import os
import ssl
import sys
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import httpx

from fsm_agent._internal.system import at_fork
from fsm_agent.clients.endpoint import masked_logs
from fsm_agent.clients.http_exchange import HAS_ARRIVED, Deadline, HttpExchange
from fsm_agent.clients.network import Network, check_proxies_of_environment, is_loopback, uses_proxy
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.validation import require

if TYPE_CHECKING:
    from fsm_agent.clients.aiohttp_transport import AiohttpTransport

T = TypeVar("T")

PIECE_BYTES = 65536  # size of an upload's pieces: a socket accepts this much at once unless the server stops reading
_HTTP1 = ["http/1.1"]  # its ALPN name

_loop_of: weakref.WeakKeyDictionary[httpx.AsyncClient, asyncio.AbstractEventLoop] = weakref.WeakKeyDictionary()


class _NoCookies(httpx.Cookies):
    """A cookie jar that stays empty.  Providers need no cookies, and extracting them is httpx's slowest step."""

    def extract_cookies(self, response: httpx.Response) -> None:
        pass


class _Client(httpx.AsyncClient):
    """An httpx client that uses aiohttp's ``connections`` or, by default, httpx's own."""

    cookies = _NoCookies()  # type: ignore[override]

    def __init__(self, connections: AiohttpTransport | None = None, **options: Any) -> None:
        super().__init__(transport=connections, **options)
        self.connections = connections


class LoopClient:
    """The client for the running event loop.

    Raises:
        ConfigError: If the user's function did not return a client.
        UsageError: If the user's client belongs to another event loop.
    """

    def __init__(self, network: Network, url: httpx.URL) -> None:
        own: Any = network.client
        self._stays_open = isinstance(own, httpx.AsyncClient)
        # A user's client has its own limits.
        self._free = asyncio.Semaphore(network.max_connections if own is None else sys.maxsize)
        self._waits = set[asyncio.Timeout]()
        self._is_over = False
        if own is None:
            client: httpx.AsyncClient = make_client(network, url)
        elif isinstance(own, httpx.AsyncClient):
            client = _of_this_loop(own)
        else:
            client = own()
            is_client = isinstance(client, httpx.AsyncClient)
            require("the return value of client of a Network", client, is_client, "an httpx.AsyncClient", ConfigError)
        self._client = client
        self._connections = client.connections if isinstance(client, _Client) else None

    async def send(self, exchange: HttpExchange) -> httpx.Response:
        """Send a request.  The caller must close the response.

        Raises:
            httpx.TransportError: If there is no response.
            RuntimeError: If the client is closed.
        """
        if self._free.locked():
            await self.wait(self._free.acquire(), exchange.deadline, exchange.limits["pool"], httpx.PoolTimeout)
        else:
            await self._free.acquire()
        try:
            with masked_logs(exchange.find_secrets):
                response = await self._send(exchange)
        except BaseException:
            self._free.release()
            raise
        if response.is_closed:  # a mock or an event hook has read it
            self._free.release()
        else:
            response.stream = _Body(response, self, exchange, is_bounded=self._bounds_reads(exchange))
        return response

    def _bounds_reads(self, exchange: HttpExchange) -> bool:
        """Return whether aiohttp's read timeout suffices because nothing is streamed and the upload is in one piece."""
        is_short = not exchange.is_stream and len(exchange.content) <= PIECE_BYTES
        return is_short and self._connections is not None

    async def _send(self, exchange: HttpExchange) -> httpx.Response:
        limit_s, limits = math.inf, exchange.limits
        upload: _Upload | None = None
        if self._bounds_reads(exchange):
            request = _own_request(exchange, httpx.ByteStream(exchange.content), limits["read"])
            limit_s = limits["connect"] + limits["read"]  # aiohttp does not limit headers that arrive byte by byte
        elif self._connections is not None:
            upload = _Upload(exchange)
            request = _own_request(exchange, upload, None)
            request.headers["content-length"] = str(len(exchange.content))
        else:  # `build_request` adds the headers and the like of a user's client
            request = self._client.build_request(
                "POST",
                exchange.url,
                headers=exchange.headers,
                content=exchange.content,
                extensions={"timeout": limits},
            )
            request.stream = upload = _Upload(exchange)
        sending = self._client.send(request, stream=True, follow_redirects=False)
        return await self.wait(sending, exchange.deadline, limit_s, upload=upload)

    async def wait(
        self,
        step: Awaitable[T],
        deadline: Deadline,
        limit_s: float = math.inf,
        late: type[httpx.TimeoutException] = httpx.ReadTimeout,
        *,
        upload: _Upload | None = None,
    ) -> T:
        """Return the result of one of a request's steps.

        If the step takes longer than ``limit_s`` seconds or runs past the deadline, ``late`` is raised.  An upload
        extends the limit and provides its own error.

        Raises:
            httpx.TransportError: If the step fails or is late, or `aclose` was called.
        """
        try:
            async with asyncio.timeout(0 if self._is_over else _finite(deadline.within(limit_s))) as timeout:
                self._waits.add(timeout)
                if upload is not None:
                    upload.timeout = timeout
                return await step
        except Exception as error:
            if self._is_over:
                raise httpx.ReadError("the client was closed") from None
            if isinstance(error, TimeoutError) and timeout.expired():
                raise (late if upload is None else upload.late)("") from error
            failure = _as_error_of_httpx(error)
            if failure is None:
                raise
        finally:
            self._waits.discard(timeout)
            if upload is not None:
                upload.timeout = None
        try:
            raise failure  # not in the `except` block: the context would hold the headers of the request
        finally:
            del failure  # breaks a cycle: its traceback references this frame

    def release(self) -> None:
        self._free.release()

    def hang_up(self) -> None:
        """End all requests, and refuse new ones."""
        self._is_over = True
        for timeout in self._waits:
            if not timeout.expired():
                timeout.reschedule(0)

    async def aclose(self) -> None:
        """End all requests, and close the client unless it is the user's."""
        self.hang_up()
        if not self._stays_open:
            await self._client.aclose()

    def forget(self) -> None:
        if self._connections is not None:
            self._connections.forget()


def _own_request(exchange: HttpExchange, body: httpx.AsyncByteStream, read_s: float | None) -> httpx.Request:
    """Return a request to send through aiohttp.  ``read_s`` limits the wait for each piece of the reply."""
    return httpx.Request(
        "POST",
        exchange.url,
        headers=exchange.headers,
        stream=body,
        extensions={"timeout": {"connect": exchange.limits["connect"], "read": read_s}},
    )


class _Upload(httpx.AsyncByteStream):
    """A request's content, sent in pieces.  Each piece has a write timeout, and the last one starts the read timeout.

    Attributes:
        timeout: The timeout that limits the wait for the response; None once the wait is over.
        late: The error to raise when the timeout expires.
    """

    def __init__(self, exchange: HttpExchange) -> None:
        self._exchange = exchange
        self.timeout: asyncio.Timeout | None = None
        self.late: type[httpx.TimeoutException] = httpx.ReadTimeout

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content = self._exchange.content
        self._move("write", httpx.WriteTimeout)
        for at in range(0, len(content), PIECE_BYTES):
            yield content[at : at + PIECE_BYTES]
            self._move("write", httpx.WriteTimeout)
        self._move("read", httpx.ReadTimeout)

    def _move(self, step: str, late: type[httpx.TimeoutException]) -> None:
        if self.timeout is not None and not self.timeout.expired():
            self.late = late
            left_s = self._exchange.deadline.within(self._exchange.limits[step])
            self.timeout.reschedule(asyncio.get_running_loop().time() + left_s)

    def read(self) -> bytes:
        """Return the whole content, which recorders such as vcrpy ask for."""
        return self._exchange.content


class _Body(httpx.AsyncByteStream):
    def __init__(
        self, response: httpx.Response, client: LoopClient, exchange: HttpExchange, *, is_bounded: bool
    ) -> None:
        body: Any = response.stream
        self._body: httpx.AsyncByteStream = body
        self._pieces = aiter(self._body)
        self._has_arrived: Callable[[], bool] = response.extensions.get(HAS_ARRIVED, bool)
        self._client: LoopClient | None = client
        self._exchange = exchange
        self._is_bounded = is_bounded

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        exchange, piece = self._exchange, anext(self._pieces, None)
        assert self._client is not None
        data: bytes | None
        if self._has_arrived():  # reading the rest takes no time
            data = await piece
        else:
            with masked_logs(exchange.find_secrets):
                limit_s = math.inf if self._is_bounded else exchange.limits["read"]
                data = await self._client.wait(piece, exchange.deadline, limit_s)
        if data is None:
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.release()
        await self._body.aclose()


def _finite(seconds: float) -> float | None:
    return None if seconds == math.inf else seconds


def _as_error_of_httpx(error: Exception) -> httpx.TransportError | None:
    if not any(type(one).__module__.startswith("aiohttp.") for one in (error, error.__cause__)):
        return None
    from fsm_agent.clients.aiohttp_transport import as_error_of_httpx

    return as_error_of_httpx(error)


def _of_this_loop(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """Return the user's client, or raise `UsageError` if it belongs to another event loop."""
    loop = asyncio.get_running_loop()
    if _loop_of.setdefault(client, loop) is not loop:
        raise UsageError(
            "client of a Network: expected one httpx.AsyncClient for each event loop, got the same for two; pass a"
            " function that makes one: Network(client=lambda: httpx.AsyncClient(…))"
        )
    return client


def make_client(network: Network, url: httpx.URL) -> _Client:
    """Return a client for requests to ``url`` from the running event loop.

    Raises:
        ConfigError: If the environment names an invalid proxy, or `Network.verify` names a file without certificates.
    """
    trust = _trust(network, url)
    if not uses_proxy(network, url):
        from fsm_agent.clients.aiohttp_transport import AiohttpTransport  # imports aiohttp

        return _Client(AiohttpTransport(trust))
    if network.proxy is None and not is_loopback(url):
        check_proxies_of_environment()
    return _Client(
        verify=trust,
        limits=httpx.Limits(max_connections=None, keepalive_expiry=30.0),
        proxy=network.proxy,
        trust_env=not is_loopback(url),
    )


def _trust(network: Network, url: httpx.URL) -> ssl.SSLContext:
    verify = network.verify
    if isinstance(verify, ssl.SSLContext):
        verify.set_alpn_protocols(_HTTP1)  # as httpx does with a caller's context
        return verify
    if url.scheme != "https" and network.proxy is None:
        # Plain HTTP never uses the context, and loading certificates takes 20 ms.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if verify is True:
        for variable in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            if path := os.environ.get(variable):
                return _context_for(path, variable)
    return _context_for(verify, "verify")


@lru_cache(maxsize=16)
def _context_for(verify: bool | str, source: str) -> ssl.SSLContext:
    """Return a TLS context that trusts the certificates named by ``verify``; see `Network.verify`."""
    if isinstance(verify, bool):
        context = httpx.create_ssl_context(verify=verify, trust_env=False)
    else:
        is_folder = any(map(os.path.isdir, (verify, verify.partition(os.pathsep)[0])))  # one directory, or several
        try:
            context = ssl.create_default_context(
                cafile=None if is_folder else verify, capath=verify if is_folder else None
            )
        except OSError as error:
            raise ConfigError(f"{source}: expected certificates in PEM, got {verify!r}: {error}") from error
    context.set_alpn_protocols(_HTTP1)
    return context


class _Open(NamedTuple):
    """An open client, with the generator that keeps it open and the finalizer that has the event loop close it."""

    client: LoopClient
    keeper: AsyncGenerator[None]
    end: weakref.finalize[..., Any]


class HttpxClients:
    """The httpx clients of one `HttpClient`.  This class is thread-safe."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._of_loops: dict[asyncio.AbstractEventLoop, _Open] = {}
        _all.add(self)

    @property
    def mine(self) -> LoopClient | None:
        mine = self._of_loops.get(asyncio.get_running_loop())
        return None if mine is None else mine.client

    async def make_mine(self, url: httpx.URL) -> LoopClient:
        loop = asyncio.get_running_loop()
        client = LoopClient(self._network, url)
        keeper = _keep(client)
        await anext(keeper)  # no other task of this loop runs meanwhile
        for ended in [loop for loop in list(self._of_loops) if loop.is_closed()]:
            self._of_loops.pop(ended).end()
        self._of_loops[loop] = _Open(client, keeper, weakref.finalize(self, _end, loop, keeper, client))
        return client

    def close(self) -> None:
        """Close all clients.  Each event loop closes its client a little later."""
        while self._of_loops:
            self._of_loops.popitem()[1].end()

    async def aclose(self) -> None:
        """Close all clients, and wait for the running loop's client."""
        mine = self.mine
        self.close()
        if mine is not None:
            await mine.aclose()

    def forget(self) -> None:
        """Drop all clients without closing their connections."""
        for client, keeper, end in self._of_loops.values():
            client.forget()
            end.detach()
            _inherited.append(keeper)
        self._of_loops.clear()


async def _keep(client: LoopClient) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        _ending.pop(client, None)
        await client.aclose()


async def _aclose(keeper: AsyncGenerator[None]) -> None:
    await keeper.aclose()


def _end(loop: asyncio.AbstractEventLoop, keeper: AsyncGenerator[None], client: LoopClient) -> None:
    """Make an event loop close its client.  This is safe from any thread."""
    _ending[client] = keeper
    try:
        loop.call_soon_threadsafe(lambda: loop.create_task(_aclose(keeper)))
    except RuntimeError:  # the loop is closed
        del _ending[client]
        client.forget()


_all: weakref.WeakSet[HttpxClients] = weakref.WeakSet()
_inherited: list[object] = []  # kept, because their destructors would close the parent's connections
# Kept until it begins to close, because `asyncio.run` first cancels all tasks and then closes the kept generators.
_ending: dict[LoopClient, AsyncGenerator[None]] = {}


def _forget_parents_clients() -> None:
    for clients in list(_all):
        clients.forget()


at_fork(after_in_child=_forget_parents_clients)

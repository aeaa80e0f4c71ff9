"""Who asks a model over HTTP, and holds the connections?

`HttpClient` does no retries: how often and how late to ask again is the machine's to say.  A request that a server
cannot have read is sent again by its transport: see `fsm_agent.clients.http`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping, Sequence
from contextlib import closing, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.clients.endpoint import Access, Endpoint
from fsm_agent.clients.exchange import Exchange
from fsm_agent.clients.http.network import Network
from fsm_agent.clients.http.request import Deadline
from fsm_agent.clients.http.transports import Transports
from fsm_agent.clients.response_reader import ResponseReader
from fsm_agent.errors import ConfigError, ProviderError, UsageError
from fsm_agent.lifecycle.effects import Request
from fsm_agent.messages.event import Delta
from fsm_agent.messages.reply import Reply
from fsm_agent.mistakes import check
from fsm_agent.providers.provider import Provider

if TYPE_CHECKING:
    import asyncio

    import httpx

    from fsm_agent.clients.http.transport import AsyncResponse, Response
else:
    asyncio, httpx = deferred("asyncio"), deferred("httpx")

__all__ = ["Client", "HttpClient", "Network", "client_for"]

T = TypeVar("T")

_UNBOUNDED = nullcontext()

requests_allowed = True  # tests turn it off: `fsm_agent.testing.no_model_requests`


class Client(Protocol):
    """Asks one model.  Whatever goes wrong on the way is a `ProviderError`.

    ``timeout_s`` is for the request as a whole.
    """

    @property
    def name(self) -> str:
        """Which model, as ``provider:model``."""

    def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """The reply to ``request``."""

    def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[Delta | Reply]:
        """The reply as it comes: deltas, then exactly one `Reply`, last.  Close it to stop early."""

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """`complete` for asyncio."""

    def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """`stream` for asyncio."""

    def close(self) -> None:
        """Let go of all connections."""

    async def aclose(self) -> None:
        """`close` for asyncio."""


class HttpClient:
    """A client of one provider's model.

    Usable from any number of threads and event loops at once.  The key and the base URL are looked up when a request
    is made, so a client can be made where they are not known yet.  All methods end at ``timeout_s``; only looking up a
    host's name may hold up the sync ones.  A thread's request can be ended from another one: see
    `fsm_agent.runtime.abort`.

    Args:
        provider: One of the catalogue, by its name, or your own.
        model: As the provider calls it; of the embedded provider, a path or "".
        api_key: By default that of the provider's variable.
        base_url: By default that of the provider's variable, then the provider's.
        headers: Sent with every request; they win over those of the provider.
        network: How requests travel.

    Raises:
        ConfigError: No such provider, or an argument that cannot be right.
    """

    def __init__(
        self,
        provider: Provider | str,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        network: Network | None = None,
    ) -> None:
        if isinstance(provider, str):
            from fsm_agent.providers import catalog  # with all codecs

            provider = catalog.provider(provider)
        check(
            "provider", provider, isinstance(provider, Provider), "a name such as 'openai', or a Provider", ConfigError
        )
        check("model", model, isinstance(model, str), "the name that the provider gives it", ConfigError)
        check("headers", headers, isinstance(headers, Mapping | None), "a mapping of texts", ConfigError)
        self._access = Access(
            provider=provider, model=model, api_key=api_key, base_url=base_url, headers=dict(headers or {})
        )
        check("network", network, isinstance(network, Network | None), "Network(read_s=60), say,", ConfigError)
        self._network = network or Network()
        self._transports = Transports(self._network)
        self._is_closed = False

    @property
    def name(self) -> str:
        """Which model, as ``provider:model``."""
        return f"{self._access.provider.name}:{self._access.model}"

    def __repr__(self) -> str:
        return f"<HttpClient {self.name!r}{' closed' if self._is_closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the configuration; connections and the key of the environment are found anew.

        Raises:
            UsageError: An argument holds a secret, which a pickle would carry in the clear.
        """
        access = self._access
        if secret := access.secret_argument or ("network.proxy" if self._network.secrets else None):
            variables = " or ".join(access.provider.key_variables) or "a variable of the environment"
            raise UsageError(
                f"the client of {self.name!r} cannot be pickled: {secret} may hold a secret; a key in {variables} is"
                " looked up when a request is made, and is in no pickle"
            )
        return _unpickled, (access.provider, access.model, access.base_url, dict(access.headers), self._network)

    def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """The reply to ``request``.

        Raises:
            ConfigError: The key or the base URL is missing.
            UsageError: The request cannot be said to this model, or the client is closed.
            ProviderError: There is no reply.
        """
        return _last([*self._ask(request, stream=False, timeout_s=timeout_s)])

    def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[Delta | Reply]:
        """The reply as it comes: deltas, then exactly one `Reply`, last.

        Close it to stop early.  Errors are those of `complete`.
        """
        self._check_open()
        return self._ask(request, stream=True, timeout_s=timeout_s)

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """`complete` for asyncio."""
        self._check_open()
        exchange = self._exchange(request, await self._alocate(), timeout_s, is_stream=False)
        failure: ProviderError | None = None
        response: AsyncResponse | None = None
        try:
            async with _UNBOUNDED if timeout_s is None else asyncio.timeout(exchange.deadline.time_left()):
                response = await self._asend(exchange)
                reader = _reader(exchange, response)
                while data := await response.read():
                    reader.feed(data)
        except (httpx.TransportError, TimeoutError) as error:
            if response is None:
                raise exchange.failure(error, has_begun=False) from error
            failure = exchange.failure(error, has_begun=True)
            failure.__cause__ = error
        finally:
            if response is not None:
                await response.aclose()
        try:
            return reader.finish(failure)
        finally:
            del failure  # raised, it holds this frame

    def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """`stream` for asyncio."""
        self._check_open()
        return self._aask(request, timeout_s=timeout_s)

    def _ask(self, request: Request, *, stream: bool, timeout_s: float | None) -> Generator[Delta | Reply]:
        self._check_open()
        exchange = self._exchange(request, self._access.locate(), timeout_s, is_stream=stream)
        failure: ProviderError | None = None
        with closing(self._send(exchange)) as response:
            reader = _reader(exchange, response)
            try:
                while data := response.read():
                    yield from reader.feed(data)
                    if reader.has_failed:
                        break
                    if reader.is_done:
                        exchange.linger()
            except httpx.TransportError as error:
                if not reader.is_done:
                    failure = exchange.failure(error, has_begun=True)
                    failure.__cause__ = error
        try:
            yield from reader.end()
            yield reader.finish(failure)
        finally:
            del failure

    async def _aask(self, request: Request, *, timeout_s: float | None) -> AsyncGenerator[Delta | Reply]:
        self._check_open()
        exchange = self._exchange(request, await self._alocate(), timeout_s, is_stream=True)
        failure: ProviderError | None = None
        try:
            response = await _in_time(exchange, self._asend(exchange))
        except (httpx.TransportError, TimeoutError) as error:
            raise exchange.failure(error, has_begun=False) from error
        try:
            reader = _reader(exchange, response)
            while data := await _in_time(exchange, response.read()):
                for delta in reader.feed(data):
                    yield delta
                if reader.has_failed:
                    break
                if reader.is_done:
                    exchange.linger()
        except (httpx.TransportError, TimeoutError) as error:
            if not reader.is_done:
                failure = exchange.failure(error, has_begun=True)
                failure.__cause__ = error
        finally:
            await response.aclose()
        try:
            for delta in reader.end():
                yield delta
            yield reader.finish(failure)
        finally:
            del failure

    async def _alocate(self) -> Endpoint:
        access = self._access
        return await asyncio.to_thread(access.locate) if access.starts_server else access.locate()

    def _exchange(self, request: Request, endpoint: Endpoint, timeout_s: float | None, *, is_stream: bool) -> Exchange:
        return Exchange(endpoint, request, self._network, Deadline(timeout_s), is_stream)

    def _send(self, exchange: Exchange) -> Response:
        try:
            return self._transports.for_threads(exchange.head.url).send(exchange)
        except httpx.TransportError as error:
            raise exchange.failure(error, has_begun=False) from error
        except RuntimeError:
            self._check_open()
            raise

    async def _asend(self, exchange: Exchange) -> AsyncResponse:
        transport = self._transports.mine or await self._transports.make_mine(exchange.head.url)
        try:
            return await transport.send(exchange)
        except RuntimeError:
            self._check_open()
            raise

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError(f"the client of {self.name!r} is closed: make a new one")
        if not requests_allowed:
            raise UsageError(f"requests to real models are refused here, and {self.name!r} is one")

    def close(self) -> None:
        """Let go of all connections; those of event loops that run are closed by them, soon.  Safe to repeat."""
        self._is_closed = True
        self._transports.close()

    async def aclose(self) -> None:
        """`close`, and wait until the running loop's connections are closed."""
        self._is_closed = True
        await self._transports.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def client_for(
    model: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    headers: Mapping[str, str] | None = None,
    network: Network | None = None,
) -> HttpClient:
    """The client of ``provider:model``; ``local:`` and ``local:/path.gguf`` start their server when first asked.

    Arguments and errors as of `HttpClient`.
    """
    from fsm_agent.providers.catalog import split_model

    check("model", model, isinstance(model, str), "'provider:model'", ConfigError)
    provider, name = split_model(model)
    return HttpClient(provider, name, api_key=api_key, base_url=base_url, headers=headers, network=network)


def _unpickled(
    provider: Provider, model: str, base_url: str | None, headers: dict[str, str], network: Network
) -> HttpClient:
    return HttpClient(provider, model, base_url=base_url, headers=headers, network=network)


def _last(items: Sequence[Delta | Reply]) -> Reply:
    reply = items[-1]
    assert isinstance(reply, Reply)
    return reply


def _reader(exchange: Exchange, response: Response | AsyncResponse) -> ResponseReader:
    exchange.begin_body()
    return ResponseReader(exchange, response.status, _headers(response.headers, response.is_decoded))


def _headers(raw: Sequence[tuple[bytes, bytes]], is_decoded: bool) -> dict[str, str]:
    """By their names in lower case; ``is_decoded`` says that what one of them says of the body is true no more."""
    said = b"\n".join(chain.from_iterable(raw)).decode("latin-1").split("\n")
    headers = dict(zip(map(str.lower, said[::2]), said[1::2], strict=True)) if len(said) == 2 * len(raw) else {}
    if len(headers) < len(raw):  # one comes again
        headers = {}
        for raw_name, raw_value in raw:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if is_decoded:
        headers.pop("content-encoding", None)
    return headers


def _in_time(exchange: Exchange, working: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    return working if exchange.deadline.timeout_s is None else _bounded(exchange.deadline, working)


async def _bounded(deadline: Deadline, working: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(deadline.time_left()):
        return await working

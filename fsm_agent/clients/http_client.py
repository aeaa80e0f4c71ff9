"""`HttpClient`: a client for one provider's model over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from fsm_agent.call.effects import Request
from fsm_agent.clients.endpoint import Access, Endpoint
from fsm_agent.clients.http_exchange import (
    Deadline,
    HttpExchange,
    ResponseReader,
    causes,
    check_open,
    warn_of_left_out,
)
from fsm_agent.clients.network import Network
from fsm_agent.clients.sync_verbs import SyncVerbs
from fsm_agent.errors import ConfigError, ProviderError, UsageError
from fsm_agent.messages.events import Delta
from fsm_agent.messages.reply import Reply
from fsm_agent.providers.catalog import PROVIDERS, Provider
from fsm_agent.validation import require

if TYPE_CHECKING:
    import httpx


class HttpClient(SyncVerbs):
    """A client for one provider's model.  It does not retry.

    It can be used from several threads and event loops at once.  The key and the base URL are looked up for each
    request, so a client can be made before they are set.  ``timeout_s`` limits each method as a whole.

    Args:
        provider: The name of a provider in the catalogue, or your own `Provider`.
        model: The provider's name for the model.  For the embedded provider, this is a path, or "" for the default
            model.
        api_key: The key; by default, it is read from the provider's environment variable.
        base_url: The base URL; by default, the value of the provider's environment variable if it is set, otherwise the
            provider's address.
        headers: Headers to send with every request.  They override the provider's headers.
        network: Timeouts, limits and transports for requests.

    Raises:
        ConfigError: If the provider is unknown, or an argument is invalid.

    Examples:
        >>> with HttpClient("openai", "gpt-5-mini", api_key="sk-example") as client:
        ...     client.name
        'openai:gpt-5-mini'
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
            provider = PROVIDERS.find(provider)
        require(
            "provider", provider, isinstance(provider, Provider), "a name such as 'openai', or a Provider", ConfigError
        )
        require("model", model, isinstance(model, str), "the name that the provider gives the model", ConfigError)
        require("headers", headers, isinstance(headers, Mapping | None), "a mapping of strings", ConfigError)
        self._access = Access(
            provider=provider, model=model, api_key=api_key, base_url=base_url, headers=dict(headers or {})
        )
        require(
            "network", network, isinstance(network, Network | None), "a Network such as Network(read_s=60)", ConfigError
        )
        from fsm_agent.clients.httpx_clients import HttpxClients  # imports httpx

        self._network = network or Network()
        self._clients = HttpxClients(self._network)
        self._is_closed = False
        self._warned = set[str]()

    @property
    def name(self) -> str:
        """The model, as ``provider:model``."""
        return f"{self._access.provider.name}:{self._access.model}"

    @property
    def takes_images(self) -> bool:
        """True if the model accepts images.  PDFs count as images."""
        return self._access.provider.profile_of(self._access.model).images

    @property
    def reports_logprobs(self) -> bool:
        """True if the model can be asked for log probabilities."""
        return self._access.provider.profile_of(self._access.model).logprobs

    def check_available(self) -> None:
        """Check that the client has its key and address, or its embedded engine, without sending a request.

        Raises:
            ConfigError: If one of them is missing.  The error names it.
        """
        self._access.check()

    def __repr__(self) -> str:
        return f"<HttpClient {self.name!r}{' closed' if self._is_closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the configuration.  The copy opens its own connections and reads the key from its environment.

        Raises:
            UsageError: If an argument holds a secret, which the pickle would store in plain text.
        """
        access, network = self._access, self._network
        if secret := access.secret_argument or ("network.proxy" if network.proxy and network.secrets else None):
            variables = " or ".join(access.provider.key_variables) or "a variable of the environment"
            raise UsageError(
                f"the client of {self.name!r} cannot be pickled: {secret} may hold a secret; put the key into"
                f" {variables}, where each request looks it up"
            )
        make = partial(HttpClient, base_url=access.base_url, headers=dict(access.headers), network=network)
        return make, (access.provider, access.model)

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return the reply to ``request``.

        Raises:
            ConfigError: If the key or the base URL is missing.
            UsageError: If the request cannot be expressed for this model, or the client is closed.
            ProviderError: If the request failed.
        """
        items = self._ask(request, stream=False, timeout_s=timeout_s)
        return [item async for item in items if isinstance(item, Reply)][-1]

    def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """Yield the reply as it arrives: deltas, then exactly one `Reply`.

        Close the generator to stop early.  Raises the same errors as `acomplete`.
        """
        self._check_open()
        return self._ask(request, stream=True, timeout_s=timeout_s)

    async def _ask(self, request: Request, *, stream: bool, timeout_s: float | None) -> AsyncGenerator[Delta | Reply]:
        self._check_open()
        access = self._access
        endpoint = await asyncio.to_thread(access.locate) if access.starts_server else access.locate()
        ask = self._ask_in_steps if _needs_steps(request, endpoint) else self._ask_once
        try:
            async with aclosing(ask(request, endpoint, Deadline(timeout_s), is_stream=stream)) as items:
                async for item in items:
                    yield item
        except ProviderError as error:
            _drop_frames(error)
            raise

    async def _ask_once(
        self, request: Request, endpoint: Endpoint, deadline: Deadline, *, is_stream: bool
    ) -> AsyncGenerator[Delta | Reply]:
        import httpx

        exchange = self._exchange(request, endpoint, deadline, is_stream=is_stream)
        failure: ProviderError | None = None
        response = await self._send(exchange)
        try:
            reader = ResponseReader(exchange, response)
            async for data in _pieces(response):
                for delta in reader.feed(data):
                    yield delta
                if reader.has_failed:
                    break
                if reader.is_done:
                    exchange.linger()
        except httpx.TransportError as error:
            if not reader.is_done:
                failure = exchange.failure(error, has_begun=True)
                failure.__cause__ = error
        finally:
            await response.aclose()
            response.stream = httpx.ByteStream(b"")  # breaks a cycle: the stream references the response
        try:
            for delta in reader.end():
                yield delta
            yield reader.finish(failure)
        finally:
            del failure

    def _ask_in_steps(
        self, request: Request, endpoint: Endpoint, deadline: Deadline, *, is_stream: bool
    ) -> AsyncGenerator[Delta | Reply]:
        from fsm_agent.clients.local.functions.steps import guided
        from fsm_agent.clients.local.functions.wire import Step

        def ask(step: Step) -> AsyncGenerator[Delta | Reply]:
            is_shown = is_stream and step.is_answer
            return self._ask_once(step.request, step.at(endpoint), deadline, is_stream=is_shown)

        return guided(request, endpoint.profile, ask)

    def _exchange(self, request: Request, endpoint: Endpoint, deadline: Deadline, *, is_stream: bool) -> HttpExchange:
        self._check_open()
        exchange = HttpExchange(endpoint, request, self._network, deadline, is_stream)
        if exchange.adapted:
            warn_of_left_out(exchange.adapted, self.name, self._warned)
        return exchange

    async def _send(self, exchange: HttpExchange) -> httpx.Response:
        import httpx

        clients = self._clients
        try:
            return await (clients.mine or await clients.make_mine(exchange.url)).send(exchange)
        except httpx.HTTPStatusError as error:
            return error.response
        except (httpx.TransportError, httpx.DecodingError) as error:  # an event hook may read and decode the body
            raise exchange.failure(error, has_begun=False) from error
        except RuntimeError:
            self._check_open()
            raise

    def _check_open(self) -> None:
        check_open(self.name, is_closed=self._is_closed)

    def close(self) -> None:
        """Close all connections.  Each event loop closes its connections a little later."""
        self._is_closed = True
        self._clients.close()

    async def aclose(self) -> None:
        """Close all connections, and wait until those of the running loop are closed."""
        self._is_closed = True
        await self._clients.aclose()


def _drop_frames(error: BaseException) -> None:
    """Drop the stack frames of an error and its causes, because the frames' variables hold headers, URLs and bodies."""
    for one in causes(error):
        one.__traceback__ = None


def _needs_steps(request: Request, endpoint: Endpoint) -> bool:
    if endpoint.profile.function_calls != "guided":
        return False
    from fsm_agent.clients.local.functions.steps import needs_guidance

    return needs_guidance(request)


def _pieces(response: httpx.Response) -> Any:
    """Return an iterable over the body as it arrives, or over the whole body if a mock or an event hook has read it."""
    import httpx

    if response.is_closed:
        return httpx.ByteStream(response.content if response.is_stream_consumed else b"")
    return response.stream

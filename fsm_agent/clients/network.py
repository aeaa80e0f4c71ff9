"""Network settings: timeouts, limits, proxies, TLS, and the user's client.

`fsm_agent.clients.httpx_clients` applies them.  Redirects are not followed; `fsm_agent.clients.http_exchange` reports
them.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from fsm_agent._internal.masking import secrets_in_proxies, secrets_in_url
from fsm_agent._internal.structs import Value, differing, is_finite, is_whole
from fsm_agent.errors import ConfigError
from fsm_agent.validation import require

if TYPE_CHECKING:
    import httpx


class AsyncHttpClient(Protocol):
    """The type of an `httpx.AsyncClient`, defined without importing httpx."""

    @property
    def send(self) -> Callable[..., Awaitable[Any]]: ...

    async def aclose(self) -> None: ...


OF_OWN_CLIENTS = frozenset({"max_connections", "proxy", "verify"})  # a user's client sets these itself


class Network(Value, frozen=True, kw_only=True):
    """How requests are sent: timeouts, limits, proxies, TLS, and the httpx client.

    Attributes:
        connect_s: Timeout for connecting.  All timeouts here are in seconds.
        read_s: Timeout until a reply begins, and between the pieces of a reply that is not streamed.
        write_s: Timeout between the pieces of a request, so that a slow server that keeps reading does not time out.
        pool_s: Timeout for getting one of the `max_connections` connections, which are assigned in order of arrival.
        idle_s: Timeout between the pieces of a stream; keep-alive comments count as pieces.
        linger_s: Time to wait for the end of a complete stream, so that its connection can be reused.
        max_reply_bytes: Largest size of one reply after decompression.
        max_connections: Largest number of simultaneous requests, and therefore connections, in each event loop.
        proxy: URL of a proxy for all requests, ``http://user:password@host:port``, which is never shown.  By default,
            the proxies are taken from the environment (``HTTPS_PROXY``, ``NO_PROXY`` …).  No proxy is used for loopback
            addresses.
        verify: Trusted certificates: True (those in ``SSL_CERT_FILE``, in ``SSL_CERT_DIR``, or from certifi), the path
            to a PEM file or a directory of certificates, or an `ssl.SSLContext`.  False trusts any server; use it only
            in tests.
        client: Your own `httpx.AsyncClient`, with its event hooks, authentication, headers, proxies and transport.  It
            belongs to the event loop that uses it first, and you must close it.  Alternatively, pass a function that
            makes a client: each event loop calls it once and closes the client.  The timeouts given here apply, and
            redirects are not followed.

    Raises:
        ConfigError: If a value is invalid, or its extra is not installed.

    Examples:
        >>> client_for("openai:gpt-5-mini", api_key="sk-example", network=Network(connect_s=5.0, read_s=120.0)).name
        'openai:gpt-5-mini'
    """

    hidden = ("proxy",)

    connect_s: float = 10.0
    read_s: float = 600.0
    write_s: float = 60.0
    pool_s: float = 600.0
    idle_s: float = 300.0
    linger_s: float = 1.0
    max_reply_bytes: int = 64_000_000
    max_connections: int = 1000
    proxy: str | None = None
    verify: bool | str | ssl.SSLContext = True
    client: AsyncHttpClient | Callable[[], AsyncHttpClient] | None = None

    def __post_init__(self) -> None:
        for name in ("connect_s", "read_s", "write_s", "pool_s", "idle_s", "linger_s"):
            require(
                name,
                value := getattr(self, name),
                is_finite(value) and value > 0,
                "a number of seconds above 0",
                ConfigError,
            )
        for name in ("max_reply_bytes", "max_connections"):
            require(name, value := getattr(self, name), is_whole(value, 1), "a whole number of at least 1", ConfigError)
        if isinstance(self.verify, str) and not os.path.exists(self.verify):
            raise ConfigError(
                f"verify: expected a file or folder of certificates, got {self.verify!r}, which is missing"
            )
        if self.proxy is not None:
            _check_proxy(self.proxy, "the proxy")
        if (own := self.client) is not None:
            import httpx

            is_right = isinstance(own, httpx.AsyncClient) or callable(own)
            require("client", own, is_right, "an httpx.AsyncClient, or a function that makes one", ConfigError)
            if unused := OF_OWN_CLIENTS.intersection(differing(self)):
                raise ConfigError(
                    f"client: expected no {min(unused)} with a client of your own, which ignores it; pass it to the"
                    " httpx.AsyncClient"
                )

    @property
    def secrets(self) -> frozenset[str]:
        """Strings that must not appear in messages: those in the URL of the proxy or of the environment's proxies."""
        return frozenset(secrets_in_proxies() if self.proxy is None else secrets_in_url(self.proxy))


def check_proxies_of_environment() -> None:
    """Check that the proxies in the environment can be used.

    Raises:
        ConfigError: If one of them cannot be used.
    """
    import urllib.request

    proxies = urllib.request.getproxies()
    for scheme in ("http", "https", "all"):  # the ones that httpx uses
        if url := proxies.get(scheme):
            name = f"the proxy in {scheme.upper()}_PROXY"
            _check_proxy(url if "://" in url else f"http://{url}", name)


def _check_proxy(url: str, name: str) -> None:
    scheme, colon, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    shown = rest.rpartition("@")[2]
    if not colon or scheme not in ("http", "https", "socks5", "socks5h") or not shown or not _is_url(url):
        here = f" for {shown!r}" if shown else ""
        raise ConfigError(f"the URL of {name}{here}: expected one like 'http://host:3128'")
    if scheme.startswith("socks") and find_spec("socksio") is None:
        raise ConfigError(f"{name}, '{scheme}://{shown}', needs socksio; pip install 'httpx[socks]'")


def _is_url(text: str) -> bool:
    import httpx

    try:
        httpx.URL(text)
    except httpx.InvalidURL:
        return False
    return True


def is_loopback(url: httpx.URL) -> bool:
    """Return True if ``url`` is on this machine, so that no proxy applies."""
    try:
        return ipaddress.ip_address(url.host).is_loopback
    except ValueError:
        return url.host == "localhost" or url.host.endswith(".localhost")


def uses_proxy(network: Network, url: httpx.URL) -> bool:
    """Return whether requests to ``url`` may go through a proxy, from the settings or the environment."""
    import urllib.request

    return bool(network.proxy or (not is_loopback(url) and urllib.request.getproxies()))
